"""What may be computed together: for every value, which templates it has and what each may take in.

Knows: templates. Must not know: prices, which plan is best.
Receives roots, facts, and values that are given or made otherwise; answers with sets of values.

The memo table of Boehm et al., On Optimizing Operator Fusion Plans, PVLDB 11(12), 2018, section 3.
An entry names all operands its template may take in, and stands for the choice of any of them, so the
table is linear in hops and edges, whatever the number of operands. Values are numbered, operands first;
a set of values is an int whose bits are these numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from jitla.fusion.ends import iteration
from jitla.fusion.kernel import Kernel, Product, data_inputs
from jitla.fusion.results import is_view
from jitla.fusion.rows import ROW, is_in_turn, is_row_view, product_at, row_links, rows_of
from jitla.fusion.templates import CELL, MAGG, TALLY, Facts, Template
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
