"""What kernels need while they run: threads and memory. No native code is made here.

Reading order: entry, pool, buffers, process.
"""

from jitla.runtime.entry import builtin
from jitla.runtime.process import (
    allocator,
    empty,
    empty_ordered,
    install,
    keep_limit,
    set_threads,
    statistics,
    threads,
)

__all__ = [
    "allocator", "builtin", "empty", "empty_ordered", "install", "keep_limit", "set_threads",
    "statistics", "threads",
]
