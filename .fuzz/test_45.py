"""call 0, 1 threads: value at result[1][1]: plain 'operands could not be broadcast together with shapes (8193,) (8193,0) (8193,) ', jitted 'operands could not be broadcast together with shapes (8193,) (8193,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 45."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def scale(a, b=2.0):
    t = a * b
    return t - a


class Model:
    @jit
    def f(self, x0, x1, p, log):
        global G0
        try:
            pass
            p['w'].sum(axis=7)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        for i1 in range(4):
            p['w'] /= np.fmax(p['w'], 2)
            x1 -= x1[0]
            s2 = ((scale(p['w']) - scale(p['w']))).sum()
        v3 = (np.where(x1 > i1, np.where(p['w'] < -0.75, x1.T, G1), x1) > np.full(p['w'].shape, 7))
        for i4 in range(min(4, max(v3.shape[0] - 7, 0))):
            v3[i4:i4 + 3] += v3[2 * i4:2 * i4 + 3]
        last = bump(p['w'])
        s5 = p['w'].ravel().flat[0]
        s6 = float(np.sqrt(np.abs(np.sum(v3[:-1], axis=-1, keepdims=True))).shape[0])
        v3 = np.isnan((np.clip(np.nan_to_num(G0), 0, 100)).astype(np.int32))
        try:
            v3 = G0[::2, ::-1]
            np.add(last, np.ones(last.shape + (0,)), out=last)
        except (ValueError, TypeError, IndexError) as e:
            log.append(str(e))
        G0.sort()
        v7 = p['w']
        v8 = np.matmul(np.clip(v3, None, 1), v3.T)
        x0.fill(np.int32(3))
        return {0: v7, 1: log}


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(8193, 7, 3), (8193, 7, 3), (1, 2, 2), (7, 9, 1)][call]
    x0 = array((n, m), 'f8', 'C', 'nice', 0 + call)
    x1 = array((n,), 'f8', 'reversed', 'special', 10 + call)
    G0 = array((m, m), 'f8', 'C', 'nice', 70 + call)
    G1 = 0.5
    p = {'w': array((n,), 'f8', 'F', 'nice', 80 + call), 'b': 2}
    me = Box(w=array((), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-45').faults == []
