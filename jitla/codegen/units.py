"""The loop over a kernel's units: its first lines, where a unit lies, vectors and tails of one.

Knows: the argument block, blocks of the last dimension. Must not know: what is computed.
Receives a `Loop`; returns lines of IR.
"""

from __future__ import annotations

from jitla.codegen.layout import BLOCKS, COLD, INNER, PLAIN, STEP, Loop, copy_operands, seek, word


def calls(width: int, length: str, start: str) -> str:
    """Return lines that run `length` elements from `start`: vectors, then one by one.

    The code goes on in block %ready.
    """
    return f"""  %vectors = lshr i64 {length}, {width.bit_length() - 1}
  %rest = and i64 {length}, {width - 1}
  %whole = sub i64 {length}, %rest
  %behind = add i64 {start}, %whole
  %wide = icmp ne i64 %vectors, 0
  br i1 %wide, label %run, label %ran
run:
  call void @span(ptr %ops, ptr %steps, i64 {start}, i64 %vectors, ptr null)
  br label %ran
ran:
  %odd = icmp ne i64 %rest, 0
  br i1 %odd, label %tail, label %ready
tail:
  call void @tail(ptr %ops, ptr %steps, i64 %behind, i64 %rest, ptr null)
  br label %ready
ready:
"""


def entry(loop: Loop, how: str = "") -> list[str]:
    """Return the first lines of a kernel: %words, %geo, %steps, %ops with the operands."""
    n = len(loop.operands)
    how = how or (PLAIN if loop.rank else COLD)
    lines = [
        f"define void @k(ptr %block, i64 %begin, i64 %end) {how}{{", "entry:",
        f"  %ops = alloca [{n} x i64], align 16",
        "  %words = getelementptr i64, ptr %block, i64 8",
        f"  %geo = getelementptr i64, ptr %block, i64 {loop.geometry_at}",
        "  %steps = getelementptr i64, ptr %geo, i64 5",
    ]
    word(lines, "inner", "%geo", INNER)
    word(lines, "step", "%geo", STEP)
    word(lines, "blocks", "%geo", BLOCKS)
    copy_operands(lines, loop)
    return lines


def block_of_unit(lines: list[str], loop: Loop) -> None:
    """Write the loop head over units: moves %ops, sets %from and %len in the last dimension."""
    lines += [
        "  %some = icmp ult i64 %begin, %end", "  br i1 %some, label %unit, label %exit", "unit:",
        "  %u = phi i64 [ %begin, %entry ], [ %u.next, %next ]",
    ]
    cut = "%u"
    if loop.rank:
        lines += ["  %row = udiv i64 %u, %blocks", "  %cut = urem i64 %u, %blocks"]
        seek(lines, loop, "%row")
        cut = "%cut"
    lines += [
        f"  %from = mul i64 {cut}, %step", "  %left = sub i64 %inner, %from",
        "  %len = call i64 @llvm.umin.i64(i64 %left, i64 %step)",
    ]


NEXT = """  br label %next
next:
  %u.next = add i64 %u, 1
  %again = icmp ult i64 %u.next, %end
  br i1 %again, label %unit, label %exit
exit:
"""
