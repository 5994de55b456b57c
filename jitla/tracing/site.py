"""Sites: compiled blocks and counters of one function under one configuration.

A block is looked up in two levels: as an exact block, by entries, layouts and reference counts; and by its
class, which is independent of sizes and has a program that is bound to sizes and layouts.
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from logging import DEBUG, WARNING
from time import perf_counter
from types import CodeType
from typing import Any, Protocol

import numpy as np

from jitla.compile_stats import CompilationDisabled, CompileStats, Reason
from jitla.concurrency import fork_safe_lock
from jitla.config import TracingThresholds, current
from jitla.errors import FallbackWarning, MemoryLimitWarning, UnsupportedError
from jitla.events import log, record_moment
from jitla.hops import Hop, by_numpy
from jitla.introspection import hide_module
from jitla.process.loading import (
    RESOURCE_ERRORS,
    RetryBackoff,
)
from jitla.tracing.fallback import FORGOTTEN_RUNS, INTERIM_RUNS, Replay, Request, retire_waiting
from jitla.tracing.fp_warnings import FlagTest, WarningReporter
from jitla.tracing.frames import Places, call_at, codes_of, hide_function, place_of, user_frame
from jitla.tracing.guards import LiteralValues, RecompilationLog, is_same, last_line_of, literals_of
from jitla.tracing.tape import LAYOUTS, LEAF, Block, class_key, hops_of


class FallbackCounter:
    """Counts the calls of one NumPy function at one place that were not traced; has the reason."""

    __slots__ = ("count", "seconds", "reason")

    def __init__(self, func: Any) -> None:
        self.count = 0
        self.seconds = 0.0
        known = by_numpy(func) or by_numpy(vars(np).get(getattr(func, "__name__", "")))
        self.reason = "not in this form, or not of these dtypes" if known else "not in the op table"


class LoopRecord:
    """Counts the runs of compiled index loops at one place, and those that NumPy performed instead."""

    __slots__ = ("count", "by_numpy", "seconds", "nbytes", "title")

    def __init__(self) -> None:
        self.count = self.by_numpy = self.nbytes = 0
        self.seconds = 0.0
        self.title = ""

    def count_run(self, title: str, seconds: float, values: tuple[Any, ...]) -> None:
        """Count a run that read and wrote `values`."""
        self.title = title
        self.count += 1
        self.seconds += seconds
        self.nbytes += sum(x.nbytes for x in values if isinstance(x, np.ndarray))


def strict_error_text(place: Any, func: Any) -> str:
    """Return the message of the error that strict mode raises for a call of `func` that is not traced."""
    line = linecache.getline(place.file, place.line).strip()
    name, reason = qualified_name(func), FallbackCounter(func).reason
    return (f"{place.file}:{place.line}: {name} is not traced by jitla ({reason})\n"
            f"    {line}\n"
            "remove strict=True to let NumPy run it, or write the line with what docs/supported.md lists")


def qualified_name(func: Any) -> str:
    """Return the qualified name of a function, or its repr."""
    return str(getattr(func, "__qualname__", None) or getattr(func, "_name_of__", repr(func)))


MAX_CUT_LINES = 4096  # lines at which long blocks were closed
ANNOTATED_CALLS = 2  # calls that record the lines of operations, from one with a new class of blocks on
# Values of `Site.annotated_calls`; from the latter on, a call records lines up to its end.
ANNOTATE_ALWAYS, ANNOTATE_WHOLE_CALLS = 1 << 62, 1 << 61


class Compile(Protocol):
    """Compiles a block, given its size-independent key, sizes, layouts and a factory of the request."""

    def __call__(
        self, key: tuple, sizes: tuple[int, ...],
        layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]], make: Callable[[], Request],
        note: Callable[[str, CompileStats, Reason | None], None],
    ) -> Any: ...


def _refuse_block(*_: Any, **__: Any) -> Any:
    """Compile nothing, for sites without a compiler."""
    raise CompilationDisabled


class Site:
    """The call site state of one decorated function under one configuration; shared by threads."""

    def __init__(
        self, name: str, compile_block: Compile | None, strict: bool,
        indexed: Callable[[], Any] | None = None,
        keeper: Any = None, literal_values: LiteralValues | None = None,
        thresholds: TracingThresholds = TracingThresholds(),
    ) -> None:
        self.name, self.strict, self.thresholds = name, strict, thresholds
        self.unroll_limit = 0  # operations up to which iterations of a loop are recorded in one block
        self.bitwise = False  # whether matrix products must equal NumPy's bit for bit
        self.exact: dict[tuple, Any] = {}
        # Number of entries of those; whether classes have been dropped because there were too many.
        self._entries, self._had_many_classes = 0, False
        # By path, wanted entry, store and number of entries: key and value of the last exact block.
        self.likely: dict[tuple, tuple[tuple, Any]] = {}
        self.pinned: dict[tuple, set[int]] = {}
        # By path: loop iterations left open whose values the next one did not read. Places of updates that
        # stay lazy.
        self.failed_unrolls, self.fused_updates = dict[tuple, int](), set[tuple]()
        self.fallbacks: dict[tuple[str, str, int], FallbackCounter] = {}
        self.loops: dict[tuple[str, str, int], LoopRecord] = {}  # by operation, file and line
        # By file and line: number of long blocks that were closed there, and their most operations.
        self.cuts: dict[tuple[str, int], tuple[int, int]] = {}
        self.retired_runs: dict[Any, int] = {}
        self.failures, self.classes = list[str](), set[tuple]()
        # By program, which functions share: its first bound program here, and the line of each hop of that.
        self.lines: dict[Any, tuple[Any, dict[Hop, Any]]] = {}
        # By class: the places of the entries, as last recorded.
        self.places: dict[tuple, Places] = {}
        # The same by path and operations, independent of operands.
        self.tapes: dict[tuple, Places] = {}
        # By the same: values of scalars that are literals, by number; none if one had several values.
        self.literals: dict[tuple, dict[int, Any]] = {}
        self.codes: dict[int, CodeType] = {}  # code objects in paths, by id: references keep the ids valid
        # By operator: values of literals that rewrites match.
        self.literal_values = literal_values or {}
        self.calls, self.annotated_calls = 0, ANNOTATED_CALLS
        # Memo of the patterns of merged sparse matrices.
        self.unions: Any = None
        self.scattered = 0  # elements accessed by indices, masks or labels
        # The checks of verify mode.
        self.checks: Any = None
        # Decides which calls are bypassed to the plain function; None: none are.
        self.call_classes: Any = None
        # The version of the function with compiled loops over elements; None: it has none.
        self.loop_function: Any = None
        self.recompilation_log = RecompilationLog()
        # Whether planning and compiling is allowed now; keys of exact blocks that NumPy runs because it was
        # not.
        self.allowed: Callable[[], bool] = _always
        self.frozen: list[tuple] = []
        self.retry = RetryBackoff()  # when to retry after the process lacked resources
        # Blocks that NumPy runs until their programs are available.
        self.interim_replays: set[Any] = set()
        # Called with every record of the journal; the number of the options in force.
        self.on_record: Callable[[str, Any], None] = _ignore_record
        self.epoch = self.generation = 0
        # Ended sessions that can be reused, as no proxy refers to them.
        self.idle: list[Any] = []
        self.keeper = keeper  # decides which values of blocks are hoisted; None: none are
        # By entries: values that may be hoisted; most hoisted bytes of a call.
        self.parts: dict[tuple, Any] = {}
        self.most_kept = 0
        self.compile: Compile = compile_block or _refuse_block
        self._indexed = indexed
        # reentrant: a signal handler may call the function that is being compiled
        self.lock = fork_safe_lock()

    @property
    def has_many_classes(self) -> bool:
        """Whether the number of classes suggests that values of attributes are data."""
        return self._had_many_classes or len(self.classes) > self.thresholds.many_classes

    def pin(self, key: tuple, index: int) -> None:
        """Mark entry `index` of a block as live from now on, after it had to be rematerialised."""
        self.pinned.setdefault((key[2], len(key[0])), set()).add(index)
        self.retire([key])

    def program(self, block: Block, roots: tuple[int, ...], store: Any, path: Any = ()) -> Any:
        """Return the bound program of `block`, recorded at `path`; compile it if its class is new."""
        with self.lock:
            outs, aliases = store_targets(roots, store)
            key, sizes = class_key(block, roots, outs, aliases)
            make = partial(self.request, block, roots, outs, aliases)
            if key not in self.classes:
                self.annotated_calls = ANNOTATED_CALLS
                self._add_class(key)
            guard = self.recompilation_log.violated_guard(
                path, block, (roots, outs, aliases), key, self.epoch)
            line, count = last_line_of(block, roots)

            def note(tier: str, what: CompileStats, reason: Reason | None) -> None:
                record = self.recompilation_log.add(guard, tier, what, reason, line, count)
                self.on_record(self.name, record)

            bound = self._compile_or_replay(key, sizes, block, make, note)
            if bound.program not in self.lines:
                self.lines[bound.program] = bound, lines_of(block)
            if block.places:
                self.places[key] = block.places
            bound.effects = WarningReporter(
                self.places.get(key, block.places), self.thresholds.min_replay_ns)
            return bound

    def _add_class(self, key: tuple) -> None:
        """Add a class of blocks; above the maximum number, drop all earlier ones with their programs."""
        if len(self.classes) >= self.thresholds.max_classes:
            self.retire(list(self.exact))
            self.retired_runs = {FORGOTTEN_RUNS: sum(self.retired_runs.values())}
            for memory in (self.classes, self.places, self.lines):
                memory.clear()
            self._had_many_classes = True
        self.classes.add(key)

    def _compile_or_replay(
        self, key: tuple, sizes: tuple[int, ...], block: Block, make: Callable[[], Request],
        note: Callable[[str, CompileStats, Reason | None], None],
    ) -> Any:
        """Compile a block; where that fails or is not allowed, return a replay by NumPy."""
        try:
            return self.compile(key, sizes, _layouts(block), make, note)
        except MemoryLimitWarning:
            raise  # the user's filters make it an exception
        except Exception as error:
            replay = Replay(make())
            # may succeed later
            replay.frozen = isinstance(error, (CompilationDisabled, RecursionError, *RESOURCE_ERRORS))
            if not isinstance(error, (CompilationDisabled, RecursionError)):
                self.note_failure(error)
                self.retry.fail(error)
            return replay

    def replace_interim(self, replay: Any, program: Any) -> None:
        """Replace an interim replay by its bound program."""
        with self.lock:
            replay.compiled = program
            for each in list(self.exact.values()):
                if each.bound is replay:
                    each.set_numpy_seconds(replay.best_seconds)
            self.retired_runs[INTERIM_RUNS] = self.retired_runs.get(INTERIM_RUNS, 0) + replay.count
            self._replace(replay, program, self.lines.pop(replay, (None, {}))[1])
            retire_waiting(self, replay)

    def replace_program(self, bound: Any, better: Any) -> None:
        """Replace a program by `better`, which was compiled for another magnitude of sizes."""
        with self.lock:
            self.count_retired(bound)
            self._replace(bound, better, self.lines.get(bound.program, (None, {}))[1])

    def _replace(self, before: Any, made: Any, lines: dict[Hop, Any]) -> None:
        made.effects = before.effects
        self.lines.setdefault(made.program, (made, lines))
        for holder in (*list(self.exact.values()), *list(self.parts.values())):
            if holder.bound is before:
                holder.bound = made
        states = [closed.hoisting_state for closed in list(self.exact.values())]
        for state in [each for each in states if each is not None]:
            state.replace(before, made)
        self.annotated_calls = max(self.annotated_calls, 1)  # the next call is not comparable to earlier ones

    def is_planning(self, annotated_calls: int) -> bool:
        """Return whether a call that began with this many calls to annotate makes new plans."""
        return self.annotated_calls > annotated_calls or 0 < annotated_calls <= ANNOTATED_CALLS

    def is_settled(self, bound: Any) -> bool:
        """Return whether a block runs its final program, and variants of it may be compiled."""
        return bound not in self.interim_replays and not bound.frozen and self.allowed()

    def request_programs(self) -> None:
        """Request the programs of all blocks that NumPy runs."""
        for replay in list(self.interim_replays):
            replay.ask()

    def retry_frozen(self) -> None:
        """Retire the blocks that NumPy runs because compilation was not allowed or possible, if it is now."""
        if self.allowed() and self.retry.is_due():
            self.retire(self.frozen)
            self.frozen = []

    def with_origins(self, block: Block, path: Any, codes: Mapping[int, CodeType]) -> Block:
        """Return `block` with its places and literals; if not recorded, those of the same operations before.

        `codes` are the code objects of the entries, if they were recorded.
        """
        tape = _tape_key(path, block.entries)
        self.codes.update((id(code), code) for code in codes_of(path))
        if block.places:
            self.tapes[tape] = block.places
            if codes and tape not in self.literals:
                self.literals[tape] = literals_of(block, codes, self.literal_values)
        elif tape in self.tapes:
            places = self.tapes[tape]
            block = block._replace(places=places, lines={i: place[:2] for i, place in places.items()})
        fixed = self.literals.get(tape)
        # The same operations may have other operands now, and fewer scalars, as in `x > s.limit`.
        if fixed and max(fixed) < len(block.scalars) and all(
                is_same(block.scalars[number], value) for number, value in fixed.items()):
            return block._replace(fixed=fixed)
        return block

    def drop_literals(self, key: tuple) -> None:
        """Treat no scalar of an exact block as a literal any more."""
        self.literals[_tape_key(key[2], key[0])] = {}
        self.retire([key])

    def observing_program(
        self, bound: Any, block: Block, roots: tuple[int, ...], store: Any, signs: tuple[FlagTest, ...],
    ) -> Any:
        """Return a bound program like `bound` that also returns the values that show `signs`."""
        outs, aliases = store_targets(roots, store)
        asked = tuple((sign.entry, sign.flags) for sign in signs)
        key, sizes = class_key(block, roots, outs, aliases, "observed", asked)
        request = self.request(block, roots, outs, aliases)
        values = (*request.roots, *(sign.condition for sign in signs))
        nothing = (None,) * len(signs)
        request = request._replace(
            roots=values, outs=(*outs, *nothing), lines=(*request.lines, *nothing), tape=None)
        try:
            observing = self.compile(key, sizes, request.layouts, lambda: request, ignore_compilation)
        except CompilationDisabled:
            return bound
        except Exception as error:
            self.note_failure(error)
            return bound
        self.lines.setdefault(observing.program, (observing, lines_of(block)))
        self.count_retired(bound)
        observing.effects = bound.effects
        observing.effects.install_tests(signs)
        return observing

    def request(
        self, block: Block, roots: tuple[int, ...], outs: tuple[int | None, ...],
        aliases: frozenset[tuple[int, int, int]],
    ) -> Request:
        """Return the request to the compiler for `block`."""
        hops = hops_of(block)
        lines = tuple(block.lines.get(i) for i in roots)
        return Request(
            tuple(hops[i] for i in roots), _layouts(block), outs, aliases, lines, (block.entries, roots))

    def count_retired(self, bound: Any) -> None:
        """Add the runs of a bound program that is dropped to the counts of its program."""
        if bound is not None:
            self.retired_runs[bound.program] = self.retired_runs.get(bound.program, 0) + bound.count

    def note_cut(self, line: tuple[str, int], operations: int) -> None:
        """Count a block of this many operations that was closed at a line because it was long."""
        if line in self.cuts or len(self.cuts) < MAX_CUT_LINES:
            count, most = self.cuts.get(line, (0, 0))
            self.cuts[line] = count + 1, max(most, operations)

    def note_lines(self) -> None:
        """Let every call record the user's line of each operation."""
        self.annotated_calls = ANNOTATE_ALWAYS

    @contextmanager
    def noting_lines(self) -> Iterator[None]:
        """Let calls in the ``with`` block record lines up to their end, even for known blocks."""
        self.annotated_calls = max(self.annotated_calls, ANNOTATE_WHOLE_CALLS)
        try:
            yield
        finally:
            if self.annotated_calls <= ANNOTATE_WHOLE_CALLS:
                self.annotated_calls = ANNOTATED_CALLS

    def remember_block(self, key: tuple, closed: Any) -> None:
        """Add an exact block; if there are too many, retire the older half."""
        with self.lock:
            thresholds = self.thresholds
            if len(self.exact) >= thresholds.max_exact_blocks \
                    or self._entries >= thresholds.max_exact_entries:
                self.retire(list(self.exact)[:(len(self.exact) + 1) // 2])
                self._forget_parts()
            if key not in self.exact:
                self._entries += len(key[0])
            self.exact[key] = closed
        if closed.bound is not None and closed.bound.frozen:
            self.frozen.append(key)

    def start_generation(self, generation: int) -> None:
        """Retire all exact blocks because the ids in their keys are invalid."""
        self.retire(list(self.exact))
        self._forget_parts()
        self.generation = generation

    def _forget_parts(self) -> None:
        for part in list(self.parts.values()):
            self.count_retired(part.bound)
        self.parts.clear()

    def retire(self, keys: list[tuple]) -> None:
        """Drop exact blocks, but keep the counts of their runs."""
        self.likely.clear()
        if len(self.tapes) >= self.thresholds.max_exact_blocks:
            self.tapes.clear()
            self.literals.clear()
        with self.lock:
            for key in keys:
                closed = self.exact.pop(key, None)
                if closed is not None:
                    self._entries -= len(key[0])
                    self.count_retired(closed.bound)
                    closed.stop_watching(self)

    def runs(self) -> dict[Any, int]:
        """Return the number of runs of each program."""
        counts = dict(self.retired_runs)
        for bound in self.bound_programs():
            counts[bound.program] = counts.get(bound.program, 0) + bound.count
        return counts

    def bound_programs(self) -> list[Any]:
        """Return the bound programs that run blocks now."""
        every = list(self.exact.values())
        bounds = [x.bound for x in (*every, *list(self.parts.values()))]
        bounds += [closed.hoisting_state.remainder for closed in every if closed.hoisting_state is not None]
        return [bound for bound in bounds if bound is not None]

    def numpy_seconds(self) -> float:
        """Return the estimated seconds that NumPy and SciPy would have taken for all runs so far."""
        blocks = sum(each.numpy_seconds * each.runs for each in list(self.exact.values()))
        records: list[Any] = [*self.fallbacks.values(), *self.loops.values()]
        return float(blocks + sum(record.seconds for record in records))

    def replay(self, block: Block, roots: tuple[int, ...], store: Any, error: Exception) -> Replay:
        """Return a replay of `block` after its program failed with `error`."""
        self.note_failure(error)
        return Replay(self.request(block, roots, *store_targets(roots, store)))

    def run_index_loop(self, name: str, size: int, *args: Any) -> Any:
        """Perform an operation on `size` indices, masks or labels by a compiled loop outside of any plan.

        None if there is no such loop, or it does not pay off: NumPy then has to do it, including errors.
        """
        if size < self.thresholds.min_loop_indices or self._indexed is None:
            return None
        self.scattered += size
        start, result = perf_counter(), None
        if self.scattered >= self.thresholds.min_compiled_indices:
            try:
                result = getattr(self._indexed(), name)(*args)
            except CompilationDisabled:
                result = None
            except Exception as error:
                self.note_failure(error)
        self._count_loop(name, size, args, result, perf_counter() - start)
        return result

    def _count_loop(self, name: str, size: int, args: tuple, result: Any, seconds: float) -> None:
        """Count the run of an index loop under the user's line, or that NumPy has to do it."""
        place = place_of(user_frame())
        record = self.loops.setdefault((name, place.file, place.line), LoopRecord())
        if result is None or result is False:
            record.by_numpy += 1
            return
        values = *args, *(result if type(result) is tuple else (result,))
        record.count_run(f"{name} {size} {args[0].dtype}", seconds, values)

    def call_compiled(self, title: str, place: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call a function that the user has compiled, at `place`, and count it."""
        start = perf_counter()
        result = call_at(place, func, args, kwargs)
        record = self.loops.setdefault((qualified_name(func), place.file, place.line), LoopRecord())
        record.count_run(title, perf_counter() - start, (*args, result))
        return result

    def call_by_numpy(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func`, of NumPy, and count it under the user's line; an error in strict mode."""
        place = place_of(user_frame())
        if self.strict and any(isinstance(a, np.ndarray) for a in (*args, *kwargs.values())):
            raise UnsupportedError(strict_error_text(place, func))
        return self.call_counted(place, func, args, kwargs)

    def call_counted(self, place: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func` at `place` and count it as a fallback."""
        name, file, line = qualified_name(func), place.file, place.line
        record = self.fallbacks.get((name, file, line))
        if record is None:
            record = self.fallbacks.setdefault((name, file, line), FallbackCounter(func))
        start = perf_counter()
        try:
            result = call_at(place, func, args, kwargs)
        finally:
            seconds = perf_counter() - start
            record.count += 1
            record.seconds += seconds
            record_moment(name, start, seconds)
        if record.count == 1 and current().fallback == "warn":
            text = (f"{name} is {record.reason}: NumPy ran it, for {seconds * 1e3:.3g} ms; "
                    "docs/supported.md has what is traced, fallback=\"silent\" keeps this quiet")
            call_at(place, warnings.warn, (text, FallbackWarning), {})
        return result

    def note_failure(self, error: Exception) -> None:
        """Record that a program failed and NumPy computed the block; the first time as a logged warning."""
        if isinstance(error, RecursionError):
            return  # the stack was too short, which is no fault of the program
        if len(self.failures) < 100:
            self.failures.append(f"{type(error).__name__}: {error}")
        text = "%s: a program failed and NumPy ran instead: %s"
        log.log(DEBUG if self.failures[1:] else WARNING, text, self.name, repr(error))

    def clear(self) -> None:
        """Drop all blocks and counts."""
        for memory in (self.exact, self.likely, self.pinned, self.fallbacks, self.loops, self.classes,
                       self.cuts, self.retired_runs, self.places, self.tapes, self.literals, self.lines,
                       self.parts, self.codes, self.failed_unrolls, self.fused_updates):
            memory.clear()
        self.failures.clear()
        self.unions = None
        self.recompilation_log.clear()
        self.frozen = []
        self._entries, self._had_many_classes = 0, False
        self.interim_replays.clear()
        if self.call_classes is not None:
            self.call_classes.clear()
        self.calls, self.annotated_calls = 0, ANNOTATED_CALLS


def _always() -> bool:
    return True


def _ignore_record(name: str, record: Any) -> None:
    """Do nothing."""


def ignore_compilation(tier: str, made: CompileStats, reason: Reason | None) -> None:
    """Take note of nothing: it belongs to what was noted."""


def _tape_key(path: Any, entries: tuple[tuple, ...]) -> tuple:
    """Return the key of the operations at one place, independent of their operands."""
    return path, tuple([entry[0] for entry in entries])


def lines_of(block: Block) -> dict[Hop, Any]:
    """Return the user's line of each hop of a block, if recorded."""
    hops = hops_of(block)
    return {hops[i]: line for i, line in block.lines.items()}


def store_targets(
    roots: tuple[int, ...], store: Any
) -> tuple[tuple[int | None, ...], frozenset[tuple[int, int, int]]]:
    """Return the leaf that each root is written into, and aliases as (target, overlapping leaf, reach)."""
    if store is None:
        return (None,) * len(roots), frozenset()
    outs = tuple(store.slot if i == store.index else None for i in roots)
    return outs, frozenset((store.slot, k, store.reach) for k in store.aliases)


def _layouts(block: Block) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    layouts = [LAYOUTS[e[1]] for e in block.entries if e[0] == LEAF]
    return {slot: (layout.shape, layout.strides) for slot, layout in enumerate(layouts)}


hide_module(__name__, hide_function)
