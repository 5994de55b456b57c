"""Guards of compiled blocks, the recompilation log, and scalars that are compiled as literals.

When a block has no plan, it is compared with the last block of the same place; the first difference is the
guard that failed, which `recompilations` reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from opcode import opmap
from time import time
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jitla.compile_stats import CompileStats, Reason
from jitla.hops import Shape
from jitla.instrument import CodeCache
from jitla.tracing.tape import CODE_KIND, KIND_CODE, LAYOUTS, LEAF, OPS, SCALAR, Block, split_entry


class PlanGuard(NamedTuple):
    """A condition on which a plan depends: its subject, the expected and the actual value.

    `name` is "dtype", "rank", "layout", "identity" (which arrays are the same), "shape class", "sparsity",
    "size", "scalar kind", "scalar value", "attribute", "overlap", "live values", "operations", "options",
    "magnitude", "proportions" or "order of products"; nothing failed for what is "new".
    """

    name: str
    where: str = ""
    expected: str = ""
    seen: str = ""

    def __str__(self) -> str:
        change = f": {self.expected} -> {self.seen}" if self.expected or self.seen else ""
        return f"{self.name}{' of ' + self.where if self.where else ''}{change}"


NEW = PlanGuard("new")


class Leaf(NamedTuple):
    """Dtype, shape and layout class of an array that a block reads."""

    dtype: str
    shape: Shape
    group: tuple


class BlockRecord(NamedTuple):
    """The properties of a block that guards depend on; `outputs` are its roots, stores and overlaps."""

    entries: tuple[Any, ...]
    leaves: tuple[Leaf, ...]
    outputs: tuple[Any, ...]
    key: tuple
    epoch: int


def record_of(block: Block, outputs: tuple[Any, ...], key: tuple, epoch: int) -> BlockRecord:
    """Return the record of a block whose roots, stores and overlaps are `outputs`."""
    layouts = [LAYOUTS[e[1]] for e in block.entries if e[0] == LEAF]
    dtypes = [block.leaves[k].dtype.name for k in range(len(layouts))]
    leaves = tuple(Leaf(d, x.shape, x.group) for d, x in zip(dtypes, layouts, strict=True))
    entries = tuple((LEAF,) if e[0] == LEAF else e for e in block.entries)
    return BlockRecord(entries, leaves, outputs, key, epoch)


def failed_guard(before: BlockRecord, now: BlockRecord, sparse: frozenset[int] = frozenset()) -> PlanGuard:
    """Return the first guard of `before` that does not hold for `now`; slots in `sparse` hold nonzeros."""
    same = before == now  # the earlier block was not compiled
    return NEW if same else next(_differences(before, now, sparse), PlanGuard("live values"))


def _differences(before: BlockRecord, now: BlockRecord, sparse: frozenset[int]) -> Iterator[PlanGuard]:
    if len(before.leaves) != len(now.leaves) \
            and _operations_text(before.entries) == _operations_text(now.entries):
        yield from _operand_differences(_operations(before), _operations(now), "")
        yield PlanGuard("identity", "", f"{len(before.leaves)} arrays", f"{len(now.leaves)} arrays")
        return
    if [e[0] for e in before.entries] != [e[0] for e in now.entries]:
        yield PlanGuard("operations", "", _operations_text(before.entries), _operations_text(now.entries))
        return
    if before.epoch != now.epoch:
        yield PlanGuard("options", "", f"set {before.epoch}", f"set {now.epoch}")
    pairs = tuple(enumerate(zip(before.leaves, now.leaves, strict=True)))
    for slot, (a, b) in pairs:
        where = f"array {slot}"
        if a.dtype != b.dtype:
            yield PlanGuard("dtype", where, a.dtype, b.dtype)
        if len(a.shape) != len(b.shape):
            yield PlanGuard("rank", where, str(len(a.shape)), str(len(b.shape)))
        if a.group != b.group:
            yield PlanGuard("layout", where, _layout_text(a.group), _layout_text(b.group))
    yield from _operand_differences(before.entries, now.entries, "operations")
    if before.outputs[:2] != now.outputs[:2]:
        yield PlanGuard("live values", "", str(len(before.outputs[0])), str(len(now.outputs[0])))
    if before.outputs != now.outputs:
        yield PlanGuard("overlap", "", _pairs_text(before.outputs[2]), _pairs_text(now.outputs[2]))
    name = "size" if before.key == now.key else "shape class"
    for slot, (a, b) in pairs:
        if a.shape != b.shape:
            yield PlanGuard("sparsity" if slot in sparse and name == "size" else name, f"array {slot}",
                            _shape_text(a.shape), _shape_text(b.shape))


def _operations(record: BlockRecord) -> tuple[Any, ...]:
    return tuple(e for e in record.entries if e[0] > SCALAR)


def _operand_differences(before: tuple[Any, ...], now: tuple[Any, ...], moved: str) -> Iterator[PlanGuard]:
    """Yield the guards for differences in scalars and attributes, and as `moved` those in operands."""
    for a, b in zip(before, now, strict=True):
        if a == b or a[0] == LEAF:
            continue
        if a[0] == SCALAR:
            name = "scalar kind" if a[1] != b[1] else "scalar value"
            yield PlanGuard(name, "", _scalar_text(a), _scalar_text(b))
            continue
        (refs, attrs), (others, more) = split_entry(a), split_entry(b)
        kinds = [(x, y) for x, y in zip(refs, others, strict=False) if x != y]
        if any(min(pair) < 0 for pair in kinds):
            x, y = next(pair for pair in kinds if min(pair) < 0)
            yield PlanGuard("scalar kind", OPS[a[0]], _kind_text(x), _kind_text(y))
        elif kinds and moved:
            yield PlanGuard(moved, OPS[a[0]], "its operands", "others")
        elif attrs != more and dict(attrs).keys() - {"shape"}:
            expected, seen = (", ".join(f"{k}={v}" for k, v in some) for some in (attrs, more))
            yield PlanGuard("attribute", OPS[a[0]], expected, seen)


def _operations_text(entries: tuple[Any, ...]) -> str:
    """Return the number of operations and the name of the last one as text."""
    names = [OPS[e[0]] for e in entries if e[0] > SCALAR]
    return f"{len(names)} to {names[-1]}" if names else "none"


def _scalar_text(entry: tuple) -> str:
    return repr(entry[2]) if len(entry) == 3 else CODE_KIND[-1 - entry[1]].__name__


def _kind_text(code: int) -> str:
    return CODE_KIND[-1 - code].__name__ if code < 0 else "a value"


def _layout_text(group: tuple) -> str:
    return {"C": "C order", "F": "Fortran order"}.get(group[0], "with gaps or turned")


def _pairs_text(pairs: Any) -> str:
    return f"{len(pairs)} pairs of arrays"


def _shape_text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


MAX_RECORDS = 512  # records
MAX_PLACES = 1024


class Recompilation(NamedTuple):
    """One recompilation: the guard that failed, how the block was compiled, and the cost of that.

    `tier` is "now" (the call waited), "behind" (NumPy ran meanwhile) or "none" (NumPy ran, nothing was
    compiled). `plans`, `compiled` and `reused` count new plans, new kernels, of `nbytes` in total, and
    reused kernels.
    """

    at: float
    line: tuple[str, int] | None
    operations: int
    guard: PlanGuard
    tier: str
    plans: int
    compiled: int
    reused: int
    nbytes: int
    seconds: float


class RecompilationLog:
    """The recompilations of one function: the last `MAX_RECORDS` as records, and counts of all."""

    def __init__(self) -> None:
        self.records: deque[Recompilation] = deque(maxlen=MAX_RECORDS)
        self.misses = self.planned = self.compiled = self.reused = 0
        self.seconds = 0.0
        self._blocks: dict[Any, BlockRecord] = {}

    def violated_guard(
        self, path: Any, block: Block, outputs: tuple[Any, ...], key: tuple, epoch: int,
    ) -> PlanGuard:
        """Return the guard by which the plans at this place do not apply to `block`, and store its record."""
        now = record_of(block, outputs, key, epoch)
        tape = (path, tuple(entry[0] for entry in block.entries))
        before = self._blocks.get(tape) or self._blocks.get(path)
        if len(self._blocks) >= MAX_PLACES:
            self._blocks.clear()
        self._blocks[tape] = self._blocks[path] = now
        return NEW if before is None else failed_guard(before, now)

    def add(
        self, guard: PlanGuard, tier: str, made: CompileStats, reason: Reason | None, line: Any,
        operations: int,
    ) -> Recompilation:
        """Record what was compiled because `guard` failed, or for a more precise `reason`."""
        if reason is not None and guard is not NEW:
            guard = PlanGuard(reason.guard, "", reason.expected, reason.actual)
        record = Recompilation(
            time(), line, operations, guard, tier, made.plans, made.compiled, made.reused, made.nbytes,
            made.seconds)
        self.records.append(record)
        self.misses += 1
        self.planned += made.plans
        self.compiled += made.compiled
        self.reused += made.reused
        self.seconds += made.seconds
        return record

    def clear(self) -> None:
        """Clear all records and counts."""
        self.__init__()


def last_line_of(block: Block, roots: tuple[int, ...]) -> tuple[tuple[str, int] | None, int]:
    """Return the user's line of the last root, and the number of operations."""
    lines = [block.lines[i] for i in roots if i in block.lines]
    return lines[-1] if lines else None, sum(e[0] > SCALAR for e in block.entries)


