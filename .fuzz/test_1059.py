"""call 2, 1 threads: line at call: plain 28, jitted 29"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1059."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


def norm(a):
    return a / (np.abs(a).sum() + 1)


@jit
def f(self, x0, p, log):
    for i1 in range(1):
        v2 = self.w
    v2[-1] = 2.5
    v3 = np.clip(self.v, None, 1)[:1]
    v4 = ((v3 != v3) / (np.abs((self.w - self.w)) + 1))
    v2 -= v2[0]
    v2 = np.floor(((np.power(self.w, v2) < (p['w'] >= 1))).astype(float))
    self.w += np.clip(np.abs((i1 * self.w)), 0, 2)
    return [v2, v4, v3, log, x0, self.w]


def make(call):
    global G0, G1
    n, m, k = [(3, 1, 5), (3, 1, 5), (17, 4, 5), (17, 2, 5)][call]
    x0 = array((1, n), 'i1', 'offset', 'normal', 0 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': x0[...], 'b': 0.25}
    me = Box(w=array((n,), 'i1', ('C', 'F')[call > 2], 'special', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1059').faults == []
