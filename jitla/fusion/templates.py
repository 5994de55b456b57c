"""The templates Cell, MAgg, Tally, Outer and Row: which operators open, fuse and merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import pairwise
from math import prod

from jitla.classes import dataclass
from jitla.fusion.iteration import geometry, iteration
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
from jitla.fusion.layout import Layout, Strides, contiguous, spread
from jitla.hops import Hop, Kind, Shape, topo

CELLS = (Kind.CELL, Kind.TAKE)


@dataclass(slots=True)
class Facts:
    """What the templates ask about: the backend's verdict per hop, where every value lies, products."""

    supports: Callable[[Hop], str | None]
    layouts: Mapping[Hop, Layout]
    products: dict[Hop, Product | None] = field(default_factory=dict)
    #: Over how many rows values are computed one after the other.
    rows: dict[Hop, int] = field(default_factory=dict)
    #: Whether a row kernel that makes a value makes rows of a product with a wide matrix on the way.
    wide: dict[Hop, bool] = field(default_factory=dict)
    _reasons: dict[Hop, str] = field(default_factory=dict)

    def reason(self, hop: Hop) -> str:
        """Return why `hop` cannot be computed in a kernel; empty if it can."""
        if hop not in self._reasons:
            self._reasons[hop] = self._judge(hop)
        return self._reasons[hop]

    def is_product(self, hop: Hop) -> bool:
        """Tell whether the backend has loops for the matrix product `hop`."""
        return self.supports(hop) is None

    def _judge(self, hop: Hop) -> str:
        if hop.op.kind not in (*CELLS, Kind.AGG, Kind.TALLY):
            return "not element-wise"
        if iteration(hop) == ():
            return "scalar"
        if 0 in iteration(hop):
            return "no elements"
        return self.supports(hop) or ""


@dataclass(frozen=True, slots=True)
class Template:
    """One way to write a loop.

    `open(hop, facts)`: can a loop start with `hop` as a result. `fuse(hop, operand, facts)`: can
    `operand` be computed inside the loop that computes `hop`. `merge(a, b)`: may two loops with
    results `a` and `b` be one. `close(hop, facts)`: does `hop` end the loop, so that nothing inside reads it.
    `walk(kernel, layouts)`: the layout variant, None if a kernel of this template cannot run there.
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
    """The operand is element-wise over the same space; aggregates, tables, broadcast values are borders."""
    return (
        operand.op.kind in CELLS
        and operand.meta.shape == iteration(hop)
        and not (hop.op.kind is Kind.TAKE and operand is hop.inputs[0])
        and not facts.reason(operand)
    )


def _same_space(a: Hop, b: Hop) -> bool:
    return iteration(a) == iteration(b)


def _same_reduction(a: Hop, b: Hop) -> bool:
    """Aggregates over the same axes of one space; a cell fits any of them.

    Not sums of reals and of complex numbers, whose pairwise trees differ: NumPy counts both parts.
    """
    found = [h for h in (a, b) if h.op.kind is Kind.AGG]
    trees = {h.meta.dtype.kind for h in found if h.op.name == "sum"} & {"f", "c"}
    return _same_space(a, b) and len({h.attr("axis") for h in found}) <= 1 and len(trees) <= 1


def _same_labels(a: Hop, b: Hop) -> bool:
    """Sums by the same labels."""
    kinds = a.op.kind is b.op.kind is Kind.TALLY
    return kinds and a.inputs[0] is b.inputs[0] and a.meta.shape == b.meta.shape


def _walk(kernel: Kernel, layouts: Mapping[Hop, Layout]) -> tuple[Form, Geometry] | None:
    return geometry(kernel, kernel.shape, layouts)


CELL = Template(
    "Cell", "element-wise results over one space, of any layouts",
    _opens(*CELLS), _cell_of_same_shape, _same_space, lambda hop, facts: False, _walk,
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


MIN_RESULT = 1 << 17  # bytes of what a row kernel makes piece by piece: less stays in the cache anyway
MAX_DEPTH = 384  # of a product: beyond, arithmetic hides whatever is done with its results
MAX_ROW = 1 << 18  # bytes of a row of results: of longer ones no block stays in the caches
MIN_SHRUNK, SHRINKS = 4 << 20, 4  # bytes of a matrix whose rows are made so many times shorter, at least
SPARSE = 0.3  # part of a value that may be other than 0 for the rest to be passed over
MAX_SUM = 1 << 20  # bytes of a sum over rows: every thread has its own

def takes_wide(product: Product) -> bool:
    """Tell whether a product with a wide matrix is worth being made in blocks of rows."""
    shape, hop = product.matrix.meta.shape, product.hop
    if hop.meta.ndim < 2 or not product.wide:
        return False
    rows, length = shape[::-1] if product.transposed else (prod(shape[:-1]), shape[-1])
    size = product.columns * hop.meta.dtype.itemsize
    if product.form == "sum":
        return rows * size >= MIN_RESULT and length * size <= MAX_SUM
    shallow = length <= MAX_DEPTH or is_shrunk(product)
    return rows * size >= MIN_RESULT and 4 <= length and shallow and size <= MAX_ROW


def is_shrunk(product: Product) -> bool:
    """Tell whether long rows are made, too large a matrix for the caches, that the product makes short.

    Then it pays to make few of them at a time, however deep the product is.
    """
    matrix = product.matrix
    made = matrix.op.kind is not Kind.LEAF and matrix.meta.nbytes >= MIN_SHRUNK
    return made and SHRINKS * product.columns <= matrix.meta.shape[-1]


def is_sparse(hop: Hop) -> bool:
    """Tell whether most of a value is known to be 0."""
    return hop.meta.nnz is not None and hop.meta.nnz < SPARSE * hop.meta.size


def keeps_driver(hop: Hop, operand: Hop) -> bool:
    """Tell whether `hop` needs no more products of rows than `operand`: none where that is 0.

    A sum with a dense matrix stays outside of a kernel that a sparse one drives.
    """
    return hop.meta.shape != operand.meta.shape or not is_sparse(operand) or is_sparse(hop)


MIN_BYTES = 1 << 12  # of the results: of less, NumPy is done before a kernel is launched
MAX_SIDE, MAX_ROWS = 32, 64  # of the matrices: BLAS is as fast with larger ones
MAX_COMPLEX = 16  # the same for complex numbers, of which there are two


def pairs_of(hop: Hop, facts: Facts) -> Product | None:
    """Return a product of stacks as pairs of small matrices, if it is one; the stack may be one's alone."""
    left, right = hop.inputs
    stacked = hop.op.name == "matmul" and max(left.meta.ndim, right.meta.ndim) > 2
    if not stacked or hop.meta.nbytes < MIN_BYTES or hop.meta.shape[0] < 2:
        return None
    most = MAX_COMPLEX if hop.meta.dtype.kind == "c" else MAX_SIDE
    m, k, n = sizes(left.meta.shape, right.meta.shape)
    if not (0 < k <= most and n <= most and m <= MAX_ROWS):
        return None
    places = facts.layouts
    found = pair_strides(places[left], places[right], places[hop], hop.meta.dtype.itemsize)
    return Product(PAIRS, hop, left, False, right) if found else None


