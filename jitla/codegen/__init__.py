"""Kernels to machine code through LLVM, and the native run time they are launched by.

Reading order: flags, layout, indexing_code, pool_os, ufunc_loops, vecmath_code, vecmath_tables, vecmath_exp,
vecmath_log, vecmath_hyper, vecmath_arc, vecmath_trig, vecmath_pairs, vecmath_power, vecmath_special,
vecmath, vector, sizes, monoids, division, scalar, span, strips, bands, tiles, delayed, units, streamed,
staged, partial, crosswise, cell, gather, abreast, reduce, lines, columns, parts, host, ring_code,
tallies, module, reasons, targets, jit, pool_worker, pool, memory_list, memory, empty, known,
tape_slots, tape_taking, tape_repeats, tape_detaching, tape, launch, native, lanes, passes, packs, pair_code,
pairs,
skinny, panels, wide_tile, wide, order, extremes, upright, products, row_shares, rows_code, rows,
take_code, lookup_code, squeeze_code, compress_code, positions_code, bounds_code, spread_code, running_code,
histogram_code, bins, kinds, indexed, located, stored_code, csr_entries, csr_vectors, csr_lines,
csr_code, csr_ranges, csr_sums, csr, sampled_code, stored, turns, nest_code, nests, backend.
"""

from typing import TYPE_CHECKING

from jitla.later import door

if TYPE_CHECKING:
    from jitla.codegen.backend import LlvmBackend, LlvmExecutable
    from jitla.codegen.jit import Jit, Library, Shelf, modules
    from jitla.codegen.layout import Target
    from jitla.codegen.native import load_native
    from jitla.codegen.nests import CompiledNest
    from jitla.codegen.targets import host_target, lacking, level_target
else:
    __getattr__ = door(
        __name__,
        backend="LlvmBackend LlvmExecutable",
        jit="Jit Library Shelf modules",
        layout="Target",
        native="load_native",
        nests="CompiledNest",
        targets="host_target lacking level_target",
    )

__all__ = [
    "CompiledNest", "Jit", "Library", "LlvmBackend", "LlvmExecutable", "Shelf", "Target", "host_target",
    "lacking", "level_target", "load_native", "modules",
]
