"""The table of recompilations, the options that freeze plans, warming up, the log."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import jitla
from jitla import packages
from jitla.dispatch import block_compilation
from jitla.engine import ENGINE
from jitla.events import compile_log


def weighted(x: Any, y: Any) -> Any:
    return ((x * 2.0) + y).sum(axis=0)


@pytest.fixture(autouse=True)
def _no_program_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINE, "_compilers", {})


def guards(function: Any) -> list[str]:
    return [record.guard.name for record in jitla.recompilations(function)]


@pytest.mark.parametrize(("second", "guard", "where"), [
    ((np.ones((7, 3)), np.ones((7, 3))), "size", "array 0"),
    ((np.ones((5, 3), "f4"), np.ones((5, 3))), "dtype", "array 0"),
    ((np.ones((5, 3), order="F"), np.ones((5, 3))), "layout", "array 0"),
    ((np.ones((5, 3)), np.ones(3)), "rank", "array 1"),
    ((np.ones((5, 3)), np.ones((5, 1))), "shape class", "array 1"),
    ((np.ones((5, 3)), 2.0), "scalar kind", "add"),
    ((np.ones((200, 300)), np.ones((200, 300))), "magnitude", ""),
])
def test_a_miss_says_which_guard_failed(second: tuple, guard: str, where: str) -> None:
    f = jitla.jit(weighted)
    f(np.ones((5, 3)), np.ones((5, 3)))
    f(*second)
    first, other = jitla.recompilations(f)
    line = weighted.__code__.co_firstlineno + 1
    assert first.guard.name == "new" and first.plans + first.reused and first.line[1] == line
    assert (other.guard.name, other.guard.where) == (guard, where)
    assert f"{guard}" in str(jitla.recompilations(f)) and other.guard.expected != other.guard.seen


def test_one_array_in_two_places_is_another_plan() -> None:
    f, x = jitla.jit(weighted), np.ones((5, 3))
    f(x, x)
    f(x, np.ones((5, 3)))
    assert guards(f) == ["new", "identity"]


def test_other_options_are_a_guard() -> None:
    f, x = jitla.jit(weighted), np.ones((5, 3))
    f(x, x)
    with jitla.options(numerics="strict"):
        f(x, x)
    assert guards(f) == ["new", "options"]


def test_another_size_compiles_nothing() -> None:
    f = jitla.jit(weighted)
    for n in range(5, 30):
        f(np.ones((n, 3)), np.ones((n, 3)))
    found = jitla.recompilations(f)
    assert sum(r.plans for r in found[1:]) == sum(r.compiled for r in found[1:]) == 0
    assert all(r.reused for r in found[1:])


def never_compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is compiled from now on."""
    asked: list[str] = []
    emit = vars(packages.codegen.Jit)["_emit"]

    def noted(self: Any, text: str, level: int) -> bytes:
        made: bytes = emit(self, text, level)
        asked.append(text)
        return made

    monkeypatch.setattr(packages.codegen.Jit, "_emit", noted)
    return asked


def test_a_product_of_sizes_that_is_another_size_by_chance_is_not_in_other_shapes() -> None:
    @jitla.jit(compile="sync")
    def joined(x: Any, w: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=0)
        return np.einsum("iab,abk->ik", windows, w / 7)

    for n, m in ((33, 16), (64, 8), (33, 17), (17, 8)):  # of 33 and 16 there are 32 windows of 32 elements
        x, w = np.random.default_rng(n).random((n, m)), np.ones((m, 2, 3))
        np.testing.assert_allclose(joined(x, w), joined.__wrapped__(x, w))
    assert joined.stats()["failures"] == 0


def test_frozen_plans_serve_what_they_fit_and_numpy_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(x, y):  # of no other test, so that its kernels are not there yet
        return ((x * 2.4375) + y).sum(axis=0)

    f, x = jitla.jit(plain), np.linspace(0, 1, 15).reshape(5, 3)
    f(x, x + 1.0)
    asked = never_compiled(monkeypatch)
    with jitla.recompilation(False):
        runs = f.stats().kernel_runs
        assert (f(x, x + 1.0) == plain(x, x + 1.0)).all() and f.stats().kernel_runs == runs + 1
        other = x.astype("f4")
        made = f(other, other + other)
        assert made.dtype == "f4" and (made == plain(other, other + other)).all()
        assert f.stats().kernel_runs == runs + 1
    assert not asked and jitla.recompilations(f)[-1].tier == "none"
    f(other, other + other)  # what was left to NumPy is compiled now
    assert f.stats().kernel_runs == runs + 2 and asked


def test_a_function_can_be_frozen() -> None:
    f, x = jitla.jit(weighted), np.ones((5, 3))
    f(x, x + 1.0)
    f.recompile = False
    f(x.astype("c16"), x + 1.0)
    assert f.stats().kernel_runs == 1 and f.stats().failures == 0
    f.recompile = True
    f(x.astype("c16"), x + 1.0)
    assert f.stats().kernel_runs == 2


