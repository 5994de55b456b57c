"""A nest in parts: each is done as if nothing could be wrong, or once more with all checks.

Knows: how what is done for nothing is undone. Must not know: syntax trees, values.
Receives lines of both ways; returns the lines that do all, part by part.
"""

from __future__ import annotations

from dataclasses import field

from jitla.classes import dataclass
from jitla.loops.values import FROM, START, STOP, TO

PART = 2048  # elements that are kept for a part of the outermost loop
FOOLED = 4  # parts that were done for nothing, before all are done with all checks at once
MOST_ROOM = 1 << 25  # elements that are kept at most
# Of arrays that are kept whole since it is not known where they are written: elements for a turn, and always.
LOOSE, ALWAYS = 64, 4096


class Kept:
    """Elements of one array that are kept before anything is stored: a box of them."""

    def __init__(self, number: int, name: str, boxes: list[list[tuple[str, str]]],
                 steps: list[str], copied: bool) -> None:
        self.number, self.name, self.steps = number, name, steps
        # Whether they are: others are stored once more as they were.
        self.copied = copied
        self.room = f"k{number}_{name}"
        axes = (zip(*(box[axis] for box in boxes), strict=True) for axis in range(len(boxes[0])))
        self.axes = [tuple(list(dict.fromkeys(each)) for each in axis) for axis in axes]
        # Whether it depends on the part of the outermost loop.
        self.moves = any(word in text for axis in self.axes for texts in axis for text in texts
                         for word in (FROM, TO))

    def measured(self) -> list[str]:
        """Return the lines that say how much room it takes."""
        made = []
        for axis, (low, high) in enumerate(self.axes):
            one = low[0] if len(low) == 1 else f"min({', '.join(low)})"
            two = high[0] if len(high) == 1 else f"max({', '.join(high)})"
            made += [f"a{self.number}_{axis} = int64({one})",
                     f"o{self.number}_{axis} = int64({two}) + int64(1)"]
        sizes = " * ".join(f"max(int64(0), o{self.number}_{axis} - a{self.number}_{axis})"
                           for axis in range(len(self.axes)))
        return [*made, f"n{self.number} = {sizes}"]

    def claimed(self) -> list[str]:
        """Return the lines that claim more room if what there is does not do."""
        number, some = self.number, f"n{self.number} + (n{self.number} >> int64(2)) + int64(1)"
        return [f"if n{number} >= had{number}:", f"    release({self.room})",
                f"    {self.room} = spare(p_{self.name}, {some})",
                f"    had{number} = int64(0) if nowhere({self.room}) else {some}"]

    def begun(self) -> list[str]:
        """Return the lines before any room is claimed."""
        return [f"{self.room} = spare(p_{self.name}, int64(1))", f"had{self.number} = int64(0)"]

    def moved(self, how: str) -> list[str]:
        """Return the lines that move all of them, there or back."""
        last = len(self.axes) - 1
        lines = ["x = int64(0)"]
        for axis in range(last):
            part = f"a{self.number}_{axis}, o{self.number}_{axis}"
            lines.append("    " * axis + f"for y{axis} in range({part}):")
        indent = "    " * last
        row = " + ".join(["int64(0)", *(f"y{axis} * {self.steps[axis]}" for axis in range(last))])
        low, high = f"a{self.number}_{last}", f"o{self.number}_{last}"
        element = f"p_{self.name}[row + y * {self.steps[last]}]"
        moved = how.format(room=f"{self.room}[x + y - {low}]", element=element)
        return [*lines, f"{indent}row = {row}", f"{indent}for y in range({low}, {high}):",
                f"{indent}    {moved}", f"{indent}x += max(int64(0), {high} - {low})"]


