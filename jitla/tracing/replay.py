"""Blocks run op by op, without a program.

Knows: hops, NumPy. Must not know: sites, proxies, why no program was made. Receives what a compiler
would be asked for; returns the values of its roots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jitla.hops import Flagged, Hop, evaluate, heard, hush, listen


class Request(NamedTuple):
    """What a compiler is asked to make: hops of the values to compute and how they meet memory."""

    roots: tuple[Hop, ...]
    layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    outs: tuple[int | None, ...]
    aliases: frozenset[tuple[int, int, int]]
    # The user's (file, line) of each root, as far as known: hops may be shared with other functions.
    lines: tuple[tuple[str, int] | None, ...] = ()


class Replay:
    """A block run op by op with NumPy: what is left when no program can be made or one fails."""

    kernels = calls = written = 0
    effects: Any = None

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self.program = self

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots; they are memory of their own, or the leaf stored into."""
        self.count += 1
        request = self.request
        results: list[Any] = []
        before = listen()
        try:
            values = evaluate(request.roots, leaves)
        finally:
            hush(before)
            flags = heard()
        for value in values:
            if isinstance(value, np.ndarray) and any(
                    value is a or np.may_share_memory(value, a) for a in (*results, *leaves)
                    if isinstance(a, np.ndarray)):
                value = value.copy("K")
            results.append(value)
        stored = {slot for slot in request.outs if slot is not None}
        stored |= {b for x, y, _ in request.aliases for a, b in ((x, y), (y, x)) if a in stored}
        saved = {slot: leaves[slot].copy("K") for slot in stored} if flags else {}
        for i, slot in enumerate(request.outs):
            if slot is not None:
                leaves[slot][...] = results[i]
                results[i] = leaves[slot]
        if flags:
            raise Flagged(tuple(results), flags, saved)
        return tuple(results)

    def text(self) -> str:
        """Say what this is."""
        return "== replay\nrun op by op with NumPy"
