"""Which layer is to blame: a failing program again, with ever more of the layers at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jitla.engine import ENGINE
from jitla.fusion import InterpretedBackend
from jitla.recompile import Compiler
from jitla.rewrites import RULES, SearchBudget
from tests.fuzz.runner import run


def _refuse(hop: Any) -> str:
    return "operators one by one"


# What runs: the traced operators one by one in NumPy; after rewrites; as kernels that NumPy
# interprets; as machine code.
LAYERS: dict[str, Callable[[], dict[str, Any]] | None] = {
    "tracing": lambda: {"backend": InterpretedBackend(_refuse), "rules": None},
    "rewrites": lambda: {
        "backend": InterpretedBackend(_refuse), "rules": lambda: RULES,
        "effort": SearchBudget(min_seconds=0.0)},
    "fusion": lambda: {
        "backend": InterpretedBackend(), "rules": lambda: RULES, "effort": SearchBudget(min_seconds=0.0)},
    "codegen": None,
}


@contextmanager
def only(layer: str) -> Iterator[None]:
    """Run decorated functions that are new without the layers after this one."""
    options = LAYERS[layer]
    kept = ENGINE._compilers, ENGINE._new_compiler
    if options is not None:
        given = options()

        def make(config: Any) -> Compiler:
            return Compiler(
                numerics=config.numerics, threads=config.num_threads, fusion=config.fusion, **given)

        ENGINE._compilers, ENGINE._new_compiler = {}, make
    try:
        yield
    finally:
        ENGINE._compilers, ENGINE._new_compiler = kept


def guilty(source: str, name: str, kind: str) -> str:
    """Return the first layer whose runs show a fault of this kind; "process" if none does now."""
    for layer in LAYERS:
        with only(layer):
            if any(fault.kind == kind for _, _, fault in run(source, name).faults):
                return layer
    return "process"
