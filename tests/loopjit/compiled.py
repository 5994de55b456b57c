"""Loop functions whose loops are compiled at once, in the thread that calls them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from jitla.codegen import Jit, compile_program, load_loop_entry
from jitla.loopjit import LoopFunction, Loops, loop_compiler

_JIT = Jit()


def compile_at_once(site: Any, specialisation: Any, values: Any, source: Any, groups: Any) -> None:
    """Compile a loop now."""
    loop_compiler.compile_specialisation(
        site, specialisation, values, source, groups, lambda program: compile_program(program, _JIT),
        lambda job: job(), load_entry=lambda: load_loop_entry(_JIT))


def loop_function(function: FunctionType, hot_seconds: float = 0.0) -> LoopFunction | None:
    """Return `function` with loops that are compiled before their first iteration, and checked once.

    None if it has no loops. Python has spent `hot_seconds` in a loop before it is compiled.
    """
    made = Loops(compile_at_once).version(function)
    for site in made.entries if made else ():
        site.hot_seconds = hot_seconds
    return made
