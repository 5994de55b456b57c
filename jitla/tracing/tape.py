"""The tape of recorded operations: entries, layouts and metadata, and blocks made of them."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Container, Mapping
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jitla.concurrency import relock
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


class Same(frozenset[np.dtype]):
    """A set of dtypes; what has metadata or is of another C type is equal to one, but not the same."""

    def __contains__(self, dtype: Any) -> bool:
        return id(dtype) in _TRACED_IDS or (
            super().__contains__(dtype) and dtype.char in _TRACED_CHARS and dtype.metadata is None)


# The dtypes that are traced; everything else stays with NumPy.
TRACED = Same(np.dtype(t) for t in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "f4", "f8",
    "c8", "c16"))
_TRACED_IDS = frozenset(map(id, TRACED))
_BOOL = np.dtype(bool)
_TRACED_CHARS = frozenset(dtype.char for dtype in TRACED)
INTEGRAL = frozenset("biu")
# What an entry of the tape that is an array in memory begins with.
LEAF_OP = 0
# What holds the memory of arrays that NumPy makes of strides: windows.
_HELD = type(np.lib.stride_tricks.as_strided(np.empty(1)).base)


def is_traced(shape: Shape, dtype: np.dtype) -> bool:
    """Tell whether arrays like this may be proxies.

    Empty masks may not: as an index of an array that is none, NumPy takes empty objects for integers.
    """
    return dtype in TRACED and (dtype is not _BOOL or 0 not in shape)


def owns_memory(array: np.ndarray) -> bool:
    """Say whether the memory belongs to an ndarray, so that it cannot disappear under the tracer.

    Windows that are written to may overlap themselves: these are left to NumPy.
    """
    base = array.base
    while base is not None:
        if type(base) is _HELD and not array.flags.writeable:
            base = base.base
        if type(base) is not np.ndarray:
            return False
        array, base = base, base.base
    return bool(array.flags.owndata)


class Layout(NamedTuple):
    """One exact memory layout: its meta id, shape, strides, byte extent, size-free class, and entry."""

    meta: int
    shape: Shape
    strides: tuple[int, ...]
    low: int
    high: int
    group: tuple
    entry: tuple[int, int]


# Interned; `forget` empties all when sizes keep changing and no session is open.
METAS: list[Meta] = []
NBYTES: list[int] = []  # of each meta: every turn of every loop asks
_META_ID: dict[tuple[Shape, np.dtype], int] = {}
LAYOUTS: list[Layout] = []
LAYOUT_ID: dict[tuple[np.dtype, Shape, tuple[int, ...]], int] = {}
_INTERNING = relock()


def meta_id(shape: Shape, dtype: np.dtype) -> int:
    """Return the id of (`shape`, `dtype`); index into `METAS`."""
    key = (shape, dtype)
    found = _META_ID.get(key)
    if found is None:
        meta = Meta(shape, dtype)
        with _INTERNING:
            found = _META_ID.get(key)
            if found is None:
                found = len(METAS)
                NBYTES.append(meta.nbytes)
                METAS.append(meta)
                _META_ID[key] = found
    return found


def layout_id(array: np.ndarray) -> int:
    """Return the id of the array's dtype, shape and strides; index into `LAYOUTS`."""
    key = (array.dtype, array.shape, array.strides)
    found = LAYOUT_ID.get(key)
    if found is None:
        dtype, shape, strides = key
        reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 1]
        low = sum(r for r in reach if r < 0)
        high = sum(r for r in reach if r > 0) + dtype.itemsize if 0 not in shape else low
        group = _group(shape, strides, dtype.itemsize)
        meta = meta_id(shape, dtype)
        with _INTERNING:
            found = LAYOUT_ID.get(key)
            if found is None:
                found = len(LAYOUTS)
                LAYOUTS.append(Layout(meta, shape, strides, low, high, group, (LEAF_OP, found)))
                LAYOUT_ID[key] = found
    return found


def _group(shape: Shape, strides: tuple[int, ...], itemsize: int) -> tuple:
    """The part of a layout a plan may depend on: C or Fortran order, else axis order and repeats."""
    if _packed(shape, strides, itemsize):
        return ("C",)
    if _packed(shape[::-1], strides[::-1], itemsize):
        return ("F",)
    order = tuple(sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i)))
    return ("N", order, tuple(s == 0 for s in strides))


def _packed(shape: Shape, strides: tuple[int, ...], itemsize: int) -> bool:
    expected = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n == 0:
            return True
        if n > 1:
            if s != expected:
                return False
            expected *= n
    return True


