"""Faults by name, and how one is run: in a process of its own, watched.

A fault is a function that gets an empty directory and raises if anything is not as it should be. It runs in a
fork of a process that has loaded jitla but compiled nothing, and has `SECONDS` to end in.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import jitla
from jitla import packages

SECONDS = 120.0  # machines that do much else are slow
FAULTS: dict[str, Callable[[Path], None]] = {}
FILLED: list[Path] = []  # where a cache is that was filled by `load`
PACKAGES = (
    "codegen", "recompile", "tracing", "rewrites", "runtime", "hops", "runtime.disk_cache")


class Outcome(NamedTuple):
    """What became of a fault: empty `wrong` if all is well."""

    name: str
    seconds: float
    wrong: str


def fault(*cases: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a fault, or one for each of `cases`, which are handed to it behind the directory."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        if not cases:
            FAULTS[name] = function
        for case in cases:
            values = case if isinstance(case, tuple) else (case,)
            label = "-".join(v.__name__ if hasattr(v, "__name__") else str(v)[:20] for v in values)
            FAULTS[f"{name}[{label}]"] = lambda at, values=values: function(at, *values)
        return function

    return register


def load(filled: Path) -> None:
    """Load what every fault needs, and fill a cache to copy; nothing is compiled here, no thread started."""
    for name in PACKAGES:
        reduce(getattr, name.split("."), packages)
    assert not ended(in_child(lambda: check(filled)), SECONDS)
    assert files(filled), "nothing was kept"
    FILLED.append(filled)


def run(name: str) -> Outcome:
    """Run one fault in a process of its own."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jitla-fault-") as directory:
        child = in_child(lambda: FAULTS[name](Path(directory, "cache")), Path(directory, "said"))
        wrong = ended(child, 1.5 * SECONDS)
        if wrong:
            wrong += "\n" + Path(directory, "said").read_text(errors="replace")
    return Outcome(name, time.monotonic() - start, wrong)


def in_child(act: Callable[[], object], said: Path | None = None) -> int:
    """Do `act` in a fork and return its number; it ends with 0 if nothing is raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if said is not None:
            handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            faulthandler.enable(handle)
            faulthandler.dump_traceback_later(1.4 * SECONDS, file=handle)
        act()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())  # `sys.stderr` may be pytest's
    finally:
        os._exit(status)


def ended(child: int, seconds: float) -> str:
    """Wait for a process; return nothing if it ended well, else how."""
    until = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "" if status == 0 else f"ended with {os.waitstatus_to_exitcode(status)}"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"hung: stopped after {seconds:.0f} s"


# ------------------------------------------------------------------------------ what is run under a fault

X, Y = np.linspace(-1.0, 2.0, 3000), np.linspace(0.5, 1.5, 3000)


def algorithm(x: np.ndarray, y: np.ndarray, turns: int = 2) -> tuple[Any, ...]:
    """Some kernels of different kinds: exact ones, so that results are NumPy's to the last bit."""
    total = 0.0
    z = x * y + 1.0
    for _ in range(turns):
        total += float((z * z).sum())
        z = np.sqrt(np.abs(z - y) + 0.5) / y
    return total, z, np.where(z > 1.0, x, y), (z > 1.0).sum()


EXPECTED = algorithm(X, Y)


def same(found: tuple[Any, ...], wanted: tuple[Any, ...] = EXPECTED) -> None:
    """Raise unless all results are equal, and of the same types."""
    for a, b in zip(found, wanted, strict=True):
        assert type(a) is type(b), (type(a), type(b))
        assert np.array_equal(a, b), (a, b)


def decorated(at: Path | None = None, **options: Any) -> Any:
    """Return the algorithm decorated; machine code is kept below `at`."""
    if at is None:
        jitla.configure(disk_cache=False)
    else:
        jitla.configure(cache_dir=at, disk_cache=True)
    return jitla.jit(**{"compile": "sync"} | options)(algorithm)


def check(at: Path | None = None, **options: Any) -> Any:
    """Run the algorithm twice, compare with NumPy, and return the decorated function."""
    f = decorated(at, **options)
    same(f(X, Y))
    same(f(X, Y))
    return f


def fill(at: Path) -> None:
    """Fill the cache, as another process would."""
    shutil.copytree(FILLED[-1], at)


def files(at: Path) -> list[Path]:
    """Return the files of the cache."""
    return sorted(p for p in (at / "objects").rglob("*") if not p.is_dir())


def tidy(at: Path) -> None:
    """Raise if a half-written file is left."""
    assert not [p for p in files(at) if p.name.startswith(".new")], files(at)
