"""The thread pool that runs kernels, and the processors and memory available to the process."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from jitla.config import openmp_threads
from jitla.errors import ConfigError
from jitla.runtime.native_call import c_function

__all__ = ["ThreadPool", "memory", "processors"]


Root = str | os.PathLike[str]

#: Usual mount points of control groups: of version 1 by controller, of version 2 under the empty name.
CGROUP_MOUNTS = {
    "cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "memory": ("sys/fs/cgroup/memory",),
    "": ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
}
#: Assumed where the system does not report its memory.
DEFAULT_MEMORY_BYTES = 1 << 32


def processors(root: Root = "/") -> int:
    """Return the number of processors within the affinity of this thread and its control groups' quotas."""
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    shares = [-(-quota // period) for quota, period in _quotas(root) if quota > 0 and period > 0]
    return max(1, min([available, *shares]))


def memory(root: Root = "/") -> int:
    """Return the bytes of memory of the system, or the limit of this process' control groups if less."""
    total = DEFAULT_MEMORY_BYTES
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_numbers([_text(os.path.join(group, name))]) for group, name in _groups(
        root, "memory", "memory.limit_in_bytes", "memory.max")]
    return min([total, *(limit for numbers in limits for limit in numbers if limit > 0)])


def free_memory(root: Root = "/") -> int:
    """Return the bytes available to new arrays; half of all memory if the system does not report it."""
    for line in _text(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and (numbers := _numbers(value.split()[:1])):
            return min(numbers[0] << 10, _initial_memory(os.fspath(root)))
    return memory(root) // 2


@cache
def _initial_memory(root: str) -> int:
    """Return `memory()` as it was at the first call: limits, unlike free memory, rarely change."""
    return memory(root)


def _quotas(root: Root) -> Iterator[list[int]]:
    """Yield [quota, period] in microseconds of processor time for every enclosing control group."""
    for group, name in _groups(root, "cpu", "cpu.cfs_quota_us", "cpu.max"):
        words = [_text(os.path.join(group, name))]
        if name == "cpu.max":
            words = words[0].split()
        else:
            words.append(_text(os.path.join(group, "cpu.cfs_period_us")))
        numbers = _numbers(words)
        if len(numbers) == 2:
            yield numbers


def _groups(root: Root, controller: str, name_v1: str, name_v2: str) -> Iterator[tuple[str, str]]:
    """Yield the control groups of this process, inner ones first, and the name of their limit file.

    `name_v1` is the name in version 1 of control groups, `name_v2` in version 2. A container may see only the
    outermost.
    """
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, fields = line.partition(":")
        controllers, _, path = fields.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        names = path.strip().strip("/").split("/")
        for mount in CGROUP_MOUNTS[controller if controllers else ""]:
            for depth in range(len(names), -1, -1):
                yield os.path.join(root, mount, *names[:depth]), name_v1 if controllers else name_v2


def _numbers(words: list[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError:
        return []  # no such group, or "max", which is no limit


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


#: How long an idle worker, or a launcher without chunks, spins before it sleeps.
SPIN_SECONDS = 70e-6


class ThreadPool:
    """The pool of native worker threads of this process; its settings are words shared with native code."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._share_address = addresses["jitla_share"]
        self._worker = addresses["jitla_worker"]
        self._claim = c_function(addresses["jitla_claim"], ctypes.c_int64, result=ctypes.c_int32)
        self._release = c_function(addresses["jitla_release"], ctypes.c_int64)
        self._rouse = c_function(addresses["jitla_rouse"])
        self.forked = c_function(addresses["jitla_forked"])
        names = layout["settings"]
        self._words = (ctypes.c_int64 * len(names)).from_address(addresses["jitla_pool"])
        self._setting_index = {name: i for i, name in enumerate(names)}
        self._max_threads = layout["workers"] + 1 if layout["parallel"] else 1
        spin = c_function(addresses["jitla_spin"], ctypes.c_int64)
        self._words[self._setting_index["spin"]] = _spin_iterations(spin)
        starter = ctypes.c_void_p.from_address(addresses["jitla_starter"])
        self.start = self._start_missing  # one object, as its address is stored below
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.start))
        starter.value = id(self.start)

    def __getitem__(self, name: str) -> int:
        return int(self._words[self._setting_index[name]])

    def resize(self, wanted: int | None, reserved: int = 0) -> None:
        """Use `wanted` threads, the caller's included; None for the default of the process.

        The platform's maximum caps it. Up to `reserved` threads exist for kernels that ask for that many.
        """
        default = default_threads() if wanted is None else wanted
        if default < 1:
            raise ConfigError(f"threads must be at least 1, not {default}")
        self._words[self._setting_index["firm"]] = int(wanted is not None)
        threads = min(max(default, reserved), self._max_threads)
        self._words[self._setting_index["usual"]] = min(default, self._max_threads)
        self._words[self._setting_index["threads"]] = threads
        if self["ready"] > threads:
            self._words[self._setting_index["ready"]] = threads
            self._rouse()

    def share(self, threads: int) -> int:
        """Start the threads; return the address of the native function that shares work among `threads`."""
        self._words[self._setting_index["looped"]] = min(threads, self._max_threads)
        if self["ready"] < self["threads"]:
            self._start_missing()
        return self._share_address

    def set_wake_threshold(self, microseconds: int) -> None:
        """Wake sleeping threads only for jobs estimated to take at least `microseconds`."""
        self._words[self._setting_index["wake"]] = max(microseconds, 1) - 1

    def _start_missing(self) -> None:
        """Start missing workers; the launcher of the first shared job calls this."""
        threads = self["threads"]
        for index in range(threads - 1):
            if self._claim(index) and not self._start_worker(index):
                # no more threads from the system: use those that exist
                self._words[self._setting_index["threads"]] = threads = index + 1
                break
        self._words[self._setting_index["ready"]] = threads

    def _start_worker(self, index: int) -> bool:
        """Start the thread of one worker; return whether it exists, and release its claim if not."""
        started = False
        try:
            started = _spawn(self._worker, index)
        finally:
            if not started:
                self._release(index)
        return started


def default_threads() -> int:
    """Return the default number of threads of kernels: the processors, or OpenMP's setting if less."""
    available = processors()
    return min(openmp_threads() or available, available)


def _spawn(worker: int, index: int) -> bool:
    """Start a native thread, unknown to Python and with signals blocked; return whether it started."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_size_t()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(worker),
                                     ctypes.c_void_p(index))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    if not failed:
        libc.pthread_detach(thread)
    return not failed


def _spin_iterations(spin: Any) -> int:
    """Return the iterations of the spin loop that take `SPIN_SECONDS`."""
    iterations, best = 2000, float("inf")
    for _ in range(3):
        before = time.perf_counter()
        spin(iterations)
        best = min(best, time.perf_counter() - before)
    return max(100, int(iterations * SPIN_SECONDS / best))
