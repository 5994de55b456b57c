"""Recording of operators and ufuncs on the tape, with inference of the metas of results.

Operations that cannot be recorded are performed by NumPy at once (`Boundary.eager`).
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape, apply, broadcast, leaf
from jitla.introspection import hide_module
from jitla.tracing.boundary import Boundary
from jitla.tracing.frames import hide_function
from jitla.tracing.lazy import (
    LAZY,
    POWER_SHORTCUTS,
    SMALL_INT,
    UFUNC_RECORDERS,
    Lazy,
    LazyArray,
    LazyScalar,
    append_entry,
    is_pairwise,
)
from jitla.tracing.open_tape import Tape
from jitla.tracing.tape import (
    CELLS,
    INTEGRAL,
    KIND_CODE,
    METAS,
    OP_ID,
    OPERATORS,
    OPS,
    is_traceable,
    meta_id,
    scalar_operand,
)

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


class TapeRecorder:
    """Appends operations to the tape of a session."""

    __slots__ = ("session", "tape", "boundary")

    def __init__(self, session: Any, tape: Tape, boundary: Boundary) -> None:
        self.session = session
        self.tape = tape
        self.boundary = boundary

    def operand(self, x: Any) -> Any:
        """Return `x` as a proxy of this session or a traceable scalar; None if it is neither."""
        kind = type(x)
        if kind in LAZY:
            if x._s is self.session:
                return x
            x = x._s.closer.value(x)
            kind = type(x)
        if kind in KIND_CODE:
            return x
        if kind is np.ndarray and is_traceable(x.shape, x.dtype):
            return self.boundary.foreign(x)
        return None

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
        tape = self.tape
        refs = [i if i < 0 else x._n if x._n >= 0 else tape.enter(x)
                for i, x in zip(ids, operands, strict=True)]
        # Operands are entered before scalars are listed: rematerialisation appends further scalars.
        scalars = [x for x in operands if type(x) not in LAZY] if min(ids) < 0 else ()
        return append_entry(self.session, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def try_record(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Record an operation on operands of any kind; return NotImplemented where NumPy has to do it."""
        try:
            session = self.session
            codes = tuple([
                x._m if type(x) in LAZY and x._s is session else KIND_CODE[type(x)] for x in operands])
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
        tape = self.tape
        refs = [c if c < 0 else x._n if x._n >= 0 else tape.enter(x)
                for c, x in zip(codes, operands, strict=True)]
        scalars = [x for x in operands if type(x) not in LAZY] if min(codes) < 0 else ()
        return tape.put(kind, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def _try_record_new(self, name: str, operands: tuple, attrs: tuple) -> Any:
        converted: list[Any] = []
        lazy = ints = False
        for x in operands:
            if type(x) is not LazyArray or x._s is not self.session:
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
        if y is None or x._s is not self.session or python:
            return self.boundary.eager(fallback, args, {})
        if name in _ORDER_COMPARISONS and _is_complex_order(x, y):
            if type(other) is np.ndarray and fallback in OPERATORS:  # as scalars of NumPy call a ufunc
                fallback, other = OPERATORS[fallback], other[()]
            return self.boundary.eager(fallback, (other, x) if reflected else (x, other), {})
        if y is not other:
            return UFUNC_RECORDERS.get(fallback, fallback)(*((y, x) if reflected else (x, y)))
        code = y._m if type(y) in LAZY else KIND_CODE[type(y)]
        if not _do_python_ints_fit((x, y)) or (_is_integer_scalar(x) and type(y) is not LazyArray):
            return self.boundary.eager(fallback, args, {})
        result = self.try_record_operands(name, args)
        if result is NotImplemented:
            return self.boundary.eager(fallback, args, {})
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
            return self.boundary.eager(fallback, (x,), {})
        result = self.try_record_operands(name, (x,))
        if result is NotImplemented:
            return self.boundary.eager(fallback, (x,), {})
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
        return self.boundary.eager(operator.pow, (x, exponent), {})

    def matmul(self, x: Any, y: Any, fallback: Any = operator.matmul) -> Any:
        """Record ``x @ y``, or call `fallback`."""
        result = self.record_product("matmul", x, y)
        return self.boundary.eager(fallback, (x, y), {}) if result is NotImplemented else result

    def record_product(self, name: str, x: Any, y: Any) -> Any:
        """Record a product; of stacks only `matmul`, which multiplies them matrix by matrix."""
        p, q = self.operand(x), self.operand(y)
        if type(p) is not LazyArray or type(q) is not LazyArray:
            return NotImplemented
        if not p.ndim or not q.ndim or name == "dot" and (p.ndim > 2 or q.ndim > 2):
            return NotImplemented
        return self.try_record(name, (p, q))

    def call_ufunc(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or perform ``ufunc(x, y)``; a power as the operator does it."""
        if ufunc is np.power:
            return self.power(x, y)
        record = UFUNC_RECORDERS.get(ufunc)
        return record(x, y) if record is not None else self.boundary.eager(ufunc, (x, y), {})


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


hide_module(__name__, hide_function)
