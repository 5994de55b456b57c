"""call 0, 1 threads: outcome at call: plain no exception, jitted AttributeError: 'int' object has no attribute '_s' [line 20] (<fuzz-311>:20)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 311."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def keepmean(a):
    m = a.mean()
    v = ((a - m) ** 2).mean()
    return (a - m) / (v + 1)


@jit
def f(self, x0, p, log):
    np.multiply(G0, 2, out=G0[::-1])
    x0 += 0
    v1 = np.exp2(-np.abs(x0))
    v2 = (p['w']) * (p['w'] > G1)
    v3 = np.array([float(np.sum(r)) for r in x0])
    v4 = np.clip(p['w'], 0.5, 3.5)
    s5 = np.sum((p['w'][:, 0] + 10))
    if (np.matmul(self.w.ravel(), v2) > 0).any():
        v6 = np.sin(p['w'])
        v6 = np.tanh((p['w']).max(keepdims=True))
    return v2,


def make(call):
    global G0, G1
    n, m, k = [(7, 9, 5), (7, 9, 5), (65, 0, 2), (7, 0, 2)][call]
    x0 = array((m, n), 'i8', 'C', 'nice', 0 + call)
    G0 = x0
    G1 = 3
    p = {'w': array((n, m), 'f4', ('C', 'reversed')[call > 2], 'nice', 80 + call), 'b': 2}
    me = Box(w=array((n,), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-311').faults == []
