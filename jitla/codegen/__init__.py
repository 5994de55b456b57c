"""Kernels to machine code through LLVM.

Reading order: layout, vecmath_code, vecmath_tables, vecmath_exp, vecmath_log, vecmath, scalar,
cell, reduce, module, jit, backend, host, memory_list, memory, empty, pool_os, pool_worker, pool,
launch, native, start.
"""

from jitla.codegen.backend import LlvmBackend, LlvmExecutable
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import Target
from jitla.codegen.start import start

__all__ = ["Jit", "Library", "LlvmBackend", "LlvmExecutable", "Target", "start"]
