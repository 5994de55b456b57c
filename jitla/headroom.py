"""Memory and memory mappings that are about to be needed where a lack of them ends the process.

LLVM ends the process if the system gives it no memory for code. So as much is asked for before, and given
back at once: that takes microseconds, and finds whatever limits there are. Of mappings Linux allows a process
some 65,000; each object that LLVM loads takes about nine. They are counted now and then.
"""

from __future__ import annotations

import mmap
from contextlib import suppress

__all__ = ["foresee", "foresee_mappings"]

# Mappings that a loaded object takes at most, and those that are left to the rest of the program.
MAPPINGS_OF_OBJECT, MAPPINGS_OF_OTHERS = 24, 4000


def foresee(nbytes: int) -> None:
    """Raise `MemoryError` if the process cannot allocate `nbytes` more."""
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"there are no {nbytes >> 20} MiB of memory left") from error


class _Mappings:
    """Bounds the memory mappings of the process; recounts them when loads may have used them up."""

    def __init__(self) -> None:
        self.objects = 0  # that may be loaded before mappings are counted again

    def foresee(self) -> None:
        """Raise `MemoryError` if there may be too few mappings for another object."""
        if self.objects <= 0:
            left = _limit() - _count() - MAPPINGS_OF_OTHERS
            self.objects = max(left // MAPPINGS_OF_OBJECT, 0)
            if not self.objects:
                raise MemoryError("the process has as many memory mappings as the system allows")
        self.objects -= 1


def _limit() -> int:
    with suppress(OSError, ValueError), open("/proc/sys/vm/max_map_count", encoding="utf-8") as file:
        return int(file.read())
    return 1 << 40  # elsewhere there is no such limit


def _count() -> int:
    with suppress(OSError), open("/proc/self/maps", "rb") as file:
        return sum(1 for _ in file)
    return 0


foresee_mappings = _Mappings().foresee
