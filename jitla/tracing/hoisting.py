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
from jitla.hops import FlagsRaised, Hop, Shape, numpy_seconds, replace_by_leaves
from jitla.tracing.fallback import Request
from jitla.tracing.fp_warnings import audible
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


class Keeper(NamedTuple):
    """Policy of hoisting, supplied by the engine.

    ``choose(request, same, named)`` returns those of the hops `named` that are worth hoisting if the leaves
    in the slots `same` are invariant; a call holds at most `room` bytes of hoisted values; `every`: costs are
    ignored. ``watch(arrays)`` returns a callable that detects later writes to the arrays, None where the
    system cannot; ``ready()`` loads SciPy's sparse matrices, the fallback of compressed rows until a program
    is compiled.
    """

    choose: Callable[[Request, Collection[int], tuple[Hop, ...]], tuple[Hop, ...]]
    room: int
    every: bool
    watch: Callable[[tuple[Any, ...]], Any]
    ready: Callable[[], Any]


class Part:
    """An expression that may be hoisted: the block that computes it, and statistics of its use."""

    __slots__ = ("block", "bound", "made", "used", "nbytes")

    def __init__(self, block: Block) -> None:
        self.block = block._replace(leaves=[], scalars=[])
        self.bound: Any = None
        self.made = self.used = self.nbytes = 0

    def compute(self, site: Site, leaves: list[Any], scalars: list[Any]) -> Any:
        """Compute the value for these leaves and scalars; raises `FlagsRaised` if it may warn."""
        if self.bound is None:
            block = self.block._replace(leaves=leaves, scalars=scalars)
            self.bound = site.program(block, (len(block.entries) - 1,), None)
        value = self.bound.run(leaves + scalars)[0]
        self.made += 1
        self.nbytes = int(value.nbytes)
        return value

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return the operator, the shape, and the operators of the expression with the user's lines."""
        block = self.block
        lines = [(OPS[e[0]], block.lines.get(i)) for i, e in enumerate(block.entries) if e[0] > SCALAR]
        return lines[-1][0], METAS[block.metas[-1]].shape, lines


class Use(NamedTuple):
    """Occurrence of a hoisted expression in a block: the leaves and scalars of the block that it reads."""

    part: Part
    leaves: tuple[int, ...]
    scalars: tuple[int, ...]


def divided(
    site: Site, block: Block, roots: tuple[int, ...], store: Any, same: Collection[int],
) -> dict[Hop, Use]:
    """Return the hops of `block` worth hoisting if the leaves and scalars in slots `same` are invariant."""
    request = site.request(block, roots, *store_targets(roots, store))
    hops = hops_of(block)
    found: tuple[Hop, ...] = site.keeper.choose(request, same, tuple(hops))
    return {hop: _use(site, block, hops.index(hop)) for hop in found}


def _use(site: Site, block: Block, index: int) -> Use:
    """Return the occurrence of entry `index`; blocks that compute the same value share its expression."""
    taken, leaves, scalars = extract_subblock(block, index)
    part = site.parts.get(taken.entries)
    if part is None:
        part = site.parts[taken.entries] = Part(taken)
    return Use(part, leaves, scalars)


def rest(site: Site, block: Block, roots: tuple[int, ...], store: Any, kept: Mapping[Hop, Any]) -> Any:
    """Compile and bind the remainder of `block`, which takes the values `kept` after leaves and scalars."""
    with site.lock:
        outs, aliases = store_targets(roots, store)
        request = site.request(block, roots, outs, aliases)
        first = len(block.leaves) + len(block.scalars)
        known = [LAYOUTS[layout_id(v)] if v.shape else None for v in kept.values()]
        layouts = {slot: (x.shape, x.strides) for slot, x in enumerate(known, first) if x is not None}
        request = request._replace(
            roots=replace_by_leaves(request.roots, {h: slot for slot, h in enumerate(kept, first)}),
            layouts=request.layouts | layouts, tape=None)
        hops = hops_of(block)
        parts = tuple((hops.index(h), x and x.group) for h, x in zip(kept, known, strict=True))
        key, sizes = class_key(block, roots, outs, aliases, "given", parts)
        made = site.compile(key, sizes, request.layouts, lambda: request, ignore_compilation)
        site.lines.setdefault(made.program, (made, {}))
        return made


# Estimated seconds of a run: blocks below the first are not watched, those from the second on are split at
# once, and others after runs that take the third in total.
LITTLE, SOON, PATIENCE = 5e-6, 5e-4, 2e-2
MOST_TRIES = 24  # searches for invariants of a block
MOST_DIVISIONS = 4  # splits of a block
UNKNOWN, NEVER = -2, -1  # special values of `due`
ENOUGH, TWICE = 4, 2  # computations of a hoisted value from which on each has to be used so often on average


