"""The LLVM backend: supported operators, machine code of kernels, and arguments that launch them.

A compiled kernel is run by the native launcher, which splits it into units of work for the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla.codegen.jit import (
    Jit,
    Library,
    ObjectCache,
)
from jitla.codegen.kernel_abi import (
    BLOCK,
    KernelLoop,
    column_step,
    geometry_words,
    hints,
    is_tiled,
    kind_of,
    lay_out,
    pack_block,
    tile_sizes,
)
from jitla.codegen.kernels.reduce_axis import (
    reduces_by_row_blocks,
    row_block_stages,
    touch_text,
)
from jitla.codegen.kernels.row import pack_rows, rows_text
from jitla.codegen.kernels.tally import RING_WORDS
from jitla.codegen.matmul.packing import pack_product
from jitla.codegen.native.loader import load_native
from jitla.codegen.target import Target
from jitla.fusion import (
    Blocking,
    BlockStage,
    Combine,
    Form,
    Geometry,
    Kernel,
    Pairs,
    Schedule,
    SparseProduct,
    Tile,
    structure_key,
)
from jitla.hops import Hop, Kind
from jitla.process.loading import lazy_functions
from jitla.runtime import threads as runtime_threads

if TYPE_CHECKING:
    from jitla.codegen.csr_kernels import csr_text, specialised_columns
    from jitla.codegen.indexing.kernels import IndexThresholds, Located
    from jitla.codegen.kernels.cell import band_units
    from jitla.codegen.kernels.tally import tally_units
    from jitla.codegen.loopir import CompiledNest
    from jitla.codegen.matmul.matvec import product_text
    from jitla.codegen.matmul.narrow import (
        lies,
        pack_pairs,
        pairs_text,
    )
    from jitla.codegen.matmul.wide import (
        pack_wide,
        wide_text,
    )
    from jitla.codegen.module import kernel_text, reason_of
    from jitla.codegen.sparse_kernels import SparseThresholds, Stored, pack_entries
    from jitla.loopir import Nest
else:  # what writes texts is loaded where machine code is not kept, the rest where it is asked for
    csr_text, specialised_columns = lazy_functions("jitla.codegen.csr_kernels", "csr_text",
                                                   "specialised_columns")
    lies, pack_pairs, pairs_text = lazy_functions("jitla.codegen.matmul.narrow", "lies", "pack_pairs",
                                                  "pairs_text")
    pack_wide, wide_text = lazy_functions("jitla.codegen.matmul.wide", "pack_wide", "wide_text")
    [pack_entries] = lazy_functions("jitla.codegen.sparse_kernels", "pack_entries")
    [band_units] = lazy_functions("jitla.codegen.kernels.cell", "band_units")
    [Located] = lazy_functions("jitla.codegen.indexing.kernels", "Located")
    [kernel_text] = lazy_functions("jitla.codegen.module", "kernel_text")
    [CompiledNest] = lazy_functions("jitla.codegen.loopir", "CompiledNest")
    [product_text] = lazy_functions("jitla.codegen.matmul.matvec", "product_text")
    [reason_of] = lazy_functions("jitla.codegen.module", "reason_of")
    [Stored] = lazy_functions("jitla.codegen.sparse_kernels", "Stored")
    [tally_units] = lazy_functions("jitla.codegen.kernels.tally", "tally_units")

SUBTREE = 16_384  # elements of the smallest part of a sum that is a unit of its own
BATCH_BYTES = 16_384  # of rows that are run through before the columns that are no whole vector
SERIAL_NS = 12_000  # below this estimate a kernel runs on the caller, where nothing was measured
BYTES_PER_NS = 40.0  # in the outer caches: too high a rate for memory only wakes workers later
CHUNKS = 4  # per worker, for uneven work
BLOCKING_NS = 5_000  # from here on other Python threads may run meanwhile
MAX_REASONS = 4096  # kinds of operators that are known to be supported, or not
NS_PER_CELL, NS_PER_TRANSCENDENTAL = 0.05, 1.0


def estimated_ns(kernel: Kernel, elements: int) -> float:
    """Estimate one thread's time for `elements` of `kernel`."""
    moved = sum(h.meta.dtype.itemsize for h in (*kernel.inputs, *kernel.outputs) if h.meta.shape)
    work = sum(
        NS_PER_TRANSCENDENTAL if h.op.transcendental or h.op.kind is Kind.TALLY else NS_PER_CELL
        for h in kernel.body)
    return elements * max(moved / BYTES_PER_NS, work)


