"""The compiler: makes programs of blocks, and caches plans and kernels by class and by shape."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import inf, prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from jitla import fusion as planning
from jitla import rewrites
from jitla.compile_stats import MAKING, NothingNew, Reason
from jitla.concurrency import hurry, relock
from jitla.errors import BackendError
from jitla.events import Event, log
from jitla.fusion import (
    Backend,
    Blocking,
    Combine,
    Executable,
    Form,
    Geometry,
    InterpretedBackend,
    InterpretedKernel,
    Kernel,
    Layout,
    Pairs,
    Plan,
    Schedule,
    SparseProduct,
    Stage,
    Tile,
    all_layouts,
)
from jitla.hops import (
    REFERENCE_MACHINE,
    Hop,
    Kind,
    Machine,
    NotSerialisable,
    block_digest,
    is_approximate,
    topo,
)
from jitla.process.loading import later
from jitla.recompile.binding import Misfit
from jitla.recompile.output_buffers import Aliases, Outs
from jitla.recompile.pipeline import Draft, Tools
from jitla.recompile.plan_store import Kept, Shelf, numbers_of, read, written
from jitla.recompile.program import MAX_VARIANTS, Bound, Program, compose, rebuild
from jitla.recompile.schedule_choices import Launch, Made, Nested, Tuning
from jitla.rewrites import SearchBudget
from jitla.runtime import allocator

if TYPE_CHECKING:
    from jitla.loopir import Nest
    from jitla.recompile.offload import Device

__all__ = ["difference"]


# Elements walked in one run: one more than a block of a sum, and than whole vectors of every width. The last
# two dimensions of rows: long ones, those that share vectors, and columns that are added up.
ELEMENTS, ROWS, SHORT, DOWN = 129, (3, 131), (19, 3), (19, 37)
# What functions without an exact result may be off, in units of the last place of the largest; how many of
# the elements by more than that: where a value decides, or is at the border of what is defined.
LOOSE, ODD = 1e5, 0.2


def difference(
    kernel: Kernel, form: Form, schedule: Schedule, executable: Executable, launch: Launch, exact: bool,
) -> str:
    """Return how a compiled kernel differs from what it means; nothing if not, or if nobody looks."""
    known = form.mode in ("cell", "full", "rows", "cols") and not set(form.inner) - set("cbsfr")
    if not known or schedule.delayed:
        return ""
    inputs = [h for h in kernel.inputs if h.op.name != "const"]
    arrays = [h for h in inputs if h.meta.shape != ()] + list(kernel.outputs)
    # What comes from another kernel's aggregate is an array like others.
    modes = [form.mode if h in kernel.body and h.op.kind is Kind.AGG else "cell" for h in arrays]
    for dims in _sizes(form, schedule):
        strides = tuple(_strides(h.meta.dtype.itemsize, letter, dims, mode)
                        for h, letter, mode in zip(arrays, form.inner, modes, strict=True))
        found = _differs(kernel, form, inputs, Geometry(dims, strides), executable, launch, exact)
        if found:
            return found
    return ""


def _sizes(form: Form, schedule: Schedule) -> Iterator[tuple[int, ...]]:
    """Yield sizes to run a kernel of a form for."""
    if form.ndim == 1:
        yield (ELEMENTS,)
    else:
        outer = (2,) * (form.ndim - 2)
        yield (*outer, *(DOWN if form.mode == "cols" else ROWS))
        if schedule.crosswise:
            yield (*outer, *SHORT)


def _strides(size: int, letter: str, dims: tuple[int, ...], mode: str) -> tuple[int, ...]:
    """Return how an operand lies, aggregated as `mode` says or not ("cell"): rows have a gap between them."""
    n = dims[-1]
    if mode == "full":
        return (0,) * len(dims)
    if letter == "r":
        return (*[0] * (len(dims) - 1), size)
    last, row = {"c": (size, (n + 1) * size), "f": (size, n * size), "b": (0, size)}.get(
        letter, (2 * size, (2 * n + 1) * size))
    strides = [row * prod(dims[at:-1]) for at in range(1, len(dims))] + [last]
    if mode == "cols":
        strides[0] = 0
    return tuple(strides)


def _differs(
    kernel: Kernel, form: Form, inputs: list[Hop], geometry: Geometry, executable: Executable, launch: Launch,
    exact: bool,
) -> str:
    """Return how results differ for these sizes."""
    empty = allocator()
    lying = iter(geometry.strides)
    given = [_value(h, at, () if h.meta.shape == () else next(lying), geometry.dims, empty)
             for at, h in enumerate(inputs)]
    room = [_elements(h, strides, geometry.dims) for h, strides in zip(kernel.outputs, lying, strict=True)]
    by_numpy = InterpretedKernel(kernel, form), InterpretedBackend().launch
    wanted, found = (_run(kernel, given, room, what, how, geometry, empty)
                     for what, how in (by_numpy, (executable, launch)))
    smooth = not exact or any(is_approximate(h.op) for h in kernel.body)
    # Rows that are parts of products are added up in another order.
    sums = form.ndim > 1 and any(h.op.kind is Kind.AGG for h in kernel.body)
    units = [float(np.finfo(h.meta.dtype).eps) for h in kernel.body if h.meta.dtype.kind in "fc"]
    unit = max(units, default=0.0)
    for hop, a, b in zip(kernel.outputs, wanted, found, strict=True):
        floats = a.dtype.kind in "fc"
        same = _near(a, b, unit, ODD if smooth else 0.0) if smooth or sums and floats else \
            np.array_equal(a, b, equal_nan=floats)
        if not same:
            return f"{hop.op.name} of {hop.meta.dtype}: {a[:3].tolist()} in NumPy, {b[:3].tolist()} compiled"
    return ""


def _elements(hop: Hop, strides: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return how many elements there are from the first to the last of an operand."""
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)) // hop.meta.dtype.itemsize


