"""The tape of recorded operations: entries, interned layouts and metadata, and the blocks made of entries.

An entry is (`LEAF`, layout id), (`SCALAR`, kind code) or (op id, operand codes..., attributes). An operand
code >= 0 is the number of an earlier entry; one below 0 is the kind of a scalar operand, whose value is in
a list beside the entries. Entries are tuples of small numbers, so that whole tapes are compared and hashed
quickly.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Container, Mapping
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jitla.concurrency import fork_safe_lock
from jitla.hops import (
    Hop,
    Kind,
    Meta,
    OpSpec,
    Shape,
    WeakScalar,
    all_ops,
    apply,
    by_numpy,
    const,
    leaf,
    lookup,
)
from jitla.tracing import frames
from jitla.tracing.frames import Places, place_of


class TracedDtypes(frozenset[np.dtype]):
    """A set of dtypes that compares by identity or C type.

    A dtype with metadata, or of another C type of the same size, compares equal to a member but is none.
    """

    def __contains__(self, dtype: Any) -> bool:
        return id(dtype) in _TRACED_IDS or (
            super().__contains__(dtype) and dtype.char in _TRACED_CHARS and dtype.metadata is None)


# The dtypes that are traced; NumPy computes all others.
TRACED = TracedDtypes(np.dtype(t) for t in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "f4", "f8",
    "c8", "c16"))
_TRACED_IDS = frozenset(map(id, TRACED))
_BOOL = np.dtype(bool)
_TRACED_CHARS = frozenset(dtype.char for dtype in TRACED)
INTEGRAL = frozenset("biu")
# First element of the entry of a leaf: an array in memory.
LEAF_OP = 0
# Type of the base of arrays made by `as_strided`: sliding windows.
_STRIDED_BASE = type(np.lib.stride_tricks.as_strided(np.empty(1)).base)


def is_traceable(shape: Shape, dtype: np.dtype) -> bool:
    """Return whether arrays of this shape and dtype may be represented by proxies.

    Empty masks may not: NumPy takes an empty object that is no array, used as an index, for integers.
    """
    return dtype in TRACED and (dtype is not _BOOL or 0 not in shape)


def owns_memory(array: np.ndarray) -> bool:
    """Return whether the memory belongs to an ndarray, so that it stays allocated while a proxy refers to it.

    Writeable windows may overlap themselves: NumPy handles these.
    """
    base = array.base
    while base is not None:
        if type(base) is _STRIDED_BASE and not array.flags.writeable:
            base = base.base
        if type(base) is not np.ndarray:
            return False
        array, base = base, base.base
    return bool(array.flags.owndata)


class ExactLayout(NamedTuple):
    """One exact memory layout of an array.

    `low` and `high` bound the bytes around the first element; `group` is the layout class, which is
    independent of sizes; `entry` is the tape entry of a leaf of this layout, shared by all of them.
    """

    meta: int
    shape: Shape
    strides: tuple[int, ...]
    low: int
    high: int
    group: tuple
    entry: tuple[int, int]


# Interned values by id; `forget` empties these tables when sizes keep changing and no session is open.
METAS: list[Meta] = []
NBYTES: list[int] = []  # of each meta: a list, because every loop iteration reads it
_META_ID: dict[tuple[Shape, np.dtype], int] = {}
LAYOUTS: list[ExactLayout] = []
LAYOUT_ID: dict[tuple[np.dtype, Shape, tuple[int, ...]], int] = {}
_INTERNING = fork_safe_lock()


def meta_id(shape: Shape, dtype: np.dtype) -> int:
    """Return the id of (`shape`, `dtype`); index into `METAS`."""
    key = (shape, dtype)
    index = _META_ID.get(key)
    if index is None:
        meta = Meta(shape, dtype)
        with _INTERNING:
            index = _META_ID.get(key)
            if index is None:
                index = len(METAS)
                NBYTES.append(meta.nbytes)
                METAS.append(meta)
                _META_ID[key] = index
    return index


def layout_id(array: np.ndarray) -> int:
    """Return the id of the array's dtype, shape and strides; index into `LAYOUTS`."""
    key = (array.dtype, array.shape, array.strides)
    index = LAYOUT_ID.get(key)
    if index is None:
        dtype, shape, strides = key
        extents = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 1]
        low = sum(r for r in extents if r < 0)
        high = sum(r for r in extents if r > 0) + dtype.itemsize if 0 not in shape else low
        group = _layout_class(shape, strides, dtype.itemsize)
        meta = meta_id(shape, dtype)
        with _INTERNING:
            index = LAYOUT_ID.get(key)
            if index is None:
                index = len(LAYOUTS)
                LAYOUTS.append(ExactLayout(meta, shape, strides, low, high, group, (LEAF_OP, index)))
                LAYOUT_ID[key] = index
    return index


