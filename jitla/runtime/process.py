"""The run time of this process: output memory, its reuse, and the pool of threads, set up once."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from jitla.errors import ConfigError
from jitla.runtime.native_call import Methods, builtin, native
from jitla.runtime.thread_pool import Pool, memory

__all__ = [
    "BLOCK", "Buffers", "allocator", "empty", "empty_ordered", "install", "installed", "keep_asleep",
    "keep_freed", "keep_limit", "layouts", "methods", "plain_empty", "reserve_threads", "set_threads",
    "share", "statistics", "threads",
]


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


#: Most that is kept for reuse: the smaller of this many bytes and this share of the memory.
KEEP_BYTES, KEEP_SHARE = 256 << 20, 0.1

Maker = Callable[..., np.ndarray]


class Buffers:
    """The native memory handler of this process."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._names = layout["counters"]
        self._words = (ctypes.c_int64 * len(self._names)).from_address(addresses["jitla_memory"])
        self.hold = native(addresses["jitla_hold"], result=ctypes.c_int32)
        self.drop = native(addresses["jitla_drop"])
        self.trim = native(addresses["jitla_trim"])
        self.limit(int(min(KEEP_BYTES, KEEP_SHARE * memory())))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
        self.capsule = capsule(addresses["jitla_handler"], addresses["jitla_capsule_name"], None)
        # arrays and contexts hold references of their own; the native code's is never given back
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.capsule))
        ctypes.c_void_p.from_address(addresses["jitla_capsule"]).value = id(self.capsule)
        self.empty: Maker = builtin("empty", addresses["jitla_empty"], _DOC)

    def limit(self, nbytes: int) -> None:
        """Keep at most `nbytes` of freed blocks."""
        self._words[0] = nbytes
        self.trim()

    def counters(self) -> dict[str, int]:
        """Bytes that may be kept, are kept, are in use; blocks reused, fresh, kept."""
        return dict(zip(self._names, self._words, strict=True))


_DOC = "empty(shape, dtype[, axes]): a new array; `axes` from slowest to fastest."


def plain_empty(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...] = ()) -> np.ndarray:
    """What the native `empty` does, without native code."""
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
    """State that belongs to the process: its memory and threads cannot be two things."""

    def __init__(self) -> None:
        self.pool: Pool | None = None
        self.buffers: Buffers | None = None
        self.launch: Callable[..., int] | None = None
        self.empty: Maker = plain_empty
        self.threads: int | None = None
        self.reserved = 0
        self.held = False
        self.layouts: tuple[Callable[..., Any], ...] | None = None
        self.methods: Methods | None = None

    def resize(self) -> None:
        """Give the pool, once there is one, the threads that are wanted."""
        if self.pool is not None:
            self.pool.resize(self.threads, self.reserved)

    def before_fork(self) -> None:
        """Let no thread be inside the list of kept blocks when memory is copied."""
        self.held = bool(self.buffers is not None and self.buffers.hold())

    def after_fork(self) -> None:
        """Open the list again."""
        if self.held and self.buffers is not None:
            self.buffers.drop()

    def in_child(self) -> None:
        """Forget the workers, which did not come along; the next launch starts new ones."""
        self.after_fork()
        if self.pool is not None:
            self.pool.forked()


_PROCESS = _Process()


def installed() -> Callable[..., int] | None:
    """Return `launch`, once native code is installed."""
    return _PROCESS.launch


def install(addresses: Mapping[str, int], layout: Mapping[str, Any]) -> Callable[..., int]:
    """Use the native code at `addresses` for the rest of the process; its `launch`."""
    assert _PROCESS.launch is None
    _PROCESS.pool = Pool(addresses, layout)
    _PROCESS.buffers = Buffers(addresses, layout)
    _PROCESS.empty = _PROCESS.buffers.empty
    _PROCESS.resize()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_PROCESS.before_fork, after_in_parent=_PROCESS.after_fork,
                            after_in_child=_PROCESS.in_child)
    _PROCESS.layouts = tuple(
        builtin(name, addresses[f"jitla_{name}"], doc) for name, doc in _LAYOUT_DOCS.items())
    _PROCESS.methods = Methods(addresses, *layout["methods"])
    _PROCESS.launch = builtin("launch", addresses["jitla_launch"], _PROCESS_DOC)
    return _PROCESS.launch


_LAYOUT_DOCS = {
    "find": "find(array): the object remembered for the layout of an ndarray that owns its memory.",
    "remember": "remember(array, object): keep object, and the array's dtype, alive yourself.",
    "forget": "forget(): nothing is remembered any more.",
}
_PROCESS_DOC = "launch(template, *operands): run the kernel that `template` describes; its flags."


def layouts() -> tuple[Callable[..., Any], ...] | None:
    """Return the native table of layouts (find, remember, forget), once native code is installed."""
    return _PROCESS.layouts


def methods() -> Methods | None:
    """Return the native methods of tracing, once native code is installed."""
    return _PROCESS.methods


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A new uninitialised array in C order."""
    return _PROCESS.empty(shape, dtype)


def empty_ordered(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...]) -> np.ndarray:
    """A new uninitialised array whose axes lie in memory in the order `axes`, slowest first."""
    return _PROCESS.empty(shape, dtype, axes)


def allocator() -> Maker:
    """The callable behind `empty(shape, dtype)` and `empty_ordered(shape, dtype, axes)`."""
    return _PROCESS.empty


def set_threads(n: int | None) -> None:
    """Run kernels that do not say otherwise on `n` threads, None for what suits the process."""
    if n is not None and n < 1:
        raise ConfigError(f"threads must be at least 1, not {n}")
    _PROCESS.threads = n
    _PROCESS.resize()


def reserve_threads(n: int) -> None:
    """Have `n` threads for kernels that ask for so many; other kernels use no more than before."""
    _PROCESS.reserved = max(n, _PROCESS.reserved)
    _PROCESS.resize()


def keep_asleep(seconds: float) -> None:
    """Wake sleeping threads only for kernels that are estimated to take so long."""
    if _PROCESS.pool is not None:
        _PROCESS.pool.keep_asleep(round(seconds * 1e6))


def threads() -> int:
    """Number of threads a kernel runs on that does not say how many."""
    pool = _PROCESS.pool
    return 1 if pool is None else min(pool["usual"], pool["threads"])


def share(n: int) -> int:
    """Return the address of what shares work among `n` threads, 0 for `threads`; they are there then."""
    reserve_threads(n)
    assert _PROCESS.pool is not None
    return _PROCESS.pool.share(n)


def keep_limit(nbytes: int) -> None:
    """Keep at most `nbytes` of freed output memory for reuse."""
    if _PROCESS.buffers is not None:
        _PROCESS.buffers.limit(nbytes)


def statistics() -> dict[str, int]:
    """Counters of memory and pool."""
    if _PROCESS.pool is None or _PROCESS.buffers is None:
        return {}
    pool = {name: _PROCESS.pool[name] for name in ("threads", "ready", "shared")}
    return _PROCESS.buffers.counters() | pool
