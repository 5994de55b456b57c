"""The tape of a session, to which operations are appended, and tapes detached from it for a run.

The hottest methods of `Tape` have native twins (`jitla.codegen.native.tape`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from jitla.hops import Shape
from jitla.tracing.fp_warnings import EntryHistory
from jitla.tracing.frames import Places
from jitla.tracing.lazy import LAZY, Lazy, LazyArray, LazyScalar
from jitla.tracing.tape import (
    CELLS,
    KIND_CODE,
    LAYOUTS,
    LEAF,
    METAS,
    OP_ID,
    OPS,
    SCALAR,
    SCALAR_META,
    AnnotatedTape,
    Block,
    ExactLayout,
    scalars_of,
)

_getrefcount = sys.getrefcount
_TAKE = OP_ID["take"]
_NEW_IN_C_ORDER = frozenset({"full", "dot"})
_C_ORDER_IF_OPERANDS = frozenset({"matmul", "getitem", "reshape", "ravel", "expand_dims", "squeeze"})

# The fields of a `DetachedTape` as a plain tuple, which is created in half the time, and the indices of some.
TapeParts: TypeAlias = tuple[
    list[tuple], list[Any], list[np.ndarray], list[Any], dict[int, Any] | None,
    dict[int, tuple[Lazy, Any, tuple]], dict[int, EntryHistory]]
ENTRIES: Final = 0
NODES: Final = 1
LEAVES: Final = 2
SCALARS: Final = 3
VIEWS: Final = 5


class DetachedTape(NamedTuple):
    """A tape detached from its session for a run; the proxies on it have no entry number any more."""

    ops: list[tuple]
    nodes: list[Any]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any] | None
    views: dict[int, tuple[Lazy, Any, tuple]]
    past: dict[int, EntryHistory]

    def block(self) -> Block:
        """Return the tape as a block."""
        ops, count = self.ops, len(self.ops)
        lines = {i: line for i, line in (self.lines or {}).items() if i < count}
        places = ops.places if type(ops) is AnnotatedTape else Places()
        return Block(tuple(ops), self.metas(), self.leaves, self.scalars, lines, places, [])

    def metas(self) -> tuple[int, ...]:
        """Return the meta of each entry."""
        return tuple([
            LAYOUTS[e[1]].meta if e[0] == LEAF else SCALAR_META[e[1]] if e[0] == SCALAR else n._m
            for e, n in zip(self.ops, self.nodes, strict=True)])

    def numbers(self) -> dict[int, int]:
        """Return the entry number of each proxy, by the id of the proxy."""
        return {id(node): i for i, node in enumerate(self.nodes) if type(node) in LAZY}


class ImmediateNodes(list[Any]):
    """The nodes of a tape whose entries are computed at once.

    For lists of this type the native methods call their Python twins.
    """

    __slots__ = ()


class Tape:
    """The open tape of a session: the operations recorded since the last materialisation point.

    `ops` are its entries, `nodes` the proxy of each, `leaves` and `scalars` the operands in memory, by slot,
    `entered` the proxies of leaves and scalars, `views` the entries that are views (parent, method,
    arguments), `past` the origins of rematerialised entries. `immediate`: each entry is computed at once,
    since floating-point errors may raise. Proxies of new entries belong to the session `owner`, which closes
    the block and computes values.

    Signal handlers and finalizers may interrupt every method wherever it calls a function or allocates, and
    may record operations themselves. State therefore changes in steps that neither call nor allocate.
    """

    __slots__ = ("owner", "ops", "nodes", "leaves", "scalars", "entered", "views", "past", "lines", "hole",
                 "immediate", "positions", "tables", "extremes", "running")

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.ops: list[tuple] = []
        self.nodes: list[Any] = []
        self.leaves: list[np.ndarray] = []
        self.scalars: list[Any] = []
        self.entered: list[Lazy] = []
        self.views: dict[int, tuple[Lazy, Any, tuple]] = {}
        self.past: dict[int, EntryHistory] = {}
        # The user's line of each entry; None: lines are not recorded.
        self.lines: dict[int, Any] | None = None
        self.hole = object()  # the node of leaves and scalars
        self.immediate = False
        # By identity of a key and length of the array it reads: the key, and a proxy of positions.
        self.positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]] = {}
        # By identity of an array that is read at positions: a separate proxy for these reads.
        self.tables: dict[int, LazyArray] = {}
        # By identity of an array of labels on the tape: its minimum and maximum.
        self.extremes: dict[int, tuple[int, int]] = {}
        # The tape that is being run.
        self.running: TapeParts | None = None

    # ------------------------------------------------------------------ recording

    def enter(self, proxy: Lazy) -> int:
        """Append a value that is in memory, or rematerialisable, to the tape; return its entry."""
        value = proxy._v
        if value is None:
            closer = self.owner.closer
            if proxy._r is not None:
                entry: int = closer.rematerialise(proxy)
                return entry
            value = closer.compute_separately(proxy)  # it is being computed: this code interrupts that
        if type(proxy) is LazyScalar:
            code = SCALAR, KIND_CODE[type(value)]
            proxy._n = n = self.append(code, self.hole, scalars=(value,), entered=(proxy,))
            return n
        proxy._n = n = self.append(LAYOUTS[proxy._l].entry, self.hole, leaves=(value,), entered=(proxy,))
        return n

    def append(
        self, entry: tuple, node: Any, scalars: tuple = (), leaves: tuple = (), entered: tuple = (),
    ) -> int:
        """Append an entry to the tape, with its node, scalars and leaves; return its number.

        Signal handlers, and finalizers run by the garbage collector, may record operations themselves
        wherever Python calls a function or allocates: the lists grow by statements that do neither.
        """
        ops, nodes = self.ops, self.nodes
        if type(ops) is AnnotatedTape:
            ops.note_origin()
        entries, also = (entry,), (node,)
        # Nothing is called from here on, so that nothing interrupts it.
        ops += entries
        nodes += also
        self.scalars += scalars
        self.leaves += leaves
        self.entered += entered
        return len(ops) - 1

    def leave(self) -> None:
        """Take the entered values off the tape: their proxies have no entry number any more."""
        for p in self.entered:
            p._n = -1

    def put(self, kind: type[Lazy], entry: tuple, meta: int, *scalars: Any) -> Lazy:
        """Append `entry` and its scalars to the tape; return the proxy of its value, of type `kind`."""
        proxy = kind()
        proxy._s = self.owner
        proxy._m = meta
        proxy._v = proxy._r = None
        proxy._n = n = self.append(entry, proxy, scalars)
        if self.immediate:
            self.owner.closer.perform_now(proxy, n)
        return proxy

    # ------------------------------------------------------------------ the end of a block

    def repeats(self, entries: tuple, references: tuple) -> bool:
        """Return whether the tape consists of `entries`, with these reference counts of the nodes."""
        counts = tuple(map(_getrefcount, self.nodes))
        ops = tuple(self.ops)
        # Hashes are compared first: only if they are equal can attributes be compared safely.
        return references == counts and hash(entries) == hash(ops) and entries == ops

    def detach(self, count: int, alive: Iterable[int]) -> TapeParts:
        """Detach what is on the tape, `count` entries, and begin an empty block.

        `alive` are the entries whose proxies may be referenced. Code that interrupts this sees the tape as
        it was, or an empty one.
        """
        self.leave()
        nodes, views, past, lines = self.nodes, self.views, self.past, self.lines
        for i in alive:
            nodes[i]._n = -1
        ops: list[tuple] = []
        if lines is not None:
            lines = dict(lines)
            ops = self._empty()
        empty: list[Any] = ImmediateNodes() if self.immediate else []
        parts = self.ops, nodes, self.leaves, self.scalars, lines, views, past
        while nodes[count:]:  # `len` would be a call, after which code can interrupt
            self._truncate(count)
        # Nothing is called from here on, so that nothing interrupts it.
        self.running = parts
        self.ops, self.nodes = ops, empty
        self.leaves, self.scalars, self.entered = [], [], []
        if views:
            self.views = {}
        if past:
            self.past = {}
        if self.positions or self.tables or self.extremes:
            self.positions, self.tables, self.extremes = {}, {}, {}
        return parts

    def _truncate(self, count: int) -> None:
        """Compute and drop the entries that interrupting code has recorded after the first `count`."""
        entries = self.ops[:count]
        leaves, scalars = sum([e[0] == LEAF for e in entries]), scalars_of(entries)
        self.owner.closer.settle_interrupted(None)
        for p in self.entered:
            p._n = -1
        for i in [i for i in self.views if i >= count]:
            del self.views[i]
        # Nothing is called from here on, so that nothing interrupts it.
        del self.ops[count:], self.nodes[count:], self.leaves[leaves:], self.scalars[scalars:]

    def forget(self) -> None:
        """Drop the leaves of a block that has no operations."""
        if self.nodes:
            self.reset()

    def reset(self) -> None:
        """Begin an empty block; compute values that interrupting code has recorded meanwhile."""
        ops: list[tuple] = self._empty()
        nodes: list[Any] = ImmediateNodes() if self.immediate else []
        if len(self.nodes) > len(self.entered):
            self.owner.closer.settle_interrupted(None)
        for p in self.entered:  # including those that interrupting code has added
            p._n = -1
        # Nothing is called from here on, so that nothing interrupts it.
        self.ops, self.nodes = ops, nodes
        self.leaves = []
        self.scalars = []
        self.entered = []
        if self.views:
            self.views = {}
        if self.past:
            self.past = {}
        if self.positions or self.tables or self.extremes:
            self.positions, self.tables, self.extremes = {}, {}, {}

    def _empty(self) -> list[tuple]:
        return [] if self.lines is None else AnnotatedTape(self.lines)

    # ------------------------------------------------------------------ properties of pending values

    def has_pending_views(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending view or has pending views."""
        if not self.views:
            return False
        return array._n in self.views or any(v[0] is array for v in self.views.values())

    def source(self, array: LazyArray) -> np.ndarray | None:
        """Return the array in memory whose elements `array` has; None if they are computed."""
        if array._v is None and array._n >= 0:
            entry = self.ops[array._n]
            return next((t._v for t in self.tables.values() if entry[0] == _TAKE and t._n == entry[1]), None)
        memory: np.ndarray | None = array._v
        return memory

    def is_pending_gather_view(self, array: LazyArray) -> bool:
        """Return whether `array` is a pending gather whose NumPy result would be a view of other memory."""
        entry = self.ops[array._n] if array._n >= 0 else ()
        return len(entry) > 3 and entry[0] == _TAKE

    def reads_c_order(self, other: Any) -> bool:
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