def _layout_class(shape: Shape, strides: tuple[int, ...], itemsize: int) -> tuple:
    """Return the layout class, on which plans may depend: C, Fortran, or order of axes and broadcast axes."""
    if _is_contiguous(shape, strides, itemsize):
        return ("C",)
    if _is_contiguous(shape[::-1], strides[::-1], itemsize):
        return ("F",)
    order = tuple(sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i)))
    return ("N", order, tuple(s == 0 for s in strides))


def _is_contiguous(shape: Shape, strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n > 1:
            if s != expected:
                return False
            expected *= n
    return True


class LayoutCache:
    """A cache from arrays that own their memory to (layout id, meta id), native once that is installed.

    `find(array)` returns the pair, or None on a miss; `add` then computes it in Python and caches it.
    """

    def __init__(self) -> None:
        self.find: Callable[[np.ndarray], tuple[int, int] | None] = _find_nothing
        self._remember: Callable[..., None] | None = None
        self._forget: Callable[[], None] = _do_nothing
        self._references: list[Any] = []
        self.generation = 0  # number of resets: each invalidates all ids
        self.resetting = False
        self.lock = fork_safe_lock()

    def reset(self, keep: int, in_use: Callable[[], bool]) -> None:
        """Drop all ids of layouts and metas but the first `keep`, unless they are in use.

        A thread that begins to use ids first registers itself with `in_use` and then, while `resetting`,
        waits for `lock`.
        """
        with self.lock:
            self.resetting = True
            try:
                if not in_use():
                    forget(keep)
                    self.generation += 1
            finally:
                self.resetting = False

    def install(self, find: Any, remember: Any, forget: Any) -> None:
        """Use a native hash table from now on."""
        self.find, self._remember, self._forget = find, remember, forget

    def add(self, array: np.ndarray) -> int:
        """Return the layout id of a traceable array, and cache it."""
        layout = layout_id(array)
        if self._remember is not None and len(array.shape) in range(1, 5):
            if len(self._references) >= 2 * MAX_CACHED_LAYOUTS:
                self.forget()
            entry = (layout, LAYOUTS[layout].meta)
            self._references += (entry, array.dtype)
            self._remember(array, entry)
        return layout

    def forget(self) -> None:
        """Empty the cache."""
        self._forget()
        self._references.clear()


MAX_CACHED_LAYOUTS = 2048  # half of the native table's slots, so that probe sequences stay short


def _find_nothing(array: np.ndarray) -> None:
    return None


def _do_nothing() -> None:
    return None


LAYOUT_CACHE = LayoutCache()


def forget(keep: int) -> None:
    """Drop all layouts, and all metas but the first `keep`; this invalidates their ids."""
    LAYOUT_CACHE.forget()
    for key in [k for k, i in _META_ID.items() if i >= keep]:
        del _META_ID[key]
    del METAS[keep:], NBYTES[keep:]
    LAYOUT_ID.clear()
    LAYOUTS.clear()


class Symbols:
    """Numbers sizes by first appearance: 0 and 1 stay literal, equal sizes share a symbol."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: dict[int, int] = {}

    def of(self, shape: Shape) -> tuple[int, ...]:
        """Return `shape` with each size above 1 replaced by minus (its symbol + 1)."""
        number = self.number
        return tuple(n if n < 2 else -1 - number.setdefault(n, len(number)) for n in shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes, by symbol."""
        return tuple(self.number)


LEAF = LEAF_OP
SCALAR = 1

# Names of operators by op id; operators that are registered later are appended.
OPS: list[str] = ["<leaf>", "<scalar>", *(op.name for op in all_ops() if op.kind is not Kind.LEAF)]
# For each op: whether it is element-wise.
CELLS: list[bool] = [
    False, False, *(op.kind is Kind.CELL for op in all_ops() if op.kind is not Kind.LEAF)]
OP_ID: dict[str, int] = {name: i for i, name in enumerate(OPS)}
_lock = fork_safe_lock()

# Kinds of scalars by operand code: Python's are weak (NEP 50), NumPy's have a dtype.
WEAK: tuple[type, ...] = (float, int, bool, complex)
STRONG: tuple[type, ...] = tuple(
    np.dtype(c).type for c in "?bhilBHILfdFD"
)
KIND_CODE: dict[type, int] = {t: -1 - k for k, t in enumerate((*WEAK, *STRONG))}
CODE_KIND: tuple[type, ...] = (*WEAK, *STRONG)
# Operand code of a strong scalar -> its meta id.
SCALAR_META = {KIND_CODE[t]: meta_id((), np.dtype(t)) for t in STRONG}

# Metas of scalar kinds, which stay for the life of the process; later ones may be dropped by `forget`.
OWN_METAS = len(METAS)

Entry = tuple[Any, ...]


class Block(NamedTuple):
    """The entries recorded between two materialisation points.

    `metas` has the meta id of each; `leaves` and `scalars` are the arrays and scalars by slot.
    """

    entries: tuple[Entry, ...]
    metas: tuple[int, ...]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any]
    # Places in user code that the entries come from, if they were recorded in this call.
    places: Places = Places()
    # Memo of `hops_of`; None: no memo, for blocks that stay in memory.
    hops: list[Hop] | None = None
    # Values of scalars, by number, that are literals of the plan.
    fixed: dict[int, Any] = {}


