"""Kernels of loops through the compiler, in this process: for random programs, not for tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from jitla.engine import ENGINE
from jitla.loopjit import (
    Loops,
    worker,
)
from tests.loopjit import emulated


@cache
def _names() -> dict[str, Any]:
    return worker._names()


class Foreman:
    """Does tasks at once, and compiles here."""

    program = __file__
    ready = False

    def submit(self, task) -> None:
        task()

    def ask(self, text: str, pointers: tuple[str, ...]) -> tuple[str, bytes]:
        return worker.compiled(text, list(pointers), _names())


def version(function: Any) -> Any:
    """Return the version of a function whose nests are compiled after their first run."""
    loops = Loops(
        ENGINE._adopt_loop_object, ENGINE._load_loop_text, emulated.at_once, lambda: emulated.unwatched)
    loops._foreman = Foreman()  # type: ignore[assignment]
    return loops.version(function)
