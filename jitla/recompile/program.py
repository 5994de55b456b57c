"""Compiled programs of blocks: binding to sizes, guards, and their resizing."""

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
from jitla.concurrency import rest
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
from jitla.recompile.binding import Binding, BlockLoop, CellLoop, Misfit, choice_of, loop_of, made
from jitla.recompile.output_buffers import (
    Aliases,
    Order,
    Outs,
    copied,
    edges,
    maker,
    order_steps,
    room,
)
from jitla.recompile.program_source import Need, Script, write_script
from jitla.recompile.schedule_choices import UNTUNED, Choice, Chosen, Key, Made, RowTools

if TYPE_CHECKING:
    from jitla.fusion import PlanExplanation


def compose(made_for: Mapping[int, int], dims: Mapping[int, int]) -> dict[int, int] | None:
    """Return the sizes a variant was made for as the sizes now; None if it is of another class."""
    found = {0: 0, 1: 1}
    for old, size in made_for.items():
        if found.setdefault(size, dims.get(old, -1)) != dims.get(old, -1):
            return None
    return found


def rebuild(roots: tuple[Hop, ...], dims: Mapping[int, int]) -> tuple[Hop, ...]:
    """Return the same DAG over leaves of other sizes."""
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        inputs = [new[i] for i in hop.inputs]
        if hop.op.name == "const":
            new[hop] = hop
        elif hop.op.name == "leaf":
            shape = tuple(n if n < 2 else dims[n] for n in hop.meta.shape)
            new[hop] = leaf(
                hop.attr("slot"), Meta(shape, hop.meta.dtype), hop.attr("form"), hop.line)
        else:
            attrs = {k: _resize(v, inputs, dims) if k == "shape" else v for k, v in hop.attrs}
            new[hop] = make(hop.op.name, inputs, hop.line, **attrs)
    return tuple(new[r] for r in roots)


def _resize(shape: Shape, inputs: Sequence[Hop], dims: Mapping[int, int]) -> Shape:
    """Translate a shape; one size that no symbol stands for follows from the number of elements."""
    sizes = [n if n < 2 else dims.get(n, -1) for n in shape]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = inputs[0].meta.size // max(-prod(sizes), 1)
    if -1 in sizes:
        raise InternalError(f"program: sizes of {shape} are not among {dict(dims)}")
    return tuple(sizes)


class Code(NamedTuple):
    """One piece of machine code of kernel number `at`: for which `form` of arrays, its IR, its assembly."""

    at: int
    form: str
    text: str
    assembly: str


def codes(loops: Sequence[Any], tools: RowTools) -> Iterator[Code]:
    """Yield the code of every loop, in their order."""
    for at, loop in enumerate(loops):
        for form, text in _texts(loop):
            yield Code(at, form, text, tools.assembly(text))


def _texts(loop: Any) -> Iterator[tuple[str, str]]:
    if isinstance(loop, BlockLoop):
        texts = dict.fromkeys(getattr(made, "text", "") for made in loop.kept)
        yield from (("part of a pass over rows", text) for text in texts if text)
        return
    for (form, schedule), (executable, _) in loop.variants.items():
        stream = ", around the caches" if schedule.nontemporal else ""
        short = ", several short rows to a vector" if schedule.crosswise else ""
        yield f"form {form.mode} {form.ndim}-d {form.inner}{stream}{short}", executable.text


MAX_VARIANTS = 4
DRIFTED = 4.0  # how many times more, or fewer, nonzeros to a row make another plan worth while
# The operands, of operators on compressed rows, that have an element for every entry, and for every row.
_LINES = {**dict.fromkeys(COMPRESSED_FORMS, (0, 2)), "sampled": (2, 1), "sampled_product": (3, 2)}
RESHAPED = 2.0  # how many times more one size may have grown than another for what a search has found

Run = Callable[[Sequence[Any]], tuple[Any, ...]]


