"""Calls in loops: functions of Python, `math` and NumPy by the object that is called, and methods of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from jitla.hops import Kind, all_ops
from jitla.loopir import program as ir
from jitla.loopjit import arrays, linear_algebra, reductions, scalars, selections, shapes, sorting
from jitla.loopjit.builder import LoweringContext, ProgramBuilder, apply, both, cast, compare
from jitla.loopjit.values import (
    KIND_OF_TYPE,
    KIND_TYPES,
    MAX_EXTENT,
    NONE,
    PYTHON_KINDS,
    STORAGE,
    Abstract,
    Arr,
    Elementwise,
    Iterated,
    LoweringRefused,
    Num,
    Ranged,
    StaticValue,
    Tup,
    describe,
    is_none,
    number,
    of_kind,
)

#: Modules whose types are tested without running code of users.
_MODULES_OF_TYPES = frozenset({"builtins", "numpy", "numbers", "collections.abc"})

Arguments = Sequence[Abstract]
Keywords = Mapping[str, Abstract]
Handler = Callable[[LoweringContext, Arguments, Keywords], Abstract]

_ACCUMULATED = {np.add: "add", np.multiply: "multiply", np.maximum: "maximum", np.minimum: "minimum"}
#: Operators of the op table by the NumPy functions that they stand for.
_CELLS: dict[Any, str] = {function: op.name for op in all_ops() if op.kind is Kind.CELL
                          for function in op.numpy}
_REDUCERS: dict[Any, str] = {
    np.sum: "sum", np.prod: "prod", np.max: "max", np.min: "min", np.amax: "max", np.amin: "min",
    np.any: "any", np.all: "all", np.mean: "mean", np.var: "var", np.std: "std", np.add.reduce: "sum",
    np.multiply.reduce: "prod",
    np.maximum.reduce: "max", np.minimum.reduce: "min"}
_METHOD_REDUCERS = frozenset({"sum", "prod", "max", "min", "any", "all", "mean", "var", "std"})


#: The kind of ``np.count_nonzero``, which some releases return as a Python integer.
COUNT_KIND = KIND_OF_TYPE[type(np.count_nonzero(np.zeros(1)))]


def require_keywords(keywords: Keywords, *names: str) -> None:
    """Refuse keyword arguments other than `names`."""
    unknown = keywords.keys() - set(names)
    if unknown:
        raise LoweringRefused(f"an argument {min(unknown)}=")


def numbers(values: Arguments) -> list[Num]:
    """Return values that have to be numbers."""
    if not all(isinstance(value, Num) for value in values):
        raise LoweringRefused(f"a call with {', '.join(map(describe, values))}")
    return [value for value in values if isinstance(value, Num)]


def axis_argument(value: Abstract | None) -> tuple[int, ...] | None:
    """Return the axes that an argument names; None for all."""
    if value is None or isinstance(value, StaticValue) and value.value is None:
        return None
    items = value.items if isinstance(value, Tup) else (value,)
    return tuple(constant_argument(item, "an axis") for item in items)


def constant_argument(value: Abstract | None, what: str, default: int | None = None) -> int:
    """Return an argument that has to be a constant integer or bool."""
    if value is None and default is not None:
        return default
    if isinstance(value, Num):
        constant = scalars.constant_integer(value)
        if constant is not None:
            return constant
    raise LoweringRefused(f"{what} that is no constant integer")


def shape_argument(b: ProgramBuilder, value: Abstract) -> tuple[ir.Value, ...]:
    """Return a shape, from a number or a tuple."""
    items = value.items if isinstance(value, Tup) else (value,)
    return tuple(b.temporary(scalars.index_value(b, item).value) for item in numbers(items))


def call(lowering: LoweringContext, function: Any, args: Arguments, keywords: Keywords) -> Abstract:
    """Return the result of a call of a known object."""
    b = lowering.b
    handler = next((found for table in _TABLES if (found := table.get(function)) is not None),
                   None) if _is_hashable(function) else None
    if handler is not None:
        try:
            return handler(lowering, args, keywords)
        except (IndexError, KeyError, ValueError) as error:  # fewer or more arguments than the handler takes
            raise LoweringRefused(f"these arguments of {getattr(function, '__name__', function)}") from error
    if isinstance(function, type) and function in KIND_OF_TYPE:
        require_keywords(keywords)
        return _convert_scalar(b, function, args)
    if function in _REDUCERS:
        return _reduce(b, _REDUCERS[function], args, keywords)
    if function in _CELLS:
        return call_cell(lowering, _CELLS[function], args, keywords)
    if function is math or getattr(function, "__module__", None) == "math" and not keywords:
        result = scalars.call_math(b, function, numbers(args))
        if result is not None:
            return result
    if type(getattr(function, "__self__", None)) is np.random.mtrand.RandomState:
        raise LoweringRefused("random numbers")
    raise LoweringRefused(f"a call of {getattr(function, '__qualname__', None) or function!r:.60}")


def _is_hashable(function: Any) -> bool:
    return type(function).__hash__ is not None


def call_cell(lowering: LoweringContext, op: str, args: Arguments, keywords: Keywords) -> Abstract:
    """Return the result of an element-wise function, stored in ``out`` if it is given."""
    b = lowering.b
    require_keywords(keywords, "out")
    target = keywords.get("out")
    ufunc = next((f for f, name in _CELLS.items() if name == op and isinstance(f, np.ufunc)), None)
    count = ufunc.nin if ufunc is not None else len(args)
    if len(args) == count + 1 and ufunc is not None and target is None and op not in ("maximum", "minimum"):
        *args, target = args
    if len(args) != count:
        raise LoweringRefused(f"{len(args)} arguments of {op}")
    if isinstance(target, Tup) and len(target.items) == 1:
        target = target.items[0]
    if all(isinstance(x, Num) for x in args) and target is None:
        return scalars.call_ufunc(b, op, numbers(args))
    result = arrays.map_elements(b, op, args)
    if target is None:
        return result
    if not isinstance(target, Arr):
        raise LoweringRefused(f"out= that is {describe(target)}")
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise LoweringRefused(f"{result.dtype} cannot be cast to {target.dtype}")
    require_same_shape(b, result, target)
    arrays.store(b, target, result)
    return target


def require_same_shape(b: ProgramBuilder, value: Elementwise, target: Arr) -> None:
    """Leave to Python a result that is not of the shape of the array that it is stored in."""
    if value.ndim > target.ndim:
        raise LoweringRefused("a result with more axes than the array that it is stored in")
    lead = target.ndim - value.ndim
    for k, size in enumerate(value.shape):
        if size != target.shape[lead + k]:
            differs = compare("not_equal", size, target.shape[lead + k])
            b.check(both(differs, compare("not_equal", size, arrays.ONE)), arrays.MISMATCH)


def _reduce(b: ProgramBuilder, name: str, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords, "axis", "keepdims", *(("ddof",) if name in ("var", "std") else ()))
    if not 1 <= len(args) <= 2:
        raise LoweringRefused(f"{len(args)} arguments of {name}")
    axes = axis_argument(args[1] if len(args) > 1 else keywords.get("axis"))
    if isinstance(args[0], Num) and axes is None and not keywords and name in ("sum", "max", "min", "mean"):
        return _reduced_number(b, name, scalars.bound(b, args[0]))
    if not isinstance(args[0], (Arr, Elementwise)):
        raise LoweringRefused(f"{name} of {describe(args[0])}")
    keepdims = bool(constant_argument(keywords.get("keepdims"), "keepdims", 0))
    ddof = constant_argument(keywords.get("ddof"), "ddof", 0)
    return reductions.reduced(b, name, args[0], axes, keepdims, ddof)


def _reduced_number(b: ProgramBuilder, name: str, value: Num) -> Num:
    """Return what a reduction of a single number is: the number as one of NumPy, with a zero added to it."""
    if not value.kinds <= {"float", "f8", "f4"}:
        raise LoweringRefused(f"{name} of {describe(value)}")
    kind = "f4" if value.kinds == {"f4"} else "f8"
    result = value.value
    if name in ("sum", "mean"):
        result = apply("add", result, ir.constant(0, STORAGE[kind]))
    return of_kind(kind, result)


def _convert_scalar(b: ProgramBuilder, function: type, args: Arguments) -> Abstract:
    if function is complex and len(args) == 2:
        parts = [scalars.to_float(b, x) for x in numbers(args)]
        return scalars.complex_of(b, parts[0].value, parts[1].value)
    if len(args) != 1:
        raise LoweringRefused(f"{len(args)} arguments of {function.__name__}")
    if function is float and isinstance(args[0], StaticValue) and isinstance(args[0].value, str):
        try:
            return number(float(args[0].value))
        except ValueError as error:
            raise LoweringRefused(f"a float of {args[0].value!r:.20}") from error
    (x,) = numbers(args)
    if function is int:
        return scalars.to_int(b, x)
    if function is float:
        return scalars.to_float(b, x)
    if function is bool:
        return of_kind("bool", scalars.truth(b, x))
    kind = KIND_OF_TYPE[function]
    if function is complex:
        raise LoweringRefused("a call of complex")
    x = scalars.bound(b, x)
    storage = STORAGE[kind]
    if storage.kind == "b":
        return of_kind(kind, scalars.truth(b, x))
    if storage.kind in "iu" and x.dtype.kind in "iu" and x.kinds != {"int"}:
        return of_kind(kind, cast(x.value, storage))
    return of_kind(kind, scalars.convert(b, x, storage), *((x.low, x.high) if storage.kind in "iu"
                                                           and x.dtype.kind in "iu" else ()))


# --------------------------------------------------------------------------- Python's functions


def _len(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = args
    if isinstance(value, Arr) and value.ndim:
        return arrays.extent(arrays.require_bound(lowering.b, value), 0)
    if isinstance(value, Elementwise) and value.ndim:
        arrays.materialise(lowering.b, value)
        return of_kind("int", value.shape[0], 0, MAX_EXTENT)
    if isinstance(value, Tup):
        return number(len(value.items))
    raise LoweringRefused(f"len of {describe(value)}")


def _size(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.size`` of an array, or of one axis of it."""
    require_keywords(keywords)
    array, *rest = args
    if len(rest) > 1 or not isinstance(array, Arr):
        raise LoweringRefused(f"np.size of {describe(array)}")
    axis = axis_argument(rest[0] if rest else None)
    if axis is None:
        size = array_attribute(lowering.b, arrays.require_bound(lowering.b, array), "size")
        assert size is not None
        return size
    if len(axis) != 1 or not -array.ndim <= axis[0] < array.ndim:
        raise LoweringRefused("np.size along no axis of the array")
    return arrays.extent(arrays.require_bound(lowering.b, array), axis[0] % array.ndim)


