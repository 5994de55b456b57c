"""Loops of functions at run time: profiles, specialisations, and the runs that mix Python and compiled code.

A `LoopSite` is one loop of one function. For each combination of kinds of its operands it has a
`Specialisation`, which is compiled after Python has spent some time in it, checked against Python once, and
then used. A `LoopRun` is one execution of the loop: it hands out parts, done by Python or by compiled code.
"""

from __future__ import annotations

import ast
import ctypes
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from os import getpid
from threading import Event
from time import perf_counter
from types import FunctionType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.instrument import walk_tree
from jitla.introspection import hide_module
from jitla.loopjit import rollback
from jitla.loopjit.operands import arrays_in, key_of, kind_text, list_operand, overlap_groups
from jitla.loopjit.rewriting import (
    BEGIN,
    LIMIT,
    LOOP_BROKEN,
    LOOP_DONE,
    PART_DONE,
    POSITION,
    SEQUENCE,
    START,
    Unassigned,
)
from jitla.loopjit.sources import (
    MAX_ITERATIONS,
    Endless,
    Nested,
    Source,
    may_wait,
    plain_argument,
    source_of,
    source_of_call,
)

HOT_SECONDS = 2e-3  # of Python in a loop, after which it is compiled
COLD_SECONDS = 15e-3  # of Python in all loops before the first one is: it takes longer to load the compiler
FIRST_RUN_SECONDS = 0.1  # the same in the first run of a loop: a short first call is to take no longer for it
MAX_WAIT_SECONDS = 0.1  # that the runs of a loop wait for its compilation
CHECK_SECONDS = 5e-3  # of Python's iterations that are repeated by compiled code, to compare both
PYTHON_PART_SECONDS = 1e-3  # of the iterations that Python does at a time while the loop may be compiled
# of the iterations that compiled code does at a time: signals are handled between
COMPILED_PART_SECONDS = 20e-3
MAX_COMPILED_PART_SECONDS = 0.5  # the same where arrays are saved before each part
COPY_SHARE = 0.05  # of the time of a part, that saving arrays may take
COPY_BYTES_PER_SECOND = 5e9  # of arrays that are saved
MAX_SAVED_BYTES, MAX_CHECKED_BYTES = 1 << 30, 1 << 28  # of arrays that are saved, or compared
MIN_ARENA_BYTES, MAX_ARENA_BYTES = 1 << 20, 1 << 30  # of temporary arrays
MIN_TRACED_SECONDS = 3e-5  # of a statement over arrays, from which kernels are better than scalar code
JUDGED_RUNS = 16  # parts by compiled code, after which its time is compared with Python's
LOSS = "compiled code takes longer"
TOO_LARGE = "it changes arrays that are too large to be saved"
SHORT = "its runs are too short for entering compiled code to be worth it"
LARGE_ARRAYS = "its statements work on large arrays, for which there are kernels"
MIN_JUDGED_SECONDS = 2e-4  # of Python in the part that is checked, from which times are compared, too
MAX_LEFT_SECONDS = 1.0  # of a part that ``break`` or an exception has ended
MAX_SLOW_CHECKS = 3  # that take longer than Python, as first runs touch new memory, until code is given up
MAX_TRIALS = 8  # checks that could not be made, until code is used without one
MAX_SPECIALISATIONS = 8
MAX_FAILURES = 16  # parts undone, of which Python did most, until a specialisation is given up
SHORT_RUN_SECONDS = 15e-6  # of runs by Python on average, from which entering compiled code is worth it
COUNTED_RUNS = 64  # runs after which the average is believed
WIN = 0.95  # of Python's time that compiled code may take
_WORD = struct.Struct("=q")
NO_MEMORY = "no memory for a temporary array"  # the reason of exits for lack of memory in the arena


class State(Enum):
    """What a specialisation is at."""

    COLD = "cold"
    QUEUED = "queued"
    COMPILED = "compiled"  # to be checked
    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True)
