"""Guards of compiled code, the log of recompilations, and scalars that are compiled as literals."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from opcode import opmap
from time import time
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from jitla.compile_stats import Made, Reason
from jitla.hops import Shape
from jitla.instrument import CodeCache
from jitla.tracing.tape import CODE_KIND, KIND_CODE, LAYOUTS, LEAF, OPS, SCALAR, Block, split_entry


class Guard(NamedTuple):
    """A condition that a plan was made under: what it is about, what it expected, and what it saw.

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


NEW = Guard("new")
# Powers of two between nonzeros that make another bucket of sparsity.
BUCKET = 4


class Leaf(NamedTuple):
    """What is known of an array that a block reads."""

    dtype: str
    shape: Shape
    group: tuple


class Met(NamedTuple):
    """What is remembered of a block that was met: its entries, arrays, and what became of its values."""

    entries: tuple[Any, ...]
    leaves: tuple[Leaf, ...]
    fate: tuple[Any, ...]
    key: tuple
    epoch: int


def met(block: Block, fate: tuple[Any, ...], key: tuple, epoch: int) -> Met:
    """Return what to remember of a block whose roots, stores and overlaps are `fate`."""
    found = [LAYOUTS[e[1]] for e in block.entries if e[0] == LEAF]
    dtypes = [block.leaves[k].dtype.name for k in range(len(found))]
    leaves = tuple(Leaf(d, x.shape, x.group) for d, x in zip(dtypes, found, strict=True))
    entries = tuple((LEAF,) if e[0] == LEAF else e for e in block.entries)
    return Met(entries, leaves, fate, key, epoch)


def failed(before: Met, now: Met, sparse: frozenset[int] = frozenset()) -> Guard:
    """Return the first guard of `before` that does not hold for `now`; slots in `sparse` hold nonzeros."""
    same = before == now  # nothing was made then
    return NEW if same else next(_differences(before, now, sparse), Guard("live values"))


def _differences(before: Met, now: Met, sparse: frozenset[int]) -> Iterator[Guard]:
    if len(before.leaves) != len(now.leaves) and _named(before.entries) == _named(now.entries):
        yield from _scalars(_operations(before), _operations(now), "")
        yield Guard("identity", "", f"{len(before.leaves)} arrays", f"{len(now.leaves)} arrays")
        return
    if [e[0] for e in before.entries] != [e[0] for e in now.entries]:
        yield Guard("operations", "", _named(before.entries), _named(now.entries))
        return
    if before.epoch != now.epoch:
        yield Guard("options", "", f"set {before.epoch}", f"set {now.epoch}")
    pairs = tuple(enumerate(zip(before.leaves, now.leaves, strict=True)))
    for slot, (a, b) in pairs:
        where = f"array {slot}"
        if a.dtype != b.dtype:
            yield Guard("dtype", where, a.dtype, b.dtype)
        if len(a.shape) != len(b.shape):
            yield Guard("rank", where, str(len(a.shape)), str(len(b.shape)))
        if a.group != b.group:
            yield Guard("layout", where, _layout(a.group), _layout(b.group))
    yield from _scalars(before.entries, now.entries, "operations")
    if before.fate[:2] != now.fate[:2]:
        yield Guard("live values", "", str(len(before.fate[0])), str(len(now.fate[0])))
    if before.fate != now.fate:
        yield Guard("overlap", "", _count(before.fate[2]), _count(now.fate[2]))
    name = "size" if before.key == now.key else "shape class"
    for slot, (a, b) in pairs:
        if a.shape != b.shape:
            yield Guard("sparsity" if slot in sparse and name == "size" else name, f"array {slot}",
                        _sizes(a.shape), _sizes(b.shape))


def _operations(met: Met) -> tuple[Any, ...]:
    return tuple(e for e in met.entries if e[0] > SCALAR)


def _scalars(before: tuple[Any, ...], now: tuple[Any, ...], moved: str) -> Iterator[Guard]:
    """Yield what differs in scalars and attributes, and as `moved` in operands."""
    for a, b in zip(before, now, strict=True):
        if a == b or a[0] == LEAF:
            continue
        if a[0] == SCALAR:
            name = "scalar kind" if a[1] != b[1] else "scalar value"
            yield Guard(name, "", _scalar(a), _scalar(b))
            continue
        (refs, attrs), (others, more) = split_entry(a), split_entry(b)
        kinds = [(x, y) for x, y in zip(refs, others, strict=False) if x != y]
        if any(min(pair) < 0 for pair in kinds):
            x, y = next(pair for pair in kinds if min(pair) < 0)
            yield Guard("scalar kind", OPS[a[0]], _operand(x), _operand(y))
        elif kinds and moved:
            yield Guard(moved, OPS[a[0]], "its operands", "others")
        elif attrs != more and dict(attrs).keys() - {"shape"}:
            expected, seen = (", ".join(f"{k}={v}" for k, v in some) for some in (attrs, more))
            yield Guard("attribute", OPS[a[0]], expected, seen)


def _named(entries: tuple[Any, ...]) -> str:
    """Name the last operations, and say how many there are."""
    names = [OPS[e[0]] for e in entries if e[0] > SCALAR]
    return f"{len(names)} to {names[-1]}" if names else "none"


def _scalar(entry: tuple) -> str:
    return repr(entry[2]) if len(entry) == 3 else CODE_KIND[-1 - entry[1]].__name__


def _operand(code: int) -> str:
    return CODE_KIND[-1 - code].__name__ if code < 0 else "a value"


def _layout(group: tuple) -> str:
    return {"C": "C order", "F": "Fortran order"}.get(group[0], "with gaps or turned")


