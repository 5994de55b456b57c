"""The pytest plugin inside a worker: decorates test functions and writes down what becomes of them.

Knows: pytest's items and reports, `jitla.jit`. Must not know: other workers, expectations.
Receives items; appends one line of JSON to a log at the start and at the end of each.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest

import jitla
from tests.numpy_suite.lazies import start_pending

LAST_LINES = 14
_decorated: dict[int, tuple[Any, Any]] = {}
# States of the decorated functions of the running item, and the failures that each had before.
_states: dict[Any, int] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a worker is told."""
    group = parser.getgroup("numpy-suite")
    group.addoption("--mode", choices=("plain", "decorate", "lazy"), default="plain")
    group.addoption("--log-items", help="file that one line is appended to for each event")
    group.addoption("--part", default="0/1", help="I/N: the items whose hash is I modulo N")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the mode."""
    if config.getoption("--mode") == "lazy":
        start_pending()
    log = config.getoption("--log-items")
    if log:
        config.pluginmanager.register(Log(Path(log)), "numpy-suite-log")


def in_part(nodeid: str, part: str) -> bool:
    """Say whether an item belongs to the part I/N."""
    index, _, count = part.partition("/")
    return zlib.crc32(nodeid.encode()) % int(count) == int(index)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of this part that have not been run."""
    log = config.pluginmanager.get_plugin("numpy-suite-log")
    done = log.done if log else frozenset()
    part = config.getoption("--part")
    items[:] = [i for i in items if i.nodeid not in done and in_part(i.nodeid, part)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Put the decorated function in the place of the test function."""
    if isinstance(item, pytest.Function) and item.config.getoption("--mode") != "plain":
        item.obj = decorated(item.obj)


def decorated(function: Any) -> Any:
    """Return `function` with its body decorated, below what other decorators put around it."""
    if isinstance(function, MethodType):
        return MethodType(decorated(function.__func__), function.__self__)
    known = _decorated.get(id(function))
    if known is None:
        known = _decorated[id(function)] = (function, _inside(function))
    state = getattr(known[1], "__jitla_state__", None)
    if state is not None:
        _states[state] = len(failures(state))
    return known[1]


def _inside(function: Any) -> Any:
    given = getattr(function, "hypothesis", None)
    if given is not None:
        given.inner_test = decorated(given.inner_test)
        return function
    inner = getattr(function, "__wrapped__", None)
    if isinstance(function, FunctionType) and isinstance(inner, FunctionType):
        for cell in function.__closure__ or ():
            if cell.cell_contents is inner:
                cell.cell_contents = decorated(inner)
                return function
    return jitla.jit(function, compile="sync")


def failures(state: Any) -> list[str]:
    """Return the blocks of a decorated function that no program could be made for."""
    return [failure for site in state.all_sites() for failure in site.failures]


class Log:
    """Writes the events of this worker; knows those of the workers before it."""

    def __init__(self, path: Path) -> None:
        self.done = frozenset(events(path)) if path.exists() else frozenset()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._outcome, self._text, self._seconds = "passed", "", 0.0

    def _say(self, **record: Any) -> None:
        os.write(self._file, (json.dumps(record) + "\n").encode())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write down what runs next: whoever brings the process down is known by it."""
        self._outcome, self._text, self._seconds = "passed", "", 0.0
        _states.clear()
        self._say(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the worst outcome of the item's phases."""
        self._seconds += report.duration
        found = report.outcome
        if hasattr(report, "wasxfail"):
            found = "xpassed" if report.passed else "xfailed"
        elif report.failed and report.when != "call":
            found = "error"
        if found != "passed" and self._outcome not in ("failed", "error"):
            self._outcome = found
            if found in ("failed", "error"):
                self._text = "\n".join(report.longreprtext.splitlines()[-LAST_LINES:])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write down what became of the item."""
        new = [failure for state, n in _states.items() for failure in failures(state)[n:]]
        traced = any(state.twin for state in _states)
        self._say(end=nodeid, outcome=self._outcome, seconds=round(self._seconds, 3), traced=traced,
                  **({"text": self._text} if self._text else {}),
                  **({"internal": new[-3:]} if new else {}))


def events(path: Path) -> dict[str, dict[str, Any]]:
    """Read a log: the last event of each item; without an outcome it has not ended."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found[record.pop("end", None) or record.pop("start")] = record
    return found
