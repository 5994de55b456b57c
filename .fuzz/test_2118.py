"""call 0, 1 threads: value at result[1][0]: plain "Cannot cast ufunc 'add' output from dtype('float64') to dtype('uint8') with casting rule 'same_kind'", jitted 'operands could not be broadcast together with shapes (7,) (7,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 2118."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


class Model:
    @jit
    def f(self, x0, x1, x2, x3, p, log):
        v1 = (x0 % x0)
        try:
            pass
            np.add(v1, np.ones(v1.shape + (0,)), out=v1)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        v2 = (G0 / (np.abs(self.w) + 1))
        v3 = x1
        for r5 in p['w']:
            r5 *= 2
            self.w[1:] = p['w']
        for i6 in range(3):
            self.v = np.power(x2, v3)
            x3 += ((np.sqrt(self.v)).min(keepdims=True).reshape(-1)).mean(axis=-1, keepdims=True)
        v7 = self.v[::-1]
        for i8 in range(min(4, x0.shape[0])):
            x0[i8] = x0[i8:].sum(axis=0)
        v9 = np.sort(self.v, axis=None)[...]
        v10 = v7
        v11 = x0[1::2]
        n12 = 0
        while n12 < 3 and v11.size:
            v13 = half((v2 - self.w))
            v14 = ((v13 + self.w) - np.int32(3))
            v15 = ((v14 @ x3.T) / (G0 % i8))
            n12 += 1
        v2 = np.stack([half((v1[::-1] - v1[::-1])), half((v1[::-1] - v1[::-1]))])
        return {0: v11, 1: log}


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(7, 1, 5), (7, 1, 5), (7, 16, 5), (1000, 9, 5)][call]
    x0 = array((n,), 'u1', 'C', 'wide', 0 + call)
    x1 = array((n,), 'f4', 'C', 'wide', 10 + call)
    x2 = x0.reshape(-1)
    x3 = array((m, n), 'f8', 'C', 'normal', 30 + call)
    G0 = array((m, n), 'f4', 'F', 'wide', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': np.float64(1.5)}
    me = Box(w=array((m, n), 'f4', 'C', 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-2118').faults == []