def test_the_option_is_the_processs_too() -> None:
    f, x = jitla.jit(lambda x: x * 5.0 - 3.0), np.ones(40)
    assert jitla.config.recompile is True
    jitla.config.recompile = False
    try:
        assert (f(x) == 2.0).all() and f.stats().kernel_runs == 0
    finally:
        jitla.config.recompile = True


def test_warming_up_makes_ready_for_shapes() -> None:
    f = jitla.jit(weighted, compile="auto")
    f.compile(jitla.spec(300, 40, dtype="f4"), jitla.spec(300, 40, dtype="f4"))
    made = sum(r.compiled + r.plans for r in jitla.recompilations(f))
    assert made and f.stats().waiting == 0
    x = np.ones((300, 40), "f4")
    f(x, x + x)
    assert sum(r.compiled + r.plans for r in jitla.recompilations(f)) == made


def test_warming_up_leaves_arguments_as_they_are() -> None:
    @jitla.jit
    def doubled(x: np.ndarray) -> None:
        x[:] = np.exp(x) + x * 2.0

    x = np.ones(20_000)
    doubled.compile(x)
    assert (x == 1.0).all() and doubled.stats().kernels == 1


@pytest.mark.parametrize(("given", "kind"), [
    (jitla.spec(3, 4), np.ndarray), (jitla.spec(30, 4, kind=sp.csr_matrix, density=0.1), sp.csr_matrix)])
def test_specs_make_arguments(given: Any, kind: type) -> None:
    made = given.make()
    assert type(made) is kind and made.shape == given.shape and made.dtype == given.dtype
    if kind is not np.ndarray:
        assert 0 < made.nnz <= 12


def test_the_log_names_place_tier_time_and_size(caplog: pytest.LogCaptureFixture) -> None:
    f = jitla.jit(lambda x: np.cosh(x) * 7.25)
    with caplog.at_level(logging.INFO, compile_log.name):
        f(np.ones(50))
    (line,) = [r.getMessage() for r in caplog.records if r.name == compile_log.name]
    for part in ("now", "test_recompilation.py:", "1 plans", "kernels compiled", "bytes", "(new)", " ms"):
        assert part in line


def test_the_log_goes_to_standard_error_on_demand(capsys: pytest.CaptureFixture) -> None:
    with jitla.options(log="compile"):
        jitla.jit(lambda x: np.sinh(x) * 7.25)(np.ones(50))
    assert capsys.readouterr().err.count(" plans, ") == 1
    jitla.jit(lambda x: np.tan(x) * 7.25)(np.ones(50))
    assert capsys.readouterr().err == ""


def test_who_waits_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(block_compilation, "NOTICE_SECONDS", -1.0)
    jitla.jit(lambda x: np.arctan(x * 9.25) + np.cosh(x))(np.ones(5))
    assert capsys.readouterr().err.count("jitla: compiling ") == 1
    with jitla.options(progress=False):
        jitla.jit(lambda x: x * 9.25 + 2.0 * x)(np.ones(5))
    assert capsys.readouterr().err == ""


def test_only_decorated_functions_have_a_table() -> None:
    with pytest.raises(jitla.TraceError, match="not decorated"):
        jitla.recompilations(weighted)
    assert str(jitla.recompilations(jitla.jit(weighted))).endswith("nothing was compiled\n")


def test_far_more_nonzeros_are_planned_for_again() -> None:
    f, v = jitla.jit(lambda X, v: X.T @ (X @ v)), np.ones(200)
    for k, density in enumerate((0.1, 0.11, 0.6, 0.62)):
        X = sp.random(3000, 200, density=density, format="csr", random_state=k)
        assert np.allclose(f(X, v), X.T @ (X @ v))
    found = [r.guard.name for r in jitla.recompilations(f) if r.plans]
    assert found.count("sparsity") == 1 and len(found) <= 3


def test_products_at_many_positions_are_formed() -> None:
    rng = np.random.default_rng(0)
    f, U, V = jitla.jit(lambda X, U, V: X.multiply(np.log(U @ V.T)).sum()), rng.random((300, 40)), \
        rng.random((300, 40))
    for density in (0.05, 0.06, 0.9, 0.04):
        X = sp.random(300, 300, density=density, format="csr", rng=rng)
        assert np.isclose(f(X, U, V), X.multiply(np.log(U @ V.T)).sum())
    assert [r.guard.name for r in jitla.recompilations(f) if r.plans].count("sparsity") == 1
    steps = [" ".join(s.title for s in p.steps) for p in jitla.explain(f).record.programs]
    assert ["sampled_product" in each for each in steps] == [True, False]
