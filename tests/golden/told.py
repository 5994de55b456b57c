"""`python -m tests.golden.told`: explanations of fifteen programs at every level, as JSON."""

from __future__ import annotations

import json
import sys

import jitla
from jitla.explanations.rendering import LEVELS
from jitla.runtime.disk_cache import DiskPlanStore
from tests.golden.programs import programs

LEVEL = "x86-64-v3"
PATIENT = 10_000  # milliseconds: no search ends because the machine is busy


def explanations() -> dict[str, jitla.explanations.explanation.Explanation]:
    """Return what is explained of one call of every program."""
    with jitla.options(cpu=LEVEL, compile="sync", search_ms=PATIENT):
        return {name: jitla.explain(jitla.jit(f), *args) for name, (f, args) in programs().items()}


if __name__ == "__main__":
    DiskPlanStore.on = False  # a plan that another test has left would be found instead of made
    with jitla.options(cpu=LEVEL):
        json.dump({name: {level: str(found.at(level)) for level in LEVELS}
                   for name, found in explanations().items()}, sys.stdout)
