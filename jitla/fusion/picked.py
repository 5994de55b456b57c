"""One element of every window or block: the slices and cells that make it.

Knows: views and cells. Must not know: aggregates, layouts, prices.
Receives a value and where along some of its axes; returns the value there, without these axes.
"""

from __future__ import annotations

from collections.abc import Mapping

from jitla.hops import Hop, Kind, Section, expressible, make, sections

Places = Mapping[int, int]


def is_windows(hop: Hop) -> bool:
    """Tell whether `hop` is windows over another value."""
    return hop.op.name == "windows"


def shifted(value: Hop, axis: int, at: int, length: int, line: Hop) -> Hop:
    """Return the elements number `at` of all windows of `length` along `axis`."""
    whole: list[tuple[object, ...]] = [("s", None, None, None)] * value.meta.ndim
    whole[axis] = Section(at, length - 1 - at, 1).item
    return make("getitem", (value,), line.line, index=tuple(whole))


class Picker:
    """What makes the elements at certain places of a value."""

    def cells(self, hop: Hop) -> frozenset[Hop] | None:
        """Return the cells that have to be computed for every place; None if elements cannot be picked."""
        found: set[Hop] = set()
        stack = [hop]
        while stack:
            each = stack.pop()
            if not each.meta.shape or each in found:
                continue
            if each.op.kind is Kind.CELL:
                if not expressible(each) or each.op.name == "ring" or _looks_at_places(each):
                    return None
                found.add(each)
                stack += each.inputs
            elif each.op.name == "expand_dims" or _sliced_windows(each):
                stack.append(each.inputs[0])
            elif not (each.op.kind is Kind.LEAF or is_windows(each) or _blocks(each)):
                return None
        return frozenset(found)

    def pick(self, hop: Hop, at: Places) -> Hop:
        """Return the elements of `hop` at `at`, an index each for some axes."""
        if not hop.meta.shape or not at:
            return hop
        if hop.op.kind is Kind.CELL:
            return make(hop.op.name, [self.pick(i, _for(i, hop, at)) for i in hop.inputs], hop.line,
                        **dict(hop.attrs))
        if hop.op.name == "expand_dims":
            return self._expanded(hop, at)
        if is_windows(hop):
            return self._of_windows(hop, at)
        blocks = _blocks(hop)
        if blocks and set(at) <= set(blocks):
            return self._of_blocks(hop, at, blocks)
        if _sliced_windows(hop) and min(at) >= hop.inputs[0].inputs[0].meta.ndim:
            return _then(self.pick(hop.inputs[0], at), hop)
        return _items(hop, at)

    def _expanded(self, hop: Hop, at: Places) -> Hop:
        new = [a % hop.meta.ndim for a in hop.attr("axis")]
        old = [a for a in range(hop.meta.ndim) if a not in new]
        inner = self.pick(hop.inputs[0], {old.index(a): i for a, i in at.items() if a in old})
        kept = [a for a in range(hop.meta.ndim) if a not in at]
        axes = tuple(kept.index(a) for a in new if a in kept)
        return make("expand_dims", (inner,), hop.line, axis=axes) if axes else inner

    def _of_windows(self, hop: Hop, at: Places) -> Hop:
        """Return slices of what windows lie over; what is left of them is no window any more."""
        value, along, sizes = hop.inputs[0], hop.attr("axis"), hop.attr("sizes")
        first = value.meta.ndim
        if set(at) != set(range(first, hop.meta.ndim)):
            return _items(hop, at)
        for k, (axis, n) in enumerate(zip(along, sizes, strict=True)):
            value = _joined(shifted(value, axis, at[first + k], n, hop))
        return value

    def _of_blocks(self, hop: Hop, at: Places, blocks: Mapping[int, int]) -> Hop:
        """Return every so many elements of an array that a shape divides into blocks."""
        whole: list[tuple[object, ...]] = [("s", None, None, None)] * hop.inputs[0].meta.ndim
        for axis, index in at.items():
            if hop.meta.shape[axis] > 1:
                whole[blocks[axis]] = Section(index, 0, hop.meta.shape[axis]).item
        value = make("getitem", (hop.inputs[0],), hop.line, index=tuple(whole))
        kept = tuple(n for a, n in enumerate(hop.meta.shape) if a not in at)
        return value if value.meta.shape == kept else _items(hop, at)


def _for(operand: Hop, cell: Hop, at: Places) -> dict[int, int]:
    """Return `at`, places of a cell, as places of one of its operands."""
    missing = cell.meta.ndim - operand.meta.ndim
    return {a - missing: i if operand.meta.shape[a - missing] > 1 else 0
            for a, i in at.items() if a >= missing}


def _items(hop: Hop, at: Places) -> Hop:
    index = tuple(("i", at[a]) if a in at else ("s", None, None, None) for a in range(hop.meta.ndim))
    return make("getitem", (hop,), hop.line, index=index)


def _sliced_windows(hop: Hop) -> bool:
    """Tell whether `hop` is some of all windows, each one whole."""
    taken = sections(hop)
    source = hop.inputs[0] if hop.inputs else hop
    return taken is not None and is_windows(source) and not any(
        (s.first, s.end) != (0, 0) or s.step != 1 for s in taken[source.inputs[0].meta.ndim:])


def _then(value: Hop, view: Hop) -> Hop:
    """Return what the slice `view` takes, of the elements picked of every window."""
    index = view.attr("index")[:value.meta.ndim]
    return _joined(make("getitem", (value,), view.line, index=index))


def _joined(view: Hop) -> Hop:
    """Return a slice of a slice as one slice."""
    outer, inner = sections(view), sections(view.inputs[0])
    if outer is None or inner is None:
        return view
    both = tuple(s.then(t).item for s, t in zip(inner, outer, strict=True))
    return make("getitem", (view.inputs[0].inputs[0],), view.line, index=both)


def _blocks(hop: Hop) -> dict[int, int]:
    """Return the axes that count within blocks, if a shape divides axes into blocks, and of what axis."""
    if hop.op.name != "reshape":
        return {}
    shape, rest, found = hop.inputs[0].meta.shape, list(enumerate(hop.meta.shape)), dict[int, int]()
    for axis, n in enumerate(shape):
        if not rest:
            return {}
        (_, first), rest = rest[0], rest[1:]
        if first == n:
            continue
        if not rest or first * rest[0][1] != n:
            return {}
        found[rest[0][0]] = axis
        rest = rest[1:]
    return found if not rest else {}


def _looks_at_places(cell: Hop) -> bool:
    """Say whether NumPy may cast an element by where it lies: a float that no integer holds."""
    whole = cell.op.name == "cast" and cell.meta.dtype.kind in "iu"
    return whole and cell.inputs[0].meta.dtype.kind in "fc"
