"""Process-wide state of the run time: output memory and its reuse, the thread pool, native entry points.

`install_native` sets it up once; before that, arrays come from NumPy and there is one thread.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from jitla.errors import ConfigError
from jitla.runtime.native_call import NativeMethods, c_function, make_builtin
from jitla.runtime.thread_pool import ThreadPool, memory

__all__ = [
    "FREED_BLOCK_BYTES", "MemoryHandler", "allocator", "empty", "empty_ordered", "install_native",
    "layout_table", "native_launch", "native_methods", "numpy_empty", "reserve_threads",
    "retain_freed_memory", "set_reuse_limit", "set_threads", "set_wake_threshold", "share", "statistics",
    "threads",
]


#: Bytes of the block freed once, below the largest that adapts glibc's threshold (32 MB): it then keeps up to
#: twice as many at the end of its heap, which must be at most `MAX_HEAP_SHARE` of the memory.
FREED_BLOCK_BYTES = 31 << 20
MAX_HEAP_SHARE = 0.05


def retain_freed_memory() -> bool:
    """Make the C library keep freed blocks of up to `FREED_BLOCK_BYTES`; return whether that was done.

    Memory returned to the system costs page faults when it is allocated again.
    """
    if sys.platform != "linux" or 2 * FREED_BLOCK_BYTES > MAX_HEAP_SHARE * memory():
        return False
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    libc.free(libc.malloc(FREED_BLOCK_BYTES))  # untouched pages take no memory
    return True


#: Limit of freed blocks kept for reuse: the smaller of these bytes and this share of the memory.
MAX_REUSE_BYTES, MAX_REUSE_SHARE = 256 << 20, 0.1

Allocator = Callable[..., np.ndarray]


class MemoryHandler:
    """NumPy's memory handler in native code: allocates output memory and reuses freed blocks."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._names = layout["counters"]
        self._words = (ctypes.c_int64 * len(self._names)).from_address(addresses["jitla_memory"])
        self.hold = c_function(addresses["jitla_hold"], result=ctypes.c_int32)
        self.drop = c_function(addresses["jitla_drop"])
        self.trim = c_function(addresses["jitla_trim"])
        self.limit(int(min(MAX_REUSE_BYTES, MAX_REUSE_SHARE * memory())))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
        self.capsule = capsule(addresses["jitla_handler"], addresses["jitla_capsule_name"], None)
        # the reference of native code; arrays and contexts hold their own
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.capsule))
        ctypes.c_void_p.from_address(addresses["jitla_capsule"]).value = id(self.capsule)
        self.empty: Allocator = make_builtin("empty", addresses["jitla_empty"], _DOC)

    def limit(self, nbytes: int) -> None:
        """Keep at most `nbytes` of freed blocks for reuse."""
        self._words[0] = nbytes
        self.trim()

    def counters(self) -> dict[str, int]:
        """Return bytes that may be kept, are kept, are in use; blocks reused, fresh, kept."""
        return dict(zip(self._names, self._words, strict=True))


_DOC = "empty(shape, dtype[, axes]): a new array; `axes` from slowest to fastest."


def numpy_empty(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...] = ()) -> np.ndarray:
    """Return a new array like the native `empty`, by NumPy."""
    if not axes or axes == tuple(range(len(shape))):
        return np.empty(shape, dtype)
    # empty_like follows the order of a prototype's strides, and the result owns its data
    small = (2,) * len(shape)
    strides = [0] * len(shape)
    for position, axis in enumerate(reversed(axes)):
        strides[axis] = 1 << position
    prototype = np.ndarray(small, np.uint8, bytearray(prod(small)), strides=strides)
    return np.empty_like(prototype, dtype=dtype, order="K", shape=shape)


class _Process:
    """The state of the process; it exists once, like memory handler and thread pool."""

    def __init__(self) -> None:
        self.pool: ThreadPool | None = None
        self.buffers: MemoryHandler | None = None
        self.launch: Callable[..., int] | None = None
        self.empty: Allocator = numpy_empty
        self.threads: int | None = None
        self.reserved = 0
        self.is_locked = False
        self.layout_table: tuple[Callable[..., Any], ...] | None = None
        self.native_methods: NativeMethods | None = None

    def resize(self) -> None:
        """Give the pool, if it exists, the number of threads requested."""
        if self.pool is not None:
            self.pool.resize(self.threads, self.reserved)

    def before_fork(self) -> None:
        """Lock the list of kept blocks, so that no other thread is inside when memory is copied."""
        self.is_locked = bool(self.buffers is not None and self.buffers.hold())

    def after_fork(self) -> None:
        """Unlock the list of kept blocks."""
        if self.is_locked and self.buffers is not None:
            self.buffers.drop()

    def in_child(self) -> None:
        """Forget the workers, which a fork does not copy; the next launch starts new ones."""
        self.after_fork()
        if self.pool is not None:
            self.pool.forked()


