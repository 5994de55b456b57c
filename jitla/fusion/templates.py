"""The templates Cell, MAgg, Tally, Outer and Row: which operators open, fuse and merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import pairwise
from math import prod

from jitla.classes import dataclass
from jitla.fusion.iteration import geometry, iteration_space
from jitla.fusion.kernel import (
    ARG_REDUCTIONS,
    COMPRESSED_FORMS,
    MAX_NARROW_COLUMNS,
    PAIRS,
    Form,
    Geometry,
    Kernel,
    Pairs,
    Product,
    reduces_rows,
)
from jitla.fusion.layout import Layout, Strides, broadcast_strides, contiguous
from jitla.hops import Hop, Kind, Shape, topo

ELEMENTWISE_KINDS = (Kind.CELL, Kind.TAKE)


@dataclass(slots=True)
class Facts:
    """Facts about hops that templates query: backend support, layouts, products, row counts; memoised."""

    supports: Callable[[Hop], str | None]
    layouts: Mapping[Hop, Layout]
    products: dict[Hop, Product | None] = field(default_factory=dict)
    #: The number of rows that values are computed over.
    rows: dict[Hop, int] = field(default_factory=dict)
    #: Whether a row kernel for a value computes rows of a product with a wide matrix on the way.
    wide: dict[Hop, bool] = field(default_factory=dict)
    _reasons: dict[Hop, str] = field(default_factory=dict)

    def reason(self, hop: Hop) -> str:
        """Return the reason why `hop` cannot be computed in a kernel; empty if it can."""
        if hop not in self._reasons:
            self._reasons[hop] = self._compute_reason(hop)
        return self._reasons[hop]

    def is_product(self, hop: Hop) -> bool:
        """Return whether the backend has loops for the matrix product `hop`."""
        return self.supports(hop) is None

    def _compute_reason(self, hop: Hop) -> str:
        if hop.op.kind not in (*ELEMENTWISE_KINDS, Kind.AGG, Kind.TALLY):
            return "not element-wise"
        if iteration_space(hop) == ():
            return "scalar"
        if 0 in iteration_space(hop):
            return "no elements"
        return self.supports(hop) or ""


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of loop, as predicates over hops.

    `open(hop, facts)`: a loop can start with `hop` as a result. `fuse(hop, operand, facts)`: `operand` can be
    computed inside the loop that computes `hop`. `merge(a, b)`: loops with the results `a` and `b` may be
    one. `close(hop, facts)`: `hop` ends the loop, so that nothing inside reads it. `walk(kernel, layouts)`:
    the layout variant, None if a kernel of this template cannot run there.
    """

    name: str
    doc: str
    open: Callable[[Hop, Facts], bool]
    fuse: Callable[[Hop, Hop, Facts], bool]
    merge: Callable[[Hop, Hop], bool]
    close: Callable[[Hop, Facts], bool]
    walk: Callable[[Kernel, Mapping[Hop, Layout]], tuple[Form, Geometry] | None]


def _opens(*kinds: Kind) -> Callable[[Hop, Facts], bool]:
    return lambda hop, facts: hop.op.kind in kinds and not facts.reason(hop)


def _cell_of_same_shape(hop: Hop, operand: Hop, facts: Facts) -> bool:
    """Return whether the operand is element-wise over the same space: no aggregate, table, broadcast."""
    return (
        operand.op.kind in ELEMENTWISE_KINDS
        and operand.meta.shape == iteration_space(hop)
        and not (hop.op.kind is Kind.TAKE and operand is hop.inputs[0])
        and not facts.reason(operand)
    )


def _same_space(a: Hop, b: Hop) -> bool:
    return iteration_space(a) == iteration_space(b)


def _same_reduction(a: Hop, b: Hop) -> bool:
    """Return whether aggregates are over the same axes of one space; a cell fits any of them.

    Sums of real and of complex numbers do not: their pairwise trees differ, as NumPy counts both parts.
    """
    aggregates = [h for h in (a, b) if h.op.kind is Kind.AGG]
    trees = {h.meta.dtype.kind for h in aggregates if h.op.name == "sum"} & {"f", "c"}
    return _same_space(a, b) and len({h.attr("axis") for h in aggregates}) <= 1 and len(trees) <= 1


