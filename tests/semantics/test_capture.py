"""Rows A1 to A17: arrays that change, or whose memory is freed, while operations on them are deferred."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.semantics.oracle import check

# Rows A1 to A17 of the semantics sheet: arrays that change behind the back of what is deferred.

ONE = "def make(n): return array((n,), 'f8', 'C', 'normal', n),\n"
TWO = """
def make(n):
    return array((n,), 'f8', 'C', 'normal', n), array((n,), 'f8', 'C', 'normal', n + 1)
"""


@pytest.mark.parametrize(
    "update",
    [
        "self.x += 1",
        "self.x[:] = 7",
        "self.x[0] = 5",
        "self.x *= self.x",
        "self.x.fill(3)",
        "np.add(self.x, 1, out=self.x)",
        "self.x = self.x + 1",
        "self.x.sort()",
        "bump(self.x)",
        "np.copyto(self.x, 0)",
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        "a + self.x",
        "self.x * 2",
        "np.sqrt(np.abs(self.x)) + a",
        "a * self.x[::-1]",
        "(a * self.x).sum()",
        "self.x @ a",
    ],
)
def test_a1_attribute(update: str, read: str) -> None:
    check(
        f"""
    def bump(q):
        q += 1
    class Model:
        def __init__(self, x): self.x = x
        @jit
        def g(self, a):
            y = {read}
            {update}
            return y
    model = Model(array((3,)))
    def f(a):
        return model.g(a)
    def state(): return model.x,
    def make(n):
        model.x = array((n,), 'f8', 'C', 'normal', n)
        return array((n,), 'f8', 'C', 'normal', n + 1),
    """,
        sizes=(3, 1000),
    )


@pytest.mark.parametrize(
    ("holder", "place"),
    [
        ("[x]", "h[0]"),
        ("(x, 1)", "h[0]"),
        ("{'w': x}", "h['w']"),
        ("Field(x)", "h.x"),
        ("Slotted(x)", "h.x"),
        ("Property(x)", "h.x"),
        ("Named(x)", "h.x"),
        ("[[x]]", "h[0][0]"),
        ("Box(deep=Box(x=x))", "h.deep.x"),
        ("shared(x)", "Class.x"),
    ],
)
@pytest.mark.parametrize("write", ["[:] = 9", "[0] = 9", "[1:] += 1", ".fill(4)"])
def test_a2_container(holder: str, place: str, write: str) -> None:
    check(
        f"""
    from collections import namedtuple
    from dataclasses import dataclass
    Named = namedtuple('Named', 'x')
    @dataclass
    class Field:
        x: object
    class Slotted:
        __slots__ = ('x',)
        def __init__(self, x): self.x = x
    class Property:
        def __init__(self, x): self._x = x
        @property
        def x(self): return self._x
    class Class:
        x = None
    def shared(x):
        Class.x = x
        return Class
    @jit
    def f(a, h):
        y = a + {place}
        {place}{write}
        z = {place} * 2
        return y, z
    kept = []
    def make(n):
        kept[:] = [array((n,), 'f8', 'C', 'normal', n)]
        x = kept[0]
        return array((n,), 'f8', 'C', 'normal', n + 1), {holder}
    def state(): return kept
    """,
        sizes=(3, 1000),
    )


@pytest.mark.parametrize(
    "write",
    [
        "G[0] = 99",
        "G[...] = 1",
        "G += a",
        "np.multiply(G, 2, out=G)",
        "G.sort()",
        "globals()['G'][1] = 4",
        "change()",
    ],
)
def test_a3_global(write: str) -> None:
    declared = "global G" if "+=" in write else "pass"
    check(
        f"""
    G = None
    def change(): G[:] = G[::-1].copy()
    @jit
    def f(a):
        {declared}
        y = a * G
        {write}
        return y
    def make(n):
        global G
        if G is None or len(G) != n:
            G = array((n,), 'f8', 'C', 'normal', 5)
        return array((n,), 'f8', 'C', 'normal', n),
    def state(): return G,
    """,
        calls=3,
    )


@pytest.mark.parametrize("write", ["G[0] = 7", "G[:] = 7", "G += 1", "G[1:] = G[:-1]", "G *= a"])
def test_a4_alias_through_a_global(write: str) -> None:
    declared = "global G" if write.startswith(("G +=", "G *=")) else "pass"
    check(f"""
    @jit
    def f(a):
        {declared}
        b = a * 2
        {write}
        c = a + 1
        return b, c, a
    def make(n):
        global G
        G = array((n,), 'f8', 'C', 'normal', n)
        return G,
    def state(): return G,
    """)


@pytest.mark.parametrize("view", ["a.T", "a[1:]", "a[::-1]", "a[:, 0]", "a.reshape(-1)", "a.view('i8')"])
def test_a5_alias_through_a_view(view: str) -> None:
    check(
        f"""
    @jit
    def f(a):
        b = a * 2
        s = a.sum()
        V[...] = 3
        c = a + s
        return b, c
    def make(n):
        global V
        a = array((n, 4), 'f8', 'C', 'normal', n)
        V = {view}
        return a,
    def state(): return V,
    """,
        sizes=(3, 17, 1000),
    )


HELPERS = {
    "plain": "q += 1",
    "store": "q[0] = 5",
    "sort": "q.sort()",
    "shuffle": "np.random.default_rng(3).shuffle(q)",
    "random out": "np.random.default_rng(3).random(out=q)",
    "blas": "scipy.linalg.blas.dscal(2.0, q)",
    "readinto": "io.BytesIO(bytes(8 * len(q))).readinto(q)",
    "memoryview": "memoryview(q)[0] = 4.0",
    "put": "np.put(q, [0], 8.0)",
    "copyto": "np.copyto(q, 2.0)",
    "at": "np.add.at(q, [0, 0], 1.0)",
    "place": "np.place(q, q > 0, [1.0])",
    "partition": "q.partition(1)",
    "list": "q[:] = [0.5] * len(q)",
}


@pytest.mark.parametrize("how", HELPERS)
@pytest.mark.parametrize("where", ["helper", "inline", "nested", "method"])
def test_a6_helper_that_is_not_decorated(how: str, where: str) -> None:
    line = HELPERS[how]
    call = {
        "helper": "change(a)",
        "inline": line.replace("q", "a"),
        "nested": "outer(a)",
        "method": "Tool().change(a)",
    }[where]
    check(
        f"""
    import io
    import scipy.linalg.blas
    def change(q):
        {line}
    def outer(q):
        change(q)
    class Tool:
        def change(self, q):
            {line}
    @jit
    def f(a):
        b = a * 2
        {call}
        c = a * 3
        return b, c
    {ONE}""",
        sizes=(3, 1000),
    )


@pytest.mark.parametrize("how", ["argument", "closure", "global", "attribute", "key function"])
def test_a7_callback(how: str) -> None:
    call = {
        "argument": "cb()",
        "closure": "inner()",
        "global": "G()",
        "attribute": "h.cb()",
        "key function": "sorted([2, 1], key=h.key)",
    }[how]
    check(f"""
    G = None
    def surround(inner_of):
        def inner(): inner_of[0]()
        @jit
        def f(a, cb, h):
            b = a * 2
            {call}
            c = a - 1
            return b, c
        return f
    current = [None]
    f = surround(current)
    def make(n):
        global G
        a = array((n,), 'f8', 'C', 'normal', n)
        def cb(): a[:] = 3
        def key(v):
            a[0] = v
            return v
        G = current[0] = cb
        return a, cb, Box(cb=cb, key=key)
    """)


def test_a8_generator() -> None:
    check(
        """
    @jit
    def g(a):
        b = a * 2
        yield b
        c = a + b
        yield c
        yield a.sum()
    def f(a):
        steps = g(a)
        first = next(steps)
        a[:] = 100
        second = next(steps)
        a[0] = 5
        return first, second, next(steps), list(steps)
    """
        + ONE
    )


def test_a9_result_and_then_the_argument() -> None:
    check(
        """
    @jit
    def f(a):
        return a * 2 + 1, a[1:], a.sum()
    def after(result, arguments):
        before = result[0].copy()
        arguments[0][:] = 0
        return before, result[0]
    """
        + ONE
    )


def test_a10_two_decorated_functions() -> None:
    check(
        """
    @jit
    def first(a): return a * 2 + 1
    @jit
    def second(a):
        a += 1
        return a * 3
    @jit
    def both(a):
        y = first(a)
        z = second(a)
        return y, z
    def f(a):
        y = first(a)
        z = second(a)
        return y, z, both(a)
    """
        + ONE
    )


def test_a11_default_argument() -> None:
    check(
        """
    @jit
    def h(a, buf=np.zeros(3)):
        buf += a
        return buf
    def f(a):
        return h(a[:3]) is h(a[:3]), h(a[:3]), getattr(h, '__wrapped__', h).__defaults__
    """
        + ONE
    )


@pytest.mark.parametrize("update", ["acc = acc + a", "acc += a", "acc[:] = acc * 2", "acc = acc * 0.5"])
def test_a12_nonlocal(update: str) -> None:
    check(
        f"""
    def surround(n):
        acc = np.zeros(n)
        @jit
        def step(a):
            nonlocal acc
            before = acc * 1.0
            old = acc
            {update}
            return before, old, acc
        return step, lambda: acc
    def f(a):
        step, peek = surround(len(a))
        first = step(a)
        second = step(a)
        return first, second, peek()
    """
        + ONE
    )


def test_a13_cache_in_an_attribute() -> None:
    check(
        """
    import pickle
    class Model:
        @jit
        def g(self, a):
            if not hasattr(self, 'c'):
                self.c = a * 2
            return self.c + a
    def f(a):
        m = Model()
        first = m.g(a)
        kept = pickle.loads(pickle.dumps(vars(m)))
        a[:] = 0
        return first, kept, m.c, type(m.c).__name__, m.g(a)
    """
        + ONE
    )


def test_a13_cache_in_a_class_a_dict_and_a_default() -> None:
    check(
        """
    class Model:
        table = {}
        @jit
        def g(self, a, key):
            if key not in self.table:
                Model.table[key] = np.sqrt(np.abs(a)) * 2
            return Model.table[key] - a
    def f(a):
        Model.table.clear()
        m = Model()
        return m.g(a, 1), m.g(a, 1), m.g(a + 1, 2), Model.table
    """
        + ONE
    )


def test_a14_thread_that_writes() -> None:
    check(
        """
    import threading
    @jit
    def g(a): return (a * 2 + 1) - a
    def f(a):
        stop = threading.Event()
        def write():
            while not stop.is_set():
                a[:] = 1.0
        a[:] = 1.0
        other = threading.Thread(target=write)
        other.start()
        results = [g(a) for _ in range(20)]
        stop.set()
        other.join()
        return results
    """
        + ONE,
        calls=1,
    )


def test_a15_read_only_operand_of_a_writable_base() -> None:
    check("""
    @jit
    def f(a, r):
        b = r * 2
        a[:] = 5
        c = r + a
        return b, c
    def make(n):
        a = array((n,), 'f8', 'C', 'normal', n)
        r = a[:]
        r.flags.writeable = False
        return a, r
    """)


@pytest.mark.parametrize(
    "operand",
    [
        "np.broadcast_to(self.x, (2, len(self.x)))",
        "self.x.T",
        "self.x[1:]",
        "self.x[::-1]",
        "self.x.reshape(1, -1)",
        "self.x[None]",
        "self.x.ravel()",
        "self.x.view()",
        "np.asarray(self.x)",
        "np.frombuffer(self.x.data)",
        "self.x[self.x > 0]",
        "self.x.copy()",
        "np.flip(self.x)",
    ],
)
def test_a16_views_of_an_attribute(operand: str) -> None:
    check(f"""
    @jit
    def f(self, a):
        v = {operand}
        y = v * 2
        self.x[:] = 9
        z = v * 3
        return y, z, y.sum()
    def make(n):
        return Box(x=array((n,), 'f8', 'C', 'normal', n)), 0
    """)


@pytest.mark.parametrize(
    "write",
    [
        "ctypes.memset(a.ctypes.data, 0, 8)",
        "ctypes.memset(P, 0, 8)",
        "ctypes.memmove(P, (ctypes.c_double * 1)(4.0), 8)",
        "late()",
    ],
)
def test_a17_raw_pointer(write: str) -> None:
    check(f"""
    import ctypes
    P = None
    def late(): ctypes.memset(P, 0, 16)
    @jit
    def f(a):
        b = a * 2
        {write}
        c = a * 3
        return b, c
    def make(n):
        global P
        a = array((n,), 'f8', 'C', 'normal', n)
        P = a.ctypes.data
        return a,
    """)


# Memory that disappears: arrays over it are not read late. Each program runs in a process of its own.

PROGRAMS = {
    "shared memory deleted": """
