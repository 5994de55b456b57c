"""call 3, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (8,) (33,33) (33,8)  [line 24] (<fuzz-1752>:24), jitted ValueError: operands could not be broadcast together with shapes (8,) (33,33)  [line 24] (<fuzz-1752>:24)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1752."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


@jit
def f(self, x0, x1, x2, x3, p, log):
    v1 = np.logical_and((-np.where(p['w'] > np.int32(3), p['w'], 2.5)), (-np.where(p['w'] > np.int32(3), p['w'], 2.5)))
    for i2 in range(1, min(5, x2.shape[0])):
        x2[i2:] = x2[i2:] - x2[:-i2]
    for r4 in self.w:
        i3 = r4 + 1
        v1[0], v1[-1] = v1[-1], v1[0]
    self.v *= ((np.sign((self.v + r4)) - ((r4 * i3) * np.abs(G0))) + np.uint8(4))
    self.v += np.max(self.v, axis=0, keepdims=True)
    self.w[::2] = ((self.w + self.w) * np.where(G0 < i2, r4, 1e-3))
    i3[...] = i2
    np.multiply((i3 + G0), p['w'], out=x3)
    p['w'].no_such_thing
    return x3, x0


def make(call):
    global G0, G1
    n, m, k = [(3, 3, 1), (3, 3, 1), (4, 4, 1), (8, 33, 1)][call]
    x0 = array((n,), 'f8', 'C', 'wide', 0 + call)
    x1 = array((m, 1), 'f8', 'offset', 'wide', 10 + call)
    x2 = x0[:]
    x3 = array((m, n), 'f8', 'sliced', 'wide', 30 + call)
    G0 = x0
    G1 = 3
    p = {'w': array((m, m), 'f8', 'C', 'wide', 80 + call), 'b': 2}
    me = Box(w=array((1, n), 'f8', 'C', 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1752').faults == []
