"""call 0, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (3,33) (3,33,0) (3,33)  [line 23] (<fuzz-1462>:23), jitted ValueError: operands could not be broadcast together with shapes (3,33) (3,33,0)  [line 23] (<fuzz-1462>:23)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1462."""
import numpy as np

from tests.fuzz.arrays import Box, array


@jit
def bump(a):
    a += 1
    return a


@jit
def f(self, x0, x1, x2, x3, p, log):
    for i1 in range(5):
        self.v[:-1] += self.v[1:]
    log.append(np.logical_or(np.multiply(x1, x2), (x2 - i1)))
    for i2 in range(2):
        x3 *= (np.clip(np.nan_to_num(self.w), 0, 100)).astype(np.uint8)
        log.extend([r * 2 for r in x1])
    v4 = np.log(np.abs(np.abs(np.sign(np.where(x2 > G1, self.w, 7)))))
    x0[:-1] += x0[1:]
    np.add(p['w'], np.ones(p['w'].shape + (0,)), out=p['w'])
    return x3, v4


def make(call):
    global G0, G1
    n, m, k = [(3, 33, 5), (3, 33, 5), (127, 7, 5), (1, 2, 3)][call]
    x0 = array((n, m), 'f8', 'C', 'normal', 0 + call)
    x1 = array((1, n), 'f8', 'C', 'normal', 10 + call)
    x2 = array((n,), 'f8', 'C', 'normal', 20 + call)
    x3 = array((k, m, n), 'f8', ('C', 'broadcast')[call > 2], 'normal', 30 + call)
    G0 = array((m, 1), 'f8', 'C', 'normal', 70 + call)
    G1 = 0.5
    p = {'w': x0[...], 'b': np.float32(0.75)}
    me = Box(w=array((n,), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1462').faults == []
