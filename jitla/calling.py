"""What is called instead of a decorated function: it goes to the plain function, or is traced.

Knows: that sites say which way calls go. Must not know: how calls are traced, which way pays.
Receives functions and their states; returns what users call.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator
from types import FunctionType
from typing import Any

# Code of `Shortcut` reads `ndarray` and `kind_of_argument` here.
from numpy import ndarray as ndarray

from jitla.bypass import Shortcut
from jitla.cold import kind_of_argument as kind_of_argument
from jitla.config import PROCESS, current, local
from jitla.frame_readers import stays_plain
from jitla.gate import GATE
from jitla.internal import hide_module
from jitla.parameters import has_parameters, with_parameters
from jitla.state import State

__all__ = ["called_instead"]


def called_instead(function: Any, state: State) -> Callable[..., Any]:
    """Return the function that users call instead of `function`."""
    if type(function) is FunctionType and not state.changes.get("strict", current().strict):
        state.bare = stays_plain(function)
        if state.bare:
            return _copied(function)
    shortcut = state.shortcut = Shortcut(function)
    if has_parameters(function):
        return with_parameters(function, __file__, globals(), shortcut, state)

    # As many cells as the code has that `Shortcut` gives it, and in the same order.
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return called(function, shortcut, state, args, kwargs)
        except BaseException as error:
            error.__traceback__ = state.traceback(error)
            raise

    return wrapper


def _copied(function: FunctionType) -> FunctionType:
    """Return a function that does what `function` does, with no frame more than that takes."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def called(
    function: Callable[..., Any], shortcut: Shortcut, state: State, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Do a call of a decorated function."""
    tracing = state.tracing
    if tracing is None:
        early = state.early(args, kwargs)
        if early is not None:
            kind = state.kind_of(early, args, kwargs)
            if kind is None:
                return function(*args, **kwargs)
            if kind.bypassed:
                return _left(function, shortcut, state, None, kind, args, kwargs)
        elif (looping := state.before_tracing()) is not None:
            return looping.call(args, kwargs)
        tracing = state.begin(args, kwargs)
        if tracing is None:
            return function(*args, **kwargs)
    session = tracing.LOCAL.session
    site = kind = None
    if session is None:
        if state.traceable:
            try:  # `state.site()`, without a step
                site = state.sites[(local() or PROCESS[0]).epoch]
            except KeyError:  # under these options no call has been looked at
                site = state.first_site(args, kwargs)
        if site is None:
            if not state.traceable:
                state.refuse()
            return function(*args, **kwargs)
        if site.looping is not None and not site.looping.traced:
            return tracing.looped(site, args, kwargs)
        if site.payoff is not None:
            kind = site.payoff.of(args, kwargs)
            if kind.bypassed:
                return _left(function, shortcut, state, site, kind, args, kwargs)
    elif session.running is not None:
        # Called by a signal handler or finalizer: compiler and caches may be in the middle of a change.
        return function(*args, **kwargs)
    # The globals it was made for may have changed since the last call.
    twin = state.twin and tracing.TWINS.of(function)
    if twin is None:
        return function(*args, **kwargs)
    if kind is not None:
        return kind.weigh(site, function, twin, args, kwargs)
    if session is None or not tracing.TWINS.runs_in(sys._getframe(1)):
        site = site or state.first_site()
        if site is None:
            return function(*args, **kwargs)
        return _run(tracing, site, function, twin, args, kwargs)
    if state.looping is not None and session.site.payoff is not None and not state.looping.traced:
        return session.outside(state.looping.call, (args, kwargs), {})
    # Called by traced code: the caller's session goes on through the body.
    return twin(*map(session.argument, args),
                **{k: session.argument(v) for k, v in kwargs.items()})


def _left(
    function: Callable[..., Any], shortcut: Shortcut, state: State, site: Any, kind: Any,
    args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:
    """Leave a call to the plain function, and the next of its kind to what tests for them."""
    try:
        return kind.bypass(site, function, args, kwargs)
    finally:
        if kind.skip and (kind.short is not shortcut.tables or not shortcut.holds()):
            _shorten(function, shortcut, state, kind, args, kwargs)


def _shorten(
    function: Callable[..., Any], shortcut: Shortcut, state: State, kind: Any, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    wrapper = state.wrapper()
    try:
        if wrapper is not None:
            shortcut.admit(wrapper, kind, args, kwargs)
    except Exception as error:  # the call was done: others take longer, that is all
        GATE.room("events").log.warning("%r cannot be given shorter code: %r", function, error)


def _run(
    tracing: Any, site: Any, function: Callable[..., Any], twin: Callable[..., Any], args: Any, kwargs: Any,
) -> Any:
    """Trace a call; where it is to be verified, run the plain function, too."""
    if site.checks is None:
        return tracing.run(site, twin, args, kwargs)
    return GATE.room("verify").checked_call(
        site.checks, site.name, function, lambda *a, **k: tracing.run(site, twin, a, k), args, kwargs)


def generated(
    function: Callable[..., Any], state: State, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Generator[Any, Any, Any]:
    """Return the generator of a decorated function."""
    tracing = state.tracing or state.begin()
    twin = state.twin and tracing.TWINS.of(function)
    site = state.first_site() if twin else None
    if site is None:
        if tracing is not None and not twin:
            state.refuse()
        made: Generator[Any, Any, Any] = function(*args, **kwargs)
        return made
    driven: Generator[Any, Any, Any] = tracing.drive(site, twin, args, kwargs)
    return driven


def awaited(
    function: Callable[..., Any], state: State, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Awaitable[Any]:
    """Return what a decorated coroutine function waits for."""
    tracing = state.tracing or state.begin()
    twin = state.twin and tracing.TWINS.of(function)
    site = state.first_site() if twin else None
    if site is None:
        if tracing is not None and not twin:
            state.refuse()
        made: Awaitable[Any] = function(*args, **kwargs)
        return made
    return _Driven(tracing.drive(site, twin, args, kwargs))


class _Driven(Awaitable[Any]):
    """Makes the steps of a driven coroutine awaitable."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def __await__(self) -> Any:
        return self._steps


hide_module(__name__)
