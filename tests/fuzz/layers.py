"""Which layer is to blame: a failing program again, with ever more of the layers at work.

Knows: the runner, the compilers a configuration gets. Must not know: how programs are drawn.
Receives a program and a difference; returns the name of the first layer that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jitla.fusion import InterpretedBackend
from jitla.gate import GATE
from jitla.recompile import Compiler
from jitla.rewrites import RULES
from tests.fuzz.runner import run


def _refuse(hop: Any) -> str:
    return "operators one by one"


# What runs: the traced operators one by one in NumPy; after rewrites; as kernels that NumPy
# interprets; as machine code.
LAYERS: dict[str, Callable[[], dict[str, Any]] | None] = {
    "tracing": lambda: {"backend": InterpretedBackend(_refuse), "rules": None},
    "rewrites": lambda: {"backend": InterpretedBackend(_refuse), "rules": RULES},
    "fusion": lambda: {"backend": InterpretedBackend(), "rules": RULES},
    "codegen": None,
}


class _Compilers(dict[tuple[str, int], Any]):
    """Compilers of one layer, made when a configuration asks."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self._options = options

    def get(self, key: tuple[str, int], default: Any = None) -> Any:
        """Return the compiler for (numerics, threads)."""
        numerics, threads = key
        if key not in self:
            self[key] = Compiler(numerics=numerics, threads=threads, **self._options)
        return self[key]


@contextmanager
def only(layer: str) -> Iterator[None]:
    """Run decorated functions that are new without the layers after this one."""
    options = LAYERS[layer]
    kept = GATE._compilers
    if options is not None:
        GATE._compilers = _Compilers(options())
    try:
        yield
    finally:
        GATE._compilers = kept


def guilty(source: str, name: str, kind: str) -> str:
    """Return the first layer whose runs show a fault of this kind; "process" if none does now."""
    for layer in LAYERS:
        with only(layer):
            if any(fault.kind == kind for _, _, fault in run(source, name).faults):
                return layer
    return "process"
