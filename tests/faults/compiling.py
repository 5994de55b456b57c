"""Compilers that fail, at any step: NumPy does what they do not."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from jitla.codegen import jit as jit_file
from jitla.codegen.backend import LlvmBackend
from jitla.codegen.jit import Jit
from jitla.engine import ENGINE
from jitla.errors import BackendError
from jitla.recompile import pipeline
from jitla.recompile.compiler import Compiler
from jitla.runtime import process
from tests.faults.running import EXPECTED, X, Y, algorithm, check, decorated, fault, files, same

# ------------------------------------------------------------------------------ steps that fail

STEPS: dict[str, tuple[Any, str]] = {
    "emit": (Jit, "_emit"), "link": (Jit, "_link"), "load": (Jit, "load"), "key": (Jit, "key"),
    "start": (Jit, "_start"), "made": (Jit, "_made"), "kernel": (LlvmBackend, "compile"),
    "support": (LlvmBackend, "supports"), "build": (Compiler, "build"), "bind": (Compiler, "bind"),
    "executable": (Compiler, "executable"), "engine": (type(ENGINE), "_new_compiler"),
}
ERRORS = (BackendError, RuntimeError, MemoryError, OSError, RecursionError, ValueError)


def failing(owner: Any, name: str, error: type[Exception], when: Callable[[int], bool]) -> list[int]:
    """Let the calls of a method whose numbers `when` picks raise `error`; return the numbers of all."""
    calls: list[int] = []
    method = getattr(owner, name)

    def fail(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls) + 1)
        if when(calls[-1]):
            raise error("put in on purpose")
        return method(*args, **kwargs)

    setattr(owner, name, fail)
    return calls


@fault(*[(step, ERRORS[k % len(ERRORS)]) for k, step in enumerate(STEPS)],
       *[(step, ERRORS[(k + 2) % len(ERRORS)]) for k, step in enumerate(STEPS)])
def always(at: Path, step: str, error: type[Exception]) -> None:
    calls = failing(*STEPS[step], error, lambda n: True)
    check(at)
    assert calls


@fault(*[(step, n) for step in STEPS for n in (1, 2, 5)])
def once(at: Path, step: str, number: int) -> None:
    """One call fails; what is compiled afterwards is right, and so is the next function."""
    owner, method = STEPS[step]
    before = getattr(owner, method)
    failing(owner, method, RuntimeError, lambda n: n == number)
    check(at)
    setattr(owner, method, before)
    g = jitla.jit(lambda x: (x * 2.0 + 1.0).sum(), compile="sync")
    assert g(X) == (X * 2.0 + 1.0).sum() and g(Y) == (Y * 2.0 + 1.0).sum()


@fault(*range(len(pipeline.STAGES)))
def stage(at: Path, number: int) -> None:
    """A stage of the pipeline fails."""
    def fail(*args: Any) -> Any:
        raise KeyError("put in on purpose")
    stages = list(pipeline.STAGES)
    object.__setattr__(stages[number], "run", fail)
    check(at)


@fault("define void @f( {", "", "declare void @k()", "define void @k() { ret i32 1 }")
def text(at: Path, wrong: str) -> None:
    """The compiler gets text that is none."""
    emit = Jit._emit
    Jit._emit = lambda self, text, level: emit(self, wrong, level)  # type: ignore[method-assign]
    check(at)


@fault()
def result(at: Path) -> None:
    """The compiler returns what is no object; it is kept on disk, and a miss for the next process."""
    emit = Jit._emit
    Jit._emit = lambda self, text, level: emit(self, text, level)[:100]  # type: ignore[method-assign]
    check(at)
    assert files(at)


@fault()
def slow(at: Path) -> None:
    """Compiling takes long: other threads go on, in NumPy or with what is there."""
    emit = Jit._emit

    def wait(self: Jit, text: str, level: int) -> bytes:
        time.sleep(0.1)
        return emit(self, text, level)

    Jit._emit = wait  # type: ignore[method-assign]
    f = decorated(at)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(f(X, Y))) for _ in range(4)]
    for t in threads:
        t.start()
    same(algorithm(X, Y))
    for t in threads:
        t.join()
    for each in found:
        same(each)
    assert len(found) == 4


@fault()
def no_processor(at: Path) -> None:
    """LLVM does not know the processor."""
    def nothing() -> Any:
        raise RuntimeError("no target")
    jit_file.host_target = nothing  # type: ignore[assignment]
    check(at)


# ------------------------------------------------------------------------------ interrupts


def interrupted(act: Callable[[], Any], seconds: float) -> bool:
    """Interrupt `act` after `seconds`; say whether it was not over by then."""
    armed = [True]

    def ring(*args: Any) -> None:
        if armed and armed.pop():
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        act()
        armed.clear()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False


@fault(*[round(0.002 * 1.32**k, 4) for k in range(20)])
def cold_interrupt(at: Path, seconds: float) -> None:
    """^C at any time of a first call: it comes out, and the next call is right."""
    f = decorated(at)
    x = X.copy()
    interrupted(lambda: f(x, Y), seconds)
    assert np.array_equal(x, X)
    same(f(X, Y))
    same(f(X, Y))


@fault(*range(6))
def hot_interrupt(at: Path, seed: int) -> None:
    """^C while kernels run, a hundred times: state is clean afterwards."""
    x, y = np.tile(X, 100), np.tile(Y, 100)
    wanted = algorithm(x, y)
    f = check(at)
    f(x, y)
    draw = np.random.default_rng(seed)
    hit = sum(interrupted(lambda: f(x, y), float(draw.uniform(1e-5, 4e-3))) for _ in range(60))
    same(f(x, y), wanted)
    assert hit


@fault(*range(4))
def storm(at: Path, seed: int) -> None:
    """A signal every few milliseconds, whose handler computes with NumPy."""
    seen: list[float] = []
    signal.signal(signal.SIGALRM, lambda *args: seen.append(float((X[:100 + 10 * seed] * 3.0).sum())))
    f = decorated(at)
    signal.setitimer(signal.ITIMER_REAL, 5e-4, 5e-3)
    for _ in range(20):
        same(f(X, Y))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen and set(seen) == {float((X[:100 + 10 * seed] * 3.0).sum())}


# ------------------------------------------------------------------------------ memory


@fault(*range(1, 9))
def no_memory(at: Path, number: int) -> None:
    """The n-th array that results are written into cannot be had: NumPy does that block."""
    runtime = process._PROCESS
    f = check(at)
    make = runtime.empty
    calls: list[int] = []

    def fail(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            raise MemoryError
        return make(*args)

    runtime.empty = fail
    try:
        same(decorated(at)(X, Y))
    except MemoryError:
        pass  # as NumPy's would where it has to allocate itself
    runtime.empty = make
    same(f(X, Y))


@fault(20, 60, 200)
def little_memory(at: Path, megabytes: int) -> None:
    """The process may take no more than so much: a MemoryError is NumPy's, or results are right."""
    f = check(at)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + (megabytes << 20),) * 2)
    for n in (1000, 100_000, 1_000_000, 30_000_000):
        try:
            x = np.linspace(-1.0, 2.0, n)
            wanted = algorithm(x, x + 2.0)
        except MemoryError:
            continue
        try:
            same(f(x, x + 2.0), wanted)
        except MemoryError:
            assert n > 1000
        del x, wanted
    same(f(X, Y), EXPECTED)
