"""Checks for memory, memory mappings and thread stacks whose lack would end or block the process.

LLVM aborts the process if it gets no memory for code, and `Thread.start` waits forever for a thread that
gets no memory for its first frame. So the same amount is allocated before and freed at once, which takes
microseconds. Linux limits a process to some 65,000 mappings; each object that LLVM loads needs about nine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["MIN_TRACING_STACK_BYTES", "call_with_deep_stack", "require_memory", "require_mapping",
           "has_shallow_stack", "stack_bytes", "start_thread"]


# Upper bound on the mappings of a loaded object, and the number reserved for the program.
MAPPINGS_PER_OBJECT, RESERVED_MAPPINGS = 24, 4000


def require_memory(nbytes: int) -> None:
    """Raise `MemoryError` if the process cannot allocate `nbytes` more."""
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"there are no {nbytes >> 20} MiB of memory left") from error


class _MappingBudget:
    """The number of objects that can be loaded; mappings are counted again when it is used up."""

    def __init__(self) -> None:
        self.objects = 0  # number that can be loaded before mappings are counted again

    def require(self) -> None:
        """Raise `MemoryError` if there may be too few mappings for another object."""
        if self.objects <= 0:
            available = _mapping_limit() - _mapping_count() - RESERVED_MAPPINGS
            self.objects = max(available // MAPPINGS_PER_OBJECT, 0)
            if not self.objects:
                raise MemoryError("the process has as many memory mappings as the system allows")
        self.objects -= 1


def _mapping_limit() -> int:
    with suppress(OSError, ValueError), open("/proc/sys/vm/max_map_count", encoding="utf-8") as file:
        return int(file.read())
    return 1 << 40  # no limit on other systems


def _mapping_count() -> int:
    with suppress(OSError), open("/proc/self/maps", "rb") as file:
        return sum(1 for _ in file)
    return 0


require_mapping = _MappingBudget().require


#: Stack that tracing and planning need; on a smaller one calls run the plain function.
MIN_TRACING_STACK_BYTES = 128 << 10
#: Stack that the compiler needs, and the minimum of threads started here.
COMPILER_STACK_BYTES = 1 << 20
#: Default stack size of the system (smaller on some).
DEFAULT_STACK_BYTES = 8 << 20
#: Memory required beside the stack for starting a thread.
THREAD_OVERHEAD_BYTES = 8 << 20
_MAIN_THREAD = threading.main_thread().ident  # its stack grows
_PTHREAD_ATTR_BYTES = 256  # at least the size of `pthread_attr_t` on any system
_STACK_SIZE_LOCK = threading.Lock()
_PREVIOUS_SIZES: list[int] = []  # the program's stack size, while a thread is being started


class _ThreadStack(threading.local):
    """The size of this thread's stack in bytes, 0 before the first query."""

    size: int = 0


_LOCAL = _ThreadStack()


def stack_bytes() -> int:
    """Return the size of this thread's stack; a large number for the main thread, or if unknown."""
    size = _LOCAL.size
    if not size:
        size = _LOCAL.size = (0
                              if threading.get_ident() == _MAIN_THREAD else _system_stack_bytes()) or 1 << 30
    return size


def has_shallow_stack() -> bool:
    """Return whether this thread's stack is too small for tracing."""
    return stack_bytes() < MIN_TRACING_STACK_BYTES


def _system_stack_bytes() -> int:
    """Return the stack size of this thread that the system reports; 0 if unknown."""
    library = ctypes.CDLL(None)
    thread, size = ctypes.c_size_t(threading.get_ident()), ctypes.c_size_t()
    try:
        if hasattr(library, "pthread_get_stacksize_np"):  # macOS
            library.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(library.pthread_get_stacksize_np(thread))
        attributes = ctypes.create_string_buffer(_PTHREAD_ATTR_BYTES)
        if library.pthread_getattr_np(thread, attributes):
            return 0
        failed = library.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        library.pthread_attr_destroy(attributes)
    except AttributeError:  # the system lacks these functions
        return 0
    return 0 if failed else size.value


def start_thread(thread: threading.Thread, overhead_bytes: int = THREAD_OVERHEAD_BYTES) -> None:
    """Start `thread` with a stack that is large enough, whatever size the program has set.

    Raises `RuntimeError`, as Python does, if there can be no more threads, or no memory for the stack and
    `overhead_bytes`.
    """
    with _STACK_SIZE_LOCK:
        # Only setting a size returns the previous one: a call without argument resets it to 0.
        program_size = threading.stack_size(COMPILER_STACK_BYTES)
        _PREVIOUS_SIZES.append(program_size)
        if not 0 < program_size < COMPILER_STACK_BYTES:
            threading.stack_size(program_size)
        try:
            require_memory(max(program_size or DEFAULT_STACK_BYTES, COMPILER_STACK_BYTES)
                           + overhead_bytes)
            thread.start()
        except MemoryError as error:
            raise RuntimeError("can't start new thread: no memory") from error
        finally:
            _PREVIOUS_SIZES.clear()
            current_size = threading.stack_size(program_size)
            if current_size not in (program_size, COMPILER_STACK_BYTES):  # set by the program meanwhile
                threading.stack_size(current_size)


def _in_child() -> None:
    """Free the lock in a forked process, and restore the stack size set before a thread was being started."""
    global _STACK_SIZE_LOCK
    _STACK_SIZE_LOCK = threading.Lock()
    if _PREVIOUS_SIZES:
        threading.stack_size(_PREVIOUS_SIZES.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def call_with_deep_stack(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``, called in another thread if this one's stack is small."""
    if stack_bytes() >= COMPILER_STACK_BYTES:
        return function(*args)
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function(*args))
        except BaseException as error:  # raised in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, name="jitla calls")
    try:
        start_thread(thread)
    except RuntimeError as error:  # no more threads
        raise MemoryError("there is no thread with a stack for the compiler") from error
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
