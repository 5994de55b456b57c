"""Tables by which native code enters loop programs: which operands suit, where they go, what comes back.

A table is an array of words. `EntryWord` are its first words; then come records of `RECORD_WORDS` words each.
`jitla.loopjit` writes tables, the code of `jitla.codegen` that reads them is the same for all programs.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ENTRY_TABLE_NAMES", "MAX_ENTRY_ARRAYS", "MAX_ENTRY_AXES", "MAX_ENTRY_SEQUENCES",
    "MAX_ENTRY_STATE_WORDS", "RECORD_WORDS", "OBJECT_TAG", "UNDO", "EntryWord", "GuardRecord", "NumberCopy",
    "ObjectMaker", "OperandRecord", "ResultRecord",
]

RECORD_WORDS = 8
MAX_ENTRY_ARRAYS = 24  # among the operands
MAX_ENTRY_AXES = 24  # of an array
MAX_ENTRY_SEQUENCES = 15  # tuples and lists among the operands
MAX_ENTRY_STATE_WORDS = 1024
OBJECT_TAG = 2  # of array variables that are objects of Python's
UNDO = -(1 << 63)  # in the list of exits: iterations have to be undone


class EntryWord(IntEnum):
    """The first words of a table. Offsets are numbers of words from the begin of the table."""

    PROGRAM = 0  # address of the machine code
    STATE_WORDS = 1
    ARGUMENTS = 2  # number of arguments
    DISABLED = 3  # not zero: the program is not entered
    JUDGE_AT = 4  # runs at which a call goes to Python, which judges the program then
    RAISES = 5  # whether floating-point flags are read
    ENDLESS = 6  # whether it is a `while` loop
    BEGIN_WORD = 7  # of the state: first iteration, end of the iterations, position when it was left
    LIMIT_WORD = 8
    POSITION_WORD = 9
    ARENA_WORD = 10
    ARENA = 11  # address of free memory for temporary arrays; 0: it is in use, or not needed
    ARENA_BYTES = 12
    MAX_SAVED_BYTES = 13
    HOLD_NANOSECONDS = 14  # predicted for a run, up to which the interpreter lock is kept
    HOLD_BYTES = 15  # of operands, up to which it is kept
    MAX_NANOSECONDS = 16  # predicted for a run, from which it is Python that divides it into parts
    OPERANDS = 17  # offset of the records of operands, and their number
    OPERAND_COUNT = 18
    GUARDS = 19
    GUARD_COUNT = 20
    RESULTS = 21
    RESULT_COUNT = 22
    OVERLAPS = 23  # offset of a word for each array: bit k says that it overlaps with array k before it
    WRITTEN = 24  # offset of numbers of arrays that are saved before a run, and their number
    WRITTEN_COUNT = 25
    EXITS = 26  # offset of a word for each exit: the code that the function is given, or `UNDO`
    EXIT_COUNT = 27
    FALLBACK = 28  # called with the same arguments if the program is not entered
    FINISHED = 29  # the run that is returned when a loop has ended
    NOTHING = 30  # returned for a loop without iterations
    READ = 31  # called to read results that have no records: with code, state and arrays
    RESUME = 32  # called with the position to return the run of the other iterations of a `while` loop
    RUNS = 33  # counters
    ITERATIONS = 34
    NANOSECONDS = 35
    FAILURES = 36  # runs undone
    PACE_ITERATIONS = 37  # iterations, and the nanoseconds that they took, by which runs are predicted
    PACE_NANOSECONDS = 38
    ROLL_BACK = 39  # called to undo a run: with copies of arrays, end of the iterations, and arguments


class OperandRecord(IntEnum):
    """Kinds of records of operands: kind, number of the sequence, index in it, and five words more."""

    SAME = 0  # the object, `NumberCopy.TAG` or `NONE`, unused, word of the tag or -1, tag
    TYPE = 1  # the type
    SEQUENCE = 2  # type, number of items, number of the sequence, whether it is a list
    # dtype, axes + bits of axes with one element << 8 + flags << 32, word, word of the tag or -1, item size
    ARRAY = 3
    ITEMS = 4  # the same; the loop goes through it
    SCALAR = 5  # type, `NumberCopy`, word, word of the tag or -1, tag
    INT = 6  # bits + (not negative) << 8, `NumberCopy`, word, word of the tag or -1, tag
    BOOL = 7  # unused, `NumberCopy`, word, word of the tag or -1, tag
    CONSTANT = 8  # an int: its value
    MARK = 10  # a byte that is written: value, unused, word
    RANGE = 9  # arguments from here on, step, least (-1: negative, 2: more than 1), whether small, word or -1


class NumberCopy(IntEnum):
    """How a number is written to the state."""

    BYTE = 0
    BYTES_2 = 1
    BYTES_4 = 2
    BYTES_8 = 3
    BYTES_16 = 4
    INT_TO_FLOAT = 5  # exactly, else the program is not entered
    SINGLE_TO_FLOAT = 6
    FLOAT_TO_COMPLEX = 7
    INT_TO_COMPLEX = 8
    NONE = 9  # not at all
    TAG = 10  # only its tag


class GuardRecord(IntEnum):
    """Kinds of records of guards: kind, and up to four words."""

    NAME = 0  # dictionary, name, value or 0
    FUNCTION = 1  # function, code, defaults or 0, defaults by keyword or 0
    CELL = 2  # cell, value
    ITEM = 3  # list, index, item
    LENGTH = 4  # list, length
    CALL = 5  # callable that returns whether the guard holds


class ResultRecord(IntEnum):
    """Kinds of records of results: kind, word, word of the tag or -1, and words more."""

    SAME = 0  # unused, unused, object
    NUMBER = 1  # `ObjectMaker`, object
    TAGGED = 2  # offset of triples of tag, `ObjectMaker`, object; their number
    ARRAY = 3  # dtype, axes, whether writeable: an operand
    READ = 4  # by Python


class ObjectMaker(IntEnum):
    """How an object is made of the state."""

    SAME = 0  # the object
    INT = 1
    FLOAT = 2
    BOOL = 3
    COMPLEX = 4
    SCALAR = 5  # of the dtype that is the object
    INT_OF_FLOAT = 6
    BOOL_OF_FLOAT = 7
    SINGLE_OF_FLOAT = 8  # of the dtype that is the object


#: Values by the names that the text of the native code has for them.
ENTRY_TABLE_NAMES: dict[str, int] = {
    f"{prefix}_{member.name}": int(member)
    for prefix, kind in (("H", EntryWord), ("O", OperandRecord), ("C", NumberCopy), ("G", GuardRecord),
                         ("R", ResultRecord), ("M", ObjectMaker)) for member in kind
} | {"UNDO": UNDO, "MAX_ARRAYS": MAX_ENTRY_ARRAYS, "MAX_SEQUENCES": MAX_ENTRY_SEQUENCES}
