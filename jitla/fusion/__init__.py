"""Which hops share a loop: plans, how their values lie in memory, and the agreement with backends.

Reading order: blocks, knobs, kernel, layout, walks, results, memory, ends, price, templates, outer, pairs,
compressed, rows, memo, mates, links, cones, stages, candidates, points, waiting, floors, division, groups,
search, recall, build, limits, heuristics, windows, planner, picked, spelling, interp, text, verdict,
placement.
"""

from typing import TYPE_CHECKING

from jitla.later import door

if TYPE_CHECKING:
    from jitla.fusion.blocks import (
        ALWAYS,
        BEFORE,
        OPENING,
        OPERAND,
        PACKED,
        PACKS,
        PARTIAL,
        ROOM,
        SHARED,
        STREAMED,
        Combine,
        Cut,
        Entries,
        Pairs,
        Place,
        Shares,
        Stage,
        Tile,
        block_height,
        blocks_per_unit,
        packs_once,
        panels_bytes,
        window_height,
    )
    from jitla.fusion.interp import Interpreted, InterpretedBackend, run_kernel
    from jitla.fusion.kernel import (
        ALONE,
        COMPRESSED,
        EXTREMES,
        NARROW,
        PAIRS,
        UPRIGHT,
        Backend,
        Call,
        Executable,
        Form,
        Geometry,
        Kernel,
        Plan,
        Product,
        RowKernel,
        Schedule,
        Step,
        WindowKernel,
        crosswise,
        data_inputs,
        over_rows,
        tables,
    )
    from jitla.fusion.knobs import Knob, Point, Space, Value, Values
    from jitla.fusion.layout import Layout, alike, contiguous
    from jitla.fusion.memo import TEMPLATES
    from jitla.fusion.memory import peak, window_row
    from jitla.fusion.pairs import pairs_in
    from jitla.fusion.placement import HOST, Work, assigned, seconds_of
    from jitla.fusion.planner import plan
    from jitla.fusion.price import PACK, Cost, Prices
    from jitla.fusion.recall import Recall
    from jitla.fusion.results import all_layouts, is_certain, is_view, result_of, seen_operands
    from jitla.fusion.spelling import Spelling, Way, holds, spelled
    from jitla.fusion.templates import CELL, MAGG, Facts, Template
    from jitla.fusion.text import show, structure, structure_key
    from jitla.fusion.verdict import RunnerUp, Verdict, forecast, weigh
    from jitla.fusion.walks import Operands, geometry, operands, walk
else:
    __getattr__ = door(
        __name__,
        blocks=(
            "ALWAYS BEFORE OPENING OPERAND PACKED PACKS PARTIAL ROOM SHARED STREAMED Combine Cut Entries "
            "Pairs Place Shares Stage Tile block_height blocks_per_unit packs_once panels_bytes "
            "window_height"
        ),
        interp="Interpreted InterpretedBackend run_kernel",
        kernel=(
            "ALONE COMPRESSED EXTREMES NARROW PAIRS UPRIGHT Backend Call Executable Form Geometry Kernel "
            "Plan Product RowKernel Schedule Step WindowKernel crosswise data_inputs over_rows tables"
        ),
        knobs="Knob Point Space Value Values",
        layout="Layout alike contiguous",
        memo="TEMPLATES",
        memory="peak window_row",
        pairs="pairs_in",
        placement="HOST Work assigned seconds_of",
        planner="plan",
        price="PACK Cost Prices",
        recall="Recall",
        results="all_layouts is_certain is_view result_of seen_operands",
        spelling="Spelling Way holds spelled",
        templates="CELL MAGG Facts Template",
        text="show structure structure_key",
        verdict="RunnerUp Verdict forecast weigh",
        walks="Operands geometry operands walk",
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
