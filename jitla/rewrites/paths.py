"""Sums of products of several labelled arrays, two operands at a time: the cheapest path.

Knows: labels and their lengths. Must not know: how the sum of products of two arrays is spelled.
Returns `PATHS`.

NumPy, unless asked otherwise, visits every combination of all labels. What is kept of a set of operands has
the labels that the result or the other operands need; of every set the cheapest way to get there is found,
small sets first.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from jitla.hops import Hop, make, parsed
from jitla.rewrites.orders import TOUCH
from jitla.rewrites.pattern import Bound, Var, ops
from jitla.rewrites.rule import Rule, RuleSet

MOST = 6  # operands
WORTH = 0.5  # part of what NumPy does that a path may do at most


class _Sum(NamedTuple):
    """An einsum: labels of its operands and result, lengths of the labels."""

    given: tuple[str, ...]
    result: str
    length: dict[str, int]

    def kept(self, members: int) -> str:
        """Return the labels of what comes of a set of operands, in the order they first stand in."""
        inside = [labels for n, labels in enumerate(self.given) if members >> n & 1]
        outside = [labels for n, labels in enumerate(self.given) if not members >> n & 1]
        needed = set(self.result).union(*outside)
        return "".join(dict.fromkeys(c for labels in inside for c in labels if c in needed))

    def volume(self, labels: str) -> int:
        """Return how many combinations of values the labels have."""
        return prod(self.length[c] for c in set(labels))


class _Way(NamedTuple):
    """What it takes to get from a set of operands to their product, and the two parts made before."""

    cost: float
    parts: tuple[int, int] | None = None


def _of(root: Hop) -> _Sum | None:
    """Return the sum if all lengths are as labelled, none is 0, and no operand has a label twice."""
    given, result = parsed(root.attr("subscripts"))
    length: dict[str, int] = {}
    for labels, operand in zip(given, root.inputs, strict=True):
        for label, n in zip(labels, operand.meta.shape, strict=True):
            if length.setdefault(label, n) != n or n == 0:
                return None
    return _Sum(given, result, length) if all(len(set(g)) == len(g) for g in given) else None


def _ways(sum_: _Sum) -> dict[int, _Way]:
    """Return the cheapest way for every set of operands."""
    count = len(sum_.given)
    best = {1 << n: _Way(0.0) for n in range(count)}
    for members in sorted(range(1, 1 << count), key=int.bit_count):
        if members not in best:
            best[members] = min(_Way(
                best[part].cost + best[members ^ part].cost + _pair(sum_, part, members ^ part),
                (part, members ^ part)) for part in _halves(members))
    return best


def _halves(members: int) -> Iterator[int]:
    """Yield one half of every way to split a set in two: that with the first member."""
    first = members & -members
    part = members
    while part := (part - 1) & members:
        if part & first:
            yield part


def _pair(sum_: _Sum, one: int, other: int) -> float:
    both = sum_.kept(one) + sum_.kept(other)
    return sum_.volume(both) + TOUCH * sum_.volume(sum_.kept(one | other))


def several_floats(root: Hop, b: Bound) -> bool:
    """Operands are floats, and to multiply two at a time takes far less than all at once."""
    if root.meta.dtype.kind != "f" or root.meta.dtype.itemsize < 4:
        return False
    sum_ = _of(root)
    if sum_ is None:
        return False
    every = (1 << len(sum_.given)) - 1
    naive = float(len(sum_.given) * sum_.volume("".join(sum_.given)))
    return _ways(sum_)[every].cost < WORTH * naive


def along_path(root: Hop, b: Bound) -> Hop:
    """Build einsums of two operands, the last of which has the labels of the result."""
    sum_ = _of(root)
    assert sum_ is not None
    ways = _ways(sum_)

    def made(members: int, labels: str) -> Hop:
        parts = ways[members].parts
        if parts is None:
            return root.inputs[members.bit_length() - 1]
        own = [sum_.kept(part) if ways[part].parts else sum_.given[part.bit_length() - 1] for part in parts]
        pair = [made(part, kept) for part, kept in zip(parts, own, strict=True)]
        return make("einsum", pair, root.line, subscripts=f"{','.join(own)}->{labels}")

    return made((1 << len(sum_.given)) - 1, sum_.result)


PATHS = RuleSet([
    Rule(f"einsum-path-of-{count}", ops.einsum(*[Var(f"X{n}") for n in range(count)]), build=along_path,
         when=several_floats, exactness="rounding",
         doc="two operands at a time, in the order that takes least, where NumPy visits every combination "
             "of labels; roundings differ, overflow of partial sums may")
    for count in range(3, MOST + 1)
])
