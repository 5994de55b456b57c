"""call 0, 1 threads: outcome at call: plain no exception, jitted AttributeError: 'int' object has no attribute '_s' [line 19] (<fuzz-99>:19)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 99."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


class Model:
    @jit
    def f(self, x0, x1, p, log):
        global G0
        t = 0.0
        for i1 in range(min(5, G0.shape[0])):
            t = t + (G0[:i1] * x1).sum()
        np.multiply(self.v, 2, out=self.v[::-1])
        if (self.v).sum() > -0.75:
            self.v -= np.minimum(np.floor(self.w), np.add(p['w'], i1))
            v2 = (G0 > 1)
            v3 = np.sign((p['w']) ** 0)
        p['w'][:-1] = (np.clip(self.w, 0, 2) > G1)
        G0[..., ::-1] = np.float64(0.3)
        log.append(np.multiply((G1 + (np.uint8(4) - x0[0])), t))
        return {0: x1, 1: v2, 2: log, 3: v3, 4: x0.T}


f = Model.f


def make(call):
    global G0, G1
    n, m, k = [(9, 4, 2), (9, 4, 2), (16, 33, 2), (8, 4, 2)][call]
    x0 = array((k, m, n), 'f4', 'C', 'nice', 0 + call)
    x1 = array((), 'f4', 'C', 'nice', 10 + call)
    G0 = x0
    G1 = 0.5
    p = {'w': x0, 'b': 2}
    me = Box(w=array((1, n), ('f4', 'f8')[call > 2], 'C', 'nice', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-99').faults == []
