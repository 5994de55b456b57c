"""Reading and writing parts of arrays: views, indexing, stores and in-place operations.

`ArrayReader` records views and reads; `ArrayWriter` stores values into memory, or moves the proxy of a
pending array to the result of an in-place operation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.hops import Meta, Shape, broadcast
from jitla.tracing import frames
from jitla.tracing.boundary import Boundary
from jitla.tracing.force import NOTHING_CONSUMED, BlockCloser
from jitla.tracing.frames import LOCAL, call_here
from jitla.tracing.gather import read_at, record_gather
from jitla.tracing.lazy import (
    LAZY,
    UFUNC_RECORDERS,
    Lazy,
    LazyArray,
    Placeholder,
    append_entry,
    apply_view,
    is_pairwise,
    proxy_in_memory,
)
from jitla.tracing.mutation import MemoryDependences
from jitla.tracing.open_tape import Tape
from jitla.tracing.recorder import TapeRecorder
from jitla.tracing.tape import (
    LAYOUT_ID,
    METAS,
    OP_ID,
    TRACED,
    Attrs,
    is_same_view,
    is_traceable,
    meta_id,
    owns_memory,
    store_cast,
)
from jitla.tracing.user_types import SAFE_TYPES, may_run_user_code

_BASIC_KEY_TYPES = (int, slice, type(None), type(Ellipsis))
_INDEX_TYPES = frozenset({int, type(None)})
_GETITEM = OP_ID["getitem"]
_CAST = OP_ID["cast"]
_BROADCAST = OP_ID["broadcast_to"]
_MATMUL_IN_PLACE = np.matmul
_BOOL = np.dtype(bool)
_ARRAY_KEYS = LAZY | {np.ndarray}


class ArrayReader:
    """Reads parts of arrays: views and gathers are recorded, elements are read at once."""

    __slots__ = ("session", "site", "tape", "closer", "boundary", "recorder")

    def __init__(
        self, session: Any, site: Any, tape: Tape, closer: BlockCloser, boundary: Boundary,
        recorder: TapeRecorder,
    ) -> None:
        self.session = session
        self.site = site
        self.tape = tape
        self.closer = closer
        self.boundary = boundary
        self.recorder = recorder

    def getitem(self, array: LazyArray, key: Any) -> Any:
        """Return ``array[key]``: a view where NumPy returns one, a recorded gather, or elements read now."""
        if array._v is None or self.site.unroll_limit:  # unrolled loops record the views they read
            index = _static_index(key)
            if index is not None and not self.site.has_many_classes:
                return self.view(array, "__getitem__", (key,), _GETITEM, (("index", index),))
        value = self.closer.value(array)
        if type(key) in _ARRAY_KEYS \
                or (type(key) is tuple or type(key) is slice) and not _is_integer_key(key):
            if (gather := record_gather(self.session, value, key)) is not None:
                return gather
            key = self.boundary.plain(key)
            if type(key) is not np.ndarray and _may_run_code(key):
                return self.boundary.call_opaque(operator.getitem, (array, key), {})
        elif type(key) not in SAFE_TYPES and type(key) is not tuple and may_run_user_code(key):
            return self.boundary.call_opaque(operator.getitem, (array, key), {})
        if type(key) is np.ndarray:
            elements = read_at(self.session, value, key)
            if elements is not None:
                return elements
            name = "compress" if key.dtype == _BOOL else "take"
            gather = self.site.run_index_loop(name, key.size, value, key)
            if gather is not None:
                return self.boundary.wrap(gather)
        part = value[key]
        if type(part) is np.ndarray and not self.session.ended:
            # of the dtype of `value`, and new: there is no proxy of it
            layout = LAYOUT_ID.get((part.dtype, part.shape, part.strides))
            if layout is not None and (part.dtype is not _BOOL or part.size):
                return proxy_in_memory(self.session, part, layout)
        return self.boundary.wrap(part)

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
            return self.boundary.wrap(apply_view(self.closer.value(array), method, args))
        meta = self.recorder.infer(op, (array._m,), attrs)
        if not is_traceable(METAS[meta].shape, METAS[meta].dtype):
            return apply_view(self.closer.value(array), method, args)
        n = array._n if array._n >= 0 else self.tape.enter(array)
        result = append_entry(self.session, (op, n, attrs), meta)
        self.tape.views[result._n] = (array, method, args)
        return result

    def iterate(self, array: LazyArray) -> Iterator[Any]:
        """Iterate over the first axis like NumPy: views of rows, or scalars."""
        value = self.closer.value(array)
        return map(self.element, iter(value)) if value.ndim > 1 else iter(value)

    def element(self, value: Any) -> Any:
        """Return an element of an iteration: a proxy, unless code that is not traced receives it."""
        return self.boundary.wrap(value) if LOCAL.session is self.session else value

    def complex_part(self, array: LazyArray, name: str) -> Any:
        """Return the real or the imaginary part; of complex arrays it is a view."""
        if METAS[array._m].dtype.kind == "c":
            return self.view(array, "__getattribute__", (name,), OP_ID[name])
        return array if name == "real" else self.boundary.wrap(self.closer.value(array).imag)


class ArrayWriter:
    """Writes into arrays: stores, in-place operations, and ufuncs with an output array."""

    __slots__ = ("session", "site", "tape", "closer", "memory", "boundary", "recorder", "updates")

    def __init__(
        self, session: Any, site: Any, tape: Tape, closer: BlockCloser, memory: MemoryDependences,
        boundary: Boundary, recorder: TapeRecorder,
    ) -> None:
        self.session = session
        self.site = site
        self.tape = tape
        self.closer = closer
        self.memory = memory
        self.boundary = boundary
        self.recorder = recorder
        # By identity of memory: the position of its last in-place operation in this loop iteration.
        self.updates: dict[int, tuple[int, ...]] = {}

    def setitem(self, array: LazyArray, key: Any, value: Any, others: int | None = None) -> None:
        """Perform ``array[key] = value``; `others` is the number of other references to `value`, if known."""
        memory = self.closer.settle(array) if array._v is None else array._v
        basic = _is_integer_key(key)
        if not basic:
            key = self.boundary.plain(key)
            if _may_run_code(key):
                self.boundary.call_opaque(operator.setitem, (memory, key, value), {})
                return
            basic = _is_basic_key(key)
        if type(value) is LazyArray and value._s is self.session and basic and memory.flags.writeable:
            target = memory[key]
            if type(target) is np.ndarray:
                if value._v is not None and is_same_view(target, value._v):
                    return  # the end of `x[key] += y`: the view has been written already
                if value._v is None and self._store_pending(target, value, others):
                    return
        value = self.boundary.plain(value)
        if may_run_user_code(value):  # converting it to an array may write into any memory
            self.boundary.call_opaque(operator.setitem, (memory, key, value), {})
            return
        self.memory.before_write(memory)
        call_here(operator.setitem, memory, key, value)

    def try_plain_store(self, target: np.ndarray, key: Any, value: Any) -> bool:
        """Perform ``target[key] = value`` if nothing is pending and no cast may warn; return whether so."""
        if not (self.memory.has_no_dependents() and _is_integer_key(key)
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
        n = value._n if value._n >= 0 else self.tape.enter(value)
        attrs = (("dtype", target.dtype),)
        self.memory.store(target, self.conform(n, value._m, target, attrs, always=True), _consumed(n, others))
        return True

    def conform(self, n: int, meta: int, target: np.ndarray, attrs: Attrs, always: bool = False) -> int:
        """Cast and broadcast entry `n` to the dtype and shape of `target`; `always` adds a cast entry."""
        source = METAS[meta]
        if source.dtype != target.dtype or always:
            n = self._append_unowned((_CAST, n, attrs), meta_id(source.shape, target.dtype))
        if source.shape != target.shape:
            shape_attrs = (("shape", target.shape),)
            n = self._append_unowned((_BROADCAST, n, shape_attrs), meta_id(target.shape, target.dtype))
        return n

    def _append_unowned(self, entry: tuple, meta: int) -> int:
        return self.tape.append(entry, Placeholder(meta))

    def inplace(
        self, array: LazyArray, ufunc: Any, other: Any, others: int | None = None
    ) -> Any:
        """Perform ``array op= other``; `others` is the number of other references to `other`, if known."""
        lazy = type(other) in LAZY and other._v is None and other._s is self.session
        is_single = is_single_complex(METAS[array._m])
        if array._v is None and not is_single and not self.tape.has_pending_views(array) \
                and self.rebind(array, ufunc, other):
            return array
        memory = self.closer.settle(array)
        lazy = lazy and not is_single and other._v is None \
            and is_broadcastable(METAS[other._m].shape, memory.shape)
        lazy = lazy and _is_recorded(ufunc, array, other) and memory.flags.writeable
        if lazy and (self.defer_update(array, memory, ufunc, other)
                     or self._update(array, memory, ufunc, other, others)):
            return array
        other = self.boundary.plain(other)
        if may_run_user_code(other):
            result = self.boundary.call_opaque(_ufunc_in_place(ufunc), (memory, other), {})
        else:
            self.memory.before_write(memory)
            result = call_here(_ufunc_in_place(ufunc), memory, other)
        # the other operand may override the operator
        return array if result is memory else self.boundary.wrap(result)

    def _update(
        self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any, others: int | None
    ) -> bool:
        """Store ``ufunc(array, other)`` into `array` in memory; return whether dtype and shape allow it."""
        result = self.recorder.call_ufunc(ufunc, array, other)
        result_meta = METAS[result._m]
        attrs = store_cast(ufunc, result_meta.dtype, memory.dtype)
        if result._v is not None or result_meta.shape != memory.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        self.tape.nodes[n] = Placeholder(meta)
        result._n = -1
        used = other._n
        self.memory.store(memory, self.conform(n, meta, memory, attrs), _consumed(used, others))
        return True

    def rebind(self, array: LazyArray, ufunc: Any, other: Any) -> bool:
        """Move the proxy of a pending value to the result of the operation; return whether it can be."""
        tape = self.tape
        if tape.is_pending_gather_view(array) or not _is_recorded(ufunc, array, other) \
                or self.recorder.operand(other) is None:
            return False
        if not is_broadcastable(np.shape(other), METAS[array._m].shape):
            return False
        if array._n < 0:
            tape.enter(array)
        target_meta = METAS[array._m]
        if len(target_meta.shape) > 1 and not tape.reads_c_order(other) and not (
                self.site.unroll_limit and tape.is_in_c_order(array._n)):
            return False  # in place the order of axes in memory stays, a new array might have another
        result = self.recorder.call_ufunc(ufunc, array, other)
        if type(result) is not LazyArray or result._v is not None or array._v is not None:
            return False
        result_meta = METAS[result._m]
        attrs = store_cast(ufunc, result_meta.dtype, target_meta.dtype)
        if result_meta.shape != target_meta.shape or attrs is None:
            return False
        n, meta = result._n, result._m
        tape.nodes[n] = Placeholder(meta)
        result._n = -1
        if result_meta.dtype != target_meta.dtype:
            n = self._append_unowned((_CAST, n, attrs), array._m)
        tape.nodes[array._n] = Placeholder(array._m)
        array._n = n
        tape.nodes[n] = array
        return True

    def ufunc_into(self, ufunc: Any, inputs: tuple, out: Any) -> Any:
        """Record or perform ``ufunc(*inputs, out=out)``."""
        tape = self.tape
        if self.site.unroll_limit and type(out) is LazyArray and len(inputs) == 2 and inputs[0] is out and \
                out._v is None and not tape.has_pending_views(out) and self.rebind(out, ufunc, inputs[1]):
            return out
        memory = self.closer.settle(out) if type(out) is LazyArray else out
        if tape.immediate and isinstance(memory, np.ndarray):
            self.memory.before_write(memory)
            call_here(ufunc, *self.boundary.plain(inputs), out=memory)
            return out
        if type(memory) is np.ndarray and memory.flags.writeable \
                and (type(out) is LazyArray or memory.dtype in TRACED and owns_memory(memory)):
            operands = [self.recorder.operand(x) for x in inputs]
            if any(x is None for x in operands) or not _can_fill(memory, operands) \
                    or _may_use_half(ufunc, operands) or ufunc is np.power and not is_pairwise(*inputs):
                return self.boundary.eager(ufunc, inputs, {"out": out})
            result = UFUNC_RECORDERS[ufunc](*operands)
            if type(result) is LazyArray and result._v is None:
                n, meta = result._n, METAS[result._m]
                attrs = store_cast(ufunc, meta.dtype, memory.dtype)
                if meta.shape == memory.shape and attrs is not None:
                    is_unshared = not any(result is x for x in operands)
                    if is_unshared:
                        tape.nodes[n] = Placeholder(result._m)
                        result._n = -1
                    entry = self.conform(n, result._m, memory, attrs, not is_unshared)
                    self.memory.store(memory, entry, NOTHING_CONSUMED)
                    return out
            del result  # it is not referenced any more, and so not computed
        return self.boundary.eager(ufunc, inputs, {"out": out})

    def defer_update(self, array: LazyArray, memory: np.ndarray, ufunc: Any, other: Any) -> bool:
        """Make ``ufunc(array, other)`` the pending value of `array` if its memory has no other references.

        Return whether that was done.
        """
        tape = self.tape
        if memory.size < self.site.thresholds.min_update_elements or not self._is_repeated_update(memory):
            return False
        if _references(memory) > _SOLE_REFERENCES + sum([leaf is memory for leaf in tape.leaves]):
            return False  # other references, such as views
        if not memory.flags.owndata or not memory.flags.c_contiguous \
                or id(memory) in self.boundary.foreigners or tape.has_pending_views(array):
            return False
        before = proxy_in_memory(self.session, memory, array._l)
        for k, entered in enumerate(tape.entered):
            if entered is array:
                tape.entered[k] = before
                before._n, array._n = array._n, -1
        result = self.recorder.call_ufunc(ufunc, before, other)
        meta = METAS[result._m]
        attrs = store_cast(ufunc, meta.dtype, memory.dtype)
        if type(result) is not LazyArray or result._v is not None or meta.shape != memory.shape or not attrs:
            return False
        n = result._n
        tape.nodes[n] = Placeholder(result._m)
        result._n = -1
        if meta.dtype != memory.dtype:
            n = tape.append((_CAST, n, attrs), Placeholder(array._m))
        array._v, array._n = None, n
        tape.nodes[n] = array
        return True

    def _is_repeated_update(self, memory: np.ndarray) -> bool:
        """Record the running operation; return whether it is known to be one of several on its array."""
        place = (frames.path() or ())[:2]
        before = self.updates.get(id(memory))
        if before is not None:
            self.site.fused_updates |= {before, place}
        self.updates[id(memory)] = place
        return place in self.site.fused_updates


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


def _references(memory: np.ndarray) -> int:
    return getrefcount(memory)


def _sole_references() -> int:
    """Measure the reference count, as `defer_update` sees it, of memory that only a proxy refers to."""
    arrays = [np.empty(0)]

    def defer_update(memory: np.ndarray) -> int:
        return _references(memory)

    memory = arrays[0]
    return defer_update(memory)


_SOLE_REFERENCES = _sole_references()
