"""Rewrite rules of data movement: transposes, reshapes, slices, rolls, and sampling at stored positions.

Whole-DAG rules: matrix products that are only sampled (SDDMM), slices pushed through element-wise operators,
and rolls read from one copy with a halo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product, zip_longest
from math import prod
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    REFERENCE_MACHINE,
    WHOLE_AXIS,
    Hop,
    Kind,
    Margins,
    RingWidths,
    Section,
    depends_on_position,
    flops,
    has_recipe,
    is_roll_of_ring,
    make,
    margins,
    possible_flags,
    sections,
    sections_of_index,
    substitute,
    topo,
    uses,
)
from jitla.rewrites.rule import (
    AttrVar,
    Bindings,
    Hook,
    Rule,
    RuleSet,
    Var,
    aggregate,
    check_type_unchanged,
    is_order_insensitive,
    ops,
    owns_memory,
    reshape_x,
    single_use,
)

X = Var("X")
AXIS, KEEPDIMS, AXES, INNER, SHAPE, INDEX = map(
    AttrVar, ("axis", "keepdims", "axes", "inner", "shape", "index"))

# --------------------------------------------------------------------------- views and copies


def compose_permutations(root: Hop, b: Bindings) -> Hop:
    """Build the transpose that composes the two."""
    axes = tuple(b["inner"][i] for i in b["axes"])
    return make("transpose", (b["X"],), root.line, axes=axes)


def is_identity_permutation(root: Hop, b: Bindings) -> bool:
    """The permutation is the identity."""
    return bool(b["axes"] == tuple(range(len(b["axes"]))))


def are_size_independent_slices(root: Hop, b: Bindings) -> bool:
    """Both slices skip the same elements, counted from the ends, for all sizes."""
    return sections_of_index(b["inner"]) is not None and sections_of_index(b["index"]) is not None


def compose_slices(root: Hop, b: Bindings) -> Hop:
    """Build the slice that composes the two."""
    both = [sections_of_index(b[name]) or [] for name in ("inner", "index")]
    index = tuple(inner.then(outer).item for inner, outer in zip_longest(*both, fillvalue=WHOLE_AXIS))
    return make("getitem", (b["X"],), root.line, index=index)


MOVE_RULES = RuleSet([
    Rule("t-of-t", ops.transpose(ops.transpose(X, axes=INNER), axes=AXES), build=compose_permutations,
         doc="permutations compose"),
    Rule("t-in-order", ops.transpose(X, axes=AXES), X, when=is_identity_permutation,
         doc="the identity permutation"),
    Rule("reshape-of-reshape",
         ops.reshape(ops.reshape(X), shape=SHAPE), ops.reshape(X, shape=SHAPE),
         doc="the row-major order is the same in every shape"),
    Rule("ravel-as-reshape", ops.ravel(X), build=reshape_x, doc="a canonical form for both"),
    Rule("flip-of-flip", ops.flip(ops.flip(X, axis=AXIS), axis=AXIS), X, doc="two reversals cancel"),
    Rule("squeeze-of-expand", ops.squeeze(ops.expand_dims(X, axis=AXIS), axis=AXIS), X,
         doc="the axes inserted are the ones dropped"),
    Rule("slice-of-slice", ops.getitem(ops.getitem(X, index=INNER), index=INDEX), build=compose_slices,
         when=are_size_independent_slices,
         doc="margins add, steps multiply"),
    Rule("broadcast-of-broadcast", ops.broadcast_to(ops.broadcast_to(X), shape=SHAPE),
         ops.broadcast_to(X, shape=SHAPE), doc="one broadcast suffices"),
])

# --------------------------------------------------------------------------- aggregates

_AGGREGATES = ("sum", "prod", "min", "max", "any", "all")


def _axes_before_transpose(b: Bindings) -> tuple[int, ...]:
    """Return the axes of X that the aggregate reduces."""
    return tuple(sorted(b["axes"][i] for i in b["axis"]))


def keeps_axis_order(root: Hop, b: Bindings) -> bool:
    """The remaining axes have the same order in X."""
    remaining = [a for i, a in enumerate(b["axes"]) if i not in b["axis"]]
    in_order = b["axes"] == tuple(range(len(b["axes"]))) if b["keepdims"] else remaining == sorted(remaining)
    return in_order or b["keepdims"] and not remaining


def keeps_memory_order(root: Hop, b: Bindings) -> bool:
    """The remaining axes have the same order in X, and X owns its memory or the order does not matter.

    NumPy iterates in another order if X has zero strides, as a broadcast argument may.
    """
    return keeps_axis_order(root, b) and (is_order_insensitive(root, b) or owns_memory(b["X"]))


def reduce_untransposed(root: Hop, b: Bindings) -> Hop:
    """Build the aggregate over the corresponding axes of X."""
    return make(root.op.name, (b["X"],), root.line, axis=_axes_before_transpose(b), keepdims=b["keepdims"])


def _combined_axes(inner: tuple[int, ...], outer: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Return the axes that two nested aggregates reduce, the inner one without keepdims."""
    remaining = [i for i in range(ndim) if i not in inner]
    return tuple(sorted((*inner, *(remaining[i] for i in outer))))


