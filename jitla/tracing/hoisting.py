"""Hoisting of loop-invariant values out of blocks that a call runs repeatedly.

`HoistingState` watches the runs of one block: leaves and scalars that are the same in successive runs are
invariant. The values computed from them alone that are worth it are computed once (`HoistedExpression`), and
the remainder of the block is compiled into a program that takes them as inputs. A hoisted value is dropped
when memory that it was computed from is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.classes import dataclass
from jitla.config import TracingThresholds
from jitla.hops import FlagsRaised, Hop, Shape, numpy_seconds, replace_by_leaves
from jitla.tracing.fallback import Request
from jitla.tracing.fp_warnings import reported_flags
from jitla.tracing.frames import is_alone, thread_count
from jitla.tracing.guards import is_same
from jitla.tracing.site import Site, ignore_compilation, store_targets
from jitla.tracing.tape import (
    LAYOUTS,
    METAS,
    OPS,
    SCALAR,
    Block,
    class_key,
    data_address,
    extract_subblock,
    hops_of,
    layout_id,
)


class HoistingPolicy(NamedTuple):
    """Policy of hoisting, supplied by the engine.

    ``choose(request, same, named)`` returns those of the hops `named` that are worth hoisting if the leaves
    in the slots `same` are invariant; a call holds at most `max_bytes` bytes of hoisted values;
    `ignore_costs`: costs are ignored.
    """

    choose: Callable[[Request, Collection[int], tuple[Hop, ...]], tuple[Hop, ...]]
    max_bytes: int
    ignore_costs: bool


class HoistedExpression:
    """An expression that may be hoisted: the block that computes it, and statistics of its use."""

    __slots__ = ("block", "bound", "computations", "uses", "nbytes")

    def __init__(self, block: Block) -> None:
        self.block = block._replace(leaves=[], scalars=[])
        self.bound: Any = None
        self.computations = self.uses = self.nbytes = 0

    def compute(self, site: Site, leaves: list[Any], scalars: list[Any]) -> Any:
        """Compute the value for these leaves and scalars; raises `FlagsRaised` if it may warn."""
        if self.bound is None:
            block = self.block._replace(leaves=leaves, scalars=scalars)
            self.bound = site.program(block, (len(block.entries) - 1,), None)
        value = self.bound.run(leaves + scalars)[0]
        self.computations += 1
        self.nbytes = int(value.nbytes)
        return value

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return the operator, the shape, and the operators of the expression with the user's lines."""
        block = self.block
        lines = [(OPS[e[0]], block.lines.get(i)) for i, e in enumerate(block.entries) if e[0] > SCALAR]
        return lines[-1][0], METAS[block.metas[-1]].shape, lines


class Occurrence(NamedTuple):
    """Occurrence of a hoisted expression in a block: the leaves and scalars of the block that it reads."""

    expression: HoistedExpression
    leaves: tuple[int, ...]
    scalars: tuple[int, ...]


def find_hoistable(
    site: Site, block: Block, roots: tuple[int, ...], store: Any, same: Collection[int],
) -> dict[Hop, Occurrence]:
    """Return the hops of `block` worth hoisting if the leaves and scalars in slots `same` are invariant."""
    request = site.request(block, roots, *store_targets(roots, store))
    hops = hops_of(block)
    chosen: tuple[Hop, ...] = site.keeper.choose(request, same, tuple(hops))
    return {hop: _occurrence(site, block, hops.index(hop)) for hop in chosen}


def _occurrence(site: Site, block: Block, index: int) -> Occurrence:
    """Return the occurrence of entry `index`; blocks that compute the same value share its expression."""
    subblock, leaves, scalars = extract_subblock(block, index)
    expression = site.parts.get(subblock.entries)
    if expression is None:
        expression = site.parts[subblock.entries] = HoistedExpression(subblock)
    return Occurrence(expression, leaves, scalars)


