"""What kernels need while they run: threads and memory. No native code is made here.

Reading order: entry, methods, processors, pool, buffers, process.
"""

from jitla.runtime.process import (
    allocator,
    empty,
    empty_ordered,
    install,
    installed,
    keep_asleep,
    keep_limit,
    layouts,
    methods,
    reserve_threads,
    set_threads,
    statistics,
    threads,
)
from jitla.runtime.processors import memory

__all__ = [
    "allocator", "empty", "empty_ordered", "install", "installed", "keep_asleep", "keep_limit", "layouts",
    "memory", "methods",
    "reserve_threads", "set_threads", "statistics", "threads",
]
