"""call 0, 1 threads: value at argument[6][0]: plain 'operands could not be broadcast together with shapes (1,129) (1,129,0) (1,129) ', jitted 'operands could not be broadcast together with shapes (1,129) (1,129,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 256."""
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
def f(self, x0, x1, x2, x3, p, log):
    global G0
    v1 = G0
    f2 = lambda q: np.sqrt(np.abs(q)) - np.float32(1.5)
    n3 = 0
    while n3 < 3 and (p['w'].reshape(-1)).sum() > 2.5:
        v4 = np.where(self.w < x2, (self.w - 0.1), self.w)
        n3 += 1
    self.w[:-1] = (-1 + v4)
    try:
        s5 = (np.dot((self.v) * (self.v > np.uint8(4)), G0.T)[-1]).min()
        np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
    except (ValueError, TypeError, IndexError) as e:
        log.append(str(e))
    v6 = p['w'][:, ::-1]
    v7 = np.sum(np.zeros(self.v.shape).transpose(), axis=(0, 1), keepdims=True)
    for i8 in range(min(3, *v7.shape)):
        v7[i8, :i8] *= v7[:i8, i8].sum()
    n9 = 0
    while n9 < 3 and np.all(v7 < 2):
        v1 = np.cos(keepmean(x0))
        n9 += 1
    try:
        G0 -= G0.mean(axis=0)
    except (ValueError, TypeError, IndexError) as e:
        log.append(str(e))
    return v6, x0, x3


def make(call):
    global G0, G1
    n, m, k = [(129, 1, 5), (4, 0, 3), (17, 8, 1), (7, 7, 1)][call]
    x0 = array((m, n), 'f4', 'C', 'uniform', 0 + call)
    x1 = array((m, n), 'f8', 'C', 'nice', 10 + call)
    x2 = 3
    x3 = array((m, n), 'i8', 'C', 'uniform', 30 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': array((n, m), 'f8', ('C', 'F')[call > 2], 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, m), 'f8', 'sliced', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-256').faults == []
