"""Nodes: interning, order, rebuilding; their text form; evaluation of whole programs."""

from __future__ import annotations

import gc
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitla.errors import InternalError
from jitla.hops import (
    Hop,
    Kind,
    Meta,
    NumpyBuilder,
    WeakScalar,
    all_ops,
    apply,
    const,
    const_value,
    evaluate,
    leaf,
    make,
    parse,
    show,
    substitute,
    topo,
    uses,
    verify,
)

# Nodes are interned, walked in order, rebuilt; construction casts as NumPy does.

F8, F4 = np.dtype("f8"), np.dtype("f4")


def array(slot: int, shape: tuple = (3, 4), dtype: np.dtype = F8) -> Hop:
    return leaf(slot, Meta(shape, dtype))


def test_equal_expressions_are_one_node() -> None:
    x, y = array(0), array(1)
    assert make("add", [x, y]) is make("add", [x, y], line="elsewhere")
    assert make("subtract", [x, y]) is not make("subtract", [y, x])
    assert array(0) is x
    assert leaf(0, Meta((3, 4), F8), "scalar") is not x
    assert leaf(0, Meta((3, 4), F8, 3)) is not x


def test_operands_of_commuting_ops_are_ordered() -> None:
    x, y, c = array(0), array(1), const(2, "f8")
    assert make("add", [y, x]) is make("add", [x, y])
    assert make("multiply", [c, x]).inputs == (x, c)


def test_constants_are_their_bits() -> None:
    assert const(0.0, "f8") is not const(-0.0, "f8")
    assert const(np.nan, "f8") is const(np.nan, "f8")
    assert const(1, "i8") is not const(1, "f8")
    assert const_value(const(-3, "i2")) == np.int16(-3)
    assert type(const_value(const(-3, "i2"))) is np.int16


def test_equal_attributes_of_different_kind_are_different_nodes() -> None:
    def start(value: float) -> Hop:
        return make("arange", (), start=value, stop=3, step=1, dtype="f8")

    assert len({start(0), start(0.0), start(-0.0)}) == 3
    x = array(0)
    assert make("cast", [x], dtype="f4") is make("cast", [x], dtype=F4)


def test_unused_nodes_are_forgotten() -> None:
    key = id(make("add", [array(10), array(11)]))
    gc.collect()
    again = make("multiply", [array(10), array(11)])
    assert again.op.name == "multiply" or id(again) != key


@pytest.mark.threads
def test_interning_is_thread_safe() -> None:
    kept: list[Hop] = []

    def work() -> None:
        x = array(0)
        for i in range(200):
            x = make("add", [x, const(i, "f8")])
        kept.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(h) for h in kept}) == 1


def test_make_insists_on_cast_operands() -> None:
    with pytest.raises(InternalError):
        make("add", [array(0), array(1, dtype=F4)])
    with pytest.raises(InternalError):
        make("sum", [array(0, dtype=np.dtype("i1"))], axis=(0,), keepdims=False)
    with pytest.raises(InternalError):
        make("where", [array(0), array(1), array(2)])


def test_apply_casts_and_resolves_weak_scalars() -> None:
    hop = apply("add", array(0, dtype=F4), array(1))
    assert [i.op.name for i in hop.inputs] == ["leaf", "cast"]
    hop = apply("multiply", array(0, dtype=F4), WeakScalar(1, float))
    assert hop.meta.dtype == F4 and hop.inputs[1].attr("form") == "weak"
    assert apply("add", array(0, dtype=np.dtype("i1")), WeakScalar(1, bool)).meta.dtype == np.int8
    assert apply("add", array(0, dtype=np.dtype("?")), WeakScalar(1, bool)).meta.dtype == np.bool_


def test_weak_scalars_are_range_checked_as_in_numpy() -> None:
    hop = apply("add", array(0, (2,), np.dtype("u1")), WeakScalar(1, int))
    x = np.array([200, 1], "u1")
    assert evaluate([hop], [x, 100])[0].tolist() == [44, 101]
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        evaluate([hop], [x, 300])


