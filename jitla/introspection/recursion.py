"""Deep recursions of decorated functions whose calls are left to the plain function.

Such a call takes up to five frames: of what users call, of what decides about the call, and that of the
plain function. Python counts them all, so a recursion would end after a fifth of the levels that it may
have. From `DEEP` nested calls on, what users call is therefore given the code of the plain function, until
the call that did so returns: nested calls then take one frame each, whatever way they come: by name, as a
method, by another decorated function or by a helper. Nothing else has to be noted of them: they are part of
a call that was.

Until then such a function is to traced code what an undecorated one is. That calls it by its twin or by what
always decides, see `jitla/tracing/callees.py`, never by the function itself. Whoever changes options calls
`give_back`, as the code was chosen under others. Another thread that calls the function meanwhile runs the
plain code, too: results are the same.

The alternatives were judged to be worse. A higher limit of recursion is seen by the program, holds for all
its threads, and lets code use more of the stack of C than the program asked for. A version of the function
in which calls of itself are direct misses those that come by a helper, and needs the source text.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextvars import copy_context
from sys import _getframe, getrecursionlimit
from types import CodeType, FrameType
from typing import Any

__all__ = ["DEEP", "LEVELS", "OPEN", "call_with_room", "give_back", "is_deep"]

# Nested calls from which on a recursion is deep.
DEEP = 6
# Levels that are enough for whatever is done once for a function.
ROOM = 400


class _Levels:
    """How many calls of decorated functions are being decided about or done, in all threads.

    Single statements count it up and down, within which CPython does not go on with another thread.
    """

    __slots__ = ("nested",)

    def __init__(self) -> None:
        self.nested = 0


LEVELS = _Levels()
# States of functions that may have other code now, each as often as there are calls that gave it.
OPEN: list[Any] = []


def is_deep(code: CodeType) -> bool:
    """Say whether more than `DEEP` frames of this thread are of `code`."""
    frame: FrameType | None = _getframe(1)
    count = 0
    while frame is not None and count <= DEEP:
        count += frame.f_code is code
        frame = frame.f_back
    return count > DEEP


def give_back() -> None:
    """Let what users call decide about calls again, also in recursions that are under way."""
    for state in tuple(OPEN):
        wrapper = state.wrapper()
        if wrapper is not None:
            wrapper.__code__ = state.shortcut.code


def call_with_room(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`, whose result is kept or must not be lost, where the recursion limit is far away.

    Near the limit that is in another thread, which counts its own levels; this one waits for it.
    """
    left = getrecursionlimit() - ROOM
    frame: FrameType | None = _getframe()
    while frame is not None and left > 0:
        left -= 1
        frame = frame.f_back
    if left > 0:
        return function(*args)
    done, context, outcome = allocate_lock(), copy_context(), _Outcome()
    done.acquire()
    try:
        start_new_thread(outcome.find, (done, context, function, args))
    except RecursionError:
        raise
    except RuntimeError:  # there can be no more threads
        return function(*args)
    done.acquire()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


class _Outcome:
    """What a call in another thread returned or raised."""

    value: Any = None
    error: BaseException | None = None

    def find(self, done: Any, context: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Call `function` and open the lock `done`."""
        try:
            self.value = context.run(function, *args)
        except BaseException as error:  # raised where the call is waited for
            self.error = error
        finally:
            done.release()
