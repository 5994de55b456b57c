"""What kernels need while they run: threads and memory. No native code is made here.

Reading order: entry, methods, processors, freed, pool, buffers, process,
behind, writes.
"""

from jitla.runtime.behind import Behind
from jitla.runtime.entry import builtin
from jitla.runtime.freed import keep_freed
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
    share,
    statistics,
    threads,
)
from jitla.runtime.processors import free_memory, memory, processors
from jitla.runtime.writes import watched

__all__ = [
    "Behind", "allocator", "builtin", "empty", "empty_ordered", "free_memory", "install", "installed",
    "keep_asleep", "keep_freed", "keep_limit", "layouts", "memory", "methods", "processors",
    "reserve_threads", "set_threads", "share", "statistics", "threads", "watched",
]
