"""Fusion optimizer: which operators share a loop, the memory layout of every value, and the predicted cost.

`plan` turns a DAG of hops into a `Plan`: kernels and NumPy calls in execution order. `templates` say which
operators a loop may fuse; `memo` records the partial fusion plans of a DAG; `candidates` enumerates legal
kernels and their cost (`cost_model`); `enumeration` searches for the cheapest set of kernels, pruned by
`bounds`; `planner` writes it as steps (`kernel`). `layout` predicts strides as NumPy would choose them.

Not needed for plans, and loaded on first use: `explain_plan` reports why a plan was chosen, `interpreter`
runs kernels without machine code, `schedule_space` describes the tunable parameters of a kernel.

Above `jitla.hops`, below code generation and `jitla.recompile`, which compile and run plans.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.fusion.cost_model import (
        PACK_OPERATIONS,
        Cost,
        CostModel,
        memory_owner,
        peak_bytes,
        window_row_bytes,
    )
    from jitla.fusion.explain_plan import (
        PlanExplanation,
        RunnerUp,
        explain_choice,
        plan_with_seconds,
    )
    from jitla.fusion.interpreter import (
        InterpretedBackend,
        InterpretedKernel,
        run_kernel,
    )
    from jitla.fusion.iteration import (
        Operands,
        geometry,
        operands,
        walk,
    )
    from jitla.fusion.kernel import (
        ARG_REDUCTIONS,
        BEFORE_BLOCKS,
        COLUMNWISE_PREFIX,
        COMPRESSED_FORMS,
        EVERY_BLOCK,
        FIRST_BLOCK,
        FROM_PANELS,
        MAX_NARROW_COLUMNS,
        MIN_STREAMED_BYTES,
        OPERAND,
        PACK_ONLY,
        PAIRS,
        PARTIAL,
        ROWWISE_FORMS,
        SCRATCH,
        SHARED,
        Backend,
        Blocking,
        BlockStage,
        Call,
        Combine,
        EntryShares,
        Executable,
        Form,
        Geometry,
        Kernel,
        Pairs,
        Plan,
        Product,
        RowKernel,
        Schedule,
        SparseProduct,
        StageOperand,
        Step,
        Tile,
        WindowKernel,
        block_height,
        blocks_per_unit,
        crosswise_limit,
        data_inputs,
        format_plan,
        gather_tables,
        panel_bytes,
        prepacks_panels,
        reduces_rows,
        structure,
        structure_key,
        window_height,
    )
    from jitla.fusion.layout import (
        Layout,
        all_layouts,
        contiguous,
        has_exact_layout,
        hop_layout,
        is_view,
        layout_like,
        layout_operands,
    )
    from jitla.fusion.memo import (
        TEMPLATES,
    )
    from jitla.fusion.planner import (
        PartitionCache,
        plan,
    )
    from jitla.fusion.schedule_space import (
        Knob,
        Point,
        Space,
        Value,
        Values,
    )
    from jitla.fusion.template_window import (
        Expansion,
        ReductionOrder,
        expand_aggregates,
        is_expansion_valid,
    )
    from jitla.fusion.templates import (
        CELL,
        MAGG,
        Facts,
        Template,
        pair_strides,
    )
else:
    __getattr__ = lazy_exports(
        __name__,
        cost_model="Cost CostModel PACK_OPERATIONS memory_owner peak_bytes window_row_bytes",
        explain_plan="PlanExplanation RunnerUp explain_choice plan_with_seconds",
        interpreter="InterpretedBackend InterpretedKernel run_kernel",
        iteration="Operands geometry operands walk",
        kernel=(
            "ARG_REDUCTIONS BEFORE_BLOCKS Backend Blocking COLUMNWISE_PREFIX COMPRESSED_FORMS Call "
            "Combine EVERY_BLOCK EntryShares Executable FIRST_BLOCK FROM_PANELS Form Geometry "
            "Kernel MAX_NARROW_COLUMNS MIN_STREAMED_BYTES OPERAND PACK_ONLY PAIRS PARTIAL Pairs "
            "Plan Product ROWWISE_FORMS RowKernel SCRATCH SHARED Schedule SparseProduct BlockStage "
            "StageOperand Step Tile WindowKernel block_height blocks_per_unit crosswise_limit "
            "data_inputs format_plan gather_tables panel_bytes prepacks_panels reduces_rows "
            "structure structure_key window_height"
        ),
        layout=(
            "Layout all_layouts contiguous has_exact_layout hop_layout is_view layout_like "
            "layout_operands"
        ),
        memo="TEMPLATES",
        planner="PartitionCache plan",
        schedule_space="Knob Point Space Value Values",
        template_window="Expansion ReductionOrder expand_aggregates is_expansion_valid",
        templates="CELL Facts MAGG Template pair_strides",
    )

__all__ = [
    "ARG_REDUCTIONS", "BEFORE_BLOCKS", "Backend", "Blocking", "CELL", "COLUMNWISE_PREFIX",
    "COMPRESSED_FORMS", "Call", "Combine", "Cost", "CostModel", "EVERY_BLOCK", "EntryShares",
    "Executable", "Expansion", "FIRST_BLOCK", "FROM_PANELS", "Facts", "Form", "Geometry",
    "InterpretedBackend", "InterpretedKernel", "Kernel", "Knob", "Layout", "MAGG", "MAX_NARROW_COLUMNS",
    "MIN_STREAMED_BYTES", "OPERAND", "Operands", "PACK_ONLY", "PACK_OPERATIONS", "PAIRS", "PARTIAL",
    "Pairs", "PartitionCache", "Plan", "PlanExplanation", "Point", "Product",
    "ROWWISE_FORMS", "ReductionOrder", "RowKernel", "RunnerUp", "SCRATCH", "SHARED", "Schedule",
    "Space", "SparseProduct", "BlockStage", "StageOperand", "Step", "TEMPLATES", "Template", "Tile", "Value",
    "Values", "WindowKernel", "all_layouts", "block_height",
    "blocks_per_unit", "contiguous", "crosswise_limit", "data_inputs", "expand_aggregates",
    "explain_choice", "format_plan", "gather_tables", "geometry", "has_exact_layout", "hop_layout",
    "is_expansion_valid", "is_view", "layout_like", "layout_operands", "memory_owner", "operands",
    "pair_strides",
    "panel_bytes", "peak_bytes", "plan", "plan_with_seconds", "prepacks_panels", "reduces_rows",
    "run_kernel", "structure", "structure_key", "walk", "window_height", "window_row_bytes",
]
