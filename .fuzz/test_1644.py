"""call 1, 1 threads: text at call: plain ValueError: operands could not be broadcast together with shapes (2,2) (2,7) (2,7)  [line 21] (<fuzz-1644>:21), jitted ValueError: operands could not be broadcast together with shapes (2,2) (2,7)  [line 21] (<fuzz-1644>:21)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 1644."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def surround(C0):
    @jit
    def f(self, x0, x1, p, log):
        v1 = (((p['w'] / (np.abs(np.float64(0.3)) + 1)) != (x1 / (np.abs(np.uint8(4)) + 1)))).astype(float)
        v1 = x1[::-1]
        np.add((G0 @ self.v.T), self.v, out=self.w)
        if len(log) > 1:
            return x0
        for i2 in range(3):
            p['w'][...] *= np.subtract((x1).clip(0, 3), G1)
            p['w'] = G0
            v1 = np.where(v1 > G1, np.cos(np.dot(x0, p['w'].T)), x1)
        for i3 in range(min(4, max(p['w'].shape[0] - 7, 0))):
            p['w'][i3:i3 + 3] += p['w'][0:0 + 3]
        v4 = (np.clip(self.v, 0.5, 3.5) + (self.w).clip(0, 3))
        return [log]

    return f, lambda: C0


f, peek = surround(array((1,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(0, 1, 2), (7, 2, 1), (7, 1, 2), (1, 2, 1)][call]
    x0 = array((m, n), 'f8', ('C', 'permuted')[call > 2], 'uniform', 0 + call)
    x1 = array((m,), 'f8', 'C', 'uniform', 10 + call)
    G0 = array((m, n), 'f8', ('sliced', 'offset')[call > 2], 'uniform', 70 + call)
    G1 = 1.5 * call
    p = {'w': array((m, m), ('f8', 'i4')[call > 2], ('sliced', 'C')[call > 2], 'uniform', 80 + call), 'b': np.float64(1.5)}
    me = Box(w=array((m, n), ('f8', 'f4')[call > 2], 'F', 'wide', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-1644').faults == []