def by_pairs(operand: Hop, hop: Hop) -> bool:
    """Tell whether every pair along the first axis has its own matrix of `operand`."""
    return operand.meta.ndim == max(i.meta.ndim for i in hop.inputs) and \
        operand.meta.shape[0] == hop.meta.shape[0]


def sizes(left: Shape, right: Shape) -> tuple[int, int, int]:
    """Return m, k, n: matrices of m times k elements meet such of k times n; a vector is one of one row."""
    return left[-2] if len(left) > 1 else 1, left[-1], right[-1] if len(right) > 1 else 1


def pair_strides(left: Layout, right: Layout, result: Layout, itemsize: int) -> Pairs | None:
    """Return how stacks of pairs lie; None if a loop over the first axis and one more do not reach all."""
    batch = result.shape[:max(len(left.shape), len(right.shape)) - 2]
    if result != contiguous(result.shape, itemsize):
        return None
    steps = [_steps(batch, operand) for operand in (left, right)]
    if steps[0] is None or steps[1] is None:
        return None
    cores = left.strides[-2:] if len(left.shape) > 1 else (0, *left.strides), \
        right.strides[-2:] if len(right.shape) > 1 else (*right.strides, 0)
    return Pairs(
        batch[0], prod(batch[1:]), sizes(left.shape, right.shape),
        (*steps[0], cores[0][0], cores[0][1]), (*steps[1], cores[1][0], cores[1][1]))


def _steps(batch: Shape, operand: Layout) -> tuple[int, int] | None:
    """Return the bytes between matrices along the first axis, and along all others taken as one."""
    stack = Layout(operand.shape[:-2], operand.strides[:-2])
    first, *inner = spread(batch, stack)
    return None if (step := _one_step(batch[1:], tuple(inner))) is None else (first, step)


def _one_step(shape: Shape, strides: Strides) -> int | None:
    """Return the bytes between neighbours over several axes; None if they are not the same everywhere."""
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


