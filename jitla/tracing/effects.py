"""Floating-point warnings of compiled blocks: found by flags, given by NumPy at the user's lines.

Knows: which entries of a block can have raised flags, and how to find out which did. Must not know:
proxies, when blocks are closed, how programs are made. Receives a run that raised flags; the warnings
are given as NumPy would have.

Flags say of a whole block that something may have happened. Entries whose warnings nobody would notice
(switched off, or shown before) are left aside. The others are done again by NumPy from frames at the
user's lines; from the third time on only if their values show that one of them is new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    NARROWED,
    OVERFLOW,
    Flagged,
    Hop,
    Kind,
    apply,
    const,
    heard,
    hush,
    listen,
    may_raise,
)
from jitla.tracing.alarms import audible, is_shown, texts, warn
from jitla.tracing.enacting import LOST, enact, same_view
from jitla.tracing.places import Place, Places, call_at, here
from jitla.tracing.tape import LEAF, SCALAR, Block, cone, hops_of, split

_CAST = "overflow encountered in cast"

# So often a block is done again without asking first whether that would tell anything new.
PATIENCE = 2


class Past(NamedTuple):
    """What is known of an entry that was on the tape before: its place, and whether it was computed."""

    place: Place | None
    told: bool


class Effects:
    """What one bound program's runs need to know for their warnings: where its entries come from."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._wanted: set[int] = set()
        self.hits = 0
        self._hops: list[Hop] = []
        self._capable: dict[int, int] | None = None
        self._evidence: Any = None
        self._asked: tuple[int, ...] = ()

    def tell(
        self, block_of: Callable[[], Block], roots: tuple[int, ...], store: Any, hit: Flagged,
        past: dict[int, Past], compile_block: Callable[..., Any],
    ) -> bool:
        """Give the warnings of a run of ``block_of()`` that raised `hit`; say whether there may be some."""
        narrow = hit.flags & NARROWED
        flags = audible(hit.flags | (OVERFLOW if narrow else 0))
        if not flags:
            return False
        if self._capable is None:
            self._capable = self._look_at(block_of(), roots)
        places: dict[int, Place] = {}
        for i, mask in self._capable.items():
            if mask & flags and not (i in past and past[i].told):
                place = (past[i].place if i in past else self.places.get(i)) or here()
                if self._is_open(i, mask & flags, place) or narrow and is_shown(_CAST, place):
                    places[i] = place
        if not places:
            return False
        block = block_of()
        leaves = _as_before(block, store, hit)
        self.hits += 1
        if self.hits > PATIENCE and not narrow and not any(leaf is LOST for leaf in leaves):
            laid = [_laid_as(known, leaf) for known, leaf in zip(leaves, block.leaves, strict=True)]
            if not self._is_evident(block._replace(leaves=laid), places, compile_block):
                return True
        left = flags if hit.exact else 0
        _Performance(places, self._capable, self._hops, left).play(block, leaves, self._wanted)
        return True

    def _look_at(self, block: Block, roots: tuple[int, ...]) -> dict[int, int]:
        """Return the entries that are computed and can raise flags, with these."""
        self._hops = hops_of(block)
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
        name = _name(self._hops[i])
        return name is None or any(is_shown(text, place) for text in texts(flags, name))

    def _is_evident(
        self, block: Block, asked: dict[int, Place], compile_block: Callable[..., Any]
    ) -> bool:
        """Say whether values of the entries in `asked` show that they raised flags.

        A compiled program looks: one pass over the operands, without results to write.
        """
        if self._evidence is None or self._asked != tuple(asked):
            signs = [sign(self._hops[i]) for i in asked]
            if any(s is None for s in signs):
                return True
            total = signs[0]
            for other in signs[1:]:
                total = apply("logical_or", total, other)
            self._asked = tuple(asked)
            self._evidence = compile_block(block, total, self._asked)
        try:
            (found,) = self._evidence.run([*block.leaves, *block.scalars])
        except Flagged as hit:
            (found,) = hit.values
        return bool(found)


def _name(hop: Hop) -> str | None:
    """Return what NumPy's warnings call the operation, if that is known."""
    if hop.op.kind is Kind.CELL and hop.meta.shape != ():
        return "cast" if hop.op.name == "cast" else hop.op.numpy[0].__name__
    return None


def sign(hop: Hop) -> Hop | None:
    """Return whether computing `hop` may have raised flags, as its operands and values show.

    A quiet NaN comes from NaN, a silent infinity from infinities. None: its values do not show it.
    """
    if hop.meta.dtype.kind in "iu" and hop.op.name != "cast":
        return _any(_bad_division(hop))
    if hop.op.name == "logaddexp":
        return None  # NumPy's loop compares NaNs in a way that raises flags
    if hop.meta.dtype.kind != "f" or any(i.meta.dtype.kind != "f" for i in hop.inputs):
        return None
    nan, inf = apply("isnan", hop), apply("isinf", hop)
    if hop.op.kind is not Kind.CELL:
        nan, inf = _any(nan), _any(inf)
    for given in hop.inputs:
        if hop.op.kind is Kind.CELL:
            nan = apply("logical_and", nan, apply("logical_not", apply("isnan", given)))
            inf = apply("logical_and", inf, apply("isfinite", given))
        else:
            nan = apply("logical_and", nan, apply("logical_not", _any(apply("isnan", given))))
            inf = apply("logical_or", inf, _any(apply("isinf", given)))
    return _any(apply("logical_or", nan, inf))


def _bad_division(hop: Hop) -> Hop:
    """Return where integers are divided by zero, or the least one by -1."""
    divisor, dtype = hop.inputs[-1], hop.meta.dtype
    bad = apply("logical_not", divisor)
    if hop.op.name != "floor_divide" or dtype.kind == "u":
        return bad
    minus, least = const(-1, dtype), const(np.iinfo(dtype).min, dtype)
    beyond = apply("logical_and", apply("equal", divisor, minus), apply("equal", hop, least))
    return apply("logical_or", bad, beyond)


def _any(hop: Hop) -> Hop:
    axes = tuple(range(len(hop.meta.shape)))
    return apply("any", hop, axis=axes, keepdims=False) if axes else hop


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


def _laid_as(known: Any, leaf: Any) -> Any:
    """Return `known` as `leaf` lies in memory: programs are bound to strides."""
    if known is leaf or known.strides == leaf.strides:
        return known
    spans = [s * (n - 1) for s, n in zip(leaf.strides, leaf.shape, strict=True)]
    below = sum(min(span, 0) for span in spans)
    room = np.empty(sum(map(abs, spans)) + leaf.itemsize, np.uint8)
    made = np.ndarray(leaf.shape, leaf.dtype, room, -below, leaf.strides)
    made[...] = known
    return made


class _Performance:
    """A block done again by NumPy: entries with a place may warn there, the others are silent."""

    def __init__(
        self, places: dict[int, Place], capable: dict[int, int], hops: list[Hop], flags: int
    ) -> None:
        self.places = places
        self.capable = capable
        self.hops = hops
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
                for text in texts(mine, _name(self.hops[i]) or self.hops[i].op.name):
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


