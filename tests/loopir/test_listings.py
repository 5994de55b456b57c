"""Listings are what is kept, read back as the same nests, and mean the same at sizes that can be run."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.loopir import apply_schedule, parse, run, show, verify
from tests.loopir.listings import (
    BLUR,
    GOLDEN,
    RECTIFIED,
    SCRATCHPAD,
    TILES,
    blur,
    intrinsics,
    listings,
    product,
    rectified,
)


@pytest.mark.parametrize("name, text", listings().items(), ids=lambda x: x if len(x) < 30 else "")
def test_a_listing_is_the_golden_one(name, text):
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", listings().values(), ids=listings())
def test_a_listing_reads_back(text):
    nest = parse(text)
    verify(nest)
    assert show(nest) == "\n".join(line for line in text.split("\n") if not line.startswith("#"))


@pytest.mark.parametrize("schedule", (TILES, SCRATCHPAD))
def test_the_product_is_numpys(schedule):
    rng = np.random.default_rng(0)
    A, B = (rng.integers(-9, 9, (16, 16)).astype("int32") for _ in range(2))
    made = apply_schedule(product(16, "int32"), schedule, intrinsics=intrinsics("int32"))
    assert np.array_equal(run(made, {"A": A, "B": B})["C"], A.T @ B)


def test_products_of_floats_keep_their_order():
    rng = np.random.default_rng(0)
    given = {n: rng.normal(size=(16, 16)).astype("f4") for n in "AB"}
    want = run(product(16), given)["C"]
    made = apply_schedule(product(16), SCRATCHPAD, intrinsics=intrinsics())
    assert run(made, given)["C"].tobytes() == want.tobytes()


def test_rectified_products_keep_their_order():
    rng = np.random.default_rng(1)
    given = {"x": rng.normal(size=(11, 9)).astype("f4"), "w": rng.normal(size=(21, 9)).astype("f4")}
    nest = rectified(11, 21, 9)
    made = apply_schedule(nest, RECTIFIED)
    want = run(nest, given)["out"]
    assert run(made, given, backwards=True)["out"].tobytes() == want.tobytes()
    assert np.allclose(want, np.maximum(given["x"] @ given["w"].T, 0), atol=1e-5)


@pytest.mark.parametrize("schedule", BLUR.values(), ids=BLUR)
def test_blurs_are_numpys(schedule):
    A = np.random.default_rng(2).random((40, 9), dtype="f4")
    rows = (A[:, :-2] + A[:, 1:-1] + A[:, 2:]) / np.float32(3)
    want = (rows[:-2] + rows[1:-1] + rows[2:]) / np.float32(3)
    made = apply_schedule(blur(40, 9), schedule)
    assert run(made, {"A": A}, backwards=True)["out"].tobytes() == want.tobytes()
