"""Features of Python and NumPy in compiled loops: the rewritten function against the plain one, from the first part."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from jitla.codegen.jit import Jit
from jitla.codegen.loop_programs import compile_program
from jitla.loopjit import loop_sites
from jitla.loopjit.loop_compiler import compile_specialisation, rewrite_function
from jitla.loopjit.loop_sites import LoopSite, Specialisation, State
from jitla.loopjit.sources import Source

JIT = Jit()


def _request(site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
             groups: tuple[int, ...]) -> None:
    compile_specialisation(site, specialisation, values, source, groups,
                           lambda program: compile_program(program, JIT))


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[tuple[str, str]]]:
    """Return the result or exception of a call, the arguments behind it, and the warnings with their categories."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except Exception as error:
            result = (type(error), str(error))
    return (result, args), [(w.category.__name__, str(w.message)) for w in caught]


def compare(function: FunctionType, make: Callable[[], tuple[Any, ...]], calls: int = 4) -> list[Specialisation]:
    """Call a function and its rewritten form; return the specialisations of the loops that were run."""
    rewritten = rewrite_function(function, _request)
    assert rewritten is not None
    for site in rewritten.sites:
        site.hot_seconds = 0.0
    for _ in range(calls):
        args = make()
        plain, jitted = _outcome(function, copy.deepcopy(args)), _outcome(rewritten.function, copy.deepcopy(args))
        assert loop_sites._same(plain[0], jitted[0]), (plain[0], jitted[0])
        assert plain[1] == jitted[1]
    return [s for site in rewritten.sites for s in site.specialisations.values()]


def compiled(function: FunctionType, make: Callable[[], tuple[Any, ...]], calls: int = 4,
             failures: int = 0) -> None:
    """Assert that all loops of a function are compiled and used, and that Python did at most `failures` parts."""
    found = compare(function, make, calls)
    assert found
    for specialisation in found:
        assert specialisation.state is State.READY, (specialisation.state, specialisation.reason,
                                                     specialisation.line, specialisation.failure)
        assert specialisation.successes
        assert specialisation.failures <= failures, specialisation.failure


def random(*shape: int, seed: int = 1) -> np.ndarray:
    """Return random floats."""
    return np.random.default_rng(seed).random(shape)


# --------------------------------------------------------------------------- control flow and variables


def test_arrays_made_in_inner_loops() -> None:
    """An array that an iteration of an inner loop makes is used by the next one."""
    def function(a: Any, out: Any) -> None:
        for i in range(len(out)):
            x = a[i]
            y = x
            for _ in range(3):
                y = x
                x = x + a[i]
                y[0] += 1.0
            out[i] = x[0] + y[0]

    compiled(function, lambda: (random(30, 4), np.zeros(30)))


def test_variable_without_value_before_the_loop() -> None:
    """A variable that only the loop assigns is read behind it."""
    def function(a: Any, limit: float) -> Any:
        for x in a:
            if x > limit:
                big = x
        for k in range(len(a)):
            pass
        return big, k

    compiled(function, lambda: (random(200), 0.5))
    compare(function, lambda: (random(200), 1.5))
