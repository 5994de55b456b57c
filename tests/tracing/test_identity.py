"""What a proxy must not show: identity, protocols, arrays without dimensions, references."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest

import jitla
from tests.resizing import skip_refused
from tests.tracing.sameness import same

PROGRAMS = {
    "bases": """
@jit
def f(a, b):
    y = a[1:]
    z = (b+1)[2:]
    return y.base is a, y[::2].base is a, a.T.base is a, a[...].base is a, z.base is z, y.base is not a
""",
    "outputs": """
@jit
def f(a, b):
    out = np.empty(6)
    r = np.random.default_rng(1).random(out=out)
    c = np.add(a, b, out=out)
    s = np.sum([a, b], axis=0, out=out)
    return r is out, c is out, s is out, a is b, a+1 is not a, a is None
""",
    "containers": """
@jit
def f(a, b):
    o = np.empty(2, object)
    o[0] = a
    v = memoryview(a)
    w = np.asarray(v)
    return o[0] is a, v.obj is a, w.base.obj is a, next(np.nditer(a)).base is a, np.broadcast(a, 1).iters[0].base is a
""",
    "protocols": """
class Out:
    __array_ufunc__ = None
@jit
def f(a, b):
    y = a+b
    face = y.__array_interface__
    return (face['shape'], face['typestr'], type(y.__array_struct__).__name__, a.__array_interface__['data'] == a.__array_interface__['data'],
            y.__array_namespace__() is np, y.__array_wrap__(b), y.__array_priority__,
            y.__array_ufunc__(np.add, '__call__', y, Out()) is NotImplemented, y.__array_ufunc__(np.add, '__call__', y, b),
            y.__array_function__(np.sum, (np.ndarray,), (y,), {}))
""",
    "protocols_wrong": """
@jit
def f(a, b):
    return (a+1).__array_function__(np.reshape, (np.ndarray,), a, (2, 1))
""",
    "flat": """
@jit
def f(a, b):
    m = a > 0
    k = (np.arange(2)+1)*2
    i = a.argmax()
    a.flat[k] = b.flat[k] + 1
    return a.flat[m], b.flat[k], (a+1).flat[m], a.flat[1], a.flat[1:3], a.flat[i]
""",
    "no_dimensions": """
@jit
def f(a, b):
    x = np.array(1.5)
    y = x.astype(np.int64)
    y[()] = 3
    z = np.where(x > 1, x, 2.)
    z[...] = 4
    r = (a[:1]+1).reshape(())
    r[()] = 5
    return y, z, r, np.reshape(a[:1]*2, ()), type(y), type(z), type(r), x+1, np.clip(x, 0, 1), (a+1)[:1].reshape(-1)
""",
    "ellipsis": """
@jit
def f(a, b):
    x = np.array(1.5)
    return np.add(x, 2, out=...), np.sqrt(x, out=...), np.add(a, b, out=...), type(np.add(x, 2, out=...))
""",
    "inplace_protocol": """
class U:
    def __init__(s, v): s.v = v
    def __array_ufunc__(s, u, m, *i, **k): return U('answered')
@jit
def f(a, b):
    c = a
    c += U(1)
    d = b+1
    d *= U(1)
    return c.v, d.v, type(c).__name__
""",
    "handed_out": """
@jit
def f(a, b):
    class A:
        def __array__(self, dtype=None, copy=None): return b[:1]+2
    class I:
        def __array__(self, dtype=None, copy=None): return np.array(1)
    return np.minimum(A(), A()), np.asarray(A()), a+A(), a[I()], np.concatenate([A(), a]), a[A().__array__().astype(int)*0]
""",
    "answers": """
@jit
def f(a, b):
    class C:
        def __array_ufunc__(self, ufunc, method, *inputs, **kw): return 7
    class D:
        def __array_ufunc__(self, ufunc, method, *inputs, **kw): return 7,
    return np.square(a), np.square(a, C()), np.modf(a, None, C()), np.modf(a, D()), np.modf(a, b, D()), np.square(a, D()), np.modf(a, None, b), np.square(a, out=C()), np.modf(a, out=(C(), b)), np.add.reduce(a, out=C())
""",
    "resize": """
@jit
def f(a, b):
    x = np.eye(3)
    x.resize(2, 3, 3)
    y = np.ones(3)+1
    y.resize((2, 2), refcheck=True)
    return x, y
""",
    "resize_wrong": """
@jit
def f(a, b):
    np.eye(3).resize(3, refcheck='no')
""",
    "resize_referenced": """
@jit
def f(a, b):
    x = np.eye(3)
    y = x
    x.resize(4, 4)
""",
    "reshaped_elsewhere": """
def make(): return np.ones((3, 3)), np.ones((3, 3))
@jit
def f(a, b):
    np.ndarray.resize(a, (2,), refcheck=False)
    type(b).shape.__set__(b, (9,))
    c = np.ones((3, 3))
    list(map(c.resize, [(2,)]))
    return a.shape, a+1, b+1, c.shape, c+1
""",
    "resize_viewed": """
@jit
def f(a, b):
    x = np.eye(3)
    y = x[1:]
    x.resize(4, 4)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same(name):
    skip_refused(PROGRAMS[name])
    same(PROGRAMS[name])


def test_a_ufunc_made_of_a_method_is_let_go():
    class Owner:
        def method(self, x):
            return x + 1

    @jitla.jit
    def f(function, x):
        return function(x + 1)

    owner = Owner()
    gone = ref(owner)
    assert list(f(np.frompyfunc(owner.method, 1, 1), np.arange(2.0))) == [2.0, 3.0]
    del owner
    gc.collect()
    assert gone() is None
