"""Random Python functions with loops over numbers and NumPy arrays."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.loop_fuzz import generate_lists

PARAMETERS = ("a", "b", "c", "d", "m", "p", "q", "e", "n", "k", "x", "y", "z", "t")
INTEGERS = ("0", "1", "2", "3", "-1", "-2", "7", "255", "-128", "1000003")
LARGE = (
    "2**31 - 1",
    "2**31",
    "-2**31",
    "2**53",
    "2**53 + 1",
    "2**62",
    "2**63 - 1",
    "-2**63",
    "2**63",
)
FLOATS = (
    "0.0",
    "1.0",
    "0.5",
    "-1.5",
    "2.0",
    "3.25",
    "1e10",
    "-0.0",
    "1e308",
    "1e-310",
    "float('inf')",
    "float('nan')",
)
NUMPY_KINDS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "bool_",
    "complex128",
    "complex64",
)
SCALARS, INTS, FLAGS, VECTORS = ("s0", "s1", "s2"), ("i0", "i1"), ("f0",), ("v0", "v1")
OPTIONS = ("o0", "o1")
#: Functions of one number in other programs, and in those with few exceptions.
MATH = (
    ("sqrt", "exp", "sin", "log", "floor", "ceil", "fabs", "tanh"),
    ("sin", "cos", "floor", "fabs", "tanh", "atan"),
)
CELLS = (
    ("sqrt", "exp", "sin", "log", "abs", "floor", "square", "sign", "isnan"),
    ("sin", "tanh", "abs", "floor", "sign", "isnan", "cos", "arctan"),
)
_HELPERS = """
def pick(u, v=1):
    if u > v:
        return u
    return v


def many(u, v, w=2.5):
    if u == 0:
        return w
    if u > 3:
        return u * 2
    r = v
    for l in range(2):
        if r > 100:
            return r - l
        r = r + l
    return r


def element(r, o, g=0):
    if o < 0:
        return r[0]
    return r[o] + g


def total(r):
    g = 0.0
    for l in range(len(r)):
        g += r[l]
    return g


def change(r, o, g):
    r[o] = g


def bump(r, o, g):
    r[o] += g
    return r[o]


def scaled(r, g):
    r *= g
    return r


def pair(u, v):
    return v, u + 1


