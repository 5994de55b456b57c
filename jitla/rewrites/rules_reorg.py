"""Rewrite rules of reorganisations: transposes, slices, rolls, and operations at stored positions."""

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
from jitla.rewrites.conditions import any_order, owns
from jitla.rewrites.rule import App, AttrVar, Bound, Hook, Rule, RuleSet, Var, check, once, ops

X = Var("X")
AXIS, KEEPDIMS, AXES, INNER, SHAPE, INDEX = map(
    AttrVar, ("axis", "keepdims", "axes", "inner", "shape", "index"))

# --------------------------------------------------------------------------- reorganisations


def one_permutation(root: Hop, b: Bound) -> Hop:
    """Build the transpose that does what the two do one after the other."""
    axes = tuple(b["inner"][i] for i in b["axes"])
    return make("transpose", (b["X"],), root.line, axes=axes)


def in_order(root: Hop, b: Bound) -> bool:
    """The axes stay where they are."""
    return bool(b["axes"] == tuple(range(len(b["axes"]))))


def in_root_shape(root: Hop, b: Bound) -> Hop:
    """Build X in the shape of the result."""
    return make("reshape", (b["X"],), root.line, shape=root.meta.shape)


def plain_slices(root: Hop, b: Bound) -> bool:
    """Both leave out elements at the ends, or between, as many whatever the sizes are."""
    return sections_of_index(b["inner"]) is not None and sections_of_index(b["index"]) is not None


def one_slice(root: Hop, b: Bound) -> Hop:
    """Build the slice that does what the two do one after the other."""
    both = [sections_of_index(b[name]) or [] for name in ("inner", "index")]
    index = tuple(inner.then(outer).item for inner, outer in zip_longest(*both, fillvalue=WHOLE_AXIS))
    return make("getitem", (b["X"],), root.line, index=index)


MOVES = RuleSet([
    Rule("t-of-t", ops.transpose(ops.transpose(X, axes=INNER), axes=AXES), build=one_permutation,
         doc="two permutations are one"),
    Rule("t-in-order", ops.transpose(X, axes=AXES), X, when=in_order, doc="nothing moves"),
    Rule("reshape-of-reshape",
         ops.reshape(ops.reshape(X), shape=SHAPE), ops.reshape(X, shape=SHAPE),
         doc="the row-major order is the same in every shape"),
    Rule("ravel-as-reshape", ops.ravel(X), build=in_root_shape, doc="one form for both"),
    Rule("flip-of-flip", ops.flip(ops.flip(X, axis=AXIS), axis=AXIS), X, doc="reversed twice"),
    Rule("squeeze-of-expand", ops.squeeze(ops.expand_dims(X, axis=AXIS), axis=AXIS), X,
         doc="the axes inserted are the ones dropped"),
    Rule("slice-of-slice", ops.getitem(ops.getitem(X, index=INNER), index=INDEX), build=one_slice,
         when=plain_slices,
         doc="what is left out at both ends adds up, steps multiply"),
    Rule("broadcast-of-broadcast", ops.broadcast_to(ops.broadcast_to(X), shape=SHAPE),
         ops.broadcast_to(X, shape=SHAPE), doc="repeated once is enough"),
])

# --------------------------------------------------------------------------- aggregates

_AGGREGATES = ("sum", "prod", "min", "max", "any", "all")


def _moved_axes(b: Bound) -> tuple[int, ...]:
    """The axes of X that the aggregate joins."""
    return tuple(sorted(b["axes"][i] for i in b["axis"]))


def axes_follow(root: Hop, b: Bound) -> bool:
    """The axes that remain have the same order in X."""
    rest = [a for i, a in enumerate(b["axes"]) if i not in b["axis"]]
    kept = b["axes"] == tuple(range(len(b["axes"]))) if b["keepdims"] else rest == sorted(rest)
    return kept or b["keepdims"] and not rest


def same_order(root: Hop, b: Bound) -> bool:
    """The axes that remain have the same order in X, which is fresh memory, unless any order will do.

    It does not where X has zero strides, as a broadcast argument may.
    """
    return axes_follow(root, b) and (any_order(root, b) or owns(b["X"]))


def joined_before(root: Hop, b: Bound) -> Hop:
    """Build the aggregate of X over the axes as they are in X."""
    return make(root.op.name, (b["X"],), root.line, axis=_moved_axes(b), keepdims=b["keepdims"])


