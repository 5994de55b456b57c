"""Loops of functions at run time: profiles, specialisations, and the runs that mix Python and compiled code.

A `LoopSite` is one loop of one function. For each combination of kinds of its operands it has a
`Specialisation`, which is compiled after Python has spent some time in it, checked against Python once, and
then used. A `LoopRun` is one execution of the loop: it hands out parts, done by Python or by compiled code.
"""

from __future__ import annotations

import ast
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import getpid
from time import perf_counter
from types import FunctionType
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.instrument import walk_tree
from jitla.introspection import hide_module
from jitla.loopjit import rollback
from jitla.loopjit.list_memory import (
    ListChanges,
    ListMemory,
    ListOperands,
    have_same_bits,
    list_operands,
    may_be_list,
)
from jitla.loopjit.list_types import HEAP, HEAP_END
from jitla.loopjit.liveness import names_read_by_item
from jitla.loopjit.objects import OpaqueField, stored_field
from jitla.loopjit.operands import arrays_in, key_of, kind_text, list_operand, overlap_groups
from jitla.loopjit.plain_runs import FINISHED, FOREVER, PlainRun, PlainWhile
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
from jitla.loopjit.specialisations import (
    LOSS,
    CompileJob,
    EntryImpossible,
    LoopCode,
    NativeEntry,
    Specialisation,
    State,
    Surroundings,
    is_slower,
)

HOT_SECONDS = 2e-3  # of Python in a loop, after which it is compiled
COLD_SECONDS = 15e-3  # of Python in all loops before the first one is: it takes longer to load the compiler
FIRST_RUN_SECONDS = 0.1  # the same in the first run of a loop: a short first call is to take no longer for it
CHECK_SECONDS = 5e-3  # of Python's iterations that are repeated by compiled code, to compare both
PYTHON_PART_SECONDS = 1e-3  # of the iterations that Python does at a time while the loop may be compiled
# of the iterations that compiled code does at a time: signals are handled between
COMPILED_PART_SECONDS = 20e-3
MAX_COMPILED_PART_SECONDS = 0.5  # the same where arrays are saved before each part
COPY_SHARE = 0.05  # of the time of a part, that saving arrays may take
COPY_BYTES_PER_SECOND = 5e9  # of arrays that are saved
MAX_SAVED_BYTES, MAX_CHECKED_BYTES = 1 << 30, 1 << 28  # of arrays that are saved, or compared
MIN_TRACED_SECONDS = 1e-3  # of a statement over arrays, from which kernels on several threads are better
SLOW_RUNS = 256  # more runs until the time of code is compared with Python's, if native entry is not loaded
TOO_LARGE = "it changes arrays that are too large to be saved"
SHORT = "its runs are too short for entering compiled code to be worth it"
LARGE_ARRAYS = "its statements work on large arrays, for which there are kernels"
MIN_JUDGED_SECONDS = 2e-4  # of Python in the part that is checked, from which times are compared, too
MAX_LEFT_SECONDS = 1.0  # of a part that ``break`` or an exception has ended
MAX_SLOW_CHECKS = 3  # that take longer than Python, as first runs touch new memory, until code is given up
MAX_TRIALS = 8  # checks that could not be made, until code is used without one
MAX_SPECIALISATIONS = 8
SHORT_RUN_SECONDS = 1.2e-6  # of runs by Python on average, from which native entry is worth it
SHORT_RUN_SECONDS_BY_PYTHON = 15e-6  # the same where only Python can enter compiled code
COUNTED_RUNS, COUNTED_SAMPLES = 64, 8  # runs, and those of them that are measured, that make an average
SAMPLED_SECONDS = 1e-4  # of Python in short runs, of which one is measured
MAX_SKIPPED = 200  # runs between two that are measured
_WORD = struct.Struct("=q")
NO_MEMORY = "no memory for a temporary array"  # the reason of exits for lack of memory in the arena
NO_LIST_MEMORY = "no memory for a list"  # the same of exits for lack of memory for lists
LIST_ITEM_BYTES = 256  # of arrays that take as long to save as an item of a list to read and to compare
MAX_WIDENINGS = 4  # times that a loop is compiled again, as lists have got items of other types


