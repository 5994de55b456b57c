"""The public interface: decorate, explain, count."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial, update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload
from weakref import ref

import numpy as np

from jitla import dispatch, packages
from jitla.config import current
from jitla.dispatch.control import (
    call_traced,
    recompilation,
    recompilations,
    spec,
    wait_for_programs,
    warm_up,
)
from jitla.dispatch.decorator import make_wrapper
from jitla.dispatch.function_state import FunctionState
from jitla.dispatch.schedule_pins import schedule
from jitla.engine import ENGINE
from jitla.errors import TraceError
from jitla.introspection import is_decorated, reject_coroutine, table_class_name, unwrap_callable

if TYPE_CHECKING:
    from jitla.dispatch.quantization import QuantizedFunction
    from jitla.dispatch.tuning import Tuning
    from jitla.explanations.explanation import Explanation
    from jitla.hops import Machine

ndarray = np.ndarray

F = TypeVar("F", bound="Callable[..., Any] | classmethod[Any, ..., Any]")


_TARGETS = {"cpu": "", "vta": "vta-pynq"}


class Decorator(Protocol):
    """What `jit` returns where it is given options only."""

    def __call__(self, function: F, /) -> F: ...


# Typed as if it returned the function itself: a program that was checked stays as it is.
@overload
def jit(function: F, /, *, numerics: str | None = None, strict: bool | None = None,
        verify: bool | None = None, compile: str | None = None, fusion: str | None = None,
        memory_limit: int | str | None = None, target: str | None = None) -> F: ...
@overload
def jit(function: None = None, /, *, numerics: str | None = None, strict: bool | None = None,
        verify: bool | None = None, compile: str | None = None, fusion: str | None = None,
        memory_limit: int | str | None = None, target: str | None = None) -> Decorator: ...


def jit(function: Any = None, /, *, numerics: str | None = None, strict: bool | None = None,
        verify: bool | None = None, compile: str | None = None, fusion: str | None = None,
        memory_limit: int | str | None = None, target: str | None = None) -> Any:
    """Run a NumPy function lazily, fused and compiled.

    Parameters
    ----------
    function : callable
        A function, method, generator function, or coroutine function; its body stays as it is.
        Without it, a decorator with the given options is returned.
    numerics : {"strict", "numpy", "relaxed"}, optional
        Which differences to NumPy's bits are allowed; the option in force if not given.
    strict : bool, optional
        Raise `UnsupportedError` where an operation would be handed to NumPy.
    verify : bool, optional
        Run every call in NumPy as well, on copies of its arguments, and raise `VerificationError`
        where results, exceptions or arguments differ: for finding faults, not for speed. What a
        call does to anything but its arguments happens twice, warnings too. Of generators and coroutines, and
        where arguments cannot be copied, only the compiled blocks are compared.
    compile : {"auto", "background", "sync", "off"}, optional
        Which calls run compiled code, and from when on. "auto": those for which that takes less time.
        NumPy runs until programs are there: they are compiled behind it once that pays, and before
        they run where NumPy would take far longer, or far more memory. Then calls of a kind (with as many
        elements, but for a factor below two) are timed, some compiled, some in NumPy; none runs twice.
        "background": all, as soon as their programs are there. "sync": all; they wait for the compiler.
        With `strict`, `verify` or `memory_limit` it is that. "off": none, as if the function were not
        decorated.
    fusion : {"cost", "none", "patterns", "all", "no-redundancy"}, optional
        Which operators share a loop: those of the plan with the least predicted time, or by a rule of thumb,
        to compare with: none; those libraries have fused operators for; all that can; all that are read once.
    memory_limit : int or str, optional
        Bytes, or text such as "512MB", that the results and intermediates of one block may take.
        Plans that are predicted to take more are not chosen; where all do, the one that takes least
        is, with a `MemoryLimitWarning`. 0 is no limit.
    target : {"cpu", "vta"} or str, optional
        "vta": parts that are predicted to be faster there run on a simulated accelerator, with the
        results of NumPy; also the name of one, such as "vta-ultra96". "cpu": none do, whatever the option
        `accelerator` says.

    Returns
    -------
    callable
        The decorated function, with the name, signature and documentation of `function`, and with
        ``explain()``, ``stats()``, ``cache_clear()`` and ``__wrapped__``. ``compile(*arguments)`` makes it
        ready for calls with arguments like these, or like what `spec` describes: it is called with copies
        of them, and with arrays made for that. ``recompile = False`` leaves all that is new to NumPy from
        then on.
        Where ``JITLA_DISABLE=1`` it is `function` itself.

    Raises
    ------
    TraceError
        If `function` is not callable, or a class: its methods can be decorated.
    ConfigError
        If an option has no such value.

    Examples
    --------
    >>> import numpy as np
    >>> @jitla.jit
    ... def norm(x):
    ...     return np.sqrt((x * x).sum())
    >>> float(norm(np.array([3.0, 4.0])))
    5.0
    """
    given = {"numerics": numerics, "strict": strict, "verify": verify, "compile": compile,
             "fusion": fusion, "memory_limit": memory_limit,
             "accelerator": None if target is None else _TARGETS.get(target, target)}
    changes = {name: value for name, value in given.items() if value is not None}
    current().with_changes(changes)
    if function is None:
        return lambda f: _decorated(f, changes)
    return _decorated(function, changes)


def _decorated(function: Any, changes: dict[str, Any]) -> Any:
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(_decorated(function.__func__, changes))
    if isinstance(function, MethodType):
        return MethodType(_decorated(function.__func__, changes), function.__self__)
    if isinstance(function, partial):
        return partial(_decorated(function.func, changes), *function.args, **function.keywords)
    if isinstance(function, type):
        raise TraceError(f"jit needs a function, not the class {function.__name__}; decorate its methods")
    if not callable(function):
        raise TraceError(f"jit needs a function, not {function!r}; use it as a decorator")
    if current().disable or inspect.isasyncgenfunction(function) or is_decorated(function):
        return function
    state = FunctionState(function, changes)
    wrapper: Any = update_wrapper(make_wrapper(function, state), function)
    wrapper.__jitla_state__ = state
    wrapper.recompile = True
    state.wrapper = ref(wrapper)
    wrapper.stats = lambda: packages.explanations.collect.stats_of(state.all_sites(), state.failures)
    wrapper.explain = lambda *args, **kwargs: explain(wrapper, *args, **kwargs)
    wrapper._repr_html_ = lambda: _explained(state)._repr_html_()
    wrapper.cache_clear = state.clear
    wrapper.compile = lambda *args, **kwargs: warm_up(state, function, args, kwargs)
    return wrapper


def explain(function: Any, /, *args: Any, level: str = "plan", **kwargs: Any) -> Explanation:
    """Say what jitla made of a decorated function.

    Parameters
    ----------
    function : callable
        A decorated function, or a method, a `functools.partial` or an object that calls one; a plain one
        is decorated first.
    *args, **kwargs
        If given, the function is called with them before, compiled, and every step is timed; what `spec`
        describes is made for that. Of a generator the first 100 values are asked for. Else programs that
        calls were waiting for are waited for, and times are those of the first runs.
    level : str
        What is shown. "plan": the loops, what they were predicted to take and did take, what NumPy
        runs and why, what would make it faster. "trace": what was recorded, line by line; "hops": the
        same as a graph; "rewrites": what became of it; "kernels": the loops' contents, and what runs
        them; "loops": kernels as loop nests, and the programs of explicit loops; "cost": what predictions
        are made of, why loops are not one, which plan came second; "llvm", "asm": what was compiled, and
        to what; "recompilations": what was compiled when, and why; "runtime": what runs took, step by
        step and line by line; "all": everything but "loops", "llvm" and "asm".

    Returns
    -------
    Explanation
        ``str()`` of it is the text.

    Raises
    ------
    ConfigError
        If there is no such level.
    TraceError
        If `function` is not callable, or a class, or arguments are given and it has to be awaited.
    """
    function, first, named = unwrap_callable(function)
    decorated = function if hasattr(function, "__jitla_state__") else jit(function)
    state = getattr(decorated, "__jitla_state__", None) or FunctionState(function, {})
    watch = None
    if args or kwargs:
        reject_coroutine(state.function)
        watch = call_traced(state, decorated, (*first, *args), {**named, **kwargs})
    wait_for_programs(state)
    return _explained(state, level, watch, table_class_name((*args, *kwargs.values())))


def _explained(state: FunctionState, level: str = "plan", watch: Any = None, given: str = "") -> Explanation:
    def record(codes: bool) -> Any:
        return packages.explanations.collect.function_record(
            state.function, state.all_sites(), state.note, assumed=ENGINE.uses_reference_machine, watch=watch,
            codes=codes, given=given or state.foreign, failed=state.failures)

    return packages.explanations.explanation.explanation(record, level)


def coverage() -> str:
    """Return a table of what decorated functions handed to NumPy: where, how often, how long.

    Where indices, masks or labels were followed by loops that are in no plan, a table of these is first.
    """
    sites = [site for state in list(ENGINE.states) for site in state.all_sites()]
    collect = packages.explanations.collect
    return packages.explanations.explanation.coverage_table(
        collect.fallbacks_of(sites), collect.immediate_runs_of(sites))


def calibrate() -> Machine:
    """Measure this machine, once and for all.

    Plans are chosen by predicted time. The constants of the prediction (how fast memory is read and
    written, what arithmetic and calls take) are measured here, in a few hundred milliseconds, and
    kept in the directory that the option `cache_dir` names; later processes find them there. Without
    any, a machine of round numbers is assumed. ``python -m jitla calibrate`` does the same.

    Returns
    -------
    Machine
        The constants; ``record()`` gives them as a dictionary. If not kept, they hold for this process only.

    Notes
    -----
    What else runs on the machine is measured, too. Functions that were compiled keep their plans.
    """
    return ENGINE.calibrate(current())


def sparsify(x: np.ndarray, /) -> np.ndarray:
    """Look for zeros in a matrix that products are to be made with more than once.

    Parameters
    ----------
    x : ndarray
        A matrix of float32 or float64.

    Returns
    -------
    ndarray
        If most elements of `x` are 0.0 and all are finite: what stands for a read-only copy of `x`. It
        is an array to NumPy and to decorated functions, with the same results, but products with
        vectors and matrices, also of what is made of it element by element with numbers where 0 stays 0,
        leave zeros out where that is faster and all factors are finite. -0.0 is kept. Else `x` itself.

    Raises
    ------
    TraceError
        If `x` is no array.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.zeros((1000, 1000))
    >>> x[::10, ::10] = 2.0
    >>> float((jitla.sparsify(x) @ np.ones(1000))[0])
    200.0
    """
    found: np.ndarray = packages.tracing.sparsify(x)
    return found


def quantize(function: Callable[..., Any], data: Iterable[Any], /, *, per_channel: bool = False
             ) -> QuantizedFunction:
    """Return `function` with its products of floats done on bytes.

    Every product with a matrix on the right, and every sum of such products, becomes one of int8 with int32
    sums. Scales are symmetric: operands are multiples of a step, from -127 to 127 of them; steps are chosen
    so that the largest magnitude met in `data` is 127. Biases and limits between two products stay integers,
    and sums become bytes by a multiplication and a shift; all else is computed with floats as before. With
    the option `accelerator` in force, products run there; results are the same.

    Parameters
    ----------
    function : callable
        A NumPy function, decorated or not, whose products are of float32 or float64.
    data : iterable
        Arguments to calibrate with: tuples of arguments, or single arguments.
    per_channel : bool, optional
        Give every column of right operands a step of its own.

    Returns
    -------
    QuantizedFunction
        To be called as `function`; its ``report`` compares results on `data` with those of floats.

    Raises
    ------
    TraceError
        If the function's source is not known, or `data` is empty.
    """
    return dispatch.quantization.quantized(function, data, per_channel)


def tune(function: Callable[..., Any], /, *args: Any, trials: int = 64, seconds: float = 30.0,
         learner: Literal["smooth", "trees", "lightgbm"] = "smooth", **kwargs: Any) -> Tuning:
    """Search faster schedules for the kernels that a call runs.

    The function is called once, with copies of the arguments. Then another process runs each of its kernels
    on the same arrays with other schedules (how many rows make a block, how many blocks are shared out at a
    time, how results are stored), beside the untuned one in turn. Only a schedule whose results are the same
    to the bit, and that is faster by more than the noise, is kept: where the option `cache_dir`
    names, where later processes find it. Schedules that change in which order values are added up are tried
    with ``numerics="relaxed"`` only.

    Parameters
    ----------
    function : callable
        A decorated function; a plain one is decorated first.
    *args, **kwargs
        Arguments of the call; what `spec` describes is made for that.
    trials : int, optional
        How many schedules of each kernel are measured at most.
    seconds : float, optional
        How long the search may take altogether. An interrupt ends it; what was found until then is kept.
    learner : str, optional
        What learns from the schedules measured so far: "smooth", a Gaussian process; "trees", which are built
        in, too; or "lightgbm", of the extra ``jitla[tuner]``.

    Returns
    -------
    Tuning
        A tuple with a record for each kernel; printed, it is a table.
    """
    decorated = function if hasattr(function, "__jitla_state__") else jit(function)
    state = getattr(decorated, "__jitla_state__", None) or FunctionState(function, {})
    return dispatch.tuning.tune(state, decorated, args, kwargs, trials, seconds, learner)


__all__ = [
    "calibrate", "coverage", "explain", "jit", "quantize", "recompilation", "recompilations", "schedule",
    "sparsify", "spec", "tune",
]
