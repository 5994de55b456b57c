"""Compilation of blocks and when it is repeated: pipeline, programs, binding to sizes, caches.

`compiler` holds the programs; `pipeline` makes one by rewriting, planning and generating code; `program`
binds it to sizes and checks guards (`binding`, `row_binding`, `output_buffers`); `offload` places operators.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import door

if TYPE_CHECKING:
    from jitla.recompile.binding import Parcel
    from jitla.recompile.compiler import Compiler, Recent
    from jitla.recompile.copying import (
        Sized,
        sized,
        traced,
    )
    from jitla.recompile.loop_schedules import (
        chosen_text,
        usual_loops,
    )
    from jitla.recompile.output_buffers import (
        Order,
        order_steps,
    )
    from jitla.recompile.pipeline import (
        STAGES,
        Draft,
        Stage,
        Tools,
        Trace,
        run_pipeline,
    )
    from jitla.recompile.program import (
        Bound,
        Program,
    )
    from jitla.recompile.schedule_choices import (
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
else:
    __getattr__ = door(
        __name__,
        binding="Parcel",
        compiler="Compiler Recent",
        copying="Sized sized traced",
        loop_schedules="chosen_text usual_loops",
        output_buffers="Order order_steps",
        pipeline="Draft STAGES Stage Tools Trace run_pipeline",
        program="Bound Program",
        schedule_choices="Choice Chosen Key LOOPS Made ORDER PLACE TILE Tuning UNTUNED",
    )

__all__ = [
    "Bound", "Choice", "Chosen", "Compiler", "Draft", "Key", "LOOPS", "Made", "ORDER", "Order", "PLACE",
    "Parcel", "Program", "Recent", "STAGES", "Sized", "Stage", "TILE", "Tools", "Trace", "Tuning", "UNTUNED",
    "chosen_text", "order_steps", "run_pipeline", "sized", "traced", "usual_loops",
]
