"""Pipelines of LLVM passes for modules that are written without optimising.

A module asks for passes by its first line, which is part of the key that objects are cached by.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

__all__ = ["PIPELINE", "optimise"]

_ASKING = "; passes: "
#: First line of a module for the pipeline; other passes get another name.
PIPELINE = f"{_ASKING}loops 1\n"


def optimise(text: str, module: Any, machine: Any) -> None:
    """Run the passes that `text` asks for on `module`; none without such a line."""
    if not text.startswith(_ASKING):
        return
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
