"""Loop-invariant values: computed once, and never used after they have changed."""

# ruff: noqa: E501 - programs are as users write them

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

import jitla
from jitla.tracing import hoisting as keeping
from tests.tracing.sameness import faults

# Values that stay the same in a loop are computed once, and never used when they are not the same any more.
#
# Every program runs three times with options under which all such values are kept, whatever it costs.

HEAD = """
import ctypes, functools, gc, threading, warnings, weakref
def make(): return np.arange(36.0).reshape(6, 6) * 5 % 7 - 3, np.arange(36.0).reshape(6, 6) * 3 % 5 - 2  # products are exact
def hidden(source, **names):
    namespace = dict(np=np, ctypes=ctypes, **names)
    exec(source, namespace)  # a function without a source is not instrumented
    return namespace['g']
"""
LOOP = """
{before}
@jit
def f(a, b):
    out = []
{setup}
    p = b[0] * 1.0
    for i in range(9):
        s = (a * a).sum(0) + a[1] / 4.0
        p = p * 0.5 + s @ (a.T @ b)
        out.append(p.copy())
        if i % 4 == 2:
{write}
        t = a.sum(1) + b[2]
        if t[0] == 12345.0:
            break
        out.append(t)
    return out, a, b
"""

HOLDER = "class Holder:\n    def __init__(self, x): self.x = x\n    def "
CONVERTED = HOLDER + "__array__(self, dtype=None, copy=None): self.x[0] = 2.0; return np.ones(6)"
JUDGED = HOLDER + "__bool__(self): self.x[0] = 2.0; return True"
# Functions without a source: one writes, one gives away a function that does.
WRITES = "g = hidden('def g(x): x[1] = 2.0')"
GIVES = "g = hidden('def g(x):\\n    def h(row):\\n        x[1] = 2.0\\n        return row\\n    return h')"

