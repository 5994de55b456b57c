"""Arrays made from others in loops: from numbers, reshaped, joined, padded, rolled, and ranges of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import scalars
from jitla.loopjit.arrays import (
    MISMATCH,
    ONE,
    ZERO,
    allocate,
    array_of,
    as_dtype,
    bind,
    each_element,
    elementwise,
    identity_axes,
    is_contiguous,
    map_elements,
    materialise,
    require_bound,
    require_c_order,
    require_contiguous,
    store,
    subscript,
    transposed,
)
from jitla.loopjit.builder import (
    LoweringContext,
    ProgramBuilder,
    apply,
    both,
    cast,
    choose,
    compare,
    either,
    minus,
    plus,
    times,
)
from jitla.loopjit.values import (
    MAX_EXTENT,
    STORAGE,
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    Sliced,
    StaticValue,
    Tup,
    describe,
    number,
)

Arguments = Sequence[Abstract]
Keywords = Mapping[str, Abstract]
Handler = Callable[[LoweringContext, Arguments, Keywords], Abstract]
FULL = Sliced((None, None, None))
FLOAT64 = np.dtype(np.float64)
MAX_DIFFERENCES = 8  # that `np.diff` takes one after the other


def dtype_argument(value: Abstract | None, default: Any) -> np.dtype:
    """Return the dtype that an argument names."""
    if value is None or isinstance(value, StaticValue) and value.value is None:
        standard: np.dtype = np.dtype(default)
        return standard
    if isinstance(value, StaticValue):
        try:
            dtype: np.dtype[Any] = np.dtype(value.value)
        except TypeError as error:
            raise LoweringRefused(f"a dtype {value.value!r:.40}") from error
        if dtype.str[1:] not in STORAGE or not dtype.isnative:
            raise LoweringRefused(f"arrays of {dtype}")
        return dtype
    raise LoweringRefused("a dtype that is no constant")


def constant(value: Abstract | None, what: str, default: int | None = None) -> int:
    """Return an argument that has to be a constant integer."""
    if value is None and default is not None:
        return default
    found = scalars.constant_integer(value) if isinstance(value, Num) else None
    if found is None:
        raise LoweringRefused(f"{what} that is no constant integer")
    return found


def _axis(value: Abstract | None, ndim: int, default: int | None = None) -> int:
    axis = constant(value, "an axis", default)
    if not -ndim <= axis < ndim:
        raise LoweringRefused("an axis out of bounds")
    return axis % ndim


def _arguments(args: Arguments, keywords: Keywords, *names: str) -> list[Abstract | None]:
    """Return arguments in the order of their names; None for those that are missing."""
    if len(args) > len(names) or keywords.keys() - set(names[len(args):]):
        raise LoweringRefused("arguments that are not known")
    return [*args, *(keywords.get(name) for name in names[len(args):])]


def _array(value: Abstract | None) -> Arr | Elementwise:
    if not isinstance(value, (Arr, Elementwise)):
        raise LoweringRefused(f"{'nothing' if value is None else describe(value)} where an array is needed")
    return value


# --------------------------------------------------------------------------- arrays of numbers


def array_from(b: ProgramBuilder, value: Abstract, dtype: np.dtype | None = None) -> Arr:
    """Return ``np.array(value)`` of a tuple or list of numbers, of tuples of numbers, or of arrays."""
    if isinstance(value, (Arr, Elementwise)):
        expression = elementwise(b, value)
        return array_of(b, expression if dtype is None else as_dtype(expression, dtype))
    if not isinstance(value, Tup) or not value.items:
        raise LoweringRefused(f"an array of {describe(value)}")
    if all(isinstance(item, (Arr, Elementwise)) for item in value.items):
        return _stacked(b, [_array(item) for item in value.items], 0, dtype)
    shape, items = _nested(value)
    wanted = dtype or np.result_type(*(_dtype_of(item) for item in items))
    made = allocate(b, wanted, [ir.constant(size) for size in shape])
    elements = [b.temporary(scalars.convert(b, scalars.bound(b, item), wanted)) for item in items]
    for index, element in zip(np.ndindex(*shape), elements, strict=True):
        b.emit(ir.StoreElement(made.view, tuple(ir.constant(k) for k in index), element))
    return made


def _dtype_of(item: Num) -> np.dtype:
    dtypes = {STORAGE[kind] for kind in item.kinds}
    if len(dtypes) > 1:
        raise LoweringRefused("an array of a number of several kinds")
    return dtypes.pop()


def _nested(value: Abstract) -> tuple[tuple[int, ...], list[Num]]:
    """Return the shape and the numbers of nested tuples."""
    if isinstance(value, Num):
        return (), [value]
    if not isinstance(value, Tup):
        raise LoweringRefused(f"an array of {describe(value)}")
    parts = [_nested(item) for item in value.items]
    if not parts or any(shape != parts[0][0] for shape, _ in parts):
        raise LoweringRefused("an array of sequences of several lengths")
    return (len(parts), *parts[0][0]), [item for _, items in parts for item in items]


def _make_array(is_copy: bool) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        value, dtype = _arguments(args, keywords, "object", "dtype")
        wanted = None if dtype is None else dtype_argument(dtype, None)
        if value is None:
            raise LoweringRefused("an array of nothing")
        if isinstance(value, Arr) and not is_copy and wanted in (None, value.dtype):
            return value
        return array_from(lowering.b, value, wanted)

    return handler


# --------------------------------------------------------------------------- other shapes


def reshaped(b: ProgramBuilder, value: Arr | Elementwise, shape: Sequence[Abstract]) -> Arr:
    """Return ``value.reshape(shape)``: a view of a C-contiguous array.

    Of other arrays a vector is a copy, if NumPy copies as well; all else is left to Python.
    """
    array = array_of(b, value)
    if len(shape) == 1 and array.ndim > 1 and not array.fresh:
        array = _as_vector(b, array)
    else:
        require_contiguous(b, array)
    total = b.temporary(reduce(times, array.shape))
    sizes: list[ir.Value | None] = []
    for item in shape:
        if not isinstance(item, Num):
            raise LoweringRefused("a shape that is no tuple of integers")
        if scalars.constant_integer(item) == -1:
            sizes.append(None)
        else:
            sizes.append(b.temporary(scalars.index_value(b, item).value))
            b.check(compare("less", sizes[-1], ZERO), MISMATCH)  # type: ignore[arg-type]
    if sizes.count(None) > 1 or not sizes:
        raise LoweringRefused("a shape with several unknown sizes, or none")
    known: ir.Value = ONE
    for size in sizes:
        known = known if size is None else times(known, size)
    if None in sizes:
        known = b.temporary(known)
        b.check(compare("equal", known, ZERO), MISMATCH)
        missing = b.temporary(apply("floor_divide", total, known))
        b.check(compare("not_equal", times(missing, known), total), MISMATCH)
        sizes[sizes.index(None)] = missing
    else:
        b.check(compare("not_equal", known, total), MISMATCH)
    steps: list[ir.Value] = [ONE]
    for size in reversed(sizes[1:]):
        assert size is not None
        steps.append(b.temporary(times(steps[-1], size)))
    last = array.ndim - 1
    axes = [ir.AxisMap(last, ZERO, size, step) for size, step in zip(sizes, reversed(steps), strict=True)
            if size is not None]
    view = bind(b, array, [(axis, ZERO) for axis in range(last)], axes, None)
    return Arr(view.view, view.dtype, view.ndim, view.origins, view.writeable, fresh=array.fresh,
               sizes=view.sizes)


def _as_vector(b: ProgramBuilder, array: Arr) -> Arr:
    """Return all elements of an array in C order: a view if it is contiguous, a copy if no view has them."""
    total = b.temporary(reduce(times, array.shape))
    last = array.ndim - 1
    view = b.view(b.fresh("v"), array.dtype, 1)

    def flat(source: Arr) -> None:
        b.emit(ir.BindView(view, source.view, tuple((axis, ZERO) for axis in range(last)),
                           (ir.AxisMap(last, ZERO, total, ONE),)))

    with b.into([]) as as_view:
        flat(array)
    with b.into([]) as as_copy:
        step: ir.Value = ZERO  # from the end of a run to its next one, in bytes
        uniform: ir.Value = ir.constant(True, ir.BOOL)
        for axis in reversed(range(array.ndim)):
            size, stride = ir.Extent(array.view, axis), ir.Stride(array.view, axis)
            single = compare("equal", size, ONE)
            follows = either(single, either(compare("equal", step, ZERO), compare("equal", stride, step)))
            uniform = b.temporary(both(uniform, follows))
            step = b.temporary(choose(single, step, apply("multiply", stride, size)))
        b.check(uniform, "a view of an array that is not contiguous as a vector")
        copy = materialise(b, array)
        flat(copy)
    b.emit(ir.If(is_contiguous(array), as_view, as_copy))  # type: ignore[arg-type]
    return Arr(view, array.dtype, 1, array.origins | copy.origins, array.writeable, sizes=(total,))


def _reshape(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, shape = _arguments(args, keywords, "a", "shape")
    items = shape.items if isinstance(shape, Tup) else (shape,)
    return reshaped(lowering.b, _array(value), [item for item in items if item is not None])


def _ravel(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = _arguments(args, keywords, "a")
    array = _array(value)
    if array.ndim == 1:
        vector = array_of(lowering.b, array)
        require_contiguous(lowering.b, vector)
        return bind(lowering.b, vector, (), identity_axes(vector), None)
    return reshaped(lowering.b, array, [number(-1)])


def _permuted(b: ProgramBuilder, value: Abstract | None, order: Sequence[int]) -> Arr:
    return transposed(b, array_of(b, _array(value)), order)


def _transpose(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, axes = _arguments(args, keywords, "a", "axes")
    ndim = _array(value).ndim
    if axes is None or isinstance(axes, StaticValue) and axes.value is None:
        return _permuted(lowering.b, value, range(ndim)[::-1])
    if not isinstance(axes, Tup):
        raise LoweringRefused("axes that are no tuple")
    order = [_axis(item, ndim) for item in axes.items]
    if sorted(order) != list(range(ndim)):
        raise LoweringRefused("axes that do not match")
    return _permuted(lowering.b, value, order)


def _swapaxes(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, one, two = _arguments(args, keywords, "a", "axis1", "axis2")
    ndim = _array(value).ndim
    order = list(range(ndim))
    i, j = _axis(one, ndim), _axis(two, ndim)
    order[i], order[j] = order[j], order[i]
    return _permuted(lowering.b, value, order)


def _moveaxis(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, source, target = _arguments(args, keywords, "a", "source", "destination")
    ndim = _array(value).ndim
    order = [k for k in range(ndim) if k != _axis(source, ndim)]
    order.insert(_axis(target, ndim), _axis(source, ndim))
    return _permuted(lowering.b, value, order)


def _expand_dims(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, axis = _arguments(args, keywords, "a", "axis")
    array = array_of(lowering.b, _array(value))
    at = _axis(axis, array.ndim + 1)
    return subscript(lowering.b, array, [*[FULL] * at, StaticValue(None)])


def _squeeze(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, axis = _arguments(args, keywords, "a", "axis")
    array = array_of(lowering.b, _array(value))
    at = _axis(axis, array.ndim)
    if array.ndim == 1:
        raise LoweringRefused("an array without axes")
    lowering.b.check(compare("not_equal", array.shape[at], ONE), MISMATCH)
    return bind(lowering.b, array, [(at, ZERO)], [x for k, x in enumerate(identity_axes(array)) if k != at],
                None)


def diagonal(b: ProgramBuilder, matrix: Arr, writeable: bool) -> Arr:
    """Return the view of the diagonal of a matrix whose rows are a multiple of its columns apart."""
    matrix = require_bound(b, matrix)
    row, column = ir.Stride(matrix.view, 0), ir.Stride(matrix.view, 1)
    size = b.temporary(apply("minimum", *matrix.shape))
    divisor = b.temporary(choose(compare("equal", column, ZERO), ONE, column))
    b.check(either(compare("equal", column, ZERO), compare(
        "not_equal", apply("remainder", row, divisor), ZERO)), "a matrix whose diagonal is no view of a row")
    step = b.temporary(plus(apply("floor_divide", row, divisor), ONE))
    view = bind(b, matrix, [(0, ZERO)], [ir.AxisMap(1, ZERO, size, step)], None)
    return Arr(view.view, view.dtype, 1, view.origins, writeable, sizes=view.sizes)


# --------------------------------------------------------------------------- arrays of several


def concatenated(b: ProgramBuilder, parts: Sequence[Arr | Elementwise], axis: int,
                 dtype: np.dtype | None = None) -> Arr:
    """Return arrays joined along an axis, in C order."""
    for part in parts:
        require_c_order(b, elementwise(b, part))
        if part.ndim != parts[0].ndim:
            raise LoweringRefused("arrays with several numbers of axes are joined")
    wanted = dtype or np.result_type(*(part.dtype for part in parts))
    sizes = [b.temporary(part.shape[axis]) for part in parts]
    shape = list(parts[0].shape)
    for part in parts[1:]:
        for k, size in enumerate(part.shape):
            if k != axis and size != shape[k]:
                b.check(compare("not_equal", size, shape[k]), MISMATCH)
    shape[axis] = b.temporary(reduce(plus, sizes))
    made = allocate(b, wanted, shape)
    begin: ir.Value = ZERO
    for part, size in zip(parts, sizes, strict=True):
        axes = list(identity_axes(made))
        axes[axis] = ir.AxisMap(axis, begin, size, ONE)
        store(b, bind(b, made, (), axes, None), as_dtype(elementwise(b, part), wanted))
        begin = plus(begin, size)
    return made


def _stacked(b: ProgramBuilder, parts: Sequence[Arr | Elementwise], axis: int,
             dtype: np.dtype | None = None) -> Arr:
    """Return arrays joined along a new axis."""
    expanded = []
    for part in parts:
        array = array_of(b, part)
        expanded.append(subscript(b, array, [*[FULL] * axis, StaticValue(None)]))
    return concatenated(b, [_array(part) for part in expanded], axis, dtype)


def _sequence(value: Abstract | None) -> list[Arr | Elementwise]:
    if not isinstance(value, Tup) or not value.items:
        raise LoweringRefused("arrays that are no tuple or list")
    return [_array(item) for item in value.items]


def _concatenate(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    values, axis = _arguments(args, keywords, "arrays", "axis")
    parts = _sequence(values)
    return concatenated(lowering.b, parts, _axis(axis, parts[0].ndim, 0))


def _stack(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    values, axis = _arguments(args, keywords, "arrays", "axis")
    parts = _sequence(values)
    return _stacked(lowering.b, parts, _axis(axis, parts[0].ndim + 1, 0))


def _hstack(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    parts = _sequence(*_arguments(args, keywords, "tup"))
    return concatenated(lowering.b, parts, min(1, parts[0].ndim - 1))


def _vstack(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    parts = _sequence(*_arguments(args, keywords, "tup"))
    if all(part.ndim == 1 for part in parts):
        return _stacked(lowering.b, parts, 0)
    return concatenated(lowering.b, parts, 0)


def _column_stack(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    parts = _sequence(*_arguments(args, keywords, "tup"))
    b = lowering.b
    columns = [_array(subscript(b, array_of(b, part), [FULL, StaticValue(None)])) if part.ndim == 1 else part
               for part in parts]
    return concatenated(b, columns, 1)


# --------------------------------------------------------------------------- moved and padded


def _roll(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, shift, axis = _arguments(args, keywords, "a", "shift", "axis")
    b = lowering.b
    array = _array(value)
    if not isinstance(shift, Num):
        raise LoweringRefused("a roll along several axes")
    if axis is None and array.ndim > 1:
        vector = reshaped(b, array_of(b, array), [number(-1)])
        moved = array_of(b, _array(_roll(lowering, [vector, shift], {})))
        return reshaped(b, moved, [Num(frozenset({"int"}), size) for size in array.shape])
    along = _axis(axis, array.ndim, 0)
    source = elementwise(b, array)
    size = b.temporary(source.shape[along])
    amount = scalars.index_value(b, shift).value
    count = b.temporary(apply("remainder", amount, apply("maximum", size, ONE)))

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        moved = b.temporary(minus(at[along], count))
        index = choose(compare("less", moved, ZERO), plus(moved, size), moved)
        return source.element((*at[:along], b.temporary(index), *at[along + 1:]))

    # Views for which a store to the same array is known to overlap: elements are read at other indices.
    operands = tuple(bind(b, operand, (), identity_axes(operand), None) for operand in source.operands)
    return Elementwise(source.dtype, source.shape, element, operands, source.is_ordered)


def _repeat(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, count, axis = _arguments(args, keywords, "a", "repeats", "axis")
    b = lowering.b
    array = _array(value)
    if axis is None and array.ndim > 1 or not isinstance(count, Num):
        raise LoweringRefused("a repeat along several axes")
    along = _axis(axis, array.ndim, 0)
    source = elementwise(b, array)
    times_each = b.temporary(scalars.index_value(b, count).value)
    b.check(compare("less_equal", times_each, ZERO), "a repeat by nothing")
    shape = list(source.shape)
    shape[along] = b.temporary(times(shape[along], times_each))
    return materialise(b, Elementwise(source.dtype, tuple(shape), lambda at: source.element((
        *at[:along], b.temporary(apply("floor_divide", at[along], times_each)), *at[along + 1:])),
        source.operands))


def _triangle(keeps: str) -> Handler:
    """Return the handler of ``np.triu`` or ``np.tril``: the elements that `keeps` holds for, else zeros."""
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        value, shift = _arguments(args, keywords, "m", "k")
        b = lowering.b
        source = elementwise(b, _array(value))
        if source.ndim < 2:
            raise LoweringRefused("a triangle of a vector")
        offset = number(0) if shift is None else shift
        if not isinstance(offset, Num):
            raise LoweringRefused("a diagonal that is no number")
        diagonal = b.temporary(scalars.index_value(b, offset).value)
        zero = cast(ZERO, source.dtype)
        return Elementwise(source.dtype, source.shape, lambda at: choose(
            compare(keeps, minus(at[-1], at[-2]), diagonal), source.element(at), zero),
            source.operands, source.is_ordered)

    return handler


def _bincount(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, weights, least = _arguments(args, keywords, "x", "weights", "minlength")
    b = lowering.b
    source = elementwise(b, _array(value))
    if source.ndim != 1 or source.dtype.kind not in "iu" or source.dtype == np.uint64:
        raise LoweringRefused("a bincount of other than a vector of integers")
    weight = None if weights is None else elementwise(b, _array(weights))
    if weight is not None:
        if weight.ndim != 1 or weight.dtype != FLOAT64:
            raise LoweringRefused("weights that are no vector of floats")
        b.check(compare("not_equal", weight.shape[0], source.shape[0]), MISMATCH)
    shortest = number(0) if least is None else least
    if not isinstance(shortest, Num):
        raise LoweringRefused("a length that is no number")
    size = b.assign(b.fresh("size"), scalars.index_value(b, shortest).value)
    b.check(compare("less", size, ZERO), "a negative length")

    def widen(at: tuple[ir.Value, ...]) -> None:
        place = b.temporary(cast(source.element(at), ir.INT64))
        b.check(compare("less", place, ZERO), "a negative number is counted")
        b.assign(size.name, apply("maximum", size, plus(place, ONE)))

    each_element(b, source.shape, widen)
    made = allocate(b, ir.INT64 if weight is None else FLOAT64, (b.temporary(size),), True)

    def count(at: tuple[ir.Value, ...]) -> None:
        place = (b.temporary(cast(source.element(at), ir.INT64)),)
        amount = cast(ONE, made.dtype) if weight is None else weight.element(at)
        b.emit(ir.StoreElement(made.view, place,
                               apply("add", ir.Element(made.view, place, made.dtype), amount)))

    each_element(b, source.shape, count)
    return made


def _diff(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, times_value, axis = _arguments(args, keywords, "a", "n", "axis")
    result: Arr | Elementwise = _array(value)
    along = _axis(axis, result.ndim, -1)
    count = constant(times_value, "a number of differences", 1)
    if not 1 <= count <= MAX_DIFFERENCES:
        raise LoweringRefused(f"{count} differences")
    for _ in range(count):
        array = array_of(lowering.b, result)
        ends = [subscript(lowering.b, array, [*[FULL] * along, Sliced(part)])
                for part in ((number(1), None, None), (None, number(-1), None))]
        result = map_elements(lowering.b, "not_equal" if array.dtype.kind == "b" else "subtract", ends)
    return result


_MODES = ("constant", "edge", "wrap")


def _pad(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    value, width, mode_value, fill = _arguments(args, keywords, "array", "pad_width", "mode",
                                                "constant_values")
    b = lowering.b
    source = elementwise(b, _array(value))
    mode = mode_value.value if isinstance(mode_value,
                                          StaticValue) else "constant" if mode_value is None else None
    if mode not in _MODES or fill is not None and (mode != "constant" or not isinstance(fill, Num)):
        raise LoweringRefused("a pad of that mode")
    require_c_order(b, source)
    before, after = _widths(b, width, source.ndim)
    shape = [b.temporary(plus(plus(size, low), high)) for size, low, high in zip(
        source.shape, before, after, strict=True)]
    if mode == "constant":
        made = allocate(b, source.dtype, shape)
        store(b, made, fill or number(0))
        axes = [ir.AxisMap(k, low, size, ONE) for k,
                (low, size) in enumerate(zip(before, source.shape, strict=True))]
        store(b, bind(b, made, (), axes, None), source)
        return made
    for size, low, high in zip(source.shape, before, after, strict=True):
        b.check(compare("less", size, apply("maximum", ONE, apply("maximum", low, high)) if mode == "wrap"
                        else ONE),
                "a pad that is wider than the array")

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        index: list[ir.Value] = []
        for k, low, size in zip(at, before, source.shape, strict=True):
            inner = b.temporary(minus(k, low))
            if mode == "edge":
                index.append(b.temporary(apply("minimum", apply("maximum", inner, ZERO), minus(size, ONE))))
            else:
                index.append(b.temporary(choose(compare("less", inner, ZERO), plus(inner, size), choose(
                    compare("greater_equal", inner, size), minus(inner, size), inner))))
        return source.element(tuple(index))

    return materialise(b, Elementwise(source.dtype, tuple(shape), element, source.operands))


def _widths(b: ProgramBuilder, width: Abstract | None, ndim: int) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the widths before and behind each axis."""
    if isinstance(width, Num):
        pairs = [(width, width)] * ndim
    elif isinstance(width, Tup) and len(width.items) == 2 and all(isinstance(item, Num)
                                                                  for item in width.items):
        pairs = [(width.items[0], width.items[1])] * ndim  # type: ignore[list-item]
    elif isinstance(width, Tup) and len(width.items) in (1, ndim) and all(
            isinstance(item, Tup) and len(item.items) == 2 for item in width.items):
        pairs = [(item.items[0], item.items[1]) for item in width.items]  # type: ignore[misc, union-attr]
        pairs *= ndim // len(pairs)
    else:
        raise LoweringRefused("widths of a pad")
    ends: tuple[list[ir.Value], list[ir.Value]] = [], []
    for pair in pairs:
        for end, item in zip(ends, pair, strict=True):
            if not isinstance(item, Num):
                raise LoweringRefused("widths of a pad")
            value = b.temporary(scalars.index_value(b, item).value)
            b.check(compare("less", value, ZERO), "a negative width")
            end.append(value)
    return ends