def bind_remainder(
    site: Site, block: Block, roots: tuple[int, ...], store: Any, hoisted: Mapping[Hop, Any],
) -> Any:
    """Compile and bind the remainder of `block`, which takes `hoisted` values after leaves and scalars."""
    with site.lock:
        outs, aliases = store_targets(roots, store)
        request = site.request(block, roots, outs, aliases)
        first = len(block.leaves) + len(block.scalars)
        value_layouts = [LAYOUTS[layout_id(v)] if v.shape else None for v in hoisted.values()]
        layouts = {slot: (x.shape, x.strides)
                   for slot, x in enumerate(value_layouts, first) if x is not None}
        request = request._replace(
            roots=replace_by_leaves(request.roots, {h: slot for slot, h in enumerate(hoisted, first)}),
            layouts=request.layouts | layouts, tape=None)
        hops = hops_of(block)
        parts = tuple((hops.index(h), x and x.group) for h, x in zip(hoisted, value_layouts, strict=True))
        key, sizes = class_key(block, roots, outs, aliases, "given", parts)
        bound = site.compile(key, sizes, request.layouts, lambda: request, ignore_compilation)
        site.lines.setdefault(bound.program, (bound, {}))
        return bound


TOTAL_SECONDS = 2e-2  # estimated seconds of the runs of a block before it is split
MAX_SEARCHES = 24  # searches for invariants of a block
MAX_SPLITS = 4  # splits of a block
UNKNOWN, NEVER = -2, -1  # special values of `due`
# computations of a hoisted value from which on each has to be used so often on average
MIN_COMPUTATIONS, MIN_USES_PER_COMPUTATION = 4, 2


class HoistedValue(NamedTuple):
    """A hoisted value, and the inputs that it was computed from."""

    value: Any
    leaves: list[np.ndarray]
    addresses: list[int]
    scalars: list[Any]
    threads: int

    def reads(self, target: np.ndarray) -> bool:
        """Return whether the value was computed from memory of `target`."""
        return any(np.may_share_memory(target, leaf) for leaf in self.leaves)

    def is_valid_for(self, leaves: list[np.ndarray], scalars: list[Any], use: Occurrence) -> bool:
        """Return whether it is the value of `use` in a block with these leaves and scalars."""
        for slot, leaf, at in zip(use.leaves, self.leaves, self.addresses, strict=True):
            if leaves[slot] is not leaf and data_address(leaves[slot]) != at:
                return False
        return all(map(is_same, [scalars[k] for k in use.scalars], self.scalars))


@dataclass(slots=True)
class LastInputs:
    """The inputs that the last run of a block in this call read; holds no references to arrays."""

    addresses: dict[int, tuple[int, Any]]  # by slot: the address, and a reference to the array that owns it
    scalars: list[Any]

    def remove_owner(self, owner: Any) -> None:
        """Remove inputs in memory of `owner`, which is written; this only affects the prediction."""
        for slot in [k for k, (_, owner_ref) in self.addresses.items() if owner_ref() is owner]:
            del self.addresses[slot]


def invalidate_hoisted(hoisted: dict[Any, Any], target: np.ndarray | None) -> None:
    """Invalidate values computed from memory of `target`, which is about to be written (None: any memory)."""
    if target is None:
        hoisted.clear()
        return
    owner = owner_of(target)
    for key, entry in list(hoisted.items()):
        if type(entry) is LastInputs:
            entry.remove_owner(owner)
        elif entry.reads(target):
            del hoisted[key]


