"""What is asked once before an inner loop: its bounds, when they are known only there.

Knows: bounds of values, lines of text. Must not know: syntax trees, arrays' kinds.
Receives bounds of indices; writes lines before loops.
"""

from __future__ import annotations

import re
from dataclasses import field

from jitla.classes import dataclass
from jitla.loops.arithmetic import Arithmetic
from jitla.loops.values import Span, Value

# What a loop begins and ends with, and elements that stay the same in it.
_WORDS = re.compile(r"\b[beh]\d+\b")
_FLOAT, _NUMBER = re.compile(r"float64\((\w+)\)"), re.compile(r"\b(\d+)\.0\b")
SIZE = 40  # bits of lengths of arrays, and of what may be an index


@dataclass
class Turns:
    """An inner loop that counts between what is known when it begins."""

    number: int
    # Its variable, what that holds in it; nothing if the loop assigns it elsewhere, too.
    name: str
    value: Value
    # What it assigns.
    stored: frozenset[str]
    # The line of its head, how far in it is, how many loops are around it.
    line: int
    depth: int
    around: int
    # Whether every turn comes to its end; whether it counts down.
    plain: bool
    down: bool
    # What is read before it, and where an index is beyond an array.
    read: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def knows(self, word: str) -> bool:
        """Say whether a word of a bound is this loop's."""
        return word in (f"b{self.number}", f"e{self.number}", *self.read)

    def lines(self, leaving: str) -> list[str]:
        """Return what is written before the loop."""
        made = []
        for name, text in self.read.items():
            made += [f"{name} = {text}",
                     f"if rare(beyond({name}, int64({1 << SIZE}))): {leaving}"]
        wrong = " or ".join(f"rare({each})" for each in dict.fromkeys(self.wrong))
        if wrong:
            begin, end = f"b{self.number}", f"e{self.number}"
            some = f"{end} < {begin}" if self.down else f"{begin} < {end}"
            made += [f"if {wrong}:", f"    if {some}: {leaving}"]
        return ["    " * self.depth + line for line in made]


class Ahead(Arithmetic):
    """Proves indices before the loops that they are in."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[Turns] = []
        # Of each loop around, whether it may not be reached.
        self.doubts: list[bool] = []
        # Whether what is written now is an index.
        self.indexing = False

    def local(self, span: Span) -> bool:
        """Say whether bounds are known only inside of some loop."""
        return span is not None and any(_WORDS.search(each) for each in span)

    def proven_ahead(self, span: tuple[str, str], length: str) -> bool:
        """Let it be asked before a loop whether an index is in bounds; say whether that is possible."""
        words = {word for each in span for word in _WORDS.findall(each)}
        found = next((turns for turns in reversed(self.turns) if any(map(turns.knows, words))), None)
        if found is None:
            return False
        low, high = span
        wrong = [_whole(f"{low} < 0.0"), _whole(f"{high} >= float64({length})")]
        if not self.certain(found):
            return {*wrong} <= {*found.wrong}
        found.wrong += wrong
        return True

    def certain(self, turns: Turns) -> bool:
        """Say whether what is written now is done in each turn of a loop, if loops in it have turns."""
        return turns.plain and not self.unsure and not any(self.doubts[turns.around + 1:])

    def read_ahead(self, text: str) -> str:
        """Let an element be read before the innermost loop; return its name."""
        turns = self.turns[-1]
        for name, other in turns.read.items():
            if other == text:
                return name
        self._count += 1
        turns.read[f"h{self._count}"] = text
        return f"h{self._count}"


def _whole(text: str) -> str:
    """Return a comparison of sums with integers instead of floats."""
    if any(word in text for word in ("*", "/", "floor")):
        return text
    return _NUMBER.sub(r"int64(\1)", _FLOAT.sub(r"\1", text))
