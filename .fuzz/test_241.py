"""call 1, 1 threads: outcome at call: plain ValueError: could not broadcast input array from shape (8,) into shape (7,) [line 25] (<fuzz-241>:25), jitted AttributeError: 'int' object has no attribute '_s' [line 24] (<fuzz-241>:24)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 241."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def surround(C0):
    class Model:
        @jit
        def f(self, x0, x1, x2, p, log):
            self.v[self.v > 0] /= 2.5
            if G1 < 0.5:
                p['new'] = ((0.1 - x0) * (self.v != G1))
            else:
                np.multiply(C0, 2, out=C0[::-1])
                x1[:, 0] = ((np.round(self.w, 1) + np.logical_or(self.w, self.w)) >= -0.75)
            log.append((((self.v * C0)) * ((self.v * C0) > 7) + sigmoid((x0 / (np.abs(G1) + 1)))))
            v1 = np.where(self.w > 1, np.clip(self.w.reshape(-1), 0.5, 3.5), G1)
            v1 += v1
            v2 = np.stack([np.remainder(np.minimum(x0, G1), (self.w * 2)), np.remainder(np.minimum(x0, G1), (self.w * 2))])
            s3 = (np.tanh(np.where(self.w > G1, np.clip(C0, -1, 1), self.w)) + (log[-1].transpose() - v1).transpose()[0]).item(0)
            v1, v2 = v2, v1
            v4 = p['w']
            return x2


    f = Model.f

    return f, lambda: C0


f, peek = surround(array((2,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(2, 2, 2), (8, 7, 3), (1, 33, 2), (16, 3, 1)][call]
    x0 = array((k, m, n), 'f8', 'C', 'uniform', 0 + call)
    x1 = array((m, n), 'f8', 'C', 'uniform', 10 + call)
    x2 = array((m, m), 'f8', 'C', 'uniform', 20 + call)
    G0 = array((k, m, n), 'f8', 'C', 'uniform', 70 + call)
    G1 = 1.5 * call
    p = {'w': array((k, m, n), 'f8', 'C', 'uniform', 80 + call), 'b': np.float32(0.75)}
    me = Box(w=array((n,), 'f8', 'C', 'uniform', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, x2, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-241').faults == []
