"""Predicted cost and peak memory of plans."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jitla.fusion import (
    Call,
    CostModel,
    InterpretedBackend,
    Kernel,
    Layout,
    RowKernel,
    all_layouts,
    contiguous,
    peak_bytes,
    plan,
)
from jitla.fusion.cost_model import memory_owner, scratch_bytes
from jitla.hops import REFERENCE_MACHINE, Hop, Kind, Meta, apply, flops, leaf, make, topo
from tests.fusion.dags import random_dag

# Prices: terms of single hops, kernels from their sums, calls, steps of plans.

F8 = np.dtype("f8")


def array(slot: int, *shape: int, dtype: str = "f8") -> Hop:
    return leaf(slot, Meta(shape, np.dtype(dtype)))


def priced(*roots: Hop, threads: int = 0, **leaves: Layout) -> CostModel:
    places = {int(k[1:]): v for k, v in leaves.items()}
    return CostModel(REFERENCE_MACHINE, all_layouts(roots, places), threads)


X, Y = array(0, 1000, 1000), array(1, 1000, 1000)


def test_work_is_what_all_threads_share() -> None:
    h = apply("exp", X)
    assert priced(h).work(h) == flops(h) * REFERENCE_MACHINE.unit / 2
    assert priced(h, threads=1).work(h) == flops(h) * REFERENCE_MACHINE.unit


@pytest.mark.parametrize("rows, columns", [(12, 0), (0, 12)])
def test_products_of_no_rows_cost_nothing(rows: int, columns: int) -> None:
    h = apply("matmul", make("transpose", (array(0, rows, columns),), axes=(1, 0)), array(1, rows, 50))
    assert priced(h).work(h) == 0.0


def test_threads_that_take_turns_gain_nothing() -> None:
    h = apply("add", X, apply("exp", Y))
    two, many = priced(h), priced(h, threads=8)
    for term in (two.work, two.reads, two.writes, two.cached_writes, two.cached_reads):
        assert getattr(many, term.__name__)(h) == term(h)
    assert many.terms(1e-3, 1e-3, 3e-3) == two.terms(1e-3, 1e-3, 3e-3)


def test_functions_cost_more_than_sums_and_singles_less() -> None:
    small = array(0, 1000, 1000, dtype="f4")
    exp, total, short = apply("exp", X), apply("add", X, X), apply("exp", small)
    cost_model = priced(exp, total, short)
    assert cost_model.work(exp) > 10 * cost_model.work(total) > 0
    assert cost_model.work(exp) > 2 * cost_model.work(short)


def test_counting_elements_costs_a_call() -> None:
    count = apply("count", X, axis=(0, 1))
    assert priced(count).call(count) == REFERENCE_MACHINE.call


def test_reading_counts_the_bytes_that_memory_moves() -> None:
    whole = priced(X).reads(X)
    repeated = priced(X, s0=Layout((1000, 1000), (0, 8)))
    assert repeated.reads(X) < whole / 500
    every_second = priced(X, s0=Layout((1000, 1000), (16000, 16)))
    one_per_line = priced(X, s0=Layout((1000, 1000), (80000, 80)))
    scale = np.array([whole, every_second.reads(X), one_per_line.reads(X)])
    assert scale[1] >= 2 * whole and scale[2] > 8 * whole  # and from further away
    assert priced(X, s0=Layout((1000, 1000), (8, 8000))).reads(X) == whole


def test_a_leaf_is_as_far_away_as_all_leaves_are_large() -> None:
    small, large = array(0, 1000), array(1, 10_000_000)
    alone = priced(small).reads(small)
    together = priced(make("concatenate", [small, large], axis=0))
    assert together.reads(small) > 2 * alone


def test_what_was_just_made_is_nearer_than_a_leaf() -> None:
    x = array(0, 400_000)
    h = apply("exp", x)
    others = [array(k, 4_000_000) for k in range(1, 4)]
    cost_model = priced(h, *(apply("exp", o) for o in others))
    assert cost_model.reads(h) < cost_model.reads(x)


def test_large_results_go_around_the_caches() -> None:
    just_below, above = (array(k, n) for k, n in enumerate((4_100_000, 4_300_000)))
    cost_model = priced(just_below, above)
    assert cost_model.writes(above) < cost_model.writes(just_below)


def test_what_is_too_large_to_be_kept_is_asked_for_again() -> None:
    kept, fresh = (array(k, n) for k, n in enumerate((30_000_000, 36_000_000)))
    cost_model = priced(kept, fresh)
    each = [cost_model.writes(h) / h.meta.nbytes for h in (kept, fresh)]
    assert each[1] == pytest.approx(each[0] + REFERENCE_MACHINE.fault)


def test_a_kernel_is_the_sum_of_its_terms() -> None:
    cost_model = priced(X)
    assert cost_model.kernel(3.0, 2.0, 1.0) == pytest.approx(5.0, abs=1e-4)
    assert cost_model.kernel(1.0, 2.0, 3.0) == pytest.approx(5.0, abs=1e-4)
    assert cost_model.kernel(3.0, 2.0, 1.0, launched=0) == 5.0
    cost = cost_model.terms(3.0, 2.0, 1.0)
    assert cost[:3] == (3.0, 2.0, 1.0) and cost.total == pytest.approx(cost.launch + 5.0)


def test_short_kernels_run_alone() -> None:
    cost_model = priced(X)
    short, long = cost_model.terms(1e-7, 1e-7, 0.0), cost_model.terms(1e-3, 1e-3, 0.0)
    assert short.launch == REFERENCE_MACHINE.launch < long.launch
    assert short.total == pytest.approx(REFERENCE_MACHINE.launch + 4e-7)
    assert long.total < REFERENCE_MACHINE.threads * 2e-3


def test_more_is_never_cheaper() -> None:
    cost_model = priced(X)
    seconds = [cost_model.kernel(t, t, t) for t in np.geomspace(1e-9, 1e-1, 200)]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("seed", range(40))
def test_more_hops_never_lose_less_at_the_ends_of_rows(seed: int) -> None:
    rng = random.Random(seed)
    roots, layouts = random_dag(rng, 25)
    hops = [h for h in topo(roots) if h.inputs]
    cost_model = CostModel(REFERENCE_MACHINE, all_layouts(roots, layouts))
    for _ in range(20):
        more = [h for h in hops if rng.random() < 0.7]
        some = [h for h in more if rng.random() < 0.7]
        assert cost_model.row_ends(some) <= cost_model.row_ends(more) * (1 + 1e-12)


def test_rows_begin_once_in_a_loop_and_twice_if_they_are_reduced() -> None:
    x, v = array(0, 1000, 16), array(1, 16)
    shifted, total = apply("add", x, v), apply("sum", x, axis=(1,), keepdims=False)
    both = apply("sum", shifted, axis=(1,), keepdims=False)
    cost_model = priced(shifted, total, both)
    once = cost_model.row_ends([shifted])
    assert once > 0 == cost_model.row_ends([total])
    assert cost_model.row_ends([shifted, total]) == once  # two loops, maybe
    assert cost_model.row_ends([shifted, both]) == 2 * once


def test_views_and_leaves_are_free_and_calls_are_not() -> None:
    turned = make("transpose", [X], axes=(1, 0))
    joined = make("concatenate", [X, Y], axis=0)
    cost_model = priced(turned, joined)
    assert cost_model.call(turned) == cost_model.call(X) == 0.0
    assert cost_model.call(joined) > REFERENCE_MACHINE.call + cost_model.writes(joined)


def test_price_of_products() -> None:
    v, thin = array(1, 1000), array(2, 1000, 4)
    square, vector, skinny = (make("matmul", [X, h]) for h in (Y, v, thin))
    cost_model = priced(square, vector, skinny)
    arithmetic = 2e9 / REFERENCE_MACHINE.product
    assert arithmetic < cost_model.call(square) < 1.5 * arithmetic
    call = cost_model.call
    assert cost_model.reads(X) < call(vector) < call(skinny) < call(square) / 10


def test_numpys_functions_take_longer_than_the_compilers() -> None:
    h = apply("arctan2", X, Y)
    cost_model = priced(h, threads=1)
    assert cost_model.call(h) > 2 * cost_model.work(h)
    slow = CostModel(REFERENCE_MACHINE._replace(scalar=8.0), cost_model.layouts, 1)
    assert slow.call(h) > cost_model.call(h)


def test_prices_are_remembered() -> None:
    h = apply("exp", X)
    cost_model = priced(h)
    verbs = (cost_model.work, cost_model.reads, cost_model.writes, cost_model.call, cost_model.cached_writes,
             cost_model.cached_reads)
    first = [f(h) for f in verbs]
    cost_model.footprint = 1e12
    assert first == [f(h) for f in verbs] and len(set(first)) == len(verbs)


# ------------------------------------------------------------------------------ steps of plans


def supports(hop: Hop) -> str | None:
    return None if hop.op.kind is not Kind.CALL or hop.op.name == "matmul" else "not here"


def steps(*roots: Hop) -> list[Kernel | RowKernel | Call]:
    return list(plan(roots, {}, supports).steps)


def test_a_step_adds_up_its_hops() -> None:
    inner = apply("exp", X)
    h = apply("add", inner, Y)
    cost_model = priced(h)
    (step,) = steps(h)
    assert cost_model.step(step).total == cost_model.kernel(
        cost_model.reads(X) + cost_model.reads(Y), cost_model.writes(h),
        cost_model.work(inner) + cost_model.work(h))


def test_rows_are_read_once() -> None:
    x, w, v = array(0, 100_000, 100), array(1, 100_000), array(2, 100)
    turned = make("transpose", [x], axes=(1, 0))
    h = make("matmul", [turned, apply("multiply", w, make("matmul", [x, v]))])
    cost_model = priced(h)
    (step,) = steps(h)
    assert isinstance(step, RowKernel)
    cost = cost_model.step(step)
    assert cost_model.reads(x) < cost.total < 1.6 * cost_model.reads(x)
    assert cost.total < sum(cost_model.call(p) for p in topo((h,)))


def test_a_call_is_a_step() -> None:
    h = make("cumsum", [X], axis=0)
    cost = priced(h).step(Call(h))
    assert cost.total == priced(h).call(h) == cost.compute + cost.launch
    assert cost.launch == REFERENCE_MACHINE.call


def test_unknown_layouts_count_as_contiguous() -> None:
    assert CostModel(REFERENCE_MACHINE, {}).reads(X) > 0
    assert priced(X, s0=contiguous((1000, 1000), 8)).reads(X) == priced(X).reads(X)


# The peak of a plan: what lies in memory at the same time, by hand.

N = 1000
SUPPORTS = InterpretedBackend().supports


def vector(slot: int) -> Hop:
    return leaf(slot, Meta((N,), F8))


def alone(hop: Hop) -> Kernel:
    return Kernel("Cell", hop.meta.shape, hop.inputs, (hop,), (hop,))


def test_values_end_with_their_last_reader():
    x = vector(0)
    a = apply("add", x, x)
    b = apply("multiply", a, a)
    c = apply("subtract", b, b)
    steps = [alone(a), alone(b), alone(c)]
    assert peak_bytes(steps, (c,)) == 2 * 8 * N
    assert peak_bytes(steps, (a, c)) == 3 * 8 * N


def test_leaves_scalars_and_what_is_stored_take_nothing():
    x = vector(0)
    a = apply("add", x, x)
    total = apply("sum", a, axis=(0,), keepdims=False)
    kernel = Kernel("MAgg", (N,), (x,), (a, total), (total,))
    assert peak_bytes([kernel], (total, x)) == 0
    assert peak_bytes([alone(a)], (a,), stored={a}) == 0


def test_rows_that_wait_lie_beside_what_is_live():
    x = vector(0)
    a = apply("add", x, x)
    b = apply("multiply", x, a)
    steps = [alone(a), alone(b)]
    assert peak_bytes(steps, (a, b), stored={b}) == 8 * N
    assert peak_bytes(steps, (a, b), stored={b}, waiting={b: 100}) == 8 * N + 100


def test_a_view_keeps_its_owner():
    x = leaf(0, Meta((10, 100), F8))
    a = apply("add", x, x)
    turned = make("transpose", (a,), axes=(1, 0))
    b = apply("multiply", turned, turned)
    assert memory_owner(turned) is a
    assert peak_bytes([alone(a), Call(turned), alone(b)], (b,)) == 2 * 8 * N
    # of a leaf it takes nothing
    view = make("transpose", (x,), axes=(1, 0))
    assert peak_bytes([Call(make("transpose", (x,), axes=(1, 0)))], (view,)) == 0


def test_a_result_asked_for_twice_is_two_arrays():
    a = apply("add", vector(0), vector(1))
    assert peak_bytes([alone(a)], (a, a)) == 2 * 8 * N


def test_other_sizes():
    a = apply("add", vector(0), vector(1))
    assert peak_bytes([alone(a)], (a,), resize=lambda shape: tuple(3 * n for n in shape)) == 3 * 8 * N


def row_kernel(rows: int) -> RowKernel:
    x, w = leaf(0, Meta((rows, 50), F8)), leaf(1, Meta((rows,), F8))
    v = leaf(2, Meta((50,), F8))
    inner = apply("multiply", w, apply("matmul", x, v))
    root = apply("matmul", make("transpose", (x,), axes=(1, 0)), inner)
    layouts = {0: Layout((rows, 50), (400, 8)), 1: Layout((rows,), (8,)), 2: Layout((50,), (8,))}
    found = plan((root,), layouts, lambda h: None if h.op.name == "matmul" else SUPPORTS(h))
    (kernel,) = [s for s in found.steps if isinstance(s, RowKernel)]
    return kernel


def test_scratch_of_a_row_kernel_does_not_grow_with_its_rows():
    small, large = (scratch_bytes(row_kernel(n), 2) for n in (50_000, 800_000))
    assert 0 < small <= large < 100_000
    assert scratch_bytes(row_kernel(50_000), 4) > small
