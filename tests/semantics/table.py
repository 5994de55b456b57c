"""Tables of rows: small functions as users write them; the sections of the semantics sheet."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from textwrap import indent

# Sections: how many rows each has, and where its tests are

# Rows of a section that has a table in `rows/`; what has no numbers in the sheet is numbered by sentence.
TABLES = {
    "D": 13, "E": 11, "F": 10, "G": 10, "H": 10, "I": 13, "J": 11, "K": 12, "L": 2, "M": 14, "N": 8,
    "O": 9, "P": 16, "Q": 6, "R": 8, "U": 10, "V": 13, "W": 3, "X": 4, "Y": 3, "Z": 6, "AA": 10,
    "AB": 9, "AC": 17, "AD": 9, "AE": 1, "AF": 4,
}
# Rows about processes and the life of machine code, which tests of those rooms hold.
ELSEWHERE = {
    "AA5": "tests/codegen/test_pool.py::test_concurrent_launches",
    "AA6": "tests/codegen/test_pool.py::test_forked_children_get_workers_of_their_own",
    "AA7": "tests/tracing/test_session.py::test_an_interrupt_leaves_whole_arrays",
    "AA8": "tests/codegen/test_pool.py::test_the_interpreter_ends",
    "AA9": "tests/codegen/test_pool.py::test_threads_come_when_needed_and_leave",
    "AA10": "tests/codegen/test_pool.py::test_errors_while_threads_start",
    "T12": "tests/semantics/test_rows.py::test_without_a_compiler_failures_are_counted",
    "AB3": "tests/behaviour/test_loops.py::test_gradient_descent_without_a_product_keeps_memory_flat",
    "AB9": "tests/semantics/test_environment.py::test_ab9_compilations_leave_nothing_behind",
    "AD6": "tests/recompile/test_memory_safety.py::test_code_outlives_caches_and_compilers",
    "AD7": "tests/semantics/test_environment.py::test_ad7_nothing_is_written_to_disk",
    "AD9": "tests/test_api.py::test_compile_off_runs_the_plain_function",
}
# Sections with tests of their own.
MODULES = {
    "A": (17, "test_capture.py"), "B": (17, "test_views.py"), "C": (17, "test_views.py"),
    "S": (15, "test_fp_warnings.py"), "T": (12, "test_exceptions.py"),
}
# The ten hazards: the rows whose programs fall into each.
HAZARDS = {
    "HZ1": ("A1", "A2", "A3", "A6", "A17", "W1"), "HZ2": ("Y1", "Y2", "Y3"), "HZ3": ("S4", "S7", "S11", "N6"),
    "HZ4": ("tests/semantics/test_capture.py::test_memory_that_is_gone_is_not_read",),
    "HZ5": ("AD1", "AD2", "N8"), "HZ6": ("B8", "B9", "C1", "C14"), "HZ7": ("I1", "I2", "I4", "I6"),
    "HZ8": ("J1", "J6", "J11"), "HZ9": ("AC1", "AC3", "AC4"), "HZ10": ("AB3", "AB4", "B14"),
}


# Tables: functions with their arguments, as text
#
# A file of `rows/` is one section of the semantics sheet. It begins with what its programs may use
# (imports, classes), then come rows:
#
# == D1 = x: f(n), m: b(n) | size=many       id, tag, arguments, options
# : op + - *                                 the row once for each word, in place of $op
# - np.add(x, 1, out=x) is x                 a program of one line; its last expression is returned
# - x $op= 2
#
# A row whose lines do not begin with a dash is one program. Tags: `=` identical; `~` identical but for
# the last bits; `F` NumPy runs it, with an identical result; `P` a decision, named by `P:name`, which
# is a line of `decisions.txt`. Options: `size=` sizes of n; `ulp=` bound of `~`; `as=memory` arguments
# as they are given, not also as pending values.

ROWS = Path(__file__).with_name("rows")
SIZES = {"one": (5,), "few": (5, 129), "many": (0, 1, 2, 7, 8, 9, 33, 129, 8193), "some": (1, 9, 1000),
         "tiny": (0, 1, 2, 3, 4), "huge": (70_001,)}
_HEADER = re.compile(r"== (?P<id>[A-Z]+\d+) (?P<tag>[=~F]|P:[\w-]+)(?P<args>[^|]*)(\|(?P<options>.*))?$")


@dataclass(frozen=True)
class Case:
    """One program of a row."""

    row: str
    tag: str
    arguments: tuple[tuple[str, str], ...]
    body: str
    prelude: str
    options: dict[str, str] = field(compare=False, default_factory=dict)

    @property
    def label(self) -> str:
        """Name of the test."""
        shown = re.sub(r"\s+", " ", self.body.replace("\n", "; "))
        return f"{self.row} {shown[:60]}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of n."""
        sized = any(re.search(r"\bn\b", maker) for _, maker in self.arguments)
        return SIZES[self.options.get("size", "few")] if sized else (4,)

    @property
    def ulp(self) -> int:
        """How many units in the last place values may differ."""
        return int(self.options.get("ulp", 4 if self.tag == "~" else 0))

    @property
    def decision(self) -> str:
        """Name of the decision of a policy row."""
        return self.tag.partition(":")[2]

    def module(self, pending: dict[str, str]) -> str:
        """The source of a module with the programs `f` and, its arguments made pending values, `g`."""
        names = ", ".join(name for name, _ in self.arguments)
        body = indent(returning(self.body), "    ")
        first = "".join(f"    {name} = {made}\n" for name, made in pending.items())
        return (
            f"import numpy as np\nA = np.array\n{self.prelude}\n"
            f"@jit\ndef f({names}):\n{body}\n\n@jit\ndef g({names}):\n{first}{body}\n"
        )


def returning(body: str) -> str:
    """Return the statements with `return` before the last expression."""
    last = ast.parse(body).body[-1] if "return" not in body and "yield" not in body else None
    if not isinstance(last, ast.Expr):
        return body
    lines = body.splitlines()
    at, column = last.lineno - 1, last.col_offset
    column = len(lines[at].encode()[:column].decode())
    head, tail = lines[at][:column], "\n".join([lines[at][column:], *lines[at + 1:]])
    return "\n".join([*lines[:at], f"{head}return {tail}"])


def cases(path: Path) -> list[Case]:
    """Return the programs of a section."""
    prelude, *blocks = re.split(r"^(?=== )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [case for block in blocks for case in _row(block, prelude)]


def _row(block: str, prelude: str) -> list[Case]:
    first, *lines = block.rstrip().splitlines()
    header = _HEADER.match(first)
    assert header, f"not a header of a row: {first}"
    words = [line[1:].split() for line in lines if line.startswith(": ")]
    lines = [line for line in lines if line and not line.startswith(": ")]
    arguments = tuple(
        (name.strip(), maker.strip())
        for name, _, maker in (part.partition(":") for part in _parts(header["args"]))
    )
    options = dict(word.split("=") for word in (header["options"] or "").split())
    single = [line[2:] for line in lines if line.startswith("- ")]
    assert not single or len(single) == len(lines), f"{header['id']}: lines with and without a dash"
    made = []
    for body in single or ["\n".join(lines)]:
        for choice in product(*(w[1:] for w in words)):
            text = body
            for (name, *_), word in zip(words, choice, strict=True):
                text = text.replace(f"${name}", word)
            made.append(Case(header["id"], header["tag"], arguments, text.rstrip().replace("\\n", "\n"),
                             prelude, options))
    return made


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for c in text.strip():
        depth += (c in "([{") - (c in ")]}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p.strip()]
