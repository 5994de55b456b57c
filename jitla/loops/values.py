"""Values in a loop: the text that stands for them, the kinds they may have, their bounds.

Knows: kinds, and how each is held in machine code. Must not know: syntax trees, arrays, lines of text.
Receives kinds and numbers; returns values.
"""

from __future__ import annotations

from collections.abc import Iterable

from jitla.classes import dataclass
from jitla.loops.kinds import CODES, HELD, Refused

EXACT, WIDE = 53, 63  # bits of integers: that a float64 holds, that an int64 does
Span = tuple[str, str] | None
# What a part of the outermost loop begins and ends with, and the loop.
FROM, TO, START, STOP = "FIRST", "LIMIT", "BEGIN", "END"
LONGEST = 300  # characters of a text of a bound
STEP = 16  # bits of a constant beside what is counted up or down without an end that is known


@dataclass(frozen=True)
class Value:
    """A number: its text, its possible kinds, how it is held, and the text of its kind's code."""

    text: str
    kinds: frozenset[str]
    held: str
    tag: str = ""
    bits: int = WIDE
    positive: bool = False
    # At most two to the power of `bits` away from zero; not below zero.
    # Steps whose flags are not looked at yet: operands and result of each.
    steps: tuple[tuple[str, str, str], ...] = ()
    # Texts of the least and the largest it can be, of what does not change in the loop.
    span: Span = None
    # Whether it is so much more or less than the variable that it is assigned to.
    counted: bool = False

    @property
    def code(self) -> str:
        """Text of the code of the kind that it has."""
        return self.tag or str(CODES[min(self.kinds)])

    @property
    def kind(self) -> str:
        """Its only kind."""
        if len(self.kinds) != 1:
            raise Refused(f"a value may be {' or '.join(sorted(self.kinds))}")
        return next(iter(self.kinds))


def whole(span: Span) -> Span:
    """Return the bounds in all of the outermost loop of what has these in a part of it."""
    if span is None:
        return None
    low, high = (each.replace(FROM, START).replace(TO, STOP) for each in span)
    return low, high


def endless(span: Span) -> bool:
    """Say whether one of the bounds is none: of what is counted up or down while something holds."""
    return span is not None and any("INF" in each for each in span)


def number(value: int | float | bool) -> Value:
    """Return the value of a constant."""
    kind = type(value).__name__
    if kind == "int":
        if abs(value) >= 1 << WIDE:
            raise Refused(f"the constant {value} has more than 64 bits")
        return Value(f"int64({value})", frozenset({kind}), "i", "", int(value).bit_length(), value >= 0, (),
                     (f"{value}.0", f"{value}.0"))
    if kind == "bool":
        return Value(f"bool_({int(value)})", frozenset({kind}), "b", "", 1, True)
    text = {"inf": "INF", "-inf": "(-INF)", "nan": "NAN"}.get(repr(value), repr(value))
    return Value(f"float64({text})", frozenset({kind}), "d")


def held_by(kinds: Iterable[str]) -> str:
    """Return what holds values of any of `kinds`."""
    found = {HELD[kind] for kind in kinds}
    if len(found) == 1:
        return found.pop()
    if found <= {"i", "b"}:
        return "i"
    if "b" in found:
        raise Refused("a value is a truth value at times, and a float")
    return "d"
