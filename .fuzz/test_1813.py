"""call 0, 1 threads: value at argument[3][0]: plain 'operands could not be broadcast together with shapes (4,128) (4,128,0) (4,128) ', jitted 'operands could not be broadcast together with shapes (4,128) (4,128,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1813."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


def surround(C0):
    @jit
    def f(self, x0, p, log):
        global G0
        t = 0.0
        for i1 in range(min(5, x0.shape[0])):
            t = t + (x0[:i1] * G1).sum()
        G0 += G1
        s2 = np.all(both(self.w))
        G0[1:] += G0[:-1]
        p['w'][:, 1:] -= G1
        if np.min(self.v) > G1:
            s3 = np.exp(C0).shape[0] + 1
            np.multiply(np.ceil(p['w']), G1, out=p['w'])
        x0 += np.ones(G0.shape, dtype=np.float32)
        for i4 in range(min(4, max(self.w.shape[0] - 7, 0))):
            self.w[i4:i4 + 3] += self.w[i4 + 1:i4 + 1 + 3]
        for i5 in range(5):
            for i5j in range(2):
                C0.sort()
        v6 = (G0).dot(G0.T)
        v6 = (x0[:1] * x0)
        try:
            self.v *= i1
            np.add(self.v, np.ones(self.v.shape + (0,)), out=self.v)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        return {0: v6, 1: x0, 2: x0.T}

    return f, lambda: C0


f, peek = surround(array((4,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(128, 4, 2), (128, 4, 2), (8193, 1, 5), (1, 1, 5)][call]
    x0 = array((m, n), 'f8', 'C', 'uniform', 0 + call)
    G0 = array((m, n), 'f8', 'C', 'uniform', 70 + call)
    G1 = 0.5
    p = {'w': array((m, m), 'f8', 'C', 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, m), 'f4', ('C', 'offset')[call > 2], 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1813').faults == []
