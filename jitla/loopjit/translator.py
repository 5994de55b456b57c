"""Translator of loop nests into the text of a function that the compiling process understands."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.arithmetic import REDUCTIONS
from jitla.loopjit.dataflow import (
    LEAVING,
    breaks,
    carried,
    innermost,
    ordered,
    stored_names,
    unread,
)
from jitla.loopjit.detect import DetectedNest, reduction
from jitla.loopjit.expressions import SIZE, CountedLoop
from jitla.loopjit.statements import PATIENCE, Row, Rows
from jitla.loopjit.types import (
    BITS,
    CODES,
    EXACT,
    FROM,
    INTEGERS,
    ITEM,
    PYTHON,
    START,
    STOP,
    STORAGE,
    TO,
    WIDE,
    Array,
    Given,
    Refused,
    Scalar,
    Span,
    TypedNumber,
    Variable,
    endless,
    number,
)
from jitla.loopjit.writer import LARGEST, ArrayBackup, CannotDefer, Written

# What a sum of negative zeros is: some releases of NumPy begin with one, others with a zero.
_BEGIN = repr(float(np.add.reduce(np.array([-0.0]))))


class Reductions(Rows):
    """Translates what makes a number of a row."""

    def call(self, func: ast.expr, args: list[ast.expr]) -> TypedNumber:
        """Call a function of numbers, or of a row."""
        found = reduction(ast.Call(func, args, []))
        if found is None:
            return super().call(func, args)
        how, operand = found
        if args:
            name = ast.unparse(func)
            if name.partition(".")[0] in (*self.variables, *self.given) \
                    or REDUCTIONS.get(self.resolve(name)) != how:
                raise Refused(f"a call of {name}", element=False)
        sides = [operand.left, operand.right] if isinstance(operand, ast.BinOp) else [operand]
        rows = [self.side(each) for each in sides]
        if len(rows) == 2:
            self.bail(f"{rows[0].length} != {rows[1].length}", hard=True)
        places = ", ".join(f"p_{row.name}, {row.start}, {row.step}" for row in (rows[0], rows[-1]))
        return self.reduced("product" if len(rows) == 2 else how, f"{places}, {rows[0].length}")

    def reduced(self, how: str, given: str) -> TypedNumber:
        """Return what becomes of a row; where NumPy would complain, or its answer is open, Python goes on."""
        if how in ("sum", "product"):
            text = self.fresh(f"float64({_BEGIN}) + row_{how}({given})")
            self.bail(f"not (abs({text}) <= {LARGEST['d']})")
        else:
            text = self.fresh(f"row_{how}({given})")
            self.bail(f"{text} != {text}")
        return TypedNumber(text, frozenset({"f8"}), "d")

    def side(self, node: ast.expr) -> Row:
        """Return a row, or an array of one axis that is one."""
        if isinstance(node, ast.Subscript):
            if not self.over_rows(node):
                raise Refused(f"{ast.unparse(node)} is no row", element=False)
            return self.row(node)
        assert isinstance(node, ast.Name)
        known = self.arrays.get(node.id)
        if known is None or known.ndim != 1 or known.kind != "f8":
            raise Refused(f"{node.id} is no row of f8", element=False)
        return Row(node.id, "int64(0)", f"int64({self.stride(node.id, 0)})", f"d_{node.id}_0")


# Bits of what a loop begins or ends with: more are asked for.
MOST = EXACT - 5


class Range(NamedTuple):
    """What a loop counts through, and what its variable holds."""

    start: str
    stop: str
    step: str
    value: TypedNumber


class Counting(Reductions):
    """Translates loops."""

    def do_While(self, node: ast.While) -> None:
        """Repeat a block as long as a test holds."""
        self.put("while True:")
        self.known = {}
        self.depth += 1
        test = self.test(node.test)
        self.flush()
        self.put(f"if not {test}: break")
        self.depth -= 1
        self.inside(node, None)

    def inside(self, loop: ast.For | ast.While, bits: int | None) -> None:
        """Translate the body of a loop: what it assigns may have been, or not."""
        before, unsure = set(self.definite), self.unsure
        self.unsure = False
        self.doubts.append(unsure or isinstance(loop, ast.While))
        self.around.append((loop, bits))
        try:
            self.block(loop.body)
        finally:
            self.doubts.pop()
            self.around.pop()
        self.definite, self.known, self.unsure = before, {}, unsure
        if self.quick:
            for name in self.needs.after.get(loop, ()):
                variable = self.variables[name]
                if variable.storage in "ds" and not variable.kinds <= PYTHON:
                    self.put(f"seen = seen | bits_{variable.storage}(v_{name})")

    def counting(self, node: ast.For) -> None:
        """Count, or go through the elements of an array; of the outermost loop, through a part only."""
        self.label = self.nest.labels[node]
        self.counters += 1
        k = self.counters
        assert isinstance(node.target, ast.Name)
        part = FROM, TO
        if node is self.nest.loop:
            found = self.part(k, node)
        else:
            # where it begins something may be wrong before anything is done
            sticky, self.sticky = self.sticky, False
            found, part = self.source(k, node), (f"b{k}", f"e{k}")
            self.begin(k, found)
            self.sticky = sticky
        with self.ahead(k, node, found):
            self.counted_loop(k, node, found, part)

    @contextmanager
    def ahead(self, k: int, node: ast.For, found: Range) -> Iterator[None]:
        """Write what can be asked once for all turns of an inner loop before it."""
        assert isinstance(node.target, ast.Name)
        if not self.quick or node is self.nest.loop or not found.value.text.startswith("c"):
            yield
            return
        stored = list(stored_names(node))
        name = node.target.id
        if stored.count(name) > 1 or self.variables[name].kinds != {"int"}:
            name = ""
        plain = not any(isinstance(part, LEAVING) for part in ast.walk(node))
        turns = CountedLoop(k, name, found.value, frozenset(stored), len(self.lines), self.depth,
                            len(self.doubts), plain, found.step.startswith("int64(-"))
        self.turns.append(turns)
        try:
            yield
        finally:
            self.turns.pop()
        self.lines[turns.line:turns.line] = turns.lines(self.leaving)

    def counted_loop(self, k: int, node: ast.For, found: Range, part: tuple[str, str]) -> None:
        """Write a counted loop: its head, and the body of an iteration."""
        assert isinstance(node.target, ast.Name)
        self.count(k, found.step, part)
        before = set(self.definite)
        self.depth += 1
        value = found.value if found.value.text.startswith("c") else self.fetched(found.value)
        if self.variables[node.target.id].storage != value.storage and value.bits > EXACT:
            raise Refused("the variable of a loop holds other numbers, too")
        self.assign(node.target, value)
        self.depth -= 1
        self.inside(node, found.value.bits + 1 if found.value.text.startswith("c") else SIZE)
        self.definite = before

    def part(self, k: int, node: ast.For) -> Range:
        """Return what the outermost loop goes through; it is computed elsewhere, once."""
        kept = self.lines
        self.lines = []
        found = self.source(k, node)
        self.lines, self.pending, self.known = kept, [], {}
        self.put(f"e{k} = {STOP}")
        self.put(f"s{k} = STEP")
        low, high = (f"float64({FROM})", f"float64({TO} - 1)")
        if found.step.startswith("int64(-"):
            low, high = (f"float64({TO} + 1)", f"float64({FROM})")
        value = found.value
        return found._replace(value=replace(value, span=(low, high) if value.span else None))

    def source(self, k: int, node: ast.For) -> Range:
        """Return what a loop goes through."""
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=args) if "range" not in self.given \
                    and "range" not in self.variables and self.resolve("range") is range:
                return self.counted(k, args, self.quick and node is not self.nest.loop)
            case ast.Name(id=name) if name in self.arrays and self.arrays[name].ndim == 1:
                array = self.arrays[name]
                value = TypedNumber(f"p_{name}[c{k} * {self.stride(name, 0)}]", frozenset({array.kind}),
                                    STORAGE[array.kind], "", BITS.get(array.kind, WIDE))
                return Range("int64(0)", f"d_{name}_0", "int64(1)", value)
        raise Refused(f"a loop over {ast.unparse(node.iter)}", element=False)

    def begin(self, k: int, found: Range) -> None:
        """Keep where a loop is to begin and to end; what is left of it the interpreter could do."""
        self.flush()
        self.put(f"b{k} = {found.start}")
        self.put(f"e{k} = {found.stop}")
        self.put(f"s{k} = {found.step}")

    def count(self, k: int, step: str, part: tuple[str, str]) -> None:
        """Write the head of a loop that counts."""
        self.flush()
        self.known = {}
        by = {"int64(1)": "", "int64(-1)": ", -1"}.get(step, f", s{k}")
        self.put(f"for c{k} in range({part[0]}, {part[1]}{by}):")

    def counted(self, k: int, args: list[ast.expr], inner: bool) -> Range:
        """Return what a range counts through."""
        values = [self.integer(arg) for arg in args]
        if not 1 <= len(values) <= 3:
            raise Refused("a range of that many arguments")
        zero, one = number(0), number(1)
        start, stop, step = {1: (zero, *values, one), 2: (*values, one), 3: tuple(values)}[len(values)]
        if not step.text.startswith("int64("):
            self.bail(f"{step.text} == 0", hard=True)
        elif step.text == "int64(0)":
            raise Refused("a range without a step")
        for value in (start, stop, step):
            if inner and value.bits > MOST:
                self.bail(f"beyond({value.text}, int64({1 << SIZE}))", hard=True)
            elif value.bits >= WIDE - 1:
                self.bail(f"huge({value.text})", hard=True)
        up = step.positive and step.text.startswith("int64(")
        down = step.text.startswith("int64(-")
        # counting down ends before it stops, at -1 at the latest
        low = start.positive and up or down and (stop.positive or stop.text == "int64(-1)")
        span: Span = None
        if start.span and stop.span and not endless(start.span) and not endless(stop.span) and (up or down):
            span = start.span[0], f"({stop.span[1]} - 1.0)"
            if down:
                span = f"({stop.span[0]} + 1.0)", start.span[1]
        elif inner and (up or down):
            span = f"float64(b{k})", f"(float64(e{k}) - 1.0)"
            if down:
                span = f"(float64(e{k}) + 1.0)", f"float64(b{k})"
        most = [min(value.bits, WIDE - 1) if value.bits <= MOST or not inner else SIZE + 1
                for value in (start, stop)]
        bits = max(most)
        value = TypedNumber(f"c{k}", frozenset({"int"}), "i", "", bits, low, (),
                            span if bits <= EXACT else None)
        return Range(start.text, stop.text, step.text, value)


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
            spans = [variable.start_round() for variable in self.variables.values()]
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
        for index, (name, boxes) in enumerate(self.boxes.items() if odd else ()):
            if len(boxes) > MOST_BOXES:
                lengths = (f"d_{name}_{axis}" for axis in range(len(boxes[0])))
                boxes = [[("0.0", f"(float64({length}) - 1.0)") for length in lengths]]
            steps = [self.stride(name, axis) for axis in range(len(boxes[0]))]
            made.kept.append(ArrayBackup(index, name, boxes, steps, noted or not self.again(name, made)))
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
        except CannotDefer:
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


_READ = {"i": "I[{}]", "d": "F[{}]", "s": "float32(F[{}])", "b": "(I[{}] != 0)"}
_ZERO = {"i": "int64(0)", "d": "float64(0)", "s": "float32(0)", "b": "bool_(0)"}
_PACKED = {"i": "q", "d": "d", "s": "d", "b": "q"}
_POINTER = {"b1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
            "u2": "uint16", "u4": "uint32", "f4": "float32", "f8": "float64"}


@dataclass(frozen=True)
class LoopKernel:
    """One nest for one set of kinds."""

    text: str
    # Types of the elements of each array, in the order of `arrays`.
    pointers: tuple[str, ...]
    arrays: tuple[str, ...]
    written: tuple[str, ...]
    # Numbers that it is given, in order, and those it gives back, each with its code.
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    counters: int
    # Truth values of NumPy that it takes, and where.
    truths: tuple[tuple[int, str], ...]
    # Of all memory; of what is given back.
    packing: Struct
    unpacking: Struct
    variables: Mapping[str, Variable]
    # Where each number that it takes lies, in words.
    places: Mapping[str, int]


def kernel(nest: DetectedNest, given: Mapping[str, Given], resolve: Callable[..., Any]) -> LoopKernel:
    """Translate a nest for what it is given."""
    made = Translator(nest, given, resolve)
    lines = made.run()
    known = {name: what for name, what in given.items() if isinstance(what, Array)}
    arrays = tuple(known)
    gives = tuple(name for name in nest.writes if made.variables[name].kinds)
    takes = tuple(name for name, what in given.items() if isinstance(what, Scalar))
    names = (*gives, *(name for name in takes if name not in gives))
    held = {name: made.variables[name].storage for name in names}
    for name in takes:
        what = given[name]
        if isinstance(what, Scalar) and held[name] == "d" and STORAGE[what.kind] == "i" and what.bits > EXACT:
            raise Refused(f"{name} is an integer at times, and a float", nest.line)
    back = "".join(_PACKED[held[name]] + "q" for name in gives) + "qqq" * made.counters
    only = "".join(_PACKED[held[name]] for name in names[len(gives):])
    sizes = "q" * sum(2 * what.ndim for what in known.values())
    places = {name: 2 * gives.index(name) if name in gives else len(back) + names.index(name) - len(gives)
              for name in takes}
    truths = tuple((places[name], name) for name in takes if given[name] == Scalar("b1"))
    text = _text(made, lines, known, given, gives, names, len(back), len(back) + len(only))
    pointers = tuple(_POINTER[what.kind] for what in known.values())
    return LoopKernel(
        text, pointers, arrays, tuple(sorted(made.written)), takes, gives, made.counters, truths,
        Struct("=" + back + only + sizes), Struct("=" + back), made.variables, places)


def _text(
    made: Translator, lines: Written, arrays: Mapping[str, Array], given: Mapping[str, Given],
    gives: tuple[str, ...], names: tuple[str, ...], only: int, sizes: int,
) -> str:
    """Return the text of both ways through a nest, and of the function that is called with memory."""
    counters = [f"{letter}{k + 1}" for k in range(made.counters) for letter in "ces"]
    back = [part for name in gives for part in (f"v_{name}", f"g_{name}")] + counters
    parameters = "I, F" + "".join(f", p_{name}" for name in arrays)
    first = lengths(arrays, sizes)
    for index, name in enumerate(names):
        how = made.variables[name].storage
        at = 2 * index if name in gives else only + index - len(gives)
        what = given.get(name)
        known = CODES[what.kind] if isinstance(what, Scalar) else 0
        code = f"I[{at + 1}]" if name in gives else f"int64({known})"
        first += [f"v_{name} = {_READ[how].format(at)}", f"g_{name} = {code}"]
    more = f", {FROM}, {TO}, {STOP}, STEP" if lines.opening else ""
    bodies = []
    head = [*first, *(f"{each} = int64(0)" for each in (*counters, "seen"))]
    for title, part in (("careful", lines.careful), ("quick", lines.quick)):
        if part is not None:
            asked = ["    if rare(raised(seen)): return @-1@"] if title == "quick" and lines.watched else []
            body = [*("    " + line for line in head), *part, *asked, "    return @0@"]
            bodies += [f"def {title}({parameters}{more}):", _returning(made, body, back)]
    begun = []
    for index, name in enumerate(gives):
        what, how = given.get(name), made.variables[name].storage
        if not isinstance(what, Scalar):
            begun.append(f"F[{2 * index}] = 0.0" if how in "ds" else f"I[{2 * index}] = int64(0)")
        begun.append(f"I[{2 * index + 1}] = int64({CODES[what.kind] if isinstance(what, Scalar) else 0})")
    return "\n".join([*bodies, f"def kernel({parameters}):", *("    " + line for line in [*begun, *first]),
                      *_driven(made, lines, back, parameters), "    return int64(0)", ""])


def lengths(arrays: Mapping[str, Array], place: int) -> list[str]:
    """Return the lines that read lengths of arrays, and steps."""
    made = []
    for name, array in arrays.items():
        for axis in range(array.ndim):
            made += [f"d_{name}_{axis} = I[{place}]", f"s_{name}_{axis} = I[{place + 1}]"]
            place += 2
    return made


def _returning(made: Translator, body: list[str], back: list[str]) -> str:
    """Return lines as text; they return a number, and what is given back."""
    text, everything = "\n".join(body), ", ".join(back)
    nothing = ", ".join(_ZERO[_held(made, each)] for each in back)
    for label in range(len(made.nest.labels) + 1):
        text = text.replace(f"return @{label}@", f"return (int64({label}), {everything})")
    return text.replace("return @-1@", f"return (int64(-1), {nothing})")


def _held(made: Translator, word: str) -> str:
    return made.variables[word[2:]].storage if word.startswith("v_") else "i"


def _driven(made: Translator, lines: Written, back: list[str], parameters: str) -> list[str]:
    """Return the lines that do all parts of a nest, and store what each of them gives back."""
    found = []
    for line in lines.driven(parameters):
        if line.strip() != "@r@":
            found.append("    " + re.sub(r"return @(\d+)@", r"return int64(\1)", line))
            continue
        for index, each in enumerate(back):
            how = _held(made, each)
            value = f"{'int64' if how == 'b' else ''}(r[{index + 1}])"
            found.append(f"        {'F' if how in 'ds' else 'I'}[{index}] = {value}")
    return found
