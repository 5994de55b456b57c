"""Checks that there are memory, memory mappings and thread stacks, where a lack would end the process.

LLVM ends the process if the system gives it no memory for code, and a thread that has no memory for its first
frame is waited for in vain. So as much is asked for before, and given back at once: that takes microseconds.
Of mappings Linux allows a process some 65,000; each object that LLVM loads takes about nine.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

__all__ = ["LEAST", "deeply", "foresee", "foresee_mappings", "is_shallow", "stack_bytes", "start"]


# Mappings that a loaded object takes at most, and those that are left to the rest of the program.
MAPPINGS_OF_OBJECT, MAPPINGS_OF_OTHERS = 24, 4000


def foresee(nbytes: int) -> None:
    """Raise `MemoryError` if the process cannot allocate `nbytes` more."""
    try:
        mmap.mmap(-1, nbytes).close()
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"there are no {nbytes >> 20} MiB of memory left") from error


class _Mappings:
    """Bounds the memory mappings of the process; recounts them when loads may have used them up."""

    def __init__(self) -> None:
        self.objects = 0  # that may be loaded before mappings are counted again

    def foresee(self) -> None:
        """Raise `MemoryError` if there may be too few mappings for another object."""
        if self.objects <= 0:
            left = _limit() - _count() - MAPPINGS_OF_OTHERS
            self.objects = max(left // MAPPINGS_OF_OBJECT, 0)
            if not self.objects:
                raise MemoryError("the process has as many memory mappings as the system allows")
        self.objects -= 1


def _limit() -> int:
    with suppress(OSError, ValueError), open("/proc/sys/vm/max_map_count", encoding="utf-8") as file:
        return int(file.read())
    return 1 << 40  # elsewhere there is no such limit


def _count() -> int:
    with suppress(OSError), open("/proc/self/maps", "rb") as file:
        return sum(1 for _ in file)
    return 0


foresee_mappings = _Mappings().foresee


#: Bytes of stack that tracing and planning need; on less calls are the plain function's.
LEAST = 128 << 10
#: Bytes that the compiler needs, and that threads started here have at least.
ENOUGH = 1 << 20
#: Bytes of stack that the system gives threads where the program asks for nothing else; less on some.
USUAL = 8 << 20
#: Bytes beside its stack that must be free before a thread is started.
BESIDE_STACK = 8 << 20
_MAIN = threading.main_thread().ident  # the system lets its stack grow
_ATTRIBUTES = 256  # bytes, more than any system's `pthread_attr_t` has
_SETTING = threading.Lock()
_BEFORE: list[int] = []  # the size that was set, while a thread is being started


class _Local(threading.local):
    """The bytes of this thread's stack, once they were asked for."""

    size: int = 0


_LOCAL = _Local()


def stack_bytes() -> int:
    """Return the size of this thread's stack; a large number for the main thread, or if it is unknown."""
    size = _LOCAL.size
    if not size:
        size = _LOCAL.size = (0 if threading.get_ident() == _MAIN else _asked()) or 1 << 30
    return size


def is_shallow() -> bool:
    """Say whether this thread's stack is too small for tracing."""
    return stack_bytes() < LEAST


def _asked() -> int:
    """Return what the system says of this thread's stack; 0 if it says nothing."""
    library = ctypes.CDLL(None)
    thread, size = ctypes.c_size_t(threading.get_ident()), ctypes.c_size_t()
    try:
        if hasattr(library, "pthread_get_stacksize_np"):  # macOS
            library.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(library.pthread_get_stacksize_np(thread))
        attributes = ctypes.create_string_buffer(_ATTRIBUTES)
        if library.pthread_getattr_np(thread, attributes):
            return 0
        failed = library.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        library.pthread_attr_destroy(attributes)
    except AttributeError:  # a system that has no such functions
        return 0
    return 0 if failed else size.value


def start(thread: threading.Thread) -> None:
    """Start `thread` with a stack that is large enough, whatever the program has set for its own.

    Raises `RuntimeError`, as Python does, if the process cannot have another thread. A thread that finds no
    memory for its first frame would end at once, while `Thread.start` waits for it for ever: what it needs
    is asked of the system before.
    """
    with _SETTING:
        # What is set is returned by setting another one only; asked without an argument, Python sets it to 0.
        usual = threading.stack_size(ENOUGH)
        _BEFORE.append(usual)
        if not 0 < usual < ENOUGH:
            threading.stack_size(usual)
        try:
            foresee(max(usual or USUAL, ENOUGH) + BESIDE_STACK)
            thread.start()
        except MemoryError as error:
            raise RuntimeError("can't start new thread: no memory") from error
        finally:
            _BEFORE.clear()
            now = threading.stack_size(usual)
            if now not in (usual, ENOUGH):  # the program has set another one meanwhile
                threading.stack_size(now)


def _in_child() -> None:
    """Give a forked process a free lock, and the size of stacks that was set before a thread was started."""
    global _SETTING
    _SETTING = threading.Lock()
    if _BEFORE:
        threading.stack_size(_BEFORE.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def deeply(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``, called in another thread if this one's stack is small."""
    if stack_bytes() >= ENOUGH:
        return function(*args)
    made: list[Any] = []
    wrong: list[BaseException] = []

    def work() -> None:
        try:
            made.append(function(*args))
        except BaseException as error:  # it is raised where it was called
            wrong.append(error)

    thread = threading.Thread(target=work, name="jitla calls")
    try:
        start(thread)
    except RuntimeError as error:  # the system has no thread to give
        raise MemoryError("there is no thread with a stack for the compiler") from error
    thread.join()
    if wrong:
        raise wrong[0]
    return made[0]
