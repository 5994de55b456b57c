"""call 0, 1 threads: outcome at call: plain no exception, jitted AttributeError: 'int' object has no attribute '_s' [line 43] (<fuzz-82>:43)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 82."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


class Model:
    @jit
    def f(self, x0, x1, x2, x3, p, log):
        for i1 in range(min(4, max(x3.shape[0] - 7, 0))):
            x3[i1:i1 + 3] += x3[2 * i1:2 * i1 + 3]
        for i2 in range(1):
            self.w += i1
            s3 = ((x3).astype(np.float64)).sum()
            v4 = (self.v * self.v)
            if np.all(np.square(x3)) > 0:
                continue
        for i5 in range(5):
            p['w'] = np.fmin(((x3 < 2) + (x3 < 2)), G1)
            v6 = p['w'][...]
            f7 = lambda q: q[::-1] + q
        for i8 in range(3):
            x3.sort()
            v9 = (v4).all(axis=-1, keepdims=True)
        n10 = 0
        while n10 < 2 and (x1[1:]).max() > np.uint8(4):
            pass
            n10 += 1
        self.w.fill(7)
        np.multiply(self.v, 2, out=self.v[::-1])
        return {0: x1, 1: x3, 2: log, 3: x2}


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(1000, 65, 2), (1000, 65, 2), (3, 17, 2), (2, 8, 5)][call]
    x0 = array((n,), 'f8', 'F', 'special', 0 + call)
    x1 = array((n,), 'i4', 'C', 'uniform', 10 + call)
    x2 = array((n,), 'i4', 'readonly', 'special', 20 + call)
    x3 = array((n,), 'i4', 'F', 'special', 30 + call)
    G0 = x0
    G1 = 1.5 * call
    p = {'w': array((n, m), 'i4', ('offset', 'C')[call > 2], 'special', 80 + call), 'b': 2}
    me = Box(w=array((n,), 'f8', 'F', 'special', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-82').faults == []
