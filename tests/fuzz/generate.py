"""`generate(seed)`: a module with a plain NumPy function, and what makes its arguments.

Knows: drafts, statements. Must not know: jitla, how programs are run.
Receives a seed and returns source text: `f`, `make(call)` -> arguments, `state()` -> what it can reach.
"""

from __future__ import annotations

import warnings
from textwrap import indent

import numpy as np

from tests.fuzz.arrays import VALUES
from tests.fuzz.blocks import compound, fault
from tests.fuzz.draft import Draft
from tests.fuzz.statements import simple

CALLS = 4
SIZES = (0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 65, 127, 128, 129, 1000, 8193)
SMALL = (1, 2, 3, 4, 7, 8, 9, 16, 17, 33)
DTYPES = {"f8": 48, "f4": 18, "i8": 9, "i4": 6, "?": 6, "i1": 3, "u1": 4, "c16": 6}
LAYOUTS = {
    "C": 62,
    "F": 10,
    "sliced": 6,
    "reversed": 5,
    "permuted": 5,
    "broadcast": 3,
    "readonly": 3,
    "offset": 6,
}
HELPERS = (
    "def scale(a, b=2.0):\n    t = a * b\n    return t - a\n",
    "def sigmoid(a):\n    return 1 / (1 + np.exp(-a))\n",
    "def norm(a):\n    return a / (np.abs(a).sum() + 1)\n",
    "def blend(a, b):\n    if np.sum(a) > 0:\n        return a + b\n    return a - b\n",
    "def half(a, depth=2):\n    if depth == 0:\n        return a\n    return half(a * 0.5, depth - 1)\n",
    "def both(a, b=1.5):\n    return np.maximum(a, 0) * b + np.minimum(a, 0)\n",
    "def keepmean(a):\n    m = a.mean()\n    v = ((a - m) ** 2).mean()\n    return (a - m) / (v + 1)\n",
)
BUMP = "def bump(a):\n    a += 1\n    return a\n"


