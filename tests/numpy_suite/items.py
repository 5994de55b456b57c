"""What becomes of the items of one pytest process: a log that the process after it goes on with.

A worker appends one line of JSON at the start and at the end of each item, so that whoever brings the process
down is known, and is not run again.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

LAST_LINES = 14
NAME = "suite-log"
ENDED_BADLY = frozenset({"failed", "error", "timeout"})


def add_options(parser: pytest.Parser, modes: tuple[str, ...]) -> None:
    """Add what a worker is told."""
    group = parser.getgroup("suite")
    group.addoption("--mode", choices=modes, default="plain")
    group.addoption("--log-items", help="file that one line is appended to for each event")
    group.addoption("--part", default="0/1", help="I/N: the items whose hash is I modulo N")


def start_log(config: pytest.Config, kind: type[Log]) -> None:
    """Write the log that the command line names, if any."""
    log = config.getoption("--log-items")
    if log:
        config.pluginmanager.register(kind(Path(log)), NAME)


def in_part(nodeid: str, part: str) -> bool:
    """Say whether an item belongs to the part I/N."""
    index, _, count = part.partition("/")
    return zlib.crc32(nodeid.encode()) % int(count) == int(index)


def keep_items(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of this part that have not been run."""
    log = config.pluginmanager.get_plugin(NAME)
    done = log.done if log else frozenset()
    part = config.getoption("--part")
    items[:] = [i for i in items if i.nodeid not in done and in_part(i.nodeid, part)]


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

    def begin(self) -> None:
        """Prepare for an item."""

    def details(self) -> dict[str, Any]:
        """Return what else is known of the item that ends."""
        return {}

    def failed(self, report: pytest.TestReport, outcome: str) -> tuple[str, str]:
        """Return the outcome and the text of a phase that went wrong."""
        return outcome, "\n".join(report.longreprtext.splitlines()[-LAST_LINES:])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write down what could not be collected, as an item of its own; else that something was."""
        if report.failed:
            text = "\n".join(report.longreprtext.splitlines()[-LAST_LINES:])
            self._say(end=report.nodeid, outcome="error", text=text)
        else:
            self._say(collected=report.nodeid)  # a sign of life

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write down what runs next: whoever brings the process down is known by it."""
        self._outcome, self._text, self._seconds = "passed", "", 0.0
        self.begin()
        self._say(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the worst outcome of the item's phases."""
        self._seconds += report.duration
        found = report.outcome
        if hasattr(report, "wasxfail"):
            found = "xpassed" if report.passed else "xfailed"
        elif report.failed and report.when != "call":
            found = "error"
        if found != "passed" and self._outcome not in ENDED_BADLY:
            self._outcome = found
            if found in ENDED_BADLY:
                self._outcome, self._text = self.failed(report, found)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write down what became of the item."""
        self._say(end=nodeid, outcome=self._outcome, seconds=round(self._seconds, 3),
                  **({"text": self._text} if self._text else {}), **self.details())


def events(path: Path) -> dict[str, dict[str, Any]]:
    """Read a log: the last event of each item; without an outcome it has not ended."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if "warned" in record:  # follows the end of the item
            found[record["warned"]].setdefault("warnings", []).append(record["warning"])
        elif "collected" not in record:
            found[record.pop("end", None) or record.pop("start")] = record
    return found
