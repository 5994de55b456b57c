"""Import of jitla's modules during calls: each is imported completely or not at all.

Imports that the program waits for run in a separate thread: an exception that a signal handler raises reaches
the calling thread at once and does not interrupt the import. Forks wait for the current import, because an
import lock held by a thread that does not exist in the child could never be acquired there.

A failed import raises `ModuleUnavailable`, and is retried with exponential backoff, counted in calls:
a missing resource may be missing for long.

Packages import their files when a name is first used (`lazy_exports`), and modules that are needed by few
calls when the module is (`lazy_modules`): a process that finds plans and machine code in the disk cache needs
few of them.
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

from jitla.concurrency import is_background_thread
from jitla.process.resources import require_memory, start_thread

__all__ = ["RESOURCE_ERRORS", "ModuleUnavailable", "RetryBackoff", "lazy_exports", "is_waiting_for_load",
           "lazy_functions", "lazy_modules", "load"]


#: Longest wait for an import by a fork, or by a thread that is importing something itself.
MAX_WAIT_SECONDS = 10.0
#: Interval of checks that the importing thread exists in this process (it does not after a fork).
POLL_SECONDS = 0.1
#: Free memory required for an import: more than it needs, so that the program has some left.
MIN_FREE_BYTES = 64 << 20
#: Upper bound on the calls skipped before a retry.
MAX_SKIPPED_CALLS = 1 << 10
_IMPORT_FILE = "<frozen importlib._bootstrap>"  # the file of the frames that a module is imported by
#: What the names of the files begin with whose frames stand between a load and the loads inside of it.
_LOADER_PATHS = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen importlib.",
    os.path.dirname(importlib.__file__) + os.sep)


class ModuleUnavailable(ImportError):
    """A module could not be imported, or its retry is not due yet."""


#: Errors raised for lack of resources: memory, files, file handles.
RESOURCE_ERRORS = (ModuleUnavailable, MemoryError, OSError)


class RetryBackoff:
    """Exponential backoff of a failed operation: the number of calls to skip doubles with each failure."""

    __slots__ = ("failures", "skips_left", "error")

    def __init__(self) -> None:
        self.failures = self.skips_left = 0
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Record a failure; failures before a retry is due count once."""
        # A copy without traceback: that would keep frames of users alive.
        self.error = type(error).__new__(type(error), *error.args)
        self.error.args = error.args
        if not self.skips_left:
            self.failures += 1
            self.skips_left = min((1 << self.failures) - 1, MAX_SKIPPED_CALLS)

    def is_due(self) -> bool:
        """Return whether this call retries."""
        if self.skips_left > 0:
            self.skips_left -= 1
            return False
        return True


# Identifiers of threads that wait for an import.
_WAITING_THREADS: set[int] = set()


def is_waiting_for_load() -> bool:
    """Return whether this thread waits for an import: then the caller is a signal handler or finalizer."""
    return threading.get_ident() in _WAITING_THREADS


class _LoadTask:
    """An import in another thread, and its outcome."""

    __slots__ = ("name", "module", "error", "done")

    def __init__(self, name: str) -> None:
        self.name = name
        self.module: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()


