"""Op table: reductions, matrix products, rearrangement, indexed reads, and creation of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from jitla.errors import InternalError
from jitla.hops import sparsity as nnz
from jitla.hops.node import (
    Attrs,
    Hop,
    Kind,
    Meta,
    OpSpec,
    ScalarBuilder,
    Shape,
    Zeros,
    lookup,
    reduced_shape,
    register,
)
from jitla.hops.ops_elementwise import (
    as_scalar,
    cell_meta,
    common_dtype,
    promotion_dtype,
)
from jitla.hops.sparsity import (
    bincount_bound,
    einsum_bound,
    gather_bound,
    sum_bound,
    with_nnz_bound,
)

__all__ = ["POSITION_DTYPE"]


Dtypes = tuple[Any, ...]
Metas = tuple[Meta, ...]
MetaFn = Callable[..., Meta]
INTP = np.dtype(np.intp)
ANY, ALL, NONE = Zeros.ANY, Zeros.ALL, Zeros.NONE

# --------------------------------------------------------------------------- shared by the entries


def _placeholder(meta: Meta) -> Any:
    """Return an operand with this metadata that takes no memory: one zero, broadcast."""
    return np.broadcast_to(np.zeros((), meta.dtype), meta.shape)


def _raise_numpy_error(ref: Callable[..., Any], metas: Metas, attrs: Attrs) -> NoReturn:
    """Raise NumPy's own exception for operands that do not fit, by calling NumPy on placeholders."""
    ref(*map(_placeholder, metas), **attrs)
    raise InternalError(f"NumPy accepts what the op table refuses: {metas} {dict(attrs)}")


def _infer_meta(
    ref: Callable[..., Any], meta: Callable[..., Meta], bound: nnz.Bound | None,
) -> Callable[[Metas, Attrs], Meta]:
    """Return an entry's `meta` for `meta(*metas, **attrs)`: operands it rejects raise NumPy's exception."""

    def infer(metas: Metas, attrs: Attrs) -> Meta:
        try:
            result = meta(*metas, **attrs)
        except (LookupError, ValueError, ArithmeticError):
            _raise_numpy_error(ref, metas, attrs)
        if bound is None or metas and all(m.nnz is None for m in metas):
            return result
        return nnz.with_nnz_bound(result, bound(metas, result.shape, attrs))

    return infer


