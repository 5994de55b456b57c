"""Reading and writing parts of arrays: views, items, in-place operations.

Writes into memory are executed at once, fused with what computes the value; an in-place operation on a
pending value without views only moves its proxy to a new entry. So plans never see aliasing.
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
    TAME,
    is_wild,
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
    """A method of a proxy, ready to be called: of its session, itself and the method's name."""

    @property
    def __self__(self) -> Any:
        return self.args[1]

    @property
    def __name__(self) -> str:
        return str(self.args[2])


# What may hold a proxy, and what may be one.
HOLDERS = _MUTABLE | {tuple, frozenset, slice, Bound, MethodType, LazySparse}
# What gives away, step by step, what others hold.
_STEPPING = frozenset({zip, enumerate, map, filter, reversed, type({}.keys()), type({}.values()),
                       type({}.items()), *map(type, map(iter, (
                           [], (), {}, {}.values(), {}.items(), set(), reversed([]), reversed({}))))})
# What runs code step by step that holds proxies, and which attribute is its frame.
SUSPENDED = {GeneratorType: "gi_frame", CoroutineType: "cr_frame", AsyncGeneratorType: "ag_frame"}
_OWNERS = LAZY | {LazySparse}
_ADVANCED = LAZY | {np.ndarray}
# What holds proxies, or gives some away later.
CARRIERS = HOLDERS | _STEPPING | SUSPENDED.keys()
_MENDED = LAZY | CARRIERS


