"""The pool of threads that run kernels, and the processors they may use."""

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
from jitla.runtime.native_call import native

__all__ = ["Pool", "memory", "processors"]


Root = str | os.PathLike[str]

#: Where the groups are usually mounted: version 1 by controller, version 2 under no controller's name.
MOUNTS = {
    "cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "memory": ("sys/fs/cgroup/memory",),
    "": ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
}
#: Of a system that does not say how much memory it has.
USUAL_MEMORY = 1 << 32


def processors(root: Root = "/") -> int:
    """Number of processors that the affinity of this thread and the quotas of its groups leave."""
    if hasattr(os, "sched_getaffinity"):
        most = len(os.sched_getaffinity(0))
    else:
        most = os.cpu_count() or 1
    shares = [-(-quota // period) for quota, period in _quotas(root) if quota > 0 and period > 0]
    return max(1, min([most, *shares]))


def memory(root: Root = "/") -> int:
    """Bytes of memory that the system has, or that the groups of this process leave of it."""
    most = USUAL_MEMORY
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_numbers([_text(os.path.join(group, name))]) for group, name in _groups(
        root, "memory", "memory.limit_in_bytes", "memory.max")]
    return min([most, *(limit for found in limits for limit in found if limit > 0)])


def free_memory(root: Root = "/") -> int:
    """Bytes of memory that new arrays can take, as far as the system says; else half of all."""
    for line in _text(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and (found := _numbers(value.split()[:1])):
            return min(found[0] << 10, _limit(os.fspath(root)))
    return memory(root) // 2


@cache
def _limit(root: str) -> int:
    """Return `memory` as it was at first: what is free changes all the time, limits as a rule do not."""
    return memory(root)


def _quotas(root: Root) -> Iterator[list[int]]:
    """Microseconds of processor time, and in how many they may be used, of every group above."""
    for group, name in _groups(root, "cpu", "cpu.cfs_quota_us", "cpu.max"):
        words = [_text(os.path.join(group, name))]
        if name == "cpu.max":
            words = words[0].split()
        else:
            words.append(_text(os.path.join(group, "cpu.cfs_period_us")))
        found = _numbers(words)
        if len(found) == 2:
            yield found


def _groups(root: Root, controller: str, first: str, second: str) -> Iterator[tuple[str, str]]:
    """The groups this process is in and those around them, and the file of theirs in that version.

    A container may see only the outermost.
    """
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        names = path.strip().strip("/").split("/")
        for mount in MOUNTS[controller if controllers else ""]:
            for depth in range(len(names), -1, -1):
                yield os.path.join(root, mount, *names[:depth]), first if controllers else second


def _numbers(words: list[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError:
        return []  # no such group, or "max": no limit


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


#: How long a worker without work, or a launcher without chunks, looks before it sleeps.
SPIN_SECONDS = 70e-6


class Pool:
    """The one thread pool of this process."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._share = addresses["jitla_share"]
        self._worker = addresses["jitla_worker"]
        self._claim = native(addresses["jitla_claim"], ctypes.c_int64, result=ctypes.c_int32)
        self._release = native(addresses["jitla_release"], ctypes.c_int64)
        self._rouse = native(addresses["jitla_rouse"])
        self.forked = native(addresses["jitla_forked"])
        names = layout["settings"]
        self._words = (ctypes.c_int64 * len(names)).from_address(addresses["jitla_pool"])
        self._at = {name: i for i, name in enumerate(names)}
        self._most = layout["workers"] + 1 if layout["parallel"] else 1
        self._words[self._at["spin"]] = _spins(native(addresses["jitla_spin"], ctypes.c_int64))
        starter = ctypes.c_void_p.from_address(addresses["jitla_starter"])
        self.start = self._start  # the address below must be that of one lasting object
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.start))
        starter.value = id(self.start)

    def __getitem__(self, name: str) -> int:
        return int(self._words[self._at[name]])

    def resize(self, wanted: int | None, reserved: int = 0) -> None:
        """Use `wanted` threads, the caller's included, None for what suits the process.

        More than the platform has are cut off. Up to `reserved` are there for kernels that ask for so many.
        """
        usual = default_threads() if wanted is None else wanted
        if usual < 1:
            raise ConfigError(f"threads must be at least 1, not {usual}")
        self._words[self._at["firm"]] = int(wanted is not None)
        threads = min(max(usual, reserved), self._most)
        self._words[self._at["usual"]] = min(usual, self._most)
        self._words[self._at["threads"]] = threads
        if self["ready"] > threads:
            self._words[self._at["ready"]] = threads
            self._rouse()

    def share(self, threads: int) -> int:
        """Start the threads; return the address of what shares work among so many of them, 0 for `usual`."""
        self._words[self._at["looped"]] = min(threads, self._most)
        if self["ready"] < self["threads"]:
            self._start()
        return self._share

    def keep_asleep(self, microseconds: int) -> None:
        """Wake sleeping threads only for jobs that are estimated to take so long."""
        self._words[self._at["wake"]] = max(microseconds, 1) - 1

    def _start(self) -> None:
        """Start the workers that are missing; the launcher of the first shared job calls this."""
        threads = self["threads"]
        for index in range(threads - 1):
            if self._claim(index) and not self._fill(index):
                # the system has no thread to give: stay with those there are
                self._words[self._at["threads"]] = threads = index + 1
                break
        self._words[self._at["ready"]] = threads

    def _fill(self, index: int) -> bool:
        there = False
        try:
            there = _spawn(self._worker, index)
        finally:
            if not there:
                self._release(index)
        return there


def default_threads() -> int:
    """Number of threads for kernels that do not say how many: no more than OpenMP is to use."""
    most = processors()
    return min(openmp_threads() or most, most)


def _spawn(worker: int, index: int) -> bool:
    """Start a native thread, unknown to Python and without signals; whether there is one."""
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


def _spins(spin: Any) -> int:
    """Turns of the spin loop that take `SPIN_SECONDS`."""
    turns, best = 2000, float("inf")
    for _ in range(3):
        before = time.perf_counter()
        spin(turns)
        best = min(best, time.perf_counter() - before)
    return max(100, int(turns * SPIN_SECONDS / best))
