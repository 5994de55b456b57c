"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (2,4) (9,) (2,4)  [line 17] (<fuzz-112>:17), jitted ValueError: operands could not be broadcast together with shapes (2,4) (9,)  [line 17] (<fuzz-112>:17)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 112."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, x2, p, log):
            C0[2:] = C0[1:-1] * 2 - C0[:-2]
            p['w'][:2] += np.exp(np.exp(-np.abs(C0)))
            v1 = np.exp(-np.abs(x0))
            for i2 in range(3):
                v1 = (G1 != (self.v + self.w))
                v1 = (x2).astype(float)
                v3 = x2[:-1]
            try:
                log.append(self.w)
            except (ValueError, TypeError, IndexError) as e:
                log.append(str(e))
            for i4 in range(4):
                v5 = p['w']
                self.w[:, 0] = np.where(C0 < x1, C0, C0)
            return [x2, x1, v5, G0]


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((9,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(33, 9, 2), (33, 9, 2), (16, 4, 2), (3, 17, 3)][call]
    x0 = array((k, m, n), 'i4', 'readonly', 'uniform', 0 + call)
    x1 = 1 + call
    x2 = x0
    G0 = array((n,), 'f8', 'C', 'uniform', 70 + call)
    G1 = 3
    p = {'w': array((m, m), 'f8', 'C', 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, n), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-112').faults == []
