"""Recording of operators, ufuncs and array functions on the tape: the part of a session that NumPy calls.

Calls come in by `__array_ufunc__`, `__array_function__`, operators and methods of proxies. Those that
cannot be recorded are performed by NumPy at once (`eager`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape, apply, broadcast, leaf
from jitla.tracing.force import LIST_REFS, NOTHING_CONSUMED
from jitla.tracing.frames import call_here
from jitla.tracing.indexing import Indexing, ProxyMethod, is_broadcastable, is_single_complex
from jitla.tracing.lazy import (
    LAZY,
    POWER_SHORTCUTS,
    SMALL_INT,
    UFUNC_RECORDERS,
    Lazy,
    LazyArray,
    LazyScalar,
    Placeholder,
    adopt_ufunc,
    append_entry,
    is_pairwise,
    proxy_in_memory,
)
from jitla.tracing.numpy_api.functions import FUNCTIONS, METHOD_NAMES, reduction, written_arrays
from jitla.tracing.tape import (
    CELLS,
    INTEGRAL,
    KIND_CODE,
    LAYOUT_ID,
    METAS,
    OP_ID,
    OPERATORS,
    OPS,
    TRACED,
    is_traceable,
    layout_id,
    meta_id,
    owns_memory,
    scalar_operand,
    store_cast,
)
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.user_types import SAFE_TYPES, may_run_user_code

_INT = KIND_CODE[int]
_ORDER_COMPARISONS = frozenset({"less", "less_equal", "greater", "greater_equal"})
# Results of more bytes are not recorded, so that NumPy raises its MemoryError at the user's line.
MAX_RECORDED_BYTES = 1 << 40
_inferred: dict[tuple, int] = {}
_cell_dtypes: dict[tuple, np.dtype] = {}
# Metas that have been checked to be traceable and small enough.
_recordable_metas: set[int] = set()
# By operator, operand codes and attributes: op id, meta and proxy type of the result.
_recorded: dict[tuple, tuple[int, int, type]] = {}
_MAX_CACHED = 1 << 15


class TapeRecorder(Indexing):
    """The part of a session that appends operations to the tape."""

    __slots__ = ()

    release_count: int

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func` with values for proxies, by NumPy, and count it."""
        raise NotImplementedError

    def operand(self, x: Any) -> Any:
        """Return `x` as a proxy of this session or a traceable scalar; None if it is neither."""
        kind = type(x)
        if kind in LAZY:
            if x._s is self:
                return x
            x = x._s.value(x)
            kind = type(x)
        if kind in KIND_CODE:
            return x
        if kind is np.ndarray and is_traceable(x.shape, x.dtype):
            return self.foreign(x)
        return None

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
        proxy = self.foreigners[id(array)] = proxy_in_memory(self, array, layout)
        if len(self.foreigners) > self.release_count:
            self.release_foreigners()
        return proxy

    def release_foreigners(self) -> None:
        """Drop the proxies of arrays from outside that nothing else refers to."""
        raise NotImplementedError

    def infer(self, op: int, ids: tuple[int, ...], attrs: tuple) -> int:
        """Return the meta id of an entry; raise as the op table does for invalid operands.

        `ids` are meta ids (>= 0) and operand codes of scalars (< 0).
        """
        key = (op, ids, attrs)
        index = _inferred.get(key)
        if index is None:
            shape, dtype = _inference(op, ids, attrs)
            if len(_inferred) > _MAX_CACHED:
                _inferred.clear()
            index = _inferred[key] = meta_id(shape, dtype)
        return index

    def record(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Append ``name(*operands, **attrs)`` and return its proxy; raise for invalid operands.

        The operands are as `operand` returns them.
        """
        op = OP_ID[name]
        ids = tuple([x._m if type(x) in LAZY else KIND_CODE[type(x)] for x in operands])
        meta = self.infer(op, ids, attrs)
        if meta not in _recordable_metas:
            result = METAS[meta]
            if not is_traceable(result.shape, result.dtype) or result.nbytes > MAX_RECORDED_BYTES:
                raise TypeError(f"{name} gives {result}, which is not traced")
            _recordable_metas.add(meta)
        refs = [i if i < 0 else x._n if x._n >= 0 else self.enter(x)
                for i, x in zip(ids, operands, strict=True)]
        # Operands are entered before scalars are listed: rematerialisation appends further scalars.
        scalars = [x for x in operands if type(x) not in LAZY] if min(ids) < 0 else ()
        return append_entry(self, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def try_record(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Record an operation on operands of any kind; return NotImplemented where NumPy has to do it."""
        try:
            codes = tuple([
                x._m if type(x) in LAZY and x._s is self else KIND_CODE[type(x)] for x in operands])
            cached = _recorded.get((name, codes, attrs))
        except (KeyError, TypeError):  # operands from outside, or attributes that NumPy will reject
            return self._try_record_new(name, operands, attrs)
        if cached is None or _INT in codes and not all(map(_is_small, operands)):
            result = self._try_record_new(name, operands, attrs)
            pending_now = result is not NotImplemented and result._v is None
            if pending_now and not (_INT in codes and _has_integers(codes)):
                if len(_recorded) > _MAX_CACHED:
                    _recorded.clear()
                _recorded[name, codes, attrs] = OP_ID[name], result._m, type(result)
            return result
        op, meta, kind = cached
        refs = [c if c < 0 else x._n if x._n >= 0 else self.enter(x)
                for c, x in zip(codes, operands, strict=True)]
        scalars = [x for x in operands if type(x) not in LAZY] if min(codes) < 0 else ()
        return self.put(kind, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def _try_record_new(self, name: str, operands: tuple, attrs: tuple) -> Any:
        converted: list[Any] = []
        lazy = ints = False
        for x in operands:
            if type(x) is not LazyArray or x._s is not self:
                x = self.operand(x)
                if x is None:
                    return NotImplemented
                ints = ints or type(x) is int
            lazy = lazy or type(x) is LazyArray
            converted.append(x)
        operands_tuple = tuple(converted)
        if not lazy or ints and not _do_python_ints_fit(operands_tuple):
            return NotImplemented
        return self.try_record_operands(name, operands_tuple, attrs)

    def try_record_operands(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Record an operation as `record` does; return NotImplemented where NumPy has to raise the error."""
        try:
            result = self.record(name, operands, attrs)
        except (TypeError, ValueError, OverflowError, KeyError):
            return NotImplemented
        if name == "power" and METAS[result._m].dtype.kind in INTEGRAL:
            return NotImplemented  # a negative exponent raises at this line; the entry stays dead
        return result

    def binary(
        self, name: str, fallback: Any, x: Lazy, other: Any, reflected: bool,
        caches: tuple[dict, dict],
    ) -> Any:
        """Record a binary operator off its fast path: foreign operands, new pairs of metas, errors."""
        args = (other, x) if reflected else (x, other)
        y = self.operand(other)
        # Python's complex numbers handle float64 scalars as floats, before the reflected method is called.
        python = reflected and type(y) is complex and type(x) is LazyScalar and type(fallback) is not np.ufunc
        if y is None or x._s is not self or python:
            return self.eager(fallback, args, {})
        if name in _ORDER_COMPARISONS and _is_complex_order(x, y):
            if type(other) is np.ndarray and fallback in OPERATORS:  # as scalars of NumPy call a ufunc
                fallback, other = OPERATORS[fallback], other[()]
            return self.eager(fallback, (other, x) if reflected else (x, other), {})
        if y is not other:
            return UFUNC_RECORDERS.get(fallback, fallback)(*((y, x) if reflected else (x, y)))
        code = y._m if type(y) in LAZY else KIND_CODE[type(y)]
        if not _do_python_ints_fit((x, y)) or (_is_integer_scalar(x) and type(y) is not LazyArray):
            return self.eager(fallback, args, {})
        result = self.try_record_operands(name, args)
        if result is NotImplemented:
            return self.eager(fallback, args, {})
        if not (code == _INT and METAS[x._m].dtype.kind in INTEGRAL):
            same_meta, metas = caches
            if code == x._m:
                same_meta[code] = (result._m, type(result))
            else:
                metas.setdefault(code, {})[x._m] = (result._m, type(result))
        return result

    def unary(self, name: str, fallback: Any, x: Lazy, metas: dict) -> Any:
        """Record a unary operator off its fast path, or call `fallback`."""
        if _is_integer_scalar(x):
            return self.eager(fallback, (x,), {})
        result = self.try_record_operands(name, (x,))
        if result is NotImplemented:
            return self.eager(fallback, (x,), {})
        metas[x._m] = (result._m, type(result))
        return result

    def power(self, x: Lazy, exponent: Any) -> Any:
        """Record or perform ``x ** exponent`` with NumPy's shortcuts for scalar exponents."""
        kind = METAS[x._m].dtype.kind
        if type(x) is LazyArray and type(exponent) in (int, float):
            shortcut = POWER_SHORTCUTS.get((kind, type(exponent), exponent))
            if shortcut is not None:
                return UFUNC_RECORDERS[shortcut](x)
            if kind in "fc" and exponent != 0:
                return UFUNC_RECORDERS[np.power](x, exponent)
            if exponent in (3, 4) and kind in "iu" and type(exponent) is int and METAS[x._m].shape:
                square = UFUNC_RECORDERS[np.square](x)  # products wrap around as powers do
                return UFUNC_RECORDERS[np.multiply](square, x if exponent == 3 else square)
        elif type(x) is LazyArray and type(exponent) is LazyArray and kind in "fc" \
                and is_pairwise(x, exponent):
            return UFUNC_RECORDERS[np.power](x, exponent)
        return self.eager(operator.pow, (x, exponent), {})

    def matmul(self, x: Any, y: Any, fallback: Any = operator.matmul) -> Any:
        """Record ``x @ y``, or call `fallback`."""
        result = self.record_product("matmul", x, y)
        return self.eager(fallback, (x, y), {}) if result is NotImplemented else result

    def record_product(self, name: str, x: Any, y: Any) -> Any:
        """Record a product; of stacks only `matmul`, which multiplies them matrix by matrix."""
        p, q = self.operand(x), self.operand(y)
        if type(p) is not LazyArray or type(q) is not LazyArray:
            return NotImplemented
        if not p.ndim or not q.ndim or name == "dot" and (p.ndim > 2 or q.ndim > 2):
            return NotImplemented
        return self.try_record(name, (p, q))


def clear_inference_caches() -> None:
    """Empty the caches that contain meta ids, which are invalid after `tape.forget`."""
    _inferred.clear()
    _recordable_metas.clear()
    _recorded.clear()


def _inference(op: int, ids: tuple[int, ...], attrs: tuple) -> tuple[Shape, np.dtype]:
    """Return shape and dtype of an entry; the dtype of an element-wise operator is cached for all shapes."""
    if not CELLS[op]:
        operands = [leaf(k, METAS[i]) if i >= 0 else scalar_operand(i, k) for k, i in enumerate(ids)]
        meta = apply(OPS[op], *operands, **dict(attrs)).meta
        return meta.shape, meta.dtype
    shapes = [METAS[i].shape for i in ids if i >= 0]
    key = (op, tuple([METAS[i].dtype if i >= 0 else i for i in ids]), attrs)
    dtype = _cell_dtypes.get(key)
    if dtype is None:
        operands = [
            leaf(k, Meta((), METAS[i].dtype)) if i >= 0 else scalar_operand(i, k)
            for k, i in enumerate(ids)
        ]
        dtype = _cell_dtypes[key] = apply(OPS[op], *operands, **dict(attrs)).meta.dtype
    return broadcast(tuple(shapes)), dtype


def _do_python_ints_fit(operands: tuple) -> bool:
    """Return whether each Python int among the operands is in the range of the dtypes of the others."""
    ints = [x for x in operands if type(x) is int]
    if not ints:
        return True
    for x in operands:
        if type(x) in LAZY:
            dtype = METAS[x._m].dtype
            if dtype.kind == "b":
                dtype = np.dtype(np.int64)
            if dtype.kind in INTEGRAL:
                info = np.iinfo(dtype)
                if any(not info.min <= i <= info.max for i in ints):
                    return False
    return all(-SMALL_INT < i < SMALL_INT for i in ints)


def _is_small(x: Any) -> bool:
    """Return whether `x` is no Python int that may overflow a float dtype."""
    return type(x) is not int or -SMALL_INT < x < SMALL_INT


def _has_integers(codes: tuple[int, ...]) -> bool:
    """Return whether an operand is an integer array or scalar, for which Python ints may be out of range."""
    return any(c >= 0 and METAS[c].dtype.kind in "iu" for c in codes)


def _is_integer_scalar(x: Any) -> bool:
    """Return whether `x` is a proxy of an integer or bool scalar, whose operators warn on overflow."""
    return type(x) is LazyScalar and METAS[x._m].dtype.kind in INTEGRAL


def _is_complex_order(x: Lazy, y: Any) -> bool:
    """Return whether complex scalars are compared: the result depends on both types if a part is NaN."""
    pair = [METAS[v._m] if type(v) in LAZY else Meta((), np.dtype(type(v))) for v in (x, y)]
    return all(m.shape == () for m in pair) and any(m.dtype.kind == "c" for m in pair)


# Types of arguments that NumPy never calls.
_NOT_CALLED = SAFE_TYPES | {np.ndarray, list, tuple}
_REDUCE_UFUNC = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
                 np.logical_or: "any"}
_MUTATING_METHODS = frozenset({"sort", "partition", "fill", "resize", "put", "itemset", "setflags",
                               "byteswap", "setfield"})


class NumpyDispatch(TapeRecorder):
    """The part of a session that handles calls of NumPy functions, methods and attributes."""

    __slots__ = ()

    def materialise_escapes(self) -> None:
        """Prepare for code that is not instrumented."""
        raise NotImplementedError

    def call_at_user_line(self, function: Any, *args: Any) -> Any:
        """Call `function`, which may warn, from the user's line."""
        return call_here(function, *args)

    # ------------------------------------------------------------------ protocols

    def call_ufunc(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or perform ``ufunc(x, y)``; a power as the operator does it."""
        if ufunc is np.power:
            return self.power(x, y)
        record = UFUNC_RECORDERS.get(ufunc)
        return record(x, y) if record is not None else self.eager(ufunc, (x, y), {})

    def ufunc(self, ufunc: Any, method: str, inputs: tuple, kwargs: dict) -> Any:
        """Implement ``__array_ufunc__`` for calls with keywords, methods of ufuncs, and new ufuncs."""
        if ufunc not in UFUNC_RECORDERS and adopt_ufunc(ufunc) and not kwargs and method == "__call__":
            return UFUNC_RECORDERS[ufunc](*inputs)
        if method == "__call__" and len(kwargs) == 1 and ufunc in UFUNC_RECORDERS and ufunc.nout == 1:
            out = kwargs.get("out")
            if out is not None and out[0] is not None:
                return self._ufunc_into(ufunc, inputs, out[0])
        if method == "reduce" and ufunc in _REDUCE_UFUNC and set(kwargs) <= {"axis", "keepdims"}:
            result = reduction(self, _REDUCE_UFUNC[ufunc], inputs[0], kwargs.get("axis", 0),
                             keepdims=kwargs.get("keepdims", False))
            if result is not NotImplemented:
                return result
        if ufunc is np.matmul and method == "__call__" and set(kwargs) <= {"dtype"}:
            if kwargs:
                result = self._product_with_dtype(kwargs["dtype"], *inputs)
            else:
                result = self.matmul(*inputs, fallback=ufunc)
            if result is not NotImplemented:
                return result
        return self.eager(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def _product_with_dtype(self, dtype: Any, x: Any, y: Any) -> Any:
        """Record ``matmul(x, y, dtype=dtype)`` for matrices of integers, with casts of the operands."""
        operands = [self.operand(a) for a in (x, y)]
        target = np.dtype(dtype)
        if target.kind != "i" or any(type(a) is not LazyArray or a.ndim != 2 or a.dtype.kind != "i" or
                                     a.dtype.itemsize >= target.itemsize for a in operands):
            return NotImplemented
        return self.matmul(*(a.astype(target) for a in operands), fallback=np.matmul)

    def _ufunc_into(self, ufunc: Any, inputs: tuple, out: Any) -> Any:
        """Record or perform ``ufunc(*inputs, out=out)``."""
        if self.site.unroll_limit and type(out) is LazyArray and len(inputs) == 2 and inputs[0] is out and \
                out._v is None and not self.has_pending_views(out) and self._rebind(out, ufunc, inputs[1]):
            return out
        memory = self.settle(out) if type(out) is LazyArray else out
        if self.immediate and isinstance(memory, np.ndarray):
            self.before_write(memory)
            call_here(ufunc, *self.plain(inputs), out=memory)
            return out
        if type(memory) is np.ndarray and memory.flags.writeable \
                and (type(out) is LazyArray or memory.dtype in TRACED and owns_memory(memory)):
            operands = [self.operand(x) for x in inputs]
            if any(x is None for x in operands) or not _can_fill(memory, operands) \
                    or _may_use_half(ufunc, operands) or ufunc is np.power and not is_pairwise(*inputs):
                return self.eager(ufunc, inputs, {"out": out})
            result = UFUNC_RECORDERS[ufunc](*operands)
            if type(result) is LazyArray and result._v is None:
                n, meta = result._n, METAS[result._m]
                attrs = store_cast(ufunc, meta.dtype, memory.dtype)
                if meta.shape == memory.shape and attrs is not None:
                    is_unshared = not any(result is x for x in operands)
                    if is_unshared:
                        self.nodes[n] = Placeholder(result._m)
                        result._n = -1
                    entry = self._conform(n, result._m, memory, attrs, not is_unshared)
                    self.store(memory, entry, NOTHING_CONSUMED)
                    return out
            del result  # it is not referenced any more, and so not computed
        return self.eager(ufunc, inputs, {"out": out})

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Implement ``__array_function__`` and methods by a handler of `FUNCTIONS`, else by NumPy."""
        handler = FUNCTIONS.get(func)
        if handler is not None:
            try:
                result = handler(self, *args, **kwargs)
            except TypeError:
                result = NotImplemented
            if result is not NotImplemented:
                return result
        return self.eager(func, args, kwargs)

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func` with values for proxies, by NumPy, and count it."""
        out = kwargs.get("out")
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        for target in written_arrays(func, plain, options):
            self.before_write(target)
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
                self.limit_entered_bytes()
            return self.wrap(result) if owns_memory(result) else result
        if kind is tuple:
            wrapped = self._wrapped(result, args, plain)
            return result if all(map(operator.is_, wrapped, result)) else tuple(wrapped)
        if kind is list and fresh:
            result[:] = self._wrapped(result, args, plain)
        return result

    def limit_entered_bytes(self) -> None:
        """Close the block if the arrays that only it keeps alive take too much memory."""
        if len(self.entered) > 1:
            counts = list(map(getrefcount, self.entered))  # before variables below refer to the proxies
            unreferenced = (p._v for p, count in zip(self.entered, counts, strict=True) if count == LIST_REFS)
            nbytes = sum(value.nbytes for value in unreferenced if value is not None)
            if nbytes > self.site.thresholds.max_entered_bytes:
                self.close()

    def _wrapped(self, results: Any, args: tuple, plain: tuple) -> list[Any]:
        """Wrap every array of a sequence; the same array gets the same proxy."""
        proxies = {id(value): proxy for proxy, value in zip(args, plain, strict=True)}
        return [proxies.setdefault(id(v), self.wrap(v)) if type(v) is np.ndarray and owns_memory(v) else v
                for v in results]

    # ------------------------------------------------------------------ methods and attributes

    def refresh_layout(self, array: LazyArray) -> None:
        """Read the layout of an array in memory again."""
        raise NotImplementedError

    def attribute(self, proxy: LazyArray, name: str) -> Any:
        """Return attribute `name` of the array that `proxy` represents."""
        func = METHODS.get(name)
        if func is not None:
            return ProxyMethod(func, self, proxy, name)
        if name == "real" or name == "imag":
            return self.complex_part(proxy, name)
        if callable(getattr(np.ndarray, name)):
            return ProxyMethod(NumpyDispatch._plain_method, self, proxy, name)
        value = self.value(proxy)
        result = getattr(value, name)
        return proxy if result is value else self.wrap(result)

    def complex_part(self, array: LazyArray, name: str) -> Any:
        """Return the real or the imaginary part; of complex arrays it is a view."""
        if METAS[array._m].dtype.kind == "c":
            return self.view(array, "__getattribute__", (name,), OP_ID[name])
        return array if name == "real" else self.wrap(self.value(array).imag)

    def call_reduction(self, proxy: LazyArray, name: str, args: tuple, kwargs: dict) -> Any:
        """Record or perform the method `name`, a reduction, of an array."""
        return METHODS[name](self, proxy, name, *args, **kwargs)

    def _plain_method(self, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
        has_pending_views = name == "resize" and self.has_pending_views(proxy)
        memory = self.settle(proxy)
        if name in _MUTATING_METHODS:
            self.before_write(memory)
        values = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if name == "resize" and options.get("refcheck", True) in (True,):
            # NumPy's own check would count the references of proxy and session, too.
            baseline = _BASELINE[bool(kwargs)]
            is_referenced = getrefcount(proxy) > baseline[0] or getrefcount(memory) > baseline[1]
            options["refcheck"] = is_referenced or has_pending_views
        for target in (*values[1:], options.get("out")):
            if isinstance(target, np.ndarray):  # it may be the output
                self.before_write(target)
        result = self.site.call_by_numpy(getattr(memory, name), values, options)
        result = self.result(
            result, (proxy, *args, kwargs.get("out")), (memory, *values, options.get("out")))
        if name in _MUTATING_METHODS and proxy._l != layout_id(memory):
            self.refresh_layout(proxy)
        return result

    def method(self, proxy: Lazy, name: str, args: tuple, kwargs: dict) -> Any:
        """Call method `name` by NumPy."""
        if type(proxy) is LazyScalar:
            return getattr(self.value(proxy), name)(*args, **kwargs)
        assert type(proxy) is LazyArray
        return self._plain_method(proxy, name, *args, **kwargs)


def _can_fill(memory: np.ndarray, operands: list[Any]) -> bool:
    """Return whether a result of `operands`, proxies and scalars, has the shape to fill `memory`."""
    if is_single_complex(memory):
        return False
    shape = memory.shape
    shapes: list[Shape] = []
    lazy = False
    for x in operands:
        if type(x) in LAZY:
            lazy = True
            shapes.append(METAS[x._m].shape)
            if not is_broadcastable(shapes[-1], shape):
                return False
    return lazy and (shape in shapes or broadcast(tuple(shapes)) == shape)


def _may_use_half(ufunc: Any, operands: list[Any]) -> bool:
    """Return whether NumPy may compute in half precision, which is not recorded and may warn."""
    sizes = [METAS[x._m].dtype.itemsize for x in operands if type(x) in LAZY]
    return max(sizes) == 1 and ufunc.types[0][0] == "e"


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
        session: NumpyDispatch, proxy: LazyArray, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        handler = FUNCTIONS[func]
        try:
            result = handler(session, proxy, *args, **kwargs)
        except TypeError:
            result = NotImplemented
        if result is not NotImplemented:
            return result
        return session._plain_method(proxy, name, *args, **kwargs)
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _method(f) for f, name in METHOD_NAMES.items()}
