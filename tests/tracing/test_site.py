"""Call sites: the tape, signatures of metas and layouts, state between calls."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.hops import Meta, leaf, make
from jitla.tracing.fallback import Replay, Request
from jitla.tracing.force import ClosedBlock
from jitla.tracing.site import Site
from jitla.tracing.tape import (
    KIND_CODE,
    LAYOUTS,
    LEAF,
    METAS,
    OP_ID,
    Block,
    Symbols,
    backward_slice,
    class_key,
    depends_on_slots,
    hops_of,
    layout_id,
    meta_id,
)

# What a function remembers between calls; what `strict` refuses.

A = np.arange(5.0)


def test_strict_names_what_numpy_would_run_and_where() -> None:
    @jitla.jit(strict=True)
    def f(a):
        return np.sort(a * 2)

    with pytest.raises(jitla.UnsupportedError, match=r"test_site\.py:\d+: sort"):
        f(A)


def test_strict_leaves_scalars_to_python() -> None:
    @jitla.jit(strict=True)
    def f(a):
        n = (a > 0).sum() + 1
        return (a / n).mean(), int(n) * 2, divmod(n, 2), a[n - 2]

    assert f(A) == f.__wrapped__(A)


def test_fallbacks_are_counted_at_the_users_line() -> None:
    @jitla.jit
    def f(a):
        return np.sort(a * 2)

    f(A), f(A)
    (site,) = f.__jitla_state__.all_sites()
    ((name, file, line), record), = site.fallbacks.items()
    assert (name, record.count) == ("sort", 2)
    assert file == __file__ and line == f.__wrapped__.__code__.co_firstlineno + 2


def test_a_replay_gives_memory_of_its_own() -> None:
    x = leaf(0, Meta((5,), A.dtype), "array")
    replay = Replay(Request((x, make("negative", (x,))), {}, (None, None), frozenset()))
    same, negative = replay.run([A])
    assert (same == A).all() and not np.shares_memory(same, A)
    assert (negative == -A).all()


def test_a_replay_stores_where_it_is_told() -> None:
    target = A.copy()
    x = leaf(0, Meta((5,), A.dtype), "array")
    replay = Replay(Request((make("negative", (x,)),), {}, (0,), frozenset()))
    (stored,) = replay.run([target])
    assert stored is target and (target == -A).all()


def test_exact_blocks_are_bounded() -> None:
    site = Site("f", None, strict=False, thresholds=TracingThresholds(max_exact_blocks=4))
    for i in range(20):
        site.remember_block(((i,),), ClosedBlock(None, (), (), (), {}))
        assert ((i,),) in site.exact and ((i - 1,),) in site.exact or not i
    assert len(site.exact) <= 4


def test_exact_blocks_are_bounded_by_their_operations() -> None:
    site = Site("f", None, strict=False, thresholds=TracingThresholds(max_exact_entries=10))
    for i in range(20):
        site.remember_block(((i, 0, 0),), ClosedBlock(None, (), (), (), {}))
    assert sum(len(key[0]) for key in site.exact) <= 12
    site.remember_block((tuple(range(50)),), ClosedBlock(None, (), (), (), {}))
    site.remember_block(((1,),), ClosedBlock(None, (), (), (), {}))
    assert ((1,),) in site.exact
    site.retire(list(site.exact))
    for i in range(3):
        site.remember_block(((i, 0, 0),), ClosedBlock(None, (), (), (), {}))
    assert len(site.exact) == 3


def test_classes_are_bounded_and_runs_stay_counted() -> None:
    @jitla.jit(compile="sync")
    def raised(x):
        for _ in range(x.ndim):
            x = x * 2.0 + 1.0
        return x

    with jitla.options(thresholds=TracingThresholds(max_classes=3, many_classes=2)):
        for ndim in range(1, 6):
            x = np.ones((3,) * ndim)
            assert np.array_equal(raised(x), raised.__wrapped__(x))
    (site,) = raised.__jitla_state__.all_sites()
    assert len(site.classes) <= 3 and len(site.lines) <= 3 and site.has_many_classes
    assert raised.stats()["forces"] == 1 + 2 + 3 + 4 + 5


def test_a_program_that_fails_is_replayed() -> None:
    def breaks(*_):
        raise RuntimeError("no such program")

    @jitla.jit
    def f(a):
        return (a * 2 + 1).sum()

    f(A)
    (site,) = f.__jitla_state__.all_sites()
    site.clear()
    site.compile = breaks
    assert f(A) == f.__wrapped__(A)
    assert site.failures == ["RuntimeError: no such program"]


def test_fallbacks_say_why():
    @jitla.jit
    def both(x):
        return np.sort(x * 2.0), np.sum(x * 2.0, where=x > 1.0)

    both(np.arange(4.0))
    table = str(jitla.explain(both))
    assert "(not in the op table)" in table and "(not in this form, or not of these dtypes)" in table


# The tape: from entries to hops, keys without sizes, cones.

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


# Ids of metas and layouts, and what they keep of a layout.

X = np.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("array", "group"),
    [
        (X, ("C",)), (X.T, ("F",)), (X[0], ("C",)), (X[:, ::2], ("N", (0, 1), (False, False))),
        (np.broadcast_to(X[0], (3, 6)), ("N", (1, 0), (True, False))), (X[:0], ("C",)),
        (X[::-1], ("N", (0, 1), (False, False))), (X[:1], ("C",)), (X[:, :1], ("N", (0, 1), (False, False))),
    ],
)
def test_layout_group_of_an_array(array: np.ndarray, group: tuple) -> None:
    assert LAYOUTS[layout_id(array)].group == group


@pytest.mark.parametrize("array", [X, X.T, X[1:3, ::2], X[::-1], X[:, ::-2], X[:0], X[1:2, 3:4]])
def test_extent_is_the_memory_that_is_read(array: np.ndarray) -> None:
    layout = LAYOUTS[layout_id(array)]
    start = array.__array_interface__["data"][0]
    low, high = np.lib.array_utils.byte_bounds(array) if array.size else (start, start)
    assert (layout.low, layout.high) == (low - start, high - start)


def test_equal_layouts_have_one_id() -> None:
    assert layout_id(X) == layout_id(X.copy()) != layout_id(X.T)
    assert METAS[meta_id((2, 3), np.dtype("f4"))].shape == (2, 3)


def test_symbols_keep_zero_and_one() -> None:
    symbols = Symbols()
    assert symbols.of((0, 1, 7, 9, 7)) == (0, 1, -1, -2, -1)
    assert symbols.sizes == (7, 9)