#: By operator: the values of scalars that some rewrite matches.
LiteralValues = Mapping[str, Collection[Any]]

#: The same for all rewrites, by level of numerics; a copy, as rewrites are loaded only with the compiler.
LITERAL_VALUES: dict[str, LiteralValues] = {"strict": {
    "add": frozenset({-0.0}), "subtract": frozenset({0}), "multiply": frozenset({1, 2, -1}),
    "divide": frozenset({0.5, 1, 2.0}), "power": frozenset({0.5, 1, 2, -1}),
    "logical_and": frozenset({True}), "logical_or": frozenset({False}),
}}
LITERAL_VALUES["numpy"] = LITERAL_VALUES["strict"]
LITERAL_VALUES["relaxed"] = {
    **LITERAL_VALUES["numpy"], "power": frozenset({0.5, 1, 2, 3, 4, -1}),
    "multiply": frozenset({0, 1, 2, -1}), "where": frozenset({0}),
}

_LITERAL_KINDS = frozenset({KIND_CODE[int], KIND_CODE[float]})
_LOAD_CONST_OPS = frozenset(opmap[name] for name in ("LOAD_CONST", "RETURN_CONST") if name in opmap)
_LOAD_SMALL_INT, _EXTENDED = opmap.get("LOAD_SMALL_INT"), opmap["EXTENDED_ARG"]
_EXACT_TYPES = frozenset({int, bool, str, np.int64, np.bool_})
_FLOAT_TYPES = frozenset({float, np.float64})


