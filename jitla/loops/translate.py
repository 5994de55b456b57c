"""From the syntax tree of a nest to the lines of functions over memory and numbers.

Knows: rounds, what is kept. Must not know: compilers, calls, how what is done for nothing is undone.
Receives a nest and the kinds of what it reads; returns lines, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast
from itertools import combinations

from jitla.loops.again import breaks, carried, innermost
from jitla.loops.counting import Counting
from jitla.loops.given import Scalar
from jitla.loops.kinds import INTEGERS, ITEM, Refused
from jitla.loops.parts import Kept, Written
from jitla.loops.redone import ordered, unread
from jitla.loops.statements import PATIENCE
from jitla.loops.values import START, STOP
from jitla.loops.writer import Hard

ROUNDS = 24
MOST_BOXES = 8  # places where one array is written that are told from one another
_WATCHED = "seen = ", "loud_", "flag_"
_ODD = *_WATCHED, "return @-1@"  # lines that may find something wrong
_WARNED = "either(bad, lapped("  # what NumPy warns of, and goes on with what was computed
SMALL = 31  # bits of integers that bounds are computed of


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
        self.unknown, self.known, self.pending, self.boxes, self.wrapping = set(), {}, [], {}, set()
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
        noted = any("bad = either(" in line and _WARNED not in line for line in made.quick)
        for number, (name, boxes) in enumerate(self.boxes.items() if odd else ()):
            if len(boxes) > MOST_BOXES:
                lengths = (f"d_{name}_{axis}" for axis in range(len(boxes[0])))
                boxes = [[("0.0", f"(float64({length}) - 1.0)") for length in lengths]]
            steps = [self.stride(name, axis) for axis in range(len(boxes[0]))]
            made.kept.append(Kept(number, name, boxes, steps, noted or not self.again(name, made)))
        made.loose = self.loose and odd
        if isinstance(loop, ast.For):
            made.parted = not breaks(loop.body)
            counters = self.counters
            made.opening = self.opened(loop)
            self.counters = counters
        return made

    def again(self, name: str, made: Written) -> bool:
        """Say whether what is stored in an array is the same if it is stored once more.

        Only where NumPy's warnings are all that is looked at later: then each value is what Python makes,
        and Python comes to store those that are stored already.
        """
        array = self.arrays[name]
        if unread(self.nest.loop, name):
            return True
        if not ordered(self.nest.loop, name, array.ndim) \
                or any(f"d_{name}_{axis}" in self.wrapping for axis in range(array.ndim)):
            return False
        if array.contiguous:
            return True
        if array.ndim == 1:
            made.apart.append(f"fast = fast and s_{name}_0 != int64(0)")
        elif array.ndim == 2:
            one, two = (f"(s_{name}_{b} != 0 and abs(s_{name}_{a}) >= abs(s_{name}_{b}) * d_{name}_{b})"
                        for a, b in ((0, 1), (1, 0)))
            made.apart.append(f"fast = fast and ({one} or {two})")
        return array.ndim <= 2

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
