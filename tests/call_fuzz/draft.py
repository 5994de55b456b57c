"""Templates and what fills them: names, expressions of arrays and numbers, nested blocks.

A template is text with places: `<a>` an array, `<s>` a number, `<v>` a new array, `<w>` a new number, `<q>` any
other new name, `<x>` and `<y>` a local array and number that exist, `<n>` a small index, `<c>` a constant, `<o>` the
object at hand, `<k>` any object, `<f>` something that takes an array and returns one, `<g>` one that returns a
number, `<r>` what the function returns, `<B>` a block. A digit behind the letter names a place that occurs more
than once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

PLACE = re.compile(r"<([asvwqxynckofgrB])(\d?)>")
NAMING = {"v": "v", "w": "w", "q": "q"}
COST = 60  # calls of functions that one call may lead to
SIZE = 7  # elements that indices may name


@dataclass
class Scope:
    """What a body can name, and what it may do."""

    arrays: list[str]
    scalars: list[str]
    state: str = "s"
    returns: str = "A"  # an array, a scalar, a pair, or nothing (a generator)
    depth: int = 0
    loops: int = 1


@dataclass
class Callable_:
    """Something that bodies can call: an expression with a place for an array, and what it returns."""

    text: str
    returns: str
    cost: int


@dataclass
class Draft:
    """A module that is being drawn."""

    rng: Random
    features: frozenset[str] = frozenset()
    count: int = 0
    cost: int = 1
    pool: list[Callable_] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    wrappers: list[str] = field(default_factory=list)
    statements: list[tuple[int, str]] = field(default_factory=list)  # what bodies are made of

    def new(self, letter: str) -> str:
        """Return a name that nothing has."""
        self.count += 1
        return f"{letter}{self.count}"

    def chance(self, share: float) -> bool:
        """Return True in so large a share of cases."""
        return self.rng.random() < share

    def fill(self, template: str, scope: Scope) -> str:
        """Return the template with its places filled; what it binds is in scope from now on."""
        known: dict[str, str] = {}
        made: list[tuple[str, str]] = []

        def put(found: re.Match[str]) -> str:
            letter, digit = found.groups()
            key = letter + digit
            if key in known and (digit or letter in NAMING):
                return known[key]
            if letter in NAMING:
                known[key] = self.new(letter)
                made.append((letter, known[key]))
            else:
                known[key] = self.place(letter, scope)
            return known[key]

        lines = []
        for line in template.split("\n"):
            if line.strip() == "<B>":
                indent = line[: line.index("<")]
                inner = replace(scope, arrays=[*scope.arrays], scalars=[*scope.scalars], depth=scope.depth + 1)
                if "for " in template or "while " in template:
                    inner.loops *= 3
                inner.arrays += [n for k, n in made if k == "v" and n + " = " not in template]
                lines += [indent + each for each in self.block(inner, self.rng.randint(1, 2)).split("\n")]
            else:
                lines.append(PLACE.sub(put, line))
        scope.arrays += [name for letter, name in made if letter == "v"]
        scope.scalars += [name for letter, name in made if letter == "w"]
        return "\n".join(lines)

    def place(self, letter: str, scope: Scope) -> str:
        """Return what may stand at a place."""
        rng = self.rng
        if letter == "a":
            return self.array(scope, rng.choice((0, 1, 1, 2)))
        if letter == "s":
            return self.scalar(scope, rng.choice((0, 1, 1)))
        if letter == "x":
            return rng.choice(scope.arrays)
        if letter == "y":
            return rng.choice(scope.scalars or ["1.5"])
        if letter == "n":
            return str(rng.randint(-SIZE, SIZE - 1))
        if letter == "c":
            return rng.choice(("0.5", "1.0", "2.0", "-1.5", "3.0", "0.25"))
        if letter == "o":
            return scope.state
        if letter == "k":
            return rng.choice([scope.state, *self.objects]) if self.objects else scope.state
        if letter in "fg":
            return self.callable(scope, "A" if letter == "f" else "S")
        return self.result(scope)

    def result(self, scope: Scope) -> str:
        """Return an expression of what a function returns."""
        return {"A": lambda: self.array(scope, 1), "S": lambda: self.scalar(scope, 1)}[scope.returns]()

    def block(self, scope: Scope, length: int) -> str:
        """Return some statements."""
        found = []
        weights, texts = [w for w, _ in self.statements], [t for _, t in self.statements]
        while len(found) < length:
            template = self.rng.choices(texts, weights)[0]
            if "<B>" in template and scope.depth >= 2 or "<r>" in template and scope.returns == "G":
                continue
            if "<y>" in template and not scope.scalars:
                continue
            found.append(self.fill(template, scope))
        return "\n".join(found)

    def array(self, scope: Scope, depth: int) -> str:
        """Return an expression of an array."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            if rng.random() < 0.25:
                return rng.choice(("fit(<k>.a, <x>)", "fit(<o>.a, <x>)", "<o>.a", "fit(<k>.d.get('k'), <x>)", "fit(<k>.l[-1], <x>)", "fit(LAST, <x>)",
                                   "fit(Box.shared, <x>)", "fit(TABLE.get('t'), <x>)")).replace(
                    "<k>", self.place("k", scope)).replace("<o>", scope.state).replace("<x>", scope.arrays[0])
            return rng.choice(scope.arrays)
        if rng.random() < 0.35 and (called := self.called(scope, "A")):
            return called
        form = rng.choice(ARRAYS)
        return PLACE.sub(lambda m: (self.array(scope, depth - 1) if m[1] == "a" else
                                    self.scalar(scope, depth - 1) if m[1] == "s" else
                                    self.place(m[1], scope)), form)

    def scalar(self, scope: Scope, depth: int) -> str:
        """Return an expression of a number."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.2:
            if scope.scalars and rng.random() < 0.6:
                return rng.choice(scope.scalars)
            return rng.choice(("<k>.b".replace("<k>", self.place("k", scope)), self.place("c", scope),
                               f"{rng.choice(scope.arrays)}[{self.place('n', scope)}]"))
        if rng.random() < 0.2 and (called := self.called(scope, "S")):
            return called
        form = rng.choice(SCALARS)
        return PLACE.sub(lambda m: (self.array(scope, depth - 1) if m[1] == "a" else
                                    self.scalar(scope, depth - 1) if m[1] == "s" else
                                    self.place(m[1], scope)), form)

    def choose(self, scope: Scope, returns: str) -> Callable_ | None:
        """Return something to call, if that is not too much."""
        found = [each for each in self.pool if each.returns == returns
                 and self.cost + each.cost * scope.loops <= COST]
        if not found:
            return None
        each = self.rng.choice(found)
        self.cost += each.cost * scope.loops
        return each

    def called(self, scope: Scope, returns: str) -> str | None:
        """Return a call of something."""
        each = self.choose(scope, returns)
        if each is None:
            return None
        return self.insert(each.text, scope, self.array(scope, self.rng.choice((0, 0, 1))))

    def insert(self, text: str, scope: Scope, given: str) -> str:
        """Return a call with its argument."""
        return text.replace("<a>", given).replace("<o>", scope.state)

    def callable(self, scope: Scope, returns: str) -> str:
        """Return an expression of something that can be called with an array."""
        each = self.choose(scope, returns)
        if each is None:
            return self.rng.choice(("np.abs", "(lambda t: t * 0.5)") if returns == "A" else
                                   ("np.sum", "(lambda t: t[0])", "float_of"))
        simple = re.fullmatch(r"(\w+)\(<a>, <o>\)", each.text)
        method = re.fullmatch(r"([\w.]+)\(<a>\)", each.text)
        forms = [f"(lambda t: {self.insert(each.text, scope, 't')})"] * 2
        if self.chance(0.15):
            forms.append(f"jit(lambda t: {self.insert(each.text, scope, 't')})")
        if simple:
            forms += [f"functools.partial({simple[1]}, s={scope.state})"] * 3
        if method:
            forms += [method[1]] * 4
        return self.rng.choice(forms)


ARRAYS = (
    "(<a> + <a>)", "(<a> - <a>)", "<a> * <c>", "np.abs(<a>)", "np.where(<a> > <s>, <a>, <a>)", "-(<a>)",
    "np.minimum(<a>, <a>)", "np.sqrt(np.abs(<a>))", "(<a> * <s>)", "(<a>)[::-1]", "(<a>).copy()",
    "((<a>) > <s>) * 1.0", "((<a>) % 5.0)", "np.clip(<a>, -<c>, 4.0)", "(<a>) / <c>", "(<a> + <s>)",
    "np.maximum(<a>, <s>)", "np.add(<a>, <a>)", "np.multiply(<a>, <c>)", "np.zeros_like(<a>)", "np.floor(<a>)",
    "(<a>)[:]", "np.array(<a>)", "np.asarray(<a>)", "(<a>).reshape(-1)", "np.cumsum(<a>)", "(<a> if <s> > <c> else <a>)",
)
SCALARS = (
    "(<a>).sum()", "(<a>).sum()", "(<a>).mean()", "(<a>).max()", "(<a>).min()", "(<a>)[<n>]", "np.sum(<a>)",
    "float((<a>)[0])", "len(<a>)", "(<s> + <s>)", "<s> * <c>", "abs(<s>)", "(<a>).size", "((<a>) > <s>).sum()",
    "np.floor((<a>) % 4) @ np.floor((<a>) % 4)", "float(<s>)", "np.max(<a>)", "((<a>) * (<a>)).sum()", "int((<a>)[0] > 0)",
    "np.abs(<s>)", "(<s> if <s> > <c> else <c>)", "min(<s>, <s>)", "-(<s>)",
)

Maker = Callable[[Draft], str]
