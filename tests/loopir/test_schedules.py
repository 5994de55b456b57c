"""Schedules of nests: laws, refusals, equal results; listings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from jitla.errors import NestError, ScheduleError
from jitla.loopir import LAWS, PRIMITIVES, Nest, apply_schedule, parse, run, show, verify
from tests.loopir.agree import agree
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
from tests.loopir.loosened import near
from tests.loopir.planted import refused

# What breaks a law is named, what would change a result is refused, what is allowed changes nothing.


def nest(*lines: str, A: str = "float32[6,6]", B: str = "float32[6,6]") -> Nest:
    return parse("\n".join([f"def f(A: '{A}', B: '{B}') -> (B,):", *["    " + line for line in lines]]))


LOOPS = ("for i in range(6):", "    for j in range(6):")
BROKEN = {
    "one-name": ("for i in range(6):", "    for i in range(6):", "        B[i, 0] = A[i, 0]"),
    "extent": ("for i in range(0):", "    B[i, 0] = A[i, 0]"),
    "unknown-buffer": (*LOOPS, "        B[i, j] = A[i, j]", "A[0, 0] = B[0, 0]"),
    "unknown-variable": ("for i in range(6):", "    B[i, q] = A[i, 0]"),
    "axes": ("for i in range(6):", "    B[i] = A[i, 0]"),
    "out-of-bounds": (*LOOPS, "        B[i, j] = A[i, j + 1]"),
    "dtype": (*LOOPS, "        B[i, j] = float64(1.0)"),
    "unknown-operator": (*LOOPS, "        B[i, j] = sum(..., A[i, j])"),
    "dependent-iterations": ("for i in parallel(6):", "    B[0, 0] = add(..., A[i, 0])"),
    "intrinsic": ("for i in range(6):", "    magic(B[0, 0])"),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_broken_law_is_named(law):
    with pytest.raises(NestError) as raised:
        verify(nest(*BROKEN[law]))
    assert raised.value.law == law


@pytest.mark.parametrize("text", (
    "x = 1", "def f(:", "def f(A: 'float32[2]') -> (A,):\n    while True:\n        pass",
    "def f(A: 'float32[2] nowhere') -> (A,):\n    pass",
    "def f(A: 'float32[2]') -> (A,):\n    A[0] = B[0] + 1"))
def test_what_is_no_nest_is_not_read(text):
    with pytest.raises(NestError, match="malformed-text"):
        parse(text)


SUM = ("for i in range(6):", "    for j in range(6):", "        for k in range(6):",
       "            B[i, j] = add(..., A[i, k])")
CHAIN = ("s = alloc('float32[6,6]')", "for a in range(6):", "    for b in range(6):",
         "        s[a, b] = add(A[a, b], A[a, b])", *LOOPS, "        B[i, j] = multiply(s[i, j], s[5, j])")
SCAN = ("for i in range(5):", "    for j in range(5):", "        B[i + 1, j] = add(B[i, j + 1], A[i, j])")
IN_PLACE = ("for i in range(5):", "    B[i, 0] = add(B[i + 1, 0], A[i, 0])")
TWICE = ("s = alloc('float32[6,6]')", "for a in range(6):", "    for b in range(6):",
         "        s[a, b] = add(B[a, b], A[a, b])", *LOOPS, "        B[i, j] = s[j, i]")
SUMS = ("s = alloc('float32[6]')", "for a in range(6):", "    s[a] = float32(0.0)", "for c in range(6):",
        "    for d in range(6):", "        s[c] = add(..., A[c, d])", *LOOPS, "        B[i, j] = s[i]")
ILLEGAL = (
    (SUM, "parallel(k)", "dependent-iterations"),
    (SUM, "vectorise(k)", "dependent-iterations"),
    (SUM, "bind(k)", "dependent-iterations"),
    (SUM, "rfactor(k)", "order-matters"),
    (SUM, "rfactor(j)", "no-reduction"),
    (SUM, "split(k, 2)\nreorder(k_i, k_o)", "order-matters"),
    (SUM, "split(k, 4, 'shifted')", "done-twice"),
    (SUM, "split(i, 4, 'shifted')", "done-twice"),
    (SUM, "fuse(j, k)\nparallel(j_k)", "dependent-iterations"),
    (SUM, "cache_read(B, j)", "overwritten"),
    (SUM, "cache_write(A, j)", "no-use"),
    (SUM, "split(i, 7)", "factor"),
    (SUM, "split(i, 4, 'cut off')", "tail"),
    (SUM, "fuse(i, k)", "not-perfect"),
    (SUM, "vectorise(i)", "not-innermost"),
    (SUM, "parallel(nowhere)", "unknown-loop"),
    (SUM, "parallel(j)\nfuse(j, k)", "kinds"),
    (SUM, "compute_at(A, i)", "not-inner"),
    (SUM, "speed_up(i)", "no-primitive"),
    (SUM, "split(i)", "no-primitive"),
    (SUM, "tensorise(i, multiply8)", "no-match"),
    (SUM, "tensorise(i, unheard_of)", "intrinsic"),
    (SCAN, "parallel(i)", "dependent-iterations"),
    (SCAN, "reorder(j, i)", "order-matters"),
    (SCAN, "tile(i, j, 2, 2)", "order-matters"),
    (IN_PLACE, "parallel(i)", "dependent-iterations"),
    (IN_PLACE, "vectorise(i)", "dependent-iterations"),
    (IN_PLACE, "split(i, 2, 'shifted')", "done-twice"),
    (CHAIN, "compute_at(s, a)", "no-use"),
    (CHAIN, "store_at(s, i, j)", "no-sliding"),
    (CHAIN, "compute_at(t, i)", "unknown-buffer"),
    (TWICE, "compute_inline(s)", "overwritten"),
    (TWICE, "compute_at(s, i)", "overwritten"),
    (SUMS, "compute_inline(s)", "not-pure"),
    (SUMS, "reorder(j, i)\nparallel(d)", "dependent-iterations"),
)


@pytest.mark.parametrize("lines, schedule, law", ILLEGAL)
def test_an_illegal_schedule_is_refused(lines, schedule, law):
    with pytest.raises(ScheduleError) as raised:
        apply_schedule(nest(*lines), schedule, intrinsics=intrinsics())
    assert raised.value.law == law


def test_a_buffer_read_at_two_places_is_computed_at_neither():
    twice = nest(*CHAIN, "for m in range(6):", "    B[m, 0] = s[m, 0]")
    with pytest.raises(ScheduleError, match="used-outside"):
        apply_schedule(twice, "compute_at(s, i)")


def test_a_sliding_window_wants_turns_in_order():
    with pytest.raises(ScheduleError, match="not-in-order"):
        apply_schedule(blur(12, 9), "split(y, 5)\nparallel(y_i)\nstore_at(rows, y_o, y_i)")


def test_sums_of_whole_numbers_may_be_reordered():
    whole = nest(*SUM, A="int32[6,6]", B="int32[6,6]")
    made = apply_schedule(whole, "split(k, 2)\nreorder(k_i, k_o)\nrfactor(k_i)")
    A = np.arange(36, dtype="i4").reshape(6, 6) * 12345
    given = {"A": A, "B": np.zeros((6, 6), "i4")}
    assert run(made, given)["B"].tobytes() == run(whole, given)["B"].tobytes()


def test_relaxed_sums_are_near():
    made = apply_schedule(product(8), "rfactor(k)", relaxed=True)
    given = {n: np.random.default_rng(0).normal(size=(8, 8)).astype("f4") for n in "AB"}
    assert np.allclose(run(made, given)["C"], run(product(8), given)["C"], rtol=1e-5)
    assert show(made) != show(product(8))


def test_numbers_keep_their_bits():
    text = "def f(B: 'float32[4]') -> (B,):\n" + "".join(
        f"    B[{n}] = float32({v})\n" for n, v in enumerate(("'0000c07f'", "-0.0", "0.1", "'0100807f'")))
    assert show(parse(text)) == text
    assert run(parse(text), {})["B"].tobytes() == bytes.fromhex("0000c07f00000080cdcccc3d0100807f")


def test_multiples_that_are_negative_read_back():
    made = nest("for i in range(3):", "    B[-2*i + 4, 0] = A[-i + 2, 0]")
    assert parse(show(made)) == made


def test_every_primitive_says_what_it_does():
    assert all(f.__doc__ for f in PRIMITIVES.values())


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_leave_every_bit(seed):
    assert agree(seed, Counter()) is None


@pytest.mark.parametrize("seed", range(8))
def test_relaxed_schedules_are_within_rounding(seed):
    assert near(seed, Counter()) is None


def test_planted_schedules_are_refused():
    taken: Counter[str] = Counter()
    assert [wrong for seed in range(40) if (wrong := refused(seed, taken))] == []
    assert taken["of them change bits where they are done"] == 40


# Listings are what is kept, read back as the same nests, and mean the same at sizes that can be run.


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
