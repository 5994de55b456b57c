"""Programs and choices made once, here or by an earlier process: what is kept is not planned again.

Knows: that a plan follows from a draft and the tools. Must not know: where texts are kept, when to plan.
Receives drafts; returns programs, and which values are worth keeping.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from time import perf_counter
from typing import Any

from jitla.events import Event
from jitla.hops import Hop, Unwritable, topo, words_of
from jitla.making import MAKING
from jitla.recompile.invariants import worth_keeping
from jitla.recompile.kept import Kept, Shelf, numbers_of, read, written
from jitla.recompile.pipeline import Draft, Tools, program_of, run_pipeline
from jitla.recompile.program import Program


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
