"""Plans: every value is made once, before it is read; kernels are what the templates allow."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jitla.fusion import InterpretedBackend, Kernel, Layout, plan, structure
from jitla.fusion.candidates import (
    MAX_ARRAYS,
    MAX_BODY,
)
from jitla.hops import Hop, Kind, Meta, apply, leaf, make

F8 = np.dtype("f8")
SUPPORTS = InterpretedBackend().supports


def vector(slot: int, n: int = 100) -> Hop:
    return leaf(slot, Meta((n,), F8))


def total(x: Hop) -> Hop:
    return apply("sum", x, axis=tuple(range(x.meta.ndim)), keepdims=False)


def check(found, roots) -> None:
    """Steps read only what is there, make nothing twice, and write only what is asked for."""
    known: set[Hop] = set()
    read = {h for s in found.steps for h in s.inputs} | set(roots)
    for step in found.steps:
        for hop in step.inputs:
            assert hop in known or hop.op.kind is Kind.LEAF
        if isinstance(step, Kernel):
            inside = set(step.inputs)
            for hop in step.body:
                assert all(i in inside for i in hop.inputs)
                assert not any(i.op.kind is Kind.AGG and i in step.body for i in hop.inputs)
                assert (hop.inputs[0] if hop.op.kind is Kind.AGG else hop).meta.shape == step.shape
                inside.add(hop)
            assert step.template == ("MAgg" if step.body[-1].op.kind is Kind.AGG or any(
                h.op.kind is Kind.AGG for h in step.outputs) else "Cell")
        for hop in step.outputs:
            assert hop not in known and hop in read
            known.add(hop)
    assert all(r in known or r.op.kind is Kind.LEAF for r in roots)


@pytest.mark.parametrize("seed", range(200))
def test_no_cycles_between_loops(seed):
    rng = random.Random(seed)
    hops = [vector(0), vector(1), leaf(2, Meta((40, 100), F8)), leaf(3, Meta((), F8), "scalar")]
    for _ in range(rng.randint(5, 40)):
        x, y = rng.choice(hops[-6:]), rng.choice(hops)
        match rng.choice(("cell", "cell", "cell", "sum", "rows", "call")):
            case "sum" if x.meta.shape:
                hops.append(total(x))
            case "rows" if x.meta.ndim == 2:
                hops.append(apply("sum", x, axis=(rng.randint(0, 0),), keepdims=False))
            case "call" if x.meta.shape:
                hops.append(make("flip", (x,), axis=(0,)))
            case _:
                hops.append(apply(rng.choice(("add", "multiply")), x, y))
    roots = tuple(rng.sample(hops[4:], min(3, len(hops) - 4)))
    refused = rng.random() < 0.3
    supports = InterpretedBackend(
        lambda h: "no" if refused and h.op.name == "multiply" else None).supports
    check(plan(roots, {}, supports), roots)


def test_wide_sums_are_cut():
    x = vector(0)
    for i in range(1, 5 * MAX_ARRAYS):
        x = apply("add", x, vector(i))
    found = plan((x,), {}, SUPPORTS)
    check(found, (x,))
    assert all(len(s.inputs) <= MAX_ARRAYS for s in found.steps)


def test_long_chains_are_cut():
    x = vector(0)
    for _ in range(2 * MAX_BODY + 9):
        x = apply("sqrt", x)
    found = plan((x,), {}, SUPPORTS)
    check(found, (x,))
    assert 3 <= len(found.steps) <= 4 and all(len(s.body) <= MAX_BODY for s in found.steps)


def test_cells_move_to_the_loop_that_needs_them():
    x, y = vector(0), vector(1)
    scaled = apply("multiply", x, total(y))
    late = apply("add", apply("multiply", x, y), scaled)
    found = plan((late,), {}, SUPPORTS)
    assert structure(found) == {"Cell": 1, "MAgg": 1, "Call": 0}


def test_unrelated_results_are_loops_of_their_own():
    a = apply("add", vector(0), vector(1))
    b = apply("add", vector(2), vector(3))
    assert structure(plan((a, b), {}, SUPPORTS))["Cell"] == 2
    c = apply("add", vector(0), vector(3))
    assert structure(plan((a, c), {}, SUPPORTS))["Cell"] == 1


def test_sum_in_another_order_is_split_off():
    x = leaf(0, Meta((30, 40), F8))
    cube = leaf(1, Meta((30, 40, 5), F8))
    flat = {0: Layout((30, 40), (320, 8))}
    gaps = {0: Layout((30, 40), (640, 16))}
    assert structure(plan((total(apply("square", x)),), flat, SUPPORTS))["MAgg"] == 1
    found = structure(plan((total(apply("square", x)),), gaps, SUPPORTS))
    assert found == {"Cell": 0, "MAgg": 1, "Call": 0}
    assert structure(plan((total(x),), gaps, SUPPORTS)) == {"Cell": 0, "MAgg": 0, "Call": 1}
    odd = apply("sum", apply("square", cube), axis=(0, 2), keepdims=False)
    assert structure(plan((odd,), {}, SUPPORTS)) == {"Cell": 1, "MAgg": 0, "Call": 1}


def test_counting_elements_computes_none():
    x, y = vector(0), vector(1)
    cell = apply("multiply", x, y)
    number = make("count", (cell,), axis=(0,))
    mean = apply("divide", total(cell), number)
    found = plan((mean,), {}, SUPPORTS)
    assert structure(found) == {"Cell": 0, "MAgg": 1, "Call": 3}
    kernel = next(s for s in found.steps if isinstance(s, Kernel))
    assert len(kernel.outputs) == 1
    assert structure(plan((number,), {}, SUPPORTS)) == {"Cell": 0, "MAgg": 0, "Call": 1}


@pytest.mark.parametrize("flag_first", [True, False])
def test_sums_of_reals_and_of_complex_numbers_are_loops_of_their_own(flag_first):
    """Their pairwise trees differ, other aggregates go with either."""
    z = leaf(0, Meta((100,), np.dtype("c16")))
    flag = apply("any", apply("isnan", z), axis=(0,), keepdims=False)
    sums = [total(z), total(apply("imag", z)), total(apply("conjugate", z))]
    roots = [flag, *sums] if flag_first else [*sums, flag]
    found = plan(roots, {}, SUPPORTS)
    check(found, roots)
    assert len(found.steps) == 2 and all(isinstance(s, Kernel) for s in found.steps)
    for step in found.steps:
        kinds = {h.meta.dtype.kind for h in step.outputs if h.op.name == "sum"}
        assert len(kinds) == 1


def test_extremes_of_complex_numbers_are_left_to_numpy():
    z = leaf(0, Meta((100,), np.dtype("c16")))
    roots = [apply("max", z, axis=(0,), keepdims=False), apply("prod", z, axis=(0,), keepdims=False)]
    assert not any(isinstance(s, Kernel) for s in plan(roots, {}, SUPPORTS).steps)
