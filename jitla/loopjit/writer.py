"""Writer of the text of translated loops."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field

from jitla.classes import dataclass
from jitla.loopjit.types import EXACT, FROM, START, STOP, TO, TypedNumber, storage_of

_CAST = {"i": "int64", "d": "float64", "s": "float32", "b": "bool_"}
# Floats are these, or beyond what is finite.
LARGEST = {"d": "1.7976931348623157e308", "s": "float32(3.4028234663852886e38)"}

# Lines that are computed rather than jumped over, and what is too dear for that.
CHEAP = 6
_DEAR = ("lib_", "power", "ratio", "sqrt", "float_div", "float_mod", "floor(", "ceil(")
# Checks that what is computed for nothing hardly ever fails.
_LOST = re.compile(r"beyond\(|past\(|o[0-9]+$")


class CannotDefer(Exception):
    """A check must stop the loop at once, so that it cannot be deferred."""


class LoopWriter:
    """Writes the lines of a loop, and knows under which label the interpreter would go on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.label = 0
        # Whether what is wrong is only noted, since all can be done again.
        self.sticky = False
        # Whether what is written may not be reached: what is done there must not be done for nothing.
        self.unsure = False
        # Whether all of it is undone, and done again with all checks, if anything is wrong.
        self.quick = False
        # What is left to check before the statement does anything; for each, what tells more, if it is rare.
        self.pending: list[tuple[str, str]] = []
        # Names of what was computed already, and checks that were done: they hold as long as their parts do.
        self.known: dict[str, str] = {}
        self._count = 0

    @property
    def watched(self) -> bool:
        """Whether operations set the processor's flags, which are looked at when all is done."""
        return self.quick

    @property
    def leaving(self) -> str:
        """The statement that leaves the loop where something is wrong."""
        return "return @-1@" if self.quick else f"return @{self.label}@"

    def put(self, line: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + line)

    def bail(self, condition: str, hard: bool = False) -> None:
        """Leave the loop to the interpreter where `condition` holds; `hard` if nothing can go on then.

        Others are looked at together, at the end of the statement: all of its elements are read before.
        """
        if self._again(f"? {condition}"):
            return
        if self.sticky:
            if hard:
                raise CannotDefer
            self.pending.append((condition, ""))
        elif hard:
            self.put(f"if rare({condition}): {self.leaving}")
        else:
            self.pending.append((condition, ""))

    def flush(self, since: int = 0) -> None:
        """Write the checks that are left, but the first `since`."""
        found = self.pending[since:]
        del self.pending[since:]
        if self.sticky:
            for condition, _ in found:
                self.put(f"bad = either(bad, {condition})")
            return
        if not found:
            return
        whole = found[0][0]
        for condition, _ in found[1:]:
            whole = f"either({whole}, {condition})"
        if len(found) == 1 and not found[0][1]:
            self.put(f"if rare({whole}): {self.leaving}")
            return
        self.put(f"if rare({whole}):")
        self.depth += 1
        for condition, more in found:
            self.put(f"if {more or condition}: {self.leaving}")
        self.depth -= 1

    def _again(self, text: str) -> bool:
        """Say whether something was done already; remember that it is."""
        done = text in self.known
        self.known[text] = ""
        return done

    def fresh(self, text: str) -> str:
        """Give what `text` computes a name."""
        name = self.known.get(text)
        if name is None:
            name = self.known[text] = self.own(text)
        return name

    def own(self, text: str) -> str:
        """Give what `text` computes a name that nothing else has: it may be assigned once more."""
        self._count += 1
        name = f"t{self._count}"
        self.put(f"{name} = {text}")
        return name

    def forget(self, word: str) -> None:
        """Forget all that was computed of what has another value now."""
        self.known = {text: name for text, name in self.known.items() if word not in text}

    def leave(self, before: dict[str, str]) -> None:
        """Leave what may not have been done: only what was known before it, and still is, is known."""
        self.known = {text: name for text, name in before.items() if self.known.get(text) == name}

    # -- conversions ---------------------------------------------------------------------------

    def converted(self, value: TypedNumber, how: str) -> str:
        """Return the text of `value` converted to storage `how`; leave for integers beyond floats."""
        if value.storage == how:
            return value.text
        if how == "b":
            return f"({value.text} != 0)"
        if value.storage == "i" and how in "ds" and value.bits > EXACT:
            # only of integers of Python NumPy may think otherwise: they are converted by way of it
            self.bail(f"wide({value.text})")
        if how == "s":
            return self._single(value)
        return f"{_CAST[how]}({value.text})"

    def _single(self, value: TypedNumber) -> str:
        """Return a value as float32: Python's numbers are rounded, and must not become infinite."""
        wide = value.text if value.storage == "d" else f"float64({value.text})"
        name = self.fresh(f"float32({wide})")
        if value.storage == "d":
            self.bail(f"lost({wide}, {name})")
        return name

    def settled(self, value: TypedNumber) -> TypedNumber:
        """Look at the flags of the steps that made `value`: a warning is the interpreter's."""
        if not value.steps:
            return value
        if self.watched:
            self.see(value)
            return self.without_steps(value)
        return self.judged(value)

    def see(self, value: TypedNumber) -> None:
        """Let what is asked of the flags later need `value`: compilers leave out what nobody needs."""
        if not self._again(f"seen {value.text}"):
            self.put(f"seen = seen | bits_{value.storage}({value.text})")

    def judged(self, value: TypedNumber) -> TypedNumber:
        """Look at what the steps of a value have made."""
        if self.watched:  # of functions of the library the flags are not relied on
            self.bail(f"not (abs({value.text}) <= {LARGEST[value.storage]})")
            return self.without_steps(value)
        detail = " or ".join(f"flagged({a}, {b}, {r})" for a, b, r in value.steps)
        if not self._again(f"? {value.text} {detail}"):
            self.pending.append((f"not (abs({value.text}) <= {LARGEST[value.storage]})", detail))
        return self.without_steps(value)

    def without_steps(self, value: TypedNumber) -> TypedNumber:
        """Return `value` without steps: their flags are checked elsewhere."""
        return TypedNumber(value.text, value.kinds, value.storage, value.tag, value.bits, value.positive)

    def united(self, value: TypedNumber, kinds: frozenset[str], how: str) -> tuple[str, str]:
        """Return text and code of `value` as a variable of `kinds` holds it."""
        text = value.text
        if value.storage != how:
            if how == "d" and value.storage == "i" and value.bits > EXACT:
                self.bail(f"wide({text})")
            text = f"{_CAST[how]}({text})"
        return text, value.code

    def truth(self, value: TypedNumber) -> str:
        """Return the text of what `bool` makes of a value."""
        value = self.settled(value)
        return value.text if value.storage == "b" else f"({value.text} != 0)"

    def choose(
        self, test: str, first: Callable[[], TypedNumber], second: Callable[[], TypedNumber]
    ) -> TypedNumber:
        """Return what one of two expressions makes; the other is not computed, or for nothing."""
        self._count += 1
        name, tag = f"t{self._count}", f"g{self._count}"
        parts = [self._aside(each) for each in (first, second)]
        kinds = parts[0][0].kinds | parts[1][0].kinds
        if not kinds:
            return parts[0][0]
        how = storage_of(kinds)
        bits = max(part[0].bits for part in parts)
        positive = all(part[0].positive for part in parts)
        if len(kinds) == 1 and all(value.kinds and _cheap(lines) for value, lines, _ in parts):
            return TypedNumber(self._picked(name, test, parts), kinds, how, "", bits, positive)
        for word, (value, lines, pending) in zip((f"if {test}:", "else:"), parts, strict=True):
            self.put(word)
            self.depth += 1
            self.lines += lines
            since = len(self.pending)
            self.pending += pending
            text, code = self.united(value, kinds, how) if value.kinds else (f"{_CAST[how]}(0)", "1")
            self.flush(since)
            self.put(f"{name} = {text}")
            self.put(f"{tag} = int64({code})")
            self.depth -= 1
        return TypedNumber(name, kinds, how, tag if len(kinds) > 1 else "", bits, positive)

    def _picked(self, name: str, test: str, parts: list[Part]) -> str:
        """Compute both of two values that cost little, and take one: without a jump that is guessed."""
        asked = self.own(f"bool_({test})")
        for (_, lines, pending), when in zip(parts, (asked, f"(not {asked})"), strict=True):
            self.lines += [line[4:] for line in lines]
            self.pending += [(condition, more) if self.quick and _LOST.match(condition) else
                             (f"({when} & ({condition}))", more and f"{when} and ({more})")
                             for condition, more in pending]
        self.put(f"{name} = {parts[0][0].text} if {asked} else {parts[1][0].text}")
        return name

    def _aside(self, make: Callable[[], TypedNumber]) -> Part:
        """Return what `make` returns, the lines that it writes, one step further in, and its checks."""
        kept, self.lines = self.lines, []
        before, since = dict(self.known), len(self.pending)
        self.depth += 1
        unsure, self.unsure = self.unsure, True
        try:
            value = self.settled(make())
            pending = self.pending[since:]
            del self.pending[since:]
            return value, self.lines, pending
        finally:
            self.unsure = unsure
            self.depth -= 1
            self.lines = kept
            self.leave(before)


# A value, the lines that compute it, and the checks that are left.
Part = tuple[TypedNumber, list[str], list[tuple[str, str]]]


def _cheap(lines: list[str]) -> bool:
    """Say whether lines only compute, and little."""
    return len(lines) <= CHEAP and all(
        line.lstrip().startswith(("t", "seen = ")) and not any(word in line for word in _DEAR)
        for line in lines)


PART = 2048  # elements that are kept for a part of the outermost loop
FOOLED = 4  # parts that were done for nothing, before all are done with all checks at once
MOST_ROOM = 1 << 25  # elements that are kept at most
# Of arrays that are kept whole since it is not known where they are written: elements for a turn, and always.
LOOSE, ALWAYS = 64, 4096


class ArrayBackup:
    """A copy of a box of elements of one array, made before anything is stored."""

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
    kept: list[ArrayBackup] = field(default_factory=list)
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
    def copied(self) -> list[ArrayBackup]:
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
