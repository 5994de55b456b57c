"""Which local variables may still be read after an instruction, and which loop it lies in.

Knows: bytecode of CPython 3.11 to 3.14. Must not know: frames, arrays, twins.
Receives a code object and an offset; returns names, or None where it cannot tell.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from jitla.source.percode import PerCode

__all__ = ["live_locals", "loop_of"]

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


@dataclass(frozen=True)
class Flow:
    """The instructions of a code object as a graph; everything is indexed by instruction."""

    names: tuple[str, ...]  # variables, one bit each
    always: int  # variables that other code can read: cells
    at: dict[int, int]  # byte offset to instruction
    offsets: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]  # what can run next
    handlers: tuple[tuple[int, ...], ...]  # what can run next if the instruction raises
    uses: tuple[int, ...]  # variables read before they are written
    kills: tuple[int, ...]
    polls: frozenset[int]  # backward jumps that wait for an awaitable: no loops of the program


@dataclass(frozen=True)
class Facts:
    """What is known about one code object."""

    flow: Flow
    live: tuple[int, ...]  # variables live after each instruction
    loops: tuple[tuple[int, int] | None, ...]
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
    if found is None and lasti in facts.flow.at:
        names, bits = facts.flow.names, facts.live[facts.flow.at[lasti]] | facts.flow.always
        found = frozenset(name for i, name in enumerate(names) if bits >> i & 1)
        facts.spelled[lasti] = found
    return found


def loop_of(code: CodeType, lasti: int) -> tuple[int, int] | None:
    """Innermost loop around the instruction at `lasti`: offsets of its first and last one."""
    facts = _facts(code)
    if facts is None:
        return None
    index = facts.flow.at.get(lasti)
    return None if index is None else facts.loops[index]


def _analyse(code: CodeType) -> Facts | None:
    if sys.version_info[:2] not in KNOWN_VERSIONS or not code.co_flags & 0x1:  # CO_OPTIMIZED
        return None
    if not FRAME_READERS.isdisjoint(code.co_names):
        return None
    flow = _flow(code)
    return None if flow is None else Facts(flow, _live(flow), _loops(flow), {})


_facts: PerCode[Facts | None] = PerCode(_analyse)


# -- the graph ---------------------------------------------------------------------------------


def _flow(code: CodeType) -> Flow | None:
    instructions = list(dis.get_instructions(code))
    names = tuple(dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars)))
    # in the order of the frame's slots
    bit = {name: 1 << i for i, name in enumerate(names)}
    at = _offsets(code, instructions)
    touches = [_touches(each, names, bit) for each in instructions]
    if any(each is None for each in touches):
        return None
    last = len(instructions) - 1
    after: list[tuple[int, ...]] = []
    polls = set[int]()
    for i, each in enumerate(instructions):
        follows = [] if each.opname in NEVER_FALL_THROUGH or i == last else [i + 1]
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            follows.append(at[each.argval])
            if each.opname == "JUMP_BACKWARD_NO_INTERRUPT":
                polls.add(i)
        after.append(tuple(follows))
    return Flow(
        names, _always(code, bit), at, tuple(each.offset for each in instructions), tuple(after),
        _handlers(code, instructions, at), tuple(each[0] for each in touches if each),
        tuple(each[1] for each in touches if each), frozenset(polls),
    )  # fmt: skip


def _offsets(code: CodeType, instructions: list[dis.Instruction]) -> dict[int, int]:
    # a suspended frame may point into the cache entries that follow its instruction
    at: dict[int, int] = {}
    ends = [each.offset for each in instructions[1:]] + [len(code.co_code)]
    for i, (each, end) in enumerate(zip(instructions, ends, strict=True)):
        at.update(dict.fromkeys(range(each.offset, end, 2), i))
    return at


def _touches(
    instruction: dis.Instruction, names: tuple[str, ...], bit: dict[str, int]
) -> tuple[int, int] | None:
    # bits read before they are written, and bits written; None for an unknown instruction
    name, arg = instruction.opname, instruction.arg or 0
    if name in TWO:
        actions = TWO[name]
        variables = [names[arg >> 4], names[arg & 15]]
    elif name in ONE:
        actions, variables = ONE[name], [instruction.argval]
    elif instruction.opcode in dis.haslocal or instruction.opcode in dis.hasfree:
        return None
    else:
        return 0, 0
    uses = kills = 0
    for action, variable in zip(actions, variables, strict=False):
        if action == "w":
            kills |= bit[variable]
        else:
            uses |= bit[variable] & ~kills
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


def _handlers(
    code: CodeType, instructions: list[dis.Instruction], at: dict[int, int]
) -> tuple[tuple[int, ...], ...]:
    handlers: list[tuple[int, ...]] = [()] * len(instructions)
    for start, end, target in _exception_table(code.co_exceptiontable):
        for i in range(at[start], at[end - 2] + 1):
            if instructions[i].opname not in SILENT:
                handlers[i] = (at[target],)
    return tuple(handlers)


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


def _live(flow: Flow) -> tuple[int, ...]:
    size = len(flow.offsets)
    live_in, live_out = [0] * size, [0] * size
    changed = True
    while changed:
        changed = False
        for i in reversed(range(size)):  # most values come from below
            raised = 0
            for j in flow.handlers[i]:
                raised |= live_in[j]
            out = raised
            for j in flow.after[i]:
                out |= live_in[j]
            # an instruction that raises has written nothing
            entering = out & ~flow.kills[i] | flow.uses[i] | raised
            changed |= out != live_out[i] or entering != live_in[i]
            live_in[i], live_out[i] = entering, out
    return tuple(live_out)


def _loops(flow: Flow) -> tuple[tuple[int, int] | None, ...]:
    size = len(flow.offsets)
    following = [[*flow.after[i], *flow.handlers[i]] for i in range(size)]
    before: list[list[int]] = [[] for _ in range(size)]
    for i in range(size):
        for j in following[i]:
            before[j].append(i)
    bodies: dict[int, set[int]] = {}
    ends: dict[int, int] = {}
    for i in range(size):
        for head in flow.after[i]:
            if head > i or i in flow.polls:
                continue
            # code moved out of line jumps backwards too: a loop is entered at its head only
            if i not in _reach([0], following, head):
                ends[head] = max(ends.get(head, 0), i)
                bodies.setdefault(head, {head}).update(_reach([i], before, head))
    loops: list[tuple[int, int] | None] = [None] * size
    # larger loops first, so that inner ones overwrite them
    for head in sorted(bodies, key=lambda h: -len(bodies[h])):
        bounds = flow.offsets[head], flow.offsets[ends[head]]
        for i in bodies[head]:
            loops[i] = bounds
    return tuple(loops)


def _reach(todo: list[int], edges: list[list[int]], stop: int) -> set[int]:
    # everything `edges` lead to, not going on behind `stop`
    found = set(todo)
    while todo:
        i = todo.pop()
        if i != stop:
            todo.extend(j for j in edges[i] if j not in found)
            found.update(edges[i])
    return found
