"""call 0, 1 threads: value at argument[3][0]: plain 'operands could not be broadcast together with shapes (4,) (4,0) (4,) ', jitted 'operands could not be broadcast together with shapes (4,) (4,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1360."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@jit
def f(self, x0, p, log):
    global G0
    try:
        v1 = np.clip(np.negative(x0), None, 1)
        np.add(p['w'], np.ones(p['w'].shape + (0,)), out=p['w'])
    except (ValueError, TypeError, IndexError) as e:
        log.append(str(e))
    v1 = p['w']
    x0 += ((p['w'] - G0) + np.arange(p['w'].shape[-1]) * 0.5)
    for i2 in range(2):
        for i2j in range(2):
            v3 = np.cos(np.log1p((True + G0[1::2])))
            v3 = np.maximum(((np.log10(np.abs(v3))).clip(0, 3) + G1), G1)
    s4 = np.min(np.sum(np.minimum(p['w'], v1), axis=-1, keepdims=True))
    v1[1:] = v1[:-1]
    v3[:2] = s4
    v5 = ((np.exp(-np.abs(self.w[:])) - ((p['w'] == p['w']) - s4)) / (np.abs(np.float64(0.3)) + 1))
    if v3.shape[0] > 3:
        v5 = (sigmoid((self.v.reshape(-1) / (np.abs(x0) + 1))) * np.maximum(sigmoid(self.w), np.ones(v5.shape[-1])))
        G0[:2] -= s4
    else:
        self.v += self.v[::-1] * 2
        v3 = (((np.abs(np.float32(1.5)) + 1) / self.w) <= (v1 - x0))
        v6 = np.square(p['w'][:-1])
    v7 = G0
    v8 = G0
    x0 -= (i2j + ((s4 - v8)).mean(axis=-1, keepdims=True))
    v9 = np.log(np.abs(self.v))
    f10 = lambda q: np.sqrt(np.abs(q)) - s4
    return {0: x0, 1: v1}


def make(call):
    global G0, G1
    n, m, k = [(4, 4, 3), (2, 8, 3), (3, 16, 3), (17, 3, 1)][call]
    x0 = array((n,), 'f8', 'F', 'nice', 0 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': array((n,), 'f8', 'C', 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m,), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1360').faults == []