def _attribute_of(name: str) -> Handler:
    """Return the handler of a function of NumPy that returns an attribute of an array."""
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        require_keywords(keywords)
        (array,) = args
        value = array_attribute(lowering.b, array, name) if isinstance(array, Arr) else None
        if value is None:
            raise LoweringRefused(f"np.{name} of {describe(array)}")
        return value

    return handler


def _abs(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = args
    if isinstance(value, Num):
        return scalars.absolute(lowering.b, value)
    return arrays.map_elements(lowering.b, "absolute", [value])


def _extremum(name: str) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        require_keywords(keywords)
        if len(args) == 1 and isinstance(args[0], (Arr, Elementwise)) and args[0].ndim == 1:
            return _extremum_of_vector(lowering.b, name, arrays.elementwise(lowering.b, args[0]))
        values = args[0].items if len(args) == 1 and isinstance(args[0], Tup) else args
        if len(values) < 2:
            raise LoweringRefused(f"{name} of {', '.join(map(describe, args))}")
        first, *others = numbers(values)
        for other in others:
            first = scalars.extremum(lowering.b, name, first, other)
        return first

    return handler


def _extremum_of_vector(b: ProgramBuilder, name: str, vector: Elementwise) -> Num:
    """Return Python's ``min`` or ``max`` of the elements of a vector: the first of those that none is beyond.
    """
    b.check(compare("equal", vector.shape[0], arrays.ZERO), "an extremum of nothing")
    if vector.dtype.kind == "c":
        raise LoweringRefused(f"{name} of complex numbers")
    best = b.fresh("r")
    read = b.assign(best, vector.element((arrays.ZERO,)))

    def step(at: tuple[ir.Value, ...]) -> None:
        element = b.temporary(vector.element(at))
        beyond = compare("less" if name == "min" else "greater", element, read)
        b.emit(ir.If(beyond, (ir.Assign(best, element),)))

    arrays.each_element(b, vector.shape, step, skip_first=True)
    return of_kind(vector.dtype.str[1:], read)


def _range(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    values = [scalars.index_value(lowering.b, x) for x in numbers(args)]
    zero, one = number(0), number(1)
    match values:
        case [stop]:
            return Ranged(zero, stop, one)
        case [start, stop]:
            return Ranged(start, stop, one)
        case [start, stop, step]:
            return Ranged(start, stop, step)
    raise LoweringRefused("a range of that many arguments")


def _iterated(name: str) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        require_keywords(keywords,
                         *(("start",) if name == "enumerate" else ("strict",) if name == "zip" else ()))
        start = keywords.get("start")
        if name == "zip" and constant_argument(keywords.get("strict"), "strict", 0):
            return Iterated("zip strict", tuple(args))
        if name == "enumerate" and len(args) == 2:
            *args, start = args
        if start is not None and not isinstance(start, Num):
            raise LoweringRefused("a start that is no number")
        return Iterated(name, tuple(args), start)

    return handler


def _folded(name: str) -> Handler:
    """Return the handler of ``sum``, ``any`` or ``all`` of a vector or tuple, item by item."""
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        b = lowering.b
        require_keywords(keywords)
        if len(args) != 1:
            raise LoweringRefused(f"{len(args)} arguments of {name}")
        (value,) = args
        if isinstance(value, Tup):
            items = numbers(value.items)
            if name != "sum":
                raise LoweringRefused(f"{name} of a tuple")
            total = number(0)
            for item in items:
                total = scalars.binary(b, "Add", total, item)
            return total
        if not isinstance(value, (Arr, Elementwise)) or value.ndim != 1:
            raise LoweringRefused(f"{name} of {describe(value)}")
        vector = arrays.elementwise(b, value)
        if name != "sum":
            return of_kind("bool", numbers([reductions.reduced(b, name, vector, None)])[0].value)
        b.check(compare("equal", vector.shape[0], arrays.ZERO), "a sum of nothing")
        kind = vector.dtype.str[1:]
        first = scalars.binary(b, "Add", number(0), of_kind(kind, vector.element((arrays.ZERO,))))
        name_of_total = b.fresh("r")
        read = b.assign(name_of_total, first.value)

        def add(at: tuple[ir.Value, ...]) -> None:
            following = scalars.binary(b, "Add", of_kind(first.kind, read), of_kind(kind, vector.element(at)))
            if following.kind != first.kind:
                raise LoweringRefused(f"a sum of {vector.dtype}")
            b.assign(name_of_total, following.value)

        arrays.each_element(b, vector.shape, add, skip_first=True)
        return of_kind(first.kind, read)

    return handler




def _pow(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    base, exponent = args
    return lowering.operate("Pow", base, exponent)


def _isinstance(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``isinstance``, which the kinds of a value decide."""
    require_keywords(keywords)
    value, wanted = args
    types = [item.value for item in (wanted.items if isinstance(wanted, Tup) else (wanted,))
             if isinstance(item, StaticValue)]
    if len(types) != (len(wanted.items) if isinstance(wanted, Tup) else 1) or not all(
            type(t) in (type, type(Number)) and t.__module__ in _MODULES_OF_TYPES for t in types):
        raise LoweringRefused("isinstance of types of the user")
    if isinstance(value, Num):
        examples: list[Any] = [KIND_TYPES[kind](1) for kind in value.kinds if kind in KIND_TYPES]
        examples += [None] * (NONE in value.kinds)
    elif isinstance(value, (Arr, Elementwise)):
        examples = [np.zeros(1)]
    elif isinstance(value, StaticValue):
        examples = [value.value]
    elif isinstance(value, Tup):
        examples = [[] if value.is_list else ()]
    else:
        raise LoweringRefused(f"isinstance of {describe(value)}")
    found = {isinstance(example, tuple(types)) for example in examples}
    if len(found) != 1:
        raise LoweringRefused("isinstance of a value of several types")
    return number(found.pop())


def _round(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (x,) = numbers(args)
    return scalars.rounded(lowering.b, x)


def _divmod(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    x, y = (lowering.b.evaluated(v) for v in numbers(args))
    if not (x.is_python and y.is_python):
        raise LoweringRefused("divmod of NumPy's numbers")
    return Tup((scalars.binary(lowering.b, "FloorDiv", x, y), scalars.binary(lowering.b, "Mod", x, y)))


# --------------------------------------------------------------------------- NumPy's functions


def _allocation(zero: bool, fill: Any = None) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        b = lowering.b
        require_keywords(keywords, "dtype", "shape")
        dtype = shapes.dtype_argument(args[1] if len(args) > 1 else keywords.get("dtype"), np.float64)
        made = arrays.allocate(b, dtype, shape_argument(b, args[0] if args else keywords["shape"]), zero)
        if fill is not None:
            arrays.store(b, made, number(fill))
        return made

    return handler


def _allocation_like(zero: bool, fill: Any = None) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        b = lowering.b
        require_keywords(keywords, "dtype")
        if not isinstance(args[0], Arr):
            raise LoweringRefused(f"an array like {describe(args[0])}")
        source = arrays.require_bound(b, args[0])
        arrays.require_c_order(b, arrays.elementwise(b, source))
        dtype = shapes.dtype_argument(args[1] if len(args) > 1 else keywords.get("dtype"), source.dtype)
        made = arrays.allocate(b, dtype, source.shape, zero)
        if fill is not None:
            arrays.store(b, made, number(fill))
        return made

    return handler


def _full(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    b = lowering.b
    require_keywords(keywords, "dtype")
    if len(args) < 2:
        raise LoweringRefused("full without a value")
    (value,) = numbers(args[1:2])
    dtype = shapes.dtype_argument(args[2] if len(args) > 2 else keywords.get("dtype"), STORAGE[value.kind])
    made = arrays.allocate(b, dtype, shape_argument(b, args[0]))
    arrays.store(b, made, value)
    return made


def _copy(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    if len(args) != 1 or keywords or not isinstance(args[0], (Arr, Elementwise)):
        raise LoweringRefused("a copy with options")
    return arrays.array_of(lowering.b, arrays.elementwise(lowering.b, args[0]))


def _where(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    if len(args) == 1 and isinstance(args[0], (Arr, Elementwise)):
        return Tup(selections.nonzero(lowering.b, args[0]))
    if len(args) != 3:
        raise LoweringRefused(f"{len(args)} arguments of where")
    if all(isinstance(x, Num) for x in args):
        raise LoweringRefused("where of numbers")
    test, *others = args
    if isinstance(test, Num):
        test_value: Abstract = of_kind("b1", scalars.truth(lowering.b, test))
    elif isinstance(test, (Arr, Elementwise)) and test.dtype.kind != "b":
        test_value = arrays.map_elements(lowering.b, "not_equal", [test, number(0)])
    else:
        test_value = test
    return arrays.map_elements(lowering.b, "where", [test_value, *others])


def _nonzero(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    if len(args) != 1 or not isinstance(args[0], (Arr, Elementwise)):
        raise LoweringRefused("nonzero of a number")
    return Tup(selections.nonzero(lowering.b, args[0]))


def _flatnonzero(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    found = _nonzero(lowering, args, keywords)
    if not isinstance(found, Tup) or len(found.items) != 1:
        raise LoweringRefused("flatnonzero of an array with several axes")
    return found.items[0]


def _count_nonzero(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    if len(args) != 1 or not isinstance(args[0], (Arr, Elementwise)):
        raise LoweringRefused("count_nonzero with options")
    count = selections.count_true(lowering.b, arrays.elementwise(lowering.b, args[0]))
    return of_kind(COUNT_KIND, lowering.b.temporary(count), 0, MAX_EXTENT)


def _product(how: str) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        require_keywords(keywords)
        left, right = args
        return reductions.product(lowering.b, left, right, how)

    return handler


def _outer(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    left, right = args
    for value in (left, right):
        if not isinstance(value, (Arr, Elementwise)) or value.ndim != 1:
            raise LoweringRefused("outer of what is no vector")
    return reductions.outer(lowering.b, "multiply", left, right)


def _arg_extremum(name: str) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        return arg_extremum(lowering.b, name, args, keywords)

    return handler


def arg_extremum(b: ProgramBuilder, name: str, args: Arguments, keywords: Keywords) -> Abstract:
    """Return the index of an extremum along an axis, or of that of all elements."""
    require_keywords(keywords, "axis")
    axes = axis_argument(args[1] if len(args) > 1 else keywords.get("axis"))
    if not 1 <= len(args) <= 2 or not isinstance(args[0], (Arr, Elementwise)) \
            or axes is not None and len(axes) != 1:
        raise LoweringRefused(f"{name} with options")
    return reductions.arg_extremum(b, name, args[0], axes[0] if axes else None)


def _cumulated(op: str) -> Handler:
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        return cumulated(lowering.b, op, args, keywords)

    return handler


def cumulated(b: ProgramBuilder, op: str, args: Arguments, keywords: Keywords) -> Abstract:
    """Return a cumulative sum or product along an axis, or of all elements."""
    require_keywords(keywords, "axis")
    axes = axis_argument(args[1] if len(args) > 1 else keywords.get("axis"))
    if not 1 <= len(args) <= 2 or not isinstance(args[0], (Arr, Elementwise)) \
            or axes is not None and len(axes) != 1:
        raise LoweringRefused("a cumulative sum with options")
    value: Arr | Elementwise = args[0]
    if axes is None and value.ndim > 1:
        value = shapes.reshaped(b, arrays.array_of(b, value), [number(-1)])
    return reductions.cumulated(b, op, value, axes[0] if axes else 0)


def _clip(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.clip(a, low, high)``, of which one bound may be None."""
    if len(args) == 3 and not keywords:
        value, *bounds = args
        for bound, name in zip(reversed(bounds), ("maximum", "minimum"), strict=True):
            if is_none(bound):
                other = bounds[0] if bound is bounds[1] else bounds[1]
                return call_cell(lowering, name, [value, other], {})
    return call_cell(lowering, "clip", args, keywords)


def _inner(how: str) -> Handler:
    """Return the handler of products of two vectors of floats."""
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        require_keywords(keywords)
        for value in args:
            if not isinstance(value, (Arr, Elementwise)) or value.ndim != 1 or value.dtype.kind != "f":
                raise LoweringRefused("a product of other than two vectors of floats")
        left, right = args
        return reductions.product(lowering.b, left, right, how)

    return handler


def _trace(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    (value,) = args
    if not isinstance(value, (Arr, Elementwise)) or value.ndim != 2:
        raise LoweringRefused(f"a trace of {describe(value)}")
    matrix = arrays.elementwise(lowering.b, value)
    size = lowering.b.temporary(apply("minimum", *matrix.shape))
    line = Elementwise(matrix.dtype, (size,), lambda at: matrix.element((at[0], at[0])), matrix.operands)
    return reductions.reduced(lowering.b, "sum", line, None)


def _diagonal(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.diag``: the diagonal of a matrix, as a view that is read only, or a diagonal matrix."""
    require_keywords(keywords)
    (value,) = args
    b = lowering.b
    if isinstance(value, (Arr, Elementwise)) and value.ndim == 1:
        vector = arrays.elementwise(b, value)
        size = b.temporary(vector.shape[0])
        made = arrays.allocate(b, vector.dtype, (size, size), True)
        arrays.each_element(b, (size,), lambda at: b.emit(
            ir.StoreElement(made.view, (at[0], at[0]), vector.element(at))))
        return made
    if isinstance(value, Arr) and value.ndim == 2:
        return shapes.diagonal(b, value, False)
    raise LoweringRefused(f"a diagonal of {describe(value)}")


def _fill_diagonal(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    require_keywords(keywords)
    matrix, value = args
    if not isinstance(matrix, Arr) or matrix.ndim != 2 or not isinstance(value, Num):
        raise LoweringRefused("a diagonal of other than a matrix is filled")
    b = lowering.b
    rows, columns = arrays.require_bound(b, matrix).shape
    b.check(compare("greater", rows, columns), "a matrix with more rows than columns")
    arrays.store(b, shapes.diagonal(b, matrix, matrix.writeable), value)
    return StaticValue(None)


_HANDLERS: dict[Any, Handler] = {
    sum: _folded("sum"), any: _folded("any"), all: _folded("all"),
    len: _len, abs: _abs, min: _extremum("min"), max: _extremum("max"), range: _range, round: _round,
    divmod: _divmod, pow: _pow, isinstance: _isinstance, np.size: _size, np.shape: _attribute_of("shape"),
    enumerate: _iterated("enumerate"), zip: _iterated("zip"), reversed: _iterated("reversed"),
    np.zeros: _allocation(True), np.empty: _allocation(False), np.ones: _allocation(False, 1),
    np.zeros_like: _allocation_like(True), np.empty_like: _allocation_like(False),
    np.ones_like: _allocation_like(False, 1), np.full: _full, np.copy: _copy,
    np.where: _where, np.nonzero: _nonzero, np.flatnonzero: _flatnonzero, np.count_nonzero: _count_nonzero,
    np.dot: _product("dot"), np.matmul: _product("matmul"), np.outer: _outer,
    np.argmax: _arg_extremum("argmax"), np.argmin: _arg_extremum("argmin"), np.cumsum: _cumulated("add"),
    np.cumprod: _cumulated("multiply"), np.clip: _clip, np.inner: _inner("dot"), np.vdot: _inner("vdot"),
    np.trace: _trace, np.diag: _diagonal, np.diagonal: _diagonal, np.fill_diagonal: _fill_diagonal,
}


#: Functions that change their first argument.
CHANGING = (np.fill_diagonal,)
_TABLES = (_HANDLERS, shapes.HANDLERS, sorting.HANDLERS, linear_algebra.HANDLERS)

def _at(b: ProgramBuilder, op: str, args: Arguments) -> Abstract:
    """Lower ``ufunc.at(a, indices, value)``: the operation for one index after the other."""
    array, indices, value = args
    if not isinstance(array, Arr) or not array.writeable:
        raise LoweringRefused(f"an operation at elements of {describe(array)}")
    items = indices.items if isinstance(indices, Tup) and not indices.is_list else (
        shapes.array_from(b, indices) if isinstance(indices, Tup) else indices,)
    if not any(isinstance(item, (Arr, Elementwise)) for item in items):
        raise LoweringRefused("an operation at elements that no array selects")
    selections.operate_at(b, op, array, items, value)
    return StaticValue(None)


# --------------------------------------------------------------------------- attributes and methods


def array_attribute(b: ProgramBuilder, array: Arr, name: str) -> Abstract | None:
    """Return an attribute of an array; None if it is a method."""
    match name:
        case "shape":
            bound = arrays.require_bound(b, array)
            return Tup(tuple(arrays.extent(bound, axis) for axis in range(array.ndim)))
        case "ndim":
            return number(array.ndim)
        case "size":
            size = number(1)
            for axis in range(array.ndim):
                size = Num(size.kinds, apply("multiply", size.value, ir.Extent(array.view, axis))
                           if axis else ir.Extent(array.view, 0), None, 0, MAX_EXTENT)
            return size
        case "dtype":
            return StaticValue(array.dtype)
        case "T":
            return arrays.transposed(b, array, range(array.ndim)[::-1])
        case "itemsize":
            return number(array.dtype.itemsize)
        case "real" if array.dtype.kind != "c":
            return array
        case "real" | "imag" if array.dtype.kind == "c":
            return arrays.part_of_complex(b, array, name)
    return None


def call_method(lowering: LoweringContext, value: Abstract, name: str, args: Arguments,
                keywords: Keywords) -> Abstract:
    """Return the result of a method of an array or a scalar."""
    b = lowering.b
    if isinstance(value, (Arr, Elementwise)):
        if name in _METHOD_REDUCERS:
            return _reduce(b, name, [value, *args], keywords)
        match name:
            case "copy" if not args and not keywords:
                return arrays.materialise(b, value)
            case "astype" if len(args) == 1 and not keywords:
                return arrays.array_of(b, arrays.as_dtype(
                    arrays.elementwise(b, value), shapes.dtype_argument(args[0], None)))
            case "dot" if len(args) == 1 and not keywords:
                return reductions.product(b, value, args[0], "dot")
            case "fill" if len(args) == 1 and isinstance(value, Arr):
                arrays.store(b, value, args[0])
                return StaticValue(None)
            case "nonzero" if not args and not keywords:
                return _nonzero(lowering, [value], {})
            case "argmax" | "argmin":
                return arg_extremum(b, name, [value, *args], keywords)
            case "cumsum" | "cumprod":
                return cumulated(b, "add" if name == "cumsum" else "multiply", [value, *args], keywords)
            case "trace":
                return _trace(lowering, [value, *args], keywords)
            case "diagonal" if isinstance(value, Arr) and value.ndim == 2:
                return _diagonal(lowering, [value, *args], keywords)
            case "conj" | "conjugate" if not args and not keywords and isinstance(value, Arr):
                return value if value.dtype.kind != "c" else arrays.map_elements(b, "conjugate", [value])
            case "item" if isinstance(value, Arr) and len(args) == value.ndim and not keywords:
                element = selections.subscript(b, value, args)
                assert isinstance(element, Num)
                kind = {"f": "float", "b": "bool", "i": "int", "u": "int"}.get(value.dtype.kind)
                if kind is None or value.dtype == np.uint64:
                    raise LoweringRefused(f"item of {value.dtype}")
                return of_kind(kind, cast(element.value, STORAGE[kind]))
        for call_method_of in (shapes.call_shape_method, sorting.call_sorting_method):
            found = call_method_of(lowering, value, name, args, keywords)
            if found is not None:
                return found
    if isinstance(value, Num) and name == "item" and not args and not value.kinds <= PYTHON_KINDS:
        return scalars.to_float(b, value) if value.dtype.kind == "f" else scalars.to_int(b, value)
    if isinstance(value, StaticValue) and isinstance(value.value, np.ufunc):
        op = _CELLS.get(value.value)
        if name == "outer" and op is not None and len(args) == 2:
            return reductions.outer(b, op, *args)
        if name == "reduce" and value.value in (np.add, np.multiply, np.maximum, np.minimum):
            names = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min"}
            if isinstance(args[0], (Arr, Elementwise)) and args[0].ndim == 1:
                return _reduce(b, names[value.value], args, keywords)
        if name == "accumulate" and value.value in _ACCUMULATED and len(args) == 1 and not keywords \
                and isinstance(args[0], (Arr, Elementwise)) and args[0].ndim == 1:
            return reductions.cumulated(b, _ACCUMULATED[value.value], args[0])
        if name == "at" and op is not None and len(args) == 3 and not keywords:
            return _at(b, op, args)
    raise LoweringRefused(f"a call of the method {name} of {describe(value)}")
