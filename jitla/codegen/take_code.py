"""Elements or rows of a table that indices name, as IR.

Knows: sizes of elements, kinds of indices. Must not know: arrays, how many threads there are.
Receives sizes and dtypes; returns modules with the entry @k.

A block of indices is looked at before it is used: where none is negative or beyond the end, elements
are copied without another look. Operands: table, indices, result, and a word that is set to 1 where an
index names nothing.
"""

from __future__ import annotations

import numpy as np

from jitla.codegen.indexing_code import (
    ENTRY,
    bits_of,
    block_head,
    by_blocks,
    function,
    near_place,
    over_units,
    turns,
    within,
    wrapped,
)

__all__ = ["TAKE_UNIT", "places_text", "take_rows_text", "take_text"]

TAKE_UNIT = 1 << 14  # indices of one unit
_ARGS = "ptr %table, ptr %index, ptr %out, i64 %length, i64 %size"
_TURN = 8  # elements of one turn of the loop
_HEAD = block_head(("table", "index", "out", "fault"), ("length", "most", "total", "size"))


def take_text(itemsize: int, index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for elements of `itemsize` bytes: a power of two, at most 16."""
    element, align = f"i{8 * itemsize}", min(itemsize, 8)

    def copied(tag: str, at: str, place: str) -> str:
        return (f"  %p{tag} = getelementptr {element}, ptr %table, i64 {place}\n"
                f"  %x{tag} = load {element}, ptr %p{tag}, align {align}\n"
                f"  %q{tag} = getelementptr {element}, ptr %out, i64 {at}\n"
                f"  store {element} %x{tag}, ptr %q{tag}, align {align}\n")

    def step(tag: str, at: str, turn: int) -> str:
        return near_place(tag, at, index) + copied(tag, at, f"%w{tag}")

    fast = function(f"@fast({_ARGS}, i64 %from, i64 %to)", step, _TURN)
    slow = wrapped(_ARGS, index, copied("c", "%i", "%place"))
    return _module(fast + slow, index, triple, vector_bytes)


def take_rows_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module for rows of any number of bytes."""
    def copied(tag: str, at: str, place: str) -> str:
        return (f"  %skip{tag} = mul i64 {place}, %size\n"
                f"  %p{tag} = getelementptr i8, ptr %table, i64 %skip{tag}\n"
                f"  %into{tag} = mul i64 {at}, %size\n"
                f"  %q{tag} = getelementptr i8, ptr %out, i64 %into{tag}\n"
                f"  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %q{tag}, ptr align 1 %p{tag}, i64 %size, "
                "i1 false)\n")

    def step(tag: str, at: str, turn: int) -> str:
        return near_place(tag, at, index) + copied(tag, at, f"%w{tag}")

    fast = function(f"@fast({_ARGS}, i64 %from, i64 %to)", step, 1)
    slow = wrapped(_ARGS, index, copied("c", "%i", "%place"))
    declared = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
    return _module(declared + fast + slow, index, triple, vector_bytes)


def places_text(index: np.dtype, triple: str, vector_bytes: int) -> str:
    """Return the module that writes which elements of the table are meant, from 0 on, as 32 bits."""
    kind, lanes = f"i{bits_of(index)}", 2 * vector_bytes // index.itemsize
    step = {8: "trunc", 4: "bitcast"}.get(index.itemsize, "zext")

    def narrowed(tag: str, at: str, of: str, to: str) -> str:
        return (f"  %p{tag} = getelementptr {kind}, ptr %index, i64 {at}\n"
                f"  %x{tag} = load {of}, ptr %p{tag}, align {index.itemsize}\n"
                f"  %y{tag} = {step} {of} %x{tag} to {to}\n"
                f"  %q{tag} = getelementptr i32, ptr %out, i64 {at}\n"
                f"  store {to} %y{tag}, ptr %q{tag}, align 4\n")

    loop = turns(("%from", "%to"), ("entry", "done"), lanes,
                 narrowed("v", "%i", f"<{lanes} x {kind}>", f"<{lanes} x i32>"),
                 narrowed("s", "%j", kind, "i32"))
    fast = f"""define internal void @fast({_ARGS}, i64 %from, i64 %to) nounwind {{
entry:
{loop}done:
  ret void
}}
"""
    slow = wrapped(_ARGS, index, """  %near = trunc i64 %place to i32
  %q = getelementptr i32, ptr %out, i64 %i
  store i32 %near, ptr %q, align 4
""")
    return _module(fast + slow, index, triple, vector_bytes)


def _module(functions: str, index: np.dtype, triple: str, vector_bytes: int) -> str:
    body = by_blocks(_ARGS, slow=True)
    return (f'target triple = "{triple}"\n{within(index, vector_bytes)}{functions}'
            f"{ENTRY}{_HEAD}{over_units(body, TAKE_UNIT)}")
