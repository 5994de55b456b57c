"""Costs come from counting recipes."""

from __future__ import annotations

import numpy as np

from jitla.hops import (
    Kind,
    Meta,
    NumpyBuilder,
    ScalarBuilder,
    all_ops,
    apply,
    bytes_of,
    const,
    flops,
    has_recipe,
    leaf,
    lookup,
    make,
)
from jitla.hops.cost import CountingBuilder

F8 = np.dtype("f8")
X, Y = leaf(0, Meta((10, 20), F8)), leaf(1, Meta((20,), F8))


def test_builders_have_every_verb() -> None:
    verbs = {name for name in vars(ScalarBuilder) if not name.startswith("_")}
    for builder in (CountingBuilder, NumpyBuilder):
        assert verbs == {name for name in vars(builder) if not name.startswith("_")}


def test_cells_cost_what_their_recipe_counts() -> None:
    assert flops(make("add", [X, Y])) == 200
    assert flops(make("square", [X])) == 200
    assert flops(make("sign", [X])) > flops(make("negative", [X]))
    assert flops(make("exp", [X])) == 200 * lookup("exp").flops
    assert flops(X) == flops(const(1, "f8")) == 0
    assert flops(make("positive", [X])) == 0


def test_what_has_no_recipe_still_costs() -> None:
    whole = leaf(0, Meta((10,), np.dtype("i8")))
    assert not has_recipe(make("power", [whole, whole]))
    assert flops(make("power", [whole, whole])) == 10 * lookup("power").flops
    assert has_recipe(make("power", [Y, Y]))
    assert not has_recipe(make("sum", [X], axis=(0,), keepdims=False))


def test_bytes_are_inputs_and_output() -> None:
    assert bytes_of(X) == 0
    assert bytes_of(make("add", [X, Y])) == 8 * (200 + 20 + 200)
    assert bytes_of(make("multiply", [X, X])) == 8 * (200 + 200)
    assert bytes_of(make("transpose", [X], axes=(1, 0))) == 0
    assert bytes_of(make("sum", [X], axis=(0, 1), keepdims=False)) == 8 * 201


def test_every_cell_has_a_finite_cost() -> None:
    for op in all_ops():
        if op.kind is not Kind.CELL or op.name == "cast":
            continue
        for dtype in (F8, np.dtype("i4")):
            try:
                hop = apply(op.name, *[leaf(i, Meta((3,), dtype)) for i in range(op.arity or 0)])
            except TypeError:
                continue
            assert 0 <= flops(hop) < 1e3


def test_narrow_elements_take_their_share_of_a_vector() -> None:
    small = leaf(0, Meta((10, 20), np.dtype("f4")))
    assert flops(make("add", [small, small])) == 100
    assert flops(make("exp", [small])) < flops(make("exp", [X])) / 2


def test_integers_without_vector_instructions_cost_more() -> None:
    long, short = (leaf(0, Meta((10,), np.dtype(d))) for d in ("i8", "i4"))
    assert flops(make("multiply", [long, long])) > 2 * flops(make("multiply", [short, short]))
    assert flops(make("cast", [long], dtype=F8)) > 2 * flops(make("cast", [short], dtype=F8))
    assert flops(make("floor_divide", [long, long])) > flops(make("floor_divide", [short, short]))


def test_aggregates_cost_per_element_and_per_row() -> None:
    whole, columns, rows = (
        flops(make("sum", [X], axis=axis, keepdims=False)) for axis in ((0, 1), (0,), (1,)))
    assert whole == columns == 200 * 3.5
    assert rows == whole + 10 * 50
    single = leaf(0, Meta((10, 20), np.dtype("f4")))
    assert flops(make("sum", [single], axis=(0, 1), keepdims=False)) == whole
    assert flops(make("max", [single], axis=(0, 1), keepdims=False)) == 250
