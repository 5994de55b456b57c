"""The text that does a loop over slices lane by lane: all of it, or nothing.

Knows: lanes, how kernels are called. Must not know: compilers, when it is called.
Receives a nest of lanes and what it is given; returns a kernel, or says why Python keeps it.

No turn depends on an element, so turns are gone through once before anything is done: all their indices are
looked at, and which arrays are read before they are stored. These are kept, all where Python may raise an
error, and brought back where the processor has noted what NumPy would warn of. Then Python does it all.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from itertools import combinations
from struct import Struct
from typing import Any

from jitla.loops.given import Array, Given, Scalar, Variable, variable
from jitla.loops.kernel import Kernel, lengths
from jitla.loops.kinds import CODES, Refused
from jitla.loops.lane_shares import extent, shares
from jitla.loops.lane_turns import LaneTurns
from jitla.loops.lanes import Lanes, Place, whole
from jitla.loops.nests import Nest

MOST_ROOM = 1 << 25  # elements of an array that are kept at most
_STOP = "return int64(1)"


def laned(nest: Nest, given: Mapping[str, Given], resolve: Callable[[str], Any]) -> Kernel:
    """Translate a nest of lanes for what it is given."""
    assert nest.lanes is not None
    if resolve("range") is not range or "range" in given:
        raise Refused("a range that is none", nest.line, element=False)
    return Laned(nest, nest.lanes, given).kernel()


class Laned(LaneTurns):
    """Writes the text of one nest."""

    def __init__(self, nest: Nest, lanes: Lanes, given: Mapping[str, Given]) -> None:
        self.arrays = {name: what for name, what in given.items() if isinstance(what, Array)}
        self.scalars = {name: what for name, what in given.items() if isinstance(what, Scalar)}
        super().__init__(
            lanes, nest.line, {name: what.bits for name, what in self.scalars.items() if what.kind == "int"},
            {name: what.ndim for name, what in self.arrays.items()})
        for name, what in given.items():
            self.fits(name, what)

    def fits(self, name: str, what: Given) -> None:
        """Refuse what lanes are not made of."""
        axes = {self.lanes.axes + (place.index is not None)
                for place in self.lanes.places.values() if place.name == name}
        if name in self.lanes.bare and isinstance(what, Array):
            axes.add(self.lanes.axes)
        match what:
            case Array(kind="f8", ndim=ndim) if axes <= {ndim}:
                if name in self.lanes.stored and not what.writeable:
                    raise Refused(f"{name} is read-only", self.line)
            case Scalar(kind="float" | "f8") if not axes:
                pass
            case Scalar(kind="int", bits=bits) if not axes and bits <= 31:
                pass
            case _:
                raise Refused(f"{name} is {_shown(what)}, in a loop over slices", self.line, element=False)

    # -- the kernel ------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """Return it."""
        self.settle()
        quick = self.quick()
        takes = tuple(self.scalars)
        only = "".join("q" if name in self.integers else "d" for name in takes)
        sizes = "q" * sum(2 * what.ndim for what in self.arrays.values())
        places = {name: 2 + index for index, name in enumerate(takes)}
        first = [f"v_{name} = {'I' if name in self.integers else 'F'}[{places[name]}]" for name in takes]
        first += lengths(self.arrays, 2 + len(takes))
        parameters = "I, F" + "".join(f", p_{name}" for name in self.arrays)
        head = ["    " + line for line in [*first, *self.extents()]]
        text = "\n".join([f"def quick({parameters}, low, high):", *head, *quick,
                          f"def kernel({parameters}):", "    I[0] = int64(0)", "    I[1] = int64(0)", *head,
                          *self.asked(), *self.done(parameters), ""])
        variables = {name: variable(what) for name, what in self.scalars.items()}
        variables[self.target] = Variable(frozenset({"int"}))
        stored = tuple(sorted(self.lanes.stored))
        return Kernel(
            text, ("float64",) * len(self.arrays), tuple(self.arrays), stored, takes, (self.target,), 0,
            (), Struct("=qq" + only + sizes), Struct("=qq"), variables, places)

    # -- before anything is done -----------------------------------------------------------------

    def extents(self) -> list[str]:
        """Return the lines that say how many lanes there are along each axis."""
        place = next(p for node, p in self.lanes.places.items()
                     if isinstance(node.ctx, ast.Store) and p.index is not None)
        return [f"n{axis} = {extent(place.name, axis, cut)}" for axis, cut in enumerate(place.cuts)]

    def asked(self) -> list[str]:
        """Return the lines that stop where lanes are not as many everywhere, or arrays share memory."""
        made = [f"n{axis} < int64(1)" for axis in range(self.lanes.axes)]
        for place in {(p.name, p.cuts): p for p in self.lanes.places.values()}.values():
            for axis, cut in enumerate(place.cuts or ((0, None),) * self.lanes.axes):
                first, last = cut
                if last is not None and last >= 0:
                    made.append(f"d_{place.name}_{axis} < int64({max(first, last)})")
                made.append(f"{extent(place.name, axis, cut)} != n{axis}")
        for name in sorted(self.lanes.bare & {*self.arrays}):
            made += [f"d_{name}_{axis} != n{axis}" for axis in range(self.lanes.axes)]
        self.put(f"if {' or '.join(dict.fromkeys(made))}: {_STOP}")
        self.apart()
        self.dry()
        return self.taken()

    def apart(self) -> None:
        """Write what stops where an array that is written shares memory with another, or with itself."""
        pairs = [(a, b) for a, b in combinations(sorted(self.arrays), 2) if self.lanes.stored & {a, b}]
        for name in sorted({name for pair in pairs for name in pair}):
            ways = [f"(d_{name}_{axis} - int64(1)) * s_{name}_{axis}"
                    for axis in range(self.arrays[name].ndim)]
            for word, extreme, more in (("low", "min", 0), ("high", "max", 1)):
                total = " + ".join(f"{extreme}(int64(0), {way})" for way in ways)
                self.put(f"{word}_{name} = where(p_{name}) + int64(8) * ({total} + int64({more}))")
        for a, b in pairs:
            self.put(f"if not (high_{a} <= low_{b} or high_{b} <= low_{a}): {_STOP}")
        for name in sorted(name for name in self.lanes.stored if not self.arrays[name].contiguous):
            for i, j in combinations(range(self.arrays[name].ndim), 2):
                one, two = (f"abs(s_{name}_{k}) >= max(int64(1), abs(s_{name}_{m})) * d_{name}_{m}"
                            for k, m in ((i, j), (j, i)))
                self.put(f"if not ({one} or {two}): {_STOP}")

    def dry(self) -> None:
        """Write all turns without what they do: indices only."""
        for name in sorted(self.lanes.stored):
            self.put(f"least_{name} = int64(1)")
            self.put(f"most_{name} = int64(0)")
            self.put(f"early_{name} = {name in self.lanes.bare}")
        self.put("risky = False")
        for name in sorted(self.lanes.names):
            self.put(f"number_{name} = {name in self.lanes.carried and name not in self.boxes}")
        self.turns(lambda: self.dry_block(self.lanes.turn.body))
        for name in sorted(self.lanes.stored):
            self.put(f"early_{name} = early_{name} or risky")

    def dry_block(self, body: list[ast.stmt]) -> None:
        """Write which elements statements read and store."""
        if body is self.lanes.turn.body:
            self.put("I[0] = c1")
            self.put(f"I[1] = int64({CODES['int']})")
        for node in body:
            match node:
                case ast.If():
                    self.choice(node, self.dry_block)
                case ast.Assign(targets=targets, value=value):
                    self.dry_read(value)
                    number = self.number(value)
                    for target in targets:
                        self.dry_store(target, number)
                case ast.AugAssign(target=target, op=op, value=value):
                    self.dry_read(value)
                    self.dry_read(target)
                    self.dry_store(target, self.number(ast.BinOp(target, op, value)))

    def dry_index(self, place: Place) -> None:
        """Write the index of a place, which stops where it counts from the end, or is beyond it."""
        if place.index is None:
            self.put("x = int64(0)")
            return
        length = f"d_{place.name}_{self.lanes.axes}"
        constant = whole(place.index)
        if constant is not None and constant < 0:
            self.put(f"x = {length} - int64({-constant})")
        else:
            self.put(f"x = {self.counted(place.index)[0]}")
        self.put(f"if outside(x, {length}): {_STOP}")

    def number(self, node: ast.expr) -> str:
        """Return the text that says whether a value is a number: by zero it is an error of Python's."""
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                both = _both(self.number(left), self.number(right))
                if isinstance(op, ast.Div) and both != "False":
                    self.put(f"risky = risky or {both}")
                return both
            case ast.UnaryOp(operand=operand):
                return self.number(operand)
            case ast.Name(id=name) if name in self.lanes.names:
                return f"number_{name}"
            case ast.Name(id=name) if name not in self.boxes:
                return "True"
            case ast.Constant():
                return "True"
        return "False"

    def dry_read(self, node: ast.expr) -> None:
        """Write what is asked of all elements that an expression reads."""
        for part in ast.walk(node):
            if isinstance(part, ast.Subscript) and part in self.lanes.places:
                place = self.lanes.places[part]
                self.dry_index(place)
                name = place.name
                if name in self.lanes.stored:
                    self.put(f"early_{name} = early_{name} or x < least_{name} or x > most_{name}")

    def dry_store(self, target: ast.expr, number: str) -> None:
        """Write what is asked of an element that is stored, or which name is a number now."""
        if not isinstance(target, ast.Subscript):
            self.put(f"number_{target.id} = {number}")  # type: ignore[attr-defined]
            return
        place = self.lanes.places[target]
        self.dry_index(place)
        name = place.name
        least, most = f"least_{name}", f"most_{name}"
        self.put(f"early_{name} = early_{name} or {least} <= {most} and (x < {least} - int64(1)"
                 f" or x > {most} + int64(1))")
        self.put(f"some = {least} <= {most}")
        self.put(f"{least} = min({least}, x) if some else x")
        self.put(f"{most} = max({most}, x) if some else x")

    # -- doing it ----------------------------------------------------------------------------------

    def done(self, parameters: str) -> list[str]:
        """Return the lines that keep what has to be kept, do all lanes, and undo them if anything was odd."""
        names = sorted(self.lanes.stored)
        released = [f"release(k_{name})" for name in names]
        for name in names:
            self.put(f"z_{name} = {' * '.join(self.box(name))} if early_{name} else int64(0)")
        self.put(f"if {' or '.join(f'z_{name} > int64({MOST_ROOM})' for name in names)}: {_STOP}")
        for name in names:
            self.put(f"k_{name} = spare(p_{name}, z_{name} + int64(1))")
        self.put(f"lacking = {' or '.join(f'nowhere(k_{name})' for name in names)}")
        self.put("if lacking:")
        self.lines += ["        " + line for line in (*released, _STOP)]
        for name in names:
            self.moved(name, "{room} = {element}")
        self.put("quiet()")
        for line in shares(self.lanes, max(map(self.box, names), key=len), parameters):
            self.put(line)
        self.put("if odd:")
        self.depth += 1
        for name in names:
            self.moved(name, "{element} = {room}")
        self.put("I[1] = int64(0)")
        self.depth -= 1
        for line in released:
            self.put(line)
        self.put("return odd")
        return self.taken()

    def box(self, name: str) -> list[str]:
        """Return how long that is along each axis what is stored in an array."""
        axes = self.lanes.axes
        return [*(f"n{axis}" for axis in range(axes)),
                *(f"d_{name}_{axis}" for axis in range(axes, self.arrays[name].ndim))]

    def moved(self, name: str, how: str) -> None:
        """Write what moves the elements of an array that lanes may store, there or back."""
        before = self.depth
        self.put(f"if early_{name}:")
        self.depth += 1
        self.put("y = int64(0)")
        cuts = self.cuts(name)
        box = self.box(name)
        steps = []
        for axis, length in enumerate(box):
            first = cuts[axis][0] if axis < len(cuts) else 0
            steps.append(f"(x{axis} + int64({first})) * {self.stride(name, axis)}")
            self.put(f"for x{axis} in range({length}):")
            self.depth += 1
        self.put(how.format(room=f"k_{name}[y]", element=f"p_{name}[{' + '.join(steps)}]"))
        self.put("y += int64(1)")
        self.depth = before

    def cuts(self, name: str) -> tuple[tuple[int, int | None], ...]:
        """Return how an array that is stored is cut."""
        return next(place.cuts for node, place in self.lanes.places.items()
                    if place.name == name and isinstance(node.ctx, ast.Store))

    def stride(self, name: str, axis: int) -> str:
        """Return how many elements it is to the next along an axis."""
        array = self.arrays[name]
        return "int64(1)" if array.contiguous and axis == array.ndim - 1 else f"s_{name}_{axis}"


def _both(one: str, two: str) -> str:
    """Return the text of whether both hold."""
    if "False" in (one, two):
        return "False"
    return two if one == "True" else one if two == "True" else f"({one} and {two})"


def _shown(what: Given) -> str:
    return what if isinstance(what, str) else what.kind
