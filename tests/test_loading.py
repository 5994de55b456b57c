"""Importing jitla is cheap; its native code is loaded whole or not at all, and later tried again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.hops import OpSpec, lookup, register
from jitla.process import loading
from jitla.process.loading import RESOURCE_ERRORS, Loader, ModuleUnavailable, RetryBackoff
from jitla.process.resources import (
    COMPILER_STACK_BYTES,
    MIN_TRACING_STACK_BYTES,
    call_with_deep_stack,
    has_shallow_stack,
    require_memory,
    stack_bytes,
    start_thread,
)

# `import jitla` is cheap and does nothing.

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.030  # seconds, or
SHARE = 1 / 3  # of what NumPy itself takes, where the machine is slow or busy
PAIRS = 7
ROUNDS = 6  # more only where the first did not do: a busy machine needs more tries
HEAVY = ("scipy", "llvmlite", "numba", "cloudpickle")

TIME_NUMPY = "import time; t = time.process_time(); import numpy; print(time.process_time() - t)"
TIME_JITLA = ("import time, numpy; t = time.process_time(); import jitla;"
              " print(time.process_time() - t)")
WATCH = """
import json, sys, threading
import numpy

opened, threads, sockets = [], [], []

def watch(event, arguments):
    if event == "open":
        path, mode = str(arguments[0]), arguments[1]
        if not path.endswith((".py", ".pyc")) and ".pyc." not in path:
            opened.append(path)
    elif event.startswith(("socket.", "subprocess.", "os.fork", "ctypes.dlopen")):
        opened.append(event)
    elif event == "_thread.start_new_thread":
        threads.append(event)

before = set(sys.modules)
native = threading.active_count()
sys.addaudithook(watch)
import jitla
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "opened": opened,
    "threads": len(threads) + threading.active_count() - native,
}))
"""


def run(source: str) -> str:
    """Output of a fresh interpreter without user site, tracing or hooks."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-s", "-c", source], env=environment, cwd=ROOT,
                          capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.process
@pytest.mark.timing
def test_import_costs_little_over_numpy():
    """The processor's time, best of several runs each, taken in turn: load only ever adds to it."""
    run(TIME_JITLA)  # write the bytecode first
    numpy, jitla = [], []
    for _ in range(ROUNDS):
        for _ in range(PAIRS):
            numpy.append(float(run(TIME_NUMPY)))
            jitla.append(float(run(TIME_JITLA)))
        if min(jitla) <= max(LIMIT, SHARE * min(numpy)):
            return
    raise AssertionError(f"import jitla costs {1e3 * min(jitla):.1f} ms over numpy")


@pytest.mark.process
def test_import_loads_nothing_heavy():
    loaded = {name.split(".")[0] for name in json.loads(run(WATCH))["modules"]}
    assert not loaded & set(HEAVY)


@pytest.mark.process
def test_import_starts_no_thread_and_opens_no_file():
    seen = json.loads(run(WATCH))
    assert seen["threads"] == 0
    assert seen["opened"] == []


# Loading: whole or not at all, tried again after a while, never in the way of forks or small stacks.


def in_thread(act: Any, kilobytes: int = 0) -> Any:
    """Return what `act` returns in a thread with a stack of so many KiB."""
    found: list[Any] = []
    usual = threading.stack_size(kilobytes << 10)
    thread = threading.Thread(target=lambda: found.append(act()))
    try:
        thread.start()
    finally:
        threading.stack_size(usual)
    thread.join()
    return found[0]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what writes a module, whose name is returned, and takes it out again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def write(text: str) -> str:
        names.append(f"loaded_by_a_test_{len(names)}")
        (tmp_path / f"{names[-1]}.py").write_text(text)
        return names[-1]

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_a_module_is_loaded_in_a_thread_of_its_own(module: Any) -> None:
    name = module("import threading\nname = threading.current_thread().name\n")
    assert Loader().load(name).name == "jitla loads"
    assert loading.load(name) is sys.modules[name]


