"""Programs: compiled blocks with guards on sizes and layouts, and their bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from jitla import rewrites
from jitla.classes import cached_property
from jitla.compile_stats import Reason
from jitla.errors import InternalError
from jitla.events import Clock
from jitla.fusion import (
    COMPRESSED_FORMS,
    Call,
    Expansion,
    Layout,
    Plan,
    contiguous,
    hop_layout,
    is_expansion_valid,
    is_view,
    layout_operands,
    peak_bytes,
)
from jitla.hops import FlagsRaised, Hop, Kind, Meta, Shape, leaf, make, topo
from jitla.recompile.binding import (
    Binding,
    BlockLoop,
    CellLoop,
    Misfit,
    bind_loop,
    choice_of,
    loop_of,
)
from jitla.recompile.output_buffers import (
    Aliases,
    ExecutionOrder,
    Outs,
    array_factory,
    copy_array,
    edge_filler,
    order_steps,
    ring_factory,
)
from jitla.recompile.program_source import Need, Script, write_script
from jitla.recompile.schedule_choices import (
    UNTUNED,
    ChosenSchedule,
    KernelBuilder,
    KernelKey,
    Launchable,
    TunableKernel,
)

if TYPE_CHECKING:
    from jitla.fusion import PlanExplanation


def compose_sizes(made_for: Mapping[int, int], dims: Mapping[int, int]) -> dict[int, int] | None:
    """Return the sizes a variant was made for, mapped to the sizes now; None for another shape class."""
    sizes = {0: 0, 1: 1}
    for old, size in made_for.items():
        if sizes.setdefault(size, dims.get(old, -1)) != dims.get(old, -1):
            return None
    return sizes


def rebuild(roots: tuple[Hop, ...], dims: Mapping[int, int]) -> tuple[Hop, ...]:
    """Return the same DAG over leaves of other sizes."""
    rebuilt: dict[Hop, Hop] = {}
    for hop in topo(roots):
        inputs = [rebuilt[i] for i in hop.inputs]
        if hop.op.name == "const":
            rebuilt[hop] = hop
        elif hop.op.name == "leaf":
            shape = tuple(n if n < 2 else dims[n] for n in hop.meta.shape)
            rebuilt[hop] = leaf(
                hop.attr("slot"), Meta(shape, hop.meta.dtype), hop.attr("form"), hop.line)
        else:
            attrs = {k: _resize(v, inputs, dims) if k == "shape" else v for k, v in hop.attrs}
            rebuilt[hop] = make(hop.op.name, inputs, hop.line, **attrs)
    return tuple(rebuilt[r] for r in roots)


def _resize(shape: Shape, inputs: Sequence[Hop], dims: Mapping[int, int]) -> Shape:
    """Return a shape in other sizes; one size without a symbol follows from the number of elements."""
    sizes = [n if n < 2 else dims.get(n, -1) for n in shape]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = inputs[0].meta.size // max(-prod(sizes), 1)
    if -1 in sizes:
        raise InternalError(f"program: sizes of {shape} are not among {dict(dims)}")
    return tuple(sizes)


class KernelCode(NamedTuple):
    """Machine code of kernel number `at` for one `form` of arrays: its LLVM IR and its assembly."""

    at: int
    form: str
    text: str
    assembly: str


def kernel_codes(loops: Sequence[Any], tools: KernelBuilder) -> Iterator[KernelCode]:
    """Yield the code of every kernel, in order."""
    for number, loop in enumerate(loops):
        for form, text in _code_texts(loop):
            yield KernelCode(number, form, text, tools.assembly(text))


def _code_texts(loop: Any) -> Iterator[tuple[str, str]]:
    if isinstance(loop, BlockLoop):
        texts = dict.fromkeys(getattr(part, "text", "") for part in loop.executables)
        yield from (("part of a pass over rows", text) for text in texts if text)
        return
    for (form, schedule), (executable, _) in loop.variants.items():
        stream = ", around the caches" if schedule.nontemporal else ""
        short = ", several short rows to a vector" if schedule.crosswise else ""
        yield f"form {form.mode} {form.ndim}-d {form.inner}{stream}{short}", executable.text


MAX_VARIANTS = 4
MAX_DENSITY_RATIO = 4.0  # the ratio of nonzeros per row that makes another plan worth while
# The operands of operators on compressed rows with one element per entry, and one per row.
_COMPRESSED_SIZES = {**dict.fromkeys(COMPRESSED_FORMS, (0, 2)), "sampled": (2, 1), "sampled_product": (3, 2)}
MAX_GROWTH_RATIO = 2.0  # how much more one size may have grown than another for plans found by search

Run = Callable[[Sequence[Any]], tuple[Any, ...]]


class ProgramBuilder(KernelBuilder, Protocol):
    """What a program needs of the compiler."""

    def allocator(self) -> Callable[..., np.ndarray]:
        """Return ``empty(shape, dtype[, axes slowest first])``."""
        ...

    def sampled_operator(self, name: str) -> Callable[..., np.ndarray]:
        """Return the function of the operator `name` at the stored entries of a sparse matrix."""
        ...


@lru_cache(1024)
def _compile_source(source: str) -> CodeType:
    """Return the bytecode of a program's source; programs with different kernels often share it."""
    return compile(source, "<jitla program>", "exec")