class Sight:
    """Recognises the layouts of arrays that own their memory; natively, once that is installed.

    `find(array)` returns (layout id, meta id), or None: then `see` looks with Python and remembers.
    """

    def __init__(self) -> None:
        self.find: Callable[[np.ndarray], tuple[int, int] | None] = _nothing_found
        self._remember: Callable[..., None] | None = None
        self._forget: Callable[[], None] = _nothing_to_do
        self._held: list[Any] = []
        # Ids given out before the last `reset` mean nothing any more.
        self.generation = 0
        self.resetting = False
        self.lock = relock()

    def reset(self, keep: int, in_use: Callable[[], bool]) -> None:
        """Forget all ids of layouts and metas but the first `keep`, unless they are in use.

        Whoever begins to use ids says so first and then, if `resetting`, waits for `lock`.
        """
        with self.lock:
            self.resetting = True
            try:
                if not in_use():
                    forget(keep)
                    self.generation += 1
            finally:
                self.resetting = False

    def use(self, find: Any, remember: Any, forget: Any) -> None:
        """Use a native table."""
        self.find, self._remember, self._forget = find, remember, forget

    def see(self, array: np.ndarray) -> int:
        """Return the layout id of a traceable array."""
        layout = layout_id(array)
        if self._remember is not None and len(array.shape) in range(1, 5):
            if len(self._held) >= 2 * _SEEN:
                self.forget()
            found = (layout, LAYOUTS[layout].meta)
            self._held += (found, array.dtype)
            self._remember(array, found)
        return layout

    def forget(self) -> None:
        """Recognise nothing."""
        self._forget()
        self._held.clear()


_SEEN = 2048  # half of the native table's slots


def _nothing_found(array: np.ndarray) -> None:
    return None


def _nothing_to_do() -> None:
    return None


SIGHT = Sight()


def forget(keep: int) -> None:
    """Drop all layouts and all metas but the first `keep`; ids given out before mean nothing any more."""
    SIGHT.forget()
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
        """The sizes seen, by symbol."""
        return tuple(self.number)


LEAF = LEAF_OP
SCALAR = 1

# Entries of the op table that are made later follow.
OPS: list[str] = ["<leaf>", "<scalar>", *(op.name for op in all_ops() if op.kind is not Kind.LEAF)]
# For each op: whether it is element-wise.
CELLS: list[bool] = [
    False, False, *(op.kind is Kind.CELL for op in all_ops() if op.kind is not Kind.LEAF)]
OP_ID: dict[str, int] = {name: i for i, name in enumerate(OPS)}
_lock = relock()

# Operand codes of scalars: Python kinds are weak, NumPy kinds have their dtype.
WEAK: tuple[type, ...] = (float, int, bool, complex)
STRONG: tuple[type, ...] = tuple(
    np.dtype(c).type for c in "?bhilBHILfdFD"
)
KIND_CODE: dict[type, int] = {t: -1 - k for k, t in enumerate((*WEAK, *STRONG))}
CODE_KIND: tuple[type, ...] = (*WEAK, *STRONG)
# Operand code of a strong scalar -> its meta id.
SCALAR_META = {KIND_CODE[t]: meta_id((), np.dtype(t)) for t in STRONG}

# The ids above belong to the process; those of sizes that users bring may be forgotten.
OWN_METAS = len(METAS)

Entry = tuple[Any, ...]


class Block(NamedTuple):
    """A closed stretch of tape: entries, the meta of each, leaf arrays and scalars in slot order."""

    entries: tuple[Entry, ...]
    metas: tuple[int, ...]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any]
    # Where entries come from in this call, if it was noted.
    places: Places = Places()
    # The hops of the entries, once they were asked for; a block that is kept keeps none.
    hops: list[Hop] | None = None
    # Scalars, by number, whose values are part of the plan.
    fixed: dict[int, Any] = {}


def hops_of(block: Block) -> list[Hop]:
    """Return the hop of every entry of `block`, in tape order."""
    if block.hops:
        return block.hops
    made: list[Hop] = []
    array_slot = 0
    scalar_slot = len(block.leaves)
    for index, entry in enumerate(block.entries):
        line = block.lines.get(index)
        op = entry[0]
        if op == LEAF:
            made.append(leaf(array_slot, METAS[LAYOUTS[entry[1]].meta], "array", line))
            array_slot += 1
        elif op == SCALAR:
            dtype = np.dtype(CODE_KIND[-1 - entry[1]])
            known = len(entry) == 3
            made.append(const(entry[2], dtype, line) if known
                        else leaf(scalar_slot, Meta((), dtype), "scalar", line))
            scalar_slot += 1
        else:
            refs, attrs = split(entry)
            operands: list[Hop | WeakScalar] = []
            for ref in refs:
                if ref >= 0:
                    operands.append(made[ref])
                else:
                    value = block.fixed.get(scalar_slot - len(block.leaves))
                    operands.append(scalar_operand(ref, scalar_slot, line, value))
                    scalar_slot += 1
            made.append(apply(OPS[op], *operands, line=line, **{k: v for k, v in attrs if k != "within"}))
    if block.hops is not None:
        block.hops.extend(made)
    return made


