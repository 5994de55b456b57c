"""call 2, 1 threads: outcome at call: plain ValueError: operands could not be broadcast together with shapes (0,) (33,) (0,)  [line 14] (<fuzz-1229>:14), jitted TypeError: NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input has 3 dimensions [line 14] (<fuzz-1229>:14)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1229."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


@jit
def f(self, x0, x1, p, log):
    p['w'][p['w'] < 1] *= np.ceil(G0)
    for i1 in range(4):
        v2 = (np.sqrt(x1) * np.float64(0.3))
        v3 = (-x1)
        v4 = sum(v3 + k for k in range(2))
    v5 = (-(-self.v))
    v6 = self.v[:, None, :]
    v7 = v6.swapaxes(0, 1)
    v8 = p['w'].copy()
    return {0: v7, 1: v5, 2: x0}


def make(call):
    global G0, G1
    n, m, k = [(3, 3, 2), (3, 3, 2), (33, 0, 5), (9, 3, 1)][call]
    x0 = array((m, n), ('f4', 'i4')[call > 2], 'permuted', 'uniform', 0 + call)
    x1 = array((m, m), 'f8', 'C', 'wide', 10 + call)
    G0 = array((n,), 'f8', 'sliced', 'uniform', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': np.float32(0.75)}
    me = Box(w=array((m, n), 'i8', 'F', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1229').faults == []
