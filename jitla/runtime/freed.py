"""Memory that is freed: the C library keeps what blocks of usual sizes took, where it can be told so.

Knows: how the C library's heap learns. Must not know: arrays, kernels.
Receives nothing; changes what becomes of freed blocks, once in a process.

Where blocks are large, the heap gives them back to the system when they are freed, and each one that is
allocated begins with a page fault for every 4 KB: a third of the time that NumPy takes for 10⁵ elements.
As a program frees larger blocks the heap keeps more. One that is never touched teaches it that at once.
"""

from __future__ import annotations

import ctypes
import sys

from jitla.runtime.processors import memory

__all__ = ["BLOCK", "keep_freed"]

#: Bytes of the block that is freed, less than the most that glibc learns from (32 MB); it then keeps twice as
#: many at the end of its heap. Those must be a small part of the memory.
BLOCK = 31 << 20
SHARE = 0.05


def keep_freed() -> bool:
    """Let the C library keep the memory of freed blocks up to `BLOCK` bytes; say whether it was asked to."""
    if sys.platform != "linux" or 2 * BLOCK > SHARE * memory():
        return False
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    libc.free(libc.malloc(BLOCK))  # never touched: it takes no memory
    return True