class HoistingState:
    """Hoisting in one block with one set of layouts: invariance of its inputs, and the split of the block."""

    __slots__ = ("searches_left", "due", "split", "varying", "splits_left")

    def __init__(self, due: int) -> None:
        self.due = due  # runs of the block before invariants are searched; UNKNOWN, NEVER
        self.searches_left = MAX_SEARCHES
        # The hoisted values and the bound program of the remainder: one tuple, replaced atomically.
        self.split: tuple[tuple[Occurrence, ...], Any] | None = None
        self.varying: set[int] = set()  # slots whose inputs were invariant only briefly
        self.splits_left = MAX_SPLITS

    @property
    def remainder(self) -> Any:
        """The bound program of the remainder, if the block is split."""
        split = self.split
        return None if split is None else split[1]

    def replace(self, bound: Any, better: Any) -> None:
        """Replace the program `bound` of the remainder by `better`."""
        if self.split is not None and self.split[1] is bound:
            self.split = self.split[0], better

    def run(self, session: Any, tape: Any, closed: Any, store: Any) -> tuple | None:
        """Run the remainder with hoisted values; return the values of the roots, None: run the whole block.

        Raises `FlagsRaised` if floating-point flags were raised.
        """
        split = self.split
        if split is None:
            if not session.site.is_settled(closed.bound):
                return None
            if self.due < 0:
                self._start_watching(session, tape, closed, store)
            if not 0 <= self.due <= closed.bound.count + 1:
                return None
            split = self._try_split(session, tape, closed, store)
            if split is None:
                return None
        remainder = split[1]
        if remainder in session.site.interim_replays:
            remainder.ask(True)
            if remainder.requested:  # until it is compiled, the whole block is faster
                return None
        leaves, scalars = tape.leaves, tape.scalars
        values: list[Any] = []
        for use in split[0]:
            stored = session.memory.hoisted.get(use.expression)
            if stored is None or stored.threads != thread_count() \
                    or not stored.is_valid_for(leaves, scalars, use):
                stored = self._compute_hoisted(session, tape, use, closed)
                if stored is None:
                    return None
            else:
                use.expression.uses += 1
            values.append(stored.value)
        try:
            outputs: tuple = remainder.run([*leaves, *scalars, *values])
        except FlagsRaised as hit:
            if reported_flags(hit.flags):
                closed.stop_watching(session.site)  # warnings need the whole block
            raise
        except Exception as error:
            closed.stop_watching(session.site)
            outputs = session.closer.run_by_numpy(tape, closed, store, error)
        return outputs

    def _start_watching(self, session: Any, tape: Any, closed: Any, store: Any) -> None:
        """Decide, when a block runs a second time, whether it is worth watching."""
        if closed.bound.count:
            self.due = runs_until_search(tape.block(), session.site.thresholds)
            if self.due < 0:
                closed.stop_watching(session.site)
        else:
            self._unchanged_slots(session, tape, store)

    def _try_split(
        self, session: Any, tape: Any, closed: Any, store: Any,
    ) -> tuple[tuple[Occurrence, ...], Any] | None:
        """Split the block by the inputs unchanged since the last run in this call; None: it is not split."""
        unchanged = self._unchanged_slots(session, tape, store)
        self.searches_left -= 1
        if self.searches_left < 0 or not self.splits_left:
            closed.stop_watching(session.site)
        if not unchanged or closed.hoisting_state is None or not is_alone():
            return None
        self.splits_left -= 1
        try:
            self.split = self._split_by(session, tape, closed, store, unchanged)
        except Exception as error:
            session.site.note_failure(error)
            closed.stop_watching(session.site)
            return None
        return self.split

    def _split_by(
        self, session: Any, tape: Any, closed: Any, store: Any, unchanged: set[int],
    ) -> tuple[tuple[Occurrence, ...], Any] | None:
        """Compute the values worth hoisting; return them and the program of the remainder, or None."""
        block, site = tape.block(), session.site
        occurrences = find_hoistable(site, block, closed.roots, store, unchanged)
        if not occurrences:
            closed.stop_watching(site)
            return None
        values = []
        for use in occurrences.values():
            hoisted = self._compute_hoisted(session, tape, use, closed)
            if hoisted is None:
                return None
            values.append(hoisted.value)
        values_by_hop = dict(zip(occurrences, values, strict=True))
        return tuple(occurrences.values()), bind_remainder(
            site, block, closed.roots, store, values_by_hop)

    def _unchanged_slots(self, session: Any, tape: Any, store: Any) -> set[int]:
        """Return the slots of leaves and scalars that are unchanged since the last run in this call."""
        leaves, scalars = tape.leaves, tape.scalars
        last = session.memory.hoisted.get(self)
        addresses = {slot: (data_address(x), ref(owner_of(x))) for slot, x in enumerate(leaves)}
        session.memory.hoisted[self] = LastInputs(addresses, list(scalars))
        if last is None:
            return set()
        unchanged = {k for k, (at, owner) in addresses.items()
                if k in last.addresses and last.addresses[k][0] == at and last.addresses[k][1]() is owner()}
        written = set() if store is None else {store.slot, *store.aliases}
        constant = {len(leaves) + k for k, (a, b) in enumerate(zip(scalars, last.scalars, strict=True))
                    if is_same(a, b)}
        unchanged -= written | self.varying
        return unchanged | constant if unchanged else unchanged

    def _compute_hoisted(self, session: Any, tape: Any, use: Occurrence, closed: Any) -> HoistedValue | None:
        """Compute and store a hoisted value; None: it cannot be hoisted, and the whole block has to run."""
        expression, site, hoisted = use.expression, session.site, session.memory.hoisted
        hoisted.pop(expression, None)
        if expression.computations >= MIN_COMPUTATIONS \
                and expression.uses < MIN_USES_PER_COMPUTATION * expression.computations:
            self.varying |= set(use.leaves)
            site.count_retired(self.remainder)
            self.split = None
            return None
        if not is_alone():
            return None
        leaves = [tape.leaves[k] for k in use.leaves]
        scalars = [tape.scalars[k] for k in use.scalars]
        try:
            value = expression.compute(site, leaves, scalars)
        except FlagsRaised:
            closed.stop_watching(site)  # it may warn, and has to do so in every run
            return None
        except Exception as error:
            site.note_failure(error)
            closed.stop_watching(site)
            return None
        if not _evict_until(hoisted, expression.nbytes, site.keeper.max_bytes):
            return None
        addresses = list(map(data_address, leaves))
        hoisted[expression] = stored = HoistedValue(value, leaves, addresses, scalars, thread_count())
        site.most_kept = max(site.most_kept, _hoisted_bytes(hoisted))
        return stored