class Program:
    """A compiled DAG, for all sizes and layouts of its shape class."""

    def __init__(
        self, plan: Plan, layouts: Mapping[int, Layout], places: Mapping[Hop, Layout], outs: Outs,
        aliases: Aliases, builder: ProgramBuilder, limit: int = 0,
    ) -> None:
        self.plan = plan
        self.limit = limit
        self.fusion = "cost"
        #: Returns how the plan of a draft was chosen.
        self.explain_plan: Callable[[Any], PlanExplanation] | None = None
        self.outs = outs
        self.aliases = aliases
        self.layouts = dict(layouts)
        self.trace_stages: Callable[[], tuple[Any, ...]] = tuple  # returns the stages of its planning
        #: Returns chains of products, whose optimal order depends on sizes.
        self.chains: Callable[[], tuple[rewrites.Chain, ...]] = tuple
        self.found_by_search = False  # whether its roots were found by search, for these sizes
        self.has_fixed_sizes = False  # whether parts of it hold for these sizes only
        self.expansion: Expansion | None = None  # aggregates expanded for some sizes and layouts
        self.traced_roots = plan.outputs  # before rewrites, which may hold for these sizes only
        self.sizes: tuple[int, ...] | None = None  # of the symbols in the representative roots
        self.order: ExecutionOrder = order_steps(plan, outs, aliases, layouts, places)
        #: Keys and sizes of the kernels whose schedules the tuner chooses.
        self._tuned: dict[Any, tuple[KernelKey, Mapping[Shape, Shape]]] = {}
        self._last_binding: Any = None  # sizes and layouts of the last binding
        self.clock = Clock(len(self.order.steps))
        self.script: Script = write_script(self.order, plan.outputs, outs, aliases)
        self._builder = builder
        #: Programs of the same roots for sizes and layouts that this one does not suit, with these sizes.
        self.variants: list[tuple[Program, dict[int, int]]] = []
        #: Returns a program of the same roots in which every step is a NumPy call, for sizes and layouts.
        self.numpy_program: Callable[[Mapping[int, int], Mapping[int, Layout]], Program] | None = None
        kernels = [s for s in self.order.steps if not isinstance(s, Call)]
        self._loops = [loop_of(k) for k in kernels]
        hops = topo(plan.outputs)
        self._arrays = [h for h in hops if h.meta.shape != ()]
        sizes = [[h.inputs[n].meta.size for n in _COMPRESSED_SIZES[h.op.name]]
                 for h in topo(self.traced_roots) if h.op.name in _COMPRESSED_SIZES]
        self._compressed = {(entries, starts) for entries, starts in sizes}
        self._shapes = {h.meta.shape for h in hops} | {s.shape for s in kernels}
        self._shapes |= {v for h in hops for k, v in h.attrs if k == "shape"}
        self._reshaped = {(h.inputs[0].meta.shape, h.meta.shape) for h in hops if h.op.name == "reshape"}
        self._counts = [n.subject for n in self.script.needs if n.kind == "count"]
        self._shapes |= {h.inputs[0].meta.shape for h in self._counts if h.inputs}
        self._code = _compile_source(self.script.source)
        self._make = self._define()

    def _define(self) -> Callable[[BoundProgram, Sequence[Any]], Run]:
        scope: dict[str, Any] = {**self.script.constants, "CLOCK": self.clock}
        exec(self._code, scope)
        factory: Callable[[BoundProgram, Sequence[Any]], Run] = scope["make"]
        return factory

    # ---------------------------------------------------------------------- facts

    @cached_property
    def stages(self) -> tuple[Any, ...]:
        """The stages of the pipeline; they are run again if the plan came from a store."""
        return self.trace_stages()

    @property
    def kernels(self) -> int:
        """Number of kernels."""
        return len(self._loops)

    @cached_property
    def calls(self) -> int:
        """Number of NumPy calls on arrays."""
        return sum(
            isinstance(s, Call) and any(h.meta.shape != () for h in (s.hop, *s.hop.inputs))
            for s in self.order.steps
        )

    @cached_property
    def materialised(self) -> int:
        """Number of arrays per run that are written to fresh memory and are not results."""
        results = {r for r, out in zip(self.plan.outputs, self.outs, strict=True) if out is None}
        return sum(
            h.meta.shape != () and not is_view(h) and h not in results and h not in self.order.direct
            for s in self.order.steps for h in s.outputs
        )

    @cached_property
    def written(self) -> int:
        """Number of arrays per run that are written to fresh memory."""
        results = {r for r, out in zip(self.plan.outputs, self.outs, strict=True) if out is None}
        fresh = {r for r in results if r.meta.shape and r.op.kind is not Kind.LEAF and not is_view(r)}
        return self.materialised + len(fresh)

    @property
    def fired(self) -> tuple[str, ...]:
        """Names of the rewrites that fired, in order."""
        return tuple(self.stages[-1].draft.fired) if self.stages else ()

    def text(self) -> str:
        """Return the state after every stage, and the source of the Python function that runs."""
        parts = [f"== {s.name}   {s.seconds * 1e3:.2f} ms   {s.doc}\n{s.text()}" for s in self.stages]
        fired = ", ".join(self.fired) or "nothing"
        source = self.script.source.rstrip()
        return "\n\n".join([*parts, f"== rules fired\n{fired}", f"== program\n{source}"])

    def codes(self) -> Iterator[KernelCode]:
        """Yield LLVM IR and assembly of the kernels."""
        return kernel_codes(self._loops, self._builder)

    def peak(
        self, dims: Mapping[int, int] | None = None, layouts: Mapping[int, Layout] | None = None
    ) -> int:
        """Return the predicted peak bytes of results and intermediates for these sizes and layouts."""
        sizes = self.identity() if dims is None else dims
        return peak_bytes(
            self.order.steps, self.plan.outputs, self._builder.cores, frozenset(self.order.direct),
            lambda shape: tuple([sizes.get(n, n) for n in shape]),
            self._delayed_bytes(sizes, self.layouts if layouts is None else layouts))

    def _delayed_bytes(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> dict[Hop, int]:
        """Return the bytes of rows of delayed stores, by value."""
        if not self.order.delayed:
            return {}
        binding = self._binding(dims, layouts, {})
        delayed_bytes: dict[Hop, int] = {}
        for loop in self._loops:
            delayed_stores = [h for h in loop.kernel.outputs if h in self.order.delayed]
            if delayed_stores and isinstance(loop, CellLoop):  # it has one result
                executable, _, geometry = loop.variant(binding)
                delayed_bytes[delayed_stores[0]] = executable.scratch(geometry)
        return delayed_bytes

    # ---------------------------------------------------------------------- bindings

    def bind(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> BoundProgram:
        """Return the program bound to other sizes and layouts of its shape class.

        `dims` maps the sizes in the representative roots to the sizes now; 0 and 1 stand for themselves.
        `layouts` are those of the array leaves, by slot. Raises `Misfit` if the plan is not right for them:
        `Compiler.bind` finds or compiles another.
        """
        if not self.suits(dims) or not self.has_valid_expansion(dims, layouts):
            raise Misfit
        return BoundProgram(self, dims, layouts)

    def suits(self, dims: Mapping[int, int]) -> bool:
        """Return whether decisions by size hold for others: all sizes have grown about equally."""
        moved = any(old != new for old, new in dims.items())
        if self.has_fixed_sizes and moved:
            return False
        if moved and not all(rewrites.is_well_ordered(chain, dims) for chain in self.chains()):
            return False
        if any(self._has_drifted(*line, dims) for line in self._compressed):
            return False
        if not self.found_by_search:
            return True
        growth = [new / old for old, new in dims.items() if old > 1 and new > 0]
        return not growth or max(growth) <= MAX_GROWTH_RATIO * min(growth)

    def has_valid_expansion(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> bool:
        """Return whether expanded aggregates have the same terms in the same order."""
        if self.expansion is None:
            return True
        return is_expansion_valid(self.expansion, rebuild(self.expansion[0], dims), layouts)

    def _has_drifted(self, entries: int, starts: int, dims: Mapping[int, int]) -> bool:
        """Return whether the density of compressed rows differs much from that planned for."""
        planned_density = max(entries, 1) / max(starts, 1)
        density = max(dims.get(entries, entries), 1) / max(dims.get(starts, starts), 1)
        return not 1.0 / MAX_DENSITY_RATIO < density / planned_density < MAX_DENSITY_RATIO

    def misfit_reason(self, dims: Mapping[int, int]) -> Reason:
        """Return why the plan is not right for these sizes."""
        for chain in self.chains():
            if not rewrites.is_well_ordered(chain, dims):
                return Reason("order of products", "the one that was best", "another that is better")
        for entries, starts in self._compressed:
            if self._has_drifted(entries, starts, dims):
                density = dims.get(entries, entries) / max(dims.get(starts, starts), 1)
                planned = f"{entries / max(starts, 1):.3g} nonzeros to a row"
                return Reason("sparsity", planned, f"{density:.3g}")
        if self.suits(dims):
            return Reason("layout", "as the plan's loops walk", "another")
        sizes = {old: new for old, new in dims.items() if old > 1}
        return Reason("proportions", "x".join(map(str, sizes)), "x".join(map(str, sizes.values())))

    def identity(self) -> dict[int, int]:
        """Return the mapping of all sizes to themselves."""
        return {n: n for shape in self._shapes for n in shape}

    def values_for(
        self, dims: Mapping[int, int], layouts: Mapping[int, Layout], learned: Mapping[Hop, Layout],
    ) -> list[Any]:
        """Return the values that the program's function takes from a binding."""
        binding = self._binding(dims, layouts, learned)
        shapes, places = binding.shapes, binding.places
        blocks = [self._bind_kernel(number, binding) for number in range(len(self._loops))]
        self._last_binding = dims, layouts, learned
        empty = self._builder.allocator()

        def value(need: Need) -> Any:
            match need.kind:
                case "block":
                    return blocks[need.subject][0]
                case "launch":
                    return blocks[need.subject][1]
                case "empty" if need.subject.op.name == "ring":
                    return ring_factory(empty, places[need.subject], need.subject)
                case "edges":
                    return edge_filler(shapes[need.subject.meta.shape], need.subject.attr("widths"))
                case "empty":
                    lent = any(name == "axes" for name, _ in need.subject.attrs)  # as in NumPy
                    return array_factory(empty, need.subject.meta.dtype, places[need.subject], lent)
                case "strides":
                    return places[need.subject].strides
                case "copy":
                    return partial(copy_array, empty)
                case "shape":
                    return shapes[need.subject.attr("shape")]
                case "stored":
                    return self._builder.sampled_operator(need.subject.op.name)
                case "count":
                    shape = shapes[need.subject.inputs[0].meta.shape]
                    return np.intp(prod(shape[a] for a in need.subject.attr("axis")))
            raise InternalError(f"program: unknown kind of need: {need.kind!r}")

        return [value(need) for need in self.script.needs]

    def _binding(
        self, dims: Mapping[int, int], layouts: Mapping[int, Layout], learned: Mapping[Hop, Layout],
    ) -> Binding:
        shapes = self._bind_shapes(dims)
        places = self._bind_layouts(shapes, layouts, learned)
        return Binding(shapes, places, layouts, self.order, self._builder)

    def _bind_shapes(self, dims: Mapping[int, int]) -> dict[Shape, Shape]:
        try:
            shapes = {s: tuple([n if n < 2 else dims[n] for n in s]) for s in self._shapes}
        except KeyError:
            raise Misfit from None
        if any(prod(shapes[a]) != prod(shapes[b]) for a, b in self._reshaped):
            raise Misfit  # a product of sizes was equal to another size by chance
        return shapes

    def _bind_layouts(
        self, shapes: Mapping[Shape, Shape], layouts: Mapping[int, Layout],
        learned: Mapping[Hop, Layout],
    ) -> dict[Hop, Layout]:
        """Return the layout of every array; values computed from C-ordered arrays only are C-ordered."""
        places: dict[Hop, Layout] = {}
        c_ordered: set[Hop] = set()
        for hop in self._arrays:
            shape = shapes[hop.meta.shape]
            in_order = contiguous(shape, hop.meta.dtype.itemsize)
            if hop.op.kind is Kind.LEAF:
                layout = layouts[hop.attr("slot")]
                if layout.shape != shape:
                    raise InternalError(f"program: a leaf of {layout.shape} is bound as {shape}")
            elif hop in learned:
                layout = learned[hop]
            elif hop.op.kind is not Kind.CALL and hop.op.name not in ("ring", "take") and all(
                    i in c_ordered or not i.meta.shape for i in hop.inputs):
                layout = in_order
            else:
                layout = self._place(hop, shape, shapes, places)
            places[hop] = layout
            if layout.strides == in_order.strides:
                c_ordered.add(hop)
        places |= {h: _SCALAR for loop in self._loops for h in loop.kernel.outputs if not h.meta.shape}
        return places

    def _place(
        self, hop: Hop, shape: Shape, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout]
    ) -> Layout:
        attrs = {k: shapes[v] if k == "shape" else v for k, v in hop.attrs}
        return hop_layout(hop, shape, attrs, [places.get(i, _SCALAR) for i in layout_operands(hop)])

    def _bind_kernel(self, number: int, binding: Binding) -> Launchable:
        """Return the argument block of a kernel and its launcher, with the tuner's or pinned knobs."""
        loop, tuning = self._loops[number], self._builder.tuning
        if tuning is None:
            return bind_loop(loop, binding, UNTUNED)
        choice = choice_of(loop, binding)
        self._tuned[loop.kernel] = choice.key, binding.shapes
        return tuning.block(choice)

    @property
    def chosen(self) -> dict[Any, ChosenSchedule]:
        """The schedules of kernels chosen by the tuner, if there is one."""
        tuning = self._builder.tuning
        return {} if tuning is None else {
            kernel: ChosenSchedule(tuning.chosen.get(key, UNTUNED), tuning.notes.get(key, ""), shapes)
            for kernel, (key, shapes) in self._tuned.items()}

    def choices(self) -> Iterator[tuple[int, Any, TunableKernel]]:
        """Yield number, kernel and tunable kernel of every kernel, for the last binding."""
        if self._last_binding is not None:
            kernels = [s for s in self.plan.steps if not isinstance(s, Call)]
            binding = self._binding(*self._last_binding)
            for number, loop in enumerate(self._loops):
                yield kernels.index(loop.kernel) + 1, loop.kernel, choice_of(loop, binding)


_SCALAR = Layout((), ())


class BoundProgram:
    """A program bound to sizes and layouts: `run(L)` returns the root values for leaves `L`."""

    __slots__ = ("program", "run", "count", "reports_flags", "effects", "dims", "layouts", "_learned",
                 "__weakref__")

    frozen = False  # it is no fallback

    def __init__(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout]
    ) -> None:
        if program.limit and program.peak(dims, layouts) > program.limit >= program.peak():
            raise Misfit  # a plan for these sizes may fit
        self.program = program
        self.count = 0
        self.reports_flags = False  # whether a run raises `FlagsRaised`
        self.effects: Any = None  # for the caller that handles `FlagsRaised`
        self.dims = dims
        self.layouts = layouts
        self._learned: dict[Hop, Layout] = {}
        self.run: Run = self._bind()
        program.clock.on = True

    def peak(self) -> int:
        """Return the predicted peak bytes of results and intermediates."""
        return self.program.peak(self.dims, self.layouts)

    def _bind(self) -> Run:
        data = self.program.values_for(self.dims, self.layouts, self._learned)
        return self.program._make(self, data)

    def end_flagged_run(
        self, values: tuple[Any, ...], flags: int, saved: dict[int, np.ndarray | None], exact: bool,
    ) -> tuple[Any, ...]:
        """End a run that raised floating-point flags; raise `FlagsRaised` if the caller wants reports."""
        if self.reports_flags:
            overwritten = {k: v for k, v in saved.items() if v is not None}
            raise FlagsRaised(values, flags, overwritten, exact)
        return values

    def learn_layout(self, leaves: Sequence[Any], hop: Hop, value: np.ndarray) -> tuple[Any, ...]:
        """Rebind and run again, with the layout in which NumPy returned the result of `hop`.

        No effect is repeated: stores come after all such calls.
        """
        self._learned[hop] = Layout(value.shape, value.strides)
        try:
            self.run = self._bind()
        except Misfit:
            assert self.program.numpy_program is not None
            fallback = self.program.numpy_program(self.dims, self.layouts)
            replacement = BoundProgram(fallback, fallback.identity(), self.layouts)
            replacement.reports_flags = self.reports_flags
            self.program, self.run = fallback, replacement.run
        return self.run(leaves)
