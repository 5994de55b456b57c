"""From the syntax tree of a nest to the lines of a function over memory and numbers.

Knows: rounds, which loops can be done again. Must not know: compilers, calls.
Receives a nest and the kinds of what it reads; returns lines, or says why the interpreter keeps it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from jitla.loops.again import again, deeper, parted, stored_names, stored_places
from jitla.loops.counting import Counting, Range
from jitla.loops.given import Scalar
from jitla.loops.kinds import INTEGERS, Refused
from jitla.loops.statements import PATIENCE
from jitla.loops.values import Hard

ROUNDS = 24
PART = 256  # turns of a loop that are done again together: elements that they store are kept in as much room
MOST_KEPT = 4  # elements of one turn that are kept
MOST_STEP = 1 << 20
FOOLED = 4  # times that nothing was wrong after all, before a loop is done with all checks at once
MOST_ROOM = 1 << 25  # elements that are kept before a nest
ARGUMENTS = "\0"  # stands for what the function of a nest is given
SMALL = 31  # bits of integers that bounds are computed of


class Kept:
    """Elements of one array that are kept before anything is stored: a box of them."""

    def __init__(self, number: int, name: str, boxes: list[list[tuple[str, str]]],
                 steps: list[str]) -> None:
        self.number, self.name, self.steps = number, name, steps
        self.room = f"k{number}_{name}"
        self.axes = [tuple(map(list, zip(*(box[axis] for box in boxes), strict=True)))
                     for axis in range(len(boxes[0]))]

    def measured(self) -> list[str]:
        """Return the lines that say how much room it takes."""
        made = []
        for axis, (lows, highs) in enumerate(self.axes):
            low, high = (dict.fromkeys(each) for each in (lows, highs))
            one = next(iter(low)) if len(low) == 1 else f"min({', '.join(low)})"
            two = next(iter(high)) if len(high) == 1 else f"max({', '.join(high)})"
            made += [f"a{self.number}_{axis} = int64({one}) if fast else int64(0)",
                     f"o{self.number}_{axis} = int64({two}) + int64(1) if fast else int64(0)"]
        sizes = " * ".join(f"max(int64(0), o{self.number}_{axis} - a{self.number}_{axis})"
                           for axis in range(len(self.axes)))
        return [*made, f"n{self.number} = {sizes}", f"room += n{self.number}"]

    def claimed(self) -> str:
        """Return the line that claims the room."""
        return f"{self.room} = spare(p_{self.name}, n{self.number} + int64(1))"

    def moved(self, how: str) -> list[str]:
        """Return the lines that move all of them, there or back."""
        lines, number = ["x = int64(0)"], self.number
        for axis in range(len(self.axes)):
            lines.append("    " * axis + f"for y{axis} in range(a{number}_{axis}, o{number}_{axis}):")
        indent = "    " * len(self.axes)
        element = " + ".join(f"y{axis} * {self.steps[axis]}" for axis in range(len(self.axes)))
        return [*lines, indent + how.format(room=self.room, element=f"p_{self.name}[{element}]"),
                indent + "x += int64(1)"]


class Translator(Counting):
    """Translates one nest; kinds of variables grow from round to round until nothing changes."""

    # Lines of the way that is done for nothing if anything is wrong.
    quick: list[str] | None = None

    def run(self) -> list[str]:
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
        self.unknown, self.known, self.pending = set(), {}, []
        self.regions, self.rooms, self.boxes = 0, {}, {}
        self.definite = {name for name, what in self.given.items() if isinstance(what, Scalar)}
        for name in self.definite:
            variable = self.variables[name]
            known = variable.bits <= SMALL and variable.kinds <= INTEGERS
            text = f"float64(v_{name})"
            if variable.spans is not None:
                variable.spans.add((text, text) if known else None)

    def both(self, lines: list[str]) -> list[str]:
        """Return the lines with a faster way before them, for where all indices are in bounds for sure."""
        self.fast = True
        if deeper(self.nest.loop, {name: what.ndim for name, what in self.arrays.items()}):
            try:
                return self.begun_again(lines)
            except Hard:
                self.whole, self.proofs = False, []
        self.depth += 1
        self.begin_round()
        self.statement(self.nest.loop)
        self.depth -= 1
        made, proofs = self.lines, list(dict.fromkeys(self.proofs))
        if not proofs and not self.regions:
            return lines
        tests = [f"    fast = {proofs[0]}"] if proofs else ["    fast = True"]
        tests += [f"    fast = fast and {each}" for each in proofs[1:]]
        tests += ["    quiet()", *(f"    f{region} = int64(0)" for region in range(self.regions))]
        tests += [f"    {name} = room256(p_{array})" for name, array in self.rooms.items()]
        return [*tests, "    if fast:", *made, "    else:", *("    " + line for line in lines)]

    def begun_again(self, lines: list[str]) -> list[str]:
        """Return the lines with a way before them that is done for nothing if anything is wrong.

        What it may store is kept before; no variable and no statement need be known where it ends.
        """
        self.whole = True
        self.begin_round()
        self.statement(self.nest.loop)
        self.whole = False
        self.quick = self.lines
        kept = [Kept(number, name, boxes, [self.stride(name, axis) for axis in range(len(boxes[0]))])
                for number, (name, boxes) in enumerate(self.boxes.items())]
        tests = [f"    fast = {each}" if not k else f"    fast = fast and {each}"
                 for k, each in enumerate(dict.fromkeys(self.proofs) or ["True"])]
        tests += ["    room = int64(0)", *(f"    {line}" for each in kept for line in each.measured())]
        free = [f"release({each.room})" for each in kept]
        tried = [*(line for each in kept for line in each.moved("{room}[x] = {element}")), "quiet()",
                 f"r = quick({ARGUMENTS})", "if r[0] >= 0:",
                 *("    " + line for line in (*free, "return r")), "quiet()",
                 *(line for each in kept for line in each.moved("{element} = {room}[x]"))]
        had = " and ".join(["True", *(f"not nowhere({each.room})" for each in kept)])
        whole = [*(each.claimed() for each in kept), f"if {had}:", *("    " + line for line in tried), *free]
        begun = f"    if fast and room <= int64({MOST_ROOM}):"
        return [*tests, begun, *("        " + line for line in whole), *lines]

    def do_For(self, node: ast.For) -> None:
        """Write a loop; one that can be done again first notes only whether anything is wrong."""
        if not self.fast or self.sticky or self.again or self.whole:
            self.counting(node)
            return
        for able, way in ((again, self.noted), (parted, self.by_parts)):
            if able(node) and self.attempt(node, way):
                return
        self.counting(node)

    def attempt(self, node: ast.For, way: Callable[[ast.For], None]) -> bool:
        """Write a loop in a way that may turn out to be none; say whether it was one."""
        kept = len(self.lines), self._count, self.counters, set(self.definite), len(self.proofs), self.depth
        rooms, unsure = dict(self.rooms), self.unsure
        self.flush()
        self.known = {}
        try:
            way(node)
        except Hard:
            del self.lines[kept[0]:], self.proofs[kept[4]:]
            self._count, self.counters, self.definite, self.depth = kept[1], kept[2], set(kept[3]), kept[5]
            self.sticky, self.again, self.unsure = False, False, unsure
            self.known, self.pending, self.rooms = {}, [], rooms
            return False
        self.known = {}
        return True

    def noted(self, node: ast.For) -> None:
        """Write a loop that stores one element again and again, or none."""
        restore = self.saved(node)
        self.sticky = True
        for target in stored_places(node):
            name, place = self.place(target)
            kept = self.fresh(f"p_{name}[{place}]")
            restore.insert(0, f"p_{name}[{place}] = {kept}")
        if self.pending:
            raise Hard
        self.sticky = False
        self.twice(node, None, [], restore)

    def by_parts(self, node: ast.For) -> None:
        """Write a loop that stores elements along its way: it is done, and done again, in parts."""
        self.label = self.nest.labels[node]
        k = self.counters + 1
        found = self.source(k, node)
        step = int(found.step[6:-1]) if found.step.startswith("int64(") else MOST_STEP + 1
        places = {ast.unparse(place): place for place in stored_places(node)}
        if abs(step) > MOST_STEP or len(places) > MOST_KEPT:
            raise Hard
        self.begin(k, found)
        self.put(f"for m{k} in range(b{k}, e{k}, {PART * step}):")
        self.depth += 1
        end, sign = f"m{k} + int64({PART * step})", "<" if step > 0 else ">"
        self.put(f"z{k} = {end} if {end} {sign} e{k} else e{k}")
        undone = self.saved(node)
        save: list[str] = []
        restore: list[str] = []
        for number, place in enumerate(places.values()):
            name, _ = self.place_of(place)
            room = f"k{number}_{self.arrays[name].kind}"  # all loops have the same
            self.rooms.setdefault(room, name)
            self.along(node, k, found, place, save, f"{room}[x{k}]", "{0} = {1}")
            self.along(node, k, found, place, restore, f"{room}[x{k}]", "{1} = {0}")
        self.twice(node, (f"m{k}", f"z{k}"), save, [*restore, *undone])
        self.depth -= 1

    def along(self, node: ast.For, k: int, found: Range, target: ast.Subscript, into: list[str],
              room: str, how: str) -> None:
        """Add to `into` a loop over the elements of a part that it stores."""
        kept, self.lines, depth, definite = self.lines, [], self.depth, set(self.definite)
        try:
            self.moved(node, k, found, target, room, how)
        finally:
            into += self.lines
            self.lines, self.depth, self.definite = kept, depth, definite

    def moved(self, node: ast.For, k: int, found: Range, target: ast.Subscript, room: str, how: str) -> None:
        """Write a loop over the elements of a part, and nothing around it."""
        self.depth = 0
        self.put(f"x{k} = int64(0)")
        self.count(k, found.step, (f"m{k}", f"z{k}"))
        self.depth = 1
        self.sticky = True
        assert isinstance(node.target, ast.Name)
        self.assign(node.target, found.value)
        name, place = self.place(target)
        if self.pending:
            raise Hard
        self.put(how.format(room, f"p_{name}[{place}]"))
        self.put(f"x{k} += int64(1)")
        self.sticky, self.known = False, {}

    def saved(self, node: ast.For) -> list[str]:
        """Write what keeps the variables of a loop; return what brings them back."""
        names = list(dict.fromkeys(stored_names(node)))
        for name in names:
            self.put(f"w_{name}, h_{name} = v_{name}, g_{name}")
        return [f"v_{name}, g_{name} = w_{name}, h_{name}" for name in names]

    def twice(self, node: ast.For, part: tuple[str, str] | None, save: list[str],
              restore: list[str]) -> None:
        """Write a loop that only notes whether something is wrong, and one with all checks for then."""
        region, counters, definite = self.regions, self.counters, set(self.definite)
        self.put("bad = bool_(1)")
        self.put(f"if f{region} < int64({FOOLED}):")
        self.depth += 1
        start = len(self.lines)
        self.sticky = True
        self.label = self.nest.labels[node]
        self.counting(node, part)
        self.sticky = False
        flags = any("seen = " in line for line in self.lines[start:])
        checks = any(line.lstrip().startswith("bad = ") for line in self.lines[start:])
        if flags:
            self.put("bad = either(bad, raised(seen))")
        if not checks and not flags:
            self.depth -= 1
            self.lines[start - 2:] = [line[4:] for line in self.lines[start:]]
            return
        indent = "    " * self.depth
        self.lines[start:start] = [indent + line for line in (*save, "bad = bool_(0)")]
        self.put("if rare(bad):")
        self.lines += [indent + "    " + line for line in restore]
        self.depth -= 1
        self.counters, self.definite = counters, definite
        self.put("if rare(bad):")
        self.depth += 1
        self.put(f"f{region} += int64(1)")
        self.again = True
        self.counting(node, part)
        self.again = False
        self.put("quiet()")
        self.depth -= 1
        self.regions += 1
