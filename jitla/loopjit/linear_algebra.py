"""Functions of `np.linalg` in loops: LAPACK by NumPy's own inner loops, and norms.

An inner loop that fails, as for a singular matrix, fills its result with NaN: then Python does the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    contiguous_vector,
    elementwise,
    map_elements,
    materialise,
    require_c_order,
)
from jitla.loopjit.builder import LoweringContext, ProgramBuilder, apply, compare
from jitla.loopjit.reductions import product, reduced
from jitla.loopjit.shapes import reshaped
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Elementwise,
    LoweringRefused,
    Num,
    StaticValue,
    Tup,
    describe,
    number,
    of_kind,
)

Arguments = Sequence[Abstract]
Keywords = Mapping[str, Abstract]
Handler = Callable[[LoweringContext, Arguments, Keywords], Abstract]
FLOAT64 = np.dtype(np.float64)


def _operand(b: ProgramBuilder, value: Abstract, axes: tuple[int, ...], what: str) -> tuple[Arr, np.dtype]:
    """Return an array of float64 as LAPACK takes it, and the dtype of the result of NumPy's function."""
    if not isinstance(value, (Arr, Elementwise)) or value.ndim not in axes or value.dtype.kind not in "biuf":
        raise LoweringRefused(f"{what} of {describe(value)}")
    result = value.dtype if value.dtype.kind == "f" else FLOAT64
    expression = value if value.dtype == FLOAT64 else as_dtype(elementwise(b, value), FLOAT64)
    return (array_of(b, expression) if isinstance(expression, Arr) else materialise(b, expression)), result


def _square(b: ProgramBuilder, value: Abstract, what: str) -> tuple[Arr, ir.Value, np.dtype]:
    """Return a square matrix with its size; others are left to Python."""
    matrix, dtype = _operand(b, value, (2,), what)
    size = b.temporary(matrix.shape[0])
    b.check(compare("not_equal", matrix.shape[1], size), MISMATCH)
    b.check(compare("less", size, ONE), "an empty matrix")
    return matrix, size, dtype


def _call(b: ProgramBuilder, routine: str, dims: Sequence[ir.Value], operands: Sequence[Arr],
          results: Sequence[Arr]) -> None:
    """Call an inner loop once, and leave the iteration to Python if it fails."""
    arrays = (*operands, *results)
    steps = [ir.Stride(x.view, axis) for x in arrays for axis in range(x.ndim)]
    b.emit(ir.InnerLoop(routine, tuple(ir.Address(x.view, (ZERO,) * x.ndim) for x in arrays), (ONE, *dims),
                        (*(ZERO,) * len(arrays), *steps)))
    for x in results:
        first = ir.Element(x.view, (ZERO,) * x.ndim, x.dtype)
        b.check(compare("not_equal", first, first), "a matrix that LAPACK cannot do")


def _as_result(b: ProgramBuilder, array: Arr, dtype: np.dtype) -> Arr:
    return array if array.dtype == dtype else materialise(b, as_dtype(elementwise(b, array), dtype))


def _arguments(args: Arguments, keywords: Keywords, *names: str) -> list[Abstract | None]:
    """Return arguments in the order of their names; None for those that are missing."""
    if len(args) > len(names) or keywords.keys() - set(names[len(args):]):
        raise LoweringRefused("arguments that are not known")
    return [*args, *(keywords.get(name) for name in names[len(args):])]


