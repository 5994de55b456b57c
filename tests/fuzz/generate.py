"""`generate(seed)`: a module with a plain NumPy function, and what makes its arguments."""

from __future__ import annotations

from textwrap import indent

from tests.fuzz.blocks import compound, fault, functional, troubled
from tests.fuzz.draft import BUMP, PREAMBLE, Draft, Frame, leaves
from tests.fuzz.family import Families
from tests.fuzz.regions import region, stacks
from tests.fuzz.statements import simple
from tests.fuzz.unusual import inexact, mixed, unusual

THEMES = {
    "mixed": mixed, "functions": functional, "trouble": troubled, "rows": region, "inexact": inexact,
    "stacks": stacks,
}


def _first(seed: int) -> tuple[Frame, list[str]]:
    """Draw the first program of a family."""
    draft = Draft(seed)
    frame = Frame(draft)
    frame.start()
    return frame, [*_lines(draft, frame), _result(draft)]


def _lines(draft: Draft, frame: Frame) -> list[str]:
    lines: list[str] = []
    for _ in range(draft.pick((2, 3, 4, 5, 6, 8, 10, 14))):
        kind = draft.rng.random()
        if kind < 0.33 or frame.theme and draft.chance(0.4):
            text = compound(draft) if kind < 0.2 else unusual(draft) if kind < 0.32 else themed(draft, frame)
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


def themed(draft: Draft, frame: Frame) -> str | None:
    """Draw a statement of the kind that a program is rich in, or of any such kind."""
    return THEMES[frame.theme or draft.pick(("functions", "trouble", "rows"))](draft)


def _again(draft: Draft, frame: Frame, lines: list[str]) -> None:
    """Bring the draft back to where it was before a line that raised."""
    helpers, kept, places = draft.helpers, draft.fresh, draft.places
    draft.names = dict(PREAMBLE)
    frame.start()
    draft.helpers, draft.fresh, draft.places = helpers, kept, places
    for line in lines:
        if not leaves(line):
            draft.run(line)


def _result(draft: Draft) -> str:
    names = [n for n in draft.names if n[0] in "vswxy" and n[1:].isdigit()] + ["log"]
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
    given = ", ".join(frame.given)
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
    imports = [f"import {name}" for name in ("functools", "warnings") if f"{name}." in text]
    imports += ["import numpy as np", *["from scipy import special"] * ("special." in text)]
    return "\n".join(
        [
            f'"""Program {seed}."""',
            *imports,
            "",
            "from tests.fuzz.arrays import Box, array, window",
            "from tests.fuzz.arrays import Net, Tagged, foreign",
            "",
            "",
            helpers,
            "",
            function,
            "",
            frame.makers(text),
            "",
        ]
    )


generate = Families("", _first, assemble)
