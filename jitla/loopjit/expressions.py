"""Translation of expressions in loops from AST to typed kernel text; indices are checked before the loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from types import FunctionType
from typing import Any

from jitla.classes import dataclass
from jitla.loopjit.arithmetic import CALLS, COMPARED, Arithmetic, called
from jitla.loopjit.callees import DEEPEST, LONGEST_WAY, Helper
from jitla.loopjit.dataflow import needs
from jitla.loopjit.detect import DetectedNest, chain
from jitla.loopjit.types import (
    BITS,
    INTEGERS,
    RANGES,
    START,
    STOP,
    STORAGE,
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
    variable,
)

# What a loop begins and ends with, and elements that stay the same in it.
_WORDS = re.compile(r"\b[beh]\d+\b")
_FLOAT, _NUMBER = re.compile(r"float64\((\w+)\)"), re.compile(r"\b(\d+)\.0\b")
SIZE = 40  # bits of lengths of arrays, and of what may be an index


@dataclass
class CountedLoop:
    """An inner loop with a counter whose bounds are known on entry."""

    number: int
    # Its variable, what that holds in it; nothing if the loop assigns it elsewhere, too.
    name: str
    value: TypedNumber
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
        self.turns: list[CountedLoop] = []
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

    def certain(self, turns: CountedLoop) -> bool:
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


ZERO = {"i": "int64(0)", "d": "float64(0.0)", "s": "float32(0.0)", "b": "bool_(0)"}


class Elements(Ahead):
    """Reads and writes elements."""

    def __init__(self, nest: DetectedNest, given: Mapping[str, Given], resolve: Callable[..., Any]) -> None:
        super().__init__()
        self.nest = nest
        self.given = given
        # What a name outside of the function stands for; whoever is asked makes sure that it stays so.
        self.resolve = resolve
        self.variables: dict[str, Variable] = {}
        self.arrays: dict[str, Array] = {}
        self.written: set[str] = set()
        self.definite: set[str] = set()
        self.needs = needs(nest.loop)
        # Inside of a function that is written out: which one, what its names are, how long its ways are.
        self.within: FunctionType | None = None
        self.scope: dict[str, TypedNumber] = {}
        self.way: list[int] = []
        self.counters = 0
        # The loops around, and the bits of how many turns each has at most; none where that is not known.
        self.around: list[tuple[ast.For | ast.While, int | None]] = []
        self.changed = False
        self.rounds = 0
        # What proves before the loop that indices are in bounds, which are not checked then.
        self.proofs: list[str] = []
        # Of arrays that are written, the bounds of each index; whether some are not known.
        self.boxes: dict[str, list[list[tuple[str, str]]]] = {}
        self.loose = False
        # Lengths along which an index may count from the end.
        self.wrapping: set[str] = set()
        # Variables that were read before it is known what they may hold.
        self.unknown: set[str] = set()
        for name, what in given.items():
            if isinstance(what, Array):
                self.arrays[name] = what
                if name in nest.writes:
                    raise Refused(f"{name} is an array, and is assigned", nest.line, element=False)
            elif isinstance(what, Scalar):
                self.variables[name] = variable(what)
        for name in nest.writes:
            self.variables.setdefault(name, Variable(frozenset()))

    def expression(self, node: ast.expr) -> TypedNumber:
        """Translate an expression."""
        raise NotImplementedError

    def length(self, name: str, axis: int) -> TypedNumber:
        """Return how long an array is along an axis."""
        text = f"d_{name}_{axis}"
        bound = f"float64({text})"
        return TypedNumber(text, frozenset({"int"}), "i", "", SIZE, True, (), (bound, bound))

    def place_of(self, node: ast.Subscript) -> tuple[str, list[ast.expr]]:
        """Return array and indices of an element."""
        inner, indices = chain(node)
        if not isinstance(inner, ast.Name) or inner.id not in self.arrays:
            raise Refused(f"{ast.unparse(inner)} is no array", element=False)
        name = inner.id
        if len(indices) != self.arrays[name].ndim:
            raise Refused(f"{ast.unparse(node)} is no element", element=False)
        return name, indices

    def place(self, node: ast.Subscript, stored: bool = False) -> tuple[str, str]:
        """Return array and position of an element, after its indices were checked."""
        name, indices = self.place_of(node)
        parts = []
        before, self.indexing = self.indexing, True
        try:
            values = [self.integer(index, " as an index") for index in indices]
        finally:
            self.indexing = before
        if stored and self.quick:
            self.boxes.setdefault(name, []).append(
                [self.bounds(value, f"d_{name}_{axis}") for axis, value in enumerate(values)])
        for axis, value in enumerate(values):
            place = self.index(value, f"d_{name}_{axis}", isinstance(indices[axis], ast.Subscript))
            stride = self.stride(name, axis)
            parts.append(place if stride == "1" else f"{place} * {stride}")
        return name, self.fresh(" + ".join(parts))

    def bounds(self, value: TypedNumber, length: str) -> tuple[str, str]:
        """Return the bounds of an index; if they are not known, those of the array."""
        if value.span is not None and _proven(value) and not self.local(value.span):
            return value.span
        self.loose = True
        return "0.0", f"(float64({length}) - 1.0)"

    def index(self, value: TypedNumber, length: str, read: bool = False) -> str:
        """Return the position that an index means along an axis; one that is read is hardly ever negative."""
        if not value.kinds:
            return "int64(0)"
        place = value.text
        if self.quick and _proven(value):
            assert value.span is not None
            low, high = value.span
            if self.local(value.span):
                if self.proven_ahead(value.span, length):
                    return place
            else:
                self.proofs += [f"{low} >= 0.0", f"{high} < float64({length})"]
                return place
        if self.quick and self.counted_down(value.span):
            assert value.span is not None
            self.proofs.append(f"{value.span[1]} < float64({length})")
            if not value.positive:
                self.wrapping.add(length)
                place = self.fresh(f"{place} + {length} if {place} < 0 else {place}")
                self.bail(f"{place} < 0", hard=True)
            return place
        if not value.positive and not (read and self.quick):
            self.wrapping.add(length)
            place = self.fresh(f"{place} + {length} if {place} < 0 else {place}")
        self.bail(f"outside({place}, {length})", hard=True)
        return place

    def counted_down(self, span: Span) -> bool:
        """Say whether what is counted down begins where a loop has come to: at places of arrays."""
        return span is not None and endless(span) and "INF" not in span[1] and not self.local(span) \
            and (START in span[1] or STOP in span[1])

    def steady(self, node: ast.Subscript) -> TypedNumber | None:
        """Return an element that an index is made of, if it stays the same in the innermost loop."""
        if not self.quick or not self.indexing or not self.turns or not self.certain(self.turns[-1]):
            return None
        name, indices = self.place_of(node)
        kind, stored = self.arrays[name].kind, self.turns[-1].stored
        if kind not in INTEGERS or name in self.written or not all(
                isinstance(index, ast.Constant) or isinstance(index, ast.Name)
                and index.id in self.definite and index.id not in stored for index in indices):
            return None
        parts = []
        for axis, index in enumerate(indices):
            value, length = self.integer(index, " as an index"), f"d_{name}_{axis}"
            if not _proven(value) or self.index(value, length) != value.text:
                return None
            parts.append(f"{value.text} * {self.stride(name, axis)}")
        read = self.read_ahead(f"int64(p_{name}[{' + '.join(parts)}])")
        bound = f"float64({read})"
        return TypedNumber(read, frozenset({kind}), "i", "", min(BITS[kind], SIZE + 1),
                           RANGES[kind][0] == 0, (), (bound, bound))

    def stride(self, name: str, axis: int) -> str:
        """Return the text of the elements from one position to the next."""
        array = self.arrays[name]
        return "1" if array.contiguous and axis == array.ndim - 1 else f"s_{name}_{axis}"

    def integer(self, node: ast.expr, where: str = "") -> TypedNumber:
        """Return a value that counts."""
        value = self.settled(self.expression(node))
        if not value.kinds <= INTEGERS:
            raise Refused(f"a {min(value.kinds - INTEGERS)}{where} where an integer is needed", element=False)
        return value

    def load(self, name: str, place: str) -> TypedNumber:
        """Read an element."""
        kind = self.arrays[name].kind
        bits = BITS.get(kind, WIDE)
        return self.fetched(TypedNumber(f"p_{name}[{place}]", frozenset({kind}), STORAGE[kind], "", bits))

    def fetched(self, value: TypedNumber) -> TypedNumber:
        """Return an element as what holds its kind."""
        kind = value.kind
        text = {"i": f"int64({value.text})", "b": f"({value.text} != 0)"}.get(value.storage, value.text)
        positive = kind in RANGES and RANGES[kind][0] == 0
        return replace(value, text=self.fresh(text), positive=positive)

    def element(self, name: str, value: TypedNumber) -> str:
        """Return the text of `value` as an element; where NumPy would complain the interpreter goes on."""
        array = self.arrays[name]
        self.written.add(name)
        if not array.writeable:
            raise Refused(f"{name} is read-only")
        kind, how = array.kind, STORAGE[array.kind]
        if not value.kinds:
            return ZERO[how]
        if how in "ds":
            if value.storage == "d" and how == "s":
                text = self.fresh(f"float32({value.text})")
                self.bail(f"lost({value.text}, {text})")
                return text
            text = self.converted(value, "d") if value.storage == "i" else value.text
            return f"float{64 if how == 'd' else 32}({text})"
        if how == "b":
            return f"uint8({value.text} != 0)" if value.storage != "b" else f"uint8({value.text})"
        text = value.text
        if value.storage in "ds":
            self.bail(f"not (abs({text}) < 9007199254740992.0)", hard=True)
            text = self.fresh(f"int64({text})")
            value = TypedNumber(text, value.kinds, "i", "", 53)
        elif value.storage == "b":
            text = f"int64({text})"
        if value.kinds != {kind} or value.storage != how:
            self.in_range(text, kind, value)
        return f"{'u' if kind[0] == 'u' else ''}int{8 * int(kind[1])}({text})"

    def store(self, name: str, place: str, value: TypedNumber) -> None:
        """Write an element."""
        text = self.element(name, value)
        self.flush()
        self.put(f"p_{name}[{place}] = {text}")
        self.forget("p_")


def _proven(value: TypedNumber) -> bool:
    """Say whether the bounds of an index are known before the nest."""
    return value.span is not None and not value.span[0].startswith("-") and not endless(value.span)


class Expressions(Elements):
    """Translates expressions; what variables may hold is known of the round before."""

    def test(self, node: ast.expr) -> str:
        """Return the text of the truth of an expression; what need not be computed is not."""
        match node:
            case ast.BoolOp(op=op, values=values):
                self._count += 1
                name = f"t{self._count}"
                self.put(f"{name} = bool_({self.test(values[0])})")
                self.others(name, isinstance(op, ast.And), values[1:])
                return name
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return f"(not {self.test(operand)})"
        return self.truth(self.expression(node))

    def others(self, name: str, both: bool, values: list[ast.expr]) -> None:
        """Compute the rest of ``and`` or ``or``, as far as needed."""
        self.put(f"if {name}:" if both else f"if not {name}:")
        before, since, unsure = dict(self.known), len(self.pending), self.unsure
        self.depth += 1
        self.unsure = True
        test = self.test(values[0])
        self.unsure = unsure
        self.flush(since)
        self.put(f"{name} = bool_({test})")
        if values[1:]:
            self.others(name, both, values[1:])
        self.depth -= 1
        self.leave(before)

    def expression(self, node: ast.expr) -> TypedNumber:
        """Translate an expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return number(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) \
                    if type(value) is not bool:
                return number(-value)
            case ast.Name(id=name):
                return self.read(name)
            case ast.BinOp(left=left, op=op, right=right):
                return self.folded(node) or self.operation(op, self.expression(left), right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return TypedNumber(self.fresh(f"not {self.test(operand)}"), frozenset({"bool"}), "b", "", 1,
                                   True)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(type(op).__name__, self.expression(operand))
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp():
                return self.logic(node)
            case ast.IfExp(test=test, body=first, orelse=second):
                return self.choose(
                    self.test(test), lambda: self.expression(first), lambda: self.expression(second))
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call(func=func, args=args):
                return self.call(func, args)
            case ast.Attribute():
                return self.attribute(node)
        raise Refused(f"{type(node).__name__} is no arithmetic of numbers")

    def folded(self, node: ast.BinOp) -> TypedNumber | None:
        """Return the value of an operation of two small constants."""
        match node:
            case ast.BinOp(left=ast.Constant(value=a), op=ast.Pow(), right=ast.Constant(value=b)) \
                    if type(a) is type(b) is int and 0 <= a <= 10 and 0 <= b < 60:
                return number(a ** b)
            case ast.BinOp(left=ast.Constant(value=a), op=ast.LShift(), right=ast.Constant(value=b)) \
                    if type(a) is type(b) is int and 0 <= a <= 10 and 0 <= b < 60:
                return number(a << b)
            case ast.BinOp(left=ast.BinOp() as inner, op=ast.Sub(), right=ast.Constant(value=b)) \
                    if type(b) is int:
                made = self.folded(inner)
                if made is not None:
                    return number(int(made.text[6:-1]) - b)
        return None

    def operation(self, op: ast.operator, left: TypedNumber, node: ast.expr) -> TypedNumber:
        """Do an operation of two operands."""
        name = type(op).__name__
        if name == "Pow" and left.kinds and left.kinds <= INTEGERS:
            if not (isinstance(node, ast.Constant) and node.value in (1, 2, 3, 4)
                    and type(node.value) is int):
                raise Refused("a power of an integer")
            value = left if node.value > 1 else self.binary("Mult", left, number(1))
            for _ in range(node.value - 1):
                value = self.binary("Mult", value, left)
            return value
        return self.binary(name, left, self.expression(node))

    def comparison(self, node: ast.Compare) -> TypedNumber:
        """Compare, once or in a chain."""
        left = self.expression(node.left)
        names = [type(op).__name__ for op in node.ops]
        if not set(names) <= COMPARED:
            raise Refused("a question of identity or membership")
        if len(names) == 1:
            right = self.expression(node.comparators[0])
            if self.quick and node in self.needs.compared:
                left, right = self.without_steps(left), self.without_steps(right)
            return self.compare(names[0], left, right)
        return self.chain(left, list(zip(names, node.comparators, strict=True)))

    def chain(self, left: TypedNumber, rest: list[tuple[str, ast.expr]]) -> TypedNumber:
        """Compare in a chain: what comes after the first that does not hold is not computed."""
        (name, node), *others = rest
        right = self.settled(self.copied(node))
        first = self.compare(name, left, right)
        return self.choose(first.text, lambda: self.chain(right, others), lambda: first) if others else first

    def logic(self, node: ast.BoolOp) -> TypedNumber:
        """Return the operand that decides."""
        first = self.settled(self.copied(node.values[0]))
        rest = node.values[1:]
        other = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        takes = self.truth(first)
        test = takes if isinstance(node.op, ast.Or) else f"not {takes}"
        return self.choose(test, lambda: first, lambda: self.expression(other))

    def copied(self, node: ast.expr) -> TypedNumber:
        """Return the value of an expression that outlives what it was read from."""
        value = self.expression(node)
        tag = self.fresh(value.tag) if value.tag else ""
        return replace(value, text=self.fresh(value.text), tag=tag)

    def read(self, name: str) -> TypedNumber:
        """Return the value of a variable."""
        if self.within is not None:
            return self.scope[name] if name in self.scope else self.outside(name)
        variable = self.variables.get(name)
        if variable is None:
            if name in self.given:
                what = "an array" if name in self.arrays else self.given[name]
                raise Refused(f"{name} is {what}", element=False)
            return self.outside(name)
        if name not in self.definite:
            self.bail(f"g_{name} == 0", hard=True)
        counts = next((turns.value for turns in reversed(self.turns) if turns.name == name), None)
        if counts is not None:
            return replace(counts, text=f"v_{name}")
        tag = f"g_{name}" if len(variable.kinds) > 1 else ""
        held = variable.storage
        if not variable.kinds:
            self.unknown.add(name)
            return TypedNumber(ZERO[held], frozenset(), held)
        return TypedNumber(
            f"v_{name}", variable.kinds, held, tag, variable.bits, variable.positive, (), variable.span)

    def outside(self, name: str) -> TypedNumber:
        """Return what a name is that the nest was not given: a constant of the module."""
        found = self.resolve(name, self.within)
        if type(found) in (int, float, bool):
            return number(found)
        raise Refused(f"{name} is {type(found).__name__}", element=False)

    def attribute(self, node: ast.Attribute) -> TypedNumber:
        """Return a length of an array, or a number of a module."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) \
                    if name in self.arrays and self.within is None:
                if attr == "size":
                    text = " * ".join(f"d_{name}_{k}" for k in range(self.arrays[name].ndim))
                    return TypedNumber(f"({text})", frozenset({"int"}), "i", "", SIZE, True)
                if attr == "ndim":
                    return number(self.arrays[name].ndim)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) \
                    if not self.is_variable(name):
                found = self.resolve(f"{name}.{attr}", self.within)
                if type(found) in (int, float, bool):
                    return number(found)
        raise Refused(f"{ast.unparse(node)} is no number", element=False)

    def call(self, func: ast.expr, args: list[ast.expr]) -> TypedNumber:
        """Call one of the functions whose results are known."""
        name = ast.unparse(func)
        if self.is_variable(name.partition(".")[0]):
            raise Refused(f"{name} is called")
        found = self.resolve(name, self.within)
        if isinstance(found, Helper):
            return self.done_here(found, name, args)
        if found is len and self.within is None:
            match args:
                case [ast.Name(id=array)] if array in self.arrays:
                    return self.length(array, 0)
                case [ast.Name(id=array)] if array in self.given:
                    raise Refused(f"{array} is {self.given[array]}", element=False)
            raise Refused("a length of what is no array", element=False)
        try:
            known = found in CALLS
        except TypeError:
            known = False
        if not known:
            raise Refused(f"a call of {name}", element=False)
        return called(self, found, name, [self.settled(self.expression(arg)) for arg in args])

    def is_variable(self, name: str) -> bool:
        """Return whether `name` is a variable or an input of the nest."""
        return name in self.scope if self.within is not None else name in self.variables or name in self.given

    def done_here(self, helper: Helper, name: str, args: list[ast.expr]) -> TypedNumber:
        """Do what a function does with numbers, in the statement that calls it."""
        if len(args) != len(helper.names) or any(isinstance(arg, ast.Starred) for arg in args):
            raise Refused(f"a call of {name} with {len(args)} arguments", element=False)
        values = [self.settled(self.expression(arg)) for arg in args]
        outer = self.scope, self.within, self.indexing, self.way
        self.scope, self.within = dict(zip(helper.names, values, strict=True)), helper.function
        self.indexing, self.way = False, [*self.way, 0]
        try:
            if len(self.way) > DEEPEST:
                raise Refused(f"a call of {name}: functions call each other too deep", element=False)
            return self.returned(name, helper.body)
        finally:
            self.scope, self.within, self.indexing, self.way = outer

    def returned(self, name: str, body: Sequence[ast.stmt]) -> TypedNumber:
        """Return what statements of a function return; what is behind an ``if`` is done on both ways."""
        for at, node in enumerate(body):
            self.way[-1] += 1
            if self.way[-1] > LONGEST_WAY:
                raise Refused(f"a call of {name}: it has too many ways", element=False)
            match node:
                case ast.Return(value=ast.expr() as value):
                    return self.expression(value)
                case ast.If(test=test, body=first, orelse=second):
                    branches = [partial(self.branch_result, name, [*branch, *body[at + 1:]])
                                for branch in (first, second)]
                    return self.choose(self.test(test), *branches)
                case ast.Assign(targets=[ast.Name(id=to)], value=value) \
                        | ast.AnnAssign(target=ast.Name(id=to), value=ast.expr() as value):
                    self.scope[to] = self.settled(self.expression(value))
                case ast.AugAssign(target=ast.Name(id=to), op=op, value=value):
                    self.scope[to] = self.settled(self.operation(op, self.read(to), value))
        raise Refused(f"a call of {name}: it may return nothing", element=False)

    def branch_result(self, name: str, body: Sequence[ast.stmt]) -> TypedNumber:
        """Return the result of a branch that may not be executed."""
        outer, self.scope = self.scope, dict(self.scope)
        try:
            return self.returned(name, body)
        finally:
            self.scope = outer

    def subscript(self, node: ast.Subscript) -> TypedNumber:
        """Read an element, or a length."""
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                               slice=ast.Constant(value=axis)) if name in self.arrays:
                if type(axis) is not int or not 0 <= axis < self.arrays[name].ndim:
                    raise Refused("a length that the array does not have")
                return self.length(name, axis)
        return self.steady(node) or self.load(*self.place(node))
