"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (16,2) (16,2,0) (16,2)  [line 27] (<fuzz-232>:27), jitted ValueError: operands could not be broadcast together with shapes (16,2) (16,2,0)  [line 27] (<fuzz-232>:27)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 232."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def blend(a, b):
    if np.sum(a) > 0:
        return a + b
    return a - b


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, p, log):
            v1 = (self.v % (np.abs(x1) + 1))
            for i2 in range(5):
                v3 = np.square(x0)
                p['w'] *= ((C0 * p['w']) - (C0 < C0))
                v1 *= np.maximum((np.where(v3 > G1, self.v, v3)) ** 0, (np.add(x0, 1) / np.add(x0, 1)))
            np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
            return log, x1, v1, v3, x0, x0.T


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((2,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(16, 2, 3), (16, 2, 3), (127, 2, 2), (1000, 3, 5)][call]
    x0 = array((n, m), 'f8', 'C', 'uniform', 0 + call)
    x1 = array((n, m), 'f8', 'C', 'uniform', 10 + call)
    G0 = array((n,), 'f8', 'F', 'uniform', 70 + call)
    G1 = 0.5
    p = {'w': array((m, m), 'f8', 'C', 'uniform', 80 + call), 'b': 0.25}
    me = Box(w=array((m, n), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-232').faults == []
