"""call 2, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (127,7) (4,) (127,7)  [line 23] (<fuzz-51>:23), jitted ValueError: operands could not be broadcast together with shapes (127,7) (4,)  [line 23] (<fuzz-51>:23)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 51."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def keepmean(a):
    m = a.mean()
    v = ((a - m) ** 2).mean()
    return (a - m) / (v + 1)


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, x2, x3, p, log):
            global G0
            G0 -= (np.clip(np.nan_to_num(np.abs(C0)), 0, 100)).astype(np.int64)
            p['w'] += p['w'].T
            for r2 in x0:
                log.append(r2 * 2)
                p['w'] += np.int64(2)
            for i3 in range(1, min(5, x1.shape[0])):
                x1[i3:] = x1[i3:] - x1[:-i3]
            v4 = p['w'].reshape(p['w'].shape[::-1])
            v4 = v4[:2]
            t = 0.0
            for i5 in range(min(5, r2.shape[0])):
                t = t + (r2[:i5] * 7).sum()
            if np.all(C0[:2] < 2):
                v4 = x0[:, :1]
            return x3


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((4,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(8, 4, 3), (8, 4, 3), (127, 7, 5), (1, 1, 3)][call]
    x0 = array((m, m), 'i1', 'C', 'uniform', 0 + call)
    x1 = array((n,), 'i4', 'C', 'normal', 10 + call)
    x2 = array((m, n), 'i1', 'C', 'nice', 20 + call)
    x3 = array((n,), 'i1', 'C', 'normal', 30 + call)
    G0 = array((n, m), 'f8', 'C', 'normal', 70 + call)
    G1 = 0.5
    p = {'w': x0[...], 'b': 2}
    me = Box(w=array((n,), 'i1', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, x3, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-51').faults == []
