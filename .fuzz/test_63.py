"""call 0, 1 threads: value at argument[3]['w'][0, 0, 0]: plain np.float64(-0.9642790789793975) (9705 of 10725), jitted np.float64(-0.0)"""

from tests.fuzz.runner import run

SOURCE = r'''
import numpy as np
from tests.fuzz.arrays import Box, array

def blend(a, b):
    return a - b

def surround(C0):

    @jit
    def f(self, x0, x1, p, log):
        p['w'] *= blend(np.linspace(0, 1, G0.shape[-1]), x0)
    return (f, lambda: C0)
f, peek = surround((65,))

def make(call):
    global G0, G1
    n, m, k = [(0, 0, 0), (1, 1, 1)][call]
    x0 = array((), ('?', 'f8')[call > 2], 'C', 'special', 0)
    x1 = (m,)
    G0 = array((m, n), '?', 'C', 'nice', 70 + call)
    p = {'w': array((k, m, n), 'f8', 'C', 'nice', 80 + call), 'b': 0.25}
    me = Box(w=array((m, k), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return (me, x0, x1, p, [])

def state():
    pass
'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-63').faults == []
