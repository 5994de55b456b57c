"""How many processors this process may use: affinity, and the quotas of the groups it is in.

Knows: where Linux says so, in both versions of its control groups. Must not know: threads.
Receives nothing; returns a number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["processors"]

#: Where the groups are usually mounted: version 1 with the controller's name, version 2 without.
FIRST = ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")
SECOND = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


def processors(root: Path = Path("/")) -> int:
    """Number of processors that the affinity of this thread and the quotas of its groups leave."""
    if hasattr(os, "sched_getaffinity"):
        most = len(os.sched_getaffinity(0))
    else:
        most = os.cpu_count() or 1
    shares = [-(-quota // period) for quota, period in _quotas(root) if quota > 0 and period > 0]
    return max(1, min([most, *shares]))


def _quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Microseconds of processor time, and in how many they may be used, of every group above."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for group in _groups(root, SECOND, path):
                yield from _pair(_text(group / "cpu.max").split())
        elif "cpu" in controllers.split(","):
            for group in _groups(root, FIRST, path):
                yield from _pair([_text(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")])


def _groups(root: Path, mounts: tuple[str, ...], path: str) -> Iterator[Path]:
    """The group at `path` and those it is in; a container may see only the outermost."""
    inner = PurePosixPath(path.strip().lstrip("/"))
    for mount in mounts:
        yield from (root / mount / group for group in (inner, *inner.parents))


def _pair(words: list[str]) -> Iterator[tuple[int, int]]:
    try:
        quota, period = map(int, words)
    except ValueError:
        return  # no such group, or "max": no quota
    yield quota, period


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
