"""Programs in families: variations of one text, each called with several sets of arguments."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tests.fuzz.vary import reframed, varied

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
