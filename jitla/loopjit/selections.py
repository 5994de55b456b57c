"""Subscripts with arrays: elements that arrays of integers or masks select, read and stored."""

from __future__ import annotations

from collections.abc import Sequence

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit import arrays
from jitla.loopjit.arrays import (
    MISMATCH,
    ONE,
    ZERO,
    allocate,
    bind,
    broadcast,
    each_element,
    elementwise,
    expanded,
    materialise,
    may_overlap,
    operand_dtypes,
    position,
    require_bound,
    require_storable,
    slices_of,
    squeezed,
)
from jitla.loopjit.builder import ProgramBuilder, apply, cast, compare
from jitla.loopjit.scalars import bound, convert, index_value, result_dtype
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    Sliced,
    of_kind,
)


@dataclass(frozen=True)
class Selection:
    """Elements of `source` that indices select: `indices` by axis, broadcast to `shape`, before `axis` of the
    rest.
    """

    source: Arr
    indices: dict[int, Num | Elementwise]
    shape: tuple[ir.Value, ...]
    axis: int

    @property
    def result_shape(self) -> tuple[ir.Value, ...]:
        """The shape of what is selected."""
        rest = [size for k, size in enumerate(self.source.shape) if k not in self.indices]
        return (*rest[:self.axis], *self.shape, *rest[self.axis:])

    def source_index(self, b: ProgramBuilder, at: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
        """Return the index in the source of an element of the selection, in bounds."""
        inner = at[self.axis:self.axis + len(self.shape)]
        rest = iter((*at[:self.axis], *at[self.axis + len(self.shape):]))
        place = []
        for k in range(self.source.ndim):
            index = self.indices.get(k)
            if index is None:
                place.append(next(rest))
                continue
            if isinstance(index, Elementwise):
                index = index_value(b, of_kind(index.dtype.str[1:], index.element(inner)))
            place.append(position(b, index, ir.Extent(self.source.view, k)))
        return tuple(place)


def selection(b: ProgramBuilder, array: Arr, items: Sequence[Abstract]) -> Selection:
    """Return what a subscript with arrays selects; masks become the indices of their true elements."""
    array = require_bound(b, array)
    found: list[Abstract | _TrueIndices] = []
    for item in expanded(array, items):
        is_mask = isinstance(item, (Arr, Elementwise)) and item.dtype.kind == "b"
        found += true_indices(b, item) if is_mask else [item]  # type: ignore[arg-type]
    for k, part in enumerate(found):
        if isinstance(part, _TrueIndices):
            b.check(compare("not_equal", part.size, ir.Extent(array.view, k)), MISMATCH)
    items = [part.vector if isinstance(part, _TrueIndices) else part for part in found]
    indices: dict[int, Num | Elementwise] = {}
    for k, item in enumerate(items):
        if isinstance(item, (Arr, Elementwise)):
            if item.dtype.kind not in "iu":
                raise LoweringRefused(f"an index of {item.dtype}")
            indices[k] = elementwise(b, item)
        elif isinstance(item, Num):
            if item.dtype.kind == "b":
                raise LoweringRefused("a bool as an index")
            indices[k] = index_value(b, b.evaluated(item))
        elif not isinstance(item, Sliced):
            raise LoweringRefused("a new axis in a subscript with arrays")
    axes = slices_of(b, array,
                     [Sliced((None, None, None)) if k in indices else item for k, item in enumerate(items)])
    source = bind(b, array, (), axes, None)
    shape, aligned = broadcast(b, list(indices.values()))
    places = sorted(indices)
    together = places == list(range(places[0], places[-1] + 1))
    return Selection(source, dict(zip(indices, aligned, strict=True)), shape, places[0] if together else 0)


def subscript(b: ProgramBuilder, array: Arr, items: Sequence[Abstract]) -> Abstract:
    """Return ``array[items]``: an element, a view, or the elements that an array of integers selects."""
    if any(isinstance(item, (Arr, Elementwise)) for item in items):
        return take(b, require_bound(b, array), items)
    return arrays.subscript(b, array, items)


def take(b: ProgramBuilder, array: Arr, items: Sequence[Abstract]) -> Elementwise:
    """Return the elements that a subscript with arrays selects, as an expression."""
    chosen = selection(b, array, items)
    operands = [x for index in chosen.indices.values() if isinstance(index, Elementwise)
                for x in index.operands]
    return Elementwise(
        array.dtype, chosen.result_shape,
        lambda at: ir.Element(chosen.source.view, chosen.source_index(b, at), array.dtype),
        (chosen.source, *operands),
        chosen.axis == 0 and len(chosen.shape) == 1)


def put(b: ProgramBuilder, array: Arr, items: Sequence[Abstract], value: Abstract) -> None:
    """Store a value in the elements that a subscript with arrays selects."""
    chosen = selection(b, array, items)
    for k, index in list(chosen.indices.items()):
        if isinstance(index, Elementwise) and any(x.may_share_memory(array) for x in index.operands):
            chosen.indices[k] = elementwise(b, materialise(b, index))
    view, dtype = chosen.source.view, array.dtype
    if isinstance(value, Num):
        element = b.temporary(convert(b, bound(b, value), dtype))
        each_element(b, chosen.result_shape, lambda at: b.emit(
            ir.StoreElement(view, chosen.source_index(b, at), element)))
        return
    if not isinstance(value, (Arr, Elementwise)):
        raise LoweringRefused("a store to elements that an array selects")
    if len(chosen.shape) > 1:
        raise LoweringRefused("a store to elements that an array of several axes selects")
    value = squeezed(b, value, len(chosen.result_shape))
    require_storable(value, dtype)
    _, (aligned,) = broadcast(b, [value], chosen.result_shape)
    assert isinstance(aligned, Elementwise)
    if any(may_overlap(chosen.source, operand) for operand in aligned.operands):
        aligned = elementwise(b, materialise(b, aligned))
    each_element(b, chosen.result_shape, lambda at: b.emit(
        ir.StoreElement(view, chosen.source_index(b, at), cast(aligned.element(at), dtype))))


def operate_at(b: ProgramBuilder, op: str, array: Arr, items: Sequence[Abstract], value: Abstract) -> None:
    """Apply an operator to the elements that a subscript with arrays selects, in their order, and `value`.

    An element that is selected twice is changed twice.
    """
    chosen = selection(b, array, items)
    if len(chosen.indices) != array.ndim or len(chosen.shape) != 1:
        raise LoweringRefused("an operation at parts of an array")
    for k, index in list(chosen.indices.items()):
        if isinstance(index, Elementwise) and any(x.may_share_memory(array) for x in index.operands):
            chosen.indices[k] = elementwise(b, materialise(b, index))
    view, dtype = chosen.source.view, array.dtype
    if isinstance(value, (Arr, Elementwise)):
        _, (aligned,) = broadcast(b, [value], chosen.result_shape)
        assert isinstance(aligned, Elementwise)
        if any(x.may_share_memory(array) for x in aligned.operands):
            aligned = elementwise(b, materialise(b, aligned))
        operand: Num | Elementwise = aligned
    elif isinstance(value, Num):
        operand = b.evaluated(bound(b, value))
    else:
        raise LoweringRefused("an operation with other than numbers")
    stand_in = Elementwise(dtype, chosen.result_shape, lambda at: ZERO, ())
    ins = operand_dtypes(op, [stand_in, operand])
    out = result_dtype(op, ins)
    if out != dtype or ins[0] != dtype:
        raise LoweringRefused(f"an operation whose result is {out} at elements of {dtype}")
    constant = b.temporary(convert(b, operand, ins[1])) if isinstance(operand, Num) else None

    def change(at: tuple[ir.Value, ...]) -> None:
        place = chosen.source_index(b, at)
        other = constant
        if other is None:
            assert isinstance(operand, Elementwise)
            other = cast(operand.element(at), ins[1])
        b.emit(ir.StoreElement(view, place, ir.Apply(op, (ir.Element(view, place, dtype), other), out)))

    each_element(b, chosen.result_shape, change)


@dataclass(frozen=True)
class _TrueIndices:
    """The indices along one axis of the true elements of a mask, and the extent of the mask there."""

    vector: Arr
    size: ir.Value


def count_true(b: ProgramBuilder, mask: Elementwise) -> ir.Value:
    """Return how many elements of an expression are not zero."""
    name = b.fresh("count")
    count = b.assign(name, ZERO)
    each_element(b, mask.shape, lambda at: b.emit(ir.If(
        is_true(mask, at), (ir.Assign(name, apply("add", count, ONE)),))))
    return count


def is_true(mask: Elementwise, at: tuple[ir.Value, ...]) -> ir.Value:
    """Return whether an element of an expression is not zero."""
    element = mask.element(at)
    return element if mask.dtype.kind == "b" else compare("not_equal", element, cast(ZERO, mask.dtype))


def true_indices(b: ProgramBuilder, mask: Arr | Elementwise) -> list[_TrueIndices]:
    """Return the indices of the elements of a mask that are not zero, one vector for each axis."""
    mask = elementwise(b, mask)
    if len(mask.operands) != 1:
        mask = elementwise(b, materialise(b, mask))
    count = b.temporary(count_true(b, mask))
    vectors = [allocate(b, ir.INT64, (count,)) for _ in range(mask.ndim)]
    name = b.fresh("k")
    k = b.assign(name, ZERO)

    def note(at: tuple[ir.Value, ...]) -> None:
        with b.into([]) as found:
            for vector, index in zip(vectors, at, strict=True):
                b.emit(ir.StoreElement(vector.view, (k,), index))
            b.emit(ir.Assign(name, apply("add", k, ONE)))
        b.emit(ir.If(is_true(mask, at), found))  # type: ignore[arg-type]

    each_element(b, mask.shape, note)
    return [_TrueIndices(Arr(v.view, v.dtype, 1, v.origins, fresh=True, sizes=(count,)), size)
            for v, size in zip(vectors, mask.shape, strict=True)]


def nonzero(b: ProgramBuilder, value: Arr | Elementwise) -> tuple[Arr, ...]:
    """Return what ``np.nonzero`` returns."""
    return tuple(found.vector for found in true_indices(b, value))
