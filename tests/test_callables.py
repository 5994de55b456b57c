"""Methods, partial calls, objects, generators: what is explained of each."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import jitla
from jitla.errors import ConfigError, TraceError
from jitla.introspection import untraceable_reason, unwrap_callable

X = np.random.default_rng(3).normal(size=(60, 4))


class Model:
    def __init__(self):
        self.w = np.arange(4.0)

    @jitla.jit
    def score(self, x):
        return (x * self.w).sum()

    @jitla.jit
    @classmethod
    def scaled(cls, x):
        return x * 2.5

    def __call__(self, x):
        return x * 3.5 + self.w


def scale(x, by):
    return x * by + 1.0


@pytest.mark.parametrize(("given", "name"), [
    (Model().score, "Model.score"), (Model().scaled, "Model.scaled"), (Model(), "Model.__call__"),
    (partial(jitla.jit(scale), by=2.5), "scale"), (partial(scale, by=1.5), "scale")])
def test_what_calls_a_function_is_explained_by_it(given, name):
    found = jitla.explain(given, X).record
    assert found.name == name and found.programs and found.call is not None


def test_methods_and_partial_calls_can_be_decorated():
    model = Model()
    bound, part = jitla.jit(model.__call__, compile="sync"), jitla.jit(partial(scale, by=2.0), compile="sync")
    assert (bound(X) == model(X)).all() and (part(X) == scale(X, 2.0)).all()
    assert bound.stats().kernels == 1 and part.func.stats().kernels == 1
    assert len(jitla.recompilations(part)) == 1


def test_arguments_of_partial_calls_come_first():
    given = partial(partial(scale, 1), by=2)
    assert unwrap_callable(given) == (scale, (1,), {"by": 2})


@pytest.mark.parametrize("ask", [Model().score.explain, Model().score.compile])
def test_a_method_that_has_lost_its_object_says_how_to_ask(ask):
    with pytest.raises(TypeError, match=r"jitla.explain\(object.score, ...\), or Model.score.explain\("):
        ask(X)


def test_generators_are_asked_for_some_values():
    closed = []

    @jitla.jit
    def rows(x):
        try:
            while True:
                yield (x * 2.5).sum()
        finally:
            closed.append(True)

    found = jitla.explain(rows, X)
    assert found.record.programs and closed == [True]


def test_what_has_to_be_awaited_is_not_called():
    async def later(x):
        return x

    with pytest.raises(TraceError, match="later runs in an event loop: await a call of it, then explain"):
        jitla.explain(later, X)


@pytest.mark.parametrize("ask", [jitla.jit, jitla.jit(compile="sync"), jitla.explain])
def test_a_class_is_refused_with_what_to_do(ask):
    with pytest.raises(TraceError, match=r"not the class Model; decorate its methods \[J101\]"):
        ask(Model)


class Table:
    """Has arrays, and does their arithmetic."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values

    def total(self):
        return sum(range(9))


def test_tables_do_their_own_arithmetic():
    @jitla.jit
    def total(table):
        return table.total()

    @jitla.jit
    def taken(table):
        return (table.to_numpy() * 2.5).sum()

    table = Table(np.ones(9))
    with jitla.options(compile="auto"):
        for asked in (False, True):
            total(table)
            told = str(jitla.explain(total, table) if asked else jitla.explain(total))
            assert "runs in NumPy: arithmetic of a Table is not traced" in told and ".to_numpy()" in told
        taken(table)
        told = str(jitla.explain(taken, table))
    assert "was compiled for this call; other calls run in NumPy" in told and "pass arrays instead" in told


def test_loops_that_asked_for_nothing_have_a_cure():
    def clipped(values):
        return [v if v > 0.0 else 0.0 for v in values]

    told = str(jitla.explain(clipped, [1.0, -1.0]))
    assert "its loops have no operations on arrays" in told and "with whole arrays (np.where, masks)" in told


def test_why_there_is_nothing_to_explain_is_said():
    assert "has not been called" in str(jitla.explain(scale))
    assert "nothing was compiled" in str(jitla.explain(lambda x: x.T, X))
    told = str(jitla.explain(np.sum, X))
    assert told.startswith("sum  0 calls") and "is not a Python function" in told and "source" not in told
    assert "is not a Python function" in jitla.explain(np.sum)._repr_html_()
    told = str(jitla.explain(np.linalg.norm.__wrapped__, X))
    assert "is a function of NumPy or SciPy itself" in told and "source" not in told
    assert untraceable_reason(scale) == ""
    with jitla.options(disable=True):
        assert "the option disable is on" in str(jitla.explain(scale, X, 2.0))


@pytest.mark.parametrize("wrong", [
    lambda: jitla.spec(-1), lambda: jitla.spec("a"), lambda: jitla.spec(3, order="X"),
    lambda: jitla.spec(3, density=2.0), lambda: jitla.spec(3, kind=np.array)])
def test_arrays_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="is not possible; use"):
        wrong()
