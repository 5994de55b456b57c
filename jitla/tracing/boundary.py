"""The boundary of traced code: arrays that enter become proxies, and proxies that leave become values.

Arguments, results and elements become proxies (`argument`, `wrap`, `result`). Untraced code gets values
(`plain`), is called with nothing pending that it could change (`eager`, `call_opaque`), and finds no proxy in
attributes and containers (`slots`).
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable
from functools import partial
from gc import get_referents
from itertools import chain
from sys import getrefcount
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FrameType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
)
from typing import Any

import numpy as np

from jitla.introspection import hide_module
from jitla.tracing.callers import call_from
from jitla.tracing.force import BlockCloser
from jitla.tracing.frames import LOCAL, hide_function, place_of, user_frame
from jitla.tracing.lazy import LAZY, LazyArray, lazy_array, proxy_in_memory
from jitla.tracing.mutation import MemoryDependences
from jitla.tracing.numba_ufuncs import describe, is_numba
from jitla.tracing.numpy_api.functions import written_arrays
from jitla.tracing.sparse.lazy_sparse import LazySparse, has_large_sparse, scipy_matrix
from jitla.tracing.tape import (
    LAYOUT_CACHE,
    LAYOUT_ID,
    LAYOUTS,
    is_traceable,
    layout_id,
    owns_memory,
)
from jitla.tracing.user_types import SAFE_TYPES, may_run_user_code

# Proxies of arrays from outside above which those that nothing else refers to are released.
MIN_RELEASE_COUNT = 8
_ndarray = np.ndarray
_BUILTIN_METHOD_TYPES = frozenset({BuiltinFunctionType, MethodWrapperType})
# Types of arguments that NumPy never calls.
_NOT_CALLED = SAFE_TYPES | {np.ndarray, list, tuple}
_MUTABLE_CONTAINERS = frozenset({list, dict, set})
# Whether writes to `f_locals` change the local variables (PEP 667).
_WRITES_THROUGH = sys.version_info >= (3, 13)


class ProxyMethod(partial):
    """Bound method of a proxy: a partial call with the session, the proxy and the name of the method."""

    @property
    def __self__(self) -> Any:
        return self.args[1]

    @property
    def __name__(self) -> str:
        return str(self.args[2])


# Types whose objects may hold proxies.
PROXY_HOLDERS = _MUTABLE_CONTAINERS | {tuple, frozenset, slice, ProxyMethod, MethodType, LazySparse}
# Iterators and views, which return objects that other containers hold.
_ITERATORS = frozenset({zip, enumerate, map, filter, reversed, type({}.keys()), type({}.values()),
                       type({}.items()), *map(type, map(iter, (
                           [], (), {}, {}.values(), {}.items(), set(), reversed([]), reversed({}))))})
# Suspended frames, which may hold proxies: the attribute of the frame, by type.
SUSPENDED_FRAMES = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
_PROXY_OWNERS = LAZY | {LazySparse}
_ARRAY_KEYS = LAZY | {np.ndarray}
# Types whose objects may hold proxies, or return some later.
PROXY_CARRIERS = PROXY_HOLDERS | _ITERATORS | SUSPENDED_FRAMES.keys()
_REPLACED = LAZY | PROXY_CARRIERS


class Boundary:
    """Converts values that enter or leave the traced code of one session, and calls untraced code.

    `foreigners` maps ids of arrays from outside to their proxies. `slots` are places outside the frames of
    user code that hold proxies: the container (None: an attribute of an object), getter and setter of each.
    """

    __slots__ = ("session", "site", "closer", "memory", "foreigners", "release_count", "slots")

    def __init__(self, session: Any, site: Any, closer: BlockCloser, memory: MemoryDependences) -> None:
        self.session = session
        self.site = site
        self.closer = closer
        self.memory = memory
        self.foreigners: dict[int, LazyArray] = {}
        self.release_count = MIN_RELEASE_COUNT
        self.slots: dict[tuple, tuple[Any, Callable[[], Any], Callable[[Any], None]]] = {}

    # ------------------------------------------------------------------ values that enter traced code

    def arguments(self, values: tuple) -> tuple:
        """Return the proxies of values that can be traced, and the other values themselves."""
        find, foreigners = LAYOUT_CACHE.find, self.foreigners
        proxies: list[Any] = []
        for value in values:
            if type(value) is not _ndarray:
                proxies.append(value)
            elif (found := find(value)) and (key := id(value)) not in foreigners:
                foreigners[key] = proxy = LazyArray()
                proxy._s = self.session
                proxy._n = -1
                proxy._v = value
                proxy._l, proxy._m = found
                proxies.append(proxy)
            else:
                proxies.append(self.argument(value))
        if len(foreigners) > MIN_RELEASE_COUNT:
            self.release_count = MIN_RELEASE_COUNT + 2 * len(foreigners)
        return tuple(proxies)

    def argument(self, value: Any) -> Any:
        """Return the proxy of an argument that can be traced, else the argument itself."""
        if type(value) is _ndarray and not self.session.ended:
            ids = LAYOUT_CACHE.find(value)
            if ids is not None:
                layout, meta = ids
                foreigners = self.foreigners
                key = id(value)
                if key in foreigners and foreigners[key]._l == layout:
                    return foreigners[key]
                array = foreigners[key] = LazyArray()
                array._s = self.session
                array._n = -1
                array._v = value
                array._l = layout
                array._m = meta
                if len(foreigners) > self.release_count:
                    self.release_foreigners()
                return array
            if value.ndim and is_traceable(value.shape, value.dtype):
                proxy = self.foreign(value)
                if proxy is not None and value.base is None:
                    LAYOUT_CACHE.add(value)
                return value if proxy is None else proxy
        return value

    def foreign(self, array: np.ndarray) -> LazyArray | None:
        """Return the proxy of an array from outside; None if no ndarray owns its memory."""
        cached = self.foreigners.get(id(array))
        layout = LAYOUT_ID.get((array.dtype, array.shape, array.strides))
        if layout is None:
            layout = layout_id(array)
        if cached is not None and cached._v is array and cached._l == layout:
            return cached
        if not owns_memory(array):
            return None
        proxy = self.foreigners[id(array)] = proxy_in_memory(self.session, array, layout)
        if len(self.foreigners) > self.release_count:
            self.release_foreigners()
        return proxy

    def release_foreigners(self) -> None:
        """Drop the proxies of arrays from outside that nothing else refers to."""
        foreigners = self.foreigners
        for key in _unreferenced(foreigners):
            del foreigners[key]
        self.release_count = MIN_RELEASE_COUNT + 2 * len(foreigners)

    def wrap(self, value: Any) -> Any:
        """Return a proxy for a new ndarray of NumPy, other values unchanged."""
        if type(value) is np.ndarray and is_traceable(value.shape, value.dtype) and not self.session.ended:
            proxy = self.foreigners.get(id(value))
            return proxy if proxy is not None and proxy._v is value else lazy_array(self.session, value)
        return value

    def result(self, result: Any, args: tuple, plain: tuple, fresh: bool = False) -> Any:
        """Wrap a result of NumPy; if it is one of the arguments, return the proxy that was passed.

        The elements of a list are wrapped only if it is `fresh`, so that no other code finds proxies in it.
        """
        kind = type(result)
        if issubclass(kind, np.ndarray):
            for proxy, value in zip(args, plain, strict=True):
                if value is result:
                    return proxy
            if result.nbytes >= self.site.thresholds.min_counted_bytes:
                self.closer.limit_entered_bytes()
            return self.wrap(result) if owns_memory(result) else result
        if kind is tuple:
            wrapped = self._wrapped(result, args, plain)
            return result if all(map(operator.is_, wrapped, result)) else tuple(wrapped)
        if kind is list and fresh:
            result[:] = self._wrapped(result, args, plain)
        return result

    def _wrapped(self, results: Any, args: tuple, plain: tuple) -> list[Any]:
        """Wrap every array of a sequence; the same array gets the same proxy."""
        proxies = {id(value): proxy for proxy, value in zip(args, plain, strict=True)}
        return [proxies.setdefault(id(v), self.wrap(v)) if type(v) is np.ndarray and owns_memory(v) else v
                for v in results]

    # ------------------------------------------------------------------ values that leave traced code

    def plain(self, value: Any, visited: frozenset[int] = frozenset()) -> Any:
        """Return `value` without proxies, for code that is not traced; containers are changed in place."""
        kind = type(value)
        if kind in LAZY:
            return value._s.closer.value(value)
        if kind is tuple:
            items = [self.plain(v, visited) for v in value]
            return value if all(map(operator.is_, items, value)) else tuple(items)
        if kind in _MUTABLE_CONTAINERS:
            if id(value) not in visited and not _REPLACED.isdisjoint(map(type, _elements_of(value, kind))):
                self._replace_proxies(value, kind, visited | {id(value)})
        elif kind is slice:
            return slice(self.plain(value.start), self.plain(value.stop), self.plain(value.step))
        elif kind is ProxyMethod or kind is MethodType and type(value.__self__) in _PROXY_OWNERS:
            if value.__name__ == "resize":
                return value  # the proxy has to record the new shape
            return getattr(self.plain(value.__self__), value.__name__)
        elif kind is frozenset:
            return value if LAZY.isdisjoint(map(type, value)) else frozenset(map(self.plain, value))
        elif kind is LazySparse:
            return scipy_matrix(value)
        elif kind in _ITERATORS:
            # The iterated container is changed in place; the iterator of a proxy returns arrays.
            for each in get_referents(value):
                if type(each) in PROXY_HOLDERS or type(each) in _ITERATORS:
                    self.plain(each, visited)
        elif kind in SUSPENDED_FRAMES:
            frame = getattr(value, SUSPENDED_FRAMES[kind])
            if frame is not None and id(value) not in visited:
                self.settle_locals(frame, visited | {id(value)})
        elif issubclass(kind, tuple) and hasattr(kind, "_make"):
            return kind._make(self.plain(v, visited) for v in value)
        return value

    def _replace_proxies(self, container: Any, kind: type, visited: frozenset[int]) -> None:
        if kind is list:
            for i, v in enumerate(container):
                if type(v) in _REPLACED:
                    container[i] = self.plain(v, visited)
            return
        if kind is set:
            items = [self.plain(v) for v in container]
            container.clear()
            container.update(items)
            return
        for k, v in container.items():
            if type(v) in _REPLACED:
                container[k] = self.plain(v, visited)
        if any(type(k) in LAZY or type(k) is tuple for k in container):
            pairs = [(self.plain(k), v) for k, v in container.items()]
            if not all(map(operator.is_, container, [k for k, _ in pairs])):
                container.clear()
                container.update(pairs)

    def fill_slots(self) -> None:
        """Replace the proxies in attributes and containers by their values."""
        slots = self.slots
        while slots:
            filled = list(slots.items())
            for _, (container, read, write) in filled:
                current = read()
                if type(current) in LAZY:
                    write(self.closer.value(current))
                elif container is not None:
                    self.plain(container)  # the proxy may be elsewhere in its container by now
            # Only now: an interrupt must not leave slots unfilled. Interrupting code may have added some.
            if len(slots) == len(filled):
                slots.clear()
            for key, _ in filled if slots else ():
                slots.pop(key, None)

    def materialise_escapes(self) -> None:
        """Prepare for code that is not instrumented: do pending reads, replace proxies outside of frames."""
        self.closer.flush()
        self.memory.compute_readers()
        self.fill_slots()
        self.memory.hoisted.clear()  # values of slots may be hoisted ones

    def materialise_exception(self, error: BaseException | None) -> None:
        """Replace proxies in an exception and in its causes and contexts by their values."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            args = self.plain(error.args)
            if args is not error.args:
                error.args = args
            self.plain(error.__dict__)
            if type(getattr(error, "obj", None)) in LAZY:  # the object of an AttributeError
                error.obj = self.plain(error.obj)  # type: ignore[attr-defined]
            error = error.__cause__ or error.__context__

    def settle_locals(self, frame: FrameType, visited: frozenset[int] = frozenset()) -> None:
        """Replace proxies in the local variables of a suspended `frame` by their values."""
        names = frame.f_locals
        values = {}
        for name, current in list(names.items()):
            value = self.plain(current, visited)
            if value is not current:
                values[name] = value
        if values:
            _write_locals(frame, names, values)
        elif not _WRITES_THROUGH:
            names.clear()

    def restore_values(self, frames: list[FrameType]) -> None:
        """Replace proxies of the session whose values are in memory in the local variables of `frames`."""
        session = self.session
        for frame in frames:
            names = frame.f_locals
            for value in list(names.values()):
                if type(value) in _MUTABLE_CONTAINERS:
                    self.plain(value)
            values = {
                name: v._v for name, v in names.items()
                if type(v) in LAZY and v._s is session and v._n < 0 and v._v is not None}
            if values:
                _write_locals(frame, names, values)
            elif not _WRITES_THROUGH:
                names.clear()

    # ------------------------------------------------------------------ calls of code that is not traced

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func` with values for proxies, by NumPy, and count it."""
        out = kwargs.get("out")
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        for target in written_arrays(func, plain, options):
            self.memory.before_write(target)
        wild = any(map(may_run_user_code, plain))
        if wild or not _NOT_CALLED.issuperset(map(type, plain)) and any(map(callable, plain)) or \
                any(map(callable, options.values())):
            self.materialise_escapes()
        session = LOCAL.session
        if not wild:  # else the wrappers of users' objects need the session
            LOCAL.session = None  # NumPy may call handlers of errors, or its arguments
        try:
            result = self.site.call_by_numpy(func, plain, options)
        finally:
            LOCAL.session = session
        if out is None:
            return self.result(result, args, plain, fresh=True)
        if type(out) is not tuple:
            return out if result is options["out"] else self.wrap(result)
        given = options["out"]
        if type(result) is not tuple or len(result) != len(out):
            # a type with its own protocol methods may return anything
            return out[0] if result is given[0] else self.wrap(result)
        return tuple([o if r is g else self.wrap(r) for o, g, r in zip(out, given, result, strict=True)])

    def call_opaque(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call a function that is not instrumented: with values for proxies, after all pending reads."""
        self.materialise_escapes()
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if type(function) in _BUILTIN_METHOD_TYPES and type(function.__self__) in SUSPENDED_FRAMES:
            self.plain(function.__self__)  # its code is resumed outside of the session
        frame = user_frame()
        call: Callable[..., Any] | None = None
        if has_large_sparse(function, plain, self.site.thresholds.min_counted_sparse_entries):
            call = partial(self.site.call_counted, place_of(frame))
        elif is_numba(function):
            call = partial(self.site.call_compiled, describe(function), place_of(frame))
        LOCAL.session = None
        try:
            if call is None:
                result = call_from(frame, self.session, function, plain, options)
            else:
                result = call(function, plain, options)
        finally:
            LOCAL.session = self.session
            self._refresh_layouts((*args, *kwargs.values()))
            self.closer.update_error_state()
        return self.result(result, args, plain)

    def _refresh_layouts(self, args: tuple) -> None:
        """Read the layouts of arrays passed to opaque code again: it may have reshaped or resized them."""
        for argument in args:
            proxy = argument.__self__ if type(argument) is ProxyMethod else argument
            if type(proxy) is LazyArray and proxy._v is not None and layout_id(proxy._v) != proxy._l:
                self.refresh_layout(proxy)

    def refresh_layout(self, array: LazyArray) -> None:
        """Read the layout of an array in memory again, after an assignment to its shape or dtype."""
        self.closer.close()
        array._l = layout_id(array._v)
        array._m = LAYOUTS[array._l].meta


def _references(proxies: dict[int, LazyArray]) -> list[tuple[int, int, int]]:
    return [(key, getrefcount(p), getrefcount(p._v)) for key, p in proxies.items()]


def _unreferenced(proxies: dict[int, LazyArray]) -> list[int]:
    """Return the keys of proxies that only `proxies` refers to, and whose arrays only they refer to."""
    return [key for key, p, v in _references(proxies) if p <= _BASELINE[0] and v <= _BASELINE[1]]


def _count_baseline() -> tuple[int, int]:
    proxies = {0: proxy_in_memory(None, np.empty(1), layout_id(np.empty(1)))}
    return _references(proxies)[0][1:]


_BASELINE = _count_baseline()


def _elements_of(container: Any, kind: type) -> Any:
    return chain(container, container.values()) if kind is dict else container


def _write_locals(frame: FrameType, names: Any, values: dict[str, Any]) -> None:
    """Assign `values` to local variables of `frame`, whose `f_locals` is `names`."""
    if _WRITES_THROUGH:
        names.update(values)
        return
    # `names` is a copy that is written back as a whole: it is reduced to the changed variables. Afterwards
    # it is emptied, so that it does not extend the life of arrays.
    names.clear()
    names.update(values)
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    names.clear()


hide_module(__name__, hide_function)
