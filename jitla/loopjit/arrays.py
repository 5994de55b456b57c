"""Arrays in loops: subscripts, element-wise expressions, assignments to parts of arrays, and allocations.

An expression over arrays is a function of an index (`Elementwise`) until it is stored; a store is one loop
nest over the elements of its target. Views are view variables, made where the user's program makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np

from jitla.hops import OpSpec, lookup
from jitla.loopir import find_ufunc
from jitla.loopir import program as ir
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    cast,
    choose,
    compare,
    either,
    integer_constant,
    minus,
    negated,
    out_of_bounds,
    plus,
    quotient,
    times,
)
from jitla.loopjit.loop_sites import NO_MEMORY
from jitla.loopjit.scalars import bound, constant_integer, convert, index_value, result_dtype
from jitla.loopjit.values import (
    IS_OBJECT,
    IS_VIEW,
    MAX_EXTENT,
    PYTHON_KINDS,
    STORAGE,
    TAG_DTYPE,
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    Point,
    Sliced,
    StaticValue,
    Subscript,
    Tup,
    describe,
    of_kind,
)

ZERO, ONE = ir.constant(0), ir.constant(1)
MISMATCH = "shapes that do not match"
ALLOCATED = "allocated "  # begin of the names of origins that are no operands
OUT_OF_BOUNDS = "an index out of bounds"


def extent(array: Arr, axis: int) -> Num:
    """Return the number of elements along an axis, as a Python integer."""
    return of_kind("int", ir.Extent(array.view, axis), 0, MAX_EXTENT)


def require_bound(b: ProgramBuilder, array: Arr) -> Arr:
    """Return an array variable that has a value; where it has none Python raises UnboundLocalError."""
    if array.tag is None:
        return array
    b.check(compare("equal", array.tag, ir.constant(0, TAG_DTYPE)), "a variable without a value")
    return replace(array, tag=None)


# --------------------------------------------------------------------------- subscripts


def subscript(b: ProgramBuilder, array: Arr, items: Sequence[Abstract]) -> Abstract:
    """Return ``array[items]`` of numbers, slices and new axes: an element or a view."""
    array = require_bound(b, array)
    if any(isinstance(item, StaticValue) and item.value is Ellipsis for item in items) and all(
            isinstance(item, (Num, StaticValue)) for item in items) and len(items) == array.ndim + 1 \
            and not any(isinstance(item, StaticValue) and item.value is None for item in items):
        raise LoweringRefused("an array without axes")
    items = expanded(array, items)
    points, axes, parts = _parts(b, array, items)
    if not axes:
        kind = array.dtype.str[1:]
        return of_kind(kind, ir.Element(array.view, tuple(value for _, value in points), array.dtype))
    return bind(b, array, points, axes, parts)


def expanded(array: Arr, items: Sequence[Abstract]) -> list[Abstract]:
    """Return one item for each axis of the array, and None for each new axis."""
    full = Sliced((None, None, None))
    counted = sum(item.ndim if isinstance(item, (Arr, Elementwise)) and item.dtype.kind == "b" else 1
                  for item in items if not (isinstance(item, StaticValue) and item.value in (None, Ellipsis)))
    if any(isinstance(item, Tup) for item in items):
        raise LoweringRefused("an index that is a tuple in a tuple")
    missing = array.ndim - counted
    if missing < 0:
        raise LoweringRefused(f"{counted} indices of an array with {array.ndim} axes")
    expanded: list[Abstract] = []
    for item in items:
        if isinstance(item, StaticValue) and item.value is Ellipsis:
            expanded += [full] * missing
            missing = 0
        else:
            expanded.append(item)
    return expanded + [full] * missing


def _parts(
    b: ProgramBuilder, array: Arr, items: Sequence[Abstract],
) -> tuple[list[tuple[int, ir.Value]], list[ir.AxisMap], tuple[Any, ...]]:
    """Return the points and the axes of a subscript, and both in the order of the axes of the array."""
    points: list[tuple[int, ir.Value]] = []
    axes: list[ir.AxisMap] = []
    parts: list[Any] = []
    axis = 0
    for item in items:
        if isinstance(item, StaticValue) and item.value is None:
            axes.append(ir.AxisMap(None, ZERO, ONE, ONE))
            continue
        size = size_along(array, axis)
        match item:
            case Num():
                if item.dtype.kind == "b":
                    raise LoweringRefused("a bool as an index")
                index = index_value(b, item)
                points.append((axis, position(b, index, size)))
                parts.append(Point(index.value, index.low >= 0))
            case Sliced(bounds):
                axes.append(slice_axis(b, axis, size, bounds))
                parts.append(tuple(x.value if isinstance(x, Num) else None for x in bounds))
            case _:
                raise LoweringRefused(f"an index that is {describe(item)}")
        axis += 1
    return points, axes, tuple(parts)


def slices_of(b: ProgramBuilder, array: Arr, items: Sequence[Abstract]) -> list[ir.AxisMap]:
    """Return the axes of a subscript of slices."""
    return _parts(b, array, items)[1]


def position(b: ProgramBuilder, index: Num, size: ir.Value) -> ir.Value:
    """Return an index in bounds: a negative one counts from the end; Python raises for others."""
    value = index.value
    if index.low < 0:
        value = b.temporary(value)
        if index.high < 0:
            value = b.temporary(plus(value, size))
        else:
            wrapped = choose(compare("less", value, ZERO), plus(value, size), value)
            value = b.temporary(wrapped)
    elif not isinstance(value, (ir.Read, ir.Number)):
        value = b.temporary(value)
    b.check(out_of_bounds(value, size), OUT_OF_BOUNDS)
    return value


def slice_axis(
    b: ProgramBuilder, axis: int, size: ir.Value, bounds: Sequence[Abstract | None],
) -> ir.AxisMap:
    """Return the axis that a slice makes of an axis with `size` elements, as ``slice.indices`` does."""
    begin, stop, step = (None if isinstance(x, StaticValue) and x.value is None else x for x in bounds)
    stride = 1
    if step is not None:
        if not isinstance(step, Num) or not step.known or not int(step.known[0]):
            raise LoweringRefused("a slice whose step is no constant")
        stride = int(step.known[0])
    if begin is None and stop is None and stride == 1:
        return ir.AxisMap(axis, ZERO, size, ONE)
    simple = _constant_slice(b, axis, size, begin, stop, stride) or _single_element(
        b, axis, size, begin, stop, stride)
    if simple is not None:
        return simple
    if stride > 0:
        first = _clamped(b, begin, size, ZERO, ZERO, size)
        last = _clamped(b, stop, size, size, ZERO, size)
        span = minus(last, first)
    else:
        top = minus(size, ONE)
        first = _clamped(b, begin, size, top, ir.constant(-1), top)
        last = _clamped(b, stop, size, ir.constant(-1), ir.constant(-1), top)
        span = minus(first, last)
    count = span if abs(stride) == 1 else apply(
        "floor_divide", plus(span, ir.constant(abs(stride) - 1)), ir.constant(abs(stride)))
    length = b.temporary(apply("maximum", count, ZERO)) if integer_constant(count) is None else \
        ir.constant(max(integer_constant(count) or 0, 0))
    return ir.AxisMap(axis, first, length, ir.constant(stride))


def _constant_slice(
    b: ProgramBuilder, axis: int, size: ir.Value, begin: Abstract | None, stop: Abstract | None, step: int,
) -> ir.AxisMap | None:
    """Return the axis that a slice with constant ends makes; None if it has others.

    The ends are taken to be within the axis, so that sizes of slices of one axis are known to be equal:
    Python goes on where they are not.
    """
    first, last = (constant_integer(end) if isinstance(end, Num) else None for end in (begin, stop))
    if first is None and begin is not None or last is None and stop is not None or step < 0:
        return None
    known = integer_constant(size)
    if known is not None:
        places = range(known)[first:last:step]
        return ir.AxisMap(axis, ir.constant(places.start), ir.constant(len(places)), ir.constant(step))
    first = first or 0
    if first < 0 and last is not None and last >= 0 or max(abs(first), abs(last or 0)) > MAX_EXTENT:
        return None
    least = max(abs(first), abs(last or 0))
    if first >= 0 and (last is None or last < 0):  # size + rest elements
        rest = (last or 0) - first
        least = max(least, -rest)
        span = plus(size, ir.constant(rest))
    else:
        span = ir.constant(max((last or 0) - first, 0))
    if least > 0:
        b.check(compare("less", size, ir.constant(least)), "a slice beyond the ends of an array")
    count = span if step == 1 else quotient(plus(span, ir.constant(step - 1)), step)
    return ir.AxisMap(axis, ir.constant(first) if first >= 0 else plus(size, ir.constant(first)),
                      b.temporary(count), ir.constant(step))


def _single_element(
    b: ProgramBuilder, axis: int, size: ir.Value, begin: Abstract | None, stop: Abstract | None, step: int,
) -> ir.AxisMap | None:
    """Return the axis that a slice from `i` to ``i + 1`` makes; None if it is another slice."""
    if step != 1 or not isinstance(begin, Num) or not isinstance(stop, Num) or begin.low < 0 \
            or begin.dtype.kind not in "iu" or stop.dtype.kind not in "iu":
        return None
    first, last = index_value(b, begin).value, index_value(b, stop).value
    (terms, i), (other_terms, j) = affine(first), affine(last)
    if terms != other_terms or j - i != 1:
        return None
    place = b.temporary(first)
    b.check(out_of_bounds(place, size), "a slice beyond the ends of an array")
    return ir.AxisMap(axis, place, ONE, ONE)


def _clamped(b: ProgramBuilder, end: Abstract | None, size: ir.Value, default: ir.Value, low: ir.Value,
             high: ir.Value) -> ir.Value:
    """Return an end of a slice within `low` and `high`."""
    if end is None:
        return b.temporary(default) if not isinstance(default, (ir.Number, ir.Extent)) else default
    if not isinstance(end, Num):
        raise LoweringRefused(f"an end of a slice that is {describe(end)}")
    index = index_value(b, end)
    value = index.value
    if index.known and int(index.known[0]) == 0 and low == ZERO:
        return ZERO
    if index.low < 0:
        value = b.temporary(value)
        wrapped = plus(value, size)
        value = wrapped if index.high < 0 else choose(compare("less", value, ZERO), wrapped, value)
        value = apply("maximum", value, low)
    return b.temporary(apply("minimum", value, high))


def bind(
    b: ProgramBuilder, array: Arr, points: Sequence[tuple[int, ir.Value]], axes: Sequence[ir.AxisMap],
    parts: tuple[Any, ...] | None,
) -> Arr:
    """Return a new view of part of an array."""
    view = b.view(b.fresh("v"), array.dtype, len(axes))
    b.emit(ir.BindView(view, array.view, tuple(points), tuple(axes)))
    made = None if parts is None else Subscript(array.view, parts)
    sizes = tuple(axis.length for axis in axes)
    origins = array.origins - {IS_OBJECT} | {IS_VIEW}
    return Arr(view, array.dtype, len(axes), origins, array.writeable, made, sizes=sizes,
               single=single_axes(sizes))


def size_along(array: Arr, axis: int) -> ir.Value:
    """Return the number of elements along an axis."""
    return ONE if axis in array.single else ir.Extent(array.view, axis)


def single_axes(shape: Sequence[ir.Value]) -> frozenset[int]:
    """Return the axes of a shape that are known to have one element."""
    return frozenset(k for k, size in enumerate(shape) if integer_constant(size) == 1)


def identity_axes(array: Arr) -> tuple[ir.AxisMap, ...]:
    """Return the axes of a view of all of an array."""
    return tuple(ir.AxisMap(axis, ZERO, size_along(array, axis), ONE) for axis in range(array.ndim))


def transposed(b: ProgramBuilder, array: Arr, order: Sequence[int]) -> Arr:
    """Return the array with its axes in another order."""
    array = require_bound(b, array)
    return bind(b, array, (), [identity_axes(array)[axis] for axis in order], None)


# --------------------------------------------------------------------------- element-wise expressions


def elementwise(b: ProgramBuilder, value: Arr | Elementwise) -> Elementwise:
    """Return an array as an element-wise expression."""
    if isinstance(value, Elementwise):
        return value
    array = require_bound(b, value)
    return Elementwise(array.dtype, array.shape, lambda at: ir.Element(array.view, at, array.dtype), (array,),
                       array=array)


def _weak(value: Abstract) -> Any:
    """Return an operand as NumPy's promotion sees it: a dtype, or the type of a weak scalar."""
    if isinstance(value, Num):
        kind = value.kind
        return {"int": int, "float": float, "complex": complex}.get(kind) or STORAGE[kind]
    if not isinstance(value, (Arr, Elementwise)):
        raise LoweringRefused(f"an operand that is {describe(value)}")
    return value.dtype


