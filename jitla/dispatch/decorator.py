"""The function that replaces a decorated one: each call runs plain, traced, or with compiled loops."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Generator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from jitla import dispatch, packages
from jitla.config import PROCESS_CONFIG, current, local_config
from jitla.dispatch.function_state import FunctionState
from jitla.dispatch.wrapper_code import (
    FastPath,
    Link,
    function_with_code,
    wrapper_code,
)
from jitla.introspection import (
    BRIDGE_FILES,
    DEEP_NESTING,
    NESTING,
    SUSPENDED_STATES,
    frame_sensitivity_of,
    hide_module,
    is_deep_recursion,
)
from jitla.tiering.call_classes import RUNNING_SESSIONS

if TYPE_CHECKING:
    from jitla.tracing import Site

__all__ = ["make_wrapper"]


def make_wrapper(function: Any, state: FunctionState) -> Callable[..., Any]:
    """Return the wrapper of `function` that users call."""
    does: Callable[..., Any] = called
    if type(function) is FunctionType:
        if not state.changes.get("strict", current().strict):
            state.plain_reason = frame_sensitivity_of(function)
            if state.plain_reason:  # no frame more than the plain function takes
                return function_with_code(function, function.__code__)
        flags = function.__code__.co_flags
        if flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            does = dispatch_generator if flags & inspect.CO_GENERATOR else dispatch_coroutine
    code = state.fast_path.code = wrapper_code(function, Link(state, does))
    return function_with_code(function, code)


def called(link: Link, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Dispatch a call of a decorated function."""
    NESTING.nested += 1
    deep = None
    try:
        state = link.state()
        function, fast_path = state.function, state.fast_path
        if NESTING.nested > DEEP_NESTING and is_deep_recursion(called.__code__) \
                and (body := _plain_code(state)) is not None:
            SUSPENDED_STATES.append(state)
            deep = state.wrapper()
            deep.__code__ = body
        session = packages.tracing.LOCAL.session if RUNNING_SESSIONS else None
        if session is not None and session.ended:  # its call goes on untraced
            session = None
        site = kind = None
        if session is None:
            classes = state.classes()
            if classes is not None:
                kind = state.class_of(classes, args, kwargs)
                if kind is None or kind.bypassed:
                    return _call_plain(fast_path, state, kind, args, kwargs)
        if not state.is_tracing_loaded and not state.try_load_tracing(args, kwargs):
            return function(*args, **kwargs)
        tracing = packages.tracing
        if session is None:
            if state.traceable:
                try:  # `state.site()`, without a step
                    site = state.sites[(local_config() or PROCESS_CONFIG[0]).epoch]
                except KeyError:  # the first call under these options
                    site = state.first_site(args, kwargs)
            if site is None:
                if not state.traceable:
                    state.raise_untraceable()
                return function(*args, **kwargs)
            if kind is None and site.loop_function is not None and not site.loop_function.traced:
                return tracing.run_loops(site, args, kwargs)
        elif session.tape.running is not None:  # a signal handler or finalizer calls, while caches may change
            return function(*args, **kwargs)
        # Its globals may have changed.
        instrumented = state.instrumented and tracing.INSTRUMENTED.get(function)
        if instrumented is None:
            if session is None:
                return function(*args, **kwargs)
            return session.boundary.call_opaque(function, args, kwargs)
        if kind is not None:
            return kind.weigh(site, function, instrumented, args, kwargs)
        if session is None or not tracing.INSTRUMENTED.runs_in(sys._getframe(1)):
            site = site or state.first_site()
            if site is None:
                return function(*args, **kwargs)
            return _run_traced(site, function, instrumented, args, kwargs)
        loops = state.loop_function
        if loops is not None and session.site.call_classes is not None and not loops.traced:
            return session.boundary.call_opaque(loops.call, (args, kwargs), {})
        # Called by traced code: the caller's session goes on through the body.
        argument = session.boundary.argument
        return instrumented(*map(argument, args), **{k: argument(v) for k, v in kwargs.items()})
    finally:
        NESTING.nested -= 1
        if deep is not None:
            deep.__code__ = fast_path.code
            SUSPENDED_STATES.remove(state)


