"""NumPy called as if from the user's own line, so that what it warns of is reported there.

Knows: how Python and NumPy find the file, line and module of a warning. Must not know: tapes, proxies.
Receives functions and places; returns what the functions return.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from jitla.tracing.frames import INTERNAL, mark, user_frame

_getframe = sys._getframe
_CALL = compile("lambda f, a, k: f(*a, **k)", "<place>", "eval").co_consts[0]
_codes: dict[tuple[str, int], CodeType] = {}


class Place(NamedTuple):
    """A line of a module, by the namespace that its warnings are counted in."""

    file: str
    line: int
    names: dict[str, Any]


def here() -> Place:
    """Return the line of the innermost user frame."""
    return place_of(user_frame())


def place_of(frame: FrameType) -> Place:
    """Return the line `frame` is at."""
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def place_at(line: tuple[str, int] | None) -> Place:
    """Return the place of a (file, line); where that is not known, the line of the user's frame."""
    found: FrameType | None = user_frame()
    if line is None:
        return here()
    while found is not None:
        if found.f_code.co_filename == line[0]:
            return Place(*line, found.f_globals)
        found = found.f_back
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == line[0]:
            return Place(*line, vars(module))
    return Place(*line, {"__name__": line[0]})


def call_at(place: Place, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call `function` from a frame that stands at `place`."""
    file, line, names = place
    code = _codes.get((file, line))
    if code is None:
        code = _codes[file, line] = _CALL.replace(co_filename=file, co_firstlineno=line)
        mark(code, INTERNAL)
    return FunctionType(code, names)(function, args, kwargs)


def call_here(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` as if from the user's line."""
    return call_at(here(), function, args, kwargs)
