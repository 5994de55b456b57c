"""A minimal loader of IR text for tests of the native run time.

Knows: llvmlite. Must not know: what is loaded.
Receives IR text; returns addresses of symbols, in code that is never unloaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import llvmlite.binding as llvm


class Loader:
    """Compile through `emit_object`, load through LLJIT."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        self.triple = target.triple
        self.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(),
            opt=2, reloc="pic", codemodel="default",
        )
        self.jit = llvm.create_lljit_compiler()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.jit))
        self.count = 0

    def __call__(self, text: str, symbols: Iterable[str]) -> llvm.orcjit.ResourceTracker:
        """Addresses of `symbols` in the compiled `text`."""
        module = llvm.parse_assembly(f'target triple = "{self.triple}"\n{text}')
        module.verify()
        library = llvm.JITLibraryBuilder().add_object_img(self.machine.emit_object(module))
        for name in symbols:
            library.export_symbol(name)
        self.count += 1
        tracker = library.link(self.jit, f"native{self.count}")
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))
        return tracker
