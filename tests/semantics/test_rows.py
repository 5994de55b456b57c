"""Programs of the tables in every mode, and tests of the harness that compares them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.resizing import skip_refused
from tests.semantics import modes
from tests.semantics.__main__ import entries
from tests.semantics.modes import differences, has_pending
from tests.semantics.permits import PERMITS
from tests.semantics.table import ELSEWHERE, HAZARDS, MODULES, ROWS, TABLES, Case, cases, returning

# Every program of the tables: on arguments as they are, and on pending values.

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
def test_programs_on_arrays_in_memory(case: Case) -> None:
    judge(case, "f")


@parametrized([case for case in CASES if has_pending(case)])
def test_programs_on_pending_arrays(case: Case) -> None:
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


# The harness finds what it is there for: each way to differ is reported, equal programs are not.

X = (("x", "f(n)"),)


def case(body: str, tag: str = "=", **options: str) -> Case:
    return Case("Z1", tag, X, body, "", options)


class Wrong:
    """Stands for `jitla.jit`: decorates so that the result of `f` is altered."""

    def __init__(self, alter: Any) -> None:
        self.alter = alter

    def __call__(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return self

        def altered(*arguments: Any) -> Any:
            return self.alter(function, *arguments)

        altered.stats = lambda: {"failures": 0, "kernels": 0}  # type: ignore[attr-defined]
        return altered


def writes(f: Any, x: Any) -> Any:
    made = f(x)
    x[0] += 1
    return made


def raises(f: Any, x: Any) -> Any:
    raise ValueError("no")


ALTERED = {
    "value": lambda f, x: np.nextafter(f(x), 9),
    "dtype": lambda f, x: f(x).astype("f4"),
    "shape": lambda f, x: f(x)[None],
    "strides": lambda f, x: np.repeat(f(x), 2)[::2],
    "flags": lambda f, x: np.frombuffer(f(x).tobytes()),
    "type": lambda f, x: f(x).view(np.recarray),
    "structure": lambda f, x: list(f(x)),
    "argument": writes,
    "outcome": raises,
    "alias": lambda f, x: x,
}


@pytest.mark.parametrize("kind", ALTERED)
def test_a_difference_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(ALTERED[kind]))
    found = differences(case("x.copy()" if kind == "alias" else "x * 3"), "f")
    assert found and (kind in found[0] or kind == "argument" and "value at argument" in found[0])


def test_equal_programs_do_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: f(x)))
    assert differences(case("x * 3"), "f") == []


def test_text_and_line_of_exceptions_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "if MODE:\n    raise ValueError(WORD)\nraise ValueError('b')"
    for mode, word, kind in ((True, "b", "line"), (True, "a", "text")):
        def wrong(f: Any, x: Any, mode: bool = mode, word: str = word) -> Any:
            f.__globals__.update(MODE=mode, WORD=word)
            return f(x)

        monkeypatch.setattr(modes.jitla, "jit", Wrong(wrong))
        found = differences(Case("Z1", "=", X, body, "MODE = False"), "f")
        assert kind in found[0]


def test_last_bits_are_free_only_where_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: np.nextafter(f(x), 9)))
    assert differences(case("x * 3", "~"), "f") == []
    assert differences(case("x * 3", "P:products"), "f") == []
    monkeypatch.setattr(modes.jitla, "jit", Wrong(lambda f, x: f(x) * (1 + 1e-14)))
    assert differences(case("x * 3", "~"), "f")


# What a decision does not permit: a program, and how its result is altered.
BEYOND = {
    "names": ("x()", raises),
    "resize": ("x.resize(8)", lambda f, x: None),
    "identity": ("x is None", lambda f, x: True),
    "casts": ("x.astype(int)", lambda f, x: f(x) + 1),
    "nan": ("np.copysign(x, x)", lambda f, x: -f(x)),
    "zeros": ("x * 0", lambda f, x: f(x) + 1e-300),
    "products": ("x * x.sum()", lambda f, x: f(x) * (1 + 1e-12)),
    "pieces": ("x.sum()", lambda f, x: f(x) * (1 + 1e-12)),
    "complex": ("x * 1j", lambda f, x: f(x) * (1 + 1e-12)),
    "argsort": ("np.argsort(x)", lambda f, x: np.argsort(x)[::-1].copy()),
    "time": ("x * 2", lambda f, x: f(x) + 1),
    "dead": ("x * 2", lambda f, x: f(x / np.zeros(1)) * 0),
    "lines": ("x * 2", lambda f, x: (np.ones(1) / np.zeros(1), f(x))[1]),
}


@pytest.mark.parametrize("decision", PERMITS)
def test_a_decision_permits_nothing_else(decision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, beyond = BEYOND[decision]
    monkeypatch.setattr(modes.jitla, "jit", Wrong(beyond))
    made = Case("Z1", f"P:{decision}", (("x", "f(n)"), ("y", "f(n)")), body, "")
    monkeypatch.setattr(Wrong, "__call__", lambda self, f=None, **o: self if f is None else stats_of(
        lambda *given: self.alter(lambda x: f(x, *given[1:]), given[0])))
    assert differences(made, "f")


def stats_of(function: Any) -> Any:
    """Give a function the counters of a decorated one."""
    function.stats = lambda: {"failures": 0, "kernels": 0}
    return function


def test_without_a_compiler_failures_are_counted() -> None:
    names = modes.module("@jit\ndef f(x):\n    return x * 2 + 1\n", "no-compiler", modes.jitla.jit)
    with modes.no_compiler():
        assert names["f"](np.ones(3)).tolist() == [3.0] * 3
    assert names["f"].stats()["failures"] == 1


def test_warnings_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(f: Any, x: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(x)

    monkeypatch.setattr(modes.jitla, "jit", Wrong(silent))
    assert "warnings" in differences(case("np.divide(x, 0 * x)"), "f")[0]


def test_the_last_expression_is_returned() -> None:
    assert returning("x += 1; x, y") == "x += 1; return x, y"
    assert returning("for i in x:\n    y = i\ny") == "for i in x:\n    y = i\nreturn y"
    assert returning("(x,\n y)") == "return (x,\n y)"
    assert returning("x[0] = 1") == "x[0] = 1"
