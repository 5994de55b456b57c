"""The public interface, and the one place where all rooms meet.

Knows: every room by its front door; loads the heavy ones on first need. Must not know: how any of
them works. Receives functions from users; returns decorated functions, statistics, explanations.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from functools import update_wrapper
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar, overload
from weakref import WeakSet

from jitla.account import fallbacks_of, function_record, stats_of
from jitla.config import Config, current
from jitla.errors import TraceError
from jitla.events import Recorder
from jitla.explain import Explanation, coverage_table
from jitla.tracing import LOCAL, TWINS, Request, Site, drive, run, twin_of

F = TypeVar("F", bound=Callable[..., Any])


class _Gate:
    """Loads the heavy rooms on first need and keeps one compiler per configuration."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.recorder = Recorder(current().events)
        self._compilers: dict[tuple[str, int], Any] = {}
        self._backend: Any = None

    def compiler(self, config: Config) -> Any:
        """Return the compiler for `config`."""
        key = (config.numerics, config.threads)
        found = self._compilers.get(key)
        if found is None:
            with self.lock:
                found = self._compilers.get(key) or self._make(config)
                self._compilers[key] = found
        return found

    def _make(self, config: Config) -> Any:
        codegen = import_module("jitla.codegen")
        recompile = import_module("jitla.recompile")
        if self._backend is None:
            self._backend = codegen.LlvmBackend()
        self.apply_threads(config)
        return recompile.Compiler(
            self._backend, numerics=config.numerics, threads=config.threads,
            observe=self.recorder.record)

    def apply_threads(self, config: Config) -> None:
        """Let kernels run on the number of threads that `config` asks for."""
        import_module("jitla.runtime").set_threads(config.threads or None)


_GATE = _Gate()
_STATES: WeakSet[_State] = WeakSet()


class _State:
    """What belongs to one decorated function: its sites, one per configuration."""

    def __init__(self, function: Callable[..., Any], changes: dict[str, Any]) -> None:
        self.function = function
        self.changes = changes
        self.sites: dict[int, Site] = {}
        self.plain = False
        self._twin: Callable[..., Any] | None = None

    @property
    def twin(self) -> Callable[..., Any]:
        """The instrumented function; the function itself where it cannot be instrumented."""
        found = self._twin
        if found is None:
            made = twin_of(self.function) if type(self.function) is FunctionType else None
            if made is None:
                self.plain = True
            found = self._twin = made or self.function
        return found

    def site(self) -> Site:
        """Return the site for the configuration in force."""
        config = current()
        found = self.sites.get(config.epoch)
        if found is None:
            found = self._new_site(config)
        return found

    def _new_site(self, config: Config) -> Site:
        own = config.with_changes(self.changes)

        def compile_block(key: tuple, sizes: tuple[int, ...], layouts: Any,
                          make: Callable[[], Request]) -> Any:
            return _bind(_GATE.compiler(own), key, sizes, layouts, make)

        name = getattr(self.function, "__qualname__", repr(self.function))
        site = Site(name, compile_block, own.strict)
        return self.sites.setdefault(config.epoch, site)


def _bind(compiler: Any, key: tuple, sizes: tuple[int, ...], layouts: Any,
          make: Callable[[], Request]) -> Any:
    """Return the bound program of a block, building the program of its class if it is new."""
    def recipe() -> tuple:
        request = make()
        return request.roots, request.layouts, request.outs, request.aliases

    program = compiler.program(key, recipe)
    if program.sizes is None:
        program.sizes = sizes
    layout = import_module("jitla.fusion").Layout
    places = {slot: layout(*place) for slot, place in layouts.items()}
    return program.bind(dict(zip(program.sizes, sizes, strict=True)), places)


@overload
def jit(function: F, /) -> F: ...
@overload
def jit(function: None = None, /, *, numerics: str | None = None,
        strict: bool | None = None) -> Callable[[F], F]: ...


