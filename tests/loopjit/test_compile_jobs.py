"""Compilations in the background: runs wait for them, and quick code is replaced by better code."""

from threading import Thread
from time import perf_counter

import numpy as np
import pytest

import jitla
from jitla.codegen import Jit, compile_quickly
from jitla.engine import ENGINE
from jitla.loopjit import Loops, loop_compiler, loop_sites, specialisations
from jitla.loopjit.loop_sites import LoopSite
from jitla.loopjit.specialisations import CompileJob, State


def shifted(x):
    for i in range(1, len(x)):
        x[i] = 0.5 * x[i - 1] + x[i]
    return x


class Later:
    """Compiles loops at once without optimisation; `jobs` optimise them."""

    def __init__(self):
        self.jobs = []
        self.jit = Jit()

    def request(self, site, specialisation, values, source, groups):
        loop_compiler.compile_specialisation(
            site, specialisation, values, source, groups, lambda program: compile_quickly(program, self.jit),
            self.jobs.append)

    def function(self, function):
        made = Loops(self.request).version(function)
        for site in made.entries:
            site.hot_seconds = 0.0
        return made


def only(function):
    (site,) = function.sites
    (found,) = site.specialisations.values()
    return found


def test_quick_code_runs_until_better_code_is_there():
    later = Later()
    function = later.function(shifted)
    for _ in range(3):
        x = np.arange(500.0)
        assert (function.version(x) == shifted(np.arange(500.0))).all()
    found = only(function)
    quick, runs = found.code, found.runs
    assert found.state is State.READY and found.is_quick and runs and len(later.jobs) == 1
    later.jobs[0]()
    assert found.state is State.COMPILED and not found.is_quick and found.code.enter is not quick.enter
    for _ in range(3):  # the first run is checked
        x = np.arange(500.0)
        assert (function.version(x) == shifted(np.arange(500.0))).all()
    assert found.state is State.READY and found.runs > runs


def test_code_that_is_cached_is_not_compiled_quickly():
    later = Later()
    later.function(shifted).version(np.arange(500.0))
    later.jobs[0]()
    function = later.function(shifted)
    function.version(np.arange(500.0))
    assert len(later.jobs) == 1 and not only(function).is_quick


def test_slow_quick_code_waits_for_better_code(monkeypatch):
    later = Later()
    function = later.function(shifted)
    for _ in range(3):
        function.version(np.arange(500.0))
    found = only(function)
    found.lose()
    assert found.state is State.QUEUED
    assert (function.version(np.arange(500.0)) == shifted(np.arange(500.0))).all()
    later.jobs[0]()
    assert found.state is State.COMPILED
    found.lose()
    assert found.state is State.REFUSED and found.reason == loop_sites.LOSS
    assert (function.version(np.arange(500.0)) == shifted(np.arange(500.0))).all()


def test_quick_code_stays_if_better_code_fails(monkeypatch):
    later = Later()
    function = later.function(shifted)
    for _ in range(3):
        function.version(np.arange(500.0))
    found = only(function)
    monkeypatch.setattr(later.jit, "load", raise_backend_error)
    later.jobs[0]()
    assert found.state is State.READY and not found.is_quick


def raise_backend_error(*args):
    raise jitla.errors.BackendError("no more memory")


def test_runs_wait_for_a_compilation_that_is_under_way(monkeypatch):
    monkeypatch.setattr(loop_sites, "HOT_SECONDS", 1e-9)
    monkeypatch.setattr(loop_sites, "COLD_SECONDS", 0.0)
    ENGINE.background.wait()
    fast = jitla.jit(shifted, compile="auto")
    ENGINE.loop_function(shifted)  # its modules are loaded
    for _ in range(40):
        fast(np.arange(30_000.0))
    assert fast.stats().loop_runs > 0
    (found,) = fast.__jitla_state__.loop_function.sites[0].specialisations.values()
    assert 0.0 < found.job.waited_seconds < specialisations.MAX_WAIT_SECONDS + 1.0


def test_waiting_has_a_bound(monkeypatch):
    monkeypatch.setattr(specialisations, "MAX_WAIT_SECONDS", 0.02)
    job = CompileJob()
    start = perf_counter()
    job.wait()
    assert job.waited_seconds == 0.0  # it has not begun
    job.start()
    for _ in range(10):
        job.wait()
    assert 0.01 < job.waited_seconds and perf_counter() - start < 5.0


def test_a_compilation_that_is_done_ends_the_wait():
    job = CompileJob()
    job.start()
    waiting = Thread(target=job.wait)
    waiting.start()
    job.finish()
    waiting.join(30.0)
    assert not waiting.is_alive()


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_the_first_compilation_of_a_process_is_begun_later(monkeypatch, seconds):
    monkeypatch.setattr(LoopSite, "is_compiler_loaded", False)
    monkeypatch.setattr(LoopSite, "seconds_before_compiler", seconds)
    asked = []
    made = Loops(lambda *args: asked.append(args)).version(shifted)
    for site in made.entries:
        site.hot_seconds = 1e-9
    monkeypatch.setattr(loop_sites, "COLD_SECONDS", 0.5)
    monkeypatch.setattr(loop_sites, "FIRST_RUN_SECONDS", 100.0)
    made.version(np.arange(100.0))
    assert not asked
    for _ in range(4):
        made.version(np.arange(100.0))
    assert bool(asked) is bool(seconds)


def test_the_first_run_of_a_loop_is_compiled_if_it_takes_long(monkeypatch):
    monkeypatch.setattr(LoopSite, "is_compiler_loaded", False)
    monkeypatch.setattr(LoopSite, "seconds_before_compiler", 0.0)
    monkeypatch.setattr(loop_sites, "FIRST_RUN_SECONDS", 2e-3)
    asked = []
    made = Loops(lambda *args: asked.append(args)).version(shifted)
    made.version(np.arange(100_000.0))
    assert asked


SEEN = []


def noted(x):
    for i in range(len(x)):
        x[i] = 0.5 * x[i]
        if i % 100 == 99:
            SEEN.append(i)
    return x


def test_lists_of_statements_that_python_runs_may_change():
    later = Later()
    function = later.function(noted)
    for _ in range(3):
        assert (function.version(np.ones(300)) == 0.5).all()
    assert SEEN == 3 * [99, 199, 299]
    found = only(function)
    assert found.state is State.READY and found.runs and found.is_current()
