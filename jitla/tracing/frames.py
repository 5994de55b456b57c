"""Frames of users on the stack, their lines, and who else may run at the same time."""

from __future__ import annotations

import sys
import threading
from _signal import default_int_handler, getsignal  # type: ignore[import-not-found]
from _thread import _count
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dis import opname
from inspect import CO_OPTIMIZED
from signal import Handlers, valid_signals
from threading import Thread
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, NamedTuple, TypeVar
from weakref import ref

from numpy import ufunc

from jitla.introspection.frames import (
    BRIDGE_FILES,
    MARK,
    hide,
)

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = __file__[: -len("tracing/frames.py")]
_getframe = sys._getframe
# Frames of users, of jitla, of jitla where a session begins, and of jitla where it calls users' code that
# goes on in the session: where code of users was called by other frames of jitla, it interrupts them.
USER, INTERNAL, ROOT, BRIDGE = 0, 1, 2, 3
# Instructions that may go on in two ways; loops are none of them.
_BRANCHES = ("POP_JUMP", "JUMP_IF", "MATCH_", "CHECK_EXC")
_STRAIGHT: dict[int, bool] = {}
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_", "UNARY_")
# NumPy's protocols, and which of their locals holds the callable.
_PROTOCOLS = {"__array_function__": "func", "__array_ufunc__": "ufunc"}
# By id: hashing a code object is slow. What is known of one goes when it does: its id may get a new owner.
_KINDS: dict[int, int] = {}
_CODES: dict[int, ref[CodeType]] = {}
_BYTES: dict[int, bytes] = {}
# Where the instructions of each line begin, and which line that is.
_LINES: dict[int, tuple[list[int], list[int | None]]] = {}


def mark(code: CodeType, kind: int) -> int:
    """Remember what kind of frame `code` runs in, as long as there is `code`."""
    key = id(code)
    if key not in _CODES:
        _CODES[key] = ref(code, lambda _: _forget(key))
    _KINDS[key] = kind
    return kind


def conceal(function: FunctionType) -> None:
    """Let frames of a function of jitla's not be counted; they stay of the kind that they are."""
    code = function.__code__
    kind = _KINDS.get(id(code))
    hide(function)
    if kind is not None:
        mark(function.__code__, kind)


def _forget(key: int) -> None:
    for table in (_CODES, _KINDS, _STRAIGHT, _BYTES, _LINES):
        table.pop(key, None)


def codes_of(path: tuple[int, ...]) -> Iterator[CodeType]:
    """Yield the code objects that a path names, but for those that are gone."""
    for key in path[::2]:
        code = _CODES[key]() if key in _CODES else None
        if code is not None:
            yield code


def kind_of(code: CodeType) -> int:
    """Return the kind of frames of `code`: jitla's own files are internal unless marked."""
    known = _KINDS.get(id(code))
    if known is not None:
        return known
    file = code.co_filename
    if not file.startswith(_PACKAGE):
        return mark(code, USER)
    return mark(code, BRIDGE if file.removesuffix(MARK) in BRIDGE_FILES else INTERNAL)


def bridge(function: F) -> F:
    """Mark `function` as one that calls code of users which goes on in the session; return it."""
    mark(function.__code__, BRIDGE)
    return function


def path() -> tuple[int, ...] | None:
    """Return where the stack stands: (code, instruction) of each user frame, innermost first.

    None: code of users has interrupted an operation of the session, as signal handlers and finalizers do. The
    function that asks, and who called it, are jitla's own.
    """
    found: list[int] = []
    frame: FrameType | None = _getframe(3)
    while frame is not None:
        key = id(code := frame.f_code)
        try:
            kind = _KINDS[key]
        except KeyError:
            kind = kind_of(code)
        if kind == USER:
            found += key, frame.f_lasti
        elif kind == ROOT:
            break
        elif kind == INTERNAL and found:
            return None
        frame = frame.f_back
    return tuple(found)


def user_frames() -> list[FrameType]:
    """Return the user's frames of the running session, innermost first."""
    frames: list[FrameType] = []
    frame: FrameType | None = _getframe(2)
    while frame is not None:
        code = frame.f_code
        kind = kind_of(code)
        if kind == ROOT:
            break
        # The locals of a class body are its namespace, not a copy: it is left alone.
        if kind == USER and code.co_flags & CO_OPTIMIZED:
            frames.append(frame)
        frame = frame.f_back
    return frames


def user_frame() -> FrameType:
    """Return the innermost user frame."""
    frame = _getframe(1)
    while frame.f_back is not None:
        code = frame.f_code
        kind = _KINDS.get(id(code))
        if (kind_of(code) if kind is None else kind) == USER:
            break
        frame = frame.f_back
    return frame


def user_line() -> tuple[str, int]:
    """Return (file, line) of the innermost user frame."""
    frame = user_frame()
    return frame.f_code.co_filename, frame.f_lineno


def line_of(frame: FrameType) -> int:
    """Return the line `frame` is at; Python itself counts from the first one each time."""
    code = frame.f_code
    known = _LINES.get(id(code))
    if known is None:
        mark(code, kind_of(code))
        spans = list(code.co_lines())
        known = _LINES[id(code)] = [start for start, _, _ in spans], [line for _, _, line in spans]
    starts, lines = known
    line = lines[bisect_right(starts, frame.f_lasti) - 1]
    return frame.f_lineno if line is None else line


