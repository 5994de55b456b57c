"""What kernels need while they run: threads, output memory, and native methods. No code is generated here."""

from jitla.runtime.background import Behind
from jitla.runtime.native_call import builtin
from jitla.runtime.process import (
    allocator,
    empty,
    empty_ordered,
    install,
    installed,
    keep_asleep,
    keep_freed,
    keep_limit,
    layouts,
    methods,
    reserve_threads,
    set_threads,
    share,
    statistics,
    threads,
)
from jitla.runtime.thread_pool import (
    free_memory,
    memory,
    processors,
)
from jitla.runtime.writes import watched

__all__ = [
    "Behind", "allocator", "builtin", "empty", "empty_ordered", "free_memory", "install", "installed",
    "keep_asleep", "keep_freed", "keep_limit", "layouts", "memory", "methods", "processors",
    "reserve_threads", "set_threads", "share", "statistics", "threads", "watched",
]