def jit(function: Any = None, /, *, numerics: str | None = None, strict: bool | None = None) -> Any:
    """Run a NumPy function lazily, fused and compiled.

    Parameters
    ----------
    function : callable
        A function, method, generator function, or coroutine function; its body stays as it is.
        Without it, a decorator with the given options is returned.
    numerics : {"strict", "numpy", "relaxed"}, optional
        Which differences to NumPy's bits are allowed; the option in force if not given.
    strict : bool, optional
        Raise `UnsupportedFunction` where an operation would be handed to NumPy.

    Returns
    -------
    callable
        The decorated function, with `stats()`, `cache_clear()` and ``__wrapped__``. With
        ``JITLA_DISABLE=1`` it is `function` itself.

    Raises
    ------
    TraceError
        If `function` is not callable.
    ConfigError
        If an option has no such value.
    """
    given = {"numerics": numerics, "strict": strict}
    changes = {name: value for name, value in given.items() if value is not None}
    current().with_changes(changes)
    if function is None:
        return lambda f: _decorated(f, changes)
    return _decorated(function, changes)


def _decorated(function: Any, changes: dict[str, Any]) -> Any:
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(_decorated(function.__func__, changes))
    if not callable(function):
        raise TraceError(f"jit needs a function, not {function!r}; use it as a decorator")
    if current().disable or hasattr(function, "__jitla_state__"):
        return function
    state = _State(function, changes)
    return _finish(_wrapper(function, state), function, state)


def _wrapper(function: Any, state: _State) -> Callable[..., Any]:
    """Return the function that users call instead of `function`."""
    if inspect.isgeneratorfunction(function):
        def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
            twin = state.twin
            if state.plain:
                return (yield from function(*args, **kwargs))
            return (yield from drive(state.site(), twin, args, kwargs))

        return generator
    if inspect.iscoroutinefunction(function):
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            twin = state.twin
            if state.plain:
                return await function(*args, **kwargs)
            return await _Driven(drive(state.site(), twin, args, kwargs))

        return coroutine

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        twin = state.twin
        session = LOCAL.session
        if session is not None:
            # Called by traced code: the caller's session goes on through the body.
            arguments = [session.argument(a) for a in args]
            return twin(*arguments, **{k: session.argument(v) for k, v in kwargs.items()})
        if state.plain:
            return function(*args, **kwargs)
        return run(state.site(), twin, args, kwargs)

    return wrapper


class _Driven:
    """Makes a driven coroutine awaitable."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def __await__(self) -> Any:
        return self._steps


def _finish(wrapper: Any, function: Any, state: _State) -> Any:
    update_wrapper(wrapper, function)
    wrapper.__jitla_state__ = state
    wrapper.stats = lambda: stats_of(tuple(state.sites.values()))
    _STATES.add(state)
    wrapper.cache_clear = lambda: _clear(state)
    if type(wrapper) is FunctionType and not inspect.isgeneratorfunction(function) \
            and not inspect.iscoroutinefunction(function):
        TWINS[wrapper] = wrapper
    return wrapper


def _clear(state: _State) -> None:
    for site in state.sites.values():
        site.clear()


def explain(function: Any, /, *args: Any, level: str = "all", **kwargs: Any) -> Explanation:
    """Say what jitla made of a decorated function.

    Parameters
    ----------
    function : callable
        A decorated function; a plain one is decorated first.
    *args, **kwargs
        If given, the function is called with them before.
    level : {"hops", "rewrites", "plan", "all"}
        How much is shown.

    Returns
    -------
    Explanation
        ``str()`` of it is the text.

    Raises
    ------
    ConfigError
        If there is no such level.
    """
    decorated = function if hasattr(function, "__jitla_state__") else jit(function)
    if args or kwargs:
        decorated(*args, **kwargs)
    state = getattr(decorated, "__jitla_state__", None) or _State(function, {})
    return Explanation(function_record(state.function, tuple(state.sites.values())), level)


def coverage() -> str:
    """Return a table of what the decorated functions handed to NumPy: where, how often, how long."""
    sites = [site for state in list(_STATES) for site in list(state.sites.values())]
    return coverage_table(fallbacks_of(sites))


__all__ = ["coverage", "explain", "jit"]
