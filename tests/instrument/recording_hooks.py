"""Tools for testing instrumentation: functions from text, a recording hook, operands, snippets."""

from __future__ import annotations

import itertools
import linecache
import re
import textwrap
import traceback
import warnings
from typing import Any

# Functions from text, a transparent hook, operands that log

_numbers = itertools.count()


def define(source: str, name: str = "f", **names: Any) -> Any:
    """Run `source` as a file of its own and return what it calls `name`."""
    source = textwrap.dedent(source)
    filename = f"<snippets-{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "corpus", **names}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, filename, "exec"), namespace)
    return namespace[name]


class Hook:
    """Does what the original function would do without hooks, and records the calls."""

    def __init__(self, all_safe: bool = True) -> None:
        self.all_safe = all_safe  # whether every parameter's class runs no code
        self.seen: list[tuple[Any, ...]] = []

    def call(self, f: Any) -> Any:
        self.seen.append(("call", f))
        return f

    def inplace(self, op: Any, target: Any, value: Any) -> Any:
        self.seen.append(("inplace", op.__name__))
        return op(target, value)

    def setitem(self, value: Any, obj: Any, key: Any) -> None:
        self.seen.append(("setitem", key))
        obj[key] = value

    def delitem(self, obj: Any, key: Any) -> None:
        self.seen.append(("delitem", key))
        del obj[key]

    def setattr(self, value: Any, obj: Any, name: str) -> None:
        self.seen.append(("setattr", name))
        setattr(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        self.seen.append(("delattr", name))
        delattr(obj, name)

    def is_same(self, a: Any, b: Any) -> bool:
        self.seen.append(("is_same",))
        return a is b

    def end_iteration(self) -> None:
        self.seen.append(("end_iteration",))

    def split_point(self) -> None:
        self.seen.append(("split_point",))

    def attribute(self, obj: Any, name: str, usage: str = "") -> Any:
        self.seen.append(("attribute", name))
        return getattr(obj, name)

    def lift(self, value: Any, usage: str) -> Any:
        self.seen.append(("lift", usage))
        return value

    def are_safe(self, *values: Any) -> bool:
        if not self.all_safe:
            self.seen.append(("are_safe", *values))
        return self.all_safe

    has_safe_uses = are_safe

    def __getattr__(self, name: str) -> Any:
        if name not in ("materialise", "element", "summand", "yield_value", "await_value", "enter_context",
                        "iterate", "unpacked_elements", "hashed_element", "class_argument",
                        "flush_unless_safe", "star_mapping", "star_elements", "star_arguments"):
            raise AttributeError(name)

        def same(value: Any) -> Any:
            self.seen.append((name, value))
            return value

        return same

    def names(self) -> list[str]:
        """Names of the hooks called, in order."""
        return [each[0] for each in self.seen]


class Probe:
    """Logs every operation on it; results are probes too."""

    def __init__(self, log: list[str], name: str) -> None:
        object.__setattr__(self, "log", log)
        object.__setattr__(self, "name", name)

    def _made(self, what: str) -> Probe:
        self.log.append(what)
        return Probe(self.log, f"({what})")

    def __repr__(self) -> str:
        return self.name

    def __getattr__(self, attr: str) -> Probe:
        if attr.startswith("__"):
            raise AttributeError(attr)
        return self._made(f"{self.name}.{attr}")

    def __setattr__(self, attr: str, value: Any) -> None:
        self.log.append(f"{self.name}.{attr} = {value!r}")

    def __delattr__(self, attr: str) -> None:
        self.log.append(f"del {self.name}.{attr}")

    def __getitem__(self, key: Any) -> Probe:
        return self._made(f"{self.name}[{key!r}]")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.log.append(f"{self.name}[{key!r}] = {value!r}")

    def __delitem__(self, key: Any) -> None:
        self.log.append(f"del {self.name}[{key!r}]")

    def __call__(self, *args: Any, **kwargs: Any) -> Probe:
        return self._made(f"{self.name}(*{args!r}, **{kwargs!r})")

    def __bool__(self) -> bool:
        self.log.append(f"bool {self.name}")
        return len(self.log) % 3 != 0

    def __iter__(self) -> Any:
        self.log.append(f"iter {self.name}")
        for i in range(3):
            self.log.append(f"next {self.name}")
            yield Probe(self.log, f"{self.name}#{i}")

    def __enter__(self) -> Probe:
        return self._made(f"enter {self.name}")

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(f"exit {self.name} {kind}")
        return False

    async def __aenter__(self) -> Probe:
        return self._made(f"aenter {self.name}")

    async def __aexit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.log.append(f"aexit {self.name} {kind}")
        return False

    async def __aiter__(self) -> Any:
        for i in range(3):
            self.log.append(f"anext {self.name}")
            yield Probe(self.log, f"{self.name}#{i}")

    def __await__(self) -> Any:
        self.log.append(f"await {self.name}")
        yield self.name
        return self._made(f"awaited {self.name}")

    def __index__(self) -> int:
        self.log.append(f"index {self.name}")
        return 1

    def __format__(self, spec: str) -> str:
        self.log.append(f"format {self.name} {spec}")
        return self.name

    def __hash__(self) -> int:
        self.log.append(f"hash {self.name}")
        return 7


def _binary(name: str) -> None:
    def method(self: Probe, other: Any) -> Probe:
        return self._made(f"{self.name}.{name}({other!r})")

    setattr(Probe, name, method)


for _op in ("add sub mul matmul truediv floordiv mod pow lshift rshift and or xor").split():
    _binary(f"__{_op}__")
    _binary(f"__r{_op}__")
    _binary(f"__i{_op}__")
for _op in ("lt le gt ge eq ne").split():
    _binary(f"__{_op}__")
for _op in ("neg", "pos", "invert"):
    setattr(Probe, f"__{_op}__", lambda self, _op=_op: self._made(f"{_op} {self.name}"))


class Outcome:
    """What a call did: result or exception with its lines, and the log of the probes."""

    def __init__(self, fn: Any, *names: str) -> None:
        self.log: list[str] = []
        file = fn.__code__.co_filename
        probes = [Probe(self.log, name) for name in names]
        try:
            self.result: Any = self.drain(fn(*probes))
            self.error: Any = None
        except Exception as error:
            self.result = None
            frames = traceback.extract_tb(error.__traceback__)
            lines = [(f.lineno, f.name) for f in frames if f.filename == file]
            self.error = (type(error), str(error), lines)

    def drain(self, result: Any) -> Any:
        """Run generators and coroutines to their end."""
        if hasattr(result, "__anext__"):
            return [self.drain(each) for each in self.steps(result)]
        if hasattr(result, "send"):
            out: list[Any] = []
            try:
                while True:
                    out.append(self.drain(result.send(None)))
            except StopIteration as stop:
                return [*out, ("return", self.drain(stop.value))]
        if isinstance(result, (list, tuple)):
            return [self.drain(each) for each in result]
        return result if isinstance(result, (int, str, float)) else nameless(repr(result))

    def steps(self, result: Any) -> Any:
        """Items of an asynchronous generator."""
        while True:
            step = result.__anext__()
            try:
                while True:
                    self.log.append(f"awaiting {step.send(None)}")
            except StopIteration as stop:
                yield stop.value
            except StopAsyncIteration:
                return

    def facts(self) -> tuple[Any, ...]:
        """Everything that can be compared."""
        return [nameless(line) for line in self.log], self.error, self.result


def nameless(text: str) -> str:
    """`text` without addresses."""
    return re.sub("0x[0-9a-f]+", "0x", text)


# Bodies of functions of three probes `a, b, c`: one for every kind of statement and order

SNIPPETS = [
    # stores: the value first, then the object, then the key
    "a[b.i()] = c.f()",
    "a.x[b.i()].y = c.f()",
    "a.x = b\na.y.z = c.w",
    "x = a[0] = b.y = c.f()\nreturn x",
    "a[0], b.x = c.f(), c.g()",
    "a[b.i()], (b.x, *c.y[b.j()]) = c.f(), c.g()",
    "x, *a.rest = c\nreturn x",
    "[a.x, a[b]] = b.p(), c.q()",
    "a[b.i():c.j()] = c.f()",
    "a[b.i():c.j():2, ..., None, 1:] = c.f()",
    "a[:] = b\na[::2] = c\na[1, :] = b\na[:, 1:] = c",
    "a[b, c] = a",
    "a[*b.xs(), c] = a",
    "a[(x := b.i())] = x",
    "(a.f()).x = (y := b.g())\nreturn y",
    "a.x: int = b.f()",
    "a.f().x: b.g()",
    "a[b.i()]: int = c.f()",
    "x: int = a.f()\ny: int\nreturn x",
    "a.f()[b.g()].h()[c.k()] = a.l()",
    # in-place
    "a += b\nreturn a",
    "a.x += b.f()",
    "a.f().x += b.f()",
    "a[b.i()] += c.f()",
    "a.f()[b.i()] -= c.f()",
    "a.f()[b.i():c.j()] *= c.f()",
    "a[b] @= c\na[0] /= c\na[-1] //= c\na[1:2] %= c\na[:, 0] **= c",
    "a <<= b\na >>= b\na &= b\na |= b\na ^= b\nreturn a",
    "a[0] += (a := b)\nreturn a",
    "a.x += (a := b)\nreturn a",
    "a[b] += (b := c)\nreturn b",
    "a[(x := b.i())] += x.f()",
    "a[b, c.k()] += 1",
    "n = 0\nn += 1\nn -= 2\nreturn n",
    "n = 0\nn += a\nn += b\nreturn n",
    "s = 'x'\ns += 'y'\nreturn s",
    "x += a\nreturn x",
    "a[0][b] += c\na.x.y -= b",
    # deletion
    "del a[b.i()], a.x, (b.y, [c[0], c[1:2]])",
    "x = a\ndel x\nreturn x",
    "del a[:], a[b.i():, 0]",
    "x = y = a\ndel (x, y)\nreturn b",
    # calls
    "return a.f(b.g(), *c.h(), k=b.m(), **{'z': c.n()})",
    "return a(b)(c)(a.x)",
    "return a.f(x for x in b)",
    "return len([a, b]), isinstance(a, int), list(zip(a, b))",
    "return (lambda x, y=a.d(): x + y)(b.f())",
    "return a.m(b)[c.n()].o(a)",
    "return (a\n  .f(b)\n  .g(\n    c)\n  .h())",
    "return print, str(a), repr(b), sorted([3, 1]), f'{a.x!r:>{4}} {b:x} {c.f()=}'",
    "return max(1, 2), sum(i for i in range(4)), abs(-2), min([a], key=b.f)",
    "1 .f()",
    "a.f(1)(2, *[3])\nNone.f()",
    "return (a.f\n  (b,\n   c.missing\n   )\n  )",
    # expressions
    "return a.x + b[0] * -c.y @ a ** b // c",
    "return a < b.f() < c.g() and not a.z or b.w",
    "return a is b, a is not None, a.x in [1], b.y == c.z != 3",
    "return a if b.t() else c",
    "return [a, *b.f()], (c, a.x), {1: a.f(), **{2: b}}, {3, 4}",
    "return (x := a.f()) + x.y",
    "return a.x[b.i()](c)[1:2].z",
    "return ~a, +b.x, -c[0]",
    "return a['w'] * b['v'][0]",
    "if (n := a.f()) and n > b:\n    return n\nreturn c",
    # comprehensions
    "return [x.f() for x in a if x.g() if b]",
    "return {x.k(): x.v() for x in a}",
    "return {1 for x in a}, [i for i in range(3)]",
    "return [x + y for x in a.f() for y in x.g() if y]",
    "return [[y for y in x] for x in a]",
    "return list(x.f() for x in a)",
    "g = (x.f(b) for x in a)\nb = c\nreturn list(g)",
    "return [a for a in b], a",
    "return [(y := x.f()) for x in a], y",
    "return [f() for f in [lambda: x for x in a]]",
    "return [x.f(y) for x, *y in [a, b]]",
    "return [c.z for c.x, b[0] in [(1, 2)]]",
    "return {**{i: a for i in range(2)}}",
    "return [lambda: b for _ in range(1)][0]()",
    # loops
    "for x in a:\n    x.f()\nelse:\n    b.e()\nreturn x",
    "for a.x in b:\n    c.f(a)",
    "for a[b.i()], c.y in [(1, 2), (3, 4)]:\n    a.f()",
    "for i, x in enumerate(a):\n    if i == 1:\n        continue\n    x.f()\nreturn i",
    "for i in range(5):\n    if i == 3:\n        break\n    a[i] = b\nelse:\n    c.e()\nreturn i",
    "n = 0\nwhile n < 4:\n    n += 1\n    if n == 2:\n        continue\n    a.f(n)\nelse:\n    b.e()",
    "while a.t():\n    b.f()\n    for x in c:\n        if x:\n            continue\n        x.g()",
    "for x in a:\n    try:\n        continue\n    finally:\n        x.f()",
    "for x in a:\n    with x.w() as y:\n        if y:\n            continue\n        y.f()",
    "for x in a:\n    return x\nreturn b",
    "while True:\n    a.f()\n    break",
    "for x in a:\n    def g():\n        for y in x:\n            yield y\n    b.f(list(g()))",
    "for x in 5:\n    pass",
    "for (x, y) in a:\n    pass",
    "for i in range(2): a.f(i); b.g()",
    # contexts and exceptions
    "with a.f() as x, b.g() as c.y:\n    x.h(c)",
    "with a as (a.x, *b.y):\n    pass",
    "with (a.f(), b.g() as x):\n    return x",
    "with a as x:\n    raise ValueError(x.m())",
    "try:\n    a.f()\n    1 / 0\nexcept ZeroDivisionError as e:\n    b.g(str(e))\n"
    "else:\n    b.h()\nfinally:\n    c.k()",
    "try:\n    raise KeyError('x')\nexcept (ValueError, a.e()):\n    b.g()",
    "try:\n    raise ExceptionGroup('g', [ValueError(1), KeyError(2)])\n"
    "except* ValueError as g:\n    a.f(len(g.exceptions))\nexcept* KeyError:\n    b.f()",
    "try:\n    return a.f()\nfinally:\n    b.g()",
    "try:\n    x = a.f()\n    x[10] = 1 / 0\nexcept ZeroDivisionError:\n    raise TypeError('t') from None",
    "assert a.t(), b.m()\nassert not c.t(), c.m()",
    "raise a.f()",
    "x = {}\ntry:\n    x['k']\nexcept KeyError as e:\n    return str(e)",
    "x = (1,)\nx[0] += a",
    "x = 3\nx.y = a",
    "x = 3\ndel x[0]",
    "a.f(\n    b.g(\n        1 / 0))",
    "a[\n  0\n] = (\n  1 /\n  0)",
    "x = None\nx[\n  a.i()] = (\n  b)",
    # match
    "match a.f():\n    case 3:\n        return 1\n    case x if x.g():\n        return x.h()\n"
    "    case _:\n        return b.k()",
    "match [1, a, b]:\n    case [1, x, *rest]:\n        x.f(len(rest))\n",
    "match {'k': a, 'l': 2}:\n    case {'k': x, **rest}:\n        return x.f(len(rest))",
    "match 3:\n    case int(real=r) | float(real=r):\n        return r",
    # functions and classes
    "def g(x, y=a.d(), *z, k=b.e(), **w):\n    return x + y + k\nreturn g(c), g.__qualname__",
    "@a.deco\n@b.deco(c)\ndef g():\n    pass\nreturn g",
    "def g():\n    nonlocal a\n    a = b\n    a += c\n    return a\ng()\nreturn a",
    "def g():\n    global _gg\n    _gg = a\n    _gg += b\n    return _gg\nreturn g(), _gg",
    "n = 0\ndef g():\n    nonlocal n\n    n += 1\n    return n\nreturn g(), g(), n",
    "def g():\n    return h()\ndef h():\n    return a.f()\nreturn g()",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nreturn fib(8)",
    "x = a\ndef g():\n    return x\nx = b\nreturn g()",
    "class K(object, metaclass=type):\n    'doc'\n    y = a.f()\n    z = y.g()\n    y += z\n"
    "    def m(self):\n        return __class__.__qualname__, super().__init__()\n"
    "k = K()\nreturn k.m(), K.__doc__, K.__qualname__, K.m.__qualname__, sorted(vars(K))",
    "class K:\n    def __init__(self):\n        self.__v = a\n        self.__v += b\n"
    "        self.__w, x = c, 1\n        del self.__v\n    def m(self):\n        return self.__w\n"
    "k = K()\nreturn k.m(), sorted(k.__dict__)",
    "class K:\n    a.x += b\n    a[b.i()] += c\n    a.f()[0] += 1\n    for i in range(2):\n"
    "        w = i\nreturn sorted(n for n in vars(K) if n[:2] != '__')",
    "class K:\n    @staticmethod\n    def s(x):\n        return x.f()\n    @property\n"
    "    def p(self):\n        return a.g()\n    @classmethod\n    def c(cls):\n"
    "        return cls.s(b)\nreturn K().s(c), K().p, K.c()",
    "class K:\n    xs = [1, 2]\n    ys = [x for x in xs]\nreturn K.ys",
    "import math as m, os.path\nfrom operator import add\nreturn m.floor(2.5), add(1, 2)",
    "return (lambda: (yield a))",
    "range = a\nreturn range(b), [range(x) for x in c]",
    "len = a\nreturn len(b)",
    "'doc'\nreturn a",
    "pass",
    "...",
    # generators
    "yield a.f()\nyield\nx = yield b\nyield x\nreturn c.g()",
    "for x in a:\n    y = yield x.f()\n    b.g(y)",
    "def g():\n    x = yield a\n    return b\nr = yield from g()\nyield r",
    "yield from [1, 2]\nyield from a",
    "try:\n    yield a\nfinally:\n    b.f()",
    "x = [(yield a), (yield b)]\nreturn x",
]

COROUTINES = [
    "return await a",
    "x = await a.f(await b)\nreturn x + await c",
    "async with a as x, b.f() as c.y:\n    await x\n    return x.g()",
    "async for x in a:\n    if x:\n        continue\n    await x.f()\nelse:\n    b.e()",
    "return [x.f() async for x in a if x]",
    "return [await x for x in a]",
    "return {x.k(): 1 async for x in a}",
    "async with a:\n    raise ValueError(3)",
    "async for x in a:\n    yield x\n    await b",
    "yield a\nawait b\nyield c",
    "async def g():\n    yield a\n    yield b\nreturn [x async for x in g()]",
    "try:\n    await a\n    1 / 0\nexcept ZeroDivisionError:\n    return await b",
]