def operand_dtypes(op: str, values: Sequence[Abstract]) -> tuple[np.dtype, ...]:
    """Return the dtypes in which an operator computes; those of numbers of several kinds have to agree."""
    choices = [[_weak(of_kind(kind, x.value)) for kind in sorted(x.kinds)] if isinstance(x, Num)
               else [_weak(x)]
               for x in values]
    try:
        found = {lookup(op).resolve(operands, {}) for operands in product(*choices)}
    except TypeError as error:
        raise LoweringRefused(f"NumPy raises TypeError: {error}") from error
    if len(found) > 1:
        raise LoweringRefused("a result whose dtype is not certain")
    dtypes: tuple[np.dtype, ...] = found.pop()
    return dtypes


def map_elements(b: ProgramBuilder, op: str, operands: Sequence[Abstract],
                 dtype: np.dtype | None = None) -> Elementwise:
    """Return an operator of the op table applied to arrays and numbers, element by element."""
    values = [bound(b, x) if isinstance(x, Num) else x for x in operands]
    ins = operand_dtypes(op, values)
    out = result_dtype(op, ins)
    if op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal") and ins[0] != ins[1]:
        raise LoweringRefused("a signed and an unsigned integer are compared")
    if op in ("less", "less_equal", "greater", "greater_equal") and ins[0].kind == "c":
        raise LoweringRefused("complex numbers are compared")  # NumPy warns of those that are no numbers
    if op == "power" and out.kind in "iu":
        require_natural_power(values[1])
    shape, aligned = broadcast(b, values)
    routine = inner_loop_of(op, ins, out)
    if routine is not None and shape:
        result = by_inner_loop(b, routine, out, shape, list(zip(aligned, ins, strict=True)))
        return result if dtype is None or dtype == out else as_dtype(result, dtype)
    functions: list[Callable[[tuple[ir.Value, ...]], ir.Value]] = []
    arrays: list[Arr] = []
    ordered = all(value.is_ordered for value in aligned if isinstance(value, Elementwise))
    for value, wanted in zip(aligned, ins, strict=True):
        if isinstance(value, Num):
            functions.append(_constantly(b.temporary(_scalar_operand(b, value, wanted))))
        else:
            arrays += value.operands
            functions.append(_converted(value, wanted))

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        return ir.Apply(op, tuple(function(at) for function in functions), out)

    result = Elementwise(out, shape, element, tuple(arrays), ordered)
    return result if dtype is None or dtype == out else as_dtype(result, dtype)