def _same_labels(a: Hop, b: Hop) -> bool:
    """Return whether both are sums by the same labels."""
    kinds = a.op.kind is b.op.kind is Kind.TALLY
    return kinds and a.inputs[0] is b.inputs[0] and a.meta.shape == b.meta.shape


def _walk(kernel: Kernel, layouts: Mapping[Hop, Layout]) -> tuple[Form, Geometry] | None:
    return geometry(kernel, kernel.shape, layouts)


CELL = Template(
    "Cell", "element-wise results over one space, of any layouts",
    _opens(*ELEMENTWISE_KINDS), _cell_of_same_shape, _same_space, lambda hop, facts: False, _walk,
)
MAGG = Template(
    "MAgg", "several aggregates over the same axes, and cells on the way, in one pass",
    _opens(Kind.AGG), _cell_of_same_shape, _same_reduction, lambda hop, facts: hop.op.kind is Kind.AGG, _walk,
)
TALLY = Template(
    "Tally", "several sums by the same labels, and cells on the way, block after block",
    _opens(Kind.TALLY), _cell_of_same_shape, _same_labels, lambda hop, facts: hop.op.kind is Kind.TALLY,
    _walk,
)


MIN_WIDE_RESULT_BYTES = 1 << 17  # of a product computed in blocks: smaller ones stay in the cache anyway
MAX_WIDE_DEPTH = 384  # of a product: beyond, arithmetic hides the traffic of its result
MAX_RESULT_ROW_BYTES = 1 << 18  # beyond, no block of rows stays in the caches
MIN_SHRUNK_BYTES, MIN_SHRINK_FACTOR = 4 << 20, 4  # of a matrix, and of its row length to the result's
MAX_SPARSE_DENSITY = 0.3  # part of the elements that may be stored for the others to be skipped
MAX_SUM_BYTES = 1 << 20  # of a sum over rows: every thread has its own

def is_wide_profitable(product: Product) -> bool:
    """Return whether a product with a wide matrix is faster in blocks of rows than with BLAS."""
    shape, hop = product.matrix.meta.shape, product.hop
    if hop.meta.ndim < 2 or not product.wide:
        return False
    rows, length = shape[::-1] if product.transposed else (prod(shape[:-1]), shape[-1])
    size = product.columns * hop.meta.dtype.itemsize
    if product.form == "sum":
        return rows * size >= MIN_WIDE_RESULT_BYTES and length * size <= MAX_SUM_BYTES
    shallow = length <= MAX_WIDE_DEPTH or is_shrunk(product)
    return rows * size >= MIN_WIDE_RESULT_BYTES and 4 <= length and shallow and size <= MAX_RESULT_ROW_BYTES


def is_shrunk(product: Product) -> bool:
    """Return whether a product shortens long computed rows of a matrix that is too large for the caches.

    Then a few rows at a time are faster, however deep the product is.
    """
    matrix = product.matrix
    is_large = matrix.op.kind is not Kind.LEAF and matrix.meta.nbytes >= MIN_SHRUNK_BYTES
    return is_large and MIN_SHRINK_FACTOR * product.columns <= matrix.meta.shape[-1]


def is_sparse(hop: Hop) -> bool:
    """Return whether most of a value is known to be 0."""
    return hop.meta.nnz is not None and hop.meta.nnz < MAX_SPARSE_DENSITY * hop.meta.size


def preserves_sparsity(hop: Hop, operand: Hop) -> bool:
    """Return whether `hop` needs no more elements than the sparse `operand`: it is 0 where that is.

    A sum with a dense matrix is not fused into a kernel that computes only stored elements.
    """
    return hop.meta.shape != operand.meta.shape or not is_sparse(operand) or is_sparse(hop)


MIN_PAIRS_BYTES = 1 << 12  # of the results: for less, NumPy is faster than a launch
MAX_PAIR_SIDE, MAX_PAIR_ROWS = 32, 64  # of the matrices: BLAS is as fast with larger ones
MAX_COMPLEX_PAIR_SIDE = 16  # the same for complex matrices


