"""Costs of hops from counting their recipes; rates and memory levels of the machine."""

from __future__ import annotations

import json
from math import inf

import numpy as np
import pytest

from jitla.hops import (
    REFERENCE_MACHINE,
    Kind,
    Machine,
    MemoryLevel,
    Meta,
    NumpyBuilder,
    Rate,
    ScalarBuilder,
    all_ops,
    apply,
    bytes_of,
    const,
    flops,
    has_recipe,
    leaf,
    lookup,
    machine_from_record,
    make,
)
from jitla.hops.cost import CountingBuilder

# Costs come from counting recipes.

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


# Rates, levels of memory, and the machine as a record.


def test_threads_add_up_to_what_all_reach() -> None:
    rate = Rate(10.0, 25.0)
    assert [rate.at(n) for n in (1, 2, 3, 8)] == [10.0, 20.0, 25.0, 25.0]


def test_fewer_threads_do_less() -> None:
    one = REFERENCE_MACHINE.with_threads(1)
    assert one.threads == 1 and one.product == REFERENCE_MACHINE.product / 2
    assert one.reading(1e6, 1e9) == REFERENCE_MACHINE.reading(1e6, 1e9, threads=1)
    assert one.reading(1e6, 1e9) > REFERENCE_MACHINE.reading(1e6, 1e9)
    assert REFERENCE_MACHINE.with_threads(0) is REFERENCE_MACHINE
    assert REFERENCE_MACHINE.with_threads(REFERENCE_MACHINE.threads) is REFERENCE_MACHINE


def test_more_than_there_are_do_no_more() -> None:
    many = REFERENCE_MACHINE.with_threads(8)
    assert many.product == REFERENCE_MACHINE.product and many.concurrent_threads == REFERENCE_MACHINE.threads
    assert many.reading(1e6, 1e9) == REFERENCE_MACHINE.reading(1e6, 1e9)
    one = many.with_threads(1)
    assert one.concurrent_threads == 1 and one.product == REFERENCE_MACHINE.product / 2


@pytest.mark.parametrize("verb", ["reading", "writing"])
def test_what_was_used_long_ago_is_far_away(verb: str) -> None:
    seconds = [getattr(REFERENCE_MACHINE, verb)(1e6, 4.0**k) for k in range(20)]
    assert seconds == sorted(seconds) and seconds[-1] > 2.5 * seconds[0]


def test_levels_are_passed_gradually() -> None:
    near, _, memory = REFERENCE_MACHINE.levels
    assert REFERENCE_MACHINE.reading(1e6, near.capacity / 16) == pytest.approx(1e6 / near.read.all)
    assert REFERENCE_MACHINE.reading(1e6, 1e12) == pytest.approx(1e6 / memory.read.all)
    steps = [REFERENCE_MACHINE.reading(1.0, 2.0**(k / 8)) for k in range(80, 240)]
    assert max(b / a for a, b in zip(steps, steps[1:], strict=False)) < 1.2


def test_a_machine_is_a_record() -> None:
    text = json.dumps(REFERENCE_MACHINE.record())
    assert machine_from_record(json.loads(text)) == REFERENCE_MACHINE
    assert isinstance(REFERENCE_MACHINE, Machine) and REFERENCE_MACHINE.levels[-1].capacity == inf


@pytest.mark.parametrize("change", [
    {"threads": 0}, {"unit": -1.0}, {"unit": "fast"}, {"levels": []}, {"stream": [1.0]}, {"more": 1.0},
    {"levels": [{"name": "near"}]},
])
def test_what_is_no_machine_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        machine_from_record(REFERENCE_MACHINE.record() | change)


def test_a_missing_constant_is_refused() -> None:
    record = REFERENCE_MACHINE.record()
    del record["launch"]
    with pytest.raises(TypeError):
        machine_from_record(record)


def test_a_machine_of_one_level_has_one_speed() -> None:
    flat = REFERENCE_MACHINE._replace(levels=(MemoryLevel("all", inf, Rate(1.0, 2.0), Rate(1.0, 1.0)),))
    assert flat.reading(10.0, 1.0) == flat.reading(10.0, 1e12) == 5.0
    assert flat.writing(10.0, 1e12) == 10.0
