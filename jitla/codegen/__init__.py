"""Code generation: kernels to machine code through LLVM, and the native run time that launches them.

`backend` compiles kernels: `kernels` has those of the templates, `matmul` products, `csr_kernels` and
`sparse_kernels` those of sparse matrices, `indexing` those of indexed reads and writes, `loopir` those of
loop nests; `loop_programs` writes the programs of Python's loops. `ir` and `ir_elementwise` write LLVM text,
`vecmath` mathematical functions; `module` and `jit` make code of it. `native` is the run time, `kernel_abi`
says how kernels are called.

Files that only `backend` uses are apart because each is loaded when the first kernel of its kind is compiled.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.codegen.backend import (
        LlvmBackend,
        LlvmExecutable,
    )
    from jitla.codegen.compiled_program import CompiledProgram, load_program
    from jitla.codegen.jit import (
        Jit,
        Library,
        ObjectCache,
        host_target,
        lacking,
        level_target,
        modules,
    )
    from jitla.codegen.loop_programs import compile_program, compile_quickly
    from jitla.codegen.loopir import CompiledNest
    from jitla.codegen.native.loader import load_native
    from jitla.codegen.native.loop_entry import load_loop_entry
    from jitla.codegen.target import Target
else:
    __getattr__ = lazy_exports(
        __name__,
        backend="LlvmBackend LlvmExecutable",
        jit="Jit Library ObjectCache host_target lacking level_target modules",
        compiled_program="CompiledProgram load_program",
        loop_programs="compile_program compile_quickly",
        loopir="CompiledNest",
        target="Target",
        **{"native.loader": "load_native", "native.loop_entry": "load_loop_entry"},
    )

__all__ = [
    "CompiledNest", "CompiledProgram", "Jit", "Library", "LlvmBackend", "LlvmExecutable", "ObjectCache",
    "Target", "compile_program", "compile_quickly",
    "host_target", "lacking", "level_target", "load_loop_entry", "load_native", "load_program", "modules",
]
