"""The memo table of partial fusion plans: which operators can be opened, fused, merged and closed."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from jitla.fusion.iteration import iteration
from jitla.fusion.kernel import Kernel, Product, data_inputs
from jitla.fusion.layout import is_view
from jitla.fusion.templates import (
    CELL,
    MAGG,
    ROW,
    TALLY,
    Facts,
    Template,
    is_in_turn,
    is_row_view,
    product_at,
    row_links,
    rows_of,
)
from jitla.hops import Hop, Kind

#: Every template there is; where several open at a value, the first counts; rows may count beside it.
TEMPLATES = [CELL, MAGG, TALLY, ROW]


@lru_cache(maxsize=1 << 14)
def members(values: int) -> tuple[int, ...]:
    """Return the numbers in a set, smallest first."""
    found = []
    digits = bin(values)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        found.append(at)
        at = digits.find("1", at + 1)
    return tuple(found)


class Memo:
    """The entries of all values below the roots, and what they read.

    `given` are values that lie in memory already; `made` are those computed otherwise, and how.
    `loop[i]` and `row[i]` are the operands that the entry of value i may take in, None if there is no
    such entry: `loop` for a Cell, MAgg or Tally, whichever the value has (`loops[i]`), `row` for a Row.
    """

    def __init__(
        self, roots: Iterable[Hop], facts: Facts, given: frozenset[Hop] = frozenset(),
        made: Mapping[Hop, Product] | None = None, templates: Sequence[Template] = TEMPLATES,
    ) -> None:
        self.facts = facts
        self.made = made or {}
        self.templates = templates
        self._given = given
        self._read: dict[Hop, tuple[Hop, ...]] = {}
        self.values = self._sorted(tuple(roots))
        self.number = {h: i for i, h in enumerate(self.values)}
        self.roots = self.set(roots)
        self.arrays = self.set(h for h in self.values if h.meta.shape != ())
        self.computed = self.set(h for h in self.values if not self.is_given(h))
        self.operands = [self.set(self.inputs(h)) for h in self.values]
        self.loop: list[int | None] = []
        self.loops: list[str] = []
        self.row: list[int | None] = []
        self.rows: list[int] = []
        for hop in self.values:
            self._explore(hop)
        self.views = self.set(h for h in self.values if self._is_view(h))
        self.users = [0] * len(self.values)
        self.before = [0] * len(self.values)
        for i, operands in enumerate(self.operands):
            for o in members(operands):
                self.users[o] |= 1 << i
                self.before[i] |= self.before[o] | 1 << o
        self.spaces = self._number(iteration(h) for h in self.values)
        self.forced = self._forced()
        self.lies = self._number((facts.layouts[h], h.meta.dtype.itemsize) for h in self.values)
        self._sources = self._number(self._memory())
        self._shared: dict[int, int] = {}

    # ------------------------------------------------------------------ values

    def set(self, hops: Iterable[Hop]) -> int:
        """Return the set of `hops`."""
        found = 0
        for hop in hops:
            found |= 1 << self.number[hop]
        return found

    def hops(self, values: int) -> list[Hop]:
        """Return the hops of a set, operands first."""
        return [self.values[i] for i in members(values)]

    def is_given(self, hop: Hop) -> bool:
        """Tell whether `hop` needs no step."""
        return hop.op.kind is Kind.LEAF or hop in self._given

    def inputs(self, hop: Hop) -> tuple[Hop, ...]:
        """Return the values that have to be there before `hop` is computed."""
        found = self._read.get(hop)
        if found is None:
            found = self._read[hop] = () if self.is_given(hop) else self._inputs(hop)
        return found

    def _inputs(self, hop: Hop) -> tuple[Hop, ...]:
        product = self.made.get(hop) or product_at(hop, self.facts)
        return product.inputs if product is not None else data_inputs(hop)

    def _sorted(self, roots: tuple[Hop, ...]) -> list[Hop]:
        order: list[Hop] = []
        seen: set[Hop] = set()
        stack = [(r, False) for r in reversed(roots)]
        while stack:
            hop, done = stack.pop()
            if done:
                order.append(hop)
            elif hop not in seen:
                seen.add(hop)
                stack.append((hop, True))
                stack += [(i, False) for i in reversed(self.inputs(hop)) if i not in seen]
        return order

    def _memory(self) -> list[object]:
        """Return what stands for the memory of every value: of a view, that of its operand.

        It is the same for a matrix and its transpose, both leaves, and for a transpose that is taken
        again. They might be two arrays; that they are one is far more likely, and only prices depend on it.
        """
        leaves = Counter(self._walked(h) for h in self.values if h.op.kind is Kind.LEAF)
        seen: Counter[object] = Counter()
        found: list[object] = []
        for hop in self.values:
            at = self.number.get(hop.inputs[0], len(found)) if is_view(hop) else len(found)
            if at < len(found) and hop.meta.size == hop.inputs[0].meta.size:
                found.append(found[at])
                continue
            if hop.op.kind is not Kind.LEAF or hop.meta.ndim < 2:
                found.append(hop)
                continue
            dtype, walked = self._walked(hop)
            rising = tuple(sorted(walked))
            seen[dtype, walked] += 1
            upright = leaves[dtype, rising[::-1]] if walked == rising else seen[dtype, walked]
            found.append((dtype, rising, min(seen[dtype, walked], max(upright, 1))))
        return found

    def _walked(self, hop: Hop) -> tuple[np.dtype, tuple[tuple[int, int], ...]]:
        """Return the dtype of a value, and the stride and size of each of its dimensions."""
        place = self.facts.layouts[hop]
        return hop.meta.dtype, tuple(zip(place.strides, place.shape, strict=True))

    def sources(self, values: int) -> list[int]:
        """Return the arrays among `values`, those that share memory once."""
        return list({self._sources[i]: i for i in members(values & self.arrays)}.values())

    def shared(self, values: int) -> int:
        """Return the memory that the arrays among `values` lie in, as a set of its own."""
        values &= self.arrays
        found = self._shared.get(values)
        if found is None:
            found = 0
            for i in members(values):
                found |= 1 << self._sources[i]
            self._shared[values] = found
        return found

    @staticmethod
    def _number(things: Iterable[object]) -> list[int]:
        found: dict[object, int] = {}
        return [found.setdefault(t, len(found)) for t in things]

    # ------------------------------------------------------------------ entries

    def _explore(self, hop: Hop) -> None:
        """Write the entries of `hop` down: open its templates, fuse what they may take in."""
        entries: dict[str, int] = {}
        if not self.is_given(hop) and hop not in self.made:
            computed = [i for i in self.inputs(hop) if not self.is_given(i) and i not in self.made]
            for template in self.templates:
                if template.open(hop, self.facts) and (template is not ROW or self._is_reduced(hop)):
                    entries[template.name] = self.set([
                        i for i in computed if self._open(template, i) and template.fuse(hop, i, self.facts)])
        loops = [t for t in self.templates if t is not ROW and t.name in entries]
        self.loop.append(entries[loops[0].name] if loops else None)
        self.loops.append(loops[0].name if loops else "")
        self.row.append(entries.get(ROW.name))
        self.rows.append(rows_of(hop, self.facts) if ROW.name in entries else 0)

    def _is_reduced(self, hop: Hop) -> bool:
        """Tell whether a loop adds `hop` up in NumPy's order, should it be an aggregate: stages are loops."""
        if hop.op.kind is not Kind.AGG:
            return True
        kernel = Kernel(MAGG.name, iteration(hop), hop.inputs, (hop,), (hop,))
        found = MAGG.walk(kernel, self.facts.layouts)
        return found is not None and (found[0].mode == "cols" or not is_in_turn(hop, self.facts))

    def _open(self, template: Template, operand: Hop) -> bool:
        """Tell whether there is an entry of `operand` that `template` continues; one that closed has none."""
        at = self.number[operand]
        found = self.row[at] if template is ROW else self.loop[at]
        return found is not None and not template.close(operand, self.facts)

    def _is_view(self, hop: Hop) -> bool:
        return self.row[self.number[hop]] is not None and is_row_view(hop)

    def fusable(self, value: int) -> int:
        """Return the operands that some template takes in at `value`."""
        return (self.loop[value] or 0) | (self.row[value] or 0)

    def is_call(self, value: int) -> bool:
        """Tell whether no kernel computes `value`."""
        return self.loop[value] is None and self.row[value] is None or bool(self.views >> value & 1)

    def is_wide(self, value: int) -> bool:
        """Tell whether `value` is a product with a wide matrix that a Row makes."""
        product = product_at(self.values[value], self.facts)
        return product is not None and product.wide

    def is_better_alone(self, value: int) -> bool:
        """Tell whether a Row gains nothing if `value` is all it makes: wide or sparse products, copies."""
        product = product_at(self.values[value], self.facts)
        return product is not None and (product.wide or product.compressed or product.form == "join")

    def turns(self) -> tuple[int, int]:
        """Return the values to which rows are added in turn, and those that take sums of several blocks."""
        rows = [h for h, row in zip(self.values, self.row, strict=True) if row is not None]
        products = {h: p for h in rows if (p := product_at(h, self.facts)) is not None}
        return (self.set(h for h in rows if is_in_turn(h, self.facts)),
                self.set(h for h, p in products.items() if p.form == "sum" or p.wide))

    def links(self, value: int) -> tuple[int, int]:
        """Return the operands of which a Row reads one row after the other, along axis 0 or axis 1."""
        hop = self.values[value]
        links = self.set(i for i in row_links(hop, self.facts) if i in self.number)
        product = product_at(hop, self.facts)
        if product is not None and product.turned:
            turned = 1 << self.number[product.matrix]
            return links & ~turned, turned
        return links, 0

    def _forced(self) -> int:
        """Values that have to be in memory: results, and what somebody reads who cannot compute it."""
        found = self.roots & self.computed
        for i in range(len(self.values) - 1, -1, -1):
            called = self.views >> i & 1 and found >> i & 1
            taken = 0 if called else self.fusable(i)
            found |= self.operands[i] & self.computed & ~taken
        return found


