"""Calls of NumPy functions, methods and attributes on proxies: recorded, or performed by NumPy at once.

Calls come in by `__array_ufunc__`, `__array_function__`, and methods and attributes of proxies.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.introspection import hide_module
from jitla.tracing.boundary import Boundary, ProxyMethod
from jitla.tracing.force import BlockCloser
from jitla.tracing.frames import hide_function
from jitla.tracing.indexing import ArrayReader, ArrayWriter
from jitla.tracing.lazy import (
    UFUNC_RECORDERS,
    Lazy,
    LazyArray,
    LazyScalar,
    adopt_ufunc,
    proxy_in_memory,
)
from jitla.tracing.mutation import MemoryDependences
from jitla.tracing.numpy_api.functions import FUNCTIONS, METHOD_NAMES, reduction
from jitla.tracing.open_tape import Tape
from jitla.tracing.recorder import TapeRecorder
from jitla.tracing.tape import layout_id

_REDUCE_UFUNC = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
                 np.logical_or: "any"}
_MUTATING_METHODS = frozenset({"sort", "partition", "fill", "resize", "put", "itemset", "setflags",
                               "byteswap", "setfield"})


class NumpyDispatch:
    """Handles calls of NumPy functions, methods and attributes on the proxies of a session."""

    __slots__ = ("session", "site", "tape", "closer", "memory", "boundary", "recorder", "reader", "writer")

    def __init__(
        self, session: Any, site: Any, tape: Tape, closer: BlockCloser, memory: MemoryDependences,
        boundary: Boundary, recorder: TapeRecorder, reader: ArrayReader, writer: ArrayWriter,
    ) -> None:
        self.session = session
        self.site = site
        self.tape = tape
        self.closer = closer
        self.memory = memory
        self.boundary = boundary
        self.recorder = recorder
        self.reader = reader
        self.writer = writer

    # ------------------------------------------------------------------ protocols

    def ufunc(self, ufunc: Any, method: str, inputs: tuple, kwargs: dict) -> Any:
        """Implement ``__array_ufunc__`` for calls with keywords, methods of ufuncs, and new ufuncs."""
        if ufunc not in UFUNC_RECORDERS and adopt_ufunc(ufunc) and not kwargs and method == "__call__":
            return UFUNC_RECORDERS[ufunc](*inputs)
        if method == "__call__" and len(kwargs) == 1 and ufunc in UFUNC_RECORDERS and ufunc.nout == 1:
            out = kwargs.get("out")
            if out is not None and out[0] is not None:
                return self.writer.ufunc_into(ufunc, inputs, out[0])
        if method == "reduce" and ufunc in _REDUCE_UFUNC and set(kwargs) <= {"axis", "keepdims"}:
            result = reduction(self.session, _REDUCE_UFUNC[ufunc], inputs[0], kwargs.get("axis", 0),
                             keepdims=kwargs.get("keepdims", False))
            if result is not NotImplemented:
                return result
        if ufunc is np.matmul and method == "__call__" and set(kwargs) <= {"dtype"}:
            if kwargs:
                result = self._product_with_dtype(kwargs["dtype"], *inputs)
            else:
                result = self.recorder.matmul(*inputs, fallback=ufunc)
            if result is not NotImplemented:
                return result
        return self.boundary.eager(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def _product_with_dtype(self, dtype: Any, x: Any, y: Any) -> Any:
        """Record ``matmul(x, y, dtype=dtype)`` for matrices of integers, with casts of the operands."""
        operands = [self.recorder.operand(a) for a in (x, y)]
        target = np.dtype(dtype)
        if target.kind != "i" or any(type(a) is not LazyArray or a.ndim != 2 or a.dtype.kind != "i" or
                                     a.dtype.itemsize >= target.itemsize for a in operands):
            return NotImplemented
        return self.recorder.matmul(*(a.astype(target) for a in operands), fallback=np.matmul)

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Implement ``__array_function__`` and methods by a handler of `FUNCTIONS`, else by NumPy."""
        handler = FUNCTIONS.get(func)
        if handler is not None:
            try:
                result = handler(self.session, *args, **kwargs)
            except TypeError:
                result = NotImplemented
            if result is not NotImplemented:
                return result
        return self.boundary.eager(func, args, kwargs)

    # ------------------------------------------------------------------ methods and attributes

    def attribute(self, proxy: LazyArray, name: str) -> Any:
        """Return attribute `name` of the array that `proxy` represents."""
        func = METHODS.get(name)
        if func is not None:
            return ProxyMethod(func, self.session, proxy, name)
        if name == "real" or name == "imag":
            return self.reader.complex_part(proxy, name)
        if callable(getattr(np.ndarray, name)):
            return ProxyMethod(NumpyDispatch.plain_method, self, proxy, name)
        value = self.closer.value(proxy)
        result = getattr(value, name)
        return proxy if result is value else self.boundary.wrap(result)

    def call_reduction(self, proxy: LazyArray, name: str, args: tuple, kwargs: dict) -> Any:
        """Record or perform the method `name`, a reduction, of an array."""
        return METHODS[name](self.session, proxy, name, *args, **kwargs)

    def plain_method(self, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call method `name` of an array in memory by NumPy, after pending reads if the method writes."""
        has_pending_views = name == "resize" and self.tape.has_pending_views(proxy)
        memory = self.closer.settle(proxy)
        if name in _MUTATING_METHODS:
            self.memory.before_write(memory)
        values = self.boundary.plain(args)
        options = {k: self.boundary.plain(v) for k, v in kwargs.items()}
        if name == "resize" and options.get("refcheck", True) in (True,):
            # NumPy's own check would count the references of proxy and session, too.
            baseline = _BASELINE[bool(kwargs)]
            is_referenced = getrefcount(proxy) > baseline[0] or getrefcount(memory) > baseline[1]
            options["refcheck"] = is_referenced or has_pending_views
        for target in (*values[1:], options.get("out")):
            if isinstance(target, np.ndarray):  # it may be the output
                self.memory.before_write(target)
        result = self.site.call_by_numpy(getattr(memory, name), values, options)
        result = self.boundary.result(
            result, (proxy, *args, kwargs.get("out")), (memory, *values, options.get("out")))
        if name in _MUTATING_METHODS and proxy._l != layout_id(memory):
            self.boundary.refresh_layout(proxy)
        return result

    def method(self, proxy: Lazy, name: str, args: tuple, kwargs: dict) -> Any:
        """Call method `name` by NumPy."""
        if type(proxy) is LazyScalar:
            return getattr(self.closer.value(proxy), name)(*args, **kwargs)
        assert type(proxy) is LazyArray
        return self.plain_method(proxy, name, *args, **kwargs)


def _count_baseline(**kwargs: Any) -> tuple[int, int]:
    """Return the reference counts of a proxy and its memory if one variable refers to the proxy."""
    array = proxy_in_memory(None, np.empty(1), layout_id(np.empty(1)))
    references: tuple[int, int] = ProxyMethod(_count_references, None, array, "resize")(1, **kwargs)
    return references


def _count_references(session: Any, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
    memory = proxy._v
    return getrefcount(proxy), getrefcount(memory)


# Without and with keywords.
_BASELINE = _count_baseline(), _count_baseline(refcheck=True)


def _method(func: Any) -> Callable[..., Any]:
    """Return a method of arrays that calls the NumPy function `func`."""
    def call(
        session: Any, proxy: LazyArray, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        handler = FUNCTIONS[func]
        try:
            result = handler(session, proxy, *args, **kwargs)
        except TypeError:
            result = NotImplemented
        if result is not NotImplemented:
            return result
        return session.dispatch.plain_method(proxy, name, *args, **kwargs)
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _method(f) for f, name in METHOD_NAMES.items()}


hide_module(__name__, hide_function)
