"""When and what is compiled: the pipeline, programs and their bindings, and the caches.

Reading order: stores, fresh, rings, emit, resize, choices, asked, cuts, streaming, rows, windows, loops,
codes, program,
checking, appraisal, splitting, placing, listing, pipeline, invariants, recent, cache.
"""

from jitla.recompile.cache import Compiler
from jitla.recompile.choices import UNTUNED, Key, Made, Tuning
from jitla.recompile.pipeline import STAGES, Draft, Stage, Tools, Trace, run_pipeline
from jitla.recompile.program import Bound, Program
from jitla.recompile.recent import Recent
from jitla.recompile.stores import Order, order_steps

__all__ = [
    "Bound", "Compiler", "Draft", "Key", "Made", "Order", "Program", "Recent", "STAGES", "Stage", "Tools",
    "Trace", "Tuning", "UNTUNED", "order_steps", "run_pipeline",
]