_PROCESS = _Process()


def native_launch() -> Callable[..., int] | None:
    """Return the native `launch` function; None before native code is installed."""
    return _PROCESS.launch


def install_native(addresses: Mapping[str, int], layout: Mapping[str, Any]) -> Callable[..., int]:
    """Install the native code at `addresses` for the rest of the process; return its `launch`."""
    assert _PROCESS.launch is None
    _PROCESS.pool = ThreadPool(addresses, layout)
    _PROCESS.buffers = MemoryHandler(addresses, layout)
    _PROCESS.empty = _PROCESS.buffers.empty
    _PROCESS.resize()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_PROCESS.before_fork, after_in_parent=_PROCESS.after_fork,
                            after_in_child=_PROCESS.in_child)
    _PROCESS.layout_table = tuple(
        make_builtin(name, addresses[f"jitla_{name}"], doc) for name, doc in _LAYOUT_DOCS.items())
    _PROCESS.native_methods = NativeMethods(addresses, *layout["methods"])
    _PROCESS.launch = make_builtin("launch", addresses["jitla_launch"], _PROCESS_DOC)
    return _PROCESS.launch


_LAYOUT_DOCS = {
    "find": "find(array): the object remembered for the layout of an ndarray that owns its memory.",
    "remember": "remember(array, object): keep object, and the array's dtype, alive yourself.",
    "forget": "forget(): nothing is remembered any more.",
}
_PROCESS_DOC = "launch(template, *operands): run the kernel that `template` describes; its flags."


def layout_table() -> tuple[Callable[..., Any], ...] | None:
    """Return the native table of layouts (find, remember, forget); None before native code is installed."""
    return _PROCESS.layout_table


def native_methods() -> NativeMethods | None:
    """Return the native methods of tracing; None before native code is installed."""
    return _PROCESS.native_methods


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return a new uninitialised array in C order."""
    return _PROCESS.empty(shape, dtype)


def empty_ordered(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...]) -> np.ndarray:
    """Return a new uninitialised array whose axes have strides in the order `axes`, largest first."""
    return _PROCESS.empty(shape, dtype, axes)


def allocator() -> Allocator:
    """Return the callable behind `empty(shape, dtype)` and `empty_ordered(shape, dtype, axes)`."""
    return _PROCESS.empty


def set_threads(n: int | None) -> None:
    """Set the default number of threads of kernels; None for the default of the process."""
    if n is not None and n < 1:
        raise ConfigError(f"threads must be at least 1, not {n}")
    _PROCESS.threads = n
    _PROCESS.resize()


def reserve_threads(n: int) -> None:
    """Provide `n` threads for kernels that ask for that many; the default of others does not change."""
    _PROCESS.reserved = max(n, _PROCESS.reserved)
    _PROCESS.resize()


def set_wake_threshold(seconds: float) -> None:
    """Wake sleeping threads only for kernels estimated to take at least `seconds`."""
    if _PROCESS.pool is not None:
        _PROCESS.pool.set_wake_threshold(round(seconds * 1e6))


def threads() -> int:
    """Return the default number of threads of a kernel."""
    pool = _PROCESS.pool
    return 1 if pool is None else min(pool["usual"], pool["threads"])


def share(n: int) -> int:
    """Start threads; return the native function that shares work among `n` of them, 0: `threads()`."""
    reserve_threads(n)
    assert _PROCESS.pool is not None
    return _PROCESS.pool.share(n)


def set_reuse_limit(nbytes: int) -> None:
    """Keep at most `nbytes` of freed output memory for reuse."""
    if _PROCESS.buffers is not None:
        _PROCESS.buffers.limit(nbytes)


def statistics() -> dict[str, int]:
    """Return the counters of memory and pool."""
    if _PROCESS.pool is None or _PROCESS.buffers is None:
        return {}
    pool = {name: _PROCESS.pool[name] for name in ("threads", "ready", "shared")}
    return _PROCESS.buffers.counters() | pool