class Indexing(Together):
    """The part of a session that reads and writes parts of arrays."""

    __slots__ = ()

    foreigners: dict[int, LazyArray]
    ended: bool

    def wrap(self, value: Any) -> Any:
        """Return a proxy for an ndarray that NumPy just made; anything else unchanged."""
        if type(value) is np.ndarray and is_traceable(value.shape, value.dtype) and not self.ended:
            known = self.foreigners.get(id(value))
            return known if known is not None and known._v is value else lazy_array(self, value)
        return value

    def plain(self, value: Any, seen: frozenset[int] = frozenset()) -> Any:
        """Return what `value` means to code that knows no proxies; containers are mended in place."""
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
                return value  # the proxy has to learn the new shape, whoever calls it
            return getattr(self.plain(value.__self__), value.__name__)
        elif kind is frozenset:
            return value if LAZY.isdisjoint(map(type, value)) else frozenset(map(self.plain, value))
        elif kind is LazySparse:
            return scipy_matrix(value)
        elif kind in _STEPPING:
            # What it steps through is mended where it is; a proxy's own iterator gives arrays.
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
        """Return ``array[key]``: a view where NumPy gives one, else what is read now, or where it is used."""
        if array._v is None or self.site.unroll_limit:  # who puts together terms has to see what they read
            index = _static_index(key)
            if index is not None and not self.site.many_plans:
                return self.view(array, "__getitem__", (key,), _GETITEM, (("index", index),))
        value = self.value(array)
        if type(key) in _ADVANCED or (type(key) is tuple or type(key) is slice) and not _known(key):
            if (made := gathered(self, value, key)) is not None:
                return made
            key = self.plain(key)
            if type(key) is not np.ndarray and _runs_code(key):
                return self.call_opaque(operator.getitem, (array, key), {})
        elif type(key) not in TAME and type(key) is not tuple and is_wild(key):
            return self.call_opaque(operator.getitem, (array, key), {})
        if type(key) is np.ndarray:
            picked = self.pick(value, key)
            if picked is not None:
                return picked
            name = "compress" if key.dtype == _BOOL else "take"
            made = self.site.at_once(name, key.size, value, key)
            if made is not None:
                return self.wrap(made)
        part = value[key]
        if type(part) is np.ndarray and not self.ended:
            # of the dtype of `value`, and no older than this line: nobody has a proxy of it
            layout = LAYOUT_ID.get((part.dtype, part.shape, part.strides))
            if layout is not None and (part.dtype is not _BOOL or part.size):
                return proxy_in_memory(self, part, layout)
        return self.wrap(part)

    def view(
        self, array: Lazy, method: str | Callable[..., Any], args: tuple, op: int = -1, attrs: tuple = (),
        always: bool = False,
    ) -> Any:
        """Return what `method` makes of `array`, an operation that may be a view of it.

        Of memory it is one at once, unless it is `always` to be recorded.
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
        """Return a step of an iteration: a proxy, unless code that jitla does not see takes it."""
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
        """Say whether `array` is a pending view or has pending views."""
        if not self.views:
            return False
        return array._n in self.views or any(v[0] is array for v in self.views.values())

    def setitem(self, array: LazyArray, key: Any, value: Any, others: int | None = None) -> None:
        """Do ``array[key] = value``; `others` counts the references to `value` elsewhere, if known."""
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
        if is_wild(value):  # it may write into any memory when it is asked for its elements
            self.call_opaque(operator.setitem, (memory, key, value), {})
            return
        self.before_write(memory)
        call_here(operator.setitem, memory, key, value)

    def writes(self, target: np.ndarray, key: Any, value: Any) -> bool:
        """Do ``target[key] = value`` if no more than that has to be done, nor told; say whether."""
        if not (self.is_quiet() and _known(key) and getattr(value, "dtype", None) is target.dtype
                and isinstance(value, (np.ndarray, np.generic))):
            return False
        target[key] = value
        return True

    def _assign(self, target: np.ndarray, value: LazyArray, others: int | None) -> bool:
        """Store a pending value into `target` with the casts of an assignment, if it can be fused."""
        shape = METAS[value._m].shape
        if target.dtype not in TRACED or not target.flags.writeable:
            return False
        if METAS[value._m].dtype.kind == "c" != target.dtype.kind:
            return False  # NumPy warns of what is lost
        if not fits(shape, target.shape) or not target.size:
            return False  # an error, or no element is cast
        n = value._n if value._n >= 0 else self.enter(value)
        attrs = (("dtype", target.dtype),)
        self.store(target, self._conformed(n, value._m, target, attrs, always=True), _consumed(n, others))
        return True

    def _conformed(self, n: int, meta: int, target: np.ndarray, attrs: Attrs, always: bool = False) -> int:
        """Cast and broadcast entry `n` to `target`; with `always` the result is a new entry."""
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
        """Do ``array op= other``; `others` counts the references to `other` elsewhere, if known."""
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
        if is_wild(other):
            result = self.call_opaque(_ufunc_in_place(ufunc), (memory, other), {})
        else:
            self.before_write(memory)
            result = call_here(_ufunc_in_place(ufunc), memory, other)
        return array if result is memory else self.wrap(result)  # the other's protocol may answer

    def _update(
        self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any, others: int | None
    ) -> bool:
        """Store ``ufunc(array, other)`` into the memory of `array`, if its dtype and shape allow it."""
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
        """Call what may run code that jitla does not see."""
        raise NotImplementedError

    def _rebind(self, array: LazyArray, ufunc: Any, other: Any) -> bool:
        """In-place operation on a pending value that nobody else sees: its proxy moves on."""
        if self.lent(array) or not _is_recorded(ufunc, array, other) or self.operand(other) is None:
            return False
        if not fits(np.shape(other), METAS[array._m].shape):
            return False
        if array._n < 0:
            self.enter(array)
        known = METAS[array._m]
        if len(known.shape) > 1 and not self._all_in_order(other) and not (
                self.site.unroll_limit and self.lies_in_order(array._n)):
            return False  # the result keeps the order of `array`, a new one might not
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
        """Say whether all arrays the block and `other` read are in C order, and none is turned."""
        if type(other) is LazyArray and other._n < 0 and other._v is None:
            return False  # a ghost: its recipe is not looked into
        if type(other) is np.ndarray and not other.flags.c_contiguous:
            return False
        arrays = [p for p in (*self.entered, other) if type(p) is LazyArray and p._v is not None]
        return all(LAYOUTS[p._l].group == ("C",) for p in arrays) and not any(
            method == "transpose" for _, method, _ in self.views.values())

    def lies_in_order(self, n: int, depth: int = 32) -> bool:
        """Say whether entry `n` is seen to lie in C order; with others a result then lies so, too."""
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
    """Say whether axes lie in memory as C has them, one inside the other."""
    inside = 1
    for n, by in zip(reversed(layout.shape), reversed(layout.strides), strict=True):
        if n > 1 and by < inside:
            return False
        inside = by * n if n > 1 else inside
    return True


def _parts(held: Any, kind: type) -> Any:
    return chain(held, held.values()) if kind is dict else held


def _is_recorded(ufunc: Any, array: LazyArray, other: Any) -> bool:
    """Say whether the operation is not done at once: NumPy may refuse an exponent, or look at it."""
    if ufunc is np.power:
        return METAS[array._m].dtype.kind not in "biu" and is_pairwise(array, other)
    return ufunc is not _MATMUL_IN_PLACE


def lone_complex(meta: Meta | np.ndarray) -> bool:
    """Say whether it is one complex number: in place NumPy multiplies it by other code than arrays."""
    return meta.dtype.kind == "c" and meta.size == 1


def fits(shape: Shape, target: Shape) -> bool:
    """Say whether `shape` broadcasts to `target` without changing it."""
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
    """Say whether ``x[key]`` is a view (or an element) and not a copy."""
    parts = key if type(key) is tuple else (key,)
    return all(type(p) in _BASIC or isinstance(p, np.integer) for p in parts)


def _runs_code(key: Any) -> bool:
    """Say whether a key may run code of users when it is asked for its integers or elements."""
    for part in key if type(key) is tuple else (key,):
        if is_wild((part.start, part.stop, part.step) if type(part) is slice else part):
            return True
    return False


def _known(key: Any) -> bool:
    """Say whether `key` is seen at a glance to hold nothing but Python's integers."""
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
            # what has no dimensions would be a scalar on the tape
            if new and known == size and all(n >= 0 for n in new) and -1 not in new:
                return OP_ID["reshape"], (("shape", tuple(new)),)
    return -1, ()


