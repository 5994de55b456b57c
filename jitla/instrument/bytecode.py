"""Liveness analysis of local variables in bytecode, and a cache keyed by code objects."""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Generic, NamedTuple, TypeVar

__all__ = ["CodeCache", "live_locals"]


T = TypeVar("T")



class CodeCache(Generic[T]):
    """A cache keyed by the identity of a code object.

    Code objects compare by value and without their file name, so a dictionary keyed by them would
    confuse two equal functions of two files.
    """

    __slots__ = ("_compute", "_entries")

    def __init__(self, make: Callable[[CodeType], T]) -> None:
        self._compute = make
        self._entries: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def __call__(self, code: CodeType) -> T:
        """Return the entry of `code`, which the first call computes."""
        entry = self._entries.get(id(code))
        if entry is not None and entry[0]() is code:
            return entry[1]
        return self.put(code, self._compute(code))

    def get(self, code: CodeType) -> T | None:
        """Return the entry of `code`; None if it was not computed."""
        entry = self._entries.get(id(code))
        return entry[1] if entry is not None and entry[0]() is code else None

    def put(self, code: CodeType, fact: T) -> T:
        """Store `fact` for `code`, and return it."""
        facts, key = self._entries, id(code)

        def forget(ref: weakref.ref[CodeType]) -> None:
            # the identity may already belong to a younger code object
            entry = facts.get(key)
            if entry is not None and entry[0] is ref:
                del facts[key]

        facts[key] = (weakref.ref(code, forget), fact)
        return fact

    def __len__(self) -> int:
        return len(self._entries)


SUPPORTED_VERSIONS = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
# Names by which code reads the variables of a frame without an instruction that loads them.
FRAME_READERS = frozenset({
    "locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe", "f_locals", "f_back",
})  # fmt: skip
NEVER_FALL_THROUGH = frozenset({
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE", "RETURN_VALUE",
    "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT",
})  # fmt: skip
# Instructions that write a variable and cannot raise: they have no edge to an exception handler.
NON_RAISING_STORES = frozenset({"STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_DEREF"})
# Effects of instructions on one local variable, or on two in order: r reads, w writes (or deletes).
SINGLE_EFFECTS = {
    "LOAD_FAST": "r", "LOAD_FAST_CHECK": "r", "LOAD_FAST_BORROW": "r", "LOAD_FAST_AND_CLEAR": "r",
    "STORE_FAST": "w", "STORE_FAST_MAYBE_NULL": "w", "DELETE_FAST": "w",
    "LOAD_CLOSURE": "r", "LOAD_DEREF": "r", "LOAD_CLASSDEREF": "r", "LOAD_FROM_DICT_OR_DEREF": "r",
    "STORE_DEREF": "w", "DELETE_DEREF": "w", "MAKE_CELL": "",
    "COPY_FREE_VARS": "",
}  # fmt: skip
PAIR_EFFECTS = {
    "LOAD_FAST_LOAD_FAST": "rr",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "rr",
    "STORE_FAST_LOAD_FAST": "wr",
    "STORE_FAST_STORE_FAST": "ww",
}
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})




def _effects_of(name: str, opcode: int) -> str | None:
    if opcode in dis.haslocal or opcode in dis.hasfree:
        return PAIR_EFFECTS.get(name) or SINGLE_EFFECTS.get(name)
    return PAIR_EFFECTS.get(name) or SINGLE_EFFECTS.get(name, "")


# By opcode: its effects on local variables, None if unknown.
EFFECTS = [_effects_of(dis.opname[opcode], opcode) for opcode in range(256)]
PAIR_OPCODES = frozenset(dis.opmap[name] for name in PAIR_EFFECTS if name in dis.opmap)
# Bytes that one unit of the argument jumps. The argument of END_ASYNC_FOR, since 3.14, is for tracers only.
JUMP_SCALES = {
    opcode: -2 if "JUMP_BACKWARD" in dis.opname[opcode] else 2
    for opcode in (*dis.hasjrel, *dis.hasjabs) if dis.opname[opcode] != "END_ASYNC_FOR"
}
TERMINATORS = frozenset(dis.opmap[name] for name in NEVER_FALL_THROUGH if name in dis.opmap)
NON_RAISING_OPCODES = frozenset(dis.opmap[name] for name in NON_RAISING_STORES if name in dis.opmap)
CACHE, EXTENDED_ARG = dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"]


class ControlFlowGraph(NamedTuple):
    """Control-flow graph of a code object, indexed by instruction.

    The index `size` stands for no successor: nothing is live there.
    """

    names: tuple[str, ...]  # variables, one bit each
    always_live: int  # variables that other code can read: cells
    instruction_at: list[int]  # unit of bytecode to instruction: a suspended frame may point into its caches
    fallthroughs: list[int]  # the following instruction, if control can reach it
    jumps: list[int]  # the target of a jump
    handlers: list[int]  # the handler of an exception that the instruction raises
    uses: list[int]  # variables read before they are written
    kills: list[int]  # variables written


class Liveness(NamedTuple):
    """Live variables of one code object after each of its instructions."""

    graph: ControlFlowGraph
    live: list[int]  # variables live after each instruction, one bit each
    names_after: dict[int, frozenset[str]]  # memo: names live after the instruction at an offset