@dataclass
class Written:
    """The lines of a nest: what its outermost loop goes through, all of it, and what is done first."""

    # Where the outermost loop begins, ends, and how it goes on; nothing for one with a test.
    opening: list[str] = field(default_factory=list)
    careful: list[str] = field(default_factory=list)
    quick: list[str] | None = None
    proofs: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    loose: bool = False
    # Whether the outermost loop may be done in parts; whether the processor may note what is odd.
    parted: bool = False
    watched: bool = False
    # What says that no array that is written shares memory with another.
    apart: list[str] = field(default_factory=list)

    def driven(self, arguments: str) -> list[str]:
        """Return the lines that do all, part by part; where they say @r@ a part was done."""
        rooms = [f"release({each.room})" for each in self.copied]
        lines = [*self.opening, *(line for each in self.copied for line in each.begun()), "done = int64(0)",
                 "while done < turns:", *self._part()]
        if self.quick is None:
            lines += ["    tried = False"]
        else:
            lines[len(self.opening):len(self.opening)] = self._planned()
            lines += ["    " + line for line in self._tried(arguments)]
        more = f", {FROM}, {TO}, {STOP}, STEP" if self.opening else ""
        lines += ["    if not tried:", *(["        quiet()"] if self.quick is not None else []),
                  f"        r = careful({arguments}{more})", "    @r@", "    if r[0] != 0:",
                  *("        " + line for line in rooms), "        return r[0]", "    done += now", *rooms]
        return lines if self.opening else ["turns = int64(1)", *lines]

    def _part(self) -> list[str]:
        part = "part" if self.quick is not None else "turns"
        if not self.opening:
            return ["    now = turns"]
        return [f"    now = min({part}, turns - done)", f"    {FROM} = {START} + done * STEP",
                f"    {TO} = {STOP} if done + now >= turns else {FROM} + now * STEP"]

    @property
    def copied(self) -> list[Kept]:
        """What is copied before anything is stored."""
        return [each for each in self.kept if each.copied]

    def _planned(self) -> list[str]:
        """Return the lines that ask whether indices are proven, and how much is done at once."""
        lines = [f"{FROM} = {START}", f"{TO} = {STOP}"] if self.opening else []
        lines += ["fast = turns > 0", *(f"fast = fast and {each}" for each in self.proofs), *self.apart,
                  "fooled, part = int64(0), turns"]
        moving = [each for each in self.kept if each.moves]
        inside = [line for each in (self.kept if self.loose else moving) for line in each.measured()]
        if self.loose and self.copied:
            room = " + ".join(f"n{each.number}" for each in self.copied)
            inside.append(f"fast = {room} <= int64({LOOSE}) * turns + int64({ALWAYS})")
        if self.parted and moving:
            room = " + ".join(f"n{each.number}" for each in moving)
            inside += [f"room = {room}", f"if room > int64({PART}):",
                       f"    part = max(int64(1), int64(float64({PART}) * turns / room))"]
        return [*lines, "if fast:", *("    " + line for line in [*inside, "pass"])]

    def _tried(self, arguments: str) -> list[str]:
        """Return the lines that do a part for nothing if anything is wrong."""
        more = f", {FROM}, {TO}, {STOP}, STEP" if self.opening else ""
        kept = self.copied
        room = " + ".join(["int64(0)", *(f"n{each.number}" for each in kept)])
        had = " and ".join(["True", *(f"n{each.number} < had{each.number}" for each in kept)])
        whole = [*(line for each in kept for line in each.moved("{room} = {element}")),
                 *(["quiet()"] if self.watched else []),
                 f"r = quick({arguments}{more})", "tried = r[0] >= 0", "if not tried:",
                 "    fooled += int64(1)",
                 *("    " + line for each in kept for line in each.moved("{element} = {room}"))]
        claimed = [*(line for each in kept for line in each.claimed()), f"if {had}:",
                   *("    " + line for line in whole)]
        measured = [line for each in kept for line in each.measured()]
        return ["tried = False", f"if fast and fooled < int64({FOOLED}):",
                *("    " + line for line in measured), f"    if {room} <= int64({MOST_ROOM}):",
                *("        " + line for line in claimed)]
