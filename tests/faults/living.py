"""Forks, threads and endings at bad moments."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from jitla import concurrency as locks
from jitla.codegen import jit as jit_file
from jitla.codegen.jit import Jit
from jitla.engine import ENGINE
from jitla.recompile.compiler import Compiler
from tests.faults.running import (
    SECONDS,
    X,
    Y,
    algorithm,
    check,
    decorated,
    ended,
    fault,
    in_child,
    same,
)

ROOT = Path(__file__).resolve().parents[2]

# ------------------------------------------------------------------------------ forks

HELD: dict[str, tuple[Any, str]] = {
    "emit": (Jit, "_emit"), "link": (Jit, "_link"), "start": (Jit, "_start"), "build": (Compiler, "build"),
    "engine": (type(ENGINE), "_new_compiler"), "native": (type(ENGINE), "_backend"), "key": (Jit, "key"),
    "bind": (type(ENGINE), "bind"), "compile": (Compiler, "_compile"),
}


def paused(owner: Any, name: str) -> tuple[threading.Event, threading.Event]:
    """Let the first call of a method wait; return what is set when it does, and what lets it go on."""
    method, inside, go = getattr(owner, name), threading.Event(), threading.Event()

    def wait(*args: Any, **kwargs: Any) -> Any:
        if not inside.is_set():
            inside.set()
            go.wait(SECONDS)
        return method(*args, **kwargs)

    setattr(owner, name, wait)
    return inside, go


@fault(*HELD)
def fork_while(at: Path, step: str) -> None:
    """A fork while another thread is in a step of compiling: the child compiles for itself."""
    f = decorated(at)
    inside, go = paused(*HELD[step])
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(f(X, Y)))
    thread.start()
    assert inside.wait(SECONDS)
    assert ended(in_child(lambda: (same(f(X, Y)), check(at))), SECONDS) == ""
    go.set()
    thread.join(SECONDS)
    same(found[0])


@fault("at", "lost")
def fork_in_llvm(at: Path, how: str) -> None:
    """A fork while another thread is inside the library: it waits for it, or the child does without."""
    f = decorated(at)
    same(f(X, Y))
    locks.FORK_WAIT_SECONDS = 5.0 if how == "at" else 0.1
    held, go = threading.Event(), threading.Event()

    def inside() -> None:
        with jit_file._INSIDE:
            held.set()
            go.wait(1.0 if how == "at" else SECONDS)

    thread = threading.Thread(target=inside)
    thread.start()
    assert held.wait(SECONDS)
    x, y = X[::3], Y[::3]
    child = in_child(lambda: (same(f(X, Y)), check(at), same(f(x, y, 1), algorithm(x, y, 1))))
    go.set()
    thread.join()
    assert ended(child, SECONDS) == ""
    same(f(x, y, 3), algorithm(x, y, 3))


@fault(1, 4)
def fork_while_running(at: Path, threads: int) -> None:
    """Forks while kernels run on all threads of the pool, and forks of forks."""
    x, y = np.tile(X, 50), np.tile(Y, 50)
    wanted = algorithm(x, y)
    f = check(at)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            same(f(x, y), wanted)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for _ in range(8):
        child = in_child(lambda: (same(f(x, y), wanted),
                                  ended(in_child(lambda: same(f(x, y), wanted)), SECONDS) and 1 / 0))
        assert ended(child, SECONDS) == ""
    stop.set()
    for w in workers:
        w.join()


@fault()
def fork_bomb(at: Path) -> None:
    f = check(at)
    children = [in_child(lambda: same(f(X, Y))) for _ in range(60)]
    assert {ended(child, SECONDS) for child in children} == {""}


@fault()
def fork_in_handler(at: Path) -> None:
    """A handler of a signal forks in the middle of a first call."""
    f = decorated(at)
    children: list[int] = []

    def fork(*args: Any) -> None:
        if len(children) < 5:
            children.append(in_child(lambda: check(at)))

    signal.signal(signal.SIGALRM, fork)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
    for _ in range(3):
        same(f(X, Y))
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert {ended(child, SECONDS) for child in children} <= {""}


@fault("fork", "forkserver", "spawn")
def pool(at: Path, method: str) -> None:
    """Processes that each do one task and end."""
    f = check(at)
    os.environ["JITLA_CACHE_DIR"] = str(at)
    os.environ["PYTHONPATH"] = str(ROOT)
    context = multiprocessing.get_context(method)
    with context.Pool(2, maxtasksperchild=1) as workers:
        for found in workers.map(_task, range(4), chunksize=1):
            same(found)
    same(f(X, Y))


def _task(number: int) -> tuple[Any, ...]:
    result: tuple[Any, ...] = jitla.jit(algorithm, compile="sync")(X, Y)
    return result


# ------------------------------------------------------------------------------ threads


def together(count: int, act: Callable[[int], Any]) -> None:
    """Do `act` in so many threads that begin at once; raise what one of them raises."""
    wrong: list[BaseException] = []
    barrier = threading.Barrier(count)

    def work(k: int) -> None:
        try:
            barrier.wait(SECONDS)
            act(k)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    assert not any(t.is_alive() for t in threads), "hung"
    if wrong:
        raise wrong[0]


@fault(2, 8, 32)
def one_function(at: Path, threads: int) -> None:
    f = decorated(at)
    together(threads, lambda k: [same(f(X, Y)) for _ in range(20)])


@fault(8, 32)
def many_functions(at: Path, threads: int) -> None:
    jitla.configure(cache_dir=at)
    made = []
    for k in range(threads):
        space: dict[str, Any] = {"np": np}
        exec(f"def f(x): return (x * {k}.5 + x ** 2).sum(), np.maximum(x, {k}.0) - x", space)
        made.append(space["f"])
    x = X[:1000]

    def work(k: int) -> None:
        f = jitla.jit(made[k], compile="sync")
        for n in (10, 1000, 500, 7):
            same(f(x[:n]), made[k](x[:n]))

    together(threads, work)


@fault()
def no_threads(at: Path) -> None:
    """No thread can be started any more."""
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse  # type: ignore[method-assign]
    x, y = np.tile(X, 100), np.tile(Y, 100)
    wanted = algorithm(x, y)
    same(check(at)(x, y), wanted)


@fault("auto", "sync")
def killed_thread(at: Path, compile: str) -> None:
    """An exception thrown into a thread from outside, anywhere in its calls."""
    import ctypes
    f = decorated(at, compile=compile)
    for k in range(30):
        def work() -> None:
            try:
                for _ in range(20):
                    same(f(X, Y))
            except SystemError:
                pass
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.002 * (k % 7))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemError))
        thread.join(SECONDS)
        assert not thread.is_alive()
    same(f(X, Y))


# ------------------------------------------------------------------------------ endings

ENDING = """
import os, signal, sys, threading, time
import numpy as np
import jitla
import tests.faults.running as r
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells may have it ignored
f = jitla.jit(r.algorithm, compile={compile!r})
thread = threading.Thread(target=lambda: [f(r.X[:n], r.Y[:n]) for n in range(3, 3000, 7)], daemon={daemon})
thread.start()
time.sleep({seconds})
{last}
"""


@fault(*[(compile, seconds, last) for compile in ("sync", "auto") for seconds in (0.0, 0.3, 0.6)
         for last in ("sys.exit(0)", "os._exit(0)")])
def ending(at: Path, compile: str, seconds: float, last: str) -> None:
    """The process ends while a daemon thread compiles."""
    text = ENDING.format(compile=compile, daemon=True, seconds=seconds, last=last)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=SECONDS, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT), "JITLA_CACHE_DIR": str(at)})
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)


@fault(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
def signalled(at: Path, number: signal.Signals) -> None:
    text = ENDING.format(compile="sync", daemon=True, seconds=20, last="")
    child = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL,
                             env=os.environ | {"PYTHONPATH": str(ROOT), "JITLA_CACHE_DIR": str(at)})
    time.sleep(1.0)
    child.send_signal(number)
    assert child.wait(SECONDS / 2) in (-number, 1, 130)
    check(at)
