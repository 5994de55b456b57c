"""Recording of ufuncs and array functions on the tape."""

from __future__ import annotations

import operator
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape, apply, broadcast, leaf
from jitla.tracing.force import BASE
from jitla.tracing.force import CLOSING_NOTHING as NOTHING
from jitla.tracing.frames import call_here
from jitla.tracing.indexing import Bound, Indexing, fits, lone_complex
from jitla.tracing.lazy import (
    LAZY,
    SHORTCUTS,
    SMALL_INT,
    UFUNCS,
    Gone,
    Lazy,
    LazyArray,
    LazyScalar,
    in_memory,
    is_paired,
    meet,
    pending,
)
from jitla.tracing.numpy_api.functions import FUNCTIONS, METHOD_NAMES, reduction, written_arrays
from jitla.tracing.sparse import zero_skipping as nonzeros
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
    conversion,
    is_traced,
    layout_id,
    meta_id,
    owns_memory,
    scalar_operand,
)
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.user_types import TAME, is_wild

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
        return max(x.size, y.size) >= nonzeros.MIN_DENSE_ELEMENTS

    def product(self, name: str, x: Any, y: Any) -> Any:
        """Record a product of arrays; one of stacks only by the operator, which goes matrix by matrix."""
        p, q = self.operand(x), self.operand(y)
        if type(p) is not LazyArray or type(q) is not LazyArray:
            return NotImplemented
        if not p.ndim or not q.ndim or name == "dot" and (p.ndim > 2 or q.ndim > 2):
            return NotImplemented
        if self.is_read(p, q):
            made = nonzeros.record_zero_skipping_product(self, p, q)
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


# Bytes of arrays that wait for nobody but a block, which is closed when there are more.
MOST_HELD = 1 << 28
# Types of arguments that NumPy does not call.
_NOT_CALLED = TAME | {np.ndarray, list, tuple}
LARGE = 1 << 20  # smaller arrays are not counted at all: looking takes as long as making them
_REDUCE_UFUNC = {np.add: "sum", np.maximum: "max", np.minimum: "min", np.logical_and: "all",
                 np.logical_or: "any"}
_MUTATING_METHODS = frozenset({"sort", "partition", "fill", "resize", "put", "itemset", "setflags",
                               "byteswap", "setfield"})


