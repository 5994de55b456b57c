"""The suites: our own programs, and public ones read from directories named by environment variables."""

from __future__ import annotations

from collections.abc import Callable

from bench.loop_programs.program import Program
from bench.loop_programs.suites import npbench, numba_examples, own, polybench, pythran

SUITES: dict[str, Callable[[], list[Program]]] = {
    "own": own.programs, "npbench": npbench.programs, "polybench": polybench.programs,
    "numba": numba_examples.programs, "pythran": pythran.programs}


def find_program(suite: str, name: str) -> Program:
    """Return a program by the name of its suite and its own."""
    for program in SUITES[suite]():
        if program.name == name:
            return program
    raise KeyError(f"suite {suite} has no program {name}")
