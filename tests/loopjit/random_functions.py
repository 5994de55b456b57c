"""Random functions with loops over elements, and the comparison of their calls with those of plain Python."""

from __future__ import annotations

import linecache
import math
import random
import traceback
import warnings
from typing import Any

import numpy as np

ARRAYS = {"a": ("f8", 1), "b": ("f8", 2), "c": ("i8", 1), "d": ("u1", 1), "e": ("f4", 1), "g": ("i4", 2),
          "h": ("i1", 1), "m": ("?", 1), "w": ("u4", 1)}
NUMBERS = {"n": 6, "x": 1.5, "y": -2, "z": np.float64(0.75), "k": np.int64(3), "r": np.float32(0.3)}
_FLOATS = ("+", "-", "*", "+", "-", "*", "/", "//", "%", "**")
_INTEGERS = ("+", "-", "*", "+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>")
# Arrays, numbers, operators and constants that go together.
FAMILIES = (
    (["a", "b"], ["n", "x", "z"], _FLOATS, ("0", "1", "0.5", "2.0", "-1.5", "1e10", "3")),
    (["a", "b", "c", "g"], ["n", "x", "y", "k"], _FLOATS[:7], ("0", "1", "0.5", "2.0", "-1.5", "3")),
    (["c", "g"], ["n", "y", "k"], _INTEGERS, ("0", "1", "2", "-1", "255", "7", "1000003")),
    (["d", "h", "w"], ["n", "y"], _INTEGERS, ("0", "1", "2", "3", "255", "7")),
    (["e"], ["n", "r", "x"], _FLOATS[:7], ("0.5", "1.0", "2.0", "-1.5", "1e10", "3")),
    (["c", "a", "m"], ["n", "y"], _FLOATS[:6], ("0", "1", "True", "0.5", "7")),
    (sorted(ARRAYS), ["n", "x", "y", "z", "k", "r"], (*_FLOATS, *_INTEGERS),
     ("0", "1", "0.5", "True", "255")),
)
LOCALS = ("s", "t", "u", "p", "q")
CALLS = 9  # of a function
CALLING = 5  # of so many programs one calls another function
NESTED = 7  # of so many programs one has its loops in a function within
HARSH = {"n": 9, "x": 1e200, "y": 1 << 40, "z": np.float64(-1e300), "k": np.int64(-5), "r": np.float32(1e30)}