class Mates:
    """For every value, the earlier ones that some kernel, with `rows` a row kernel, might make with it."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        self.by_rows = rows
        #: The values that loops over one space compute, and row kernels over so many rows, by their numbers.
        self.loops: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        #: The values with operands that no loop takes in.
        self.borders = 0
        self.aggregates = memo.set(h for h in memo.values if h.op.kind is Kind.AGG)
        self.tallies = memo.set(h for h in memo.values if h.op.kind is Kind.TALLY)
        #: The values to which blocks of rows are added in turn, and those that add up several: never both.
        self.turns, self.sums = memo.turns()
        self._mates = self._shared()
        self._together = [loop | row for loop, row in self._mates]
        self._counts: dict[int, int] = {}
        #: For every value, those that no loop, and those that no row kernel, makes with it, if in front.
        self.apart = [(~loop, ~row) for loop, row in self._mates]

    def _shared(self) -> list[tuple[int, int]]:
        """For every value, find the earlier ones that may be results of the same loop, or row kernel.

        No value waits for another one there over a border, which no kernel of that form computes across.
        """
        memo = self.memo
        apart: tuple[list[int], list[int]] = [], []
        loops, rows = self.loops, self.rows
        found = []
        for i in range(len(memo.values)):
            takes = memo.loop[i] or 0, memo.row[i] or 0 if self.by_rows else 0
            for own, take in zip(apart, takes, strict=True):
                behind = 0
                for o in members(memo.operands[i]):
                    behind |= own[o] if take >> o & 1 else memo.before[o] | 1 << o
                own.append(behind)
            if memo.operands[i] & memo.computed & ~takes[0]:
                self.borders |= 1 << i
            loop = row = 0
            if memo.loop[i] is not None:
                loop = loops.get(memo.spaces[i], 0) & ~apart[0][i] & ~self._otherwise(i)
                loops[memo.spaces[i]] = loops.get(memo.spaces[i], 0) | 1 << i
            if self.by_rows and memo.row[i] is not None:
                row = rows.get(memo.rows[i], 0) & ~apart[1][i]
                row &= ~(self.sums if self.turns >> i & 1 else self.turns if self.sums >> i & 1 else 0)
                rows[memo.rows[i]] = rows.get(memo.rows[i], 0) | 1 << i
            found.append((loop, row))
        return found

    def _otherwise(self, value: int) -> int:
        """Return the aggregates in front of `value` that no loop takes together with it."""
        if not self.aggregates >> value & 1:
            return 0
        hop = self.memo.values[value]
        return sum([1 << o for o in members(self.aggregates & (1 << value) - 1)
                    if self.memo.spaces[o] == self.memo.spaces[value]
                    and not MAGG.merge(self.memo.values[o], hop)])

    def may_share(self, results: int, value: int) -> bool:
        """Tell whether some kernel might make `results`, all in front of `value`, and it."""
        loop, row = self._mates[value]
        return results & ~loop == 0 or results & ~row == 0

    def are_mates(self, a: int, b: int) -> bool:
        """Tell whether some kernel might make both values."""
        return self.may_share(1 << min(a, b), max(a, b))

    def count(self, values: int) -> int:
        """Return how many kernels it takes at least to make `values`."""
        found = self._counts.get(values)
        if found is None:
            found = self._counts[values] = int(self.clique([(i, 1.0) for i in members(values)]))
        return found

    def clique(self, items: Iterable[tuple[int, float]]) -> float:
        """Return the largest sum of what is said of some `items`, operands first, that no two of can share.

        It is not always found; then what is returned is less.
        """
        found: list[tuple[float, int]] = []  # the lightest first
        best, seen, together = 0.0, 0, self._together
        for i, more in items:
            mine, apart = together[i], 0
            if seen & ~mine:
                for weight, others in reversed(found):
                    if not others & mine:
                        apart = others
                        more += weight
                        break
            bit = 1 << i
            seen |= bit
            insort(found, (more, apart | bit))
            if more > best:
                best = more
        return best


class Links:
    """How row kernels read the operands of every value: row by row along axis 0 or axis 1, or as a whole.

    `along[o]` are the values that read operand o along axis 0; `across[i]` and `whole[i]` the operands
    that value i reads otherwise, `others` the values that have such. `borders` have operands that no row
    kernel takes in.
    """

    def __init__(self, memo: Memo) -> None:
        self.along = [0] * len(memo.values)
        self.across: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        self.borders = self.others = 0
        for i, row in enumerate(memo.row):
            if row is None:
                continue
            along, across = memo.links(i)
            whole = memo.operands[i] & memo.arrays & ~(along | across)
            for o in members(along):
                self.along[o] |= 1 << i
            if across | whole:
                self.across[i], self.whole[i] = across, whole
                self.others |= 1 << i
            if memo.operands[i] & memo.computed & ~row:
                self.borders |= 1 << i


class Cones:
    """What can be computed for values, with `rows` in row kernels, too; each found once."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        #: The operands that some kernel takes in at every value.
        self.take = [(loop or 0) | (row or 0) if rows else loop or 0
                     for loop, row in zip(memo.loop, memo.row, strict=True)]
        self._cones: list[int] = []
        #: What kernels for a value may compute or read.
        self.around: list[int] = []
        for i, take in enumerate(self.take):
            cone, around = 1 << i, 1 << i | memo.operands[i]
            for o in members(take):
                cone |= self._cones[o]
                around |= self.around[o]
            self._cones.append(cone)
            self.around.append(around)
        self._reach: dict[int, int] = {}
        self._below: dict[int, int] = {}
        self._grown: list[dict[int, tuple[int, int]]] = [{} for _ in self.take]

    def reach(self, values: int) -> int:
        """Return all values that kernels for `values` may compute or read."""
        found = self._reach.get(values)
        if found is None:
            found = 0
            for i in members(values):
                found |= self.around[i]
            self._reach[values] = found
        return found

    def below(self, values: int) -> int:
        """Return everything in front of `values`, themselves included."""
        found = self._below.get(values)
        if found is None:
            found = values
            for i in members(values):
                found |= self.memo.before[i]
            self._below[values] = found
        return found

    def grow(self, results: int, memory: int) -> tuple[int, int]:
        """Return what has to be computed for `results`, and the values in memory that could be."""
        body = optional = 0
        for i in members(results):
            known, there = self._grown[i], memory & self._cones[i]
            found = known.get(there)
            if found is None:
                found = known[there] = self._grow(i, there)
            body |= found[0]
            optional |= found[1]
        return body, optional & ~body

    def _grow(self, value: int, memory: int) -> tuple[int, int]:
        """Return what has to be computed for `value`; operands have smaller numbers than their readers."""
        body = left = 1 << value
        taken, absent, take = 0, ~memory, self.take
        while left:
            i = left.bit_length() - 1
            takes = take[i]
            taken |= takes
            new = takes & absent & ~body
            body |= new
            left = left ^ 1 << i | new
        return body, taken & memory & ~body