def as_pairs(hop: Hop, facts: Facts) -> Product | None:
    """Return a product of stacks as pairs of small matrices, if it is one; one operand may be no stack."""
    left, right = hop.inputs
    stacked = hop.op.name == "matmul" and max(left.meta.ndim, right.meta.ndim) > 2
    if not stacked or hop.meta.nbytes < MIN_PAIRS_BYTES or hop.meta.shape[0] < 2:
        return None
    max_side = MAX_COMPLEX_PAIR_SIDE if hop.meta.dtype.kind == "c" else MAX_PAIR_SIDE
    m, k, n = product_sizes(left.meta.shape, right.meta.shape)
    if not (0 < k <= max_side and n <= max_side and m <= MAX_PAIR_ROWS):
        return None
    layouts = facts.layouts
    strides = pair_strides(layouts[left], layouts[right], layouts[hop], hop.meta.dtype.itemsize)
    return Product(PAIRS, hop, left, False, right) if strides else None


def has_own_matrices(operand: Hop, hop: Hop) -> bool:
    """Return whether every pair along the first axis has its own matrix of `operand`."""
    return operand.meta.ndim == max(i.meta.ndim for i in hop.inputs) and \
        operand.meta.shape[0] == hop.meta.shape[0]


def product_sizes(left: Shape, right: Shape) -> tuple[int, int, int]:
    """Return m, k, n of a product of m x k with k x n matrices; a vector is a matrix of one row."""
    return left[-2] if len(left) > 1 else 1, left[-1], right[-1] if len(right) > 1 else 1


def pair_strides(left: Layout, right: Layout, result: Layout, itemsize: int) -> Pairs | None:
    """Return sizes and strides of stacks of pairs; None if two batch loops cannot address them."""
    batch = result.shape[:max(len(left.shape), len(right.shape)) - 2]
    if result != contiguous(result.shape, itemsize):
        return None
    steps = [_batch_strides(batch, operand) for operand in (left, right)]
    if steps[0] is None or steps[1] is None:
        return None
    cores = left.strides[-2:] if len(left.shape) > 1 else (0, *left.strides), \
        right.strides[-2:] if len(right.shape) > 1 else (*right.strides, 0)
    return Pairs(
        batch[0], prod(batch[1:]), product_sizes(left.shape, right.shape),
        (*steps[0], cores[0][0], cores[0][1]), (*steps[1], cores[1][0], cores[1][1]))


def _batch_strides(batch: Shape, operand: Layout) -> tuple[int, int] | None:
    """Return the strides of matrices along the first axis, and along the others merged, or None."""
    stack = Layout(operand.shape[:-2], operand.strides[:-2])
    first, *inner = broadcast_strides(batch, stack)
    return None if (step := _uniform_stride(batch[1:], tuple(inner))) is None else (first, step)


def _uniform_stride(shape: Shape, strides: Strides) -> int | None:
    """Return the stride of several axes merged into one; None if they cannot be merged."""
    step, length = 0, 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if length == 1:
            step = stride
        elif stride != step * length:
            return None
        length *= n
    return step


MIN_COMPRESSED_BYTES = 1 << 16  # of all entries: smaller ones stay in the cache anyway
MIN_ENTRIES_PER_SUM = 4  # per element of a sum, of which every unit has its own