class LoopCode:
    """Machine code of a loop, and how it is called.

    `enter` is called with the address of the state and returns the exit in 32 bits, flags above them.
    `exits` are kinds ("part", "final" or "undo"), lines and reasons by number. `write` writes variables to
    the state, `read` returns them. `terminals` are the numbers of statements that Python does, by exit.
    """

    enter: Callable[[int], int]
    size: int  # words of the state
    places: Mapping[str, int]  # words, by name
    arena: int  # the word of the begin of the arena
    exits: tuple[tuple[str, int, str], ...]
    terminals: Mapping[int, int]
    write: Callable[[bytearray, Sequence[Any]], None]
    read: Callable[[bytearray, Sequence[np.ndarray]], dict[str, Any]]
    owner: Any  # the machine code lives as long
    raises: bool = False  # whether floating-point flags may be set


class CompileJob:
    """The compilation of a loop, for which its runs wait.

    It is work of the interpreter, which one thread does at a time: a run that went on would take from the
    compilation the time that it does not wait. Runs wait for `MAX_WAIT_SECONDS` in all, and only for a
    compilation that is under way.
    """

    __slots__ = ("_is_running", "_done", "waited_seconds")

    def __init__(self) -> None:
        self._is_running = False
        self._done = Event()
        self.waited_seconds = 0.0

    def start(self) -> None:
        """Let runs wait."""
        self._is_running = True

    def finish(self) -> None:
        """Let runs go on."""
        self._done.set()

    def wait(self) -> None:
        """Wait for code that can be used."""
        remaining = MAX_WAIT_SECONDS - self.waited_seconds
        if self._is_running and remaining > 0.0 and not self._done.is_set():
            start = perf_counter()
            self._done.wait(remaining)
            self.waited_seconds += perf_counter() - start


@dataclass(eq=False)
class Specialisation:
    """A loop for one combination of kinds of its operands."""

    key: Any
    state: State = State.COLD
    reason: str = ""
    line: int = 0
    entries: int = 0  # runs of the loop that began with these kinds
    seconds: float = 0.0  # by Python
    iterations: int = 0
    compiled_seconds: float = 0.0
    compiled_iterations: int = 0
    runs: int = 0
    failures: int = 0
    successes: int = 0
    trials: int = 0
    failure: str = ""  # why an iteration was left to Python last
    code: LoopCode | None = None
    written: tuple[int, ...] = ()  # numbers of the arrays whose memory may be changed
    undo: bool = False  # whether iterations may have to be undone
    arena_bytes: int = 0
    arenas: list[np.ndarray] = field(default_factory=list)  # that are not in use
    states: list[tuple[bytearray, int]] = field(default_factory=list)  # of the program, with their addresses
    is_current: Callable[[], bool] = lambda: True
    process: int = 0  # that has it compiled: a fork does not inherit the thread of the compiler
    job: CompileJob = field(default_factory=lambda: CompileJob())
    slow_checks: int = 0  # of the code
    on_checked: Callable[[], None] = lambda: None  # called when it has passed its check
    is_quick: bool = False  # whether code was compiled without optimisation, and better code will follow
    judged_runs: int = JUDGED_RUNS  # runs after which the time of the code is compared with Python's
    earlier_code: tuple[float, int] = (0.0, 0)  # seconds and iterations of code that was replaced

    def replace_code(self, enter: Callable[[int], int], owner: Any) -> None:
        """Use better code of the same program, after a check; nothing may refer to the earlier code then."""
        if self.code is not None and self.state is not State.REFUSED:
            self.is_quick, self.trials, self.slow_checks = False, 0, 0
            self.judged_runs = self.runs + JUDGED_RUNS
            self.earlier_code = self.compiled_seconds, self.compiled_iterations
            self.code = replace(self.code, enter=enter, owner=owner)
            self.state = State.COMPILED

    def keep_quick_code(self, reason: str) -> None:
        """Go on without better code, which could not be compiled."""
        self.is_quick = False
        if self.state is State.QUEUED:
            self.refuse(reason)

    def lose(self) -> None:
        """Leave the loop to Python, as code takes longer; code without optimisation waits for better code."""
        if self.is_quick:
            self.state = State.QUEUED
        else:
            self.refuse(LOSS)

    def refuse(self, reason: str, line: int = 0) -> None:
        """Leave the loop to Python for these kinds."""
        self.state, self.reason, self.line = State.REFUSED, reason, line
        self.code = None
        self.states.clear()
        self.arenas.clear()

    def take_arena(self) -> np.ndarray | None:
        """Return memory for temporary arrays; None if the program has none."""
        if not self.arena_bytes:
            return None
        try:
            return self.arenas.pop()
        except IndexError:
            return np.empty(self.arena_bytes, np.uint8)

    def take_state(self, size: int) -> tuple[bytearray, int]:
        """Return memory for the state of the program, and its address."""
        try:
            return self.states.pop()
        except IndexError:
            state = bytearray(size)
            return state, ctypes.addressof(ctypes.c_char.from_buffer(state))

    def give_back(self, arena: np.ndarray | None, state: bytearray, address: int) -> None:
        """Take memory back that is no longer in use."""
        if arena is not None and arena.nbytes == self.arena_bytes:
            self.arenas.append(arena)
        self.states.append((state, address))

    def grow_arena(self) -> bool:
        """Provide more memory; return whether there is more."""
        if self.arena_bytes >= MAX_ARENA_BYTES:
            return False
        self.arena_bytes *= 8
        self.arenas.clear()
        return True

    def loses(self) -> bool:
        """Return whether iterations by compiled code take longer than by Python, all that it takes included.
        """
        seconds, iterations = self.earlier_code
        compiled = (self.compiled_seconds - seconds) / max(self.compiled_iterations - iterations, 1)
        return bool(self.iterations) and compiled > WIN * self.per_iteration()

    def per_iteration(self) -> float:
        """Return the seconds of an iteration by Python."""
        return self.seconds / self.iterations if self.iterations else 0.0


