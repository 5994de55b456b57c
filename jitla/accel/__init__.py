"""The simulated accelerator: its instruction set, simulators, and the compiler of layers for it.

The machine is VTA-like: load, compute and store units with token queues, scratchpads and micro-ops (`spec`,
`isa`). `layers_from_hops` finds layers in a DAG by intrinsics (`matching`); they are tiled (`layer`) and
lowered (`lowering`) to a program (`program`), which `verifier` checks, `functional_sim` executes bit-exactly
and `timing_sim` times.

Entry points without other users in the package are `backend`, for the planner of offloading
(`jitla.recompile.offload`), and `quantize`, which rewrites float products.
"""

from jitla.accel.backend import (
    Device,
    cycles,
    knobs,
    tiling_values,
    to_tiling,
)
from jitla.accel.functional_sim import (
    Counters,
    Dump,
    RunResult,
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
    check_encoding,
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
    unconnected_flags,
    unit_of,
    uop_columns,
    uop_fields,
)
from jitla.accel.layer import (
    EpilogueOp,
    Layer,
    SlidingWindow,
    Tiling,
    reference_result,
    utilisation_bounds,
)
from jitla.accel.layers_from_hops import INTRINSICS
from jitla.accel.lowering import (
    LayerProgram,
    LayerStage,
    compile_layer,
    compile_stages,
)
from jitla.accel.matching import (
    LayerFit,
    Match,
    OperandSource,
    TensorIntrinsic,
    loops_of,
    start_indices,
)
from jitla.accel.program import (
    AccelProgram,
    DramAllocator,
    DramRegion,
    Image,
    disassemble,
    from_words,
    show,
)
from jitla.accel.quantize import (
    QuantisedDag,
    ValueRanges,
    observe,
)
from jitla.accel.spec import (
    BOARDS,
    MAX_TRANSFER_BYTES,
    PAGE,
    PRESETS,
    AccelSpec,
    Board,
    Element,
    Memory,
    from_record,
    loads,
    preset,
)
from jitla.accel.timing_sim import (
    BOARD,
    COSTS,
    HLS,
    IDEAL,
    RTL,
    CycleCosts,
    ProgramTiming,
    Roofline,
    UnitTime,
    measure,
    perfetto,
    svg,
)
from jitla.accel.verifier import (
    RULES,
    Fault,
    HappensBefore,
    order_of,
    verify,
)

__all__ = [
    "Alu", "AluOp", "BOARD", "BOARDS", "Board", "COSTS", "CycleCosts", "Counters", "Device", "Dump",
    "Element",
    "HappensBefore", "Fault", "Field", "Finish", "Gemm", "HLS", "IDEAL", "INTRINSICS", "Image",
    "Instruction", "TensorIntrinsic", "Layer", "LayerFit", "LayerProgram", "DramAllocator", "Load",
    "MAX_TRANSFER_BYTES", "Match", "Memory", "Opcode", "OperandSource", "PAGE", "PRESETS", "AccelProgram",
    "QuantisedDag", "Queue", "RTL", "RULES", "DramRegion", "Roofline", "RunResult", "AccelSpec", "LayerStage",
    "EpilogueOp",
    "Store", "Tiling", "ProgramTiming", "Unit", "UnitTime", "Uop", "ValueRanges", "SlidingWindow", "bits_of",
    "check_encoding", "compile_layer", "compile_stages", "cycles", "decode", "decode_one", "decode_uops",
    "disassemble", "encode", "encode_uops", "fields", "from_immediate", "from_record", "from_words",
    "knobs", "load_dump", "loads", "loops_of", "measure", "noop", "observe", "order_of", "perfetto",
    "pops", "preset", "pushes", "reference_result", "run", "save_dump", "show",
    "start_indices", "svg", "tiling_values", "to_immediate", "to_tiling",
    "unconnected_flags", "unit_of", "uop_columns", "uop_fields", "utilisation_bounds", "verify",
]