def test_what_is_loaded_loads_more_in_the_same_thread(module: Any) -> None:
    inner = module("import threading\nthread = threading.get_ident()\n")
    outer = module("import threading\nfrom jitla.process import loading\nthread = threading.get_ident()\n"
                   f"inner = loading.load({inner!r})\n")
    made = loading.load(outer)
    assert made.thread == made.inner.thread != threading.get_ident()


def test_a_call_while_a_module_is_imported_loads_in_its_thread(module: Any) -> None:
    inner = module("import threading\nthread = threading.get_ident()\n")
    outer = module(f"from jitla.process import loading\ninner = loading.load({inner!r})\n")
    assert __import__(outer).inner.thread == threading.get_ident()


@pytest.mark.threads
def test_without_threads_it_is_loaded_where_it_is_asked_for(
    module: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = module("import threading\nthread = threading.get_ident()\n")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(loading, "start_thread", refuse)
    assert Loader().load(name).thread == threading.get_ident()


def test_what_failed_is_tried_again_after_twice_as_many_calls(module: Any) -> None:
    name = module("import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nraise OSError('no handles')\n")
    loader, tries = Loader(), []
    try:
        for _ in range(30):
            with pytest.raises(ModuleUnavailable, match="OSError: no handles"):
                loader.load(name)
            tries.append(sys.tries)  # type: ignore[attr-defined]
    finally:
        del sys.tries  # type: ignore[attr-defined]
    assert [tries.index(n) for n in range(1, tries[-1] + 1)] == [0, 2, 6, 14]


def test_failures_of_one_try_are_one() -> None:
    retry = RetryBackoff()
    assert retry.is_due()
    for _ in range(5):
        retry.fail(MemoryError())
    assert [retry.is_due() for _ in range(2)] == [False, True]


def test_what_failed_is_loaded_when_it_can_be(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module("import sys\nif hasattr(sys, 'lacking'): raise MemoryError\nvalue = 7\n")
    loader = Loader()
    monkeypatch.setattr(sys, "lacking", True, raising=False)
    with pytest.raises(RESOURCE_ERRORS):
        loader.load(name)
    monkeypatch.delattr(sys, "lacking")
    with pytest.raises(ModuleUnavailable):
        loader.load(name)
    assert loader.load(name).value == 7


def test_a_child_without_the_thread_that_loads_waits_for_nothing(module: Any) -> None:
    loader = Loader()
    loader._fork_acquisitions, loader._safe = [False], False
    loader._in_child()
    with pytest.raises(ModuleUnavailable, match="forked"):
        loader.load(module(""))


def test_the_same_operator_may_be_declared_again_but_no_other() -> None:
    spec = lookup("add")
    assert register(spec) is spec
    other = OpSpec("add", spec.kind, 3, spec.ref, spec.meta, spec.resolve, "something else", safe=spec.safe)
    with pytest.raises(jitla.InternalError, match="declared twice"):
        register(other)
    assert lookup("add") is spec


@pytest.mark.threads
@pytest.mark.parametrize("kilobytes", [32, 64, 1024])
def test_threads_know_their_stacks(kilobytes: int) -> None:
    found, shallow = in_thread(lambda: (stack_bytes(), has_shallow_stack()), kilobytes)
    assert found == kilobytes << 10 and shallow is (found < MIN_TRACING_STACK_BYTES)
    assert not has_shallow_stack()


@pytest.mark.threads
def test_what_needs_a_stack_is_called_where_there_is_one() -> None:
    assert in_thread(lambda: call_with_deep_stack(stack_bytes), 64) >= COMPILER_STACK_BYTES
    assert call_with_deep_stack(threading.get_ident) == threading.get_ident()
    assert in_thread(lambda: pytest.raises(ValueError, call_with_deep_stack, int, "x").type, 64) is ValueError


@pytest.mark.threads
def test_threads_started_here_have_enough_whatever_is_set() -> None:
    found: list[int] = []
    usual = threading.stack_size(32 << 10)
    try:
        thread = threading.Thread(target=lambda: found.append(stack_bytes()))
        start_thread(thread)
        thread.join()
        assert threading.stack_size() == 32 << 10
    finally:
        threading.stack_size(usual)
    assert found[0] >= COMPILER_STACK_BYTES


@pytest.mark.threads
def test_threads_without_memory_are_not_started() -> None:
    thread = threading.Thread(target=lambda: None)
    usual = threading.stack_size()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start_thread(thread, overhead_bytes=1 << 62)
    assert not thread.is_alive() and threading.stack_size() == usual


def test_nothing_is_loaded_where_it_would_take_the_last_memory() -> None:
    with pytest.raises(ModuleUnavailable, match="MiB of memory left"):
        Loader(min_free_bytes=1 << 62).load("colorsys")


def test_memory_that_there_is_not_is_foreseen() -> None:
    require_memory(1 << 20)
    with pytest.raises(MemoryError, match="MiB of memory left"):
        require_memory(1 << 62)


def test_blocks_that_could_not_be_compiled_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitla.codegen.jit import Jit
    tries: list[int] = []

    def fail(self: Jit, *args: Any) -> Any:
        tries.append(1)
        raise MemoryError("none left")

    x = np.arange(300.0)
    f = jitla.jit(lambda x: (x * 2.75 + 1.5, x - 0.125), compile="sync")
    wanted = f.__wrapped__(x)
    with monkeypatch.context() as patch:
        patch.setattr(Jit, "load", fail)
        for _ in range(8):
            np.testing.assert_array_equal(f(x), wanted)
        seen = len(tries)
    assert f.stats().failures == seen and 2 <= seen <= 4
    for _ in range(8):
        np.testing.assert_array_equal(f(x), wanted)
    assert f.stats().kernel_runs > 0 and f.stats().failures == seen


def test_generators_and_coroutines_run_plain_where_tracing_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jitla import packages

    def refuse(name: str) -> Any:
        raise ModuleUnavailable(name)

    @jitla.jit(compile="sync")
    def steps(x: Any) -> Any:
        yield x + 1.0
        yield x * 2.0

    @jitla.jit(compile="sync")
    async def waits(x: Any) -> Any:
        return x - 1.0

    x = np.arange(3.0)
    monkeypatch.delitem(vars(packages), "tracing", raising=False)
    monkeypatch.setattr(packages, "__getattr__", refuse)
    assert [list(each) for each in steps(x)] == [[1.0, 2.0, 3.0], [0.0, 2.0, 4.0]]
    with pytest.raises(StopIteration) as stop:
        waits(x).send(None)
    assert list(stop.value.value) == [-1.0, 0.0, 1.0]


def test_mappings_are_counted_before_they_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from jitla.process import resources as headroom

    left = headroom.RESERVED_MAPPINGS + 3 * headroom.MAPPINGS_PER_OBJECT
    counted: list[int] = []
    monkeypatch.setattr(headroom, "_mapping_count", lambda: counted.append(1) or 1000)
    monkeypatch.setattr(headroom, "_mapping_limit", lambda: 1000 + left)
    mappings = headroom._MappingBudget()
    for _ in range(3):
        mappings.require()
    assert len(counted) == 1
    monkeypatch.setattr(headroom, "_mapping_limit", lambda: 1000 + headroom.RESERVED_MAPPINGS)
    for _ in range(2):
        with pytest.raises(MemoryError, match="mappings"):
            mappings.require()
    assert len(counted) == 3


@pytest.mark.process
@pytest.mark.threads
@pytest.mark.timing
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_a_thread_is_started_can_start_threads() -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(threading.Thread):
        def start(self) -> None:
            begun.set()
            go.wait(20.0)
            super().start()

    starting = threading.Thread(target=lambda: start_thread(Slow(target=int)))
    before = threading.stack_size()
    starting.start()
    assert begun.wait(10.0)
    child = os.fork()
    if not child:
        done = threading.Event()
        start_thread(threading.Thread(target=done.set))
        os._exit(0 if done.wait(10.0) and threading.stack_size() == before else 1)
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")
    go.set()
    starting.join()
    assert status == 0
