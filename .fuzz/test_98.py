"""call 0, 1 threads: value at result[5][0]: plain np.float64(-0.0) (1 of 1), jitted np.float64(0.0)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 98."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@jit
def f(self, x0, x1, x2, p, log):
    p['w'][-1] = G1
    v1 = (np.floor(self.w) - np.negative(p['w'])).T
    if x0.size < 2:
        return x0
    for r3 in x2:
        i2 = r3 + 1
        self.v -= np.abs((G1 / sigmoid(p['w']).T))
    p['w'] -= (sigmoid(self.v) >= np.ones(r3.shape, dtype=np.float32))
    if x0.size < 2:
        return x0
    for i4 in range(1):
        v5 = np.clip((self.v[:, None]) * (self.v[:, None] > 0.1), -2, 0)[0]
        if (np.zeros_like(p['w'])).sum() > G1:
            continue
    return [log, x1, x0, x2, v1, v5, x0[1:]]


def make(call):
    global G0, G1
    n, m, k = [(17, 16, 3), (17, 16, 2), (127, 1, 5), (8, 16, 2)][call]
    x0 = array((n,), 'f8', 'C', 'uniform', 0 + call)
    x1 = array((m, n), 'f8', 'C', 'uniform', 10 + call)
    x2 = array((m, n), 'f8', 'C', 'uniform', 20 + call)
    G0 = array((m, n), 'f8', ('C', 'permuted')[call > 2], 'uniform', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': np.float32(0.75)}
    me = Box(w=array((m, n), 'f8', 'F', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-98').faults == []
