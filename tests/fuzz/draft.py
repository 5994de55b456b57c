"""A program while it is drawn: its choices, and its variables with the values they have now."""

from __future__ import annotations

import copy
import functools
import random
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np
from scipy import special

from tests.fuzz.arrays import Box, Net, Tagged, array, foreign, window

MOST_CELLS = 40_000
NUMBERS = "?bBhHiIlLqQefdFD"
PREAMBLE = {
    "np": np, "special": special, "functools": functools, "warnings": warnings, "array": array,
    "window": window, "Box": Box,
    "foreign": foreign, "Net": Net, "Tagged": Tagged, "jit": lambda f: f,
}
# What a copy of the values has in common with them.
SHARED = (FunctionType, GeneratorType, MethodType, ModuleType, type)


@lru_cache(4096)
def code(text: str, mode: str = "exec") -> CodeType:
    """Return the code of a statement or an expression: all programs with one text run the same ones."""
    return compile(text, "<string>", mode)


class Draft:
    """Choices, names and values of one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names: dict[str, Any] = dict(PREAMBLE)
        self.places: dict[str, str] = {}
        self.helpers: dict[str, int] = {}
        self.foreign: dict[str, str] = {}
        self.fresh = 0
        # What has NumPy's bits in every operation is compared bit by bit.
        self.exact = self.chance(0.6)

    def new_name(self, letter: str = "v") -> str:
        """Return a name that is not in use."""
        self.fresh += 1
        return f"{letter}{self.fresh}"

    def chance(self, share: float) -> bool:
        """Say yes to a share of the questions."""
        return self.rng.random() < share

    def pick(self, options: Any) -> Any:
        """Return one of the options."""
        return self.rng.choice(options)

    def weighted(self, options: dict[Any, float]) -> Any:
        """Return a key, as often as its weight says."""
        return self.rng.choices(list(options), list(options.values()))[0]

    def value(self, text: str) -> Any:
        """Evaluate an expression that changes nothing; None if it raises or is too large."""
        try:
            found = eval(code(text, "eval"), self.names)
        except Exception:
            return None
        return None if isinstance(found, np.ndarray) and found.size > MOST_CELLS else found

    def run(self, text: str) -> bool:
        """Run a statement; say whether it raised nothing and left no variable too large."""
        try:
            exec(code(text), self.names)
        except Exception:
            return False
        return True

    def aside(self) -> Draft:
        """Return a draft with a copy of the values, and the same source of choices."""
        other = Draft(0)
        other.rng = self.rng
        other.places = dict(self.places)
        other.helpers, other.foreign = self.helpers, self.foreign
        kept: dict[int, Any] = {}
        for name, held in self.names.items():
            shared = name in PREAMBLE or isinstance(held, SHARED)
            shared = shared or name == "__builtins__"
            other.names[name] = held if shared else copy.deepcopy(held, kept)
        other.fresh, other.exact = self.fresh, self.exact
        return other

    def arrays(self, fits: Callable[[np.ndarray], bool] = lambda _: True) -> list[str]:
        """Return the places that hold an array, by the text that reads them."""
        found = []
        for name, held in self.names.items():
            if is_numbers(held) and fits(held):
                found.append(name)
        for text in self.places:
            held = self.value(text)
            if is_numbers(held) and fits(held):
                found.append(text)
        return found

    def scalars(self) -> list[str]:
        """Return the variables that hold a number."""
        kinds = (np.number, np.bool_, int, float)
        return [name for name, held in self.names.items() if isinstance(held, kinds)]


def is_numbers(held: Any) -> bool:
    """Say whether something is a plain array of numbers, as most of a program is about."""
    return type(held) is np.ndarray and held.dtype.char in NUMBERS and held.dtype.isnative


def leaves(text: str) -> bool:
    """Say whether a statement may return from the function."""
    return text.startswith("if ") and text.endswith("\n    return x0")
