"""call 0, 1 threads: value at result[4][1]: plain 'operands could not be broadcast together with shapes (1000,) (1000,0) (1000,) ', jitted 'operands could not be broadcast together with shapes (1000,) (1000,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1041."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@jit
def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


class Model:
    @jit
    def f(self, x0, x1, p, log):
        x1[:] /= ((self.v) ** 2.0 - np.zeros_like(self.v))
        self.v += half((self.w > x0).ravel())
        v1 = self.w[:, None]
        f2 = lambda q: q * np.float32(1.5) + p['w']
        log.append(np.multiply((np.maximum(v1, True) - (v1 / (np.abs(v1) + 1))), np.greater(np.log(np.abs(v1)), (v1 - v1))))
        v3 = np.abs(x0)[:-1]
        try:
            f4 = lambda q: q * G1 + v3
            np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        v1, v3 = v3, v1
        v3 = v3.T
        return v3, x0, x1, v1, log, v3


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(1000, 4, 1), (2, 17, 2), (16, 2, 5), (17, 17, 2)][call]
    x0 = array((n,), 'f4', 'C', 'uniform', 0 + call)
    x1 = array((n,), ('f4', 'u1')[call > 2], ('sliced', 'C')[call > 2], 'uniform', 10 + call)
    G0 = array((m, n), 'f4', 'sliced', 'uniform', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': np.float64(1.5)}
    me = Box(w=array((n,), 'f4', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1041').faults == []
