"""The NumPy fallback: blocks that NumPy runs while programs are compiled, and calls that continue untraced.

`Replay` runs a block by NumPy; `InterimReplay` does so until the program exists, and requests that once it
pays. `TracingBudget` limits the time that tracing may cost in one call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from time import perf_counter, thread_time
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    Evaluation,
    FlagsRaised,
    Hop,
    OpSpec,
    implementation_of,
    lookup,
    start_recording,
    stop_recording,
    take_flags,
)
from jitla.tracing.tape import (
    LAYOUTS,
    LEAF,
    METAS,
    METHODS,
    OPS,
    SCALAR,
    Entry,
    backward_slice,
    cast_as_ufunc,
    split_entry,
)

__all__ = ["abandon_program", "retire_waiting"]


MAX_NESTING = 12  # levels of expressions within one line of a generated function

_INFIX = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.floor_divide: "//",
    np.remainder: "%", np.bitwise_and: "&", np.bitwise_or: "|", np.bitwise_xor: "^", np.left_shift: "<<",
    np.right_shift: ">>", np.equal: "==", np.not_equal: "!=", np.less: "<", np.less_equal: "<=",
    np.greater: ">", np.greater_equal: ">=",
}
_PREFIX = {np.negative: "-", np.positive: "+", np.invert: "~"}
Run = Callable[[Sequence[Any]], list[Any]]


def replay_function(entries: tuple[Entry, ...], roots: tuple[int, ...]) -> Run:
    """Return a generated function that computes the values of `roots` from the list of leaves and scalars."""
    writer = _Writer(entries, roots)
    scope: dict[str, Any] = writer.scope
    exec(_compiled(writer.source()), scope)
    run: Run = scope["run"]
    return run


@lru_cache(512)
def _compiled(source: str) -> CodeType:
    return compile(source, "<jitla meanwhile>", "exec")


class _Writer:
    """Generates the Python source of one block; `scope` has the objects that it refers to.

    A value that is read once becomes part of its reader's expression, so that NumPy can reuse its memory;
    others become variables, which are deleted after the last use.
    """

    def __init__(self, entries: tuple[Entry, ...], roots: tuple[int, ...]) -> None:
        self.entries, self.roots = entries, roots
        self.scope: dict[str, Any] = {}
        self.wanted = sorted({i for r in roots for i in backward_slice(entries, r)})
        self.reads: Counter[int] = Counter(roots)
        for i in self.wanted:
            if entries[i][0] > SCALAR:
                self.reads.update(r for r in split_entry(entries[i])[0] if r >= 0)
        self.remaining = Counter(self.reads)
        # Entries known to be arrays: on scalars, operators and ufuncs give different results.
        self.arrays: set[int] = set()
        # Of each entry: its expression, the nesting depth of that, and the variables in it, once for each
        # use.
        self.expressions: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self.lines: list[str] = []

    def source(self) -> str:
        """Return the source of the function `run`."""
        leaf, scalar = 0, sum(e[0] == LEAF for e in self.entries)
        wanted = set(self.wanted)
        for i, entry in enumerate(self.entries):
            if entry[0] == LEAF:
                self.expressions[i] = f"L[{leaf}]", 0, ()
                leaf += 1
                if METAS[LAYOUTS[entry[1]].meta].shape:
                    self.arrays.add(i)
            elif entry[0] == SCALAR:
                self.expressions[i] = f"L[{scalar}]", 0, ()
                scalar += 1
            else:
                refs = split_entry(entry)[0]
                if i in wanted:
                    self._operation(i, scalar)
                scalar += sum(r < 0 for r in refs)
        results = ", ".join(self.expressions[r][0] for r in self.roots)
        body = "".join(f"    {line}\n" for line in (*self.lines, f"return [{results}]"))
        return f"def run(L):\n{body}"

    def _operation(self, i: int, scalar: int) -> None:
        """Emit entry `i`, whose scalars begin at slot `scalar`."""
        refs, attrs = split_entry(self.entries[i])
        args: list[str] = []
        depth = 0
        used: tuple[int, ...] = ()
        for r in refs:
            if r < 0:
                args.append(f"L[{scalar}]")
                scalar += 1
                continue
            text, nesting, uses = self.expressions[r]
            args.append(text)
            depth = max(depth, nesting)
            used += uses
        text = self._call(i, OPS[self.entries[i][0]], args, dict(attrs))
        if self.reads[i] == 1 and i not in self.roots and depth < MAX_NESTING:
            self.expressions[i] = f"({text})", depth + 1, used
            return
        self.lines.append(f"v{i} = {text}")
        self.remaining.subtract(used)
        done = [f"v{u}" for u in dict.fromkeys(used) if not self.remaining[u]]
        if done:
            self.lines.append(f"del {', '.join(done)}")
        self.expressions[i] = f"v{i}", 0, (i,)

    def _call(self, i: int, name: str, args: list[str], attrs: dict[str, Any]) -> str:
        """Return the expression of operator `name`."""
        op = lookup(name)
        function = op.numpy[0] if op.numpy else None
        is_elementwise = name == "cast" or isinstance(function, np.ufunc) and function.signature is None
        if is_elementwise and any(r in self.arrays for r in split_entry(self.entries[i])[0]):
            self.arrays.add(i)
        if not attrs and i in self.arrays:
            if function in _INFIX and len(args) == 2:
                return f"{args[0]} {_INFIX[function]} {args[1]}"
            if function in _PREFIX and len(args) == 1:
                return f"{_PREFIX[function]}{args[0]}"
        options = ""
        if attrs:
            self.scope[f"k{i}"] = attrs
            options = f", **k{i}"
        if name in METHODS:
            arguments = ", ".join(args[1:])
            return f"{args[0]}.{name}({(arguments + options).removeprefix(', ')})"
        if "within" in attrs:
            self.scope[f"f{i}"] = cast_as_ufunc
        elif name == "cast":
            return f"{args[0]}.astype({(', '.join(args[1:]) + options).removeprefix(', ')})"
        elif is_elementwise and i not in self.arrays:
            self.scope[f"f{i}"] = _of_scalars(op)
        else:
            self.scope[f"f{i}"] = function if isinstance(function, np.ufunc) or name == "dot" else op.ref
        return f"f{i}({', '.join(args)}{options})"


def _of_scalars(op: OpSpec) -> Callable[..., Any]:
    """Return a function that computes `op` where all operands may be scalars."""
    return lambda *operands, **attrs: implementation_of(op, operands)(*operands, **attrs)


# Share of NumPy's time that a program is assumed to save at least, since predictions are rough.
MIN_SAVED_SHARE = 0.05


class Request(NamedTuple):
    """A request to the compiler: hops of the values to compute, layouts of leaves, outputs and aliases."""

    roots: tuple[Hop, ...]
    layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    outs: tuple[int | None, ...]
    aliases: frozenset[tuple[int, int, int]]
    # The user's (file, line) of each root, if recorded; the lines of hops may be those of other functions.
    lines: tuple[tuple[str, int] | None, ...] = ()
    # The block as entries of the tape, and the indices of the roots, if it was recorded on a tape.
    tape: tuple[tuple[Any, ...], tuple[int, ...]] | None = None


class Replay:
    """A block run operation by operation with NumPy, when no program can be made or one has failed.

    It has the interface of a bound program.
    """

    kernels = calls = written = 0
    effects: Any = None
    # Whether it has no program only because compilation was not allowed or not possible at the time.
    frozen = False

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self._compute = Evaluation(request.roots) if request.tape is None else replay_function(*request.tape)

    @property
    def program(self) -> Any:
        """The object under which the runs of this block are counted."""
        return self

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots, in new memory or, of a store, in the target leaf."""
        self.count += 1
        request = self.request
        results: list[Any] = []
        before = start_recording()
        try:
            values = self._compute(leaves)
        finally:
            stop_recording(before)
            flags = take_flags()
        for value in values:
            if isinstance(value, np.ndarray) and is_shared(value, (*results, *leaves)):
                value = value.copy("K")
            results.append(value)
        stored = {slot for slot in request.outs if slot is not None}
        stored |= {b for x, y, _ in request.aliases for a, b in ((x, y), (y, x)) if a in stored}
        saved = {slot: leaves[slot].copy("K") for slot in stored} if flags else {}
        for i, slot in enumerate(request.outs):
            if slot is not None:
                leaves[slot][...] = results[i]
                results[i] = leaves[slot]
        if flags:
            raise FlagsRaised(tuple(results), flags, saved)
        return tuple(results)

    def text(self) -> str:
        """Return a description for `explain`."""
        return "== replay\nrun op by op with NumPy"


