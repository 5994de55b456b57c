"""Pipelines of LLVM passes for modules that are written without optimising.

A module asks for passes by its first line, which is part of the key that objects are cached by. Modules
without such a line, those of kernels, are compiled as they are written.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

__all__ = ["optimise", "pipeline_line"]

_FIRST_WORDS = "; passes: "
#: Passes by level of code generation: for level 0 the few without which values are not in registers.
_BASELINE = ("sroa", "simplify_cfg", "instruction_combine", "new_gvn", "simplify_cfg")
_NAMES = {0: "baseline 1", 1: "function O1 1"}


def pipeline_line(level: int) -> str:
    """Return the first line of a module that is compiled with passes, for a level of code generation."""
    return f"{_FIRST_WORDS}{_NAMES[min(level, 1)]}\n"


def optimise(text: str, module: Any, machine: Any) -> None:
    """Run the passes that `text` asks for on `module`.

    LLVM's function simplification of level 1 promotes, combines, hoists, and removes checks by induction
    variables; it has no vectoriser. It takes as long as instruction selection, and its code is as fast as
    that of level 2.
    """
    if not text.startswith(_FIRST_WORDS):
        return
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    if text.startswith(pipeline_line(0)):
        passes = llvm.create_new_function_pass_manager()
        for name in _BASELINE:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
