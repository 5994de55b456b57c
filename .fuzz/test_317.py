"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (128,4) (128,4,0) (128,4)  [line 25] (<fuzz-317>:25), jitted ValueError: operands could not be broadcast together with shapes (128,4) (128,4,0)  [line 25] (<fuzz-317>:25)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 317."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


@jit
def f(self, x0, p, log):
    v1 = np.logaddexp(self.w, 0.1)
    v1 = (self.v * G0)
    np.add(v1, np.ones(v1.shape + (0,)), out=v1)
    return log, x0, x0


def make(call):
    global G0, G1
    n, m, k = [(128, 4, 5), (128, 4, 5), (8193, 8, 1), (129, 8, 1)][call]
    x0 = array((n, m), 'f4', ('C', 'F')[call > 2], 'nice', 0 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': array((n,), 'f8', ('C', 'offset')[call > 2], 'nice', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, 1), 'f8', ('permuted', 'sliced')[call > 2], 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-317').faults == []
