"""What is odd about SciPy's sparse matrices, one expression at a time, plain and traced: `make scipy_sheet`.

Each is called twice, with matrices of a few entries that are recorded all the same, or, with `--usual`,
left to SciPy for being small.
"""

from __future__ import annotations

import argparse
import copy
import linecache
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg  # noqa: F401 - of expressions

import jitla
from jitla.config import TracingThresholds
from tests.fuzz.compare import Fault, compare, compare_warnings, outcome

SHEET = Path(__file__).with_suffix(".txt")
# The last bits of these may differ.
SMOOTH = re.compile(r"log1p|expm1|sinh|tanh|arc|tan\b|sin\b|\*\*|power|deg2rad|rad2deg")
CLOSE = 4 * np.finfo(np.float64).eps
Operands = dict[str, Any]


def operands() -> Operands:
    """Return matrices, of both classes and with everything that is unusual, and arrays."""
    D = np.array([[5.0, 0, 2], [0, 0, 3], [1, 4, 0]])
    wide = sp.csr_array(D)
    wide.indices, wide.indptr = wide.indices.astype("i8"), wide.indptr.astype("i8")
    small = sp.csr_array(np.array([[100, 100, 0], [0, 3, 0], [7, 0, 1]], "i1"))

    def rows(data: list[float], columns: list[int], starts: list[int]) -> Any:
        return sp.csr_array((np.array(data), np.array(columns), np.array(starts)), shape=(3, 3))

    return {
        "D": D, "v": np.array([1.0, 2, 3]), "v8": np.array([1, 2, 3], "i1"), "M": sp.csr_matrix(D),
        "R": sp.csr_array(D), "C": sp.csc_array(D), "L": sp.lil_array(D), "K": sp.coo_array(D),
        "EZ": rows([0.0, 2.0], [0, 1], [0, 1, 2, 2]), "DUP": rows([1.0, 2, 3], [1, 1, 0], [0, 2, 3, 3]),
        "UNS": rows([1.0, 2, 3], [2, 0, 1], [0, 2, 3, 3]), "I8": small, "BO": sp.csr_array(D > 0),
        "U8": sp.csr_array(D.astype("u1")), "F4": sp.csr_array(D.astype("f4")), "B": small,
        "CX": sp.csr_array(D * (1 + 2j)), "E0": sp.csr_array((3, 0)), "Z": sp.csr_array((3, 3)),
        "O": sp.csr_array(np.ones((1, 1))), "I64": wide}


def bodies() -> Iterator[str]:
    """Yield the body of every function of the sheet."""
    for topic in SHEET.read_text(encoding="utf-8").split("\n== ")[1:]:
        name, _, text = topic.partition("\n")
        if name == "programs":
            yield from text.strip().split("\n")
        else:
            yield from (f"return {each.strip()}" for each in re.split(r";|\n", text) if each.strip())


def function(body: str, number: int) -> tuple[Callable[..., Any], str]:
    """Return the function with a body, and its (invented) file name."""
    text = f"def f({', '.join(operands())}):\n " + body.replace("; ", "\n ") + "\n"
    filename = f"<sheet {number}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    names: dict[str, Any] = {"np": np, "sp": sp, "copy": copy}
    exec(compile(text, filename, "exec"), names)
    return names["f"], filename


def faults(body: str, number: int) -> list[Fault]:
    """Return what differs between the plain function and the decorated one, called twice."""
    plain, filename = function(body, number)
    fast = jitla.jit(plain, compile="sync")
    wanted = outcome(plain, tuple(operands().values()), tuple, filename)
    for _ in range(2):
        found = outcome(fast, tuple(operands().values()), tuple, filename)
        wrong = compare(wanted, found) or compare_warnings(wanted, found)
        if wrong and not (SMOOTH.search(body) and _is_close(wrong, wanted.leaves, found.leaves)):
            return wrong
    return []


def _is_close(wrong: list[Fault], wanted: list[Any], found: list[Any]) -> bool:
    """Say whether floats differ in their last bits, and nothing else does."""
    pairs = [(a, b) for (_, a), (_, b) in zip(wanted, found, strict=True)
             if isinstance(a, np.ndarray | np.generic)]
    return all(f.kind == "value" for f in wrong) and all(
        np.allclose(a, b, rtol=CLOSE, atol=0, equal_nan=True) for a, b in pairs if a.dtype.kind in "fc")


def main() -> None:
    """Compare all of the sheet; raise if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.scipy_sheet", description=__doc__.split(":")[0])
    parser.add_argument("--usual", action="store_true", help="leave small matrices to SciPy, as usual")
    if not parser.parse_args().usual:
        jitla.configure(thresholds=TracingThresholds(min_sparse_elements=0))
    wrong = 0
    every = list(bodies())
    for number, body in enumerate(every):
        found = faults(body, number)
        wrong += bool(found)
        for fault in found[:1]:
            print(f"{body}: {fault}")
    print(f"{len(every)} functions, {wrong} differ")
    assert not wrong


if __name__ == "__main__":
    main()
