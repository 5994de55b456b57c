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
WIDE_BYTES = 192 << 10  # of all rows of a block that meet a wide matrix: they stay in the second level
WIDE_ROWS = 256  # of such a block; a fourth of all rows at most, for threads to share
TALL_BYTES = 256 << 10  # of all rows of a block with a matrix that lies column by column: so do these
TALL_ROWS = 128, 4096  # of such a block
LONG_BYTES, LONG_ROWS = 4 << 20, 96  # of long rows: so many of them, while they stay in the third
WIDE_LEAST = 16  # rows that a panel of the matrix has to meet
PACKED_BYTES = 768 << 10  # of all rows of such a block, if panels are made once: lower ones do, too
PACKED_ROWS = 4 * WIDE_LEAST  # from so many rows on a matrix is copied into panels once,
MAX_PANELS = 32 << 20  # if these take no more bytes
PANEL_BYTES = 192  # of a panel's rows at most
WINDOWS, LEAST_WINDOWS = 16, 8  # blocks for threads to share, where rows are many; of fewer there is no use
MOST_KEPT = 8 << 20  # bytes that lie between stages: more is no longer near
WINDOW_BYTES = 512 << 10  # of all rows of a block with a window that slides: they stay in the second level
MAX_UNITS = 64  # so many partial results at most, whatever the number of threads
UNIT_BYTES = 256 << 10  # of all rows of a unit at least,
SHARE = 8  # and so many times what a unit adds up or copies before it begins
STREAMED = 32 << 20  # results this large are written around the caches

#: What a stage's operand is: `OPERAND` of the row kernel number `value`, which moves `step` bytes per
#: block of rows (scalars and what all rows read move 0), from byte `other` on; `ROOM`, `value` bytes
#: into the thread's memory; `PARTIAL`, what the unit has added up of result number `value`, at `other`
#: of its partial results; `SHARED`, `value` bytes into memory that all threads read.
OPERAND, ROOM, PARTIAL, SHARED = range(4)
#: When a stage is run: on every block of rows, on the first one of every unit, once by one of the threads,
#: before all others.
ALWAYS, OPENING, BEFORE = range(3)
PACKED, PACKS = 1, 2  # what is done with panels


def panels_bytes(matrix: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes that a matrix takes in panels at most, the last of which may not be full."""
    depth, columns = matrix
    return depth * (columns * itemsize + PANEL_BYTES) + 2 * PANEL_BYTES


def packs_once(rows: int, nbytes: int) -> bool:
    """Tell whether matrices that all of `rows` rows meet are copied into panels, of so many bytes, once."""
    return 0 < nbytes <= MAX_PANELS and rows >= PACKED_ROWS


def block_height(
    row_bytes: int, rows: int, wide: bool = False, turns: bool = False, packed: bool = False,
    columnwise: bool = False,
) -> int:
    """Return how many of `rows` rows, of so many bytes in all values together, make a block.

    It is `wide` if its rows meet more vectors than stay in registers, all of them `packed` if these lie in
    panels; with `turns` blocks are added up one after the other; `columnwise` if a matrix lies so.
    """
    height = max(BLOCK_BYTES // max(row_bytes, 1), LEAST_HEIGHT)
    if turns:
        height = max(min(TURN_BYTES // max(row_bytes, 1), rows // TURNS), height)
    if columnwise:
        height = min(max(TALL_BYTES // max(row_bytes, 1), TALL_ROWS[0]), TALL_ROWS[1])
    if wide:
        long = min(LONG_BYTES // max(row_bytes, 1), LONG_ROWS)
        height = max(WIDE_BYTES // max(row_bytes, 1), long, WIDE_LEAST)
        if packed:
            height = max(PACKED_BYTES // max(row_bytes, 1), WIDE_LEAST)
        height = min(height, WIDE_ROWS, max(rows // 4, WIDE_LEAST))
    return min((height + LEAST_HEIGHT // 2) // LEAST_HEIGHT * LEAST_HEIGHT, rows)


def window_height(row_bytes: int, rows: int, ahead: int) -> int:
    """Return how many of `rows` rows make a block whose stages are read up to `ahead` rows further on."""
    height = WINDOW_BYTES // max(row_bytes, 1)
    if row_bytes * rows > WINDOW_BYTES:
        height = min(height, rows // WINDOWS)
    least = LEAST_HEIGHT if row_bytes <= WINDOW_BYTES else 1
    return min(max(height & -LEAST_HEIGHT, least, 2 * ahead), rows)


def has_windows(row_bytes: int, kept_bytes: int, rows: int, ahead: int) -> bool:
    """Tell whether rows are many enough to be shared out in such blocks, and what a block keeps is small."""
    height = window_height(row_bytes, rows, ahead)
    shared = row_bytes * rows <= WINDOW_BYTES or rows >= LEAST_WINDOWS * height
    return shared and kept_bytes * (height + ahead) <= MOST_KEPT


def blocks_per_unit(blocks: int, block_bytes: int, aside: int) -> int:
    """Return how many blocks make a unit, which adds up or copies `aside` bytes of its own.

    Units are nearly alike, so that threads end together. It must not depend on the number of threads.
    """
    least = max(UNIT_BYTES, SHARE * aside) // block_bytes
    units = -(-blocks // min(max(-(-blocks // MAX_UNITS), least, 1), blocks))
    return -(-blocks // units)


class Place(NamedTuple):
    """Where a stage finds one of its operands."""

    kind: int
    value: int
    step: int = 0
    other: int = 0


class Stage(NamedTuple):
    """A kernel on one block of rows: its block for whole ones, for the last one, and its operands.

    `once` says when it is run: those that are run before all others come first. With `first`, its block for
    the first rows of all, it goes on from what earlier rows came to: it is run in turn, as all behind it are.
    """

    whole: bytes
    last: bytes
    places: tuple[Place, ...]
    once: int = ALWAYS
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


class Shares(NamedTuple):
    """Operand number `starts` - 1, of so many bytes each, says where the entries of `rows` rows begin.

    Units of blocks of `height` rows have about as many entries; 0 if there are none.
    """

    starts: int = 0
    itemsize: int = 0
    height: int = 0
    rows: int = 0


class Cut(NamedTuple):
    """How rows are shared out: blocks of rows, how many make a unit, memory slots and their bytes.

    `spare` is where in a slot the stages' own scratch memory begins. All threads have `shared` bytes.
    """

    blocks: int
    per_unit: int
    slots: int
    room: int
    spare: int
    part: int
    shared: int = 0
    shares: Shares = Shares()

    @property
    def units(self) -> int:
        """Number of units."""
        return -(-self.blocks // self.per_unit)


class Tile(NamedTuple):
    """A product of a block of rows with a matrix: sizes, and bytes between neighbours.

    Of the rows `step` and `along` them, of the matrix `down` and `across`, and between rows of results,
    whose columns lie in one run. With `adds` results are added to what is there; with `upper` those far
    below the diagonal are left out. If `panels` is `PACKED`, the columns of the matrix lie in panels, one
    behind the other; if it is `PACKS`, only these are made, where the results would lie. A `cold` matrix
    lies in memory, not in the cache.
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
    panels: int = 0
    cold: int = 0


class Entries(NamedTuple):
    """A product of compressed rows: how many, their columns, `total` entries, `depth` vectors at once."""

    rows: int
    width: int
    total: int
    depth: int


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
