"""Functions of the standard library, NumPy and SciPy give the same results when they are instrumented."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitla.instrument.instrumented import Instrumenter
from jitla.introspection import frame_sensitivity_of
from tests.instrument.recording_hooks import Hook

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
