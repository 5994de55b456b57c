"""Who runs the scripts, each in a file that is imported where it is asked for only."""

from __future__ import annotations

import importlib
from typing import Any

from bench.algorithms.systems.entered import Entered, NotHere

FILES = {
    "numpy": "plain", "numpy-nudged": "plain", "jitla": "decorated",
    "numba": "with_numba", "numba-expert": "with_numba",
    "jax": "with_jax", "torch": "with_torch", "torch-compile": "with_torch", "torch-port": "with_torch",
    "dask": "with_dask", "sklearn": "with_sklearn", "systemds": "with_systemds",
    "systemds-codegen": "with_systemds",
}


def enter(system: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return `plain`, or what stands for it, as `system` runs it; `jitla:` is followed by a variant."""
    name, _, variant = system.partition(":")
    if name not in FILES:
        raise NotHere(f"no system is called {name}")
    module = importlib.import_module(f"bench.algorithms.systems.{FILES[name]}")
    entered: Entered = module.enter(variant if name == "jitla" else name, script, plain, arguments)
    return entered


__all__ = ["FILES", "Entered", "NotHere", "enter"]
