"""A simulated tensor accelerator of the VTA kind: its description, instructions and simulators.

A machine is a `Spec` (`preset("vta-pynq")`, `loads(json)`); `spec.element(Memory.INP)` says what one index
of a memory names. `Load`, `Store`, `Gemm`, `Alu`, `Finish`, `Uop` are immutable records whose fields have the
names of the instruction set; `encode`, `decode`, `encode_uops`, `decode_uops` go to bits and back. A
`Program` is a stream, its table of micro-ops and named regions of DRAM (`Layout` hands them out);
`program.image(arrays)` is the DRAM a run starts from, `program.view(image, name)` an array in it.
`run(program, image) -> Outcome(image, counters, tokens)` is what a program means. `verify(program)` lists the
rules that a program breaks, `measure(program)` counts its cycles.

Reading order: spec, isa, encoding, program, steps, gemm, alu, functional, text, order, rules, verify,
costs, timing, cycles, timeline, dump, layer, walk, stream, tiling, transfers, slots, lower, assemble, knobs,
access, nest, intrinsic, fits, unit, ready, device, quant.
"""

from jitla.accel.alu import from_immediate, to_immediate
from jitla.accel.assemble import Job, Stage, job, one_layer
from jitla.accel.costs import BOARD, COSTS, HLS, IDEAL, RTL, Costs
from jitla.accel.cycles import measure, peak_seconds, transfer_seconds
from jitla.accel.device import Device
from jitla.accel.dump import Dump, load_dump, save_dump
from jitla.accel.encoding import (
    Field,
    bits_of,
    check,
    decode,
    decode_one,
    decode_uops,
    encode,
    encode_uops,
    fields,
    uop_columns,
    uop_fields,
)
from jitla.accel.fits import INTRINSICS
from jitla.accel.functional import Counters, Outcome, run
from jitla.accel.intrinsic import Fit, Intrinsic, Match, Source, loops_of, starts
from jitla.accel.isa import (
    Alu,
    AluOp,
    Finish,
    Gemm,
    Instruction,
    Load,
    Opcode,
    Queue,
    Store,
    Unit,
    Uop,
    dangling,
    noop,
    pops,
    pushes,
    unit_of,
    without_tokens,
)
from jitla.accel.knobs import cycles, knobs, of_tiling, to_tiling
from jitla.accel.layer import Layer, Step, Window, meaning
from jitla.accel.order import Order, order_of
from jitla.accel.program import Image, Layout, Program, Region, from_words
from jitla.accel.quant import Quantised, Seen, observe
from jitla.accel.rules import RULES, Fault
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
from jitla.accel.text import disassemble, show
from jitla.accel.tiling import Tiling, roofs
from jitla.accel.timeline import perfetto, svg
from jitla.accel.timing import Roofline, Timing, UnitTime
from jitla.accel.verify import verify

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
