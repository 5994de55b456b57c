"""Every rule fires where its fixture says so, keeps where it says so, and means the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from jitla.errors import InternalError
from jitla.hops import Hop, Kind, evaluate, show, start_recording, stop_recording, take_flags, topo
from jitla.rewrites import RULES, simplify
from tests.rewrites.data import close, operands, same_bits, signs_matter, values
from tests.rewrites.expression import Reader, write

FOLDER = Path(__file__).parents[1] / "rules"


@dataclass(frozen=True)
class Line:
    """One line of a fixture: `name | before => after`."""

    place: str
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.place}-{self.name}"


def lines(folder: Path = FOLDER) -> list[Line]:
    found = []
    for file in sorted(folder.glob("*.txt")):
        for number, row in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            row = row.partition("#")[0].strip()
            if row:
                name, rule = row.split("|")
                before, after = rule.split("=>")
                found.append(Line(f"{file.stem}:{number}", *map(str.strip, (name, before, after))))
    return found


LINES = lines()
every_line = pytest.mark.parametrize("line", LINES, ids=str)


@every_line
def test_the_rule_fires_or_keeps(line: Line):
    reader = Reader()
    before = reader.read(line.before)
    names = {hop: name for name, hop in reader.leaves.items()}
    fired: list[str] = []

    def note(rule, old: Hop, new: Hop) -> bool:
        fired.append(rule.name)
        return True

    after = simplify(before, RULES.only(line.name), note)
    if line.after == "keep":
        assert not fired and after == before
        return
    assert set(fired) == {line.name}
    wanted = reader.read(line.after)
    shown = [", ".join(write(r, names) for r in roots) for roots in (after, wanted)]
    assert shown[0] == shown[1] and after == wanted, show(after)


@every_line
def test_both_sides_mean_the_same(line: Line):
    if line.after == "keep":
        return
    reader = Reader()
    before, after = reader.read(line.before), reader.read(line.after)
    exact = RULES[line.name].exactness == "exact"
    rng = np.random.default_rng(crc32(line.before.encode()))
    for _ in range(8):
        given = operands(before, rng, special=exact)
        for x, y in zip(values(before, given), values(after, given), strict=True):
            same = same_bits(x, y, signs_matter(before)) if exact else close(x, y)
            assert same, (x, y)


@pytest.mark.parametrize("outcome", ["fires", "keeps"])
def test_every_rule_has_both_lines(outcome: str):
    shown = {line.name for line in LINES if (line.after == "keep") == (outcome == "keeps")}
    assert sorted({rule.name for rule in RULES} - shown) == []


def test_every_line_names_a_rule():
    assert sorted({line.name for line in LINES} - {rule.name for rule in RULES}) == []


# --------------------------------------------------------------------------- all dtypes, and warnings

EXACT = [line for line in LINES if line.after != "keep" and RULES[line.name].exactness == "exact"]
DECLARED = re.compile(r"\b(\w+)\[([\d,() ]*)\](\.\w+)?")
# In programs what is counted is computed all the same; of sparse matrices only what is stored is.
FEWER_VALUES = {"count-below", "sampled-of-cell"}
SMALL = ("b1", "i1", "u1", "i2", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")


def in_dtype(line: Line, dtype: str) -> tuple[Hop, ...] | None:
    """Return the left side of a line with `dtype` for that of its first leaf; None if NumPy has no such."""
    first = DECLARED.findall(line.before)[0][2] or ".f8"

    def swapped(found: re.Match[str]) -> str:
        same = (found[3] or ".f8") == first
        return f"{found[1]}[{found[2]}].{dtype}" if same else found[0]

    try:
        return Reader().read(DECLARED.sub(swapped, line.before))
    except (TypeError, ValueError, InternalError, OverflowError):
        return None


@pytest.mark.parametrize("line", EXACT, ids=str)
def test_exact_rules_are_so_for_every_dtype(line: Line):
    """Where a rule fires for other dtypes than its fixture shows, it keeps bits and warnings, too."""
    rules = RULES.only(line.name)
    rng = np.random.default_rng(7)
    for dtype in SMALL:
        before = in_dtype(line, dtype)
        after = before and simplify(before, rules)
        if not before or after == before:
            continue
        for _ in range(4):
            given = operands(before, rng, special=True)
            (wanted, flags), (found, others) = told(before, given), told(after, given)
            for x, y in zip(wanted, found, strict=True):
                assert same_bits(x, y, signs_matter(before)), (dtype, x, y)
            assert line.name in FEWER_VALUES or flags & ~others == 0, (dtype, flags, others)


@pytest.mark.parametrize("line", [line for line in LINES if line.after != "keep"], ids=str)
def test_no_rule_makes_arithmetic_of_single_integers(line: Line):
    """NumPy's operators warn where single integers wrap around; counts are too small for that."""
    reader = Reader()
    before, after = reader.read(line.before), reader.read(line.after)
    for hop in set(topo(after)) - set(topo(before)):
        single = hop.op.kind is Kind.CELL and hop.meta.shape == () and hop.meta.dtype.kind in "iu"
        wraps = single and hop.op.name in ("add", "subtract", "multiply", "negative", "absolute", "square")
        assert not wraps or any(i.op.name == "count" for i in hop.inputs), hop


def told(roots: tuple[Hop, ...], given: list) -> tuple[list, int]:
    """Return the values of the roots, and the floating-point flags that NumPy raises for them."""
    token = start_recording()
    try:
        take_flags()
        return evaluate(roots, given), take_flags()
    finally:
        stop_recording(token)