def is_shared(value: np.ndarray, others: tuple[Any, ...]) -> bool:
    """Return whether an array, just computed by NumPy, is one of `others` or may share memory with one.

    An array that is no view shares none.
    """
    if value.base is None:
        return any([value is a for a in others])
    return any(np.may_share_memory(value, a) for a in others if isinstance(a, np.ndarray))


def interpret(
    entries: list[Entry] | tuple[Entry, ...], index: int, leaves: list[np.ndarray], scalars: list[Any],
) -> Any:
    """Return the value of entry `index` in new memory, without floating-point warnings.

    Other code may append to the lists while this runs.
    """
    prefix = tuple(entries[: index + 1])
    inputs = leaves[: sum(entry[0] == LEAF for entry in prefix)]
    before = start_recording()
    try:
        value = replay_function(prefix, (index,))([*inputs, *scalars])[0]
    finally:
        stop_recording(before)
    if isinstance(value, np.ndarray) and is_shared(value, tuple(inputs)):
        value = value.copy("K")
    return value


class RetiredRuns:
    """A pseudo program that counts runs: of interim replays, or of programs that were dropped from memory."""

    kernels = calls = written = 0


INTERIM_RUNS, FORGOTTEN_RUNS = RetiredRuns(), RetiredRuns()


class InterimSeconds:
    """The seconds that calls of this process have waited for programs, which is no time of tracing."""

    waiting = 0.0


