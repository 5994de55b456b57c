"""Stack frames of users, tracebacks without jitla, calls made from users' lines; threads and their state.

Each code object has a kind: user code, jitla's own, jitla's where a session begins, or jitla's that calls
user code within the session (bridge). `path` identifies the point in user code where a block ends.
"""

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

from jitla.introspection import BRIDGE_FILES, INTERNAL_MARK, hide_frames, hide_module
from jitla.process.resources import has_shallow_stack

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = __file__[: -len("tracing/frames.py")]
_getframe = sys._getframe
# Kinds of frames: user code, jitla's, jitla's where a session begins, jitla's that call user code within
# the session. User code that is called by an internal frame has interrupted it.
USER, INTERNAL, ROOT, BRIDGE = 0, 1, 2, 3
# Prefixes of conditional instructions, except those of loops.
_BRANCHES = ("POP_JUMP", "JUMP_IF", "MATCH_", "CHECK_EXC")
_BRANCH_FREE: dict[int, bool] = {}
_OPERATORS = ("BINARY_", "INPLACE_", "COMPARE_", "UNARY_")
# NumPy's protocol methods, and the local variable of each that refers to the callable.
_PROTOCOLS = {"__array_function__": "func", "__array_ufunc__": "ufunc"}
# Tables by id, since hashing a code object is slow. Entries are removed with the code object, as ids are
# reused.
_KINDS: dict[int, int] = {}
_CODES: dict[int, ref[CodeType]] = {}
_BYTES: dict[int, bytes] = {}
# Offsets of the first instructions of lines, and the line numbers.
_LINES: dict[int, tuple[list[int], list[int | None]]] = {}


class ThreadState(threading.local):
    """The state of the current thread."""

    #: The session of the innermost traced call; None outside of traced code.
    session: Any = None
    #: Whether a plain call is running that is timed.
    timing: bool = False

    def __init__(self) -> None:
        #: Whether the thread's stack is too small for tracing.
        self.shallow = has_shallow_stack()


LOCAL = ThreadState()


def mark(code: CodeType, kind: int) -> int:
    """Set the kind of the frames of `code`, for the life of the code object; return it."""
    key = id(code)
    if key not in _CODES:
        _CODES[key] = ref(code, lambda _: _forget(key))
    _KINDS[key] = kind
    return kind


def hide_function(function: FunctionType) -> None:
    """Hide the frames of a function of jitla from code that counts frames; their kind stays the same."""
    code = function.__code__
    kind = _KINDS.get(id(code))
    hide_frames(function)
    if kind is not None:
        mark(function.__code__, kind)


def _forget(key: int) -> None:
    for table in (_CODES, _KINDS, _BRANCH_FREE, _BYTES, _LINES):
        table.pop(key, None)


def codes_of(path: tuple[int, ...]) -> Iterator[CodeType]:
    """Yield the code objects of a path that still exist."""
    for key in path[::2]:
        code = _CODES[key]() if key in _CODES else None
        if code is not None:
            yield code


def frame_kind(code: CodeType) -> int:
    """Return the kind of frames of `code`: jitla's own files are internal unless marked."""
    known = _KINDS.get(id(code))
    if known is not None:
        return known
    file = code.co_filename
    if not file.startswith(_PACKAGE):
        return mark(code, USER)
    return mark(code, BRIDGE if file.removesuffix(INTERNAL_MARK) in BRIDGE_FILES else INTERNAL)


def bridge(function: F) -> F:
    """Mark `function` as one that calls user code within the session; return it."""
    mark(function.__code__, BRIDGE)
    return function


def path() -> tuple[int, ...] | None:
    """Return (id of code, instruction offset) of each user frame of the session, flat, innermost first.

    None: user code has interrupted an operation of the session, as signal handlers and finalizers do. The two
    innermost frames, the caller and its caller, are jitla's own and skipped.
    """
    result: list[int] = []
    frame: FrameType | None = _getframe(3)
    while frame is not None:
        key = id(code := frame.f_code)
        try:
            kind = _KINDS[key]
        except KeyError:
            kind = frame_kind(code)
        if kind == USER:
            result += key, frame.f_lasti
        elif kind == ROOT:
            break
        elif kind == INTERNAL and result:
            return None
        frame = frame.f_back
    return tuple(result)


def user_frames() -> list[FrameType]:
    """Return the user's frames of the running session, innermost first."""
    frames: list[FrameType] = []
    frame: FrameType | None = _getframe(2)
    while frame is not None:
        code = frame.f_code
        kind = frame_kind(code)
        if kind == ROOT:
            break
        # The locals of a class body are its namespace itself, not a copy, and must not be cleared.
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
        if (frame_kind(code) if kind is None else kind) == USER:
            break
        frame = frame.f_back
    return frame


def user_line() -> tuple[str, int]:
    """Return (file, line) of the innermost user frame."""
    frame = user_frame()
    return frame.f_code.co_filename, frame.f_lineno


def line_of(frame: FrameType) -> int:
    """Return the current line of `frame`; `f_lineno` would decode the line table from the start each time."""
    code = frame.f_code
    table = _LINES.get(id(code))
    if table is None:
        mark(code, frame_kind(code))
        spans = list(code.co_lines())
        table = _LINES[id(code)] = [start for start, _, _ in spans], [line for _, _, line in spans]
    starts, lines = table
    line = lines[bisect_right(starts, frame.f_lasti) - 1]
    return frame.f_lineno if line is None else line


