"""How operations get onto the tape: their operands, the meta of their result, their entry.

Knows: which operands are traced, what the op table infers, where NumPy has to be asked.
Must not know: NumPy's calling conventions, blocks.
Receives names of operators with operands; returns proxies or NotImplemented.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape, apply, broadcast, leaf
from jitla.tracing import nonzeros
from jitla.tracing.array import LAZY, UFUNCS, Lazy, LazyArray, LazyScalar, in_memory, pending
from jitla.tracing.enacting import OPERATORS
from jitla.tracing.indexing import Indexing
from jitla.tracing.operators import SMALL_INT
from jitla.tracing.powers import SHORTCUTS, is_paired
from jitla.tracing.signature import (
    INTEGRAL,
    LAYOUT_ID,
    METAS,
    is_traced,
    layout_id,
    meta_id,
    owns_memory,
)
from jitla.tracing.tape import CELLS, KIND_CODE, OP_ID, OPS, scalar_operand

_INT = KIND_CODE[int]
_ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal"})
# There is no memory for so many bytes, of which NumPy says so at the line.
HUGE = 1 << 40
_inferred: dict[tuple, int] = {}
_cell_dtypes: dict[tuple, np.dtype] = {}
# Metas that results may have.
_recordable: set[int] = set()
# By operator, operands and attributes that were met: number of the operator, meta and type of the result.
_met: dict[tuple, tuple[int, int, type]] = {}
_MAX_INFERRED = 1 << 15


class Recording(Indexing):
    """The part of a session that puts operations onto the tape."""

    __slots__ = ()

    crowd: int

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run `func` with NumPy on what the proxies mean, and count it."""
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
        if kind is np.ndarray and is_traced(x.shape, x.dtype):
            return self.foreign(x)
        return None

    def foreign(self, array: np.ndarray) -> LazyArray | None:
        """Return the proxy of an array that came from outside; None if its memory can disappear."""
        known = self.foreigners.get(id(array))
        layout = LAYOUT_ID.get((array.dtype, array.shape, array.strides))
        if layout is None:
            layout = layout_id(array)
        if known is not None and known._v is array and known._l == layout:
            return known
        if not owns_memory(array):
            return None
        made = self.foreigners[id(array)] = in_memory(self, array, layout)
        if len(self.foreigners) > self.crowd:
            self.release()
        return made

    def release(self) -> None:
        """Let go of arrays from outside that nobody else refers to."""
        raise NotImplementedError

    def infer(self, op: int, ids: tuple[int, ...], attrs: tuple) -> int:
        """Return the meta id of an entry; raises what the op table raises for bad operands.

        `ids` are meta ids (>= 0) and operand codes of scalars (< 0).
        """
        key = (op, ids, attrs)
        found = _inferred.get(key)
        if found is None:
            shape, dtype = _inference(op, ids, attrs)
            if len(_inferred) > _MAX_INFERRED:
                _inferred.clear()
            found = _inferred[key] = meta_id(shape, dtype)
        return found

    def record(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Append ``name(*operands, **attrs)``; operands as `operand` returns them. May raise."""
        op = OP_ID[name]
        ids = tuple([x._m if type(x) in LAZY else KIND_CODE[type(x)] for x in operands])
        meta = self.infer(op, ids, attrs)
        if meta not in _recordable:
            known = METAS[meta]
            if not is_traced(known.shape, known.dtype) or known.nbytes > HUGE:
                raise TypeError(f"{name} gives {known}, which is not traced")
            _recordable.add(meta)
        refs = [i if i < 0 else x._n if x._n >= 0 else self.enter(x)
                for i, x in zip(ids, operands, strict=True)]
        # Leaves are entered first: entering a ghost brings scalars of its own.
        scalars = [x for x in operands if type(x) not in LAZY] if min(ids) < 0 else ()
        return pending(self, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def traced(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Like `record`, with operands of any kind; NotImplemented where NumPy has to do it."""
        try:
            codes = tuple([
                x._m if type(x) in LAZY and x._s is self else KIND_CODE[type(x)] for x in operands])
            found = _met.get((name, codes, attrs))
        except (KeyError, TypeError):  # operands from outside, or attributes that NumPy will refuse
            return self._newly_traced(name, operands, attrs)
        if found is None or _INT in codes and not all(map(_is_small, operands)):
            made = self._newly_traced(name, operands, attrs)
            pending_now = made is not NotImplemented and made._v is None
            if pending_now and not (_INT in codes and _has_integers(codes)):
                if len(_met) > _MAX_INFERRED:
                    _met.clear()
                _met[name, codes, attrs] = OP_ID[name], made._m, type(made)
            return made
        op, meta, kind = found
        refs = [c if c < 0 else x._n if x._n >= 0 else self.enter(x)
                for c, x in zip(codes, operands, strict=True)]
        scalars = [x for x in operands if type(x) not in LAZY] if min(codes) < 0 else ()
        return self.put(kind, (op, *refs, attrs) if attrs else (op, *refs), meta, *scalars)

    def _newly_traced(self, name: str, operands: tuple, attrs: tuple) -> Any:
        known: list[Any] = []
        lazy = ints = False
        for x in operands:
            if type(x) is not LazyArray or x._s is not self:
                x = self.operand(x)
                if x is None:
                    return NotImplemented
                ints = ints or type(x) is int
            lazy = lazy or type(x) is LazyArray
            known.append(x)
        given = tuple(known)
        if not lazy or ints and not _python_ints_fit(given):
            return NotImplemented
        return self.recorded(name, given, attrs)

    def recorded(self, name: str, operands: tuple, attrs: tuple = ()) -> Any:
        """Like `record`; NotImplemented for operands that NumPy has to refuse in its own words."""
        try:
            made = self.record(name, operands, attrs)
        except (TypeError, ValueError, OverflowError, KeyError):
            return NotImplemented
        if name == "power" and METAS[made._m].dtype.kind in INTEGRAL:
            return NotImplemented  # a negative exponent is an error at this line; the entry stays dead
        return made

    def binary(
        self, name: str, slow: Any, x: Lazy, other: Any, reflected: bool,
        remembered: tuple[dict, dict],
    ) -> Any:
        """Slow path of a binary operator: foreign operands, first sight of a pair of metas, errors."""
        args = (other, x) if reflected else (x, other)
        y = self.operand(other)
        # Python's complex numbers take float64 scalars for floats, before those are asked.
        python = reflected and type(y) is complex and type(x) is LazyScalar and type(slow) is not np.ufunc
        if y is None or x._s is not self or python:
            return self.eager(slow, args, {})
        if name in _ORDERS and _is_complex_order(x, y):
            if type(other) is np.ndarray and slow in OPERATORS:  # so scalars of NumPy call a ufunc
                slow, other = OPERATORS[slow], other[()]
            return self.eager(slow, (other, x) if reflected else (x, other), {})
        if y is not other:
            return UFUNCS.get(slow, slow)(*((y, x) if reflected else (x, y)))
        code = y._m if type(y) in LAZY else KIND_CODE[type(y)]
        if not _python_ints_fit((x, y)) or (_scalar_integer(x) and type(y) is not LazyArray):
            return self.eager(slow, args, {})
        made = self.recorded(name, args)
        if made is NotImplemented:
            return self.eager(slow, args, {})
        if not (code == _INT and METAS[x._m].dtype.kind in INTEGRAL):
            alike, metas = remembered
            if code == x._m:
                alike[code] = (made._m, type(made))
            else:
                metas.setdefault(code, {})[x._m] = (made._m, type(made))
        return made

    def unary(self, name: str, slow: Any, x: Lazy, metas: dict) -> Any:
        """Slow path of a unary operator."""
        if _scalar_integer(x):
            return self.eager(slow, (x,), {})
        made = self.recorded(name, (x,))
        if made is NotImplemented:
            return self.eager(slow, (x,), {})
        metas[x._m] = (made._m, type(made))
        return made

    def power(self, x: Lazy, exponent: Any) -> Any:
        """Do ``x ** exponent`` with NumPy's shortcuts for scalar exponents."""
        kind = METAS[x._m].dtype.kind
        if type(x) is LazyArray and type(exponent) in (int, float):
            shortcut = SHORTCUTS.get((kind, type(exponent), exponent))
            if shortcut is not None:
                return UFUNCS[shortcut](x)
            if kind in "fc" and exponent != 0:
                return UFUNCS[np.power](x, exponent)
            if exponent in (3, 4) and kind in "iu" and type(exponent) is int and METAS[x._m].shape:
                square = UFUNCS[np.square](x)  # products wrap around as powers do
                return UFUNCS[np.multiply](square, x if exponent == 3 else square)
        elif type(x) is LazyArray and type(exponent) is LazyArray and kind in "fc" and is_paired(x, exponent):
            return UFUNCS[np.power](x, exponent)
        return self.eager(operator.pow, (x, exponent), {})

    def matmul(self, x: Any, y: Any, slow: Any = operator.matmul) -> Any:
        """Do ``x @ y``, or what `slow` does."""
        made = self.product("matmul", x, y)
        return self.eager(slow, (x, y), {}) if made is NotImplemented else made

    def is_read(self, x: LazyArray, y: LazyArray) -> bool:
        """Say whether what product is recorded depends on what is in memory."""
        return max(x.size, y.size) >= nonzeros.LARGE

    def product(self, name: str, x: Any, y: Any) -> Any:
        """Record a product of arrays; one of stacks only by the operator, which goes matrix by matrix."""
        p, q = self.operand(x), self.operand(y)
        if type(p) is not LazyArray or type(q) is not LazyArray:
            return NotImplemented
        if not p.ndim or not q.ndim or name == "dot" and (p.ndim > 2 or q.ndim > 2):
            return NotImplemented
        if self.is_read(p, q):
            made = nonzeros.product_of_nonzeros(self, p, q)
            if made is not NotImplemented:
                return made
        return self.traced(name, (p, q))


def forget_inferred() -> None:
    """Forget what ids mean together; they have been given up."""
    _inferred.clear()
    _recordable.clear()
    _met.clear()


def _inference(op: int, ids: tuple[int, ...], attrs: tuple) -> tuple[Shape, np.dtype]:
    """Infer shape and dtype of an entry; of a cell the dtype is inferred once for all shapes."""
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


def _python_ints_fit(operands: tuple) -> bool:
    """Say whether no Python int is out of range for the integer (or float) arrays beside it."""
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
    """Say whether `x` is no Python int that only some floats can hold."""
    return type(x) is not int or -SMALL_INT < x < SMALL_INT


def _has_integers(codes: tuple[int, ...]) -> bool:
    """Say whether one of the operands is an integer array or scalar, for which not every int is right."""
    return any(c >= 0 and METAS[c].dtype.kind in "iu" for c in codes)


def _scalar_integer(x: Any) -> bool:
    """Say whether `x` is a proxy of an integer or bool scalar, whose operators warn and wrap apart."""
    return type(x) is LazyScalar and METAS[x._m].dtype.kind in INTEGRAL


def _is_complex_order(x: Lazy, y: Any) -> bool:
    """Say whether complex scalars are put in order, which depends on both types if a part is NaN."""
    pair = [METAS[v._m] if type(v) in LAZY else Meta((), np.dtype(type(v))) for v in (x, y)]
    return all(m.shape == () for m in pair) and any(m.dtype.kind == "c" for m in pair)
