"""Process-wide run time of kernels: threads, output memory, native methods, and the caches on disk.

Nothing here knows of plans or generates code. `install_native` is given the addresses of native code once;
from then on `empty` allocates output memory, `share` hands work to the thread pool, and `native_launch` runs
kernels. `disk_cache` keeps machine code and plans between processes.

Below it: `jitla.config`, `jitla.concurrency`. Above it: `codegen`, `recompile`, `tracing` and the engine.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_modules
from jitla.runtime.process import (
    allocator,
    empty,
    empty_ordered,
    free_memory,
    install_native,
    layout_table,
    make_builtin,
    memory,
    native_launch,
    native_methods,
    processors,
    reserve_threads,
    retain_freed_memory,
    set_reuse_limit,
    set_threads,
    set_wake_threshold,
    share,
    statistics,
    threads,
)

if TYPE_CHECKING:
    from jitla.runtime import disk_cache
else:
    __getattr__ = lazy_modules(__name__, "jitla.runtime.disk_cache")

__all__ = [
    "allocator", "disk_cache", "empty", "empty_ordered", "free_memory", "install_native",
    "layout_table", "make_builtin", "memory", "native_launch", "native_methods", "processors",
    "reserve_threads", "retain_freed_memory", "set_reuse_limit", "set_threads", "set_wake_threshold",
    "share", "statistics", "threads",
]
