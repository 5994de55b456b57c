"""Reductions and products of arrays in loops, by NumPy's own inner loops: their bits are NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    identity_axes,
    in_c_order,
    map_elements,
    materialise,
    require_c_order,
    require_contiguous,
)
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    cast,
    compare,
    minus,
    negated,
    plus,
    times,
)
from jitla.loopjit.flags import may_raise_flags
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
def _sum_identity(dtype: np.dtype) -> ir.Value:
    """Return what NumPy begins sums of floats with: some releases with a zero, others with a negative one."""
    zero = np.copysign(np.ones(1, np.dtype(f"f{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}")), -1) * 0
    parts = np.concatenate((zero, zero)).view(dtype) if dtype.kind == "c" else zero
    return ir.constant(np.add.reduce(parts), dtype)


def kind_of(dtype: np.dtype) -> str:
    """Return the kind of the elements of an array."""
    return dtype.str[1:]


def reduced(
    b: ProgramBuilder, name: str, value: Arr | Elementwise, axes: Sequence[int] | None,
    keepdims: bool = False,
    ddof: int = 0,
) -> Num | Arr:
    """Return a sum, prod, max, min, any, all, mean, var or std of an array along `axes`, or along all."""
    chosen = tuple(range(value.ndim)) if axes is None else tuple(sorted(
        axis + value.ndim if axis < 0 else axis for axis in axes))
    if len(set(chosen)) < len(chosen) or not chosen or chosen[0] < 0 or chosen[-1] >= value.ndim:
        raise LoweringRefused("an axis out of bounds, or twice")
    if name == "mean":
        return _mean(b, value, chosen, keepdims)
    if name in ("var", "std"):
        return _variance(b, name, value, chosen, keepdims, ddof)
    if name in ("any", "all"):
        return _along(b, elementwise(b, value), chosen, keepdims, ir.BOOL,
                      lambda line: _quantified(b, name, line))
    if name in ("sum", "prod") and value.dtype.kind in "biu":
        value = as_dtype(elementwise(b, value), np.dtype(np.uint64) if value.dtype.kind == "u" else ir.INT64)
    if value.dtype.kind in "biu":
        return _along(b, elementwise(b, value), chosen, keepdims, value.dtype,
                      lambda line: _exact(b, _BINARY[name], line))
    if value.dtype.kind != "f" and not (value.dtype.kind == "c" and name == "sum"):
        raise LoweringRefused(f"a {name} of {value.dtype}")
    return _floats(b, _BINARY[name], value, chosen, keepdims)


def _result_shape(value: Arr | Elementwise, axes: Sequence[int], keepdims: bool) -> tuple[ir.Value, ...]:
    return tuple(ONE if k in axes else size for k, size in enumerate(value.shape) if keepdims
                 or k not in axes)


def _along(
    b: ProgramBuilder, value: Elementwise, axes: Sequence[int], keepdims: bool, dtype: np.dtype,
    reduce_line: Callable[[Elementwise], Num],
) -> Num | Arr:
    """Reduce each part of an array that has the same indices on the axes that are kept."""
    if len(axes) == value.ndim and not keepdims:
        return reduce_line(value)
    result = allocate(b, dtype, _result_shape(value, axes, keepdims))

    def body(at: tuple[ir.Value, ...]) -> None:
        def element(inner: tuple[ir.Value, ...]) -> ir.Value:
            inside = iter(inner)
            outside = iter([index for k, index in enumerate(at) if not keepdims or k not in axes])
            return value.element(tuple(next(inside if k in axes else outside) for k in range(value.ndim)))

        line = Elementwise(value.dtype, tuple(value.shape[k] for k in axes), element, value.operands)
        b.emit(ir.StoreElement(result.view, at, reduce_line(line).value))

    each_element(b, result.shape, body)
    return result


def _exact(b: ProgramBuilder, op: str, value: Elementwise) -> Num:
    """Reduce integers or bools, whose order does not matter."""
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


def _quantified(b: ProgramBuilder, name: str, value: Elementwise) -> Num:
    label, result = b.fresh("search"), b.fresh("r")
    b.assign(result, ir.constant(name == "all", ir.BOOL))
    with b.into([]) as body:
        def test(at: tuple[ir.Value, ...]) -> None:
            before = len(b.statements)
            element = value.element(at)
            leaves = any(isinstance(statement, ir.Check) for statement in b.statements[before:]) \
                or may_raise_flags(ir.program_nodes(element))
            holds = element if value.dtype.kind == "b" else compare(
                "not_equal", element, cast(ZERO, value.dtype))
            found = holds if name == "any" else negated(holds)
            known = ir.Assign(result, ir.constant(name == "any", ir.BOOL))
            # NumPy has all elements before it looks for one: those behind it may raise
            b.emit(ir.If(found, (known,) if leaves else (known, ir.Break(label))))

        each_element(b, value.shape, test)
    b.emit(ir.Block(label, body))  # type: ignore[arg-type]
    return of_kind("b1", b.scalar(result, ir.BOOL))


def _floats(
    b: ProgramBuilder, op: str, value: Arr | Elementwise, axes: Sequence[int], keepdims: bool = False,
) -> Num | Arr:
    """Reduce floats in the order of NumPy: runs in memory pairwise, all else in turn."""
    if isinstance(value, Elementwise) and value.is_view:
        require_c_order(b, value)
        value = materialise(b, value)
    array = array_of(b, value) if value.ndim == 1 else in_c_order(b, value, BUFFER_ELEMENTS)
    if len(axes) == array.ndim:
        total = _line(b, op, array)
        if not keepdims:
            return total
        single = allocate(b, array.dtype, (ONE,) * array.ndim)
        b.emit(ir.StoreElement(single.view, (ZERO,) * array.ndim, total.value))
        return single
    result = allocate(b, array.dtype, _result_shape(array, axes, keepdims))
    groups: list[list[int]] = []
    for axis in range(array.ndim):
        if groups and (groups[-1][-1] in axes) == (axis in axes):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = [b.temporary(reduce(times, [array.shape[axis] for axis in group])) for group in groups]
    if op not in _IDENTITIES:
        for group, size in zip(groups, sizes, strict=True):
            if group[0] in axes:
                b.check(compare("equal", size, ZERO), EMPTY)
    for group, size in list(zip(groups, sizes, strict=True))[1:-1]:
        if group[0] not in axes:
            b.check(compare("equal", size, ONE), "an axis of one element between those of a reduction")
    _reduce_groups(b, op, array, result, groups, sizes, axes, keepdims)
    return result


def _reduce_groups(
    b: ProgramBuilder, op: str, array: Arr, result: Arr, groups: list[list[int]], sizes: list[ir.Value],
    axes: Sequence[int], keepdims: bool,
) -> None:
    """Reduce groups of neighbouring axes, each of which is one run in memory: the last is done by the inner
    loop.
    """
    source = _grouped(b, array, groups, sizes)
    kept = [k for k, group in enumerate(groups) if group[0] not in axes]
    places = {axis: axis if keepdims else k for k, axis in enumerate(
        axis for axis in range(array.ndim) if keepdims or axis not in axes)}
    target = _grouped(b, result, [[places[axis] for axis in groups[k]] for k in kept],
                      [sizes[k] for k in kept])
    first: ir.Value = _sum_identity(array.dtype) if op == "add" else ir.constant(1, array.dtype)

    def begin(at: tuple[ir.Value, ...]) -> None:
        if op not in _IDENTITIES:
            index: list[ir.Value] = [ZERO] * len(groups)
            for k, value in zip(kept, at, strict=True):
                index[k] = value
            b.emit(ir.StoreElement(target.view, at, ir.Element(source.view, tuple(index), array.dtype)))
        else:
            b.emit(ir.StoreElement(target.view, at, first))

    each_element(b, target.shape, begin)
    inner_is_kept = kept[-1] == len(groups) - 1
    item = ir.constant(array.dtype.itemsize)

    def body(at: tuple[ir.Value, ...]) -> None:
        start: ir.Value = ZERO
        at_first: ir.Value | None = None
        if op not in _IDENTITIES:  # the first element is there
            tests = [compare("equal", at[k], ZERO) for k in range(len(at)) if k not in kept]
            at_first = reduce(both, tests) if tests else ir.constant(True, ir.BOOL)
            if not inner_is_kept:
                start = b.temporary(cast(at_first, ir.INT64))
        outside = tuple(at[k] for k in kept if k < len(at))
        place = ir.Address(target.view, (*outside, ZERO) if inner_is_kept else outside)
        count = sizes[-1] if start == ZERO else apply("subtract", sizes[-1], start)
        steps = (item, item, item) if inner_is_kept else (ZERO, item, ZERO)
        call = ir.InnerLoop(_routine(op, array.dtype), (
            place, ir.Address(source.view, (*at, start)), place), (count,), steps)
        test = compare("greater", count, ZERO)
        if at_first is not None and inner_is_kept:
            test = both(test, negated(at_first))
        b.emit(ir.If(test, (call,)))

    def reduce_all() -> None:
        each_element(b, sizes[:-1], body)

    if inner_is_kept and len(groups) > 1:
        # an axis of one element is no axis to NumPy: the run is that of the axes before it
        with b.into([]) as otherwise:
            reduce_all()
        with b.into([]) as then:
            if len(groups) == 2:
                total = _line(b, op, _grouped(b, array, [list(range(array.ndim))], sizes[:1]))
                b.emit(ir.StoreElement(target.view, (ZERO,), total.value))
            else:
                b.leave("an axis of one element behind those of a reduction")
        b.emit(ir.If(compare("equal", sizes[-1], ONE), then, otherwise))  # type: ignore[arg-type]
    else:
        reduce_all()


def _grouped(b: ProgramBuilder, array: Arr, groups: list[list[int]], sizes: Sequence[ir.Value]) -> Arr:
    """Return the view of a C-contiguous array with one axis for each group of neighbouring axes."""
    last = {group[-1] for group in groups}
    view = bind(b, array, [(axis, ZERO) for axis in range(array.ndim) if axis not in last],
                [ir.AxisMap(group[-1], ZERO, size, ONE) for group, size in zip(groups, sizes, strict=True)],
                None)
    return Arr(view.view, array.dtype, len(groups), array.origins, array.writeable, sizes=tuple(sizes))


def _line(b: ProgramBuilder, op: str, array: Arr) -> Num:
    """Reduce floats to a scalar: all elements of a C-contiguous array, or of a vector, as one run."""
    if array.ndim > 1:
        size = b.temporary(reduce(times, array.shape))
        array = _grouped(b, array, [list(range(array.ndim))], [size])
    length = b.temporary(array.shape[0])
    step = ir.Stride(array.view, 0)
    name = b.fresh("r")
    begin, count = ZERO, length
    if op == "add":
        b.assign(name, _sum_identity(array.dtype))
    elif op == "multiply":
        b.assign(name, ir.constant(1, array.dtype))
    else:
        b.check(compare("equal", length, ZERO), EMPTY)
        b.assign(name, ir.Element(array.view, (ZERO,), array.dtype))
        begin, count = ONE, apply("subtract", length, ONE)
    result = ir.Place(name)
    call = ir.InnerLoop(_routine(op, array.dtype), (result, ir.Address(array.view, (begin,)), result),
                        (count,),
                        (ZERO, step, ZERO))
    b.emit(ir.If(compare("greater", count, ZERO), (call,)))
    return of_kind(kind_of(array.dtype), b.temporary(b.scalar(name, array.dtype)))


def _routine(op: str, dtype: np.dtype) -> str:
    return f"{op}.{dtype.char}{dtype.char}->{dtype.char}"


def _as_floats(b: ProgramBuilder, value: Arr | Elementwise, what: str) -> Arr | Elementwise:
    """Return what `mean` and `var` add: integers as float64."""
    if value.dtype.kind not in "biuf":
        raise LoweringRefused(f"a {what} of {value.dtype}")
    if value.dtype.kind in "biu":
        value = as_dtype(elementwise(b, value), np.dtype(np.float64))
        size = reduce(times, value.shape)
        b.check(compare("greater", size, ir.constant(BUFFER_ELEMENTS)), f"a {what} of many integers")
    return value


def _count(b: ProgramBuilder, value: Arr | Elementwise, axes: Sequence[int]) -> ir.Value:
    count = b.temporary(reduce(times, [value.shape[axis] for axis in axes]))
    b.check(compare("equal", count, ZERO), EMPTY)
    return count


def _mean(
    b: ProgramBuilder, value: Arr | Elementwise, axes: Sequence[int], keepdims: bool = False,
) -> Num | Arr:
    value = _as_floats(b, value, "mean")
    return _divided(b, _floats(b, "add", value, axes, keepdims), _count(b, value, axes))


def _divided(b: ProgramBuilder, total: Num | Arr, count: ir.Value) -> Num | Arr:
    """Return sums divided by a count, in place."""
    if isinstance(total, Num):
        return of_kind(total.kind, apply("divide", total.value, cast(count, total.dtype)))
    each_element(b, total.shape, lambda at: b.emit(ir.StoreElement(total.view, at, apply(
        "divide", ir.Element(total.view, at, total.dtype), cast(count, total.dtype)))))
    return total


def _variance(
    b: ProgramBuilder, name: str, value: Arr | Elementwise, axes: Sequence[int], keepdims: bool, ddof: int,
) -> Num | Arr:
    """Return the mean of the squares of the differences from the mean, as NumPy's `_var` does, or its root.
    """
    value = _as_floats(b, value, name)
    if isinstance(value, Elementwise):
        value = array_of(b, value)
    count = _count(b, value, axes)
    b.check(compare("less_equal", count, ir.constant(ddof)), EMPTY)
    mean = _mean(b, value, axes, True)
    difference = array_of(b, map_elements(b, "subtract", [value, mean]))
    squares = map_elements(b, "multiply", [difference, difference])
    total = _floats(b, "add", squares, axes, keepdims)
    result = _divided(b, total, b.temporary(apply("subtract", count, ir.constant(ddof))) if ddof else count)
    if name == "var":
        return result
    if isinstance(result, Num):
        return of_kind(result.kind, apply("sqrt", result.value))
    each_element(b, result.shape, lambda at: b.emit(ir.StoreElement(result.view, at, apply(
        "sqrt", ir.Element(result.view, at, result.dtype)))))
    return result


def arg_extremum(
    b: ProgramBuilder, name: str, value: Arr | Elementwise, axis: int | None = None,
) -> Num | Arr:
    """Return the first index of the largest or smallest element, of all or along an axis.

    NaN is beyond all others. The index of one of all elements is that in C order.
    """
    if value.dtype.kind == "c":
        raise LoweringRefused(f"{name} of complex numbers")
    value = elementwise(b, value)
    if axis is None or value.ndim == 1:
        if axis is not None and not -1 <= axis < 1:
            raise LoweringRefused("an axis out of bounds")
        return _index_of_extremum(b, name, value)
    if not -value.ndim <= axis < value.ndim:
        raise LoweringRefused("an axis out of bounds")
    along = axis % value.ndim
    b.check(compare("equal", value.shape[along], ZERO), EMPTY)
    return _along(b, value, (along,), False, ir.INT64, lambda line: _index_of_extremum(b, name, line))


def _index_of_extremum(b: ProgramBuilder, name: str, value: Elementwise) -> Num:
    size = b.temporary(reduce(times, value.shape))
    b.check(compare("equal", size, ZERO), EMPTY)
    best, where = b.fresh("best"), b.fresh("where")
    b.assign(best, value.element((ZERO,) * value.ndim))
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
        place = at[0]
        for index, extent in zip(at[1:], value.shape[1:], strict=True):
            place = plus(times(place, extent), index)
        b.emit(ir.If(beyond, (ir.Assign(best, element), ir.Assign(where, place))))

    each_element(b, value.shape, body, skip_first=value.ndim == 1)
    return of_kind("i8", b.temporary(at_top), 0)


# --------------------------------------------------------------------------- products


def product(b: ProgramBuilder, left: Abstract, right: Abstract, how: str) -> Abstract:
    """Return ``left @ right`` (`how` is "matmul") or ``np.dot(left, right)`` (`how` is "dot")."""
    if how == "dot" and (isinstance(left, Num) or isinstance(right, Num)):
        raise LoweringRefused("dot of a number")
    if not isinstance(left, (Arr, Elementwise)) or not isinstance(right, (Arr, Elementwise)):
        raise LoweringRefused("a product of what is no array")
    dtype = np.result_type(left.dtype, right.dtype)
    if dtype.kind in "iu" and left.ndim == right.ndim == 1:
        return _exact(b, "add", map_elements(b, "multiply", [left, right]))
    if dtype.kind not in "iufc" or left.dtype != right.dtype and (dtype.kind == "c" or "b" in (
            left.dtype.kind, right.dtype.kind)):
        raise LoweringRefused(f"a product of {left.dtype} and {right.dtype}")
    a, c = _factor(b, left, dtype), _factor(b, right, dtype)
    if a.ndim == c.ndim == 1:
        return _dot(b, *((_regular(b, a), _regular(b, c)) if how == "dot" else (a, c)))
    if a.ndim > 2 or c.ndim > 2:
        if how == "dot" or min(a.ndim, c.ndim) < 2:
            raise LoweringRefused("a product of arrays with more than two axes")
        return _stack_product(b, a, c)
    return _matmul(b, a, c)


def _factor(b: ProgramBuilder, value: Arr | Elementwise, dtype: np.dtype) -> Arr:
    """Return a factor in the dtype of a product: NumPy makes a converted copy of the same layout."""
    if value.dtype == dtype:
        return array_of(b, value)
    if isinstance(value, Arr) and value.ndim > 1:
        require_contiguous(b, value)
    return array_of(b, as_dtype(elementwise(b, value), dtype))


def _stack_product(b: ProgramBuilder, a: Arr, c: Arr) -> Arr:
    """Return ``a @ c`` of stacks of matrices, of which one may be a single matrix."""
    lead = (a if a.ndim >= c.ndim else c).shape[:-2]
    if a.ndim > 2 and c.ndim > 2:
        if a.ndim != c.ndim:
            raise LoweringRefused("a product of stacks with several numbers of axes")
        for one, two in zip(a.shape[:-2], c.shape[:-2], strict=True):
            if one != two:
                b.check(compare("not_equal", one, two), MISMATCH)
    rows, inner, columns = b.temporary(a.shape[-2]), b.temporary(a.shape[-1]), b.temporary(c.shape[-1])
    b.check(compare("not_equal", inner, c.shape[-2]), MISMATCH)
    result = allocate(b, a.dtype, (*lead, rows, columns), zero=True)
    steps = [ir.Stride(x.view, x.ndim - k) for x in (a, c, result) for k in (2, 1)]

    def multiply(at: tuple[ir.Value, ...]) -> None:
        places = tuple(ir.Address(x.view, (*(at if x.ndim > 2 else ()), ZERO, ZERO)) for x in (a, c, result))
        b.emit(ir.InnerLoop(_routine("matmul", a.dtype), places, (ONE, rows, inner, columns),
                            (ZERO, ZERO, ZERO, *steps)))

    with b.into([]) as products:
        each_element(b, lead, multiply)
    some = both(both(compare("greater", rows, ZERO), compare("greater", columns, ZERO)),
                compare("greater", inner, ZERO))
    b.emit(ir.If(some, products))  # type: ignore[arg-type]
    return result


def _regular(b: ProgramBuilder, vector: Arr) -> Arr:
    """Return a vector as ``np.dot`` reads it: a copy if it is reversed or repeats an element."""
    if vector.fresh:
        return vector
    view = b.view(b.fresh("v"), vector.dtype, 1)
    b.emit(ir.BindView(view, vector.view, (), identity_axes(vector)))
    with b.into([]) as copying:
        copy = materialise(b, vector)
        b.emit(ir.BindView(view, copy.view, (), identity_axes(copy)))
    irregular = compare("less_equal", ir.Stride(vector.view, 0), ZERO)
    b.emit(ir.If(irregular, copying))  # type: ignore[arg-type]
    return Arr(view, vector.dtype, 1, vector.origins, False)


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
    """Return a product with a matrix by the inner loop of `matmul`, which takes the product of a vector as
    well.
    """
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


def cumulated(b: ProgramBuilder, op: str, value: Arr | Elementwise, axis: int = 0) -> Arr:
    """Return what ``accumulate`` of a ufunc returns along an axis; sums of integers have 64 bits."""
    if not -value.ndim <= axis < value.ndim:
        raise LoweringRefused("an axis out of bounds")
    along = axis % value.ndim
    expression = elementwise(b, value)
    if op in _IDENTITIES and expression.dtype.kind in "bi":
        expression = as_dtype(expression, ir.INT64)
    elif op in _IDENTITIES and expression.dtype.kind == "u":
        expression = as_dtype(expression, np.dtype(np.uint64))
    require_c_order(b, expression)
    result = allocate(b, expression.dtype, expression.shape)
    if value.ndim > 1:
        def step(at: tuple[ir.Value, ...]) -> None:
            element = b.temporary(expression.element(at))
            with b.into([]) as first:
                b.emit(ir.StoreElement(result.view, at, element))
            with b.into([]) as others:
                before = tuple(minus(index, ONE) if k == along else index for k, index in enumerate(at))
                total = ir.Element(result.view, before, result.dtype)
                b.emit(ir.StoreElement(result.view, at, ir.Apply(op, (total, element), result.dtype)))
            b.emit(ir.If(compare("equal", at[along], ZERO), first, others))  # type: ignore[arg-type]

        each_element(b, expression.shape, step)
        return result
    name = b.fresh("r")
    b.assign(name, cast(ZERO, expression.dtype))
    total = b.scalar(name, expression.dtype)

    def body(at: tuple[ir.Value, ...]) -> None:
        element = b.temporary(expression.element(at))
        with b.into([]) as following:
            b.emit(ir.Assign(name, ir.Apply(op, (total, element), expression.dtype)))
        b.emit(ir.If(compare("equal", at[0], ZERO), (ir.Assign(name, element),),
                     following))  # type: ignore[arg-type]
        b.emit(ir.StoreElement(result.view, at, total))

    each_element(b, expression.shape, body)
    return result
