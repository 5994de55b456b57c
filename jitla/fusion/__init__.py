"""The fusion optimizer: which hops share a loop, how values are laid out in memory, and what that costs.

`templates` say which operators fuse; `memo` holds partial plans; `candidates` are legal kernels and their
cost (`cost_model`); `partitions` and `enumeration` search among them; `planner` builds the plan (`kernel`).
"""

from typing import TYPE_CHECKING

from jitla.process.loading import door

if TYPE_CHECKING:
    from jitla.fusion.cost_model import (
        PACK,
        Cost,
        Prices,
        peak,
        window_row,
    )
    from jitla.fusion.explain_plan import (
        RunnerUp,
        Verdict,
        forecast,
        weigh,
    )
    from jitla.fusion.interpreter import (
        Interpreted,
        InterpretedBackend,
        run_kernel,
    )
    from jitla.fusion.iteration import (
        Operands,
        geometry,
        operands,
        walk,
    )
    from jitla.fusion.kernel import (
        ALONE,
        ALWAYS,
        BEFORE,
        COMPRESSED,
        EXTREMES,
        NARROW,
        OPENING,
        OPERAND,
        PACKED,
        PACKS,
        PAIRS,
        PARTIAL,
        ROOM,
        SHARED,
        STREAMED,
        UPRIGHT,
        Backend,
        Call,
        Combine,
        Cut,
        Entries,
        Executable,
        Form,
        Geometry,
        Kernel,
        Pairs,
        Place,
        Plan,
        Product,
        RowKernel,
        Schedule,
        Shares,
        Stage,
        Step,
        Tile,
        WindowKernel,
        block_height,
        blocks_per_unit,
        crosswise,
        data_inputs,
        over_rows,
        packs_once,
        panels_bytes,
        show,
        structure,
        structure_key,
        tables,
        window_height,
    )
    from jitla.fusion.layout import (
        Layout,
        alike,
        all_layouts,
        contiguous,
        is_certain,
        is_view,
        result_of,
        seen_operands,
    )
    from jitla.fusion.memo import TEMPLATES
    from jitla.fusion.placement import (
        HOST,
        Work,
        assigned,
        seconds_of,
    )
    from jitla.fusion.planner import Recall, plan
    from jitla.fusion.schedule_space import (
        Knob,
        Point,
        Space,
        Value,
        Values,
    )
    from jitla.fusion.template_window import (
        Spelling,
        Way,
        holds,
        spelled,
    )
    from jitla.fusion.templates import (
        CELL,
        MAGG,
        Facts,
        Template,
        pairs_in,
    )
else:
    __getattr__ = door(
        __name__,
        cost_model="Cost PACK Prices peak window_row",
        explain_plan="RunnerUp Verdict forecast weigh",
        interpreter="Interpreted InterpretedBackend run_kernel",
        iteration="Operands geometry operands walk",
        kernel=(
            "ALONE ALWAYS BEFORE Backend COMPRESSED Call Combine Cut EXTREMES Entries "
            "Executable Form Geometry Kernel NARROW OPENING OPERAND PACKED PACKS PAIRS "
            "PARTIAL Pairs Place Plan Product ROOM RowKernel SHARED STREAMED Schedule Shares "
            "Stage Step Tile UPRIGHT WindowKernel block_height blocks_per_unit crosswise "
            "data_inputs over_rows packs_once panels_bytes show structure structure_key "
            "tables window_height"
        ),
        layout="Layout alike all_layouts contiguous is_certain is_view result_of seen_operands",
        memo="TEMPLATES",
        placement="HOST Work assigned seconds_of",
        planner="Recall plan",
        schedule_space="Knob Point Space Value Values",
        template_window="Spelling Way holds spelled",
        templates="CELL Facts MAGG Template pairs_in",
    )

__all__ = [
    "ALONE", "ALWAYS", "BEFORE", "Backend", "CELL", "COMPRESSED", "Call", "Combine", "Cost", "Cut",
    "EXTREMES", "Entries", "Executable", "Facts", "Form", "Geometry", "HOST", "Interpreted",
    "InterpretedBackend", "Kernel", "Knob", "Layout", "MAGG", "NARROW", "OPENING", "OPERAND", "Operands",
    "PACK", "PACKED", "PACKS", "PAIRS", "PARTIAL", "Pairs", "Place", "Plan", "Point", "Prices", "Product",
    "ROOM", "Recall", "RowKernel", "RunnerUp", "SHARED", "STREAMED", "Schedule", "Shares", "Space",
    "Spelling", "Stage", "Step", "TEMPLATES", "Template", "Tile", "UPRIGHT", "Value", "Values", "Verdict",
    "Way", "WindowKernel", "Work", "alike", "all_layouts", "assigned", "block_height", "blocks_per_unit",
    "contiguous", "crosswise", "data_inputs", "forecast", "geometry", "holds", "is_certain", "is_view",
    "operands", "over_rows", "packs_once", "pairs_in", "panels_bytes", "peak", "plan", "result_of",
    "run_kernel", "seconds_of", "seen_operands", "show", "spelled", "structure", "structure_key", "tables",
    "walk", "weigh", "window_height", "window_row",
]
