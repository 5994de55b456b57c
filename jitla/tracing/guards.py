"""Why a block met a plan that was made for another one: the guard that did not hold.

Knows: what a plan depends on, by the keys of blocks. Must not know: plans, sessions, when anything is
compiled. Receives two blocks of one place; returns the first guard that tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from jitla.hops import Shape
from jitla.tracing.signature import LAYOUTS
from jitla.tracing.tape import CODE_KIND, LEAF, OPS, SCALAR, Block, split


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
        (refs, attrs), (others, more) = split(a), split(b)
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
