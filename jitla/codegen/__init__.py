"""Kernels to machine code through LLVM.

Reading order: layout, vecmath_code, vecmath_tables, vecmath_exp, vecmath_log, vecmath, scalar,
cell, reduce, module, jit, backend.
"""

from jitla.codegen.backend import LlvmBackend, LlvmExecutable
from jitla.codegen.jit import Jit, Library
from jitla.codegen.layout import Target

__all__ = ["Jit", "Library", "LlvmBackend", "LlvmExecutable", "Target"]
