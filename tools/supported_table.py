"""Generates ``docs/supported.md``: which functions of NumPy and SciPy are recorded, and how they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jitla.hops import Kind, OpSpec, all_ops
from jitla.hops.cost import VIEW_OPS
from jitla.hops.ops_elementwise import _SCIPY_UFUNCS
from jitla.tracing.numpy_api.functions import FUNCTIONS
from jitla.tracing.sparse.operations import _METHODS

PAGE = Path(__file__).parents[1] / "docs" / "supported.md"
LOOP, CALL, VIEW = "in loops", "a step of the plan", "a view"
ROWS = "in passes over rows, or a step of the plan"
#: What rewrites spell out in operators that have loops; what row kernels do.
SPELLED = {"mean", "var", "std", "trace"}
BY_ROWS = {"matmul", "dot", "argmin", "argmax", "cumsum", "concatenate", "stack", "einsum"}
HEAD = """# What is supported

Everything works: functions that are not on this page run in NumPy or SciPy, on finished arrays, and
`jitla.coverage()` names them with your line. Functions on this page are *recorded*: they may share a loop
with surrounding operations and do not end a block. Operators (`+`, `@`, `[...]`, `==`) and methods
(`x.sum()`) count as the corresponding functions. `python -m tools.supported_table` generates this page.

Recorded are arrays of bools, integers of up to 64 bits, float32, float64, complex64 and complex128; with
other dtypes NumPy runs the operation.

| how it runs | meaning |
|---|---|
| in loops | generated code for single elements; no pass over memory by itself |
| a step of the plan | a call of NumPy between loops |
| in passes over rows | may share one pass over a matrix with surrounding operations |
| a view | no data is moved |

"Last bits" marks results that may differ from NumPy's in the last bits; [numerical
differences](differences.md) says by how much, and what holds for sums and products.
"""


def page() -> str:
    """Return the whole page."""
    ops = list(all_ops())
    cells = [op for op in ops if op.kind is Kind.CELL]
    rest = [op for op in ops if op.kind not in (Kind.CELL, Kind.LEAF)]
    known = {fn for op in ops for fn in op.numpy}
    written = sorted({f"np.{fn.__name__}" for fn in FUNCTIONS if fn not in known and _is_numpy(fn)})
    special = [f"| `scipy.special.{name}` | {doc} | {LOOP} | last bits |"
               for name, (_, doc, _) in _SCIPY_UFUNCS.items()]
    parts = [
        HEAD, "\n## Element by element\n", *_table(cells), *special,
        "\n## Over axes, products, reshaping, indexing\n", *_table(rest),
        "\n## Written with these\n",
        "Functions that become operators of the tables above: " + ", ".join(f"`{n}`" for n in written) + ".",
        "\n## Sparse matrices of SciPy\n",
        "Matrices and arrays in the formats csr, csc and coo, with entries of the dtypes above, are recorded "
        "in operations that keep, merge or multiply them: the operators `+`, `-`, `*`, `/`, "
        "`@`, `**` and comparisons, and the methods "
        + ", ".join(f"`{n}`" for n in sorted(_METHODS) if n[0] != "_") + ". See [sparse data](sparse.md).",
        "\n## Explicit loops\n",
        "Loops, `for i in range(n): ...`, are compiled in the background: [loops](loops.md) says what they "
        "may contain.\n"]
    return "\n".join(parts)


def _way(op: OpSpec) -> str:
    """Say how an operator runs."""
    if op.emit is not None or op.kind in (Kind.AGG, Kind.TAKE, Kind.TALLY) or op.name in SPELLED:
        return LOOP
    return ROWS if op.name in BY_ROWS else VIEW if op.name in VIEW_OPS else CALL


def _is_numpy(function: Any) -> bool:
    return getattr(np, getattr(function, "__name__", ""), None) is function


def _table(ops: Iterable[OpSpec]) -> Iterator[str]:
    yield "| function | meaning | how it runs | results |\n|---|---|---|---|"
    for op in ops:
        names = dict.fromkeys(fn.__name__ for fn in op.numpy if _is_numpy(fn))
        if names:
            bits = "last bits" if op.transcendental else ""
            shown = ", ".join(f"`np.{name}`" for name in names)
            yield f"| {shown} | {op.doc} | {_way(op)} | {bits} |".replace("  |", " |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
