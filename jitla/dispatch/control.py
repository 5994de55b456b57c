"""What users see and say of recompilation: the table of what was compiled and why, warming up, off and on."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla import dispatch, packages
from jitla.classes import dataclass
from jitla.config import Config, options
from jitla.dispatch.function_state import FunctionState
from jitla.engine import ENGINE
from jitla.errors import ConfigError, TraceError
from jitla.events import (
    CallWatch,
    watch_calls,
)
from jitla.introspection import check_arguments, is_decorated, unwrap_callable

if TYPE_CHECKING:
    from jitla.tracing import Recompilation

__all__ = ["Recompilations", "Spec", "call_traced", "recompilation", "recompilations", "spec", "state_of",
           "wait_for_programs", "warm_up"]

SEED = 1  # of the random numbers in arguments made from specs
MAX_GENERATOR_VALUES = 100  # taken from a generator that is called to be explained
MAX_WAIT_SECONDS = 60.0  # for programs of pending blocks


class Recompilations(tuple[Any, ...]):
    """Records, the oldest first, as a tuple; ``str()`` is a table of them.

    Each has the `guard` that failed (`name`, `where`, `expected`, `seen`), the `tier` ("now", "behind", or
    "none": NumPy ran), the number of `plans` made, of kernels `compiled` and `reused`, `nbytes`, `seconds`,
    when (`at`), and the user's `line`.
    """

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("time", "line", "guard: expected -> seen", "tier", "plans", "compiled", "reused", "ms")]
        rows += [_row(record) for record in self]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join(lines if self else ["nothing was compiled"]) + "\n"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return packages.explanations.rendering.preformatted("recompilations", str(self))


def _row(record: Recompilation) -> tuple[str, ...]:
    when = datetime.fromtimestamp(record.at).strftime("%H:%M:%S.%f")[:-3]
    place = packages.explanations.records.SourceLine(*record.line).place if record.line else ""
    return (when, place, str(record.guard), record.tier, str(record.plans), str(record.compiled),
            str(record.reused), f"{record.seconds * 1e3:.2f}")


def recompilations(function: Any, /) -> Recompilations:
    """Return what was planned and compiled for a decorated function, and which guard had failed.

    Parameters
    ----------
    function : callable
        A decorated function.

    Returns
    -------
    Recompilations
        A tuple of records, the last some hundred; printed, it is a table.
    """
    state = state_of(function)
    return Recompilations(state.recompilation_log.records if state.is_tracing_loaded else ())


@contextmanager
def recompilation(on: bool = True) -> Iterator[Config]:
    """Let plans and kernels be made in the ``with`` block, or not: then NumPy does what has none.

    Parameters
    ----------
    on : bool
        Whether they may be made; the same as ``jitla.options(recompile=on)``.

    Examples
    --------
    >>> import numpy as np
    >>> with jitla.recompilation(False):
    ...     print(jitla.jit(lambda x: x + 1.0)(np.ones(2)))
    [2. 2.]
    """
    with options(recompile=on) as config:
        yield config


@dataclass(frozen=True)
class Spec:
    """An argument as far as plans depend on it; `make` gives one."""

    shape: tuple[int, ...]
    dtype: Any = "float64"
    order: str = "C"
    density: float = 1.0
    kind: Any = field(default=None)

    def make(self) -> Any:
        """Return an argument like this, filled with numbers from 0.5 to 1.5, the same every time."""
        rng = np.random.default_rng(SEED)
        if self.kind is not None:
            entries = max(1, round(self.density * self.shape[0] * self.shape[1]))
            row, column = (rng.integers(0, n, entries) for n in self.shape)
            data = (rng.random(entries) + 0.5).astype(self.dtype)
            return self.kind((data, (row, column)), shape=self.shape)
        values = (rng.random(self.shape) + 0.5).astype(self.dtype)
        if self.density < 1.0:
            values = values * (rng.random(self.shape) < self.density).astype(values.dtype)
        return np.asarray(values, order=self.order)  # type: ignore[call-overload]


def spec(*shape: int, dtype: Any = "float64", order: str = "C", density: float = 1.0,
         kind: Any = None) -> Spec:
    """Describe an array that ``f.compile`` is to make ready for, or ``explain`` to make up.

    Parameters
    ----------
    *shape : int
        The sizes.
    dtype : dtype, optional
        The dtype of its elements.
    order : {"C", "F"}, optional
        How it lies in memory.
    density : float, optional
        The part of the elements that is other than 0.
    kind : type, optional
        A class of SciPy's sparse matrices, such as ``scipy.sparse.csr_matrix``; without, an ndarray.

    Raises
    ------
    ConfigError
        If there can be no such array.

    Examples
    --------
    >>> jitla.spec(1000, 20, dtype="float32").make().shape
    (1000, 20)
    """
    sizes: tuple[Any, ...] = shape
    if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in sizes):
        raise ConfigError(f"spec{shape} is not possible; use sizes, such as spec(1000, 20)")
    if order not in ("C", "F") or not 0.0 <= density <= 1.0:
        raise ConfigError(f"order={order!r}, density={density!r} is not possible; use 'C' or 'F', and 0 to 1")
    if kind is not None and (len(shape) != 2 or not callable(kind)):
        raise ConfigError(f"kind={kind!r} is not possible; use a class of SciPy's for a matrix of two sizes")
    return Spec(shape, np.dtype(dtype), order, density, kind)


def call_traced(
    state: FunctionState, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
) -> CallWatch:
    """Call a decorated function traced, waiting for its programs; return the timings of the call.

    Arguments that are a `Spec` are replaced by arrays.
    """
    args = tuple(a.make() if isinstance(a, Spec) else a for a in args)
    kwargs = {k: v.make() if isinstance(v, Spec) else v for k, v in kwargs.items()}
    check_arguments(state.function, args, kwargs)
    wait_for_programs(state)  # what NumPy runs so far is not what is to be timed
    clocks = packages.explanations.collect.clocks_of(state.all_sites())
    with dispatch.block_compilation.waiting(), watch_calls(clocks) as watch:
        decorated = is_decorated(function) and _runs_body_at_once(state.function)
        if decorated and not state.is_tracing_loaded:
            state.load_tracing()
        instrumented = state.instrumented if decorated else None
        site = state.site() if instrumented is not None else None
        loop_function = state.loop_function if site is not None and site.call_classes is not None else None
        if loop_function is not None and not loop_function.entries:
            loop_function.is_left_to_python()
        with nullcontext() if site is None else site.noting_lines():
            if site is None or instrumented is None or site.call_classes is None:
                _call_and_exhaust(function, args, kwargs)
            elif loop_function is not None and not loop_function.traced:
                with packages.loopjit.loop_compiler.lowering_at_once(loop_function.entries):
                    packages.tracing.run_loops(site, args, kwargs)
            else:
                packages.tracing.run_traced(site, instrumented, args, kwargs)
    return watch


def _call_and_exhaust(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call `function`; take some values of a generator, and close it."""
    result = function(*args, **kwargs)
    if inspect.isgenerator(result):
        for _ in zip(range(MAX_GENERATOR_VALUES), result, strict=False):
            pass
        result.close()