def part_of_complex(b: ProgramBuilder, array: Arr, name: str) -> Elementwise:
    """Return the real or imaginary parts, `name`, of an array of complex numbers."""
    source = elementwise(b, array)
    dtype = np.dtype(f"f{array.dtype.itemsize // 2}")
    return Elementwise(dtype, source.shape, lambda at: ir.Apply(name, (source.element(at),), dtype),
                       source.operands, is_view=True)


def require_value(value: Elementwise) -> None:
    """Refuse to store an expression that is a view to NumPy."""
    if value.is_view:
        raise LoweringRefused("a view of the parts of complex numbers")


class _VerbUsed(Exception):
    """A recipe uses a verb of its builder."""


class _NoBuilder:
    """Stands for the builder of a recipe whose first verb is of interest."""

    def __getattr__(self, verb: str) -> Any:
        raise _VerbUsed(verb)


def _has_recipe(spec: OpSpec, dtypes: Sequence[np.dtype]) -> bool:
    """Return whether an operator is written as instructions for operands of these dtypes."""
    if spec.emit is None:
        return False
    operands = [of_kind("int", ir.Number(dtype, b"")) for dtype in dtypes]
    try:
        return spec.emit(_NoBuilder(), *operands, {}) is not None
    except _VerbUsed as used:
        return used.args != ("math",)


