"""call 0, 1 threads: outcome at call: plain UFuncTypeError: Cannot cast ufunc 'add' output from dtype('float64') to dtype('uint8') with casting rule 'same_kind' [line 20] (<fuzz-1471>:20), jitted ValueError: operands could not be broadcast together with shapes (1,8,7) (1,8,7,0)  [line 20] (<fuzz-1471>:20)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1471."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


class Model:
    @jit
    def f(self, x0, x1, p, log):
        n1 = 0
        while n1 < 2 and np.max(self.v) > G1:
            pass
            n1 += 1
        v2 = G0
        np.add(G0, np.ones(G0.shape + (0,)), out=G0)
        return x1, log, x0, v2


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(7, 8, 1), (8, 9, 1), (65, 7, 2), (0, 9, 2)][call]
    x0 = array((n,), 'u1', 'F', 'nice', 0 + call)
    x1 = array((n, m), 'u1', ('C', 'broadcast')[call > 2], 'wide', 10 + call)
    G0 = array((k, m, n), 'u1', 'C', 'nice', 70 + call)
    G1 = 1.5 * call
    p = {'w': x0[...], 'b': np.float64(1.5)}
    me = Box(w=array((m, 1), 'u1', ('C', 'reversed')[call > 2], 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1471').faults == []
