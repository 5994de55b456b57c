"""What can be seen of a program after a call: everything that its names, results and exceptions reach.

Receives values; returns a dictionary from paths to short texts, which two runs of a program must agree in.
A proxy of jitla that is found anywhere is said by the name of its class, so that it never equals an array.
"""

from __future__ import annotations

import functools
import re
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import numpy as np

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