def origin() -> tuple[FrameType, Any]:
    """Return the innermost user frame and the NumPy callable it called; None: an operator or method."""
    frame = _getframe(1)
    called = None
    while frame.f_back is not None:
        code = frame.f_code
        kind = _KINDS.get(id(code))
        if (kind_of(code) if kind is None else kind) == USER:
            break
        if code.co_name in _PROTOCOLS:
            called = frame.f_locals[_PROTOCOLS[code.co_name]]
            method = frame.f_locals.get("method", "__call__")
            called = called if method == "__call__" else getattr(called, method)
        elif code.co_name == "inplace":
            called = None
        frame = frame.f_back
    # Scalars of NumPy leave their operators to ufuncs.
    operator = type(called) is ufunc and _is_operator(frame.f_code, frame.f_lasti)
    return frame, None if operator else called


def _is_operator(code: CodeType, at: int) -> bool:
    """Say whether an instruction is an operator; Python makes the bytes anew each time they are read."""
    known = _BYTES.get(id(code))
    if known is None:
        mark(code, kind_of(code))
        known = _BYTES[id(code)] = code.co_code
    return opname[known[at]].startswith(_OPERATORS)


def is_straight() -> bool:
    """Say whether no code of the user's on the stack, the session's call included, has a branch."""
    frame: FrameType | None = _getframe(1)
    while frame is not None:
        code = frame.f_code
        kind = kind_of(code)
        if kind == ROOT:
            break
        if kind == USER and not _has_no_branch(code):
            return False
        frame = frame.f_back
    return True


def _has_no_branch(code: CodeType) -> bool:
    known = _STRAIGHT.get(id(code))
    if known is None:
        mark(code, USER)
        # Of each kind of instruction once: dis takes a time with the square of the jumps to list them.
        names = [opname[op] for op in set(code.co_code[::2])]
        known = _STRAIGHT[id(code)] = not any(name.startswith(_BRANCHES) for name in names)
    return known


def user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return `traceback` without the frames of jitla, so that the user's line is innermost."""
    while traceback is not None and kind_of(traceback.tb_frame.f_code) != USER:
        traceback = traceback.tb_next
    kept: list[TracebackType] = []
    rest = traceback
    while rest is not None and kind_of(rest.tb_frame.f_code) == USER:
        rest = rest.tb_next
    if rest is None:  # as it is where the plain function was called
        return traceback
    while traceback is not None:
        if kind_of(traceback.tb_frame.f_code) == USER:
            kept.append(traceback)
        traceback = traceback.tb_next
    made: TracebackType | None = None
    for entry in reversed(kept):
        made = TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return made


_CALL = compile("lambda f, a, k: f(*a, **k)", "<place>", "eval").co_consts[0]
_codes: dict[tuple[str, int], CodeType] = {}


class Place(NamedTuple):
    """A line of a module, by the namespace that its warnings are counted in, and what it called.

    `called` is the NumPy callable that the line names; None: an operator or a method.
    """

    file: str
    line: int
    names: dict[str, Any]
    called: Any = None


class Places(dict[int, Place]):
    """Where the entries of a tape come from; `straight` if the same tape always comes from there."""

    __slots__ = ("straight",)

    def __init__(self, straight: bool = False) -> None:
        super().__init__()
        self.straight = straight


def here() -> Place:
    """Return the line of the innermost user frame, and the NumPy callable by which it came here."""
    return place_of(*origin())


def place_of(frame: FrameType, called: Any = None) -> Place:
    """Return the line `frame` is at."""
    found = frame.f_code.co_filename, line_of(frame), frame.f_globals, called
    return tuple.__new__(Place, found)  # one is made for every operation of a first call


def call_at(place: Place, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call `function` from a frame that stands at `place`."""
    file, line, names, _ = place
    code = _codes.get((file, line))
    if code is None:
        code = _codes[file, line] = _CALL.replace(co_filename=file, co_firstlineno=line)
        mark(code, INTERNAL)
    return FunctionType(code, names)(function, args, kwargs)


def call_here(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` as if from the user's line."""
    return call_at(here(), function, args, kwargs)


#: Libraries whose own threads have no arrays of users: this one, those of notebooks, and of progress bars.
_HARMLESS = frozenset({"jitla", "ipykernel", "IPython", "zmq", "tqdm"})
_QUIET: frozenset[Any] = frozenset({None, Handlers.SIG_DFL, Handlers.SIG_IGN, default_int_handler})
_SIGNALS = tuple(map(int, valid_signals()))


def threads() -> int:
    """Return how many threads of Python run besides the main one; it takes next to no time."""
    return _count()


def is_alone() -> bool:
    """Say whether no code can write into arrays but what this thread calls."""
    if sys.gettrace() is not None or sys.getprofile() is not None or _is_debugged():
        return False
    if any(getsignal(number) not in _QUIET for number in _SIGNALS):
        return False
    count, mine = _count(), threading.current_thread()
    if not count:
        return True
    others = [t for t in threading.enumerate() if t is not mine]
    return len(others) == count and all(map(_is_harmless, others))


def _is_harmless(thread: Thread) -> bool:
    kind = type(thread)
    owner = getattr(thread, "_target", None) if kind is Thread else kind
    return str(getattr(owner, "__module__", "")).partition(".")[0] in _HARMLESS


def _is_debugged() -> bool:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
