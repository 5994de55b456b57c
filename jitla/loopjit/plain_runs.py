"""Runs of loops by Python alone: of loops that are not compiled, and of short runs that are not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jitla.introspection import hide_module
from jitla.loopjit.sources import MAX_ITERATIONS

FOREVER = range(MAX_ITERATIONS)


class PlainRun:
    """One execution of a loop by Python."""

    __slots__ = ("more", "part", "_is_while")

    def __init__(self, part: Iterable[Any], is_while: bool) -> None:
        self.more = True
        self.part = part
        self._is_while = is_while

    def run(self, values: tuple[Any, ...]) -> None:
        """Let Python do all iterations."""
        self.more = self._is_while

    def finish(self, done: int) -> None:
        """End a ``while`` loop, whose test has failed."""
        self.more = False


class PlainWhile:
    """One execution of a ``while`` loop that is expected to be short: some iterations by Python at once."""

    __slots__ = ("more", "part", "_resume", "_iterations", "_rest")

    def __init__(self, resume: Callable[[int], Any], iterations: int) -> None:
        self.more = True
        self.part: Iterable[Any] = ()
        self._resume, self._iterations = resume, iterations
        self._rest: Any = None

    def run(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Let Python do some iterations first; the others are as in any run."""
        if not self.part:
            self.part = range(self._iterations)
            return None
        if self._rest is None:
            self._rest = self._resume(self._iterations)
        results: tuple[Any, ...] | None = self._rest.run(values)
        self.more, self.part = self._rest.more, self._rest.part
        return results

    def finish(self, done: int) -> None:
        """End the loop, whose test has failed."""
        self.more = False
        if self._rest is not None:
            self._rest.finish(done)


FINISHED = PlainRun((), False)  # the run of a loop that has ended
FINISHED.more = False


hide_module(__name__)