class Loader:
    """Imports modules, one at a time; an import requires `min_free_bytes` of memory."""

    def __init__(self, min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self._min_free_bytes = min_free_bytes
        self._lock = threading.RLock()
        self._retries: dict[str, RetryBackoff] = {}
        self._fork_acquisitions: list[bool] = []  # by calls of the hook of forks that are under way
        self._safe = True
        self._logged = self._is_after_logging = "logging" in sys.modules
        self._is_unusable = False  # a load was under way in a thread that this process does not have
        self._register()

    def _register(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._in_child)

    def load(self, name: str) -> Any:
        """Return the module `name`; raise `ModuleUnavailable` if it cannot be imported now."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            # Called by a module being imported, or by code that interrupts it and would see partial modules.
            if _is_interrupting(sys._getframe()):
                raise ModuleUnavailable(f"{name}: asked for by code that interrupts a load")
            return import_module(name)
        self._check_retry(name)
        if is_background_thread() or threading.current_thread().daemon or _is_importing(sys._getframe()):
            return self._import_locked(name)
        task = _LoadTask(name)
        thread = threading.get_ident()
        if thread in _WAITING_THREADS:
            raise ModuleUnavailable(f"{name}: asked for by code that interrupts a load")
        _WAITING_THREADS.add(thread)
        try:
            return self._load_in_thread(task)
        finally:
            _WAITING_THREADS.discard(thread)

    def _load_in_thread(self, task: _LoadTask) -> Any:
        name = task.name
        try:
            start_thread(threading.Thread(target=self._run_task, args=(task,), name="jitla loads"))
        except RuntimeError:  # no more threads, or the process ends
            return self._import_locked(name)
        while not task.done.wait(POLL_SECONDS):
            self._check_retry(name)
        if task.error is not None:
            raise task.error
        return task.module

    def _check_retry(self, name: str) -> None:
        """Raise `ModuleUnavailable` if `name` is not to be imported now."""
        if self._is_unusable:
            raise ModuleUnavailable(f"{name}: another thread was loading when this process was forked")
        retry = self._retries.get(name)
        if retry is not None and not retry.is_due():
            raise ModuleUnavailable(_failure_text(name, retry.error)) from retry.error

    def _run_task(self, task: _LoadTask) -> None:
        try:
            task.module = self._import_locked(task.name)
        except BaseException as error:  # raised in the waiting thread
            task.error = error
        finally:
            task.done.set()

    def _import_locked(self, name: str) -> Any:
        # An importing thread holds locks that the loading thread may need: it waits for a bounded time.
        is_acquired = self._lock.acquire(timeout=MAX_WAIT_SECONDS if _is_importing(sys._getframe()) else -1)
        try:
            require_memory(self._min_free_bytes)
            with _without_collection():
                if not self._is_after_logging:
                    # Forks acquire the lock of `logging`, which imports need: our hook has to run before.
                    import_module("logging")
                    self._register()
                    self._is_after_logging = True
                module = import_module(name)
        except Exception as error:
            self._retries.setdefault(name, RetryBackoff()).fail(error)
            raise ModuleUnavailable(_failure_text(name, error)) from error
        finally:
            if is_acquired:
                self._lock.release()
        self._retries.pop(name, None)
        return module

    def _before_fork(self) -> None:
        self._logged = self._logged or "logging" in sys.modules
        wait = MAX_WAIT_SECONDS if all(self._fork_acquisitions) else 0.0
        self._fork_acquisitions.append(self._lock.acquire(timeout=wait))
        self._safe = any(self._fork_acquisitions)

    def _after_fork(self) -> None:
        if self._fork_acquisitions and self._fork_acquisitions.pop():  # empty: registered during this fork
            self._lock.release()
        if not self._logged and (logging := sys.modules.get("logging")) is not None:
            # `logging` was imported during this fork, whose hook will release a lock that was not acquired.
            logging._lock.acquire()
            self._logged = True

    def _in_child(self) -> None:
        if self._fork_acquisitions and self._fork_acquisitions.pop():  # empty: registered during this fork
            self._lock.release()
        if not self._safe:
            self._is_unusable = True
            self._lock._at_fork_reinit()  # type: ignore[attr-defined]


def _failure_text(name: str, error: BaseException | None) -> str:
    return f"{name} was not loaded: {type(error).__name__}: {error}"


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether `frame` runs inside the import of a module: this thread then holds its import lock."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE:
            return True
        frame = frame.f_back
    return False


def _is_interrupting(frame: FrameType | None) -> bool:
    """Return whether frames outside jitla and the import system are between `frame` and the import."""
    while frame is not None and frame.f_code is not Loader._import_locked.__code__:
        code = frame.f_code
        if code.co_name != "<module>" and not code.co_filename.startswith(_LOADER_PATHS):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable garbage collection inside the ``with`` block: the objects of modules survive anyway.

    Background threads leave it on, as the program goes on meanwhile.
    """
    if is_background_thread():
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


_LOADER = Loader()


def load(name: str) -> Any:
    """Return the module `name`, completely imported; raise `ModuleUnavailable` if impossible now."""
    module = sys.modules.get(name)
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return _LOADER.load(name)
    return module


def lazy_exports(package: str, **files: str) -> Callable[[str], Any]:
    """Return a package's `__getattr__` that imports its files on first use of a name.

    `files` maps each file to the names that it exports, separated by spaces.
    """
    file_of = {name: file for file, names in files.items() for name in names.split()}

    def load_export(name: str) -> Any:
        source = file_of.get(name)
        if source is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(f"{package}.{source}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load_export


def lazy_modules(module: str, *paths: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of `module`, which imports the modules `paths` on first use of their names."""
    path_of = {path.rpartition(".")[2]: path for path in paths}

    def load_module(name: str) -> Any:
        path = path_of.get(name)
        if path is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        loaded = load(path)
        setattr(sys.modules[module], name, loaded)
        return loaded

    return load_module


def lazy_functions(module: str, *names: str) -> list[Callable[..., Any]]:
    """Return functions that call the functions `names` of `module`, which is imported by the first call."""
    return [_lazy_function(module, name) for name in names]


def _lazy_function(module: str, name: str) -> Callable[..., Any]:
    loaded: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not loaded:
            loaded.append(getattr(load(module), name))
        return loaded[0](*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
