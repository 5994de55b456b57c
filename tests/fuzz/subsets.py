"""Other settings for a process of the fuzzer: a level of numerics, and random subsets of the rewrites."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import numpy as np

from tests.fuzz import runner
from tests.fuzz.compare import Fault, Outcome

SHARES = (0.0, 0.2, 0.5, 0.8, 1.0)  # of the rules that are on, one of these for every program
LOOSE = 1e-3  # what "relaxed" may be off by, of the largest element: digits cancel

_on: list[int] = [0]


def draw(seed: int) -> None:
    """Say which rules are on from now on."""
    _on[0] = seed


@lru_cache(64)
def chosen(rules: Any, seed: int) -> Any:
    """Return the rules of a set that are on for the program `seed`."""
    dice = random.Random(seed)
    share = dice.choice(SHARES)
    return rules.only(*[rule.name for rule in rules if dice.random() < share])


def apply_some() -> None:
    """Apply the rules that are on only, in this process."""
    from jitla.recompile import pipeline

    simplify = pipeline.simplify
    pipeline.simplify = lambda roots, rules, hook: simplify(roots, chosen(rules, _on[0]), hook)  # type: ignore


def set_numerics(level: str) -> None:
    """Run decorated functions at a level of numerics; "relaxed" may be far off where digits cancel."""
    import jitla

    jitla.configure(numerics=level)
    if level == "relaxed":
        judged = runner._is_rounding
        runner._is_rounding = lambda *given: judged(*given) or _is_close(given[0], *given[2:])  # type: ignore


def _is_close(fault: Fault, expected: Outcome, actual: Outcome) -> bool:
    """Say whether a difference is one that rewrites over the reals may make: values, and warnings."""
    if fault.kind == "warnings":
        return True
    if fault.kind != "value":
        return False
    a, b = runner._leaf(fault, expected), runner._leaf(fault, actual)
    if a.dtype.kind not in "fc":
        return True  # what is compared, or cast, may be anything near
    with np.errstate(all="ignore"):
        known = np.isfinite(a) & np.isfinite(b)
        size = np.max(np.abs(a), where=known, initial=1.0)
        return bool(np.all(np.abs(a - b)[known] <= LOOSE * size))
