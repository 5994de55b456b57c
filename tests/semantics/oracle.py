"""Decorated against plain: what every test of semantics does.

A program is a factory: called with a decorator it returns what to call and what can be reached
from it, so that globals, closures and objects are its own on each side.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Sequence
from itertools import count
from textwrap import dedent
from types import ModuleType
from typing import Any

import jitla
from tests.fuzz.arrays import Box, array
from tests.fuzz.compare import Fault, compare, outcome
from tests.fuzz.load import plain_jit

SIZES = (3, 17, 1000, 8193)
_NUMBER = count()


def faults(source: str, *, sizes: Sequence[int] = SIZES, calls: int = 2) -> list[tuple[int, int, Fault]]:
    """Run a module plain and jitted for each size, several calls each; return what differs.

    The module defines `f`, `make(n)` -> arguments, and may define `state()` and `after(result,
    arguments)`, which runs after the call as its caller would.
    """
    found = []
    name = f"semantics-{next(_NUMBER)}"
    text = "import numpy as np\n" + dedent(source)
    for threads in (1, 2):
        plain, jitted = (module(text, name, jit) for jit in (plain_jit, jitla.jit))
        for n in sizes:
            for call in range(calls):
                expected = _called(plain, n, name)
                with jitla.options(threads=threads):
                    actual = _called(jitted, n, name)
                found += [(n, call, fault) for fault in compare(expected, actual)]
    return found


def module(text: str, name: str, jit: Callable[..., Any]) -> dict[str, Any]:
    """Return the names of a module made of `text`, with `jit` as its decorator."""
    filename = f"<{name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    made = sys.modules[name] = ModuleType(name)
    names = vars(made)
    names.update(jit=jit, array=array, Box=Box)
    exec(compile(text, filename, "exec"), names)
    return names


def _called(names: dict[str, Any], n: int, name: str) -> Any:
    after = names.get("after")

    def call(*arguments: Any) -> Any:
        result = names["f"](*arguments)
        return (result, after(result, arguments)) if after else result

    given = names["make"](n)
    return outcome(
        call, given if isinstance(given, tuple) else (given,), names.get("state", tuple), f"<{name}>"
    )


def check(source: str, **options: Any) -> None:
    """Fail if a module does anything else jitted than plain."""
    found = faults(source, **options)
    if found:
        raise AssertionError("\n".join(f"size {n}, call {call}: {fault}" for n, call, fault in found[:4]))