def hops_of(block: Block) -> list[Hop]:
    """Return the hop of every entry of `block`, in tape order."""
    if block.hops:
        return block.hops
    result: list[Hop] = []
    array_slot = 0
    scalar_slot = len(block.leaves)
    for index, entry in enumerate(block.entries):
        line = block.lines.get(index)
        op = entry[0]
        if op == LEAF:
            result.append(leaf(array_slot, METAS[LAYOUTS[entry[1]].meta], "array", line))
            array_slot += 1
        elif op == SCALAR:
            dtype = np.dtype(CODE_KIND[-1 - entry[1]])
            is_literal = len(entry) == 3
            result.append(const(entry[2], dtype, line) if is_literal
                        else leaf(scalar_slot, Meta((), dtype), "scalar", line))
            scalar_slot += 1
        else:
            refs, attrs = split_entry(entry)
            operands: list[Hop | WeakScalar] = []
            for ref in refs:
                if ref >= 0:
                    operands.append(result[ref])
                else:
                    value = block.fixed.get(scalar_slot - len(block.leaves))
                    operands.append(scalar_operand(ref, scalar_slot, line, value))
                    scalar_slot += 1
            result.append(apply(OPS[op], *operands, line=line, **{k: v for k, v in attrs if k != "within"}))
    if block.hops is not None:
        block.hops.extend(result)
    return result


def scalar_operand(code: int, slot: int, line: Any = None, value: Any = None) -> Hop | WeakScalar:
    """Return the operand for a scalar of kind `code` at leaf position `slot`; `value` if it is a literal."""
    kind = CODE_KIND[-1 - code]
    if kind in WEAK:
        return WeakScalar(slot, kind, value)
    return leaf(slot, Meta((), np.dtype(kind)), "scalar", line)


def register_op(op: OpSpec) -> int:
    """Return the op id of an element-wise operator; one that is new in the op table gets the next id."""
    with _lock:
        if op.name not in OP_ID:
            CELLS.append(True)
            OPS.append(op.name)
            OP_ID[op.name] = len(OPS) - 1
        return OP_ID[op.name]


def split_entry(entry: Entry) -> tuple[tuple[int, ...], tuple[tuple[str, Any], ...]]:
    """Return operand codes and attributes of an operator entry."""
    if type(entry[-1]) is tuple:
        return entry[1:-1], entry[-1]
    return entry[1:], ()


def scalars_of(entries: list[Entry]) -> int:
    """Return the number of scalars that belong to `entries`."""
    return sum(1 if e[0] == SCALAR else sum(r < 0 for r in split_entry(e)[0]) if e[0] > SCALAR else 0
               for e in entries)


def depends_on_slots(entries: tuple[Entry, ...], slots: set[int]) -> list[bool]:
    """Return for each entry whether its value depends on a leaf array in `slots`."""
    result: list[bool] = []
    slot = 0
    for entry in entries:
        if entry[0] == LEAF:
            result.append(slot in slots)
            slot += 1
        elif entry[0] == SCALAR:
            result.append(False)
        else:
            result.append(any(r >= 0 and result[r] for r in split_entry(entry)[0]))
    return result


