"""From the syntax tree of a nest to the lines of functions over memory and numbers.

Knows: rounds, how what is done for nothing is undone. Must not know: compilers, calls.
Receives a nest and the kinds of what it reads; returns lines, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from itertools import combinations

from jitla.loops.again import breaks, carried, innermost
from jitla.loops.counting import Counting
from jitla.loops.given import Scalar
from jitla.loops.kinds import INTEGERS, ITEM, Refused
from jitla.loops.statements import PATIENCE
from jitla.loops.values import FROM, START, STOP, TO
from jitla.loops.writer import Hard

ROUNDS = 24
PART = 2048  # elements that are kept for a part of the outermost loop
FOOLED = 4  # parts that were done for nothing, before all are done with all checks at once
MOST_ROOM = 1 << 25  # elements that are kept at most
# Of arrays that are kept whole since it is not known where they are written: elements for a turn, and always.
LOOSE, ALWAYS = 64, 4096
MOST_BOXES = 8  # places where one array is written that are told from one another
_WATCHED = "seen = ", "loud_", "flag_"
_ODD = *_WATCHED, "return @-1@"  # lines that may find something wrong
SMALL = 31  # bits of integers that bounds are computed of


class Kept:
    """Elements of one array that are kept before anything is stored: a box of them."""

    def __init__(self, number: int, name: str, boxes: list[list[tuple[str, str]]],
                 steps: list[str]) -> None:
        self.number, self.name, self.steps = number, name, steps
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
        rooms = [f"release({each.room})" for each in self.kept]
        lines = [*self.opening, *(line for each in self.kept for line in each.begun()), "done = int64(0)",
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

    def _planned(self) -> list[str]:
        """Return the lines that ask whether indices are proven, and how much is done at once."""
        lines = [f"{FROM} = {START}", f"{TO} = {STOP}"] if self.opening else []
        lines += ["fast = turns > 0", *(f"fast = fast and {each}" for each in self.proofs), *self.apart,
                  "fooled, part = int64(0), turns"]
        moving = [each for each in self.kept if each.moves]
        inside = [line for each in (self.kept if self.loose else moving) for line in each.measured()]
        if self.loose:
            room = " + ".join(f"n{each.number}" for each in self.kept)
            inside.append(f"fast = {room} <= int64({LOOSE}) * turns + int64({ALWAYS})")
        if self.parted and moving:
            room = " + ".join(f"n{each.number}" for each in moving)
            inside += [f"room = {room}", f"if room > int64({PART}):",
                       f"    part = max(int64(1), int64(float64({PART}) * turns / room))"]
        return [*lines, "if fast:", *("    " + line for line in [*inside, "pass"])]

    def _tried(self, arguments: str) -> list[str]:
        """Return the lines that do a part for nothing if anything is wrong."""
        more = f", {FROM}, {TO}, {STOP}, STEP" if self.opening else ""
        kept = self.kept
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


class Translator(Counting):
    """Translates one nest; kinds of variables grow from round to round until nothing changes."""

    def run(self) -> Written:
        """Return the lines of the nest."""
        for self.rounds in range(ROUNDS):
            self.begin_round()
            self.statement(self.nest.loop)
            spans = [variable.turn() for variable in self.variables.values()]
            if self.rounds > PATIENCE and any(spans):
                for variable, moved in zip(self.variables.values(), spans, strict=True):
                    if moved:
                        variable.span = variable.spans = None
            if not self.changed and not any(spans):
                if self.unknown:
                    raise Refused(f"{min(self.unknown)} has no value when it is read", self.nest.line)
                return self.both(self.lines)
        raise Refused("the kinds of its variables do not settle", self.nest.line)

    def begin_round(self) -> None:
        """Forget what was written."""
        self.lines, self._count, self.counters, self.changed = [], 0, 0, False
        self.unknown, self.known, self.pending, self.boxes = set(), {}, [], {}
        self.definite = {name for name, what in self.given.items() if isinstance(what, Scalar)}
        for name in self.definite:
            variable = self.variables[name]
            known = variable.bits <= SMALL and variable.kinds <= INTEGERS
            text = f"float64(v_{name})"
            if variable.spans is not None:
                variable.spans.add((text, text) if known else None)

    def both(self, careful: list[str]) -> Written:
        """Return the lines, and those that are done for nothing if anything is wrong.

        What these may store is kept before; no variable and no statement need be known where they end.
        """
        loop, made = self.nest.loop, Written(careful=careful)
        self.quick = True
        self.begin_round()
        self.statement(loop)
        self.quick = False
        made.quick, made.proofs = self.lines, list(dict.fromkeys(self.proofs))
        odd = any(word in line for line in made.quick for word in _ODD)
        made.watched = any(word in line for line in made.quick for word in _WATCHED)
        made.apart = self.apart()
        for number, (name, boxes) in enumerate(self.boxes.items() if odd else ()):
            if len(boxes) > MOST_BOXES:
                lengths = (f"d_{name}_{axis}" for axis in range(len(boxes[0])))
                boxes = [[("0.0", f"(float64({length}) - 1.0)") for length in lengths]]
            steps = [self.stride(name, axis) for axis in range(len(boxes[0]))]
            made.kept.append(Kept(number, name, boxes, steps))
        made.loose = self.loose and odd
        if isinstance(loop, ast.For):
            made.parted = not breaks(loop.body)
            counters = self.counters
            made.opening = self.opened(loop)
            self.counters = counters
        return made

    def apart(self) -> list[str]:
        """Return the lines that ask whether no array that is written shares memory with another."""
        pairs = [(a, b) for a, b in combinations(sorted(self.arrays), 2) if self.written & {a, b}]
        made = []
        for name in sorted({name for pair in pairs for name in pair}):
            array, item = self.arrays[name], ITEM[self.arrays[name].kind]
            ways = [f"(d_{name}_{axis} - int64(1)) * s_{name}_{axis}" for axis in range(array.ndim)]
            below, above = (" + ".join(f"{extreme}(int64(0), {way})" for way in ways)
                            for extreme in ("min", "max"))
            made += [f"low_{name} = where(p_{name}) + int64({item}) * ({below})",
                     f"high_{name} = where(p_{name}) + int64({item}) * ({above} + int64(1))"]
        for a, b in pairs:
            test = f"high_{a} <= low_{b} or high_{b} <= low_{a}"
            if self.arrays[a].ndim == self.arrays[b].ndim == 1:
                steps = (f"s_{name}_0 * int64({ITEM[self.arrays[name].kind]})" for name in (a, b))
                items = (f"int64({ITEM[self.arrays[name].kind]})" for name in (a, b))
                test += f" or woven(where(p_{a}) - where(p_{b}), {', '.join((*steps, *items))})"
            made.append(f"fast = fast and ({test})")
        return made

    def opened(self, loop: ast.For) -> list[str]:
        """Return the lines that compute what the outermost loop goes through."""
        self.begin_round()
        self.depth, self.label = 0, self.nest.labels[loop]
        found = self.source(1, loop)
        self.flush()
        self.put(f"{START} = {found.start}")
        self.put(f"{STOP} = {found.stop}")
        self.put(f"STEP = {found.step}")
        end = f"{STOP} - {START} + STEP"
        up, down = f"({end} - int64(1)) // STEP", f"({end} + int64(1)) // STEP"
        if found.step.startswith("int64("):
            self.put(f"turns = {down if found.step.startswith('int64(-') else up}")
        else:
            self.put(f"turns = {up} if STEP > 0 else {down}")
        return self.lines

    def do_For(self, node: ast.For) -> None:
        """Write a loop; one that nothing follows from in its turns only notes whether anything is wrong."""
        if self.quick and not self.sticky and innermost(node) and not carried(node) and self.attempt(node):
            return
        self.counting(node)

    def attempt(self, node: ast.For) -> bool:
        """Write a loop that notes whether anything is wrong; say whether that is possible."""
        kept = len(self.lines), self._count, self.counters, set(self.definite), len(self.proofs), self.depth
        boxes = {name: list(each) for name, each in self.boxes.items()}
        unsure, loose = self.unsure, self.loose
        self.flush()
        self.known = {}
        start = len(self.lines)
        try:
            self.sticky = True
            self.put("bad = bool_(0)")
            self.counting(node)
        except Hard:
            del self.lines[kept[0]:], self.proofs[kept[4]:]
            self._count, self.counters, self.definite, self.depth = kept[1], kept[2], set(kept[3]), kept[5]
            self.unsure, self.known, self.pending, self.boxes, self.loose = unsure, {}, [], boxes, loose
            return False
        finally:
            self.sticky = False
        self.known = {}
        if any(line.lstrip().startswith("bad = either") for line in self.lines[start:]):
            self.put(f"if rare(bad): {self.leaving}")
        else:
            del self.lines[start]
        return True