#: Which of two zeros with different signs NumPy's loops return depends on the position in the row.
_BY_POSITION = frozenset({"fmax", "fmin"})


@cache
def inner_loop_of(op: str, ins: tuple[np.dtype, ...], out: np.dtype) -> str | None:
    """Return the inner loop of the ufunc that an operator without an own recipe stands for, or None."""
    spec = lookup(op)
    ufunc = next((f for f in spec.numpy if isinstance(f, np.ufunc)), None)
    if ufunc is None or find_ufunc(ufunc.__name__) is not ufunc \
            or op not in _BY_POSITION and _has_recipe(spec, ins):
        return None
    for types in ufunc.types:
        if tuple(map(np.dtype, types.replace("->", ""))) == (*ins, out):
            return f"{ufunc.__name__}.{types}"
    return None


def by_inner_loop(
    b: ProgramBuilder, routine: str, out: np.dtype, shape: tuple[ir.Value, ...],
    operands: Sequence[tuple[Num | Elementwise, np.dtype]],
) -> Elementwise:
    """Return the result of an inner loop of NumPy, computed now, row by row.

    The steps between elements are those that NumPy has: of scalars 0, of vectors with one element not. (The
    loop of `power` depends on that of the exponent, so rows have to be those of NumPy.)
    """
    size = b.temporary(reduce(times, shape))
    single = compare("equal", shape[-1], ONE)
    if routine.startswith("power.") and isinstance(operands[1][0], Elementwise) and len(shape) > 1:
        b.check(single, "an array of exponents in rows of one element")
        require_c_order(b, Elementwise(out, shape, _constantly(ZERO), tuple(
            x for value, _ in operands if isinstance(value, Elementwise) for x in value.operands)))
    places: list[Callable[[tuple[ir.Value, ...]], ir.Operand]] = []
    steps: list[ir.Value] = []
    originals: list[Arr] = []
    is_ordered = True
    for value, wanted in operands:
        if isinstance(value, Num):
            scalar = b.fresh("x")
            b.assign(scalar, _scalar_operand(b, value, wanted))
            places.append(_at_scalar(scalar))
            steps.append(ZERO)
            continue
        originals += value.operands
        is_ordered = is_ordered and value.is_ordered
        source = value.array
        if source is None or source.dtype != wanted:
            source = materialise(b, value, wanted)
        places.append(_at_row(source))
        stride = ir.Stride(source.view, len(shape) - 1)
        steps.append(b.temporary(choose(single, ir.constant(wanted.itemsize), stride)))
    made = allocate(b, out, shape)
    places.append(_at_row(made))
    steps.append(ir.constant(out.itemsize))
    with b.into([]) as rows:
        each_element(b, shape[:-1], lambda at: b.emit(ir.InnerLoop(
            routine, tuple(place(at) for place in places), (shape[-1],), tuple(steps))))
    b.emit(ir.If(compare("greater", size, ZERO), rows))  # type: ignore[arg-type]
    # its operands say in which order NumPy has the axes of the result, and are not read any more
    seen = tuple(Arr(x.view, x.dtype, x.ndim, frozenset(), fresh=x.fresh) for x in originals)
    return Elementwise(out, shape, lambda at: ir.Element(made.view, at, out), seen, is_ordered, made)


