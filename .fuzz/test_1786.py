"""call 0, 1 threads: value at result[4][0]: plain 'operands could not be broadcast together with shapes (16,7) (16,7,0) (16,7) ', jitted 'operands could not be broadcast together with shapes (16,7) (16,7,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1786."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def scale(a, b=2.0):
    t = a * b
    return t - a


class Model:
    @jit
    def f(self, x0, x1, p, log):
        v1 = (G0 * 1e-3)
        try:
            pass
            np.add(self.w, np.ones(self.w.shape + (0,)), out=self.w)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        v2 = ((x0 + self.w)).astype(np.float32)
        s3 = np.min(((scale(self.v)).clip(0, 3)).astype(float))
        v4 = self.w
        v5 = np.where(self.w < np.int8(-3), np.negative((self.w + s3)), np.negative((self.w + s3)))
        p['w'][2:] = p['w'][1:-1] * 2 - p['w'][:-2]
        v6 = self.v.reshape(-1)
        v7 = np.add((scale((p['w'] * p['w'])) - (np.float64(0.3) == np.zeros_like(v6))), s3)
        return [v5, v2, v7, v1, log, v4]


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(7, 16, 3), (7, 16, 3), (17, 8, 1), (65, 33, 3)][call]
    x0 = array((n,), 'i4', ('permuted', 'broadcast')[call > 2], 'uniform', 0 + call)
    x1 = array((m, n), 'i4', 'C', 'normal', 10 + call)
    G0 = array((m, m), 'f8', 'C', 'normal', 70 + call)
    G1 = 1.5 * call
    p = {'w': x0, 'b': np.float32(0.75)}
    me = Box(w=array((m, n), 'f8', ('permuted', 'C')[call > 2], 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1786').faults == []
