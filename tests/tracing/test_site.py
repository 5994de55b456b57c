"""What a function remembers between calls; what `strict` refuses."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.hops import Meta, leaf, make
from jitla.tracing.fallback import (
    Replay,
    Request,
)
from jitla.tracing.force import ClosedBlock
from jitla.tracing.site import Site

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