def live_locals(code: CodeType, lasti: int) -> frozenset[str] | None:
    """Return the local variables that are live after the instruction at offset `lasti`.

    None: the code cannot be analysed, so that every variable has to be taken as live. Cells and free
    variables are always live, unless only list, set and dict comprehensions read them.
    """
    facts = _liveness(code)
    if facts is None:
        return None
    names_live = facts.names_after.get(lasti)
    if names_live is None and 0 <= lasti < 2 * len(facts.graph.instruction_at) and not lasti & 1:
        graph = facts.graph
        names, bits = graph.names, facts.live[graph.instruction_at[lasti >> 1]] | graph.always_live
        names_live = frozenset(name for i, name in enumerate(names) if bits >> i & 1)
        facts.names_after[lasti] = names_live
    return names_live


def _analyse(code: CodeType) -> Liveness | None:
    if sys.version_info[:2] not in SUPPORTED_VERSIONS or not code.co_flags & 0x1:  # CO_OPTIMIZED
        return None
    if not FRAME_READERS.isdisjoint(code.co_names):
        return None
    graph = _build_graph(code)
    return None if graph is None else Liveness(graph, _solve_liveness(graph), {})


_liveness: CodeCache[Liveness | None] = CodeCache(_analyse)


# -- control-flow graph ------------------------------------------------------------------------


def _decode(raw: bytes) -> tuple[list[int], list[int], list[int]]:
    """Decode bytecode: return opcodes, arguments, and the instruction of every unit of two bytes."""
    opcodes: list[int] = []
    arguments: list[int] = []
    instruction_at: list[int] = []
    extended = 0
    for opcode, argument in zip(raw[::2], raw[1::2], strict=True):
        if opcode != CACHE:
            opcodes.append(opcode)
            arguments.append(extended | argument)
            extended = (extended | argument) << 8 if opcode == EXTENDED_ARG else 0
        instruction_at.append(len(opcodes) - 1)
    return opcodes, arguments, instruction_at


def _build_graph(code: CodeType) -> ControlFlowGraph | None:
    opcodes, arguments, instruction_at = _decode(code.co_code)
    names = tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))
    # in the order of the frame's slots
    size = len(opcodes)
    uses, kills, jumps = [0] * size, [0] * size, [size] * size
    fallthroughs = [size if opcode in TERMINATORS else i for i, opcode in enumerate(opcodes, 1)]
    for i, opcode in enumerate(opcodes):
        effects = EFFECTS[opcode]
        if effects is None:
            return None
        if effects:
            uses[i], kills[i] = _uses_and_kills(effects, arguments[i], opcode in PAIR_OPCODES)
        if opcode in JUMP_SCALES:
            jumps[i] = arguments[i] * JUMP_SCALES[opcode]
    for i, target in _jump_targets(opcodes, jumps, instruction_at):
        jumps[i] = target
    bit = {name: 1 << i for i, name in enumerate(names)}
    handlers = _exception_edges(code, opcodes, instruction_at)
    return ControlFlowGraph(
        names, _always_live(code, bit), instruction_at, fallthroughs, jumps, handlers, uses, kills)


def _jump_targets(
    opcodes: list[int], steps: list[int], instruction_at: list[int]
) -> Iterator[tuple[int, int]]:
    # a jump is relative to the end of its inline caches
    if JUMP_SCALES.keys().isdisjoint(opcodes):
        return
    ends = dict(zip(instruction_at, range(1, len(instruction_at) + 1), strict=True))
    for i, opcode in enumerate(opcodes):
        if opcode in JUMP_SCALES:
            yield i, instruction_at[ends[i] + steps[i] // 2]


def _uses_and_kills(effects: str, argument: int, pair: bool) -> tuple[int, int]:
    # return the variables read before they are written, and those written, as bits
    uses = kills = 0
    slots = (argument >> 4, argument & 15) if pair else (argument,)
    for effect, slot in zip(effects, slots, strict=True):
        if effect == "w":
            kills |= 1 << slot
        else:
            uses |= 1 << slot & ~kills
    return uses, kills


def _always_live(code: CodeType, bit: dict[str, int]) -> int:
    exposed = {*code.co_freevars, *(n for n in code.co_cellvars if _escapes(code, n))}
    return sum(bit[name] for name in exposed)


def _escapes(code: CodeType, name: str) -> bool:
    # a comprehension reads its cells immediately; any other code may run later
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and name in inner.co_freevars:
            if inner.co_name not in COMPREHENSIONS or _escapes(inner, name):
                return True
    return False


def _exception_edges(code: CodeType, opcodes: list[int], instruction_at: list[int]) -> list[int]:
    handlers = [len(opcodes)] * len(opcodes)
    for start, end, target in _exception_table(code.co_exceptiontable):
        for i in range(instruction_at[start >> 1], instruction_at[(end >> 1) - 1] + 1):
            if opcodes[i] not in NON_RAISING_OPCODES:
                handlers[i] = instruction_at[target >> 1]
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


# -- data-flow analysis ------------------------------------------------------------------------


def _solve_liveness(graph: ControlFlowGraph) -> list[int]:
    """Solve the backward data-flow equations of liveness by iterating to the fixed point."""
    size = len(graph.uses)
    live_in, live_out = [0] * (size + 1), [0] * size
    steps = list(zip(
        range(size), graph.fallthroughs, graph.jumps, graph.handlers, graph.uses, [~k for k in graph.kills],
        strict=True,
    ))[::-1]  # backwards, so that few passes are needed
    changed = True
    while changed:
        changed = False
        for i, fall, jump, handler, use, preserved in steps:
            raised = live_in[handler]
            out = live_in[fall] | live_in[jump] | raised
            # an instruction that raises has written nothing
            entering = out & preserved | use | raised
            if entering != live_in[i]:
                live_in[i] = entering
                changed = True
            live_out[i] = out
    return live_out
