"""`show` and `parse` are inverse to one another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitla.hops import Hop, Kind, Meta, WeakScalar, all_ops, apply, const, leaf, make, parse, show

F8 = np.dtype("f8")
X = leaf(0, Meta((3, 4), F8))


def test_text_is_readable() -> None:
    rate = apply("multiply", X, WeakScalar(91, float), line="model.py:7")  # a slot nobody else uses
    part = make("getitem", [rate], index=(("i", 0), ("n",), ("s", None, 2, None), ("e",)))
    total = make("sum", [make("add", [part, const(0.1, "f8")])], axis=(0, 1), keepdims=False)
    assert show([total, rate], lines=True) == """\
(1) leaf(form='array', slot=0)               float64[3,4]
(2) leaf(form='weak', slot=91)               float64[]
(3) multiply(1, 2)                           float64[3,4]  # model.py:7
(4) getitem(3, index='0, newaxis, :2, ...')  float64[1,2]
(5) const(0.1)                               float64[]
(6) add(4, 5)                                float64[1,2]
(7) sum(6, axis=(0, 1), keepdims=False)      float64[]
roots (7) (3)
"""


def round_trip(*roots: Hop) -> None:
    assert parse(show(roots)) == roots


@pytest.mark.parametrize("value, dtype", [
    (0.0, "f8"), (-0.0, "f8"), (np.nan, "f8"), (-np.nan, "f4"), (np.inf, "f4"), (-np.inf, "f8"),
    (0.1, "f4"), (0.1, "f2"), (1e300, "f8"), (5e-324, "f8"), (2**63, "u8"), (-(2**63), "i8"),
    (True, "?"), (False, "?"), (1 + 2j, "c16"), (complex(np.nan, -0.0), "c8"), (0.1, "g"),
    (1.5, ">f8"),
])
def test_constants(value: object, dtype: str) -> None:
    round_trip(const(value, dtype))


def test_payload_of_nan_survives() -> None:
    odd = np.frombuffer(bytes.fromhex("010000000000f87f"), "f8")[0]
    round_trip(const(odd, "f8"))
    assert const(odd, "f8") is not const(np.nan, "f8")


def test_leaves_and_attributes() -> None:
    round_trip(leaf(3, Meta((2, 0), np.dtype("c8"), 5)), leaf(4, Meta((), F8), "scalar"), X, X)
    round_trip(leaf(0, Meta((2,), np.dtype(">i4"))), leaf(1, Meta((2,), np.dtype("M8[us]"))))
    round_trip(make("arange", (), start=0, stop=1.0, step=-0.5, dtype="f4"))
    round_trip(make("cast", [X], dtype=">f4"))
    for index in itertools.product(
        [("i", -1), ("s", None, None, None), ("s", 1, None, 2), ("s", None, -1, None)], repeat=2,
    ):
        round_trip(make("getitem", [X], index=index))
    round_trip(make("getitem", [X], index=()))


def test_every_cell_op() -> None:
    for op in all_ops():
        if op.kind is not Kind.CELL:
            continue
        attrs = {"dtype": "i4"} if op.name == "cast" else {}
        for dtype in (np.dtype("i4"), F8):
            try:
                hops = [leaf(i, Meta((3,), dtype)) for i in range(op.arity or 0)]
                hop = apply(op.name, *hops, **attrs)
            except TypeError:
                continue
            round_trip(hop)


def test_a_text_that_lies_is_refused() -> None:
    text = show([make("exp", [X])])
    with pytest.raises(ValueError, match="the text says"):
        parse("[3]".join(text.rsplit("[3,4]", 1)))
    with pytest.raises(ValueError, match="no hop"):
        parse("nonsense")
    with pytest.raises(ValueError, match="roots"):
        parse(text.splitlines()[0])


OPS = "add multiply subtract maximum exp negative less where cast sum".split()
STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 99), st.integers(0, 99)), max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_random_dags(steps: list[tuple[str, int, int]]) -> None:
    hops: list[Hop] = [X, leaf(1, Meta((4,), np.dtype("f4"), 2)), const(2, "i4")]
    for name, i, j in steps:
        x, y = hops[i % len(hops)], hops[j % len(hops)]
        match name:
            case "where":
                hops.append(apply(name, x, y, WeakScalar(5, int)))
            case "cast":
                hops.append(apply(name, x, dtype=y.meta.dtype))
            case "sum":
                hops.append(apply(name, x, axis=tuple(range(x.meta.ndim)), keepdims=i % 2 == 0))
            case "exp" | "negative":
                hops.append(apply(name, apply("add", x, WeakScalar(6, float))))
            case "subtract":
                hops.append(apply(name, x, WeakScalar(7, float)))
            case _:
                hops.append(apply(name, x, y))
    round_trip(*hops[-3:])
