"""The tape: from entries to hops, keys without sizes, cones."""

from __future__ import annotations

import numpy as np

from jitla.tracing.tape import (
    KIND_CODE,
    LEAF,
    OP_ID,
    Block,
    backward_slice,
    class_key,
    depends_on_slots,
    hops_of,
    layout_id,
    meta_id,
)

ADD, MUL, NEG = OP_ID["add"], OP_ID["multiply"], OP_ID["negative"]


def block(n: int) -> Block:
    """Return the block of ``x * y + 2.0`` and ``-x``."""
    x, y = np.ones(n), np.ones(n)
    meta = meta_id((n,), x.dtype)
    entries = (
        (LEAF, layout_id(x)), (LEAF, layout_id(y)), (MUL, 0, 1), (ADD, 2, KIND_CODE[float]), (NEG, 0),
    )
    return Block(entries, (meta,) * 5, [x, y], [2.0], {3: ("file", 7)})


def test_hops_have_operands_and_lines() -> None:
    hops = hops_of(block(7013))  # no other test has these hops alive, with lines of its own
    assert [h.op.name for h in hops[2:]] == ["multiply", "add", "negative"]
    assert hops[3].inputs[0] is hops[2] and hops[3].line == ("file", 7)


def test_blocks_that_differ_in_sizes_share_a_key() -> None:
    assert class_key(block(5))[0] == class_key(block(9))[0] != class_key(block(1))[0]
    assert class_key(block(5))[1] == (5,)


def test_cone_and_readers() -> None:
    entries = block(5).entries
    assert backward_slice(entries, 3) == [0, 1, 2, 3]
    assert backward_slice(entries, 4) == [0, 4]
    assert depends_on_slots(entries, {1}) == [False, True, True, True, False]