def _run(
    kernel: Kernel, given: list[Any], room: list[int], executable: Any, launch: Launch, geometry: Geometry,
    empty: Callable[..., np.ndarray],
) -> list[np.ndarray]:
    """Run a kernel on small arrays; return its results, with what lies between their rows."""
    made = []
    for hop, elements in zip(kernel.outputs, room, strict=True):
        result = empty((elements,), hop.meta.dtype)
        result[...] = 0
        made.append(result)
    launch(executable.template(geometry), *given, *made)
    return made


def _value(
    hop: Hop, at: int, strides: tuple[int, ...], dims: tuple[int, ...], empty: Callable[..., np.ndarray],
) -> Any:
    """Return an operand: on both sides of 0, small, not the same as the one before."""
    dtype = hop.meta.dtype
    elements = _elements(hop, strides, dims) if strides else ELEMENTS
    steps = (np.arange(elements) * (5 + 2 * at) + at) % 23
    values = {"b": steps % 2 == 0, "u": steps % 7, "i": steps % 7 - (0 if at else 2)}.get(
        dtype.kind, steps / 11.5 - 0.4)
    if dtype.kind == "c":
        values = values + 1j * values[::-1]
    if hop.meta.shape == ():  # as kernels are given scalars
        scalar = dtype.type(values[3 + at % 5])
        return {"d": float, "D": complex}.get(dtype.char, lambda x: x)(scalar)
    made = empty((elements,), dtype)
    made[...] = values
    return made


def _near(a: np.ndarray, b: np.ndarray, unit: float, odd: float) -> bool:
    """Say whether results are alike but for rounding, and for the part `odd` of them where that decides.

    `unit` is what the least precise value on the way is rounded to: results may be more precise.
    """
    if a.dtype.kind not in "fc":
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return True
    a, b = a[finite], b[finite]
    bound = LOOSE * unit * max(float(np.abs(a).max()), 1.0)
    return float(np.mean(np.abs(a - b) > bound)) <= (odd if len(a) > 1 else 0.0)


