"""call 3, 1 threads: strides at argument[3]['new']: plain (1, 3), jitted (2, 1)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1079."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


class Model:
    @jit
    def f(self, x0, x1, p, log):
        v1 = np.clip(np.where(x0 > 1.0, G0, self.v), 0.5, 3.5)
        p['w'][...] = ((np.abs(np.clip((G0 - 0), -2, G1)) + 1) / np.all(np.cosh(-np.abs(v1)), axis=0))
        if (self.v > 0).any():
            v2 = x0[:, 1:]
            s3 = np.where(v1 > G1, G0, p['w']).size
        else:
            x0 |= np.logical_and((np.isnan(v1) + np.sqrt(v1)), np.matmul(self.v.T, x0.T))
        if (self.w > 0).any():
            s4 = half(half(np.exp((p['w'][0] * p['w'][0])))).item(0) / 3
        else:
            v1 += 10
            v5 = x0
        s6 = (half(half(p['w']))).any()
        p['new'] = np.ceil(self.w).T
        v1 = ((self.v).argmin(axis=-1) // np.sum(self.w, axis=(0, 1), keepdims=True))
        self.w = x0.ravel()
        return [v1, s4, log]


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(8193, 3, 2), (8193, 3, 2), (129, 8, 2), (3, 2, 1)][call]
    x0 = array((m, m), 'i1', 'C', 'nice', 0 + call)
    x1 = array((m, n), 'i1', 'C', 'nice', 10 + call)
    G0 = x0
    G1 = 3
    p = {'w': array((m, m), 'i8', 'C', 'nice', 80 + call), 'b': 2}
    me = Box(w=array((m, n), 'i1', ('C', 'broadcast')[call > 2], 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1079').faults == []
