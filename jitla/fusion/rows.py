"""Kernels over rows: products of a matrix and what lies between them, one pass over the matrix.

Knows: what can be computed row by row, what a pass over memory costs. Must not know: backends.
Receives roots, facts, and a way to plan loops; returns `RowKernel` steps.

The template Row of Boehm et al., On Optimizing Operator Fusion Plans, PVLDB 11(12), 2018; but a row
kernel is made of whole loops over blocks of rows, which pass their values on in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from jitla.fusion.graph import have_an_order
from jitla.fusion.kernel import Call, Kernel, Product, RowKernel, Step, data_inputs
from jitla.fusion.templates import Facts
from jitla.hops import Hop, Kind, topo

MIN_BYTES = 1 << 16  # of a matrix: smaller ones stay in the cache anyway
MIN_LENGTH = 4  # of its rows
MAX_COLUMNS = 63  # of a matrix it is multiplied with: more are for BLAS
MAX_BESIDE = 1 << 17  # bytes of that matrix

PlanLoops = Callable[[Sequence[Hop], frozenset[Hop], Mapping[Hop, Product]], list[Step]]


def row_kernels(roots: Sequence[Hop], facts: Facts, plan_loops: PlanLoops) -> list[RowKernel]:
    """Return the row kernels that save reading a matrix again."""
    order = topo(roots)
    products = {h: p for h in order if (p := product_of(h, facts)) is not None}
    if len(products) < 2:
        return []
    users: dict[Hop, list[Hop]] = {}
    for hop in order:
        for operand in data_inputs(hop):
            users.setdefault(operand, []).append(hop)
    found: list[RowKernel] = []
    taken: set[Hop] = set()
    for rows in dict.fromkeys(row_count(p) for p in products.values()):
        for region in _Regions(order, rows, products, facts).all():
            if _saves(region, products) and not region & taken:
                kernel = _kernel(region, rows, order, users, roots, products, plan_loops)
                if kernel is not None and have_an_order(roots, [*found, kernel]):
                    found.append(kernel)
                    taken |= region
    return found


def row_count(product: Product) -> int:
    """Return how many rows the matrix has."""
    return product.matrix.meta.shape[1 if product.turned else 0]


def product_of(hop: Hop, facts: Facts) -> Product | None:
    """Return `hop` as a product over the rows of a matrix that lies row by row, if it is one."""
    if hop.op.name not in ("matmul", "dot") or not facts.is_product(hop):
        return None
    left, right = hop.inputs
    if left.meta.ndim == 1:  # a vector times a matrix: its rows are weighted
        found = Product("sum", hop, right, False, left)
    elif left.op.name == "transpose" and left.inputs[0].op.kind is Kind.LEAF:
        found = Product("sum", hop, left.inputs[0], False, right)
    elif _runs_along(left, 1, facts):
        found = Product("dot", hop, left, False, right)
    else:
        found = Product("sum", hop, left, True, right)
    fits = _runs_along(found.matrix, 0 if found.turned else 1, facts) and _is_narrow(found, facts)
    big = found.matrix.meta.nbytes >= MIN_BYTES and _length(found) >= MIN_LENGTH
    return found if fits and big else None


def _length(product: Product) -> int:
    return product.matrix.meta.shape[0 if product.turned else 1]


def _runs_along(matrix: Hop, axis: int, facts: Facts) -> bool:
    """Tell whether neighbours along `axis` are neighbours in memory, and the other axis goes forward."""
    strides = facts.layouts[matrix].strides
    return strides[axis] == matrix.meta.dtype.itemsize and strides[1 - axis] > 0


def _is_narrow(product: Product, facts: Facts) -> bool:
    """Tell whether rows meet a vector, or so few that these stay in the cache; weights lie by rows."""
    columns, vector = product.vector.meta.shape[1:], product.vector
    few = not columns or product.hop.meta.ndim == 2 and 2 <= columns[0] <= MAX_COLUMNS and \
        _length(product) * columns[0] * vector.meta.dtype.itemsize <= MAX_BESIDE
    return few and (product.form == "dot" or facts.layouts[vector].strides[-1] == vector.meta.dtype.itemsize)


class _Regions:
    """The hops that are computed row by row, for one number of rows, in parts that hang together."""

    def __init__(self, order: list[Hop], rows: int, products: Mapping[Hop, Product], facts: Facts) -> None:
        self.rows = rows
        self.products = {h: p for h, p in products.items() if row_count(p) == rows}
        self.facts = facts
        self.inside = [h for h in order if self.links(h)]
        self.level: dict[Hop, int] = {}
        members = set(self.inside)
        touched: set[Hop] = set()
        for hop in order:
            self.level[hop] = max((self._behind(hop, i, touched) for i in data_inputs(hop)), default=0)
            if hop in members or any(i in touched for i in data_inputs(hop)):
                touched.add(hop)

    def _behind(self, hop: Hop, operand: Hop, touched: set[Hop]) -> int:
        """Level that `hop` needs because of `operand`: it must not wait for rows of its own region."""
        joined = operand not in touched or operand in self.links(hop) and not self._sums(operand)
        return self.level[operand] + (0 if joined else 1)

    def _sums(self, hop: Hop) -> bool:
        return hop in self.products and self.products[hop].form == "sum"

    def links(self, hop: Hop) -> tuple[Hop, ...]:
        """Return the operands whose row i alone matters for row i of `hop`; none if it is not by rows."""
        product = self.products.get(hop)
        if product is not None:
            if product.turned and self.links(product.matrix):
                return (product.vector,)  # the rows of a square matrix are not its columns
            return product.inputs if product.form == "sum" else (product.matrix,)
        if is_row_view(hop):
            return hop.inputs if hop.meta.shape[0] == self.rows else ()
        if hop.op.kind not in (Kind.CELL, Kind.AGG) or self.facts.reason(hop):
            return ()
        if hop.op.kind is Kind.AGG:
            whole = 0 not in hop.attr("axis") and hop.inputs[0].meta.shape[:1] == (self.rows,)
            return hop.inputs if whole else ()
        if hop.meta.shape[:1] != (self.rows,):
            return ()
        return tuple(dict.fromkeys(i for i in hop.inputs if i.meta.shape[:1] == (self.rows,)
                                   and i.meta.ndim == hop.meta.ndim))

    def all(self) -> list[set[Hop]]:
        """Return the parts: of one level, joined by a value or by an array they read."""
        parent: dict[object, object] = {}

        def find(node: object) -> object:
            while parent.setdefault(node, node) is not node:
                parent[node] = node = parent[parent[node]]
            return node

        for hop in self.inside:
            for operand in self.links(hop):
                # a matrix and its transposed view are different leaves; they most likely are the same
                here = (self.level[hop], same_rows(operand, self.products.get(hop)))
                parent[find(here)] = find((self.level[hop], hop))
        found: dict[object, set[Hop]] = {}
        for hop in self.inside:
            found.setdefault(find((self.level[hop], hop)), set()).add(hop)
        return list(found.values())


def same_rows(operand: Hop, product: Product | None) -> object:
    """Return what stands for the matrix of a product: equal for a leaf and a leaf that is its transpose."""
    if product is None or operand is not product.matrix or operand.op.kind is not Kind.LEAF:
        return operand
    shape = operand.meta.shape
    return ("matrix", shape[::-1] if product.turned else shape, operand.meta.dtype)


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


def _saves(region: set[Hop], products: Mapping[Hop, Product]) -> bool:
    """Tell whether two products of the region read the rows of one matrix."""
    read = [same_rows(products[h].matrix, products[h]) for h in region if h in products]
    return len(set(read)) < len(read)


def _kernel(
    region: set[Hop], rows: int, order: list[Hop], users: Mapping[Hop, Sequence[Hop]],
    roots: Sequence[Hop], products: Mapping[Hop, Product], plan_loops: PlanLoops,
) -> RowKernel | None:
    """Write the row kernel of a region down; None if not all of it can be loops over rows."""
    region = _needed(region, products, users, roots)
    inside = [h for h in order if h in region]
    outputs = tuple(h for h in inside if not is_row_view(h) and (
        h in roots or any(u not in region for u in users.get(h, ()))))
    if any(is_row_view(h) and (h in roots or any(u not in region for u in users[h])) for h in inside):
        return None
    given = frozenset(i for h in inside for i in _operands(h, products) if i not in region)
    mine = {h: products[h] for h in inside if h in products}
    stages: list[Kernel | Product] = []
    views: list[Hop] = []
    for step in _in_turn([*mine.values(), *plan_loops(outputs, given, mine)], outputs):
        if isinstance(step, (Kernel, Product)):
            stages.append(step)
        elif isinstance(step, Call) and is_row_view(step.hop):
            views.append(step.hop)
        else:
            return None
    inputs = tuple(dict.fromkeys(
        i for s in (*stages, *(Call(v) for v in views)) for i in s.inputs if i in given))
    axes = tuple(_axis(i, rows, stages, views) for i in inputs)
    if -1 in axes:
        return None
    return RowKernel(rows, tuple(stages), tuple(views), inputs, axes, outputs)


def _operands(hop: Hop, products: Mapping[Hop, Product]) -> tuple[Hop, ...]:
    return products[hop].inputs if hop in products else data_inputs(hop)


def _needed(
    region: set[Hop], products: Mapping[Hop, Product], users: Mapping[Hop, Sequence[Hop]],
    roots: Sequence[Hop],
) -> set[Hop]:
    """Leave out what is neither in front of a product nor behind one, and what only others read."""
    behind: set[Hop] = set()
    inner_first = [h for h in topo(region) if h in region]
    for hop in inner_first:
        if hop in products or any(i in behind for i in hop.inputs):
            behind.add(hop)
    front: set[Hop] = set()
    stack = [h for h in region if h in products]
    while stack:
        hop = stack.pop()
        if hop not in front:
            front.add(hop)
            stack += [i for i in _operands(hop, products) if i in region]
    kept = front | behind
    kept |= _between(kept, inner_first)
    for hop in reversed(inner_first):
        inside = any(u in kept for u in users.get(hop, ()))
        if not (inside or hop in products or hop in roots):
            kept.discard(hop)
    return kept


def _between(kept: set[Hop], inner_first: Sequence[Hop]) -> set[Hop]:
    """Return what reads values of `kept` and is read by others: else these would wait for each other."""
    after: set[Hop] = set()
    for hop in inner_first:
        if any(i in kept or i in after for i in hop.inputs):
            after.add(hop)
    before: set[Hop] = set()
    for hop in reversed(inner_first):
        if hop in kept or hop in before:
            before.update(hop.inputs)
    return after & before


def _axis(
    value: Hop, rows: int, stages: Iterable[Kernel | Product], views: Iterable[Hop]
) -> int | None:
    """Return along which axis of an input the rows lie, None if every block reads all of it.

    -1 if it is read in several ways.
    """
    found: set[int | None] = set()
    for stage in stages:
        if isinstance(stage, Product):
            if value is stage.matrix:
                found.add(1 if stage.turned else 0)
            if value is stage.vector:
                found.add(0 if stage.form == "sum" else None)
        elif value in stage.inputs:
            by_rows = value.meta.ndim == len(stage.shape) and value.meta.shape[:1] == (rows,)
            found.add(0 if by_rows else None)
    found |= {0 for v in views if value in v.inputs}
    return found.pop() if len(found) == 1 else -1


def _in_turn(
    steps: Iterable[Step | Product], outputs: Sequence[Hop]
) -> list[Step | Product]:
    """Order steps so that operands come first."""
    makes = {h: s for s in steps for h in s.outputs}
    order: list[Step | Product] = []
    seen: set[int] = set()
    stack = [(makes[h], False) for h in reversed(outputs)]
    while stack:
        step, done = stack.pop()
        if done:
            order.append(step)
        elif id(step) not in seen:
            seen.add(id(step))
            stack.append((step, True))
            stack += [(makes[i], False) for i in reversed(step.inputs) if i in makes]
    return order
