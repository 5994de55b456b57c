"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (7,7) (7,7,0) (7,7)  [line 36] (<fuzz-116>:36), jitted ValueError: operands could not be broadcast together with shapes (7,7) (7,7,0)  [line 36] (<fuzz-116>:36)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 116."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def blend(a, b):
    if np.sum(a) > 0:
        return a + b
    return a - b


@jit
def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@jit
def f(self, x0, x1, x2, p, log):
    for i1 in range(min(4, x0.shape[0])):
        x0[i1] = x0[i1:].sum(axis=0)
    x2[1:-1] = np.int64(2)
    s2 = ((G1 * (p['w'][...] + p['w']))).sum()
    v3 = sigmoid(self.v)
    if x0.size < 2:
        return x0
    v3 = ((np.where(p['w'] < i1, np.dot(self.v, self.v.T), 2.5) // (np.abs(np.int64(2)) + 1))).astype(float)
    p['w'] = np.maximum(v3, np.float64(0.3))
    np.add(p['w'], np.ones(p['w'].shape + (0,)), out=p['w'])
    return {0: v3, 1: log, 2: x2, 3: x1}


def make(call):
    global G0, G1
    n, m, k = [(33, 7, 1), (2, 16, 5), (7, 33, 5), (33, 2, 3)][call]
    x0 = array((m, n), 'f8', 'C', 'uniform', 0 + call)
    x1 = array((n, m), ('f8', 'i4')[call > 2], ('permuted', 'F')[call > 2], 'normal', 10 + call)
    x2 = array((n,), 'f8', 'C', 'uniform', 20 + call)
    G0 = array((m, m), 'f4', 'C', 'uniform', 70 + call)
    G1 = 0.5
    p = {'w': array((m,), 'f8', 'sliced', 'wide', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, m), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-116').faults == []
