"""Every program of the tables: on arguments as they are, and on pending values."""

from __future__ import annotations

import re

import pytest

from tests.resizing import skip_refused
from tests.semantics.__main__ import entries
from tests.semantics.modes import differences, has_pending
from tests.semantics.permits import PERMITS
from tests.semantics.sections import ELSEWHERE, HAZARDS, MODULES, TABLES
from tests.semantics.table import ROWS, Case, cases

CASES = [case for path in sorted(ROWS.glob("*.txt")) for case in cases(path)]


def parametrized(chosen: list[Case]) -> pytest.MarkDecorator:
    """Return one test for each program: all do the same as plain, or differ by a decision."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.label) for c in chosen])


def judge(case: Case, entry: str) -> None:
    """Fail with the first differences of a program."""
    skip_refused(case.body)
    found = differences(case, entry)
    if found:
        raise AssertionError(f"{case.body}\n" + "\n".join(found[:3]))


@parametrized(CASES)
def test_memory(case: Case) -> None:
    judge(case, "f")


@parametrized([case for case in CASES if has_pending(case)])
def test_pending(case: Case) -> None:
    judge(case, "g")


@pytest.mark.parametrize("section", TABLES)
def test_every_row_of_a_table_has_programs(section: str) -> None:
    found = {case.row for case in CASES if re.fullmatch(rf"{section}\d+", case.row)}
    wanted = {f"{section}{i + 1}" for i in range(TABLES[section])}
    assert found == wanted - {*ELSEWHERE}


def is_there(test: str) -> bool:
    """Say whether a test, or what has `path::name`, exists."""
    path, _, name = test.partition("::")
    return f"def {name}(" in (ROWS.parents[2] / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", ELSEWHERE)
def test_rows_held_elsewhere_are_there(row: str) -> None:
    assert is_there(ELSEWHERE[row])


def rows_of_modules() -> set[str]:
    """Return the rows that the tests of sections with modules of their own name."""
    found = set()
    for section, (_, name) in MODULES.items():
        text = ROWS.with_name(name).read_text(encoding="utf-8")
        found |= {row.upper() for row in re.findall(rf"(?:_|\b)({section.lower()}\d+)(?:_|\b)", text)}
    return found


HELD = rows_of_modules() | {case.row for case in CASES} | set(ELSEWHERE)


@pytest.mark.parametrize("section", MODULES)
def test_every_row_of_a_module_has_a_test(section: str) -> None:
    wanted = [f"{section}{i + 1}" for i in range(MODULES[section][0])]
    assert [row for row in wanted if row not in HELD] == []


@pytest.mark.parametrize("hazard", HAZARDS)
def test_every_hazard_has_rows(hazard: str) -> None:
    assert [row for row in HAZARDS[hazard] if not (is_there(row) if "::" in row else row in HELD)] == []


def test_no_prelude_uses_the_names_of_programs() -> None:
    assert [c.row for c in CASES if re.search(r"^(def|class) [fg]\b", c.prelude, re.MULTILINE)] == []


def test_the_table_has_every_row_of_the_sheet_and_a_decision_for_each_policy() -> None:
    table = entries()
    rows = {f"{section}{i + 1}" for section, n in TABLES.items() for i in range(n)}
    rows |= {f"{section}{i + 1}" for section, (n, _) in MODULES.items() for i in range(n)}
    assert {entry.row for entry in table} == rows
    assert [e for e in table if (e.tag == "P") is not bool(e.decision) or e.tag not in "=~FP"] == []


def test_every_section_is_known() -> None:
    assert {re.match("[A-Z]+", case.row)[0] for case in CASES} <= {*TABLES, *MODULES}


class TestDecisions:
    """A difference that is wanted is written down, and what is written down has a test."""

    page = ROWS.parents[2] / "docs" / "dev" / "semantics.md"
    stated = dict(
        line.split(": ", 1)
        for line in ROWS.with_name("decisions.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    )

    def test_each_is_on_the_page(self) -> None:
        page = " ".join(self.page.read_text(encoding="utf-8").split())
        assert [words for words in self.stated.values() if words not in page] == []

    def test_each_line_of_the_page_names_what_holds_it(self) -> None:
        text = "".join(p.read_text(encoding="utf-8") for p in ROWS.parents[2].glob("tests/**/*.py"))
        lines = self.page.read_text(encoding="utf-8").splitlines()
        cells = [line.rpartition("| ")[2].strip(" |") for line in lines if line.startswith("| ")]
        named = [name.strip("` ") for cell in cells if cell != "held by" for name in cell.split(", ")]
        assert len(named) > 20
        assert [name for name in named if name not in HELD and f"def {name}(" not in text] == []

    def test_policy_rows_name_one_and_each_has_a_row(self) -> None:
        assert {case.decision for case in CASES if case.decision} == set(self.stated)

    def test_each_says_what_it_permits(self) -> None:
        assert set(PERMITS) == set(self.stated)

    def test_they_are_few(self) -> None:
        assert len(self.stated) <= 25
