"""A program while it is drawn: its choices and variables; sizes, arguments and helpers around its body."""

from __future__ import annotations

import copy
import functools
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import numpy as np
from scipy import special

from tests.fuzz.arrays import VALUES, Box, Net, Tagged, array, foreign, window
from tests.fuzz.load import arguments

# The draft: choices, and variables with their present values

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


# The frame: sizes, arguments, globals, helpers, calls

CALLS = 4
SIZES = (0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 64, 65, 127, 128, 129)
LARGE = (1000, 1000, 4097, 8193)
SMALL = (1, 2, 3, 4, 7, 8, 9, 16, 17, 33)
DTYPES = {
    "f8": 48, "f4": 18, "i8": 8, "i4": 6, "?": 6, "i1": 3, "u1": 3, "i2": 2, "u2": 1, "u4": 1, "u8": 1,
    "c16": 3, "c8": 2, "f2": 1,
}
# What a program is rich in.
THEMES = {"": 50, "functions": 14, "mixed": 13, "trouble": 9, "rows": 8, "inexact": 6}
FOREIGN = {
    "dates": 3, "spans": 2, "text": 2, "bytes": 1, "objects": 3, "records": 3, "masked": 2, "tagged": 2,
    "swapped": 1, "long": 1, "half": 2, "matrix": 0.5, "csr": 1, "csc": 0.5, "coo": 0.5, "rows": 1,
}
LAYOUTS = {
    "C": 62, "F": 10, "sliced": 6, "reversed": 5, "permuted": 5, "broadcast": 3, "readonly": 3, "offset": 6,
    "unaligned": 2,
}
KINDS = {"nice": 5, "uniform": 4, "normal": 3, "wide": 1, "special": 1.5}
SHAPES = {
    "(n,)": 8, "(m,)": 2, "(m, n)": 5, "(n, m)": 3, "(1, n)": 0.7, "(m, 1)": 0.8, "(m, m)": 2,
    "(k, m, n)": 1.2, "()": 0.4, "(m, k)": 0.8,
}
ALIASES = (
    "x0", "x0[1:]", "x0[::-1]", "x0.T", "x0[..., ::2]", "x0.reshape(-1)", "x0[:]", "x0[..., ::-1]",
    "x0[:-1]", "x0[:1]", "np.asarray(x0)",
)
REPLACING_NUMBERS = ("2.5", "3", "np.float32(0.5)", "True", "1 + call")
# What happens between calls, as (call, threads): other sizes, layouts and dtypes, and back again.
SCHEDULES = (
    ((0, 1), (1, 1), (2, 1)),
    ((0, 1), (2, 1), (0, 1)),
    ((0, 1), (1, 1), (3, 1), (2, 1)),
    ((0, 1), (3, 1), (0, 1), (2, 1)),
    ((0, 1), (1, 1), (1, 2)),
    ((0, 2), (2, 1), (3, 2), (1, 1)),
    ((0, 1), (1, 1), (2, 1), (3, 1), (1, 1), (0, 2)),
)
HELPERS = (
    "def scale(a, b=2.0):\n    t = a * b\n    return t - a\n",
    "def sigmoid(a):\n    return 1 / (1 + np.exp(-a))\n",
    "def norm(a):\n    return a / (np.abs(a).sum() + 1)\n",
    "def blend(a, b):\n    if np.sum(a) > 0:\n        return a + b\n    return a - b\n",
    "def half(a, depth=2):\n    if depth == 0:\n        return a\n    return half(a * 0.5, depth - 1)\n",
    "def both(a, b=1.5):\n    return np.maximum(a, 0) * b + np.minimum(a, 0)\n",
    "def keepmean(a):\n    m = a.mean()\n    v = ((a - m) ** 2).mean()\n    return (a - m) / (v + 1)\n",
    "def shifted(a):\n    b = a.copy()\n    b[1:] -= a[:-1]\n    return b\n",
    "def pair(a, b=0.5):\n    return (a + b, a - b)[a.size % 2]\n",
    "def outer(a, b=1.5):\n    t = inner(a) + b\n    return t - inner(t)\n\n\n"
    "@jit\ndef inner(a):\n    return a * 0.5\n",
    "def first(a):\n    return second(a * 2, a)\n\n\n"
    "@jit\ndef second(a, b):\n    a -= third(b)\n    return a\n\n\n@jit\ndef third(b):\n    return b + 1\n",
    "def turns(a):\n    return sum(turn(a))\n\n\ndef turn(a):\n    for k in range(3):\n        yield a * k\n",
)
BUMP = "def bump(a):\n    a += 1\n    return a\n"


@dataclass(frozen=True)
class Slot:
    """An array to be made: equal dtypes or layouts twice mean that later calls change nothing."""

    shape: str
    dtypes: tuple[str, str]
    layouts: tuple[str, str]
    values: str
    seed: int

    def text(self) -> str:
        """Return the expression that makes it."""
        kinds, places = map(_later, (self.dtypes, self.layouts))
        return f"window({self.shape}, {kinds}, {places}, '{self.values}', {self.seed} + call)"


