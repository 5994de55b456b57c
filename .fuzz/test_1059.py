"""call 2, 1 threads: line at call: plain 28, jitted 29"""

from tests.fuzz.runner import run

SOURCE = r'''
import numpy as np
from tests.fuzz.arrays import Box, array

@jit
def f(self, x0, p, log):
    for i1 in range(1):
        v2 = self.w
    v2 = (np.power(self.w, v2) < (p['w'] >= 1)).astype(float)
    self.w += i1 * self.w

def make(call):
    n, m, k = [(2, 0, 0)][call]
    x0 = array((n,), 'f8', 'C', 'nice', 0)
    p = {'w': x0[...], 'b': 0.25}
    me = Box(w=array((n,), 'i1', ('C',)[call > 2], 'nice', 90), v=x0, rate=0.1)
    return (me, x0, p, [])

def state():
    pass
'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1059').faults == []