# --------------------------------------------------------------------------- ranges of numbers


def _arange(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    b = lowering.b
    *given, dtype = _arguments(args, keywords, "start", "stop", "step", "dtype")
    values = [scalars.bound(b, value) for value in given if isinstance(value, Num)]
    if len(values) != sum(value is not None for value in given) or not values or given[0] is None:
        raise LoweringRefused("an arange of what is no number")
    start, stop, step = (number(0), values[0], number(1)) if len(values) == 1 else (
        values[0], values[1], values[2] if len(values) > 2 else number(1))
    parts = (start, stop, step)
    if all(x.kinds <= {"int", "i8"} for x in parts):
        made = _integer_range(b, *parts)
    elif all(x.kinds <= {"int", "i8", "float", "f8"} for x in parts):
        made = _float_range(b, *parts)
    else:
        raise LoweringRefused("an arange of other numbers")
    wanted = None if dtype is None else dtype_argument(dtype, None)
    if wanted not in (None, made.dtype):
        raise LoweringRefused("an arange of another dtype")
    return made


def _integer_range(b: ProgramBuilder, start: Num, stop: Num, step: Num) -> Elementwise:
    begin = b.temporary(start.value)
    by = b.temporary(step.value)
    for x in (start, stop):
        low, high = -MAX_EXTENT, MAX_EXTENT
        if x.low < low or x.high > high:
            b.check(compare("greater", apply("absolute", x.value), ir.constant(MAX_EXTENT)), "large integers")
    distance, stride = minus(stop.value, begin), by
    if step.high < 0:
        distance, stride = minus(begin, stop.value), b.temporary(minus(ZERO, by))
    elif step.low <= 0:
        b.check(compare("less_equal", by, ZERO), "a step that is not positive")
    span = apply("maximum", distance, ZERO)
    size = b.temporary(span if scalars.constant_integer(step) in (1, -1) else apply(
        "floor_divide", plus(span, minus(stride, ONE)), stride))
    return Elementwise(ir.INT64, (size,), lambda at: plus(begin, times(at[0], by)), ())


def _float_range(b: ProgramBuilder, start: Num, stop: Num, step: Num) -> Elementwise:
    """Return a range of floats: NumPy adds multiples of the difference of its first two elements."""
    begin, end, by = (b.temporary(scalars.stored_as(b, x, FLOAT64)) for x in (start, stop, step))
    length = b.temporary(apply("ceil", apply("divide", apply("subtract", end, begin), by)))
    b.check(compare("equal", by, ir.constant(0.0, FLOAT64)), "a step of zero")
    b.check(compare("not_equal", length, length), "a length that is no number")
    b.check(compare("greater", length, ir.constant(float(MAX_EXTENT), FLOAT64)), "a long range")
    size = b.temporary(apply("maximum", ir.Checked("cast", (length,), ir.INT64, b.undo("a long range")),
                             ZERO))
    second = b.temporary(apply("add", begin, by))
    delta = b.temporary(apply("subtract", second, begin))

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        general = apply("add", begin, apply("multiply", cast(at[0], FLOAT64), delta))
        return choose(compare("equal", at[0], ZERO), begin,
                      choose(compare("equal", at[0], ONE), second, general))

    return Elementwise(FLOAT64, (size,), element, ())


def _linspace(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    b = lowering.b
    start, stop, count = _arguments(args, keywords, "start", "stop", "num")
    count = number(50) if count is None else count
    if not all(isinstance(x, Num) and x.kinds <= {"int", "i8", "float", "f8"} for x in (start, stop, count)):
        raise LoweringRefused("a linspace of what is no number")
    assert isinstance(start, Num)
    assert isinstance(stop, Num)
    assert isinstance(count, Num)
    begin, end = (b.temporary(scalars.stored_as(b, scalars.bound(b, x), FLOAT64)) for x in (start, stop))
    size = b.temporary(scalars.index_value(b, count).value)
    b.check(compare("less", size, ir.constant(2)), "a linspace of less than two numbers")
    last = b.temporary(minus(size, ONE))
    step = b.temporary(apply("divide", apply("subtract", end, begin), cast(last, FLOAT64)))
    b.check(compare("equal", step, ir.constant(0.0, FLOAT64)), "a step of zero")

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        general = apply("add", apply("multiply", cast(at[0], FLOAT64), step), begin)
        return choose(compare("equal", at[0], last), end, general)

    return Elementwise(FLOAT64, (size,), element, ())


def _eye(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    b = lowering.b
    (count,) = _arguments(args, keywords, "N")
    if not isinstance(count, Num):
        raise LoweringRefused("an eye of what is no number")
    size = b.temporary(scalars.index_value(b, count).value)
    made = allocate(b, FLOAT64, (size, size), True)
    each_element(b, (size,), lambda at: b.emit(ir.StoreElement(
        made.view, (at[0], at[0]), ir.constant(1.0, FLOAT64))))
    return made


def _ndim(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = _arguments(args, keywords, "a")
    if isinstance(value, Tup):
        return number(1)
    if isinstance(value, Num):
        return number(0)
    return number(_array(value).ndim)


def _result_type(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.result_type`` of one array or number."""
    (value,) = _arguments(args, keywords, "a")
    if isinstance(value, Num):
        return StaticValue(_dtype_of(value))
    return StaticValue(_array(value).dtype)


HANDLERS: dict[Any, Handler] = {
    np.result_type: _result_type,
    np.ndim: _ndim, np.column_stack: _column_stack,
    np.array: _make_array(True), np.asarray: _make_array(False), np.reshape: _reshape, np.ravel: _ravel,
    np.transpose: _transpose, np.swapaxes: _swapaxes, np.moveaxis: _moveaxis, np.expand_dims: _expand_dims,
    np.squeeze: _squeeze, np.concatenate: _concatenate, np.stack: _stack, np.hstack: _hstack,
    np.vstack: _vstack,
    np.roll: _roll, np.diff: _diff, np.pad: _pad, np.arange: _arange, np.linspace: _linspace, np.eye: _eye,
    np.identity: _eye, np.repeat: _repeat, np.triu: _triangle("greater_equal"),
    np.tril: _triangle("less_equal"),
    np.bincount: _bincount,
}


def call_shape_method(lowering: LoweringContext, value: Arr | Elementwise, name: str, args: Arguments,
                      keywords: Keywords) -> Abstract | None:
    """Return the result of a method that gives an array another shape; None if it is no such method."""
    match name:
        case "reshape" if not keywords:
            items = args[0].items if len(args) == 1 and isinstance(args[0], Tup) else args
            return reshaped(lowering.b, value, items)
        case "ravel" if not args and not keywords:
            return _ravel(lowering, [value], {})
        case "flatten" if not args and not keywords:
            return reshaped(lowering.b, materialise(lowering.b, value), [number(-1)])
        case "transpose" if not keywords:
            axes = args[0] if len(args) == 1 and isinstance(args[0], Tup) else Tup(tuple(args))
            return _transpose(lowering, [value, axes] if args else [value], {})
        case "swapaxes" if not keywords:
            return _swapaxes(lowering, [value, *args], {})
        case "squeeze":
            return _squeeze(lowering, [value, *args], keywords)
        case "clip" if not keywords and len(args) == 2:
            return map_elements(lowering.b, "clip", [value, *args])
        case "round" if not args and not keywords and value.dtype.kind == "f":
            return map_elements(lowering.b, "rint", [value])
    return None
