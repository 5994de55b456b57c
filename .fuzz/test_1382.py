"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (1089,) (1089,0) (1089,)  [line 23] (<fuzz-1382>:23), jitted ValueError: operands could not be broadcast together with shapes (1089,) (1089,0)  [line 23] (<fuzz-1382>:23)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1382."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


@jit
def f(self, x0, x1, x2, p, log):
    v1 = (np.sqrt(np.abs(G0[1:-1])) // G1)
    v2 = np.sqrt(np.abs(v1))
    f3 = lambda q: q[::-1] + q
    for i4 in range(5):
        v5 = x0[:2]
        self.w = (np.fmax(np.clip(np.remainder(self.v[:, None, :], np.float32(1.5)), -2, self.w), -1)).astype(bool)
        self.v[..., ::-1] += G0[:, :1]
    v6 = ((x0 // (np.abs(p['w']) + 1)) + np.copy(x0))
    v7 = (p['w'] * v6)
    np.add(x1, np.ones(x1.shape + (0,)), out=x1)
    return v5


def make(call):
    global G0, G1
    n, m, k = [(9, 0, 3), (9, 0, 3), (33, 33, 3), (1, 65, 3)][call]
    x0 = array((n, m), 'f8', 'C', 'uniform', 0 + call)
    x1 = x0.reshape(-1)
    x2 = array((n,), 'f8', 'C', 'uniform', 20 + call)
    G0 = x0
    G1 = 3
    p = {'w': x0[...], 'b': 0.25}
    me = Box(w=array((), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1382').faults == []
