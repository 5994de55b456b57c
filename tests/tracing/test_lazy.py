"""Pending arrays: operators, protocols, identity, text."""

# ruff: noqa: E501 - programs are as users write them

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest

import jitla
from jitla.tracing.lazy import LazyArray
from tests.resizing import skip_refused
from tests.tracing.sameness import same

# What user code may ask a proxy: operators, protocols, text.

PROGRAMS = {
    "isinstance": """
@jit
def f(a, b):
    x=a+b
    return isinstance(x,np.ndarray), isinstance(x.sum(),np.float64), isinstance(x.sum(), float)
""",
    "type": """
@jit
def f(a, b):
    x=a+b
    return type(x).__name__, type(x) is np.ndarray, type(x.sum()).__name__, type(a) is np.ndarray
""",
    "type2": """
@jit
def f(a, b):
    x=a+b
    return type(x)==np.ndarray, x.__class__ is np.ndarray, type(x.sum()) in (float, np.float64)
""",
    "none": """
@jit
def f(a, b):
    x=a+b
    if x is None: return 1
    if x is not None: return x is x, x.sum() is None
""",
    "set": """
@jit
def f(a, b):
    s={(a*b).sum(), (a*b).sum()}
    s.add(a.max())
    return len(s), sorted(s)
""",
    "fmt": """
@jit
def f(a, b):
    x=a+b
    return '{:.3f}'.format(x.sum()), f'{x.sum():.2e} {x} {x!r} {x.sum()!r}', '%s %.3f %d'%(x, x.sum(), x.max()), str(x), repr(x)
""",
    "print": """
@jit
def f(a, b):
    x=a+b
    print(x, x.sum(), [x], {'a': x.sum()}, (x.max(),))
    print(a)
""",
    "logging": """
@jit
def f(a, b):
    import logging, io
    s=io.StringIO()
    l=logging.Logger('q'); l.addHandler(logging.StreamHandler(s))
    l.warning('%s %s', a+b, (a*b).sum())
    return s.getvalue()
""",
    "sortedmm": """
@jit
def f(a, b):
    x=a+b
    return sorted(x), min(x), max(x), sum(x), sorted([x.sum(), a.sum(), b.max()]), min(a.sum(), b.sum()), max([a.sum(), b.sum()]), sum([a,b]), sum([a.sum(), b.sum()]), any(x>0), all(x>-100)
""",
    "scalar": """
import math
@jit
def f(a, b):
    s=(a*b).sum()
    return s.is_integer(), s.hex(), s.as_integer_ratio(), round(s,2), int(s), float(s), divmod(s,2), s//1, s%1, -s, +s, abs(s), s**2, 2**s, s==s, hash(s)==hash(float(s)), s.conjugate(), s.real, s.dtype, s.item(), s.ndim, s.shape, s.tobytes(), complex(s), s+1j, s and 1, not s, pow(s,2), s.__class__.__name__, range(int(abs(s))+1)[-1], s.__add__(1), math.sqrt(abs(s)), math.floor(s), math.ceil(s), math.isnan(s), s in [s], [1,2,3][np.argmax(a)%3], np.float64(s), np.float32(s)
""",
    "intscalar": """
import math, operator
@jit
def f(a, b):
    n=(a>0).sum()
    k=np.argmax(a)
    l=[1,2,3,4,5,6]
    return l[k], l[:n], range(n), 'x'*n, [0]*n, np.zeros(n), a[k], a[:n], n<<1, n&1, ~n, n/2, n//2, 2**n, n**-1 if 0 else 0, n+1.5, n+True, bool(n), isinstance(n,(int,np.integer)), f'{n:d}', '%d'%n, n.bit_count(), math.factorial(n), math.comb(6,n), n+2**62, divmod(n,2), operator.index(n), slice(n).indices(6), np.arange(n)+n
""",
    "iscond": """
@jit
def f(a, b):
    x=a+b
    if x.any() and (x>0).any() or x.all(): r=1
    else: r=0
    while (x*x).sum()>0.1: x=x*0.5
    return r,x, bool(x.sum()), not x.sum(), x if x.sum() else a, (x.sum() or 1), x.sum()>0 and a.sum()<0, 0<x.sum()<1
""",
    "ambig": """
@jit
def f(a, b):
    if a+b: pass
""",
    "notfound": """
@jit
def f(a, b):
    return (a+b).foo
""",
    "strmeth": """
@jit
def f(a, b):
    x=a+b
    return '{0:.2f} {1}'.format(x.sum(), x), ' '.join(f'{v:.2f}' for v in x), 'a%s'%(x,), '{x}'.format(x=x), '{x}'.format_map({'x':x}), format(x.sum(),'.3e'), str(x.sum()), '%r'%x.sum(), 'v'*int(abs(x.sum())), x.tobytes(), x.sum().hex() if 0 else 1
""",
    "bufproto": """
@jit
def f(a, b):
    import struct, hashlib, base64, zlib, io, array
    x=a+b
    return hashlib.md5(x).hexdigest(), bytes(x), bytearray(x), zlib.crc32(x), base64.b64encode(x), struct.unpack('6d',x), memoryview(x).tolist(), array.array('d',x).tolist(), x.tobytes(), b''.join([x]), io.BytesIO(x).read(8)
""",
    "subcls": """
@jit
def f(a, b):
    x=a+b
    return issubclass(type(x),np.ndarray), issubclass(type(x.sum()),float), type(x)(2).shape, type(x.sum())(3), type(x).__mro__[0].__name__, {np.ndarray:1}[type(x)], x.__class__(2).shape, type('Q',(),{}).__name__
""",
    "singledispatch": """
import functools
@functools.singledispatch
def g(x): return 'other'
@g.register(np.ndarray)
def _(x): return x*2
@g.register(float)
def _(x): return x+1
@jit
def f(a,b): return g(a+b), g((a*b).sum()), g(3)
""",
    "unhash": """
@jit
def f(a, b):
    d={}
    d[a+b]=1
""",
    "contains": """
@jit
def f(a, b):
    return 3. in a+b, (a+b)[0] in (a+b), a.sum() in [a.sum()], a.sum() in {a.sum():1}
""",
    "pickle": """
@jit
def f(a, b):
    import pickle
    x=a+b
    return pickle.loads(pickle.dumps(x)), pickle.loads(pickle.dumps(x.sum())), pickle.loads(pickle.dumps([x,{'a':x}]))
""",
    "json": """
@jit
def f(a, b):
    import json
    x=a+b
    return json.dumps(x.tolist()), json.dumps({'a': float(x.sum())}), json.dumps(x.sum())
""",
    "copy": """
@jit
def f(a, b):
    import copy
    x=a+b
    y=copy.copy(x)
    z=copy.deepcopy(x)
    y+=1
    z*=2
    return x,y,z, copy.copy(x.sum()), copy.deepcopy([x, x])
""",
    "deepcopy2": """
@jit
def f(a, b):
    import copy
    x=a+b
    l=[x,x]
    m=copy.deepcopy(l)
    return m[0] is m[1], l, m
""",
    "complex": """
@jit
def f(a, b):
    y=a*b
    y+=b
    return y,y.real,y.imag,abs(y),y.conj(),np.angle(y),y.sum(),y.sum().real,(b+1j),b*1j, np.vdot(y,y), y==y, (y*y.conj()).real.sum(), y**2, b**(1+1j)
def make():
    return np.arange(3)+1j, np.arange(3.)
""",
    "realimag": """
@jit
def f(a, b):
    x=a+1j*b
    r=x.real
    x.imag=5
    r+=1
    y=a+b
    y.real+=2
    y.real=y.real*2
    return x,r,y,y.imag,x.conj(),np.abs(x)
""",
    "0d2": """
@jit
def f(a, b):
    x=np.array(b.sum())
    x+=1
    x[...]*=2
    y=np.asarray(b.sum())*b
    z=b.sum()
    z+=1
    w=b.sum()[...]
    u=b.sum()[None]
    return x,y,z,w,u,b.sum().reshape(1,1),np.atleast_1d(b.sum()),b.sum().shape,b.sum().T, b.sum().astype('f4'), b.max().item(), type(b.sum().real).__name__
def make():
    return np.array(3.), np.arange(3.)
""",
    "boundkeep": """
@jit
def f(a, b):
    m=a.sum
    x=a*2
    a+=1
    g=x.sum
    x+=1
    ap=[].append
    return m(), g(), callable(m), m.__name__ if 0 else 1
""",
    "retbound": """
@jit
def g(a,b):
    x=a+b
    return x.sum, (x*2).mean
def f(a,b):
    p,q=g(a,b); return p(), q(), type(p.__self__).__name__
""",
    "storebound": """
class O: pass
o=O()
@jit
def g(a,b):
    x=a+b
    o.f=x.sum
    o.l=[x.max]
def f(a,b):
    g(a,b); return o.f(), o.l[0](), type(o.f()).__name__
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_pending_arrays_behave_as_arrays(program: str) -> None:
    same(program)


def test_array_proxies_have_the_attributes_of_arrays() -> None:
    public = {name for name in dir(np.ndarray) if not name.startswith("_")}
    assert public <= set(dir(LazyArray))
    assert "__getattr__" not in dir(LazyArray)  # every attribute would be found slowly


def test_bound_operators_are_values() -> None:
    @jitla.jit
    def bind(x: np.ndarray) -> list[list[float]]:
        y = x + 1.0
        held = [y.__mul__, y.__rsub__, y.__pow__, y.__lt__]
        return [np.asarray(v).tolist() for f in held for v in map(f, (2.0, 3.0))]

    x = np.arange(3.0)
    assert bind(x) == bind.__wrapped__(x)


def test_what_is_no_attribute_is_said_as_numpy_says_it() -> None:
    @jitla.jit
    def ask(x: np.ndarray) -> tuple[list[str], bool]:
        said = []
        for value in (x, x + 1.0, (x + 1.0).sum()):
            try:
                said.append(value.missing)
            except AttributeError as error:
                said.append(str(error))
        return said, hasattr(x, "missing")

    x = np.ones(5)
    assert ask(x) == ask.__wrapped__(x)
    assert ask(x) == ask.__wrapped__(x)


def test_a_power_modulo_a_number_is_refused() -> None:
    @jitla.jit
    def modular(x: np.ndarray) -> np.ndarray:
        return pow(x + 1.0, 2, 3)  # type: ignore[misc, no-any-return]

    with pytest.raises(TypeError, match=r"pow\(\): 'numpy.ndarray', 'int', 'int'"):
        modular(np.ones(5))


# What a proxy must not show: identity, protocols, arrays without dimensions, references.

IDENTITY_PROGRAMS = {
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


@pytest.mark.parametrize("name", IDENTITY_PROGRAMS)
def test_identity_is_that_of_arrays(name):
    skip_refused(IDENTITY_PROGRAMS[name])
    same(IDENTITY_PROGRAMS[name])


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


# ``id`` of arrays and scalars within a call: that of what a proxy stands for.

MODES = ("sync", "background", "auto")
X = np.arange(1.0, 30000.0)
library: dict = {"__name__": "a_library"}
exec("def key(x):\n    return id(x)\ndef keep(cache, x):\n    cache[id(x)] = x\n", library)
key, keep = library["key"], library["keep"]


def stable(x):
    y = x * 2
    before = id(y)
    z = y
    y += 1
    w = y + 1
    return before == id(y), id(y) == id(z), id(y) == id(w), key(y) == before, id(w) == key(w), y.sum()


def scalars(x):
    s = x.sum()
    t = s + 1
    return id(s) == id(s), id(s) == id(t), key(s) == id(s), float(t)


def of_argument(x):
    y = x + 1
    return id(x) == id(X), key(x) == id(X), float(y.sum())


def cached(x):
    cache: dict = {}
    y = x * 2
    keep(cache, y)
    z = x * 3
    cache[id(z)] = z
    found = cache[id(y)] + cache[key(z)]
    return found.sum(), len(cache), cache[id(y)] is y, cache[id(z)] is z


def updated(x):
    y = x + 0
    seen = []
    for _ in range(5):
        y += x
        y *= 0.5
        seen.append(id(y))
    return len(set(seen)), y.sum()


def views(x):
    y = x * 2
    v = y[1:]
    return id(v) == id(v), id(v) == id(y), key(v) == id(v), v.sum()


def mapped(x):
    y, z = x * 2, x + 1
    keys = [id(each) for each in (y, z)]
    return keys == list(map(id, (y, z))), keys == [key(y), key(z)], sorted(keys) == sorted(map(id, [z, y]))


@pytest.mark.parametrize("function", [stable, scalars, of_argument, cached, updated, views, mapped])
@pytest.mark.parametrize("mode", MODES)
def test_identities(function, mode):
    wanted = function(X)
    traced = jitla.jit(compile=mode)(function)
    for _ in range(20):
        assert traced(X) == wanted


def test_sparse_matrices():
    sparse = pytest.importorskip("scipy.sparse")

    def scaled(m):
        n = m * 2
        return id(n) == id(n), key(n) == id(n), id(m) == key(m), n.sum()

    m = sparse.random(300, 300, 0.1, "csr", random_state=1)
    traced = jitla.jit(compile="sync")(scaled)
    for _ in range(3):
        assert traced(m) == scaled(m)


def test_wrong_calls():
    @jitla.jit(compile="sync")
    def wrong(x):
        y = x * 2
        return id(y, y)

    with pytest.raises(TypeError, match="exactly one argument"):
        wrong(X)