def _at_scalar(name: str) -> Callable[[tuple[ir.Value, ...]], ir.Operand]:
    return lambda at: ir.Place(name)


def _at_row(array: Arr) -> Callable[[tuple[ir.Value, ...]], ir.Operand]:
    return lambda at: ir.Address(array.view, (*at, ZERO))


#: Exponents for which NumPy has another function, by their types.
_POWERS = {(int, 2): "square", (int, -1): "reciprocal", (float, 0.5): "sqrt"}
#: The same for arrays of floats, where the inner loop of `power` does so.
_POWERS_OF_FLOATS = {2: "square", -1: "reciprocal", 0.5: "sqrt", 1: "positive"}


def power(b: ProgramBuilder, left: Abstract, right: Abstract) -> Elementwise:
    """Return ``left ** right`` of arrays, as `array_power` of NumPy computes it."""
    if isinstance(right, Num) and right.is_python and isinstance(left, (Arr, Elementwise)):
        exponent = right.known[0] if right.known else None
        name = None
        if left.dtype.kind == "c":
            if exponent is None and right.kinds & {"int", "float"}:
                raise LoweringRefused("a power of complex numbers by a variable")
            name = _POWERS.get((type(exponent), exponent))  # type: ignore[arg-type]
        elif left.dtype.kind == "f" and isinstance(exponent, (int, float)):
            name = _POWERS_OF_FLOATS.get(exponent)
        elif left.dtype.kind in "iu" and exponent == 2 and type(exponent) is int:
            name = "square"
        if name is not None:
            return map_elements(b, name, [left])
    return map_elements(b, "power", [left, right])


def require_natural_power(exponent: Abstract) -> None:
    """Refuse powers of integers with exponents that may be negative: NumPy's inner loop raises an exception.
    """
    if isinstance(exponent, Num) and exponent.low >= 0:
        return
    if not isinstance(exponent, (Arr, Elementwise)) or exponent.dtype.kind not in "ub":
        raise LoweringRefused("a power of integers that may be negative")


def _scalar_operand(b: ProgramBuilder, value: Num, dtype: np.dtype) -> ir.Value:
    if value.kinds <= PYTHON_KINDS and dtype.kind in "iu" or value.dtype.kind in "iub":
        return convert(b, value, dtype)
    return cast(value.value, dtype)


