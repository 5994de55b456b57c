"""Programs of the tables in every mode: cold, warm, with compilers that fail, and not compiled."""

from __future__ import annotations

import linecache
import sys
from itertools import count
from typing import Any

import numpy as np

import jitla
from tests.fuzz.arrays import array
from tests.fuzz.compare import Fault, Outcome, compare, outcome
from tests.fuzz.load import plain_jit
from tests.semantics.oracle import compare_warnings, module, no_compiler
from tests.semantics.permits import at, permitted
from tests.semantics.table import Case

CALLS = 3
MANY_CELLS = 8000  # from so many on, kernels run on several threads, too
SPARSE_PARTS = ("data", "indices", "indptr", "row", "col", "offsets")
_NUMBER = count()
_DTYPES = {"f": "f8", "f4": "f4", "i": "i8", "i4": "i4", "i2": "i2", "i1": "i1", "u1": "u1", "u2": "u2",
           "u4": "u4", "u8": "u8", "b": "?"}


def differences(case: Case, entry: str) -> list[str]:
    """Run a program plain and in all modes; return what differs, the first thing first."""
    name = f"{case.row}-{next(_NUMBER)}"
    try:
        return _differences(case, entry, name)
    finally:
        sys.modules.pop(name, None)
        linecache.cache.pop(f"<{name}>", None)


def _differences(case: Case, entry: str, name: str) -> list[str]:
    text = case.module(_pendable(case))
    jits = {"compiled": jitla.jit, "fault": jitla.jit}
    if entry == "f":  # without a compiler nothing is pending
        jits["off"] = jitla.jit(compile="off")
    made = {mode: module(text, name, jit) for mode, jit in jits.items()}
    plain = {mode: module(text, name, plain_jit) for mode in jits}
    found: list[str] = []
    for n in case.sizes:
        threads = (1, 2) if n >= MANY_CELLS else (1,)
        runs = [("compiled", c, t) for t in threads for c in range(CALLS)]
        runs += [(mode, 0, 1) for mode in jits if mode != "compiled"]
        for mode, call, count_of in runs:
            expected = _called(case, plain[mode], entry, n, name)
            with jitla.options(num_threads=count_of):
                if mode == "fault":
                    with no_compiler():
                        actual = _called(case, made[mode], entry, n, name)
                else:
                    actual = _called(case, made[mode], entry, n, name)
            faults = [*compare(expected, actual), *compare_warnings(expected, actual)]
            found += [
                f"{mode}, n={n}, call {call}, threads {count_of}: {fault}" for fault in faults
                if not _permitted(case, fault, expected, actual)
            ]
        if found:
            return found
    return _miscounted(made, entry)


def _miscounted(made: dict[str, dict[str, Any]], entry: str) -> list[str]:
    """Say whether failures were counted where there were none, or not where there were."""
    compiled, failed = (made[mode][entry].stats() for mode in ("compiled", "fault"))
    if compiled["failures"]:
        return [f"{compiled['failures']:g} failures: {_failures(made['compiled'][entry])}"]
    if compiled["kernels"] and not failed["failures"]:
        return ["no failure was counted without a compiler"]
    return []


def _failures(decorated: Any) -> str:
    sites = decorated.__jitla_state__.all_sites()
    return "; ".join(text for site in sites for text in site.failures)[:300]


def _called(case: Case, names: dict[str, Any], entry: str, n: int, name: str) -> Outcome:
    given = arguments(case, n, names)
    found = outcome(names[entry], tuple(given.values()), names.get("state", tuple), f"<{name}>")
    found.leaves = [part for path, held in found.leaves for part in _opened(path, held)]
    return found


def _opened(path: str, held: Any) -> list[tuple[str, Any]]:
    """Return a leaf with the arrays that a sparse one is made of."""
    if type(held).__module__.partition(".")[0] != "scipy" or not hasattr(held, "nnz"):
        return [(path, held)]
    if held.format in ("dok", "lil"):
        parts: dict[str, Any] = {"items": str(held.items() if held.format == "dok" else held.data.tolist())}
    else:
        parts = {k: getattr(held, k) for k in SPARSE_PARTS if hasattr(held, k)}
    return [(path, held), *((f"{path}.{k}", v) for k, v in {**parts, "shape": held.shape}.items())]


def arguments(case: Case, n: int, module_names: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a program for a size; equal calls give equal arrays, in memory of their own."""
    seeds = count(n)

    def maker(dtype: str) -> Any:
        def make(*shape: int, layout: str = "C", values: str = "normal") -> np.ndarray:
            return array(shape, dtype, layout, values, next(seeds))

        return make

    names = {**module_names, "array": array, "n": n, "inf": np.inf, "nan": np.nan}
    names.update({short: maker(dtype) for short, dtype in _DTYPES.items()})
    made: dict[str, Any] = {}
    for argument, text in case.arguments:
        names[argument] = made[argument] = eval(text, names)
    return made


def _pendable(case: Case) -> dict[str, str]:
    """Return what makes a pending value, equal to the argument, of every argument that is traced."""
    found = {}
    names = module(case.module({}), case.row, plain_jit)
    for name, value in arguments(case, case.sizes[0], names).items():
        if type(value) is np.ndarray and value.ndim and value.dtype.char in "?bhilqBHILQfd" \
                and value.dtype.isnative:
            found[name] = f"{name} | {name}" if value.dtype.kind == "b" else f"{name} * 1"
    return found


def has_pending(case: Case) -> bool:
    """Say whether any argument of a program can be a pending value."""
    return case.options.get("as") != "memory" and bool(_pendable(case))


def _permitted(case: Case, fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    if case.decision:
        return permitted(case.decision, fault, plain, jitted)
    return fault.kind == "value" and case.ulp > 0 and _near(case.ulp, *at(fault, plain, jitted))


def _near(ulp: int, a: np.ndarray, b: np.ndarray) -> bool:
    """Say whether values differ by some units in the last place only."""
    if a.dtype.kind == "c":
        a, b = np.stack([a.real, a.imag]), np.stack([b.real, b.imag])
    if a.dtype.kind != "f":
        return False
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= ulp * np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))
