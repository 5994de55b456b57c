"""Deep recursions of decorated functions, whose calls run the plain function.

A decorated call takes up to five frames: the wrapper, the dispatch, and the plain function. Python counts all
of them, so a recursion would reach the limit after a fifth of its levels. From `DEEP_NESTING` nested calls
on, the wrapper is given the code of the plain function until the call that did so returns. Nested calls then
take one frame each, whether by name, as a method, by another decorated function or by a helper. They need no
accounting of their own: they are part of a call that is counted.

Until then traced code treats such a function like an undecorated one: it calls the instrumented function
(`jitla/tracing/callees.py`), never the wrapper. Changes of options call `restore_wrapper_code`, because the
code was chosen under other options. Other threads that call the function meanwhile run the plain code,
too: results are the same.

Rejected alternatives: a higher recursion limit is visible to the program, affects all threads, and lets code
use more of the C stack than the program allows. A version of the function that calls itself directly misses
calls by helpers, and needs the source text.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextvars import copy_context
from sys import _getframe, getrecursionlimit
from types import CodeType, FrameType
from typing import Any

__all__ = ["DEEP_NESTING", "NESTING", "SUSPENDED_STATES", "call_with_stack_headroom", "restore_wrapper_code",
           "is_deep_recursion"]

# Nested calls of a deep recursion.
DEEP_NESTING = 6
# Enough for all work that is done once for a function.
HEADROOM_FRAMES = 400


class _Nesting:
    """The number of decorated calls in progress, in all threads.

    Single statements change it, within which CPython does not switch threads.
    """

    __slots__ = ("nested",)

    def __init__(self) -> None:
        self.nested = 0


NESTING = _Nesting()
# States of functions whose wrapper may have the plain code, one item per call that replaced it.
SUSPENDED_STATES: list[Any] = []


def is_deep_recursion(code: CodeType) -> bool:
    """Return whether more than `DEEP_NESTING` frames of this thread run `code`."""
    frame: FrameType | None = _getframe(1)
    count = 0
    while frame is not None and count <= DEEP_NESTING:
        count += frame.f_code is code
        frame = frame.f_back
    return count > DEEP_NESTING


def restore_wrapper_code() -> None:
    """Give all wrappers their own code again, also in recursions in progress."""
    for state in tuple(SUSPENDED_STATES):
        wrapper = state.wrapper()
        if wrapper is not None:
            wrapper.__code__ = state.fast_path.code


def call_with_stack_headroom(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` with at least `HEADROOM_FRAMES` frames before the recursion limit.

    Its result is cached or must not be lost. Near the limit the call runs in another thread, which has its
    own count; this thread waits.
    """
    left = getrecursionlimit() - HEADROOM_FRAMES
    frame: FrameType | None = _getframe()
    while frame is not None and left > 0:
        left -= 1
        frame = frame.f_back
    if left > 0:
        return function(*args)
    done, context, outcome = allocate_lock(), copy_context(), _Outcome()
    done.acquire()
    try:
        start_new_thread(outcome.run, (done, context, function, args))
    except RecursionError:
        raise
    except RuntimeError:  # there can be no more threads
        return function(*args)
    done.acquire()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


class _Outcome:
    """The result or exception of a call in another thread."""

    value: Any = None
    error: BaseException | None = None

    def run(self, done: Any, context: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Call `function` and release the lock `done`."""
        try:
            self.value = context.run(function, *args)
        except BaseException as error:  # raised in the waiting thread
            self.error = error
        finally:
            done.release()
