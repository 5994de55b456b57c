"""call 0, 1 threads: value at result[0][1]: plain 'operands could not be broadcast together with shapes (3,) (3,0) (3,) ', jitted 'operands could not be broadcast together with shapes (3,) (3,0) '"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 340."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def half(a, depth=2):
    if depth == 0:
        return a
    return half(a * 0.5, depth - 1)


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, x2, p, log):
            v3 = p['w'].ravel()
            v4 = (np.clip(np.nan_to_num(p['w'][:, None]), 0, 100)).astype(np.int64)
            np.add((C0 < C0), C0, out=self.w)
            v4 = (C0 - self.w)
            try:
                p['w'][::-1] = ((p['w'] + v3) * np.int32(3))
            except (ValueError, TypeError, IndexError) as e:
                log.append(str(e))
            v4, v3 = v3, v4
            v6 = (half(self.v) * np.where(v4 < 2.5, x2, v4))
            v4 = x0
            try:
                v4 = p['w']
                np.add(v6, np.ones(v6.shape + (0,)), out=v6)
            except (ValueError, TypeError, IndexError) as e:
                log.append(str(e))
            v7 = np.argmin((np.clip(np.nan_to_num(np.fmin(np.power(v6, x2), 0.1)), 0, 100)).astype(np.int64), axis=0, keepdims=True)
            return log, x1


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((129,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(3, 129, 1), (3, 129, 1), (1000, 7, 3), (1, 3, 5)][call]
    x0 = array((n,), 'f8', ('broadcast', 'C')[call > 2], 'nice', 0 + call)
    x1 = 3
    x2 = x0.T
    G0 = array((), 'f8', 'C', 'nice', 70 + call)
    G1 = 0.5
    p = {'w': x0[...], 'b': 2}
    me = Box(w=array((m,), 'f8', 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-340').faults == []