def halves(r):
    return r[:len(r) // 2] * 2


def nothing(u):
    if u > 2:
        return u
"""


def is_tame(seed: int) -> bool:
    """Return whether numbers and arrays are float64 or integers, so that most of a program is compiled."""
    return random.Random(f"family {seed}").random() < 0.6


class Generator:
    """Writes one random function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"loops {seed}")
        self.tame = is_tame(seed)
        self.counters: list[str] = []
        self.items: list[str] = []
        self.rows: list[str] = []
        self.depth = 0
        self.lines: list[str] = []
        self.large = self.chance(0.15)
        self.kinds = not self.tame and self.chance(0.3)
        self.wild = self.chance(0.2)
        self.plain = self.chance(0.25)  # only scalars and elements
        self.rich = self.chance(0.45)  # functions that are rarer
        self.calm = self.chance(0.55)  # few exceptions
        self.budget = self.random.randint(3, 12)
        self.whiles = 0
        self.listed = generate_lists.has_lists(seed)
        self.loops = 0  # around the statement
        self.mixed = self.chance(0.25)  # variables of several types

    # -- choices ------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """Return whether an event of this probability happens."""
        return self.random.random() < share

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices."""
        return self.random.choice(choices)

    def weighted(self, *choices: tuple[float, Callable[[], Any]]) -> Any:
        """Call one of several functions, by weights."""
        return self.random.choices([c[1] for c in choices], [c[0] for c in choices])[0]()

    def emit(self, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * (self.depth + 1) + text)

    # -- numbers ------------------------------------------------------------------------------

    def index(self) -> str:
        """Return an index: of a counter mostly."""
        counter = self.pick(*self.counters) if self.counters else "0"
        if self.calm:
            return self.weighted(
                (6, lambda: counter if counter[0] == "j" else f"{counter} % n"),
                (1.5, lambda: f"{counter} % n - 1"),
                (1.5, lambda: f"({counter} + 1) % n"),
                (0.5, lambda: "0"),
                (0.5, lambda: "-1"),
                (1, lambda: f"n - 1 - {counter} % n"),
                (1, lambda: f"({counter} + {self.pick(*INTS)}) % n"),
                (0.5, lambda: f"{self.pick(*INTS)} % n"),
                (0.5, lambda: f"e[{counter} % n]"),
            )
        return self.weighted(
            (8, lambda: counter),
            (2, lambda: f"{counter} - 1"),
            (1.5, lambda: f"{counter} + 1"),
            (1, lambda: "0"),
            (1, lambda: "-1"),
            (1, lambda: f"n - 1 - {counter}"),
            (0.5, lambda: f"-{counter}"),
            (1, lambda: f"{counter} // 2"),
            (1, lambda: f"({counter} + {self.pick(*INTS)}) % n"),
            (0.5, lambda: self.pick(*INTS)),
            (0.7, lambda: f"e[{counter}]"),
            (0.4, lambda: f"c[{counter}] % n"),
            (0.2, lambda: f"int({self.pick(*SCALARS)}) % 5"),
            (0.2, lambda: f"np.int64({counter})"),
        )

    def column(self) -> str:
        """Return an index of a column of `m`."""
        return self.weighted(
            (2, lambda: "0"),
            (2, lambda: "-1"),
            (3, lambda: f"{self.index()} % m.shape[1]"),
            (1, lambda: self.index()),
        )

    def element(self) -> str:
        """Return an element of an array."""
        return self.weighted(
            (6, lambda: f"{self.pick('a', 'b', 'c', 'd', 'a', 'c')}[{self.index()}]"),
            (3, lambda: f"m[{self.index()}, {self.column()}]"),
            (1, lambda: f"p[{self.column()}, {self.index()}]"),
            (0.5, lambda: f"m[{self.index()}][{self.column()}]"),
            (0.4, lambda: f"q[{self.index()}]"),
            (0.6, lambda: f"{self.pick(*VECTORS)}[{self.index()}]"),
            (0.3, lambda: f"t[{self.pick('0', '1', '-1')}]"),
        )

    def constant(self) -> str:
        """Return a constant."""
        if self.large and self.chance(0.3):
            return f"({self.pick(*LARGE)})"
        if self.tame and self.chance(0.9):
            return self.pick("0.5", "1.0", "2.0", "-1.5", "0.0", "3.25")
        return self.pick(
            *INTEGERS, *FLOATS[: 6 if not self.wild else None], "True", "2", "3", "1", "0.5", "2.0"
        )

    def whole(self, depth: int = 0) -> str:
        """Return an integer, as far as arguments are."""
        if depth > 2 or self.chance(0.35):
            return self.weighted(
                (3, lambda: self.pick(*INTS)),
                (3, lambda: self.pick(*self.counters, "n", "k")),
                (2, lambda: self.pick(*INTEGERS)),
                (1.5, lambda: f"c[{self.index()}]"),
                (0.5, lambda: "len(a)"),
                (0.5, lambda: "m.shape[1]"),
                (0.5 if self.large else 0, lambda: f"({self.pick(*LARGE)})"),
                (0.3, lambda: f"e[{self.index()}]"),
            )
        one, two = self.whole(depth + 1), self.whole(depth + 1)
        small = self.pick("2", "3", "7", "n", *self.counters)
        return self.weighted(
            (4, lambda: f"({one} {self.pick('+', '-')} {two})"),
            (1.5, lambda: f"({one} * {small} % 1000)"),
            (0.7, lambda: f"({one} * {small})"),
            (2, lambda: f"({one} // {self.pick('2', '3', '-2', self.divisor(two))})"),
            (2, lambda: f"({one} % {self.pick('2', '3', '-5', '8', self.divisor(two))})"),
            (2, lambda: f"({one} {self.pick('&', '|', '^')} {two})"),
            (1, lambda: f"({one} >> {self.pick('1', '2', '3', f'({two} & 7)')})"),
            (1, lambda: f"({one} << {self.pick('1', '2', f'({two} & 15)')}) % 4099"),
            (0.5, lambda: f"(-{one})"),
            (0.5, lambda: f"(~{one})"),
            (0.7, lambda: f"abs({one})"),
            (1, lambda: f"{self.pick('min', 'max')}({one}, {two})"),
            (0.6, lambda: f"int({self.number(depth + 1)})"),
            (0.4, lambda: f"round({self.number(depth + 1)})"),
            (0.4, lambda: f"({one} ** 2 % 1009)"),
            (0.5, lambda: f"({one} if {self.test(depth + 1)} else {two})"),
            (0.3, lambda: f"divmod({one}, {two})[{self.pick('0', '1')}]"),
        )

    def number(self, depth: int = 0) -> str:
        """Return a number of any kind."""
        if depth > 2 or self.chance(0.3):
            return self.weighted(
                (4, lambda: self.pick(*SCALARS)),
                (4, self.element),
                (1, self.constant),
                (2, lambda: self.pick("x", "y", "z", "x" if self.tame else "k")),
                (0.3 if self.tame else 1, lambda: self.pick(*self.counters, "n")),
                (2 if self.items else 0, lambda: self.pick(*self.items)),
                (0.3, lambda: self.pick(*FLAGS)),
            )
        one, two = self.number(depth + 1), self.number(depth + 1)
        return self.weighted(
            (8, lambda: f"({one} {self.pick('+', '-', '*')} {two})"),
            (2, lambda: f"({one} / {self.divisor(two)})"),
            (0.5, lambda: f"({one} // {self.divisor(two)})"),
            (0.5, lambda: f"({one} % {self.divisor(two)})"),
            (0.6, lambda: f"({one} ** {self.pick('2', '3', '0.5', '2.0', '1')})"),
            (1, lambda: f"(-{one})"),
            (0.8, lambda: f"abs({one})"),
            (1, lambda: f"{self.pick('min', 'max')}({one}, {two})"),
            (0.2, lambda: f"{self.pick('min', 'max')}({one}, {two}, {self.number(depth + 1)})"),
            (1, lambda: f"({one} if {self.test(depth + 1)} else {two})"),
            (0.3 if self.tame else 2, lambda: self.whole(depth + 1)),
            (0.7, lambda: f"float({one})"),
            (0.4, lambda: f"bool({one})"),
            (0.8, lambda: f"math.{self.pick(*MATH[self.calm])}({one})"),
            (0.3, lambda: f"math.{self.pick('isnan', 'isinf', 'isfinite')}({one})"),
            (
                0.2,
                lambda: (
                    f"math.{self.pick('atan2', 'copysign', 'fmod', 'pow', 'hypot')}({one}, {two})"
                ),
            ),
            (0.9, lambda: f"np.{self.pick(*CELLS[self.calm])}({one})"),
            (
                0.4,
                lambda: (
                    f"np.{self.pick('maximum', 'minimum', 'add', 'multiply', 'power', 'fmax', 'hypot')}"
                    f"({one}, {two})"
                ),
            ),
            (1 if self.kinds else 0.2, lambda: f"np.{self.pick(*NUMPY_KINDS[:10])}({one})"),
            (0.8, lambda: f"{self.pick('pick', 'many')}({one}, {two})"),
            (0.3, lambda: f"pick({one})"),
            (0.3, lambda: f"many({one}, v={two})"),
            (0.3, lambda: f"element({self.pick('a', 'c', 'm[0]')}, {self.index()})"),
            (
                0.3,
                lambda: f"bump({self.pick('a', 'c', 'm[0]')}, {self.index()}, {self.constant()})",
            ),
            (0.3, lambda: f"({one} and {two})"),
            (0.3, lambda: f"({one} or {two})"),
            (1 if not self.plain else 0, lambda: self.reduction()),
        )

    def divisor(self, text: str) -> str:
        """Return a divisor, which is mostly not zero in calm programs."""
        return f"(abs({text}) + 1)" if self.calm and self.chance(0.9) else text

    def test(self, depth: int = 0) -> str:
        """Return a condition."""
        one, two = self.number(depth + 1), self.number(depth + 1)
        return self.weighted(
            (6, lambda: f"{one} {self.pick('<', '<=', '>', '>=', '==', '!=')} {two}"),
            (
                3,
                lambda: (
                    f"{self.whole(depth + 1)} % {self.pick('2', '3')} "
                    f"{self.pick('==', '!=')} {self.pick('0', '1')}"
                ),
            ),
            (
                0.7,
                lambda: (
                    f"{self.whole(depth + 1)} < {self.whole(depth + 1)} <= {self.whole(depth + 1)}"
                ),
            ),
            (
                0.5 if depth < 2 else 0,
                lambda: f"({self.test(depth + 1)} and {self.test(depth + 1)})",
            ),
            (
                0.5 if depth < 2 else 0,
                lambda: f"({self.test(depth + 1)} or {self.test(depth + 1)})",
            ),
            (0.4, lambda: f"not {one}"),
            (0.4, lambda: one),
            (0.4, lambda: f"{self.whole(depth + 1)} in (0, 2, 5)"),
            (0.2, lambda: f"{self.pick(*SCALARS)} is {self.pick('', 'not ')}None"),
            (0.3, lambda: f"q[{self.index()}]"),
        )

    # -- arrays -------------------------------------------------------------------------------

    def part(self) -> str:
        """Return a slice."""
        one, two = self.index(), self.index()
        return self.weighted(
            (3, lambda: ":"),
            (2, lambda: f"{one}:"),
            (2, lambda: f":{one}"),
            (1, lambda: "1:"),
            (1, lambda: ":-1"),
            (1, lambda: f"{one}:{two}"),
            (0.5, lambda: "::2"),
            (0.5, lambda: "::-1"),
            (0.3, lambda: f"{one}::-1"),
            (0.3, lambda: f"{one}:{two}:{self.pick('2', '-1', '-2', '3')}"),
            (0.3, lambda: "1:-1"),
            (0.3, lambda: f"-{one}:"),
        )

    def matching(self) -> tuple[str, str]:
        """Return two slices of equal lengths, mostly shifted."""
        one = self.index()
        return self.pick(
            (":", ":"),
            ("1:", ":-1"),
            (":-1", "1:"),
            ("::-1", ":"),
            (f"{one}:", f"{one}:"),
            (f":{one}", f":{one}"),
            ("1:-1", "2:"),
            ("1:-1", ":-2"),
            ("2:", ":-2"),
            ("::2", "::2"),
            (":2", "1:3"),
            ("1:n // 2", "1:n // 2"),
            ("0:3", "1:4"),
        )

    def vector(self, part: str = ":", depth: int = 0) -> str:
        """Return an array with one axis, for a slice of which all parts are of one length."""
        whole = part == ":"

        def sliced(text: str) -> str:
            return text if whole and self.chance(0.7) else f"{text}[{part}]"

        if whole and depth < 2 and self.rich and self.chance(0.3):
            return self.arranged()
        if depth > 1 or self.chance(0.4):
            return self.weighted(
                (5, lambda: sliced(self.pick("a", "b", "a", "b", "d", "c"))),
                (1.5, lambda: sliced(self.pick(*VECTORS))),
                (2, lambda: f"m[{part}, {self.column()}]"),
                (1, lambda: f"p[{self.column()}, {part}]"),
                (
                    0.5,
                    lambda: f"p[{self.column()}][{part}]" if not whole else f"p[{self.column()}]",
                ),
                (0.4 if whole else 0, lambda: "a[e]"),
                (0.3 if whole else 0, lambda: "d[e % n]"),
                (0.3 if whole else 0, lambda: f"np.{self.pick('zeros', 'ones', 'arange')}(n)"),
                (0.2 if whole else 0, lambda: "np.zeros_like(a)"),
                (0.2 if whole else 0, lambda: f"np.full(n, {self.constant()})"),
                (0.2 if whole else 0, lambda: f"np.cumsum({self.pick('a', 'c')})"),
            )
        one, two = self.vector(part, depth + 1), self.vector(part, depth + 1)
        return self.weighted(
            (5, lambda: f"({one} {self.pick('+', '-', '*')} {two})"),
            (3, lambda: f"({one} {self.pick('+', '-', '*')} {self.number(2)})"),
            (1, lambda: f"({self.number(2)} {self.pick('+', '-', '*', '/')} {one})"),
            (1, lambda: f"({one} / {self.divisor(two)})"),
            (0.3, lambda: f"({one} // {self.divisor(two)})"),
            (0.3, lambda: f"({one} % {self.divisor(two)})"),
            (
                0.7,
                lambda: (
                    f"{one} ** "
                    f"{self.pick('2', '0.5', '3', '1', '-1', '1.5', '2.0', two, f'({self.number(2)})')}"
                ),
            ),
            (0.5, lambda: f"-{one}"),
            (
                1,
                lambda: (
                    f"np.{self.pick('sqrt', 'exp', 'abs', 'sin', 'square', 'floor', 'sign', 'negative')}"
                    f"({one})"
                ),
            ),
            (
                1,
                lambda: (
                    f"np.{self.pick('maximum', 'minimum', 'add', 'hypot', 'fmin', 'power', 'arctan2')}"
                    f"({one}, {two})"
                ),
            ),
            (
                1,
                lambda: (
                    f"np.where({one} {self.pick('<', '>', '==')} {two}, "
                    f"{one}, {self.pick(two, self.number(2))})"
                ),
            ),
            (0.3, lambda: f"np.where({self.pick('q', one)}, {one}, {two})" if whole else one),
            (
                0.4,
                lambda: f"({one}).astype(np.{self.pick('float64', 'float32', 'int64', 'int32')})",
            ),
            (0.3, lambda: f"({one}).copy()"),
            (0.3, lambda: f"({one} {self.pick('<', '>=', '==')} {two})"),
            (0.2, lambda: "halves(a)"),
            (0.2 if whole else 0, lambda: f"scaled({self.pick('a', 'b', 'v0')}, {self.constant()})"),
            (
                0.2 if whole else 0,
                lambda: f"np.{self.pick('add', 'multiply')}({one}, {two}, out={self.pick('a', 'b')})",
            ),
        )

    def arranged(self) -> str:
        """Return a vector of the length of `a` by functions that move, select or make elements."""
        one, index, number = self.vector(":", 1), self.index(), self.number(2)
        return self.pick(
            f"np.roll({one}, {self.pick('1', '-2', index)})",
            f"np.concatenate(({one}[:{index}], {one}[{index}:]))",
            f"np.clip({one}, {self.pick('-1', '0', number)}, {self.pick('2', '3.5', 'x')})",
            f"({one}).clip(0, 3)",
            f"np.repeat({one}, 1)",
            "np.linspace(x, 3, n)",
            f"np.arange(n) * {number}",
            "np.arange(n, 0, -1)",
            f"({one}).reshape(n)",
            "m.ravel()[:n]",
            "m.reshape(-1)[::m.shape[1]]",
            "m.T.flatten()[:n]",
            "p.reshape(n, -1)[:, 0]",
            "m[e, 0]",
            f"m[e, {self.column()}]",
            "m[e][:, -1]",
            f"p[{self.column()}, e]",
            "m[e, e % m.shape[1]]",
            f"np.pad({one}, 1)[1:-1]",
            f"np.pad({one}, 1)[2:]",
            "np.eye(n) @ a",
            "np.squeeze(m[:, :1], axis=1)",
            f"({one}).round()",
            f"np.cumprod({one})",
            f"np.cumsum({one})",
            f"np.flip({one})",
            f"np.sum(m, axis={self.pick('1', '-1')})",
            "np.max(m, axis=1)",
            "np.mean(m, axis=1)",
            "np.min(p, axis=0)",
            "np.sum(p, axis=0)",
            "p.std(axis=0)",
            "m @ m[0]",
            "m[0] @ p",
            "np.argmax(m, axis=1)",
            "np.any(m > 0, axis=1)",
            f"np.where(q)[0][{index}] + a",
            "np.vstack((a, b))[1]",
            "np.hstack((a, b))[n:]",
            "np.stack((a, b), axis=1)[:, 0]",
            "np.diff(a, prepend=0)",
            "np.diff(np.concatenate((a, b)))[:n]",
            "np.array([x, 2.0, s0])[e % 3]",
            "np.ones_like(a)",
            "np.bincount(abs(e), minlength=n)[:n]",
            "np.full(n, x)",
            "a[::-1][::-1]",
            "np.tril(np.outer(a, b))[0]",
            "np.swapaxes(m, 0, 1)[0]",
            "np.copy(a)",
            "np.ravel(a)",
            "a.ravel()",
            "np.asarray(a)",
            "a[e[::-1]]",
            f"np.sort({one})",
            f"np.argsort({one}, kind='stable')",
            f"a[np.argsort({one})]",
            "np.sort(m, axis=0)[:, 0]",
            f"np.searchsorted(np.sort(a), {one})",
            f"np.interp({one}, np.sort(b), a)",
            f"np.tile({one}, 2)[n:]",
            f"np.append({one}, {number})[:n]",
            f"np.insert(a, {index}, {number})[:n]",
            f"np.delete(np.append(a, x), {index})",
            "np.column_stack((a, b))[:, 1]",
            "np.meshgrid(a, m[0])[0][0]",
            f"np.cumsum(m, axis={self.pick('0', '1', '-1')})[:, 0]",
            "np.cumsum(m)[:n]",
            f"np.maximum.accumulate({one})",
            f"np.argmin(m, axis={self.pick('1', '-1')})",
            f"np.linalg.norm(m, axis={self.pick('1', '-1')})",
            "np.linalg.norm(m, 1, axis=1)",
            "np.linalg.solve(np.diag(a), b)",
            "np.linalg.solve(m @ m.T + np.eye(n), a)",
            "np.linalg.inv(m @ m.T + np.eye(n))[0]",
            "np.diag(np.outer(a, b))",
            f"np.round({one}, 1)",
            f"np.isclose({one}, a)",
            "np.gradient(a)",
            f"np.clip({one}, None, {number})",
            "np.diff(a, n=2, prepend=0)",
            "np.diff(np.append(a, (1.0, 2.0)), n=2)",
            f"np.digitize({one}, np.sort(b))",
            "np.where(np.isnan(a), 0, a)",
            f"np.convolve({one}, {self.pick('b', 'a[:3]', 'b[::2]')})[:n]",
            f"np.correlate({one}, a[:2], 'same')",
            "np.linalg.svd(m, full_matrices=False)[0][:, 0]",
            "np.linalg.pinv(m)[0]",
        )

    def measure(self) -> str:
        """Return a number by functions of arrays that are rarer."""
        one, part, number = self.vector(":", 1), self.part(), self.number(2)
        return self.pick(
            f"a[q].{self.pick('sum', 'mean', 'max', 'min')}()",
            f"np.count_nonzero({one} > {number})",
            f"len(np.flatnonzero({one}))",
            f"np.std({one})",
            f"np.var({one})",
            f"np.linalg.norm({one})",
            f"np.diff({one}).sum()",
            f"sum({one})",
            f"any({one} > 1)",
            "m[q].sum()",
            "len(a[q])",
            "a[a > b].sum()",
            f"({one} == {self.vector(':', 1)}).all()",
            f"np.sum({one}, axis=0)",
            f"(np.array([1, {number}]) * 2)[1]",
            "np.zeros(3).sum()",
            f"a[{part}].sum()",
            f"m[{part}].sum()",
            f"np.mean(m[:, {part}])",
            "np.sum(m * m)",
            "np.prod(a[:3])",
            "float(a @ b)",
            "m.max() - m.min()",
            "np.vdot(a, b)",
            "np.inner(a, b)",
            "np.trace(m[:2, :2])",
            "a.shape[0] + m.size",
            "m.T.shape[0]",
            "a.item(0)",
            "int(c.sum())",
            "np.argmin(m)",
            "m.argmax()",
            "np.nonzero(a)[0].sum()",
            f"math.hypot({number}, 2)",
            f"round({number}, 2)",
            f"divmod({self.whole(2)}, 7)[1]",
            f"pow({number}, 2)",
            f"int({number}) & 255",
            f"np.median({one})",
            f"np.percentile({one}, {self.pick('0', '25', '50', '90.5', '100')})",
            f"np.unique({one}).sum()",
            "len(np.unique(c))",
            f"np.searchsorted(np.sort(a), {number})",
            f"np.interp({number}, np.sort(a), b)",
            f"np.ptp({one})",
            f"np.average({one}, weights=abs(b))",
            f"np.nansum({one})",
            f"np.nanmean({one})",
            f"np.polyval(a, {number})",
            f"np.trapezoid({one}, b)",
            "np.trace(m)",
            "np.trace(m @ p)",
            "np.linalg.det(m @ p)",
            "np.linalg.det(p @ m)",
            f"np.linalg.norm({one}, {self.pick('1', '2', 'np.inf', '-np.inf')})",
            "np.linalg.norm(m)",
            "np.argmax(m)",
            f"np.allclose({one}, b)",
            f"np.array_equal({one}, a)",
            f"np.cross(a[:3], {one}[:3])[0]",
            "np.linalg.cholesky(m @ p + np.eye(n))[0, 0]",
            "np.linalg.eigvalsh(m @ m.T)[0]",
        )

    def scattered(self) -> str:
        """Return a store to elements that arrays select."""
        number = self.number(2)
        return self.pick(
            f"a[e] {self.pick('=', '+=', '*=')} {number}",
            "m[e] = m[0]",
            "a[q] = b[q]",
            "m[q] *= 2",
            f"m[q] = {number}",
            "m[q, 0] = 1",
            f"m[:, e[:2] % m.shape[1]] = {number}",
            "b[c % n] = a",
            "a[e] = b",
            "a[e] = a[::-1]",
            "m[e, e % m.shape[1]] += 1",
            f"m[{self.index()}, e[:1] % m.shape[1]] = 3",
            "a[a > 1] -= 1",
            "a[np.flatnonzero(q)] = 0",
            "p[:, q] = 0",
            "m[q] = m[q] + 1",
            f"a[e[{self.part()}]] = {number}",
            f"np.add.at(a, e, {self.pick(number, 'b')})",
            "np.subtract.at(m, (e, e % m.shape[1]), a)",
            f"np.maximum.at(b, c % n, {number})",
            f"np.fill_diagonal(m, {number})",
            f"{self.pick('a', 'a[1:]', 'b[::-1]', 'c', 'm')}.sort()",
            "m[:, 0].sort()",
        )

    def reduction(self) -> str:
        """Return a number computed of an array."""
        if self.rich and self.chance(0.5):
            return self.measure()
        part = self.part()
        one = self.vector(part if self.chance(0.4) else ":", 1)
        return self.weighted(
            (3, lambda: f"np.sum({one})"),
            (
                2,
                lambda: f"({one}).{self.pick('sum', 'max', 'min', 'mean', 'any', 'all', 'prod')}()",
            ),
            (2, lambda: f"np.{self.pick('max', 'min', 'mean', 'any', 'all', 'prod')}({one})"),
            (1, lambda: f"np.{self.pick('argmax', 'argmin')}({one})"),
            (2, lambda: f"np.dot({one}, {self.vector(part if part in one else ':', 2)})"),
            (2, lambda: "(a[:{0}] @ b[:{0}])".format(self.index())),
            (1, lambda: "(a @ b)"),
            (1, lambda: "(m[{0}, :] @ p[:, {0}])".format(self.index())),
            (0.5, lambda: f"total({one})"),
            (0.3, lambda: f"np.sum(m[{self.part()}, {self.part()}])"),
            (0.2, lambda: "m.sum()"),
            (0.3, lambda: f"len({one})"),
        )

    def matrix(self) -> str:
        """Return an array with two axes of the shape of `m`."""
        return self.weighted(
            (3, lambda: "m"),
            (1, lambda: "p.T"),
            (1, lambda: f"(m {self.pick('+', '*', '-')} {self.number(2)})"),
            (1, lambda: f"(m {self.pick('+', '*')} p.T)"),
            (1, lambda: f"(m {self.pick('+', '*', '-')} m[0])"),
            (1, lambda: "(m + a[:, None])"),
            (0.5, lambda: "np.outer(a, m[0])"),
            (0.5, lambda: "m[::-1]"),
            (0.5, lambda: "np.where(m > 0, m, p.T)"),
            (0.3, lambda: "np.zeros(m.shape)"),
            (0.3, lambda: "np.add.outer(b, p[:, 0])"),
            (0.3, lambda: "np.zeros_like(m)"),
            (0.3, lambda: "m[:, ::-1]"),
        )

    # -- statements ---------------------------------------------------------------------------

    def statement(self) -> None:
        """Write a statement."""
        self.budget -= 1
        if self.listed and self.chance(0.4):
            generate_lists.statement(self)
            return
        arrays = 0 if self.plain else 1
        inside = 1 if self.counters else 0
        deep = 1 if self.depth < 4 and self.budget > 0 else 0
        self.weighted(
            (6, lambda: self.emit(f"{self.pick(*SCALARS)} = {self.number()}")),
            (
                5,
                lambda: self.emit(
                    f"{self.pick(*SCALARS)} {self.pick('+', '-', '*', '+')}= {self.number()}"
                ),
            ),
            (
                1.5,
                lambda: self.emit(
                    f"{self.pick(*SCALARS)} {self.pick('/', '//', '%')}= {self.divisor(self.number())}"
                ),
            ),
            (3, lambda: self.emit(f"{self.pick(*INTS)} = {self.whole()}")),
            (
                2,
                lambda: self.emit(
                    f"{self.pick(*INTS)} {self.pick('+', '-', '^', '|')}= {self.whole(1)}"
                ),
            ),
            (
                0.5,
                lambda: self.emit(
                    f"{self.pick(*INTS)} {self.pick('//', '%', '>>')}= {self.divisor(self.whole(1))}"
                ),
            ),
            (0.7, lambda: self.emit(f"f0 = {self.test()}")),
            (5, self.store_element),
            (3 * arrays, self.store_part),
            (1.5 * arrays, self.in_place),
            (1.2 * arrays, self.local_array),
            (0.7 * arrays, self.store_matrix),
            ((1.5 if self.rich else 0.5) * arrays, self.masked),
            (
                0.8,
                lambda: self.emit(
                    "{}, {} = {}, {}".format(
                        *self.random.sample(SCALARS, 2), self.number(1), self.number(1)
                    )
                ),
            ),
            (0.3, lambda: self.emit("s0, s1 = s1, s0")),
            (0.15, lambda: self.emit(f"{self.pick('t', 's2')} = t")),
            (0.1, lambda: self.emit(f"t[{self.pick('0', '1', '-1')}] = {self.whole(2)}")),
            (
                0.3 * arrays,
                lambda: self.emit(self.pick("a, b = b, a", "v0, v1 = v1, v0", "v0, a = a, v0")),
            ),
            (0.2, lambda: self.emit("s0 = s1 = " + self.number())),
            (0.3, lambda: self.emit(f"i0, s1 = pair({self.number(2)}, {self.whole(2)})")),
            (
                0.3 * arrays,
                lambda: self.emit(
                    f"change({self.pick('a', 'b', 'c')}, {self.index()}, {self.number(2)})"
                ),
            ),
            (0.2, lambda: self.emit(f"s2 = nothing({self.number(2)})")),
            (0.15, lambda: self.emit(f"s2 = {self.pick('None', '(1, 2)', '1j')}")),
            (0 if self.calm else 0.2, lambda: self.emit(f"assert {self.test()}")),
            (0.2 * inside, self.rare),
            (2 if self.mixed else 0, self.optional),
            (3 * deep, self.branch),
            (1.6 * deep, self.loop),
            (0.4 * deep, self.while_loop),
            (0.9 * inside, self.leave),
        )

    def typed(self) -> str:
        """Return a value of one of several types: None, a number, a vector, or a tuple."""
        return self.weighted(
            (2, lambda: "None"),
            (2, self.number),
            (2, self.vector),
            (1, lambda: f"m[{self.index()}]"),
            (0.7, lambda: "m[:2]"),
            (0.7, lambda: self.pick("a", "b", "v0", "a[1:]")),
            (1, lambda: f"({self.number(1)}, {self.pick(*self.counters, 'n')})"),
            (0.7, lambda: f"({self.vector()}, {self.number(1)})"),
            (0.7, lambda: self.pick(*OPTIONS)),
            (0.4, lambda: f"({self.number(1)} if {self.test(1)} else {self.pick('None', *OPTIONS)})"),
        )

    def optional(self) -> None:
        """Write a statement about a variable that is of several types."""
        name = self.pick(*OPTIONS)
        index, number = self.index(), self.number(1)
        lines = self.weighted(
            (4, lambda: [f"{name} = {self.typed()}"]),
            (2, lambda: [f"if {name} is None:", f"    {name} = {self.typed()}"]),
            (
                2,
                lambda: [
                    f"if {name} is None or {self.test()}:",
                    f"    {name} = {self.typed()}",
                    "else:",
                    f"    s0 = {number}",
                ],
            ),
            (1, lambda: [f"if {name} is not None:", f"    s1 = {name}[0]"]),
            (1, lambda: [f"if {name} is not None:", f"    {name} = {name} + {self.pick('a', number)}"]),
            (0.7, lambda: [f"{name} = {name} + {self.pick('a', 'm[' + index + ']', number)}"]),
            (0.7, lambda: [f"{name} {self.pick('+', '*')}= {self.pick('a', number)}"]),
            (0.5, lambda: [f"s2 = {name}"]),
            (0.5, lambda: [f"while {name} is None:", f"    {name} = {self.typed()}", "    break"]),
            (0.3, lambda: [f"if {name} is None: {self.pick('continue', 'break') if self.loops else 'pass'}"]),
            (0.3, lambda: [f"for s1 in {self.pick(name, 'a')}:", "    s0 = s1", "    break"]),
        )
        for line in lines:
            self.emit(line)

    def rare(self) -> None:
        """Write a conditional statement that loop programs do not have."""
        self.emit(f"if {self.test()}:")
        self.emit(
            "    "
            + self.pick(
                "s0 = sorted([1, 2])[0]",
                "log.append(i0)",
                "s1 = [i0][0]",
                "s0 = str(i0)",
                "del s2",
                "s2 = {1: 2}[1]",
                "a[i0] = np.median(b)",
                "print(end='')",
                "s1 = sum(t)",
            )
        )

    def store_element(self) -> None:
        """Write an assignment to an element."""
        self.emit(f"{self.element()} {self.pick('=', '=', '=', '+=', '-=', '*=')} {self.number()}")

    def store_part(self) -> None:
        """Write an assignment to a slice."""
        one, two = self.matching() if self.chance(0.7) else (self.part(), self.part())
        name = self.pick("a", "b", "a", "d", "c", "v0")
        target = self.pick(
            f"{name}[{one}]",
            f"{name}[{one}]",
            f"m[{one}, {self.column()}]",
            f"p[{self.column()}, {one}]",
        )
        value = self.weighted(
            (5, lambda: self.vector(two)),
            (1, lambda: self.number(1)),
            (0.5, lambda: f"{name}[{two}]"),
            (0.8, lambda: self.moved(target)),
        )
        self.emit(f"{target} {self.pick('=', '=', '=', '+=', '-=', '*=', '/=')} {value}")

    def moved(self, target: str) -> str:
        """Return a value that reads elements of what is stored at other places than they are stored at."""
        return self.pick(
            f"np.roll({target}, {self.pick('1', '-2', self.index())})",
            f"{target} + np.roll({target}, 1)",
            f"np.where({target} > 0, np.roll({target}, -1), {target})",
            f"{target}[::-1]",
            f"({target} * 2)[::-1]",
            f"np.cumsum({target})",
            f"np.linalg.norm({target}) - {target}",
            f"np.concatenate(({target}[1:], {target}[:1]))",
        )

    def in_place(self) -> None:
        """Write an in-place operation on an array."""
        self.emit(
            self.weighted(
                (
                    3,
                    lambda: (
                        f"{self.pick('a', 'b', 'v0', 'v1', 'd')} {self.pick('+', '-', '*')}= "
                        f"{self.pick(self.vector(), self.number(1))}"
                    ),
                ),
                (
                    1,
                    lambda: (
                        f"np.{self.pick('add', 'multiply', 'maximum')}({self.vector()}, {self.vector()}, "
                        f"{self.pick('out=', '')}{self.pick('a', 'b', 'v0')})"
                    ),
                ),
                (1, lambda: f"m {self.pick('+', '*', '-')}= {self.matrix()}"),
                (0.5, lambda: f"a.fill({self.number(2)})"),
                (0.5, lambda: f"m[{self.index()}] {self.pick('+', '*', '-')}= m[{self.index()}]"),
            )
        )

    def local_array(self) -> None:
        """Write an assignment of an array to a variable."""
        self.emit(
            f"{self.pick(*VECTORS)} = "
            + self.weighted(
                (3, self.vector),
                (1, lambda: f"{self.pick('a', 'b')}[{self.part()}]"),
                (1, lambda: f"m[{self.index()}]"),
                (1, lambda: f"m[:, {self.column()}]"),
                (0.5, lambda: self.pick("a", "b", "a", "m.T[0]", "v1", "v0")),
                (0.5, lambda: f"m {self.pick('@', '@')} p[:, {self.index()}]"),
                (0.3, lambda: "np.sum(m, axis=1)"),
                (
                    0.3,
                    lambda: (
                        f"m.{self.pick('max', 'sum', 'mean', 'min')}(axis={self.pick('0', '1', '-1')})"
                    ),
                ),
            )
        )

    def store_matrix(self) -> None:
        """Write an assignment to rows, or all, of a matrix."""
        self.emit(
            self.weighted(
                (2, lambda: f"m[:] = {self.matrix()}"),
                (2, lambda: f"m[{self.index()}] = {self.pick('m', 'm', 'p.T')}[{self.index()}]"),
                (
                    1,
                    lambda: (
                        f"m[{self.index()}, :] = "
                        f"{self.pick('m[0] + 1', 'p[:, 0]', self.number(1), 'm[-1, ::-1]')}"
                    ),
                ),
                (1, lambda: f"m[{self.part()}, {self.part()}] = {self.number(1)}"),
                (1, lambda: "m[1:] = m[:-1]"),
                (0.5, lambda: self.pick("m = m * 2", "m, p = p.T, m.T", "m = m[::-1]", "p = m.T")),
                (1, lambda: "m[1:, 1:] += m[:-1, :-1]"),
                (0.5, lambda: f"p[...] = {self.pick('p[::-1]', 'm.T', '0', 'p * 2')}"),
                (0.5, lambda: "m[:, :] = m[:, 0:1]"),
                (0.5, lambda: "p[:] = m.T @ np.ones((n, n))"),
            )
        )

    def masked(self) -> None:
        """Write an assignment to the elements that a mask or indices select."""
        if self.rich and self.chance(0.6):
            self.emit(self.scattered())
            return
        self.emit(
            self.weighted(
                (
                    2,
                    lambda: (
                        f"a[{self.pick('q', 'a > b', 'a != a', 'b < ' + self.number(2))}] = {self.number(2)}"
                    ),
                ),
                (1, lambda: f"m[m > {self.number(2)}] = {self.number(2)}"),
                (0.5, lambda: f"a[e] = {self.number(2)}"),
                (0.3, lambda: "a[q] += 1"),
                (0.3, lambda: "b[q] = a[q]"),
            )
        )

    def leave(self) -> None:
        """Write a conditional jump out of a loop."""
        self.emit(f"if {self.test()}:")
        self.emit(
            "    "
            + self.weighted(
                (3, lambda: "break"),
                (3, lambda: "continue"),
                (
                    1,
                    lambda: (
                        f"return {self.pick('s0, i0', 's1', 'None', self.number(2), 'v0', 'a, s2')}"
                    ),
                ),
                (0.6, lambda: f"raise ValueError({self.pick('i0', 's0', repr('bad'))})"),
                (0.2, lambda: "return"),
            )
        )

    def branch(self) -> None:
        """Write an ``if`` statement."""
        self.emit(f"if {self.test()}:")
        self.block(self.random.randint(1, 2))
        if self.chance(0.3):
            self.emit(f"elif {self.test()}:")
            self.block(1)
        if self.chance(0.5):
            self.emit("else:")
            self.block(self.random.randint(1, 2))

    def block(self, count: int) -> None:
        """Write statements, one level deeper."""
        self.depth += 1
        for _ in range(count):
            self.statement()
        self.depth -= 1

    def ranged(self) -> str:
        """Return a range."""
        outer = self.pick(*self.counters) if self.counters else "1"
        if self.calm:
            return self.pick(
                "range(n)",
                "range(n)",
                "range(1, n)",
                "range(n - 1, -1, -1)",
                f"range({outer} % n)",
                f"range({outer} % n, n)",
                "range(0, n, 2)",
                "range(len(a))",
                "range(m.shape[0])",
            )
        return (
            "range("
            + self.weighted(
                (5, lambda: "n"),
                (2, lambda: "1, n"),
                (1, lambda: "n - 1, -1, -1"),
                (1, lambda: "len(a)"),
                (1, lambda: outer),
                (1, lambda: f"{outer}, n"),
                (0.5, lambda: "0, n, 2"),
                (0.3, lambda: "n, 0, -2"),
                (0.3, lambda: "k, k + 5"),
                (0.2, lambda: "-3, 3"),
                (0.2, lambda: "3, -4, -3"),
                (0.3, lambda: "i0, i0 + 4"),
                (0.1, lambda: "2**31 - 2, 2**31 + 3"),
                (0.1, lambda: "2**62, 2**62 + 3"),
                (0.3, lambda: "m.shape[0]"),
                (0.2, lambda: "y, 4"),
                (0.1, lambda: "0, 5, k"),
                (0.3, lambda: "5"),
            )
            + ")"
        )

    def loop(self) -> None:
        """Write a ``for`` loop."""
        level = len(self.counters)
        counter, item, other = f"j{level}", f"u{level}", f"w{level}"
        counters, items, kind = [counter], [item], self.random.random()
        if kind < 0.55 or level > 1:
            head, items = f"{counter} in {self.ranged()}", []
        elif kind < 0.65:
            head, counters = (
                f"{item} in {self.pick('a', 'c', 'd', 'b', 'a[::-1]', 'a[1:]', 'q', 'c[:n // 2]')}",
                [],
            )
        elif kind < 0.75:
            over = self.pick("a", "c", "d", "b", "a[1:]", "c, 1", "a, -2")
            head = f"{counter}, {item} in enumerate({over})"
        elif kind < 0.83:
            head, counters = (
                f"{item}, {other} in zip({self.pick('a, b', 'c, d', 'a, c', 'a, a[1:]')})",
                [],
            )
            items.append(other)
        elif kind < 0.87:
            head = f"{counter}, ({item}, {other}) in enumerate(zip(a, {self.pick('b', 'c')}))"
            items.append(other)
        elif kind < 0.91:
            head, counters = (
                f"{item} in "
                + self.pick(
                    "t",
                    "(1, 2.5, s0)",
                    "(0, 1)",
                    "(a[0], 3)",
                    "(-1, 0, 1)",
                    "(s1, s0, s1)",
                    "(i0, i1, k)",
                    "(a[0], s0 + 1, a[-1])",
                ),
                [],
            )
        elif kind < 0.92:
            head, counters = (
                f"{item}, {other} in "
                + self.pick(
                    "zip((s0, s1), (i0, i1))", "enumerate((s0, s1, x))", "zip((a[0], 1), (i1, s2))"
                ),
                [],
            )
            items.append(other)
        elif kind < 0.93:
            head, counters, items = f"{self.pick(*VECTORS)} in {self.pick('(a, b)', '(v0, v1, a)')}", [], []
        elif kind < 0.935:
            self.emit(f"r0 = {self.ranged()}")
            if self.chance(0.7):
                self.statement()
            head, items = f"{counter} in {self.pick('r0', 'r0', 'reversed(r0)')}", []
        elif kind < 0.94:
            head, items = f"{counter} in reversed({self.ranged()})", []
        elif kind < 0.97:
            head = f"{counter}, {item} in zip(range(n), {self.pick('a', 'c')})"
        else:
            head, counters, items = f"v0 in {self.pick('m', 'p', 'm.T')}", [], []
        self.emit(f"for {head}:")
        self.counters += counters
        self.items += items
        before = len(self.lines)
        self.loops += 1
        self.block(self.random.randint(1, 3 if level else 5))
        self.loops -= 1
        assert len(self.lines) > before
        for name in counters:
            self.counters.remove(name)
        for name in items:
            self.items.remove(name)
        if self.chance(0.04):
            self.emit("else:")
            self.block(1)

    def while_loop(self) -> None:
        """Write a ``while`` loop that ends."""
        name = f"g{self.whiles}"
        self.whiles += 1
        self.emit(f"{name} = {self.pick('0', '0', '-1', 'n')}")
        test = self.weighted(
            (2, lambda: f"{name} < n"),
            (1, lambda: f"{name} < 6 and {self.test()}"),
            (1, lambda: "True"),
            (1, lambda: f"{name} < 5 and not {self.test()}"),
        )
        self.emit(f"while {test}:")
        self.emit(f"    {name} += {self.pick('1', '1', '2')}")
        if test == "True":
            self.emit(f"    if {name} > 5: break")
        self.counters.append(name)
        self.block(self.random.randint(1, 3))
        self.counters.remove(name)

    def function(self) -> str:
        """Return the text of a module with the function ``f``."""
        for name in SCALARS:
            if self.tame and self.chance(0.9):
                self.emit(f"{name} = {self.pick('0.0', 'x', 'z', 'y', '1.0')}")
            elif self.chance(0.93):
                self.emit(
                    f"{name} = {self.pick('0', '0.0', '1', 'x', 'y', 'z', 'k', 'False', '0.5', '2', 'None')}"
                )
        self.emit(f"i0, i1 = {self.pick('0, 1', '1, 2', 'k, 0', 'n, 3', 'k, -1')}")
        self.emit("f0 = False")
        if self.mixed:
            self.emit(f"o0, o1 = {self.pick('None, None', 'None, 0', '0, 0.0', 'None, a', 'a, None')}")
        if not self.plain:
            self.emit(
                f"v0 = {self.pick('a', 'b', 'np.zeros(n)', 'a.copy()', 'a[::-1]', 'm[:, 0]')}"
            )
            self.emit(f"v1 = {self.pick('b', 'np.ones(n)', 'b.copy()', 'c', 'p[0]')}")
        else:
            self.emit("v0, v1 = a, b")
        if self.listed:
            generate_lists.setup(self)
        for _ in range(self.pick(1, 1, 1, 2)):
            self.budget = self.random.randint(3, 12)
            self.weighted((6, self.loop), (1, self.while_loop))
        options = OPTIONS if self.mixed else ()
        names = [name for name in (*SCALARS, *INTS, *FLAGS, *VECTORS, *options) if self.chance(0.85)] or [
            "s0"
        ]
        if self.listed:
            names += [*generate_lists.NAMES, "l0 is l1", "[l0 is t for t in t0]"]
        if self.chance(0.15):
            names.append(self.pick("j0", "u0", "w0"))
        if self.chance(0.2):
            names.append(self.pick("v0 is a", "v1 is b", "v0 is v1", "m.base is m", "a is b"))
        self.emit(f"return {', '.join(names)},")
        body = "\n".join(self.lines)
        head = f"import math\nimport numpy as np\n\nlog = []\n{_HELPERS}\n"
        return f"{head}\ndef f({', '.join(PARAMETERS)}):\n{body}\n"


def generate(seed: int) -> str:
    """Return the text of the module of a seed."""
    return Generator(seed).function()
