"""Calls made in unusual ways: while compilers fail, and from several threads at once."""

from __future__ import annotations

import contextvars
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from jitla.engine import ENGINE
from tests.fuzz import load
from tests.fuzz.compare import Outcome, look, outcome, perform


@contextmanager
def failing(every: int) -> Iterator[None]:
    """Make every so many-th attempt to compile fail; none if 0."""
    if not every or load.PLAIN:
        yield
        return
    bind, numbers = ENGINE.bind, count(1)

    def sometimes(*given: Any) -> Any:
        if next(numbers) % every == 0:
            raise MemoryError("no compiler")
        return bind(*given)

    vars(ENGINE)["bind"] = sometimes
    try:
        yield
    finally:
        del vars(ENGINE)["bind"]


def outcomes(names: dict[str, Any], call: int, at_once: int, filename: str) -> list[Outcome]:
    """Call the function of a module once, or from several threads at the same time."""
    if at_once < 2:
        return [outcome(names["f"], names["make"](call), names["state"], filename)]
    given = [names["make"](call) for _ in range(at_once)]
    found = [Outcome(heard=False) for _ in given]
    start = threading.Barrier(at_once)

    def run(one: Outcome, arguments: tuple[Any, ...]) -> None:
        start.wait()
        perform(one, names["f"], arguments, filename)

    workers = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, one, arguments))
        for one, arguments in zip(found, given, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for one, arguments in zip(found, given, strict=True):
        look(one, arguments, names["state"])
    return found
