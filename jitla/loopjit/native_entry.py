"""Native entry of specialisations: tables by which native code enters a program without Python.

Entering a program by `LoopRun` takes Python about ten microseconds. `make_entry` writes down in a table
(`jitla.runtime.entry_table`) what a specialisation expects of its operands, where they go in the state, and
what the results are. A builtin over that table does all of it in well below a microsecond, and calls its
fallback, at last `LoopSite.begin`, for anything else: other kinds of operands, guards that do not hold,
iterations that have to be undone, long runs, which Python divides into parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit.operands import (
    CONSTANTS,
    LARGE_BITS,
    MAX_TUPLE,
    SMALL_BITS,
    ListItems,
    address_of,
    arrays_in,
    memory_bounds,
)
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
from jitla.loopjit.sources import Endless, Enumerated, Items, Range, Source, Zipped
from jitla.loopjit.specialisations import (
    EntryImpossible,
    LoopCode,
    NativeEntry,
    Specialisation,
    Surroundings,
)
from jitla.loopjit.state import is_of
from jitla.loopjit.values import (
    IS_OBJECT,
    IS_VIEW,
    KIND_OF_TYPE,
    KIND_TYPES,
    NONE,
    STORAGE,
    TAGS,
    UNBOUND,
    Abstract,
    Arr,
    Conflict,
    Num,
    StaticValue,
    Tup,
    Union,
)
from jitla.runtime.entry_table import (
    MAX_ENTRY_ARRAYS,
    MAX_ENTRY_AXES,
    MAX_ENTRY_SEQUENCES,
    MAX_ENTRY_STATE_WORDS,
    RECORD_WORDS,
    UNDO,
    EntryWord,
    GuardRecord,
    NumberCopy,
    ObjectMaker,
    OperandRecord,
    ResultRecord,
)

MAX_SAVED_BYTES = 1 << 20  # of arrays that are saved before a run; larger ones are saved by Python
HOLD_NANOSECONDS = 50_000  # predicted for a run, up to which the interpreter lock is kept
HOLD_BYTES = 1 << 18  # of operands, up to which it is kept
MAX_RUN_SECONDS = 20e-3  # predicted for a run; Python divides longer ones into parts
JUDGED_RUNS = 16  # by native entry, after which its time is compared with Python's

MISSING = object()  # the value of a name that is not there


class _Table:
    """Writes a table; `owned` are the objects that it refers to."""

    def __init__(self) -> None:
        self.words = [0] * len(EntryWord)
        self.owned: list[Any] = []

    def set(self, **words: int) -> None:
        """Write words of the header."""
        for name, value in words.items():
            self.words[EntryWord[name]] = value

    def address(self, thing: Any) -> int:
        """Return the address of an object, which the table keeps alive."""
        self.owned.append(thing)
        return id(thing)

    def add(self, words: Sequence[int]) -> int:
        """Append words; return their offset."""
        offset = len(self.words)
        self.words += words
        return offset

    def add_records(self, records: Sequence[Sequence[int]]) -> int:
        """Append records; return the offset of the first."""
        empty = (0,) * RECORD_WORDS
        return self.add([word for record in records for word in (*record, *empty[len(record):])])


class _Operands:
    """Writes the records of operands of one specialisation."""

    def __init__(self, table: _Table, places: Mapping[str, int]) -> None:
        self.records: list[tuple[int, ...]] = []
        self._table, self._places = table, places
        self._sequences = 0
        self.arrays = 0
        self._starts = 0
        self._gone_through = 0

    def add(self, kind: OperandRecord, place: tuple[int, int], *words: int) -> None:
        """Append a record."""
        self.records.append((kind, *place, *words))

    def value(self, value: Any, variable: Abstract | None, place: tuple[int, int]) -> None:
        """Append the records of a value like `value`, which is held in `variable`."""
        if isinstance(variable, Union):
            variable = self._option(value, variable, place)
        kind = type(value)
        if kind is np.ndarray:
            word, tag = -1, -1
            if isinstance(variable, Arr):
                word, tag = self._places[variable.view], self._tag_word(variable)
            elif not _is_unused(variable):
                raise EntryImpossible(f"an array in a variable for a {type(variable).__name__}")
            self.array(OperandRecord.ARRAY, value, place, word, tag)
        elif kind in (ListItems, tuple):
            self._items(value, variable, place)
        elif kind is int:
            if value.bit_length() > LARGE_BITS:
                raise EntryImpossible("an integer of more than 62 bits")
            bits = SMALL_BITS if value.bit_length() <= SMALL_BITS else LARGE_BITS
            self.add(OperandRecord.INT, place, bits + ((value >= 0) << 8), *self._copy(kind, variable))
        elif kind in KIND_OF_TYPE:
            record = OperandRecord.BOOL if kind is bool else OperandRecord.SCALAR
            self.add(record, place, self._table.address(kind), *self._copy(kind, variable))
        elif isinstance(value, CONSTANTS):
            tag = -1
            if value is None and isinstance(variable, Num):
                tag = self._tag_word(variable)
            elif not _is_unused(variable) and not isinstance(variable, StaticValue):
                raise EntryImpossible(f"a constant in a variable for a {type(variable).__name__}")
            self.add(OperandRecord.SAME, place, self._table.address(value),
                     NumberCopy.NONE if tag < 0 else NumberCopy.TAG, 0, tag, TAGS[NONE])
        elif _is_unused(variable):
            self.add(OperandRecord.TYPE, place, self._table.address(kind))
        else:
            raise EntryImpossible(f"a {kind.__name__} in a variable for a {type(variable).__name__}")

    def _option(self, value: Any, union: Union, place: tuple[int, int]) -> Abstract:
        """Append the record of the number of the option that a value is of, and return the option."""
        number = next((k for k, option in enumerate(union.options) if is_of(option, value)), None)
        if number is None or not isinstance(union.number, ir.Read):
            raise EntryImpossible(f"a {type(value).__name__} in a variable of other types")
        self.add(OperandRecord.MARK, place, number, 0, self._places[union.number.name])
        return union.options[number]

    def _items(self, value: tuple[Any, ...], variable: Abstract | None, place: tuple[int, int]) -> None:
        """Append the records of a tuple or list."""
        self._sequences += 1
        if len(value) > MAX_TUPLE or self._sequences > MAX_ENTRY_SEQUENCES:
            raise EntryImpossible("long tuples")
        number, is_list = self._sequences, type(value) is ListItems
        kind = list if is_list else tuple
        self.add(OperandRecord.SEQUENCE, place, self._table.address(kind), len(value), number, is_list)
        items: Sequence[Abstract | None] = [None] * len(value)
        if isinstance(variable, Tup) and len(variable.items) == len(value):
            items = variable.items
        elif not _is_unused(variable):
            raise EntryImpossible(f"a tuple in a variable for a {type(variable).__name__}")
        for k, (item, part) in enumerate(zip(value, items, strict=True)):
            self.value(item, part, (number, k))

    def array(
        self, kind: OperandRecord, array: np.ndarray, place: tuple[int, int], word: int, tag: int,
    ) -> None:
        """Append the record of an array."""
        self.arrays += 1
        if self.arrays > MAX_ENTRY_ARRAYS:
            raise EntryImpossible("many arrays")
        if array.ndim > MAX_ENTRY_AXES:
            raise EntryImpossible("many axes")
        flags = (array.flags.aligned << 8) + (array.flags.writeable << 10)
        single = sum((size == 1) << axis for axis, size in enumerate(array.shape))
        self.add(kind, place, self._table.address(array.dtype), array.ndim + (single << 8) + (flags << 32),
                 word, tag, array.dtype.itemsize)

    def _tag_word(self, variable: Num | Arr) -> int:
        return self._places[variable.tag.name] if isinstance(variable.tag, ir.Read) else -1

    def _copy(self, kind: type, variable: Abstract | None) -> tuple[int, int, int, int]:
        """Return how a number is written: `NumberCopy`, word, word of the tag, tag."""
        if _is_unused(variable):
            return NumberCopy.NONE, 0, -1, 0
        if not isinstance(variable, Num) or not isinstance(variable.value, ir.Read):
            raise EntryImpossible(f"a number in a variable for a {type(variable).__name__}")
        copy = _COPIES.get((_letter(STORAGE[KIND_OF_TYPE[kind]], kind), variable.value.dtype.str[1:]))
        if copy is None:
            raise EntryImpossible(f"a {kind.__name__} in a variable of {variable.value.dtype}")
        return copy, self._places[variable.value.name], self._tag_word(variable), TAGS[KIND_OF_TYPE[kind]]

    # -- sources --------------------------------------------------------------------------------

    def source(self, source: Source, arguments: Sequence[Any]) -> None:
        """Append the records of what a loop goes through, from the arguments of its `LoopSite.enter`."""
        if isinstance(source, Endless):
            return
        if len(arguments) == 1:
            self._leaf(source, arguments, 0)
            return
        function = arguments[0]
        self.add(OperandRecord.SAME, (0, 0), self._table.address(function), NumberCopy.NONE, 0, -1, 0)
        if isinstance(source, Range) and function is range:
            _, step, least, is_small, fits = source.key
            if not fits or not -1 << LARGE_BITS < step < 1 << LARGE_BITS:
                raise EntryImpossible("a range of large integers")
            word = self._places.get(f"{START}{self._starts}", -1)
            self._starts += 1
            self.add(OperandRecord.RANGE, (0, 1), len(arguments) - 1, step, least, is_small, word)
        elif isinstance(source, Enumerated) and function is enumerate:
            self._leaf(source.inner, arguments, 1)
            if len(arguments) > 2:
                if source.start.bit_length() > LARGE_BITS:
                    raise EntryImpossible("a large integer")
                self.add(OperandRecord.CONSTANT, (0, 2), source.start)
        elif isinstance(source, Zipped) and function is zip:
            for k, part in enumerate(source.parts, 1):
                self._leaf(part, arguments, k)
        else:
            raise EntryImpossible(f"a loop over {function}")

    def _leaf(self, source: Source, arguments: Sequence[Any], index: int) -> None:
        if not isinstance(source, Items) or source.array is not arguments[index]:
            raise EntryImpossible("what the loop goes through")
        word = self._places.get(f"{SEQUENCE}{self._gone_through}", -1)
        self._gone_through += 1
        self.array(OperandRecord.ITEMS, source.array, (0, index), word, -1)


def _is_unused(variable: Abstract | None) -> bool:
    """Return whether programs never read a variable."""
    return variable is None or isinstance(variable, Conflict)


def _letter(storage: np.dtype, kind: type) -> str:
    return kind.__name__ if kind in (int, bool) else storage.str[1:]


#: How numbers are written, by kind or dtype of the number and dtype of the variable.
_COPIES: dict[tuple[str, str], NumberCopy] = {
    ("int", "i8"): NumberCopy.BYTES_8, ("int", "f8"): NumberCopy.INT_TO_FLOAT,
    ("int", "c16"): NumberCopy.INT_TO_COMPLEX, ("bool", "b1"): NumberCopy.BYTE,
    ("bool", "i8"): NumberCopy.BYTES_8, ("bool", "f8"): NumberCopy.INT_TO_FLOAT,
    ("bool", "c16"): NumberCopy.INT_TO_COMPLEX, ("f4", "f8"): NumberCopy.SINGLE_TO_FLOAT,
    ("f8", "c16"): NumberCopy.FLOAT_TO_COMPLEX,
} | {(letter, letter): copy for letters, copy in (
    ("b1 i1 u1", NumberCopy.BYTE), ("i2 u2", NumberCopy.BYTES_2), ("i4 u4 f4", NumberCopy.BYTES_4),
    ("i8 u8 f8 c8", NumberCopy.BYTES_8), ("c16", NumberCopy.BYTES_16)) for letter in letters.split()}

_MAKERS = {
    ("int", "i8"): ObjectMaker.INT, ("int", "f8"): ObjectMaker.INT_OF_FLOAT,
    ("float", "f8"): ObjectMaker.FLOAT,
    ("float", "c16"): ObjectMaker.FLOAT, ("bool", "b1"): ObjectMaker.BOOL, ("bool", "i8"): ObjectMaker.BOOL,
    ("bool", "f8"): ObjectMaker.BOOL_OF_FLOAT, ("complex", "c16"): ObjectMaker.COMPLEX,
    ("f4", "f8"): ObjectMaker.SINGLE_OF_FLOAT, ("f8", "c16"): ObjectMaker.SCALAR,
    ("int", "c16"): ObjectMaker.INT_OF_FLOAT, ("bool", "c16"): ObjectMaker.BOOL_OF_FLOAT,
}


def _maker(kind: str, storage: np.dtype) -> tuple[ObjectMaker, Any] | None:
    """Return how an object of a kind is made of a variable, and of which object; None if only Python can."""
    if kind in (UNBOUND, NONE):
        return ObjectMaker.SAME, Unassigned if kind == UNBOUND else None
    letter = storage.str[1:]
    dtype = np.dtype(KIND_TYPES[kind])
    maker = _MAKERS.get((kind, letter))
    if maker is None and kind in ("int", "float", "bool", "complex"):
        return None
    # Integers of few bytes are the first bytes of those of many.
    if maker is None and (kind == letter or letter == "i8" and dtype.kind in "biu"):
        maker = ObjectMaker.SCALAR
    return None if maker is None else (maker, dtype)


def _result_record(table: _Table, value: Abstract | None, places: Mapping[str, int]) -> tuple[int, ...]:
    """Return the record of a result."""
    match value:
        case None:
            return ResultRecord.SAME, 0, -1, table.address(Unassigned)
        case StaticValue(thing):
            return ResultRecord.SAME, 0, -1, table.address(thing)
        case Num(kinds, ir.Read(name, dtype), tag):
            rows = []
            for kind in kinds:
                maker = _maker(kind, dtype)
                if maker is None:
                    return (ResultRecord.READ,)
                rows.append((TAGS[kind], maker[0], table.address(maker[1])))
            if not isinstance(tag, ir.Read):
                return ResultRecord.NUMBER, places[name], -1, *rows[0][1:]
            offset = table.add([word for row in rows for word in row])
            return ResultRecord.TAGGED, places[name], places[tag.name], offset, len(rows)
        case Arr(view, dtype, ndim, origins) if IS_OBJECT in origins or IS_VIEW not in origins:
            tag_word = places[value.tag.name] if isinstance(value.tag, ir.Read) else -1
            return (ResultRecord.ARRAY, places[view], tag_word, table.address(dtype), ndim, value.writeable)
    return (ResultRecord.READ,)


def _guard_record(table: _Table, guard: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the record of a guard of `NameResolver.guards`."""
    match guard:
        case (GuardRecord.NAME, space, name, value):
            return GuardRecord.NAME, table.address(space), table.address(name), \
                0 if value is MISSING else table.address(value)
        case (GuardRecord.FUNCTION, *things):
            return GuardRecord.FUNCTION, *(0 if thing is None else table.address(thing) for thing in things)
        case (GuardRecord.CELL, cell, value):
            return GuardRecord.CELL, table.address(cell), table.address(value)
        case (GuardRecord.ITEM, items, int(index), item):
            return GuardRecord.ITEM, table.address(items), index, table.address(item)
        case (GuardRecord.LENGTH, items, int(length)):
            return GuardRecord.LENGTH, table.address(items), length
        case (GuardRecord.CALL, function):
            return GuardRecord.CALL, table.address(function)
    raise AssertionError(guard)


