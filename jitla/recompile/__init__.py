"""Compilation of blocks to programs, binding of programs to sizes and layouts, and their caches.

`Compiler.program` returns the program of a block, compiled once per shape class; `Compiler.bind` binds it to
sizes and layouts and compiles a variant where guards fail. `pipeline` rewrites, plans and writes a program,
and chooses loop-invariant values to hoist; `plan_store` writes plans as text for later processes; `program`
has the guards; `binding` makes argument blocks of kernels; `output_buffers` decides on output memory;
`schedule_choices` and `loop_schedules` define what the tuner may choose; `offload` places operators on
devices.

Apart for their size: `row_binding`, the part of `binding` for kernels over rows, and `program_source`, which
writes the Python text of a `program`. `program_view` is loaded by explanations only.

Below it: `hops`, `rewrites`, `fusion`, `loopir`, `runtime`. Above it: `dispatch`, `tracing`, `tuner` and the
engine, which hands in the code generator.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.recompile.binding import PortableKernel
    from jitla.recompile.compiler import Compiler, LruCache
    from jitla.recompile.loop_schedules import (
        default_loops,
        schedule_text,
    )
    from jitla.recompile.output_buffers import (
        ExecutionOrder,
        order_steps,
    )
    from jitla.recompile.pipeline import STAGES, Draft, Stage, StageTrace, Tools, run_pipeline
    from jitla.recompile.program import (
        BoundProgram,
        Program,
    )
    from jitla.recompile.program_view import (
        ProgramView,
        traced_roots,
        view_program,
    )
    from jitla.recompile.schedule_choices import (
        LOOPS,
        ORDER,
        PLACE,
        TILE,
        UNTUNED,
        ChosenSchedule,
        KernelKey,
        Launchable,
        ScheduleTuner,
        TunableKernel,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        binding="PortableKernel",
        compiler="Compiler LruCache",
        loop_schedules="default_loops schedule_text",
        output_buffers="ExecutionOrder order_steps",
        pipeline="Draft STAGES Stage StageTrace Tools run_pipeline",
        program="BoundProgram Program",
        program_view="ProgramView traced_roots view_program",
        schedule_choices=(
            "ChosenSchedule KernelKey LOOPS Launchable ORDER PLACE ScheduleTuner TILE "
            "TunableKernel UNTUNED"
        ),
    )

__all__ = [
    "BoundProgram", "ChosenSchedule", "Compiler", "Draft", "ExecutionOrder", "KernelKey", "LOOPS",
    "Launchable", "LruCache", "ORDER", "PLACE", "PortableKernel", "Program", "ProgramView", "STAGES",
    "ScheduleTuner", "Stage", "StageTrace", "TILE", "Tools", "TunableKernel", "UNTUNED", "default_loops",
    "order_steps", "run_pipeline", "schedule_text", "traced_roots", "view_program",
]
