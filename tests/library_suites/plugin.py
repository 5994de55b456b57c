"""The pytest plugin inside a worker: decorates a library, and writes down what becomes of its tests.

Everything that is drawn at random begins anew with each item, whichever items ran before it in the process.
"""

from __future__ import annotations

import random
import re
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.library_suites.decoration import DECORATED, start_decorating
from tests.numpy_suite.items import Log, add_options, keep_items, start_log

MODES = ("plain", "sync", "default")
FRAMES = 8  # of a traceback, the innermost ones
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a worker is told."""
    add_options(parser, MODES)
    parser.getgroup("suite").addoption("--package", help="the package whose functions are decorated")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start to decorate before anything of the library is imported."""
    given = early_config.known_args_namespace
    if given.mode != "plain":
        start_decorating(given.package, {"compile": "sync"} if given.mode == "sync" else {})


def pytest_configure(config: pytest.Config) -> None:
    """Start the log."""
    start_log(config, LibraryLog)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the items of this part that have not been run."""
    keep_items(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin all sources of random numbers anew."""
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)
    # what `default_rng()` asks the system for
    np.random.bit_generator.randbits = random.Random(seed).getrandbits  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Put the kind of exception and the frames that it came from on the report."""
    report = yield
    if call.excinfo is not None and not hasattr(report, "wasxfail"):
        error = call.excinfo.value
        frames = [f"{_short(frame.filename)}:{frame.lineno} {frame.name}"
                  for frame in traceback.extract_tb(error.__traceback__)]
        report.cause = {"kind": type(error).__name__, "frames": frames[-FRAMES:],
                        "message": _ADDRESS.sub("0x", str(error))[:600]}
    return report


def _short(filename: str) -> str:
    """Return a file's path below the library or the repository that it is of."""
    parts = Path(filename).parts
    for top in ("scips", "sklearn", "jitla", "numpy", "site-packages", "python3.11"):
        if top in parts[:-1]:
            last = len(parts) - 1 - parts[::-1].index(top)
            return "/".join(parts[last:])
    return parts[-1]


class LibraryLog(Log):
    """Writes down, too, what was warned of, and what in a library an exception came from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._cause: dict[str, Any] = {}
        self._warned: set[tuple[str, tuple[str, str]]] = set()
        self._known: dict[Any, int] = {}  # failures of sites before
        self._calls = 0

    def begin(self) -> None:
        """Forget the item before."""
        self._cause = {}

    def failed(self, report: pytest.TestReport, outcome: str) -> tuple[str, str]:
        """Tell an item that took too long from others."""
        self._cause = getattr(report, "cause", {})
        late = "from pytest-timeout" in self._cause.get("message", "")
        outcome, text = super().failed(report, outcome)
        return "timeout" if late else outcome, text

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """Write down what was warned of while an item ran, which pytest tells after its end."""
        text = _ADDRESS.sub("0x", str(warning_message.message))
        found = warning_message.category.__name__, text[:400]
        if nodeid and (nodeid, found) not in self._warned:
            self._warned.add((nodeid, found))
            self._say(warned=nodeid, warning=found)

    def details(self) -> dict[str, Any]:
        """Return what is known of the item that ends."""
        new: list[str] = []
        calls = 0
        for function in DECORATED:
            state = function.__jitla_state__
            for site in filter(None, state.sites.values()):
                calls += site.calls
                failures = len(site.failures)
                new += site.failures[self._known.get(site, 0):]
                self._known[site] = failures
        traced, self._calls = calls > self._calls, calls
        made = {"cause": self._cause, "internal": new[-3:], "traced": traced}
        return {name: value for name, value in made.items() if value}
