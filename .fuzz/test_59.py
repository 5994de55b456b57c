"""call 0, 1 threads: strides at result[1]: plain (56, 8), jitted (8, 56)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 59."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, p, log):
            self.v += 1
            for i1 in range(4):
                v2 = self.v
            v4 = np.dot((p['w'] + self.v), x1)
            v2 = np.maximum(np.log1p(np.clip(p['w'][:, ::-1], -2, 1.0)), np.exp((x1 // v4)))
            v5 = np.multiply((self.w + self.w), i1)
            return v5, v2


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((7,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(1000, 7, 1), (1000, 7, 1), (33, 33, 3), (3, 129, 1)][call]
    x0 = array((m, m), 'i4', 'broadcast', 'normal', 0 + call)
    x1 = array((m,), ('i4', 'f8')[call > 2], 'C', 'normal', 10 + call)
    G0 = array((m,), 'f4', 'sliced', 'normal', 70 + call)
    G1 = 1.5 * call
    p = {'w': x0, 'b': np.float64(1.5)}
    me = Box(w=array((n,), 'i4', 'C', 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-59').faults == []
