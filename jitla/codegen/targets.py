"""Which processor code is made for.

Knows: what LLVM tells of the host, the levels of x86-64. Must not know: texts, kernels.
Receives names; returns descriptions.
"""

from __future__ import annotations

import llvmlite.binding as llvm

from jitla.codegen.layout import Target

__all__ = ["host_target", "lacking", "level_target"]

#: With AVX-512 vectors of 32 bytes gain nearly as much by its masks and registers; those of 64 are slower
#: where loads cross cache lines and in products of few columns.
_VECTORS = (("avx", 32), ("avx2", 32))
#: What every level of x86-64 adds to the one before.
_LEVELS = {
    "x86-64-v2": ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def host_target() -> Target:
    """Describe the processor this runs on."""
    found = llvm.get_host_cpu_features()
    features = frozenset(name for name, on in found.items() if on)
    return _described(llvm.get_host_cpu_name(), features)


def level_target(level: str) -> Target:
    """Describe the processors of a level of x86-64, such as "x86-64-v3"."""
    names = list(_LEVELS)
    return _described(level, frozenset(f for n in names[:names.index(level) + 1] for f in _LEVELS[n]))


def lacking(target: Target) -> tuple[str, ...]:
    """Return what the processor this runs on would need to run code for `target`."""
    host = host_target()
    foreign = () if host.triple.startswith("x86_64") or target.cpu not in _LEVELS else ("x86-64",)
    return (*foreign, *sorted(target.features - host.features))


def _described(cpu: str, features: frozenset[str]) -> Target:
    width = max((size for name, size in _VECTORS if name in features), default=16)
    return Target(llvm.get_process_triple(), cpu, features, width)
