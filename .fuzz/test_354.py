"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (5,7,33) (5,33) (5,7,33)  [line 22] (<fuzz-354>:22), jitted ValueError: operands could not be broadcast together with shapes (5,7,33) (5,33)  [line 22] (<fuzz-354>:22)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 354."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


@jit
def f(self, x0, x1, x2, p, log):
    v1 = (self.w).all(axis=2)
    v2 = p['w']
    for i3 in range(3):
        for i3j in range(2):
            self.w /= np.sqrt(np.abs(np.tanh((2.5 + self.w[:, 0]))))
            self.v.sort()
            v4 = self.w
            if (v2[:, None] * v1).size:
                continue
    for i5 in range(1, min(5, x0.shape[0])):
        x0[i5] -= x1 * x0[i5 - 1]
    return v1


def make(call):
    global G0, G1
    n, m, k = [(2, 3, 1), (2, 3, 1), (33, 7, 5), (16, 33, 2)][call]
    x0 = array((n, m), 'f8', 'C', 'uniform', 0 + call)
    x1 = 1 + call
    x2 = array((m, n), 'f8', ('reversed', 'offset')[call > 2], 'nice', 20 + call)
    G0 = array((m,), 'f8', 'F', 'uniform', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': 2}
    me = Box(w=array((k, m, n), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-354').faults == []
