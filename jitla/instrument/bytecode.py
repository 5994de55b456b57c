"""Facts about code objects: live variables, and caches keyed by code."""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Generic, NamedTuple, TypeVar

__all__ = ["PerCode", "live_locals"]


T = TypeVar("T")



class PerCode(Generic[T]):
    """A cache keyed by the identity of a code object.

    Code objects compare by value and without their file name, so a dictionary keyed by them would
    confuse two equal functions of two files.
    """

    __slots__ = ("_make", "_facts")

    def __init__(self, make: Callable[[CodeType], T]) -> None:
        self._make = make
        self._facts: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def __call__(self, code: CodeType) -> T:
        """Fact of `code`, computed at the first call."""
        entry = self._facts.get(id(code))
        if entry is not None and entry[0]() is code:
            return entry[1]
        return self.put(code, self._make(code))

    def get(self, code: CodeType) -> T | None:
        """Fact of `code` if it is known."""
        entry = self._facts.get(id(code))
        return entry[1] if entry is not None and entry[0]() is code else None

    def put(self, code: CodeType, fact: T) -> T:
        """Remember `fact` for `code`."""
        facts, key = self._facts, id(code)

        def forget(ref: weakref.ref[CodeType]) -> None:
            # the identity may already belong to a younger code object
            entry = facts.get(key)
            if entry is not None and entry[0] is ref:
                del facts[key]

        facts[key] = (weakref.ref(code, forget), fact)
        return fact

    def __len__(self) -> int:
        return len(self._facts)


KNOWN_VERSIONS = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
# Names of what reads the variables of a frame without an instruction that says so.
FRAME_READERS = frozenset({
    "locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "f_locals", "f_back",
})  # fmt: skip
NEVER_FALL_THROUGH = frozenset({
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "RETURN_VALUE",
    "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT",
})  # fmt: skip
# Instructions that write a variable and cannot raise: no edge leads from them to a handler.
SILENT = frozenset({"STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_DEREF"})
# What an instruction does with local variables, in order: r reads, w writes, d deletes.
ONE = {
    "LOAD_FAST": "r", "LOAD_FAST_CHECK": "r", "LOAD_FAST_BORROW": "r", "LOAD_FAST_AND_CLEAR": "r",
    "STORE_FAST": "w", "STORE_FAST_MAYBE_NULL": "w", "DELETE_FAST": "w",
    "LOAD_CLOSURE": "r", "LOAD_DEREF": "r", "LOAD_CLASSDEREF": "r", "LOAD_FROM_DICT_OR_DEREF": "r",
    "STORE_DEREF": "w", "DELETE_DEREF": "w", "MAKE_CELL": "",
    "COPY_FREE_VARS": "",
}  # fmt: skip
TWO = {
    "LOAD_FAST_LOAD_FAST": "rr",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "rr",
    "STORE_FAST_LOAD_FAST": "wr",
    "STORE_FAST_STORE_FAST": "ww",
}
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})




def _action(name: str, opcode: int) -> str | None:
    if opcode in dis.haslocal or opcode in dis.hasfree:
        return TWO.get(name) or ONE.get(name)
    return TWO.get(name) or ONE.get(name, "")


# By opcode: what it does with local variables, None if unknown; and how control goes on.
ACTIONS = [_action(dis.opname[opcode], opcode) for opcode in range(256)]
PAIRS = frozenset(dis.opmap[name] for name in TWO if name in dis.opmap)
# Since 3.14 END_ASYNC_FOR says, for tracers, where its loop is: it does not go there.
JUMPS = {
    opcode: -2 if "JUMP_BACKWARD" in dis.opname[opcode] else 2
    for opcode in (*dis.hasjrel, *dis.hasjabs) if dis.opname[opcode] != "END_ASYNC_FOR"
}
STOPS = frozenset(dis.opmap[name] for name in NEVER_FALL_THROUGH if name in dis.opmap)
SILENT_CODES = frozenset(dis.opmap[name] for name in SILENT if name in dis.opmap)
CACHE, EXTENDED_ARG = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]


class Flow(NamedTuple):
    """The instructions of a code object as a graph; everything is indexed by instruction.

    Instruction `size` stands for none: nothing is live there.
    """

    names: tuple[str, ...]  # variables, one bit each
    always: int  # variables that other code can read: cells
    at: list[int]  # unit of bytecode to instruction: a suspended frame may point into its caches
    falls: list[int]  # the instruction behind, if it can run next
    jumps: list[int]  # what else can run next
    handlers: list[int]  # what can run next if the instruction raises
    uses: list[int]  # variables read before they are written
    kills: list[int]


class Facts(NamedTuple):
    """What is known about one code object."""

    flow: Flow
    live: list[int]  # variables live after each instruction
    spelled: dict[int, frozenset[str]]  # names live after the instruction at an offset


def live_locals(code: CodeType, lasti: int) -> frozenset[str] | None:
    """Name the local variables that may be read after the instruction at `lasti` completes.

    None says that every variable has to be taken as live. Cells and free variables always are,
    unless only list, set and dict comprehensions read them.
    """
    facts = _facts(code)
    if facts is None:
        return None
    found = facts.spelled.get(lasti)
    if found is None and 0 <= lasti < 2 * len(facts.flow.at) and not lasti & 1:
        names, bits = facts.flow.names, facts.live[facts.flow.at[lasti >> 1]] | facts.flow.always
        found = frozenset(name for i, name in enumerate(names) if bits >> i & 1)
        facts.spelled[lasti] = found
    return found