def _constantly(value: ir.Value) -> Callable[[tuple[ir.Value, ...]], ir.Value]:
    return lambda at: value


def _converted(value: Elementwise, dtype: np.dtype) -> Callable[[tuple[ir.Value, ...]], ir.Value]:
    return lambda at: cast(value.element(at), dtype)


def as_dtype(value: Elementwise, dtype: np.dtype) -> Elementwise:
    """Return an expression converted as ``astype`` does."""
    if value.dtype.kind == "c" and dtype.kind != "c":
        raise LoweringRefused("complex numbers are converted to reals")
    if value.dtype.kind == "f" and dtype in (np.dtype(np.uint32), np.dtype(np.uint64)):
        raise LoweringRefused("floats are converted to unsigned integers")
    return Elementwise(dtype, value.shape, _converted(value, dtype), value.operands, value.is_ordered)


def broadcast(
    b: ProgramBuilder, values: Sequence[Abstract], into: tuple[ir.Value, ...] | None = None,
) -> tuple[tuple[ir.Value, ...], list[Num | Elementwise]]:
    """Return the shape that arrays are broadcast to, and the arrays of that shape; numbers stay as they are.

    `into` is the shape if it is given, as by the target of a store. Axes are repeated that are known to have
    one element; the sizes of others are taken to be equal, and Python goes on where they are not.
    """
    arrays = [x for x in values if not isinstance(x, Num)]
    for x in arrays:
        if not isinstance(x, (Arr, Elementwise)):
            raise LoweringRefused(f"an operand that is {describe(x)}")
    shapes = [x.shape for x in arrays if isinstance(x, (Arr, Elementwise))]
    shape = _common_shape(shapes) if into is None else into
    return shape, [value if isinstance(value, Num) else _stretched(b, value, shape)  # type: ignore[arg-type]
                   for value in values]


def _common_shape(shapes: Sequence[tuple[ir.Value, ...]]) -> tuple[ir.Value, ...]:
    """Return the shape that arrays of `shapes` are broadcast to: constant sizes are preferred."""
    ndim = max(map(len, shapes), default=0)
    common: list[ir.Value] = []
    for axis in range(-ndim, 0):
        sizes = [shape[axis] for shape in shapes if len(shape) >= -axis]
        sizes = [size for size in sizes if integer_constant(size) != 1]
        common.append(next((size for size in sizes if integer_constant(size) is not None), None)
                      or next(iter(sizes), ONE))
    return tuple(common)


def _stretched(b: ProgramBuilder, value: Arr | Elementwise, shape: tuple[ir.Value, ...]) -> Elementwise:
    """Return an array broadcast to `shape`."""
    lead = len(shape) - value.ndim
    if lead < 0:
        raise LoweringRefused("an array is stored that has more axes than its target")
    repeated = set()
    for k, (size, wanted) in enumerate(zip(value.shape, shape[lead:], strict=True)):
        if size == wanted:
            continue
        if integer_constant(size) == 1:
            repeated.add(k)
        else:
            b.check(compare("not_equal", size, wanted), MISMATCH)
    inner = elementwise(b, value)
    if not lead and not repeated:
        return inner

    def element(at: tuple[ir.Value, ...]) -> ir.Value:
        return inner.element(tuple(ZERO if k in repeated else index for k, index in enumerate(at[lead:])))

    return Elementwise(value.dtype, shape, element, inner.operands, inner.is_ordered)


# --------------------------------------------------------------------------- stores


def each_element(
    b: ProgramBuilder, shape: Sequence[ir.Value], body: Callable[[tuple[ir.Value, ...]], None],
    skip_first: bool = False, independent: bool = False,
) -> None:
    """Emit a loop nest over all indices of `shape`, the last axis innermost.

    Iterations are `independent` if each stores its own elements and reads none that another one stores.
    """
    indices: list[ir.Value] = []

    def level(axis: int) -> None:
        if axis == len(shape):
            body(tuple(indices))
            return
        if integer_constant(shape[axis]) == 1:
            indices.append(ZERO)
            level(axis + 1)
            indices.pop()
            return
        name = b.fresh("e")
        index = b.scalar(name, ir.INT64)
        indices.append(index)
        with b.into([]) as inner:
            level(axis + 1)
        indices.pop()
        b.emit(ir.For(name, name, ONE if skip_first and axis == 0 else ZERO, shape[axis], 1,
                      inner, independent))  # type: ignore[arg-type]

    level(0)


