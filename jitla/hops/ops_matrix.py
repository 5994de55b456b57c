"""Op table: aggregates, matrix products, reorganisation, indexed reads, and creation of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from jitla.errors import InternalError
from jitla.hops import sparsity as nnz
from jitla.hops.meta import Meta, Shape, reduced_shape
from jitla.hops.node import Hop
from jitla.hops.ops_elementwise import cell_meta, common_dtype, strong, value
from jitla.hops.opspec import Attrs, Kind, OpSpec, ScalarBuilder, Zeros, lookup, register
from jitla.hops.sparsity import bounded, of_lines, of_nothing, of_tally, of_terms

__all__ = ["POSITION"]


Dtypes = tuple[Any, ...]
Metas = tuple[Meta, ...]
MetaFn = Callable[..., Meta]
INTP = np.dtype(np.intp)
ANY, ALL, NONE = Zeros.ANY, Zeros.ALL, Zeros.NONE

# --------------------------------------------------------------------------- shared by the entries


def _stand_in(meta: Meta) -> Any:
    """An operand with this meta that takes no memory: one zero, broadcast."""
    return np.broadcast_to(np.zeros((), meta.dtype), meta.shape)


def _refuse(ref: Callable[..., Any], metas: Metas, attrs: Attrs) -> NoReturn:
    """Raise NumPy's own exception for operands that do not fit, by asking NumPy."""
    ref(*map(_stand_in, metas), **attrs)
    raise InternalError(f"NumPy accepts what the op table refuses: {metas} {dict(attrs)}")


def _inferring(
    ref: Callable[..., Any], meta: Callable[..., Meta], bound: nnz.Bound | None,
) -> Callable[[Metas, Attrs], Meta]:
    """Turn `meta(*metas, **attrs)` into an entry's: what it refuses, NumPy refuses in its words."""

    def infer(metas: Metas, attrs: Attrs) -> Meta:
        try:
            found = meta(*metas, **attrs)
        except (LookupError, ValueError, ArithmeticError):
            _refuse(ref, metas, attrs)
        if bound is None or metas and all(m.nnz is None for m in metas):
            return found
        return nnz.bounded(found, bound(metas, found.shape, attrs))

    return infer


