"""call 2, 2 threads: line at call: plain 23, jitted 24"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 134."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


@jit
def f(self, x0, x1, p, log):
    if (self.w).sum() > np.float32(1.5):
        x0[:] = x0[:, ::-1]
    else:
        s1 = (np.signbit((np.matmul((self.v).dot(p['w'].T), p['w'])) * (np.matmul((self.v).dot(p['w'].T), p['w']) > 3))).argmax()
        v2 = self.w[-1]
    for i3 in range(3):
        v2 **= 2
        v4 = (np.square(np.clip(self.v, 0, 2)) - G1)
    v5 = np.clip(v4, -1, 1)
    v6 = v2[-2:]
    if self.w.size:
        v6.sort()
        self.v -= 0.1
        log.append(((((np.abs(np.abs(v5)) + 1) / p['w'].reshape(p['w'].shape[::-1]).T) - np.sqrt(np.abs(both(p['w'])))) % (np.abs(np.float64(0.3)) + 1)))
    if (self.v).max() > x1:
        v7 = v5[0][:-1]
    v8 = v7
    return v8


def make(call):
    global G0, G1
    n, m, k = [(9, 17, 2), (9, 17, 2), (16, 16, 1), (17, 2, 3)][call]
    x0 = array((m, m), 'i8', 'sliced', 'normal', 0 + call)
    x1 = np.float32(0.5)
    G0 = array((n, m), 'f8', 'C', 'normal', 70 + call)
    G1 = 1.5 * call
    p = {'w': x0[...], 'b': 0.25}
    me = Box(w=array((m, n), 'i8', 'permuted', 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-134').faults == []
