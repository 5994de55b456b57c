"""`generate(seed)`: a module with a plain function of sparse matrices of SciPy and dense arrays."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, replace
from textwrap import indent

import scipy.sparse as sp

from tests.fuzz import matrices as making
from tests.fuzz.arrays import VALUES
from tests.fuzz.compressed import matrices, risked, stored, too_large
from tests.fuzz.draft import PREAMBLE, Draft, code, leaves
from tests.fuzz.family import Families
from tests.fuzz.frame import CALLS, KINDS, Slot
from tests.fuzz.load import arguments
from tests.fuzz.statements import simple

CLASSES = {
    "csr_array": 34, "csr_matrix": 26, "csc_array": 9, "csc_matrix": 7, "coo_array": 8, "coo_matrix": 5,
    "bsr_array": 0.7, "dia_matrix": 0.7, "lil_array": 0.7, "dok_matrix": 0.7,
}
DTYPES = {
    "f8": 55, "f4": 22, "i8": 6, "i4": 5, "?": 5, "c16": 3, "c8": 1, "i1": 1.5, "u1": 1.5, "i2": 1, "u4": 1,
    "g": 0.5,
}
INDICES = {"i4": 3, "i8": 1}
DENSITIES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.2, 0.3, 0.6, 1.0)
RARE = {"unsorted": 0.2, "duplicates": 0.15, "zeros": 0.25, "holes": 0.2, "skewed": 0.15, "readonly": 0.02}
DENSE_LAYOUTS = {"C": 70, "F": 12, "sliced": 6, "reversed": 4, "permuted": 4, "readonly": 3, "offset": 4}
ROWS = (1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 65, 129)
COLUMNS = (1, 2, 4, 7, 8, 12, 16, 19, 34, 65)
LARGE = ((2050, 9), (1300, 17), (257, 129), (40, 900), (600, 33))
# What happens between calls, as (call, threads): SciPy takes its time, so there are few.
SCHEDULES = (
    ((0, 1), (1, 1)), ((0, 1), (1, 2)), ((0, 1), (0, 1)), ((0, 1), (1, 1), (2, 1)), ((0, 2), (1, 1), (3, 2)),
    ((0, 1), (2, 1), (0, 1)), ((0, 1), (3, 1), (0, 2)),
)
SHAPES = ("(n, m)", "(m,)", "(n,)", "(n, k)", "(m, k)", "(n, m)", "(n,)", "(m,)")
# What X1 may be instead of a matrix of its own.
ALIASES = (
    "X0", "X0.T", "X0.copy()", "alike(X0, 'normal', 5 + call)", "alike(X0)", "X0.T.copy().T",
    "X0[:] if X0.format in ('csr', 'csc') else X0",
)
# What its owner does to a matrix between two calls that get it. Who writes positions has to tell SciPy.
_TOLD = "; X0.has_canonical_format = X0.has_sorted_indices = False"
BETWEEN = (
    "X0.data *= 1.5", "X0.sort_indices()", "X0.sum_duplicates()", "X0.eliminate_zeros()", "X0.data[:2] = 3",
    f"X0.indices[:2] = X0.indices[:2][::-1].copy(){_TOLD}", f"X0.indptr[1:-1][:1] = 0{_TOLD}",
    f"X0.indices[:] = X0.indices[::-1].copy(){_TOLD}",
    "X0.indices = X0.indices.copy()", "X0.data = X0.data.copy()", "X0.data = X0.data * 2.0",
    "X0.has_canonical_format", "X0.setdiag(2)", "X0.indptr = X0.indptr.copy()",
)
PREAMBLE.update(sp=sp, matrix=making.matrix, alike=making.alike)


@dataclass(frozen=True)
class Stored:
    """A matrix to be made: equal kinds or dtypes twice mean that later calls change nothing."""

    shape: str
    kinds: tuple[str, str]
    dtypes: tuple[str, str]
    indices: tuple[str, str]
    values: str
    density: float
    traits: str
    seed: int

    def text(self) -> str:
        """Return the expression that makes it."""
        kind, dtype, index = (
            f"'{a}'" if a == b else f"('{a}', '{b}')[call > 2]"
            for a, b in (self.kinds, self.dtypes, self.indices)
        )
        return (f"matrix({kind}, {self.shape}, {dtype}, {index}, '{self.values}', {self.density},"
                f" '{self.traits}', {self.seed} + call)")


class SparseFrame:
    """Everything around the body: sizes, arguments, the calls to be made."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.kind = draft.weighted(KINDS)
        self.dtype = draft.weighted(DTYPES)
        self.large = draft.chance(0.05)
        self.matrices = [self._stored(i) for i in range(draft.pick((1, 2, 2, 3)))]
        self.slots = [self._slot(i) for i in range(draft.pick((5, 6, 7, 8)))]
        self._draw_calls()

    def _draw_calls(self) -> None:
        """Draw what calls differ in: sizes, numbers, which arguments share memory."""
        draft = self.draft
        self.sizes = [self._sizes(call) for call in range(CALLS)]
        if draft.chance(0.5):
            self.sizes[1] = self.sizes[0]
        self.rate = draft.pick(("0.5", "3", "1.5 * call"))
        self.schedule = draft.pick(SCHEDULES)
        self.faults = draft.pick((1, 2, 3)) if draft.chance(0.03) else 0
        self.at_once = draft.pick((2, 3)) if draft.chance(0.04) else 1
        # The same objects in several calls, as the call before and their owner left them.
        self.again = draft.chance(0.25)
        self.between = draft.pick(BETWEEN) if self.again and draft.chance(0.6) else ""
        if self.again:
            self.sizes = self.sizes[:1] * CALLS
        self.instead = draft.pick(ALIASES) if len(self.matrices) > 1 and draft.chance(0.3) else ""

    def _sizes(self, call: int) -> tuple[int, int, int]:
        draft = self.draft
        if self.large and (call == 0 or draft.chance(0.5)):
            return *draft.pick(LARGE), draft.pick((1, 2))
        if call == 0 and draft.chance(0.8):  # sizes that are equal, or 1, by chance fit in one call only
            return draft.pick(ROWS[4:]), draft.pick(COLUMNS[2:]), draft.pick((2, 3, 5))
        n, m = draft.pick(ROWS), draft.pick(COLUMNS)
        return (0 if draft.chance(0.02) else n), (0 if draft.chance(0.02) else m), draft.pick((1, 2, 3, 5))

    def _stored(self, place: int) -> Stored:
        draft = self.draft
        kind, index = draft.weighted(CLASSES), draft.weighted(INDICES)
        dtype = self.dtype if draft.chance(0.8) else draft.weighted(DTYPES)
        later = draft.chance(0.2)
        traits = " ".join(name for name, chance in RARE.items() if draft.chance(chance))
        return Stored(
            draft.pick(("(n, m)",) * 5 + ("(m, n)", "(m, m)", "(n, n)")) if place else "(n, m)",
            (kind, draft.weighted(CLASSES) if later else kind),
            (dtype, draft.weighted(DTYPES) if later and draft.chance(0.3) else dtype),
            (index, draft.weighted(INDICES) if later else index),
            self.kind if draft.chance(0.85) else draft.pick(VALUES),
            draft.pick(DENSITIES), traits, 100 + 10 * place,
        )

    def _slot(self, place: int) -> Slot:
        draft = self.draft
        dtype = self.dtype if draft.chance(0.8) else draft.weighted(DTYPES)
        values = self.kind if draft.chance(0.85) else draft.pick(VALUES)
        layout = draft.weighted(DENSE_LAYOUTS)
        layouts = layout, draft.weighted(DENSE_LAYOUTS) if draft.chance(0.2) else layout
        return Slot(SHAPES[place], (dtype, dtype), layouts, values, 10 * place)

    def redrawn(self, rng: random.Random, bold: bool) -> SparseFrame:
        """Return a frame with other sizes, positions, values; if `bold`, also classes, dtypes, aliases."""
        other = copy.copy(self)
        other.draft = draft = copy.copy(self.draft)
        draft.rng, draft.names, draft.places = rng, dict(PREAMBLE), {}
        other.slots = [
            replace(
                slot, values=draft.weighted(KINDS) if draft.chance(0.3) else slot.values,
                layouts=other._slot(0).layouts if draft.chance(0.2) else slot.layouts,
                seed=slot.seed + draft.pick(range(100, 9999)))
            for slot in self.slots
        ]
        other.matrices = [
            replace(other._stored(place), shape=old.shape, **({} if bold and draft.chance(0.15) else {
                "kinds": old.kinds, "dtypes": old.dtypes}), seed=old.seed + draft.pick(range(100, 9999)))
            for place, old in enumerate(self.matrices)
        ]
        instead = self.instead
        other._draw_calls()
        if not bold or draft.chance(0.6):
            other.instead = instead
        return other

    @property
    def given(self) -> list[str]:
        """Return the names of the arguments."""
        return [f"X{i}" for i in range(len(self.matrices))] + [f"x{i}" for i in range(len(self.slots))]

    def lines(self) -> list[str]:
        """Return the statements that make the arguments of one call."""
        lines = []
        for i, made in enumerate(self.matrices):
            text = self.instead if i == 1 and self.instead else made.text()
            lines.append(f"X{i} = {f'KEPT.setdefault({i}, {text})' if self.again and i < 2 else text}")
        # Of another matrix with the same arrays SciPy would not know.
        if self.between and not (_TOLD in self.between and "alike" in self.instead):
            lines.append(f"if call:\n    try:\n        {self.between}\n    except Exception:\n        pass")
        lines += [f"x{i} = {slot.text()}" for i, slot in enumerate(self.slots)]
        return [*lines, f"G1 = {self.rate}"]

    def makers(self, body: str) -> str:
        """Return the text of `make` and `state`."""
        lines = "\n".join(self.lines())
        text = [
            "KEPT = {}",
            f"CALLS = {self.schedule}",
            *[f"FAULTS = {self.faults}"] * (self.faults > 0),
            f"AT_ONCE = {1 if self.again or 'warnings.' in body else self.at_once}",
            "",
            "",
            "def make(call):",
            "    global G1",
            f"    n, m, k = {self.sizes}[call]",
            indent(lines, "    "),
            f"    return {', '.join(self.given)}, []",
            "",
            "",
            "def state():",
            "    return G1,",
        ]
        return "\n".join(text)

    def start(self, body: str | None = None) -> None:
        """Give the draft the values of the first call, made by the code that will make them."""
        draft, names = self.draft, self.draft.names
        exec(arguments(self.makers(body or "")), names)
        *given, names["log"] = names["make"](0)
        names.update(zip(self.given, given, strict=True))
        del names["make"], names["state"], names["KEPT"], names["CALLS"], names["AT_ONCE"]
        names.pop("FAULTS", None)
        draft.helpers, draft.foreign, draft.places = {}, {}, {}


