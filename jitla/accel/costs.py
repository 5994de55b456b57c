"""How long each thing takes on the device, every constant by name and with its source.

Knows: cycles of steps, of bursts and of what surrounds them. Must not know: when things happen.
Receives instructions; returns cycles and bursts.

Sources. RTL: upstream's core in Chisel, read, not run; the pipelined variants, which are its default. RTL
memory: the model of memory in upstream's simulation of that core. HLS: upstream's core in C for Xilinx.
"""

from __future__ import annotations

from dataclasses import replace

from jitla.accel.isa import Alu, Gemm, Load, Store
from jitla.accel.spec import Spec
from jitla.classes import dataclass


@dataclass(frozen=True)
class Costs:
    """Cycles, unless it says otherwise."""

    name: str
    first_beat: int = 16  # a request at an idle channel waits so long (RTL memory)
    next_burst: int = 1  # a request that waited already (RTL memory: not paid again, one cycle to turn)
    beat: int = 1  # a beat of the bus (RTL memory)
    gemm_step: int = 1  # one micro-op a cycle (RTL, HLS)
    gemm_fill: int = 7  # to fill, drain and dispatch (RTL: 6 to 8)
    alu_immediate: int = 1  # a step with an immediate (RTL; HLS: 2)
    alu_tensor: int = 2  # a step with two operands of one memory (RTL, HLS)
    alu_fill: int = 7  # (RTL)
    store_read: int = 1  # to read an element before its beats (RTL)
    store_burst: int = 6  # command, address and acknowledgement, nothing overlapped (RTL: 5 to 6)
    noop: int = 2  # an instruction that only moves tokens, and FINISH (RTL: 1 to 2)
    fetch_burst: int = 128  # instructions of one fetch; the next waits until all are dispatched (RTL)
    commands: int = 512  # instructions in the queue of a unit (RTL, HLS)


RTL = Costs("rtl")
BOARD = replace(RTL, name="board", first_beat=50)  # an estimate for real memory behind an interconnect
HLS = replace(RTL, name="hls", alu_immediate=2)
# Nothing but computing takes time: what is left is a lower bound.
IDEAL = Costs("ideal", 0, 0, 0, gemm_fill=0, alu_fill=0, store_read=0, store_burst=0, noop=0)
COSTS = {costs.name: costs for costs in (RTL, BOARD, HLS, IDEAL)}


def bus_bytes(spec: Spec) -> int:
    """Return the bytes of a beat."""
    return spec.board.bus_bits // 8


def bursts(spec: Spec, transfer: Load | Store) -> list[int]:
    """Return the beats of each burst: none spans two rows, or a boundary between bursts."""
    size = spec.element(transfer.memory).nbytes
    found: list[int] = []
    for row in range(transfer.y_size):
        begin = (transfer.dram_base + row * transfer.x_stride) * size
        found += split(spec, begin, begin + transfer.x_size * size)
    return found


def split(spec: Spec, begin: int, end: int) -> list[int]:
    """Return the beats of the bursts that move the bytes from `begin` to `end`."""
    bus = bus_bytes(spec)
    boundary = spec.board.burst_beats * bus
    found = []
    while begin < end:
        stop = min(end, (begin // boundary + 1) * boundary)
        found.append(-(-stop // bus) - begin // bus)
        begin = stop
    return found


def loop_cycles(costs: Costs, loop: Gemm | Alu) -> int:
    """Return the cycles of all steps of `loop`, and around them."""
    if isinstance(loop, Gemm):
        return loop.steps * costs.gemm_step + costs.gemm_fill
    step = costs.alu_immediate if loop.use_imm else costs.alu_tensor
    return loop.steps * step + costs.alu_fill


def store_cycles(spec: Spec, costs: Costs, store: Store) -> int:
    """Return the cycles of `store`: elements are read and sent one after the other."""
    found = bursts(spec, store)
    elements = store.x_size * store.y_size
    return len(found) * costs.store_burst + sum(found) * costs.beat + elements * costs.store_read


def padding_cycles(load: Load) -> int:
    """Return the cycles in which zeros are written, one element each."""
    return load.count - load.x_size * load.y_size
