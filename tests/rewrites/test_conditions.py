"""The named conditions, against brute force where they are about values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jitla.hops import Meta, apply, const, leaf, make
from jitla.rewrites import RULES, simplify
from jitla.rewrites.conditions import (
    is_droppable,
    is_lossless_cast,
    is_power_of_two,
    may_alias_argument,
    min_reduced_elements,
    owns_memory,
)
from tests.rewrites.data import same_bits, values

DTYPES = [np.dtype(c) for c in "?bBhHiIqQefdg"]
F8 = np.dtype("f8")
x = leaf(0, Meta((3, 4), F8))


def samples(dtype: np.dtype) -> np.ndarray:
    """Values at the edges of a dtype, and all of it where it is small."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        edges = {info.min, info.max, *(s * 2**k + d for k in range(64) for s in (1, -1) for d in (-1, 0, 1))}
        return np.array([e for e in sorted(edges) if info.min <= e <= info.max], dtype)
    info = np.finfo(dtype)
    edges = [0.0, -0.0, 1.0, -1.5, info.max, info.min, info.tiny, info.smallest_subnormal, np.inf, -np.inf,
             np.nan, 1 + info.eps, 127.0, 128.0, 255.0, 65504.0]
    with np.errstate(over="ignore"):
        return np.array([dtype.type(e) for e in edges])


@pytest.mark.parametrize(("old", "new"), list(itertools.product(DTYPES, DTYPES)), ids=str)
def test_what_widens_keeps_every_value(old: np.dtype, new: np.dtype):
    given = samples(old)
    with np.errstate(all="ignore"):
        there = given.astype(new)
        lossless = same_bits(there.astype(old), given)
        if old.kind in "iu" and new.kind in "iu":
            lossless = lossless and all(int(a) == int(b) for a, b in zip(given, there, strict=True))
    if is_lossless_cast(old, new):
        assert lossless
    elif new.kind != "b" and (old.kind, new.kind) not in {("f", "i"), ("f", "u")}:
        assert not lossless


@pytest.mark.parametrize("old", DTYPES, ids=str)
def test_casts_that_are_skipped_did_nothing(old: np.dtype):
    rules = RULES.only("cast-of-cast")
    given = samples(old)
    source = leaf(0, Meta(given.shape, old))
    for middle, new in itertools.product(DTYPES, DTYPES):
        hop = make("cast", (make("cast", (source,), dtype=middle),), dtype=new)
        (after,) = simplify((hop,), rules)
        if after is not hop:
            assert same_bits(values((hop,), [given])[0], values((after,), [given])[0]), (middle, new)


@pytest.mark.parametrize(("value", "yes"), [
    (2.0, True), (-0.25, True), (1.0, True), (3.0, False), (0.0, False), (np.inf, False), (np.nan, False),
    (2.0**1022, True), (2.0**1023, False), (2.0**-1022, True), (2.0**-1023, False),
])
def test_powers_of_two_have_exact_reciprocals(value: float, yes: bool):
    assert is_power_of_two(np.float64(value)) is yes


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_quotients_by_powers_of_two_are_products(dtype: str):
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        scale = 2.0 ** rng.integers(info.minexp, info.maxexp, 3000)
        data = (rng.standard_normal(3000) * scale).astype(dtype)
    with np.errstate(all="ignore"):
        for k in range(info.minexp, -info.minexp + 1):
            divisor = np.dtype(dtype).type(2.0**k)
            if is_power_of_two(divisor):
                assert same_bits(data / divisor, data * (1 / divisor)), k


def test_memory_of_its_own():
    fresh, view = apply("exp", x), make("transpose", (x,), axes=(1, 0))
    assert owns_memory(fresh) and not owns_memory(view) and not owns_memory(x)
    assert owns_memory(const(1, F8)) and owns_memory(leaf(0, Meta((), F8), "scalar"))
    assert not owns_memory(leaf(0, Meta((), F8), "weak"))
    assert may_alias_argument(view) and may_alias_argument(x)
    assert not may_alias_argument(make("ravel", (fresh,)))


def test_silence():
    compared = apply("less", x, const(0, F8))
    assert is_droppable(compared) and is_droppable(apply("logical_not", compared))
    assert not is_droppable(apply("less", apply("log", x), const(0, F8)))
    deep = x
    for _ in range(300):
        deep = apply("negative", deep)
    assert not is_droppable(deep)


def test_counts_hold_for_a_whole_class_of_sizes():
    assert [min_reduced_elements(x, axis) for axis in ((), (0,), (0, 1))] == [1, 2, 4]
    assert min_reduced_elements(leaf(0, Meta((0, 5), F8)), (0, 1)) == 0
    assert min_reduced_elements(leaf(0, Meta((1, 5), F8)), (0, 1)) == 2
