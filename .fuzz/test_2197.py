"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (17,65) (17,65,0) (17,65)  [line 26] (<fuzz-2197>:26), jitted ValueError: operands could not be broadcast together with shapes (17,65) (17,65,0)  [line 26] (<fuzz-2197>:26)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 2197."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


class Model:
    @jit
    def f(self, x0, x1, x2, x3, p, log):
        v1 = np.abs(np.add(x2, x2))[1:-1]
        self.w *= np.logical_not((self.w % self.w))
        self.w[...] *= np.log2(np.abs((self.w - G1)))
        for i2 in range(min(3, *p['w'].shape) - 1):
            p['w'][i2 + 1:, i2] /= np.abs(p['w'][i2, i2]) + 5
            p['w'][i2 + 1:, i2 + 1:] -= p['w'][i2 + 1:, i2:i2 + 1] * p['w'][i2, i2 + 1:]
        np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
        return [x3, x0, x2, log, v1, x1]


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(17, 65, 3), (17, 65, 3), (7, 1, 3), (17, 17, 5)][call]
    x0 = array((n, m), 'f8', 'broadcast', 'uniform', 0 + call)
    x1 = array((k, m, n), 'f8', 'permuted', 'uniform', 10 + call)
    x2 = array((m, k), 'f8', 'C', 'uniform', 20 + call)
    x3 = x0[::-1]
    G0 = array((n,), 'f8', 'C', 'uniform', 70 + call)
    G1 = 1.5 * call
    p = {'w': array((m, 1), 'i8', 'C', 'uniform', 80 + call), 'b': np.float32(0.75)}
    me = Box(w=array((n,), 'f4', 'sliced', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-2197').faults == []
