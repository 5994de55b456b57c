"""Families of programs: variations of one program, each called with several sets of arguments."""

from __future__ import annotations

import ast
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tests.fuzz.draft import Draft, Frame, code, leaves
from tests.fuzz.statements import simple

# One variation: a small change to a program

LITERAL = re.compile(r"(?<![\w.\[(:])(\d+\.\d+|-\d+\.\d+)(?![\w.:\]])")
NUMBERS = ("0.3", "0.75", "1.25", "1.7", "2.2", "3.5", "-0.4", "-1.5")
SWAPS = (
    (" + ", " - "), (" - ", " * "), (" * ", " + "), (" < ", " >= "), (" > ", " <= "), (" += ", " -= "),
    (" -= ", " *= "), ("np.minimum(", "np.maximum("), ("np.floor(", "np.rint("), ("sum(", "max("),
    ("mean(", "sum("), ("np.abs(", "np.negative("), ("[1:]", "[:-1]"), ("[::-1]", "[:]"), ("[0]", "[-1]"),
    ("np.sqrt(", "np.square("), ("axis=0", "axis=-1"), (" / ", " * "),
)
TRIES = 4


def varied(frame: Frame, lines: list[str], rng: random.Random) -> tuple[Frame, list[str]]:
    """Return a frame and a body like those given; they run, unless none was found that does."""
    for turn in range(TRIES):
        other = frame.redrawn(rng, bold=turn == 0)
        body = list(lines)
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2)) if turn < TRIES - 1 else 0):
            body = rng.choices(*CHANGES)[0](body, rng)
        body = [_other_numbers(text, rng) for text in body]
        scratch = _runs(other, body)
        if scratch is None:
            continue
        if rng.random() < 0.2:
            drawn = simple(scratch)
            body = [*body[:-1], drawn, body[-1]] if drawn else body
        break
    return other, body


def reframed(frame: Frame, lines: list[str], rng: random.Random) -> Frame:
    """Return a frame with other arguments; the body runs with them, unless none was found."""
    for turn in range(TRIES):
        other = frame.redrawn(rng, bold=turn < TRIES - 1)
        if _runs(other, lines, "\n".join(lines)) is not None:
            break
    return other


def _runs(frame: Frame, body: list[str], text: str | None = None) -> Draft | None:
    """Run a body; return the draft with the values it left, or None if it raised.

    If its text is given, its arguments are made by the very code that will make them.
    """
    draft = frame.draft
    try:
        frame.start(text)
    except Exception:
        return None
    for text in body[:-1]:
        if not leaves(text) and not draft.run(text):
            return None
    returned = body[-1].removeprefix("return ")
    try:
        eval(code(returned, "eval"), draft.names)
    except Exception:
        return None
    return draft


def _other_numbers(text: str, rng: random.Random) -> str:
    """Put other numbers in the place of some: the kernels stay as they are."""
    return LITERAL.sub(lambda m: rng.choice(NUMBERS) if rng.random() < 0.4 else m.group(), text)


def _without_one(body: list[str], rng: random.Random) -> list[str]:
    at = rng.randrange(max(len(body) - 1, 1))
    return [*body[:at], *body[at + 1 :]] if len(body) > 2 else body


def _turned(body: list[str], rng: random.Random) -> list[str]:
    if len(body) < 3:
        return body
    at = rng.randrange(len(body) - 2)
    return [*body[:at], body[at + 1], body[at], *body[at + 2 :]]


def _repeated(body: list[str], rng: random.Random) -> list[str]:
    at, to = sorted((rng.randrange(len(body)), rng.randrange(len(body))))
    return body if at == len(body) - 1 else [*body[:to], body[at], *body[to:]]


def _swapped(body: list[str], rng: random.Random) -> list[str]:
    """Exchange one operator, function or index for another; a `while` might never end."""
    found = [(at, text) for at, text in enumerate(body) if "while" not in text]
    places = [(at, pair) for at, text in found for pair in SWAPS if pair[0] in text]
    if not places:
        return body
    at, (old, new) = rng.choice(places)
    text = body[at].replace(old, new, 1)
    return [*body[:at], text, *body[at + 1 :]] if _parses(text) else body


def _wrapped(body: list[str], rng: random.Random) -> list[str]:
    """Put a statement into a loop or a branch."""
    at = rng.randrange(len(body))
    if at == len(body) - 1 or "while" in body[at] or leaves(body[at]):
        return body
    head = rng.choice(("for turn in range(2):", "for turn in range(3):", "if x0.size:", "if G1 < 9:"))
    text = head + "\n" + "\n".join("    " + line for line in body[at].splitlines())
    return [*body[:at], text, *body[at + 1 :]]


def _parses(text: str) -> bool:
    try:
        ast.parse(f"def f():\n{'    ' + text.replace(chr(10), chr(10) + '    ')}")
    except SyntaxError:
        return False
    return True


CHANGES = ((_without_one, _turned, _repeated, _swapped, _wrapped), (4, 2, 2, 2, 2))


# Families

# So many programs in a row are variations of one: the locality that lets kernels be met again. So many
# of them have one text, called with other arguments: sizes, layouts, dtypes, values, aliases.
FAMILY, DATA = 30, 10
AGAIN = "AGAIN = {}\n"
Drawn = tuple[Any, list[str]]


@dataclass(eq=False)
class Families:
    """Draws a program by its seed: `first` the first one of a family, `assemble` makes a module of it.

    `kind` sets the draws of one generator apart from those of another.
    """

    kind: str
    first: Callable[[int], Drawn]
    assemble: Callable[[int, Any, list[str]], str]
    _texts: Callable[[int, int], Drawn] = field(init=False)
    _frames: Callable[[int, int], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.first = lru_cache(2)(self.first)
        self._texts, self._frames = lru_cache(2)(self._text), lru_cache(8)(self._frame)

    def __call__(self, seed: int, family: int = FAMILY) -> str:
        """Return the source of program `seed`; in families of one, no program resembles another."""
        first, member = divmod(seed, family)
        start = member - member % DATA
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            frame, lines = self._texts(first, start)
            made, body = [self.assemble(seed, frame, lines)], "\n".join(lines)
            for turn in range(1, member % DATA + 1):
                frame = self._frames(first, start + turn)
                made.append(f"{AGAIN.format(turn)}{frame.makers(body)}\n")
        return "\n\n".join(made)

    def _text(self, first: int, member: int) -> Drawn:
        """Draw the first program with a text."""
        frame, lines = self.first(first)
        return varied(frame, lines, self._rng(first, member)) if member else (frame, lines)

    def _frame(self, first: int, member: int) -> Any:
        """Draw other arguments for a text."""
        return reframed(*self._texts(first, member - member % DATA), self._rng(first, member))

    def _rng(self, first: int, member: int) -> random.Random:
        return random.Random(f"{self.kind}{first} {member}")