def scalar_operand(code: int, slot: int, line: Any = None, value: Any = None) -> Hop | WeakScalar:
    """Return the operand for a scalar of operand code `code` at leaf position `slot`, of a value if known."""
    kind = CODE_KIND[-1 - code]
    if kind in WEAK:
        return WeakScalar(slot, kind, value)
    return leaf(slot, Meta((), np.dtype(kind)), "scalar", line)


def enroll(op: OpSpec) -> int:
    """Return the number of an element-wise operator, which may be new in the op table."""
    with _lock:
        if op.name not in OP_ID:
            CELLS.append(True)
            OPS.append(op.name)
            OP_ID[op.name] = len(OPS) - 1
        return OP_ID[op.name]


def split(entry: Entry) -> tuple[tuple[int, ...], tuple[tuple[str, Any], ...]]:
    """Return operand codes and attributes of an operator entry."""
    if type(entry[-1]) is tuple:
        return entry[1:-1], entry[-1]
    return entry[1:], ()


def scalars_of(entries: list[Entry]) -> int:
    """Return how many scalars entries have."""
    return sum(1 if e[0] == SCALAR else sum(r < 0 for r in split(e)[0]) if e[0] > SCALAR else 0
               for e in entries)


def readers(entries: tuple[Entry, ...], slots: set[int]) -> list[bool]:
    """Say for each entry whether its value depends on a leaf array in `slots`."""
    result: list[bool] = []
    slot = 0
    for entry in entries:
        if entry[0] == LEAF:
            result.append(slot in slots)
            slot += 1
        elif entry[0] == SCALAR:
            result.append(False)
        else:
            result.append(any(r >= 0 and result[r] for r in split(entry)[0]))
    return result


def excerpt(block: Block, index: int) -> tuple[Block, tuple[int, ...], tuple[int, ...]]:
    """Return the block of entry `index`, its last, and what that reads; which leaves and scalars it has."""
    wanted = set(cone(block.entries, index))
    moved: dict[int, int] = {}
    entries: list[Entry] = []
    leaves: list[int] = []
    scalars: list[int] = []
    leaf = scalar = 0
    for i, entry in enumerate(block.entries):
        refs, attrs = split(entry) if entry[0] > SCALAR else ((), ())
        count = 1 if entry[0] == SCALAR else sum(r < 0 for r in refs)
        if i in wanted:
            moved[i] = len(entries)
            if entry[0] > SCALAR:
                entry = (entry[0], *(moved.get(r, r) for r in refs), *((attrs,) if attrs else ()))
            entries.append(entry)
            leaves += [leaf] if entry[0] == LEAF else []
            scalars += range(scalar, scalar + count)
        leaf += entry[0] == LEAF
        scalar += count
    lines = {new: block.lines[old] for old, new in moved.items() if old in block.lines}
    made = Block(
        tuple(entries), tuple(block.metas[i] for i in moved), [block.leaves[k] for k in leaves],
        [block.scalars[k] for k in scalars], lines)
    return made, tuple(leaves), tuple(scalars)


def class_key(block: Block, *rest: Any) -> tuple[tuple, tuple[int, ...]]:
    """Return the size-free key of `block` plus `rest`, and the sizes of its symbols.

    Two blocks with one key differ only in sizes that are neither 0 nor 1 and in strides within one
    layout class; equal sizes in one are equal in the other.
    """
    symbols = Symbols()
    keyed: list[Any] = []
    for entry, meta in zip(block.entries, block.metas, strict=True):
        shape = symbols.of(METAS[meta].shape)
        if entry[0] == LEAF:
            layout = LAYOUTS[entry[1]]
            keyed.append((LEAF, METAS[meta].dtype.char, shape, layout.group))
        elif type(entry[-1]) is tuple and entry[-1] and entry[-1][0][0] == "shape":
            # A whole shape as attribute is derived from sizes: the node's own shape stands for it.
            keyed.append((*entry[:-1], shape))
        else:
            keyed.append((entry, shape))
    keyed += [(number, repr(value)) for number, value in block.fixed.items()]
    return (tuple(keyed), *rest), symbols.sizes


class Recipe(NamedTuple):
    """How to compute values of a closed block that were not written to memory."""

    block: Block


def cone(entries: tuple[Entry, ...], index: int) -> list[int]:
    """Return the indices of the entries that entry `index` depends on, itself included, ascending."""
    wanted = {index}
    for i in range(index, -1, -1):
        if i in wanted and entries[i][0] > SCALAR:
            wanted.update(r for r in split(entries[i])[0] if r >= 0)
    return sorted(wanted)


