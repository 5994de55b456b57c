"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (3,) (3,0) (3,)  [line 26] (<fuzz-2127>:26), jitted ValueError: operands could not be broadcast together with shapes (3,) (3,0)  [line 26] (<fuzz-2127>:26)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 2127."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def keepmean(a):
    m = a.mean()
    v = ((a - m) ** 2).mean()
    return (a - m) / (v + 1)


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, p, log):
            v1 = ((np.abs((((C0 / C0) + np.sum(C0, keepdims=True)) % (np.abs(((C0 + G1) / (np.abs((2.5 - C0)) + 1))) + 1))) + 1) / np.ones(C0.shape, dtype=np.float32))
            v2 = (np.isfinite((G0 > G0)) - 2.5)
            v2 = ((np.clip(np.nan_to_num(self.v), 0, 100)).astype(np.uint8) / (x0 * p['w']))
            v3 = (np.clip(np.nan_to_num(x0), 0, 100)).astype(int)
            np.add(C0, np.ones(C0.shape + (0,)), out=C0)
            return x0, v3, v2


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((3,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(65, 3, 1), (65, 3, 1), (33, 2, 5), (16, 9, 1)][call]
    x0 = array((m, n), 'f8', 'C', 'special', 0 + call)
    x1 = array((m, n), 'f8', ('C', 'permuted')[call > 2], 'special', 10 + call)
    G0 = array((m, m), 'f8', 'C', 'special', 70 + call)
    G1 = 1.5 * call
    p = {'w': array((n,), 'f8', 'C', 'special', 80 + call), 'b': 0.25}
    me = Box(w=array((n,), 'f8', 'C', 'special', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-2127').faults == []
