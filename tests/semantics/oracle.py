"""Decorated against plain: what every test of semantics does.

A program is a factory: called with a decorator it returns what to call and what can be reached
from it, so that globals, closures and objects are its own on each side.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from textwrap import dedent
from types import ModuleType
from typing import Any

import jitla
from jitla.engine import ENGINE
from tests.fuzz.arrays import Box, array
from tests.fuzz.compare import Fault, Outcome, compare, outcome
from tests.fuzz.load import plain_jit

SIZES = (3, 17, 1000, 8193)
_NUMBER = count()


def faults(source: str, *, sizes: Sequence[int] = SIZES, calls: int = 2) -> list[tuple[str, int, int, Fault]]:
    """Run a module plain and in every mode for each size, several calls each; return what differs.

    The module defines `f`, `make(n)` -> arguments, and may define `state()` and `after(result,
    arguments)`, which runs after the call as its caller would.
    """
    found = []
    name = f"semantics-{next(_NUMBER)}"
    text = "import numpy as np\n" + dedent(source)
    for mode, threads in (("compiled", 1), ("compiled", 2), ("fault", 1), ("off", 1)):
        jit = jitla.jit(compile="off") if mode == "off" else jitla.jit
        plain, jitted = (module(text, name, made) for made in (plain_jit, jit))
        for n in sizes:
            for call in range(calls):
                expected = _called(plain, n, name)
                with jitla.options(num_threads=threads), no_compiler() if mode == "fault" else nullcontext():
                    actual = _called(jitted, n, name)
                differing = [*compare(expected, actual), *compare_warnings(expected, actual)]
                found += [(mode, n, call, fault) for fault in differing]
        failures = getattr(jitted["f"], "stats", dict)().get("failures", 0)
        if mode == "compiled" and failures:  # a fallback hides what is wrong
            found.append((mode, 0, 0, Fault("failures", "programs", "0", f"{failures:g}")))
    return found


@contextmanager
def no_compiler() -> Iterator[None]:
    """Make every attempt to compile fail."""

    def broken(*given: Any) -> Any:
        raise MemoryError("no compiler")

    vars(ENGINE)["bind"] = broken
    try:
        yield
    finally:
        del vars(ENGINE)["bind"]


def compare_warnings(plain: Outcome, jitted: Outcome) -> list[Fault]:
    """Compare category, text, file, line and number of the warnings; not which came first.

    Values are computed when they are needed: operations that NumPy does itself may be earlier.
    """
    a, b = (sorted((w.category.__name__, str(w.message), w.filename, w.lineno) for w in o.warned)
            for o in (plain, jitted))
    return [] if a == b else [Fault("warnings", "call", str(a), str(b))]


def module(text: str, name: str, jit: Callable[..., Any]) -> dict[str, Any]:
    """Return the names of a module made of `text`, jitted; it finds its text by the invented file name."""
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
        raise AssertionError("\n".join(
            f"{mode}, size {n}, call {call}: {fault}" for mode, n, call, fault in found[:4]))
