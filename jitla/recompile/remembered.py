"""Programs and choices made once, here or by an earlier process: what is kept is not planned again.

Knows: that a plan follows from a draft and the tools. Must not know: where texts are kept, when to plan.
Receives drafts; returns programs, and which values are worth keeping.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from jitla import rewrites
from jitla.events import Event
from jitla.fusion import Plan, all_layouts
from jitla.hops import Hop, Unwritable, topo, words_of
from jitla.later import later
from jitla.making import MAKING
from jitla.recompile.drafts import Draft, Tools
from jitla.recompile.kept import Kept, Shelf, numbers_of, read, written
from jitla.recompile.program import Program

if TYPE_CHECKING:
    from jitla.recompile.invariants import worth_keeping
    from jitla.recompile.pipeline import Trace, run_pipeline, told, weighed
else:  # loaded by the first draft of which no plan is kept
    [worth_keeping] = later("jitla.recompile.invariants", "worth_keeping")
    run_pipeline, told, weighed = later("jitla.recompile.pipeline", "run_pipeline", "told", "weighed")


class Remembered:
    """What `tools` make of drafts; `shelf` keeps it for later processes, `here` says what it was made for."""

    def __init__(self, tools: Tools, shelf: Shelf | None = None, here: str = "") -> None:
        self._tools, self._shelf, self._here = tools, shelf, here

    def program(self, draft: Draft) -> Program:
        """Return the program of a draft."""
        start = perf_counter()
        words = self._words(draft)
        found = self._found(words)
        kept = None if found is None else read(draft, found, self._here)
        if kept is not None:
            self._tools.observe(Event("plan.found", seconds=perf_counter() - start))
            return program_of(kept, draft, self._tools)
        if self._tools.rules is not None or self._tools.templates:
            MAKING.now.plan()
        kept, traces = run_pipeline(draft, self._tools)
        if words:  # a search that its budget ended would end there again: that is processor time
            self._keep(words, draft, kept)
        return program_of(kept, draft, self._tools, traces)

    def invariants(
        self, draft: Draft, same: Collection[int], named: Collection[Hop], room: int, every: bool,
    ) -> tuple[Hop, ...]:
        """Return which of the values `named` are worth keeping while leaves in slots `same` do not change."""
        words = self._words(draft, "invariants", sorted(same), numbers_of(draft, named), room, every)
        found, hops = self._found(words), topo(draft.roots)
        told = None if found is None else json.loads(found)
        if told is not None and told[0] == self._here:
            return tuple([hops[n] for n in told[1]])
        chosen = worth_keeping(draft, self._tools, same, named, room, every)
        if words and self._shelf is not None:
            number = {h: n for n, h in enumerate(hops)}
            self._shelf.put(words, json.dumps([self._here, [number[h] for h in chosen]]).encode())
        return chosen

    def _words(self, draft: Draft, *more: Any) -> str:
        """Return the words by which something is kept; none if nothing is."""
        if self._shelf is None:
            return ""
        try:
            return words_of(draft.roots, draft.layouts, draft.outs, draft.aliases, *more)
        except Unwritable:
            return ""

    def _found(self, words: str) -> bytes | None:
        return self._shelf.get(words) if words and self._shelf is not None else None

    def _keep(self, words: str, draft: Draft, kept: Kept) -> None:
        assert self._shelf is not None
        try:
            self._shelf.put(words, written(draft, kept, self._here))
        except Unwritable as why:
            self._tools.observe(Event("plan.unwritten", str(why)))


def program_of(kept: Kept, draft: Draft, tools: Tools, traces: Sequence[Trace] = ()) -> Program:
    """Return the program of a plan; without `traces` it is planned again when somebody asks how it was."""
    start = perf_counter()
    plan, last = kept.plan, traces[-1].draft if traces else draft
    places = all_layouts(plan.outputs, draft.layouts)
    program = Program(plan, draft.layouts, places, draft.outs, draft.aliases, tools.workshop, tools.limit)
    program.tell = partial(told, draft, tools, program, traces)
    program.given = kept.given
    if tools.rules is not None:
        program.chains = cache(partial(_chains, plan))
    program.spelling = kept.spelling
    program.searched = kept.searched
    program.fixed = last.placed is not None and bool(last.placed.parts)
    program.fusion = tools.fusion
    program.weigh = partial(weighed, tools)
    tools.observe(Event("pipeline.program", seconds=perf_counter() - start))
    return program


def _chains(plan: Plan) -> tuple[rewrites.Chain, ...]:
    """Return the chains of products whose order is the best one for the sizes that were planned for."""
    return tuple(c for c in rewrites.product_chains(plan.outputs) if rewrites.well_ordered(c, {}))
