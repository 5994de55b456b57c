"""Values that do not change from run to run: kept instead of computed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.classes import dataclass
from jitla.hops import FlagsRaised, Hop, Shape, numpy_seconds, replace_by_leaves
from jitla.tracing.fallback import Request
from jitla.tracing.fp_warnings import audible
from jitla.tracing.frames import is_alone, threads
from jitla.tracing.guards import is_same
from jitla.tracing.site import Site, stores, unnoted
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
    """What decides about values that stay the same from run to run of a block.

    ``choose(request, same, named)`` says which of the hops `named` are worth keeping, where leaves in the
    slots `same` stay the same; a call keeps at most `room` bytes; `every`: costs do not matter.
    ``watch(arrays)`` returns what says later whether these were written, None where nobody can;
    ``ready()`` loads SciPy's matrices, which compressed rows are multiplied by until there is a program.
    """

    choose: Callable[[Request, Collection[int], tuple[Hop, ...]], tuple[Hop, ...]]
    room: int
    every: bool
    watch: Callable[[tuple[Any, ...]], Any]
    ready: Callable[[], Any]


class Part:
    """A value that may be kept: the block that computes it, and what came of it so far."""

    __slots__ = ("block", "bound", "made", "used", "nbytes")

    def __init__(self, block: Block) -> None:
        self.block = block._replace(leaves=[], scalars=[])
        self.bound: Any = None
        self.made = self.used = self.nbytes = 0

    def compute(self, site: Site, leaves: list[Any], scalars: list[Any]) -> Any:
        """Return the value for these leaves and scalars; `FlagsRaised` if it may warn."""
        if self.bound is None:
            block = self.block._replace(leaves=leaves, scalars=scalars)
            self.bound = site.program(block, (len(block.entries) - 1,), None)
        value = self.bound.run(leaves + scalars)[0]
        self.made += 1
        self.nbytes = int(value.nbytes)
        return value

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return the operator, the shape, and the operators it takes with the user's lines."""
        block = self.block
        lines = [(OPS[e[0]], block.lines.get(i)) for i, e in enumerate(block.entries) if e[0] > SCALAR]
        return lines[-1][0], METAS[block.metas[-1]].shape, lines


class Use(NamedTuple):
    """A part in a block: which leaves and scalars of the block are those of the part."""

    part: Part
    leaves: tuple[int, ...]
    scalars: tuple[int, ...]


def divided(
    site: Site, block: Block, roots: tuple[int, ...], store: Any, same: Collection[int],
) -> dict[Hop, Use]:
    """Return the values of `block` that are worth keeping while leaves and scalars in slots `same` last."""
    request = site.request(block, roots, *stores(roots, store))
    hops = hops_of(block)
    found: tuple[Hop, ...] = site.keeper.choose(request, same, tuple(hops))
    return {hop: _use(site, block, hops.index(hop)) for hop in found}


def _use(site: Site, block: Block, index: int) -> Use:
    """Return the use of entry `index`; blocks that compute the same share a part."""
    taken, leaves, scalars = extract_subblock(block, index)
    part = site.parts.get(taken.entries)
    if part is None:
        part = site.parts[taken.entries] = Part(taken)
    return Use(part, leaves, scalars)


def rest(site: Site, block: Block, roots: tuple[int, ...], store: Any, kept: Mapping[Hop, Any]) -> Any:
    """Return the bound program of `block` that is given the values `kept`, after leaves and scalars."""
    with site.lock:
        outs, aliases = stores(roots, store)
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
        made = site.compile(key, sizes, request.layouts, lambda: request, unnoted)
        site.lines.setdefault(made.program, (made, {}))
        return made


# Seconds, roughly, by which a block is not worth watching, worth new plans at once, or when it has taken so
# many in all runs.
LITTLE, SOON, PATIENCE = 5e-6, 5e-4, 2e-2
MOST_TRIES = 24  # runs of a block that may begin a call, or find nothing the same
MOST_DIVISIONS = 4
UNKNOWN, NEVER = -2, -1  # runs that are due
ENOUGH, TWICE = 4, 2  # values made of which each has to be used so often


class Held(NamedTuple):
    """A kept value, and what it was computed from."""

    value: Any
    leaves: list[np.ndarray]
    places: list[int]
    scalars: list[Any]
    threads: int

    def reads(self, target: np.ndarray) -> bool:
        """Say whether the value was computed from memory of `target`."""
        return any(np.may_share_memory(target, leaf) for leaf in self.leaves)

    def holds(self, leaves: list[np.ndarray], scalars: list[Any], use: Use) -> bool:
        """Say whether it is the value of `use` in a block with these leaves, which lie alike, and scalars."""
        for slot, mine, place in zip(use.leaves, self.leaves, self.places, strict=True):
            if leaves[slot] is not mine and data_address(leaves[slot]) != place:
                return False
        return all(map(is_same, [scalars[k] for k in use.scalars], self.scalars))


@dataclass(slots=True)
class Note:
    """What the last run of a block in this call read; nothing is held."""

    places: dict[int, tuple[int, Any]]  # by slot: the address, and a reference to the array that owns it
    scalars: list[Any]

    def forget(self, owner: Any) -> None:
        """Take note that memory of `owner` is written; this only serves to guess."""
        for slot in [k for k, (_, known) in self.places.items() if known() is owner]:
            del self.places[slot]