def _solve(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    left, right = _arguments(args, keywords, "a", "b")
    b = lowering.b
    if left is None or right is None:
        raise LoweringRefused("a solve without operands")
    matrix, size, one = _square(b, left, "solve")
    other, two = _operand(b, right, (1, 2), "solve")
    b.check(compare("not_equal", other.shape[0], size), MISMATCH)
    result = allocate(b, FLOAT64, other.shape)
    if other.ndim == 1:
        _call(b, "solve1.dd->d", (size,), (matrix, other), (result,))
    else:
        columns = b.temporary(other.shape[1])
        b.check(compare("less", columns, ONE), "an empty matrix")
        _call(b, "solve.dd->d", (size, columns), (matrix, other), (result,))
    return _as_result(b, result, np.result_type(one, two))


def _of_matrix(routine: str, what: str) -> Handler:
    """Return the handler of a function of a square matrix whose result is a matrix or vector."""
    def handler(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
        (value,) = _arguments(args, keywords, "a")
        b = lowering.b
        if value is None:
            raise LoweringRefused(f"{what} of nothing")
        matrix, size, dtype = _square(b, value, what)
        shape = (size,) if what == "eigvalsh" else (size, size)
        result = allocate(b, FLOAT64, shape)
        _call(b, routine, (size,), (matrix,), (result,))
        return _as_result(b, result, dtype)

    return handler


def _eigh(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = _arguments(args, keywords, "a")
    b = lowering.b
    if value is None:
        raise LoweringRefused("eigh of nothing")
    matrix, size, dtype = _square(b, value, "eigh")
    numbers, vectors = allocate(b, FLOAT64, (size,)), allocate(b, FLOAT64, (size, size))
    _call(b, "eigh_lo.d->dd", (size,), (matrix,), (numbers, vectors))
    # no tuple, but of a type that has names: it is no variable behind the loop, as lists are not
    return Tup((_as_result(b, numbers, dtype), _as_result(b, vectors, dtype)), True)


def _det(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = _arguments(args, keywords, "a")
    b = lowering.b
    if value is None:
        raise LoweringRefused("det of nothing")
    matrix, size, dtype = _square(b, value, "det")
    if dtype != FLOAT64:
        raise LoweringRefused(f"det of {dtype}")
    name = b.fresh("r")
    b.assign(name, ir.constant(0.0, FLOAT64))
    b.emit(ir.InnerLoop("det.d->d", (ir.Address(matrix.view, (ZERO, ZERO)), ir.Place(name)), (ONE, size), (
        ZERO, ZERO, ir.Stride(matrix.view, 0), ir.Stride(matrix.view, 1))))
    return of_kind("f8", b.temporary(b.scalar(name, FLOAT64)))


def _svd(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return the singular values of a matrix, and the matrices of its vectors if they are wanted."""
    value, full, vectors = _arguments(args, keywords, "a", "full_matrices", "compute_uv")
    b = lowering.b
    if value is None:
        raise LoweringRefused("svd of nothing")
    matrix, dtype = _operand(b, value, (2,), "svd")
    rows, columns = map(b.temporary, matrix.shape)
    least = b.temporary(apply("minimum", rows, columns))
    b.check(compare("less", least, ONE), "an empty matrix")
    values = allocate(b, FLOAT64, (least,))
    dims = rows, columns, least
    if vectors is not None and not _integer(vectors):
        _call(b, "svd.d->d", dims, (matrix,), (values,))
        return _as_result(b, values, dtype)
    is_full = full is None or bool(_integer(full))
    left = allocate(b, FLOAT64, (rows, rows if is_full else least))
    right = allocate(b, FLOAT64, (columns if is_full else least, columns))
    _call(b, f"svd_{'f' if is_full else 's'}.d->ddd", dims, (matrix,), (left, values, right))
    return Tup(tuple(_as_result(b, x, dtype) for x in (left, values, right)), True)


def _slogdet(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    (value,) = _arguments(args, keywords, "a")
    b = lowering.b
    if value is None:
        raise LoweringRefused("slogdet of nothing")
    matrix, size, dtype = _square(b, value, "slogdet")
    if dtype != FLOAT64:
        raise LoweringRefused(f"slogdet of {dtype}")
    names = b.fresh("sign"), b.fresh("log")
    for name in names:
        b.assign(name, ir.constant(0.0, FLOAT64))
    b.emit(ir.InnerLoop("slogdet.d->dd", (ir.Address(matrix.view, (ZERO, ZERO)), *map(ir.Place, names)), (
        ONE, size), (ZERO, ZERO, ZERO, ir.Stride(matrix.view, 0), ir.Stride(matrix.view, 1))))
    return Tup(tuple(of_kind("f8", b.temporary(b.scalar(name, FLOAT64))) for name in names), True)


# --------------------------------------------------------------------------- norms


def _norm(lowering: LoweringContext, args: Arguments, keywords: Keywords) -> Abstract:
    """Return ``np.linalg.norm``: of all elements the root of their product with themselves, else by sums."""
    value, kind, axis, keeps = _arguments(args, keywords, "x", "ord", "axis", "keepdims")
    b = lowering.b
    if not isinstance(value, (Arr, Elementwise)) or value.dtype.kind not in "biuf":
        raise LoweringRefused("a norm of other than an array of reals")
    if value.dtype.kind != "f":
        value = as_dtype(elementwise(b, value), FLOAT64)
    order = _order(kind)
    keepdims = keeps is not None and bool(_integer(keeps))
    if axis is None or isinstance(axis, StaticValue) and axis.value is None:
        if order == "fro" or order == 2 and (value.ndim == 1 or kind is None):
            if keepdims:
                raise LoweringRefused("a norm that keeps axes")
            return _euclidean(b, value)
        if value.ndim != 1:
            raise LoweringRefused("a norm of a matrix")
        place = 0
    else:
        place = _integer(axis)
    if order == 2:
        return _root(b, reduced(b, "sum", map_elements(b, "multiply", [value, value]), (place,), keepdims))
    sizes = map_elements(b, "absolute", [value])
    name = {1: "sum", math.inf: "max", -math.inf: "min"}.get(order)
    if name is None:
        raise LoweringRefused("a norm of that order")
    result: Abstract = reduced(b, name, sizes, (place,), keepdims)
    return result


def _order(value: Abstract | None) -> Any:
    """Return the order of a norm."""
    if value is None or isinstance(value, StaticValue) and value.value is None:
        return 2
    if isinstance(value, StaticValue) and value.value == "fro":
        return "fro"
    if isinstance(value, Num) and value.known:
        return value.known[0]
    raise LoweringRefused("the order of a norm that is no constant")


def _integer(value: Abstract) -> int:
    found = scalars.constant_integer(value) if isinstance(value, Num) else None
    if found is None:
        raise LoweringRefused("an axis of a norm that is no constant integer")
    return found


def _euclidean(b: ProgramBuilder, value: Arr | Elementwise) -> Num:
    """Return the root of the sum of all squares.

    NumPy makes the vector contiguous first, and BLAS adds contiguous products in another order than others.
    """
    array = array_of(b, value)
    if array.ndim > 1:
        require_c_order(b, elementwise(b, array))
        array = reshaped(b, array, [number(-1)])
    array = contiguous_vector(b, array)
    square = product(b, array, array, "dot")
    assert isinstance(square, Num)
    return of_kind(square.kind, apply("sqrt", square.value))


def _root(b: ProgramBuilder, value: Num | Arr) -> Abstract:
    if isinstance(value, Num):
        return of_kind(value.kind, apply("sqrt", value.value))
    return map_elements(b, "sqrt", [value])


HANDLERS: dict[Any, Handler] = {
    np.linalg.solve: _solve, np.linalg.inv: _of_matrix("inv.d->d", "inv"), np.linalg.det: _det,
    np.linalg.slogdet: _slogdet, np.linalg.svd: _svd,
    np.linalg.cholesky: _of_matrix("cholesky_lo.d->d", "cholesky"), np.linalg.eigh: _eigh,
    np.linalg.eigvalsh: _of_matrix("eigvalsh_lo.d->d", "eigvalsh"), np.linalg.norm: _norm,
}
