"""How a row kernel is run: stages on blocks of rows, where each finds its operands.

Knows: argument blocks as bytes. Must not know: what is in them, backends.
Receives nothing; recompile fills these records in, backends read them.
"""

from __future__ import annotations

from typing import NamedTuple

BLOCK_BYTES = 24 << 10  # of all rows of a block: they stay in the first-level cache
LEAST_HEIGHT = 8  # rows of a block, however long they are
TURN_BYTES = 256 << 10  # of all rows of a block, if threads take turns at its end: they stay in the second
TURNS = 8  # such blocks at least, for threads to share
WIDE_BYTES = 384 << 10  # of all rows of a block that meet a wide matrix: they stay in the second level
WIDE_ROWS = 256  # of such a block; a fourth of all rows at most, for threads to share
LONG_BYTES, LONG_ROWS = 4 << 20, 96  # of long rows: so many of them, while they stay in the third
WIDE_LEAST = 16  # rows that a panel of the matrix has to meet
MAX_UNITS = 64  # so many partial results at most, whatever the number of threads
UNIT_BYTES = 256 << 10  # of all rows of a unit at least,
SHARE = 8  # and so many times what a unit adds up or copies before it begins

#: What a stage's operand is: `OPERAND` of the row kernel number `value`, which moves `step` bytes per
#: block of rows (scalars and what all rows read move 0), from byte `other` on; `ROOM`, `value` bytes
#: into the thread's memory; `PARTIAL`, what the unit has added up of result number `value`, at `other`
#: of its partial results.
OPERAND, ROOM, PARTIAL = range(3)


def block_height(row_bytes: int, rows: int, wide: bool = False, turns: bool = False) -> int:
    """Return how many of `rows` rows, of so many bytes in all values together, make a block.

    It is `wide` if its rows meet more vectors than stay in registers; with `turns` blocks are added up
    one after the other.
    """
    height = max(BLOCK_BYTES // max(row_bytes, 1), LEAST_HEIGHT)
    if turns:
        height = max(min(TURN_BYTES // max(row_bytes, 1), rows // TURNS), height)
    if wide:
        long = min(LONG_BYTES // max(row_bytes, 1), LONG_ROWS)
        height = max(WIDE_BYTES // max(row_bytes, 1), long, WIDE_LEAST)
        height = min(height, WIDE_ROWS, max(rows // 4, WIDE_LEAST))
    return min((height + LEAST_HEIGHT // 2) // LEAST_HEIGHT * LEAST_HEIGHT, rows)


def blocks_per_unit(blocks: int, block_bytes: int, aside: int) -> int:
    """Return how many blocks make a unit, which adds up or copies `aside` bytes of its own.

    It must not depend on the number of threads.
    """
    least = max(UNIT_BYTES, SHARE * aside) // block_bytes
    return min(max(-(-blocks // MAX_UNITS), least, 1), blocks)


class Place(NamedTuple):
    """Where a stage finds one of its operands."""

    kind: int
    value: int
    step: int = 0
    other: int = 0


class Stage(NamedTuple):
    """A kernel on one block of rows: its block for whole ones, for the last one, and its operands.

    With `once` it is run in the first block of rows of every unit only. With `first`, its block for the
    first rows of all, it goes on from what earlier rows came to: it is run in turn, as all behind it are.
    """

    whole: bytes
    last: bytes
    places: tuple[Place, ...]
    once: bool = False
    first: bytes = b""


class Combine(NamedTuple):
    """A result added up over rows, of `size` bytes: a unit's begins with zeros, at `offset` of its own.

    `block` is the kernel ``operand = operand + partial``, which makes one of all units'. Of a square
    of so many `mirrored` rows only what is on and above the diagonal is added up; the rest is the same.
    """

    block: bytes
    operand: int
    offset: int
    size: int
    mirrored: int = 0
    itemsize: int = 8


class Cut(NamedTuple):
    """How rows are shared out: blocks of rows, how many make a unit, memory slots and their bytes.

    `spare` is where in a slot the stages' own scratch memory begins.
    """

    blocks: int
    per_unit: int
    slots: int
    room: int
    spare: int
    part: int

    @property
    def units(self) -> int:
        """Number of units."""
        return -(-self.blocks // self.per_unit)


class Tile(NamedTuple):
    """A product of a block of rows with a matrix: sizes, and bytes between neighbours.

    Of the rows `step` and `along` them, of the matrix `down` and `across`, and between rows of results,
    whose columns lie in one run. With `adds` results are added to what is there; with `upper` those far
    below the diagonal are left out.
    """

    rows: int
    depth: int
    columns: int
    step: int
    along: int
    down: int
    across: int
    apart: int
    adds: int = 0
    upper: int = 0


class Pairs(NamedTuple):
    """Products of small matrices, m times k elements with k times n: `outer` times `inner` pairs.

    Bytes between neighbours of the `left` ones, and of the `right` ones: from pair to pair, outer and
    inner, from row to row, and from column to column. Results lie one behind the other.
    """

    outer: int
    inner: int
    sizes: tuple[int, int, int]
    left: tuple[int, int, int, int]
    right: tuple[int, int, int, int]