class Dispatch(Recording):
    """The part of a session that understands calls of NumPy."""

    __slots__ = ()

    def hand_over(self) -> None:
        """Make the world fit for code that jitla does not see."""
        raise NotImplementedError

    def called(self, function: Any, *args: Any) -> Any:
        """Call `function`, which may warn, from the user's line."""
        return call_here(function, *args)

    # ------------------------------------------------------------------ protocols

    def ufuncs(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``; a power as the operator does it."""
        if ufunc is np.power:
            return self.power(x, y)
        record = UFUNCS.get(ufunc)
        return record(x, y) if record is not None else self.eager(ufunc, (x, y), {})

    def ufunc(self, ufunc: Any, method: str, inputs: tuple, kwargs: dict) -> Any:
        """Serve ``__array_ufunc__`` where the call is not plain, or of a ufunc not met before."""
        if ufunc not in UFUNCS and meet(ufunc) and not kwargs and method == "__call__":
            return UFUNCS[ufunc](*inputs)
        if method == "__call__" and len(kwargs) == 1 and ufunc in UFUNCS and ufunc.nout == 1:
            out = kwargs.get("out")
            if out is not None and out[0] is not None:
                return self._into(ufunc, inputs, out[0])
        if method == "reduce" and ufunc in _REDUCE_UFUNC and set(kwargs) <= {"axis", "keepdims"}:
            made = reduction(self, _REDUCE_UFUNC[ufunc], inputs[0], kwargs.get("axis", 0),
                             keepdims=kwargs.get("keepdims", False))
            if made is not NotImplemented:
                return made
        if ufunc is np.matmul and method == "__call__" and set(kwargs) <= {"dtype"}:
            made = self._product_as(kwargs["dtype"], *inputs) if kwargs else self.matmul(*inputs, slow=ufunc)
            if made is not NotImplemented:
                return made
        return self.eager(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def _product_as(self, dtype: Any, x: Any, y: Any) -> Any:
        """Do ``matmul(x, y, dtype=dtype)`` for matrices of integers: they are cast before."""
        known = [self.operand(a) for a in (x, y)]
        wanted = np.dtype(dtype)
        if wanted.kind != "i" or any(type(a) is not LazyArray or a.ndim != 2 or a.dtype.kind != "i" or
                                     a.dtype.itemsize >= wanted.itemsize for a in known):
            return NotImplemented
        return self.matmul(*(a.astype(wanted) for a in known), slow=np.matmul)

    def _into(self, ufunc: Any, inputs: tuple, out: Any) -> Any:
        """Do ``ufunc(*inputs, out=out)``."""
        if self.site.unrolls and type(out) is LazyArray and len(inputs) == 2 and inputs[0] is out and \
                out._v is None and not self.viewed(out) and self._rebind(out, ufunc, inputs[1]):
            return out
        memory = self.settle(out) if type(out) is LazyArray else out
        if self.attentive and isinstance(memory, np.ndarray):
            self.before_write(memory)
            call_here(ufunc, *self.plain(inputs), out=memory)
            return out
        if type(memory) is np.ndarray and memory.flags.writeable \
                and (type(out) is LazyArray or memory.dtype in TRACED and owns_memory(memory)):
            known = [self.operand(x) for x in inputs]
            if any(x is None for x in known) or not _fills(memory, known) \
                    or _halved(ufunc, known) or ufunc is np.power and not is_paired(*inputs):
                return self.eager(ufunc, inputs, {"out": out})
            made = UFUNCS[ufunc](*known)
            if type(made) is LazyArray and made._v is None:
                n, meta = made._n, METAS[made._m]
                attrs = conversion(ufunc, meta.dtype, memory.dtype)
                if meta.shape == memory.shape and attrs is not None:
                    mine = not any(made is x for x in known)
                    if mine:  # nobody else has it
                        self.nodes[n] = Gone(made._m)
                        made._n = -1
                    self.store(memory, self._conformed(n, made._m, memory, attrs, not mine), NOTHING)
                    return out
            del made  # nobody wants it: it is not computed
        return self.eager(ufunc, inputs, {"out": out})

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Serve ``__array_function__`` and methods: a handler of the table, else NumPy."""
        handler = FUNCTIONS.get(func)
        if handler is not None:
            try:
                made = handler(self, *args, **kwargs)
            except TypeError:
                made = NotImplemented
            if made is not NotImplemented:
                return made
        return self.eager(func, args, kwargs)

    def eager(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run `func` with NumPy on what the proxies mean, and count it."""
        out = kwargs.get("out")
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        for target in written_arrays(func, plain, options):
            self.before_write(target)
        wild = any(map(is_wild, plain))
        if wild or not _NOT_CALLED.issuperset(map(type, plain)) and any(map(callable, plain)) or \
                any(map(callable, options.values())):
            self.hand_over()
        session = LOCAL.session
        if not wild:  # else what stands for operands of users' classes goes on in the session
            LOCAL.session = None  # NumPy may call handlers of errors, or its arguments
        try:
            result = self.site.fallback(func, plain, options)
        finally:
            LOCAL.session = session
        if out is None:
            return self.result(result, args, plain, fresh=True)
        if type(out) is not tuple:
            return out if result is options["out"] else self.wrap(result)
        given = options["out"]
        if type(result) is not tuple or len(result) != len(out):
            # what another type answers may be anything
            return out[0] if result is given[0] else self.wrap(result)
        return tuple([o if r is g else self.wrap(r) for o, g, r in zip(out, given, result, strict=True)])

    def result(self, result: Any, args: tuple, plain: tuple, fresh: bool = False) -> Any:
        """Wrap what was returned; an argument returned as it is keeps its identity.

        A list is wrapped only if it is `fresh`: nobody else may find proxies in it.
        """
        kind = type(result)
        if issubclass(kind, np.ndarray):
            for proxy, value in zip(args, plain, strict=True):
                if value is result:
                    return proxy
            if result.nbytes >= LARGE:
                self.weigh()
            return self.wrap(result) if owns_memory(result) else result
        if kind is tuple:
            made = self._wrapped(result, args, plain)
            return result if all(map(operator.is_, made, result)) else tuple(made)
        if kind is list and fresh:
            result[:] = self._wrapped(result, args, plain)
        return result

    def weigh(self) -> None:
        """Close a block that keeps too much memory from being freed: arrays that nobody else refers to."""
        if len(self.entered) > 1:
            counts = list(map(getrefcount, self.entered))  # before anybody holds one to look at
            kept = (p._v for p, count in zip(self.entered, counts, strict=True) if count == BASE)
            if sum(value.nbytes for value in kept if value is not None) > MOST_HELD:
                self.close()

    def _wrapped(self, results: Any, args: tuple, plain: tuple) -> list[Any]:
        """Wrap every array of a sequence; what is one object stays one."""
        known = {id(value): proxy for proxy, value in zip(args, plain, strict=True)}
        return [known.setdefault(id(v), self.wrap(v)) if type(v) is np.ndarray and owns_memory(v) else v
                for v in results]

    # ------------------------------------------------------------------ methods and attributes

    def relabel(self, array: LazyArray) -> None:
        """Read the layout of an array in memory anew."""
        raise NotImplementedError

    def attribute(self, proxy: LazyArray, name: str) -> Any:
        """Return attribute `name` of what `proxy` means."""
        func = METHODS.get(name)
        if func is not None:
            return Bound(func, self, proxy, name)
        if name == "real" or name == "imag":
            return self.part(proxy, name)
        if callable(getattr(np.ndarray, name)):
            return Bound(Dispatch._plain_method, self, proxy, name)
        value = self.value(proxy)
        made = getattr(value, name)
        return proxy if made is value else self.wrap(made)

    def part(self, array: LazyArray, name: str) -> Any:
        """Return the real or the imaginary part: a view of complex numbers."""
        if METAS[array._m].dtype.kind == "c":
            return self.view(array, "__getattribute__", (name,), OP_ID[name])
        return array if name == "real" else self.wrap(self.value(array).imag)

    def reduced(self, proxy: LazyArray, name: str, args: tuple, kwargs: dict) -> Any:
        """Call the reduction `name` of an array: recorded where that is possible."""
        return METHODS[name](self, proxy, name, *args, **kwargs)

    def _plain_method(self, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
        viewed = name == "resize" and self.viewed(proxy)
        memory = self.settle(proxy)
        if name in _MUTATING_METHODS:
            self.before_write(memory)
        plain = self.plain(args)
        options = {k: self.plain(v) for k, v in kwargs.items()}
        if name == "resize" and options.get("refcheck", True) in (True,):
            # NumPy would count the references of proxy and session, too.
            alone = _ALONE[bool(kwargs)]
            held = getrefcount(proxy) > alone[0] or getrefcount(memory) > alone[1]
            options["refcheck"] = held or viewed
        for target in (*plain[1:], options.get("out")):
            if isinstance(target, np.ndarray):  # it may be the place for the result
                self.before_write(target)
        result = self.site.fallback(getattr(memory, name), plain, options)
        result = self.result(
            result, (proxy, *args, kwargs.get("out")), (memory, *plain, options.get("out")))
        if name in _MUTATING_METHODS and proxy._l != layout_id(memory):
            self.relabel(proxy)
        return result

    def method(self, proxy: Lazy, name: str, args: tuple, kwargs: dict) -> Any:
        """Call method `name` with NumPy."""
        if type(proxy) is LazyScalar:
            return getattr(self.value(proxy), name)(*args, **kwargs)
        assert type(proxy) is LazyArray
        return self._plain_method(proxy, name, *args, **kwargs)


def _fills(memory: np.ndarray, operands: list[Any]) -> bool:
    """Say whether what comes of `operands`, proxies and scalars, may be written into all of `memory`."""
    if lone_complex(memory):
        return False
    shape = memory.shape
    shapes: list[Shape] = []
    lazy = False
    for x in operands:
        if type(x) in LAZY:
            lazy = True
            shapes.append(METAS[x._m].shape)
            if not fits(shapes[-1], shape):
                return False
    return lazy and (shape in shapes or broadcast(tuple(shapes)) == shape)


def _halved(ufunc: Any, operands: list[Any]) -> bool:
    """Say whether NumPy may compute in half precision: not recorded, it would run twice, and warn."""
    sizes = [METAS[x._m].dtype.itemsize for x in operands if type(x) in LAZY]
    return max(sizes) == 1 and ufunc.types[0][0] == "e"


def _alone(**kwargs: Any) -> tuple[int, int]:
    """Count the references to a proxy and to its memory where one variable is all that holds them."""
    array = in_memory(None, np.empty(1), layout_id(np.empty(1)))
    counted: tuple[int, int] = Bound(_counted, None, array, "resize")(1, **kwargs)
    return counted


def _counted(session: Any, proxy: LazyArray, name: str, *args: Any, **kwargs: Any) -> Any:
    memory = proxy._v
    return getrefcount(proxy), getrefcount(memory)


# Without and with keywords.
_ALONE = _alone(), _alone(refcheck=True)


def _method(func: Any) -> Callable[..., Any]:
    """Make a method of arrays that calls the NumPy function `func`."""
    def call(
        session: Dispatch, proxy: LazyArray, name: str, *args: Any, **kwargs: Any
    ) -> Any:
        handler = FUNCTIONS[func]
        try:
            made = handler(session, proxy, *args, **kwargs)
        except TypeError:
            made = NotImplemented
        if made is not NotImplemented:
            return made
        return session._plain_method(proxy, name, *args, **kwargs)
    return call


METHODS: dict[str, Callable[..., Any]] = {name: _method(f) for f, name in METHOD_NAMES.items()}
