"""The linear tape: what one block of traced operations did, and its way to hops.

Knows: entries, operand codes, how entries become hops and size-free keys.
Must not know: proxies' lifetimes, frames, NumPy dispatch. Receives entries; returns hops, keys, recipes.

An entry is a tuple of ints: ``(LEAF, layout)``, ``(SCALAR, kind)`` or ``(op, operand, ..., [attrs])``.
A scalar whose value is part of the plan is ``(SCALAR, kind, value)``.
An operand >= 0 is the index of an earlier entry; an operand < 0 is a scalar given on the spot, coded
by its type, whose value is the next one in the list of scalars. `attrs` is a tuple of sorted pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jitla.hops import Hop, Kind, Meta, OpSpec, Weak, all_ops, apply, const, leaf
from jitla.locks import relock
from jitla.tracing.places import Places
from jitla.tracing.signature import LAYOUTS, LEAF_OP, METAS, Symbols, meta_id

LEAF = LEAF_OP
SCALAR = 1

# Entries of the op table that are made later follow.
OPS: list[str] = ["<leaf>", "<scalar>", *(op.name for op in all_ops() if op.kind is not Kind.LEAF)]
# For each op: whether it is element-wise.
CELLS: list[bool] = [
    False, False, *(op.kind is Kind.CELL for op in all_ops() if op.kind is not Kind.LEAF)]
OP_ID: dict[str, int] = {name: i for i, name in enumerate(OPS)}
_lock = relock()

# Operand codes of scalars: Python kinds are weak, NumPy kinds have their dtype.
WEAK: tuple[type, ...] = (float, int, bool, complex)
STRONG: tuple[type, ...] = tuple(
    np.dtype(c).type for c in "?bhilBHILfdFD"
)
KIND_CODE: dict[type, int] = {t: -1 - k for k, t in enumerate((*WEAK, *STRONG))}
CODE_KIND: tuple[type, ...] = (*WEAK, *STRONG)
# Operand code of a strong scalar -> its meta id.
SCALAR_META = {KIND_CODE[t]: meta_id((), np.dtype(t)) for t in STRONG}

# The ids above belong to the process; those of sizes that users bring may be forgotten.
OWN_METAS = len(METAS)

Entry = tuple[Any, ...]


class Block(NamedTuple):
    """A closed stretch of tape: entries, the meta of each, leaf arrays and scalars in slot order."""

    entries: tuple[Entry, ...]
    metas: tuple[int, ...]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any]
    # Where entries come from in this call, if it was noted.
    places: Places = Places()
    # The hops of the entries, once they were asked for; a block that is kept keeps none.
    hops: list[Hop] | None = None
    # Scalars, by number, whose values are part of the plan.
    fixed: dict[int, Any] = {}


def hops_of(block: Block) -> list[Hop]:
    """Return the hop of every entry of `block`, in tape order."""
    if block.hops:
        return block.hops
    made: list[Hop] = []
    array_slot = 0
    scalar_slot = len(block.leaves)
    for index, entry in enumerate(block.entries):
        line = block.lines.get(index)
        op = entry[0]
        if op == LEAF:
            made.append(leaf(array_slot, METAS[LAYOUTS[entry[1]].meta], "array", line))
            array_slot += 1
        elif op == SCALAR:
            dtype = np.dtype(CODE_KIND[-1 - entry[1]])
            known = len(entry) == 3
            made.append(const(entry[2], dtype, line) if known
                        else leaf(scalar_slot, Meta((), dtype), "scalar", line))
            scalar_slot += 1
        else:
            refs, attrs = split(entry)
            operands: list[Hop | Weak] = []
            for ref in refs:
                if ref >= 0:
                    operands.append(made[ref])
                else:
                    value = block.fixed.get(scalar_slot - len(block.leaves))
                    operands.append(scalar_operand(ref, scalar_slot, line, value))
                    scalar_slot += 1
            made.append(apply(OPS[op], *operands, line=line, **{k: v for k, v in attrs if k != "within"}))
    if block.hops is not None:
        block.hops.extend(made)
    return made


def scalar_operand(code: int, slot: int, line: Any = None, value: Any = None) -> Hop | Weak:
    """Return the operand for a scalar of operand code `code` at leaf position `slot`, of a value if known."""
    kind = CODE_KIND[-1 - code]
    if kind in WEAK:
        return Weak(slot, kind, value)
    return leaf(slot, Meta((), np.dtype(kind)), "scalar", line)


def enroll(op: OpSpec) -> int:
    """Return the number of an element-wise operator, which may be new in the op table."""
    with _lock:
        if op.name not in OP_ID:
            CELLS.append(True)
            OPS.append(op.name)
            OP_ID[op.name] = len(OPS) - 1
        return OP_ID[op.name]


def split(entry: Entry) -> tuple[tuple[int, ...], tuple[tuple[str, Any], ...]]:
    """Return operand codes and attributes of an operator entry."""
    if type(entry[-1]) is tuple:
        return entry[1:-1], entry[-1]
    return entry[1:], ()


def scalars_of(entries: list[Entry]) -> int:
    """Return how many scalars entries have."""
    return sum(1 if e[0] == SCALAR else sum(r < 0 for r in split(e)[0]) if e[0] > SCALAR else 0
               for e in entries)


def readers(entries: tuple[Entry, ...], slots: set[int]) -> list[bool]:
    """Say for each entry whether its value depends on a leaf array in `slots`."""
    result: list[bool] = []
    slot = 0
    for entry in entries:
        if entry[0] == LEAF:
            result.append(slot in slots)
            slot += 1
        elif entry[0] == SCALAR:
            result.append(False)
        else:
            result.append(any(r >= 0 and result[r] for r in split(entry)[0]))
    return result


def excerpt(block: Block, index: int) -> tuple[Block, tuple[int, ...], tuple[int, ...]]:
    """Return the block of entry `index`, its last, and what that reads; which leaves and scalars it has."""
    wanted = set(cone(block.entries, index))
    moved: dict[int, int] = {}
    entries: list[Entry] = []
    leaves: list[int] = []
    scalars: list[int] = []
    leaf = scalar = 0
    for i, entry in enumerate(block.entries):
        refs, attrs = split(entry) if entry[0] > SCALAR else ((), ())
        count = 1 if entry[0] == SCALAR else sum(r < 0 for r in refs)
        if i in wanted:
            moved[i] = len(entries)
            if entry[0] > SCALAR:
                entry = (entry[0], *(moved.get(r, r) for r in refs), *((attrs,) if attrs else ()))
            entries.append(entry)
            leaves += [leaf] if entry[0] == LEAF else []
            scalars += range(scalar, scalar + count)
        leaf += entry[0] == LEAF
        scalar += count
    lines = {new: block.lines[old] for old, new in moved.items() if old in block.lines}
    made = Block(
        tuple(entries), tuple(block.metas[i] for i in moved), [block.leaves[k] for k in leaves],
        [block.scalars[k] for k in scalars], lines)
    return made, tuple(leaves), tuple(scalars)


def class_key(block: Block, *rest: Any) -> tuple[tuple, tuple[int, ...]]:
    """Return the size-free key of `block` plus `rest`, and the sizes of its symbols.

    Two blocks with one key differ only in sizes that are neither 0 nor 1 and in strides within one
    layout class; equal sizes in one are equal in the other.
    """
    symbols = Symbols()
    keyed: list[Any] = []
    for entry, meta in zip(block.entries, block.metas, strict=True):
        shape = symbols.of(METAS[meta].shape)
        if entry[0] == LEAF:
            layout = LAYOUTS[entry[1]]
            keyed.append((LEAF, METAS[meta].dtype.char, shape, layout.group))
        elif type(entry[-1]) is tuple and entry[-1] and entry[-1][0][0] == "shape":
            # A whole shape as attribute is derived from sizes: the node's own shape stands for it.
            keyed.append((*entry[:-1], shape))
        else:
            keyed.append((entry, shape))
    keyed += [(number, repr(value)) for number, value in block.fixed.items()]
    return (tuple(keyed), *rest), symbols.sizes


class Recipe(NamedTuple):
    """How to compute values of a closed block that were not written to memory."""

    block: Block


def cone(entries: tuple[Entry, ...], index: int) -> list[int]:
    """Return the indices of the entries that entry `index` depends on, itself included, ascending."""
    wanted = {index}
    for i in range(index, -1, -1):
        if i in wanted and entries[i][0] > SCALAR:
            wanted.update(r for r in split(entries[i])[0] if r >= 0)
    return sorted(wanted)