def _as_given(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """No cast; a weak Python scalar takes its default dtype."""
    return tuple(np.dtype(d) for d in dtypes)


def _in_common(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    """All operands in ``np.result_type`` of them."""
    return (common_dtype(dtypes),) * len(dtypes)


def _scalar(ref: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `ref` so that 0-d results are NumPy scalars, as everywhere in a DAG."""
    return lambda *xs, **attrs: value(ref(*xs, **attrs))


def call(
    name: str, ref: Callable[..., Any], meta: MetaFn, doc: str, *, arity: int | None = 1,
    resolve: Callable[[Dtypes, Attrs], tuple[np.dtype, ...]] = _as_given, zeros: Zeros = NONE,
    flops: float | Callable[[Metas, Attrs], float] = 0.0, also: tuple[Any, ...] = (),
    bound: nnz.Bound | None = None,
) -> OpSpec:
    """Declare an operator that is always a NumPy call; `meta(*metas, **attrs)` infers its result.

    Where the operands do not fit, `meta` raises anything: the user gets what NumPy raises.
    `bound` says how many elements are other than 0, at most.
    `also` are other callables than `ref` that mean it.
    """

    return register(OpSpec(
        name=name, kind=Kind.CALL, arity=arity, ref=_scalar(ref), meta=_inferring(ref, meta, bound),
        resolve=resolve, doc=doc, numpy=(ref, *also), zeros=zeros, flops=flops,
    ))


# --------------------------------------------------------------------------- leaves


def _valid(axis: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return `axis` if it is sorted, distinct, in range."""
    if list(axis) != sorted(set(axis)) or any(not 0 <= i < ndim for i in axis):
        raise IndexError(axis)
    return axis


def _no_meta(metas: Metas, attrs: Attrs) -> Meta:
    raise InternalError("leaves are made by `leaf` and `const`, not by `make`")


def _no_ref(*xs: Any, **attrs: Any) -> Any:
    raise InternalError("a leaf has no operands to compute from")


for _name, _doc in (("leaf", "the value at a leaf position"), ("const", "a 0-d constant")):
    register(OpSpec(
        name=_name, kind=Kind.LEAF, arity=0, ref=_no_ref, meta=_no_meta, resolve=_as_given,
        doc=_doc, flops=0.0,
    ))

# --------------------------------------------------------------------------- aggregates


@lru_cache(maxsize=256)
def _accumulator(ufunc: np.ufunc, dtype: Any) -> np.dtype:
    """The dtype that NumPy's reduction by `ufunc` reads and accumulates in."""
    return ufunc.resolve_dtypes((None, np.dtype(dtype), None), reduction=True)[1]


CALL_PER_ROW = 400.0  # additions that NumPy's loops over one row each take to begin
ROW_START = 50.0  # additions that beginning and ending a row takes, whose elements are joined


def _agg(
    name: str, ufunc: np.ufunc, weight: float, doc: str, also: tuple[Any, ...], zeros: Zeros,
) -> OpSpec:
    """Declare the reduction by `ufunc` over `axis` (sorted tuple) with `keepdims`.

    An element of 8 bytes takes as long as `weight` additions, smaller ones less.
    """

    def ref(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)

    def meta(x: Meta, axis: tuple[int, ...], keepdims: bool) -> Meta:
        if x.dtype != _accumulator(ufunc, x.dtype):
            raise InternalError(f"{name}: {x.dtype} is not the dtype it accumulates in")
        shape = reduced_shape(x.shape, _valid(axis, x.ndim), keepdims)
        if ufunc.identity is None and 0 not in shape and any(x.shape[i] == 0 for i in axis):
            raise ValueError("nothing to reduce, and no identity")
        return Meta(shape, x.dtype)

    def flops(metas: Metas, attrs: Attrs) -> float:
        x, axis = metas[0], attrs["axis"]
        # NumPy's pairwise sum has as many accumulators of every float: they wait for each other.
        size = 8 if name == "sum" and x.dtype.kind == "f" else x.dtype.itemsize
        rows = x.size // max(math.prod(x.shape[i] for i in axis), 1)
        starts = rows if rows > 1 and x.ndim - 1 in axis else 0
        return x.size * weight * size / 8 + starts * ROW_START

    return register(OpSpec(
        name=name, kind=Kind.AGG, arity=1, ref=_scalar(ref),
        meta=_inferring(ref, meta, nnz.of_lines if zeros is ALL else nnz.of_full_lines),
        resolve=lambda dtypes, attrs: (_accumulator(ufunc, dtypes[0]),), doc=doc,
        numpy=(ufunc.reduce, *also), zeros=zeros, flops=flops,
    ))


_agg("sum", np.add, 3.5, "sum over axes", (np.sum,), ALL)
_agg("prod", np.multiply, 3.5, "product over axes", (np.prod,), ANY)
_agg("min", np.minimum, 2.5, "least element over axes; NaN wins", (np.min, np.amin), ALL)
_agg("max", np.maximum, 2.5, "greatest element over axes; NaN wins", (np.max, np.amax), ALL)
_agg("any", np.logical_or, 3.0, "is one element true", (np.any,), ALL)
_agg("all", np.logical_and, 3.0, "are all elements true", (np.all,), ANY)


@lru_cache(maxsize=256)
def _result_dtype(ref: Callable[..., Any], dtype: np.dtype) -> np.dtype:
    """The dtype of `ref` for one element of `dtype`."""
    found: np.dtype = ref(np.ones(1, dtype)).dtype
    return found


def _statistic(ref: Callable[..., Any]) -> MetaFn:
    def meta(x: Meta, axis: tuple[int, ...], keepdims: bool, ddof: int = 0) -> Meta:
        shape = reduced_shape(x.shape, _valid(axis, x.ndim), keepdims)
        return Meta(shape, _result_dtype(ref, x.dtype))

    return meta


def _arg_meta(x: Meta, axis: int | None, keepdims: bool) -> Meta:
    axes = tuple(range(x.ndim)) if axis is None else _valid((axis,), x.ndim)
    shape = reduced_shape(x.shape, axes, keepdims)
    if any(x.shape[i] == 0 for i in axes):
        raise ValueError("empty")
    return Meta(shape, INTP)


def _count(x: Any, axis: tuple[int, ...]) -> Any:
    return np.intp(math.prod(np.shape(x)[i] for i in axis))


def _arg_flops(metas: Metas, attrs: Attrs) -> float:
    """NumPy begins anew for every row, and finds its result's place."""
    x, axis = metas[0], attrs["axis"]
    return 2.0 * x.size + (0.0 if axis is None else CALL_PER_ROW * x.size / max(x.shape[axis], 1))


def _over_input(per_element: float) -> Callable[[Metas, Attrs], float]:
    return lambda metas, attrs: per_element * metas[0].size


call("mean", np.mean, _statistic(np.mean), "arithmetic mean over axes", flops=_over_input(3), zeros=ALL,
     bound=nnz.of_lines)
call("var", np.var, _statistic(np.var), "variance over axes", flops=_over_input(25), zeros=ALL,
     bound=nnz.of_lines)
call("std", np.std, _statistic(np.std), "standard deviation over axes", flops=_over_input(25),
     zeros=ALL, bound=nnz.of_lines)
call("argmin", np.argmin, _arg_meta, "index of the first least element", flops=_arg_flops, zeros=ALL,
     bound=nnz.of_lines)
call("argmax", np.argmax, _arg_meta, "index of the first greatest element", flops=_arg_flops, zeros=ALL,
     bound=nnz.of_lines)
call("count", _count, lambda x, axis: Meta((), INTP),
     "number of elements that a reduction over `axis` joins")


def _cumsum_meta(x: Meta, axis: int | None) -> Meta:
    if axis is None:
        return Meta((x.size,), x.dtype)
    return Meta(x.shape if _valid((axis,), max(x.ndim, 1)) and x.ndim else (1,), x.dtype)


call("cumsum", np.cumsum, _cumsum_meta, "running sum along an axis, or of all elements in order",
     resolve=lambda dtypes, attrs: (_accumulator(np.add, dtypes[0]),), flops=_over_input(80),
     zeros=ALL, bound=nnz.running)
call("cumprod", np.cumprod, _cumsum_meta, "running product along an axis, or of all elements in order",
     resolve=lambda dtypes, attrs: (_accumulator(np.multiply, dtypes[0]),), flops=_over_input(80),
     zeros=ALL, bound=nnz.running)

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
    rest = y.shape[:-2] + y.shape[-1:] if y.ndim > 1 else ()
    return Meta(x.shape[:-1] + rest, x.dtype)


def _product_flops(meta: MetaFn) -> Callable[[Metas, Attrs], float]:
    def flops(metas: Metas, attrs: Attrs) -> float:
        inner = metas[0].shape[-1] if metas[0].ndim and metas[1].ndim else 1
        return 2.0 * inner * meta(*metas).size

    return flops


@lru_cache(maxsize=1024)
def _matmul_dtypes(dtypes: Dtypes) -> tuple[np.dtype, ...]:
    return np.matmul.resolve_dtypes((*map(strong, dtypes), None))[:2]


call("matmul", np.matmul, _matmul_meta, "matrix product `x @ y`", arity=2, zeros=ANY,
     resolve=lambda dtypes, attrs: _matmul_dtypes(dtypes), flops=_product_flops(_matmul_meta),
     bound=nnz.of_product)
call("dot", np.dot, _dot_meta, "product over the last axis of x and the second to last of y",
     arity=2, zeros=ANY, resolve=_in_common, flops=_product_flops(_dot_meta),
     bound=nnz.of_product)


def _vdot_meta(x: Meta, y: Meta) -> Meta:
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError("lengths")
    return Meta((), x.dtype)


# Not spelled `dot`: NumPy warns of nothing that happens in it.
call("vdot", np.vdot, _vdot_meta, "product of two vectors, the first one conjugated", arity=2, zeros=ANY,
     resolve=_in_common, flops=_product_flops(_vdot_meta), bound=nnz.of_product)

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
    _valid(tuple(sorted(axis)), x.ndim)
    kept = list(x.shape)
    for at, n in zip(axis, sizes, strict=True):
        if not 0 <= n <= kept[at]:
            raise ValueError(sizes)
        kept[at] -= n - 1
    return Meta((*kept, *sizes), x.dtype)


def _concatenate_meta(*xs: Meta, axis: int) -> Meta:
    first, dtype = xs[0].shape, xs[0].dtype
    _valid((axis,), len(first))
    if any(x.shape[:axis] + x.shape[axis + 1:] != first[:axis] + first[axis + 1:] for x in xs):
        raise ValueError("shapes")
    if any(len(x.shape) != len(first) for x in xs):
        raise ValueError("ranks")
    return Meta((*first[:axis], sum(x.shape[axis] for x in xs), *first[axis + 1:]), dtype)


def _stack_meta(*xs: Meta, axis: int) -> Meta:
    shape = xs[0].shape
    _valid((axis,), len(shape) + 1)
    if any(x.shape != shape for x in xs):
        raise ValueError("shapes")
    return Meta((*shape[:axis], len(xs), *shape[axis:]), xs[0].dtype)


def _expand_dims_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    ndim = x.ndim + len(axis)
    rest = iter(x.shape)
    _valid(axis, ndim)
    return Meta(tuple(1 if i in axis else next(rest) for i in range(ndim)), x.dtype)


def _squeeze_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    if any(x.shape[i] != 1 for i in _valid(axis, x.ndim)):
        raise ValueError(axis)
    return Meta(reduced_shape(x.shape, axis, False), x.dtype)


def _flip_meta(x: Meta, axis: tuple[int, ...]) -> Meta:
    _valid(axis, x.ndim)
    return Meta(x.shape, x.dtype)


def _concatenate(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis=axis)


def _stack(*xs: Any, axis: int) -> Any:
    return np.stack(xs, axis=axis)


call("transpose", np.transpose, _transpose_meta, "axes permuted", zeros=ANY,
     bound=nnz.kept)
call("reshape", np.reshape, _reshape_meta, "the elements in row-major order, in another shape",
     zeros=ANY, bound=nnz.kept)
call("ravel", np.ravel, lambda x: Meta((x.size,), x.dtype),
     "the elements in row-major order, in one dimension", zeros=ANY, bound=nnz.kept)
call("broadcast_to", np.broadcast_to, _broadcast_to_meta, "repeated along new and length-1 axes",
     zeros=ANY, bound=nnz.repeated)
call("windows", _windows, _windows_meta, "all windows of some sizes along axes, as new axes at the end",
     zeros=ANY)
call("expand_dims", np.expand_dims, _expand_dims_meta, "length-1 axes inserted", zeros=ANY,
     bound=nnz.kept)
call("squeeze", np.squeeze, _squeeze_meta, "length-1 axes dropped", zeros=ANY, bound=nnz.kept)
call("flip", np.flip, _flip_meta, "reversed along axes", zeros=ANY, bound=nnz.kept)
call("concatenate", _concatenate, _concatenate_meta, "joined along an axis", arity=None,
     resolve=_in_common, zeros=ALL, also=(np.concatenate,), bound=nnz.joined)
call("stack", _stack, _stack_meta, "joined along a new axis", arity=None,
     resolve=_in_common, zeros=ALL, also=(np.stack,), bound=nnz.joined)


def _pad(x: Any, widths: tuple[tuple[int, int], ...]) -> Any:
    return np.pad(x, widths)


def _pad_meta(x: Meta, widths: tuple[tuple[int, int], ...]) -> Meta:
    if len(widths) != x.ndim or any(n < 0 for pair in widths for n in pair):
        raise ValueError(widths)
    return Meta(tuple(n + sum(pair) for n, pair in zip(x.shape, widths, strict=True)), x.dtype)


call("pad", _pad, _pad_meta, "zeros before and after along every axis", zeros=ANY, bound=nnz.kept)

# --------------------------------------------------------------------------- diagonals and parts


def _square_or_not(x: Meta) -> Shape:
    rows, columns = x.shape
    return (min(rows, columns),)


def _trace_meta(x: Meta) -> Meta:
    if x.dtype != _accumulator(np.add, x.dtype):
        raise InternalError(f"trace: {x.dtype} is not the dtype it accumulates in")
    _square_or_not(x)
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


call("trace", np.trace, _trace_meta, "sum of the diagonal of a matrix", zeros=ANY,
     resolve=lambda dtypes, attrs: (_accumulator(np.add, dtypes[0]),),
     flops=lambda metas, attrs: 2.0 * metas[0].shape[0])
call("diagonal", np.diagonal, lambda x: Meta(_square_or_not(x), x.dtype), "the diagonal of a matrix",
     zeros=ANY)
call("diag", np.diag, _diag_meta, "the matrix with a vector on its diagonal", zeros=ANY)
call("part", _part, _part_meta, "the rows of x from a number on, as many as the shape says", arity=2,
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


call("getitem", _getitem, _getitem_meta, "basic indexing: integers, slices, new axes, ellipsis",
     zeros=ANY, bound=nnz.kept)


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
    """The number of steps joins the promotion as a weak float, so integers become float64."""
    return (common_dtype((*dtypes, float)),) * 2


call("full", _full, _full_meta, "a new array with every element equal to the 0-d operand",
     zeros=ANY, bound=nnz.repeated)
call("arange", _arange, _arange_meta, "evenly spaced values from start below stop", arity=0)
call("eye", _eye, lambda n, m, k, dtype: Meta((n, m), np.dtype(dtype)),
     "ones on the k-th diagonal of an n by m matrix", arity=0, bound=nnz.of_diagonal)
call("linspace", _linspace, _linspace_meta, "num evenly spaced values from start to stop", arity=2,
     resolve=_linspace_resolve, flops=40.0)

# --------------------------------------------------------------------------- other machines


def _offload(*xs: Any, part: Any) -> Any:
    return part(*xs)


# `part` has the result's meta and the predicted seconds; it is called with the operands.
call("offload", _offload, lambda *xs, part: part.meta, "what a device computes of its operands", arity=None)


# --------------------------------------------------------------------------- norms


def _norm(x: Any, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Any:
    return np.linalg.norm(x, order, axis if axis is None or len(axis) > 1 else axis[0], keepdims)


def _norm_meta(x: Meta, order: float | None, axis: tuple[int, ...] | None, keepdims: bool) -> Meta:
    every = tuple(range(x.ndim))
    if axis is not None and list(axis) != sorted({a for a in axis if a in every}):
        raise ValueError(axis)
    if order is not None and len(every if axis is None else axis) > 1 or order == math.inf and not x.size:
        raise ValueError(order)
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(float)
    real = np.empty(0, dtype).real.dtype
    return Meta(reduced_shape(x.shape, every if axis is None else axis, keepdims), real)


call("norm", _norm, _norm_meta, "Euclidean norm over axes, or that of `order` over one axis",
     zeros=Zeros.ALL, flops=lambda metas, attrs: 2.0 * metas[0].size, also=(np.linalg.norm,),
     bound=of_lines)

# --------------------------------------------------------------------------- einsum


def parsed(subscripts: str) -> tuple[tuple[str, ...], str]:
    """Return the labels of every operand of an explicit einsum, and of the result."""
    given, _, result = subscripts.partition("->")
    return tuple(given.split(",")), result


def _einsum(*xs: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *xs)


def _lengths(metas: tuple[Meta, ...], subscripts: str) -> dict[str, int]:
    """Return the length of every label; axes of length 1 are repeated."""
    given, _ = parsed(subscripts)
    if len(given) != len(metas) or any(len(g) != m.ndim for g, m in zip(given, metas, strict=True)):
        raise ValueError(subscripts)
    lengths: dict[str, int] = {}
    for labels, meta in zip(given, metas, strict=True):
        for label, n in zip(labels, meta.shape, strict=True):
            if lengths.setdefault(label, n) == 1:
                lengths[label] = n
            elif n not in (1, lengths[label]):
                raise ValueError(subscripts)
    return lengths


def _einsum_meta(*xs: Meta, subscripts: str) -> Meta:
    lengths = _lengths(xs, subscripts)
    return Meta(tuple(lengths[label] for label in parsed(subscripts)[1]), xs[0].dtype)


def _einsum_flops(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    """NumPy takes a product and a sum for every combination of labels, one after the other."""
    return 2.0 * len(metas) * math.prod(_lengths(metas, attrs["subscripts"]).values())


def _einsum_dtypes(dtypes: Any, attrs: Attrs) -> tuple[np.dtype, ...]:
    return (common_dtype(dtypes),) * len(dtypes)


call("einsum", _einsum, _einsum_meta, "sums of products over labelled axes, `ij,j->i`", arity=None,
     resolve=_einsum_dtypes, zeros=Zeros.ANY, flops=_einsum_flops, also=(np.einsum,),
     bound=of_terms)


#: The dtype of positions: half of an index's, so that twice as many are read at a time.
POSITION = np.dtype(np.int32)
_EACH = 8.0  # additions that finding one element takes
_ADDED = 24.0  # additions that adding to an element of a table takes
_DOUBLE = np.dtype(np.float64)


def _take(table: Any, positions: Any, axes: tuple[int, ...] = ()) -> Any:
    found = table[positions]
    if not axes:
        return found
    lying = np.empty(tuple(found.shape[a] for a in axes), found.dtype).transpose(np.argsort(axes))
    lying[...] = found
    return lying


def _meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    table, positions = metas
    if table.ndim != 1 or not positions.ndim or positions.dtype != POSITION:
        raise IndexError(positions)
    return bounded(Meta(positions.shape, table.dtype), of_nothing(metas, positions.shape, attrs))


def _as_given_table_take(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return dtypes


# Positions are those of elements, none is negative. A table is nothing else to the same DAG. The result lies
# in memory with its axes in the order `axes`, from the outermost on; if there is one, it is a view.
register(OpSpec(
    name="take", kind=Kind.TAKE, arity=2, ref=_take, meta=_meta, resolve=_as_given_table_take,
    doc="elements of a table at positions", flops=_EACH,
))


def _bincount(labels: Any, weights: Any = None, *, shape: Shape) -> Any:
    return np.bincount(labels, weights, minlength=shape[0])


def _sums(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    labels, *weights = metas
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or any(
            (w.shape, w.dtype) != (labels.shape, _DOUBLE) for w in weights):
        raise ValueError(labels)
    made = Meta(attrs["shape"], _DOUBLE if weights else np.dtype(np.intp))
    return bounded(made, of_tally(metas, made.shape, attrs))


def _as_doubles(dtypes: tuple[Any, ...], attrs: Attrs) -> tuple[np.dtype, ...]:
    return (dtypes[0], *(_DOUBLE for _ in dtypes[1:]))


def _additions(metas: tuple[Meta, ...], attrs: Attrs) -> float:
    return _ADDED * metas[0].size


# All labels have a place in the result.
register(OpSpec(
    name="bincount", kind=Kind.TALLY, arity=None, ref=_bincount, meta=_sums, resolve=_as_doubles,
    doc="how often labels occur, or sums of weights by label", flops=_additions,
))


#: Of every axis, how many elements a ring has in front and behind at least.
Widths = tuple[tuple[int, int], ...]


def _roll(x: Any, shifts: tuple[int, ...]) -> Any:
    return np.roll(x, shifts, tuple(range(len(shifts))))


def _roll_meta(x: Meta, shifts: tuple[int, ...]) -> Meta:
    if len(shifts) != x.ndim or not shifts:
        raise ValueError(shifts)
    return Meta(x.shape, x.dtype)


call("roll", _roll, _roll_meta, "turned by so many elements along every axis", zeros=Zeros.ANY,
     bound=nnz.kept)


def _ring(x: Any, widths: Widths = ()) -> Any:
    return value(np.asarray(x).copy("K"))


def _ring_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    (x,) = metas
    if x.ndim and len(attrs.get("widths", x.shape)) != x.ndim:  # one element of it is asked about, too
        raise InternalError(f"ring: {attrs['widths']} around {x.shape}")
    return cell_meta(metas, x.dtype, Zeros.ANY)


def _as_it_is(b: ScalarBuilder, x: Any, attrs: Attrs) -> Any:
    return lookup("cast").emit(b, x, {"dtype": x.dtype})  # type: ignore[misc]


# An element-wise copy: kernels write it where its edges have room, and those are added when they have run.
register(OpSpec(
    name="ring", kind=Kind.CELL, arity=1, ref=_ring, meta=_ring_meta, resolve=lambda dtypes, attrs: dtypes,
    doc="a copy with its opposite edges around it, for rolls of it", emit=_as_it_is, zeros=Zeros.ANY,
))


def is_turn(hop: Hop) -> bool:
    """Tell whether `hop` is a roll that moves nothing."""
    return hop.op.name == "roll" and hop.inputs[0].op.name == "ring"
