"""How many processors and bytes this process may use: affinity, and the limits of the groups it is in.

Knows: where Linux says so, in both versions of its control groups. Must not know: threads, buffers.
Receives nothing; returns numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

__all__ = ["memory", "processors"]

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