def _analyse(code: CodeType) -> Facts | None:
    if sys.version_info[:2] not in KNOWN_VERSIONS or not code.co_flags & 0x1:  # CO_OPTIMIZED
        return None
    if not FRAME_READERS.isdisjoint(code.co_names):
        return None
    flow = _flow(code)
    return None if flow is None else Facts(flow, _live(flow), {})


_facts: PerCode[Facts | None] = PerCode(_analyse)


# -- the graph ---------------------------------------------------------------------------------


def _decoded(raw: bytes) -> tuple[list[int], list[int], list[int]]:
    """Return opcodes, arguments, and for every unit of bytecode the instruction it belongs to."""
    opcodes: list[int] = []
    arguments: list[int] = []
    at: list[int] = []
    extended = 0
    for opcode, argument in zip(raw[::2], raw[1::2], strict=True):
        if opcode != CACHE:
            opcodes.append(opcode)
            arguments.append(extended | argument)
            extended = (extended | argument) << 8 if opcode == EXTENDED_ARG else 0
        at.append(len(opcodes) - 1)
    return opcodes, arguments, at


def _flow(code: CodeType) -> Flow | None:
    opcodes, arguments, at = _decoded(code.co_code)
    names = tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))
    # in the order of the frame's slots
    size = len(opcodes)
    uses, kills, jumps = [0] * size, [0] * size, [size] * size
    falls = [size if opcode in STOPS else i for i, opcode in enumerate(opcodes, 1)]
    for i, opcode in enumerate(opcodes):
        actions = ACTIONS[opcode]
        if actions is None:
            return None
        if actions:
            uses[i], kills[i] = _touches(actions, arguments[i], opcode in PAIRS)
        if opcode in JUMPS:
            jumps[i] = arguments[i] * JUMPS[opcode]
    for i, target in _targets(opcodes, jumps, at):
        jumps[i] = target
    bit = {name: 1 << i for i, name in enumerate(names)}
    handlers = _handlers(code, opcodes, at)
    return Flow(names, _always(code, bit), at, falls, jumps, handlers, uses, kills)


def _targets(
    opcodes: list[int], steps: list[int], at: list[int]
) -> Iterator[tuple[int, int]]:
    # a jump counts from behind its caches
    if JUMPS.keys().isdisjoint(opcodes):
        return
    ends = dict(zip(at, range(1, len(at) + 1), strict=True))
    for i, opcode in enumerate(opcodes):
        if opcode in JUMPS:
            yield i, at[ends[i] + steps[i] // 2]


def _touches(actions: str, argument: int, pair: bool) -> tuple[int, int]:
    # bits read before they are written, and bits written
    uses = kills = 0
    slots = (argument >> 4, argument & 15) if pair else (argument,)
    for action, slot in zip(actions, slots, strict=True):
        if action == "w":
            kills |= 1 << slot
        else:
            uses |= 1 << slot & ~kills
    return uses, kills


def _always(code: CodeType, bit: dict[str, int]) -> int:
    shared = {*code.co_freevars, *(n for n in code.co_cellvars if _escapes(code, n))}
    return sum(bit[name] for name in shared)


def _escapes(code: CodeType, name: str) -> bool:
    # a comprehension reads its cells at once; any other code may do so later
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and name in inner.co_freevars:
            if inner.co_name not in COMPREHENSIONS or _escapes(inner, name):
                return True
    return False


def _handlers(code: CodeType, opcodes: list[int], at: list[int]) -> list[int]:
    handlers = [len(opcodes)] * len(opcodes)
    for start, end, target in _exception_table(code.co_exceptiontable):
        for i in range(at[start >> 1], at[(end >> 1) - 1] + 1):
            if opcodes[i] not in SILENT_CODES:
                handlers[i] = at[target >> 1]
    return handlers


def _exception_table(table: bytes) -> Iterator[tuple[int, int, int]]:
    # entries of four numbers in base 64, highest digit first: start, length, target, depth
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            numbers.append(value)
            value = 0
    for i in range(0, len(numbers), 4):
        start, length, target, _ = numbers[i : i + 4]
        yield start * 2, (start + length) * 2, target * 2


# -- what the graph says -------------------------------------------------------------------------


def _live(flow: Flow) -> list[int]:
    size = len(flow.uses)
    live_in, live_out = [0] * (size + 1), [0] * size
    steps = list(zip(
        range(size), flow.falls, flow.jumps, flow.handlers, flow.uses, [~k for k in flow.kills],
        strict=True,
    ))[::-1]  # most values come from below
    changed = True
    while changed:
        changed = False
        for i, fall, jump, handler, use, spared in steps:
            raised = live_in[handler]
            out = live_in[fall] | live_in[jump] | raised
            # an instruction that raises has written nothing
            entering = out & spared | use | raised
            if entering != live_in[i]:
                live_in[i] = entering
                changed = True
            live_out[i] = out
    return live_out