#: Has a loop compiled for operands like these, gone through like this source, sharing memory by these groups.
Request = Callable[["LoopSite", Specialisation, Sequence[Any], Source, tuple[int, ...]], None]


def names_read_by_item(loop: ast.AST) -> frozenset[str]:
    """Return the names that a loop only reads items of: lists with these names do not change in it."""
    items: set[int] = set()
    names: dict[str, list[int]] = {}
    for node in walk_tree(loop):
        match node:
            case ast.Subscript(value=ast.Name(), ctx=ast.Load()):
                items.add(id(node.value))
            case ast.For(iter=ast.Name()) if node is not loop:
                items.add(id(node.iter))
            case ast.Compare(comparators=others):
                items.update(id(other) for other in others)
            case ast.Call(func=ast.Name(id="len" | "enumerate" | "zip" | "sum" | "min" | "max"), args=args):
                items.update(map(id, args))
            case ast.Name(id=name):
                names.setdefault(name, []).append(id(node))
    return frozenset(name for name, places in names.items() if items.issuperset(places))


class LoopSite:
    """One loop of one function."""

    is_compiler_loaded = False
    seconds_before_compiler = 0.0  # of Python in functions with loops of this process, until it is loaded

    def __init__(
        self, node: ast.For | ast.While, function: FunctionType, names: tuple[str, ...], kept: frozenset[str],
        terminals: tuple[ast.stmt, ...],
        request: Request,
    ) -> None:
        self.node = node
        self.function = function
        self.names = names
        self.kept = kept
        self.terminals = terminals
        self.results = tuple(sorted(kept))
        self.lists = names_read_by_item(node) & frozenset(names)
        # Statements of an iteration, if there are no loops nor functions in it: their number is known then.
        space = function.__globals__
        self.statements = sum(isinstance(part, ast.stmt) for part in walk_tree(node)) - 1 if not any(
            isinstance(part, (ast.For, ast.While)) and part is not node
            or isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
            and isinstance(space.get(part.func.id), FunctionType)
            for part in walk_tree(node)) else MAX_ITERATIONS
        self.hot_seconds = HOT_SECONDS
        self.preview: Request | None = None  # asked about loops that are not hot, for explanations
        self.request = request
        self.specialisations: dict[Any, Specialisation] = {}
        self.disabled: tuple[int, str] | None = None  # line and reason why Python runs it for good
        self.on_give_up: Callable[[], None] = lambda: None
        self.inner_loops = False  # whether loops within this one may be compiled instead

    def is_hot(self, specialisation: Specialisation) -> bool:
        """Return whether Python has spent so much time in the loop that it is compiled."""
        if specialisation.seconds < self.hot_seconds:
            return False
        if LoopSite.is_compiler_loaded or not self.hot_seconds:
            return True
        is_first = specialisation.entries <= 1
        return LoopSite.seconds_before_compiler >= (FIRST_RUN_SECONDS if is_first else COLD_SECONDS)

    def give_up(self) -> None:
        """Leave the loop to Python for good, if it is refused for all kinds of operands so far."""
        found = list(self.specialisations.values())
        if found and all(x.state is State.REFUSED for x in found):
            self.disabled = found[-1].line or self.node.lineno, found[-1].reason
            self.inner_loops = not any(x.reason in (LOSS, SHORT, LARGE_ARRAYS) for x in found)
            self.on_give_up()

    def clear(self) -> None:
        """Discard profiles and compiled code, but for what is being compiled."""
        self.disabled = None
        self.specialisations = {key: x for key, x in self.specialisations.items() if x.state is State.QUEUED}

    def kinds(self, specialisation: Specialisation) -> str:
        """Return the kinds of operands as text."""
        if specialisation.key is None:
            return ""
        return ", ".join(f"{name} {kind_text(key)}" for name, key in zip(
            self.names, specialisation.key[2:], strict=True))

    # -- called by the rewritten function ----------------------------------------------------

    def begin_call(self, function: Any, *args: Any, **options: Any) -> Run:
        """Return the run of ``for ... in function(*args, **options)``."""
        source = None if self.disabled else source_of_call(function, args, options)
        if source is None:
            return PlainRun(function(*map(plain_argument, args), **options), False)
        return LoopRun(self, source)

    @staticmethod
    def field(value: Any, name: str) -> Any:
        """Return an attribute in the dictionary of an object; `Unassigned` where a read may do more."""
        kind = type(value)
        own: Any = kind.__getattribute__
        if own is not object.__getattribute__ or any(name in vars(base) for base in kind.__mro__):
            return Unassigned
        fields = getattr(value, "__dict__", None)
        return fields.get(name, Unassigned) if type(fields) is dict else Unassigned

    @staticmethod
    def nested(function: Any, *args: Any, **options: Any) -> Any:
        """Return a call among the arguments of `begin_call`, which is done there if its time may be observed.
        """
        return Nested(function, args, options) if may_wait(function, args) else function(
            *map(plain_argument, args), **options)

    def begin_over(self, iterable: Any) -> Run:
        """Return the run of ``for ... in iterable``."""
        source = None if self.disabled else source_of(iterable)
        return PlainRun(iterable, False) if source is None else LoopRun(self, source)

    def begin_while(self) -> Run:
        """Return the run of a ``while`` loop."""
        return PlainRun(_FOREVER, True) if self.disabled else LoopRun(self, _ENDLESS)

    def specialisation(self, key: Any) -> Specialisation | None:
        """Return the specialisation for a key; None if there are too many."""
        found = self.specialisations.get(key)
        if found is None:
            if len(self.specialisations) >= MAX_SPECIALISATIONS:
                return None
            found = self.specialisations[key] = Specialisation(key)
        return found


