"""Specialisations of loops: a loop for one combination of kinds of its operands, its profile and its code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from threading import Event
from time import perf_counter
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.list_memory import (
    MAX_HEAP_WORDS,
    MIN_HEAP_WORDS,
    ListCode,
    ListOperands,
    UnsupportedList,
    widest,
)
from jitla.loopjit.sources import MAX_ITERATIONS
from jitla.runtime.entry_table import EntryWord
from jitla.runtime.process import make_builtin

MIN_ARENA_BYTES, MAX_ARENA_BYTES = 1 << 20, 1 << 30  # of temporary arrays
CALL_NANOSECONDS = 400  # of the call of a native entry, beside the program that it measures
MAX_FAILURES = 16  # parts undone, of which Python did most, until a specialisation is given up
WIN = 0.95  # of Python's time that compiled code may take
JUDGED_RUNS = 16  # parts by compiled code, after which its time is compared with Python's
MAX_WAIT_SECONDS = 0.1  # that the runs of a loop wait for its compilation
LOSS = "compiled code takes longer"


def is_slower(seconds: float, plain: float) -> bool:
    """Return whether compiled code takes longer than Python, or gains next to nothing."""
    return seconds > WIN * plain


class State(Enum):
    """What a specialisation is at."""

    COLD = "cold"
    QUEUED = "queued"
    COMPILED = "compiled"  # to be checked
    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True)
class Surroundings:
    """What a native entry takes from its loop site: names of operands and of results, and what it calls."""

    names: tuple[str, ...]
    results: tuple[str, ...]
    fallback: Callable[..., Any]
    resume: Callable[[int], Any]  # the run of a `while` loop from an iteration on
    finished: Any  # the run of a loop that has ended
    roll_back: Callable[..., None]  # see `LoopSite.roll_back`


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
    read: Callable[..., dict[str, Any]]  # of the state, arrays, and the memory of lists
    owner: Any  # the machine code lives as long
    raises: bool = False  # whether floating-point flags may be set
    address: int = 0  # of the machine code, for native entry; 0 if it is not possible
    variables: Mapping[str, Any] = field(default_factory=dict)  # abstract values that `write` writes
    results: Mapping[str, Any] = field(default_factory=dict)  # abstract values that `read` reads
    guards: tuple[tuple[Any, ...], ...] = ()
    make_entry: Callable[..., NativeEntry] | None = None  # `native_entry.make_entry`
    lists: ListCode | None = None


class NativeEntry:
    """The native entry of one specialisation: its table, the objects that it refers to, and the builtin."""

    __slots__ = ("table", "function", "_owned", "_collected")

    def __init__(self, table: np.ndarray, owned: tuple[Any, ...], address: int) -> None:
        self.table = table
        self._owned = owned
        self._collected = [0, 0, 0]
        self.function: Callable[..., Any] = make_builtin(
            "enter", address, "enter(*operands): results, and the run of what is left of a loop",
            (table, owned))

    def collect(self) -> tuple[int, int, float]:
        """Return the runs, iterations and seconds since the last call."""
        words = [int(self.table[k]) for k in (EntryWord.RUNS, EntryWord.ITERATIONS, EntryWord.NANOSECONDS)]
        more = [now - before for now, before in zip(words, self._collected, strict=True)]
        self._collected = words
        return more[0], more[1], (more[2] + CALL_NANOSECONDS * more[0]) * 1e-9

    @property
    def seconds_per_iteration(self) -> float:
        """Of all runs so far; 0 if there were none."""
        runs, done, spent = (int(self.table[k]) for k in (
            EntryWord.RUNS, EntryWord.ITERATIONS, EntryWord.NANOSECONDS))
        return (spent + CALL_NANOSECONDS * runs) * 1e-9 / done if done else 0.0

    def is_due(self) -> bool:
        """Return whether its time is to be compared with Python's now; the next time is after more runs."""
        runs = int(self.table[EntryWord.RUNS])
        if runs < self.table[EntryWord.JUDGE_AT]:
            return False
        self.table[EntryWord.JUDGE_AT] = 16 * max(runs, 1)
        return True

    def is_disabled(self) -> bool:
        """Return whether all calls are left to the fallback."""
        return bool(self.table[EntryWord.DISABLED])

    def disable(self) -> None:
        """Leave all calls to the fallback."""
        self.table[EntryWord.DISABLED] = 1


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


class EntryImpossible(Exception):
    """A specialisation that only Python can enter: why."""