def f(x):
    s = SharedMemory(create=True, size=8 * len(x)); s.unlink()
    w = np.ndarray(len(x), buffer=s.buf)
    w[:] = 1
    y = w * 2 + x
    z = w[1:].T + 1
    del s
    return y, z
""",
    "mapping closed": """
def f(x):
    m = mmap.mmap(-1, 8 * len(x))
    w = np.ndarray(len(x), buffer=m)
    y = w * 2 + x
    del w, m
    return y
""",
    "file truncated": """
def f(x):
    with tempfile.NamedTemporaryFile() as file:
        m = np.memmap(file.name, dtype='f8', mode='w+', shape=x.shape)
        m[:] = 1
        y = m * 2 + x
        z = np.asarray(m)[1:] + 1
        os.truncate(file.name, 0)
        return y, z
""",
    "buffer rewritten": """
def f(x):
    b = bytearray(np.ones(len(x)).tobytes())
    a = np.frombuffer(b)
    y = a * 2 + x
    z = a[1:] + 1
    b[:8] = bytes(8)
    return y, z, a + x
""",
}


@pytest.mark.process
@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_that_is_gone_is_not_read(name: str) -> None:
    source = f"""
import mmap, os, sys, tempfile
from multiprocessing.shared_memory import SharedMemory
import numpy as np
import jitla
{PROGRAMS[name]}
"""
    check = """
x = np.arange(100_000.0)
with jitla.options(compile="sync"):
    found, wanted = jitla.jit(f)(x), f(x)
for a, b in zip(found, wanted) if type(wanted) is tuple else [(found, wanted)]:
    assert np.array_equal(a, b)
"""
    file = f"gone_{name.replace(' ', '_')}"
    code = (f"import linecache\ntext = {source!r}\n"
            f"linecache.cache[{file!r}] = (len(text), None, text.splitlines(True), {file!r})\n"
            f"exec(compile(text, {file!r}, 'exec'))\n{check}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
