"""Instrumented functions, also those of libraries, do what their functions do, and call the hooks."""

from __future__ import annotations

import ast
import copy
import gc
import importlib.util
import inspect
import linecache
import sys
import textwrap
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitla.instrument.instrumented import Instrumenter, instrument
from jitla.instrument.source import without_borrows
from jitla.introspection import frame_sensitivity_of
from tests.instrument.recording_hooks import COROUTINES, SNIPPETS, Hook, Outcome, define

# Instrumented functions do exactly what their functions do, and call the hooks where they should.


def function(body: str, prefix: str = "") -> Any:
    """A function of three arguments with that body."""
    return define(f"{prefix}def f(a, b, c):\n" + textwrap.indent(body, "    "))


@pytest.mark.parametrize("all_safe", [True, False])
@pytest.mark.parametrize("body", SNIPPETS)
def test_instrumented_function_is_equivalent(body: str, all_safe: bool) -> None:
    original = function(body)
    instrumented = instrument(original, Hook(all_safe))
    assert instrumented is not None
    first, second = Outcome(original, "a", "b", "c"), Outcome(instrumented, "a", "b", "c")
    assert first.facts() == second.facts()


@pytest.mark.parametrize("body", COROUTINES)
def test_instrumented_coroutine_is_equivalent(body: str) -> None:
    original = function(body, "async ")
    instrumented = instrument(original, Hook())
    assert instrumented is not None
    first, second = Outcome(original, "a", "b", "c"), Outcome(instrumented, "a", "b", "c")
    assert first.facts() == second.facts()


def lines_of(fn: Any, *names: str) -> set[int]:
    """Lines of the function's file that ran, as a debugger sees them."""
    lines: set[int] = set()
    file = fn.__code__.co_filename

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            lines.add(frame.f_lineno)
        return trace

    old = sys.gettrace()
    sys.settrace(trace)
    try:
        Outcome(fn, *names)
    finally:
        sys.settrace(old)
    return lines


@pytest.mark.parametrize("body", SNIPPETS)
def test_debuggers_and_coverage_see_the_same_lines(body: str) -> None:
    original = function(body)
    instrumented = instrument(original, Hook())
    assert instrumented is not None
    first, second = lines_of(original, "a", "b", "c"), lines_of(instrumented, "a", "b", "c")
    if body == "a[\n  0\n] = (\n  1 /\n  0)":
        first.add(2)  # the hook of the store is loaded at the beginning of the statement
    assert first == second


def hooks(body: str, *args: Any, known: Any = None, **names: Any) -> list[str]:
    """Hooks called, in order, when a function of `a, b` with this body runs."""
    hook = Hook()
    f = define("def f(a=None, b=None):\n" + textwrap.indent(body, "    "), np=np, **names)
    instrumented = instrument(f, hook, known or (lambda g: g is np.sum))
    assert instrumented is not None
    result = instrumented(*args)
    if hasattr(result, "send"):
        list(result)
    return hook.names()