def origin() -> tuple[FrameType, Any]:
    """Return the innermost user frame and the NumPy callable it called; None: an operator or method."""
    frame = _getframe(1)
    called = None
    while frame.f_back is not None:
        code = frame.f_code
        kind = _KINDS.get(id(code))
        if (frame_kind(code) if kind is None else kind) == USER:
            break
        if code.co_name in _PROTOCOLS:
            called = frame.f_locals[_PROTOCOLS[code.co_name]]
            method = frame.f_locals.get("method", "__call__")
            called = called if method == "__call__" else getattr(called, method)
        elif code.co_name == "inplace":
            called = None
        frame = frame.f_back
    # Operators of NumPy's scalars call ufuncs.
    operator = type(called) is ufunc and _is_operator(frame.f_code, frame.f_lasti)
    return frame, None if operator else called


def _is_operator(code: CodeType, offset: int) -> bool:
    """Return whether the instruction at `offset` is an operator; caches `co_code`, which is a copy."""
    instructions = _BYTES.get(id(code))
    if instructions is None:
        mark(code, frame_kind(code))
        instructions = _BYTES[id(code)] = code.co_code
    return opname[instructions[offset]].startswith(_OPERATORS)


def is_straight_line() -> bool:
    """Return whether the user frames of the session run code without branches."""
    frame: FrameType | None = _getframe(1)
    while frame is not None:
        code = frame.f_code
        kind = frame_kind(code)
        if kind == ROOT:
            break
        if kind == USER and not _is_branch_free(code):
            return False
        frame = frame.f_back
    return True


def _is_branch_free(code: CodeType) -> bool:
    is_free = _BRANCH_FREE.get(id(code))
    if is_free is None:
        mark(code, USER)
        # Distinct opcodes only: dis takes quadratic time in the number of jumps.
        names = [opname[op] for op in set(code.co_code[::2])]
        is_free = _BRANCH_FREE[id(code)] = not any(name.startswith(_BRANCHES) for name in names)
    return is_free


def user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return `traceback` without the frames of jitla, so that the user's line is innermost."""
    while traceback is not None and frame_kind(traceback.tb_frame.f_code) != USER:
        traceback = traceback.tb_next
    user_entries: list[TracebackType] = []
    end = traceback
    while end is not None and frame_kind(end.tb_frame.f_code) == USER:
        end = end.tb_next
    if end is None:  # all remaining frames are the user's, as after a call of the plain function
        return traceback
    while traceback is not None:
        if frame_kind(traceback.tb_frame.f_code) == USER:
            user_entries.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for entry in reversed(user_entries):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


_CALL = compile("lambda f, a, k: f(*a, **k)", "<place>", "eval").co_consts[0]
_codes: dict[tuple[str, int], CodeType] = {}


class UserLine(NamedTuple):
    """A line of user code, with the globals of its module, where `warnings` keeps its registry.

    `called` is the NumPy callable that the line calls; None: an operator or a method.
    """

    file: str
    line: int
    names: dict[str, Any]
    called: Any = None


class Places(dict[int, UserLine]):
    """The places of the entries of a tape; `straight`: from straight-line code, which has one per tape."""

    __slots__ = ("straight",)

    def __init__(self, straight: bool = False) -> None:
        super().__init__()
        self.straight = straight


def user_place() -> UserLine:
    """Return the place of the innermost user frame, including the NumPy callable that it called."""
    return place_of(*origin())


def place_of(frame: FrameType, called: Any = None) -> UserLine:
    """Return the place of `frame`."""
    fields = frame.f_code.co_filename, line_of(frame), frame.f_globals, called
    return tuple.__new__(UserLine, fields)  # faster than Place(...), once for every operation of a first call


def call_at(place: UserLine, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call `function` from a frame with the file, line and globals of `place`."""
    file, line, names, _ = place
    code = _codes.get((file, line))
    if code is None:
        code = _codes[file, line] = _CALL.replace(co_filename=file, co_firstlineno=line)
        mark(code, INTERNAL)
    return FunctionType(code, names)(function, args, kwargs)


def call_here(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` from a frame with the user's file and line."""
    return call_at(user_place(), function, args, kwargs)


#: Libraries whose threads do not access arrays of users: this one, those of notebooks, and of progress bars.
_HARMLESS_LIBRARIES = frozenset({"jitla", "ipykernel", "IPython", "zmq", "tqdm"})
_DEFAULT_HANDLERS: frozenset[Any] = frozenset({None, Handlers.SIG_DFL, Handlers.SIG_IGN, default_int_handler})
_SIGNALS = tuple(map(int, valid_signals()))


def thread_count() -> int:
    """Return the number of Python threads besides the main one; very cheap."""
    return _count()


def is_alone() -> bool:
    """Return whether only code called by this thread can write into arrays: no threads, no handlers."""
    if sys.gettrace() is not None or sys.getprofile() is not None or _is_debugged():
        return False
    if any(getsignal(number) not in _DEFAULT_HANDLERS for number in _SIGNALS):
        return False
    count, current = _count(), threading.current_thread()
    if not count:
        return True
    others = [t for t in threading.enumerate() if t is not current]
    return len(others) == count and all(map(_is_known_library, others))


def _is_known_library(thread: Thread) -> bool:
    kind = type(thread)
    owner = getattr(thread, "_target", None) if kind is Thread else kind
    return str(getattr(owner, "__module__", "")).partition(".")[0] in _HARMLESS_LIBRARIES


def _is_debugged() -> bool:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


hide_module(__name__, hide_function)
