"""The memo table of partial fusion plans: which operators can be opened, fused, merged and closed.

Sets of values are integers, with a bit for the number of each value (see `members`).
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from jitla.fusion.iteration import iteration_space
from jitla.fusion.kernel import Kernel, Product, data_inputs
from jitla.fusion.layout import is_view
from jitla.fusion.templates import (
    CELL,
    MAGG,
    ROW,
    TALLY,
    Facts,
    Template,
    is_ordered_reduction,
    is_row_view,
    product_of,
    row_links,
    rows_of,
)
from jitla.hops import Hop, Kind

#: All templates. Where several loop templates open at a value, the first applies; `ROW` is independent of it.
TEMPLATES = [CELL, MAGG, TALLY, ROW]


@lru_cache(maxsize=1 << 14)
def members(values: int) -> tuple[int, ...]:
    """Return the numbers in a set of values, smallest first."""
    numbers = []
    digits = bin(values)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        numbers.append(at)
        at = digits.find("1", at + 1)
    return tuple(numbers)


class Memo:
    """The memo entries of all values below the roots, and their dependencies.

    `materialised` are values that are in memory already; `external` maps values computed outside of the plan
    to the product that computes them. `loop_operands[i]` and `row_operands[i]` are the operands that an entry
    of value i can fuse, None without such an entry: `loop_operands` for a Cell, MAgg or Tally, whichever the
    value has (`loop_templates[i]`), `row_operands` for a Row.
    """

    def __init__(
        self, roots: Iterable[Hop], facts: Facts, materialised: frozenset[Hop] = frozenset(),
        external: Mapping[Hop, Product] | None = None, templates: Sequence[Template] = TEMPLATES,
    ) -> None:
        self.facts = facts
        self.external = external or {}
        self.templates = templates
        self._materialised = materialised
        self._inputs_memo: dict[Hop, tuple[Hop, ...]] = {}
        self.values = self._topological_order(tuple(roots))
        self.number = {h: i for i, h in enumerate(self.values)}
        self.roots = self.set(roots)
        self.arrays = self.set(h for h in self.values if h.meta.shape != ())
        self.computed = self.set(h for h in self.values if not self.is_materialised(h))
        self.operands = [self.set(self.inputs(h)) for h in self.values]
        self.loop_operands: list[int | None] = []
        self.loop_templates: list[str] = []
        self.row_operands: list[int | None] = []
        self.row_counts: list[int] = []
        for hop in self.values:
            self._explore(hop)
        self.views = self.set(h for h in self.values if self._is_view(h))
        self.users = [0] * len(self.values)
        self.ancestors = [0] * len(self.values)
        for i, operands in enumerate(self.operands):
            for o in members(operands):
                self.users[o] |= 1 << i
                self.ancestors[i] |= self.ancestors[o] | 1 << o
        self.spaces = self._number(iteration_space(h) for h in self.values)
        self.forced = self._forced()
        self.layout_numbers = self._number((facts.layouts[h], h.meta.dtype.itemsize) for h in self.values)
        self._sources = self._number(self._source_keys())
        self._source_sets: dict[int, int] = {}

    # ------------------------------------------------------------------ values

    def set(self, hops: Iterable[Hop]) -> int:
        """Return the set of `hops`."""
        values = 0
        for hop in hops:
            values |= 1 << self.number[hop]
        return values

    def hops(self, values: int) -> list[Hop]:
        """Return the hops of a set, operands first."""
        return [self.values[i] for i in members(values)]

    def is_materialised(self, hop: Hop) -> bool:
        """Return whether `hop` is in memory before the plan starts."""
        return hop.op.kind is Kind.LEAF or hop in self._materialised

    def inputs(self, hop: Hop) -> tuple[Hop, ...]:
        """Return the values that must be computed before `hop`."""
        operands = self._inputs_memo.get(hop)
        if operands is None:
            operands = self._inputs_memo[hop] = () if self.is_materialised(hop) else self._inputs(hop)
        return operands

    def _inputs(self, hop: Hop) -> tuple[Hop, ...]:
        product = self.external.get(hop) or product_of(hop, self.facts)
        return product.inputs if product is not None else data_inputs(hop)

    def _topological_order(self, roots: tuple[Hop, ...]) -> list[Hop]:
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

    def _source_keys(self) -> list[object]:
        """Return a key for the memory of every value; a view has the key of its operand.

        A matrix and its transpose that are both leaves have the same key, and so does a leaf transposed
        twice. They might be different arrays, but that is unlikely, and only the predicted cost depends on
        it.
        """
        leaves = Counter(self._strided_shape(h) for h in self.values if h.op.kind is Kind.LEAF)
        seen: Counter[object] = Counter()
        keys: list[object] = []
        for hop in self.values:
            at = self.number.get(hop.inputs[0], len(keys)) if is_view(hop) else len(keys)
            if at < len(keys) and hop.meta.size == hop.inputs[0].meta.size:
                keys.append(keys[at])
                continue
            if hop.op.kind is not Kind.LEAF or hop.meta.ndim < 2:
                keys.append(hop)
                continue
            dtype, axes = self._strided_shape(hop)
            rising = tuple(sorted(axes))
            seen[dtype, axes] += 1
            transposed = leaves[dtype, rising[::-1]] if axes == rising else seen[dtype, axes]
            keys.append((dtype, rising, min(seen[dtype, axes], max(transposed, 1))))
        return keys

    def _strided_shape(self, hop: Hop) -> tuple[np.dtype, tuple[tuple[int, int], ...]]:
        """Return the dtype of a value, and the stride and size of each of its dimensions."""
        place = self.facts.layouts[hop]
        return hop.meta.dtype, tuple(zip(place.strides, place.shape, strict=True))

    def distinct_arrays(self, values: int) -> list[int]:
        """Return one array for each memory that the arrays among `values` are in."""
        return list({self._sources[i]: i for i in members(values & self.arrays)}.values())

    def source_set(self, values: int) -> int:
        """Return the set of memory numbers of the arrays among `values`."""
        values &= self.arrays
        sources = self._source_sets.get(values)
        if sources is None:
            sources = 0
            for i in members(values):
                sources |= 1 << self._sources[i]
            self._source_sets[values] = sources
        return sources

    @staticmethod
    def _number(keys: Iterable[object]) -> list[int]:
        numbers: dict[object, int] = {}
        return [numbers.setdefault(t, len(numbers)) for t in keys]

    # ------------------------------------------------------------------ entries

    def _explore(self, hop: Hop) -> None:
        """Add the entries of `hop`: open its templates, fuse the operands they allow."""
        entries: dict[str, int] = {}
        if not self.is_materialised(hop) and hop not in self.external:
            computed = [i for i in self.inputs(hop) if not self.is_materialised(i) and i not in self.external]
            for template in self.templates:
                if template.open(hop, self.facts) and (template is not ROW or self._has_numpy_order(hop)):
                    entries[template.name] = self.set([
                        i for i in computed
                        if self._is_open(template, i) and template.fuse(hop, i, self.facts)])
        loops = [t for t in self.templates if t is not ROW and t.name in entries]
        self.loop_operands.append(entries[loops[0].name] if loops else None)
        self.loop_templates.append(loops[0].name if loops else "")
        self.row_operands.append(entries.get(ROW.name))
        self.row_counts.append(rows_of(hop, self.facts) if ROW.name in entries else 0)

    def _has_numpy_order(self, hop: Hop) -> bool:
        """Return whether a loop reduces `hop` in NumPy's order, if it is an aggregate: stages are loops."""
        if hop.op.kind is not Kind.AGG:
            return True
        kernel = Kernel(MAGG.name, iteration_space(hop), hop.inputs, (hop,), (hop,))
        walked = MAGG.walk(kernel, self.facts.layouts)
        return walked is not None and (walked[0].mode == "cols" or not is_ordered_reduction(hop, self.facts))

    def _is_open(self, template: Template, operand: Hop) -> bool:
        """Return whether `operand` has an entry that `template` can extend; closed entries cannot be."""
        at = self.number[operand]
        entry = self.row_operands[at] if template is ROW else self.loop_operands[at]
        return entry is not None and not template.close(operand, self.facts)

    def _is_view(self, hop: Hop) -> bool:
        return self.row_operands[self.number[hop]] is not None and is_row_view(hop)

    def fusable(self, value: int) -> int:
        """Return the operands that some template fuses with `value`."""
        return (self.loop_operands[value] or 0) | (self.row_operands[value] or 0)

    def is_call(self, value: int) -> bool:
        """Return whether no kernel can compute `value`."""
        no_entry = self.loop_operands[value] is None and self.row_operands[value] is None
        return no_entry or bool(self.views >> value & 1)

    def is_wide_product(self, value: int) -> bool:
        """Return whether `value` is a product with a wide matrix that a Row computes."""
        product = product_of(self.values[value], self.facts)
        return product is not None and product.wide

    def is_better_unfused(self, value: int) -> bool:
        """Return whether a Row with only `value` is no gain: wide products, sparse products and copies."""
        product = product_of(self.values[value], self.facts)
        return product is not None and (product.wide or product.compressed or product.form == "join")

    def row_reductions(self) -> tuple[int, int]:
        """Return the ordered reductions over rows, and the values that combine partial sums of blocks."""
        rows = [h for h, row in zip(self.values, self.row_operands, strict=True) if row is not None]
        products = {h: p for h in rows if (p := product_of(h, self.facts)) is not None}
        return (self.set(h for h in rows if is_ordered_reduction(h, self.facts)),
                self.set(h for h, p in products.items() if p.form == "sum" or p.wide))

    def row_access(self, value: int) -> tuple[int, int]:
        """Return the operands that a Row reads row by row along axis 0, and those along axis 1."""
        hop = self.values[value]
        links = self.set(i for i in row_links(hop, self.facts) if i in self.number)
        product = product_of(hop, self.facts)
        if product is not None and product.transposed:
            transposed = 1 << self.number[product.matrix]
            return links & ~transposed, transposed
        return links, 0

    def _forced(self) -> int:
        """Return the values that must be in memory: results, and operands that a reader cannot fuse."""
        forced = self.roots & self.computed
        for i in range(len(self.values) - 1, -1, -1):
            is_call = self.views >> i & 1 and forced >> i & 1
            fused = 0 if is_call else self.fusable(i)
            forced |= self.operands[i] & self.computed & ~fused
        return forced


