"""Loads modules while calls run: whole or not at all, whatever interrupts, forks or lacks meanwhile.

The modules that calls need are loaded in a thread of their own: exceptions that signals raise in the calling
thread reach that thread at once, and the module is whole all the same. Forks wait for the load that is under
way, as the lock of a module which a thread has that is not there in the child could never be taken there.

A load that fails raises `NotLoaded`. It is not tried again by every call, but after twice as many of them
each time: what the process lacks it may lack for long.

Packages load their files when a name is first asked for (`door`): a process that finds plans and machine code
on disk needs few of them.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from jitla.concurrency import LOCAL, hurry, pausing
from jitla.process.resources import foresee, start

__all__ = ["LACKING", "NotLoaded", "Retry", "door", "is_waiting", "later", "load"]


#: Seconds that a fork waits for a load, and a thread that is importing something itself.
PATIENCE = 10.0
#: Seconds between checks that the loading thread still exists in this process (it does not after a fork).
LOOK = 0.1
#: Bytes that must be free before anything is loaded: a load takes less, and leaves some to the program.
FREE_BYTES = 64 << 20
#: Calls that go by, at most, before what failed is tried again.
MOST = 1 << 10
_IMPORTING = "<frozen importlib._bootstrap>"  # the file of the frames that a module is imported by
#: What the names of the files begin with whose frames stand between a load and the loads inside of it.
_LOADING = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen importlib.",
    os.path.dirname(importlib.__file__) + os.sep)


class NotLoaded(ImportError):
    """A module that calls need could not be loaded, or is not tried again yet."""


#: What is raised where a process lacks what loading and compiling need: memory, files, handles of files.
LACKING = (NotLoaded, MemoryError, OSError)


class Retry:
    """What failed, how often, and how many calls go by before it is tried again: twice as many each time."""

    __slots__ = ("times", "left", "error")

    def __init__(self) -> None:
        self.times = self.left = 0
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Note that it failed with `error`; what fails before it is tried again is the same failure."""
        # Its traceback would keep the frames of users: another one without is kept.
        self.error = type(error).__new__(type(error), *error.args)
        self.error.args = error.args
        if not self.left:
            self.times += 1
            self.left = min((1 << self.times) - 1, MOST)

    def is_due(self) -> bool:
        """Say of the next call whether it is to be tried again."""
        if self.left > 0:
            self.left -= 1
            return False
        return True


# Threads that wait for a load.
_WAITING: set[int] = set()


def is_waiting() -> bool:
    """Return whether this thread waits for a load: whoever asks is a signal handler or finalizer."""
    return threading.get_ident() in _WAITING


class _Task:
    """A load that a thread of its own does: what came of it."""

    __slots__ = ("name", "module", "error", "done")

    def __init__(self, name: str) -> None:
        self.name = name
        self.module: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()


