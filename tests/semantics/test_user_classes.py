"""Code of users' classes that runs without a call in the source: every protocol of Python.

Each program computes with an array, then uses an object whose class writes into that array. The
values from before have to stay what they were.
"""

from __future__ import annotations

import pytest

from tests.semantics.oracle import check

CLASS = """
def make(n):
    return array((n,), 'f8', 'C', 'normal', n),
class Meta(type):
    def __instancecheck__(cls, obj): return True
class Cell:
    def __get__(s, obj, owner):
        if obj is not None: obj.write()
        return 2.0
class Setting:
    def __get__(s, obj, owner): return 1.0
    def __set__(s, obj, value): obj.write(); obj.got = value
    def __delete__(s, obj): obj.write()
class Writer:
    cell = Cell()
    setting = Setting()
    def __init__(s, n): s.b = np.ones(n); s.k = 0
    def write(s, *a):
        s.k += 1
        s.b[:] = s.k
        return s.b
    @property
    def prop(s): return s.write()
    @prop.setter
    def prop(s, v): s.write(); s.got = v
    @prop.deleter
    def prop(s): s.write()
    def __getattr__(s, name):
        if name == 'ghost': return s.write()
        raise AttributeError(name)
    __getitem__ = __add__ = __radd__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = write
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __mod__ = __pow__ = __lt__ = __gt__ = write
    __neg__ = __pos__ = __abs__ = __invert__ = write
    def __eq__(s, o): s.write(); return True
    def __iadd__(s, o): s.write(o); return s
    def __setitem__(s, k, v): s.write(); s.got = v
    def __delitem__(s, k): s.write()
    def __bool__(s): s.write(); return True
    def __len__(s): s.write(); return 3
    def __contains__(s, k): s.write(); return True
    def __float__(s): s.write(); return 3.0
    def __int__(s): s.write(); return 3
    def __index__(s): s.write(); return 0
    def __iter__(s): s.write(); yield s.write(); yield s.write(); yield 1.0
    def __enter__(s): return s.write()
    def __exit__(s, *a): s.write()
    def __str__(s): s.write(); return 'w'
    def __format__(s, spec): s.write(); return 'w' + spec
    def __repr__(s): s.write(); return 'w'
    def __hash__(s): s.write(); return 1
    def keys(s): s.write(); return ['p', 'q']
    def __call__(s, *a): return s.write()
    def __array__(s, dtype=None, copy=None): return s.write().copy()
"""

USES = [
    "L[1]", "L[1:2]", "L.prop", "L.cell", "L.ghost", "getattr(L, 'prop')", "hasattr(L, 'ghost')",
    "L + 1.0", "1.0 + L", "L + y", "y + L", "y * L", "L @ 2.0", "L - x", "2.0 / L", "L % 2", "L ** 2",
    "-L", "+L", "~L", "abs(L)", "L < 1.0", "L < x", "1.0 > L", "L == 1.0", "L != 1.0", "y + L[0] * L",
    "(L + 1.0) + L", "(L + 1.0)[0]", "-(L + 1.0)", "L[0][0] + L[1]", "L.prop.sum()", "L.prop[1:] * 2.0",
    "bool(L)", "not L", "L and 1.0", "L or 1.0", "1.0 if L else 2.0", "len(L)", "float(L)", "int(L)",
    "2 in L", "2 not in L", "L in [1, 2]", "[L] == [1.0]", "(1.0, L) == (2.0, 1.0)", "1.0 < L < 2.0",
    "str(L)", "f'{L}'", "f'{L!r:>5}'", "'%s' % L", "repr(L)", "format(L, 'x')", "hash(L)", "[*L]", "tuple(L)",
    "list(L)", "sum([1.0, *L][-1:])", "list(zip(L, [1, 2]))", "[v for v in L]", "list(enumerate(L))",
    "(lambda p, q, r: r)(*L)", "dict(**L)", "{**L}", "(lambda p, q: p)(**L)", "max(L, key=id) is None",
    "L()", "list(map(L, [1, 2]))", "[1.0 for _ in [1] if L]", "np.add(y, L)", "np.sqrt(L)",
    "np.exp(L + 1.0)", "np.array(L)", "np.concatenate([L, L])", "np.sum(L)", "x[L]", "[1.0, 2.0][L]",
    "isinstance(L, float)", "np.maximum(1.0, L)", "np.stack([x, L])", "next(iter(L))", "range(L)",
    "sorted(L, key=id) is None", "any(v is None for v in L)", "round(L.prop[0])", "divmod(L[0], 2.0)[0]",
]
STATEMENTS = [
    "p, q, r = L\n    z = r", "p, *q = L\n    z = p", "for v in L: z = y + v", "for p in (L,): z = p[0]",
    "with L as c: z = c + y", "with L: z = y", "L += y\n    z = L.k", "L += 1.0\n    z = L.k",
    "L[0] += 1.0\n    z = L.got", "L[0] = y * 2.0\n    z = L.got", "L.prop = y * 2.0\n    z = L.got",
    "L.prop += 1.0\n    z = L.got", "L.setting = y\n    z = L.got", "del L.prop\n    z = 1",
    "del L[0]\n    z = 1",
    "del L.setting\n    z = 1", "if L: z = y * 2.0", "while L:\n        z = y * 2.0\n        break",
    "assert L\n    z = y", "match L:\n        case [p, q]: z = p\n        case _: z = 2",
    "match L:\n        case object(prop=p): z = p", "p = [0, 0]\n    p[L] = y\n    z = p[0]",
    "x[L] = 1.0\n    z = 1", "L[0], L[1] = y, y\n    z = L.got", "L.prop, z = y, L.got if L.k > 9 else 1",
    "p = [1.0]\n    p += L\n    z = len(p)", "z = [p := L, p + y][1]", "z = (lambda: L[0] + y)()",
    "z = [L[i] + y for i in range(2)][0]", "g = (v for v in L)\n    z = next(g)",
    "z = {'k': L}['k'][0] + y", "z = [L, L][0] + y", "h = L\n    z = h[0] * y + h.prop",
    "class K:\n        v = L[0]\n    z = K.v", "z = 0.0\n    for i in range(3): z = z + L[i] * y",
]