def _all_axes(inner: tuple[int, ...], outer: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Axes of the operand that two aggregates join, the inner one without keepdims."""
    left = [i for i in range(ndim) if i not in inner]
    return tuple(sorted((*inner, *(left[i] for i in outer))))


def total_of_fresh(root: Hop, b: Bound) -> bool:
    """All is joined and X contiguous: NumPy sums pairwise then, which is at least as exact."""
    return root.meta.shape == () and owns(b["X"])


def joined_once(root: Hop, b: Bound) -> Hop:
    """Build one aggregate over both sets of axes."""
    axis = _all_axes(b["inner"], b["axis"], b["X"].meta.ndim)
    return make(root.op.name, (b["X"],), root.line, axis=axis, keepdims=False)


def _agg(name: str, *args: App | Var, **attrs: object) -> App:
    built: App = getattr(ops, name)(*args, **attrs)
    return built


AGGREGATES = RuleSet([
    *(Rule(f"{name}-of-t", _agg(name, ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
           build=joined_before, when=same_order,
           doc="the aggregate names its axes, no need to move them")
      for name in _AGGREGATES),
    Rule("sum-of-t-view", ops.sum(ops.transpose(X, axes=AXES), axis=AXIS, keepdims=KEEPDIMS),
         build=joined_before, when=axes_follow, exactness="rounding",
         doc="the same for arguments and views, whose strides may be zero: then the order differs"),
    *(Rule(f"{name}-of-{name}",
           _agg(name, _agg(name, X, axis=INNER, keepdims=False), axis=AXIS, keepdims=False),
           build=joined_once, when=any_order, doc="one aggregate over both sets of axes")
      for name in _AGGREGATES),
    Rule("total-of-sum",
         ops.sum(once(ops.sum(X, axis=INNER, keepdims=False)), axis=AXIS, keepdims=False),
         build=joined_once, when=total_of_fresh, exactness="rounding",
         doc="one pairwise sum over everything; roundings differ, overflow of partial sums may"),
])

STRUCTURE = MOVES + AGGREGATES


A, B, STARTS, COLUMNS = Var("A"), Var("B"), Var("STARTS"), Var("COLUMNS")
SWAP = (1, 0)


def _at(x: Hop, shape: tuple[int, ...], b: Bound, root: Hop) -> Hop:
    """Return what `x`, broadcast to `shape`, has at the positions."""
    starts, columns, line = b["STARTS"], b["COLUMNS"], root.line
    if x.meta.size == 1:
        return x if x.meta.shape == () else make("reshape", (x,), line, shape=())
    if x.meta.shape == shape:
        return make("sampled", (x, starts, columns), line)
    if x.meta.shape[-1] == 1:
        return make("by_row", (make("reshape", (x,), line, shape=shape[:1]), starts, columns), line)
    return make("by_column", (make("reshape", (x,), line, shape=shape[1:]), columns), line)


def element_wise(root: Hop, b: Bound) -> bool:
    """X is computed element by element, and an operand of its shape or a line of it stays an array."""
    x = b["X"]
    return x.op.kind is Kind.CELL and any(i.meta.size > 1 for i in x.inputs)


def cell_of_samples(root: Hop, b: Bound) -> Hop:
    """Build the operation on what its operands have at the positions."""
    x = b["X"]
    return make(x.op.name, tuple(_at(i, x.meta.shape, b, root) for i in x.inputs), x.line, **dict(x.attrs))


def repeated(root: Hop, b: Bound) -> bool:
    """X is more than one element, repeated."""
    return bool(b["X"].meta.size > 1)


def line_of_samples(root: Hop, b: Bound) -> Hop:
    """Build what the repeated values have at the positions."""
    return _at(b["X"], root.inputs[0].meta.shape, b, root)


def turnable(root: Hop, b: Bound) -> bool:
    """X is computed element by element, or repeats a line, and none of its operands is transposed."""
    x = b["X"]
    return x.meta.ndim == 2 and (x.op.kind is Kind.CELL or x.op.name == "broadcast_to")


def sample_of_turned(root: Hop, b: Bound) -> Hop:
    """Build the elements of X with its operands transposed."""
    x = b["X"]
    inputs = tuple(_turned(i, x.line) for i in x.inputs)
    attrs = dict(x.attrs) | ({"shape": x.meta.shape[::-1]} if x.op.name == "broadcast_to" else {})
    return make("sampled", (make(x.op.name, inputs, x.line, **attrs), b["STARTS"], b["COLUMNS"]), root.line)


def _turned(x: Hop, line: Any) -> Hop:
    """Return the transposed of `x`, which takes part in a result of two dimensions."""
    if x.meta.ndim == 0:
        return x
    if x.meta.ndim == 1:
        return make("reshape", (x,), line, shape=(x.meta.size, 1))
    if x.op.name == "transpose":
        return x.inputs[0]
    return make("transpose", (x,), line, axes=SWAP)


# --------------------------------------------------------------------------- products at positions


def sample_products(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with products that are asked for at stored positions only computed there.

    A product is formed where something else needs all of it, and where that is cheaper.
    """
    made: dict[Hop, Hop] = {}
    users = uses(roots)
    for matmul in [h for h in users if h.op.name == "matmul" and _is_of_matrices(h)]:
        samples = _samples(matmul, users, roots)
        if samples and _costs_less(matmul, samples):
            for sample in samples:
                after = _product_at(sample)
                check(SAMPLED_PRODUCT, sample, after)
                if hook(SAMPLED_PRODUCT, sample, after):
                    made[sample] = after
    return substitute(roots, made) if made else roots


def _is_of_matrices(product: Hop) -> bool:
    return all(i.meta.ndim == 2 and i.meta.dtype.kind == "f" for i in product.inputs)


def _samples(product: Hop, users: Mapping[Hop, Sequence[Hop]], roots: tuple[Hop, ...]) -> list[Hop]:
    """Return what asks for elements of `product` only; nothing if something asks for it all."""
    found: list[Hop] = []
    for view in (product, *(u for u in users[product] if _swaps(u))):
        asking = [u for u in users[view] if u is not view and not (view is product and _swaps(u))]
        if view in roots or any(u.op.name != "sampled" or u.inputs[0] is not view for u in asking):
            return []
        found += asking
    return list(dict.fromkeys(found))


def _swaps(hop: Hop) -> bool:
    return hop.op.name == "transpose" and hop.attr("axes") == SWAP


def _costs_less(product: Hop, samples: list[Hop]) -> bool:
    """Tell whether elements of `product` are computed one by one in less time than all of them.

    BLAS takes less for each, but a product has to be written to new memory and read again.
    """
    (rows, depth), columns = product.inputs[0].meta.shape, product.inputs[1].meta.shape[1]
    size, machine = product.meta.dtype.itemsize, REFERENCE_MACHINE
    flat = 2.0 * rows * columns * depth * size / 8 / machine.product
    whole = rows * columns * size
    formed = flat + whole * machine.fault + machine.writing(whole, whole) + machine.reading(whole, whole)
    apart = sum(flops(_product_at(s)) * size / 8 - flops(s) for s in samples)
    return apart * machine.unit < formed


def _product_at(sample: Hop) -> Hop:
    """Return the products that `sample` asks for: of rows of one factor with columns of the other."""
    product, starts, columns = sample.inputs
    if _swaps(product):  # (A @ B).T is B.T @ A.T
        across, down = product.inputs[0].inputs
        return make("sampled_product", (_turned(down, sample.line), across, starts, columns), sample.line)
    left, right = product.inputs
    return make("sampled_product", (left, _turned(right, sample.line), starts, columns), sample.line)


SAMPLED_PRODUCT = Rule(
    "sampled-of-matmul", ops.sampled(ops.matmul(A, B), STARTS, COLUMNS), across=sample_products,
    exactness="rounding",
    doc="the whole may be far larger than what is read of it; terms are added in another order")
STORED = RuleSet([
    Rule("sampled-of-cell", ops.sampled(X, STARTS, COLUMNS), build=cell_of_samples, when=element_wise,
         doc="an element needs the elements at its place only"),
    Rule("sampled-of-broadcast", ops.sampled(ops.broadcast_to(X), STARTS, COLUMNS), build=line_of_samples,
         when=repeated, doc="the line that is repeated has them all"),
    Rule("sampled-of-t", ops.sampled(ops.transpose(X, axes=SWAP), STARTS, COLUMNS), build=sample_of_turned,
         when=turnable, doc="operands are transposed, which moves nothing"),
    SAMPLED_PRODUCT,
])


# Additions that are made for every byte that is not written and read: measured of values that stay in a
# cache, and of larger ones.
PER_BYTE, PER_FAR_BYTE, FAR = 1.8, 3.0, 4 << 20
MOST_SIZES = 256  # small shapes for which it is looked what slices leave out


class _Found(NamedTuple):
    """A value, the slices of it, and the cells it consists of."""

    value: Hop
    slices: Mapping[Hop, Margins]
    cells: frozenset[Hop]


def slice_operands(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with slices of cells made cells of slices, where that is cheaper."""
    refused: set[Hop] = set()
    while (found := _improvable(roots, refused)) is not None:
        refused.add(found.value)
        after = {view: _pushed(found, view) for view in found.slices}
        for view, cell in after.items():
            check(SLICED, view, cell)
        if all([hook(SLICED, view, cell) for view, cell in after.items()]):
            roots = substitute(roots, after)
    return roots


def _improvable(roots: tuple[Hop, ...], refused: set[Hop]) -> _Found | None:
    """Return the first value, operands first, whose slices could be cheaper."""
    users = uses(roots)
    for hop in topo(roots):
        if hop.op.kind is Kind.CELL and hop.meta.shape and hop not in roots and hop not in refused:
            found = _sliced(hop, users, roots)
            if found is not None and _pays(found) and _misses_nothing(found):
                return found
    return None


def _sliced(hop: Hop, users: Mapping[Hop, Sequence[Hop]], roots: Sequence[Hop]) -> _Found | None:
    """Return the cells of `hop` and its slices if it is used for nothing but cells of these."""
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
        if not has_recipe(cell) or cell.op.transcendental or _looks_at_places(cell):
            return None
        cells.add(cell)
        stack += cell.inputs
    alone = all(c is hop or c not in roots and cells.issuperset(users[c]) for c in cells)
    return _Found(hop, slices, frozenset(cells)) if slices and alone else None


def _looks_at_places(cell: Hop) -> bool:
    """Say whether NumPy may cast an element by where it lies: a float that no integer holds."""
    whole = cell.op.name == "cast" and cell.meta.dtype.kind in "iu"
    return whole and cell.inputs[0].meta.dtype.kind in "fc"


def _pays(found: _Found) -> bool:
    """Say whether computing some elements several times takes less than writing and reading all once."""
    meta = found.value.meta
    work = sum(flops(c) for c in found.cells) / meta.size * (len(found.slices) - 1)
    return work <= (PER_FAR_BYTE if meta.nbytes >= FAR else PER_BYTE) * meta.dtype.itemsize


def _misses_nothing(found: _Found) -> bool:
    """Say whether NumPy could warn of no element that no slice has."""
    if not any(map(possible_flags, found.cells)):
        return True
    cuts = list(found.slices.values())
    ranges = []
    for axis in zip(*cuts, strict=True):
        least = max(first + last for first, last in axis) + 1
        # from here on, what lies between the margins of all is in every slice, and no size is different
        ranges.append(range(least, max(f for f, _ in axis) + max(e for _, e in axis) + 2))
    sizes = list(product(*ranges)) if np.prod([len(r) for r in ranges]) <= MOST_SIZES else []
    return bool(sizes) and all(_covered(cuts, shape) for shape in sizes)


def _covered(cuts: Sequence[Margins], shape: tuple[int, ...]) -> bool:
    """Say whether every element of an array of `shape` is in one of its slices."""
    seen = np.zeros(shape, bool)
    for cut in cuts:
        seen[tuple(slice(first, n - last) for (first, last), n in zip(cut, shape, strict=True))] = True
    return bool(seen.all())


def _pushed(found: _Found, view: Hop) -> Hop:
    """Build the cells of `view`, on slices of what the value is computed from."""
    shape, cut = found.value.meta.shape, found.slices[view]
    operands = {i for c in found.cells for i in c.inputs}
    made: dict[Hop, Hop] = {}
    for hop in topo((found.value,)):
        if hop in found.cells:
            made[hop] = make(hop.op.name, [made[i] for i in hop.inputs], hop.line, **dict(hop.attrs))
        elif hop in operands:
            made[hop] = _cut(hop, shape, cut)
    return made[found.value]


def _cut(hop: Hop, shape: tuple[int, ...], cut: Margins) -> Hop:
    """Build the part of `hop`, an operand of cells of `shape`, that the slice needs of it."""
    mine = hop.meta.shape
    behind = len(shape) - len(mine)
    own = [(0, 0) if n != all_ else c for n, all_, c in zip(mine, shape[behind:], cut[behind:], strict=True)]
    if not any(map(any, own)):
        return hop
    inner = sections(hop)
    taken = [Section(*c, 1) for c in own]
    if inner is not None:  # a slice of a slice
        taken = [s.then(t) for s, t in zip(inner, taken, strict=True)]
        hop = hop.inputs[0]
    return make("getitem", (hop,), hop.line, index=tuple(s.item for s in taken))


SLICED = Rule(
    "slice-of-cells", ops.getitem(Var("X")), across=slice_operands,
    doc="few cells are computed anew for every slice rather than written to memory and read again")

SLICES = RuleSet([SLICED])


MOST = 1.5  # elements of a copy with its edges, over those without


def rolled_once(root: Hop, b: Bound) -> Hop:
    """Build the roll that does what the two do one after the other."""
    shifts = tuple(m + n for m, n in zip(b["inner"], b["shifts"], strict=True))
    return make("roll", (b["X"],), root.line, shifts=shifts)


def ring_rolls(roots: tuple[Hop, ...], hook: Hook) -> tuple[Hop, ...]:
    """Return `roots` with rolls that cells read made parts of a copy with edges."""
    turned: dict[Hop, Hop] = {}
    for base, rolls in _rolls(roots).items():
        ring = _ring(base, rolls)
        if ring is None:
            continue
        after = {r: make("roll", (ring,), r.line, shifts=r.attr("shifts")) for r in rolls}
        for roll, view in after.items():
            check(RINGED, roll, view)
        if all([hook(RINGED, roll, view) for roll, view in after.items()]):
            turned |= after
    return _rebuilt(roots, turned) if turned else roots


def _rolls(roots: tuple[Hop, ...]) -> dict[Hop, list[Hop]]:
    """Return the rolls that nobody but cells reads, by what is rolled.

    One by nothing would be the same as what is rolled, and cells of both might be no cells in the end.
    """
    users = uses(roots)
    found: dict[Hop, list[Hop]] = {}
    for hop in topo(roots):
        turns = hop.op.name == "roll" and any(hop.attr("shifts")) and not is_roll_of_ring(hop)
        if turns and hop not in roots and all(map(_reads, users[hop])):
            found.setdefault(hop.inputs[0], []).append(hop)
    return found


def _reads(user: Hop) -> bool:
    """Tell whether a kernel reads what `user` does element by element."""
    return user.op.kind is Kind.CELL and user.op.name != "ring" and has_recipe(user)


def _ring(base: Hop, rolls: Sequence[Hop]) -> Hop | None:
    """Build the copy that all `rolls` of `base` are parts of; None where edges are too much of it.

    With an axis of length 1 results could lie in another order.
    """
    shape = base.meta.shape
    along = list(zip(*(r.attr("shifts") for r in rolls), strict=True))
    widths: RingWidths = tuple((max(0, *each), max(0, *(-s for s in each))) for each in along)
    whole = prod(n + sum(pair) for n, pair in zip(shape, widths, strict=True))
    if min(shape) < 2 or whole > MOST * base.meta.size:
        return None
    ring = make("ring", (base,), rolls[0].line, widths=widths)
    return ring if has_recipe(ring) else None


def _rebuilt(roots: tuple[Hop, ...], turned: Mapping[Hop, Hop]) -> tuple[Hop, ...]:
    """Return `roots` with rolls `turned`; cells find in the copy what was rolled, too, if it lies alike."""
    middle = {}
    for roll, view in turned.items():
        base = roll.inputs[0]
        if base.op.kind is Kind.LEAF or owns(base):
            middle[base] = make("roll", view.inputs, roll.line, shifts=(0,) * base.meta.ndim)
    new: dict[Hop, Hop] = {}

    def done(hop: Hop) -> Hop:
        stack = [hop]
        while stack:
            top = stack[-1]
            waiting = [i for i in _operands(top) if i not in new]
            if top in new or not waiting:
                stack.pop()
                if top not in new:
                    inputs = [new[i] for i in _operands(top)]
                    same = all(a is b for a, b in zip(inputs, top.inputs, strict=True))
                    new[top] = top if same else make(top.op.name, inputs, top.line, **dict(top.attrs))
            else:
                stack += waiting
        return new[hop]

    def _operands(hop: Hop) -> list[Hop]:
        seen = [turned.get(i, i) for i in hop.inputs]
        return [middle.get(i, i) for i in seen] if _reads(hop) else seen

    return tuple([done(r) for r in roots])


RINGED = Rule(
    "rolls-of-ring", ops.roll(Var("X")), across=ring_rolls,
    doc="rolls that cells read are parts of one copy that has opposite edges around it")

ROLLS = RuleSet([
    Rule("roll-of-roll", ops.roll(ops.roll(Var("X"), shifts=AttrVar("inner")), shifts=AttrVar("shifts")),
         build=rolled_once, doc="shifts add up"),
])
RINGS = RuleSet([RINGED])