class ProgramState:
    """The state of a program that several blocks of different sizes wait for.

    `numpy_seconds` is the time that NumPy took for all of them; `on_disk`: an earlier process has compiled
    the program (None: not known yet); it is `requested`, `available`, or `abandoned` because it cannot be
    compiled.
    """

    __slots__ = ("on_disk", "numpy_seconds", "requested", "available", "abandoned")

    def __init__(self, numpy_seconds: float = 0.0) -> None:
        self.on_disk: bool | None = None
        self.numpy_seconds = numpy_seconds
        self.requested = self.available = self.abandoned = False


class InterimReplay(Replay):
    """A block that NumPy runs until its program is `compiled`; that is requested once it pays.

    Blocks with the same `program_state` wait for one program, and count together. A run of the program is
    predicted to take `program_seconds`. `job` has the price of the program, and requests it.
    """

    def __init__(
        self, request: Request, program_seconds: float, job: Any, program_state: ProgramState | None = None,
    ) -> None:
        super().__init__(request)
        self.program_seconds = program_seconds
        self.best_seconds = inf  # seconds of a run
        self.compiled: Any = None
        self.program_state = program_state or ProgramState()
        self._job = job
        self.numpy_seconds = 0.0  # seconds of all runs by NumPy
        self.is_dropped = False  # nothing waits for the program any more

    @property
    def price(self) -> float:
        """The predicted seconds of compiling the program."""
        price: float = self._job.price
        return price

    @property
    def is_waiting(self) -> bool:
        """Whether the program is not there, but may still become available."""
        state = self.program_state
        return self.compiled is None and not (state.available or state.abandoned)

    @property
    def requested(self) -> bool:
        """Whether the program has been requested."""
        return self.program_state.requested

    @property
    def program(self) -> Any:
        """The program, once it is available; until then this object."""
        return self if self.compiled is None else self.compiled.program

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots."""
        if self.compiled is not None:
            values: tuple[Any, ...] = self.compiled.run(leaves)
            return values
        self.is_dropped = False
        start = perf_counter()
        try:
            return super().run(leaves)
        finally:
            taken = perf_counter() - start
            self.best_seconds = min(self.best_seconds, taken)
            self.numpy_seconds += taken
            state = self.program_state
            state.numpy_seconds += taken
            saved_share = max(1.0 - self.program_seconds / self.best_seconds, MIN_SAVED_SHARE)
            if not (state.requested or state.abandoned) \
                    and self._job.is_worth_compiling(state.numpy_seconds, saved_share):
                self.ask(saved_share / self.price)

    def ask(self, priority: float = 0.0) -> None:
        """Request the program, unless that was done."""
        self._job.ask(self, priority)


def retire_waiting(site: Any, replay: Any) -> None:
    """Retire the blocks that wait for the program that `replay` has got; on their next run they bind it."""
    program_state = replay.program_state
    program_state.available = True
    site.interim_replays.discard(replay)
    others = _waiting(site, program_state)
    if not others:
        return
    bounds = {key: closed.bound for key, closed in site.exact.items() if closed.bound in others}
    site.retire(list(bounds))
    for each in others:
        if each in bounds.values():
            site.interim_replays.discard(each)
            site.lines.pop(each, None)
            runs = site.retired_runs
            runs[INTERIM_RUNS] = runs.get(INTERIM_RUNS, 0) + runs.pop(each, 0)
        else:  # the remainder of a block with hoisted values: it requests its own program
            each.program_state = ProgramState(program_state.numpy_seconds)


def abandon_program(site: Any, program_state: ProgramState) -> None:
    """Give up a program that cannot be compiled: NumPy runs its blocks for good."""
    program_state.abandoned = True
    with site.lock:
        site.interim_replays -= _waiting(site, program_state)


def _waiting(site: Any, program_state: ProgramState) -> set[Any]:
    return {each for each in list(site.interim_replays) if each.program_state is program_state}


# If the plain call was not timed: the multiple of NumPy's seconds that tracing may take, the interval of the
# checks, and the share of NumPy's seconds that programs have to save.
MAX_COST_RATIO, CHECK_INTERVAL_SECONDS, MIN_SAVED_RATIO = 1.1, 0.01, 0.5
# New blocks of one place per call that are free of charge. Beyond that, once building them takes this share
# of the call, and this many seconds, the call is compared with NumPy; and again each time that it has grown
# by a share.
MAX_NEW_BLOCKS, NEW_BLOCK_SHARE, MIN_NEW_BLOCK_SECONDS, RECHECK_GROWTH = 8, 0.2, 0.005, 0.25
# The call is given up if this thread has worked this multiple of NumPy's estimated seconds since the last
# comparison, which is at least MIN_RECHECK_SECONDS ago.
MAX_WORK_RATIO, MIN_RECHECK_SECONDS = 1.5, 0.02


class TracingBudget:
    """The limit on the time that tracing may cost in one call.

    At time `check_at`, `is_exhausted` is to be called. A block that is built again and again for new sizes
    is checked earlier.
    """

    __slots__ = ("traced_seconds", "check_at", "_start", "_waiting", "_new_blocks",
                 "_regular_check", "_is_rebuilding", "_next_comparison", "_last_comparison", "plain")

    def __init__(self, plain: float, allowance: float = 0.0) -> None:
        """Begin a call that may take `allowance` seconds more than the plain function (0: not known)."""
        self._start = perf_counter()
        self.traced_seconds = 0.0  # seconds until the call continued untraced
        self.plain = plain
        self._waiting = InterimSeconds.waiting
        self.check_at = self._regular_check = self._start + (
            plain + allowance if plain else CHECK_INTERVAL_SECONDS)
        # Whether new blocks cost much; earliest time of the next comparison; at the last one, seconds of
        # this thread and estimated seconds of NumPy.
        self._is_rebuilding, self._next_comparison, self._last_comparison = False, 0.0, (0.0, 0.0)
        self._new_blocks: dict[tuple[int, ...], tuple[int, float]] = {}  # by path: how many, and seconds

    def add_new_block(self, path: tuple[int, ...], seconds: float) -> None:
        """Charge the seconds that building a new block at `path` took."""
        count, spent = self._new_blocks.get(path, (0, 0.0))
        self._new_blocks[path] = count + 1, spent + seconds
        if count >= MAX_NEW_BLOCKS and spent + seconds > max(
                MIN_NEW_BLOCK_SECONDS, NEW_BLOCK_SHARE * (perf_counter() - self._start)):
            self.check_at, self._is_rebuilding = min(self.check_at, self._next_comparison), True

    def is_exhausted(self, site: Any) -> bool:
        """Return, at `check_at`, whether the call is to continue untraced; waits for programs are free."""
        waited, self._waiting = InterimSeconds.waiting - self._waiting, InterimSeconds.waiting
        if waited > 0.0:
            self._start, self._regular_check = self._start + waited, self._regular_check + waited
            self.check_at, self._is_rebuilding, self._next_comparison = self._regular_check, False, 0.0
            return False
        now = perf_counter()
        is_over = self._is_rebuilding and now >= self._next_comparison \
            and self._is_rebuilding_in_vain(site, now)
        if not is_over and now >= self._regular_check:
            is_over = self.plain > 0.0 or self._is_losing(site, now)
        if is_over:
            self.traced_seconds = now - self._start
        return is_over

    def _is_rebuilding_in_vain(self, site: Any, now: float) -> bool:
        """Return whether tracing took longer than NumPy's estimate since the last comparison."""
        first, (before, numpy) = not self._next_comparison, self._last_comparison
        self._last_comparison = worked, by_numpy = thread_time(), site.numpy_seconds()
        self.check_at, self._is_rebuilding = self._regular_check, False
        self._next_comparison = now + max(MIN_RECHECK_SECONDS, RECHECK_GROWTH * (now - self._start))
        return not first and worked - before > MAX_WORK_RATIO * (by_numpy - numpy)

    def _is_losing(self, site: Any, now: float) -> bool:
        """Return whether tracing costs more than programs may save, judged by the blocks so far."""
        self.check_at = self._regular_check = now + CHECK_INTERVAL_SECONDS
        waiting = list(site.interim_replays)
        if not waiting or any(bound not in site.interim_replays for bound in site.bound_programs()):
            return False  # programs are running: they may make up for the time spent
        numpy = sum([each.numpy_seconds for each in waiting])
        others = sum([record.seconds for record in list(site.fallbacks.values())])
        saves = sum([max(each.best_seconds - each.program_seconds, 0.0) * each.count
                     for each in waiting if each.count])
        replayed = sum([each.best_seconds * each.count for each in waiting if each.count])
        most = MAX_COST_RATIO * (numpy + others) + CHECK_INTERVAL_SECONDS
        return now - self._start > most and saves < MIN_SAVED_RATIO * replayed