def as_compressed_product(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over compressed rows, if its operands are contiguous and large enough."""
    data, _, starts, x = hop.inputs
    product = Product(COMPRESSED_FORMS[hop.op.name], hop, data, False, x)
    is_contiguous = all(
        facts.layouts[i] == contiguous(i.meta.shape, i.meta.dtype.itemsize) for i in hop.inputs)
    if not is_contiguous or data.meta.nbytes < MIN_COMPRESSED_BYTES or starts.meta.size < 3 or \
            product.columns > MAX_NARROW_COLUMNS:
        return None
    is_profitable = product.form == "dot" or \
        hop.meta.size * MIN_ENTRIES_PER_SUM <= data.meta.size * product.columns
    return product if is_profitable else None


PRODUCT_OPS = frozenset(
    ("matmul", "dot", "cumsum", "concatenate", "stack", *ARG_REDUCTIONS, *COMPRESSED_FORMS))
MIN_MATRIX_BYTES = 1 << 16  # smaller matrices stay in the cache anyway
MIN_ARG_REDUCTION_BYTES = 1 << 13  # the same for argmin and argmax, where NumPy is far slower than memory
MIN_ORDERED_BYTES = 1 << 18  # of a matrix with reductions along both axes
MIN_ROW_LENGTH = 4
MIN_TALL_ROWS, MAX_TALL_COLUMNS, MIN_TALL_RATIO = 1 << 13, 512, 16  # of a columnwise matrix; rows per column
MAX_JOIN_OPERANDS = 8
MAX_NARROW_BYTES = 1 << 17  # of the vectors of a narrow product


def row_count(product: Product) -> int:
    """Return the number of rows of the matrix; for stacked products, the length of the first axis."""
    if product.form == PAIRS:
        return product.hop.meta.shape[0]
    if product.compressed:
        return product.hop.inputs[2].meta.size - 1
    return product.matrix.meta.shape[1 if product.transposed else 0]


def _find_product(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over the rows of a matrix, if it is one that a row kernel should compute."""
    if hop.op.name not in PRODUCT_OPS or not facts.is_product(hop):
        return None
    if hop.op.name in COMPRESSED_FORMS:
        return as_compressed_product(hop, facts)
    if hop.op.name in ("concatenate", "stack"):
        return _join_product(hop, facts)
    if hop.op.name == "cumsum":
        return _rowwise_product("scan", hop, facts)
    if hop.op.name in ARG_REDUCTIONS:
        return _rowwise_product(hop.op.name, hop, facts)
    product = _matrix_product(hop, facts) if _is_matrix_product(hop) else None
    return product or as_pairs(hop, facts)


def _is_matrix_product(hop: Hop) -> bool:
    """Return whether a product is of floating-point rows with one matrix or one vector."""
    return hop.meta.dtype.kind == "f" and hop.inputs[1].meta.ndim < 3


def _matrix_product(hop: Hop, facts: Facts) -> Product | None:
    """Return the product of a matrix, or of all rows of a stack, with one other operand."""
    left, right = hop.inputs
    if left.meta.ndim > 2:  # every matrix of a stack times one other: all their rows
        if not _has_contiguous_rows(left, facts):
            return None
        product = Product("dot", hop, left, False, right)
    elif left.meta.ndim == 1:  # a vector times a matrix: a weighted sum of its rows
        product = Product("sum", hop, right, False, left)
    elif left.op.name == "transpose" and left.meta.shape[0] == 1 and right.meta.ndim == 2:
        product = Product("sum", hop, right, False, left.inputs[0])
    elif left.op.name == "transpose" and _is_contiguous_along(left.inputs[0], -1, facts):
        product = Product("sum", hop, left.inputs[0], False, right)
    elif _is_contiguous_along(left, -1, facts):
        product = Product("dot", hop, left, False, right)
    else:
        product = Product("sum", hop, left, True, right)
    if is_wide_profitable(product):
        is_blockwise = are_rows_outermost(product, facts) and not _may_be_symmetric(product, facts)
        return product if is_blockwise else None
    fits = _is_contiguous_along(product.matrix, 0 if product.transposed else -1, facts) and \
        _is_narrow(product, facts)
    big = product.matrix.meta.nbytes >= MIN_MATRIX_BYTES and _row_length(product) >= MIN_ROW_LENGTH
    return _as_columnwise(product, facts) or product if fits and big else None


def _as_columnwise(product: Product, facts: Facts) -> Product | None:
    """Return the same product over the other axis of a matrix of few long rows, which are then its columns.

    So a product with a vector, and one of its results with the same matrix, are fused into one pass; not
    where they are fused in a pass over the long rows.
    """
    few, long = row_count(product), _row_length(product)
    if product.vector.meta.ndim != 1 or not MIN_ROW_LENGTH <= few <= MAX_TALL_COLUMNS or \
            long < max(MIN_TALL_ROWS, MIN_TALL_RATIO * few) or _fuses_over_rows(product):
        return None
    form = "sum" if product.form == "dot" else "dot"
    columnwise = Product(
        form, product.hop, product.matrix, not product.transposed, product.vector, columnwise=True)
    return columnwise if _is_narrow(columnwise, facts) else None


def _fuses_over_rows(product: Product) -> bool:
    """Return whether a product over long rows has an input as vector, or weights from such a product."""
    if product.form == "dot":
        return _is_uncomputed(product.vector)
    long = (_row_length(product),)
    return any(h.op.name in ("matmul", "dot")
               and any(i.meta.shape == long and _is_uncomputed(i) for i in h.inputs)
               for h in topo((product.vector,)))


def _is_uncomputed(vector: Hop) -> bool:
    return not any(h.op.kind in (Kind.CELL, Kind.AGG) or h.op.name in PRODUCT_OPS for h in topo((vector,)))


def _rowwise_product(form: str, hop: Hop, facts: Facts) -> Product | None:
    """Return a function of every row as a loop over rows, if the rows are contiguous and outermost."""
    matrix = hop.inputs[0]
    min_bytes = MIN_ARG_REDUCTION_BYTES if form in ARG_REDUCTIONS else MIN_MATRIX_BYTES
    fits = matrix.meta.nbytes >= min_bytes and _has_contiguous_rows(matrix, facts) and \
        _is_contiguous_along(matrix, -1, facts)
    return Product(form, hop, matrix, False, matrix) if fits else None


def _join_product(hop: Hop, facts: Facts) -> Product | None:
    """Return a concatenation as copies of rows, if all operands have the memory order of the result."""
    is_axis_order = all(a >= b >= 0 for i in hop.inputs for a, b in pairwise(facts.layouts[i].strides))
    fits = hop.meta.nbytes >= MIN_MATRIX_BYTES and len(hop.inputs) <= MAX_JOIN_OPERANDS and is_axis_order
    return Product("join", hop, hop.inputs[0], False, hop.inputs[0]) if fits else None


def _row_length(product: Product) -> int:
    return product.matrix.meta.shape[0 if product.transposed else -1]


def _has_contiguous_rows(matrix: Hop, facts: Facts) -> bool:
    """Return whether the rows of all matrices of a stack have a uniform stride."""
    shape, strides = facts.layouts[matrix]
    return all(s == n * t for s, n, t in zip(strides, shape[1:-1], strides[1:-1], strict=False))


def are_rows_outermost(product: Product, facts: Facts) -> bool:
    """Return whether rows are outermost in memory: of the matrix, and of the weights of a sum."""
    strides = facts.layouts[product.matrix].strides
    operand_strides = [strides[::-1] if product.transposed else strides]
    if product.form == "sum":
        operand_strides.append(facts.layouts[product.vector].strides)
    return all(first >= abs(second) > 0 for *_, first, second in operand_strides)


def _may_be_symmetric(product: Product, facts: Facts) -> bool:
    """Return whether a leaf is multiplied with what may be its transpose: BLAS then computes one triangle."""
    leaves = (product.matrix, product.vector)
    here, there = (facts.layouts[v] for v in leaves)
    return product.transposed and all(v.op.kind is Kind.LEAF for v in leaves) and \
        here.strides[::-1] == there.strides and here.shape[::-1] == there.shape


def _is_contiguous_along(matrix: Hop, axis: int, facts: Facts) -> bool:
    """Return whether a matrix is contiguous along `axis`, with a positive stride along the other one."""
    strides = facts.layouts[matrix].strides
    across = 1 if axis == 0 else -2
    return strides[axis] == matrix.meta.dtype.itemsize and strides[across] > 0


def _is_narrow(product: Product, facts: Facts) -> bool:
    """Return whether rows are multiplied with a vector, or few that stay in the cache; all contiguous."""
    columns, vector = product.vector.meta.shape[1:], product.vector
    few = not columns or product.hop.meta.ndim > 1 and 1 <= columns[0] <= MAX_NARROW_COLUMNS and \
        _row_length(product) * columns[0] * vector.meta.dtype.itemsize <= MAX_NARROW_BYTES
    stride = facts.layouts[vector].strides[-1 if columns and columns[0] > 1 else 0]
    return few and (product.form == "dot" or stride == vector.meta.dtype.itemsize)


def product_of(hop: Hop, facts: Facts) -> Product | None:
    """Return `_find_product` of `hop`, memoised."""
    if hop not in facts.products:
        facts.products[hop] = _find_product(hop, facts)
    return facts.products[hop]


def rows_of(hop: Hop, facts: Facts) -> int:
    """Return the number of rows that `hop` is computed over, 0 if it is not computed by rows; memoised."""
    rows = facts.rows.get(hop)
    if rows is None:
        rows = facts.rows[hop] = _count_rows(hop, facts)
    return rows


def _count_rows(hop: Hop, facts: Facts) -> int:
    product = product_of(hop, facts)
    if product is not None:
        return row_count(product)
    if is_row_view(hop):
        return hop.meta.shape[0]
    if hop.op.kind in (Kind.TAKE, Kind.TALLY) or facts.reason(hop):
        return 0
    if reduces_rows(hop) and not (is_ordered_reduction(hop, facts) or is_unordered_sum(hop, facts)):
        return 0
    space = iteration_space(hop)
    along = hop.inputs[0] if hop.op.kind is Kind.AGG else hop
    return space[0] if space and space[0] > 1 and _has_rows_outermost(along, facts) else 0


def _has_rows_outermost(hop: Hop, facts: Facts) -> bool:
    """Return whether rows are outermost in memory, so that blocks of rows have the whole array's order."""
    first, *rest = facts.layouts[hop].strides
    return all(first >= abs(s) for s in rest)


def row_links(hop: Hop, facts: Facts) -> tuple[Hop, ...]:
    """Return the operands of which row i of `hop` needs only row i; none if it is not computed by rows."""
    rows = rows_of(hop, facts)
    product = product_of(hop, facts)
    if not rows:
        return ()
    if product is not None and product.form == PAIRS:
        return tuple(dict.fromkeys(i for i in hop.inputs if has_own_matrices(i, hop)))
    if product is not None and product.compressed:
        return (product.vector,) if product.form == "sum" else ()
    if product is not None:
        return (product.matrix,) if product.form == "dot" else product.inputs
    if is_row_view(hop) or hop.op.kind is Kind.AGG:
        return hop.inputs
    return tuple(dict.fromkeys(
        i for i in hop.inputs if i.meta.shape[:1] == (rows,) and i.meta.ndim == hop.meta.ndim))


def _opens_rows(hop: Hop, facts: Facts) -> bool:
    """Return whether `hop` is computed by rows; also record whether rows of a wide product are on the way."""
    product = product_of(hop, facts)
    facts.wide[hop] = product is not None and product.wide or any(
        facts.wide.get(i, False) for i in row_links(hop, facts))
    return rows_of(hop, facts) > 0


def is_ordered_reduction(hop: Hop, facts: Facts) -> bool:
    """Return whether `hop` reduces over rows block by block, each continuing from the last."""
    matrix = hop.inputs[0]
    return reduces_rows(hop) and not facts.wide.get(matrix, False) and matrix.meta.nbytes >= MIN_ORDERED_BYTES


def is_unordered_sum(hop: Hop, facts: Facts) -> bool:
    """Return whether `hop` sums rows that are made from those of a wide product, block by block.

    The order of such a sum is not NumPy's, as that of the product is not.
    """
    return reduces_rows(hop) and hop.op.name == "sum" and hop.meta.dtype.kind == "f" and \
        facts.wide.get(hop.inputs[0], False)


def _is_row_operand(hop: Hop, operand: Hop, facts: Facts) -> bool:
    """Return whether the operand is computed over the same rows, and its rows are those of the result."""
    product = product_of(hop, facts)
    if product is not None and (product.transposed or product.columnwise) and operand is product.matrix:
        return False  # the rows of a square matrix are not its columns
    if facts.wide.get(operand, False) and not preserves_sparsity(hop, operand):
        return False
    return operand in row_links(hop, facts) and rows_of(operand, facts) == rows_of(hop, facts)


def _closes_row(hop: Hop, facts: Facts) -> bool:
    """Return whether `hop` is a reduction over rows, which is complete only after the last one."""
    product = product_of(hop, facts)
    return product is not None and product.form == "sum" or reduces_rows(hop)


ROW = Template(
    "Row", "products of a matrix, and what lies between, in one pass over its rows",
    _opens_rows, _is_row_operand, lambda a, b: True, _closes_row, lambda kernel, layouts: None,
)


def is_row_view(hop: Hop) -> bool:
    """Return whether `hop` is its operand with axes of length 1 inserted behind the first."""
    if hop.op.name == "expand_dims" or hop.op.name == "getitem":
        source, shape = hop.inputs[0].meta.shape, hop.meta.shape
        return bool(source) and shape[:1] == source[:1] and source[0] != 1 and \
            [n for n in shape[1:] if n != 1] == [n for n in source[1:] if n != 1] and \
            hop.inputs[0].meta.size == hop.meta.size and _is_whole_slice(hop)
    return False


def _is_whole_slice(hop: Hop) -> bool:
    """Return whether an index selects everything, in order."""
    if hop.op.name == "expand_dims":
        return True
    return all(part[0] in "ne" or part == ("s", None, None, None) for part in hop.attr("index"))
