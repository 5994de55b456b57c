"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (4,33) (4,33,0) (4,33)  [line 24] (<fuzz-1875>:24), jitted ValueError: operands could not be broadcast together with shapes (4,33) (4,33,0)  [line 24] (<fuzz-1875>:24)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1875."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def f(self, x0, x1, p, log):
    self.v[1:-1] = self.v[1:-1] + (self.v[2:] - self.v[:-2])
    v1 = np.log1p(p['w'])
    x0 += np.float64(0.3)
    for i2 in range(4):
        v3 = (np.log1p(np.arange(x0.shape[-1])) + np.log1p(np.arange(x0.shape[-1])))
        if G0.size:
            continue
    v4 = np.log1p((v1 + np.int64(2)))
    v5 = G0
    np.add(v1, np.ones(v1.shape + (0,)), out=v1)
    return v4, v5, x1, x0.T


def make(call):
    global G0, G1
    n, m, k = [(33, 4, 1), (33, 4, 1), (7, 8, 5), (65, 16, 1)][call]
    x0 = array((n, m), 'f8', 'C', 'normal', 0 + call)
    x1 = array((n,), 'f8', 'reversed', 'normal', 10 + call)
    G0 = array((n,), 'f8', 'C', 'normal', 70 + call)
    G1 = 3
    p = {'w': array((m, n), 'i4', 'C', 'normal', 80 + call), 'b': 0.25}
    me = Box(w=array((n,), 'f8', ('offset', 'C')[call > 2], 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1875').faults == []
