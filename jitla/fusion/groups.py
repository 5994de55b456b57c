"""Which results share a kernel, once it is settled what lies in memory.

Knows: candidates, their prices, which results have something in common. Must not know: how the values in
memory are chosen.
Receives results and values in memory; returns the cheapest kernels that make these results.

Exact, unless the budget runs out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf

from jitla.fusion.candidates import LOOP, Candidate, Candidates
from jitla.fusion.division import Division, Grouped, Purse
from jitla.fusion.floors import Floors
from jitla.fusion.memo import members
from jitla.fusion.waiting import closes, cyclic

MAX_WIDE = 40  # results divided exactly; more are put together one by one
NEAR, NEAREST = 6, 2  # groups that a result is tried in, one result after the other; without a budget


class Groups:
    """Kernels for the results of a partition, which has `values`."""

    def __init__(self, kernels: Candidates, values: int = 0, budget: float = inf) -> None:
        self.kernels = kernels
        self.memo = kernels.memo
        self.purse = Purse(kernels, budget)
        self._known: dict[tuple[int, int], Grouped] = {}
        self._divisions: dict[tuple[int, int], Division] = {}
        self.floors = Floors(kernels, values)
        self._touched: dict[tuple[int, int], int] = {}
        self._kinds: dict[tuple[str, int], int] = {}

    def arrange(self, results: int, memory: int, most: float = inf) -> Grouped | None:
        """Return the cheapest kernels that make `results`, and their cost; None if it is not below `most`."""
        if results.bit_count() == 1:
            return self._together(results, memory, most)
        parts = self._parts(results, memory)
        floors = [self._floor(part, memory) for part in parts]
        total = sum(floors)
        chosen: list[Candidate] = []
        for part, floor in zip(parts, floors, strict=True):
            found = self._together(part, memory, most - (total - floor)) if total < most else None
            if found is None:
                return None
            total += found[0] - floor
            chosen += found[1]
        if cyclic(chosen, self.kernels):
            found = self._known.get((results, memory)) or self._joint(results, memory)
            self._known[results, memory] = found
            return found if found[0] < most else None
        return total, tuple(chosen)

    def guess(self, results: int, memory: int) -> Grouped:
        """Return good kernels that make `results`, without a search."""
        chosen: list[Candidate] = []
        for part in self._parts(results, memory):
            chosen += self._first(part, memory)[1]
        if cyclic(chosen, self.kernels):
            return self._one_by_one(members(results), memory)
        return sum([c.seconds for c in chosen]), tuple(chosen)

    def _first(self, results: int, memory: int, most: float = inf) -> Grouped:
        """Return one kernel for all, which is best if it is a loop, or those found one by one."""
        whole = self.kernels.best(results, memory)
        if results & results - 1 == 0 or whole.form == LOOP and not isinf(whole.seconds):
            return whole.seconds, (whole,)
        found = self._one_by_one(members(results), memory) if most == inf else (most, ())
        return (whole.seconds, (whole,)) if whole.seconds < found[0] else found

    def _joint(self, results: int, memory: int) -> Grouped:
        """Divide all results at once, so that kernels do not wait for each other."""
        items = members(results)
        found = self._one_by_one(items, memory)
        if len(items) > MAX_WIDE or self.purse.exhausted():
            self.purse.spent = True
            return found
        return self._division(results, memory).run(found)

    def _floor(self, results: int, memory: int) -> float:
        """Return what no division of `results` goes below, without looking for one."""
        if results & results - 1 == 0:
            return self.kernels.best(results, memory).seconds
        known = self._known.get((results, memory & self.kernels.reach(results)))
        return known[0] if known is not None else self._division(results, memory).floor

    def _division(self, results: int, memory: int) -> Division:
        key = results, memory & self.kernels.reach(results)
        found = self._divisions.get(key)
        if found is None:
            items = [self.floors.duty(i, memory) for i in members(results)]
            found = self._divisions[key] = Division(self.floors, self.purse, items, memory)
        return found

    def _touches(self, value: int, memory: int) -> int:
        """Return the arrays that a kernel for `value` reads or makes, once for every kind of kernel."""
        key = value, memory & self.kernels.cones.around[value]
        found = self._touched.get(key)
        if found is None:
            body = self.kernels.best(1 << value, memory).body
            arrays, found = self.memo.shared(body | self.kernels.inputs(body)), 0
            for kind in self.kernels.groups(value):
                found |= arrays << len(self.memo.values) * self._kinds.setdefault(kind, len(self._kinds))
            self._touched[key] = found
        return found

    def _parts(self, results: int, memory: int) -> list[int]:
        """Divide results into sets that gain nothing from a kernel with results of another one."""
        found: list[tuple[int, int]] = []
        for i in members(results):
            part, touched = 1 << i, self._touches(i, memory)
            self.purse.hurry()
            near = [p for p in found if p[1] & touched]
            if not near:
                found.append((part, touched))
                continue
            for values, arrays in near:
                part, touched = part | values, touched | arrays
            found[found.index(near[0])] = part, touched
            for p in near[1:]:
                found.remove(p)
        return [part for part, _ in found]

    def _together(self, results: int, memory: int, most: float) -> Grouped | None:
        """Return the cheapest way to put `results` into kernels, None if it is not below `most`."""
        key = results, memory & self.kernels.reach(results)
        found = self._known.get(key)
        if found is None:
            found = self._divide(results, memory, most)
            if found is not None:
                self._known[key] = found
        return found if found is not None and (found[0] < most or most == inf) else None

    def _divide(self, results: int, memory: int, most: float) -> Grouped | None:
        found = self._first(results, memory, most)
        whole = len(found[1]) == 1 and found[1][0].results == results
        if results & results - 1 == 0 or whole and found[1][0].form == LOOP:
            return found
        if results.bit_count() > MAX_WIDE or self.purse.exhausted():
            self.purse.spent = True
        else:
            found = self._division(results, memory).run(found)
        return found if found[1] else None

    def _one_by_one(self, items: Sequence[int], memory: int) -> Grouped:
        """Put results together in turn, never so that kernels wait for each other."""
        kernels = self.kernels
        groups: list[Candidate] = []
        for i in items:
            self.purse.hurry()
            alone = kernels.best(1 << i, memory)
            options: list[tuple[float, int, Candidate]] = []
            for g in self._nearest(groups, alone, i):
                seconds = groups[g].seconds
                wider = kernels.gains(groups[g].results | 1 << i, memory, alone.seconds + seconds)
                if wider is not None:
                    options.append((wider.seconds - seconds, g, wider))
            for _, g, wider in sorted(options, key=lambda o: o[:2]):
                if not closes(groups, g, wider, kernels):
                    groups[g] = wider
                    break
            else:
                groups.append(alone)
        return sum(g.seconds for g in groups), tuple(groups)

    def _nearest(self, groups: Sequence[Candidate], alone: Candidate, value: int) -> list[int]:
        """Return the groups that may take `value` in, those first that have most to read in common."""
        kernels = self.kernels
        mine, _ = kernels.touches(alone.body)
        found = []
        for g, group in enumerate(groups):
            if kernels.mates.may_share(group.results, value):
                theirs, _ = kernels.touches(group.body)
                found.append((-kernels.reading_sources(mine & theirs), -g))
        return [-g for _, g in sorted(found)[:NEAREST if self.purse.exhausted() else NEAR]]