# How the memory of `a` is written: in the loop, what is made ready in the function, and before it.
ROADS: dict[str, tuple[str, ...]] = {
    "in place": ("a *= 1.5",),
    "in place, lazy": ("a += b * 2",),
    "item": ("a[1, 2] = 7.0",),
    "item, lazy": ("a[...] = a + b",),
    "part": ("a[2:] -= 1.0",),
    "both": ("a[:, 1] = b[:, 1]; b[0] = 2.0",),
    "mask": ("a[a > 0] = 0.5",),
    "positions": ("a[[0, 1], [2, 3]] += 1.0",),
    "view": ("v += 1.0", "v = a[1:]"),
    "view of a view": ("w[0] = 3.0", "v = a.T; w = v[2:]"),
    "reshaped": ("v[3] = 9.0", "v = a.reshape(-1)"),
    "ravel": ("a.ravel()[5] = 9.0",),
    "other dtype": ("v[1, 0] = 0", "v = a.view('i8')"),
    "real": ("a.real[0] = 4.0",),
    "diagonal": ("np.fill_diagonal(a, 3.0)",),
    "out": ("np.multiply(a, 2.0, out=a)",),
    "out of a view": ("np.multiply(a[0], 2.0, out=a[1])",),
    "out by place": ("np.add(a, 1.0, a)",),
    "out of a sum": ("np.sum(b, axis=0, out=a[2])",),
    "out of a method": ("b.sum(axis=0, out=a[2])",),
    "out of a product": ("np.matmul(b, b, out=a)",),
    "out of dot": ("np.dot(b, b, out=a)",),
    "copyto": ("np.copyto(a, b + 1.0)",),
    "put": ("np.put(a, [1, 2], [3.0, 4.0])",),
    "place": ("np.place(a, a > 0, [1.0, 2.0])",),
    "putmask": ("np.putmask(a, a > 0, 1.5)",),
    "fill": ("a.fill(2.0)",),
    "sort": ("a.sort(axis=0)",),
    "partition": ("a.partition(2)",),
    "put method": ("a.put([1], [5.0])",),
    "add.at": ("np.add.at(a, [0, 0, 1], 1.0)",),
    "subtract.at": ("np.subtract.at(a, [0, 0, 1], 1.0)",),
    "nan_to_num": ("np.nan_to_num(a - 1.0, copy=False); np.negative(a, a)",),
    "flat": ("a.flat[7] = 8.0",),
    "flat kept": ("v[7] = 8.0", "v = a.flat"),
    "rows": ("for row in a: row += 1.0",),
    "nditer": ("for x in np.nditer(a, op_flags=['readwrite']): x[...] = x * 2.0",),
    "memoryview": ("m[8:16] = m[0:8]", "m = memoryview(a).cast('B')"),
    "data": ("a.data[1, 1] = 6.0",),
    "frombuffer": ("v[3] = 11.0", "v = np.frombuffer(a, 'f8')"),
    "frombuffer, lazy": ("v += b[0, 0]", "v = np.frombuffer(a.data, 'f8')"),
    "as_strided": ("v[2] = 11.0", "v = np.lib.stride_tricks.as_strided(a, (6,), (56,))"),
    "memmove": ("ctypes.memmove(a.ctypes.data, b.ctypes.data, 48)",),
    "pointer": ("q[3] = 2.5", "q = a.ctypes.data_as(ctypes.POINTER(ctypes.c_double))"),
    "random": ("np.random.default_rng(3).permuted(b, axis=0, out=a)",),
    "shuffle": ("np.random.default_rng(3).shuffle(a)",),
    "setitem of operator": ("operator.setitem(a, 0, 2.0)", "import operator"),
    "method of the type": ("np.ndarray.__setitem__(a, 0, 2.0)",),
    "iadd of operator": ("operator.iadd(a, 2.0)", "import operator"),
    "hidden": ("g(a)", "", WRITES),
    "hidden, other names": ("g()", "h.append(a)", "h = []\ng = hidden('def g(): h[0][1] += 2.0', h=h)"),
    "hidden view": ("g()", "h.append(a[2:])", "h = []\ng = hidden('def g(): h[0][1] += 2.0', h=h)"),
    "helper": ("change(a)", "", "def change(x):\n    x[3] = 1.25"),
    "decorated helper": ("change(a)", "", "@jit\ndef change(x):\n    x[3] = x[2] * 2.0"),
    "closure": ("change()", "def change():\n        a[3] = 1.25"),
    "partial": ("c()", "", "h = []\nc = None\ndef setter(h): h[0][2] = 3.0", "c = functools.partial(hidden('def g(h): h[0][2] = 3.0'), h); h.append(a)"),
    "object": ("o.change()", "o = Holder(a)", HOLDER + "change(self): self.x[0] = 1.5"),
    "property": ("o.x = 1.5", "o = Holder(a)", "class Holder:\n    def __init__(self, x): self.h = x\n    @property\n    def x(self): return self.h\n    @x.setter\n    def x(self, v): self.h[0] = v"),
    "attribute": ("o.x[0] = 1.5", "o = Holder(); o.x = a", "class Holder: pass"),
    "operator of a class": ("o + 1", "o = Holder(a)", HOLDER + "__add__(self, v): self.x[0] = v; return 0"),
    "truth of a class": ("bool(o)", "o = Holder(a)", JUDGED),
    "if of a class": ("t = 1 if o else 2", "o = Holder(a)", JUDGED),
    "equality of a class": ("o in [1, 2]", "o = Holder(a)", HOLDER + "__eq__(self, v): self.x[0] = 2.0; return False"),
    "array of a class": ("b[0] = o", "o = Holder(a)", CONVERTED),
    "array of a class, in place": ("b += o", "o = Holder(a)", CONVERTED),
    "array of a class, function": ("np.sum(o)", "o = Holder(a)", CONVERTED),
    "array of a class, in a list": ("b[:2] = [o, o]", "o = Holder(a)", CONVERTED),
    "index of a class": ("b[o] = 1.0", "o = Holder(a)", HOLDER + "__index__(self): self.x[0] = 2.0; return 1"),
    "generator": ("next(steps)", "steps = changes(a)", "def changes(x):\n    for k in range(9):\n        x[k % 6] = k\n        yield k"),
    "hidden generator": ("next(steps)", "steps = g(a)", "g = hidden('def g(x):\\n    for k in range(9):\\n        x[k % 6] = k\\n        yield k')"),
    "context manager": ("\n            with Holder(a): pass", "", HOLDER + "__enter__(self): self.x[0] = 2.0\n    def __exit__(self, *e): self.x[1] = 2.0"),
    "key of a sort": ("sorted([1, 2], key=lambda k: a.__setitem__(k, 2.0) or k)",),
    "map": ("list(map(lambda k: a.__setitem__(k, 2.0), [1, 2]))",),
    "hidden map": ("list(map(g, [a]))", "", WRITES),
    "apply_along_axis": ("np.apply_along_axis(g(a), 0, b)", "", "g = hidden('def g(x):\\n    def h(row):\\n        x[1] = 2.0\\n        return row.sum()\\n    return h')"),
    "fromfunction": ("np.fromfunction(g(a), (2,))", "", GIVES),
    "piecewise": ("np.piecewise(b[0], [b[0] > 0], [g(a), 1.0])", "", GIVES),
    "vectorize": ("np.vectorize(g(a))(b[0])", "", GIVES),
    "frompyfunc": ("np.frompyfunc(g(a), 1, 1)(b[0])", "", GIVES),
    "thread": ("t = threading.Thread(target=g, args=(a,)); t.start(); t.join()", "", WRITES),
    "eval": ("eval('a.__setitem__(0, 2.0)')",),
    "exec": ("exec('a[0] = 2.0')",),
    "shape": ("a.shape = (6, 6); a[0] = 2.0",),
    "resized": ("c.resize(8, refcheck=False); a[0] += c[:6]", "c = a[0].copy()"),
    "swapped": ("a, b = b, a",),
    "another array": ("a = a * 2.0",),
    "another array, again and again": ("a = np.array(a * 2.0); gc.collect()",),
    "another slice": ("a = whole[i % 3: i % 3 + 6]", "whole = np.concatenate([a, b, a])"),
    "global": ("table[0] = 4.0", "a = table", "table = np.arange(36.0).reshape(6, 6) % 4"),
    "global of a helper": ("change()", "a = table", "table = np.arange(36.0).reshape(6, 6) % 4\ndef change():\n    global table\n    table += 1.0"),
    "dictionary": ("d['a'][0] = 1.0", "d = {'a': a}"),
    "dictionary, in place": ("d['a'] += 1.0", "d = {'a': a}"),
    "list of views": ("for x in parts: x *= 2.0", "parts = [a[0], a[3:]]"),
    "unpacked": ("x, *y = a; x[0] = 2.0; y[2][1] = 3.0",),
    "target of a loop": ("\n            for a[0, 1] in (1.0, 2.0): pass",),
    "delayed": ("a[1:] = a[:-1] + b[1:]",),
    "finalizer at a call": ("weakref.finalize(Holder(), g, a); gc.collect()", "", "class Holder: pass\ng = hidden('def g(x): x[1] = 2.0')"),
    "warning shown": ("\n            with warnings.catch_warnings():\n                warnings.simplefilter('always')\n                warnings.showwarning = lambda *x, **k: a.__setitem__(0, 1.0)\n                out.append((b[0] / 0.0).copy())",),
    "write flag": ("a.setflags(write=False); a.setflags(write=True); a[0] = 1.0",),
    "byteswap": ("a.byteswap(inplace=True); a.byteswap(inplace=True); a[0] = 1.0",),
    "choose": ("np.choose([0, 1, 0, 1, 0, 1], [b[0], b[1]], out=a[0])",),
    "cumsum": ("np.cumsum(b, axis=0, out=a)",), "take": ("np.take(b, [1, 0, 2, 3, 4, 5], axis=0, out=a)",),
    "einsum": ("np.einsum('ij,jk->ik', b, b, out=a)",), "clip": ("np.clip(b, -1, 1, out=a); a.clip(-0.5, 0.5, out=a)",),
    "round": ("b.round(1, out=a)",), "linalg": ("np.linalg.multi_dot([b, b, b], out=a)",),
    "concatenate": ("np.concatenate([b[:3], b[:3]], out=a)",), "stack": ("np.stack([b[0]] * 6, out=a)",),
    "mean": ("np.mean(b[:4], axis=0, out=a[1])",), "median": ("np.median(b, axis=0, out=a[1])",),
    "quantile": ("np.quantile(a, 0.5, overwrite_input=True); np.percentile(b, 50, axis=0, out=a[1])",),
    "reduceat": ("np.add.reduceat(b, [0, 1, 2, 3, 4, 5], out=a)",), "accumulate": ("np.add.accumulate(b, out=a)",),
    "outer": ("np.multiply.outer(b[0], b[1], out=a)",), "modf": ("np.modf(b, a, b)",), "divmod": ("np.divmod(b, 0.5, out=(b, a))",),
    "imatmul": ("a @= b",), "ipow": ("a **= 2",), "ifloordiv": ("a //= 0.25",),
}