def _count(pairs: Any) -> str:
    return f"{len(pairs)} pairs of arrays"


def _sizes(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


KEPT = 512  # records
MOST_PLACES = 1024


class Recompilation(NamedTuple):
    """One time that a block had no plan as it was: why, what was done, and what that took.

    `tier` is "now" (the call waited), "behind" (NumPy ran meanwhile) or "none" (NumPy ran, nothing was
    made). `plans` were made, `compiled` kernels of `nbytes` together, `reused` kernels were there.
    """

    at: float
    line: tuple[str, int] | None
    operations: int
    guard: Guard
    tier: str
    plans: int
    compiled: int
    reused: int
    nbytes: int
    seconds: float


class Journal:
    """The records of one function, the last `KEPT`, and all of them as counts."""

    def __init__(self) -> None:
        self.records: deque[Recompilation] = deque(maxlen=KEPT)
        self.misses = self.planned = self.compiled = self.reused = 0
        self.seconds = 0.0
        self._met: dict[Any, Met] = {}

    def why(self, path: Any, block: Block, fate: tuple[Any, ...], key: tuple, epoch: int) -> Guard:
        """Return why the plans of `block`'s place do not hold, and remember the block."""
        now = met(block, fate, key, epoch)
        tape = (path, tuple(entry[0] for entry in block.entries))
        before = self._met.get(tape) or self._met.get(path)
        if len(self._met) >= MOST_PLACES:
            self._met.clear()
        self._met[tape] = self._met[path] = now
        return NEW if before is None else failed(before, now)

    def add(
        self, guard: Guard, tier: str, made: Made, reason: Reason | None, line: Any, operations: int,
    ) -> Recompilation:
        """Record what was compiled because `guard` failed, or for a more precise `reason`."""
        if reason is not None and guard is not NEW:
            guard = Guard(reason.guard, "", reason.expected, reason.actual)
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
        """Forget everything."""
        self.__init__()


def ending(block: Block, roots: tuple[int, ...]) -> tuple[tuple[str, int] | None, int]:
    """Return the user's line of the last root, and how many operations there are."""
    lines = [block.lines[i] for i in roots if i in block.lines]
    return lines[-1] if lines else None, sum(e[0] > SCALAR for e in block.entries)


#: By operator: the values of scalars that some rewrite asks for.
Asked = Mapping[str, Collection[Any]]

#: The same by level of numerics, for all rewrites, which are not loaded before there is a compiler.
ASKED: dict[str, Asked] = {"strict": {
    "add": frozenset({-0.0}), "subtract": frozenset({0}), "multiply": frozenset({1, 2, -1}),
    "divide": frozenset({0.5, 1, 2.0}), "power": frozenset({0.5, 1, 2, -1}),
    "logical_and": frozenset({True}), "logical_or": frozenset({False}),
}}
ASKED["numpy"] = ASKED["strict"]
ASKED["relaxed"] = {
    **ASKED["numpy"], "power": frozenset({0.5, 1, 2, 3, 4, -1}), "multiply": frozenset({0, 1, 2, -1}),
    "where": frozenset({0}),
}

_KINDS = frozenset({KIND_CODE[int], KIND_CODE[float]})
_LOADS = frozenset(opmap[name] for name in ("LOAD_CONST", "RETURN_CONST") if name in opmap)
_SMALL, _EXTENDED = opmap.get("LOAD_SMALL_INT"), opmap["EXTENDED_ARG"]
_EQUAL = frozenset({int, bool, str, np.int64, np.bool_})
_FLOATS = frozenset({float, np.float64})


def is_same(a: Any, b: Any) -> bool:
    """Say whether two scalars have the same type and bits."""
    if a is b:
        return True
    kind = type(a)
    return kind is type(b) and (kind in _EQUAL or kind in _FLOATS and a != 0.0) and bool(a == b)


def literals_of(block: Block, codes: Mapping[int, CodeType], asked: Asked) -> dict[int, Any]:
    """Return the scalars of `block`, by number, that are literals with values asked for.

    `codes` are those that the entries come from, at the lines in `block.places`.
    """
    found: dict[int, Any] = {}
    number = 0
    for i, entry in enumerate(block.entries):
        if entry[0] == SCALAR:
            number += 1
        elif entry[0] > SCALAR:
            values = asked.get(OPS[entry[0]], ())
            for ref in split_entry(entry)[0]:
                if ref >= 0:
                    continue
                value = block.scalars[number]
                if ref in _KINDS and value in values and i in codes:
                    if any(is_same(value, n) for n in _numbers(codes[i], block.places[i].line)):
                        found[number] = value
                number += 1
    return found


def _numbers(code: CodeType, line: int) -> list[Any]:
    """Return the numbers that stand in a line of `code`."""
    return _NUMBERS(code).get(line, [])


def _by_line(code: CodeType) -> dict[int | None, list[Any]]:
    found: dict[int | None, list[Any]] = {}
    for at, value in _loaded(code):
        if type(value) in (int, float):
            found.setdefault(at, []).append(value)
    return found


_NUMBERS = CodeCache(_by_line)


def _loaded(code: CodeType) -> Iterator[tuple[int | None, Any]]:
    """Yield the constants that `code` loads, with their lines; `dis` would take ten times as long."""
    found, number = code.co_code, 0
    for at, place in zip(range(0, len(found), 2), code.co_positions(), strict=False):
        kind, number = found[at], number << 8 | found[at + 1]
        if kind in _LOADS:
            yield place[0], code.co_consts[number]
        elif kind == _SMALL:
            yield place[0], number
        if kind != _EXTENDED:
            number = 0