class Frame:
    """Everything around the body: sizes, arguments, globals, helpers."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.sizes = [self._sizes(call) for call in range(CALLS)]
        if draft.chance(0.8):
            self.sizes[1] = self.sizes[0]
        self.kind = draft.weighted({"nice": 5, "uniform": 4, "normal": 3, "wide": 1, "special": 1.5})
        self.dtype = draft.weighted(DTYPES)
        self.method = draft.chance(0.35)
        self.closure = draft.chance(0.3)
        self.jitted_helper = draft.chance(0.15)
        self.helpers = draft.rng.sample(HELPERS, draft.pick((0, 1, 1, 2)))
        self.count = draft.pick((1, 2, 2, 2, 3, 3, 4))
        self.lines = self._make_lines()

    def _sizes(self, call: int) -> tuple[int, int, int]:
        draft = self.draft
        n = draft.pick(SIZES if draft.chance(0.6) else SMALL)
        if call == 0 and n < 2 and draft.chance(0.7):
            n = 17
        m = draft.pick(SMALL) if draft.chance(0.9) else draft.pick((0, 65, 129))
        k = draft.pick((1, 2, 3, 5))
        return (min(n, 1000) if m * k > 30 else n), m, k

    def _shape(self) -> str:
        return self.draft.weighted(
            {
                "(n,)": 8,
                "(m,)": 2,
                "(m, n)": 5,
                "(n, m)": 3,
                "(1, n)": 0.7,
                "(m, 1)": 0.8,
                "(m, m)": 2,
                "(k, m, n)": 1.2,
                "()": 0.4,
                "(m, k)": 0.8,
            }
        )

    def _array(self, seed: int) -> str:
        draft = self.draft
        dtype = self.dtype if draft.chance(0.7) else draft.weighted(DTYPES)
        values = self.kind if draft.chance(0.85) else draft.pick(VALUES)
        layout = draft.weighted(LAYOUTS)
        later = draft.weighted(DTYPES) if draft.chance(0.15) else dtype
        moved = draft.weighted(LAYOUTS) if draft.chance(0.3) else layout
        kinds = f"'{dtype}'" if later == dtype else f"('{dtype}', '{later}')[call > 2]"
        places = f"'{layout}'" if moved == layout else f"('{layout}', '{moved}')[call > 2]"
        return f"array({self._shape()}, {kinds}, {places}, '{values}', {seed} + call)"

    def _make_lines(self) -> list[str]:
        draft, lines, flat = self.draft, [], False
        for i in range(self.count):
            text = self._array(10 * i)
            if i and draft.chance(0.2):
                text = (
                    "x0"
                    if flat
                    else draft.pick(
                        ("x0", "x0[1:]", "x0[::-1]", "x0.T", "x0[..., ::2]", "x0.reshape(-1)", "x0[:]")
                    )
                )
            elif i and draft.chance(0.1):
                text = draft.pick(("2.5", "3", "np.float32(0.5)", "True", "1 + call"))
            flat = flat or (i == 0 and "array(()" in text)
            lines.append(f"x{i} = {text}")
        lines.append(f"G0 = {draft.pick(('x0', self._array(70), self._array(70)))}")
        lines.append(f"G1 = {draft.pick(('0.5', '3', '1.5 * call'))}")
        held = [draft.pick(("x0", "x0[...]", self._array(80), self._array(80))), self._array(90)]
        lines += [
            f"p = {{'w': {held[0]}, 'b': {number_text(draft)}}}",
            f"me = Box(w={held[1]}, v=x0 * 0.5, rate=0.1)",
        ]
        return lines

    def makers(self) -> str:
        """Return the text of `make` and `state`."""
        given = ", ".join(f"x{i}" for i in range(self.count))
        text = [
            "def make(call):",
            "    global G0, G1",
            f"    n, m, k = {self.sizes}[call]",
            *(f"    {line}" for line in self.lines),
            f"    return me, {given}, p, []",
            "",
            "",
            "def state():",
            "    return G0, G1" + (", peek()" if self.closure else ""),
        ]
        return "\n".join(text)

    def start(self) -> None:
        """Give the draft the values of the first call."""
        draft, names = self.draft, self.draft.names
        for text in (BUMP, *self.helpers):
            exec(text, names)
        draft.helpers = {text[4 : text.index("(")]: 2 if ", b):" in text else 1 for text in self.helpers}
        names["call"] = 0
        names["n"], names["m"], names["k"] = self.sizes[0]
        for line in self.lines:
            exec(line, names)
        names["self"], names["log"] = names.pop("me"), []
        del names["n"], names["m"], names["k"], names["call"]
        draft.places = {"self.w": "", "self.v": "", "p['w']": ""}
        names["g0"] = names.pop("G0")
        names["G0"] = names.pop("g0")
        if self.closure:
            names["C0"] = names["array"]((self.sizes[0][1],), "f8", "C", "nice", 5)


def number_text(draft: Draft) -> str:
    """Return a literal."""
    return draft.pick(("0.25", "2", "np.float64(1.5)", "np.float32(0.75)"))


def generate(seed: int) -> str:
    """Return the source of program `seed`."""
    draft = Draft(seed)
    frame = Frame(draft)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        frame.start()
        lines = [*_lines(draft, frame), _result(draft)]
    return assemble(seed, frame, lines)


def _lines(draft: Draft, frame: Frame) -> list[str]:
    lines: list[str] = []
    for _ in range(draft.pick((2, 3, 4, 5, 6, 8, 10, 14))):
        if draft.chance(0.22):
            text = compound(draft)
            if text and not draft.run(text):
                _again(draft, frame, lines)
                text = None
        else:
            text = simple(draft)
        if text:
            lines.append(text)
        if draft.chance(0.015) and lines:
            lines.append(f"if {draft.pick(('G1 > 2', 'x0.size < 2', 'len(log) > 1'))}:\n    return x0")
            draft.run("pass")
    if draft.chance(0.05):
        lines.append(fault(draft))
    return lines


def _again(draft: Draft, frame: Frame, lines: list[str]) -> None:
    """Bring the draft back to where it was before a line that raised."""
    helpers, kept = draft.helpers, draft.fresh
    for name in [n for n in draft.names if n[0] in "vsirdnf" and n[1:].rstrip("j").isdigit()]:
        del draft.names[name]
    for name in ("t", "last", "e"):
        draft.names.pop(name, None)
    places = draft.places
    frame.start()
    draft.helpers, draft.fresh, draft.places = helpers, kept, places
    for line in lines:
        if "return" not in line:
            draft.run(line)


def _result(draft: Draft) -> str:
    names = [n for n in draft.names if n[0] in "vsx" and n[1:].isdigit()] + ["log"]
    names = [n for n in names if draft.value(n) is not None] or ["x0"]
    parts = draft.rng.sample(names, min(len(names), draft.pick((1, 2, 3, 4, 6))))
    if draft.chance(0.25):
        parts.append(draft.pick(("x0", "x0.T", "x0[1:]", f"{parts[0]}", "self.w", "G0")))
    parts = [p for p in parts if draft.value(p) is not None] or ["x0"]
    form = draft.pick(("tuple", "tuple", "single", "list", "dict"))
    if form == "single":
        return f"return {parts[0]}"
    if form == "list":
        return f"return [{', '.join(parts)}]"
    if form == "dict":
        return "return {" + ", ".join(f"{i}: {p}" for i, p in enumerate(parts)) + "}"
    return f"return {', '.join(parts)}" + ("," if len(parts) == 1 else "")


def assemble(seed: int, frame: Frame, lines: list[str]) -> str:
    """Put the module together."""
    given = ", ".join(f"x{i}" for i in range(frame.count))
    text = "\n".join(lines)
    declared = ["global G0"] if any(line.lstrip().startswith("G0") for line in text.splitlines()) else []
    if frame.closure and any(line.lstrip().startswith("C0 ") for line in text.splitlines()):
        declared.append("nonlocal C0")
    body = indent("\n".join([*declared, text]), "    ")
    function = f"@jit\ndef f(self, {given}, p, log):\n{body}\n"
    if frame.method:
        function = f"class Model:\n{indent(function, '    ')}\n\n{{}}"
        function = function.replace("{}", "f = Model.f\n") if not frame.closure else function
    if frame.closure:
        inner = function.replace("{}", "f = Model.f\n") if frame.method else function
        function = (
            f"def surround(C0):\n{indent(inner, '    ')}\n    return f, lambda: C0\n\n\n"
            f"f, peek = surround(array(({frame.sizes[0][1]},), 'f8', 'C', 'nice', 5))\n"
        )
    mark = "@jit\n" if frame.jitted_helper else ""
    helpers = "\n\n".join(mark + h for h in (BUMP, *frame.helpers))
    return "\n".join(
        [
            f'"""Program {seed}."""',
            "import numpy as np",
            "",
            "from tests.fuzz.arrays import Box, array",
            "",
            "",
            helpers,
            "",
            function,
            "",
            frame.makers(),
            "",
        ]
    )
