"""Sorting and searching in loops: NumPy's own functions sort, binary searches are written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import scalars
from jitla.loopjit.arrays import (
    ONE,
    ZERO,
    allocate,
    array_of,
    each_element,
    elementwise,
    materialise,
    require_c_order,
    store,
    transposed,
)
from jitla.loopjit.builder import (
    LoweringContext,
    ProgramBuilder,
    apply,
    both,
    cast,
    compare,
    either,
    plus,
)
from jitla.loopjit.loop_sites import NO_MEMORY
from jitla.loopjit.values import (
    STORAGE,
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    StaticValue,
    describe,
    of_kind,
)

Arguments = Sequence[Abstract]
Keywords = Mapping[str, Abstract]
Handler = Callable[[LoweringContext, Arguments, Keywords], Abstract]
_KINDS = {None: "quicksort", "quicksort": "quicksort", "stable": "stable", "mergesort": "stable"}


def _kind(value: Abstract | None) -> str:
    """Return the function that an argument `kind` names."""
    name = value.value if isinstance(value, StaticValue) else None if value is None else 0
    if name not in _KINDS:
        raise LoweringRefused("a kind of sort that is not known")
    return _KINDS[name]


def _axis(value: Abstract | None, ndim: int) -> int:
    axis = -1 if value is None else scalars.constant_integer(value) if isinstance(value, Num) else None
    if axis is None or not -ndim <= axis < ndim:
        raise LoweringRefused("an axis that is no constant integer, or out of bounds")
    return axis % ndim


def _sortable(value: Abstract | None) -> Arr | Elementwise:
    if not isinstance(value, (Arr, Elementwise)) or value.dtype.kind not in "biuf":
        raise LoweringRefused(f"a sort of {'nothing' if value is None else describe(value)}")
    return value


def sort_rows(b: ProgramBuilder, array: Arr, kind: str) -> None:
    """Sort the rows of a C-contiguous array in place."""
    exit_number = b.undo(NO_MEMORY)
    each_element(b, array.shape[:-1], lambda at: b.emit(ir.Sort(
        kind, ir.Address(array.view, (*at, ZERO)), array.shape[-1], None, exit_number)))


def _last_axis(b: ProgramBuilder, array: Arr, axis: int) -> Arr:
    """Return an array with one of its axes moved to the end."""
    if axis == array.ndim - 1:
        return array
    return transposed(b, array, [*(k for k in range(array.ndim) if k != axis), axis])


def _restored(b: ProgramBuilder, array: Arr, axis: int) -> Arr:
    """Return an array with its last axis moved to where it was, in C order."""
    if axis == array.ndim - 1:
        return array
    order = list(range(array.ndim - 1))
    order.insert(axis, array.ndim - 1)
    return materialise(b, transposed(b, array, order))


def _sort(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.sort(a, axis, kind)``."""
    value, axis, kind = _arguments(args, keywords, "a", "axis", "kind")
    b = lowering.b
    source = _sortable(value)
    along = _axis(axis, source.ndim)
    require_c_order(b, elementwise(b, source))
    rows = materialise(b, _last_axis(b, array_of(b, source), along))
    sort_rows(b, rows, _kind(kind))
    return _restored(b, rows, along)


def sort_in_place(b: ProgramBuilder, array: Arr, args: Arguments, keywords: Keywords) -> None:
    """Sort an array in place, as the method does."""
    axis, kind = _arguments(args, keywords, "axis", "kind")
    rows = _last_axis(b, array_of(b, _sortable(array)), _axis(axis, array.ndim))
    copy = materialise(b, rows)
    sort_rows(b, copy, _kind(kind))
    store(b, rows, copy)


