"""What a nest is given, and what its variables may hold.

Knows: kinds, bits, bounds. Must not know: syntax trees, lines of text.
Receives what is seen of values; returns what may be relied on.
"""

from __future__ import annotations

from dataclasses import field

from jitla.classes import dataclass
from jitla.loops.kinds import BITS, RANGES
from jitla.loops.values import LONGEST, WIDE, Span, held_by


@dataclass(frozen=True)
class Scalar:
    """What is known of a number that a nest is given: its kind, and bits of an integer of Python."""

    kind: str
    bits: int = WIDE


@dataclass(frozen=True)
class Array:
    """What is known of an array that a nest is given."""

    kind: str
    ndim: int
    contiguous: bool
    writeable: bool


# What a nest is given; of what is neither, the name of its type.
Given = Scalar | Array | str


@dataclass
class Variable:
    """A name that the nest assigns, or that holds a number."""

    kinds: frozenset[str]
    bits: int = 0
    # Bits of what it is assigned, but by counting.
    base: int = 0
    positive: bool = True
    # What it may be between: as found in the round before, and in this one; None once it is not followed.
    span: Span = None
    spans: set[Span] | None = field(default_factory=set)

    def turn(self) -> bool:
        """Begin a round with what the last one has found; say whether that is new."""
        before, found = self.span, self.spans
        self.span = None
        if found and None not in found:
            lows, highs = zip(*sorted(each for each in found if each), strict=True)
            # what is counted up is never less than what it is assigned elsewhere
            low = ", ".join(dict.fromkeys(each for each in lows if each != "INF")) or "(-INF)"
            high = ", ".join(dict.fromkeys(each for each in highs if each != "(-INF)")) or "INF"
            low, high = f"min({low})" if ", " in low else low, f"max({high})" if ", " in high else high
            if len(low) + len(high) < LONGEST:
                self.span = low, high
        if found is not None:
            self.spans = set()
        return self.span != before

    @property
    def held(self) -> str:
        """What holds it."""
        return held_by(self.kinds) if self.kinds else "i"


def variable(what: Scalar) -> Variable:
    """Return the variable that holds what it is given."""
    bits = min(what.bits, BITS.get(what.kind, WIDE))
    low = RANGES.get(what.kind, (-1, 0))[0]
    return Variable(frozenset({what.kind}), bits, bits, low == 0)