def _first(seed: int) -> tuple[SparseFrame, list[str]]:
    """Draw the first program of a family."""
    draft = Draft(seed)
    frame = SparseFrame(draft)
    frame.start()
    lines: list[str] = []
    for _ in range(draft.pick((2, 3, 4, 5, 6, 8, 10))):
        _add(draft, frame, lines)
    return frame, [*lines, _result(draft)]


def _add(draft: Draft, frame: SparseFrame, lines: list[str]) -> None:
    """Draw one more line, or none if what was drawn does not run."""
    if draft.chance(0.12):
        text = simple(draft)
        lines += [text] if text else []
        return
    text = _repeated(draft) if draft.chance(0.08) else stored(draft)
    if text is None:
        return
    if draft.run(text) and not too_large(draft):
        lines.append(text)
        return
    _restart(draft, frame, lines)
    text = risked(text)
    if draft.chance(0.15) and draft.run(text) and not too_large(draft):
        lines.append(text)


def _repeated(draft: Draft) -> str | None:
    """Draw a loop, or a branch, around some lines."""
    lines = [text for _ in range(draft.pick((1, 2, 3))) if (text := stored(draft))]
    head = draft.pick(("for turn in range(2):", "for turn in range(3):", "if x0.size:", "if X0.nnz > 3:"))
    return f"{head}\n{indent(chr(10).join(lines), '    ')}" if lines else None


