"""What every system makes of a script: something to call, and what is known afterwards."""

from __future__ import annotations

import difflib
import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


class NotHere(Exception):
    """The system has no version of this script, or is not installed."""


@dataclass
class Entered:
    """A callable that runs the script once and returns what it learned.

    `changed`: lines that differ from the NumPy function; `clock`: what a system that times itself gives for a
    call, else None; `counters`: what it says of itself afterwards.
    """

    call: Callable[[], Any]
    changed: int = 0
    clock: Callable[[], float] | None = None
    counters: Callable[[], dict[str, Any]] = field(default=dict)
    close: Callable[[], None] = field(default=lambda: None)


def statements(function: Any) -> list[str]:
    """Return the lines of a function that say something: no blank ones, comments and documentation."""
    text = function if isinstance(function, str) else textwrap.dedent(inspect.getsource(function))
    if not isinstance(function, str) and function.__doc__:
        head, mark, tail = text.partition('"""')
        text = head + tail.partition('"""')[2] if mark else text
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def lines_changed(before: Any, after: Any) -> int:
    """Return how many lines of `before` one has to touch, or to add, to get `after`."""
    matched = difflib.SequenceMatcher(None, statements(before), statements(after), autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matched.get_opcodes() if tag != "equal")


def port(folder: str, plain: Any) -> tuple[Any, ModuleType]:
    """Return the function of the same name in the module of the same name under `ports`."""
    module = plain.__module__.rpartition(".")[2]
    try:
        found = importlib.import_module(f"bench.algorithms.ports.{folder}.{module}")
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("bench."):
            raise
        raise NotHere(f"nothing of {module} is written for {folder}") from None
    function = getattr(found, plain.__name__, None)
    if function is None:
        raise NotHere(f"{plain.__name__} is not written for {folder}")
    return function, found