def store(b: ProgramBuilder, target: Arr, value: Abstract) -> None:
    """Store a number or an array in all of `target`, which is broadcast to."""
    if not target.writeable:
        raise LoweringRefused("a store to an array that is read only")
    if isinstance(value, Num):
        element = b.temporary(convert(b, bound(b, value), target.dtype))
        each_element(b, target.shape, lambda at: b.emit(ir.StoreElement(target.view, at, element)),
                     independent=True)
        return
    if isinstance(value, Tup):
        raise LoweringRefused("a tuple is stored in an array")
    if not isinstance(value, (Arr, Elementwise)):
        raise LoweringRefused(f"{describe(value)} is stored in an array")
    value = squeezed(b, value, target.ndim)
    require_storable(value, target.dtype)
    _, (aligned,) = broadcast(b, [value], target.shape)
    assert isinstance(aligned, Elementwise)
    if any(may_overlap(target, operand) for operand in aligned.operands):
        copy = materialise(b, aligned)
        aligned = elementwise(b, copy)
    each_element(b, target.shape, lambda at: b.emit(
        ir.StoreElement(target.view, at, cast(aligned.element(at), target.dtype))), independent=True)


def require_storable(value: Arr | Elementwise, dtype: np.dtype) -> None:
    """Refuse stores that warn, or whose values are those of the processor."""
    if value.dtype.kind == "c" and dtype.kind != "c":
        raise LoweringRefused("complex numbers are stored in an array of reals")
    if value.dtype.kind == "f" and dtype.kind in "iu":
        raise LoweringRefused("floats are stored in an array of integers")


def squeezed(b: ProgramBuilder, value: Arr | Elementwise, ndim: int) -> Arr | Elementwise:
    """Return a value without leading axes that the target of a store lacks; they must have one element."""
    lead = value.ndim - ndim
    if lead <= 0:
        return value
    for size in value.shape[:lead]:
        b.check(compare("not_equal", size, ONE), MISMATCH)
    inner = elementwise(b, value)
    return Elementwise(value.dtype, value.shape[lead:], lambda at: inner.element((ZERO,) * lead + at),
                       inner.operands)


def may_overlap(target: Arr, operand: Arr) -> bool:
    """Return whether a store to `target` may change an element of `operand` that is read later."""
    if not target.may_share_memory(operand):
        return False
    if target.view == operand.view:
        return False  # each element is read before it is stored
    a, c = target.subscript, operand.subscript
    if a is None or c is None or a.base != c.base or len(a.parts) != len(c.parts):
        return True
    if a.parts == c.parts:
        return False
    return not any(_apart(x, y) for x, y in zip(a.parts, c.parts, strict=True))


def _apart(x: Any, y: Any) -> bool:
    """Return whether two points on an axis are certainly different."""
    if not isinstance(x, Point) or not isinstance(y, Point) \
            or not x.counts_from_begin or not y.counts_from_begin:
        return False
    (a, i), (c, j) = affine(x.value), affine(y.value)
    return a == c and i != j


def affine(value: ir.Value) -> tuple[dict[ir.Value, int], int]:
    """Return an integer as a sum of multiples of other values, and a constant."""
    constant = integer_constant(value)
    if constant is not None:
        return {}, constant
    if isinstance(value, (ir.Apply, ir.Checked)) and value.op in ("add", "subtract", "sub"):
        (a, i), (c, j) = map(affine, value.args)
        sign = 1 if value.op == "add" else -1
        terms = {key: a.get(key, 0) + sign * c.get(key, 0) for key in a.keys() | c.keys()}
        return {key: times for key, times in terms.items() if times}, i + sign * j
    return {value: 1}, 0


def allocate(b: ProgramBuilder, dtype: np.dtype, shape: Sequence[ir.Value], zero: bool = False) -> Arr:
    """Return a new C-contiguous array."""
    view = b.view(b.fresh("m"), dtype, len(shape))
    b.emit(ir.Allocate(view, tuple(shape), zero, b.undo(NO_MEMORY)))
    b.allocations += 1
    return Arr(view, dtype, len(shape), frozenset({f"{ALLOCATED}{b.line}.{b.allocations}"}), fresh=True,
               single=single_axes(shape))


def materialise(b: ProgramBuilder, value: Arr | Elementwise, dtype: np.dtype | None = None) -> Arr:
    """Return an array with the elements of an expression; a copy of an array."""
    value = elementwise(b, value)
    wanted = dtype or value.dtype
    if value.array is not None and value.array.fresh and value.array.dtype == wanted:
        return value.array
    made = allocate(b, wanted, value.shape)
    each_element(b, value.shape, lambda at: b.emit(
        ir.StoreElement(made.view, at, cast(value.element(at), wanted))), independent=True)
    return made