# With what an operation changes nothing, not even the sign of a zero.
_NEUTRAL = {"add": -0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}

Attrs = tuple[tuple[str, Any], ...]


def conversion(ufunc: Any, made: np.dtype, known: np.dtype) -> Attrs | None:
    """Return the attributes of the cast that stores what `ufunc` made; None if that is NumPy's business."""
    if made is known or np.can_cast(made, known, "safe" if made.kind in "fc" else "same_kind"):
        return (("dtype", known),)
    if ufunc.__name__ in _NEUTRAL and made == np.float64 and known == np.float32:
        return (("dtype", known), ("within", ufunc.__name__))
    return None


def within(attrs: Attrs) -> str | None:
    """Return the operation that a cast is part of."""
    return next((value for name, value in attrs if name == "within"), None)


def stored(operation: str, made: Any, dtype: np.dtype) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return the call that casts what `operation` made as that does when it stores it."""
    out = np.empty_like(made, dtype=dtype)
    return getattr(np, operation), [made, _NEUTRAL[operation]], {"out": out, "casting": "same_kind"}


def narrowed(x: Any, dtype: np.dtype, within: str) -> Any:
    """Cast as the operation does that stores what it made."""
    function, args, options = stored(within, x, dtype)
    return function(*args, **options)


#: In place of a value that nobody has any more.
LOST: Any = type("Lost", (), {})()

# Operators whose form on scalars and arrays differs from the ufunc.
OPERATORS = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod,
    np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift, np.right_shift: operator.rshift, np.equal: operator.eq,
    np.not_equal: operator.ne, np.less: operator.lt, np.less_equal: operator.le,
    np.greater: operator.gt, np.greater_equal: operator.ge, np.negative: operator.neg,
    np.positive: operator.pos, np.absolute: operator.abs, np.invert: operator.invert,
}
# The address follows an array object's header.
_number_at, _HEADER = ctypes.c_size_t.from_address, object.__basicsize__
METHODS = frozenset({"sum", "prod", "min", "max", "any", "all", "mean", "var", "std", "cumsum", "cumprod"})

#: What is handed a call: the entry's index, the callable, its arguments.
Run = Callable[[int, Any, list[Any], dict[str, Any]], Any]


def enact(
    entries: list[Entry] | tuple[Entry, ...], leaves: list[Any], scalars: list[Any],
    wanted: Container[int], called: Mapping[int, Any], run: Run,
) -> dict[int, Any]:
    """Return the values of the entries in `wanted`, each from ``run(entry, callable, args, kwargs)``.

    `called` holds the NumPy callables that the user's code named; other entries are operators and
    methods.
    """
    values: dict[int, Any] = {}
    leaf, scalar = iter(leaves), iter(scalars)
    for i, entry in enumerate(entries):
        if entry[0] == LEAF or entry[0] == SCALAR:
            values[i] = next(leaf if entry[0] == LEAF else scalar)
            continue
        refs, attrs = split(entry)
        args = [values.get(r) if r >= 0 else next(scalar) for r in refs]
        if i in wanted:
            part = within(attrs)
            if part and args[0] is not LOST:
                values[i] = run(i, *stored(part, args[0], dict(attrs)["dtype"]))
                continue
            function, rest = spelled(OPS[entry[0]], args, called.get(i))
            values[i] = run(i, function, rest, dict(attrs))
    return values


def spelled(name: str, args: list[Any], called: Any) -> tuple[Any, list[Any]]:
    """Return how the user's code called operator `name`: the callable, and its arguments.

    The callable is C code or NumPy's, so that the caller's line is the one NumPy finds; None if an
    argument that it would be a method of is lost. `called` may stand for more than this entry, or for
    what made a value of an earlier block pending again.
    """
    meant = by_numpy(called) if called is not None else None
    if meant is None or meant.name != name:
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


def same_view(a: np.ndarray, b: np.ndarray) -> bool:
    """Say whether two arrays are the same elements in the same order."""
    return (
        a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype
        and address(a) == address(b)
    )


def address(array: np.ndarray) -> int:
    """Return where the array's first element lies: what NumPy says with a dictionary, thirty times faster."""
    return _number_at(id(array) + _HEADER).value


class Learning(list[tuple]):
    """A tape that also notes the user's line of each entry, until a site's plans are known."""

    def __init__(self, lines: dict[int, Any]) -> None:
        super().__init__()
        lines.clear()
        self.lines = lines
        self.places = Places(straight=True)
        self.codes: dict[int, CodeType] = {}

    def note(self) -> None:
        """Note where the entry that is appended next comes from."""
        n = len(self)
        places = self.places
        frame, called = frames.origin()
        self.codes[n] = frame.f_code
        places[n] = place = place_of(frame, called)
        if places.straight:
            places.straight = frames.is_straight()
        self.lines[n] = place[:2]