@pytest.mark.parametrize("use", USES)
def test_expressions_with_user_classes_are_pythons(use: str) -> None:
    check(
        CLASS + f"""
@jit
def f(x):
    L = Writer(len(x))
    w = L.b
    y = w * x
    z = {use}
    u = y + 1.0
    z2 = {use}
    return y, u, L.k, w.copy(), w * x, type(z).__name__, type(z2).__name__
""",
        sizes=(3, 1000),
    )


@pytest.mark.parametrize("use", USES)
def test_expression_of_a_parameter(use: str) -> None:
    check(
        CLASS + f"""
@jit
def g(x, L):
    y = L.b * x
    z = {use}
    v = L.b + y
    z2 = {use}
    return y, v, v + 1.0, L.k, type(z2).__name__
def f(x):
    return g(x, Writer(len(x)))
""",
        sizes=(3, 1000),
    )


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_with_user_classes_are_pythons(statement: str) -> None:
    check(
        CLASS + f"""
@jit
def g(x, L):
    y = L.b * x
    v = L.b * 2.0 + y
    {statement}
    u = L.b + v
    return y, v, u, z, L.k
def f(x):
    return g(x, Writer(len(x)))
""",
        sizes=(3, 1000),
    )


@pytest.mark.parametrize("made", [
    "zip(x * 2, x + 1)", "enumerate(M * 2)", "zip(M * 2, M + 1)", "map(abs, M * 2)", "iter([x * 2, x])",
    "{'k': x * 2}.values()", "{'k': x * 2}.items()", "iter({'k': x * 2}.items())", "reversed([x * 2, x])",
    "(v * 2 for v in M)", "(v + y for v in (x * 2, x))", "enumerate([x * 2, x])", "iter(M + 1)",
])
def test_iterators_that_are_returned_give_arrays(made: str) -> None:
    check(
        f"""
def make(n): return array((n,), 'f8', 'C', 'normal', n),
@jit
def g(x):
    M = np.ones((3, len(x))) * x
    y = x + 1.0
    return {made}
def f(x):
    def plain(v): return [plain(e) for e in v] if type(v) is tuple else (type(v).__name__, v)
    return [plain(v) for v in g(x)]
""",
        sizes=(3, 1000),
    )