class Workshop(RowTools, Protocol):
    """What a program asks of whoever made it."""

    def allocator(self) -> Callable[..., np.ndarray]:
        """Return ``empty(shape, dtype[, axes slowest first])``."""
        ...

    def stored(self, name: str) -> Callable[..., np.ndarray]:
        """Return what computes the operator `name` at the stored positions of a sparse matrix."""
        ...


@lru_cache(1024)
def _compiled(source: str) -> CodeType:
    """Return the code of a program's function; programs that differ in their kernels often share it."""
    return compile(source, "<jitla program>", "exec")


class Program:
    """A compiled DAG, for all sizes and layouts of its class."""

    def __init__(
        self, plan: Plan, layouts: Mapping[int, Layout], places: Mapping[Hop, Layout], outs: Outs,
        aliases: Aliases, workshop: Workshop, limit: int = 0,
    ) -> None:
        self.plan = plan
        self.limit = limit
        self.fusion = "cost"
        self.weigh: Callable[[Any], PlanExplanation] | None = None  # says of a draft how its plan was chosen
        self.outs = outs
        self.aliases = aliases
        self.layouts = dict(layouts)
        self.tell: Callable[[], tuple[Any, ...]] = tuple  # says how it was planned
        # Of products, whose best order depends on sizes.
        self.chains: Callable[[], tuple[rewrites.Chain, ...]] = tuple
        self.searched = False  # what is computed was found by search, for these sizes
        self.fixed = False  # parts of it are made for these sizes only
        self.spelling: Expansion | None = None  # aggregates that are spelled out for some sizes and layouts
        self.given = plan.outputs  # what was traced: rewrites may hold for these sizes only
        self.sizes: tuple[int, ...] | None = None  # of the symbols in the representative roots
        self.order: Order = order_steps(plan, outs, aliases, layouts, places)
        self._chosen: dict[Any, tuple[Key, Mapping[Shape, Shape]]] = {}  # kernels for which something chooses
        self._last: Any = None  # what it was bound to last
        self.clock = Clock(len(self.order.steps))
        self.script: Script = write_script(self.order, plan.outputs, outs, aliases)
        self._workshop = workshop
        #: Programs of the same roots for sizes and layouts that this one does not suit, with these sizes.
        self.variants: list[tuple[Program, dict[int, int]]] = []
        #: Returns a program of the same roots in which every step is a NumPy call, for sizes and layouts.
        self.numpy_program: Callable[[Mapping[int, int], Mapping[int, Layout]], Program] | None = None
        kernels = [s for s in self.order.steps if not isinstance(s, Call)]
        self._loops = [loop_of(k) for k in kernels]
        hops = topo(plan.outputs)
        self._arrays = [h for h in hops if h.meta.shape != ()]
        lines = [[h.inputs[n].meta.size for n in _LINES[h.op.name]] for h in topo(self.given)
                 if h.op.name in _LINES]
        self._lines = {(entries, starts) for entries, starts in lines}
        self._shapes = {h.meta.shape for h in hops} | {s.shape for s in kernels}
        self._shapes |= {v for h in hops for k, v in h.attrs if k == "shape"}
        self._reshaped = {(h.inputs[0].meta.shape, h.meta.shape) for h in hops if h.op.name == "reshape"}
        self._counts = [n.subject for n in self.script.needs if n.kind == "count"]
        self._shapes |= {h.inputs[0].meta.shape for h in self._counts if h.inputs}
        self._code = _compiled(self.script.source)
        self._make = self._define()

    def _define(self) -> Callable[[Bound, Sequence[Any]], Run]:
        scope: dict[str, Any] = {**self.script.constants, "CLOCK": self.clock}
        exec(self._code, scope)
        made: Callable[[Bound, Sequence[Any]], Run] = scope["make"]
        return made

    # ---------------------------------------------------------------------- facts

    @cached_property
    def stages(self) -> tuple[Any, ...]:
        """The stages of planning; where the plan was found, it is planned again to tell them."""
        return self.tell()

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
        """Return what every stage made of the roots, and the Python function that runs."""
        parts = [f"== {s.name}   {s.seconds * 1e3:.2f} ms   {s.doc}\n{s.text()}" for s in self.stages]
        fired = ", ".join(self.fired) or "nothing"
        source = self.script.source.rstrip()
        return "\n\n".join([*parts, f"== rules fired\n{fired}", f"== program\n{source}"])

    def codes(self) -> Iterator[Code]:
        """Yield what kernels were compiled from and to."""
        return codes(self._loops, self._workshop)

    def peak(
        self, dims: Mapping[int, int] | None = None, layouts: Mapping[int, Layout] | None = None
    ) -> int:
        """Return the bytes that results and intermediates are predicted to take, bound like this."""
        sizes = self.identity() if dims is None else dims
        return peak_bytes(
            self.order.steps, self.plan.outputs, self._workshop.cores, frozenset(self.order.direct),
            lambda shape: tuple([sizes.get(n, n) for n in shape]),
            self._waiting(sizes, self.layouts if layouts is None else layouts))

    def _waiting(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> dict[Hop, int]:
        """Return the bytes of those rows of values that wait to be stored."""
        if not self.order.delayed:
            return {}
        binding = self._binding(dims, layouts, {})
        waiting: dict[Hop, int] = {}
        for loop in self._loops:
            late = [h for h in loop.kernel.outputs if h in self.order.delayed]
            if late and isinstance(loop, CellLoop):  # it has one result
                executable, _, geometry = loop.variant(binding)
                waiting[late[0]] = executable.scratch(geometry)
        return waiting

    # ---------------------------------------------------------------------- bindings

    def bind(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> Bound:
        """Return the program bound to other sizes and layouts of its class.

        `dims` maps the sizes in the representative roots to the sizes now; 0 and 1 stand for
        themselves. `layouts` are those of the array leaves, by slot. Raises `Misfit` if the plan is not
        right for them: `Compiler.bind` finds or compiles another.
        """
        if not self.suits(dims) or not self.reads(dims, layouts):
            raise Misfit
        return Bound(self, dims, layouts)

    def suits(self, dims: Mapping[int, int]) -> bool:
        """Say whether what was chosen by sizes is right for others: all are about as many times larger."""
        moved = any(old != new for old, new in dims.items())
        if self.fixed and moved:
            return False
        if moved and not all(rewrites.is_well_ordered(chain, dims) for chain in self.chains()):
            return False
        if any(self._drifted(*line, dims) for line in self._lines):
            return False
        if not self.searched:
            return True
        growth = [new / old for old, new in dims.items() if old > 1 and new > 0]
        return not growth or max(growth) <= RESHAPED * min(growth)

    def reads(self, dims: Mapping[int, int], layouts: Mapping[int, Layout]) -> bool:
        """Say whether aggregates that are spelled out have these terms in this order."""
        if self.spelling is None:
            return True
        return is_expansion_valid(self.spelling, rebuild(self.spelling[0], dims), layouts)

    def _drifted(self, entries: int, starts: int, dims: Mapping[int, int]) -> bool:
        """Tell whether compressed lines are far more or less full than those the plan was made for."""
        before = max(entries, 1) / max(starts, 1)
        now = max(dims.get(entries, entries), 1) / max(dims.get(starts, starts), 1)
        return not 1.0 / DRIFTED < now / before < DRIFTED

    def misfit(self, dims: Mapping[int, int]) -> Reason:
        """Return why the plan is not right for these sizes."""
        for chain in self.chains():
            if not rewrites.is_well_ordered(chain, dims):
                return Reason("order of products", "the one that was best", "another that is better")
        for entries, starts in self._lines:
            if self._drifted(entries, starts, dims):
                now = dims.get(entries, entries) / max(dims.get(starts, starts), 1)
                return Reason("sparsity", f"{entries / max(starts, 1):.3g} nonzeros to a row", f"{now:.3g}")
        if self.suits(dims):
            return Reason("layout", "as the plan's loops walk", "another")
        sizes = {old: new for old, new in dims.items() if old > 1}
        return Reason("proportions", "x".join(map(str, sizes)), "x".join(map(str, sizes.values())))

    def identity(self) -> dict[int, int]:
        """Return the binding of sizes to themselves."""
        return {n: n for shape in self._shapes for n in shape}

    def values_for(
        self, bound: Bound, dims: Mapping[int, int], layouts: Mapping[int, Layout],
        learned: Mapping[Hop, Layout],
    ) -> list[Any]:
        """Return what the program's function takes from a binding."""
        binding = self._binding(dims, layouts, learned)
        shapes, places = binding.shapes, binding.places
        blocks = [self._block(at, binding) for at in range(len(self._loops))]
        self._last = dims, layouts, learned
        empty = self._workshop.allocator()

        def value(need: Need) -> Any:
            match need.kind:
                case "block":
                    return blocks[need.subject][0]
                case "launch":
                    return blocks[need.subject][1]
                case "empty" if need.subject.op.name == "ring":
                    return room(empty, places[need.subject], need.subject)
                case "edges":
                    return edges(shapes[need.subject.meta.shape], need.subject.attr("widths"))
                case "empty":
                    lent = any(name == "axes" for name, _ in need.subject.attrs)  # as NumPy's is
                    return maker(empty, need.subject.meta.dtype, places[need.subject], lent)
                case "strides":
                    return places[need.subject].strides
                case "copy":
                    return partial(copied, empty)
                case "shape":
                    return shapes[need.subject.attr("shape")]
                case "stored":
                    return self._workshop.stored(need.subject.op.name)
                case "count":
                    shape = shapes[need.subject.inputs[0].meta.shape]
                    return np.intp(prod(shape[a] for a in need.subject.attr("axis")))
            raise InternalError(f"program: nothing is known of a need for {need.kind!r}")

        return [value(need) for need in self.script.needs]

    def _binding(
        self, dims: Mapping[int, int], layouts: Mapping[int, Layout], learned: Mapping[Hop, Layout],
    ) -> Binding:
        shapes = self._bind_shapes(dims)
        places = self._bind_layouts(shapes, layouts, learned)
        return Binding(shapes, places, layouts, self.order, self._workshop)

    def _bind_shapes(self, dims: Mapping[int, int]) -> dict[Shape, Shape]:
        try:
            shapes = {s: tuple([n if n < 2 else dims[n] for n in s]) for s in self._shapes}
        except KeyError:
            raise Misfit from None
        if any(prod(shapes[a]) != prod(shapes[b]) for a, b in self._reshaped):
            raise Misfit  # a product of sizes was one of the others by chance
        return shapes

    def _bind_layouts(
        self, shapes: Mapping[Shape, Shape], layouts: Mapping[int, Layout],
        learned: Mapping[Hop, Layout],
    ) -> dict[Hop, Layout]:
        """Return where every array lies; values made of C-ordered arrays only are C-ordered."""
        places: dict[Hop, Layout] = {}
        plain: set[Hop] = set()
        for hop in self._arrays:
            shape = shapes[hop.meta.shape]
            in_order = contiguous(shape, hop.meta.dtype.itemsize)
            if hop.op.kind is Kind.LEAF:
                place = layouts[hop.attr("slot")]
                if place.shape != shape:
                    raise InternalError(f"program: a leaf of {place.shape} is bound as {shape}")
            elif hop in learned:
                place = learned[hop]
            elif hop.op.kind is not Kind.CALL and hop.op.name not in ("ring", "take") and all(
                    i in plain or not i.meta.shape for i in hop.inputs):
                place = in_order
            else:
                place = self._place(hop, shape, shapes, places)
            places[hop] = place
            if place.strides == in_order.strides:
                plain.add(hop)
        places |= {h: _SCALAR for loop in self._loops for h in loop.kernel.outputs if not h.meta.shape}
        return places

    def _place(
        self, hop: Hop, shape: Shape, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout]
    ) -> Layout:
        attrs = {k: shapes[v] if k == "shape" else v for k, v in hop.attrs}
        return hop_layout(hop, shape, attrs, [places.get(i, _SCALAR) for i in layout_operands(hop)])

    def _block(self, at: int, binding: Binding) -> Made:
        """Return the argument block of a kernel and what runs it, knobs as whoever tunes or pins chooses."""
        rest()
        loop, tuning = self._loops[at], self._workshop.tuning
        if tuning is None:
            return made(loop, binding, UNTUNED)
        choice = choice_of(loop, binding)
        self._chosen[loop.kernel] = choice.key, binding.shapes
        return tuning.block(choice)

    @property
    def chosen(self) -> dict[Any, Chosen]:
        """What runs kernels now, where something chooses."""
        tuning = self._workshop.tuning
        return {} if tuning is None else {
            kernel: Chosen(tuning.chosen.get(key, UNTUNED), tuning.said.get(key, ""), shapes)
            for kernel, (key, shapes) in self._chosen.items()}

    def choices(self) -> Iterator[tuple[int, Any, Choice]]:
        """Yield the number of every kernel in the plan, the kernel, and what may be chosen as bound last."""
        if self._last is not None:
            kernels = [s for s in self.plan.steps if not isinstance(s, Call)]
            binding = self._binding(*self._last)
            for at, loop in enumerate(self._loops):
                yield kernels.index(loop.kernel) + 1, loop.kernel, choice_of(loop, binding)


_SCALAR = Layout((), ())


class Bound:
    """A program with sizes and layouts filled in: `run(L)` returns the root values for leaves `L`."""

    __slots__ = ("program", "run", "count", "alert", "effects", "dims", "layouts", "_learned",
                 "__weakref__")

    frozen = False  # it is no stopgap

    def __init__(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout]
    ) -> None:
        if program.limit and program.peak(dims, layouts) > program.limit >= program.peak():
            raise Misfit  # a plan for these sizes may fit
        self.program = program
        self.count = 0
        self.alert = False  # whether whoever runs this wants to know of flags
        self.effects: Any = None  # what that needs to know, kept here for it
        self.dims = dims
        self.layouts = layouts
        self._learned: dict[Hop, Layout] = {}
        self.run: Run = self._bind()
        program.clock.on = True

    def peak(self) -> int:
        """Return the bytes that results and intermediates are predicted to take."""
        return self.program.peak(self.dims, self.layouts)

    def _bind(self) -> Run:
        data = self.program.values_for(self, self.dims, self.layouts, self._learned)
        return self.program._make(self, data)

    def flagged(
        self, values: tuple[Any, ...], flags: int, saved: dict[int, np.ndarray | None], exact: bool,
    ) -> tuple[Any, ...]:
        """End a run that raised floating-point flags: `FlagsRaised` is raised if that was asked for."""
        if self.alert:
            known = {k: v for k, v in saved.items() if v is not None}
            raise FlagsRaised(values, flags, known, exact)
        return values

    def learn(self, leaves: Sequence[Any], hop: Hop, value: np.ndarray) -> tuple[Any, ...]:
        """Run again from the start, now that NumPy has shown where the result of `hop` lies.

        Nothing is lost: stores come after every such call.
        """
        self._learned[hop] = Layout(value.shape, value.strides)
        try:
            self.run = self._bind()
        except Misfit:
            assert self.program.numpy_program is not None
            plain = self.program.numpy_program(self.dims, self.layouts)
            other = Bound(plain, plain.identity(), self.layouts)
            other.alert = self.alert
            self.program, self.run = plain, other.run
        return self.run(leaves)
