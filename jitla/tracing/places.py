"""NumPy called as if from the user's own line, so that what it warns of is reported there.

Knows: how Python and NumPy find the file, line and module of a warning. Must not know: tapes, proxies.
Receives functions and places; returns what the functions return.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from jitla.tracing.frames import INTERNAL, line_of, mark, origin

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