class Loader:
    """What loads modules, one load at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._retries: dict[str, Retry] = {}
        self._taken: list[bool] = []  # by calls of the hook of forks that are under way
        self._safe = True
        self._logged = self._first = "logging" in sys.modules
        self._lost = False  # a load was under way in a thread that this process does not have
        self._register()

    def _register(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child)

    def load(self, name: str) -> Any:
        """Return the module `name`; raise `NotLoaded` if it cannot be had now."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            # By what is being loaded, or by code that interrupts it and would see modules half loaded.
            if _is_interrupting(sys._getframe()):
                raise NotLoaded(f"{name}: asked for by code that interrupts a load")
            return import_module(name)
        self._ask(name)
        if LOCAL.share < 1.0 or _is_importing(sys._getframe()):
            return self._loaded(name)
        task = _Task(name)
        ident = threading.get_ident()
        if ident in _WAITING:
            raise NotLoaded(f"{name}: asked for by code that interrupts a load")
        _WAITING.add(ident)
        try:
            return self._await(task)
        finally:
            _WAITING.discard(ident)

    def _await(self, task: _Task) -> Any:
        name = task.name
        try:
            start(threading.Thread(target=self._work, args=(task,), name="jitla loads"))
        except RuntimeError:  # no more threads, or the process ends
            return self._loaded(name)
        with hurry():
            while not task.done.wait(LOOK):
                self._ask(name)
        if task.error is not None:
            raise task.error
        return task.module

    def _ask(self, name: str) -> None:
        """Raise `NotLoaded` if `name` is not to be loaded now."""
        if self._lost:
            raise NotLoaded(f"{name}: another thread was loading when this process was forked")
        retry = self._retries.get(name)
        if retry is not None and not retry.is_due():
            raise NotLoaded(_told(name, retry.error)) from retry.error

    def _work(self, task: _Task) -> None:
        try:
            task.module = self._loaded(task.name)
        except BaseException as error:  # it is raised where the module was asked for
            task.error = error
        finally:
            task.done.set()

    def _loaded(self, name: str) -> Any:
        # Whoever imports has locks that those who load may wait for: it does not wait for ever.
        taken = self._lock.acquire(timeout=PATIENCE if _is_importing(sys._getframe()) else -1)
        try:
            foresee(FREE_BYTES)
            with _keeping_all():
                if not self._first:
                    # Forks take its lock, which what is loaded needs: from now on they wait for loads first.
                    import_module("logging")
                    self._register()
                    self._first = True
                module = import_module(name)
        except Exception as error:
            self._retries.setdefault(name, Retry()).fail(error)
            raise NotLoaded(_told(name, error)) from error
        finally:
            if taken:
                self._lock.release()
        self._retries.pop(name, None)
        return module

    def _before_fork(self) -> None:
        self._logged = self._logged or "logging" in sys.modules
        with hurry():
            wait = PATIENCE if all(self._taken) else 0.0
            self._taken.append(self._lock.acquire(timeout=wait))
        self._safe = any(self._taken)

    def _after_fork(self) -> None:
        if self._taken and self._taken.pop():  # none if it was registered while this fork waited
            self._lock.release()
        if not self._logged and (logging := sys.modules.get("logging")) is not None:
            # It was loaded meanwhile: too late to take its lock for this fork, which it will give back.
            logging._lock.acquire()
            self._logged = True

    def _in_child(self) -> None:
        if self._taken and self._taken.pop():  # none if it was registered while this fork waited
            self._lock.release()
        if not self._safe:
            self._lost = True
            self._lock._at_fork_reinit()  # type: ignore[attr-defined]


def _told(name: str, error: BaseException | None) -> str:
    return f"{name} was not loaded: {type(error).__name__}: {error}"


def _is_importing(frame: FrameType | None) -> bool:
    """Say whether `frame` was reached from the import of a module, whose lock this thread then has."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _is_interrupting(frame: FrameType | None) -> bool:
    """Say whether functions of others than jitla and the import system stand between `frame` and the load."""
    while frame is not None and frame.f_code is not Loader._loaded.__code__:
        code = frame.f_code
        if code.co_name != "<module>" and not code.co_filename.startswith(_LOADING):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _keeping_all() -> Iterator[None]:
    """Look for no garbage in the ``with`` block: what modules make stays.

    Who loads behind the program rests meanwhile, until somebody waits for the same.
    """
    if LOCAL.share < 1.0:
        pausing()
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        with hurry():
            yield
    finally:
        if collects:
            gc.enable()


_LOADER = Loader()


def load(name: str) -> Any:
    """Return the module `name`, loaded whole; raise `NotLoaded` if it cannot be had now."""
    module = sys.modules.get(name)
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return _LOADER.load(name)
    return module


def door(package: str, **files: str) -> Callable[[str], Any]:
    """Return what looks up names of `package`; `files` say which names each of its files gives to others."""
    where = {name: file for file, names in files.items() for name in names.split()}

    def found(name: str) -> Any:
        file = where.get(name)
        if file is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(f"{package}.{file}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


def later(module: str, *names: str) -> list[Callable[..., Any]]:
    """Return what calls the functions `names` of `module`, which is loaded by the first call."""
    return [_called(module, name) for name in names]


def _called(module: str, name: str) -> Callable[..., Any]:
    known: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(getattr(load(module), name))
        return known[0](*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
