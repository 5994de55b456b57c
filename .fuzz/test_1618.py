"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (33,33) (33,33,0) (33,33)  [line 35] (<fuzz-1618>:35), jitted ValueError: operands could not be broadcast together with shapes (33,33) (33,33,0)  [line 35] (<fuzz-1618>:35)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1618."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def blend(a, b):
    if np.sum(a) > 0:
        return a + b
    return a - b


def scale(a, b=2.0):
    t = a * b
    return t - a


@jit
def f(self, x0, x1, p, log):
    p['w'][2:] = p['w'][1:-1] * 2 - p['w'][:-2]
    v1 = np.logical_not(blend(self.v, self.v))
    n2 = 0
    while n2 < 2 and (self.w).argmax() > G1:
        s3 = (((np.abs(np.int8(-3)) + 1) / blend(((v1 // G0)) * ((v1 // G0) > 0.5), 2))).any()
        n2 += 1
    v4 = v1.ravel()
    v5 = p['w'].reshape(-1)
    v4 = np.square((self.w / G1))
    v6 = np.arange(v5.shape[-1]) * 0.5
    np.add(p['w'], np.ones(p['w'].shape + (0,)), out=p['w'])
    return v5, v6, log


def make(call):
    global G0, G1
    n, m, k = [(2, 33, 5), (2, 33, 5), (127, 0, 5), (16, 7, 1)][call]
    x0 = array((m, 1), 'i4', ('reversed', 'C')[call > 2], 'nice', 0 + call)
    x1 = x0.reshape(-1)
    G0 = x0
    G1 = 0.5
    p = {'w': array((m, m), 'f8', 'reversed', 'nice', 80 + call), 'b': 0.25}
    me = Box(w=array((n,), 'f4', 'broadcast', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1618').faults == []