# --------------------------------------------------------------------------- runs


@dataclass(eq=False)
class _Check:
    """Results of compiled code for iterations that Python does next, to be compared with Python's."""

    specialisation: Specialisation
    results: dict[str, Any]
    saved: rollback.Saved
    after: list[np.ndarray]  # the arrays of `saved`, behind the iterations
    seconds: float
    end: int


@dataclass(eq=False)
class _Outcome:
    """Iterations that compiled code has done: the exit, the position behind them, results, seconds."""

    exit: int
    position: int
    results: dict[str, Any]
    seconds: float


_ENDLESS = Endless()
_FOREVER = range(MAX_ITERATIONS)


class PlainRun:
    """One execution of a loop by Python."""

    __slots__ = ("more", "part", "_is_while")

    def __init__(self, part: Iterable[Any], is_while: bool) -> None:
        self.more = True
        self.part = part
        self._is_while = is_while

    def run(self, values: tuple[Any, ...]) -> None:
        """Let Python do all iterations."""
        self.more = self._is_while

    def finish(self, done: int) -> None:
        """End a ``while`` loop, whose test has failed."""
        self.more = False


class LoopRun:
    """One execution of a loop; `part` is what Python goes through next, `more` whether to ask again."""

    __slots__ = ("site", "source", "more", "part", "_position", "_began", "_handed", "_size", "_check",
                 "_specialisation", "_retry", "_backoff", "_taken")

    def __init__(self, site: LoopSite, source: Source) -> None:
        self.site, self.source = site, source
        self.more = True
        self.part: Iterable[Any] = ()
        self._position = 0
        self._began = 0.0
        self._taken = 0.0  # seconds of the part that Python did last
        self._handed = 0  # iterations that Python was given last
        self._size = 1  # iterations that Python is given next
        self._check: _Check | None = None
        self._specialisation: Specialisation | None = None
        self._retry = 0  # position before which compiled code is not tried again
        self._backoff = 1  # iterations that Python does when compiled code has failed

    def __del__(self) -> None:
        """Add the part that Python did last to the profile, if the loop was left within it."""
        specialisation = getattr(self, "_specialisation", None)  # which an exception of a signal leaves out
        if specialisation is not None and self._handed:
            taken = perf_counter() - self._began
            if taken < MAX_LEFT_SECONDS:  # else a traceback has kept it
                specialisation.seconds += taken
                specialisation.iterations += not specialisation.iterations

    def finish(self, done: int) -> None:
        """End a ``while`` loop, whose test has failed after `done` iterations of the part."""
        self.more = False
        self._handed = done
        self._account()

    def run(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Do iterations by compiled code and return the variables, or set `part` to what Python does next."""
        source, site = self.source, self.site
        self._account()
        if site.lists:
            values = tuple(list_operand(value) if name in site.lists else value
                           for name, value in zip(site.names, values, strict=True))
        if self._check is not None:
            self._compare(self._check, values)
        if self._position >= source.length:
            self.more, self.part = False, ()
            return None
        arrays = [*arrays_in(values), *source.arrays]
        groups = overlap_groups(arrays)
        specialisation = site.specialisation((source.key, groups, *map(key_of, values)))
        self._specialisation = specialisation
        if specialisation is None:
            self._hand_out(source.length)
            return None
        state = specialisation.state
        if site.preview is not None and state is State.COLD:
            site.preview(site, specialisation, values, source, groups)
        specialisation.entries += not self._position
        if state is State.COLD and specialisation.entries == COUNTED_RUNS \
                and specialisation.seconds < SHORT_RUN_SECONDS * COUNTED_RUNS and site.hot_seconds:
            specialisation.refuse(SHORT)
            state = State.REFUSED
        if state is State.COLD and site.is_hot(specialisation):
            if specialisation.per_iteration() > MIN_TRACED_SECONDS * site.statements:
                specialisation.refuse(LARGE_ARRAYS)
            else:
                specialisation.state = state = State.QUEUED
        if state is State.QUEUED and specialisation.process != getpid():
            specialisation.job = CompileJob()
            site.request(site, specialisation, values, source, groups)
            specialisation.process = getpid()  # an exception of a signal before has it requested again
        if specialisation.state is State.QUEUED:
            specialisation.job.wait()
        state = specialisation.state
        try:
            if state is State.COMPILED:
                self._try(specialisation, values, arrays)
            elif state is State.READY and self._position >= self._retry and sys.gettrace() is None:
                found = self._execute(specialisation, values, arrays)
                if found is not None:
                    return found
        except MemoryError:  # before anything was done: arrays are saved first
            specialisation.refuse(TOO_LARGE)
        self._hand_out(self._part_end(specialisation))
        return None

    # -- parts done by Python -----------------------------------------------------------------

    def _account(self) -> None:
        """Add the part that Python did last to the profile."""
        handed, specialisation = self._handed, self._specialisation
        if not handed:
            return
        self._position += handed
        self._handed = 0
        if specialisation is not None:
            taken = self._taken = perf_counter() - self._began
            specialisation.seconds += taken
            if not LoopSite.is_compiler_loaded:
                LoopSite.seconds_before_compiler += taken
            specialisation.iterations += handed
            if taken < PYTHON_PART_SECONDS / 4:
                self._size = 4 * handed
            elif taken > 4 * PYTHON_PART_SECONDS:
                self._size = max(1, handed // 4)

    def _part_end(self, specialisation: Specialisation) -> int:
        """Return the position up to which Python goes next."""
        if specialisation.state is State.REFUSED:
            return MAX_ITERATIONS
        if self._check is not None:
            return self._check.end
        if self._retry > self._position:
            return self._retry
        per_iteration = specialisation.per_iteration()
        size = int(PYTHON_PART_SECONDS / per_iteration) if per_iteration else 0
        return self._position + max(1, size, self._size)

    def _hand_out(self, end: int) -> None:
        """Give Python the iterations up to `end`."""
        if end == MAX_ITERATIONS and self._specialisation is not None:
            self.site.give_up()
        end = min(end, self.source.length)
        self._handed = end - self._position
        self.part = self.source.part(self._position, end)
        self._began = perf_counter()

    # -- parts done by compiled code ----------------------------------------------------------

    def _execute(
        self, specialisation: Specialisation, values: tuple[Any, ...], arrays: list[np.ndarray],
    ) -> tuple[Any, ...] | None:
        """Run iterations by compiled code; None if Python has to do the next one."""
        began = perf_counter()
        nbytes = _saved_bytes(specialisation, arrays)
        if nbytes > MAX_SAVED_BYTES:
            specialisation.refuse(TOO_LARGE)
            return None
        end = min(self.source.length, self._position + self._compiled_size(specialisation, nbytes))
        outcome = self._iterate(specialisation, values, arrays, end)
        if outcome is None or outcome.position == self._position and outcome.exit == PART_DONE:
            self._fail(specialisation)
            return None
        specialisation.runs += 1
        specialisation.successes += 1
        specialisation.compiled_seconds += perf_counter() - began
        specialisation.compiled_iterations += outcome.position - self._position
        if specialisation.runs == specialisation.judged_runs and specialisation.loses():
            specialisation.lose()
        self._position, self._backoff, self.part = outcome.position, 1, ()
        code = outcome.exit
        if code not in (PART_DONE, LOOP_DONE, LOOP_BROKEN):
            assert specialisation.code is not None
            code = -1 - specialisation.code.terminals[code]
        if code == LOOP_DONE or code == PART_DONE and self._position >= self.source.length:
            self.more = False
        results = outcome.results
        return code, *[results.get(name, Unassigned) for name in self.site.results]

    @staticmethod
    def _compiled_size(specialisation: Specialisation, nbytes: int) -> int:
        """Return the number of iterations of a part by compiled code, before which `nbytes` are saved."""
        part = min(max(COMPILED_PART_SECONDS, nbytes / (COPY_SHARE * COPY_BYTES_PER_SECOND)),
                   MAX_COMPILED_PART_SECONDS)
        done, seconds = specialisation.compiled_iterations, specialisation.compiled_seconds
        per_iteration = seconds / done if done and seconds else specialisation.per_iteration()
        return max(1, int(part / per_iteration)) if per_iteration else 1

    def _fail(self, specialisation: Specialisation) -> None:
        """Let Python do some iterations, and give up code that fails often."""
        specialisation.failures += 1
        self._retry = self._position + self._backoff
        self._backoff *= 2
        if specialisation.failures >= MAX_FAILURES and 4 * specialisation.failures > specialisation.successes:
            specialisation.refuse(specialisation.failure or "Python has to do too many iterations")

    def _iterate(
        self, specialisation: Specialisation, values: tuple[Any, ...], arrays: list[np.ndarray], end: int,
        stops_before_final: bool = False,
    ) -> _Outcome | None:
        """Run the iterations up to `end` by compiled code, or fewer; None if not a single one can be done.

        Memory is as if Python had done these iterations. With `stops_before_final` an iteration that leaves
        the loop is not done.
        """
        code = specialisation.code
        if code is None or not specialisation.is_current():
            return None
        if code.raises and np.geterr()["under"] != "ignore":
            specialisation.failure = "NumPy is told to report underflow"
            return None
        saved = _saved(specialisation, arrays)
        while end > self._position:
            try:
                outcome = self._enter(code, specialisation, values, end, self.source.arrays)
            except OverflowError as error:  # an operand that its variable cannot hold
                specialisation.failure = str(error)
                return None
            kind, line, reason = code.exits[outcome.exit]
            flagged = outcome.flags and _is_reported(outcome.flags)
            if not flagged and (kind == "part" or kind == "final" and not stops_before_final):
                results = code.read(outcome.state, arrays)
                specialisation.give_back(outcome.arena, outcome.state, outcome.address)
                return _Outcome(outcome.exit, outcome.position, results, outcome.seconds)
            specialisation.give_back(outcome.arena, outcome.state, outcome.address)
            self._undo(code, specialisation, values, arrays, saved, end)
            if kind != "part":
                specialisation.failure = f"{reason} (line {line})"
                if reason == NO_MEMORY and specialisation.grow_arena():
                    continue
                end = outcome.position
            else:
                specialisation.failure = "floating-point warnings"
                end = self._position + (end - self._position) // 2
        return None

    def _undo(
        self, code: LoopCode, specialisation: Specialisation, values: tuple[Any, ...],
        arrays: list[np.ndarray], saved: rollback.Saved, end: int, wants_copies: bool = False,
    ) -> list[np.ndarray]:
        """Undo the iterations up to `end`; return copies of the arrays as they have left them, if wanted."""
        if saved and rollback.has_other_threads():
            def rerun(values: tuple[Any, ...], through: Sequence[np.ndarray]) -> None:
                entered = self._enter(code, specialisation, values, end, through)
                specialisation.give_back(entered.arena, entered.state, entered.address)

            return rollback.undo(saved, specialisation.written, values, arrays, self.source.arrays, rerun)
        after = [array.copy(order="K") for array, _ in saved] if wants_copies else []
        rollback.restore(saved)
        return after

    def _enter(
        self, code: LoopCode, specialisation: Specialisation, values: tuple[Any, ...], end: int,
        through: Sequence[np.ndarray],
    ) -> _Entered:
        """Run machine code once, from the present position."""
        places = code.places
        state, address = specialisation.take_state(8 * code.size)
        code.write(state, values)
        _WORD.pack_into(state, 8 * places[BEGIN], self._position)
        _WORD.pack_into(state, 8 * places[LIMIT], end)
        _write_source(self.source.starts, through, state, places)
        arena = specialisation.take_arena()
        if arena is not None:
            begin = arena.ctypes.data
            struct.pack_into("=2q", state, 8 * code.arena, begin, begin + arena.nbytes)
        began = perf_counter()
        word = code.enter(address)
        seconds = perf_counter() - began
        exit_number = word & 0xFFFFFFFF
        position = end if exit_number == PART_DONE else _WORD.unpack_from(state, 8 * places[POSITION])[0]
        return _Entered(exit_number, word >> 32, position, state, address, seconds, arena)

    # -- the check of new code ----------------------------------------------------------------

    def _try(self, specialisation: Specialisation, values: tuple[Any, ...], arrays: list[np.ndarray]) -> None:
        """Run new code for some iterations, and undo them: Python does them next."""
        if _saved_bytes(specialisation, arrays) > MAX_CHECKED_BYTES:
            specialisation.state = State.READY
            return
        per_iteration = specialisation.per_iteration()
        size = max(1, int(CHECK_SECONDS / per_iteration)) if per_iteration else 1
        end = min(self.source.length, self._position + size)
        saved = _saved(specialisation, arrays, always=True)
        outcome = self._iterate(specialisation, values, arrays, end, stops_before_final=True)
        specialisation.trials += 1
        if outcome is None:
            self._fail(specialisation)
            if specialisation.trials > MAX_TRIALS and specialisation.state is State.COMPILED:
                specialisation.state = State.READY  # the loop ends in its first iterations each time
            return
        assert specialisation.code is not None
        after = self._undo(specialisation.code, specialisation, values, arrays, saved, outcome.position, True)
        self._check = _Check(specialisation, outcome.results, saved, after, outcome.seconds, outcome.position)

    def _compare(self, check: _Check, values: tuple[Any, ...]) -> None:
        """Compare what Python has done with what compiled code did."""
        self._check, specialisation = None, check.specialisation
        if specialisation.state is not State.COMPILED or self._position != check.end:
            return
        for name, value in zip(self.site.names, values, strict=True):
            other = check.results.get(name, value)
            if not _same(value, other):
                specialisation.refuse(f"compiled code made {name} {other!r:.40}, Python {value!r:.40}")
                return
        for (array, before), after in zip(check.saved, check.after, strict=True):
            if _same_memory(array, after):
                continue
            changed = rollback.differs(before, after)
            if not rollback.has_other_threads() or not _same_memory(array[changed], after[changed]):
                specialisation.refuse("compiled code made another array than Python")
                return
            if specialisation.trials <= MAX_TRIALS:
                return  # another thread has changed other elements: it is checked again
        if self._taken > MIN_JUDGED_SECONDS and check.seconds > WIN * self._taken:
            specialisation.slow_checks += 1
            if specialisation.slow_checks == MAX_SLOW_CHECKS:
                specialisation.lose()
        else:
            specialisation.state = State.READY
            if not specialisation.is_quick:
                specialisation.on_checked()
                specialisation.on_checked = lambda: None


Run = PlainRun | LoopRun


@dataclass(eq=False)
class _Entered:
    """What machine code left: exit, flags, position, state."""

    exit: int
    flags: int
    position: int
    state: bytearray
    address: int
    seconds: float
    arena: Any


def _saved_bytes(specialisation: Specialisation, arrays: Sequence[np.ndarray]) -> int:
    """Return the bytes of the arrays that a program may change."""
    return sum(arrays[k].nbytes for k in specialisation.written)


def _saved(
    specialisation: Specialisation, arrays: Sequence[np.ndarray], always: bool = False,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the arrays that a program may change, each with a copy."""
    if not (always or specialisation.undo):
        return []
    return [(arrays[k], arrays[k].copy(order="K")) for k in specialisation.written
            if arrays[k].flags.writeable]


def _write_source(
    starts: Sequence[int], through: Sequence[np.ndarray], state: bytearray, places: Mapping[str, int],
) -> None:
    """Write what a loop goes through to the state: the begins of ranges, and arrays."""
    for k, start in enumerate(starts):
        place = places.get(f"{START}{k}")
        if place is not None:
            _WORD.pack_into(state, 8 * place, start)
    for k, array in enumerate(through):
        place = places.get(f"{SEQUENCE}{k}")
        if place is not None:
            struct.pack_into(f"={1 + 2 * array.ndim}q", state, 8 * place, array.ctypes.data, *array.shape,
                             *array.strides)


def _is_reported(flags: int) -> bool:
    """Return whether NumPy reports floating-point flags, as the program has set it."""
    modes: dict[str, object] = dict(np.geterr())
    return any(flags & bit and modes[name] != "ignore" for bit,
               name in ((1, "divide"), (2, "over"), (4, "invalid")))


def _same(a: Any, b: Any) -> bool:
    """Return whether two values are the same to every program."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is np.ndarray:
        return a.shape == b.shape and a.dtype == b.dtype and _same_memory(a, b)
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b or a != a and b != b) and str(a) == str(b)


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    if a.dtype.kind == "c":
        return _same_memory(a.real, b.real) and _same_memory(a.imag, b.imag)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b)))


hide_module(__name__)
