"""Reading and writing parts of arrays: views, subscripts, in-place operations.

A write into memory ends the block, fused with the computation of the value; an in-place operation on a
pending value without views moves its proxy to a new entry. Therefore plans contain no aliases.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from gc import get_referents
from itertools import chain
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape
from jitla.tracing.fallback import settle_locals
from jitla.tracing.force import NOTHING_CONSUMED
from jitla.tracing.frames import call_here
from jitla.tracing.gather import gathered
from jitla.tracing.lazy import (
    LAZY,
    Lazy,
    LazyArray,
    Placeholder,
    append_entry,
    apply_view,
    is_pairwise,
    proxy_in_memory,
)
from jitla.tracing.mutation import Together, lazy_array
from jitla.tracing.sparse.lazy_sparse import (
    LazySparse,
    scipy_matrix,
)
from jitla.tracing.tape import (
    CELLS,
    LAYOUT_ID,
    LAYOUTS,
    LEAF,
    METAS,
    OP_ID,
    OPS,
    SCALAR,
    TRACED,
    Attrs,
    Layout,
    is_same_view,
    is_traceable,
    meta_id,
    store_cast,
)
from jitla.tracing.thread_state import LOCAL
from jitla.tracing.user_types import (
    SAFE_TYPES,
    may_run_user_code,
)

_BASIC = (int, slice, type(None), type(Ellipsis))
_NUMBERS = frozenset({int, type(None)})
_GETITEM = OP_ID["getitem"]
_CAST = OP_ID["cast"]
_BROADCAST = OP_ID["broadcast_to"]
_MATMUL_IN_PLACE = np.matmul
_MUTABLE = frozenset({list, dict, set})
_BOOL = np.dtype(bool)
_NEW_IN_ORDER = frozenset({"full", "dot"})
_IN_ORDER_IF_OPERANDS = frozenset({"matmul", "getitem", "reshape", "ravel", "expand_dims", "squeeze"})


class Bound(partial):
    """Bound method of a proxy: a partial call with the session, the proxy and the name of the method."""

    @property
    def __self__(self) -> Any:
        return self.args[1]

    @property
    def __name__(self) -> str:
        return str(self.args[2])


# Types whose objects may hold proxies.
HOLDERS = _MUTABLE | {tuple, frozenset, slice, Bound, MethodType, LazySparse}
# Iterators and views, which return objects that other containers hold.
_STEPPING = frozenset({zip, enumerate, map, filter, reversed, type({}.keys()), type({}.values()),
                       type({}.items()), *map(type, map(iter, (
                           [], (), {}, {}.values(), {}.items(), set(), reversed([]), reversed({}))))})
# Suspended frames, which may hold proxies: the attribute of the frame, by type.
SUSPENDED = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
_OWNERS = LAZY | {LazySparse}
_ADVANCED = LAZY | {np.ndarray}
# Types whose objects may hold proxies, or return some later.
CARRIERS = HOLDERS | _STEPPING | SUSPENDED.keys()
_MENDED = LAZY | CARRIERS


class Indexing(Together):
    """Base of sessions that reads and writes parts of arrays."""

    __slots__ = ()

    foreigners: dict[int, LazyArray]
    ended: bool

    def wrap(self, value: Any) -> Any:
        """Return a proxy for a new ndarray of NumPy, other values unchanged."""
        if type(value) is np.ndarray and is_traceable(value.shape, value.dtype) and not self.ended:
            known = self.foreigners.get(id(value))
            return known if known is not None and known._v is value else lazy_array(self, value)
        return value

    def plain(self, value: Any, seen: frozenset[int] = frozenset()) -> Any:
        """Return `value` without proxies, for code that is not traced; containers are changed in place."""
        kind = type(value)
        if kind in LAZY:
            return value._s.value(value)
        if kind is tuple:
            made = [self.plain(v, seen) for v in value]
            return value if all(map(operator.is_, made, value)) else tuple(made)
        if kind in _MUTABLE:
            if id(value) not in seen and not _MENDED.isdisjoint(map(type, _parts(value, kind))):
                self._mend(value, kind, seen | {id(value)})
        elif kind is slice:
            return slice(self.plain(value.start), self.plain(value.stop), self.plain(value.step))
        elif kind is Bound or kind is MethodType and type(value.__self__) in _OWNERS:
            if value.__name__ == "resize":
                return value  # the proxy has to record the new shape
            return getattr(self.plain(value.__self__), value.__name__)
        elif kind is frozenset:
            return value if LAZY.isdisjoint(map(type, value)) else frozenset(map(self.plain, value))
        elif kind is LazySparse:
            return scipy_matrix(value)
        elif kind in _STEPPING:
            # The iterated container is changed in place; the iterator of a proxy returns arrays.
            for each in get_referents(value):
                if type(each) in HOLDERS or type(each) in _STEPPING:
                    self.plain(each, seen)
        elif kind in SUSPENDED:
            frame = getattr(value, SUSPENDED[kind])
            if frame is not None and id(value) not in seen:
                settle_locals(self, frame, seen | {id(value)})
        elif issubclass(kind, tuple) and hasattr(kind, "_make"):
            return kind._make(self.plain(v, seen) for v in value)
        return value

    def _mend(self, held: Any, kind: type, seen: frozenset[int]) -> None:
        if kind is list:
            for i, v in enumerate(held):
                if type(v) in _MENDED:
                    held[i] = self.plain(v, seen)
            return
        if kind is set:
            items = [self.plain(v) for v in held]
            held.clear()
            held.update(items)
            return
        for k, v in held.items():
            if type(v) in _MENDED:
                held[k] = self.plain(v, seen)
        if any(type(k) in LAZY or type(k) is tuple for k in held):
            pairs = [(self.plain(k), v) for k, v in held.items()]
            if not all(map(operator.is_, held, [k for k, _ in pairs])):
                held.clear()
                held.update(pairs)

    # ------------------------------------------------------------------ reading

    def getitem(self, array: LazyArray, key: Any) -> Any:
        """Return ``array[key]``: a view where NumPy returns one, a recorded gather, or elements read now."""
        if array._v is None or self.site.unroll_limit:  # unrolled loops record the views they read
            index = _static_index(key)
            if index is not None and not self.site.has_many_classes:
                return self.view(array, "__getitem__", (key,), _GETITEM, (("index", index),))
        value = self.value(array)
        if type(key) in _ADVANCED or (type(key) is tuple or type(key) is slice) and not _known(key):
            if (made := gathered(self, value, key)) is not None:
                return made
            key = self.plain(key)
            if type(key) is not np.ndarray and _runs_code(key):
                return self.call_opaque(operator.getitem, (array, key), {})
        elif type(key) not in SAFE_TYPES and type(key) is not tuple and may_run_user_code(key):
            return self.call_opaque(operator.getitem, (array, key), {})
        if type(key) is np.ndarray:
            picked = self.pick(value, key)
            if picked is not None:
                return picked
            name = "compress" if key.dtype == _BOOL else "take"
            made = self.site.run_index_loop(name, key.size, value, key)
            if made is not None:
                return self.wrap(made)
        part = value[key]
        if type(part) is np.ndarray and not self.ended:
            # of the dtype of `value`, and new: there is no proxy of it
            layout = LAYOUT_ID.get((part.dtype, part.shape, part.strides))
            if layout is not None and (part.dtype is not _BOOL or part.size):
                return proxy_in_memory(self, part, layout)
        return self.wrap(part)

    def view(
        self, array: Lazy, method: str | Callable[..., Any], args: tuple, op: int = -1, attrs: tuple = (),
        always: bool = False,
    ) -> Any:
        """Return the result of `method` on `array`, an operation that may return a view.

        On an array in memory NumPy makes the view immediately, unless it has `always` to be recorded.
        """
        stays = array._v is not None and not self.site.unroll_limit and not always
        if op < 0 and not stays:
            op, attrs = _view_entry(array, method, args)
        if op < 0 or stays:
            return self.wrap(apply_view(self.value(array), method, args))
        meta = self.infer(op, (array._m,), attrs)
        if not is_traceable(METAS[meta].shape, METAS[meta].dtype):
            return apply_view(self.value(array), method, args)
        n = array._n if array._n >= 0 else self.enter(array)
        made = append_entry(self, (op, n, attrs), meta)
        self.views[made._n] = (array, method, args)
        return made

    def operand(self, x: Any) -> Any:
        """Return `x` as a proxy of this session or a traceable scalar; None if it is neither."""
        raise NotImplementedError

    def infer(self, op: int, ids: tuple[int, ...], attrs: tuple) -> int:
        """Return the meta id of an entry."""
        raise NotImplementedError

    def iterate(self, array: LazyArray) -> Iterator[Any]:
        """Iterate over the first axis like NumPy: views of rows, or scalars."""
        value = self.value(array)
        return map(self.element, iter(value)) if value.ndim > 1 else iter(value)

    def element(self, value: Any) -> Any:
        """Return an element of an iteration: a proxy, unless code that is not traced receives it."""
        return self.wrap(value) if LOCAL.session is self else value

    # ------------------------------------------------------------------ writing

    def settle(self, array: LazyArray) -> np.ndarray:
        """Return the memory of `array`; its pending views become views of that memory."""
        root: Any = array
        while root._v is None and root._n in self.views:
            root = self.views[root._n][0]
        if root._v is None:
            self.value(root)
        if array._v is None:
            self.value(array)
        return array._v

    def viewed(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending view or has pending views."""
        if not self.views:
            return False
        return array._n in self.views or any(v[0] is array for v in self.views.values())

    def setitem(self, array: LazyArray, key: Any, value: Any, others: int | None = None) -> None:
        """Perform ``array[key] = value``; `others` is the number of other references to `value`, if known."""
        memory = self.settle(array) if array._v is None else array._v
        basic = _known(key)
        if not basic:
            key = self.plain(key)
            if _runs_code(key):
                self.call_opaque(operator.setitem, (memory, key, value), {})
                return
            basic = _basic(key)
        if type(value) is LazyArray and value._s is self and basic and memory.flags.writeable:
            target = memory[key]
            if type(target) is np.ndarray:
                if value._v is not None and is_same_view(target, value._v):
                    return  # the end of `x[key] += y`: the view has been written already
                if value._v is None and self._assign(target, value, others):
                    return
        value = self.plain(value)
        if may_run_user_code(value):  # converting it to an array may write into any memory
            self.call_opaque(operator.setitem, (memory, key, value), {})
            return
        self.before_write(memory)
        call_here(operator.setitem, memory, key, value)

    def writes(self, target: np.ndarray, key: Any, value: Any) -> bool:
        """Perform ``target[key] = value`` if nothing is pending and no cast may warn; return whether so."""
        if not (self.is_quiet() and _known(key) and getattr(value, "dtype", None) is target.dtype
                and isinstance(value, (np.ndarray, np.generic))):
            return False
        target[key] = value
        return True

    def _assign(self, target: np.ndarray, value: LazyArray, others: int | None) -> bool:
        """Store a pending value into `target` with the cast of an assignment; return whether it can be."""
        shape = METAS[value._m].shape
        if target.dtype not in TRACED or not target.flags.writeable:
            return False
        if METAS[value._m].dtype.kind == "c" != target.dtype.kind:
            return False  # NumPy warns of the lost imaginary part
        if not fits(shape, target.shape) or not target.size:
            return False  # an error, or no elements, so that no cast may warn
        n = value._n if value._n >= 0 else self.enter(value)
        attrs = (("dtype", target.dtype),)
        self.store(target, self._conformed(n, value._m, target, attrs, always=True), _consumed(n, others))
        return True

    def _conformed(self, n: int, meta: int, target: np.ndarray, attrs: Attrs, always: bool = False) -> int:
        """Cast and broadcast entry `n` to the dtype and shape of `target`; `always` adds a cast entry."""
        known = METAS[meta]
        if known.dtype != target.dtype or always:
            n = self._nameless((_CAST, n, attrs), meta_id(known.shape, target.dtype))
        if known.shape != target.shape:
            spread = (("shape", target.shape),)
            n = self._nameless((_BROADCAST, n, spread), meta_id(target.shape, target.dtype))
        return n

    def _nameless(self, entry: tuple, meta: int) -> int:
        return self.append(entry, Placeholder(meta))

    def inplace(
        self, array: LazyArray, ufunc: Any, other: Any, others: int | None = None
    ) -> Any:
        """Perform ``array op= other``; `others` is the number of other references to `other`, if known."""
        lazy = type(other) in LAZY and other._v is None and other._s is self
        lone = lone_complex(METAS[array._m])
        if array._v is None and not lone and not self.viewed(array) and self._rebind(array, ufunc, other):
            return array
        memory = self.settle(array)
        lazy = lazy and not lone and other._v is None and fits(METAS[other._m].shape, memory.shape)
        lazy = lazy and _is_recorded(ufunc, array, other) and memory.flags.writeable
        if lazy and (self.moves_on(array, memory, ufunc, other)
                     or self._update(array, memory, ufunc, other, others)):
            return array
        other = self.plain(other)
        if may_run_user_code(other):
            result = self.call_opaque(_ufunc_in_place(ufunc), (memory, other), {})
        else:
            self.before_write(memory)
            result = call_here(_ufunc_in_place(ufunc), memory, other)
        return array if result is memory else self.wrap(result)  # the other operand may override the operator

    def _update(
        self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any, others: int | None
    ) -> bool:
        """Store ``ufunc(array, other)`` into `array` in memory; return whether dtype and shape allow it."""
        result = self.call_ufunc(ufunc, array, other)
        known = METAS[result._m]
        attrs = store_cast(ufunc, known.dtype, memory.dtype)
        if result._v is not None or known.shape != memory.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        self.nodes[n] = Placeholder(meta)
        result._n = -1
        used = other._n
        self.store(memory, self._conformed(n, meta, memory, attrs), _consumed(used, others))
        return True

    def call_ufunc(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``."""
        raise NotImplementedError

    def call_opaque(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call a function that may run code that is not traced."""
        raise NotImplementedError

    def _rebind(self, array: LazyArray, ufunc: Any, other: Any) -> bool:
        """Move the proxy of a pending value to the result of the operation; return whether it can be."""
        if self.lent(array) or not _is_recorded(ufunc, array, other) or self.operand(other) is None:
            return False
        if not fits(np.shape(other), METAS[array._m].shape):
            return False
        if array._n < 0:
            self.enter(array)
        known = METAS[array._m]
        if len(known.shape) > 1 and not self._all_in_order(other) and not (
                self.site.unroll_limit and self.lies_in_order(array._n)):
            return False  # in place the order of axes in memory stays, a new array might have another
        result = self.call_ufunc(ufunc, array, other)
        if type(result) is not LazyArray or result._v is not None or array._v is not None:
            return False
        made = METAS[result._m]
        attrs = store_cast(ufunc, made.dtype, known.dtype)
        if made.shape != known.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        self.nodes[n] = Placeholder(meta)
        result._n = -1
        if made.dtype != known.dtype:
            n = self._nameless((_CAST, n, attrs), array._m)
        self.nodes[array._n] = Placeholder(array._m)
        array._n = n
        self.nodes[n] = array
        return True

    def _all_in_order(self, other: Any) -> bool:
        """Return whether all arrays read by the block and `other` are in C order, and none is transposed."""
        if type(other) is LazyArray and other._n < 0 and other._v is None:
            return False  # a rematerialisable value: its recipe is not analysed
        if type(other) is np.ndarray and not other.flags.c_contiguous:
            return False
        arrays = [p for p in (*self.entered, other) if type(p) is LazyArray and p._v is not None]
        return all(LAYOUTS[p._l].group == ("C",) for p in arrays) and not any(
            method == "transpose" for _, method, _ in self.views.values())

    def lies_in_order(self, n: int, depth: int = 32) -> bool:
        """Return whether entry `n` certainly is in C order; element-wise results of it then are, too."""
        op, *refs = self.ops[n]
        if op <= SCALAR:
            return op == LEAF and _descending(LAYOUTS[refs[0]])
        name, arrays = OPS[op], [r for r in reversed(refs) if type(r) is int and r >= 0]
        if name in _NEW_IN_ORDER or depth == 0:
            return depth > 0
        if CELLS[op]:
            shape = self._shape_at(n)
            arrays = [r for r in arrays if self._shape_at(r) == shape]
            return any(self.lies_in_order(r, depth - 1) for r in arrays)
        if name == "getitem" and any(i[0] != "s" or (i[3] or 1) < 1 for i in refs[-1][0][1]):
            return False
        return name in _IN_ORDER_IF_OPERANDS and all(self.lies_in_order(r, depth - 1) for r in arrays)

    def _shape_at(self, n: int) -> Shape:
        op, first = self.ops[n][:2]
        return LAYOUTS[first].shape if op == LEAF else METAS[self.nodes[n]._m].shape if op > SCALAR else ()


def _descending(layout: Layout) -> bool:
    """Return whether the strides do not increase from axis to axis, as in C order."""
    inside = 1
    for n, by in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if n > 1 and by < inside:
            return False
        inside = by * n if n > 1 else inside
    return True


def _parts(held: Any, kind: type) -> Any:
    return chain(held, held.values()) if kind is dict else held


def _is_recorded(ufunc: Any, array: LazyArray, other: Any) -> bool:
    """Return whether an in-place operation is recorded; powers whose exponent NumPy inspects are not."""
    if ufunc is np.power:
        return METAS[array._m].dtype.kind not in "biu" and is_pairwise(array, other)
    return ufunc is not _MATMUL_IN_PLACE


def lone_complex(meta: Meta | np.ndarray) -> bool:
    """Return whether it is one complex number, which NumPy's in-place loops round otherwise than arrays."""
    return meta.dtype.kind == "c" and meta.size == 1


def fits(shape: Shape, target: Shape) -> bool:
    """Return whether `shape` broadcasts to `target` without changing it."""
    if shape == target:
        return True
    if len(shape) > len(target):
        return False
    pairs = zip(shape[::-1], target[::-1], strict=False)
    return all(n in (1, m) for n, m in pairs)


def _consumed(index: int, others: int | None) -> tuple[int, int]:
    return NOTHING_CONSUMED if others is None else (index, others)


def _ufunc_in_place(ufunc: Any) -> Any:
    name = {"divide": "truediv", "subtract": "sub", "multiply": "mul", "remainder": "mod",
            "floor_divide": "floordiv", "power": "pow", "bitwise_and": "and", "bitwise_or": "or",
            "bitwise_xor": "xor", "left_shift": "lshift", "right_shift": "rshift"}
    return getattr(operator, f"i{name.get(ufunc.__name__, ufunc.__name__)}")


def _basic(key: Any) -> bool:
    """Return whether ``x[key]`` is basic indexing: a view or an element, not a copy."""
    parts = key if type(key) is tuple else (key,)
    return all(type(p) in _BASIC or isinstance(p, np.integer) for p in parts)


def _runs_code(key: Any) -> bool:
    """Return whether the conversion of a key to integers or arrays may run user code."""
    for part in key if type(key) is tuple else (key,):
        if may_run_user_code((part.start, part.stop, part.step) if type(part) is slice else part):
            return True
    return False


def _known(key: Any) -> bool:
    """Return whether `key` consists of Python's integers, slices of these, and None: a quick test."""
    for part in key if type(key) is tuple else (key,):
        if type(part) is slice:
            if part.start.__class__ not in _NUMBERS or part.stop.__class__ not in _NUMBERS:
                return False
            part = part.step
        if part.__class__ not in _NUMBERS:
            return False
    return True


def _static_index(key: Any) -> tuple | None:
    """Return basic indices as a hashable attribute, or None if `key` is not basic and constant."""
    parts = key if type(key) is tuple else (key,)
    made: list[tuple] = []
    for part in parts:
        kind = type(part)
        if kind is slice:
            bounds = (part.start, part.stop, part.step)
            if any(b is not None and type(b) is not int for b in bounds):
                return None
            made.append(("s", *bounds))
        elif part is None:
            made.append(("n",))
        elif part is Ellipsis:
            made.append(("e",))
        else:
            return None
    return tuple(made)


def _view_entry(array: Lazy, method: str | Callable[..., Any], args: tuple) -> tuple[int, tuple]:
    """Return (op, attrs) of a view operation on a pending array, or (-1, ()) if it is not traced."""
    shape = METAS[array._m].shape
    if method == "transpose":
        axes = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if args == (None,) or not axes:
            return OP_ID["transpose"], (("axes", tuple(range(len(shape)))[::-1]),)
        if len(axes) == len(shape) and all(type(a) is int for a in axes):
            normal = tuple(a % len(shape) for a in axes)
            if sorted(normal) == list(range(len(shape))):
                return OP_ID["transpose"], (("axes", normal),)
    if method == "reshape":
        new = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if all(type(n) is int for n in new) and new.count(-1) <= 1:
            size = METAS[array._m].size
            known = 1
            for n in new:
                known *= n if n != -1 else 1
            if -1 in new and known > 0 and size % known == 0:
                new = tuple(size // known if n == -1 else n for n in new)
                known = size
            # on the tape a result without dimensions would be a scalar
            if new and known == size and all(n >= 0 for n in new) and -1 not in new:
                return OP_ID["reshape"], (("shape", tuple(new)),)
    return -1, ()