class Compatibility:
    """For every value, the earlier ones that a loop, or with `rows` a row kernel, might share with it."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        self.with_rows = rows
        #: The values that loops compute, by iteration space, and that row kernels compute, by number of rows.
        self.loop_values: dict[int, int] = {}
        self.row_values: dict[int, int] = {}
        #: The values with operands that no loop fuses.
        self.barriers = 0
        self.aggregates = memo.set(h for h in memo.values if h.op.kind is Kind.AGG)
        self.tallies = memo.set(h for h in memo.values if h.op.kind is Kind.TALLY)
        #: Ordered reductions over rows, and sums of blocks' partial sums: never in the same kernel.
        self.ordered, self.partial_sums = memo.row_reductions()
        self._partners = self._pairwise()
        self._any_partner = [loop | row for loop, row in self._partners]
        self._min_kernels: dict[int, int] = {}
        #: For every value, complements of the earlier values that a loop, and a row kernel, may share.
        self.incompatible = [(~loop, ~row) for loop, row in self._partners]

    def _pairwise(self) -> list[tuple[int, int]]:
        """Return, for every value, the earlier ones that a loop, and a row kernel, may share with it.

        They have the same iteration space, or number of rows, and are not separated by a barrier: an edge
        that no kernel of that form fuses over.
        """
        memo = self.memo
        incompatible: tuple[list[int], list[int]] = [], []
        loops, rows = self.loop_values, self.row_values
        partners = []
        for i in range(len(memo.values)):
            takes = memo.loop_operands[i] or 0, memo.row_operands[i] or 0 if self.with_rows else 0
            for own, take in zip(incompatible, takes, strict=True):
                blocked = 0
                for o in members(memo.operands[i]):
                    blocked |= own[o] if take >> o & 1 else memo.ancestors[o] | 1 << o
                own.append(blocked)
            if memo.operands[i] & memo.computed & ~takes[0]:
                self.barriers |= 1 << i
            loop = row = 0
            if memo.loop_operands[i] is not None:
                loop = loops.get(memo.spaces[i], 0) & ~incompatible[0][i] & ~self._unmergeable(i)
                loops[memo.spaces[i]] = loops.get(memo.spaces[i], 0) | 1 << i
            if self.with_rows and memo.row_operands[i] is not None:
                row = rows.get(memo.row_counts[i], 0) & ~incompatible[1][i]
                row &= ~(self.partial_sums if self.ordered >> i & 1 else
                         self.ordered if self.partial_sums >> i & 1 else 0)
                rows[memo.row_counts[i]] = rows.get(memo.row_counts[i], 0) | 1 << i
            partners.append((loop, row))
        return partners

    def _unmergeable(self, value: int) -> int:
        """Return the earlier aggregates that no loop computes together with `value`."""
        if not self.aggregates >> value & 1:
            return 0
        hop = self.memo.values[value]
        return sum([1 << o for o in members(self.aggregates & (1 << value) - 1)
                    if self.memo.spaces[o] == self.memo.spaces[value]
                    and not MAGG.merge(self.memo.values[o], hop)])

    def is_compatible(self, results: int, value: int) -> bool:
        """Return whether some kernel might compute both `results`, all numbered lower, and `value`."""
        loop, row = self._partners[value]
        return results & ~loop == 0 or results & ~row == 0

    def are_compatible(self, a: int, b: int) -> bool:
        """Return whether some kernel might have both values as results."""
        return self.is_compatible(1 << min(a, b), max(a, b))

    def min_kernels(self, values: int) -> int:
        """Return a lower bound on the number of kernels that compute `values`."""
        count = self._min_kernels.get(values)
        if count is None:
            count = self._min_kernels[values] = int(self.heaviest_clique([(i, 1.0) for i in members(values)]))
        return count

    def heaviest_clique(self, items: Iterable[tuple[int, float]]) -> float:
        """Return the greatest weight of pairwise incompatible `items`: (value, weight), operands first.

        The search is greedy: the result may be less than the maximum, so it is a valid lower bound.
        """
        cliques: list[tuple[float, int]] = []  # lightest first
        best, seen, partners = 0.0, 0, self._any_partner
        for i, more in items:
            compatible, excluded = partners[i], 0
            if seen & ~compatible:
                for weight, others in reversed(cliques):
                    if not others & compatible:
                        excluded = others
                        more += weight
                        break
            bit = 1 << i
            seen |= bit
            insort(cliques, (more, excluded | bit))
            if more > best:
                best = more
        return best


class RowAccess:
    """How row kernels read the operands of every value: by rows along axis 0 or axis 1, or whole.

    `along[o]` are the values that read operand o along axis 0; `across[i]` and `whole[i]` are the operands
    that value i reads along axis 1 and whole, `others` the values with any of these. `barriers` are the
    values with operands that no row kernel fuses.
    """

    def __init__(self, memo: Memo) -> None:
        self.along = [0] * len(memo.values)
        self.across: dict[int, int] = {}
        self.whole: dict[int, int] = {}
        self.barriers = self.others = 0
        for i, row in enumerate(memo.row_operands):
            if row is None:
                continue
            along, across = memo.row_access(i)
            whole = memo.operands[i] & memo.arrays & ~(along | across)
            for o in members(along):
                self.along[o] |= 1 << i
            if across | whole:
                self.across[i], self.whole[i] = across, whole
                self.others |= 1 << i
            if memo.operands[i] & memo.computed & ~row:
                self.barriers |= 1 << i


class Closures:
    """The values that kernels for a value may or must compute, memoised; with `rows` row kernels count."""

    def __init__(self, memo: Memo, rows: bool) -> None:
        self.memo = memo
        #: For every value, the operands that some kernel fuses with it.
        self.fusable_operands = [(loop or 0) | (row or 0) if rows else loop or 0
                     for loop, row in zip(memo.loop_operands, memo.row_operands, strict=True)]
        self._fusable_ancestors: list[int] = []
        #: For every value, what kernels for it may compute or read.
        self.reachable_from: list[int] = []
        for i, operands in enumerate(self.fusable_operands):
            cone, around = 1 << i, 1 << i | memo.operands[i]
            for o in members(operands):
                cone |= self._fusable_ancestors[o]
                around |= self.reachable_from[o]
            self._fusable_ancestors.append(cone)
            self.reachable_from.append(around)
        self._reachable: dict[int, int] = {}
        self._with_ancestors: dict[int, int] = {}
        self._closures: list[dict[int, tuple[int, int]]] = [{} for _ in self.fusable_operands]

    def reachable(self, values: int) -> int:
        """Return all values that kernels for `values` may compute or read."""
        values_reached = self._reachable.get(values)
        if values_reached is None:
            values_reached = 0
            for i in members(values):
                values_reached |= self.reachable_from[i]
            self._reachable[values] = values_reached
        return values_reached

    def with_ancestors(self, values: int) -> int:
        """Return `values` and all values they depend on."""
        closed = self._with_ancestors.get(values)
        if closed is None:
            closed = values
            for i in members(values):
                closed |= self.memo.ancestors[i]
            self._with_ancestors[values] = closed
        return closed

    def closure(self, results: int, memory: int) -> tuple[int, int]:
        """Return the values that must be computed for `results`, and the values in memory that could be."""
        body = optional = 0
        for i in members(results):
            memo, readable = self._closures[i], memory & self._fusable_ancestors[i]
            closure = memo.get(readable)
            if closure is None:
                closure = memo[readable] = self._closure(i, readable)
            body |= closure[0]
            optional |= closure[1]
        return body, optional & ~body

    def _closure(self, value: int, memory: int) -> tuple[int, int]:
        """Return `closure` of one value; operands have smaller numbers than their readers."""
        body = pending = 1 << value
        reached, absent, fusable = 0, ~memory, self.fusable_operands
        while pending:
            i = pending.bit_length() - 1
            takes = fusable[i]
            reached |= takes
            new = takes & absent & ~body
            body |= new
            pending = pending ^ 1 << i | new
        return body, reached & memory & ~body
