"""call 0, 1 threads: value at result[1][0]: plain 'operands could not be broadcast together with shapes (33,) (33,0) (33,) ', jitted 'operands could not be broadcast together with shapes (33,) (33,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1724."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def surround(C0):
    @jit
    def f(self, x0, x1, p, log):
        nonlocal C0
        v1 = (G0).dot(self.w)
        for i2 in range(1, min(5, self.w.shape[0])):
            self.w[i2:] = self.w[i2:] - self.w[:-i2]
        np.add(v1, v1[::-1], out=v1)
        v3 = np.cos(np.sqrt(np.abs(np.rint(np.where(C0 > 7, self.v, G1)))))
        if p['w'][...].size:
            v4 = (self.v % (np.abs(v3) + 1))
        else:
            s5 = np.min(p['w'])
        if 0.1 < 0.5:
            self.v -= (np.abs(v4)).sum(keepdims=True)
            v6 = p['w'][::-1][::-1]
        else:
            v7 = np.dot((-x1), G0.T)
        v1[:-1] += v1[1:]
        v8 = np.nan_to_num(self.v)
        v1 = C0.T
        if np.mean(np.floor(G0)) > np.float64(0.3):
            v6 = np.cumsum((self.w.T + self.w))
        try:
            C0 -= C0[0]
            np.add(C0, np.ones(C0.shape + (0,)), out=C0)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        v9 = v6
        return v9, log, x1, v3, v8, v1

    return f, lambda: C0


f, peek = surround(array((33,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(1000, 33, 2), (1000, 33, 2), (0, 2, 2), (17, 2, 1)][call]
    x0 = array((m,), 'f8', ('broadcast', 'sliced')[call > 2], 'wide', 0 + call)
    x1 = array((m, n), 'f8', 'reversed', 'wide', 10 + call)
    G0 = array((m, n), 'f8', ('sliced', 'C')[call > 2], 'wide', 70 + call)
    G1 = 0.5
    p = {'w': x0, 'b': 2}
    me = Box(w=array((n,), 'f8', 'C', 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1724').faults == []