def new_hoisting_state(site: Site) -> HoistingState | None:
    """Return the hoisting state of a new block, None if hoisting is off.

    Most blocks of changing sizes run once: nothing is computed about them before their second run.
    """
    return None if site.keeper is None else HoistingState(0 if site.keeper.ignore_costs else UNKNOWN)


def numpy_seconds_of(block: Block) -> float:
    """Return the estimated seconds of the operations of a block in NumPy, without call overhead."""
    return numpy_seconds(hops_of(block))


def runs_until_search(block: Block, thresholds: TracingThresholds) -> int:
    """Return the number of runs of a block before invariants are searched, or NEVER."""
    seconds = numpy_seconds_of(block)
    if seconds < thresholds.min_watched_seconds:
        return NEVER
    return 0 if seconds >= thresholds.min_split_seconds else int(TOTAL_SECONDS / seconds)


def owner_of(array: np.ndarray) -> Any:
    """Return the array that owns the memory of `array`, or is the last base of type ndarray."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _hoisted_bytes(hoisted: dict[Any, Any]) -> int:
    return sum(int(entry.value.nbytes) for entry in hoisted.values() if type(entry) is HoistedValue)


def _evict_until(hoisted: dict[Any, Any], nbytes: int, max_bytes: int) -> bool:
    """Evict the oldest hoisted values until `nbytes` of `max_bytes` are free; return whether they are."""
    for key in [k for k, entry in hoisted.items() if type(entry) is HoistedValue]:
        if _hoisted_bytes(hoisted) + nbytes <= max_bytes:
            break
        del hoisted[key]
    return _hoisted_bytes(hoisted) + nbytes <= max_bytes