@pytest.fixture
def _everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keeping, "is_alone", lambda: True)  # test runners have threads
    before = {name: getattr(jitla.config, name) for name in ("invariants", "compile")}
    jitla.configure(invariants="all", compile="sync")
    yield
    jitla.configure(**before)


def _program(write: str, setup: str = "", before: str = "", ready: str = "") -> str:
    lines = [line for line in (*setup.split("\n"), *ready.split("\n")) if line]
    inside = "\n".join("    " + line if not line.startswith("    ") else line for line in lines)
    return HEAD + LOOP.format(before=before, setup=inside, write="            " + write.lstrip("\n ").replace("\n            ", "\n            "))


@pytest.mark.usefixtures("_everything_is_kept")
@pytest.mark.parametrize("road", ROADS)
def test_what_is_written_is_computed_anew(road: str) -> None:
    assert not faults(_program(*ROADS[road]), calls=3)


PROGRAMS = {
    "kept values are given away as copies": """
@jit
def f(a, b):
    out = []
    for i in range(5):
        s = a.sum(0)
        out.append(s)
        s += i
        t = a @ b
        t[0] = i
        out.append((t, (a @ b).T, (a * 2)[1:]))
    return out, [x is y for x in out for y in out]
""",
    "a view of a kept value is written": """
@jit
def f(a, b):
    out = []
    for i in range(5):
        v = (a @ b).T
        w = (a * b).reshape(-1)
        v[0] = i
        w[1] = i
        out.append((v, w, a + i))
    return out
""",
    "the last one is returned": """
@jit
def f(a, b):
    for i in range(4):
        s = a.sum(0)
        t = a * b + i
    s[0] = 3.0
    return s, t
""",
    "signs of zeros, kinds of numbers": """
@jit
def f(a, b):
    out = []
    for c in (0.0, 0.0, -0.0, -0.0, 2, 2, 2.0, 2.0, True, True, np.float32(2), np.float32(2), np.nan, np.nan, 3, 3):
        out.append((a[0] * 0.0 * c, np.copysign(a, c).sum(0), (a * c).sum(0) + len(out)))
    return out
""",
    "zeros of numpy": """
@jit
def f(a, b):
    out = []
    for k in range(8):
        c = np.float64(0.0) if k % 4 < 2 else -np.float64(0.0)
        out.append(((np.copysign(a, c) * 3.0).sum(0) + k).copy())
    return out
""",
    "every warning": """
@jit
def f(a, b):
    seen = []
    for i in range(6):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            s = (a / 0.0).sum(0) + b[0] * i
            s[0]
        seen.append([(str(w.message), w.lineno) for w in found])
    return seen
""",
    "every warning, without a manager": """
@jit
def f(a, b):
    out = []
    for i in range(6):
        out.append((np.log(a - 100.0).sum(0) + b[0] * i).copy())
    return out
""",
    "errors in some iterations": """
@jit
def f(a, b):
    out = []
    for i in range(6):
        try:
            with np.errstate(all='raise' if i == 4 else 'ignore'):
                out.append(((a / 0.0).max(0) * 0 + b[0]).copy())
        except FloatingPointError as e:
            out.append(str(e))
    return out
""",
    "memory at one address again and again": """
@jit
def f(a, b):
    out = []
    for i in range(12):
        c = np.array(a + i)
        out.append(((c * c).sum(0) + b[1]).copy())
        out.append(((c * c).sum(0) + b[2]).copy())
        del c
    return out
""",
    "one name for arrays that go": """
@jit
def f(a, b):
    out = []
    for i in range(12):
        c = np.zeros((6, 6)); c += i
        for j in range(3):
            out.append(((c * c).sum(0) + b[j]).copy())
    return out
""",
    "resize is allowed as without": """
@jit
def f(a, b):
    out = []
    c = np.arange(6.0)
    for i in range(5):
        out.append((c * 2.0 + b[0] * i).copy())
    c.resize(6, refcheck=False)
    return out, c
""",
    "nothing outlives the call": """
import sys
@jit
def f(a, b):
    for i in range(5):
        p = (a * b).sum(0) + i
    return p
def state():
    return None
""",
    "a generator": """
@jit
def steps(a, b):
    for i in range(6):
        yield ((a * a).sum(0) + b[0] * i)
@jit
def f(a, b):
    out = []
    for i, x in enumerate(steps(a, b)):
        out.append(x.copy())
        if i == 3:
            a[0] = 2.0
    return out
def g(a, b):
    out = []
    for i, x in enumerate(steps(a, b)):
        out.append(x.copy())
        a[i % 6] = 2.0
    return out
def state():
    a, b = make()
    return g(a, b), g(a, b)
""",
    "two generators that write what the other reads": """
@jit
def steps(a, b):
    for i in range(6):
        s = (a * a).sum(0) + b[0] * i
        b[1] += 1.0
        yield s.copy()
@jit
def f(a, b):
    return [(x, y) for x, y in zip(steps(a, b), steps(b, a))]
""",
    "inside of each other": """
@jit
def inner(a, b):
    for i in range(4):
        s = (a * a).sum(0) + b[0] * i
        b[2] = s
    return s
@jit
def f(a, b):
    out = []
    for i in range(4):
        out.append(((b * b).sum(0) + a[0] * i).copy())
        out.append(inner(a, b))
        out.append(inner(b, a))
    return out
""",
    "an error caught, then on": """
@jit
def f(a, b):
    out = []
    for i in range(6):
        try:
            s = (a * a).sum(0) + b[0] * i
            if i == 2:
                a[0] = 3.0
                raise ValueError(s)
        except ValueError as e:
            out.append(e.args[0])
        out.append(s.copy())
    return out
""",
    "blocks that store": """
@jit
def f(a, b):
    for i in range(6):
        b[1:] = b[:-1] * 0.5 + (a * a)[1:]
        a[i] = (b * b).sum(0)
        b *= (a * a).sum(1)[:, None] / 1024.0
    return a, b
""",
    "one memory by two names": """
@jit
def f(a, b):
    c = a[:]
    for i in range(6):
        c[0] = (a * a).sum(0) / 128.0
        c[i] += (b * b).sum(0) + (a * a).sum(1)
    return a, b, c
""",
}


@pytest.mark.usefixtures("_everything_is_kept")
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_plain(name: str) -> None:
    assert not faults(HEAD + PROGRAMS[name], calls=3)


@pytest.mark.usefixtures("_everything_is_kept")
def test_a_block_is_run_whole_until_the_rest_of_it_is_compiled() -> None:
    asked: list[bool] = []
    others = SimpleNamespace(ask=asked.append, requested=True, run=lambda values: ("made", *values))
    watched = keeping.HoistingState(0)
    watched.split = (), others
    session = SimpleNamespace(site=SimpleNamespace(interim_replays=[]))
    tape = SimpleNamespace(leaves=[1], scalars=[2])
    assert watched.run(session, tape, None, None) == ("made", 1, 2)
    session.site.interim_replays.append(others)
    assert watched.run(session, tape, None, None) is None and asked == [True]
    others.requested = False  # nobody compiles it behind the program: whoever runs it will
    assert watched.run(session, tape, None, None) == ("made", 1, 2)
