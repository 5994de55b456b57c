"""Memory that is about to be needed where a lack of it ends the process instead of raising an exception.

LLVM does so: it has no other answer to a system that gives no memory. So as much is asked for before, and
given back at once. It costs microseconds, and finds whatever limits there are.
"""

from __future__ import annotations

import mmap

__all__ = ["foresee"]


def foresee(nbytes: int) -> None:
    """Raise `MemoryError` if the process cannot have so many bytes more."""
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"there are no {nbytes >> 20} MiB of memory for the compiler") from error
