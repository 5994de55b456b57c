"""Runs compiled kernels without the native launcher: fills an argument block and calls it."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from jitla.codegen import LlvmBackend
from jitla.fusion import Form, Geometry, Kernel, Schedule
from jitla.hops import Hop, Kind, topo

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
FINISH = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def drive(template: bytes, *operands: object, chunk: int = 0) -> None:
    """Run all units of a block, `chunk` at a time (0: all at once), last chunk first."""
    words = struct.unpack(f"<{len(template) // 8}q", template)
    block = (ctypes.c_int64 * len(words))(*words)
    for i, x in enumerate(operands):
        at = id(x) + 16
        raw = at if words[8 + len(operands) + i] == 2 else ctypes.c_int64.from_address(at).value
        block[8 + i] = x.ctypes.data if isinstance(x, np.ndarray) else raw
    scratch = np.empty(words[5] // 8 + 1)
    block[6] = scratch.ctypes.data
    at, units = ctypes.addressof(block), words[2]
    step = chunk or max(units, 1)
    for begin in reversed(range(0, units, step)):
        ENTRY(words[0])(at, begin, min(begin + step, units))
    if words[4]:
        FINISH(words[4])(at)


BACKEND = LlvmBackend(launch=drive, threads=1)


def kernel_of(roots: Sequence[Hop]) -> Kernel:
    """Return the kernel that computes `roots` from leaves and constants."""
    hops = topo(roots)
    inputs = tuple(h for h in hops if h.op.kind is Kind.LEAF)
    body = tuple(h for h in hops if h.op.kind is not Kind.LEAF)
    shape = np.broadcast_shapes(*(h.meta.shape for h in hops if h.op.kind is not Kind.AGG))
    template = "MAgg" if any(h.op.kind is Kind.AGG for h in roots) else "Cell"
    return Kernel(template, shape, inputs, body, tuple(roots))


def letter(array: np.ndarray) -> str:
    """Return the letter of the last dimension of `array`."""
    last = array.strides[-1]
    return "c" if last == array.itemsize else "b" if last == 0 else "s"


def run_cells(
    roots: Sequence[Hop], leaves: Sequence[object], outs: Sequence[np.ndarray],
    schedule: Schedule | None = None, chunk: int = 0, backend: LlvmBackend = BACKEND,
) -> None:
    """Compute cell roots over the shape of `outs`, no dimension dropped or merged."""
    kernel = kernel_of(roots)
    shape = outs[0].shape
    operands = [leaves[h.attr("slot")] for h in kernel.inputs if h.op.name == "leaf"]
    arrays = [np.broadcast_to(x, shape) for x in operands if isinstance(x, np.ndarray)]
    arrays += outs
    form = Form("cell", len(shape), "".join(map(letter, arrays)))
    executable = backend.compile(kernel, form, schedule or Schedule())
    geometry = Geometry(shape, tuple(a.strides for a in arrays))
    drive(executable.template(geometry), *operands, *outs, chunk=chunk)