def _runs_body_at_once(function: Any) -> bool:
    """Return whether a call runs the body at once: no generator or coroutine."""
    return not inspect.isgeneratorfunction(function) and not inspect.iscoroutinefunction(function)


def wait_for_programs(state: FunctionState) -> None:
    """Compile the programs of blocks that run in NumPy so far, and wait for them."""
    sites = state.all_sites()
    if any(site.interim_replays for site in sites) and state.may_compile():
        for site in sites:
            site.request_programs()
        ENGINE.background.wait(MAX_WAIT_SECONDS)


def warm_up(state: FunctionState, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Compile what `function` needs for arguments like these, by calling it on copies or made-up arrays."""
    if not state.is_tracing_loaded:
        state.load_tracing()
    site, instrumented = state.site(), state.instrumented
    check_arguments(function, args, kwargs)
    if site is None or instrumented is None:
        return
    with dispatch.block_compilation.waiting():
        for _ in range(2):  # the second may find values that stay the same
            given = tuple([fresh_argument(a) for a in args])
            named = {k: fresh_argument(v) for k, v in kwargs.items()}
            packages.tracing.run_traced(site, instrumented, given, named)


def fresh_argument(value: Any) -> Any:
    """Return an argument for one call that may write into it."""
    return value.make() if isinstance(value, Spec) else deepcopy(value)


def state_of(function: Any) -> FunctionState:
    """Return the state of a decorated function; raise `TraceError` if it is not decorated."""
    state = getattr(unwrap_callable(function)[0], "__jitla_state__", None)
    if not isinstance(state, FunctionState):
        raise TraceError(f"{function!r} is not decorated by jitla.jit")
    return state