#: Has a loop compiled for operands like these, gone through like this source, sharing memory by these groups.
Request = Callable[["LoopSite", Specialisation, Sequence[Any], Source, tuple[int, ...]], None]


class LoopSite:
    """One loop of one function."""

    is_compiler_loaded = False
    seconds_before_compiler = 0.0  # of Python in functions with loops of this process, until it is loaded

    def __init__(
        self, node: ast.For | ast.While, function: FunctionType, names: tuple[str, ...], kept: frozenset[str],
        terminals: tuple[ast.stmt, ...], request: Request, source_arguments: int = -1,
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
        self.source_arguments = source_arguments  # of `enter` before variables; -1 if it is not called
        self.enter: Callable[..., Any] = self.begin  # by native entries, the latest first
        self._entries: list[NativeEntry] = []  # each is the fallback of the next
        self.has_native_entry = True  # whether native entries are made
        # Runs that Python does without measuring them; how many it has done since the last that was measured;
        # and the extent of operands up to which that holds.
        self._to_skip = self._skipped = self._skipped_extent = self._skipped_iterations = 0
        self.specialisations: dict[Any, Specialisation] = {}
        self.disabled: tuple[int, str] | None = None  # line and reason why Python runs it for good
        self.wanted_fields: dict[tuple[str, str], None] = {}  # attributes that called functions use, too
        self.local_functions: Mapping[str, ast.FunctionDef | ast.Lambda] = {}  # defined before the loop, once
        self.has_objects = False  # whether attributes of objects are operands that are assigned
        self.is_outdated = False  # whether a version with further attributes is to be made
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
        # Kinds that no run began with are met within runs, which Python does as a whole then.
        found = list(self.specialisations.values())
        found = [x for x in found if x.entries] or found
        if found and all(x.state is State.REFUSED for x in found):
            self.disabled = found[-1].line or self.node.lineno, found[-1].reason
            self.inner_loops = not any(x.reason in (LOSS, SHORT, LARGE_ARRAYS) for x in found)
            self.on_give_up()

    def clear(self) -> None:
        """Discard profiles and compiled code, but for what is being compiled."""
        self.disabled = None
        self.enter = self.begin
        self._entries.clear()
        self._to_skip = self._skipped = 0
        self.specialisations = {key: x for key, x in self.specialisations.items() if x.state is State.QUEUED}

    def kinds(self, specialisation: Specialisation) -> str:
        """Return the kinds of operands as text."""
        if specialisation.key is None:
            return ""
        return ", ".join(f"{name} {kind_text(key)}" for name, key in zip(
            self.names, specialisation.key[2:], strict=True))

    def add_entry(
        self, specialisation: Specialisation, values: Sequence[Any], source: Source, arguments: Sequence[Any],
    ) -> None:
        """Have calls with operands like these enter a program natively."""
        code = specialisation.code
        if code is None or code.make_entry is None:
            return
        while self._entries and self._entries[-1].is_disabled():
            self._entries.pop()
        fallback = self._entries[-1].function if self._entries else self.begin
        try:
            around = Surroundings(self.names, self.results, fallback, self.resume, FINISHED,
                                  partial(self.roll_back, specialisation))
            entry = code.make_entry(around, specialisation, values, source, arguments)
        except EntryImpossible as error:
            specialisation.entry_refusal = str(error)
            return
        self._entries.append(entry)
        specialisation.entry, self.enter = entry, entry.function

    # -- called by the rewritten function ----------------------------------------------------

    def begin(self, *operands: Any) -> tuple[None, Run]:
        """Begin a run by Python, with what the loop goes through and its variables; no iteration is done."""
        count, extent = self.source_arguments, _extent(operands)
        if self._to_skip > 0 and extent <= self._skipped_extent:
            self._to_skip -= 1
            self._skipped += 1
            if count > 1:
                return None, PlainRun(operands[0](*operands[1:count]), False)
            if count:
                return None, PlainRun(operands[0], False)
            return None, PlainWhile(self.resume, self._skipped_iterations)
        if not count:
            run = self.begin_while()
        elif count == 1:
            run = self.begin_over(operands[0])
        else:
            run = self.begin_call(*operands[:count])
        if type(run) is LoopRun:
            run.arguments, run.weight, run.extent = operands[:count], self._skipped + 1, extent
            self._to_skip = self._skipped = 0
        return None, run

    def skip(self, seconds: float, iterations: int, extent: int) -> None:
        """Let Python do the next runs at once, after one that took so long: measuring would take longer."""
        self._to_skip = min(MAX_SKIPPED, int(SAMPLED_SECONDS / max(seconds, 1e-9)))
        self._skipped_extent, self._skipped_iterations = 2 * extent, 4 * iterations

    def resume(self, position: int) -> LoopRun:
        """Return the run of a ``while`` loop from an iteration on."""
        run = LoopRun(self, _ENDLESS)
        run._position = position
        return run

    def roll_back(
        self, specialisation: Specialisation, written: Sequence[int], copies: bytes, end: int, *operands: Any,
    ) -> None:
        """Undo the iterations up to `end`, all of a run by native entry; `copies` are of the arrays before.

        The copies of arrays that are contiguous are of their memory, those of others are in C order.
        """
        code = specialisation.code
        count = self.source_arguments
        source = _ENDLESS if not count else source_of(operands[0]) if count == 1 else source_of_call(
            operands[0], operands[1:count])
        assert source is not None
        values = self._operands(operands[count:])
        arrays = [*arrays_in(values), *source.arrays]
        saved, offset = [], 0
        for array in (arrays[k] for k in written):
            order: Any = "C" if array.flags.c_contiguous or not array.flags.forc else "F"
            elements = np.frombuffer(copies, array.dtype, array.size, offset)
            saved.append((array, elements.reshape(array.shape, order=order)))
            offset += array.nbytes
        if code is None:  # refused by another thread meanwhile
            rollback.restore(saved)
        else:
            LoopRun(self, source)._undo(code, specialisation, values, arrays, saved, end)

    def _operands(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of variables as operands: lists that are only read by their items."""
        if not self.lists:
            return values
        return tuple(list_operand(value) if name in self.lists else value
                     for name, value in zip(self.names, values, strict=True))

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
    def stored_field(value: Any, name: str, *others: Any) -> Any:
        """Return an attribute that the loop may assign, of an object that is none of `others`."""
        return OpaqueField if any(value is other for other in others) else stored_field(
            value, name, Unassigned)

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
        return PlainRun(FOREVER, True) if self.disabled else LoopRun(self, _ENDLESS)

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
    lists: list[tuple[list[Any], list[Any]]]  # lists, and what they have to be


@dataclass(eq=False)
class _Outcome:
    """Iterations that compiled code has done: the exit, the position behind them, results, seconds."""

    exit: int
    position: int
    results: dict[str, Any]
    seconds: float
    changes: ListChanges | None


_ENDLESS = Endless()


class LoopRun:
    """One execution of a loop; `part` is what Python goes through next, `more` whether to ask again."""

    __slots__ = ("site", "source", "more", "part", "_position", "_began", "_handed", "_size", "_check",
                 "_specialisation", "_retry", "_backoff", "_taken", "_created", "_spent", "arguments",
                 "weight", "extent", "_lists")

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
        self._lists: ListOperands | None = None  # among the operands of this part
        self._retry = 0  # position before which compiled code is not tried again
        self._backoff = 1  # iterations that Python does when compiled code has failed
        self._created = perf_counter()
        self._spent = 0.0  # seconds by Python
        self.arguments: tuple[Any, ...] | None = None  # of `LoopSite.enter` before variables
        self.weight = 1  # runs that it stands for in the profile
        self.extent = 0  # of the arguments

    def __del__(self) -> None:
        """Add the part that Python did last to the profile, if the loop was left within it."""
        specialisation = getattr(self, "_specialisation", None)  # which an exception of a signal leaves out
        if specialisation is not None and self._handed:
            taken = perf_counter() - self._began
            if taken < MAX_LEFT_SECONDS:  # else a traceback has kept it
                specialisation.seconds += taken * self.weight
                specialisation.iterations += not specialisation.iterations
                self._spent += taken
                self._close()

    def finish(self, done: int) -> None:
        """End a ``while`` loop, whose test has failed after `done` iterations of the part."""
        self.more = False
        self._handed = done
        self._account()
        self._close()

    def run(self, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Do iterations by compiled code and return the variables, or set `part` to what Python does next."""
        source, site = self.source, self.site
        self._account()
        given, began = values, perf_counter()
        values = site._operands(values)
        if self._check is not None:
            self._compare(self._check, values)
        if self._position >= source.length:
            self.more, self.part = False, ()
            self._close()
            return None
        specialisation = self._specialisation
        if self._lists is not None and specialisation is not None and (
                specialisation.state is State.QUEUED or specialisation.state is State.COLD
                and specialisation.seconds < site.hot_seconds):  # lists are not looked through in each part
            self._hand_out(self._part_end(specialisation))
            return None
        arrays = [*arrays_in(values), *source.arrays]
        groups = overlap_groups(arrays)
        values, lists = self._lists_in(values, given)
        key = source.key if lists is None else (source.key, tuple(lists.observed), lists.pairs)
        specialisation = site.specialisation((key, groups, *map(key_of, values)))
        self._specialisation, self._lists = specialisation, lists
        if specialisation is None:
            self._hand_out(source.length)
            return None
        if lists is not None and not self._widen(specialisation, lists):
            self._hand_out(source.length)
            return None
        state = specialisation.state
        if site.preview is not None and state is State.COLD:
            site.preview(site, specialisation, values, source, groups)
        if not self._position:
            specialisation.entries += self.weight
            specialisation.samples += 1
        if specialisation.entry is not None:
            state = self._judge_entry(specialisation)
        if state is State.COLD and self._is_short(specialisation):
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
                found = self._execute(specialisation, values, arrays, began)
                if found is not None:
                    self._add_entry(specialisation, values)
                    return found
        except MemoryError:  # before anything was done: arrays are saved first
            specialisation.refuse(TOO_LARGE)
        self._hand_out(self._part_end(specialisation))
        return None

    def _lists_in(
        self, values: tuple[Any, ...], given: tuple[Any, ...],
    ) -> tuple[tuple[Any, ...], ListOperands | None]:
        """Return the operands, and the lists among them.

        Lists that are constants of a program (`ListItems`) must not be reached in another way.
        """
        sources = self.source.lists
        if not sources and not any(map(may_be_list, values)):
            return values, None
        names = self.site.names
        lists = list_operands(names, values, sources)
        if values is not given:
            reached = {id(value) for _, objects, _ in lists.bags for value in objects}
            if any(id(value) in reached for value, fixed in zip(given, values, strict=True)
                   if fixed is not value):
                values = given
                lists = list_operands(names, values, sources)
        return values, lists

    def _widen(self, specialisation: Specialisation, lists: ListOperands) -> bool:
        """Have the loop compiled again for lists with items of new types; return whether they have a program.
        """
        code = specialisation.code
        if code is not None and (code.lists is None or code.lists.fits(lists)):
            return True
        if not specialisation.widen(lists):
            return False
        if code is not None:
            specialisation.widenings += 1
            if specialisation.widenings > MAX_WIDENINGS:
                specialisation.refuse("lists get items of many types")
            else:
                specialisation.state, specialisation.code = State.COLD, None
                self._check = None
        return True

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
            self._spent += taken
            specialisation.seconds += taken * self.weight
            if not LoopSite.is_compiler_loaded:
                LoopSite.seconds_before_compiler += taken * self.weight
            specialisation.iterations += handed * self.weight
            if taken < PYTHON_PART_SECONDS / 4:
                self._size = 4 * handed
            elif taken > 4 * PYTHON_PART_SECONDS:
                self._size = max(1, handed // 4)

    def _is_short(self, specialisation: Specialisation) -> bool:
        """Return whether runs are so short that entering compiled code takes longer."""
        runs = specialisation.entries
        least = SHORT_RUN_SECONDS if self.arguments is not None else SHORT_RUN_SECONDS_BY_PYTHON
        return bool(self.site.hot_seconds) and not self._position and runs >= COUNTED_RUNS \
            and specialisation.samples >= COUNTED_SAMPLES and specialisation.seconds < least * runs

    def _close(self) -> None:
        """Have runs like this one done without measuring them, if they are short and not entered soon."""
        specialisation = self._specialisation
        if specialisation is not None and specialisation.state is not State.READY:
            specialisation.overhead_seconds += perf_counter() - self._created - self._spent
        if self.arguments is None or self._spent >= SAMPLED_SECONDS or specialisation is not None and (
                specialisation.state is State.COMPILED or specialisation.state is State.READY
                and (specialisation.entry_address or not self._waits_for_entry(specialisation))):
            return
        if self._spent and self.site.hot_seconds:
            self.site.skip(self._spent, self._position, self.extent)

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
        self, specialisation: Specialisation, values: tuple[Any, ...], arrays: list[np.ndarray], began: float,
    ) -> tuple[Any, ...] | None:
        """Run iterations by compiled code; None if Python has to do the next one.

        The run `began` when its operands were looked at, which takes long for lists.
        """
        code = specialisation.code  # which may be given up below, and by other threads
        nbytes = _saved_bytes(specialisation, arrays)
        if nbytes > MAX_SAVED_BYTES:
            specialisation.refuse(TOO_LARGE)
            return None
        if self._lists is not None:
            nbytes += LIST_ITEM_BYTES * self._lists.items
        end = min(self.source.length, self._position + self._compiled_size(specialisation, nbytes))
        outcome = self._iterate(specialisation, values, arrays, end)
        if code is None or outcome is None \
                or outcome.position == self._position and outcome.exit == PART_DONE:
            self._fail(specialisation)
            return None
        if outcome.changes is not None:
            outcome.changes.commit()  # before the length of the source is asked for
        specialisation.runs += 1
        specialisation.successes += 1
        specialisation.compiled_seconds += perf_counter() - began
        specialisation.compiled_iterations += outcome.position - self._position
        specialisation.machine_seconds += outcome.seconds
        specialisation.runs_by_python += 1
        judged = specialisation.judged_runs + (SLOW_RUNS if self._waits_for_entry(specialisation) else 0)
        if specialisation.runs_by_python == judged and specialisation.loses():
            specialisation.lose()
        self._position, self._backoff, self.part = outcome.position, 1, ()
        ended = outcome.exit
        if ended not in (PART_DONE, LOOP_DONE, LOOP_BROKEN):
            ended = -1 - code.terminals[ended]
        if ended == LOOP_DONE or ended == PART_DONE and self._position >= self.source.length:
            self.more = False
        results = outcome.results
        return ended, *[results.get(name, Unassigned) for name in self.site.results]

    def _waits_for_entry(self, specialisation: Specialisation) -> bool:
        """Return whether runs are to be faster by native entry."""
        return specialisation.entry is None and not specialisation.entry_refusal \
            and self.arguments is not None and self.site.has_native_entry

    def _add_entry(self, specialisation: Specialisation, values: tuple[Any, ...]) -> None:
        """Provide native entry, after a run by compiled code."""
        if specialisation.entry_address and self.arguments is not None \
                and self._waits_for_entry(specialisation):
            self.site.add_entry(specialisation, values, self.source, self.arguments)

    @staticmethod
    def _judge_entry(specialisation: Specialisation) -> State:
        """Give up code that loses time, now and then; return the state."""
        assert specialisation.entry is not None
        if specialisation.state is State.READY and specialisation.entry.is_due():
            specialisation.collect()
            if specialisation.loses():
                specialisation.lose()
        return specialisation.state

    @staticmethod
    def _compiled_size(specialisation: Specialisation, nbytes: int) -> int:
        """Return the number of iterations of a part by compiled code, before which `nbytes` are saved."""
        part = min(max(COMPILED_PART_SECONDS, nbytes / (COPY_SHARE * COPY_BYTES_PER_SECOND)),
                   MAX_COMPILED_PART_SECONDS)
        done, seconds = specialisation.compiled_iterations, specialisation.compiled_seconds
        per_iteration = seconds / done if done and seconds else specialisation.per_iteration()
        if specialisation.code is not None and specialisation.code.lists is not None:
            per_iteration = specialisation.compiled_pace()  # reading lists does not depend on the iterations
        size = max(1, int(part / per_iteration)) if per_iteration else 1
        return min(size, specialisation.reach)

    def _fail(self, specialisation: Specialisation) -> None:
        """Let Python do some iterations, and give up code that fails often."""
        specialisation.failures += 1
        self._retry = self._position + self._backoff
        self._backoff *= 2
        specialisation.reach = max(1, specialisation.reach // 2)
        if specialisation.fails_often():
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
        began = perf_counter()
        saved = _saved(specialisation, arrays)
        while end > self._position:
            try:
                outcome = self._enter(code, specialisation, values, end, self.source.arrays)
            except OverflowError as error:  # an operand that its variable cannot hold
                specialisation.failure = str(error)
                return None
            kind, line, reason = code.exits[outcome.exit]
            flagged = outcome.flags and _is_reported(outcome.flags)
            memory = outcome.memory
            if not flagged and (kind == "part" or kind == "final" and not stops_before_final) and (
                    memory is None or memory.is_current()):
                changes = None if memory is None else memory.changes()
                results = code.read(outcome.state, arrays, memory)
                specialisation.give_back(outcome.arena, outcome.state, outcome.address)
                if outcome.position - self._position >= specialisation.reach:
                    specialisation.reach *= 2
                return _Outcome(outcome.exit, outcome.position, results, outcome.seconds, changes)
            specialisation.give_back(outcome.arena, outcome.state, outcome.address)
            self._undo(code, specialisation, values, arrays, saved, end)
            if memory is not None and not memory.is_current():
                specialisation.failure = "another thread has changed a list"
                return None
            if kind != "part":
                specialisation.failure = f"{reason} (line {line})"
                if reason == NO_MEMORY and specialisation.grow_arena() or (
                        reason == NO_LIST_MEMORY and specialisation.grow_heap()):
                    continue
                end = outcome.position
                specialisation.reach = end - self._position or specialisation.reach
            else:
                specialisation.failure = "floating-point warnings"
                end = self._position + (end - self._position) // 2
        if not stops_before_final:
            specialisation.compiled_seconds += perf_counter() - began
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
        memory = None if code.lists is None else code.lists.memory(self._lists, specialisation.heap_words)
        if memory is not None:
            values = tuple(map(memory.replace_lists, values))
        state, address = specialisation.take_state(8 * code.size)
        code.write(state, values)
        if memory is not None:
            _write_lists(memory, self.source.lists, state, places)
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
        return _Entered(exit_number, word >> 32, position, state, address, seconds, arena, memory)

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
        self._check = _Check(specialisation, outcome.results, saved, after, outcome.seconds, outcome.position,
                             outcome.changes.expected() if outcome.changes is not None else [])

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
        for target, expected in check.lists:
            if not _same(target, expected):
                specialisation.refuse(f"compiled code made {expected!r:.40}, Python {target!r:.40}")
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
        if self._taken > MIN_JUDGED_SECONDS and is_slower(check.seconds, self._taken):
            specialisation.slow_checks += 1
            if specialisation.slow_checks == MAX_SLOW_CHECKS:
                specialisation.lose()
        else:
            specialisation.state = State.READY
            if not specialisation.is_quick:
                specialisation.on_checked()
                specialisation.on_checked = lambda: None


Run = PlainRun | PlainWhile | LoopRun


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
    memory: ListMemory | None


def _extent(operands: Sequence[Any]) -> int:
    """Return a number that grows with the time of a run: sizes of arrays, and integers."""
    extent = 0
    for value in operands:
        kind = type(value)
        if kind is np.ndarray:
            extent += value.size
        elif kind is int:
            extent += abs(value)
        elif isinstance(value, (list, tuple, np.integer)):
            extent += abs(int(value)) if isinstance(value, np.integer) else len(value)
    return extent


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


def _write_lists(memory: ListMemory, sources: Sequence[list[Any]], state: bytearray,
                 places: Mapping[str, int]) -> None:
    """Write the lists that a loop goes through, and the ends of the memory for new lists, to the state."""
    for k, values in enumerate(sources):
        place = places.get(f"{SEQUENCE}.list{k}")
        if place is not None:
            _WORD.pack_into(state, 8 * place, memory.handles[id(values)])
    for name, address in zip((HEAP, HEAP_END), memory.heap, strict=True):
        place = places.get(name)
        if place is not None:
            _WORD.pack_into(state, 8 * place, address)


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
    if type(a) in (tuple, list):
        return len(a) == len(b) and (have_same_bits(a, b) or all(map(_same, a, b)))
    return bool(a == b or a != a and b != b) and str(a) == str(b)


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    if a.dtype.kind == "c":
        return _same_memory(a.real, b.real) and _same_memory(a.imag, b.imag)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b)))


hide_module(__name__)