def test_topo_is_deterministic_and_iterative() -> None:
    x = array(0)
    hop = x
    for _ in range(50_000):
        hop = make("negative", [hop])
    order = topo([hop, x])
    assert order[0] is x and order[-1] is hop and len(order) == 50_001
    y = array(1)
    a, b = make("subtract", [x, y]), make("exp", [y])
    assert topo([a, b]) == [x, y, a, b]
    assert topo([b, a]) == [y, b, x, a]


def test_uses_counts_each_use() -> None:
    x = array(0)
    square = make("multiply", [x, x])
    assert uses([square]) == {x: [square, square], square: []}


def test_substitute_infers_metas_anew() -> None:
    x, y = array(0), array(1, (4,))
    total = make("sum", [make("multiply", [x, y])], axis=(0,), keepdims=False)
    wide = array(0, (7, 4))
    (new,) = substitute([total], {x: wide})
    assert new.meta.shape == (4,) and new.inputs[0].meta.shape == (7, 4)
    assert substitute([total], {array(9): x}) == (total,)


def test_verify_finds_a_wrong_meta() -> None:
    good = make("exp", [array(0)])
    verify([good])
    bad = Hop(good.op, good.inputs, good.attrs, Meta((3, 5), F8), None)
    with pytest.raises(InternalError, match="rewrites"):
        verify([bad], "rewrites")


# `show` and `parse` are inverse to one another.

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


# `evaluate` on whole programs is NumPy on the same programs.



def test_a_program() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(5, 3)), rng.normal(size=3).astype("f4")
    x, y = leaf(0, Meta(a.shape, a.dtype)), leaf(1, Meta(b.shape, b.dtype))
    z = apply("tanh", apply("add", apply("multiply", x, y), WeakScalar(2, float)))
    total = apply("sum", z, axis=(0, 1), keepdims=False)
    gram = apply("matmul", apply("transpose", z, axes=(1, 0)), z)
    wanted = np.tanh(a * b + 0.5)
    got_z, got_total, got_gram = evaluate([z, total, gram], [a, b, 0.5])
    assert got_z.tobytes() == wanted.tobytes()
    assert got_total == wanted.sum() and type(got_total) is np.float64
    assert got_gram.tobytes() == (wanted.T @ wanted).tobytes()


def test_leaves_come_as_given_and_weak_ones_converted() -> None:
    boxed = np.array(2.0)
    array, scalar = leaf(0, Meta((), F8)), leaf(1, Meta((), F8), "scalar")
    weak = leaf(2, Meta((), np.dtype("f4")), "weak")
    values = evaluate([array, scalar, weak], [boxed, np.float64(3), 4])
    assert values[0] is boxed
    assert type(values[1]) is np.float64 and type(values[2]) is np.float32
    assert type(evaluate([make("negative", [array])], [boxed])[0]) is np.float64


def test_zero_d_results_are_scalars() -> None:
    x = leaf(0, Meta((1,), F8))
    for hop in (make("reshape", [x], shape=()), make("squeeze", [x], axis=(0,)),
                make("getitem", [x], index=(("i", 0),)),
                make("sum", [x], axis=(0,), keepdims=False)):
        assert type(evaluate([hop], [np.ones(1)])[0]) is np.float64


def test_the_builder_refuses_mixed_dtypes_and_arithmetic_on_bools() -> None:
    b = NumpyBuilder()
    with pytest.raises(InternalError):
        b.add(np.float32(1), np.float64(1))
    with pytest.raises(InternalError):
        b.add(np.True_, np.True_)
    with pytest.raises(InternalError):
        b.select(np.True_, np.float32(1), np.float64(1))
    with pytest.raises(InternalError):
        b.select(np.float64(1), np.float64(1), np.float64(1))


def test_casts_leave_repeated_operands_repeated() -> None:
    """A ufunc that casts orders the dimensions of its result by its operand, not by the cast."""
    repeated = np.broadcast_to(np.arange(5, dtype="i4"), (3, 5))
    x = leaf(0, Meta((3, 5), np.dtype("i4")))
    (found,) = evaluate([apply("multiply", make("cast", (x,), dtype="f8"), const(0.5, F8))], [repeated])
    assert found.strides == (repeated * 0.5).strides
    assert (found == repeated * 0.5).all()