def extract_subblock(block: Block, index: int) -> tuple[Block, tuple[int, ...], tuple[int, ...]]:
    """Return the backward slice of entry `index` as a block, and the numbers of its leaves and scalars."""
    wanted = set(backward_slice(block.entries, index))
    renumbered: dict[int, int] = {}
    entries: list[Entry] = []
    leaves: list[int] = []
    scalars: list[int] = []
    leaf = scalar = 0
    for i, entry in enumerate(block.entries):
        refs, attrs = split_entry(entry) if entry[0] > SCALAR else ((), ())
        count = 1 if entry[0] == SCALAR else sum(r < 0 for r in refs)
        if i in wanted:
            renumbered[i] = len(entries)
            if entry[0] > SCALAR:
                entry = (entry[0], *(renumbered.get(r, r) for r in refs), *((attrs,) if attrs else ()))
            entries.append(entry)
            leaves += [leaf] if entry[0] == LEAF else []
            scalars += range(scalar, scalar + count)
        leaf += entry[0] == LEAF
        scalar += count
    lines = {new: block.lines[old] for old, new in renumbered.items() if old in block.lines}
    subblock = Block(
        tuple(entries), tuple(block.metas[i] for i in renumbered), [block.leaves[k] for k in leaves],
        [block.scalars[k] for k in scalars], lines)
    return subblock, tuple(leaves), tuple(scalars)


def class_key(block: Block, *extra: Any) -> tuple[tuple, tuple[int, ...]]:
    """Return the size-independent key of `block`, extended by `extra`, and the sizes of its symbols.

    Two blocks with one key differ only in sizes other than 0 and 1, and in strides within one layout class;
    sizes that are equal in one are equal in the other.
    """
    symbols = Symbols()
    key: list[Any] = []
    for entry, meta in zip(block.entries, block.metas, strict=True):
        shape = symbols.of(METAS[meta].shape)
        if entry[0] == LEAF:
            layout = LAYOUTS[entry[1]]
            key.append((LEAF, METAS[meta].dtype.char, shape, layout.group))
        elif type(entry[-1]) is tuple and entry[-1] and entry[-1][0][0] == "shape":
            # An attribute that is a whole shape consists of sizes: the entry's symbolic shape replaces it.
            key.append((*entry[:-1], shape))
        else:
            key.append((entry, shape))
    key += [(number, repr(value)) for number, value in block.fixed.items()]
    return (tuple(key), *extra), symbols.sizes



def backward_slice(entries: tuple[Entry, ...], index: int) -> list[int]:
    """Return the indices, ascending, of entry `index` and the entries that it depends on."""
    wanted = {index}
    for i in range(index, -1, -1):
        if i in wanted and entries[i][0] > SCALAR:
            wanted.update(r for r in split_entry(entries[i])[0] if r >= 0)
    return sorted(wanted)


# Right identity of each operation, which preserves the sign of zeros too.
_NEUTRAL = {"add": -0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}

Attrs = tuple[tuple[str, Any], ...]


def store_cast(ufunc: Any, computed: np.dtype, target: np.dtype) -> Attrs | None:
    """Return the attributes of the cast that stores a result of `ufunc`; None: NumPy has to do it.

    A float64 result stored into float32 is cast by the ufunc itself: attribute "within" names it.
    """
    if computed is target or np.can_cast(computed, target, "safe" if computed.kind in "fc" else "same_kind"):
        return (("dtype", target),)
    if ufunc.__name__ in _NEUTRAL and computed == np.float64 and target == np.float32:
        return (("dtype", target), ("within", ufunc.__name__))
    return None


def casting_operation(attrs: Attrs) -> str | None:
    """Return the ufunc that a cast is part of, if any."""
    return next((value for name, value in attrs if name == "within"), None)


