"""call 0, 1 threads: outcome at call: plain no exception, jitted AttributeError: 'int' object has no attribute '_s' [line 25] (<fuzz-183>:25)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 183."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


@jit
def f(self, x0, p, log):
    s1 = np.sum(half(np.log1p(np.zeros_like(p['w'])))) * 0.5
    v2 = ((np.fmax(self.v[-2:], self.v) - np.expm1(-np.abs(x0))) - s1)
    f3 = lambda q: np.sqrt(np.abs(q)) - G1
    for i4 in range(1, min(5, p['w'].shape[0])):
        p['w'][i4] -= s1 * p['w'][i4 - 1]
    np.multiply(self.w, 2, out=self.w[::-1])
    p['new'] = (v2 != 1)
    v5 = f3(((self.v) * (self.v > 2.5) + 0.5))
    self.v = (self.v / 2)
    p['new'][1:] = i4
    for r7 in G0:
        i6 = r7 + 1
        v2 -= (s1 * self.v)
    for i8 in range(min(4, max(v5.shape[0] - 5, 0))):
        v5[i8:i8 + 1] += v5[2 * i8:2 * i8 + 1]
    return {0: v2, 1: v5, 2: x0, 3: log}


def make(call):
    global G0, G1
    n, m, k = [(17, 2, 1), (17, 2, 1), (1, 33, 1), (9, 3, 1)][call]
    x0 = array((m,), ('i4', 'f8')[call > 2], 'C', 'nice', 0 + call)
    G0 = array((m, n), 'i4', 'C', 'nice', 70 + call)
    G1 = 3
    p = {'w': x0[...], 'b': 2}
    me = Box(w=array((n,), ('i4', 'f8')[call > 2], 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-183').faults == []