@pytest.mark.parametrize("made", [
    "np.ma.masked_array([1.0, 2.0], mask=[1, 0])", "np.array([(0, 1)], 'i4,i4')", "np.ones(3)",
    "np.array([1, None])", "np.float64(2)", "np.ones(3, 'f2')",
])
@pytest.mark.parametrize("claim", ["__array_priority__ = 1e4", "__array_ufunc__ = None", "claims = None"])
def test_arrays_leave_operations_to_their_operand(made: str, claim: str) -> None:
    check(
        f"""
class Other:
    {claim}
    def __eq__(self, other): return "eq"
    def __ne__(self, other): return "ne"
    def __mul__(self, other): return "mul"
    def __rmul__(self, other): return "rmul"
    def __rmatmul__(self, other): return "rmatmul"
    def __rdivmod__(self, other): return "rdivmod"
def tried(act):
    try:
        return str(act())
    except TypeError as error:
        return str(error)
def make(n): return Other(), {made}
@jit
def f(other, x):
    return [tried(lambda: other == x), tried(lambda: x == other), tried(lambda: x != other),
            tried(lambda: other * x), tried(lambda: x * other), tried(lambda: x @ other),
            tried(lambda: divmod(x, other))]
""", sizes=(3,))


KEYS = """
class Engine(type):
    def __instancecheck__(cls, obj): cls.w[:] = 5.0; return True
    def __subclasscheck__(cls, obj): cls.w[:] = 6.0; return True
class Kind(metaclass=Engine): pass
class Key:
    def __init__(s, w): s.w = w
    def __hash__(s): s.w[:] = 9.0; return 1
    def __eq__(s, o): s.w[:] = 7.0; return True
    def __lt__(s, o): s.w[:] = 8.0; return True
    def __iter__(s): s.w[:] = 3.0; yield 1; yield 2
def make(n):
    return array((n,), 'f8', 'C', 'normal', n),
"""


@pytest.mark.parametrize("statement", [
    "z = {K: 1}", "z = {K}", "z = {2, K}", "z = {K: 1 for _ in [1]}", "z = {K for _ in [1]}",
    "z = {1: 2}[K]",
    "z = {1: 2}.get(K)", "z = {1: 2}.setdefault(K, 5)", "z = {1: 2}.pop(K)", "z = {1}.add(K)",
    "z = K in {1: 2}", "z = [1].index(K)", "z = [K, K].count(3)", "z = [K, 1].index(4)", "z = [K, K].sort()",
    "z = (K, 1).count(2)",
    "z = [3, 1].sort(key=lambda v: w.fill(9.0) or v)", "p = {}\n    p[K] = 1\n    z = 1",
    "p = {1: 2}\n    del p[K]\n    z = 1", "p = {1: 2}\n    p[K] += 1\n    z = 1",
    "z = isinstance(1.0, Kind)", "z = isinstance(x, (int, Kind))", "z = issubclass(int, Kind)",
    "C = (int, (float, Kind))\n    z = isinstance('', (bytes, *C))",
    "C = Kind\n    z = isinstance(1, C)", "for p, q in [K, (1, 2)]: z = p", "for p, q in (K,): z = p",
    "z = [p for p, q in [K]]", "z = {p: q for p, q in [K]}", "z = [p for p, *q in (K, K)]",
    "p, q = K\n    z = p",
])
def test_keys_classes_and_elements(statement: str) -> None:
    check(
        KEYS + f"""
@jit
def g(x, w, K):
    y = w * x
    v = w * 2.0 + y
    {statement}
    u = w + v
    return y, v, u, type(z).__name__
def f(x):
    w = Kind.__class__.w = np.ones(len(x))
    return g(x, w, Key(w))
""",
        sizes=(3, 1000),
    )


def test_code_of_users_warns_at_the_line_that_runs_it() -> None:
    check(
        """
import warnings
class Loud:
    def __add__(s, o): warnings.warn('add', stacklevel=2); return 1.0
    def __iadd__(s, o): warnings.warn('iadd', stacklevel=2); return s
    def __array_ufunc__(s, *a, **k): warnings.warn('ufunc', stacklevel=2); return 2.0
def make(n):
    return array((n,), 'f8', 'C', 'normal', n),
@jit
def g(x, L):
    y = x * 2
    z = L + y
    L += y
    return y, z, y * L, np.sqrt(L)
def f(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter('always')
        r = g(x, Loud())
    return r[:2], [(str(v.message), v.filename, v.lineno) for v in w]
""",
        sizes=(3, 1000),
    )


def test_results_of_users_operators_tell_their_class() -> None:
    check(
        """
class Own:
    def __init__(s, a): s.a = a
    def __mul__(s, o): return type(s)(s.a * o)
    def __neg__(s): return s.a
def make(n):
    return array((n,), 'f8', 'C', 'normal', n),
@jit
def g(x, o):
    y = x + 1
    return y, (o * 2).__class__.__name__, (o * y).__class__ is Own, (-o).__class__, isinstance(o * 2, Own)
def f(x):
    return g(x, Own(x))
""",
        sizes=(3, 1000),
    )