def ufunc_cast_call(operation: str, computed: Any, dtype: np.dtype) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return a call of ufunc `operation` that casts `computed` as the ufunc does when it stores a result.

    The other operand is the identity of the operation: only the cast has an effect, or gives a warning.
    """
    out = np.empty_like(computed, dtype=dtype)
    return getattr(np, operation), [computed, _NEUTRAL[operation]], {"out": out, "casting": "same_kind"}


def cast_as_ufunc(x: Any, dtype: np.dtype, within: str) -> Any:
    """Cast `x` as ufunc `within` does when it stores a result."""
    function, args, options = ufunc_cast_call(within, x, dtype)
    return function(*args, **options)


#: Stands for a value that was overwritten or freed.
UNAVAILABLE: Any = type("Unavailable", (), {})()

# Python's operator for each ufunc: on scalars it behaves differently from the ufunc.
OPERATORS = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift, np.equal: operator.eq,
    np.not_equal: operator.ne, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge, np.negative: operator.neg,
    np.positive: operator.pos, np.absolute: operator.abs, np.invert: operator.invert,
}
# The data pointer follows the object header of an ndarray.
_word_at, _HEADER = ctypes.c_size_t.from_address, object.__basicsize__
METHODS = frozenset({"sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "cumsum", "cumprod"})

#: Performs the call of an entry: (index of the entry, callable, arguments, keyword arguments) -> value.
Run = Callable[[int, Any, list[Any], dict[str, Any]], Any]


def evaluate_entries(
    entries: list[Entry] | tuple[Entry, ...], leaves: list[Any], scalars: list[Any],
    wanted: Container[int], called: Mapping[int, Any], run: Run,
) -> dict[int, Any]:
    """Return the values of the entries in `wanted`, each computed by ``run(entry, callable, args, kwargs)``.

    `called` has the NumPy callables that user code called by name; other entries are operators and methods.
    """
    values: dict[int, Any] = {}
    leaf, scalar = iter(leaves), iter(scalars)
    for i, entry in enumerate(entries):
        if entry[0] == LEAF or entry[0] == SCALAR:
            values[i] = next(leaf if entry[0] == LEAF else scalar)
            continue
        refs, attrs = split_entry(entry)
        args = [values.get(r) if r >= 0 else next(scalar) for r in refs]
        if i in wanted:
            operation = casting_operation(attrs)
            if operation and args[0] is not UNAVAILABLE:
                values[i] = run(i, *ufunc_cast_call(operation, args[0], dict(attrs)["dtype"]))
                continue
            function, arguments = numpy_call_of(OPS[entry[0]], args, called.get(i))
            values[i] = run(i, function, arguments, dict(attrs))
    return values


def numpy_call_of(name: str, args: list[Any], called: Any) -> tuple[Any, list[Any]]:
    """Return the callable by which user code performed operator `name`, and its arguments.

    The callable is C code or NumPy's, so that NumPy attributes warnings to the caller's line; None if it
    would be a method of an argument that is unavailable. `called` may belong to several entries, or to the
    operation that rematerialised a value of an earlier block.
    """
    op_spec = by_numpy(called) if called is not None else None
    if op_spec is None or op_spec.name != name:
        called = None
    if name in METHODS:
        return (called, args) if called is not None else (getattr(args[0], name, None), args[1:])
    if name == "cast":
        return getattr(type(args[0]), "astype", None), args
    op = lookup(name)
    if not op.numpy or not isinstance(op.numpy[0], np.ufunc):
        return (op.numpy[0] if name == "dot" else op.ref), args
    ufunc = op.numpy[0]
    if called is None and not any(isinstance(a, np.ndarray) for a in args):
        return OPERATORS.get(ufunc, ufunc), args
    return ufunc, args


def is_same_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays have the same elements in memory in the same order."""
    return (
        a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        and data_address(a) == data_address(b)
    )


def data_address(array: np.ndarray) -> int:
    """Return the address of the array's first element; `__array_interface__` takes thirty times as long."""
    return _word_at(id(array) + _HEADER).value


class AnnotatedTape(list[tuple]):
    """A tape that also records the user's line of each entry; used until the plans of a site are known."""

    def __init__(self, lines: dict[int, Any]) -> None:
        super().__init__()
        lines.clear()
        self.lines = lines
        self.places = Places(straight=True)
        self.codes: dict[int, CodeType] = {}

    def note_origin(self) -> None:
        """Record the place in user code of the entry that is appended next."""
        n = len(self)
        places = self.places
        frame, called = frames.origin()
        self.codes[n] = frame.f_code
        places[n] = place = place_of(frame, called)
        if places.straight:
            places.straight = frames.is_straight_line()
        self.lines[n] = place[:2]
