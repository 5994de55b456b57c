"""call 0, 1 threads: value at argument[0].v[3]: plain np.float64(-0.0) (2 of 65), jitted np.float64(0.0)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 237."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def norm(a):
    return a / (np.abs(a).sum() + 1)


@jit
def f(self, x0, x1, p, log):
    self.v = 0.5 * np.clip((np.power(self.v, self.v) * G1), 0, 2)
    for i1 in range(3):
        pass
        if np.sum(np.where(x1 < 1.0, x1, 2.5)) > np.float32(1.5):
            continue
    return log


def make(call):
    global G0, G1
    n, m, k = [(3, 65, 1), (17, 9, 1), (2, 129, 3), (17, 16, 5)][call]
    x0 = array((m,), 'f8', 'C', 'nice', 0 + call)
    x1 = x0[1:]
    G0 = x0
    G1 = 1.5 * call
    p = {'w': array((m, 1), 'f4', 'C', 'nice', 80 + call), 'b': 0.25}
    me = Box(w=array((m, k), 'f4', 'F', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-237').faults == []
