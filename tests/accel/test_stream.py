"""Tokens follow from what statements touch; micro-ops are loaded where they are not there."""

from __future__ import annotations

from jitla.accel import (
    Alu,
    AluOp,
    DramAllocator,
    Gemm,
    Load,
    Memory,
    Store,
    Unit,
    Uop,
    preset,
    unit_of,
    verify,
)
from jitla.accel.program import Stream

SPEC = preset("vta-pynq")


def blank() -> tuple[Stream, DramAllocator]:
    layout = DramAllocator()
    for name, memory in (("x", Memory.INP), ("w", Memory.WGT), ("y", Memory.OUT)):
        element = SPEC.element(memory)
        layout.add(name, (64, *element.shape), element.dtype, "output" if name == "y" else "input")
    return Stream(SPEC, layout), layout


def at(layout: DramAllocator, name: str, memory: Memory) -> int:
    (region,) = [r for r in layout.regions if r.name == name]
    return region.address // SPEC.element(memory).nbytes


def turn(stream: Stream, layout: DramAllocator, slot: int, half: int) -> None:
    """Load, multiply, store, in one half of every memory."""
    base = half * 512
    stream.put(Load(memory=Memory.INP, sram_base=base, dram_base=at(layout, "x", Memory.INP) + 3 * slot,
                    x_size=3, x_stride=3), (), (("inp", half),))
    stream.put(Load(memory=Memory.WGT, sram_base=base, dram_base=at(layout, "w", Memory.WGT), x_size=1,
                    x_stride=1), (), (("wgt", half),))
    loop = {"iter_in": 3, "dst_factor_in": 1}
    stream.run([Uop(base)], Gemm(reset=True, **loop), (), (("acc", half),))
    stream.run([Uop(base, base, base)], Gemm(**loop, src_factor_in=1),
               (("inp", half), ("wgt", half), ("acc", half)), (("acc", half),))
    stream.put(Store(sram_base=base, dram_base=at(layout, "y", Memory.OUT) + 3 * slot, x_size=3, x_stride=3),
               (("acc", half),), (("dram", "y"),))


def flags(program, unit: Unit) -> list[str]:
    found = []
    for i in program.instructions:
        if unit_of(i) is unit:
            names = [n for n in ("pop_prev", "pop_next", "push_prev", "push_next") if getattr(i, n)]
            found.append(" ".join(names))
    return found


def test_a_program_keeps_all_rules_and_leaves_no_token():
    stream, layout = blank()
    for slot in range(5):
        turn(stream, layout, slot, slot % 2)
    assert verify(stream.finish()) == ()


def test_the_first_use_of_a_half_waits_for_nobody():
    stream, layout = blank()
    for slot in range(3):
        turn(stream, layout, slot, slot % 2)
    loads = flags(stream.finish(), Unit.LOAD)
    assert loads == ["", "push_next", "", "push_next", "pop_next", "push_next"]


def test_what_is_known_already_takes_no_token():
    stream, layout = blank()
    turn(stream, layout, 0, 0)
    place = ("acc", 0)
    for number in (1, 2):
        stream.run([Uop(0)], Alu(op=AluOp.ADD, use_imm=True, imm=number, iter_in=3, dst_factor_in=1,
                                 src_factor_in=1), (place,), (place,))
    waits = [f for f in flags(stream.finish(), Unit.COMPUTE) if "pop_next" in f]
    assert len(waits) == 1  # the first of them waits for the store, which the end knows of, too

def test_results_are_read_again_by_way_of_the_compute_unit():
    stream, layout = blank()
    turn(stream, layout, 0, 0)
    stream.fence()
    stream.put(Load(memory=Memory.INP, dram_base=at(layout, "y", Memory.OUT), x_size=3, x_stride=3),
               (("dram", "y"),), (("inp", 0),))
    stream.run([Uop(0)], Gemm(reset=True, iter_in=3, dst_factor_in=1), (), (("acc", 0),))
    stream.run([Uop(0)], Gemm(iter_in=3, dst_factor_in=1, src_factor_in=1), (("inp", 0), ("acc", 0)),
               (("acc", 0),))
    stream.put(Store(sram_base=0, dram_base=at(layout, "y", Memory.OUT) + 8, x_size=3, x_stride=3),
               (("acc", 0),), (("dram", "y"),))
    assert verify(stream.finish()) == ()


def test_micro_ops_are_kept_until_others_need_the_room():
    stream, layout = blank()
    loop = Gemm(reset=True)
    sets = [[Uop(k) for k in range(first, first + 700)] for first in (0, 700, 1300)]
    for uops in (sets[0], sets[1], sets[0], sets[2], sets[0]):
        stream.run(uops, loop, (), ("acc",))
    uop_statistics = stream.uop_statistics
    # the third set takes the room of the first
    assert (uop_statistics.requests, uop_statistics.hits, uop_statistics.misses) == (5, 1, 4)
