"""Process-wide state of the run time: output memory and its reuse, the thread pool, native entry points.

`install_native` sets it up once; before that, arrays come from NumPy and there is one thread. Native entry
points are called as builtin functions, methods of classes, and C functions.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np

from jitla.config import openmp_threads
from jitla.errors import ConfigError

__all__ = [
    "FREED_BLOCK_BYTES", "MemoryHandler", "NativeMethods", "ThreadPool", "allocator", "c_function",
    "empty", "empty_ordered", "install_native", "layout_table", "make_builtin", "make_method", "memory",
    "native_launch", "native_methods", "numpy_empty", "processors", "reserve_threads",
    "retain_freed_memory", "set_reuse_limit", "set_threads", "set_wake_threshold", "share", "statistics",
    "threads",
]


# --------------------------------------------------------------------------- callables over native code


_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def make_builtin(name: str, address: int, doc: str, owner: Any = None) -> Callable[..., Any]:
    """Return a builtin for the METH_FASTCALL function at `address`, called with `owner` first."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
    owner_address = None if owner is None else id(owner)  # the builtin holds a reference
    function: Callable[..., Any] = make(_method_definition(name, address, doc), owner_address, None)
    return function


def make_method(owner: type, name: str, address: int, doc: str) -> Callable[..., Any]:
    """Return a method descriptor of `owner` for the METH_FASTCALL function at `address`."""
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = make(owner, _method_definition(name, address, doc))
    return function


def _method_definition(name: str, address: int, doc: str) -> int:
    """Return the address of a new `PyMethodDef`, which is never freed."""
    record = _Method(name.encode(), address, _FASTCALL, doc.encode())
    # the function may outlive every reference we could hold
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))
    return ctypes.addressof(record)


def c_function(address: int, *arguments: Any, result: Any = None) -> Callable[..., Any]:
    """Return the C function at `address` as a callable that holds the GIL while it runs."""
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