class Box:
    """Something with attributes."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


A = np.ones(3)


@pytest.mark.parametrize(("body", "args", "expected"), [
    ("x = a + b * a\nreturn -x < a[0]", (A, A), []),
    ("return np.exp(a) + np.sum(b) + abs(a)", (A, A), []),
    ("return np.zeros(3)", (), ["call"]),
    ("return np.add(a, b, a)", (A, A), ["call"]),
    ("return np.exp(a, out=b)", (A, A), ["call"]),
    ("return np.exp(*[a])", (A,), ["call"]),
    ("return a.sum()", (A,), ["call"]),
    ("return len(a) + float(1) + isinstance(a, int)", (A,), []),
    ("len = a.sum\nreturn len()", (A,), ["call"]),
    ("a += b", (A.copy(), A), ["inplace"]),
    ("a[0] += 1", (A.copy(),), ["lift", "inplace", "setitem"]),
    ("a.x += 1", (Box(x=1),), ["attribute", "inplace", "setattr"]),
    ("a[0] = a.y = 1", (type("K", (dict,), {})(),), ["setitem", "setattr"]),
    ("del a[0], a.y", (type("K", (dict,), {"y": 1, "__delattr__": lambda s, n: None})({0: 1}),),
     ["delitem", "delattr"]),
    ("global g\ng = a\ng, x = a, 1", (A,), ["materialise", "materialise"]),
    ("def g():\n    return a\na = b", (1, A), ["materialise", "materialise"]),
    ("g = [a for _ in b]\na = b", (1, [1]), ["iterate", "element"]),
    ("h = sum(a for _ in b)\na = b", (1, [1]), ["call", "iterate", "element"]),
    ("h = (a for _ in b)\na = b", (1, [1]), ["materialise", "materialise", "iterate", "materialise"]),
    ("n = 0\nwhile n < 2:\n    n += 1", (), ["end_iteration", "end_iteration"]),
    ("for i in range(3):\n    if i == 1: continue\n    if i == 2: break", (),
     ["iterate", "end_iteration", "end_iteration"]),
    ("with a: pass", (__import__("threading").Lock(),), ["enter_context"]),
    ("yield a\nyield from b\nreturn a", (1, [2]), ["yield_value", "yield_value", "yield_value"]),
    ("return a.w * a.v[0] + a.w.shape[0]", (Box(w=A, v=A),),
     ["lift", "lift", "lift", "attribute"]),
    ("w = a.w\nreturn w * 2 + w.T", (Box(w=A),), ["lift", "attribute"]),
    ("return a['w'] @ a['w'] + b[0]", ({"w": A}, A), ["lift", "lift"]),
    ("return np.exp(a.w)", (Box(w=A),), ["lift"]),
    ("return a.w.sum()", (Box(w=A),), ["attribute", "call"]),
    ("return G + K * np.pi + G2", (), ["lift"]),
    ("return a.w is b or a.w in [b]", (Box(w=1), 1), ["is_same"]),
    ("return a is not None or a is ... or b is not a", (None, 1), ["is_same"]),
    ("@staticmethod\ndef g(x=a, y=1): pass", (), ["materialise"]),
    ("import math\nclass C: x = a", (), ["call", "call", "materialise"]),
    ("return [1 for _ in a], {i: 1 for i in a}", ([1],), ["iterate", "iterate", "hashed_element"]),
    ("match a:\n    case x if x.f(): pass", (Box(f=lambda: 1),),
     ["attribute", "call", "flush_unless_safe"]),
    ("try:\n    a()\nexcept TypeError:\n    b()\nfinally:\n    b()", (1, int), ["call"] * 3),
    ("return f'{a.g():{b}}'", (Box(g=lambda: 1), 3), ["call", "lift"]),
    ("(x := a)\ndef g(): return x", (1,), ["materialise"]),
])  # fmt: skip
def test_hooks_stand_where_they_are_needed(
    body: str, args: tuple[Any, ...], expected: list[str]
) -> None:
    assert hooks(body, *args, G=A, K=2, G2=3.5) == expected


@pytest.mark.parametrize(("read", "together"), [
    ("b[0, i]", True), ("b[i + 1, 0] * 2", True), ("b[0, 1]", False), ("b[i]", False)])
def test_few_turns_that_add_up_neighbours_stay_together(read: str, together: bool) -> None:
    given = 1, np.ones((3, 3))
    assert ("end_iteration" not in hooks(f"for i in (0, 1):\n    a += {read}", *given)) == together
    assert "end_iteration" in hooks(f"for i in (0, 1):\n    a = {read}", *given)


@pytest.mark.parametrize(("turns", "together"), [
    ("(-1, 0, 1)", True), ("range(-1, 2)", True), ("[(0, 1), (1, -1)]", True), ("b", False),
    ("range(100)", False), ("(0, a)", False), ("range(a)", False)])
def test_few_turns_that_roll_stay_together(turns: str, together: bool) -> None:
    given = Box(roll=lambda i: 1, __index__=lambda: 2), [1, 2]
    loop = f"for i in {turns}:\n    if i == 0: continue\n    x = a.{{}}(i)"
    terms = f"x = sum(a.roll(i) for i in {turns})"
    if turns == "range(a)":
        loop, terms, given = loop.replace("a.", "b."), terms.replace("a.", "b."), (2, given[0])
    assert ("end_iteration" not in hooks(loop.format("roll"), *given)) == together
    assert ("summand" in hooks(terms, *given)) == together
    given[turns == "range(a)"].turn = lambda i: 1
    assert "end_iteration" in hooks(loop.format("turn"), *given)


def test_key_of_a_store_is_what_python_builds() -> None:
    hook = Hook()
    f = define("def f(a):\n    a[:] = 0\n    a[1:, ..., None] = 0\n    a[::2] += 1")
    instrument(f, hook)(np.zeros(4))
    keys = [each[1] for each in hook.seen if each[0] == "setitem"]
    assert keys == [slice(None), (slice(1, None), ..., None), slice(None, None, 2)]


def test_instrumented_function_looks_like_its_original() -> None:
    f = define('''
        def deco(g): return g
        @deco
        @deco
        def f(a: int, /, b: "str" = 3, *c, d=4, **e) -> float:
            """Doc."""
            a[0] = b
            return lambda: a.x()
    ''')
    f.mark = 1
    instrumented = instrument(f, Hook())
    assert instrumented is not None and instrumented is not f
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__",
                 "__kwdefaults__", "__annotations__", "__globals__"):  # fmt: skip
        assert getattr(instrumented, name) == getattr(f, name)
    for name in ("co_filename", "co_firstlineno", "co_name", "co_qualname", "co_flags"):
        assert getattr(instrumented.__code__, name) == getattr(f.__code__, name)
    assert instrumented.__dict__ is f.__dict__ and instrumented.__globals__ is f.__globals__
    assert instrumented([0]).__qualname__ == f([0]).__qualname__ == "f.<locals>.<lambda>"
    inner = [c for c in instrumented.__code__.co_consts if hasattr(c, "co_qualname")]
    assert inner[0].co_qualname == "f.<locals>.<lambda>"
    assert "__jitla__" not in f.__globals__
    hash(instrumented.__code__)


def test_instrumented_function_shares_the_cells() -> None:
    f = define("""
        def make():
            n = 0
            def f():
                nonlocal n
                n += 1
                return n
            return f, lambda: n
    """, "make")
    inner, read = f()
    instrumented = instrument(inner, Hook())
    assert instrumented is not None
    assert (inner(), instrumented(), inner(), read()) == (1, 2, 3, 3)
    shared = dict(zip(instrumented.__code__.co_freevars, instrumented.__closure__, strict=True))
    assert shared["n"] is inner.__closure__[0]


def test_methods_know_their_class() -> None:
    k = define("""
        class Base:
            def f(self): return ['base']
        class __K(Base):
            __private = 5
            def f(self):
                self.__x = self.__private
                return super().f() + [__class__, self.__x, type(self).__mro__[1]]
            @classmethod
            def g(cls): return cls.__private, super().__init__
    """, "__K")
    instrumented = instrument(k.f, Hook())
    assert instrumented is not None
    assert instrumented(k()) == k().f()
    assert instrument(k.g.__func__, Hook())(k)[0] == 5


def test_lambdas_on_one_line_are_told_apart() -> None:
    fs = define("f = [lambda a: a.x(), lambda a: a.x(), lambda a: a.y()]")
    hook = Hook()
    box = Box(x=lambda: "x", y=lambda: "y")
    assert [instrument(f, hook)(box) for f in fs] == ["x", "x", "y"]


def test_one_code_object_has_one_instrumented_code() -> None:
    make = define("def make(n):\n    def f(a):\n        a[n] = n\n    return f", "make")
    instrumenter = Instrumenter(Hook())
    first, second = instrumenter.instrument(make(1)), instrumenter.instrument(make(2))
    assert first is not None and second is not None
    assert first.__code__ is second.__code__ and first.__closure__ != second.__closure__
    assert instrumenter.instrument(first) is first


def test_code_without_hooks_stays_or_only_ceases_to_borrow() -> None:
    instrumenter = Instrumenter(Hook())
    plain = define("def f(a):\n    return a is None")
    found = instrumenter.instrument(plain)
    assert found is not None and found.__code__ == without_borrows(plain.__code__)
    assert (found is plain) == (sys.version_info < (3, 14))


def test_functions_that_twins_make_have_twins() -> None:
    instrumenter = Instrumenter(Hook())
    text = "def make(n):\n    n[0] = 0\n    return lambda a: a is None"
    make = instrumenter.instrument(define(text, "make"))
    assert make is not None
    assert instrumenter.instrument(make([1])) is not None


def test_cache_entries_are_dropped_with_their_code() -> None:
    instrumenter = Instrumenter(Hook())
    f = define("def f(a):\n    a[0] = 1")
    instrumented = instrumenter.instrument(f)
    assert instrumented is not None
    gone = weakref.ref(instrumented.__code__)
    del f, instrumented
    linecache.clearcache()
    gc.collect()
    assert gone() is None and len(instrumenter._cache) == 0


def test_rebound_globals_make_a_new_twin() -> None:
    hook = Hook()
    instrumenter = Instrumenter(hook)
    f = define("def f(a):\n    a[0] = 1\n    return np.exp(a) * G, len(a)", np=np, G=2.0)
    instrumenter.instrument(f)(np.zeros(1))
    assert hook.names() == ["setitem"] and instrumenter.is_current(f)
    f.__globals__["G"] = np.ones(1)
    assert not instrumenter.is_current(f)
    instrumenter.instrument(f)(np.zeros(1))
    assert hook.names() == ["setitem", "setitem", "lift"]
    f.__globals__["np"] = Box(exp=np.exp)
    f.__globals__["len"] = lambda a: 1
    assert not instrumenter.is_current(f)
    instrumenter.instrument(f)(np.zeros(1))
    assert sorted(hook.names()[3:]) == [
        "attribute", "call", "call", "lift", "lift", "setitem"]


@pytest.mark.parametrize("body", [
    "return locals()", "x = a\nreturn eval('x')", "exec('x = 1')", "return vars()", "return dir()",
    "import sys\nreturn sys._getframe()", "from inspect import currentframe as c\nreturn c().f_locals",
    "g = locals\nreturn g()", "def g(): return locals()\nreturn g()",
    "class K: x = locals()",
])  # fmt: skip
def test_functions_that_read_their_frame_have_none(body: str) -> None:
    f = define("def f(a):\n    a[0] = 1\n" + textwrap.indent(body, "    "))
    assert instrument(f, Hook()) is None


def test_frame_readers_with_arguments_are_calls() -> None:
    body = "a[0] = 1\nreturn vars(b), dir(b), eval('1 + x', {'x': 1}), (lambda vars: vars)(2)"
    assert hooks(body, [0], Box()) == ["setitem"] + ["call"] * 4


def test_without_sure_source_there_is_none(tmp_path: Any) -> None:
    names: dict[str, Any] = {}
    exec("def f(a):\n    a[0] = 1", names)
    assert instrument(names["f"], Hook()) is None
    path = tmp_path / "changing.py"
    source = "def f(a):\n    a[0] = 1\n"
    path.write_text(source)
    exec(compile(source, str(path), "exec"), names)
    assert instrument(names["f"], Hook()) is not None
    for changed in ("def f(a):\n    a[0] = 2\n", "x = 1\n" + source, "def f(a:\n", "",
                    "def f(a):\n    a[0] = 1.0\n", "def f(b):\n    b[0] = 1\n",
                    "class K:\n    def f(a):\n        a[0] = 1\n"):  # fmt: skip
        path.write_text(changed)
        linecache.clearcache()
        assert instrument(names["f"], Hook()) is None
    path.unlink()
    linecache.clearcache()
    assert instrument(names["f"], Hook()) is None


def test_constants_of_other_kinds_are_another_function(tmp_path: Any) -> None:
    path = tmp_path / "constants.py"
    names: dict[str, Any] = {}
    for made, read in (("1", "True"), ("0.0", "-0.0"), ("(1, 2.0)", "(1.0, 2)"), ("'a'", "b'a'")):
        exec(compile(f"def f(a):\n    a[0] = {made}\n", str(path), "exec"), names)
        path.write_text(f"def f(a):\n    a[0] = {read}\n")
        linecache.clearcache()
        assert instrument(names["f"], Hook()) is None


def asserting(a: Any) -> Any:
    """A function whose asserts pytest compiles its own way."""
    assert a[0] == 0 and len(a) < 3, f"not {a}"
    a[0] = 1
    assert not a.missing(), "text"


def test_functions_of_test_files_have_twins() -> None:
    hook = Hook()
    instrumented = instrument(asserting, hook)
    assert instrumented is not None
    a = [0]
    with pytest.raises(AttributeError):
        instrumented(a)
    with pytest.raises(AssertionError, match="not"):
        instrumented(a)
    assert a == [1] and hook.names().count("setitem") == 1


def test_statements_compiled_alone_have_twins() -> None:
    source = "import math\ndef f(a):\n    a[0] = math.sqrt(4)\n"
    filename = "<notebook cell>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names: dict[str, Any] = {}
    for statement in ast.parse(source).body:
        exec(compile(ast.Module([statement], []), filename, "exec"), names)
    assert instrument(names["f"], Hook()) is not None


def test_instrumenting_warns_of_nothing() -> None:
    f = define("def f(a):\n    a[0] = '\\d'\n    return a is 1, 'x'(2)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert instrument(f, Hook()) is not None


# Functions of the standard library, NumPy and SciPy give the same results when they are instrumented.

INSTRUMENTER = Instrumenter(Hook(), lambda function: function in (np.sum, np.where, np.dot))


def copy_of(name: str) -> types.ModuleType:
    """A second copy of a module, all of whose functions are instrumented."""
    original = importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"{name}_twin", original.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    for holder in [module, *(c for c in vars(module).values() if isinstance(c, type))]:
        if getattr(holder, "__module__", module.__name__) == module.__name__:
            for attr, value in list(vars(holder).items()):
                instrumented = twin_of(value, module.__name__)
                if instrumented is not value:
                    setattr(holder, attr, instrumented)
    return module


def twin_of(value: Any, module: str) -> Any:
    """Twin of a function, static method, class method or property of that module."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(twin_of(value.__func__, module))
    if isinstance(value, property):
        parts = (value.fget, value.fset, value.fdel)
        return property(*(part and twin_of(part, module) for part in parts), value.__doc__)
    if not isinstance(value, types.FunctionType) or value.__module__ != module:
        return value
    return INSTRUMENTER.instrument(value) or value


