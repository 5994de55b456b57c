"""One decorated function: its state, and whether a call runs plain, with compiled loops, or traced."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, TracebackType
from typing import TYPE_CHECKING, Any
from weakref import ref

from jitla import dispatch, packages
from jitla.config import Config, current
from jitla.dispatch.wrapper_code import (
    FastPath,
    find_link,
    function_with_code,
)
from jitla.engine import ENGINE
from jitla.errors import UnsupportedError
from jitla.introspection import (
    call_with_stack_headroom,
    frame_access_of,
    table_class_name,
    untraceable_reason,
)
from jitla.process.loading import (
    RESOURCE_ERRORS,
    is_waiting_for_load,
)
from jitla.process.resources import has_shallow_stack
from jitla.profiling.call_classes import (
    MAX_COLD_BITS,
    RUNNING_SESSIONS,
    CallClasses,
    ShortCalls,
    element_bits,
)
from jitla.profiling.loop_detector import (
    has_loops,
    is_loop_free,
)
from jitla.profiling.step_times import StepTimes

if TYPE_CHECKING:
    from jitla.loopjit import LoopFunction
    from jitla.tracing import RecompilationLog, Request, Site, TimedClass, WarmUp

MAX_FAILURES = 100  # that are kept
MAX_STEP_TIMES = 256  # options and numbers of elements that generators are judged by
# Frames of files that begin so are not the user's.
_OWN = __file__[: -len("dispatch/function_state.py")]


def _waits_for_compiler(own: Config) -> bool:
    """Return whether options make calls wait for the compiler, whether or not that pays."""
    return bool(own.verify or own.strict or own.memory_limit or own.accelerator)


# Not computed yet.
_UNKNOWN: Any = object()


def _traced_policies() -> tuple[type[WarmUp], type[TimedClass]]:
    return packages.tracing.WarmUp, packages.tracing.TimedClass


def _restored_state(function: Any, changes: dict[str, Any], file: str) -> FunctionState:
    """Return the state of a function unpickled from another process, where its source was in `file`.

    Some versions of cloudpickle take the name of the file out of code.
    """
    if type(function) is FunctionType and function.__code__.co_filename != file:
        function.__code__ = _with_filename(function.__code__, file)
    return FunctionState(function, changes)


def _with_filename(code: CodeType, file: str) -> CodeType:
    constants = [_with_filename(c, file) if isinstance(c, CodeType) else c for c in code.co_consts]
    return code.replace(co_filename=file, co_consts=tuple(constants))


class FunctionState:
    """The state of one decorated function: its instrumented version, and a site per configuration."""

    def __init__(self, function: Callable[..., Any], changes: dict[str, Any]) -> None:
        self.function = function
        self.changes = changes
        self.sites: dict[int, Site | None] = {}
        self.classes_by_epoch: dict[int, tuple[Config, CallClasses]] = {}
        self.is_tracing_loaded = False  # and whether the function is instrumented is known
        self.untraced_calls: dict[int, tuple[Config, int]] = {}  # by options, before one needed the tracer
        self.steps: dict[tuple[int, int], StepTimes] = {}  # of generators, by options and bits of elements
        self.short_calls: dict[int, tuple[Config, ShortCalls]] = {}  # until the function is analysed
        # Whether calls need more than the plain function; it is instrumented when one is traced.
        self.traceable = False
        self._instrumented: Any = _UNKNOWN
        self._looping: Any = _UNKNOWN
        self.fast_path = FastPath(function)  # past everything, to the plain function
        self.wrapper: Callable[[], Any] = lambda: None  # the function that users call
        self.failures: list[str] = []  # of calls before there was a site for them
        self._recompilation_log: RecompilationLog | None = None
        self.plain_reason = ""  # why users call a copy of the plain function
        self.pinned_kernels: tuple[Any, ...] = ()  # its kernels, when schedules were pinned last
        ENGINE.states.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        code = getattr(self.function, "__code__", None)
        # What was learnt stays.
        return _restored_state, (self.function, self.changes, getattr(code, "co_filename", ""))

    def belongs_to(self, function: FunctionType) -> bool:
        """Return whether `function` is the wrapper of this state, not one that copied its attributes."""
        owner = self.wrapper()
        if owner is function:
            return True
        link = find_link(function.__code__)
        if link is None or link.state() is not self:
            return False
        if owner is None:  # it has come from another process, or the other one is gone
            self.fast_path.code, self.wrapper = function.__code__, ref(function)
        return True

    def dispatching_copy(self, wrapper: FunctionType) -> FunctionType:
        """Return a copy of `wrapper` that dispatches calls of traced code also in a deep recursion.

        `wrapper` itself does not in a deep recursion.
        """
        made = function_with_code(wrapper, self.fast_path.code)
        made.__dict__["__jitla_state__"] = self  # which is to live as long
        return made

    def class_policy(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallClasses | ShortCalls | None:
        """Return the policy for calls before tracing is loaded; None if it is needed at once."""
        if RUNNING_SESSIONS and packages.tracing.LOCAL.session is not None:
            return None
        config = current()
        loops = self._looping
        if config.epoch in self.untraced_calls and loops is not _UNKNOWN and loops and not loops.traced:
            return None
        try:
            return self.classes_by_epoch[config.epoch][1]
        except KeyError:
            pass
        function: Any = self.function
        if not self._has_default_options(config):
            return None
        if self._looping is _UNKNOWN:
            brief = self._short_calls(config, function)
            if brief.has(args, kwargs) and not brief.is_due():
                return brief
        loop_function = self.loop_function
        if loop_function is not None and config.epoch in self.short_calls:
            packages.loopjit.LoopSite.seconds_before_compiler += self.short_calls[config.epoch][1].spent
        self._trace_large_arrays(args, kwargs)
        kept = loop_function is not None and loop_function.is_left_to_python()
        if loop_function is not None and not kept and not loop_function.traced:
            return None
        return self.call_classes(config, kept)

    def _trace_large_arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have calls traced from the first one on if loops have statements over large arrays only."""
        loops = self._looping
        if loops is not _UNKNOWN and loops is not None and loops.entries and loops.has_array_statements_only \
                and element_bits(args, kwargs) > MAX_COLD_BITS:
            loops.traced = True

    def kind_of(
        self, class_policy: CallClasses | ShortCalls, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> Any:
        """Return the class of a call before tracing is loaded; None if memory or files are lacking."""
        try:
            return class_policy.class_of(args, kwargs)
        except RESOURCE_ERRORS as error:
            self.note_failure(error)
            return None

    def plain_body(self) -> Any:
        """Return the function that runs calls that are not traced: plain, or with compiled loops."""
        loops = self._looping
        if loops is _UNKNOWN or loops is None or loops.traced or not loops.is_current() \
                or current().with_changes(self.changes).compile == "off":
            return self.function
        return loops.version

    def _short_calls(self, config: Config, function: FunctionType) -> ShortCalls:
        """Return the policy for short calls, before loops are looked for."""
        if config.epoch not in self.short_calls:
            self.short_calls[config.epoch] = config, ShortCalls(function)
        return self.short_calls[config.epoch][1]

    def _has_default_options(self, config: Config) -> bool:
        """Return whether no option requires tracing from the first call on."""
        own = config.with_changes(self.changes)
        return own.compile == "auto" and not (_waits_for_compiler(own) or own.cpu or own.without_rules) \
            and type(self.function) is FunctionType

    def step_times(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepTimes | None:
        """Return the step timings that decide about generators of this size; None if all are traced."""
        config = current()
        if not self._has_default_options(config) \
                or RUNNING_SESSIONS and packages.tracing.LOCAL.session is not None:
            return None
        key = config.epoch, element_bits(args, kwargs)
        if key not in self.steps:
            if len(self.steps) >= MAX_STEP_TIMES:
                self.steps.clear()
            self.steps[key] = StepTimes()
        return self.steps[key]

    def has_waiting_blocks(self) -> bool:
        """Return whether blocks of traced calls wait for their programs."""
        return any(site is not None and site.interim_replays for site in self.sites.values())

    def loops_before_tracing(self) -> LoopFunction | None:
        """Return the loop-compiled form of the function, if tracing has not been loaded yet.

        Loading it would be a large part of the first call.
        """
        if packages.is_loaded("tracing"):
            return None
        config = current()
        untraced_calls = self.untraced_calls.get(config.epoch)
        if untraced_calls is None:
            if not self._has_default_options(config):
                return None
            untraced_calls = config, 0
        loop_function = self.loop_function
        if loop_function is None or loop_function.traced:
            return None
        self.untraced_calls[config.epoch] = config, untraced_calls[1] + 1
        return loop_function

    def require_compilable_loops(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `UnsupportedError` with ``strict=True`` if loops over elements cannot be compiled."""
        function = self.function
        if not current().with_changes(self.changes).strict or type(function) is not FunctionType \
                or not has_loops(function.__code__):
            return
        if self.loop_function and self.loop_function.is_left_to_python():
            line, reason = self.loop_function.refused[0]
            raise UnsupportedError(
                f"{self.loop_function.file}:{line}: this loop is left to Python: {reason}; "
                "move that out of the loop (see docs/loops.md), or drop strict=True")

    def raise_untraceable(self) -> None:
        """Raise `UnsupportedError` with ``strict=True`` if the function cannot be traced."""
        config = current()
        if self.changes.get("strict", config.strict) and not config.disable \
                and type(self.function) is FunctionType:
            code, name = self.function.__code__, self.function.__qualname__
            reason = self._untraceable_reason()
            cure = "define it in a file or a cell of a notebook, not by exec," if "source" in reason \
                else "do that outside of it,"
            raise UnsupportedError(
                f"{code.co_filename}:{code.co_firstlineno}: {name} is not traced by jitla: {reason}\n"
                f"{cure} or drop strict=True")

    def _untraceable_reason(self) -> str:
        """Return why the function cannot be traced."""
        function: Any = self.function
        if looks := frame_access_of(function):
            return f"it looks at frames of the stack, by {looks}"
        return packages.tracing.INSTRUMENTED.reason(function)

    @property
    def loop_function(self) -> LoopFunction | None:
        """The function with its loops over elements compiled; None if it has no such loops."""
        if self._looping is _UNKNOWN:
            function: Any = self.function
            try:
                made = ENGINE.loop_function(function) if type(function) is FunctionType else None
            except RESOURCE_ERRORS as error:
                self.note_failure(error)
                return None  # for this call it has none
            if self._looping is _UNKNOWN:  # else another thread was faster
                self._looping = made
        found: LoopFunction | None = self._looping
        return found

    @property
    def instrumented(self) -> Callable[..., Any] | None:
        """The instrumented function; None if the body runs in NumPy."""
        made: Callable[..., Any] | None = self._instrumented
        if made is _UNKNOWN:
            made = self._find_instrumented() if self.is_tracing_loaded else None
        return made

    def _find_instrumented(self) -> Any:
        if self._instrumented is _UNKNOWN:
            function = self.function
            self._instrumented = packages.tracing.INSTRUMENTED.get(function, decorated=True) \
                if isinstance(function, FunctionType) else None
        return self._instrumented

    def call_classes(self, config: Config, kept: bool = False) -> CallClasses:
        """Return the call classes of the function under these options."""
        code = self.function.__code__
        made = CallClasses(code.co_filename, code.co_firstlineno, _traced_policies, kept, len(code.co_code),
                      type(self.function) is FunctionType and is_loop_free(self.function))
        return self.classes_by_epoch.setdefault(config.epoch, (config, made))[1]

    def load_tracing(self) -> None:
        """Load tracing and instrument the function, unless only its loops over elements matter."""
        call_with_stack_headroom(self._load_tracing)

    def _load_tracing(self) -> None:
        packages.tracing  # noqa: B018  (loads it)
        if self.failures:
            name = getattr(self.function, "__qualname__", repr(self.function))
            ENGINE.report_failure(name, self.failures[0])
        loop_function = self.loop_function
        self.traceable = bool(loop_function and loop_function.entries or self._find_instrumented())
        self.is_tracing_loaded = True  # last: an interrupt or a fork before leaves what begins anew

    def try_load_tracing(self, *given: Any) -> bool:
        """Load tracing for a first call; return false to run it plain, as that is not possible now.

        `given` are the arguments, if loops over elements matter.
        """
        if has_shallow_stack() or is_waiting_for_load():
            return False
        try:
            if given:
                self.require_compilable_loops(*given)
                self._trace_large_arrays(*given)
            self.load_tracing()
        except RESOURCE_ERRORS as error:
            self.note_failure(error)
            return False
        return True

    def first_site(self, *given: Any) -> Site | None:
        """Return the site for a first call under the options in force; None to run it plain."""
        if is_waiting_for_load():
            return None
        try:
            if given:
                self.require_compilable_loops(*given)
            return self.site()
        except RESOURCE_ERRORS as error:
            self.note_failure(error)
            return None

    def note_failure(self, error: Exception) -> None:
        """Record that a call ran plain because the process lacks memory, files or threads."""
        text = f"{type(error).__name__}: {error}"
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(text)
        ENGINE.report_failure(getattr(self.function, "__qualname__", repr(self.function)), text)

    def traceback(self, error: BaseException) -> TracebackType | None:
        """Return the traceback of `error` without frames of jitla."""
        found = error.__traceback__
        if packages.is_loaded("tracing"):
            return packages.tracing.user_traceback(found)
        while found is not None and found.tb_frame.f_code.co_filename.startswith(_OWN):
            found = found.tb_next
        return found or error.__traceback__  # a function of ours that is shown

    @property
    def recompilation_log(self) -> RecompilationLog:
        """The log of what was planned and compiled for the function under all options."""
        if self._recompilation_log is None:
            self._recompilation_log = packages.tracing.RecompilationLog()
        return self._recompilation_log

    @property
    def note(self) -> str:
        """Why calls are not traced, as far as that is known; else an empty string."""
        if current().disable:
            return "runs in NumPy: the option disable is on"
        sites = self.all_sites()
        if told := untraceable_reason(self.function):
            return told
        if self.plain_reason or self.is_tracing_loaded and self.instrumented is None:
            return f"runs in NumPy: {self.plain_reason or self._untraceable_reason()}"
        if None in self.sites.values():
            return "runs in NumPy: compile=\"off\""
        few = all(s.call_classes and s.call_classes.is_cold for s in sites) and bool(self.sites)
        return "runs in NumPy: calls have not taken long enough to be traced" if few else ""

    @property
    def foreign(self) -> str:
        """The class of data frames among the arguments of calls, or an empty string."""
        names = (table_class_name(p.classes) for _, p in list(self.classes_by_epoch.values()))
        return next(filter(None, names), "")

    def site(self) -> Site | None:
        """Return the site for the options in force; None with ``compile=\"off\"``."""
        config = current()
        try:
            return self.sites[config.epoch]
        except KeyError:
            pass
        return self._new_site(config)

    def _new_site(self, config: Config) -> Site | None:
        own = config.with_changes(self.changes)
        if own.compile == "off":
            return self.sites.setdefault(config.epoch, None)
        if own.cpu:
            ENGINE.check_cpu(own.cpu)
        if own.without_rules:
            ENGINE.rules(own.without_rules)
        ENGINE.devices(own.accelerator)
        if own.schedules:
            packages.tuner.records.parse_pins(own.schedules)
        # of such loops compiled code waits for nobody
        sliced = own.compile == "sync" and not (
            _waits_for_compiler(own) or own.without_rules or own.schedules)
        if _waits_for_compiler(own):
            own = own.with_changes({"compile": "sync"})
        site = self._make_site(own)
        site.epoch = config.epoch
        if sliced and self.loop_function is not None and self.loop_function.sliced:
            site.loop_function = self.loop_function
        if own.compile == "auto":
            site.call_classes = self.call_classes(config)
            site.calls = site.call_classes.calls - site.call_classes.skipped
            site.loop_function = self.loop_function
            site.calls += self.untraced_calls.pop(config.epoch, (config, 0))[1]
            site.calls += sum(brief.calls for of, brief in self.short_calls.values() if of is config)
        return self.sites.setdefault(config.epoch, site)

    def _make_site(self, own: Config) -> Site:
        """Return a new site for the options `own`."""
        exact = own.numerics == "strict"
        checks = dispatch.verify_mode.Checks(exact) if own.verify else None
        told: set[Any] = set()

        def finish(bound: Any, make: Callable[[], Request]) -> Any:
            if own.memory_limit:
                ENGINE.check_memory(bound, own.memory_limit, told)
            return bound if checks is None else checks.bound(bound, make())

        name = getattr(self.function, "__qualname__", repr(self.function))
        site = packages.tracing.Site(
            name, None, own.strict, lambda: ENGINE.index_loops(own, site.scattered),
            ENGINE.hoisting_policy(own), ENGINE.literal_values(own), own.thresholds)
        tiers = dispatch.tiering
        site.compile = tiers.Tiers(site, own, self.may_compile, finish).compile
        site.on_record, site.allowed = tiers.tell, self.may_compile
        site.recompilation_log = self.recompilation_log
        site.unroll_limit = ENGINE.unroll_limit(own)
        site.bitwise = own.numerics == "strict"
        if checks is not None:
            site.checks = checks
            site.note_lines()
        return site

    def may_compile(self) -> bool:
        """Return whether planning and compiling are allowed for this function now."""
        return current().recompile and getattr(self.wrapper(), "recompile", True)

    def all_sites(self) -> tuple[Site, ...]:
        """Return the sites of all options so far, also of calls that ran before tracing was loaded."""
        for config, _ in [
                *self.classes_by_epoch.values(), *self.untraced_calls.values(), *self.short_calls.values()]:
            if not self.is_tracing_loaded:
                self.load_tracing()
            if self.traceable and config.epoch not in self.sites:
                self._new_site(config)
        return tuple(site for site in self.sites.values() if site is not None)

    def clear(self) -> None:
        """Discard profiles, plans and kernels of earlier calls."""
        self.failures.clear()
        self.steps.clear()
        if self.fast_path is not None:
            self.fast_path.forget()
        for _, call_classes in list(self.classes_by_epoch.values()):
            call_classes.clear()
        for site in self.all_sites():
            site.clear()
        if self.loop_function is not None:
            self.loop_function.clear()
