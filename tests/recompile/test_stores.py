"""Stores: results written into the memory of leaves that the same plan reads."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jitla.fusion import InterpretedBackend, Layout
from jitla.hops import Hop, Meta, apply, leaf, make, show
from jitla.recompile import Compiler
from tests.recompile.support import difference, expected, layouts_of, run

F8 = np.dtype("f8")


def build(roots, leaves, outs, aliases=()):
    return Compiler(InterpretedBackend(), rules=None, check=True).build(
        tuple(roots), layouts_of(leaves), tuple(outs), frozenset(aliases))


def bound(program):
    return program.bind(program.identity(), program.layouts)


def leaf_of(slot: int, array: np.ndarray) -> Hop:
    return leaf(slot, Meta(array.shape, array.dtype))


def test_in_place_is_direct():
    x, y = np.arange(6.0), np.ones(6)
    a, b = leaf_of(0, x), leaf_of(1, y)
    program = build([apply("add", a, b)], [x, y], [0])
    assert bound(program).run([x, y])[0] is x
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    assert program.materialised == 0


def test_result_may_be_aggregated_too():
    x, y = np.arange(6.0), np.ones(6)
    new = apply("add", leaf_of(0, x), leaf_of(1, y))
    total = apply("sum", new, axis=(0,), keepdims=False)
    program = build([new, total], [x, y], [0, None])
    assert program.materialised == 0
    assert bound(program).run([x, y])[1] == 21.0


def test_overlapping_read_takes_a_temporary():
    base = np.arange(6.0)
    x, y = base[1:], base[:-1]
    program = build([apply("add", leaf_of(0, x), leaf_of(1, y))], [x, y], [0], {(0, 1, -1)})
    bound(program).run([x, y])
    assert base.tolist() == [0, 1, 3, 5, 7, 9]
    assert program.materialised == 1


def test_read_through_a_view_takes_a_temporary():
    x = np.arange(4.0)
    a = leaf_of(0, x)
    program = build([apply("add", a, make("flip", (a,), axis=(0,)))], [x], [0])
    bound(program).run([x])
    assert x.tolist() == [3, 3, 3, 3]


def test_broadcast_read_takes_a_temporary():
    x = np.arange(6.0).reshape(2, 3)
    a = leaf_of(0, x)
    row = make("getitem", (a,), index=(("i", 0),))
    program = build([apply("subtract", a, row)], [x], [0])
    bound(program).run([x])
    assert x.tolist() == [[0, 0, 0], [3, 3, 3]]


def test_old_value_is_returned_as_copy():
    x = np.arange(4.0)
    a = leaf_of(0, x)
    program = build([apply("multiply", a, a), a], [x], [0, None])
    new, old = bound(program).run([x])
    assert new is x and x.tolist() == [0, 1, 4, 9] and old.tolist() == [0, 1, 2, 3]


def test_swap():
    x, y = np.zeros(3), np.ones(3)
    program = build([leaf_of(1, y), leaf_of(0, x)], [x, y], [0, 1])
    bound(program).run([x, y])
    assert x.tolist() == [1, 1, 1] and y.tolist() == [0, 0, 0]


def test_two_kernels_that_store():
    x, y = np.arange(3.0), np.arange(8.0)
    a, b = leaf_of(0, x), leaf_of(1, y)
    total = apply("sum", b, axis=(0,), keepdims=False)
    program = build([apply("add", a, total), apply("multiply", b, b)], [x, y], [0, 1])
    bound(program).run([x, y])
    assert x.tolist() == [28, 29, 30] and y[7] == 49


def test_dtype_of_the_target():
    x = np.arange(3, dtype="f4")
    program = build([apply("multiply", leaf_of(0, x), leaf(1, Meta((), F8), "scalar"))],
                    [x, np.float64(0.1)], [0])
    bound(program).run([x, np.float64(0.1)])
    assert x.dtype == "f4" and x[2] == np.float32(np.float64(2) * 0.1)


def test_no_store_before_everything_is_computed():
    x, square = np.arange(4.0), np.zeros((2, 2))
    a, b = leaf_of(0, x), leaf_of(1, square)
    program = build([apply("add", a, a), apply("matmul", b, b)], [x, square], [0, None])
    with pytest.raises(ValueError, match="matmul"):
        bound(program).run([x, np.zeros((2, 3))])  # the call fails
    assert x.tolist() == [0, 1, 2, 3]


def _views(rng: random.Random, base: np.ndarray) -> list[np.ndarray]:
    views = [base[:6], base[1:7], base[6:12], base[5::-1], base[7:19:2], base[12:18]]
    return rng.sample(views, 4)


def _pairs(leaves: list[np.ndarray]) -> set[tuple[int, int, int]]:
    return {(i, j, -1) for i in range(len(leaves)) for j in range(len(leaves))
            if i != j and np.shares_memory(leaves[i], leaves[j])}


@pytest.mark.parametrize("seed", range(300))
def test_random_stores(seed):
    rng = random.Random(seed)
    base = np.arange(20.0)
    leaves = _views(rng, base)
    hops = [leaf_of(i, x) for i, x in enumerate(leaves)]
    for _ in range(rng.randint(1, 6)):
        a, b = rng.choice(hops), rng.choice(hops)
        match rng.choice(("add", "multiply", "flip", "sum", "sub")):
            case "flip" if a.meta.shape:
                hops.append(make("flip", (a,), axis=(0,)))
            case "sum" if a.meta.shape:
                hops.append(apply("add", apply("sum", a, axis=(0,), keepdims=False), b))
            case "sub":
                hops.append(apply("subtract", a, b))
            case _:
                hops.append(apply("add", a, b))
    arrays = [h for h in hops if h.meta.shape == (6,)]
    roots = [rng.choice(arrays[-4:]) for _ in range(rng.randint(1, 3))]
    outs = [None] * len(roots)
    for i, slot in enumerate(rng.sample(range(4), rng.randint(1, len(roots)))):
        outs[i] = slot
    want = expected(tuple(roots), leaves)
    program = build(roots, leaves, outs, _pairs(leaves))
    want = [w.copy() for w in want]
    after = base.copy()
    for out, value in zip(outs, want, strict=True):
        if out is not None:
            np.lib.stride_tricks.as_strided(
                after[(leaves[out].__array_interface__["data"][0] - base.ctypes.data) // 8:],
                leaves[out].shape, leaves[out].strides)[...] = value
    got = run(bound(program), leaves)
    note = f"{show(roots)}{outs} {_pairs(leaves)}\n{program.text()}"
    assert base.tobytes() == after.tobytes(), note
    for g, w, out in zip(got, want, outs, strict=True):
        if out is None:
            assert g.tobytes() == w.tobytes(), note
        else:
            assert g is leaves[out]


def test_layout_of_target_does_not_matter():
    x = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    y = np.ones((3, 4))
    new = apply("add", leaf_of(0, x), leaf_of(1, y))
    total = apply("sum", new, axis=(0, 1), keepdims=False)
    program = build([new, total], [x, y], [0, None])
    want = expected((new, total), [x.copy("K"), y])
    got = run(bound(program), [x, y])
    assert not difference(got[1], want[1])
    assert x.tolist() == want[0].tolist()
    assert isinstance(program.layouts[0], Layout)
