"""call 2, 1 threads: line at call: plain 33, jitted 34"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 271."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


class Model:
    @jit
    def f(self, x0, p, log):
        global G0
        v1 = np.divide(p['w'], -1)
        v2 = (self.w + self.v)
        n3 = 0
        while n3 < 3 and v2[:, :1].size:
            x0 *= np.int64(2)
            v4 = np.array([float(np.sum(r)) for r in self.w])
            G0.fill(1e-3)
            n3 += 1
        v5 = v1[1:]
        for i6 in range(1, min(5, v5.shape[0])):
            v5[i6:] = v5[i6:] - v5[:-i6]
        for i7 in range(1, min(5, self.w.shape[0])):
            self.w[i7] -= 0 * self.w[i7 - 1]
        G0 += i7
        v5 -= (self.w[::2]).dot(self.v)
        v5[1:] += v5[:-1]
        for i8 in range(3):
            self.w[0, :] = i6
            v2 = np.floor(v5.ravel())
        v9 = np.subtract(((p['w'] * p['w']) - np.cos(v4)), 1)
        v10 = np.dot((self.w).min(axis=1), self.w)
        return x0, v4


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(127, 3, 3), (127, 3, 3), (129, 2, 3), (2, 3, 5)][call]
    x0 = array((n,), 'i8', 'sliced', 'wide', 0 + call)
    G0 = array((n,), 'f8', 'C', 'wide', 70 + call)
    G1 = 0.5
    p = {'w': array((m,), 'f8', 'C', 'wide', 80 + call), 'b': 0.25}
    me = Box(w=array((m, n), 'f8', 'C', 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-271').faults == []