class Held(NamedTuple):
    """A hoisted value, and the inputs that it was computed from."""

    value: Any
    leaves: list[np.ndarray]
    places: list[int]
    scalars: list[Any]
    threads: int

    def reads(self, target: np.ndarray) -> bool:
        """Return whether the value was computed from memory of `target`."""
        return any(np.may_share_memory(target, leaf) for leaf in self.leaves)

    def holds(self, leaves: list[np.ndarray], scalars: list[Any], use: Use) -> bool:
        """Return whether it is the value of `use` in a block with these leaves and scalars."""
        for slot, mine, place in zip(use.leaves, self.leaves, self.places, strict=True):
            if leaves[slot] is not mine and data_address(leaves[slot]) != place:
                return False
        return all(map(is_same, [scalars[k] for k in use.scalars], self.scalars))


@dataclass(slots=True)
class Note:
    """The inputs that the last run of a block in this call read; holds no references to arrays."""

    places: dict[int, tuple[int, Any]]  # by slot: the address, and a reference to the array that owns it
    scalars: list[Any]

    def forget(self, owner: Any) -> None:
        """Remove inputs in memory of `owner`, which is written; this only affects the prediction."""
        for slot in [k for k, (_, known) in self.places.items() if known() is owner]:
            del self.places[slot]


def forget_written(kept: dict[Any, Any], target: np.ndarray | None) -> None:
    """Invalidate values computed from memory of `target`, which is about to be written (None: any memory)."""
    if target is None:
        kept.clear()
        return
    owner = owner_of(target)
    for key, held in list(kept.items()):
        if type(held) is Note:
            held.forget(owner)
        elif held.reads(target):
            del kept[key]