def _later(pair: tuple[str, str]) -> str:
    return f"'{pair[0]}'" if pair[0] == pair[1] else f"{pair}[call > 2]"


class Frame:
    """Everything around the body."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.theme = draft.weighted(THEMES)
        draft.exact = draft.exact and self.theme != "inexact"
        self.large = draft.chance(0.06)
        self.kind = draft.weighted(KINDS)
        self.dtype = draft.weighted(DTYPES)
        self.method = draft.chance(0.35)
        self.closure = draft.chance(0.3)
        self.jitted_helper = draft.chance(0.15)
        helpers = [h for h in HELPERS if not draft.exact or "exp" not in h]
        self.helpers = draft.rng.sample(helpers, draft.pick((0, 1, 1, 2)))
        self.count = 3 if self.theme == "rows" else draft.pick((1, 2, 2, 2, 3, 3, 4))
        self.slots = [self._slot(10 * i) for i in range(self.count)]
        self.foreign: dict[str, str] = {}
        if self.theme == "rows":
            self._draw_matrix()
        if self.theme == "mixed" or draft.chance(0.02):
            self.foreign = {f"y{i}": draft.weighted(FOREIGN) for i in range(draft.pick((1, 1, 2)))}
        self.long = draft.pick("nm")
        self.others = {name: self._slot(seed) for name, seed in (("G0", 70), ("p", 80), ("w", 90))}
        self.shared = {name: draft.chance(0.35) for name in ("G0", "p")}
        self.number = draft.pick(("0.25", "2", "np.float64(1.5)", "np.float32(0.75)"))
        self._draw_calls()

    def _draw_calls(self) -> None:
        """Draw what calls differ in: sizes, numbers, which arguments share memory."""
        draft = self.draft
        self.sizes: list[tuple[int, int, int]] = []
        for call in range(CALLS):
            self.sizes.append(self._sizes(call))
        if draft.chance(0.5):
            self.sizes[1] = self.sizes[0]
        self.rate = draft.pick(("0.5", "3", "1.5 * call"))
        self.schedule = draft.pick(SCHEDULES)
        self.faults = draft.pick((1, 2, 2, 3, 3, 5)) if draft.chance(0.04) else 0
        self.at_once = draft.pick((2, 3)) if draft.chance(0.05) else 1
        # The same object in several calls, as the call before left it.
        self.again = draft.chance(0.12)
        if self.again:
            self.sizes = self.sizes[:1] * CALLS
        self.instead: dict[int, str] = {}
        for i in range(1, self.count):
            if draft.chance(0.2):
                self.instead[i] = self._alias(i)
            elif draft.chance(0.1):
                self.instead[i] = draft.pick(REPLACING_NUMBERS)

    def _alias(self, i: int) -> str:
        if self.slots[0].shape == "()":
            return "x0"
        if self.theme == "rows":  # matrices in the place of vectors make products that take long to judge
            text = self.draft.pick(("x0[0]", "x0[-1]") if i == 1 else ("x0[:, 0]", "x0[:, -1]"))
            return f"{text} if x0.size else {self.slots[i].text()}"
        text = self.draft.pick(ALIASES)
        return f"({self.slots[i].text()}, {text})[call % 2]" if self.draft.chance(0.4) else text

    def _sizes(self, call: int) -> tuple[int, int, int]:
        """Draw sizes; what is drawn runs with those of the first call, so none is much larger."""
        draft = self.draft
        if self.theme == "rows" and (call == 0 or draft.chance(0.6)):
            n = draft.pick((1100, 1300, 2050) if self.large or draft.chance(0.2) else (9, 33, 64, 129))
            return min(n, self.sizes[0][0] if call else n), draft.pick((8, 12, 16, 17)), draft.pick((1, 2))
        if self.large and (call == 0 or draft.chance(0.4)):
            most = self.sizes[0][0] if call else max(LARGE)
            # No m of 1: it would make n * n cells of programs that were drawn with fewer.
            return min(draft.pick(LARGE), most), draft.pick((2, 2, 3)), draft.pick((1, 2))
        if call == 0 and draft.chance(0.75):  # sizes that are equal, or 1, by chance fit in one call only
            n, m = draft.pick(SIZES[6:]), draft.pick((4, 7, 12, 19, 34))
            return n, m, draft.pick((2, 3, 5))
        n = draft.pick(SIZES if draft.chance(0.6) else SMALL)
        m = draft.pick(SMALL) if draft.chance(0.9) else draft.pick((0, 65, 129))
        return n, m, draft.pick((1, 2, 3, 5))

    def _slot(self, seed: int) -> Slot:
        draft = self.draft
        dtype = self.dtype if draft.chance(0.7) else draft.weighted(DTYPES)
        values = self.kind if draft.chance(0.85) else draft.pick(VALUES)
        later = draft.weighted(DTYPES) if draft.chance(0.15) else dtype
        return Slot(draft.weighted(SHAPES), (dtype, later), self._layouts(), values, seed)

    def _draw_matrix(self) -> None:
        """Make the arguments a matrix and vectors that fit it."""
        if self.dtype not in ("f8", "f4"):
            self.dtype = "f8"
        self.large = self.draft.chance(0.5)
        self.slots = [
            replace(slot, shape=shape, dtypes=(self.dtype,) * 2)
            for slot, shape in zip(self.slots, ("(n, m)", "(m,)", "(n,)"), strict=True)
        ]

    def _layouts(self) -> tuple[str, str]:
        layout = self.draft.weighted(LAYOUTS)
        return layout, self.draft.weighted(LAYOUTS) if self.draft.chance(0.3) else layout

    def redrawn(self, rng: random.Random, bold: bool) -> Frame:
        """Return a frame with other sizes, values, layouts; if `bold`, also dtypes and aliases."""
        other = copy.copy(self)
        other.draft = draft = copy.copy(self.draft)
        draft.rng, draft.names, draft.places = rng, dict(PREAMBLE), {}

        def moved(slot: Slot) -> Slot:
            layouts = other._layouts() if draft.chance(0.25) else slot.layouts
            values = draft.weighted(KINDS) if draft.chance(0.3) else slot.values
            other_kind = bold and draft.chance(0.06)
            dtypes = (draft.weighted(DTYPES),) * 2 if other_kind else slot.dtypes
            seed = slot.seed + draft.pick(range(100, 9999))
            return replace(slot, layouts=layouts, values=values, dtypes=dtypes, seed=seed)

        other.slots = [moved(slot) for slot in self.slots]
        other.others = {name: moved(slot) for name, slot in self.others.items()}
        aliases = self.instead
        other._draw_calls()
        if not bold or draft.chance(0.7):
            other.instead = aliases
        if not bold:
            other.sizes[0] = self.sizes[0]
            other.sizes = other.sizes[:1] * CALLS if other.again else other.sizes
        return other

    def lines(self, body: str = "G0 p") -> list[str]:
        """Return the statements that make the arguments of one call; no array of what is not in `body`."""
        lines = []
        for i, slot in enumerate(self.slots):
            text = self.instead.get(i) or slot.text()
            lines.append(f"x{i} = {f'KEPT.setdefault({i}, {text})' if self.again and not i else text}")
        used = {*re.findall(r"\b(?:G0|p)\b", body), "w"}
        other = {name: slot.text() if name in used else "0.5" for name, slot in self.others.items()}
        lines += [
            *(f"{name} = foreign('{kind}', min({self.long}, 129), min(m, 9), {i} + call)"
              for i, (name, kind) in enumerate(self.foreign.items())),
            f"G0 = {'x0' if self.shared['G0'] else other['G0']}",
            f"G1 = {self.rate}",
            f"p = {{'w': {'x0[...]' if self.shared['p'] else other['p']}, 'b': {self.number}}}",
            f"me = Net(w={other['w']}, v=x0 * 0.5, rate=0.1)",
        ]
        return lines

    @property
    def given(self) -> list[str]:
        """Return the names of the arguments."""
        return [*(f"x{i}" for i in range(self.count)), *self.foreign]

    def meeting(self, body: str) -> bool:
        """Say whether calls at the same time would meet in what they change."""
        held = any(word in body for word in ("G0", "C0", "warnings.", "kept"))
        return held or self.again or self.shared["G0"]

    def makers(self, body: str) -> str:
        """Return the text of `make` and `state`."""
        given = ", ".join(self.given)
        text = [
            "KEPT = {}",
            f"CALLS = {self.schedule}",
            *[f"FAULTS = {self.faults}"] * (self.faults > 0),
            f"AT_ONCE = {1 if self.meeting(body) else self.at_once}",
            "",
            "",
            "def make(call):",
            "    global G0, G1",
            f"    n, m, k = {self.sizes}[call]",
            *(f"    {line}" for line in self.lines(body)),
            f"    return me, {given}, p, []",
            "",
            "",
            "def state():",
            "    return G0, G1" + (", peek()" if self.closure else ""),
        ]
        return "\n".join(text)

    def start(self, body: str | None = None) -> None:
        """Give the draft the values of the first call; if a body is given, as the program will make them."""
        draft, names = self.draft, self.draft.names
        for text in (BUMP, *self.helpers):
            exec(code(text), names)
        heads = [text[4:].partition(":")[0] for text in self.helpers]
        draft.helpers = {head.partition("(")[0]: 1 + (", b" in head) for head in heads}
        names["call"], names["KEPT"] = 0, {}
        names["n"], names["m"], names["k"] = self.sizes[0]
        if body is None:
            exec("\n".join(self.lines()), names)
        else:
            exec(arguments(self.makers(body)), names)
            names["me"], *given, names["p"], _ = names["make"](0)
            names.update(zip(self.given, given, strict=True))
        draft.foreign = dict(self.foreign)
        names["self"], names["log"] = names.pop("me"), []
        del names["n"], names["m"], names["k"], names["call"], names["KEPT"]
        draft.places = {"self.w": "", "self.v": "", "p['w']": ""}
        names["g0"] = names.pop("G0")
        names["G0"] = names.pop("g0")
        if self.closure:
            names["C0"] = names["array"]((self.sizes[0][1],), "f8", "C", "nice", 5)
