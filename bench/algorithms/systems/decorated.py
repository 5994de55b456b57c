"""The scripts decorated, with all that jitla does and without one thing at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jitla
from bench.algorithms.systems.entered import Entered, NotHere

# What is set for the process. Those that leave something out wait for the compiler, as "sync" does, so that
# they differ from it by one thing.
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    "sync": {"compile": "sync"},
    "background": {"compile": "background"},
    "no-rewrites": {"rewrites": False, "search_ms": 0},
    "no-search": {"search_ms": 0},
    "fuse-none": {"fusion": "none"},
    "fuse-patterns": {"fusion": "patterns"},
    "fuse-all": {"fusion": "all"},
    "fuse-no-redundancy": {"fusion": "no-redundancy"},
    "no-invariants": {"invariants": "none"},
    "one-thread": {"num_threads": 1},
    "strict": {"numerics": "strict"},
    "frozen": {},  # nothing is compiled after the first call
    "replanned": {},  # all is planned anew in every call
    "no-sparsity": {  # what lies between a product and stored positions is formed
        "without_rules": "sampled-of-matmul,sampled-of-cell,sampled-of-broadcast,sampled-of-t"},
    "kept-code": {},  # machine code of earlier processes is found on disk
}
COUNTERS = (
    "calls", "bypassed", "plans", "programs", "kernels", "forces", "kernel_runs", "numpy_calls",
    "materialised", "fallbacks", "failures", "kept", "reused", "waiting", "planned", "compiled", "found",
    "loops", "loop_runs",
)


def enter(variant: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the decorated call."""
    if variant not in VARIANTS:
        raise NotHere(f"no variant is called {variant}")
    options = VARIANTS[variant]
    if variant not in ("", "background", "kept-code"):
        options = {"compile": "sync", **options}
    jitla.configure(**options, progress=False)
    fast = jitla.jit(plain)
    return Entered(_call(variant, fast, arguments), counters=lambda: _counters(fast))


def _call(variant: str, fast: Any, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    def frozen() -> Any:
        result = fast(*arguments)
        fast.recompile = False
        return result

    def replanned() -> Any:
        fast.cache_clear()
        return fast(*arguments)

    return {"frozen": frozen, "replanned": replanned}.get(variant, lambda: fast(*arguments))


def _counters(fast: Any) -> dict[str, Any]:
    """Return what jitla counted; with the most memory that it predicted, and where NumPy was called."""
    stats = fast.stats()
    found = {name: stats[name] for name in COUNTERS}
    record = jitla.explain(fast).record
    found["predicted_peak"] = max((p.cost.peak for p in record.programs if p.cost), default=0)
    found["handed_over"] = [
        f"{f.function} {f.line.place} {f.count}x {f.reason}"[:160] for f in record.fallbacks[:12]]
    found["recompilations"] = len(record.compilations)
    return found