class NativeMethods:
    """The native methods at `addresses`; `fields` is the order of the table they read."""

    def __init__(self, addresses: Mapping[str, int], names: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.names = names
        self.fields = fields
        self.installed = False
        # Python's methods of the same names: their documentation and fallback.
        self.replaced: dict[str, Any] = {}

    def install(
        self, owners: Mapping[str, type], objects: Mapping[str, Any], numbers: Mapping[str, int],
        slots: Mapping[str, tuple[type, ...]],
    ) -> bool:
        """Replace methods by native ones; return False if this Python has another memory layout.

        `owners` are the classes, by name of the method. `objects` and `numbers` go into the table as they
        are; `slots` give the offsets under `at_`, equal in instances of all classes given.
        """
        if self.installed:
            return True
        offsets: dict[str, int | None] = {}
        for name, classes in slots.items():
            places = {_slot_offset(kind, name) for kind in classes}
            offsets[f"at_{name}"] = places.pop() if len(places) == 1 else None
        if None in offsets.values() or not _has_refcount_first():
            return False
        referenced = [*objects.values()]
        for value in referenced:  # native code refers to them for the rest of the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        words: dict[str, Any] = offsets | dict(numbers) | {name: id(value) for name, value in objects.items()}
        table = (ctypes.c_int64 * len(self.fields)).from_address(self.addresses["jitla_tape"])
        table[:] = [words[name] for name in self.fields]
        for name in self.names:
            owner = owners[name]
            original = self.replaced[name] = getattr(owner, name)
            doc = original.__doc__ or ""
            setattr(owner, name, make_method(owner, name, self.addresses[f"jitla_{name}"], doc))
        self.installed = True
        return True


def _slot_offset(kind: type, slot: str) -> int | None:
    """Return the byte offset of a slot in instances of `kind`; None if it is not found.

    It is the one word that changes when the slot is set.
    """
    new: Any = kind.__new__
    instance, mark = new(kind), object()
    size, header = kind.__basicsize__, object.__basicsize__
    setattr(instance, slot, mark)
    words = (ctypes.c_int64 * (size // 8)).from_address(id(instance))
    offsets = [8 * i for i, word in enumerate(words) if word == id(mark) and 8 * i >= header]
    delattr(instance, slot)
    return offsets[0] if len(offsets) == 1 and not words[offsets[0] // 8] else None


def _has_refcount_first() -> bool:
    """Return whether an object begins with its reference count, in 32 bits."""
    differences = set()
    for n in (0, 1, 5, 70_000):
        target = object()
        references = [target] * n
        count = ctypes.c_uint32.from_address(id(target)).value
        differences.add((getrefcount(target) - count, count - len(references)))
    return len(differences) == 1


# -------------------------------------------------------------------- processors, memory and the thread pool


Root = str | os.PathLike[str]

#: Usual mount points of control groups: of version 1 by controller, of version 2 under the empty name.
CGROUP_MOUNTS = {
    "cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"), "memory": ("sys/fs/cgroup/memory",),
    "": ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
}
#: Assumed where the system does not report its memory.
DEFAULT_MEMORY_BYTES = 1 << 32


def processors(root: Root = "/") -> int:
    """Return the number of processors within the affinity of this thread and its control groups' quotas."""
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    shares = [-(-quota // period) for quota, period in _quotas(root) if quota > 0 and period > 0]
    return max(1, min([available, *shares]))


def memory(root: Root = "/") -> int:
    """Return the bytes of memory of the system, or the limit of this process' control groups if less."""
    total = DEFAULT_MEMORY_BYTES
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_numbers([_text(os.path.join(group, name))]) for group, name in _groups(
        root, "memory", "memory.limit_in_bytes", "memory.max")]
    return min([total, *(limit for numbers in limits for limit in numbers if limit > 0)])


def free_memory(root: Root = "/") -> int:
    """Return the bytes available to new arrays; half of all memory if the system does not report it."""
    for line in _text(os.path.join(root, "proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and (numbers := _numbers(value.split()[:1])):
            return min(numbers[0] << 10, _initial_memory(os.fspath(root)))
    return memory(root) // 2


@cache
def _initial_memory(root: str) -> int:
    """Return `memory()` as it was at the first call: limits, unlike free memory, rarely change."""
    return memory(root)


def _quotas(root: Root) -> Iterator[list[int]]:
    """Yield [quota, period] in microseconds of processor time for every enclosing control group."""
    for group, name in _groups(root, "cpu", "cpu.cfs_quota_us", "cpu.max"):
        words = [_text(os.path.join(group, name))]
        if name == "cpu.max":
            words = words[0].split()
        else:
            words.append(_text(os.path.join(group, "cpu.cfs_period_us")))
        numbers = _numbers(words)
        if len(numbers) == 2:
            yield numbers


def _groups(root: Root, controller: str, name_v1: str, name_v2: str) -> Iterator[tuple[str, str]]:
    """Yield the control groups of this process, inner ones first, and the name of their limit file.

    `name_v1` is the name in version 1 of control groups, `name_v2` in version 2. A container may see only the
    outermost.
    """
    for line in _text(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, fields = line.partition(":")
        controllers, _, path = fields.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        names = path.strip().strip("/").split("/")
        for mount in CGROUP_MOUNTS[controller if controllers else ""]:
            for depth in range(len(names), -1, -1):
                yield os.path.join(root, mount, *names[:depth]), name_v1 if controllers else name_v2


def _numbers(words: list[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError:
        return []  # no such group, or "max", which is no limit


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


#: How long an idle worker, or a launcher without chunks, spins before it sleeps.
SPIN_SECONDS = 70e-6


class ThreadPool:
    """The pool of native worker threads of this process; its settings are words shared with native code."""

    def __init__(self, addresses: Mapping[str, int], layout: Mapping[str, Any]) -> None:
        self._share_address = addresses["jitla_share"]
        self._worker = addresses["jitla_worker"]
        self._claim = c_function(addresses["jitla_claim"], ctypes.c_int64, result=ctypes.c_int32)
        self._release = c_function(addresses["jitla_release"], ctypes.c_int64)
        self._rouse = c_function(addresses["jitla_rouse"])
        self.forked = c_function(addresses["jitla_forked"])
        names = layout["settings"]
        self._words = (ctypes.c_int64 * len(names)).from_address(addresses["jitla_pool"])
        self._setting_index = {name: i for i, name in enumerate(names)}
        self._max_threads = layout["workers"] + 1 if layout["parallel"] else 1
        spin = c_function(addresses["jitla_spin"], ctypes.c_int64)
        self._words[self._setting_index["spin"]] = _spin_iterations(spin)
        starter = ctypes.c_void_p.from_address(addresses["jitla_starter"])
        self.start = self._start_missing  # one object, as its address is stored below
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.start))
        starter.value = id(self.start)

    def __getitem__(self, name: str) -> int:
        return int(self._words[self._setting_index[name]])

    def resize(self, wanted: int | None, reserved: int = 0) -> None:
        """Use `wanted` threads, the caller's included; None for the default of the process.

        The platform's maximum caps it. Up to `reserved` threads exist for kernels that ask for that many.
        """
        default = default_threads() if wanted is None else wanted
        if default < 1:
            raise ConfigError(f"threads must be at least 1, not {default}")
        self._words[self._setting_index["firm"]] = int(wanted is not None)
        threads = min(max(default, reserved), self._max_threads)
        self._words[self._setting_index["usual"]] = min(default, self._max_threads)
        self._words[self._setting_index["threads"]] = threads
        if self["ready"] > threads:
            self._words[self._setting_index["ready"]] = threads
            self._rouse()

    def share(self, threads: int) -> int:
        """Start the threads; return the address of the native function that shares work among `threads`."""
        self._words[self._setting_index["looped"]] = min(threads, self._max_threads)
        if self["ready"] < self["threads"]:
            self._start_missing()
        return self._share_address

    def set_wake_threshold(self, microseconds: int) -> None:
        """Wake sleeping threads only for jobs estimated to take at least `microseconds`."""
        self._words[self._setting_index["wake"]] = max(microseconds, 1) - 1

    def _start_missing(self) -> None:
        """Start missing workers; the launcher of the first shared job calls this."""
        threads = self["threads"]
        for index in range(threads - 1):
            if self._claim(index) and not self._start_worker(index):
                # no more threads from the system: use those that exist
                self._words[self._setting_index["threads"]] = threads = index + 1
                break
        self._words[self._setting_index["ready"]] = threads

    def _start_worker(self, index: int) -> bool:
        """Start the thread of one worker; return whether it exists, and release its claim if not."""
        started = False
        try:
            started = _spawn(self._worker, index)
        finally:
            if not started:
                self._release(index)
        return started


def default_threads() -> int:
    """Return the default number of threads of kernels: the processors, or OpenMP's setting if less."""
    available = processors()
    return min(openmp_threads() or available, available)


def _spawn(worker: int, index: int) -> bool:
    """Start a native thread, unknown to Python and with signals blocked; return whether it started."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_size_t()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        failed = libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(worker),
                                     ctypes.c_void_p(index))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    if not failed:
        libc.pthread_detach(thread)
    return not failed


def _spin_iterations(spin: Any) -> int:
    """Return the iterations of the spin loop that take `SPIN_SECONDS`."""
    iterations, best = 2000, float("inf")
    for _ in range(3):
        before = time.perf_counter()
        spin(iterations)
        best = min(best, time.perf_counter() - before)
    return max(100, int(iterations * SPIN_SECONDS / best))


# --------------------------------------------------------------------------- state of the process


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
