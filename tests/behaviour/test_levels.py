"""The same bits on every level of the processor family and on any number of threads.

`make levels` runs more tests, each in processes of their own, on every level and number of threads.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jitla
from jitla import packages
from jitla.codegen import LlvmBackend, lacking, level_target
from jitla.engine import ENGINE
from jitla.recompile import Compiler
from tests.behaviour.templates import Program, programs

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
HERE = [level for level in LEVELS if not lacking(level_target(level))]
THREADS = (1, 2, 7)
PROGRAMS = programs()

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86-64")


@pytest.fixture(scope="module")
def reference() -> dict[str, list[np.ndarray]]:
    """Results of every program for this processor, on one thread."""
    with jitla.options(num_threads=1, cpu=""):
        return {name: results(jitla.jit(p.function), p) for name, p in PROGRAMS.items()}


def results(function: Any, program: Program) -> list[np.ndarray]:
    """All results of a call on copies of the arguments, and what has become of these."""
    arguments = [a.copy(order="K") for a in program.arguments]
    with np.errstate(all="ignore"):
        found = function(*arguments)
    several = found if type(found) is tuple else (found,)
    assert not function.stats()["failures"]
    return [_same_nans(np.asarray(r)) for r in (*several, *arguments)]


def _same_nans(x: np.ndarray) -> np.ndarray:
    """The sign of a NaN is nobody's result."""
    return np.where(np.isnan(x), x.dtype.type(np.nan), x) if x.dtype.kind in "fc" else x


@pytest.mark.parametrize("level", HERE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_on_every_level_and_number_of_threads(
    reference: dict[str, list[np.ndarray]], name: str, level: str
) -> None:
    program = PROGRAMS[name]
    function = jitla.jit(program.function)
    for threads in THREADS:
        with jitla.options(num_threads=threads, cpu=level):
            found = results(function, program)
        for got, want in zip(found, reference[name], strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if program.fused:
                _assert_close(got, want)
            else:
                assert got.tobytes() == want.tobytes(), f"other bits with {threads} threads"


def _assert_close(got: np.ndarray, want: np.ndarray) -> None:
    """Which plan has a product in it, and so whose additions these are, may depend on the threads."""
    most = 1e4 * np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 0
    np.testing.assert_allclose(got, want, rtol=most, atol=most)


def test_most_of_it_runs_in_kernels(reference: dict[str, list[np.ndarray]]) -> None:
    without = set()
    with jitla.options(num_threads=2):
        for name, program in PROGRAMS.items():
            function = jitla.jit(program.function)
            results(function, program)
            if not function.stats()["kernels"]:
                without.add(name)
    assert not without - {"looked up", "counted", "scattered", "histogram"}


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What the gate is asked to bind, in order."""
    seen: list[tuple[Any, ...]] = []
    bind = type(ENGINE).bind

    def noting(gate: Any, config: Any, key: Any, sizes: Any, layouts: Any, make: Any) -> Any:
        request = make()
        seen.append((request.roots, dict(layouts), request.outs, request.aliases))
        return bind(gate, config, key, sizes, layouts, make)

    monkeypatch.setattr(type(ENGINE), "bind", noting)
    yield seen


@pytest.mark.parametrize("level", [level for level in LEVELS if level not in HERE])
def test_code_is_made_for_what_is_not_here(
    requests: list[tuple[Any, ...]], level: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    # its code cannot be run here
    monkeypatch.setattr("jitla.recompile.compiler.numpy_difference", lambda *given: "")
    backend = LlvmBackend(launch=lambda *_: 0, target=level_target(level))
    compiler = Compiler(backend)
    layout = packages.fusion.Layout
    made = 0
    for program in PROGRAMS.values():
        results(jitla.jit(program.function), program)
        for roots, layouts, outs, aliases in requests:
            places = {slot: layout(*place) for slot, place in layouts.items()}
            built = compiler.build(roots, places, outs, aliases)
            built.bind(built.identity(), places)
            made += built.kernels
        requests.clear()
    assert made >= len(PROGRAMS) // 2 and len(backend.jit.objects) > 50
    missing = ", ".join(lacking(level_target(level)))
    pytest.skip(f"code for {level} is made, not run: this processor has no {missing}")
