"""Vectors of innermost loops: bits, flags, memory and scalars are those of single iterations."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen import Jit
from jitla.codegen.loop_programs import program_text
from jitla.loopir import ProgramFacts, find_vector_loop, show_vector_loop
from jitla.loopir.program import INT64, Assign, Check, For, If, Leave
from tests.loopir.agreement import assert_agrees
from tests.loopir.programs import F8, apply, element, number, program, read, store
from tests.loopir.random_vector_loops import assert_vectors_agree, random_case

I = read("i")  # noqa: E741
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13)


@pytest.fixture(scope="module")
def jit() -> Jit:
    return Jit()


def loop(*body, independent=False):
    """Return the loop over `i` from 0 to `n` with these statements."""
    return For("L", "i", number(0), read("n"), 1, body, independent)


def of(*body, views=(("a", F8, 1), ("b", F8, 1)), scalars=(), results=(), raises=True, independent=False):
    """Return a program with one loop."""
    names = [("n", INT64), ("i", INT64), ("t", F8), ("s", INT64), *scalars]
    parameters = ("n", "s", *(name for name, _ in scalars), *(view[0] for view in views))
    return program((loop(*body, independent=independent), Leave(0)), names, views, results, parameters, 3,
                   raises=raises)


def plan_of(code):
    """Return how the loop of a program is vectorised."""
    return find_vector_loop(code.body[0], ProgramFacts(code))


def a_sum(ahead=1):
    return apply("add", element("a", I), element("a", apply("add", I, ahead)))


@pytest.mark.parametrize("block", range(12))
def test_random_loops(jit, block):
    for seed in range(12 * block, 12 * block + 12):
        code, values = random_case(seed)
        assert_vectors_agree(jit, code, values)


@pytest.mark.parametrize("dtype", ("f8", "f4", "i8", "i4", "i2", "u1", "c16"))
def test_lengths_and_offsets(jit, dtype):
    kind = np.dtype(dtype)
    ahead = element("a", apply("add", I, 1), dtype=kind)
    total = apply("add", element("a", I, dtype=kind), ahead, dtype=kind)
    code = of(store("b", I, value=total), views=(("a", kind, 1), ("b", kind, 1)), raises=kind.kind in "fc")
    assert not isinstance(plan_of(code), str)
    data = np.arange(250).astype(kind)
    for n in range(3 * 32 // min(kind.itemsize, 8) + 2):
        for offset in (0, 1, 3):
            values = {"a": data[offset:offset + n + 1], "b": np.zeros(n + 9, kind)[offset:offset + n]}
            assert_agrees(jit, code, levels=(1,), n=n, s=0, **values)


def test_a_loop_has_vectors_only_if_asked_for(jit):
    code = of(store("b", I, value=a_sum()), independent=True)
    assert "<4 x double>" in program_text(code, jit.target).replace("<8 x double>", "<4 x double>")
    assert " x double>" not in program_text(code, jit.target, vectors=False)


@pytest.mark.parametrize("place", range(9))
def test_flags_are_raised_by_lanes_that_are_iterations(jit, place):
    code = of(store("b", I, value=apply("divide", element("a", I), element("b", I))))
    for n in LENGTHS:
        a, b = np.ones(16), np.ones(16)
        b[place] = 0
        outcome, _, _ = assert_agrees(jit, code, levels=(1,), n=n, s=0, a=a, b=b)
        assert outcome.divide == (place < n)


def test_comparisons_with_nan_raise_nothing(jit):
    test = apply("less", element("a", I), element("b", I))
    code = of(store("b", I, value=apply("where", test, element("a", I), element("b", I), dtype=F8)))
    a = np.full(11, np.nan)
    assert not assert_agrees(jit, code, levels=(1,), n=11, s=0, a=a, b=np.ones(11))[0].invalid


@pytest.mark.parametrize("ahead", (-3, -2, -1, 0, 1, 2))
def test_dependences_in_one_array(jit, ahead):
    source = element("a", apply("add", I, 3 + ahead))
    code = of(store("a", apply("add", I, 3), value=apply("add", source, 1.0)))
    assert isinstance(plan_of(code), str) == (ahead < 0)
    for n in LENGTHS:
        assert_agrees(jit, code, levels=(1,), n=n, s=0, a=np.arange(20.0), b=np.zeros(1))


def test_a_read_behind_a_store(jit):
    code = of(store("a", I, value=number(5.0, F8)), store("b", I, value=element("a", apply("add", I, 1))))
    assert "iteration before" in plan_of(code)
    assert_agrees(jit, code, levels=(1,), n=9, s=0, a=np.arange(20.0), b=np.zeros(9))


@pytest.mark.parametrize("offset", range(-6, 7))
def test_views_that_overlap(jit, offset):
    code = of(store("b", I, value=apply("add", element("a", I), 1.0)))
    assert len(plan_of(code).apart) == 1
    for step in (1, -1, 2):
        data = np.arange(60.0)
        a, b = data[20:40][::step], data[20 + offset:][::abs(step)]
        assert_agrees(jit, code, levels=(1,), n=9, s=0, a=a, b=b)


@pytest.mark.parametrize("make", (
    lambda a: a, lambda a: a[:, ::-1], lambda a: a.T, lambda a: np.broadcast_to(a[:, :1], a.shape),
    lambda a: np.broadcast_to(a[:1], a.shape), lambda a: a[::2, ::2]))
def test_layouts(jit, make):
    inner = For("L", "j", number(0), read("m"), 1, (store("b", I, read("j"), value=apply(
        "multiply", element("a", I, read("j")), element("a", apply("add", I, 1), read("j")))),), True)
    code = program((For("M", "i", number(0), read("n"), 1, (inner,)), Leave(0)),
                   [(n, INT64) for n in "nmij"], [("a", F8, 2), ("b", F8, 2)], (), ("n", "m", "a", "b"),
                   raises=True)
    a = make(np.random.default_rng(3).normal(size=(30, 30)))
    assert_agrees(jit, code, levels=(1,), n=8, m=13, a=a, b=np.zeros((8, 13)))
    assert_agrees(jit, code, levels=(1,), n=8, m=13, a=a, b=np.zeros((13, 8)).T)


def test_scalars_have_the_values_of_the_last_iteration(jit):
    body = (Assign("t", apply("multiply", element("a", I), 2.0)), store("b", I, value=read("t", F8)))
    for results in (("t", "i"), ()):
        code = of(*body, results=results)
        assert plan_of(code).keeps_last == bool(results)
        for n in LENGTHS:
            assert_agrees(jit, code, levels=(1,), n=n, s=0, a=np.arange(20.0), b=np.zeros(20))


def test_checks_stop_at_their_iteration(jit):
    test = apply("greater", element("a", I), 5.5)
    total = Assign("s", apply("add", read("s"), I))
    code = of(Check(test, 1), total, store("b", I, value=element("a", I)), results=("i", "s"))
    assert not isinstance(plan_of(code), str)
    for place in range(14):
        a = np.zeros(14)
        a[place] = 9
        outcome, results, _ = assert_agrees(jit, code, levels=(1,), n=13, s=4, a=a, b=np.zeros(14))
        assert outcome.exit == (place < 13)


def test_loops_that_have_no_vectors(jit):
    behind = of(store("b", I, value=element("a", I)), Check(apply("greater", element("a", I), 5.5), 1))
    assert "behind a store" in plan_of(behind)
    assert "it has a If" in plan_of(of(If(apply("less", I, 3), (store("b", I, value=element("a", I)),))))
    assert "one element again" in plan_of(of(store("b", number(0), value=element("a", I))))
    assert "iteration before" in plan_of(of(Assign("t", apply("add", read("t", F8), element("a", I)))))
    assert "stores nothing" in plan_of(of(Assign("t", element("a", I))))
    index = element("c", I, dtype=INT64)
    scattered = of(store("b", index, value=element("a", I)),
                   views=(("a", F8, 1), ("b", F8, 1), ("c", INT64, 1)))
    assert "depends on data" in plan_of(scattered)


def test_the_text_of_a_vector_loop():
    code = of(Assign("s", apply("add", read("s"), I)), store("b", I, value=a_sum()), results=("i",))
    assert show_vector_loop(plan_of(code)) == """\
L: vectors of 8 bytes an element
  unit load a[i]
  unit load a[i + 1]
  unit store b[i]
  add into s
  b and a must not overlap
  b and a must not overlap
  the last iteration by itself"""
