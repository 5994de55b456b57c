"""Reductions and products of arrays in loops, by NumPy's own inner loops: their bits are NumPy's."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np

from jitla.loopir import program as ir
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
    is_contiguous,
    map_elements,
)
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    cast,
    choose,
    compare,
    negated,
    times,
)
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    of_kind,
)

BUFFER_ELEMENTS = 8192  # elements that NumPy converts at a time, between which it adds in another order
EMPTY = "a reduction of no elements"
_BINARY = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_IDENTITIES = {"add": 0, "multiply": 1}


@cache
def _sum_identity() -> float:
    """Return what NumPy begins sums of floats with: some releases with a zero, others with a negative one."""
    return float(np.add.reduce(np.array([-0.0])))


def kind_of(dtype: np.dtype) -> str:
    """Return the kind of the elements of an array."""
    return dtype.str[1:]


def reduced(b: ProgramBuilder, name: str, value: Arr | Elementwise, axis: int | None) -> Num | Arr:
    """Return the sum, prod, max, min, any, all or mean of an array; with `axis`, along that axis."""
    if axis is not None and axis < 0:
        axis += value.ndim
    if axis is not None and not 0 <= axis < value.ndim:
        raise LoweringRefused("an axis out of bounds")
    if name == "mean":
        return _mean(b, value, axis)
    if name in ("any", "all"):
        return _quantified(b, name, value, axis)
    if name in ("sum", "prod") and value.dtype.kind in "biu":
        if value.dtype.kind == "u":
            value = as_dtype(elementwise(b, value), np.dtype(np.uint64))
        else:
            value = as_dtype(elementwise(b, value), ir.INT64)
        return _exact(b, _BINARY[name], value, axis)
    if value.dtype.kind in "biu":
        return _exact(b, _BINARY[name], elementwise(b, value), axis)
    if value.dtype.kind != "f":
        raise LoweringRefused(f"a reduction of {value.dtype}")
    if axis is None or value.ndim == 1:
        return _floats(b, _BINARY[name], value)
    return _floats_along(b, _BINARY[name], array_of(b, value), axis)


def _exact(b: ProgramBuilder, op: str, value: Elementwise, axis: int | None) -> Num | Arr:
    """Reduce integers or bools, whose order does not matter."""
    if axis is not None and value.ndim > 1:
        rest = (*value.shape[:axis], *value.shape[axis + 1:])
        result = allocate(b, value.dtype, rest)
        along = value

        def body(at: tuple[ir.Value, ...]) -> None:
            line = Elementwise(along.dtype, (along.shape[axis],),
                               lambda k: along.element((*at[:axis], *k, *at[axis:])), along.operands)
            number = _exact(b, op, line, None)
            assert isinstance(number, Num)
            b.emit(ir.StoreElement(result.view, at, number.value))

        each_element(b, rest, body)
        return result
    name = b.fresh("r")
    if op in _IDENTITIES:
        b.assign(name, ir.constant(_IDENTITIES[op], value.dtype))
    else:
        for size in value.shape:
            b.check(compare("equal", size, ZERO), EMPTY)
        b.assign(name, value.element((ZERO,) * value.ndim))
    read = b.scalar(name, value.dtype)
    each_element(b, value.shape, lambda at: b.emit(
        ir.Assign(name, ir.Apply(op, (read, value.element(at)), value.dtype))))
    return of_kind(kind_of(value.dtype), read)


def _quantified(b: ProgramBuilder, name: str, value: Arr | Elementwise, axis: int | None) -> Num | Arr:
    if axis is not None and value.ndim > 1:
        raise LoweringRefused(f"{name} along an axis")
    value = elementwise(b, value)
    label, result = b.fresh("search"), b.fresh("r")
    b.assign(result, ir.constant(name == "all", ir.BOOL))
    with b.into([]) as body:
        def test(at: tuple[ir.Value, ...]) -> None:
            element = value.element(at)
            holds = element if value.dtype.kind == "b" else compare(
                "not_equal", element, cast(ZERO, value.dtype))
            found = holds if name == "any" else negated(holds)
            b.emit(ir.If(found, (ir.Assign(result, ir.constant(name == "any", ir.BOOL)), ir.Break(label))))

        each_element(b, value.shape, test)
    b.emit(ir.Block(label, body))  # type: ignore[arg-type]
    return of_kind("b1", b.scalar(result, ir.BOOL))


def _floats(b: ProgramBuilder, op: str, value: Arr | Elementwise) -> Num:
    """Reduce floats to a scalar, in the order of NumPy."""
    array = array_of(b, value)
    if array.ndim > 1:
        array = _flattened(b, array)
    length = b.temporary(array.shape[0])
    step = ir.Stride(array.view, 0)
    name = b.fresh("r")
    begin, count = ZERO, length
    if op == "add":
        b.assign(name, ir.constant(_sum_identity(), array.dtype))
    elif op == "multiply":
        b.assign(name, ir.constant(1, array.dtype))
    else:
        b.check(compare("equal", length, ZERO), EMPTY)
        b.assign(name, ir.Element(array.view, (ZERO,), array.dtype))
        begin, count = ONE, apply("subtract", length, ONE)
    result = ir.Place(name)
    call = ir.InnerLoop(_routine(op, array.dtype), (result, ir.Address(array.view, (begin,)), result), (count,),
                        (ZERO, step, ZERO))
    b.emit(ir.If(compare("greater", count, ZERO), (call,)))
    return of_kind(kind_of(array.dtype), b.temporary(b.scalar(name, array.dtype)))


def _routine(op: str, dtype: np.dtype) -> str:
    return f"{op}.{dtype.char}{dtype.char}->{dtype.char}"


def _flattened(b: ProgramBuilder, array: Arr) -> Arr:
    """Return a contiguous array with one axis; Python goes on if the array is not contiguous."""
    if not array.fresh:
        b.check(negated(is_contiguous(array)), "a reduction of an array that is not contiguous")
    size = b.temporary(reduce(times, array.shape))
    line = bind(b, array, [(axis, ZERO) for axis in range(array.ndim - 1)],
                [ir.AxisMap(array.ndim - 1, ZERO, size, ONE)], None)
    return Arr(line.view, array.dtype, 1, array.origins, array.writeable, sizes=(size,))


def _floats_along(b: ProgramBuilder, op: str, array: Arr, axis: int) -> Arr:
    """Reduce floats along one axis of two: by lines along the last axis, or by adding rows to the result."""
    if array.ndim != 2:
        raise LoweringRefused("a reduction along one of more than two axes")
    if not array.fresh:
        b.check(negated(is_contiguous(array)), "a reduction of an array that is not contiguous")
    rows, columns = (b.temporary(size) for size in array.shape)
    kept, length = (rows, columns) if axis == 1 else (columns, rows)
    result = allocate(b, array.dtype, (kept,))
    first: ir.Value = ir.constant(_sum_identity() if op == "add" else 1, array.dtype)
    begin = ZERO
    if op not in _IDENTITIES:
        b.check(compare("equal", length, ZERO), EMPTY)
        begin = ONE
    each_element(b, (kept,), lambda at: b.emit(ir.StoreElement(
        result.view, at, first if op in _IDENTITIES else ir.Element(
            array.view, (*at, ZERO) if axis == 1 else (ZERO, *at), array.dtype))))
    routine, item = _routine(op, array.dtype), ir.constant(array.dtype.itemsize)
    name = b.fresh("e")
    index = b.scalar(name, ir.INT64)
    count = length if begin == ZERO else apply("subtract", length, ONE)
    if axis == 1:
        place = ir.Address(result.view, (index,))
        call = ir.InnerLoop(routine, (place, ir.Address(array.view, (index, begin)), place), (count,),
                            (ZERO, ir.Stride(array.view, 1), ZERO))
        body: ir.Statement = ir.If(compare("greater", count, ZERO), (call,))
        b.emit(ir.For(name, name, ZERO, rows, 1, (body,)))
    else:
        place = ir.Address(result.view, (ZERO,))
        call = ir.InnerLoop(routine, (place, ir.Address(array.view, (index, ZERO)), place), (columns,),
                            (item, ir.Stride(array.view, 1), item))
        loop = ir.For(name, name, begin, rows, 1, (call,))
        b.emit(ir.If(compare("greater", columns, ZERO), (loop,)))
    return result


def _mean(b: ProgramBuilder, value: Arr | Elementwise, axis: int | None) -> Num | Arr:
    if value.dtype == np.float32 or value.dtype.kind not in "biuf":
        if value.dtype.kind == "c":
            raise LoweringRefused("a mean of complex numbers")
    if value.dtype.kind in "biu":
        value = as_dtype(elementwise(b, value), np.dtype(np.float64))
        size = reduce(times, value.shape)
        b.check(compare("greater", size, ir.constant(BUFFER_ELEMENTS)), "a mean of many integers")
    if axis is None or value.ndim == 1:
        count = b.temporary(reduce(times, value.shape))
        b.check(compare("equal", count, ZERO), EMPTY)
        total = _floats(b, "add", value)
        return of_kind(kind_of(value.dtype), apply("divide", total.value, cast(count, value.dtype)))
    count = b.temporary(value.shape[axis])
    b.check(compare("equal", count, ZERO), EMPTY)
    sums = _floats_along(b, "add", array_of(b, value), axis)
    each_element(b, sums.shape, lambda at: b.emit(ir.StoreElement(sums.view, at, apply(
        "divide", ir.Element(sums.view, at, sums.dtype), cast(count, sums.dtype)))))
    return sums


def arg_extremum(b: ProgramBuilder, name: str, value: Arr | Elementwise) -> Num:
    """Return the first index of the largest or smallest element; NaN is beyond all others."""
    if value.ndim != 1 or value.dtype.kind == "c":
        raise LoweringRefused(f"{name} of an array with {value.ndim} axes")
    value = elementwise(b, value)
    b.check(compare("equal", value.shape[0], ZERO), EMPTY)
    best, where = b.fresh("best"), b.fresh("where")
    b.assign(best, value.element((ZERO,)))
    b.assign(where, ZERO)
    top, at_top = b.scalar(best, value.dtype), b.scalar(where, ir.INT64)
    comparison = "greater" if name == "argmax" else "less"

    def body(at: tuple[ir.Value, ...]) -> None:
        element = b.temporary(value.element(at))
        beyond = compare(comparison, element, top)
        if value.dtype.kind == "f":
            nan = both(compare("not_equal", element, element), compare("equal", top, top))
            beyond = ir.Apply("bitwise_or", (beyond, nan), ir.BOOL)
        if value.dtype.kind == "b":
            beyond = both(element, negated(top)) if name == "argmax" else both(negated(element), top)
        b.emit(ir.If(beyond, (ir.Assign(best, element), ir.Assign(where, at[0]))))

    each_element(b, value.shape, body, skip_first=True)
    return of_kind("i8", at_top, 0)


# --------------------------------------------------------------------------- products


def product(b: ProgramBuilder, left: Abstract, right: Abstract, how: str) -> Abstract:
    """Return ``left @ right`` (`how` is "matmul") or ``np.dot(left, right)`` (`how` is "dot")."""
    if how == "dot" and (isinstance(left, Num) or isinstance(right, Num)):
        raise LoweringRefused("dot of a number")
    if not isinstance(left, (Arr, Elementwise)) or not isinstance(right, (Arr, Elementwise)):
        raise LoweringRefused("a product of what is no array")
    dtype = np.result_type(left.dtype, right.dtype)
    if dtype.kind not in "fc" or left.dtype != right.dtype:
        if dtype.kind in "iu" and left.ndim == right.ndim == 1:
            terms = map_elements(b, "multiply", [left, right])
            return _exact(b, "add", terms, None)
        raise LoweringRefused(f"a product of {left.dtype} and {right.dtype}")
    a, c = array_of(b, left), array_of(b, right)
    if a.ndim == c.ndim == 1:
        return _dot(b, a, c)
    if a.ndim > 2 or c.ndim > 2 or not a.ndim or not c.ndim:
        raise LoweringRefused("a product of arrays with more than two axes")
    return _matmul(b, a, c)


def _dot(b: ProgramBuilder, a: Arr, c: Arr) -> Num:
    length = b.temporary(a.shape[0])
    b.check(compare("not_equal", length, c.shape[0]), MISMATCH)
    name = b.fresh("r")
    b.assign(name, ir.constant(0, a.dtype))
    call = ir.Dot(a.dtype, ir.Address(a.view, (ZERO,)), ir.Stride(a.view, 0), ir.Address(c.view, (ZERO,)),
                  ir.Stride(c.view, 0), ir.Place(name), length)
    b.emit(ir.If(compare("greater", length, ZERO), (call,)))
    return of_kind(kind_of(a.dtype), b.temporary(b.scalar(name, a.dtype)))


def _matmul(b: ProgramBuilder, a: Arr, c: Arr) -> Arr:
    """Return a product with a matrix by the inner loop of `matmul`, which takes the product of a vector as well."""
    rows = a.shape[0] if a.ndim == 2 else ONE
    inner = b.temporary(a.shape[-1])
    columns = c.shape[1] if c.ndim == 2 else ONE
    b.check(compare("not_equal", inner, c.shape[0]), MISMATCH)
    shape = tuple(size for size, wanted in ((rows, a.ndim == 2), (columns, c.ndim == 2)) if wanted)
    result = allocate(b, a.dtype, shape, zero=True)
    item = ir.constant(a.dtype.itemsize)

    def steps(array: Arr, is_left: bool) -> tuple[ir.Value, ir.Value]:
        if array.ndim == 2:
            return ir.Stride(array.view, 0), ir.Stride(array.view, 1)
        line = ir.Stride(array.view, 0)
        return (times(line, inner), line) if is_left else (line, item)

    (a0, a1), (c0, c1) = steps(a, True), steps(c, False)
    if a.ndim == 1:
        a0 = apply("multiply", ir.Stride(a.view, 0), inner)
    out = (ir.Stride(result.view, 0), ir.Stride(result.view, 1)) if result.ndim == 2 else \
        (ir.Stride(result.view, 0), item) if a.ndim == 2 else \
        (apply("multiply", item, columns), ir.Stride(result.view, 0))
    call = ir.InnerLoop(
        _routine("matmul", a.dtype),
        tuple(ir.Address(x.view, (ZERO,) * x.ndim) for x in (a, c, result)),
        (ONE, rows, inner, columns), (ZERO, ZERO, ZERO, a0, a1, c0, c1, *out))
    some = both(both(compare("greater", rows, ZERO), compare("greater", columns, ZERO)),
                compare("greater", inner, ZERO))
    b.emit(ir.If(some, (call,)))
    return result


def outer(b: ProgramBuilder, op: str, left: Abstract, right: Abstract) -> Elementwise:
    """Return ``ufunc.outer(left, right)`` of two arrays, as an expression."""
    if not isinstance(left, (Arr, Elementwise)) or not isinstance(right, (Arr, Elementwise)):
        raise LoweringRefused("an outer product of what is no array")
    a, c = elementwise(b, left), elementwise(b, right)
    shape = (*a.shape, *c.shape)
    if a.dtype != c.dtype:
        wanted = np.result_type(a.dtype, c.dtype)
        a, c = as_dtype(a, wanted), as_dtype(c, wanted)
    one = Elementwise(a.dtype, shape, lambda at: a.element(at[:a.ndim]), a.operands)
    two = Elementwise(c.dtype, shape, lambda at: c.element(at[a.ndim:]), c.operands)
    return map_elements(b, op, [one, two])


def cumulated(b: ProgramBuilder, op: str, value: Arr | Elementwise) -> Arr:
    """Return ``np.cumsum`` or ``np.cumprod`` of an array with one axis."""
    if value.ndim != 1:
        raise LoweringRefused("a cumulative sum of an array with several axes")
    expression = elementwise(b, value)
    if expression.dtype.kind in "bi":
        expression = as_dtype(expression, ir.INT64)
    elif expression.dtype.kind == "u":
        expression = as_dtype(expression, np.dtype(np.uint64))
    result = allocate(b, expression.dtype, expression.shape)
    name = b.fresh("r")
    b.assign(name, ir.constant(0 if op == "add" else 1, expression.dtype))
    total = b.scalar(name, expression.dtype)

    def body(at: tuple[ir.Value, ...]) -> None:
        element = expression.element(at)
        first = compare("equal", at[0], ZERO)
        following = b.temporary(ir.Apply(op, (total, element), expression.dtype))
        b.emit(ir.Assign(name, choose(first, element, following)))
        b.emit(ir.StoreElement(result.view, at, total))

    each_element(b, expression.shape, body)
    return result


