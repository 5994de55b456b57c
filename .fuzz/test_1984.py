"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (8193,) (8193,0) (8193,)  [line 22] (<fuzz-1984>:22), jitted ValueError: operands could not be broadcast together with shapes (8193,) (8193,0)  [line 22] (<fuzz-1984>:22)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1984."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def norm(a):
    return a / (np.abs(a).sum() + 1)


@jit
def f(self, x0, x1, x2, p, log):
    v1 = (np.any(p['w'][::-1], axis=0, keepdims=True)).clip(0, 3)
    s2 = np.sum(np.ones(p['w'].shape[-1]))
    v1 = (norm(v1) * ((np.abs(s2) + 1) / p['w'].ravel()))
    v1 = np.zeros(p['w'].shape)
    np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
    return [s2]


def make(call):
    global G0, G1
    n, m, k = [(8193, 7, 2), (9, 7, 1), (3, 9, 3), (3, 3, 3)][call]
    x0 = array((n,), 'f8', ('C', 'broadcast')[call > 2], 'special', 0 + call)
    x1 = array((m,), 'f8', 'C', 'special', 10 + call)
    x2 = array((m, n), 'f8', 'C', 'special', 20 + call)
    G0 = array((n, m), '?', 'permuted', 'special', 70 + call)
    G1 = 0.5
    p = {'w': x0, 'b': 0.25}
    me = Box(w=array((m, n), 'f8', 'sliced', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1984').faults == []
