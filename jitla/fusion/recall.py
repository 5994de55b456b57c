"""All partitions of a DAG searched, but for those of a kind that was searched before.

Knows: partitions, what their plans depend on. Must not know: how plans are enumerated.
Receives partitions; returns what was found for each, and remembers it under a key without exact sizes.

A key holds what the search looks at: operators, who reads what, how values lie, and sizes by powers of
two. Kernels of a known partition are priced again, for their sizes: one that is not legal is a miss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import inf, isinf

from jitla.classes import dataclass
from jitla.fusion.candidates import Candidates
from jitla.fusion.layout import contiguous
from jitla.fusion.memo import Memo, members
from jitla.fusion.points import Partition
from jitla.fusion.search import Found, Search
from jitla.fusion.waiting import cyclic
from jitla.hops import Hop, Kind

MAX_KNOWN = 512  # partitions


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was chosen, in numbers of the partition: values kept, results and bodies of kernels."""

    kept: int
    kernels: tuple[tuple[int, int], ...]
    spent: bool


class Recall:
    """The plans of the partitions searched last, of programs of one machine and one set of options."""

    def __init__(self, limit: int = MAX_KNOWN) -> None:
        self.limit = limit
        self.hits = 0
        self._plans: OrderedDict[Hashable, _Plan] = OrderedDict()

    def __len__(self) -> int:
        return len(self._plans)

    def look(
        self, key: Hashable, order: Sequence[int], partition: Partition, kernels: Candidates,
    ) -> Found | None:
        """Return the plan known for `key`, if it is legal for these sizes."""
        known = self._plans.get(key)
        if known is None:
            return None
        self._plans.move_to_end(key)
        kept = _numbered(known.kept, order)
        memory = kernels.in_memory(kept)
        made = tuple(kernels.price(_numbered(results, order), _numbered(body, order), memory)
                     for results, body in known.kernels)
        seconds = sum(k.seconds for k in made)
        if isinf(seconds):
            return None
        self.hits += 1
        return Found(partition, seconds, kept, made, spent=known.spent, known=True)

    def keep(self, key: Hashable, order: Sequence[int], found: Found) -> None:
        """Remember a plan; the one used longest ago makes room."""
        at = {i: n for n, i in enumerate(order)}

        def own(values: int) -> int:
            return sum([1 << at[i] for i in members(values)])

        made = tuple((own(k.results), own(k.body)) for k in found.kernels)
        self._plans[key] = _Plan(own(found.chosen), made, found.spent)
        if len(self._plans) > self.limit:
            self._plans.popitem(last=False)


def _numbered(values: int, order: Sequence[int]) -> int:
    return sum([1 << order[n] for n in members(values)])


def key_of(partition: Partition, memo: Memo, kernels: Candidates) -> tuple[Hashable, list[int]]:
    """Return what the plan of a partition depends on, and its values in the order of their numbers there."""
    order = list(members(partition.values))
    number = {i: n for n, i in enumerate(order)}
    dims: dict[int, int] = {}
    sources: dict[int, int] = {}
    words: list[Hashable] = [
        kernels.near, kernels.rows, tuple(t.name for t in memo.templates),
        int(kernels.prices.footprint).bit_length()]
    for i in order:
        for o in members(memo.operands[i] & ~partition.values):
            if o not in number:
                number[o] = len(number)
                behind = memo.before[o] & partition.values
                words.append((
                    number[o], memo.computed >> o & 1, memo.values[o].op.kind is Kind.LEAF,
                    _place(memo.values[o], memo, dims), _first(memo.shared(1 << o), sources),
                    tuple(number[b] for b in members(behind))))
        hop = memo.values[i]
        words.append((
            hop.op.name, hop.attrs, memo.forced >> i & 1, i in partition.points, memo.views >> i & 1,
            tuple(number[memo.number[o]] for o in memo.inputs(hop)), _place(hop, memo, dims),
            tuple(number[o] for o in members((memo.loop[i] or 0) & partition.values)), memo.loop[i] is None,
            tuple(number[o] for o in members((memo.row[i] or 0) & partition.values)), memo.row[i] is None,
            _first(memo.shared(1 << i), sources)))
    return tuple(words), order


def _first(source: int, sources: dict[int, int]) -> int:
    return sources.setdefault(source, len(sources))


def _place(hop: Hop, memo: Memo, dims: dict[int, int]) -> Hashable:
    """Return dtype, sizes and strides of a value: which sizes are the same, all by powers of two."""
    shape, place = hop.meta.shape, memo.facts.layouts[hop]
    size = hop.meta.dtype.itemsize
    strides: Hashable = place == contiguous(shape, size) or tuple(
        (s > 0, s == size, abs(s).bit_length()) for s in place.strides)
    sizes = tuple((dims.setdefault(n, len(dims)), n.bit_length(), n == 1) for n in shape)
    return hop.meta.dtype.str, sizes, strides


def search_all(
    parts: Sequence[Partition], memo: Memo, kernels: Candidates, budget: float = inf,
    recall: Recall | None = None,
) -> list[Found]:
    """Search every partition; those whose kernels would wait for each other are searched as one."""
    def search(part: Partition) -> Found:
        if recall is None or not part.points:
            return Search(part, memo, kernels, budget).run()
        key, order = key_of(part, memo, kernels)
        found = recall.look(key, order, part, kernels)
        if found is None:
            found = Search(part, memo, kernels, budget).run()
            recall.keep(key, order, found)
        return found

    found = [search(p) for p in parts]
    assert not any(isinf(f.seconds) for f in found), "no plan is legal"
    if not cyclic([c for f in found for c in f.kernels], kernels):
        return found
    several = [f for f in found if any(c.results & c.results - 1 for c in f.kernels)]
    values, points = 0, list[int]()
    for f in several:
        values |= f.partition.values
        points += f.partition.points
    whole = Partition(values, tuple(sorted(points, key=lambda i: (-kernels.write[i], i))))
    return [*(f for f in found if f not in several), Search(whole, memo, kernels, budget).run()]
