"""A module run plain and decorated, several calls in a row, and the differences that can be observed."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import io
import linecache
import re
import signal
import sys
import types
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Everything that names, results and exceptions reach after a call
#
# Receives values; returns a dictionary from paths to short texts, which two runs of a program must agree in.
# A proxy of jitla that is found anywhere is said by the name of its class, so that it never equals an array.

# Attributes that a decorated function has, and a plain one has not.
OWN = frozenset({"__wrapped__", "__jitla_state__", "recompile", "stats", "explain", "_repr_html_",
                 "cache_clear", "compile"})
ADDRESS = re.compile(r"0x[0-9a-f]+")
SCALAR_TYPES = re.compile(r"\bLazyScalar\b|\bnumpy\.(?:float64|int64|complex128|bool)\b")
CELLS = 6  # of an array that are shown
DEPTH = 12
HEAP = 1 << 9  # flag of classes that are defined in Python
ATOMS = (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype, type(...), range, slice)
# What is not looked into: nothing that a program leaves is in there.
OPAQUE = (types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.GeneratorType,
          types.CoroutineType)

Seen = dict[str, str]


def is_own(kind: type) -> bool:
    """Say whether a class is jitla's; proxies of arrays give themselves out as NumPy's."""
    hooks = sys.modules.get("jitla.tracing.hooks")
    return hooks is not None and kind in hooks.PROXY_TYPES or str(kind.__module__).startswith("jitla")


class Snapshot:
    """A walk over values, which notes each leaf, and which arrays and containers are the same object."""

    def __init__(self, module: str) -> None:
        self.module = module  # classes and functions of it are looked into
        self.leaves: Seen = {}
        self._places: dict[int, str] = {}
        self._arrays: list[tuple[str, np.ndarray]] = []
        self._kept: list[Any] = []  # ids stay taken as long as the walk lasts

    def finish(self) -> Seen:
        """Return the leaves, and which arrays share memory."""
        for at, (path, array) in enumerate(self._arrays):
            for other, before in self._arrays[:at]:
                if np.may_share_memory(array, before):
                    self.leaves[f"{path} shares"] = other
                    break
        return self.leaves

    def walk(self, path: str, value: Any, depth: int = 0) -> None:
        """Note a value and what it holds."""
        kind = type(value)
        if kind.__flags__ & HEAP and is_own(kind):
            self.leaves[path] = f"LEAK of {kind.__qualname__}"
        elif depth > DEPTH:
            self.leaves[path] = "deep"
        elif isinstance(value, ATOMS):
            self.leaves[path] = _atom(value)
        elif id(same := undecorated(value)) in self._places:
            self.leaves[path] = "same as " + self._places[id(same)]
        else:
            if not isinstance(value, tuple):  # one that holds pending values is stored as another
                self._places[id(same)] = path
            self._kept.append(value)
            if isinstance(value, np.ndarray):
                self._array(path, value, depth)
            else:
                self._object(path, value, kind, depth)

    def _array(self, path: str, value: np.ndarray, depth: int) -> None:
        self.leaves[path] = describe(value)
        if value.dtype == object:
            for n, part in enumerate(value.ravel().tolist()):
                self.walk(f"{path}.flat[{n}]", part, depth + 1)
        elif value.size:
            self._arrays.append((path, value))

    def _object(self, path: str, value: Any, kind: type, depth: int) -> None:
        if isinstance(value, OPAQUE):
            self.leaves[path] = kind.__name__
            return
        self.leaves[path] = type(undecorated(value)).__name__
        for name, part in self._parts(value, kind):
            self.walk(path + name, part, depth + 1)

    def _parts(self, value: Any, kind: type) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for n, (key, part) in enumerate(list(value.items())):
                yield f".key[{n}]", key
                yield f"[{_atom(key) if isinstance(key, ATOMS) else n}]", part
        elif isinstance(value, (list, tuple, deque)):
            for n, part in enumerate(value):
                yield f"[{n}]", part
        elif isinstance(value, (set, frozenset)):
            for n, part in enumerate(sorted(value, key=lambda each: (type(each).__name__, repr(each)))):
                yield f".set[{n}]", part
        elif isinstance(value, BaseException):
            yield from error_parts(value)
        elif isinstance(value, weakref.ref):
            yield "()", value()
            return
        elif isinstance(value, functools.partial):
            yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
            return
        elif isinstance(value, types.FunctionType):
            yield from self._function_parts(value)
            return
        elif isinstance(value, types.MethodType):
            yield from ((".__func__", value.__func__), (".__self__", value.__self__))
            return
        elif isinstance(value, types.CellType):
            try:
                yield ".cell", value.cell_contents
            except ValueError:
                yield ".cell", "empty"
            return
        elif isinstance(value, type):
            if value.__module__ == self.module:
                yield from _attributes(vars(value))
            return
        yield from self._own(value, kind)

    def _own(self, value: Any, kind: type) -> Iterator[tuple[str, Any]]:
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            own = {}
        if type(own) is dict:
            yield from _attributes(own)
        for owner in kind.__mro__:
            if owner.__module__ == self.module:
                slots = owner.__dict__.get("__slots__", ())
                for name in slots if isinstance(slots, tuple) else (slots,):
                    try:
                        yield f".{name}", owner.__dict__[name].__get__(value, kind)
                    except (AttributeError, KeyError):
                        pass

    def _function_parts(self, value: types.FunctionType) -> Iterator[tuple[str, Any]]:
        # what a function notes on itself, and what others note on what stands for it
        own = undecorated(value)
        yield from _attributes({**vars(value), **getattr(own, "__dict__", {})})
        value = own
        if type(value) is not types.FunctionType:
            return
        if value.__module__ != self.module:
            return
        yield ".__name__", value.__name__
        yield ".__defaults__", value.__defaults__
        yield ".__kwdefaults__", value.__kwdefaults__
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            if name not in ("__class__", "__jitla__"):
                yield f".<{name}>", cell


def undecorated(function: Any) -> Any:
    """Return the function that is decorated, if this is what jitla made of one."""
    state = vars(function).get("__jitla_state__") if type(function) is types.FunctionType else None
    # `functools.wraps` copies attributes
    return state.function if state is not None and state.wrapper() is function else function


def error_parts(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield what an exception holds, and which ones it was raised from."""
    # Messages that Python words itself may name a pending scalar's class (`docs/dev/semantics.md`).
    yield ".args", tuple([SCALAR_TYPES.sub("scalar", a) if isinstance(a, str) else a for a in error.args])
    yield ".__cause__", error.__cause__
    if not error.__suppress_context__:
        yield ".__context__", error.__context__
    if isinstance(error, StopIteration):
        yield ".value", error.value