if TYPE_CHECKING:
    from jitla.recompile.hoisting import worth_keeping
    from jitla.recompile.pipeline import (
        Trace,
        run_pipeline,
        told,
        weighed,
    )
else:  # loaded by the first draft of which no plan is kept
    [worth_keeping] = later("jitla.recompile.hoisting", "worth_keeping")
    run_pipeline, told, weighed = later("jitla.recompile.pipeline", "run_pipeline", "told", "weighed")


class Remembered:
    """What `tools` make of drafts; `shelf` keeps it for later processes, `here` says what it was made for."""

    def __init__(self, tools: Tools, shelf: Shelf | None = None, here: str = "") -> None:
        self._tools, self._shelf, self._here = tools, shelf, here

    def program(self, draft: Draft) -> Program:
        """Return the program of a draft."""
        start = perf_counter()
        words = self._words(draft)
        found = self._found(words)
        kept = None if found is None else read(draft, found, self._here)
        if kept is not None:
            self._tools.observe(Event("plan.found", seconds=perf_counter() - start))
            return program_of(kept, draft, self._tools)
        if self._tools.rules is not None or self._tools.templates:
            MAKING.now.plan()
        kept, traces = run_pipeline(draft, self._tools)
        if words:  # a search that its budget ended would end there again: that is processor time
            self._keep(words, draft, kept)
        return program_of(kept, draft, self._tools, traces)

    def invariants(
        self, draft: Draft, same: Collection[int], named: Collection[Hop], room: int, every: bool,
    ) -> tuple[Hop, ...]:
        """Return which of the values `named` are worth keeping while leaves in slots `same` do not change."""
        words = self._words(draft, "invariants", sorted(same), numbers_of(draft, named), room, every)
        found, hops = self._found(words), topo(draft.roots)
        told = None if found is None else json.loads(found)
        if told is not None and told[0] == self._here:
            return tuple([hops[n] for n in told[1]])
        chosen = worth_keeping(draft, self._tools, same, named, room, every)
        if words and self._shelf is not None:
            number = {h: n for n, h in enumerate(hops)}
            self._shelf.put(words, json.dumps([self._here, [number[h] for h in chosen]]).encode())
        return chosen

    def _words(self, draft: Draft, *more: Any) -> str:
        """Return the words by which something is kept; none if nothing is."""
        if self._shelf is None:
            return ""
        try:
            return block_digest(draft.roots, draft.layouts, draft.outs, draft.aliases, *more)
        except NotSerialisable:
            return ""

    def _found(self, words: str) -> bytes | None:
        return self._shelf.get(words) if words and self._shelf is not None else None

    def _keep(self, words: str, draft: Draft, kept: Kept) -> None:
        assert self._shelf is not None
        try:
            self._shelf.put(words, written(draft, kept, self._here))
        except NotSerialisable as why:
            self._tools.observe(Event("plan.unwritten", str(why)))


def program_of(kept: Kept, draft: Draft, tools: Tools, traces: Sequence[Trace] = ()) -> Program:
    """Return the program of a plan; without `traces` it is planned again when somebody asks how it was."""
    start = perf_counter()
    plan, last = kept.plan, traces[-1].draft if traces else draft
    places = all_layouts(plan.outputs, draft.layouts)
    program = Program(plan, draft.layouts, places, draft.outs, draft.aliases, tools.workshop, tools.limit)
    program.tell = partial(told, draft, tools, program, traces)
    program.given = kept.given
    if tools.rules is not None:
        program.chains = cache(partial(_chains, plan))
    program.spelling = kept.spelling
    program.searched = kept.searched
    program.fixed = last.placed is not None and bool(last.placed.parts)
    program.fusion = tools.fusion
    program.weigh = partial(weighed, tools)
    tools.observe(Event("pipeline.program", seconds=perf_counter() - start))
    return program


