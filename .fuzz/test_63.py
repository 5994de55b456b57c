"""call 0, 1 threads: value at argument[3]['w'][0, 0, 0]: plain np.float64(-0.9642790789793975) (9705 of 10725), jitted np.float64(-0.0)"""

from tests.fuzz.runner import run

SOURCE = r'''
"""Program 63."""
import numpy as np

from tests.fuzz.arrays import Box, array


def bump(a):
    a += 1
    return a


def blend(a, b):
    if np.sum(a) > 0:
        return a + b
    return a - b


def both(a, b=1.5):
    return np.maximum(a, 0) * b + np.minimum(a, 0)


def surround(C0):
    @jit
    def f(self, x0, x1, p, log):
        v1 = np.where(x1 > G1, np.stack([np.square(x1), np.square(x1)]), x1)
        s2 = np.argmax(np.where(x0 < G1, (-self.w.reshape(self.w.shape[::-1])[1:, :-1]), x0))
        x1[::-1] = np.exp(-np.abs((x1 % (np.abs(x1) + 1))))
        v3 = (v1).astype(np.int8)
        self.w[:2] *= (((np.sort(x0, axis=None) * np.int64(2)) > x0.copy())) * (((np.sort(x0, axis=None) * np.int64(2)) > x0.copy()) > 1.0)
        v3 = (G1 - both(v3)[:1])
        s4 = np.min(v1)
        for i5 in range(3):
            v3, v1 = v1, v3
            v6 = (self.w // 1e-3)
            p['w'] *= (-blend(np.linspace(0, 1, G0.shape[-1]), x0))
        v7 = (p['w'] + p['w'])[:, :1]
        for i8 in range(1):
            p['new'] = p['w'][1:-1]
            log.append(np.ones(x0.shape, dtype=np.float32))
            v9 = np.abs(p['new'])
        return log

    return f, lambda: C0


f, peek = surround(array((65,), 'f8', 'C', 'nice', 5))


def make(call):
    global G0, G1
    n, m, k = [(33, 65, 5), (9, 2, 2), (33, 33, 1), (7, 7, 1)][call]
    x0 = array((), ('?', 'f8')[call > 2], 'broadcast', 'special', 0 + call)
    x1 = array((m,), '?', 'offset', 'special', 10 + call)
    G0 = array((m, n), '?', 'C', 'special', 70 + call)
    G1 = 0.5
    p = {'w': array((k, m, n), 'f8', 'F', 'special', 80 + call), 'b': 0.25}
    me = Box(w=array((m, k), 'f8', 'C', 'special', 90 + call), v=x0 * 0.5, rate=0.1)
    return me, x0, x1, p, []


def state():
    return G0, G1, peek()

'''


def test_program() -> None:
    assert run(SOURCE, 'fuzz-63').faults == []