def numbers() -> list[float]:
    """Some numbers in no order."""
    return [((i * 7919) % 101) / 7 for i in range(60)]


TEXT = "The quick brown fox -- so they say -- jumped over the lazy-dog's back.  " * 4
STDLIB = {
    "textwrap": lambda m: (m.wrap(TEXT, 20), m.fill(TEXT, 33, initial_indent=" * "),
                           m.shorten(TEXT, 30), m.dedent("  a\n   b\n"), m.indent(TEXT, "> ")),
    "heapq": lambda m: (list(m.merge([1, 4], [2, 3], key=lambda x: -x)), m.nlargest(3, numbers()),
                        m.nsmallest(4, numbers(), key=lambda x: -x)),
    "statistics": lambda m: (m.mean(numbers()), m.stdev(numbers()), m.median(numbers()),
                             m.quantiles(numbers(), n=5), m.NormalDist(1, 2).inv_cdf(0.3),
                             m.linear_regression(numbers(), numbers()[::-1])),
    "fractions": lambda m: (str(m.Fraction(3, 7) ** 3 / m.Fraction("1.25") - 2), hash(m.Fraction(2)),
                            str(m.Fraction(3.14).limit_denominator(50)), m.Fraction(1, 2) < 1),
    "json.encoder": lambda m: list(m.JSONEncoder(indent=1, sort_keys=True).iterencode(
        {"a": [1, 2.5, None, {"c": "\u20ac"}], "b": (True, float("inf"))})),
    "difflib": lambda m: (list(m.unified_diff(TEXT.split(), TEXT.split()[::2])),
                          m.get_close_matches("appel", ["ape", "apple", "peach"])),
    "string": lambda m: m.Formatter().format("{0:>{w}} {a[0]!r}", 3, w=4, a=[1]),
    "shlex": lambda m: m.split("a 'b c' \"d\\\"e\" # f", comments=True),
    "colorsys": lambda m: [m.rgb_to_hls(*m.hsv_to_rgb(i / 7, 0.3, 0.9)) for i in range(7)],
    "graphlib": lambda m: list(m.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}}).static_order())[-1],
    "pprint": lambda m: m.pformat({"k": list(range(40)), "l": TEXT}, width=50),
    "configparser": lambda m: _config(m),
}  # fmt: skip