COMPRESSED_MIN_BYTES = 1 << 16  # of all entries: fewer stay in the cache anyway
SHARE = 4  # entries for an element of a sum, at least: every unit has a sum of its own


def compressed_of(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over compressed rows, if its operands lie in one run each."""
    data, _, starts, x = hop.inputs
    found = Product(COMPRESSED_FORMS[hop.op.name], hop, data, False, x)
    runs = all(facts.layouts[i] == contiguous(i.meta.shape, i.meta.dtype.itemsize) for i in hop.inputs)
    if not runs or data.meta.nbytes < COMPRESSED_MIN_BYTES or starts.meta.size < 3 or \
            found.columns > MAX_NARROW_COLUMNS:
        return None
    pays = found.form == "dot" or hop.meta.size * SHARE <= data.meta.size * found.columns
    return found if pays else None


PRODUCTS = frozenset(("matmul", "dot", "cumsum", "concatenate", "stack", *ARG_REDUCTIONS, *COMPRESSED_FORMS))
ROWS_MIN_BYTES = 1 << 16  # of a matrix: smaller ones stay in the cache anyway
MIN_SEARCHED = 1 << 13  # the same if its rows are searched, which takes NumPy far longer than reading them
MIN_TURNS = 1 << 18  # of a matrix that aggregates of several directions share
MIN_LENGTH = 4  # of its rows
MIN_ROWS, MAX_COLUMNS, TALL = 1 << 13, 512, 16  # of a matrix that lies column by column; rows a column
MAX_JOINED = 8  # operands whose rows are put side by side
MAX_BESIDE = 1 << 17  # bytes of that matrix


def row_count(product: Product) -> int:
    """Return how many rows the matrix has; of a stack of products, how many are along the first axis."""
    if product.form == PAIRS:
        return product.hop.meta.shape[0]
    if product.compressed:
        return product.hop.inputs[2].meta.size - 1
    return product.matrix.meta.shape[1 if product.transposed else 0]


def product_of(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over the rows of a matrix that lies row by row, if it is one."""
    if hop.op.name not in PRODUCTS or not facts.is_product(hop):
        return None
    if hop.op.name in COMPRESSED_FORMS:
        return compressed_of(hop, facts)
    if hop.op.name in ("concatenate", "stack"):
        return _side_by_side(hop, facts)
    if hop.op.name == "cumsum":
        return _along_rows("scan", hop, facts)
    if hop.op.name in ARG_REDUCTIONS:
        return _along_rows(hop.op.name, hop, facts)
    found = _of_rows(hop, facts) if _is_of_rows(hop) else None
    return found or pairs_of(hop, facts)


def _is_of_rows(hop: Hop) -> bool:
    """Tell whether a product is one of rows of floats with one matrix, or one vector."""
    return hop.meta.dtype.kind == "f" and hop.inputs[1].meta.ndim < 3


def _of_rows(hop: Hop, facts: Facts) -> Product | None:
    """Return the product of a matrix, or of a stack's rows, with one other."""
    left, right = hop.inputs
    if left.meta.ndim > 2:  # every matrix of a stack times one other: their rows, one after the other
        if not _is_stack(left, facts):
            return None
        found = Product("dot", hop, left, False, right)
    elif left.meta.ndim == 1:  # a vector times a matrix: its rows are weighted
        found = Product("sum", hop, right, False, left)
    elif left.op.name == "transpose" and left.meta.shape[0] == 1 and right.meta.ndim == 2:  # a column, lying
        found = Product("sum", hop, right, False, left.inputs[0])
    elif left.op.name == "transpose" and _runs_along(left.inputs[0], -1, facts):
        found = Product("sum", hop, left.inputs[0], False, right)
    elif _runs_along(left, -1, facts):
        found = Product("dot", hop, left, False, right)
    else:
        found = Product("sum", hop, left, True, right)
    if takes_wide(found):
        return found if rows_come_first(found, facts) and not _is_square(found, facts) else None
    fits = _runs_along(found.matrix, 0 if found.transposed else -1, facts) and _is_narrow(found, facts)
    big = found.matrix.meta.nbytes >= ROWS_MIN_BYTES and _length(found) >= MIN_LENGTH
    return _down_columns(found, facts) or found if fits and big else None


def _down_columns(product: Product, facts: Facts) -> Product | None:
    """Return the same product over the other axis of a matrix of few long rows: these are its columns.

    So a product with a vector and one of its results with the same matrix meet in one pass; not where they
    meet in a pass over the long rows.
    """
    few, long = row_count(product), _length(product)
    if product.vector.meta.ndim != 1 or not MIN_LENGTH <= few <= MAX_COLUMNS or \
            long < max(MIN_ROWS, TALL * few) or _meets_rows(product):
        return None
    form = "sum" if product.form == "dot" else "dot"
    found = Product(
        form, product.hop, product.matrix, not product.transposed, product.vector, columnwise=True)
    return found if _is_narrow(found, facts) else None


def _meets_rows(product: Product) -> bool:
    """Tell whether a product of long rows has a vector that is there, or weighs rows by such products."""
    if product.form == "dot":
        return _is_given(product.vector)
    long = (_length(product),)
    return any(h.op.name in ("matmul", "dot") and any(i.meta.shape == long and _is_given(i) for i in h.inputs)
               for h in topo((product.vector,)))


def _is_given(vector: Hop) -> bool:
    return not any(h.op.kind in (Kind.CELL, Kind.AGG) or h.op.name in PRODUCTS for h in topo((vector,)))


def _along_rows(form: str, hop: Hop, facts: Facts) -> Product | None:
    """Return what is made of each row alone as a loop over rows, if these lie one after the other."""
    matrix = hop.inputs[0]
    least = MIN_SEARCHED if form in ARG_REDUCTIONS else ROWS_MIN_BYTES
    fits = matrix.meta.nbytes >= least and _is_stack(matrix, facts) and _runs_along(matrix, -1, facts)
    return Product(form, hop, matrix, False, matrix) if fits else None


def _side_by_side(hop: Hop, facts: Facts) -> Product | None:
    """Return rows put side by side as copies of rows, if all lie in the order of the axes, as the result."""
    falls = all(a >= b >= 0 for i in hop.inputs for a, b in pairwise(facts.layouts[i].strides))
    fits = hop.meta.nbytes >= ROWS_MIN_BYTES and len(hop.inputs) <= MAX_JOINED and falls
    return Product("join", hop, hop.inputs[0], False, hop.inputs[0]) if fits else None


def _length(product: Product) -> int:
    return product.matrix.meta.shape[0 if product.transposed else -1]


def _is_stack(matrix: Hop, facts: Facts) -> bool:
    """Tell whether the rows of all matrices of a stack lie one after the other."""
    shape, strides = facts.layouts[matrix]
    return all(s == n * t for s, n, t in zip(strides, shape[1:-1], strides[1:-1], strict=False))


def rows_come_first(product: Product, facts: Facts) -> bool:
    """Tell whether blocks of rows are near each other: of the matrix, and of what is added up by rows."""
    strides = facts.layouts[product.matrix].strides
    walked = [strides[::-1] if product.transposed else strides]
    if product.form == "sum":
        walked.append(facts.layouts[product.vector].strides)
    return all(first >= abs(second) > 0 for *_, first, second in walked)


def _is_square(product: Product, facts: Facts) -> bool:
    """Tell whether a leaf meets what may be its transpose: BLAS then computes one triangle only."""
    leaves = (product.matrix, product.vector)
    here, there = (facts.layouts[v] for v in leaves)
    return product.transposed and all(v.op.kind is Kind.LEAF for v in leaves) and \
        here.strides[::-1] == there.strides and here.shape[::-1] == there.shape


def _runs_along(matrix: Hop, axis: int, facts: Facts) -> bool:
    """Tell whether neighbours along `axis` are neighbours in memory, and the other axis goes forward."""
    strides = facts.layouts[matrix].strides
    across = 1 if axis == 0 else -2
    return strides[axis] == matrix.meta.dtype.itemsize and strides[across] > 0


def _is_narrow(product: Product, facts: Facts) -> bool:
    """Tell whether rows meet a vector, or so few that these stay in the cache; weights lie by rows."""
    columns, vector = product.vector.meta.shape[1:], product.vector
    few = not columns or product.hop.meta.ndim > 1 and 1 <= columns[0] <= MAX_NARROW_COLUMNS and \
        _length(product) * columns[0] * vector.meta.dtype.itemsize <= MAX_BESIDE
    apart = facts.layouts[vector].strides[-1 if columns and columns[0] > 1 else 0]
    return few and (product.form == "dot" or apart == vector.meta.dtype.itemsize)


def product_at(hop: Hop, facts: Facts) -> Product | None:
    """Return what `product_of` says of `hop`, found once."""
    if hop not in facts.products:
        facts.products[hop] = product_of(hop, facts)
    return facts.products[hop]


def rows_of(hop: Hop, facts: Facts) -> int:
    """Return how many rows `hop` is computed over, one after the other; 0 if it is not. Found once."""
    found = facts.rows.get(hop)
    if found is None:
        found = facts.rows[hop] = _rows_of(hop, facts)
    return found


def _rows_of(hop: Hop, facts: Facts) -> int:
    product = product_at(hop, facts)
    if product is not None:
        return row_count(product)
    if is_row_view(hop):
        return hop.meta.shape[0]
    if hop.op.kind in (Kind.TAKE, Kind.TALLY) or facts.reason(hop):
        return 0
    if reduces_rows(hop) and not (is_in_turn(hop, facts) or is_total(hop, facts)):
        return 0
    space = iteration(hop)
    along = hop.inputs[0] if hop.op.kind is Kind.AGG else hop
    return space[0] if space and space[0] > 1 and _outermost(along, facts) else 0


def _outermost(hop: Hop, facts: Facts) -> bool:
    """Tell whether rows lie one after the other: blocks of rows then are walked as the whole is."""
    first, *rest = facts.layouts[hop].strides
    return all(first >= abs(s) for s in rest)


def row_links(hop: Hop, facts: Facts) -> tuple[Hop, ...]:
    """Return the operands whose row i alone matters for row i of `hop`; none if it is not by rows."""
    rows = rows_of(hop, facts)
    product = product_at(hop, facts)
    if not rows:
        return ()
    if product is not None and product.form == PAIRS:
        return tuple(dict.fromkeys(i for i in hop.inputs if by_pairs(i, hop)))
    if product is not None and product.compressed:
        return (product.vector,) if product.form == "sum" else ()
    if product is not None:
        return (product.matrix,) if product.form == "dot" else product.inputs
    if is_row_view(hop) or hop.op.kind is Kind.AGG:
        return hop.inputs
    return tuple(dict.fromkeys(
        i for i in hop.inputs if i.meta.shape[:1] == (rows,) and i.meta.ndim == hop.meta.ndim))


def _opens_rows(hop: Hop, facts: Facts) -> bool:
    """There are rows; those of operands have been looked at before."""
    product = product_at(hop, facts)
    facts.wide[hop] = product is not None and product.wide or any(
        facts.wide.get(i, False) for i in row_links(hop, facts))
    return rows_of(hop, facts) > 0


def is_in_turn(hop: Hop, facts: Facts) -> bool:
    """Tell whether rows meet in `hop` that are made block by block, and go on from those before them."""
    matrix = hop.inputs[0]
    return reduces_rows(hop) and not facts.wide.get(matrix, False) and matrix.meta.nbytes >= MIN_TURNS


def is_total(hop: Hop, facts: Facts) -> bool:
    """Tell whether `hop` adds up rows that are made from those of a wide product, block by block.

    The order of such a sum is not NumPy's, as that of the product is not.
    """
    return reduces_rows(hop) and hop.op.name == "sum" and hop.meta.dtype.kind == "f" and \
        facts.wide.get(hop.inputs[0], False)


def _by_rows(hop: Hop, operand: Hop, facts: Facts) -> bool:
    """The operand is computed over the same rows, and its rows are those of the result."""
    product = product_at(hop, facts)
    if product is not None and (product.transposed or product.columnwise) and operand is product.matrix:
        return False  # the rows of a square matrix are not its columns
    if facts.wide.get(operand, False) and not keeps_driver(hop, operand):
        return False
    return operand in row_links(hop, facts) and rows_of(operand, facts) == rows_of(hop, facts)


def _closes(hop: Hop, facts: Facts) -> bool:
    """A sum over rows is there only after the last one."""
    product = product_at(hop, facts)
    return product is not None and product.form == "sum" or reduces_rows(hop)


ROW = Template(
    "Row", "products of a matrix, and what lies between, in one pass over its rows",
    _opens_rows, _by_rows, lambda a, b: True, _closes, lambda kernel, layouts: None,
)


def is_row_view(hop: Hop) -> bool:
    """Tell whether `hop` is its operand with axes of length 1 put in behind the first."""
    if hop.op.name == "expand_dims" or hop.op.name == "getitem":
        source, shape = hop.inputs[0].meta.shape, hop.meta.shape
        return bool(source) and shape[:1] == source[:1] and source[0] != 1 and \
            [n for n in shape[1:] if n != 1] == [n for n in source[1:] if n != 1] and \
            hop.inputs[0].meta.size == hop.meta.size and _whole(hop)
    return False


def _whole(hop: Hop) -> bool:
    """Tell whether no index moves or turns anything."""
    if hop.op.name == "expand_dims":
        return True
    return all(part[0] in "ne" or part == ("s", None, None, None) for part in hop.attr("index"))