def reduces_contiguous_to_scalar(root: Hop, b: Bindings) -> bool:
    """The result is a scalar and X is contiguous: NumPy then sums pairwise, at least as accurately."""
    return root.meta.shape == () and owns_memory(b["X"])


def reduce_once(root: Hop, b: Bindings) -> Hop:
    """Build one aggregate over both sets of axes."""
    axis = _combined_axes(b["inner"], b["axis"], b["X"].meta.ndim)
    return make(root.op.name, (b["X"],), root.line, axis=axis, keepdims=False)


AGGREGATE_RULES = RuleSet([
    *(Rule(f"{name}-of-t", aggregate(name, ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
           build=reduce_untransposed, when=keeps_memory_order,
           doc="the aggregate names its axes; the transpose is redundant")
      for name in _AGGREGATES),
    Rule("sum-of-t-view", ops.sum(ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
         build=reduce_untransposed, when=keeps_axis_order, exactness="rounding",
         doc="the same for arguments and views; with zero strides the order of addition differs"),
    *(Rule(f"{name}-of-{name}",
           aggregate(name, aggregate(name, X, axis=INNER, keepdims=False), axis=AXIS, keepdims=False),
           build=reduce_once, when=is_order_insensitive, doc="one aggregate over both sets of axes")
      for name in _AGGREGATES),
    Rule("total-of-sum",
         ops.sum(single_use(ops.sum(X, axis=INNER, keepdims=False)), axis=AXIS, keepdims=False),
         build=reduce_once, when=reduces_contiguous_to_scalar, exactness="rounding",
         doc="one pairwise sum over everything; roundings differ, overflow of partial sums may"),
])

MOVE_AND_AGGREGATE_RULES = MOVE_RULES + AGGREGATE_RULES


A, B, STARTS, COLUMNS = Var("A"), Var("B"), Var("STARTS"), Var("COLUMNS")
SWAP = (1, 0)


def _sample_operand(x: Hop, shape: tuple[int, ...], b: Bindings, root: Hop) -> Hop:
    """Return the elements of `x`, broadcast to `shape`, at the positions."""
    starts, columns, line = b["STARTS"], b["COLUMNS"], root.line
    if x.meta.size == 1:
        return x if x.meta.shape == () else make("reshape", (x,), line, shape=())
    if x.meta.shape == shape:
        return make("sampled", (x, starts, columns), line)
    if x.meta.shape[-1] == 1:
        return make("by_row", (make("reshape", (x,), line, shape=shape[:1]), starts, columns), line)
    return make("by_column", (make("reshape", (x,), line, shape=shape[1:]), columns), line)


def is_array_cell(root: Hop, b: Bindings) -> bool:
    """X is computed element-wise, and at least one operand is not a scalar."""
    x = b["X"]
    return x.op.kind is Kind.CELL and any(i.meta.size > 1 for i in x.inputs)


def apply_to_samples(root: Hop, b: Bindings) -> Hop:
    """Build the operator applied to its operands at the positions."""
    x = b["X"]
    operands = tuple(_sample_operand(i, x.meta.shape, b, root) for i in x.inputs)
    return make(x.op.name, operands, x.line, **dict(x.attrs))


def repeats_several_elements(root: Hop, b: Bindings) -> bool:
    """X has more than one element."""
    return bool(b["X"].meta.size > 1)


def sample_repeated_values(root: Hop, b: Bindings) -> Hop:
    """Build the elements of X at the positions, broadcast."""
    return _sample_operand(b["X"], root.inputs[0].meta.shape, b, root)


def can_transpose_operands(root: Hop, b: Bindings) -> bool:
    """X is a matrix that is computed element-wise or broadcast."""
    x = b["X"]
    return x.meta.ndim == 2 and (x.op.kind is Kind.CELL or x.op.name == "broadcast_to")


def sample_transposed(root: Hop, b: Bindings) -> Hop:
    """Build the samples of X with its operands transposed."""
    x = b["X"]
    inputs = tuple(_transpose_operand(i, x.line) for i in x.inputs)
    attrs = dict(x.attrs) | ({"shape": x.meta.shape[::-1]} if x.op.name == "broadcast_to" else {})
    return make("sampled", (make(x.op.name, inputs, x.line, **attrs), b["STARTS"], b["COLUMNS"]), root.line)


def _transpose_operand(x: Hop, line: Any) -> Hop:
    """Return the transpose of `x`, an operand of a result of two dimensions."""
    if x.meta.ndim == 0:
        return x
    if x.meta.ndim == 1:
        return make("reshape", (x,), line, shape=(x.meta.size, 1))
    if x.op.name == "transpose":
        return x.inputs[0]
    return make("transpose", (x,), line, axes=SWAP)


# --------------------------------------------------------------------------- products at positions


def sample_products(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with matrix products that are only sampled computed at the sampled positions only.

    This is a sampled dense-dense matrix product (SDDMM). The full product is kept if it has other users or
    is cheaper.
    """
    sampled: dict[Hop, Hop] = {}
    users = uses(roots)
    for matmul in [h for h in users if h.op.name == "matmul" and _is_matrix_product(h)]:
        samples = _sampling_users(matmul, users, roots)
        if samples and _is_cheaper_sampled(matmul, samples):
            for sample in samples:
                after = _build_sampled_product(sample)
                check_type_unchanged(SAMPLED_PRODUCT_RULE, sample, after)
                if hook(SAMPLED_PRODUCT_RULE, sample, after):
                    sampled[sample] = after
    return substitute(roots, sampled) if sampled else roots


def _is_matrix_product(product: Hop) -> bool:
    return all(i.meta.ndim == 2 and i.meta.dtype.kind == "f" for i in product.inputs)


def _sampling_users(product: Hop, users: Mapping[Hop, Sequence[Hop]], roots: tuple[Hop, ...]) -> list[Hop]:
    """Return the samples of `product`; none if it has any other user."""
    samples: list[Hop] = []
    for view in (product, *(u for u in users[product] if _is_matrix_transpose(u))):
        users_of_view = [u for u in users[view]
                         if u is not view and not (view is product and _is_matrix_transpose(u))]
        if view in roots or any(u.op.name != "sampled" or u.inputs[0] is not view for u in users_of_view):
            return []
        samples += users_of_view
    return list(dict.fromkeys(samples))


def _is_matrix_transpose(hop: Hop) -> bool:
    return hop.op.name == "transpose" and hop.attr("axes") == SWAP


def _is_cheaper_sampled(product: Hop, samples: list[Hop]) -> bool:
    """Return whether the samples of `product` are cheaper than the full product.

    BLAS is faster per element, but the full product is written to new memory and read again.
    """
    (rows, depth), columns = product.inputs[0].meta.shape, product.inputs[1].meta.shape[1]
    size, machine = product.meta.dtype.itemsize, REFERENCE_MACHINE
    computing = 2.0 * rows * columns * depth * size / 8 / machine.product
    nbytes = rows * columns * size
    memory = nbytes * machine.fault + machine.writing(nbytes, nbytes) + machine.reading(nbytes, nbytes)
    sampled = sum(flops(_build_sampled_product(s)) * size / 8 - flops(s) for s in samples)
    return sampled * machine.unit < computing + memory


def _build_sampled_product(sample: Hop) -> Hop:
    """Return `sample`, of a matrix product, as dot products of rows and columns of the factors."""
    product, starts, columns = sample.inputs
    line = sample.line
    if _is_matrix_transpose(product):  # (A @ B).T is B.T @ A.T
        left, right = product.inputs[0].inputs
        return make("sampled_product", (_transpose_operand(right, line), left, starts, columns), line)
    left, right = product.inputs
    return make("sampled_product", (left, _transpose_operand(right, line), starts, columns), line)


SAMPLED_PRODUCT_RULE = Rule(
    "sampled-of-matmul", ops.sampled(ops.matmul(A, B), STARTS, COLUMNS), whole_dag=sample_products,
    exactness="rounding",
    doc="the product may be far larger than the samples; the order of addition differs")
SAMPLING_RULES = RuleSet([
    Rule("sampled-of-cell", ops.sampled(X, STARTS, COLUMNS), build=apply_to_samples, when=is_array_cell,
         doc="an element depends only on the operands' elements at its position"),
    Rule("sampled-of-broadcast", ops.sampled(ops.broadcast_to(X), STARTS, COLUMNS),
         build=sample_repeated_values, when=repeats_several_elements,
         doc="samples of a broadcast value are samples of the value"),
    Rule("sampled-of-t", ops.sampled(ops.transpose(X, axes=SWAP), STARTS, COLUMNS), build=sample_transposed,
         when=can_transpose_operands, doc="operands are transposed instead, as views"),
    SAMPLED_PRODUCT_RULE,
])


# --------------------------------------------------------------------------- slices of element-wise values
#: Additions that take as long as writing and reading one byte (measured): of values that fit the cache,
#: of larger ones, and the size in bytes from which on they are larger.
ADDITIONS_PER_CACHED_BYTE, ADDITIONS_PER_UNCACHED_BYTE, MIN_UNCACHED_BYTES = 1.8, 3.0, 4 << 20
MAX_CHECKED_SHAPES = 256  # small shapes for which the coverage by slices is checked


class _SlicedCells(NamedTuple):
    """A value, its slices with their margins, and the element-wise operators it is computed by."""

    value: Hop
    slices: Mapping[Hop, Margins]
    cells: frozenset[Hop]


def slice_operands(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with slices pushed through element-wise operators, if that is cheaper."""
    refused: set[Hop] = set()
    while (sliced := _find_profitable(roots, refused)) is not None:
        refused.add(sliced.value)
        after = {view: _push_slice(sliced, view) for view in sliced.slices}
        for view, cell in after.items():
            check_type_unchanged(SLICE_RULE, view, cell)
        if all([hook(SLICE_RULE, view, cell) for view, cell in after.items()]):
            roots = substitute(roots, after)
    return roots


def _find_profitable(roots: tuple[Hop, ...], refused: set[Hop]) -> _SlicedCells | None:
    """Return the first value, operands first, whose slices are cheaper computed separately."""
    users = uses(roots)
    for hop in topo(roots):
        if hop.op.kind is Kind.CELL and hop.meta.shape and hop not in roots and hop not in refused:
            sliced = _collect_sliced_cells(hop, users, roots)
            if sliced is not None and _is_profitable(sliced) and _covers_all_warnings(sliced):
                return sliced
    return None


def _collect_sliced_cells(
    hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop],
) -> _SlicedCells | None:
    """Return the element-wise operators and the slices of `hop`; None if it has other users."""
    slices: dict[Hop, Margins] = {}
    for view in users[hop]:
        cut = margins(view)
        if cut is None or view in roots or not all(map(has_recipe, users[view])):
            return None
        slices[view] = cut
    cells: set[Hop] = set()
    stack = [hop]
    while stack:
        cell = stack.pop()
        if cell.op.kind is not Kind.CELL or cell.meta.shape == ():
            continue
        if not has_recipe(cell) or cell.op.transcendental or depends_on_position(cell):
            return None
        cells.add(cell)
        stack += cell.inputs
    only_used_inside = all(c is hop or c not in roots and cells.issuperset(users[c]) for c in cells)
    return _SlicedCells(hop, slices, frozenset(cells)) if slices and only_used_inside else None


def _is_profitable(sliced: _SlicedCells) -> bool:
    """Return whether recomputing elements of several slices is cheaper than writing and reading all once."""
    meta = sliced.value.meta
    work = sum(flops(c) for c in sliced.cells) / meta.size * (len(sliced.slices) - 1)
    cached = meta.nbytes < MIN_UNCACHED_BYTES
    per_byte = ADDITIONS_PER_CACHED_BYTE if cached else ADDITIONS_PER_UNCACHED_BYTE
    return work <= per_byte * meta.dtype.itemsize


def _covers_all_warnings(sliced: _SlicedCells) -> bool:
    """Return whether every element that NumPy may warn of is in a slice."""
    if not any(map(possible_flags, sliced.cells)):
        return True
    cuts = list(sliced.slices.values())
    ranges = []
    for axis in zip(*cuts, strict=True):
        least = max(first + last for first, last in axis) + 1
        # above these sizes the interior is in every slice: one size represents all larger ones
        ranges.append(range(least, max(f for f, _ in axis) + max(e for _, e in axis) + 2))
    sizes = list(product(*ranges)) if np.prod([len(r) for r in ranges]) <= MAX_CHECKED_SHAPES else []
    return bool(sizes) and all(_covers(cuts, shape) for shape in sizes)


def _covers(cuts: Sequence[Margins], shape: tuple[int, ...]) -> bool:
    """Return whether every element of an array of `shape` is in one of its slices."""
    covered = np.zeros(shape, bool)
    for cut in cuts:
        covered[tuple(slice(first, n - last) for (first, last), n in zip(cut, shape, strict=True))] = True
    return bool(covered.all())


def _push_slice(sliced: _SlicedCells, view: Hop) -> Hop:
    """Build the element-wise operators of `view`, applied to slices of their operands."""
    shape, cut = sliced.value.meta.shape, sliced.slices[view]
    operands = {i for c in sliced.cells for i in c.inputs}
    pushed: dict[Hop, Hop] = {}
    for hop in topo((sliced.value,)):
        if hop in sliced.cells:
            pushed[hop] = make(hop.op.name, [pushed[i] for i in hop.inputs], hop.line, **dict(hop.attrs))
        elif hop in operands:
            pushed[hop] = _slice_operand(hop, shape, cut)
    return pushed[sliced.value]


def _slice_operand(hop: Hop, shape: tuple[int, ...], cut: Margins) -> Hop:
    """Build the slice of `hop`, an operand broadcast to `shape`, that corresponds to the margins `cut`."""
    operand_shape = hop.meta.shape
    missing_axes = len(shape) - len(operand_shape)
    trailing = zip(operand_shape, shape[missing_axes:], cut[missing_axes:], strict=True)
    own_cut = [(0, 0) if n != length else c for n, length, c in trailing]
    if not any(map(any, own_cut)):
        return hop
    inner = sections(hop)
    kept_sections = [Section(*c, 1) for c in own_cut]
    if inner is not None:  # compose with an existing slice
        kept_sections = [s.then(t) for s, t in zip(inner, kept_sections, strict=True)]
        hop = hop.inputs[0]
    return make("getitem", (hop,), hop.line, index=tuple(s.item for s in kept_sections))


SLICE_RULE = Rule(
    "slice-of-cells", ops.getitem(Var("X")), whole_dag=slice_operands,
    doc="a few element-wise operators are recomputed for every slice instead of stored and read again")

SLICE_RULES = RuleSet([SLICE_RULE])


# --------------------------------------------------------------------------- rolls

MAX_RING_RATIO = 1.5  # elements of a copy with its halo, relative to those without


def compose_rolls(root: Hop, b: Bindings) -> Hop:
    """Build the roll that composes the two."""
    shifts = tuple(m + n for m, n in zip(b["inner"], b["shifts"], strict=True))
    return make("roll", (b["X"],), root.line, shifts=shifts)


def replace_rolls_by_rings(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with rolls read by element-wise operators replaced by slices of one copy with a halo."""
    replacements: dict[Hop, Hop] = {}
    for base, rolls in _find_rolls(roots).items():
        ring = _build_ring(base, rolls)
        if ring is None:
            continue
        after = {r: make("roll", (ring,), r.line, shifts=r.attr("shifts")) for r in rolls}
        for roll, view in after.items():
            check_type_unchanged(RING_RULE, roll, view)
        if all([hook(RING_RULE, roll, view) for roll, view in after.items()]):
            replacements |= after
    return _replace_rolls(roots, replacements) if replacements else roots


def _find_rolls(roots: tuple[Hop, ...]) -> dict[Hop, list[Hop]]:
    """Return the rolls that only element-wise operators read, by the rolled value.

    Rolls by zero are excluded: they equal the rolled value, and operators of both might not stay
    element-wise.
    """
    users = uses(roots)
    rolls: dict[Hop, list[Hop]] = {}
    for hop in topo(roots):
        is_roll = hop.op.name == "roll" and any(hop.attr("shifts")) and not is_roll_of_ring(hop)
        if is_roll and hop not in roots and all(map(_is_elementwise_reader, users[hop])):
            rolls.setdefault(hop.inputs[0], []).append(hop)
    return rolls


def _is_elementwise_reader(user: Hop) -> bool:
    """Return whether `user` is an element-wise operator that kernels support."""
    return user.op.kind is Kind.CELL and user.op.name != "ring" and has_recipe(user)


def _build_ring(base: Hop, rolls: Sequence[Hop]) -> Hop | None:
    """Build the copy of `base` with a halo that contains all `rolls`; None if the halo is too large.

    Axes of length 1 are excluded: results might have another memory order.
    """
    shape = base.meta.shape
    shifts = list(zip(*(r.attr("shifts") for r in rolls), strict=True))
    widths: RingWidths = tuple((max(0, *along), max(0, *(-s for s in along))) for along in shifts)
    ring_size = prod(n + sum(pair) for n, pair in zip(shape, widths, strict=True))
    if min(shape) < 2 or ring_size > MAX_RING_RATIO * base.meta.size:
        return None
    ring = make("ring", (base,), rolls[0].line, widths=widths)
    return ring if has_recipe(ring) else None


def _replace_rolls(roots: tuple[Hop, ...], replacements: Mapping[Hop, Hop]) -> tuple[Hop, ...]:
    """Return `roots` with rolls replaced; operators read the unrolled value from the copy, too.

    The latter only if the value has the same memory order as the copy.
    """
    copies = {}
    for roll, view in replacements.items():
        base = roll.inputs[0]
        if base.op.kind is Kind.LEAF or owns_memory(base):
            copies[base] = make("roll", view.inputs, roll.line, shifts=(0,) * base.meta.ndim)
    new: dict[Hop, Hop] = {}

    def rebuild(hop: Hop) -> Hop:
        stack = [hop]
        while stack:
            top = stack[-1]
            pending = [i for i in _operands(top) if i not in new]
            if top in new or not pending:
                stack.pop()
                if top not in new:
                    inputs = [new[i] for i in _operands(top)]
                    same = all(a is b for a, b in zip(inputs, top.inputs, strict=True))
                    new[top] = top if same else make(top.op.name, inputs, top.line, **dict(top.attrs))
            else:
                stack += pending
        return new[hop]

    def _operands(hop: Hop) -> list[Hop]:
        replaced = [replacements.get(i, i) for i in hop.inputs]
        return [copies.get(i, i) for i in replaced] if _is_elementwise_reader(hop) else replaced

    return tuple([rebuild(r) for r in roots])


RING_RULE = Rule(
    "rolls-of-ring", ops.roll(Var("X")), whole_dag=replace_rolls_by_rings,
    doc="rolls read by element-wise operators are slices of one copy with a periodic halo")

ROLL_RULES = RuleSet([
    Rule("roll-of-roll", ops.roll(ops.roll(Var("X"), shifts=AttrVar("inner")), shifts=AttrVar("shifts")),
         build=compose_rolls, doc="shifts add"),
])
RING_RULES = RuleSet([RING_RULE])