def _uncast(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """Return the operands' dtypes: no cast; a weak Python scalar takes its default dtype."""
    return tuple(np.dtype(d) for d in dtypes)


def _common_dtypes(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """Return ``np.result_type`` of all operands, for each of them."""
    return (common_dtype(dtypes),) * len(dtypes)


def _returning_scalars(ref: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `ref` so that 0-d results are NumPy scalars, as everywhere in a DAG."""
    return lambda *xs, **attrs: as_scalar(ref(*xs, **attrs))


def declare_call(
    name: str, ref: Callable[..., Any], meta: MetaFn, doc: str, *, arity: int | None = 1,
    resolve: Callable[[Dtypes, Attrs], tuple[np.dtype, ...]] = _uncast, zeros: Zeros = NONE,
    flops: float | Callable[[Metas, Attrs], float] = 0.0, also: tuple[Any, ...] = (),
    bound: nnz.Bound | None = None,
) -> OpSpec:
    """Register an operator that is always a NumPy call; `meta(*metas, **attrs)` infers its result.

    If the operands do not fit, `meta` raises any exception, and the user gets the one that NumPy raises.
    `bound` gives an upper bound on the nonzeros. `also` are other callables than `ref` with the same meaning.
    """

    return register(OpSpec(
        name=name, kind=Kind.CALL, arity=arity, ref=_returning_scalars(ref),
        meta=_infer_meta(ref, meta, bound),
        resolve=resolve, doc=doc, numpy=(ref, *also), zeros=zeros, flops=flops,
    ))


# --------------------------------------------------------------------------- leaves


def _checked_axes(axis: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return `axis` if it is sorted, distinct and in range; else raise IndexError."""
    if list(axis) != sorted(set(axis)) or any(not 0 <= i < ndim for i in axis):
        raise IndexError(axis)
    return axis


def _no_meta(metas: Metas, attrs: Attrs) -> Meta:
    raise InternalError("leaves are made by `leaf` and `const`, not by `make`")


def _no_ref(*xs: Any, **attrs: Any) -> Any:
    raise InternalError("a leaf has no operands to compute from")


for _name, _doc in (("leaf", "the value at a leaf position"), ("const", "a 0-d constant")):
    register(OpSpec(
        name=_name, kind=Kind.LEAF, arity=0, ref=_no_ref, meta=_no_meta, resolve=_uncast,
        doc=_doc, flops=0.0,
    ))

# --------------------------------------------------------------------------- aggregates


@lru_cache(maxsize=256)
def _accumulator(ufunc: np.ufunc, dtype: Any) -> np.dtype:
    """Return the dtype that NumPy's reduction by `ufunc` reads and accumulates in."""
    return ufunc.resolve_dtypes((None, np.dtype(dtype), None), reduction=True)[1]


ROW_CALL_FLOPS = 400.0  # cost in additions of starting a NumPy loop that is called once per row
ROW_START_FLOPS = 50.0  # cost in additions of starting and ending a reduced row


def _declare_reduction(
    name: str, ufunc: np.ufunc, weight: float, doc: str, also: tuple[Any, ...], zeros: Zeros,
) -> OpSpec:
    """Register the reduction by `ufunc` over `axis` (sorted tuple) with `keepdims`.

    An element of 8 bytes costs `weight` additions, smaller ones proportionally less.
    """

    def ref(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)

    def meta(x: Meta, axis: tuple[int, ...], keepdims: bool) -> Meta:
        if x.dtype != _accumulator(ufunc, x.dtype):
            raise InternalError(f"{name}: {x.dtype} is not the dtype it accumulates in")
        shape = reduced_shape(x.shape, _checked_axes(axis, x.ndim), keepdims)
        if ufunc.identity is None and 0 not in shape and any(x.shape[i] == 0 for i in axis):
            raise ValueError("nothing to reduce, and no identity")
        return Meta(shape, x.dtype)

    def flops(metas: Metas, attrs: Attrs) -> float:
        x, axis = metas[0], attrs["axis"]
        # NumPy's pairwise sum has 8 accumulators for every float dtype: it is bound by latency.
        size = 8 if name == "sum" and x.dtype.kind == "f" else x.dtype.itemsize
        rows = x.size // max(math.prod(x.shape[i] for i in axis), 1)
        starts = rows if rows > 1 and x.ndim - 1 in axis else 0
        return x.size * weight * size / 8 + starts * ROW_START_FLOPS

    return register(OpSpec(
        name=name, kind=Kind.AGG, arity=1, ref=_returning_scalars(ref),
        meta=_infer_meta(ref, meta, nnz.sum_bound if zeros is ALL else nnz.product_bound),
        resolve=lambda dtypes, attrs: (_accumulator(ufunc, dtypes[0]),), doc=doc,
        numpy=(ufunc.reduce, *also), zeros=zeros, flops=flops,
    ))


_declare_reduction("sum", np.add, 3.5, "sum over axes", (np.sum,), ALL)
_declare_reduction("prod", np.multiply, 3.5, "product over axes", (np.prod,), ANY)
_declare_reduction("min", np.minimum, 2.5, "least element over axes; NaN wins", (np.min, np.amin), ALL)
_declare_reduction("max", np.maximum, 2.5, "greatest element over axes; NaN wins", (np.max, np.amax), ALL)
_declare_reduction("any", np.logical_or, 3.0, "is one element true", (np.any,), ALL)
_declare_reduction("all", np.logical_and, 3.0, "are all elements true", (np.all,), ANY)


@lru_cache(maxsize=256)
def _result_dtype(ref: Callable[..., Any], dtype: np.dtype) -> np.dtype:
    """Return the dtype of `ref` for one element of `dtype`."""
    dtype_: np.dtype = ref(np.ones(1, dtype)).dtype
    return dtype_


def _statistic_meta(ref: Callable[..., Any]) -> MetaFn:
    def meta(x: Meta, axis: tuple[int, ...], keepdims: bool, ddof: int = 0) -> Meta:
        shape = reduced_shape(x.shape, _checked_axes(axis, x.ndim), keepdims)
        return Meta(shape, _result_dtype(ref, x.dtype))

    return meta


def _arg_meta(x: Meta, axis: int | None, keepdims: bool) -> Meta:
    axes = tuple(range(x.ndim)) if axis is None else _checked_axes((axis,), x.ndim)
    shape = reduced_shape(x.shape, axes, keepdims)
    if any(x.shape[i] == 0 for i in axes):
        raise ValueError("empty")
    return Meta(shape, INTP)


def _count(x: Any, axis: tuple[int, ...]) -> Any:
    return np.intp(math.prod(np.shape(x)[i] for i in axis))


def _arg_flops(metas: Metas, attrs: Attrs) -> float:
    """NumPy restarts its loop for every row."""
    x, axis = metas[0], attrs["axis"]
    return 2.0 * x.size + (0.0 if axis is None else ROW_CALL_FLOPS * x.size / max(x.shape[axis], 1))


def _per_input_element(per_element: float) -> Callable[[Metas, Attrs], float]:
    return lambda metas, attrs: per_element * metas[0].size


declare_call("mean", np.mean, _statistic_meta(np.mean), "arithmetic mean over axes",
             flops=_per_input_element(3), zeros=ALL,
     bound=nnz.sum_bound)
declare_call("var", np.var, _statistic_meta(np.var), "variance over axes", flops=_per_input_element(25),
             zeros=ALL,
     bound=nnz.sum_bound)
declare_call("std", np.std, _statistic_meta(np.std), "standard deviation over axes",
             flops=_per_input_element(25),
     zeros=ALL, bound=nnz.sum_bound)
declare_call("argmin", np.argmin, _arg_meta, "index of the first least element", flops=_arg_flops, zeros=ALL,
     bound=nnz.sum_bound)
declare_call("argmax", np.argmax, _arg_meta, "index of the first greatest element", flops=_arg_flops,
             zeros=ALL,
     bound=nnz.sum_bound)
declare_call("count", _count, lambda x, axis: Meta((), INTP),
     "number of elements that a reduction over `axis` joins")


def _cumsum_meta(x: Meta, axis: int | None) -> Meta:
    if axis is None:
        return Meta((x.size,), x.dtype)
    return Meta(x.shape if _checked_axes((axis,), max(x.ndim, 1)) and x.ndim else (1,), x.dtype)


declare_call("cumsum", np.cumsum, _cumsum_meta, "running sum along an axis, or of all elements in order",
     resolve=lambda dtypes, attrs: (_accumulator(np.add, dtypes[0]),), flops=_per_input_element(80),
     zeros=ALL, bound=nnz.scan_bound)
declare_call("cumprod", np.cumprod, _cumsum_meta,
             "running product along an axis, or of all elements in order",
     resolve=lambda dtypes, attrs: (_accumulator(np.multiply, dtypes[0]),), flops=_per_input_element(80),
     zeros=ALL, bound=nnz.scan_bound)

# --------------------------------------------------------------------------- products


def _matmul_meta(x: Meta, y: Meta) -> Meta:
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[-2 if y.ndim > 1 else 0]:
        raise ValueError("core dimensions")
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return Meta((*batch, *x.shape[:-1][-1:], *y.shape[1:][-1:] * (y.ndim > 1)), x.dtype)


def _dot_meta(x: Meta, y: Meta) -> Meta:
    if not x.ndim or not y.ndim:
        return Meta(x.shape or y.shape, x.dtype)
    inner = -2 if y.ndim > 1 else 0
    if x.shape[-1] != y.shape[inner]:
        raise ValueError("core dimensions")
    outer = y.shape[:-2] + y.shape[-1:] if y.ndim > 1 else ()
    return Meta(x.shape[:-1] + outer, x.dtype)


def _product_flops(meta: MetaFn) -> Callable[[Metas, Attrs], float]:
    def flops(metas: Metas, attrs: Attrs) -> float:
        inner = metas[0].shape[-1] if metas[0].ndim and metas[1].ndim else 1
        return 2.0 * inner * meta(*metas).size

    return flops


@lru_cache(maxsize=1024)
def _matmul_dtypes(dtypes: Dtypes) -> tuple[np.dtype, ...]:
    return np.matmul.resolve_dtypes((*map(promotion_dtype, dtypes), None))[:2]


declare_call("matmul", np.matmul, _matmul_meta, "matrix product `x @ y`", arity=2, zeros=ANY,
     resolve=lambda dtypes, attrs: _matmul_dtypes(dtypes), flops=_product_flops(_matmul_meta),
     bound=nnz.matmul_bound)
declare_call("dot", np.dot, _dot_meta, "product over the last axis of x and the second to last of y",
     arity=2, zeros=ANY, resolve=_common_dtypes, flops=_product_flops(_dot_meta),
     bound=nnz.matmul_bound)


def _vdot_meta(x: Meta, y: Meta) -> Meta:
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError("lengths")
    return Meta((), x.dtype)


# Not spelled `dot`: NumPy emits no floating-point warnings in `vdot`.
declare_call("vdot", np.vdot, _vdot_meta, "product of two vectors, the first one conjugated", arity=2,
             zeros=ANY,
     resolve=_common_dtypes, flops=_product_flops(_vdot_meta), bound=nnz.matmul_bound)

# --------------------------------------------------------------------------- reorganisation


def _transpose_meta(x: Meta, axes: tuple[int, ...]) -> Meta:
    if sorted(axes) != list(range(x.ndim)):
        raise ValueError(axes)
    return Meta(tuple(x.shape[i] for i in axes), x.dtype)


def _reshape_meta(x: Meta, shape: Shape) -> Meta:
    if math.prod(shape) != x.size or any(n < 0 for n in shape):
        raise ValueError(shape)
    return Meta(shape, x.dtype)


def _broadcast_to_meta(x: Meta, shape: Shape) -> Meta:
    if np.broadcast_shapes(x.shape, shape) != shape:
        raise ValueError(shape)
    return Meta(shape, x.dtype)


def _windows(x: Any, sizes: Shape, axis: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, sizes, axis)


def _windows_meta(x: Meta, sizes: Shape, axis: tuple[int, ...]) -> Meta:
    _checked_axes(tuple(sorted(axis)), x.ndim)
    sizes_left = list(x.shape)
    for i, n in zip(axis, sizes, strict=True):
        if not 0 <= n <= sizes_left[i]:
            raise ValueError(sizes)
        sizes_left[i] -= n - 1
    return Meta((*sizes_left, *sizes), x.dtype)


def _concatenate_meta(*xs: Meta, axis: int) -> Meta:
    first, dtype = xs[0].shape, xs[0].dtype
    _checked_axes((axis,), len(first))
    if any(x.shape[:axis] + x.shape[axis + 1:] != first[:axis] + first[axis + 1:] for x in xs):
        raise ValueError("shapes")
    if any(len(x.shape) != len(first) for x in xs):
        raise ValueError("ranks")
    return Meta((*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1:]), dtype)


def _stack_meta(*xs: Meta, axis: int) -> Meta:
    shape = xs[0].shape
    _checked_axes((axis,), len(shape) + 1)
    if any(x.shape != shape for x in xs):
        raise ValueError("shapes")
    return Meta((*shape[:axis], len(xs), *shape[axis:]), xs[0].dtype)


def _expand_dims_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    ndim = x.ndim + len(axis)
    old_sizes = iter(x.shape)
    _checked_axes(axis, ndim)
    return Meta(tuple(1 if i in axis else next(old_sizes) for i in range(ndim)), x.dtype)


def _squeeze_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    if any(x.shape[i] != 1 for i in _checked_axes(axis, x.ndim)):
        raise ValueError(axis)
    return Meta(reduced_shape(x.shape, axis, False), x.dtype)


def _flip_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    _checked_axes(axis, x.ndim)
    return Meta(x.shape, x.dtype)


def _concatenate(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis=axis)


def _stack(*xs: Any, axis: int) -> Any:
    return np.stack(xs, axis=axis)


declare_call("transpose", np.transpose, _transpose_meta, "axes permuted", zeros=ANY,
     bound=nnz.subset_bound)
declare_call("reshape", np.reshape, _reshape_meta, "the elements in row-major order, in another shape",
     zeros=ANY, bound=nnz.subset_bound)
declare_call("ravel", np.ravel, lambda x: Meta((x.size,), x.dtype),
     "the elements in row-major order, in one dimension", zeros=ANY, bound=nnz.subset_bound)
declare_call("broadcast_to", np.broadcast_to, _broadcast_to_meta, "repeated along new and length-1 axes",
     zeros=ANY, bound=nnz.broadcast_bound)
declare_call("windows", _windows, _windows_meta,
             "all windows of some sizes along axes, as new axes at the end",
     zeros=ANY)
declare_call("expand_dims", np.expand_dims, _expand_dims_meta, "length-1 axes inserted", zeros=ANY,
     bound=nnz.subset_bound)
declare_call("squeeze", np.squeeze, _squeeze_meta, "length-1 axes dropped", zeros=ANY, bound=nnz.subset_bound)
declare_call("flip", np.flip, _flip_meta, "reversed along axes", zeros=ANY, bound=nnz.subset_bound)
declare_call("concatenate", _concatenate, _concatenate_meta, "joined along an axis", arity=None,
     resolve=_common_dtypes, zeros=ALL, also=(np.concatenate,), bound=nnz.concatenation_bound)
declare_call("stack", _stack, _stack_meta, "joined along a new axis", arity=None,
     resolve=_common_dtypes, zeros=ALL, also=(np.stack,), bound=nnz.concatenation_bound)


def _pad(x: Any, widths: tuple[tuple[int, int], ...]) -> Any:
    return np.pad(x, widths)


def _pad_meta(x: Meta, widths: tuple[tuple[int, int], ...]) -> Meta:
    if len(widths) != x.ndim or any(n < 0 for pair in widths for n in pair):
        raise ValueError(widths)
    return Meta(tuple(n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)), x.dtype)


declare_call("pad", _pad, _pad_meta, "zeros before and after along every axis", zeros=ANY,
             bound=nnz.subset_bound)

# --------------------------------------------------------------------------- diagonals and parts


def _diagonal_shape(x: Meta) -> Shape:
    rows, columns = x.shape
    return (min(rows, columns),)


def _trace_meta(x: Meta) -> Meta:
    if x.dtype != _accumulator(np.add, x.dtype):
        raise InternalError(f"trace: {x.dtype} is not the dtype it accumulates in")
    _diagonal_shape(x)
    return Meta((), x.dtype)


def _diag_meta(x: Meta) -> Meta:
    (n,) = x.shape
    return Meta((n, n), x.dtype, n)


def _part(x: Any, start: Any, shape: Shape) -> Any:
    return x[int(start):int(start) + shape[0]]


def _part_meta(x: Meta, start: Meta, shape: Shape) -> Meta:
    if shape[1:] != x.shape[1:] or shape[0] > x.shape[0] or start.shape:
        raise ValueError(shape)
    return Meta(shape, x.dtype)


declare_call("trace", np.trace, _trace_meta, "sum of the diagonal of a matrix", zeros=ANY,
     resolve=lambda dtypes, attrs: (_accumulator(np.add, dtypes[0]),),
     flops=lambda metas, attrs: 2.0 * metas[0].shape[0])
declare_call("diagonal", np.diagonal, lambda x: Meta(_diagonal_shape(x), x.dtype), "the diagonal of a matrix",
     zeros=ANY)
declare_call("diag", np.diag, _diag_meta, "the matrix with a vector on its diagonal", zeros=ANY)
declare_call("part", _part, _part_meta, "the rows of x from a number on, as many as the shape says", arity=2,
     zeros=ANY)

# --------------------------------------------------------------------------- indexing


def index_key(index: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    """Return the NumPy key that an `index` attribute stands for."""
    keys: list[Any] = []
    for item in index:
        match item:
            case ("i", i):
                keys.append(i)
            case ("s", start, stop, step):
                keys.append(slice(start, stop, step))
            case ("n",):
                keys.append(None)
            case ("e",):
                keys.append(Ellipsis)
            case _:
                raise InternalError(f"no basic index: {item}")
    return tuple(keys)


def _getitem(x: Any, index: tuple[tuple[Any, ...], ...]) -> Any:
    return x[index_key(index)]


def _getitem_meta(x: Meta, index: tuple[tuple[Any, ...], ...]) -> Meta:
    kinds = [item[0] for item in index]
    missing = x.ndim - kinds.count("i") - kinds.count("s")
    if missing < 0 or kinds.count("e") > 1:
        raise IndexError(index)
    shape: list[int] = []
    axis = 0
    for item in index if "e" in kinds else (*index, ("e",)):
        match item:
            case ("n",):
                shape.append(1)
            case ("e",):
                shape.extend(x.shape[axis:axis + missing])
                axis += missing
            case ("i", i):
                if not -x.shape[axis] <= i < x.shape[axis]:
                    raise IndexError(i)
                axis += 1
            case ("s", *bounds):
                shape.append(len(range(*slice(*bounds).indices(x.shape[axis]))))
                axis += 1
    return Meta(tuple(shape), x.dtype)


declare_call("getitem", _getitem, _getitem_meta, "basic indexing: integers, slices, new axes, ellipsis",
     zeros=ANY, bound=nnz.subset_bound)


# --------------------------------------------------------------------------- new arrays


def _full(x: Any, shape: Shape) -> Any:
    return np.full(shape, x, dtype=x.dtype)


def _full_meta(x: Meta, shape: Shape) -> Meta:
    if any(n < 0 for n in shape):
        raise ValueError(shape)
    return Meta(shape, x.dtype)


def _arange(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Any:
    return np.arange(start, stop, step, dtype=dtype)


def _arange_meta(start: Any, stop: Any, step: Any, dtype: np.dtype) -> Meta:
    return Meta((max(math.ceil((stop - start) / step), 0),), np.dtype(dtype))


def _eye(n: int, m: int, k: int, dtype: np.dtype) -> Any:
    return np.eye(n, m, k, dtype=dtype)


def _linspace(start: Any, stop: Any, num: int, endpoint: bool) -> Any:
    return np.linspace(start, stop, num, endpoint=endpoint)


def _linspace_meta(start: Meta, stop: Meta, num: int, endpoint: bool) -> Meta:
    if num < 0:
        raise ValueError(num)
    return Meta((num, *np.broadcast_shapes(start.shape, stop.shape)), start.dtype)


def _linspace_resolve(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """Integers become float64: NumPy promotes with the number of steps as a weak float."""
    return (common_dtype((*dtypes, float)),) * 2


declare_call("full", _full, _full_meta, "a new array with every element equal to the 0-d operand",
     zeros=ANY, bound=nnz.broadcast_bound)
declare_call("arange", _arange, _arange_meta, "evenly spaced values from start below stop", arity=0)
declare_call("eye", _eye, lambda n, m, k, dtype: Meta((n, m), np.dtype(dtype)),
     "ones on the k-th diagonal of an n by m matrix", arity=0, bound=nnz.eye_bound)
declare_call("linspace", _linspace, _linspace_meta, "num evenly spaced values from start to stop", arity=2,
     resolve=_linspace_resolve, flops=40.0)

# --------------------------------------------------------------------------- other machines


def _offload(*xs: Any, part: Any) -> Any:
    return part(*xs)


# `part` holds the result's metadata and the predicted seconds; it is called with the operands.
declare_call("offload", _offload, lambda *xs, part: part.meta, "what a device computes of its operands",
             arity=None)


# --------------------------------------------------------------------------- norms


def _norm(x: Any, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.linalg.norm(x, order, axis if axis is None or len(axis) > 1 else axis[0], keepdims)


def _norm_meta(x: Meta, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Meta:
    all_axes = tuple(range(x.ndim))
    if axis is not None and list(axis) != sorted({a for a in axis if a in all_axes}):
        raise ValueError(axis)
    if order is not None and len(all_axes if axis is None else axis) > 1 or order == math.inf and not x.size:
        raise ValueError(order)
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    real = np.empty(0, dtype).real.dtype
    return Meta(reduced_shape(x.shape, all_axes if axis is None else axis, keepdims), real)


declare_call("norm", _norm, _norm_meta, "Euclidean norm over axes, or that of `order` over one axis",
     zeros=Zeros.ALL, flops=lambda metas, attrs: 2.0 * metas[0].size, also=(np.linalg.norm,),
     bound=sum_bound)

# --------------------------------------------------------------------------- einsum


def parse_subscripts(subscripts: str) -> tuple[tuple[str, ...], str]:
    """Return the labels of every operand of an explicit einsum, and those of the result."""
    operands, _, result = subscripts.partition("->")
    return tuple(operands.split(",")), result


def _einsum(*xs: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *xs)


def _label_lengths(metas: tuple[Meta, ...], subscripts: str) -> dict[str, int]:
    """Return the length of every label; axes of length 1 are broadcast."""
    operand_labels, _ = parse_subscripts(subscripts)
    if len(operand_labels) != len(metas) or any(
            len(labels) != m.ndim for labels, m in zip(operand_labels, metas, strict=True)):
        raise ValueError(subscripts)
    lengths: dict[str, int] = {}
    for labels, meta in zip(operand_labels, metas, strict=True):
        for label, n in zip(labels, meta.shape, strict=True):
            if lengths.setdefault(label, n) == 1:
                lengths[label] = n
            elif n not in (1, lengths[label]):
                raise ValueError(subscripts)
    return lengths


def _einsum_meta(*xs: Meta, subscripts: str) -> Meta:
    lengths = _label_lengths(xs, subscripts)
    return Meta(tuple(lengths[label] for label in parse_subscripts(subscripts)[1]), xs[0].dtype)


def _einsum_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    """Count one product and one sum per operand for every combination of labels, as NumPy computes it."""
    return 2.0 * len(metas) * math.prod(_label_lengths(metas, attrs["subscripts"]).values())


declare_call("einsum", _einsum, _einsum_meta, "sums of products over labelled axes, `ij,j->i`", arity=None,
     resolve=_common_dtypes, zeros=Zeros.ANY, flops=_einsum_flops, also=(np.einsum,),
     bound=einsum_bound)


#: The dtype of gather positions: half the size of `intp`, so a vector holds twice as many.
POSITION_DTYPE = np.dtype(np.int32)
_GATHER_FLOPS = 8.0  # cost in additions of gathering one element
_TALLY_FLOPS = 24.0  # cost in additions of adding to one element of a table
_FLOAT64 = np.dtype(np.float64)


def _take(table: Any, positions: Any, axes: tuple[int, ...] = ()) -> Any:
    elements = table[positions]
    if not axes:
        return elements
    result = np.empty(tuple(elements.shape[a] for a in axes), elements.dtype).transpose(np.argsort(axes))
    result[...] = elements
    return result


def _take_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    table, positions = metas
    if table.ndim != 1 or not positions.ndim or positions.dtype != POSITION_DTYPE:
        raise IndexError(positions)
    return with_nnz_bound(Meta(positions.shape, table.dtype), gather_bound(metas, positions.shape, attrs))


def _take_dtypes(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return dtypes


# Positions are in range and not negative. A table has no other use in its DAG. `axes` is the memory order of
# the result's axes, outermost first; if given, the result is a transposed view.
register(OpSpec(
    name="take", kind=Kind.TAKE, arity=2, ref=_take, meta=_take_meta, resolve=_take_dtypes,
    doc="elements of a table at positions", flops=_GATHER_FLOPS,
))


def _bincount(labels: Any, weights: Any = None, *, shape: Shape) -> Any:
    return np.bincount(labels, weights, minlength=shape[0])


def _bincount_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    labels, *weights = metas
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or any(
            (w.shape, w.dtype) != (labels.shape, _FLOAT64) for w in weights):
        raise ValueError(labels)
    result = Meta(attrs["shape"], _FLOAT64 if weights else np.dtype(np.intp))
    return with_nnz_bound(result, bincount_bound(metas, result.shape, attrs))


def _bincount_dtypes(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return (dtypes[0], *(_FLOAT64 for _ in dtypes[1:]))


def _bincount_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return _TALLY_FLOPS * metas[0].size


# All labels are in range.
register(OpSpec(
    name="bincount", kind=Kind.TALLY, arity=None, ref=_bincount, meta=_bincount_meta,
    resolve=_bincount_dtypes,
    doc="how often labels occur, or sums of weights by label", flops=_bincount_flops,
))


#: For every axis, the minimum width of the ring (halo) at the front and at the back.
RingWidths = tuple[tuple[int, int], ...]


def _roll(x: Any, shifts: tuple[int, ...]) -> Any:
    return np.roll(x, shifts, tuple(range(len(shifts))))


def _roll_meta(x: Meta, shifts: tuple[int, ...]) -> Meta:
    if len(shifts) != x.ndim or not shifts:
        raise ValueError(shifts)
    return Meta(x.shape, x.dtype)


declare_call("roll", _roll, _roll_meta, "rotated along every axis by a number of elements", zeros=Zeros.ANY,
     bound=nnz.subset_bound)


def _ring(x: Any, widths: RingWidths = ()) -> Any:
    return as_scalar(np.asarray(x).copy("K"))


def _ring_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    (x,) = metas
    if x.ndim and len(attrs.get("widths", x.shape)) != x.ndim:  # metadata of one element is inferred, too
        raise InternalError(f"ring: {attrs['widths']} around {x.shape}")
    return cell_meta(metas, x.dtype, Zeros.ANY)


def _ring_recipe(b: ScalarBuilder, x: Any, attrs: Attrs) -> Any:
    return lookup("cast").emit(b, x, {"dtype": x.dtype})  # type: ignore[misc]


# An element-wise copy: kernels write it into a padded buffer, whose halo is filled after they have run.
register(OpSpec(
    name="ring", kind=Kind.CELL, arity=1, ref=_ring, meta=_ring_meta, resolve=lambda dtypes, attrs: dtypes,
    doc="a copy with its opposite edges around it, for rolls of it", emit=_ring_recipe, zeros=Zeros.ANY,
))


def is_roll_of_ring(hop: Hop) -> bool:
    """Return whether `hop` is a roll of a `ring`, which is a view: nothing moves."""
    return hop.op.name == "roll" and hop.inputs[0].op.name == "ring"
