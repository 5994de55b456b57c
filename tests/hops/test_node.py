"""Nodes are interned, walked in order, rebuilt; construction casts as NumPy does."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import (
    Hop,
    Meta,
    WeakScalar,
    apply,
    const,
    const_value,
    evaluate,
    leaf,
    make,
    substitute,
    topo,
    uses,
    verify,
)

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
