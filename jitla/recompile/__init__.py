"""When and what is compiled: the pipeline, programs and their bindings, and the caches.

Reading order: stores, fresh, rings, emit, resize, choices, spaces, asked, cuts, streaming, upright,
rows, windows, listing, scheduled, loops, codes, program, checking, appraisal, splitting, placing,
drafts, kept, pipeline, copying, invariants, remembered, recent, cache.
"""

from typing import TYPE_CHECKING

from jitla.later import door

if TYPE_CHECKING:
    from jitla.recompile.cache import Compiler
    from jitla.recompile.choices import (
        LOOPS,
        ORDER,
        PLACE,
        TILE,
        UNTUNED,
        Choice,
        Chosen,
        Key,
        Made,
        Tuning,
    )
    from jitla.recompile.copying import Sized, sized, traced
    from jitla.recompile.drafts import Draft, Tools
    from jitla.recompile.listing import chosen_text, usual_loops
    from jitla.recompile.loops import Parcel
    from jitla.recompile.pipeline import STAGES, Stage, Trace, run_pipeline
    from jitla.recompile.program import Bound, Program
    from jitla.recompile.recent import Recent
    from jitla.recompile.stores import Order, order_steps
else:
    __getattr__ = door(
        __name__,
        cache="Compiler",
        choices="LOOPS ORDER PLACE TILE UNTUNED Choice Chosen Key Made Tuning",
        copying="Sized sized traced",
        drafts="Draft Tools",
        listing="chosen_text usual_loops",
        loops="Parcel",
        pipeline="STAGES Stage Trace run_pipeline",
        program="Bound Program",
        recent="Recent",
        stores="Order order_steps",
    )

__all__ = [
    "Bound", "Choice", "Chosen", "Compiler", "Draft", "Key", "LOOPS", "Made", "ORDER", "Order", "PLACE",
    "Parcel", "Program", "Recent", "STAGES", "Sized", "Stage", "TILE", "Tools", "Trace", "Tuning", "UNTUNED",
    "chosen_text", "order_steps", "run_pipeline", "sized", "traced", "usual_loops",
]
