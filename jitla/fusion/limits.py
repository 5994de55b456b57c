"""The cheapest plan whose memory stays below a limit.

Knows: partitions, what their plans cost, how much memory a whole plan takes. Must not know: templates.
Receives the partitions and a way to write plans down; returns kernels and their steps.

A plan that takes more than the limit costs infinity. Memory is a matter of the whole plan, so the choices
of all partitions are tried together, the cheapest first; where none fits, the one that takes least is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf, isinf

from jitla.classes import dataclass
from jitla.fusion.build import in_turn
from jitla.fusion.candidates import Candidate, Candidates
from jitla.fusion.kernel import Step
from jitla.fusion.memo import Memo
from jitla.fusion.memory import peak
from jitla.fusion.points import Partition
from jitla.fusion.search import BUDGET, Search
from jitla.hops import Hop

MAX_TRIES = 400  # whole plans looked at, before the one that takes least is taken

Write = Callable[[Sequence[Candidate]], list[Step] | None]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `nbytes` at a time, in plans for `roots`; `stored` of them go to memory that exists."""

    nbytes: int
    roots: tuple[Hop, ...]
    threads: int = 1
    stored: frozenset[Hop] = frozenset()

    def peak(self, steps: Sequence[Step]) -> float:
        """Return what a plan of `steps` takes; infinity if they wait for each other."""
        order = in_turn(steps, self.roots)
        made = {h for s in steps for h in s.outputs}
        known: set[Hop] = set()
        for step in order:
            if any(h in made and h not in known for h in step.inputs):
                return inf
            known.update(step.outputs)
        return peak(order, self.roots, self.threads, self.stored)


def within(
    limit: Limit, partitions: Sequence[Partition], memo: Memo, kernels: Candidates, write: Write,
) -> list[Step] | None:
    """Return the steps of the cheapest plan below `limit`, else of the one with the least peak.

    `write` makes steps of the kernels of all partitions; None if one of them cannot be written.
    """
    choices = [_Choices(p, memo, kernels) for p in partitions]

    def look(at: Sequence[int]) -> tuple[float, list[Step] | None]:
        steps = write([c for some, i in zip(choices, at, strict=True) for c in some.kernels(i)])
        return (inf, None) if steps is None else (limit.peak(steps), steps)

    least, best = look([c.sparing for c in choices])
    start = (0,) * len(choices)
    waiting = [(sum(c.seconds(0) for c in choices), start, 0)]
    for _ in range(MAX_TRIES):
        if not waiting:
            break
        seconds, at, turn = heappop(waiting)
        taken, steps = look(at)
        if taken <= limit.nbytes:
            return steps
        if taken < least:
            least, best = taken, steps
        for k in range(turn, len(choices)):  # from `turn` on: every combination is made once
            if at[k] + 1 < len(choices[k].tried):
                more = choices[k].seconds(at[k] + 1) - choices[k].seconds(at[k])
                heappush(waiting, (seconds + more, (*at[:k], at[k] + 1, *at[k + 1:]), k))
    return best


class _Choices:
    """All choices of points of a partition, the cheapest first."""

    def __init__(self, partition: Partition, memo: Memo, kernels: Candidates) -> None:
        self._search = Search(partition, memo, kernels, kernels.priced + BUDGET, prune=False)
        found = self._search.run()
        self.tried = sorted((s, c) for c, s in found.tried.items() if not isinf(s))
        self.sparing = min(range(len(self.tried)), key=lambda i: self.tried[i][1].bit_count())

    def seconds(self, at: int) -> float:
        """What choice number `at` costs."""
        return self.tried[at][0]

    def kernels(self, at: int) -> tuple[Candidate, ...]:
        """The kernels of choice number `at`."""
        return self._search.arrange(self.tried[at][1])[1]
