"""call 0, 1 threads: value at result[0]: plain np.float64(43.07536242330615), jitted np.float64(43.07536242330616)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 110."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def norm(a):
    return a / (np.abs(a).sum() + 1)


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


@jit
def f(self, x0, x1, p, log):
    v1 = G0
    s2 = np.sum(((np.minimum((self.w - v1), G1)).clip(0, 3)).sum(axis=-1)) * 0.5
    for i3 in range(min(3, *x1.shape)):
        x1[i3, :i3] *= x1[:i3, i3].sum()
    p['w'] /= np.array(v1)
    v1 = abs(((self.w - self.v) @ v1.T))
    log.append(np.ceil((s2 + self.v)))
    n4 = 0
    while n4 < 2 and np.all(self.w < 2):
        f5 = lambda q: np.sqrt(np.abs(q)) - 3
        v6 = ((p['w'] * p['w']) + (x1 + x1))
        v7 = (self.v[...]) ** 2
        n4 += 1
    return s2, x1, x0.T


def make(call):
    global G0, G1
    n, m, k = [(9, 33, 2), (9, 33, 2), (1, 17, 1), (0, 9, 2)][call]
    x0 = array((m, n), 'f8', 'C', 'uniform', 0 + call)
    x1 = x0[::-1]
    G0 = x0
    G1 = 3
    p = {'w': x0, 'b': 0.25}
    me = Box(w=array((m, n), 'f8', 'sliced', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-110').faults == []