def _chains(plan: Plan) -> tuple[rewrites.Chain, ...]:
    """Return the chains of products whose order is the best one for the sizes that were planned for."""
    return tuple(c for c in rewrites.find_matmul_chains(plan.outputs) if rewrites.is_well_ordered(c, {}))


V = TypeVar("V")


class Recent(Generic[V]):
    """The `limit` values used last, by key, as far as there is `room` for their bytes; safe in threads."""

    def __init__(self, limit: int, room: float = inf) -> None:
        self._limit, self._room = limit, room
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = relock()
        self.dropped = self.nbytes = 0

    def get(self, key: Hashable) -> V | None:
        """Return the value of `key` if it is kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: V, nbytes: int = 0) -> None:
        """Keep `value`, which takes so many bytes; those used longest ago make room."""
        with self._lock:
            self.nbytes += nbytes - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, nbytes
            while len(self._kept) > self._limit or self.nbytes > self._room and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self.nbytes -= freed
                self.dropped += 1

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def values(self) -> list[V]:
        """Return all values kept."""
        with self._lock:
            return [value for value, _ in self._kept.values()]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)


# Bytes that programs and kernels take in Python and in the compiler, about, and more for each operation:
# measured with 24 programs of 3 to 80. They may take so many together.
PROGRAM, KERNEL, EACH = 32 << 10, 24 << 10, 4 << 10
PROGRAMS_ROOM, KERNELS_ROOM = 96 << 20, 96 << 20

Recipe = tuple[tuple[Hop, ...], Mapping[int, Layout], Outs, Aliases]


def _ignore(event: Event) -> None:
    """Take an event that nobody asked for."""


class Compiler:
    """Makes programs, each once, and remembers them."""

    def __init__(
        self, backend: Backend, launch: Launch | None = None, *,
        rules: Callable[[], rewrites.RuleSet] | None = lambda: rewrites.RULES,
        numerics: str = "numpy", machine: Machine = REFERENCE_MACHINE,
        threads: int = 0, fusion: str = "cost", memory_limit: int = 0, effort: SearchBudget | None = None,
        observe: Callable[[Event], None] = _ignore, check: bool = False,
        max_programs: int = 1024, max_kernels: int = 4096, devices: tuple[Device, ...] = (),
        placement: str = "cost", tuning: Tuning | None = None, room: int = PROGRAMS_ROOM,
        shelf: Shelf | None = None, here: str = "",
    ) -> None:
        self.backend = backend
        self.numerics = numerics
        self.threads = threads
        self.tuning = tuning
        self.cores = machine.threads
        self.devices = devices
        self._launch: Launch = launch or backend.launch
        self._observe = observe
        self._programs: Recent[Program] = Recent(max_programs, room)
        self._kernels: Recent[tuple[Executable, Launch]] = Recent(max_kernels, KERNELS_ROOM)
        self._building = relock()
        self._stored: Any = None
        allowed = None if rules is None else cache(lambda: rules().at(numerics))
        searches = allowed is not None and numerics != "strict" and fusion == "cost" and effort is not None
        self._tools = Tools(
            allowed, self.supports, machine, backend.templates, fusion, self, observe, check, memory_limit,
            cache(lambda: planning.PartitionCache()),
            cache(lambda: rewrites.SUBSTITUTIONS.at(numerics)) if searches else None,
            effort or SearchBudget(), devices, placement)
        self._remembered = Remembered(self._tools, None if devices else shelf, here)

    # ---------------------------------------------------------------------- programs

    def program(self, key: Hashable, make: Callable[[], Recipe]) -> Program:
        """Return the program kept under `key`; `make` says what it computes if there is none."""
        found = self._programs.get(key)
        if found is None:
            MAKING.now.check()  # whoever may make nothing does not wait for those who do
            with self._alone():
                found = self._programs.get(key)
                if found is None:
                    recipe = make()
                    found = self.build(*recipe)
                    self._programs.put(key, found, PROGRAM + EACH * len(topo(recipe[0])))
        return found

    def bind(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout],
    ) -> tuple[Bound, Reason | None]:
        """Return a program or one of its variants bound to sizes and layouts.

        If none is right for them, a variant is compiled, and the reason is the second result. `dims` and
        `layouts` are those of `Program.bind`.
        """
        variants = program.variants
        # With the last variant that may be, plans that are merely not the best are good enough.
        takes_any = len(variants) == MAX_VARIANTS and not program.fixed
        for candidate, made_for in ((program, None), *variants):
            own = dims if made_for is None else compose(made_for, dims)
            if own is not None and (takes_any or candidate.suits(own)) and candidate.reads(own, layouts):
                try:
                    return Bound(candidate, own, layouts), None
                except Misfit:
                    continue
        reason = program.misfit(dims)
        try:
            variant = self.build(rebuild(program.given, dims), layouts, program.outs, program.aliases)
        except NothingNew as refused:
            refused.reason = reason
            raise
        program.variants = [*variants, (variant, dict(dims))][-MAX_VARIANTS:]
        return Bound(variant, variant.identity(), layouts), reason

    def build(
        self, roots: tuple[Hop, ...], layouts: Mapping[int, Layout], outs: Outs | None = None,
        aliases: Aliases = frozenset(), kernels: bool = True,
    ) -> Program:
        """Return a new program for `roots`.

        `layouts` are those of the array leaves and of the leaves stored into, by slot. ``outs[i]`` is
        the slot that root i is written into, or None. `aliases` are pairs of slots that overlap but
        are not the same view; the same view under two slots is one of them.
        """
        draft = _draft(roots, layouts, outs, aliases)
        made = self._remembered if kernels else Remembered(Tools(
            None, _unsupported, REFERENCE_MACHINE, (), "cost", self, self._observe, self._tools.check))
        with self._alone():
            if kernels:
                MAKING.now.check()
            program = made.program(draft)
        program.tell = partial(self._told, program.tell)
        program.numpy_program = partial(self._numpy_program, program)
        return program

    def _numpy_program(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout],
    ) -> Program:
        """Return a program of the same roots in which every step is a NumPy call."""
        roots = rebuild(program.given, dims)
        return self.build(roots, layouts, program.outs, program.aliases, kernels=False)

    def _told(self, tell: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        with self._alone():
            return tell()

    def invariants(
        self, recipe: Recipe, same: Collection[int], named: Collection[Hop], room: int, every: bool,
    ) -> tuple[Hop, ...]:
        """Return which of the values `named` are worth keeping while leaves in slots `same` do not change.

        They take at most `room` bytes; `every`: all that need not be computed again, whatever it costs.
        """
        with self._alone():
            return self._remembered.invariants(_draft(*recipe), same, named, room, every)

    def has(self, key: Hashable) -> bool:
        """Return whether a program is kept under `key`."""
        return key in self._programs

    def known(self, key: Hashable) -> Program | None:
        """Return the program kept under `key`, if there is one."""
        return self._programs.get(key)

    def programs(self) -> list[Program]:
        """Return the programs kept, the one used last at the end."""
        return self._programs.values()

    def statistics(self) -> dict[str, int]:
        """Return how many programs and kernels are kept, their bytes, about, and how many had to go."""
        return {
            "programs": len(self._programs), "kernels": len(self._kernels),
            "nbytes": self._programs.nbytes + self._kernels.nbytes,
            "dropped": self._programs.dropped + self._kernels.dropped,
        }

    def clear(self) -> None:
        """Forget all programs and kernels."""
        self._programs.clear()
        self._kernels.clear()

    # ---------------------------------------------------------------------- for programs

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other thread build anything meanwhile; one that does is made to hurry."""
        if not self._building.acquire(blocking=False):
            with hurry():
                self._building.acquire()
        try:
            yield
        finally:
            self._building.release()

    def supports(self, hop: Hop) -> str | None:
        """Return why `hop` cannot be in a kernel, or None."""
        if self.numerics == "strict" and (is_approximate(hop.op) or hop.op.kind is Kind.CALL):
            return "numerics=strict"
        return self.backend.supports(hop)

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Return one variant of a kernel and what runs it; a kernel that fails to compile is interpreted."""
        whole = (key, form, schedule)
        found = self._kernels.get(whole)
        if found is not None:
            MAKING.now.kernel(None)
        else:
            MAKING.now.check()
            with self._alone():
                found = self._kernels.get(whole)
                if found is None:
                    found = self._compile(kernel, form, schedule)
                    self._kernels.put(whole, found, KERNEL + EACH * len(kernel.body))
        return found

    def _compile(
        self, kernel: Kernel, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        start = perf_counter()
        try:
            made = self.backend.compile(kernel, form, schedule), self._launch
        except BackendError as wrong:
            self._observe(Event("kernel.failed", str(wrong), perf_counter() - start))
            return InterpretedKernel(kernel, form), InterpretedBackend().launch
        found = self._differs(kernel, form, schedule, made)
        if found:
            self._observe(Event("kernel.failed", found, perf_counter() - start))
            return InterpretedKernel(kernel, form), InterpretedBackend().launch
        data = {"template": kernel.template, "form": f"{form.mode}{form.ndim}{form.inner}"}
        self._observe(Event("kernel", self.backend.name, perf_counter() - start, data))
        return made

    def nest(self, nest: Nest, steps: Mapping[str, tuple[int, ...]]) -> Nested:
        """Return machine code for a loop nest."""
        MAKING.now.check()
        with self._building:
            made: Nested = self.backend.nest(nest, self.threads, steps=steps)
            return made

    def assembly(self, text: str) -> str:
        """Return the assembly language that the text of an executable is compiled to."""
        return self.backend.assembly(text)

    def _differs(
        self, kernel: Kernel, form: Form, schedule: Schedule, made: tuple[Executable, Launch],
    ) -> str:
        """Return how a kernel differs from NumPy, which is run on few elements; such a kernel is not used."""
        try:
            found = difference(kernel, form, schedule, *made, self.numerics != "relaxed")
        except Exception as error:  # what cannot be told is not wrong
            self._observe(Event("kernel.unchecked", repr(error)))
            return ""
        if found:
            log.warning("a kernel is not used, as it differs from NumPy: %s", found)
        return found

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return what makes argument blocks of a product."""
        return self.backend.product(form, dtype, columns)

    def wide(self, dtype: np.dtype, fetches: bool) -> Callable[[Tile], bytes]:
        """Return what makes argument blocks of products with wide matrices."""
        return self.backend.wide(dtype, fetches)

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return what makes argument blocks of products of small matrices that lie like `pairs`."""
        return self.backend.pairs(dtype, pairs)

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return what makes argument blocks of products over compressed rows."""
        return self.backend.compressed(form, dtype, index, columns)

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[Stage], combines: list[Combine],
        cut: Blocking, nanoseconds: float,
    ) -> Made:
        """Return the argument block of a row kernel and what runs it."""
        return self.backend.rows(scalars, stages, combines, cut, self.threads, nanoseconds), self._launch

    def stored(self, name: str) -> Callable[..., np.ndarray]:
        """Return what computes the operator `name` at the stored positions of a sparse matrix."""
        if self._stored is None:
            self._stored = self.backend.stored(self.threads)
        found: Callable[..., np.ndarray] = self._stored.operator(name)
        return found

    def allocator(self) -> Callable[..., np.ndarray]:
        """Return what makes fresh arrays."""
        return allocator()


def _draft(
    roots: tuple[Hop, ...], layouts: Mapping[int, Layout], outs: Outs | None, aliases: Aliases,
) -> Draft:
    roots = tuple(roots)
    places = {slot: Layout(*place) for slot, place in layouts.items()}
    return Draft(roots, places, outs or (None,) * len(roots), frozenset(aliases))


def _unsupported(hop: Hop) -> str | None:
    return "left to NumPy"
