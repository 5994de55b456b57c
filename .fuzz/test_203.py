"""call 0, 1 threads: value at argument[3][0][0, 5]: plain np.float32(0.3572127) (13359 of 32772), jitted np.float32(0.35721272)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 203."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


@jit
def f(self, x0, p, log):
    v1 = self.w[1:, :-1]
    for i2 in range(3):
        v1 = scale(scale(self.w))
        if (np.remainder(x0, x0)).mean() > G1:
            break
    log.append(np.exp((G0 - 2)))
    return v1,


def make(call):
    global G0, G1
    n, m, k = [(8193, 4, 1), (8193, 4, 1), (4, 2, 2), (127, 33, 5)][call]
    x0 = array((m, n), 'u1', 'C', 'uniform', 0 + call)
    G0 = array((m, n), ('f4', 'f8')[call > 2], ('F', 'reversed')[call > 2], 'uniform', 70 + call)
    G1 = 1.5 * call
    p = {'w': x0[...], 'b': 0.25}
    me = Box(w=array((m, n), 'f8', 'permuted', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-203').faults == []