class Watch:
    """Hoisting in one block with one set of layouts: invariance of its inputs, and the split of the block."""

    __slots__ = ("tries", "due", "halves", "varying", "divisions")

    def __init__(self, due: int) -> None:
        self.due = due  # runs of the block before invariants are searched; UNKNOWN, NEVER
        self.tries = MOST_TRIES
        # The hoisted values and the bound program of the remainder: one tuple, replaced atomically.
        self.halves: tuple[tuple[Use, ...], Any] | None = None
        self.varying: set[int] = set()  # slots whose inputs were invariant only briefly
        self.divisions = MOST_DIVISIONS

    @property
    def main(self) -> Any:
        """The bound program of the remainder, if the block is split."""
        halves = self.halves
        return None if halves is None else halves[1]

    def replace(self, bound: Any, better: Any) -> None:
        """Replace the program `bound` of the remainder by `better`."""
        if self.halves is not None and self.halves[1] is bound:
            self.halves = self.halves[0], better

    def run(self, session: Any, tape: Any, closed: Any, store: Any) -> tuple | None:
        """Run the remainder with hoisted values; return the values of the roots, None: run the whole block.

        Raises `FlagsRaised` if floating-point flags were raised.
        """
        halves = self.halves
        if halves is None:
            if not session.site.is_settled(closed.bound):
                return None
            if self.due < 0:
                self._consider(session, tape, closed, store)
            if not 0 <= self.due <= closed.bound.count + 1:
                return None
            halves = self._divide(session, tape, closed, store)
            if halves is None:
                return None
        others = halves[1]
        if others in session.site.interim_replays:
            others.ask(True)
            if others.requested:  # until it is compiled, the whole block is faster
                return None
        leaves, scalars = tape.leaves, tape.scalars
        values: list[Any] = []
        for use in halves[0]:
            held = session.hoisted.get(use.part)
            if held is None or held.threads != thread_count() or not held.holds(leaves, scalars, use):
                held = self._make(session, tape, use, closed)
                if held is None:
                    return None
            else:
                use.part.used += 1
            values.append(held.value)
        try:
            made: tuple = others.run([*leaves, *scalars, *values])
        except FlagsRaised as hit:
            if audible(hit.flags):
                closed.stop_watching(session.site)  # warnings need the whole block
            raise
        except Exception as error:
            closed.stop_watching(session.site)
            made = session.run_by_numpy(tape, closed, store, error)
        return made

    def _consider(self, session: Any, tape: Any, closed: Any, store: Any) -> None:
        """Decide, when a block runs a second time, whether it is worth watching."""
        if closed.bound.count:
            self.due = runs_due(tape.block())
            if self.due < 0:
                closed.stop_watching(session.site)
        else:
            self._same(session, tape, store)

    def _divide(self, session: Any, tape: Any, closed: Any, store: Any) -> tuple[tuple[Use, ...], Any] | None:
        """Split the block by the inputs unchanged since the last run in this call; None: it is not split."""
        same = self._same(session, tape, store)
        self.tries -= 1
        if self.tries < 0 or not self.divisions:
            closed.stop_watching(session.site)
        if not same or closed.watch is None or not is_alone():
            return None
        self.divisions -= 1
        try:
            self.halves = self._divided(session, tape, closed, store, same)
        except Exception as error:
            session.site.note_failure(error)
            closed.stop_watching(session.site)
            return None
        return self.halves

    def _divided(
        self, session: Any, tape: Any, closed: Any, store: Any, same: set[int],
    ) -> tuple[tuple[Use, ...], Any] | None:
        """Compute the values worth hoisting; return them and the program of the remainder, or None."""
        block, site = tape.block(), session.site
        found = divided(site, block, closed.roots, store, same)
        if not found:
            closed.stop_watching(site)
            return None
        values = []
        for use in found.values():
            held = self._make(session, tape, use, closed)
            if held is None:
                return None
            values.append(held.value)
        kept = dict(zip(found, values, strict=True))
        return tuple(found.values()), rest(site, block, closed.roots, store, kept)

    def _same(self, session: Any, tape: Any, store: Any) -> set[int]:
        """Return the slots of leaves and scalars that are unchanged since the last run in this call."""
        leaves, scalars = tape.leaves, tape.scalars
        before = session.hoisted.get(self)
        places = {slot: (data_address(x), ref(owner_of(x))) for slot, x in enumerate(leaves)}
        session.hoisted[self] = Note(places, list(scalars))
        if before is None:
            return set()
        same = {k for k, (at, owner) in places.items()
                if k in before.places and before.places[k][0] == at and before.places[k][1]() is owner()}
        written = set() if store is None else {store.slot, *store.aliases}
        constant = {len(leaves) + k for k, (a, b) in enumerate(zip(scalars, before.scalars, strict=True))
                    if is_same(a, b)}
        same -= written | self.varying
        return same | constant if same else same

    def _make(self, session: Any, tape: Any, use: Use, closed: Any) -> Held | None:
        """Compute and store a hoisted value; None: it cannot be hoisted, and the whole block has to run."""
        part, site, hoisted = use.part, session.site, session.hoisted
        hoisted.pop(part, None)
        if part.made >= ENOUGH and part.used < TWICE * part.made:
            self.varying |= set(use.leaves)
            site.count_retired(self.main)
            self.halves = None
            return None
        if not is_alone():
            return None
        leaves = [tape.leaves[k] for k in use.leaves]
        scalars = [tape.scalars[k] for k in use.scalars]
        try:
            value = part.compute(site, leaves, scalars)
        except FlagsRaised:
            closed.stop_watching(site)  # it may warn, and has to do so in every run
            return None
        except Exception as error:
            site.note_failure(error)
            closed.stop_watching(site)
            return None
        if not _make_room(hoisted, part.nbytes, site.keeper.room):
            return None
        hoisted[part] = held = Held(value, leaves, list(map(data_address, leaves)), scalars, thread_count())
        site.most_kept = max(site.most_kept, _kept_bytes(hoisted))
        return held


def watch(site: Site) -> Watch | None:
    """Return the hoisting state of a new block, None if hoisting is off.

    Most blocks of changing sizes run once: nothing is computed about them before their second run.
    """
    return None if site.keeper is None else Watch(0 if site.keeper.every else UNKNOWN)


def work_of(block: Block) -> float:
    """Return the estimated seconds of the operations of a block in NumPy, without call overhead."""
    return numpy_seconds(hops_of(block))


def runs_due(block: Block) -> int:
    """Return the number of runs of a block before invariants are searched, or NEVER."""
    seconds = work_of(block)
    if seconds < LITTLE:
        return NEVER
    return 0 if seconds >= SOON else int(PATIENCE / seconds)


def owner_of(array: np.ndarray) -> Any:
    """Return the array that owns the memory of `array`, or is the last base of type ndarray."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _kept_bytes(kept: dict[Any, Any]) -> int:
    return sum(int(held.value.nbytes) for held in kept.values() if type(held) is Held)


def _make_room(kept: dict[Any, Any], nbytes: int, room: int) -> bool:
    """Evict the oldest hoisted values until `nbytes` of `room` are free; return whether they are."""
    for key in [k for k, held in kept.items() if type(held) is Held]:
        if _kept_bytes(kept) + nbytes <= room:
            break
        del kept[key]
    return _kept_bytes(kept) + nbytes <= room