def _config(module: Any) -> Any:
    parser = module.ConfigParser()
    parser.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nz: yes\n")
    return parser["a"]["y"], parser.getboolean("b", "z"), parser.sections()


@pytest.mark.parametrize("name", STDLIB)
def test_standard_library(name: str) -> None:
    assert repr(STDLIB[name](importlib.import_module(name))) == repr(STDLIB[name](copy_of(name)))


def functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Functions and methods written in `module`."""
    for value in vars(module).values():
        without_borrows = getattr(value, "__module__", None) == module.__name__
        for each in vars(value).values() if isinstance(value, type) and without_borrows else [value]:
            each = inspect.unwrap(getattr(each, "__func__", each), stop=lambda f: False)
            if isinstance(each, types.FunctionType) and each.__module__ == module.__name__:
                yield each


@pytest.mark.parametrize("name", [
    "argparse", "ast", "asyncio.tasks", "collections", "contextlib", "dataclasses", "inspect",
    "functools", "typing", "numpy.lib._function_base_impl", "numpy.linalg._linalg",
    "scipy.optimize._optimize", "scipy.sparse._base",
])  # fmt: skip
def test_every_function_with_source_is_instrumented(name: str) -> None:
    if name.startswith("scipy"):
        pytest.importorskip("scipy")
    module = importlib.import_module(name)
    for fn in functions(module):
        if fn.__code__.co_filename != module.__file__ or fn.__name__ == "__annotate__":
            continue
        names = {*fn.__code__.co_names, *(n for c in codes(fn.__code__) for n in c.co_names)}
        reads = names & {"_getframe", "currentframe", "f_locals", "eval", "exec", "locals"}
        # outside classes `super` makes the compiler look for a class, which an instrumented function finds
        reads |= names & {"super"} if "__class__" not in fn.__code__.co_freevars else set()
        assert reads or frame_sensitivity_of(fn) or INSTRUMENTER.instrument(fn) is not None, fn.__qualname__


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code objects inside `code`."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from codes(each)


X = np.linspace(-1, 2, 24)
NUMPY = [
    (np.average, (X.reshape(4, 6),), {"axis": 1, "weights": np.arange(6)}),
    (np.gradient, (X.reshape(4, 6) ** 2,), {}),
    (np.cov, (X.reshape(4, 6),), {"aweights": np.arange(1, 7)}),
    (np.corrcoef, (X.reshape(4, 6),), {}),
    (np.percentile, (X, [10, 50]), {"method": "hazen"}),
    (np.median, (X.reshape(4, 6),), {"axis": 0}),
    (np.unwrap, (X * 9,), {}),
    (np.diff, (X,), {"n": 2, "prepend": 0}),
    (np.insert, (X, [1, 3], 9.0), {}),
    (np.delete, (X, slice(1, 9, 2)), {}),
    (np.meshgrid, (X[:3], X[:2]), {"indexing": "ij"}),
    (np.trapezoid, (X,), {"dx": 0.5}),
    (np.interp, (X, np.arange(4), np.arange(4) ** 2), {}),
    (np.select, ([X > 1, X < 0], [X, -X]), {"default": 7}),
    (np.piecewise, (X, [X < 0, X >= 0], [lambda v: -v, 3]), {}),
    (np.histogram, (X,), {"bins": "auto"}),
    (np.kron, (X[:3], X[:2]), {}),
    (np.tensordot, (X.reshape(4, 6), X.reshape(6, 4)), {"axes": 1}),
    (np.linalg.norm, (X.reshape(4, 6),), {"axis": 1}),
    (np.linalg.lstsq, (X.reshape(6, 4), np.arange(6)), {}),
    (np.array_split, (X, 5), {}),
    (np.apply_along_axis, (lambda v: v.sum(), 0, X.reshape(4, 6)), {}),
    (np.unique, (np.round(X),), {"return_counts": True}),
    (np.polyfit, (X, X**2 - X, 3), {}),
    (np.pad, (X.reshape(4, 6), 2), {"mode": "reflect"}),
    (np.einsum_path, ("ij,jk->ik", X.reshape(4, 6), X.reshape(6, 4)), {}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "kwargs"), NUMPY, ids=lambda f: getattr(f, "__name__", ""))
def test_numpy_functions(function: Any, args: Any, kwargs: Any) -> None:
    fn = inspect.unwrap(function)
    if not isinstance(fn, types.FunctionType):
        pytest.skip("written in C")
    instrumented = INSTRUMENTER.instrument(fn)
    assert instrumented is not None
    assert repr(instrumented(*copy.deepcopy(args), **kwargs)) == repr(fn(*copy.deepcopy(args), **kwargs))


def test_scipy_minimisers() -> None:
    optimize = pytest.importorskip("scipy.optimize._optimize")
    start = np.array([1.3, 0.7, 0.8])
    for name in ("_minimize_neldermead", "_minimize_bfgs", "_minimize_cg", "_minimize_powell"):
        fn = getattr(optimize, name)
        instrumented = INSTRUMENTER.instrument(fn)
        rosen = INSTRUMENTER.instrument(optimize.rosen)
        first, second = fn(optimize.rosen, start), instrumented(rosen, start)
        assert repr(first) == repr(second)
