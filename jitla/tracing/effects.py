"""Floating-point warnings of compiled blocks: found by flags, given by NumPy at the user's lines.

Knows: which entries of a block can have raised flags, and how to find out which did. Must not know:
proxies, when blocks are closed, how programs are made. Receives a run that raised flags; the warnings
are given as NumPy would have.

Flags say of a whole block that something may have happened. Entries whose warnings nobody would notice
(switched off, or shown before) are left aside. The others are done again by NumPy from frames at the
user's lines. Where that has been done often the program also returns which entries show that they
raised flags: only those whose warnings that does not tell exactly are done again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    NARROWED,
    OVERFLOW,
    Compiled,
    Flagged,
    Hop,
    Kind,
    heard,
    hush,
    listen,
    may_raise,
)
from jitla.tracing.alarms import audible, is_shown, texts, warn
from jitla.tracing.enacting import LOST, enact, same_view
from jitla.tracing.narrowing import within
from jitla.tracing.places import Place, Places, call_at, here
from jitla.tracing.signs import Sign, signs_of
from jitla.tracing.tape import LEAF, OP_ID, SCALAR, Block, cone, hops_of, split

_CAST = "overflow encountered in cast"
_CAST_OP = OP_ID["cast"]

# So often, and for so many nanoseconds, a block is done again before its program is asked to observe:
# that has to be compiled.
PATIENCE = 2
WORTH = 3e7
# What NumPy takes to do an entry again: whatever its size, and for an element.
_CALL, _ELEMENT = 5e3, 1.0
# Blocks that would have to show more than this are always done again.
MOST_SIGNS = 64


class Past(NamedTuple):
    """What is known of an entry that was on the tape before: its place, and whether it was computed."""

    place: Place | None
    told: bool


class Part(NamedTuple):
    """The operation that a cast is part of: its name, and its entry."""

    name: str
    of: int


class Effects:
    """What one bound program's runs need to know for their warnings: where its entries come from."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._wanted: set[int] = set()
        self.hits = 0
        self._spent = 0.0
        self._hops: list[Hop] = []
        # Casts that are parts of operations.
        self._parts: dict[int, Part] = {}
        self._capable: dict[int, int] | None = None
        # What a program that observes returns behind its roots' values, and which flags that is about.
        self._signs: tuple[Sign, ...] = ()
        self._observed = 0
        self._asked = 0

    def tell(
        self, block: Block, roots: tuple[int, ...], store: Any, hit: Flagged, past: dict[int, Past],
        prepare: Callable[[], None],
    ) -> bool:
        """Give the warnings of a run of `block` that raised `hit`; say whether there may be some.

        `prepare` is called before the first of them: code of users may show it.
        """
        narrow = hit.flags & NARROWED
        flags = audible(hit.flags | (OVERFLOW if narrow else 0))
        if not flags:
            return False
        if self._capable is None:
            self._capable = self._look_at(block, roots)
        seen = hit.values[len(roots):]
        if seen and not narrow and not flags & ~self._observed:
            told = self._told(seen, flags, past, prepare)
            if told is not None:
                return told
        places: dict[int, Place] = {}
        for i, mask in self._capable.items():
            if mask & flags and not (i in past and past[i].told):
                place = self._place(i, past)
                if self._is_open(i, mask & flags, place) or narrow and is_shown(_CAST, place):
                    places[i] = place
        if not places:
            return False
        self.hits += 1
        for made in (self._hops[i].op.ref for i in places):
            if isinstance(made, Compiled):
                made.alarms += 1
        self._spent += sum(_CALL + _ELEMENT * self._hops[i].meta.size for i in self._wanted)
        leaves = _as_before(block, store, hit)
        left = flags if hit.exact else 0
        prepare()
        _Performance(places, self._capable, self._hops, self._parts, left).play(block, leaves, self._wanted)
        return True

    def to_observe(self, flags: int) -> tuple[Sign, ...]:
        """Return what a program has to return, too, to tell of `flags`; nothing: it is not the time."""
        flags = audible(flags)
        patient = self.hits < PATIENCE or self._spent < WORTH
        if patient or not flags & ~self._asked or self._capable is None:
            return ()
        self._asked |= flags
        found: list[Sign] = []
        for i, mask in self._capable.items():
            if mask & self._asked:
                signs = signs_of(i, self._hops[i], mask & self._asked)
                if signs is None or len(found) > MOST_SIGNS:
                    return ()
                found += signs
        return tuple(found)

    def observe(self, signs: tuple[Sign, ...]) -> None:
        """Take note that the program shows `signs` from now on."""
        self._signs = signs
        self._observed = self._asked

    def _told(
        self, seen: Sequence[Any], flags: int, past: dict[int, Past], prepare: Callable[[], None],
    ) -> bool | None:
        """Give the warnings that signs tell of, and say whether there are some; None: ask NumPy."""
        told = [sign for sign, value in zip(self._signs, seen, strict=True)
                if value and sign.flags & flags and not (sign.entry in past and past[sign.entry].told)]
        if not all(sign.exact for sign in told):
            return None
        if told:
            prepare()
        raised: dict[int, int] = {}
        for sign in told:
            raised[sign.entry] = raised.get(sign.entry, 0) | sign.flags
        for i, mask in raised.items():
            for text in texts(mask, self._name(i) or ""):
                warn(text, self._place(i, past))
        return bool(told)

    def _place(self, i: int, past: dict[int, Past]) -> Place:
        return (past[i].place if i in past else self.places.get(i)) or here()

    def _look_at(self, block: Block, roots: tuple[int, ...]) -> dict[int, int]:
        """Return the entries that are computed and can raise flags, with these."""
        self._hops = hops_of(block)
        self._parts = {i: Part(name, split(entry)[0][0]) for i, entry in enumerate(block.entries)
                       if entry[0] == _CAST_OP and (name := within(split(entry)[1]))}
        self._wanted = {i for r in roots for i in cone(block.entries, r)}
        able = {i: may_raise(self._hops[i]) for i in sorted(self._wanted) if self._does(block, i)}
        return {i: mask for i, mask in able.items() if mask}

    def _does(self, block: Block, i: int) -> bool:
        """Say whether entry `i` is more than its operand, such as a cast to the same dtype."""
        entry = block.entries[i]
        mine = () if entry[0] in (LEAF, SCALAR) else split(entry)[0]
        return all(self._hops[r] is not self._hops[i] for r in mine if r >= 0)

    def _is_open(self, i: int, flags: int, place: Place) -> bool:
        """Say whether a warning of entry `i` would be noticed."""
        name = self._name(i)
        return name is None or any(is_shown(text, place) for text in texts(flags, name))

    def _name(self, i: int) -> str | None:
        """Return what NumPy's warnings call entry `i`, if that is known."""
        return self._parts[i].name if i in self._parts else _name(self._hops[i])


