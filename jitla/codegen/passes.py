"""LLVM passes for modules that are written without optimising.

A module asks for them by its first line, which is part of the key that objects are cached by. Modules
without such a line, those of kernels, are compiled as they are written.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm

__all__ = ["PIPELINE", "optimise"]

#: First line of a module that is compiled with passes; other passes get another name.
PIPELINE = "; passes: function simplification O1 1\n"


def optimise(text: str, module: Any, machine: Any) -> None:
    """Run LLVM's passes on the functions of `module` if `text` asks for them.

    Function simplification of level 1 promotes, combines, hoists, and removes checks by induction variables;
    it has no vectoriser. It takes as long as instruction selection, and its code is as fast as that of level
    2. Single passes would take half as long, but without `NewGVN`, in which LLVM 22 fails assertions, their
    code takes three times as long.
    """
    if not text.startswith(PIPELINE):
        return
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