@dataclass(eq=False)
class Specialisation:
    """A loop for one combination of kinds of its operands."""

    key: Any
    state: State = State.COLD
    reason: str = ""
    line: int = 0
    entries: int = 0  # runs of the loop that began with these kinds
    samples: int = 0  # of them that were measured, as long as it is Python that runs them
    seconds: float = 0.0  # by Python
    iterations: int = 0
    overhead_seconds: float = 0.0  # of measuring that, and of what is done beside
    compiled_seconds: float = 0.0
    compiled_iterations: int = 0
    runs: int = 0
    runs_by_python: int = 0  # of them, those that Python has entered
    failures: int = 0
    successes: int = 0
    trials: int = 0
    failure: str = ""  # why an iteration was left to Python last
    reach: int = MAX_ITERATIONS  # iterations after which Python is expected to have to do one
    code: LoopCode | None = None
    written: tuple[int, ...] = ()  # numbers of the arrays whose memory may be changed
    undo: bool = False  # whether iterations may have to be undone
    arena_bytes: int = 0
    observed: dict[Any, Any] = field(default_factory=dict)  # types of items of lists among the operands
    pairs: frozenset[Any] = frozenset()  # lists among the operands that are one object
    widenings: int = 0
    heap_words: int = MIN_HEAP_WORDS  # of memory for lists
    arenas: list[np.ndarray] = field(default_factory=list)  # that are not in use
    states: list[tuple[bytearray, int]] = field(default_factory=list)  # of the program, with their addresses
    is_current: Callable[[], bool] = lambda: True
    process: int = 0  # that has it compiled: a fork does not inherit the thread of the compiler
    job: CompileJob = field(default_factory=lambda: CompileJob())
    slow_checks: int = 0  # of the code
    on_checked: Callable[[], None] = lambda: None  # called when it has passed its check
    is_quick: bool = False  # whether code was compiled without optimisation, and better code will follow
    judged_runs: int = JUDGED_RUNS  # by Python, after which the time of the code is compared with Python's
    earlier_code: tuple[float, int] = (0.0, 0)  # seconds and iterations of code that was replaced
    entry_address: int = 0  # of the code of native entry, once it is loaded
    entry: NativeEntry | None = None
    entry_refusal: str = ""  # why there is no native entry
    machine_seconds: float = 0.0  # of `compiled_seconds`, in machine code that Python entered

    def replace_code(self, enter: Callable[[int], int], owner: Any) -> None:
        """Use better code of the same program, after a check; nothing may refer to the earlier code then."""
        if self.code is not None and self.state is not State.REFUSED:
            self.drop_entry()
            self.is_quick, self.trials, self.slow_checks = False, 0, 0
            self.judged_runs = self.runs_by_python + JUDGED_RUNS
            self.earlier_code = self.compiled_seconds, self.compiled_iterations
            self.machine_seconds = 0.0
            self.code = replace(self.code, enter=enter, owner=owner, address=getattr(owner, "address", 0))
            self.state = State.COMPILED

    def keep_quick_code(self, reason: str) -> None:
        """Go on without better code, which could not be compiled."""
        self.is_quick = False
        if self.state is State.QUEUED:
            self.refuse(reason)

    def lose(self) -> None:
        """Leave the loop to Python, as code takes longer; code without optimisation waits for better code."""
        if self.is_quick:
            self.drop_entry()
            self.state = State.QUEUED
        else:
            self.refuse(LOSS)

    def refuse(self, reason: str, line: int = 0) -> None:
        """Leave the loop to Python for these kinds."""
        self.state, self.reason, self.line = State.REFUSED, reason, line
        self.drop_entry()
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
        self.drop_entry()  # its memory is too small
        return True

    def grow_heap(self) -> bool:
        """Provide more memory for lists; return whether there is more."""
        if self.heap_words >= MAX_HEAP_WORDS:
            return False
        self.heap_words *= 8
        return True

    def widen(self, operands: ListOperands) -> bool:
        """Note the types of items of lists; return whether programs have lists of what they were so far."""
        self.pairs = operands.pairs
        try:
            for path, observed in operands.observed.items():
                self.observed[path] = widest(self.observed.get(path, frozenset()), observed)
        except UnsupportedList:
            return False
        return True

    def drop_entry(self) -> None:
        """Have native entry provided anew."""
        self.collect()
        if self.entry is not None:
            self.entry.disable()
            self.entry = None

    def fails_often(self) -> bool:
        """Return whether Python has to do most iterations, or compiled code saves nothing for that reason."""
        if self.failures < MAX_FAILURES or 4 * self.failures <= self.successes:
            return False
        done = self.compiled_iterations
        return done < 4 * self.failures or self.compiled_seconds > WIN * self.per_iteration() * done

    def loses(self) -> bool:
        """Return whether iterations by compiled code take longer than by Python, all that it takes included.
        """
        seconds, iterations = self.earlier_code
        compiled = (self.compiled_seconds - seconds) / max(self.compiled_iterations - iterations, 1)
        if self.entry is not None and self.entry.seconds_per_iteration:
            compiled = self.entry.seconds_per_iteration
        return bool(self.iterations) and is_slower(compiled, self.per_iteration())

    def collect(self) -> None:
        """Add the runs by native entry since the last time to the profile."""
        if self.entry is not None:
            runs, iterations, seconds = self.entry.collect()
            self.entries += runs
            self.runs += runs
            self.successes += runs
            self.compiled_iterations += iterations
            self.compiled_seconds += seconds

    def compiled_pace(self) -> float:
        """Return the seconds that an iteration takes in machine code, or in Python if that is not known."""
        done = self.compiled_iterations - self.earlier_code[1]
        return self.machine_seconds / done if done and self.machine_seconds else self.per_iteration()

    def per_iteration(self) -> float:
        """Return the seconds of an iteration by Python."""
        return self.seconds / self.iterations if self.iterations else 0.0