def _plain_code(state: FunctionState) -> Any:
    """Return the plain function's code if the wrapper can run it in a deep recursion, else None."""
    wrapper: Any = state.wrapper()
    function: Any = state.function
    if wrapper is None or type(function) is not FunctionType \
            or wrapper.__closure__ is not function.__closure__ \
            or wrapper.__defaults__ is not function.__defaults__ \
            or wrapper.__kwdefaults__ is not function.__kwdefaults__:
        return None
    return state.plain_body().__code__


def _call_plain(
    fast_path: FastPath, state: FunctionState, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> Any:
    """Run a call plain, and let the fast path run the next ones at once if that was granted."""
    if kind is None:
        return state.function(*args, **kwargs)
    function, is_plain = state.plain_call(kind.profile)
    site = state.sites.get((local_config() or PROCESS_CONFIG[0]).epoch)
    try:
        return kind.bypass(site, function, args, kwargs, is_plain)
    finally:
        if kind.skip:
            fast_path.admit(kind, function)


def _run_traced(
    site: Site, function: Callable[..., Any], instrumented: Callable[..., Any], args: Any, kwargs: Any,
) -> Any:
    """Trace a call; with ``verify=True``, run the plain function, too, and compare."""
    if site.checks is None:
        return packages.tracing.run_traced(site, instrumented, args, kwargs)
    return dispatch.verify_mode.checked_call(
        site.checks, site.name, function,
        lambda *a, **k: packages.tracing.run_traced(site, instrumented, a, k), args, kwargs)


def dispatch_generator(link: Link, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Generator[Any, Any, Any]:
    """Return the generator of a call of a decorated generator function."""
    made: Generator[Any, Any, Any] = _suspendable_steps(link.state(), args, kwargs)
    return made


def dispatch_coroutine(link: Link, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
    """Return the awaitable of a call of a decorated coroutine function."""
    made = _suspendable_steps(link.state(), args, kwargs)
    return made if isinstance(made, Awaitable) else _AwaitableSteps(made)


def _suspendable_steps(state: FunctionState, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a generator of the steps of a suspendable call, or the plain function's coroutine."""
    times = state.step_times(args, kwargs)
    if times is not None and not times.is_next_traced(state.has_waiting_blocks):
        made = state.function(*args, **kwargs)
        # Within a traced call: it may be dropped there.
        return times.run_plain(made, _close_plain) if times.is_timed() or RUNNING_SESSIONS else made
    site, instrumented = _suspendable_site(state)
    if site is None:
        return state.function(*args, **kwargs)
    timed = times if times and times.is_timed() else None
    return packages.tracing.run_generator(site, instrumented, args, kwargs, timed)


def _close_plain(steps: Any) -> None:
    """Close a generator of the plain function, which traced code may do by dropping it.

    Its code may read memory in which the session has not stored its values yet.
    """
    session = packages.tracing.LOCAL.session if RUNNING_SESSIONS else None
    if session is None or session.tape.running is not None:
        steps.close()
    else:
        session.boundary.call_opaque(steps.close, (), {})


def _suspendable_site(state: FunctionState) -> tuple[Site | None, Any]:
    """Return the site and the instrumented function for a suspendable call; (None, ...) to run it plain."""
    is_loaded = state.is_tracing_loaded or state.try_load_tracing()
    function: Any = state.function
    instrumented = state.instrumented and packages.tracing.INSTRUMENTED.get(function)
    site = state.first_site() if instrumented else None
    if site is None and is_loaded and not instrumented:
        state.raise_untraceable()
    return site, instrumented


class _AwaitableSteps(Awaitable[Any]):
    """Makes the steps of a driven coroutine awaitable."""

    def __init__(self, steps: Any) -> None:
        self._suspendable_steps = steps

    def __await__(self) -> Any:
        return self._suspendable_steps


hide_module(__name__)
BRIDGE_FILES.add(__file__)
