"""What is called instead of a decorated function: it goes to the plain function, or is traced.

Knows: that sites say which way calls go. Must not know: how calls are traced, which way pays.
Receives functions and their states; returns what users call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from types import FunctionType
from typing import Any

from jitla.bypass import Link, Shortcut, dispatching
from jitla.config import PROCESS, local
from jitla.gate import GATE
from jitla.recursion import DEEP, LEVELS, OPEN, is_deep
from jitla.state import State

__all__ = ["called_instead"]


def called_instead(function: Any, state: State) -> Callable[..., Any]:
    """Return the function that users call instead of `function`."""
    if inspect.isgeneratorfunction(function):
        return _generator(function, state)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, state)
    link = Link(state, called)
    if type(function) is FunctionType:
        wrapper, state.entrance = dispatching(function, state.shortcut, link)
        return wrapper

    def caller(*args: Any, **kwargs: Any) -> Any:
        try:
            return called(link, args, kwargs)
        except BaseException as error:
            error.__traceback__ = state.traceback(error)
            raise

    return caller


def called(link: Link, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do a call of a decorated function."""
    LEVELS.nested += 1
    deep = None
    try:
        state = link.state()
        function, shortcut, tracing = state.function, state.shortcut, state.tracing
        if LEVELS.nested > DEEP and is_deep(called.__code__) and _has_body(state):
            code, wrapper = state.plain_body().__code__, state.wrapper()
            OPEN.append(state)
            deep = wrapper
            deep.__code__ = code
        if tracing is None:
            early = state.early(args, kwargs)
            if early is not None:
                kind = early.of(args, kwargs)
                if kind.bypassed:
                    return _left(function, shortcut, state, None, kind, args, kwargs)
            elif (looping := state.before_tracing()) is not None:
                return looping.call(args, kwargs)
            state.insist(args, kwargs)
            tracing = state.start()
        session = tracing.LOCAL.session
        site = kind = None
        if session is None:
            if state.traceable:
                try:  # `state.site()`, without a step
                    site = state.sites[(local() or PROCESS[0]).epoch]
                except KeyError:  # under these options no call has been looked at
                    state.insist(args, kwargs)
                    site = state.site()
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
        twin = state.twin and tracing.TWINS.of(function)  # its globals may have changed
        if twin is None:
            return function(*args, **kwargs)
        if kind is not None:
            return kind.weigh(site, function, twin, args, kwargs)
        if session is None or not tracing.TWINS.runs_in(sys._getframe(1)):
            site = site or state.site()
            if site is None:
                return function(*args, **kwargs)
            return _run(tracing, site, function, twin, args, kwargs)
        if state.looping is not None and session.site.payoff is not None and not state.looping.traced:
            return session.outside(state.looping.call, (args, kwargs), {})
        # Called by traced code: the caller's session goes on through the body.
        return twin(*map(session.argument, args),
                    **{k: session.argument(v) for k, v in kwargs.items()})
    finally:
        LEVELS.nested -= 1
        if deep is not None:
            deep.__code__ = shortcut.code
            OPEN.remove(state)


def _has_body(state: State) -> bool:
    """Say whether what users call may have the code of the plain function in a recursion."""
    wrapper: Any = state.wrapper()
    function: Any = state.function
    return wrapper is not None and wrapper.__closure__ is function.__closure__ \
        and wrapper.__defaults__ is function.__defaults__ \
        and wrapper.__kwdefaults__ is function.__kwdefaults__


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
    except RecursionError:
        kind.short = None  # the next call tries it again, where there may be more room
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


def _generator(function: Any, state: State) -> Callable[..., Any]:
    def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        tracing = state.tracing or state.start()
        twin = state.twin and tracing.TWINS.of(function)
        site = state.site() if twin else None
        if site is None:
            if not twin:
                state.refuse()
            return (yield from function(*args, **kwargs))
        return (yield from tracing.drive(site, twin, args, kwargs))

    return generator


def _coroutine(function: Any, state: State) -> Callable[..., Any]:
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        tracing = state.tracing or state.start()
        twin = state.twin and tracing.TWINS.of(function)
        site = state.site() if twin else None
        if site is None:
            if not twin:
                state.refuse()
            return await function(*args, **kwargs)
        return await _Driven(tracing.drive(site, twin, args, kwargs))

    return coroutine


class _Driven(Awaitable[Any]):
    """Makes the steps of a driven coroutine awaitable."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def __await__(self) -> Any:
        return self._steps
