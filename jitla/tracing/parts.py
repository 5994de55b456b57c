"""A block divided into values to keep from run to run and the rest.

Knows: how entries of the tape are taken out of a block, what a compiler is asked for. Must not know: when
a value is still the same, sessions.
Receives blocks, what stays the same in them, and values; returns parts, and bound programs of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from jitla.hops import Hop, Shape, given
from jitla.tracing.replay import Request
from jitla.tracing.signature import LAYOUTS, METAS, layout_id
from jitla.tracing.site import Site, stores, unnoted
from jitla.tracing.tape import OPS, SCALAR, Block, class_key, excerpt, hops_of


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
        """Return the value for these leaves and scalars; `Flagged` if it may warn."""
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
    taken, leaves, scalars = excerpt(block, index)
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
            roots=given(request.roots, {h: slot for slot, h in enumerate(kept, first)}),
            layouts=request.layouts | layouts, tape=None)
        hops = hops_of(block)
        parts = tuple((hops.index(h), x and x.group) for h, x in zip(kept, known, strict=True))
        key, sizes = class_key(block, roots, outs, aliases, "given", parts)
        made = site.compile(key, sizes, request.layouts, lambda: request, unnoted)
        site.lines.setdefault(made.program, (made, {}))
        return made
