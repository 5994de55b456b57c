"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (2,16) (2,5) (2,16)  [line 30] (<fuzz-1990>:30), jitted ValueError: operands could not be broadcast together with shapes (2,16) (2,5)  [line 30] (<fuzz-1990>:30)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1990."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def norm(a):
    return a / (np.abs(a).sum() + 1)


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


@jit
def f(self, x0, x1, p, log):
    n1 = 0
    while n1 < 4 and G1 < 0.5:
        self.w /= np.int8(-3)
        s2 = (np.dot((x1 != self.w), self.v.T)).max()
        n1 += 1
    v3 = self.w[1:, :-1]
    v3 = self.v
    v4 = np.clip(np.zeros(p['w'].shape), None, 1)
    np.add((self.v > self.v), self.w, out=v4)
    return x0


def make(call):
    global G0, G1
    n, m, k = [(2, 1, 1), (2, 1, 1), (16, 2, 5), (128, 65, 1)][call]
    x0 = array((m, n), 'f8', ('C', 'F')[call > 2], 'normal', 0 + call)
    x1 = array((m, n), 'f8', 'C', 'normal', 10 + call)
    G0 = array((m, n), 'f8', 'C', 'normal', 70 + call)
    G1 = 3
    p = {'w': x0, 'b': np.float32(0.75)}
    me = Box(w=array((m, k), 'f8', 'C', 'normal', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1990').faults == []
