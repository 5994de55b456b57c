"""What each decision of `decisions.txt` permits: its own kind of difference, and no other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.compare import Fault, Outcome

PROXIES = {"LazyArray": "numpy.ndarray", "LazyScalar": "numpy.float64"}
Permit = Callable[[Fault, Outcome, Outcome], bool]


def permitted(decision: str, fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    """Say whether `decision` permits `fault`."""
    return decision in PERMITS and PERMITS[decision](fault, plain, jitted)


def at(fault: Fault, plain: Outcome, jitted: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides of the value that a fault is about."""
    leaves, others = dict(plain.leaves), dict(jitted.leaves)
    path = fault.path if fault.path in leaves else re.sub(r"\[[\d, ]*\]$", "", fault.path)
    return np.asarray(leaves[path]), np.asarray(others[path])


def _of_values(allowed: Callable[[np.ndarray, np.ndarray, list[Any]], Any]) -> Permit:
    """Permit values that differ where `allowed(plain, jitted, arguments)` says so, and nowhere else."""

    def permit(fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
        if fault.kind != "value":
            return False
        a, b = at(fault, plain, jitted)
        with np.errstate(all="ignore"):
            return bool(np.all((a == b) | (a != a) & (b != b) | allowed(a, b, plain.reached[0])))

    return permit


def _names(fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    """Permit a proxy's name in the place of what it stands for, or other words about the same type."""
    text = str(jitted.error)
    for proxy, name in PROXIES.items():
        text = text.replace(proxy, name)
    kinds = re.findall(r"numpy\.\w+", text)
    same = text == str(plain.error) or kinds and kinds == re.findall(r"numpy\.\w+", str(plain.error))
    return fault.kind == "text" and bool(same)


def _resize(fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    """Permit the error that NumPy gives for an array with two names."""
    return plain.error is None and "cannot resize an array that references" in str(jitted.error)


def _casts(a: np.ndarray, b: np.ndarray, given: list[Any]) -> Any:
    """Permit integers made of floats that their dtype does not hold."""
    if a.dtype.kind not in "iu":
        return False
    bounds = np.iinfo(a.dtype)
    for source in given:
        if source.shape == a.shape:
            return ~((source > float(bounds.min) - 1) & (source < float(bounds.max) + 1))
    return False


def _nan(a: np.ndarray, b: np.ndarray, given: list[Any]) -> Any:
    """Permit what shows the sign or payload of a NaN: a bool, a magnitude with either sign, or bits."""
    if a.dtype == np.int64:
        return np.isnan(a.view("f8")) & np.isnan(b.view("f8"))
    void = np.isnan(given[0]) | np.isnan(given[1])
    return void if a.dtype == bool else void & (abs(a) == abs(b))


def _rounding(parts: float) -> Permit:
    """Permit values whose distance is small beside the largest one."""

    def near(a: np.ndarray, b: np.ndarray, given: list[Any]) -> Any:
        if a.dtype.kind not in "fc" or not np.isfinite(a).all():
            return False
        return abs(a - b) <= parts * np.finfo(a.dtype).eps * abs(a).max(initial=0)

    return _of_values(near)


def _complex(a: np.ndarray, b: np.ndarray, given: list[Any]) -> Any:
    """Permit two units in the last place of the larger factors' product."""
    if a.dtype.kind not in "fc":
        return False
    most = max(float(abs(a).max(initial=0)), *(float(abs(v).max(initial=0)) ** 2 for v in given))
    return abs(a - b) <= 4 * np.finfo(a.dtype).eps * most


def _argsort(a: np.ndarray, b: np.ndarray, given: list[Any]) -> Any:
    """Permit another order of equal elements."""
    keys = given[0]
    whole = np.array_equal(np.sort(a), np.sort(b)) and a.dtype == np.intp
    return whole and keys[a] == keys[b]


def _dead(fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    """Permit warnings that do not come."""
    mine, theirs = (Counter((str(w.message), w.lineno) for w in o.warned) for o in (plain, jitted))
    return fault.kind == "warnings" and theirs <= mine


def _lines(fault: Fault, plain: Outcome, jitted: Outcome) -> bool:
    """Permit the same warnings at other lines."""
    mine, theirs = (Counter(str(w.message) for w in o.warned) for o in (plain, jitted))
    return fault.kind == "warnings" and theirs == mine


PERMITS: dict[str, Permit] = {
    "names": _names,
    "resize": _resize,
    # ``is`` of one array, or of one bool, may be False.
    "identity": _of_values(lambda a, b, given: a.dtype == bool and a & ~b),
    "casts": _of_values(_casts),
    "nan": _of_values(_nan),
    "zeros": _of_values(lambda a, b, given: (a == 0) & (b == 0)),
    "products": _rounding(64),
    "pieces": _rounding(16),
    "complex": _of_values(_complex),
    "argsort": _of_values(_argsort),
    "time": lambda fault, plain, jitted: False,
    "dead": _dead,
    "lines": _lines,
}