def _restart(draft: Draft, frame: SparseFrame, lines: list[str]) -> None:
    """Bring the draft back to where it was before a line that raised."""
    draft.names = dict(PREAMBLE)
    frame.start()
    for line in lines:
        if not leaves(line):
            draft.run(line)


def _result(draft: Draft) -> str:
    names = [n for n in draft.names if n[0] in "vsqxX" and n[1:].isdigit()]
    names = [n for n in names if draft.value(n) is not None]
    parts = draft.rng.sample(names, min(len(names), draft.pick((1, 2, 3, 4, 6)))) or ["x0"]
    made = [n for n in matrices(draft) if n[0] == "s"]
    if made and draft.chance(0.6):
        parts.append(draft.pick(made))
    form = draft.pick(("{},", "{},", "[{}]", "({},)", "{{'a': [{}]}}"))
    return f"return {form.format(', '.join(parts))}"


def _assembled(seed: int, frame: SparseFrame, lines: list[str]) -> str:
    """Put the module together."""
    body = "\n".join(lines)
    code(body.rpartition("return ")[0])  # a text that does not compile is an error here
    imports = ["import warnings"] * ("warnings." in body)
    imports += ["import numpy as np", "import scipy.sparse as sp"]
    imports += ["from scipy import special"] * ("special." in body)
    return "\n".join([
        f'"""Sparse program {seed}."""', *imports, "",
        "from tests.fuzz.arrays import window", "from tests.fuzz.matrices import alike, matrix", "", "",
        f"@jit\ndef f({', '.join(frame.given)}, log):\n{indent(body, '    ')}\n", "",
        frame.makers(body), "",
    ])


generate = Families("sparse ", _first, _assembled)
