"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (16,3) (129,) (16,3)  [line 23] (<fuzz-2016>:23), jitted ValueError: operands could not be broadcast together with shapes (16,3) (129,)  [line 23] (<fuzz-2016>:23)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 2016."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def surround(C0):
    @jit
    def f(self, x0, x1, p, log):
        n1 = 0
        while n1 < 3 and (p['w']).mean() > 7:
            v2 = self.w[1:, :-1]
            n1 += 1
        n3 = 0
        while n3 < 4 and (C0).min() > n1:
            v4 = p['w'].reshape(-1)
            n3 += 1
        np.subtract(np.subtract(x1, G0), C0, out=x1)
        log.append(np.where(C0 > np.int64(2), (np.float64(0.3) * self.w), C0))
        s5 = (np.arange(p['w'].shape[-1])).mean()
        s6 = (self.v).max()
        return {0: s5, 1: x1, 2: log, 3: x0, 4: s6}

    return f, lambda: C0


f, peek = surround(array((129,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(16, 129, 3), (16, 129, 3), (16, 3, 2), (127, 3, 5)][call]
    x0 = array((n,), 'f8', ('C', 'sliced')[call > 2], 'normal', 0 + call)
    x1 = array((n, m), 'f8', 'C', 'normal', 10 + call)
    G0 = array((n, m), 'f8', 'sliced', 'normal', 70 + call)
    G1 = 1.5 * call
    p = {'w': array((k, m, n), 'f8', 'C', 'normal', 80 + call), 'b': 2}
    me = Box(w=array((m, m), 'f8', 'C', 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-2016').faults == []
