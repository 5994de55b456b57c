"""First calls of a process that are interrupted, forked or short of something while what they need is loaded.

What is loaded already cannot be loaded again, so every fault is a process of its own, begun anew.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import jitla
from tests.faults.running import EXPECTED, SECONDS, X, Y, algorithm, ended, fault, in_child, same

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
from tests.faults import cold
cold.FOUND.append(cold.FUNCTION[0](cold.X, cold.Y))
"""
FUNCTION: list[Any] = []
FOUND: list[Any] = []


def anew(at: Path, act: Callable[..., None], *args: object) -> None:
    """Do ``act(*args)`` in a process that has loaded nothing yet; raise if it does not end well."""
    at.mkdir(exist_ok=True)
    text = f"from tests.faults import cold; cold.{act.__name__}{args!r}"
    environ = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{at}", "JITLA_DISK_CACHE": "0",
                            "JITLA_PROGRESS": "0"}
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", text], env=environ, cwd=at,
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)


def settle(f: Any) -> None:
    """Raise unless calls are right and compiled, and nothing has failed."""
    same(f(X, Y))
    same(f(X, Y))
    stats = f.stats()
    assert stats.kernel_runs > 0 and stats.failures == 0, str(stats)


class Watch:
    """Stands before what finds modules; calls `act` where the one with a number is looked for."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.number, self.act, self.count = number, act, 0
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.count += 1
        if self.count == self.number:
            self.act()


# ------------------------------------------------------------------------------ interrupts


@fault(*range(1, 180, 14))
def interrupt(at: Path, number: int) -> None:
    """^C while the n-th module of a first call is loaded: it comes out, and the next call is compiled."""
    anew(at, interrupted, number)


def interrupted(number: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    watch = Watch(number, lambda: os.kill(os.getpid(), signal.SIGINT))
    f = jitla.jit(algorithm, compile="sync")
    try:
        f(X, Y)
    except KeyboardInterrupt:
        settle(f)
    else:
        raise AssertionError(f"{watch.count} modules were loaded, and nothing was interrupted")


@fault(*[int(20 * 1.55**k) for k in range(14)])
def interrupt_import(at: Path, number: int) -> None:
    """^C at the n-th line of what a call loads that is made while its module is imported."""
    anew(at, interrupted_import, number)


def interrupted_import(number: int) -> None:
    count = 0

    def trace(frame: FrameType, event: str, given: Any) -> Any:
        nonlocal count
        if frame.f_code.co_name != "<module>" or f"jitla{os.sep}" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        if count == number:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    Path("called_at_import.py").write_text(MODULE)
    f = jitla.jit(algorithm, compile="sync")
    FUNCTION.append(f)
    sys.settrace(trace)
    try:
        import_module("called_at_import")
    except KeyboardInterrupt:
        settle(f)
    else:
        raise AssertionError(f"{count} lines were run, and nothing was interrupted")
    finally:
        sys.settrace(None)
    import_module("called_at_import")
    same(FOUND[0])


# ------------------------------------------------------------------------------ forks


@fault(*range(1, 180, 14))
def fork(at: Path, number: int) -> None:
    """A fork while another thread loads the n-th module of the first call: the child computes, compiled."""
    anew(at, forked, number)


def forked(number: int) -> None:
    loading = threading.Event()
    watch = Watch(number, loading.set)
    f = jitla.jit(algorithm, compile="sync")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(f(X, Y)))
    thread.start()
    assert loading.wait(SECONDS / 2), watch.count
    child = in_child(lambda: settle(f))
    assert ended(child, SECONDS / 2) == ""
    thread.join()
    same(found[0])
    settle(f)


# ------------------------------------------------------------------------------ what processes lack


def lacking(lack: Callable[[], Callable[[], None]]) -> None:
    """Call a function while the process lacks something, and when that is there: it is compiled then."""
    f = jitla.jit(algorithm, compile="sync")
    supply = lack()
    for _ in range(5):
        same(f(X, Y))
    supply()
    assert f.stats().failures > 0
    for _ in range(20):  # what failed is tried again after up to seven calls, which count as failures
        same(f(X, Y))
    failures = f.stats().failures
    for _ in range(5):
        same(f(X, Y))
    stats = f.stats()
    assert stats.kernel_runs > 0 and stats.failures == failures, str(stats)


@fault(0, 1)
def no_handles(at: Path, more: int) -> None:
    """No file can be opened when the first call needs all that is loaded."""
    anew(at, without_handles, more)


def without_handles(more: int) -> None:
    def lack() -> Callable[[], None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        handle = os.open(os.devnull, os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (handle + more, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    lacking(lack)


@fault(0, 10, 40, 70, 100, 200)
def little_space(at: Path, megabytes: int) -> None:
    """There is hardly any address space left, or not enough for the compiler, which would end the process."""
    anew(at, without_space, megabytes)


def without_space(megabytes: int) -> None:
    def lack() -> Callable[[], None]:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + (megabytes << 20), resource.RLIM_INFINITY))
        return lambda: resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

    lacking(lack)


@fault((32, "sync"), (32, "auto"), (48, "sync"), (64, "sync"), (128, "sync"), (256, "sync"), (256, "auto"))
def small_stack(at: Path, kilobytes: int, compile: str) -> None:
    """Threads with hardly any stack; those of the compiler have enough."""
    anew(at, in_small_stack, kilobytes, compile)


def in_small_stack(kilobytes: int, compile: str) -> None:
    f = jitla.jit(algorithm, compile=compile)
    usual = threading.stack_size(kilobytes << 10)
    found: list[Any] = []
    for _ in range(2):  # before and after all is loaded
        thread = threading.Thread(target=lambda: found.extend(f(X, Y) for _ in range(3)))
        thread.start()
        thread.join()
        same(f(X, Y))
    assert len(found) == 6
    for each in found:
        same(each)
    x, y = np.tile(X, 100), np.tile(Y, 100)
    thread = threading.Thread(target=lambda: found.append(f(x, y)))
    thread.start()
    thread.join()
    same(found[-1], algorithm(x, y))
    threading.stack_size(usual)
    assert np.array_equal(f(X, Y)[1], EXPECTED[1])