def forget_written(kept: dict[Any, Any], target: np.ndarray | None) -> None:
    """Drop what was computed from memory of `target`, which is about to be written (None: any memory)."""
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
    """What is known of one exact block: whether it is divided into parts to keep and the rest."""

    __slots__ = ("tries", "due", "halves", "varying", "divisions")

    def __init__(self, due: int) -> None:
        self.due = due  # runs of the block before it is worth while to look; UNKNOWN, NEVER
        self.tries = MOST_TRIES
        # What is kept, and the bound program of the rest; threads share them, so they are one object.
        self.halves: tuple[tuple[Use, ...], Any] | None = None
        self.varying: set[int] = set()  # slots that turned out not to stay the same for long
        self.divisions = MOST_DIVISIONS

    @property
    def main(self) -> Any:
        """The bound program of the rest, if the block is divided."""
        halves = self.halves
        return None if halves is None else halves[1]

    def replace(self, bound: Any, better: Any) -> None:
        """Run the rest by `better` if `bound` did it so far."""
        if self.halves is not None and self.halves[1] is bound:
            self.halves = self.halves[0], better

    def run(self, session: Any, tape: Any, closed: Any, store: Any) -> tuple | None:
        """Return the values of the roots, computed with kept values; None: the block is run as it is.

        Raises `FlagsRaised` if floating-point flags were raised.
        """
        halves = self.halves
        if halves is None:
            if not session.site.settled(closed.bound):
                return None
            if self.due < 0:
                self._consider(session, tape, closed, store)
            if not 0 <= self.due <= closed.bound.count + 1:
                return None
            halves = self._divide(session, tape, closed, store)
            if halves is None:
                return None
        others = halves[1]
        if others in session.site.standbys:
            others.ask(True)
            if others.asked:  # until it is compiled, the block that is there takes less time
                return None
        leaves, scalars = tape.leaves, tape.scalars
        values: list[Any] = []
        for use in halves[0]:
            held = session.hoisted.get(use.part)
            if held is None or held.threads != threads() or not held.holds(leaves, scalars, use):
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
                closed.stop_watching(session.site)  # warnings are told by the whole block
            raise
        except Exception as error:
            closed.stop_watching(session.site)
            made = session.run_by_numpy(tape, closed, store, error)
        return made

    def _consider(self, session: Any, tape: Any, closed: Any, store: Any) -> None:
        """See, when a block runs again, whether it is worth watching."""
        if closed.bound.count:
            self.due = runs_due(tape.block())
            if self.due < 0:
                closed.stop_watching(session.site)
        else:
            self._same(session, tape, store)

    def _divide(self, session: Any, tape: Any, closed: Any, store: Any) -> tuple[tuple[Use, ...], Any] | None:
        """See what stays the same since the last run in this call; return the halves, if any."""
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
            session.site.failed(error)
            closed.stop_watching(session.site)
            return None
        return self.halves

    def _divided(
        self, session: Any, tape: Any, closed: Any, store: Any, same: set[int],
    ) -> tuple[tuple[Use, ...], Any] | None:
        """Compute what is worth keeping; return that and the rest, None if there is nothing."""
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
        """Return the slots of leaves and scalars that were the same in the last run of this call."""
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
        """Compute a value and keep it; None: it cannot be kept, and the block is to be run as it is."""
        part, site, kept = use.part, session.site, session.hoisted
        kept.pop(part, None)
        if part.made >= ENOUGH and part.used < TWICE * part.made:
            self.varying |= set(use.leaves)
            site.count_past(self.main)
            self.halves = None
            return None
        if not is_alone():
            return None
        leaves = [tape.leaves[k] for k in use.leaves]
        scalars = [tape.scalars[k] for k in use.scalars]
        try:
            value = part.compute(site, leaves, scalars)
        except FlagsRaised:
            closed.stop_watching(site)  # it may warn, in every run
            return None
        except Exception as error:
            site.failed(error)
            closed.stop_watching(site)
            return None
        if not _make_room(kept, part.nbytes, site.keeper.room):
            return None
        kept[part] = held = Held(value, leaves, list(map(data_address, leaves)), scalars, threads())
        site.most_kept = max(site.most_kept, _kept_bytes(kept))
        return held


def watch(site: Site) -> Watch | None:
    """Return what watches a block that is new, if values are kept at all.

    Most blocks of changing sizes run once: nothing is computed about them before they run again.
    """
    return None if site.keeper is None else Watch(0 if site.keeper.every else UNKNOWN)


def work_of(block: Block) -> float:
    """Return the seconds that the operations of a block take, roughly, without the calls of them."""
    return numpy_seconds(hops_of(block))


def runs_due(block: Block) -> int:
    """Return the runs before it is worth while to look for values to keep; NEVER: it is not."""
    seconds = work_of(block)
    if seconds < LITTLE:
        return NEVER
    return 0 if seconds >= SOON else int(PATIENCE / seconds)


def owner_of(array: np.ndarray) -> Any:
    """Return the array that `array` is a view of, itself if of none."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _kept_bytes(kept: dict[Any, Any]) -> int:
    return sum(int(held.value.nbytes) for held in kept.values() if type(held) is Held)


def _make_room(kept: dict[Any, Any], nbytes: int, room: int) -> bool:
    """Drop what was kept first until there are `nbytes` left of `room`; say whether there are."""
    for key in [k for k, held in kept.items() if type(held) is Held]:
        if _kept_bytes(kept) + nbytes <= room:
            break
        del kept[key]
    return _kept_bytes(kept) + nbytes <= room
