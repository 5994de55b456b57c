"""call 0, 1 threads: value at result[0][0]: plain 'operands could not be broadcast together with shapes (8,) (8,0) (8,) ', jitted 'operands could not be broadcast together with shapes (8,) (8,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1575."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


def blend(a, b):
    if np.sum(a) > 0:
        return a + b
    return a - b


@jit
def f(self, x0, x1, x2, p, log):
    try:
        v1 = self.w
        np.add(G0, np.ones(G0.shape + (0,)), out=G0)
    except (ValueError, TypeError, IndexError) as e:
        log.append(str(e))
    x2[:, 1:] = x2
    return log, v1


def make(call):
    global G0, G1
    n, m, k = [(2, 8, 1), (2, 8, 1), (7, 7, 3), (1000, 17, 3)][call]
    x0 = array((m,), 'f8', ('permuted', 'C')[call > 2], 'uniform', 0 + call)
    x1 = np.float32(0.5)
    x2 = array((m, k), ('f4', 'f8')[call > 2], 'C', 'uniform', 20 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': array((n,), '?', 'C', 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((n,), ('f8', 'i4')[call > 2], 'F', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1575').faults == []