def _argsort(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.argsort(a, axis, kind)``."""
    value, axis, kind = _arguments(args, keywords, "a", "axis", "kind")
    b = lowering.b
    source = _sortable(value)
    along = _axis(axis, source.ndim)
    require_c_order(b, elementwise(b, source))
    rows = materialise(b, _last_axis(b, array_of(b, source), along))
    made = allocate(b, ir.INT64, rows.shape)
    each_element(b, made.shape, lambda at: b.emit(ir.StoreElement(made.view, at, at[-1])))
    exit_number, name = b.undo(NO_MEMORY), _kind(kind)
    each_element(b, rows.shape[:-1], lambda at: b.emit(ir.Sort(
        name, ir.Address(rows.view, (*at, ZERO)), rows.shape[-1], ir.Address(made.view, (*at, ZERO)),
        exit_number)))
    return _restored(b, made, along)


def _arguments(args: Arguments, keywords: Keywords, *names: str) -> list[Abstract | None]:
    """Return arguments in the order of their names; None for those that are missing."""
    if len(args) > len(names) or keywords.keys() - set(names[len(args):]):
        raise LoweringRefused("arguments that are not known")
    return [*args, *(keywords.get(name) for name in names[len(args):])]


# --------------------------------------------------------------------------- binary search


def _searchsorted(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.searchsorted(a, v, side)`` by the search of NumPy, also in arrays that are not sorted."""
    value, wanted, side_value = _arguments(args, keywords, "a", "v", "side")
    b = lowering.b
    side = "left" if side_value is None else side_value.value if isinstance(side_value, StaticValue) else ""
    if side not in ("left", "right") or not isinstance(value, (Arr, Elementwise)) or value.ndim != 1 \
            or not isinstance(wanted, (Arr, Elementwise, Num)):
        raise LoweringRefused("a search in other than a vector")
    if isinstance(wanted, Num):
        wanted = scalars.bound(b, wanted)
        kinds = {STORAGE[kind] for kind in wanted.kinds}
        if len(kinds) > 1:
            raise LoweringRefused("a search of a number of several kinds")
        dtype = np.result_type(value.dtype, *kinds)
    else:
        dtype = np.result_type(value.dtype, wanted.dtype)
    if dtype.kind not in "iuf":
        raise LoweringRefused(f"a search of {dtype}")
    array = array_of(b, value)
    search = _Search(b, array, dtype, side)
    if isinstance(wanted, Num):
        key = b.temporary(scalars.stored_as(b, wanted, dtype))
        search.find(key)
        return of_kind("i8", b.temporary(search.low), 0)
    keys = elementwise(b, wanted)
    require_c_order(b, keys)
    made = allocate(b, ir.INT64, keys.shape)
    last = b.fresh("last")
    b.assign(last, ir.constant(0, dtype))
    is_first = b.assign(b.fresh("first"), ir.constant(True, ir.BOOL))

    def step(at: tuple[ir.Value, ...]) -> None:
        key = b.temporary(cast(keys.element(at), dtype))
        rises = both(search.is_before(b.scalar(last, dtype), key), compare("equal", is_first, ir.constant(
            False, ir.BOOL)))
        with b.into([]) as above:
            b.emit(ir.Assign(search.high.name, search.size))
        with b.into([]) as below:
            b.emit(ir.Assign(search.low.name, ZERO))
            b.emit(ir.Assign(search.high.name, apply("minimum", plus(search.high, ONE), search.size)))
        b.emit(ir.If(rises, above, below))  # type: ignore[arg-type]
        b.emit(ir.Assign(last, key))
        b.emit(ir.Assign(is_first.name, ir.constant(False, ir.BOOL)))
        search.narrow(key)
        b.emit(ir.StoreElement(made.view, at, search.low))

    each_element(b, keys.shape, step)
    return made


class _Search:
    """A binary search in a vector: `low` and `high` are variables, between which the index is."""

    def __init__(self, b: ProgramBuilder, array: Arr, dtype: np.dtype, side: str) -> None:
        self.b, self.array, self.dtype, self.side = b, array, dtype, side
        self.size = b.temporary(array.shape[0])
        self.low = b.assign(b.fresh("low"), ZERO)
        self.high = b.assign(b.fresh("high"), self.size)

    def is_before(self, a: ir.Value, c: ir.Value) -> ir.Value:
        """Return whether the index of `c` is behind `a`: NaN are at the end."""
        op = "less" if self.side == "left" else "less_equal"
        test = compare(op, a, c)
        if self.dtype.kind != "f":
            return test
        is_nan = compare("not_equal", c, c)
        return either(test, is_nan if self.side == "right" else both(is_nan, compare("equal", a, a)))

    def find(self, key: ir.Value) -> None:
        """Search in the whole vector."""
        self.narrow(key)

    def narrow(self, key: ir.Value) -> None:
        """Emit the search between `low` and `high`, which are equal afterwards."""
        b = self.b
        label, block = b.fresh("loop"), b.fresh("block")
        with b.into([]) as body:
            b.emit(ir.If(compare("greater_equal", self.low, self.high), (ir.Break(block),)))
            middle = b.temporary(plus(self.low, apply(
                "right_shift", apply("subtract", self.high, self.low), ONE)))
            element = b.temporary(cast(ir.Element(self.array.view, (middle,), self.array.dtype), self.dtype))
            b.emit(ir.If(self.is_before(element, key), (ir.Assign(self.low.name, plus(middle, ONE)),),
                         (ir.Assign(self.high.name, middle),)))
        b.emit(ir.Block(block, (ir.Repeat(label, body),)))  # type: ignore[arg-type]


HANDLERS: dict[Any, Handler] = {np.sort: _sort, np.argsort: _argsort, np.searchsorted: _searchsorted}


def call_sorting_method(lowering: LoweringContext, value: Arr | Elementwise, name: str, args: Arguments,
                        keywords: Keywords) -> Abstract | None:
    """Return the result of a method that sorts or searches; None if it is no such method."""
    match name:
        case "sort" if isinstance(value, Arr):
            sort_in_place(lowering.b, value, args, keywords)
            return StaticValue(None)
        case "argsort":
            return _argsort(lowering, [value, *args], keywords)
        case "searchsorted":
            return _searchsorted(lowering, [value, *args], keywords)
    return None