def _name(hop: Hop) -> str | None:
    """Return what NumPy's warnings call the operation, if that is known."""
    if hop.op.kind is Kind.CELL and hop.meta.shape != ():
        if isinstance(hop.op.ref, Compiled):
            return None  # it warns at a line of its compiler's
        return "cast" if hop.op.name == "cast" else hop.op.numpy[0].__name__
    return None


def _as_before(block: Block, store: Any, hit: Flagged) -> list[Any]:
    """Return the leaves as they were before the run; `LOST` for what kernels wrote while they read."""
    if store is None:
        return list(block.leaves)
    target = block.leaves[store.slot]
    found: list[Any] = []
    for k, leaf in enumerate(block.leaves):
        same = next((s for s in hit.saved if k == s or same_view(leaf, block.leaves[s])), None)
        if same is not None:
            found.append(hit.saved[same])
        else:
            found.append(LOST if np.may_share_memory(leaf, target) else leaf)
    return found


class _Performance:
    """A block done again by NumPy: entries with a place may warn there, the others are silent."""

    def __init__(
        self, places: dict[int, Place], capable: dict[int, int], hops: list[Hop], parts: dict[int, Part],
        flags: int,
    ) -> None:
        self.places = places
        self.capable = capable
        self.hops = hops
        self.parts = parts
        self.raised: dict[int, int] = {}
        self.flags = flags
        self.heard = 0
        self.unknown: list[int] = []

    def play(self, block: Block, leaves: list[Any], wanted: set[int]) -> None:
        """Do the entries in `wanted`, and give the warnings of those whose operands are lost."""
        called = {i: place.called for i, place in self.places.items()}
        enact(block.entries, leaves, block.scalars, wanted, called, self._run)
        left = self.flags & ~self.heard
        # Only kernels that write their results where they read lose operands. Sums come before.
        cells = [i for i in self.unknown if self.hops[i].op.kind is Kind.CELL]
        for i in cells or self.unknown:
            mine = self.capable[i] & left
            left &= ~mine
            if i in self.places:
                name = self.parts[i].name if i in self.parts else _name(self.hops[i])
                for text in texts(mine, name or self.hops[i].op.name):
                    warn(text, self.places[i])

    def _run(self, i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if function is None or any(a is LOST for a in args):
            if i in self.capable:
                self.unknown.append(i)
            return LOST
        before = listen()
        try:
            value = function(*args, **kwargs)
        finally:
            hush(before)
            raised = heard()
        self.heard |= raised
        self.raised[i] = raised
        if i in self.parts:
            raised &= ~self.raised.get(self.parts[i].of, 0)  # one call warns once
        if raised and i in self.places:
            call_at(self.places[i], function, args, kwargs)
        return value


def performed(
    entries: list[Any], leaves: list[np.ndarray], scalars: list[Any], place: Place
) -> Any:
    """Return the value of the last entry, computed by NumPy at `place`, with all that comes of it."""
    last = len(entries) - 1

    def run(i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return call_at(place, function, args, kwargs)

    wanted = set(cone(tuple(entries), last))
    return enact(entries, leaves, scalars, wanted, {last: place.called}, run)[last]


def heeded(block: Block, roots: list[int]) -> list[int]:
    """Return the casts that can warn and that nobody reads, not even the values at `roots`.

    Arithmetic whose value is dropped is left out. A cast is made for its warning, too: that is how
    one asks whether values fit.
    """
    computed = {i for r in roots for i in cone(block.entries, r)}
    dropped = [i for i, e in enumerate(block.entries) if e[0] == _CAST_OP and i not in computed]
    hops = hops_of(block) if dropped else []
    return [i for i in dropped if may_raise(hops[i])
            and not np.can_cast(hops[i].inputs[0].meta.dtype, hops[i].meta.dtype)]
