"""Whether turns of a loop are independent, and whether statements may change places.

Knows: indices, which elements statements touch. Must not know: the primitives that ask.
Receives bodies of loops; returns verdicts with the pair of elements that might be the same.

A "yes" is proven, a "no" may be an index that is too hard: then the answer is the careful one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product

import numpy as np

from jitla.nests.index import Atom, Index, Quotient, Ranges, Rest, reach
from jitla.nests.nodes import Buffer, Intrinsic, Loop
from jitla.nests.walking import Access, Body, accesses, allocated, ranges_of

#: Operators whose order does not matter, not even to a bit: those of whole numbers, which wrap.
EXACT = {"add": "iu", "multiply": "iu", "minimum": "iub", "maximum": "iub", "bitwise_and": "iub",
         "bitwise_or": "iub", "bitwise_xor": "iub", "logical_and": "b", "logical_or": "b"}


def is_exact(op: str, dtype: np.dtype) -> bool:
    """Tell whether a reduction by `op` may be done in any order."""
    return dtype.kind in EXACT.get(op, "")


def carried(
    loop: Loop, around: tuple[Loop, ...], buffers: Mapping[str, Buffer],
    intrinsics: Mapping[str, Intrinsic], inside: tuple[Loop, ...] = (),
) -> str | None:
    """Return why turns of `loop` are not independent, None if they are.

    `around` are the loops outside it, in which a turn is fixed; `inside` are those of them that are not.
    """
    own = {b.name for b in allocated(loop.body)}
    found = [a for a in accesses((loop,), intrinsics, around) if a.buffer not in own]
    fixed = frozenset(a.name for a in around) - {a.name for a in inside}
    written = {a.buffer for a in found if a.writes}
    for one, other in _pairs(found, written):
        if _commute(one, other, buffers):
            continue
        if not _never_meet(one, other, loop.name, fixed):
            at = ", ".join(map(str, one.at))
            return f"elements {one.buffer}[{at}] of two turns of {loop.name} may be the same"
    return None


def _pairs(found: list[Access], written: set[str]) -> Iterable[tuple[Access, Access]]:
    """Return all pairs of accesses of the same buffer, one of which writes."""
    for one, other in product(found, repeat=2):
        if one.writes and one.buffer == other.buffer and one.buffer in written:
            yield one, other


def _commute(one: Access, other: Access, buffers: Mapping[str, Buffer]) -> bool:
    """Tell whether both are updates that may change places."""
    same = one.update is not None and one.update == other.update
    return same and is_exact(str(one.update), buffers[one.buffer].dtype)


def _never_meet(one: Access, other: Access, name: str, fixed: frozenset[str]) -> bool:
    """Tell whether the elements differ wherever the turns of `name` do."""
    here, there = ranges_of(one.loops), ranges_of(other.loops)
    for atom in _virtual(one.at, name) or {name}:
        if not any(_apart(i, j, atom, fixed, here, there, k, m) for i, j, k, m in zip(
                one.at, other.at, one.extent or (1,) * len(one.at),
                other.extent or (1,) * len(other.at), strict=True)):
            return False
    return True


def _virtual(index: tuple[Index, ...], name: str) -> set[Atom]:
    """Return a quotient and a rest of the loop variable, which together are it."""
    atoms = {a for i in index for a, _ in i.terms}
    for atom in atoms:
        if isinstance(atom, Quotient) and atom.of.single == name and Rest(atom.of, atom.by) in atoms:
            return {atom, Rest(atom.of, atom.by)}
    return set()


def _apart(
    one: Index, other: Index, atom: Atom, fixed: frozenset[str], here: Ranges, there: Ranges,
    many: int, more: int,
) -> bool:
    """Tell whether ``one != other`` along this axis wherever `atom` differs between the two."""
    mine, its = dict(one.terms), dict(other.terms)
    step = mine.pop(atom, 0)
    if not step or its.pop(atom, 0) != step:
        return False
    low, high = one.plus - other.plus, one.plus - other.plus
    for key in mine.keys() | its.keys():
        names = frozenset({key}) if isinstance(key, str) else key.of.variables
        a, b = mine.get(key, 0), its.get(key, 0)
        if names <= fixed and a == b:
            continue
        first = sorted(a * e for e in (reach(Index(((key, 1),)), here) if a else (0, 0)))
        second = sorted(b * e for e in (reach(Index(((key, 1),)), there) if b else (0, 0)))
        low, high = low + first[0] - second[1], high + first[1] - second[0]
    # windows reach further: of `one` up to many - 1 elements, of `other` up to more - 1
    low, high = low - (more - 1), high + (many - 1)
    begins, ends = reach(Index(((atom, 1),)), here)
    most = ends - begins
    # differences of the atom are -most ... -1 and 1 ... most; none may make up for the rest
    return not any(low <= -step * d <= high for d in (*_near(low, high, step, most),))


def _near(low: int, high: int, step: int, most: int) -> Iterable[int]:
    """Return the differences of a variable that could make up for `low` to `high`."""
    ends = sorted((-low / step, -high / step))
    first, last = max(int(np.floor(ends[0])), -most), min(int(np.ceil(ends[1])), most)
    return [d for d in range(first, last + 1) if d]


def conflict(
    first: Body, second: Body, intrinsics: Mapping[str, Intrinsic], besides: Collection[str]
) -> str | None:
    """Return a buffer that one of two sequences writes and the other touches, `besides` some."""
    one: dict[str, bool] = {}
    for access in accesses(first, intrinsics):
        one[access.buffer] = access.writes or one.get(access.buffer, False)
    for access in accesses(second, intrinsics):
        if access.buffer not in besides and access.buffer in one and (access.writes or one[access.buffer]):
            return access.buffer
    return None
