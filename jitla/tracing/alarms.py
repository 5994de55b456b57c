"""What becomes of floating-point flags now: NumPy's error state and Python's warning filters.

Knows: both, as they are in this thread. Must not know: tapes, proxies, kernels.
Receives flags, or warnings that might be given; tells whether anybody would notice.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from jitla.hops import DIVIDE, INVALID, OVERFLOW, error_state
from jitla.tracing.places import Place

_STATES = {"divide": DIVIDE, "over": OVERFLOW, "invalid": INVALID}
_TEXTS = {DIVIDE: "divide by zero", OVERFLOW: "overflow", INVALID: "invalid value"}


class _Calm:
    """The state that was last found to be calm; its parts are kept, so that their ids stay theirs."""

    __slots__ = ("state", "filters", "count", "first")

    def __init__(self) -> None:
        self.state: Any = None
        self.filters: Any = None
        self.count = 0
        self.first: Any = None


_CALM = _Calm()


def calm() -> bool:
    """Say whether flags lead to warnings at most, never to exceptions or calls of the user's code.

    Then values may be computed later than their line says. It must be asked again after any code that
    is not the tracer's has run.
    """
    filters, known = warnings.filters, _CALM
    if error_state() is known.state and filters is known.filters and len(filters) == known.count \
            and (not filters or filters[0] is known.first):
        return True
    return _look()


def _look() -> bool:
    global _CALM
    state, filters = error_state(), warnings.filters
    asked = np.geterr()
    if asked["under"] != "ignore" or any(asked[k] not in ("ignore", "warn") for k in _STATES):
        return False
    if "warn" in asked.values() and _raises(filters):
        return False
    found = _Calm()
    found.state, found.filters, found.count = state, filters, len(filters)
    found.first = filters[0] if filters else None
    _CALM = found
    return True


def _raises(filters: Any) -> bool:
    """Say whether some filter turns a RuntimeWarning of some text into an exception."""
    for action, message, category, module, line in filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if message is None and module is None and line == 0:
                return False
    return str(warnings.defaultaction) == "error"  # type: ignore[attr-defined]


# An error state, kept so that its id stays its own, and the flags that it lets NumPy speak of.
_heeded: tuple[Any, int] = (None, 0)


def audible(flags: int) -> int:
    """Return those of `flags` that NumPy says something about."""
    global _heeded
    state, heeded = _heeded
    if error_state() is not state:
        state, asked = error_state(), np.geterr()
        heeded = sum(bit for kind, bit in _STATES.items() if asked[kind] != "ignore")
        _heeded = state, heeded
    return flags & heeded


def texts(flags: int, name: str) -> list[str]:
    """Return NumPy's warnings of `flags` in the operation it calls `name`, in its order."""
    return [f"{text} encountered in {name}" for bit, text in _TEXTS.items() if flags & bit]


class _Unhashable(str):
    """A text that Python cannot look up: a warning of it is never shown by a filter that counts."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


def is_shown(text: str, place: Place) -> bool:
    """Say whether a RuntimeWarning of `text` at `place` would be noticed now."""
    action = _action(text, place)
    if action not in ("default", "module", "once"):
        return action != "ignore"
    registry = place.names.get("__warningregistry__")
    if not registry:
        return True
    try:
        # What was shown before the filters changed counts no more: Python sees to that first.
        warnings.warn_explicit(_Unhashable(text), RuntimeWarning, place.file, place.line,
                               place.names.get("__name__") or "<string>", registry)
    except TypeError:
        pass
    # For "once" and "module" Python counts under a key without a line, too.
    key = (text, RuntimeWarning)
    return not registry.get((*key, place.line)) and (action == "default" or not registry.get(key))


def _action(text: str, place: Place) -> str:
    module = str(place.names.get("__name__") or "<string>")
    for action, message, category, pattern, line in warnings.filters:
        if (issubclass(RuntimeWarning, category) and line in (0, place.line)
                and (message is None or message.match(text))
                and (pattern is None or pattern.match(module))):
            return str(action)
    return str(warnings.defaultaction)  # type: ignore[attr-defined]


def warn(text: str, place: Place) -> None:
    """Warn as NumPy does from code at `place`."""
    registry = place.names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, RuntimeWarning, place.file, place.line,
                           place.names.get("__name__") or "<string>", registry)
