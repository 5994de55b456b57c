"""call 0, 1 threads: outcome at call: plain no exception, jitted AttributeError: 'int' object has no attribute '_s' [line 27] (<fuzz-342>:27)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 342."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


@jit
def f(self, x0, x1, x2, x3, p, log):
    self.w -= (np.add(scale(x1), np.clip(x1, 0, 2)) + (np.array(x1) + x2))
    v1 = self.w
    for i2 in range(2):
        v1 = np.where(self.w < 0.5, self.v, G1)
        v3 = (-(np.isnan(p['w']) - np.int64(2)))
        if (v1[1:-1] > 0).any():
            continue
    p['w'][1:-1] = np.add(self.w, x1)
    np.multiply(self.w, 2, out=self.w[::-1])
    for r5 in x0:
        log.append(r5 * 2)
        v6 = p['w'][:]
        v1 = np.where(x1 < 1, np.sqrt(self.w), x2)
    return [v6, log, v1, x2, x0[1:]]


def make(call):
    global G0, G1
    n, m, k = [(2, 16, 1), (2, 16, 1), (17, 16, 1), (3, 2, 2)][call]
    x0 = array((m, n), 'f4', 'C', 'special', 0 + call)
    x1 = array((n,), 'f8', 'permuted', 'special', 10 + call)
    x2 = 3
    x3 = array((m,), 'f8', 'C', 'wide', 30 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': x0[...], 'b': 2}
    me = Box(w=array((n,), 'f8', 'C', 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-342').faults == []
