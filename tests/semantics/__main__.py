"""`python -m tests.semantics` prints the table of the sections: row, tag, test, decision, programs."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import NamedTuple

from tests.semantics.table import ELSEWHERE, MODULES, ROWS, cases

FIELDS = ("row", "tag", "test", "decision", "programs")
_TESTS = re.compile(r"^def (test_\w+)", re.MULTILINE)
_IN_NAMES = re.compile(r"(?:_|\b)([a-z]{1,2}\d+)(?=_|\b)")


class Entry(NamedTuple):
    """A row of the sheet, what is promised of it, and a test that holds it to that."""

    row: str
    tag: str
    test: str
    decision: str = ""
    programs: int = 1


def entries() -> list[Entry]:
    """Return all entries, those of a section together, in the order of the sheet."""
    found = [*_of_tables(), *_of_modules(), *(Entry(row, "=", test) for row, test in ELSEWHERE.items())]
    return sorted(found, key=lambda e: (_section(e.row), int(re.sub(r"\D", "", e.row)), e[1:]))


def _section(row: str) -> tuple[int, str]:
    letters = re.sub(r"\d", "", row)
    return len(letters), letters


def _of_tables() -> list[Entry]:
    """Return the rows that are programs of a table."""
    counted = Counter((case.row, case.tag[0], f"tests/semantics/rows/{path.name}", case.decision)
                      for path in sorted(ROWS.glob("*.txt")) for case in cases(path))
    return [Entry(*of, programs=n) for of, n in counted.items()]


def _of_modules() -> list[Entry]:
    """Return the rows that tests of a module name: in their own names, or in those of their programs."""
    found = []
    for section, (_, name) in MODULES.items():
        text = ROWS.with_name(name).read_text(encoding="utf-8")
        for function in _TESTS.findall(text):
            rows = {row.upper() for row in _IN_NAMES.findall(function)}
            found += [Entry(row, "=", f"tests/semantics/{name}::{function}") for row in rows]
        keys = re.findall(rf'^    "({section.lower()}\d+)[ "]', text, re.MULTILINE)
        named = Counter(row.upper() for row in keys)
        found += [Entry(row, "=", f"tests/semantics/{name}", programs=n) for row, n in named.items()]
    return found


def main() -> int:
    """Print the table."""
    lines = ["\t".join(FIELDS), *("\t".join(map(str, entry)) for entry in entries())]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
