"""Decorated against plain, with a search for proxies that outlive the call.

A program is the source of a module that defines `f`; it may define `make()` -> arguments and `state()`
-> what else can be reached. What it prints is compared too.
"""

from __future__ import annotations

import contextlib
import gc
import io
import traceback
from itertools import count
from textwrap import dedent
from typing import Any

import jitla
from tests.fuzz.compare import Fault, Outcome, compare, outcome
from tests.fuzz.load import plain_jit
from tests.semantics.oracle import module

_NUMBER = count()
_MAKE = "def make(): return array((6,), 'f8', 'C', 'normal', 1), array((6,), 'f8', 'C', 'normal', 2)\n"


def faults(source: str, *, calls: int = 2) -> list[str]:
    """Return what a program does differently when `jit` is jitla's."""
    name = f"sameness-{next(_NUMBER)}"
    text = "import numpy as np\n" + _MAKE + dedent(source)
    sides = []
    for jit in (plain_jit, jitla.jit):
        names = module(text, name, jit)
        sides.append([_outcome(names, name) for _ in range(calls)])
    found: list[str] = []
    for call, (plain, jitted) in enumerate(zip(*sides, strict=True)):
        differences: list[Fault | str] = [*compare(plain[0], jitted[0])]
        causes = [type(each[0].error and each[0].error.__context__).__name__ for each in (plain, jitted)]
        if causes[0] != causes[1]:
            differences.append("context: plain {}, jitted {}".format(*causes))
        if plain[1] != jitted[1]:
            differences.append(f"printed: plain {plain[1][:300]!r}, jitted {jitted[1][:300]!r}")
        found += [f"call {call}: {fault}" for fault in differences]
    for _, jitted in zip(*sides, strict=True):
        _clear_frames(jitted[0].error)
    proxies = proxies_alive()
    if proxies:
        found.append(f"{len(proxies)} proxies outlive the call: {proxies[:3]}")
    return found


def same(source: str, *, calls: int = 2) -> None:
    """Fail if a program does anything else jitted than plain."""
    found = faults(source, calls=calls)
    assert not found, "\n".join(found[:4])


def _clear_frames(error: BaseException | None) -> None:
    """Forget the variables of frames that failed: there, proxies may be seen."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        for frame, _ in traceback.walk_tb(error.__traceback__):
            frame.f_locals  # noqa: B018 - before Python 3.13 a frame keeps what it showed last
        error = error.__cause__ or error.__context__


def proxies_alive() -> list[str]:
    """Return the proxies that are still alive; there are none when no session is open."""
    gc.collect()
    found = [type(x).__name__ for x in gc.get_objects() if type(x).__name__ in ("LazyArray", "LazyScalar")]
    gc.freeze()  # what is alive now has been looked at: the next search is among what comes after
    return found


def _outcome(names: dict[str, Any], name: str) -> tuple[Outcome, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        given = names["make"]()
        found = outcome(
            names["f"], given if isinstance(given, tuple) else (given,), names.get("state", tuple),
            f"<{name}>")
    return found, printed.getvalue()