def lines_of(error: BaseException, filename: str) -> list[tuple[str, int]]:
    """Return names and lines of those frames of a traceback that are of one file."""
    found, at = [], error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename == filename:
            found.append((code.co_name, at.tb_lineno))
        at = at.tb_next
    return found


def _attributes(own: Any) -> Iterator[tuple[str, Any]]:
    wrapped = "__wrapped__" in own
    for name, part in list(own.items()):
        if not (wrapped and name in OWN or isinstance(name, str) and name.startswith("__")):
            yield f".{name}", part


def _atom(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and value != value:
        return f"{type(value).__name__} nan"
    if isinstance(value, (float, np.floating)) and value == 0:
        value = abs(value)  # NumPy does not say which zero is the larger
    return f"{type(value).__name__} {ADDRESS.sub('0x', repr(value))}"


def describe(array: np.ndarray) -> str:
    """Return dtype, shape and cells of an array; of long ones a few cells and a sum of all bytes."""
    cells = array
    if array.dtype.kind in "fc":
        cells = np.where(np.isnan(array), np.nan, array) + 0.0
    shown = "" if array.dtype == object else " ".join(map(str, cells.ravel()[:CELLS].tolist()))
    digest = "" if array.dtype == object else sha1(np.ascontiguousarray(cells).tobytes()).hexdigest()[:8]
    flags = "" if array.flags.writeable else " read-only"
    kind = type(array).__name__
    return f"{kind} {array.dtype.str}{array.shape}{flags} [{shown}] {digest}"


# Runs
#
# Receives source text and a mode; returns the first difference. Nothing of jitla is imported for a plain run.

MODES = ("sync", "background", "auto")
CALLS = 4
# NumPy's own state; where it speaks of underflow, too, nothing is traced.
AS_USUAL: Any = {"divide": "warn", "over": "warn", "invalid": "warn", "under": "ignore"}
UNSEEN = ("jit", "OUT", "LOCK", "SHOWN")


class Difference(NamedTuple):
    """The first thing that is not as it is plain: in which call, what kind of thing, where, both texts."""

    mode: str
    call: int
    kind: str
    path: str
    plain: str
    found: str

    def __str__(self) -> str:
        return (f"{self.mode}, call {self.call}, {self.kind}: {self.path}\n"
                f"    plain: {self.plain}\n    found: {self.found}")


class Call(NamedTuple):
    """What one call of a module left."""

    leaves: Seen
    warned: list[tuple[str, str]]


class Run(NamedTuple):
    """All calls of a module, and the failures that jitla noted and masked."""

    calls: list[Call]
    failures: list[str]


def plain(function: Any = None, **options: Any) -> Any:
    """Stand for a decorator that does nothing."""
    return (lambda f: f) if function is None else function


def decorator(mode: str) -> Callable[..., Any]:
    """Return the decorator under test."""
    import jitla

    decorated: list[Any] = []

    def jit(function: Any = None) -> Any:
        made = jitla.jit(function, compile=mode)
        decorated.append(made)
        return made

    vars(jit)["decorated"] = decorated
    return jit


def load(path: Path, jit: Callable[..., Any]) -> types.ModuleType:
    """Import the module in a file anew, with `jit` among its names."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["jit"] = jit
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def perform(path: Path, jit: Callable[..., Any], calls: int = CALLS) -> Run:
    """Import a module and call its `main` some times; what that leaves is noted after each call."""
    kept = dict(sys.modules), np.geterr(), np.geterrcall(), signal.getsignal(signal.SIGUSR1)
    found = []
    # When cycles are collected follows from what is allocated, which differs.
    gc.disable()
    gc.freeze()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                module = load(path, jit)
            except Exception as error:
                found.append(_failed(error, path))
            else:
                for n in range(calls):
                    found.append(_call(module, path, n))
    finally:
        sys.modules.pop(path.stem, None)
        np.seterr(**kept[1])
        np.seterrcall(kept[2])
        signal.signal(signal.SIGUSR1, kept[3])
        gc.collect()  # of this program; what is left will not be looked at again
    return Run(found, _failures(jit))


def _call(module: types.ModuleType, path: Path, n: int) -> Call:
    error: BaseException | None = None
    result = None
    with warnings.catch_warnings(record=True) as warned, np.errstate(**AS_USUAL):
        warnings.simplefilter("always")
        try:
            result = module.main(n)
        except Exception as raised:
            error = raised
    shot = Snapshot(module.__name__)
    shot.walk("result", result)
    if error is not None:
        shot.walk("raised", error)
        shot.leaves["raised at"] = repr(lines_of(error, str(path)))
    out = getattr(module, "OUT", None)
    shot.leaves["printed"] = ADDRESS.sub("0x", out.getvalue() if out else "")
    for name, value in list(vars(module).items()):
        if not (name.startswith("__") or name in UNSEEN or isinstance(value, types.ModuleType)):
            shot.walk(name, value)
    said = sorted((w.category.__name__, ADDRESS.sub("0x", str(w.message))) for w in warned)
    return Call(shot.finish(), said)


def _failed(error: Exception, path: Path) -> Call:
    shot = Snapshot(path.stem)
    shot.walk("raised", error)
    shot.leaves["raised at"] = repr(lines_of(error, str(path)))
    return Call(shot.finish(), [])


def _failures(jit: Callable[..., Any]) -> list[str]:
    found = []
    for function in getattr(jit, "decorated", []):
        state = getattr(getattr(function, "__func__", function), "__jitla_state__", None)
        if state is not None:
            for site in state.all_sites():
                found += site.failures
    return found


def first_difference(mode: str, expected: Run, actual: Run) -> Difference | None:
    """Return what differs first; None if nothing does."""
    for n, (one, other) in enumerate(zip(expected.calls, actual.calls, strict=False)):
        differing = {path: (one.leaves.get(path, "absent"), other.leaves.get(path, "absent"))
                     for path in [*one.leaves, *[p for p in other.leaves if p not in one.leaves]]
                     if one.leaves.get(path) != other.leaves.get(path)}
        if differing:
            path = min(differing, key=lambda p: _rank(p, differing[p]))
            return Difference(mode, n, kind_of(path, *differing[path]), path, *differing[path])
        if not _may_warn(one.warned, other.warned):
            return Difference(mode, n, "warnings", "", repr(one.warned), repr(other.warned))
    if actual.failures:
        return Difference(mode, -1, "internal", "failures", "none", actual.failures[0][:300])
    return None


def _may_warn(plain: list[tuple[str, str]], found: list[tuple[str, str]]) -> bool:
    """Say whether no warning was added, and only those of floating-point flags left out.

    Values that nobody reads are not computed and do not warn (`docs/differences.md`).
    """
    left = Counter(plain)
    left.subtract(found)
    return all(n == 0 or n > 0 and " encountered in " in text for (_, text), n in left.items())


def _rank(path: str, texts: tuple[str, str]) -> int:
    """Order differences by how much they say: leaks, then exceptions, then anything else."""
    if "LEAK" in texts[1]:
        return 0
    return 1 if path.startswith("raised") else 2


def kind_of(path: str, plain: str, found: str) -> str:
    """Return a word for a difference."""
    if "LEAK" in found:
        return "leak"
    if path.startswith("raised"):
        return "line" if path == "raised at" else "raised"
    if path.startswith("LOG"):
        return "event" if "absent" in (plain, found) or not path.count("[") > 1 else "logged value"
    if path.endswith(" shares") or "same as" in plain + found:
        return "identity"
    return "value"


def compare(
    source: str, name: str, folder: Path, modes: tuple[str, ...] = MODES, calls: int = CALLS,
) -> list[Difference]:
    """Write a module, run it plain and in each mode; return the first difference of each mode."""
    path = folder / f"{name}.py"
    path.write_text(source)
    try:
        expected = perform(path, plain, calls)
        found = []
        for mode in modes:
            linecache.checkcache(str(path))
            one = first_difference(mode, expected, perform(path, decorator(mode), calls))
            if one is not None:
                found.append(one)
        return found
    finally:
        path.unlink(missing_ok=True)
        linecache.cache.pop(str(path), None)