class Writer:
    """Writes one random function."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.counters: list[str] = []
        arrays, numbers, self.operators, self.constants = self.random.choice(FAMILIES)
        self.arrays = self.random.sample(arrays, self.random.randint(1, min(4, len(arrays))))
        self.numbers = self.random.sample(numbers, self.random.randint(1, len(numbers)))
        if "n" not in self.numbers:
            self.numbers.append("n")
        self.locals = self.random.sample(LOCALS, self.random.randint(1, 3))
        self.lines: list[str] = []
        self.whiles = 0
        # Whether what is written now is the function that the others call.
        self.aside = False

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def index(self) -> str:
        names = [*self.counters] or ["0"]
        name = self.random.choice(names)
        return self.pick(name, name, name, f"{name} - 1", f"{name} + 1", "0", "-1", f"n - 1 - {name}",
                         f"{name} // 2", f"int({self.pick(*self.numbers, *self.locals)}) % 5")

    def element(self) -> str:
        name = self.random.choice(self.arrays)
        if ARRAYS[name][1] == 1:
            return f"{name}[{self.index()}]"
        if self.chance(0.1):
            return f"{name}[{self.index()}][{self.index()}]"
        return f"{name}[{self.index()}, {self.index()}]"

    def atom(self) -> str:
        if self.aside:
            return self.pick("v", "w", "v", "w", *self.constants)
        roll = self.random.random()
        if roll < 0.4:
            return self.element()
        if roll < 0.6:
            return self.random.choice(self.locals)
        if roll < 0.75:
            return self.random.choice(self.numbers)
        if roll < 0.85 and self.counters:
            return self.random.choice(self.counters)
        return self.random.choice(self.constants)

    def reduced(self, names: list[str]) -> str:
        """Return what makes a number of a row."""
        one = self.index()
        part = self.pick(":", f"{one}:", f":{one}", "1:", f"-3:{one}")
        row, other = self.row(names, part), self.row(names, part)
        return self.pick(f"{row}.sum()", f"np.sum({row})", f"{row}.max()", f"np.min({row})",
                         f"np.sum({row} * {other})", f"({row} * {other}).sum()", f"{row}.sum()")

    def expression(self, depth: int = 0) -> str:
        roll = self.random.random()
        names = [name for name in self.arrays if name in "ab" and not self.aside]
        if self.calls and not self.aside and self.chance(0.12):
            return f"g({self.expression(depth + 1)}, {self.atom()})"
        if depth < 2 and names and self.chance(0.04):
            return self.reduced(names)
        if depth > 2 or roll < 0.3:
            return self.atom()
        one = self.expression(depth + 1)
        if roll < 0.7:
            op = self.random.choice(self.operators)
            if op == "**":
                return f"({one} ** {self.pick('2', '3', '0.5', '2.0')})"
            return f"({one} {op} {self.expression(depth + 1)})"
        if roll < 0.78:
            called = self.pick("-", "abs", "int", "float", "math.sqrt", "np.float64", "bool", "math.floor")
            return f"{called}({one})"
        if roll < 0.84:
            return f"{self.pick('min', 'max')}({one}, {self.expression(depth + 1)})"
        if roll < 0.9:
            return f"({one} if {self.test()} else {self.expression(depth + 1)})"
        if roll < 0.95:
            return f"({one} {self.pick('and', 'or')} {self.expression(depth + 1)})"
        return f"({one} {self.pick('<', '<=', '==', '!=', '>')} {self.expression(depth + 1)})"

    def test(self) -> str:
        made = f"{self.expression(2)} {self.pick('<', '<=', '==', '!=', '>', '>=')} {self.expression(2)}"
        roll = self.random.random()
        if roll < 0.2:
            return f"{made} {self.pick('and', 'or')} {self.atom()} > {self.atom()}"
        return f"not {made}" if roll < 0.25 else made

    def row(self, names: list[str], part: str) -> str:
        name = self.random.choice(names)
        if ARRAYS[name][1] == 1:
            return f"{name}[{part}]"
        if part == ":" and self.chance(0.5):
            return f"{name}[{self.index()}]"
        return self.pick(f"{name}[{self.index()}, {part}]", f"{name}[{part}, {self.index()}]",
                         f"{name}[{self.index()}][{part}]")

    def rows(self, names: list[str]) -> str:
        """Return a statement that stores a row; all of its rows have the same slice."""
        one = self.index()
        part = self.pick(":", f"{one}:", f":{one}", f"{one}:n", f"{one} + 1:", "1:", f"-3:{one}")
        target, other = self.row(names, part), self.row(names, part)
        value = self.pick(other, self.atom(), f"{self.atom()} * {other}", f"{other} / {self.atom()}",
                          f"{other} - {self.row(names, part)}", f"-{other} * {self.atom()} + {target}")
        return f"{target} {self.pick('', '-', '+', '*', '/')}= {value}"

    def statement(self, depth: int, room: int) -> None:
        roll, indent = self.random.random(), "    " * depth
        put = self.lines.append
        names = [name for name in self.arrays if name in "ab"]
        if roll < 0.06 and names:
            put(f"{indent}{self.rows(names)}")
        elif roll < 0.3:
            put(f"{indent}{self.element()} = {self.expression()}")
        elif roll < 0.45:
            put(f"{indent}{self.element()} {self.pick('+', '-', '*')}= {self.expression(1)}")
        elif roll < 0.6:
            put(f"{indent}{self.random.choice(self.locals)} = {self.expression()}")
        elif roll < 0.7:
            put(f"{indent}{self.random.choice(self.locals)} {self.pick('+', '-', '*')}= {self.expression(1)}")
        elif roll < 0.75:
            one, two = self.element(), self.element()
            put(f"{indent}{one}, {two} = {two}, {one}")
        elif roll < 0.87 and room:
            put(f"{indent}if {self.test()}:")
            self.block(depth + 1, room - 1)
            if self.chance(0.4):
                put(f"{indent}else:")
                self.block(depth + 1, room - 1)
        elif roll < 0.97 and room and len(self.counters) < 3:
            self.loop(depth, room - 1)
        elif self.counters:
            put(f"{indent}if {self.test()}: {self.pick('break', 'continue', 'continue', 'return s, t')}")
        else:
            put(f"{indent}pass")

    def block(self, depth: int, room: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, room)

    def loop(self, depth: int, room: int) -> None:
        indent, name = "    " * depth, "ijl"[len(self.counters)]
        if self.chance(0.15):
            self.whiles += 1
            self.lines.append(f"{indent}f{self.whiles} = 0")
            self.lines.append(f"{indent}while f{self.whiles} < 7 and ({self.test()}):")
            self.lines.append(f"{indent}    f{self.whiles} += 1")
            self.block(depth + 1, room)
            return
        array = self.random.choice(self.arrays)
        if self.chance(0.1) and ARRAYS[array][1] == 1:
            self.lines.append(f"{indent}for {self.random.choice(self.locals)} in {array}:")
            self.block(depth + 1, room)
            return
        outer = self.counters[-1] if self.counters else "0"
        source = self.pick("range(n)", "range(n)", "range(1, n)", "range(n - 1, -1, -1)", "range(0, n, 2)",
                           f"range({outer}, n)", f"range({outer} + 1, n)", f"range(len({array}))",
                           "range(int(y) % 7)", f"range(n - {outer})")
        source = source.replace("int(y)", self.random.choice(self.numbers))
        self.lines.append(f"{indent}for {name} in {source}:")
        self.counters.append(name)
        if room and len(self.counters) < 3 and self.chance(0.3):
            self.loop(depth + 1, room - 1)  # deeper than its arrays have axes: it may be begun again
        else:
            self.block(depth + 1, room)
        self.counters.pop()

    @property
    def calls(self) -> bool:
        """Whether it calls a function that makes a number of numbers."""
        return self.seed % CALLING == 2

    def helper(self) -> list[str]:
        """Return the lines of that function."""
        self.aside = True
        lines = ["def g(v, w):"]
        for _ in range(self.random.randint(0, 2)):
            lines.append("    " + self.pick(
                f"if {self.test()}: return {self.expression(1)}", f"if {self.test()}: v = {self.atom()}",
                f"w = {self.expression(1)}", f"v {self.pick('+', '-', '*')}= {self.expression(2)}"))
        lines.append(f"    return {self.expression()}")
        self.aside = False
        return lines

    def text(self) -> str:
        args = ", ".join([*self.arrays, *self.numbers])
        self.lines = [f"def f({args}):"]
        for name in LOCALS if self.chance(0.85) else self.locals[:1] + ["s", "t"]:
            self.lines.append(f"    {name} = {self.pick('0', '0', '1', *self.constants)}")
        self.loop(1, 2)
        if self.chance(0.3):
            self.loop(1, 1)
        self.lines.append(f"    return {', '.join(sorted({*self.locals, 's', 't'}))}")
        if self.seed % NESTED == 0:  # the loops are in a function in it, which sees one of the arguments
            free = self.numbers[0]
            inner = ", ".join(f"last_{each}" if each == free else each for each in args.split(", "))
            head = [f"def f({args}):", f"    def inside({inner}):"]
            self.lines = [*head, *("    " + line for line in self.lines[1:]), f"    return inside({args})"]
        if self.calls:
            self.lines = [*self.helper(), *self.lines]
        return "\n".join(self.lines) + "\n"

    def given(self, seed: int, harsh: bool) -> dict[str, Any]:
        """Return arguments of one call."""
        chosen = np.random.default_rng(seed)
        made: dict[str, Any] = {}
        for name in self.arrays:
            kind, ndim = ARRAYS[name]
            shape = (9,) * ndim if not harsh else (int(chosen.integers(5, 11)),) * ndim
            values = chosen.integers(0, 5, shape) if not harsh else chosen.integers(-3, 300, shape)
            array = values.astype(kind) if kind[0] != "f" else (values + 0.25).astype(kind)
            if harsh and kind[0] == "f" and array.size:
                array.flat[chosen.integers(0, array.size)] = chosen.choice(
                    [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, 3e-45])
            if harsh and kind in ("i8", "i4", "w") and chosen.random() < 0.3:
                array.flat[0] = np.iinfo(array.dtype).max
            made[name] = array
        if harsh and seed % 3 == 0:
            for name, array in made.items():
                made[name] = np.repeat(array, 2, axis=0)[::2] if seed % 2 else array[::-1]
        numbers = {k: (HARSH if harsh and chosen.random() < 0.25 else NUMBERS)[k] for k in NUMBERS}
        return made | {name: numbers[name] for name in self.numbers}


def outcome(function: Any, args: dict[str, Any]) -> tuple[Any, ...]:
    """Return all that can be seen of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = tuple((type(x).__name__, repr(x)) for x in function(**args))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename.startswith("<random ")]
            result = type(error).__name__, str(error), lines
    said = [(str(w.message), w.lineno, w.filename) for w in caught]
    arrays = {k: (v.dtype.str, repr(v.tolist()))
              for k, v in args.items() if isinstance(v, np.ndarray)}
    return result, said, arrays


def define(text: str, name: str) -> Any:
    """Return the function of a text that can be found again."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"math": math, "np": np}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, name, "exec"), space)
    return space["f"]


def check(seed: int, make: Any, calls: int = CALLS, writes: Any = Writer) -> tuple[str, str]:
    """Run one program; return what became of it, and the text if it is wrong."""
    writer = writes(seed)
    text = writer.text()
    plain = define(text, f"<random {seed}>")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = make(plain)
    if fast is None or not fast.entries:
        return "none", ""
    for call in range(calls):
        args, others = (writer.given(100 * seed + max(call - 3, 0), call > 4) for _ in range(2))
        wanted = outcome(plain, others)
        found = outcome(fast.version, args)
        if found != wanted:
            return "WRONG", f"{text}call {call}: {args}\nwanted {wanted}\nfound  {found}"
    states = {(r.state, r.reason) for r in fast.records()}
    if any(reason.startswith("compiled code made") for _, reason in states):
        return "WRONG", f"{text}{states}\n"
    if any(state == "trusted" for state, _ in states):
        return f"trusted, {'left' if any(r.left for r in fast.records()) else 'done'}", ""
    return min(reason.split(" of ")[0][:40] or state for state, reason in states), ""
