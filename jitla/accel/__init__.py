"""The simulated accelerator: its instruction set, simulators, and the compiler of layers for it.

`layers_from_hops` finds layers in a DAG by intrinsics (`matching`); `tiling` and `lowering` make them a
program for the device (`isa`, `program`), which `verifier` checks, `functional_sim` computes and `timing_sim`
times.
"""

from jitla.accel.backend import (
    Device,
    cycles,
    knobs,
    of_tiling,
    to_tiling,
)
from jitla.accel.functional_sim import (
    Counters,
    Dump,
    Outcome,
    load_dump,
    run,
    save_dump,
)
from jitla.accel.isa import (
    Alu,
    AluOp,
    Field,
    Finish,
    Gemm,
    Instruction,
    Load,
    Opcode,
    Queue,
    Store,
    Unit,
    Uop,
    bits_of,
    check,
    dangling,
    decode,
    decode_one,
    decode_uops,
    encode,
    encode_uops,
    fields,
    from_immediate,
    noop,
    pops,
    pushes,
    to_immediate,
    unit_of,
    uop_columns,
    uop_fields,
    without_tokens,
)
from jitla.accel.layer import (
    Layer,
    Step,
    Window,
    meaning,
)
from jitla.accel.layers_from_hops import INTRINSICS
from jitla.accel.lowering import (
    Job,
    Stage,
    job,
    one_layer,
)
from jitla.accel.matching import (
    Fit,
    Intrinsic,
    Match,
    Source,
    loops_of,
    starts,
)
from jitla.accel.program import (
    Image,
    Layout,
    Program,
    Region,
    disassemble,
    from_words,
    show,
)
from jitla.accel.quantize import (
    Quantised,
    Seen,
    observe,
)
from jitla.accel.spec import (
    BOARDS,
    PAGE,
    PRESETS,
    TRANSFER,
    Board,
    Element,
    Memory,
    Spec,
    from_record,
    loads,
    preset,
)
from jitla.accel.tiling import (
    Tiling,
    roofs,
)
from jitla.accel.timing_sim import (
    BOARD,
    COSTS,
    HLS,
    IDEAL,
    RTL,
    Costs,
    Roofline,
    Timing,
    UnitTime,
    measure,
    peak_seconds,
    transfer_seconds,
)
from jitla.accel.trace_view import (
    perfetto,
    svg,
)
from jitla.accel.verifier import (
    RULES,
    Fault,
    Order,
    order_of,
    verify,
)

__all__ = [
    "Alu", "AluOp", "BOARD", "BOARDS", "Board", "COSTS", "Costs", "Counters", "Device", "Dump", "Element",
    "Fault", "Field", "Finish", "Fit", "Gemm", "HLS", "IDEAL", "INTRINSICS", "Image", "Instruction",
    "Intrinsic", "Job", "Layer", "Layout", "Load", "Match", "Memory", "Opcode", "Order", "Outcome", "PAGE",
    "PRESETS", "Program", "Quantised", "Queue", "RTL", "RULES", "Region", "Roofline", "Seen", "Source",
    "Spec", "Stage", "Step", "Store", "TRANSFER", "Tiling", "Timing", "Unit", "UnitTime", "Uop", "Window",
    "bits_of", "check", "cycles", "dangling", "decode", "decode_one", "decode_uops", "disassemble",
    "encode", "encode_uops", "fields", "from_immediate", "from_record", "from_words", "job", "knobs",
    "load_dump", "loads", "loops_of", "meaning", "measure", "noop", "observe", "of_tiling", "one_layer",
    "order_of", "peak_seconds", "perfetto", "pops", "preset", "pushes", "roofs", "run", "save_dump", "show",
    "starts", "svg", "to_immediate", "to_tiling", "transfer_seconds", "unit_of", "uop_columns",
    "uop_fields", "verify", "without_tokens",
]
