"""One decorated function: its state, and whether a call runs plain, with compiled loops, or traced."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from math import inf
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
from jitla.tiering.call_classes import RUNNING_SESSIONS, CallClasses, element_bits
from jitla.tiering.engine import CallClass, FunctionProfile
from jitla.tiering.generators import StepTimes
from jitla.tiering.loop_detector import any_reachable, has_element_loops, has_loops
from jitla.tiering.loop_estimates import count_operations, estimable_loops, estimate_call_seconds

if TYPE_CHECKING:
    from jitla.loopjit import LoopFunction
    from jitla.tracing import RecompilationLog, Request, Site, TracingBudget

MAX_FAILURES = 100  # that are kept
MAX_STEP_TIMES = 256  # options and numbers of elements that generators are judged by
SHORT_CALL_SECONDS = 0.3  # estimated, above which loops are looked for before the call
MAX_WAIT_SECONDS = 5.0  # of a call for the compiler
ARRAY_STATEMENT_FACTOR = 10  # ratio of the time of an instruction in a loop over slices to one over elements
LARGE_BITS = 18  # bits of the number of elements, above which loops over slices are looked for at once
# Frames of files that begin so are not the user's.
_OWN = __file__[: -len("dispatch/function_state.py")]


def _waits_for_compiler(own: Config) -> bool:
    """Return whether options make calls wait for the compiler, whether or not that pays."""
    return bool(own.verify or own.strict or own.memory_limit or own.accelerator)


# Not computed yet.
_UNKNOWN: Any = object()


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
        self.steps: dict[tuple[int, int], StepTimes] = {}  # of generators, by options and bits of elements
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

    def classes(self) -> CallClasses | None:
        """Return the call classes under the options in force; None if these need every call traced."""
        config = current()
        try:
            return self.classes_by_epoch[config.epoch][1]
        except KeyError:
            return self.call_classes(config) if self._has_default_options(config) else None

    def class_of(
        self, classes: CallClasses, args: tuple[Any, ...], kwargs: dict[str, Any],
    ) -> CallClass | None:
        """Return the class of a call; None if memory or files are lacking."""
        try:
            return classes.class_of(args, kwargs)
        except RESOURCE_ERRORS as error:
            self.note_failure(error)
            return None

    def plain_call(self, profile: FunctionProfile) -> tuple[Callable[..., Any], bool]:
        """Return the function that runs plain calls, and whether it is the one that the user wrote.

        Loops are looked for at the beginning of a call, and not at the end of the last one, perhaps.
        """
        loops = self._looping
        if loops is _UNKNOWN and profile.is_search_due():
            packages.loopjit.LoopSite.seconds_before_compiler += profile.spent
            loops = self.loop_function
        if loops is _UNKNOWN or loops is None or loops.traced or not loops.is_current():
            return self.function, True
        return loops.body, False

    def plain_body(self) -> Any:
        """Return the function that runs calls that are not traced: plain, or with compiled loops."""
        loops = self._looping
        if loops is _UNKNOWN or loops is None or loops.traced or not loops.is_current() \
                or current().with_changes(self.changes).compile == "off":
            return self.function
        return loops.version

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

    def call_classes(self, config: Config) -> CallClasses:
        """Return the call classes of the function under these options."""
        function: Any = self.function
        looping = self._looping is _UNKNOWN and any_reachable(function, has_loops)
        profile = FunctionProfile(
            FunctionTracer(self, looping), count_operations(function.__code__))
        code = function.__code__
        classes = CallClasses(profile, (code.co_filename, code.co_firstlineno))
        return self.classes_by_epoch.setdefault(config.epoch, (config, classes))[1]

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
        loops = self._looping
        if loops is not _UNKNOWN and loops is not None and loops.entries and not loops.traced:
            return ""  # its loops have records
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
        if _waits_for_compiler(own):
            own = own.with_changes({"compile": "sync"})
        site = self._make_site(own)
        site.epoch = config.epoch
        if own.compile == "auto":
            site.call_classes = self.call_classes(config)
            site.calls = site.call_classes.all_calls
            site.loop_function = self.loop_function
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
        blocks = dispatch.block_compilation
        site.compile = blocks.BlockCompiler(site, own, self.may_compile, finish).compile
        site.on_record, site.allowed = blocks.log_record, self.may_compile
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
        for config, _ in list(self.classes_by_epoch.values()):
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


class FunctionTracer:
    """What the call classes of a function need of the tracer and the compiler."""

    def __init__(self, state: FunctionState, has_loops: bool) -> None:
        self._state = ref(state)
        self._has_loops = has_loops  # and may not have been looked for
        self._estimable: Any = None  # its loops, for estimates
        self._has_element_loops = False

    @property
    def is_loaded(self) -> bool:
        """Whether the tracer is loaded and the function is instrumented."""
        return self.state.is_tracing_loaded

    @property
    def state(self) -> FunctionState:
        """The state of the function."""
        state = self._state()
        assert state is not None, "a call of the function keeps it"
        return state

    @property
    def is_possible(self) -> bool:
        """Whether the function can be traced, as far as known."""
        state = self.state
        return not state.is_tracing_loaded or state.instrumented is not None

    @property
    def has_loops(self) -> bool:
        """Whether the function, or one that it calls, has loops."""
        return self._has_loops or self.state._looping not in (_UNKNOWN, None)

    @property
    def is_wanted(self) -> bool:
        """Whether calls may be traced: compiled loops do not take most of their time."""
        loops = self.state._looping
        return not self._has_loops if loops is _UNKNOWN else loops is None or loops.traced

    @property
    def crowding(self) -> float:
        """The seconds of wall time that a second of processor time takes the compiler."""
        return ENGINE.background.crowding

    @property
    def is_compiling(self) -> bool:
        """Whether the compile queue is at work."""
        return ENGINE.background.busy

    @property
    def loading_price(self) -> float:
        """The seconds that loading the compiler takes; 0 if it is loaded."""
        return dispatch.block_compilation.loading_seconds()

    @property
    def waited(self) -> float:
        """The seconds that calls of this process have waited for the compiler."""
        return packages.tracing.InterimSeconds.waiting

    def begin_class(self, args: tuple[Any, ...], kwargs: dict[str, Any], bits: int) -> None:
        """Look for loops before the first call of a class that may take long."""
        state = self.state
        function: Any = state.function
        if self._has_loops and state._looping is _UNKNOWN:
            if self._estimable is None:
                self._estimable = estimable_loops(function)
                self._has_element_loops = any_reachable(function, has_element_loops)
            seconds = estimate_call_seconds(self._estimable, function, args, kwargs)
            if self._has_element_loops:
                is_short = seconds <= SHORT_CALL_SECONDS
            else:
                is_short = bits <= LARGE_BITS and (
                    seconds == inf or ARRAY_STATEMENT_FACTOR * seconds <= SHORT_CALL_SECONDS)
            if not is_short:
                state.loop_function  # noqa: B018  (looks for loops)

    def load(self) -> None:
        """Load the tracer and instrument the function in the background."""
        state, options = self.state, copy_context()

        def job() -> None:
            if state.try_load_tracing():
                state.first_site()

        ENGINE.background.submit(lambda: options.run(job))

    def wait(self) -> None:
        """Wait until the compile queue is empty."""
        ENGINE.background.wait(MAX_WAIT_SECONDS)

    def run_traced(
        self, site: Any, instrumented: Any, args: tuple[Any, ...], kwargs: dict[str, Any], budget: Any,
    ) -> Any:
        """Perform a traced call, which goes on plain when `budget` is exhausted."""
        return packages.tracing.run_traced(site, instrumented, args, kwargs, budget)

    def run_plain(self, site: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Perform a plain call."""
        return packages.tracing.run_untraced(site, function, args, kwargs)

    def budget(self, plain: float, allowance: float) -> TracingBudget:
        """Return the budget of a traced call whose plain call takes `plain` seconds (0: unknown)."""
        return packages.tracing.TracingBudget(plain, allowance)
