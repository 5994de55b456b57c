"""call 0, 1 threads: value at result[0][0]: plain 'operands could not be broadcast together with shapes (3,) (3,0) (3,) ', jitted 'operands could not be broadcast together with shapes (3,) (3,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1468."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


@jit
def f(self, x0, x1, x2, p, log):
    try:
        v1 = (G1 - G0)
        np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
    except (ValueError, TypeError, IndexError) as e:
        log.append(str(e))
    np.subtract((x1 - x2), x2, out=x0)
    if (v1 > 0).any():
        s2 = (half((((np.abs(np.sum(self.w, axis=-1)) + 1) / (x2 + 0)) <= ((p['w'] - x1)).sum(axis=0, keepdims=True)))).sum()
    v3 = (np.logical_or(x2, x2) / (p['w'] + p['w']))
    return {0: log, 1: s2, 2: x1, 3: x0}


def make(call):
    global G0, G1
    n, m, k = [(3, 33, 2), (3, 33, 2), (33, 9, 5), (7, 9, 2)][call]
    x0 = array((n,), 'f8', ('C', 'F')[call > 2], 'uniform', 0 + call)
    x1 = x0.T
    x2 = array((n,), 'f8', 'readonly', 'uniform', 20 + call)
    G0 = array((m, m), 'i4', 'sliced', 'uniform', 70 + call)
    G1 = 0.5
    p = {'w': array((n,), 'f8', 'C', 'uniform', 80 + call), 'b': np.float32(0.75)}
    me = Box(w=array((n, m), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1468').faults == []