class LlvmExecutable:
    """A loaded kernel; `object` is the machine code of its first part.

    Its blocks hold addresses of that code: they must not outlive it.
    """

    def __init__(
        self, loop: KernelLoop, library: Library, threads: int, serial_ns: float,
        in_turn: Callable[[KernelLoop, Geometry, int, int, float], bytes],
    ) -> None:
        self.object = library.objects[0]
        self._loop = loop
        self._library = library
        self._threads = threads
        self._serial_ns = serial_ns
        self._in_turn = in_turn
        self._entry = library.addresses["k"]
        self._finish = library.addresses.get("fin", 0)

    @property
    def text(self) -> str:
        """The IR that it was made of."""
        return self._library.text

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        """Return the argument block for `geometry`, everything filled in but the operands."""
        nanoseconds = estimated_ns(self._loop.kernel, prod(geometry.dims))
        workers = self._workers(nanoseconds)
        if workers > 1 and not more and reduces_by_row_blocks(self._loop, geometry):
            return self._in_turn(self._loop, geometry, self._entry, self._threads, nanoseconds)
        units, head, scratch = _units(self._loop, geometry, workers)
        grain = max(1, units if workers == 1 else -(-units // (CHUNKS * workers)))
        flags = hints(nanoseconds, nanoseconds > BLOCKING_NS, self._threads)
        words = geometry_words(self._loop, geometry, head, more)
        if self._loop.form.mode == "tally":
            words += [0] * RING_WORDS
            grain = 1 if workers > 1 else grain  # units are begun in their order
        return pack_block(self._loop, self._entry, self._finish, (units, grain, scratch), flags, words)

    def scratch(self, geometry: Geometry) -> int:
        """Return the bytes that a run takes beside its results."""
        workers = self._workers(estimated_ns(self._loop.kernel, prod(geometry.dims)))
        return _units(self._loop, geometry, workers)[2]

    def _workers(self, nanoseconds: float) -> int:
        """Return how many threads share a run that is estimated to take so long."""
        return 1 if nanoseconds < self._serial_ns else self._threads or runtime_threads()


def _units(
    loop: KernelLoop, geometry: Geometry, workers: int
) -> tuple[int, tuple[int, ...], int]:
    """Return the number of units, the first geometry words and the bytes of scratch.

    Only "cols" may look at the number of `workers`: its columns do not meet.
    """
    mode, dims = loop.form.mode, geometry.dims
    inner = dims[-1]
    if loop.schedule.delayed:
        return band_units(loop, geometry, 1 if workers == 1 else CHUNKS * workers)
    if mode == "tally":
        return tally_units(loop, geometry, workers)
    if mode == "full":
        total = prod(dims)
        depth = max(0, (total // SUBTREE).bit_length() - 1)
        scratch = loop.slot * len(loop.aggregates) << depth
        return 1 << depth, (total, max(inner, 1), 1, depth, 0), scratch
    if mode == "rows":
        return prod(dims[:-1]), (inner, inner, 1, 0, 0), 0
    if mode == "cols":
        step = column_step(inner, workers, _itemsize(loop))
        blocks = -(-inner // step)
        batch = max(8, BATCH_BYTES // max(_itemsize(loop) * step, 1) & -8)
        return prod(dims[1:-1]) * blocks, (inner, step, blocks, batch, dims[0]), 0
    if is_tiled(loop):
        step, high, narrow = tile_sizes(loop, geometry)
        blocks, strips = -(-inner // step), -(-dims[-2] // high)
        return prod(dims[:-2]) * strips * blocks, (inner, step, blocks, narrow, high), 0
    step = BLOCK if inner >= 2 * BLOCK else max(inner, 1)
    blocks = -(-inner // step)
    return prod(dims[:-1]) * blocks, (inner, step, blocks, 0, 0), 0


def _itemsize(loop: KernelLoop) -> int:
    """Return the bytes of an element of the widest array that is read."""
    return max((o.dtype.itemsize for o in loop.operands if o.role == "in" and o.letter != "v"), default=1)


class LlvmBackend:
    """Kernels through LLVM; `launch` runs argument blocks, on up to `threads` threads.

    Without `launch` the native run time is loaded on first use; without `threads` it
    is asked for theirs.
    `objects` maps content keys to machine code; `shelf` returns what keeps it from process to process,
    `writers` who writes the texts that it is made of.
    `target` is the host unless given. Kernels estimated to take less than `serial_ns` are not shared.
    """

    name = "llvm"
    templates: tuple[str, ...] = ("Cell", "MAgg", "Tally", "Row")

    def __init__(
        self, launch: Callable[..., int] | None = None, threads: int | None = None,
        objects: dict[str, bytes] | None = None, target: Target | None = None,
        shelf: Callable[[], ObjectCache | None] = lambda: None, writers: Callable[[], str] | None = None,
    ) -> None:
        self._launch = launch
        self._threads = threads
        self._shelf = shelf
        self._writers = writers
        self.jit = Jit(objects, target=target, shelf=shelf, writers=writers)
        self.serial_ns: float = SERIAL_NS
        self._rows: Library | None = None
        self._touch: Library | None = None
        self._reasons: dict[Hashable, str | None] = {}

    @property
    def launch(self) -> Callable[..., int]:
        """Run a kernel: `launch(template, *operands)`."""
        if self._launch is None:
            # a JIT of its own: it lives for ever, and its code gains nothing from optimisation
            prefix = f'target triple = "{self.jit.target.triple}"\n'
            self._launch = load_native(
                Jit(self.jit.objects, 0, self.jit.target, self._shelf, self._writers).load, prefix)
        return self._launch

    def supports(self, hop: Hop) -> str | None:
        """Return None if `hop` can be in a kernel's body, else the reason why not."""
        key = (hop.op, hop.meta.dtype, *[(i.meta.dtype, i.meta.ndim) for i in hop.inputs],
               *[(name, type(value), value) for name, value in hop.attrs])
        found = self._reasons.get(key, "")
        if found == "":
            if len(self._reasons) >= MAX_REASONS:
                self._reasons.clear()
            found = self._reasons[key] = reason_of(hop)
        return found

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> LlvmExecutable:
        """Return machine code for `kernel` in layout `form`."""
        loop = lay_out(kernel, form, schedule, self.jit.target)
        names = ("k", "fin") if form.mode == "full" or schedule.delayed else ("k",)
        words = structure_key(kernel), form, schedule, loop.lanes, [
            (o.role, o.letter, o.dtype.str) for o in loop.operands]
        library = self.jit.load(lambda: kernel_text(loop), names, words)
        threads = schedule.threads or self._threads or 0
        return LlvmExecutable(loop, library, threads, self.serial_ns, self._turned)

    def nest(
        self, nest: Nest, threads: int = 0, serial_ns: float | None = None,
        steps: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> CompiledNest:
        """Return machine code for a loop nest, run on up to `threads` threads; 0: as is usual.

        `steps` are strides, of inputs and outputs that do not lie in one run.
        """
        least = self.serial_ns if serial_ns is None else serial_ns
        return CompiledNest(nest, self.jit, self.launch, threads or self._threads or 0, least, steps)

    def assembly(self, text: str) -> str:
        """Return the assembly language that `text` of a kernel is compiled to here."""
        return self.jit.assembly(text)

    def _turned(
        self, loop: KernelLoop, geometry: Geometry, entry: int, threads: int, nanoseconds: float
    ) -> bytes:
        """Return the argument block of the kernel at `entry` whose threads take turns."""
        if self._touch is None:
            self._touch = self.jit.load(lambda: touch_text(self.jit.target.triple), ("k",), ("touch",))
        head = _units(loop, geometry, 1)[1]
        stages, cut = row_block_stages(loop, geometry, head, (self._touch.addresses["k"], entry))
        scalars = [op.dtype if op.letter == "v" else None for op in loop.operands]
        return self.rows(scalars, stages, (), cut, threads, nanoseconds)

    def indexed(
        self, threads: int, ordered: bool = False, thresholds: IndexThresholds | None = None,
    ) -> Located:
        """Return what reads and adds up where indices say, on up to `threads` threads; 0: as is usual.

        If `ordered`, floats are always added in NumPy's order.
        """
        return Located(self.jit, self.launch, threads or self._threads or 0, ordered, thresholds)

    def stored(self, threads: int, thresholds: SparseThresholds | None = None) -> Stored:
        """Return the operators at stored positions, on up to `threads` threads; 0: as is usual."""
        return Stored(self.jit, self.launch, threads or self._threads or 0, thresholds)

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return what makes the argument block of a product: rows, their length, bytes apart."""
        how = form, dtype, columns
        library = self.jit.load(lambda: product_text(*how, self.jit.target), ("k",), ("product", *how))
        return _Blocks(library, pack_product)

    def wide(self, dtype: np.dtype, fetches: bool = False) -> Callable[[Tile], bytes]:
        """Return what makes the argument block of a product with a wide matrix; it `fetches` rows."""
        target = self.jit.target
        library = self.jit.load(lambda: wide_text(dtype, target, fetches), ("k",), ("wide", dtype, fetches))
        return _Blocks(library, partial(pack_wide, itemsize=dtype.itemsize, vector_bytes=target.vector_bytes))

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return what makes the argument block of products of small matrices that lie like `pairs`."""
        m, k, n = pairs.sizes
        letters = lies(pairs.left[2:], (m, k), dtype.itemsize) + lies(pairs.right[2:], (k, n), dtype.itemsize)
        how = dtype, pairs.sizes, letters
        library = self.jit.load(lambda: pairs_text(*how, self.jit.target), ("k",), ("pairs", *how))
        return _Blocks(library, pack_pairs)

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return what makes the argument block of a product over compressed rows with some `columns`."""
        name = form if columns < 2 else f"{form}s"
        how = name, dtype, index
        held = specialised_columns(columns, dtype)
        library = self.jit.load(
            lambda: csr_text(*how, self.jit.target, held), ("k", "stage"), ("compressed", *how, held))
        return _Blocks(library, partial(pack_entries, index=index), "stage")

    def rows(
        self, scalars: Sequence[np.dtype | None], stages: Sequence[BlockStage],
        combines: Sequence[Combine], cut: Blocking, threads: int, nanoseconds: float,
    ) -> bytes:
        """Return the argument block that runs `stages` on blocks of rows; `scalars`: their dtypes among
        the operands, None for arrays.
        """
        if self._rows is None:
            self._rows = self.jit.load(lambda: rows_text(self.jit.target.triple), ("k", "fin"), ("rows",))
        several = threads or self._threads or runtime_threads()
        workers = 1 if nanoseconds < self.serial_ns else several
        cut = cut._replace(slots=max(1, min(workers, cut.units)))
        grain = cut.units if workers == 1 else 1
        if any(s.first for s in stages):
            threads = cut.slots  # one that waits for its turn keeps a slot: none may lack one meanwhile
        flags = hints(nanoseconds, nanoseconds > BLOCKING_NS, threads)
        at = self._rows.addresses
        return pack_rows(at["k"], at["fin"], [*map(kind_of, scalars)], stages, combines, cut, grain, flags)


class _Blocks:
    """Argument blocks of products of one kind, from their sizes; their code lives as long."""

    def __init__(self, library: Library, pack: Callable[..., bytes], entry: str = "k") -> None:
        self._library = library
        self._pack = pack
        self._entry = entry

    @property
    def text(self) -> str:
        """The IR that the code was made of."""
        return self._library.text

    def __call__(self, *sizes: Any) -> bytes:
        return self._pack(self._library.addresses[self._entry], *sizes)