def array_of(b: ProgramBuilder, value: Abstract) -> Arr:
    """Return a value as an array variable: an expression is stored."""
    if isinstance(value, Arr):
        return require_bound(b, value)
    if isinstance(value, Elementwise):
        require_value(value)
        require_c_order(b, value)
        return materialise(b, value)
    raise LoweringRefused(f"{describe(value)} where an array is needed")


def require_c_order(b: ProgramBuilder, value: Elementwise) -> None:
    """Leave to Python an expression whose result NumPy does not store in C order: that of its operands
    decides.
    """
    if value.ndim < 2:
        return
    if not value.is_ordered:
        raise LoweringRefused("a result whose axes may be in another order in memory")
    operands = {x.view: x for x in value.operands if x.ndim == value.ndim}
    if any(x.fresh for x in operands.values()):
        return
    for axis in range(value.ndim - 1):
        keeps: ir.Value = ir.constant(not operands, ir.BOOL)
        swaps: ir.Value = ir.constant(False, ir.BOOL)
        for view in operands:
            one, two = (apply("absolute", ir.Stride(view, k)) for k in (axis, axis + 1))
            decides = both(*(both(compare("greater", ir.Extent(view, k), ONE), compare(
                "not_equal", ir.Stride(view, k), ZERO)) for k in (axis, axis + 1)))
            keeps = either(keeps, both(decides, compare("greater_equal", one, two)))
            swaps = either(swaps, both(decides, compare("less", one, two)))
        if operands:
            b.check(both(swaps, negated(keeps)), "a result whose axes are in another order in memory")


def in_c_order(b: ProgramBuilder, value: Arr | Elementwise, limit: int) -> Arr:
    """Return a C-contiguous array with the elements of `value`: a copy, of up to `limit` elements, if need
    be.

    Python goes on if the axes are in another order in memory.
    """
    array = array_of(b, value)
    if array.fresh or isinstance(value, Elementwise):
        return array
    view = b.view(b.fresh("v"), array.dtype, array.ndim)
    b.emit(ir.BindView(view, array.view, (), identity_axes(array)))
    with b.into([]) as copying:
        size: ir.Value = ONE
        for k in range(array.ndim):
            size = apply("multiply", size, ir.Extent(array.view, k))
            outer = ir.Stride(array.view, k - 1) if k else ir.Stride(array.view, 0)
            own = ir.Stride(array.view, k)
            b.check(either(compare("less", outer, own), compare("less_equal", own, ZERO)),
                    "an array whose axes are in another order in memory")
        b.check(compare("greater", size, ir.constant(limit)), "a large array that is not contiguous")
        copy = materialise(b, array)
        b.emit(ir.BindView(view, copy.view, (), identity_axes(copy)))
    b.emit(ir.If(negated(is_contiguous(array)), copying))  # type: ignore[arg-type]
    return Arr(view, array.dtype, array.ndim, array.origins, False)


def contiguous_vector(b: ProgramBuilder, vector: Arr) -> Arr:
    """Return a vector whose elements follow each other in memory: `vector`, or a copy of it."""
    if vector.fresh:
        return vector
    view = b.view(b.fresh("v"), vector.dtype, 1)
    b.emit(ir.BindView(view, vector.view, (), identity_axes(vector)))
    with b.into([]) as copying:
        copy = materialise(b, vector)
        b.emit(ir.BindView(view, copy.view, (), identity_axes(copy)))
    b.emit(ir.If(negated(is_contiguous(vector)), copying))  # type: ignore[arg-type]
    return Arr(view, vector.dtype, 1, vector.origins | copy.origins, False, sizes=vector.sizes)


def is_contiguous(array: Arr) -> ir.Value:
    """Return whether the elements of an array follow each other in C order."""
    size: ir.Value = ir.constant(array.dtype.itemsize)
    test: ir.Value | None = None
    for axis in reversed(range(array.ndim)):
        equal = compare("equal", ir.Stride(array.view, axis), size)
        test = equal if test is None else both(test, equal)
        size = apply("multiply", size, ir.Extent(array.view, axis))
    assert test is not None
    return test


def require_contiguous(b: ProgramBuilder, array: Arr) -> None:
    """Leave the iteration to Python if the elements of an array do not follow each other in C order."""
    if not array.fresh:
        b.check(negated(is_contiguous(array)), "an array that is not contiguous")