def _overlap_masks(arrays: Sequence[np.ndarray]) -> list[int]:
    """Return for each array a mask of those before it whose memory overlaps with its memory."""
    bounds = [memory_bounds(array) for array in arrays]
    return [sum(1 << j for j in range(k) if bounds[j][0] < bounds[k][1] and bounds[k][0] < bounds[j][1])
            for k in range(len(arrays))]


def make_entry(
    site: Surroundings, specialisation: Specialisation, values: Sequence[Any], source: Source,
    arguments: Sequence[Any],
) -> NativeEntry:
    """Return the entry of a specialisation for operands like these.

    `arguments` are those of `LoopSite.enter` before the values, from which `source` was made. Raises
    `EntryImpossible`.
    """
    code = specialisation.code
    if code is None or not code.address or code.size > MAX_ENTRY_STATE_WORDS:
        raise EntryImpossible("no machine code")
    table, places = _Table(), code.places
    operands = _Operands(table, places)
    for k, (name, value) in enumerate(zip(site.names, values, strict=True), len(arguments)):
        operands.value(value, code.variables.get(name), (0, k))
    operands.source(source, arguments)
    arrays = [*arrays_in(values), *source.arrays]
    if operands.arrays != len(arrays):
        raise EntryImpossible("arrays in long tuples")
    results = [_result_record(table, code.results.get(name), places) for name in site.results]
    guards = [_guard_record(table, guard) for guard in code.guards]
    written = [k for k in specialisation.written if arrays[k].flags.writeable] if specialisation.undo else []

    def read(exit_code: int, state: bytes, arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
        found = code.read(state, arrays)
        return exit_code, *[found.get(name, Unassigned) for name in site.results]

    arena = specialisation.take_arena()
    per_iteration = specialisation.compiled_pace()
    endless = isinstance(source, Endless)
    table.set(
        PROGRAM=code.address, STATE_WORDS=code.size, ARGUMENTS=len(arguments) + len(values),
        JUDGE_AT=JUDGED_RUNS, RAISES=code.raises, ENDLESS=max(1, int(
            MAX_RUN_SECONDS / per_iteration) if per_iteration else 1) if endless else 0,
        BEGIN_WORD=places[BEGIN], LIMIT_WORD=places[LIMIT], POSITION_WORD=places.get(POSITION, places[BEGIN]),
        ARENA_WORD=code.arena, ARENA=0 if arena is None else address_of(arena),
        ARENA_BYTES=0 if arena is None else arena.nbytes,
        MAX_SAVED_BYTES=MAX_SAVED_BYTES, HOLD_NANOSECONDS=HOLD_NANOSECONDS, HOLD_BYTES=HOLD_BYTES,
        MAX_NANOSECONDS=int(MAX_RUN_SECONDS * 1e9),
        PACE_ITERATIONS=specialisation.compiled_iterations - specialisation.earlier_code[1],
        PACE_NANOSECONDS=int(specialisation.machine_seconds * 1e9),
        OPERANDS=table.add_records(operands.records), OPERAND_COUNT=len(operands.records),
        GUARDS=table.add_records(guards), GUARD_COUNT=len(guards), RESULTS=table.add_records(results),
        RESULT_COUNT=len(results), OVERLAPS=table.add(_overlap_masks(arrays)), WRITTEN=table.add(written),
        WRITTEN_COUNT=len(written), EXITS=table.add([_exit_code(code, k) for k in range(len(code.exits))]),
        EXIT_COUNT=len(code.exits), FALLBACK=table.address(site.fallback),
        FINISHED=table.address(site.finished),
        NOTHING=table.address(((PART_DONE, *[Unassigned] * len(results)), site.finished)),
        READ=table.address(read), RESUME=table.address(site.resume),
        ROLL_BACK=table.address(partial(site.roll_back, written)))
    owned = code.owner, arena, *table.owned
    return NativeEntry(np.array(table.words, np.int64), owned, specialisation.entry_address)


def _exit_code(code: LoopCode, number: int) -> int:
    """Return what the function is given for an exit: see `LoopRun.run`."""
    if code.exits[number][0] == "undo":
        return UNDO
    return number if number in (PART_DONE, LOOP_DONE, LOOP_BROKEN) else -1 - code.terminals[number] \
        if number in code.terminals else UNDO
