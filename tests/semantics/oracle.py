"""Decorated against plain functions: results, exceptions and warnings."""

from __future__ import annotations

import copy
import linecache
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np

import jitla
from jitla.engine import ENGINE
from tests.fuzz.arrays import Box, array
from tests.fuzz.compare import Fault, Outcome, compare, innermost, leaves, outcome
from tests.fuzz.load import plain_jit

# Results and exceptions
#
# A program is a factory: called with a decorator it returns what to call and what can be reached
# from it, so that globals, closures and objects are its own on each side.

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


# Warnings: category, text, file, line, order, count
#
# A program is the source of a module, as for `oracle.faults`. Filters are named as the user sets them.

FILTERS = ("always", "default", "module", "once", "ignore", "error")


def check_warnings(
    source: str, *, filters: Sequence[str] = FILTERS, sizes: Sequence[int] = (3, 17, 1000),
    calls: int = 4, threads: Sequence[int] = (1, 2), setting: Callable[[], Any] | None = None,
    failures: bool = False,
) -> list[str]:
    """Fail if a module does or warns anything else jitted than plain; return the last warnings.

    It defines `f` and `make(n)` -> arguments. `setting` makes a context in which both run;
    `failures` says that programs may fail.
    """
    name = f"warned-{next(_NUMBER)}"
    text = "import numpy as np\nimport warnings\n" + dedent(source)
    last: list[str] = []
    for filter_name in filters:
        for workers in threads:
            plain, jitted = (module(text, name, jit) for jit in (plain_jit, jitla.jit))
            for n in sizes:
                wanted = list(seen(plain, n, name, filter_name, calls, setting))
                with jitla.options(num_threads=workers):
                    found = list(seen(jitted, n, name, filter_name, calls, setting))
                where = f"filter {filter_name}, size {n}, {workers} threads"
                for a, b in zip(wanted, found, strict=True):
                    faults = [f for f in compare(a[0], b[0]) if f.kind != "value"]
                    assert not faults, f"{where}: {faults[0]}"
                    for (path, x), (_, y) in zip(a[0].leaves, b[0].leaves, strict=True):
                        if isinstance(x, (np.ndarray, np.generic, float)):
                            np.testing.assert_allclose(y, x, 1e-12, err_msg=f"{where}: {path}")
                        elif type(x) in (str, int):
                            assert x == y, f"{where}: {path}: {y!r} and not {x!r}"
                last = [text for _, caught in wanted for text in caught]
                for call, (a, b) in enumerate(zip(wanted, found, strict=True)):
                    assert a[1] == b[1], f"{where}, call {call}: {b[1]} and not {a[1]}"
            failed = getattr(jitted["f"], "stats", dict)().get("failures", 0)
            assert failures or not failed, f"{filter_name}: {failed} failures"
    return last


def seen(
    names: dict[str, Any], n: int, name: str, filter_name: str, calls: int,
    setting: Callable[[], Any] | None,
) -> Iterator[tuple[Outcome, list[str]]]:
    """Call `f` some times under one filter; yield what came of each call and its warnings."""
    names.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filter_name)
        for _ in range(calls):
            given = names["make"](n)
            given = given if isinstance(given, tuple) else (given,)
            found, before = Outcome(), len(caught)
            try:
                if setting is None:
                    found.result = names["f"](*given)
                else:
                    with setting():
                        found.result = names["f"](*given)
            except Exception as error:
                found.error = error
                found.line = innermost(error.__traceback__, f"<{name}>")
            found.result = copy.copy(found.result)
            found.leaves = [*leaves(found.result, "result"), *leaves(list(given), "argument")]
            yield found, [
                f"{w.filename}:{w.lineno}: {w.category.__name__}: {w.message}" for w in caught[before:]
            ]


@contextmanager
def nothing_compiles(patch: Any) -> Iterator[None]:
    """Let every program fail to be made, so that blocks are run op by op."""
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no program")

    with patch.context() as inner:
        inner.setattr("jitla.recompile.compiler.Compiler.program", fail)
        yield
