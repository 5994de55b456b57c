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
from jitla.tracing.gather import record_gather
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
from jitla.tracing.mutation import UpdateDeferrer, lazy_array
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
    ExactLayout,
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

_BASIC_KEY_TYPES = (int, slice, type(None), type(Ellipsis))
_INDEX_TYPES = frozenset({int, type(None)})
_GETITEM = OP_ID["getitem"]
_CAST = OP_ID["cast"]
_BROADCAST = OP_ID["broadcast_to"]
_MATMUL_IN_PLACE = np.matmul
_MUTABLE_CONTAINERS = frozenset({list, dict, set})
_BOOL = np.dtype(bool)
_NEW_IN_C_ORDER = frozenset({"full", "dot"})
_C_ORDER_IF_OPERANDS = frozenset({"matmul", "getitem", "reshape", "ravel", "expand_dims", "squeeze"})


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


class Indexing(UpdateDeferrer):
    """Base of sessions that reads and writes parts of arrays."""

    __slots__ = ()

    foreigners: dict[int, LazyArray]
    ended: bool

    def wrap(self, value: Any) -> Any:
        """Return a proxy for a new ndarray of NumPy, other values unchanged."""
        if type(value) is np.ndarray and is_traceable(value.shape, value.dtype) and not self.ended:
            proxy = self.foreigners.get(id(value))
            return proxy if proxy is not None and proxy._v is value else lazy_array(self, value)
        return value

    def plain(self, value: Any, visited: frozenset[int] = frozenset()) -> Any:
        """Return `value` without proxies, for code that is not traced; containers are changed in place."""
        kind = type(value)
        if kind in LAZY:
            return value._s.value(value)
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
                settle_locals(self, frame, visited | {id(value)})
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

    # ------------------------------------------------------------------ reading

    def getitem(self, array: LazyArray, key: Any) -> Any:
        """Return ``array[key]``: a view where NumPy returns one, a recorded gather, or elements read now."""
        if array._v is None or self.site.unroll_limit:  # unrolled loops record the views they read
            index = _static_index(key)
            if index is not None and not self.site.has_many_classes:
                return self.view(array, "__getitem__", (key,), _GETITEM, (("index", index),))
        value = self.value(array)
        if type(key) in _ARRAY_KEYS \
                or (type(key) is tuple or type(key) is slice) and not _is_integer_key(key):
            if (gather := record_gather(self, value, key)) is not None:
                return gather
            key = self.plain(key)
            if type(key) is not np.ndarray and _may_run_code(key):
                return self.call_opaque(operator.getitem, (array, key), {})
        elif type(key) not in SAFE_TYPES and type(key) is not tuple and may_run_user_code(key):
            return self.call_opaque(operator.getitem, (array, key), {})
        if type(key) is np.ndarray:
            elements = self.read_at(value, key)
            if elements is not None:
                return elements
            name = "compress" if key.dtype == _BOOL else "take"
            gather = self.site.run_index_loop(name, key.size, value, key)
            if gather is not None:
                return self.wrap(gather)
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
        is_immediate = array._v is not None and not self.site.unroll_limit and not always
        if op < 0 and not is_immediate:
            op, attrs = _view_entry(array, method, args)
        if op < 0 or is_immediate:
            return self.wrap(apply_view(self.value(array), method, args))
        meta = self.infer(op, (array._m,), attrs)
        if not is_traceable(METAS[meta].shape, METAS[meta].dtype):
            return apply_view(self.value(array), method, args)
        n = array._n if array._n >= 0 else self.enter(array)
        result = append_entry(self, (op, n, attrs), meta)
        self.views[result._n] = (array, method, args)
        return result

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

    def has_pending_views(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending view or has pending views."""
        if not self.views:
            return False
        return array._n in self.views or any(v[0] is array for v in self.views.values())

    def setitem(self, array: LazyArray, key: Any, value: Any, others: int | None = None) -> None:
        """Perform ``array[key] = value``; `others` is the number of other references to `value`, if known."""
        memory = self.settle(array) if array._v is None else array._v
        basic = _is_integer_key(key)
        if not basic:
            key = self.plain(key)
            if _may_run_code(key):
                self.call_opaque(operator.setitem, (memory, key, value), {})
                return
            basic = _is_basic_key(key)
        if type(value) is LazyArray and value._s is self and basic and memory.flags.writeable:
            target = memory[key]
            if type(target) is np.ndarray:
                if value._v is not None and is_same_view(target, value._v):
                    return  # the end of `x[key] += y`: the view has been written already
                if value._v is None and self._store_pending(target, value, others):
                    return
        value = self.plain(value)
        if may_run_user_code(value):  # converting it to an array may write into any memory
            self.call_opaque(operator.setitem, (memory, key, value), {})
            return
        self.before_write(memory)
        call_here(operator.setitem, memory, key, value)

    def try_plain_store(self, target: np.ndarray, key: Any, value: Any) -> bool:
        """Perform ``target[key] = value`` if nothing is pending and no cast may warn; return whether so."""
        if not (self.has_no_dependents() and _is_integer_key(key)
                and getattr(value, "dtype", None) is target.dtype
                and isinstance(value, (np.ndarray, np.generic))):
            return False
        target[key] = value
        return True

    def _store_pending(self, target: np.ndarray, value: LazyArray, others: int | None) -> bool:
        """Store a pending value into `target` with the cast of an assignment; return whether it can be."""
        shape = METAS[value._m].shape
        if target.dtype not in TRACED or not target.flags.writeable:
            return False
        if METAS[value._m].dtype.kind == "c" != target.dtype.kind:
            return False  # NumPy warns of the lost imaginary part
        if not is_broadcastable(shape, target.shape) or not target.size:
            return False  # an error, or no elements, so that no cast may warn
        n = value._n if value._n >= 0 else self.enter(value)
        attrs = (("dtype", target.dtype),)
        self.store(target, self._conform(n, value._m, target, attrs, always=True), _consumed(n, others))
        return True

    def _conform(self, n: int, meta: int, target: np.ndarray, attrs: Attrs, always: bool = False) -> int:
        """Cast and broadcast entry `n` to the dtype and shape of `target`; `always` adds a cast entry."""
        source = METAS[meta]
        if source.dtype != target.dtype or always:
            n = self._append_unowned((_CAST, n, attrs), meta_id(source.shape, target.dtype))
        if source.shape != target.shape:
            shape_attrs = (("shape", target.shape),)
            n = self._append_unowned((_BROADCAST, n, shape_attrs), meta_id(target.shape, target.dtype))
        return n

    def _append_unowned(self, entry: tuple, meta: int) -> int:
        return self.append(entry, Placeholder(meta))

    def inplace(
        self, array: LazyArray, ufunc: Any, other: Any, others: int | None = None
    ) -> Any:
        """Perform ``array op= other``; `others` is the number of other references to `other`, if known."""
        lazy = type(other) in LAZY and other._v is None and other._s is self
        is_single = is_single_complex(METAS[array._m])
        if array._v is None and not is_single and not self.has_pending_views(array) \
                and self._rebind(array, ufunc, other):
            return array
        memory = self.settle(array)
        lazy = lazy and not is_single and other._v is None \
            and is_broadcastable(METAS[other._m].shape, memory.shape)
        lazy = lazy and _is_recorded(ufunc, array, other) and memory.flags.writeable
        if lazy and (self.defer_update(array, memory, ufunc, other)
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
        result_meta = METAS[result._m]
        attrs = store_cast(ufunc, result_meta.dtype, memory.dtype)
        if result._v is not None or result_meta.shape != memory.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        self.nodes[n] = Placeholder(meta)
        result._n = -1
        used = other._n
        self.store(memory, self._conform(n, meta, memory, attrs), _consumed(used, others))
        return True

    def call_ufunc(self, ufunc: Any, x: Any, y: Any) -> Any:
        """Record or run ``ufunc(x, y)``."""
        raise NotImplementedError

    def call_opaque(self, function: Any, args: tuple, kwargs: dict) -> Any:
        """Call a function that may run code that is not traced."""
        raise NotImplementedError

    def _rebind(self, array: LazyArray, ufunc: Any, other: Any) -> bool:
        """Move the proxy of a pending value to the result of the operation; return whether it can be."""
        if self.is_pending_gather_view(array) or not _is_recorded(ufunc, array, other) \
                or self.operand(other) is None:
            return False
        if not is_broadcastable(np.shape(other), METAS[array._m].shape):
            return False
        if array._n < 0:
            self.enter(array)
        target_meta = METAS[array._m]
        if len(target_meta.shape) > 1 and not self._reads_c_order(other) and not (
                self.site.unroll_limit and self.is_in_c_order(array._n)):
            return False  # in place the order of axes in memory stays, a new array might have another
        result = self.call_ufunc(ufunc, array, other)
        if type(result) is not LazyArray or result._v is not None or array._v is not None:
            return False
        result_meta = METAS[result._m]
        attrs = store_cast(ufunc, result_meta.dtype, target_meta.dtype)
        if result_meta.shape != target_meta.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        self.nodes[n] = Placeholder(meta)
        result._n = -1
        if result_meta.dtype != target_meta.dtype:
            n = self._append_unowned((_CAST, n, attrs), array._m)
        self.nodes[array._n] = Placeholder(array._m)
        array._n = n
        self.nodes[n] = array
        return True

    def _reads_c_order(self, other: Any) -> bool:
        """Return whether all arrays read by the block and `other` are in C order, and none is transposed."""
        if type(other) is LazyArray and other._n < 0 and other._v is None:
            return False  # a rematerialisable value: its recipe is not analysed
        if type(other) is np.ndarray and not other.flags.c_contiguous:
            return False
        arrays = [p for p in (*self.entered, other) if type(p) is LazyArray and p._v is not None]
        return all(LAYOUTS[p._l].group == ("C",) for p in arrays) and not any(
            method == "transpose" for _, method, _ in self.views.values())

    def is_in_c_order(self, n: int, depth: int = 32) -> bool:
        """Return whether entry `n` certainly is in C order; element-wise results of it then are, too."""
        op, *refs = self.ops[n]
        if op <= SCALAR:
            return op == LEAF and _has_c_order_strides(LAYOUTS[refs[0]])
        name, arrays = OPS[op], [r for r in reversed(refs) if type(r) is int and r >= 0]
        if name in _NEW_IN_C_ORDER or depth == 0:
            return depth > 0
        if CELLS[op]:
            shape = self._shape_at(n)
            arrays = [r for r in arrays if self._shape_at(r) == shape]
            return any(self.is_in_c_order(r, depth - 1) for r in arrays)
        if name == "getitem" and any(i[0] != "s" or (i[3] or 1) < 1 for i in refs[-1][0][1]):
            return False
        return name in _C_ORDER_IF_OPERANDS and all(self.is_in_c_order(r, depth - 1) for r in arrays)

    def _shape_at(self, n: int) -> Shape:
        op, first = self.ops[n][:2]
        return LAYOUTS[first].shape if op == LEAF else METAS[self.nodes[n]._m].shape if op > SCALAR else ()


def _has_c_order_strides(layout: ExactLayout) -> bool:
    """Return whether the strides do not increase from axis to axis, as in C order."""
    extent = 1
    for n, stride in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if n > 1 and stride < extent:
            return False
        extent = stride * n if n > 1 else extent
    return True


def _elements_of(container: Any, kind: type) -> Any:
    return chain(container, container.values()) if kind is dict else container


def _is_recorded(ufunc: Any, array: LazyArray, other: Any) -> bool:
    """Return whether an in-place operation is recorded; powers whose exponent NumPy inspects are not."""
    if ufunc is np.power:
        return METAS[array._m].dtype.kind not in "biu" and is_pairwise(array, other)
    return ufunc is not _MATMUL_IN_PLACE


def is_single_complex(meta: Meta | np.ndarray) -> bool:
    """Return whether it is one complex number, which NumPy's in-place loops round otherwise than arrays."""
    return meta.dtype.kind == "c" and meta.size == 1


def is_broadcastable(shape: Shape, target: Shape) -> bool:
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


def _is_basic_key(key: Any) -> bool:
    """Return whether ``x[key]`` is basic indexing: a view or an element, not a copy."""
    parts = key if type(key) is tuple else (key,)
    return all(type(p) in _BASIC_KEY_TYPES or isinstance(p, np.integer) for p in parts)


def _may_run_code(key: Any) -> bool:
    """Return whether the conversion of a key to integers or arrays may run user code."""
    for part in key if type(key) is tuple else (key,):
        if may_run_user_code((part.start, part.stop, part.step) if type(part) is slice else part):
            return True
    return False


def _is_integer_key(key: Any) -> bool:
    """Return whether `key` consists of Python's integers, slices of these, and None: a quick test."""
    for part in key if type(key) is tuple else (key,):
        if type(part) is slice:
            if part.start.__class__ not in _INDEX_TYPES or part.stop.__class__ not in _INDEX_TYPES:
                return False
            part = part.step
        if part.__class__ not in _INDEX_TYPES:
            return False
    return True


def _static_index(key: Any) -> tuple | None:
    """Return basic indices as a hashable attribute, or None if `key` is not basic and constant."""
    parts = key if type(key) is tuple else (key,)
    items: list[tuple] = []
    for part in parts:
        kind = type(part)
        if kind is slice:
            bounds = (part.start, part.stop, part.step)
            if any(b is not None and type(b) is not int for b in bounds):
                return None
            items.append(("s", *bounds))
        elif part is None:
            items.append(("n",))
        elif part is Ellipsis:
            items.append(("e",))
        else:
            return None
    return tuple(items)


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
        new_shape = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if all(type(n) is int for n in new_shape) and new_shape.count(-1) <= 1:
            size = METAS[array._m].size
            extent = 1
            for n in new_shape:
                extent *= n if n != -1 else 1
            if -1 in new_shape and extent > 0 and size % extent == 0:
                new_shape = tuple(size // extent if n == -1 else n for n in new_shape)
                extent = size
            # on the tape a result without dimensions would be a scalar
            if new_shape and extent == size and all(n >= 0 for n in new_shape) and -1 not in new_shape:
                return OP_ID["reshape"], (("shape", tuple(new_shape)),)
    return -1, ()


