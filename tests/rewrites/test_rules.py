"""Every rule fires where its fixture says so, keeps where it says so, and means the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from jitla.hops import Hop, show
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
    rng = np.random.default_rng(hash(line.before) % 2**32)
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