def is_same(a: Any, b: Any) -> bool:
    """Return whether two scalars certainly have the same type and bits."""
    if a is b:
        return True
    kind = type(a)
    return kind is type(b) and (kind in _EXACT_TYPES or kind in _FLOAT_TYPES and a != 0.0) and bool(a == b)


def literals_of(block: Block, codes: Mapping[int, CodeType], literal_values: LiteralValues) -> dict[int, Any]:
    """Return the scalars of `block`, by number, that are literals of user code with one of `literal_values`.

    `codes` are the code objects that the entries come from, at the lines in `block.places`.
    """
    literals: dict[int, Any] = {}
    number = 0
    for i, entry in enumerate(block.entries):
        if entry[0] == SCALAR:
            number += 1
        elif entry[0] > SCALAR:
            values = literal_values.get(OPS[entry[0]], ())
            for ref in split_entry(entry)[0]:
                if ref >= 0:
                    continue
                value = block.scalars[number]
                if ref in _LITERAL_KINDS and value in values and i in codes:
                    if any(is_same(value, n) for n in _numbers_in_line(codes[i], block.places[i].line)):
                        literals[number] = value
                number += 1
    return literals


def _numbers_in_line(code: CodeType, line: int) -> list[Any]:
    """Return the number literals in a line of `code`."""
    return _NUMBERS_BY_LINE(code).get(line, [])


def _numbers_by_line(code: CodeType) -> dict[int | None, list[Any]]:
    numbers: dict[int | None, list[Any]] = {}
    for line, value in _loaded_constants(code):
        if type(value) in (int, float):
            numbers.setdefault(line, []).append(value)
    return numbers


_NUMBERS_BY_LINE = CodeCache(_numbers_by_line)


def _loaded_constants(code: CodeType) -> Iterator[tuple[int | None, Any]]:
    """Yield the constants that `code` loads, with their lines; `dis` would take ten times as long."""
    instructions, argument = code.co_code, 0
    for at, position in zip(range(0, len(instructions), 2), code.co_positions(), strict=False):
        opcode, argument = instructions[at], argument << 8 | instructions[at + 1]
        if opcode in _LOAD_CONST_OPS:
            yield position[0], code.co_consts[argument]
        elif opcode == _LOAD_SMALL_INT:
            yield position[0], argument
        if opcode != _EXTENDED:
            argument = 0
