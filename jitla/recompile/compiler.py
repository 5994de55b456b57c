"""The compiler: makes and caches programs of blocks, and checks every compiled kernel against NumPy.

Every kernel is checked against NumPy on a few elements when it is compiled (`numpy_difference`); one that
differs is replaced by NumPy calls.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import inf, prod
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from jitla import fusion as planning
from jitla import rewrites
from jitla.compile_stats import COMPILING, CompilationDisabled, Reason
from jitla.concurrency import fork_safe_lock
from jitla.errors import BackendError
from jitla.events import Event, log
from jitla.fusion import (
    Backend,
    Blocking,
    BlockStage,
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
from jitla.process.loading import lazy_functions
from jitla.recompile.binding import Misfit
from jitla.recompile.output_buffers import Aliases, Outs
from jitla.recompile.pipeline import Draft, Tools
from jitla.recompile.plan_store import (
    PlanStore,
    StoredPlan,
    hop_numbers,
    parse_plan,
    serialise_plan,
)
from jitla.recompile.program import MAX_VARIANTS, BoundProgram, Program, compose_sizes, rebuild
from jitla.recompile.schedule_choices import ExecutableNest, Launch, Launchable, ScheduleTuner
from jitla.rewrites import SearchBudget
from jitla.runtime import allocator

if TYPE_CHECKING:
    from jitla.loopir import Nest
    from jitla.recompile.offload import OffloadTarget

__all__ = ["numpy_difference"]


# Sizes that kernels are checked with. Elements in one run: one more than a block of a sum, and than whole
# vectors of every width. The last two dimensions of long rows, rows that share vectors, sums of columns.
CHECK_ELEMENTS, CHECK_ROWS, CHECK_SHORT_ROWS, CHECK_COLUMNS = 129, (3, 131), (19, 3), (19, 37)
# Tolerance of approximate functions, in units in the last place of the largest result; and the share of the
# elements that may exceed it: near the borders of domains and of conditions.
MAX_ULPS, MAX_OUTLIER_SHARE = 1e5, 0.2


def numpy_difference(
    kernel: Kernel, form: Form, schedule: Schedule, executable: Executable, launch: Launch, exact: bool,
) -> str:
    """Return how a compiled kernel differs from NumPy on small arrays; empty if it does not.

    Forms that this check does not support count as equal.
    """
    is_supported = form.mode in ("cell", "full", "rows", "cols") and not set(form.inner) - set("cbsfr")
    if not is_supported or schedule.delayed:
        return ""
    inputs = [h for h in kernel.inputs if h.op.name != "const"]
    arrays = [h for h in inputs if h.meta.shape != ()] + list(kernel.outputs)
    # The aggregate of another kernel is an array like others.
    modes = [form.mode if h in kernel.body and h.op.kind is Kind.AGG else "cell" for h in arrays]
    for dims in _sizes(form, schedule):
        strides = tuple(_strides(h.meta.dtype.itemsize, letter, dims, mode)
                        for h, letter, mode in zip(arrays, form.inner, modes, strict=True))
        text = _differs(kernel, form, inputs, Geometry(dims, strides), executable, launch, exact)
        if text:
            return text
    return ""


def _sizes(form: Form, schedule: Schedule) -> Iterator[tuple[int, ...]]:
    """Yield the sizes to check a kernel of a form with."""
    if form.ndim == 1:
        yield (CHECK_ELEMENTS,)
    else:
        outer = (2,) * (form.ndim - 2)
        yield (*outer, *(CHECK_COLUMNS if form.mode == "cols" else CHECK_ROWS))
        if schedule.crosswise:
            yield (*outer, *CHECK_SHORT_ROWS)


def _strides(size: int, letter: str, dims: tuple[int, ...], mode: str) -> tuple[int, ...]:
    """Return the strides of an operand; rows have a gap between them.

    `mode` is how the operand is aggregated, "cell" if it is not; `letter` is that of the form.
    """
    n = dims[-1]
    if mode == "full":
        return (0,) * len(dims)
    if letter == "r":
        return (*[0] * (len(dims) - 1), size)
    element_stride, row_stride = {"c": (size, (n + 1) * size), "f": (size, n * size), "b": (0, size)}.get(
        letter, (2 * size, (2 * n + 1) * size))
    strides = [row_stride * prod(dims[axis:-1]) for axis in range(1, len(dims))] + [element_stride]
    if mode == "cols":
        strides[0] = 0
    return tuple(strides)


def _differs(
    kernel: Kernel, form: Form, inputs: list[Hop], geometry: Geometry, executable: Executable, launch: Launch,
    exact: bool,
) -> str:
    """Return how results differ for these sizes; empty if they do not."""
    empty = allocator()
    strides_of_arrays = iter(geometry.strides)
    arguments = [_value(h, n, () if h.meta.shape == () else next(strides_of_arrays), geometry.dims, empty)
                 for n, h in enumerate(inputs)]
    result_sizes = [_elements(h, strides, geometry.dims)
                    for h, strides in zip(kernel.outputs, strides_of_arrays, strict=True)]
    by_numpy = InterpretedKernel(kernel, form), InterpretedBackend().launch
    expected, actual = (_run(kernel, arguments, result_sizes, code, run, geometry, empty)
                        for code, run in (by_numpy, (executable, launch)))
    is_inexact = not exact or any(is_approximate(h.op) for h in kernel.body)
    # Rows are added up in another order.
    sums = form.ndim > 1 and any(h.op.kind is Kind.AGG for h in kernel.body)
    units = [float(np.finfo(h.meta.dtype).eps) for h in kernel.body if h.meta.dtype.kind in "fc"]
    unit = max(units, default=0.0)
    for hop, a, b in zip(kernel.outputs, expected, actual, strict=True):
        floats = a.dtype.kind in "fc"
        outliers = MAX_OUTLIER_SHARE if is_inexact else 0.0
        same = _is_close(a, b, unit, outliers) if is_inexact or sums and floats else \
            np.array_equal(a, b, equal_nan=floats)
        if not same:
            return f"{hop.op.name} of {hop.meta.dtype}: {a[:3].tolist()} in NumPy, {b[:3].tolist()} compiled"
    return ""


def _elements(hop: Hop, strides: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last of an operand."""
    return 1 + sum((n - 1) * s for n, s in zip(dims, strides, strict=True)) // hop.meta.dtype.itemsize


def _run(
    kernel: Kernel, arguments: list[Any], result_sizes: list[int], executable: Any, launch: Launch,
    geometry: Geometry, empty: Callable[..., np.ndarray],
) -> list[np.ndarray]:
    """Run a kernel on small arrays; return its results, including the gaps between their rows."""
    results = []
    for hop, elements in zip(kernel.outputs, result_sizes, strict=True):
        result = empty((elements,), hop.meta.dtype)
        result[...] = 0
        results.append(result)
    launch(executable.template(geometry), *arguments, *results)
    return results


def _value(
    hop: Hop, number: int, strides: tuple[int, ...], dims: tuple[int, ...], empty: Callable[..., np.ndarray],
) -> Any:
    """Return the value of an operand: small, of both signs, different from that of the operand before."""
    dtype = hop.meta.dtype
    elements = _elements(hop, strides, dims) if strides else CHECK_ELEMENTS
    steps = (np.arange(elements) * (5 + 2 * number) + number) % 23
    values = {"b": steps % 2 == 0, "u": steps % 7, "i": steps % 7 - (0 if number else 2)}.get(
        dtype.kind, steps / 11.5 - 0.4)
    if dtype.kind == "c":
        values = values + 1j * values[::-1]
    if hop.meta.shape == ():  # the types in which kernels take scalars
        scalar = dtype.type(values[3 + number % 5])
        return {"d": float, "D": complex}.get(dtype.char, lambda x: x)(scalar)
    array = empty((elements,), dtype)
    array[...] = values
    return array


def _is_close(a: np.ndarray, b: np.ndarray, unit: float, outlier_share: float) -> bool:
    """Return whether results agree up to rounding, but for the share `outlier_share` of outliers.

    `unit` is the rounding unit of the least precise intermediate value: results may be more precise.
    """
    if a.dtype.kind not in "fc":
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return True
    a, b = a[finite], b[finite]
    bound = MAX_ULPS * unit * max(float(np.abs(a).max()), 1.0)
    return float(np.mean(np.abs(a - b) > bound)) <= (outlier_share if len(a) > 1 else 0.0)


if TYPE_CHECKING:
    from jitla.recompile.pipeline import (
        StageTrace,
        choose_hoisted,
        explain_draft,
        run_pipeline,
        stage_traces,
    )
else:  # loaded by the first draft without a stored plan
    choose_hoisted, run_pipeline, stage_traces, explain_draft = lazy_functions(
        "jitla.recompile.pipeline", "choose_hoisted", "run_pipeline", "stage_traces", "explain_draft")


class PlanCache:
    """Makes programs of drafts, from plans stored by earlier processes where there are any.

    `environment` identifies machine and options: plans made in another one are misses.
    """

    def __init__(self, tools: Tools, plan_store: PlanStore | None = None, environment: str = "") -> None:
        self._tools, self._plan_store, self._environment = tools, plan_store, environment

    def program(self, draft: Draft) -> Program:
        """Return the program of a draft."""
        start = perf_counter()
        key = self._key(draft)
        text = self._load(key)
        stored_plan = None if text is None else parse_plan(draft, text, self._environment)
        if stored_plan is not None:
            self._tools.observe(Event("plan.found", seconds=perf_counter() - start))
            return program_of(stored_plan, draft, self._tools)
        if self._tools.rules is not None or self._tools.templates:
            COMPILING.current.count_plan()
        stored_plan, traces = run_pipeline(draft, self._tools)
        if key:  # even if the search ran out of its budget, which is processor time: it would do so again
            self._save(key, draft, stored_plan)
        return program_of(stored_plan, draft, self._tools, traces)

    def values_to_hoist(
        self, draft: Draft, invariant_slots: Collection[int], candidates: Collection[Hop], max_bytes: int,
        ignore_costs: bool,
    ) -> tuple[Hop, ...]:
        """Return which of `candidates` to hoist while leaves in `invariant_slots` do not change."""
        numbers = hop_numbers(draft, candidates)
        key = self._key(draft, "invariants", sorted(invariant_slots), numbers, max_bytes, ignore_costs)
        text, hops = self._load(key), topo(draft.roots)
        stored = None if text is None else json.loads(text)
        if stored is not None and stored[0] == self._environment:
            return tuple([hops[n] for n in stored[1]])
        hoisted = choose_hoisted(draft, self._tools, invariant_slots, candidates, max_bytes, ignore_costs)
        if key and self._plan_store is not None:
            number = {h: n for n, h in enumerate(hops)}
            self._plan_store.put(key, json.dumps([self._environment, [number[h] for h in hoisted]]).encode())
        return hoisted

    def _key(self, draft: Draft, *more: Any) -> str:
        """Return the key of a draft in the plan store; empty if nothing is stored."""
        if self._plan_store is None:
            return ""
        try:
            return block_digest(draft.roots, draft.layouts, draft.outs, draft.aliases, *more)
        except NotSerialisable:
            return ""

    def _load(self, key: str) -> bytes | None:
        return self._plan_store.get(key) if key and self._plan_store is not None else None

    def _save(self, key: str, draft: Draft, stored_plan: StoredPlan) -> None:
        assert self._plan_store is not None
        try:
            self._plan_store.put(key, serialise_plan(draft, stored_plan, self._environment))
        except NotSerialisable as error:
            self._tools.observe(Event("plan.unwritten", str(error)))


def program_of(
    stored_plan: StoredPlan, draft: Draft, tools: Tools, traces: Sequence[StageTrace] = (),
) -> Program:
    """Return the program of a plan; without `traces` the stages are run again when they are asked for."""
    start = perf_counter()
    plan, final_draft = stored_plan.plan, traces[-1].draft if traces else draft
    places = all_layouts(plan.outputs, draft.layouts)
    program = Program(plan, draft.layouts, places, draft.outs, draft.aliases, tools.builder, tools.limit)
    program.trace_stages = partial(stage_traces, draft, tools, program, traces)
    program.traced_roots = stored_plan.traced_roots
    if tools.rules is not None:
        program.chains = cache(partial(_chains, plan))
    program.expansion = stored_plan.expansion
    program.found_by_search = stored_plan.found_by_search
    program.has_fixed_sizes = final_draft.placement is not None and bool(final_draft.placement.parts)
    program.fusion = tools.fusion
    program.explain_plan = partial(explain_draft, tools)
    tools.observe(Event("pipeline.program", seconds=perf_counter() - start))
    return program


def _chains(plan: Plan) -> tuple[rewrites.Chain, ...]:
    """Return the chains of matrix products whose order is optimal for the sizes planned for."""
    return tuple(c for c in rewrites.find_matmul_chains(plan.outputs) if rewrites.is_well_ordered(c, {}))


V = TypeVar("V")


class LruCache(Generic[V]):
    """A thread-safe LRU cache of at most `max_entries` values and `max_bytes` bytes."""

    def __init__(self, max_entries: int, max_bytes: float = inf) -> None:
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = fork_safe_lock()
        self.evicted = self.nbytes = 0

    def get(self, key: Hashable) -> V | None:
        """Return the value of `key`, or None."""
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: V, nbytes: int = 0) -> None:
        """Store `value` of size `nbytes`, and evict others above the limits."""
        with self._lock:
            self.nbytes += nbytes - self._entries.pop(key, (value, 0))[1]
            self._entries[key] = value, nbytes
            while len(self._entries) > self._max_entries or \
                    self.nbytes > self._max_bytes and len(self._entries) > 1:
                _, (_, freed) = self._entries.popitem(last=False)
                self.nbytes -= freed
                self.evicted += 1

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()
            self.nbytes = 0

    def values(self) -> list[V]:
        """Return all values."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)


# Approximate bytes of a program and of a kernel, in Python and in LLVM, and of each operation; and limits.
PROGRAM_BYTES, KERNEL_BYTES, OPERATION_BYTES = 32 << 10, 24 << 10, 4 << 10
MAX_PROGRAM_BYTES, MAX_KERNEL_BYTES = 96 << 20, 96 << 20

# Layouts of leaves: those of others are plain tuples.
LeafLayouts = Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]
ProgramSpec = tuple[tuple[Hop, ...], LeafLayouts, Outs, Aliases]


def _ignore_event(event: Event) -> None:
    """Ignore an event."""


class Compiler:
    """Makes and caches the programs of blocks."""

    def __init__(
        self, backend: Backend, launch: Launch | None = None, *,
        rules: Callable[[], rewrites.RuleSet] | None = lambda: rewrites.RULES,
        numerics: str = "numpy", machine: Machine = REFERENCE_MACHINE,
        threads: int = 0, fusion: str = "cost", memory_limit: int = 0, effort: SearchBudget | None = None,
        observe: Callable[[Event], None] = _ignore_event, check: bool = False,
        max_programs: int = 1024, max_kernels: int = 4096, devices: tuple[OffloadTarget, ...] = (),
        placement: str = "cost", tuning: ScheduleTuner | None = None,
        max_program_bytes: int = MAX_PROGRAM_BYTES,
        plan_store: PlanStore | None = None, environment: str = "",
    ) -> None:
        self.backend = backend
        self.numerics = numerics
        self.threads = threads
        self.tuning = tuning
        self.cores = machine.threads
        self.devices = devices
        self._launch: Launch = launch or backend.launch
        self._observe = observe
        self._programs: LruCache[Program] = LruCache(max_programs, max_program_bytes)
        self._kernels: LruCache[tuple[Executable, Launch]] = LruCache(max_kernels, MAX_KERNEL_BYTES)
        self._build_lock = fork_safe_lock()
        self._stored_operators: Any = None
        allowed = None if rules is None else cache(lambda: rules().at(numerics))
        searches = allowed is not None and numerics != "strict" and fusion == "cost" and effort is not None
        self._tools = Tools(
            allowed, self.supports, machine, backend.templates, fusion, self, observe, check, memory_limit,
            cache(lambda: planning.PartitionCache()),
            cache(lambda: rewrites.SUBSTITUTIONS.at(numerics)) if searches else None,
            effort or SearchBudget(),
            devices, placement)
        self._plan_cache = PlanCache(self._tools, None if devices else plan_store, environment)

    # ---------------------------------------------------------------------- programs

    def program(self, key: Hashable, make_spec: Callable[[], ProgramSpec]) -> Program:
        """Return the program cached under `key`; on a miss, that of the block `make_spec()` returns."""
        compiled = self._programs.get(key)
        if compiled is None:
            COMPILING.current.require_allowed()  # calls that must not compile do not wait for those that do
            with self._build_lock:
                compiled = self._programs.get(key)
                if compiled is None:
                    spec = make_spec()
                    compiled = self.build(*spec)
                    self._programs.put(key, compiled, PROGRAM_BYTES + OPERATION_BYTES * len(topo(spec[0])))
        return compiled

    def bind(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout],
    ) -> tuple[BoundProgram, Reason | None]:
        """Return a program or one of its variants bound to sizes and layouts.

        If none of them is right, a variant is compiled, and the second result is the reason. `dims` and
        `layouts` are those of `Program.bind`.
        """
        variants = program.variants
        # At the limit of variants, plans that are merely not the best are good enough.
        takes_any = len(variants) == MAX_VARIANTS and not program.has_fixed_sizes
        for candidate, made_for in ((program, None), *variants):
            sizes = dims if made_for is None else compose_sizes(made_for, dims)
            if sizes is not None and (takes_any or candidate.suits(sizes)) and \
                    candidate.has_valid_expansion(sizes, layouts):
                try:
                    return BoundProgram(candidate, sizes, layouts), None
                except Misfit:
                    continue
        reason = program.misfit_reason(dims)
        try:
            variant = self.build(rebuild(program.traced_roots, dims), layouts, program.outs, program.aliases)
        except CompilationDisabled as refused:
            refused.reason = reason
            raise
        program.variants = [*variants, (variant, dict(dims))][-MAX_VARIANTS:]
        return BoundProgram(variant, variant.identity(), layouts), reason

    def build(
        self, roots: tuple[Hop, ...], layouts: LeafLayouts, outs: Outs | None = None,
        aliases: Aliases = frozenset(), kernels: bool = True,
    ) -> Program:
        """Return a new program for `roots`.

        `layouts` are those of the array leaves and of the leaves stored into, by slot. ``outs[i]`` is the
        slot that root i is written into, or None. `aliases` are pairs of slots that overlap but are not the
        same view; the same view under two slots is one of them.
        """
        draft = _draft(roots, layouts, outs, aliases)
        plan_cache = self._plan_cache if kernels else PlanCache(Tools(
            None, _unsupported, REFERENCE_MACHINE, (), "cost", self, self._observe, self._tools.check))
        with self._build_lock:
            if kernels:
                COMPILING.current.require_allowed()
            program = plan_cache.program(draft)
        program.trace_stages = partial(self._told, program.trace_stages)
        program.numpy_program = partial(self._numpy_program, program)
        return program

    def _numpy_program(
        self, program: Program, dims: Mapping[int, int], layouts: Mapping[int, Layout],
    ) -> Program:
        """Return a program of the same roots in which every step is a NumPy call."""
        roots = rebuild(program.traced_roots, dims)
        return self.build(roots, layouts, program.outs, program.aliases, kernels=False)

    def _told(self, trace_stages: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        with self._build_lock:
            return trace_stages()

    def values_to_hoist(
        self, spec: ProgramSpec, invariant_slots: Collection[int], candidates: Collection[Hop],
        max_bytes: int, ignore_costs: bool,
    ) -> tuple[Hop, ...]:
        """Return which of `candidates` to hoist while leaves in `invariant_slots` do not change.

        They take at most `max_bytes`; with `ignore_costs` all that need no recomputation are hoisted.
        """
        with self._build_lock:
            return self._plan_cache.values_to_hoist(
                _draft(*spec), invariant_slots, candidates, max_bytes, ignore_costs)

    def has(self, key: Hashable) -> bool:
        """Return whether a program is cached under `key`."""
        return key in self._programs

    def cached_program(self, key: Hashable) -> Program | None:
        """Return the program cached under `key`, or None."""
        return self._programs.get(key)

    def programs(self) -> list[Program]:
        """Return the cached programs, the most recently used last."""
        return self._programs.values()

    def statistics(self) -> dict[str, int]:
        """Return the number of programs and kernels cached, their bytes, about, and evictions."""
        return {
            "programs": len(self._programs), "kernels": len(self._kernels),
            "nbytes": self._programs.nbytes + self._kernels.nbytes,
            "dropped": self._programs.evicted + self._kernels.evicted,
        }

    def clear(self) -> None:
        """Empty the caches of programs and kernels."""
        self._programs.clear()
        self._kernels.clear()

    # ---------------------------------------------------------------------- for programs

    def supports(self, hop: Hop) -> str | None:
        """Return why `hop` cannot be part of a kernel, or None."""
        if self.numerics == "strict" and (is_approximate(hop.op) or hop.op.kind is Kind.CALL):
            return "numerics=strict"
        return self.backend.supports(hop)

    def executable(
        self, kernel: Kernel, key: Any, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        """Return one variant of a kernel and its launcher; one that fails to compile is interpreted."""
        cache_key = (key, form, schedule)
        compiled = self._kernels.get(cache_key)
        if compiled is not None:
            COMPILING.current.count_kernel(None)
        else:
            COMPILING.current.require_allowed()
            with self._build_lock:
                compiled = self._kernels.get(cache_key)
                if compiled is None:
                    compiled = self._compile(kernel, form, schedule)
                    self._kernels.put(cache_key, compiled, KERNEL_BYTES + OPERATION_BYTES * len(kernel.body))
        return compiled

    def _compile(
        self, kernel: Kernel, form: Form, schedule: Schedule
    ) -> tuple[Executable, Launch]:
        start = perf_counter()
        try:
            compiled = self.backend.compile(kernel, form, schedule), self._launch
        except BackendError as error:
            self._observe(Event("kernel.failed", str(error), perf_counter() - start))
            return InterpretedKernel(kernel, form), InterpretedBackend().launch
        difference = self._differs(kernel, form, schedule, compiled)
        if difference:
            self._observe(Event("kernel.failed", difference, perf_counter() - start))
            return InterpretedKernel(kernel, form), InterpretedBackend().launch
        data = {"template": kernel.template, "form": f"{form.mode}{form.ndim}{form.inner}"}
        self._observe(Event("kernel", self.backend.name, perf_counter() - start, data))
        return compiled

    def nest(self, nest: Nest, steps: Mapping[str, tuple[int, ...]]) -> ExecutableNest:
        """Return the machine code of a loop nest."""
        COMPILING.current.require_allowed()
        with self._build_lock:
            compiled: ExecutableNest = self.backend.nest(nest, self.threads, steps=steps)
            return compiled

    def assembly(self, text: str) -> str:
        """Return the assembly of the LLVM IR `text` of an executable."""
        return self.backend.assembly(text)

    def _differs(
        self, kernel: Kernel, form: Form, schedule: Schedule, compiled: tuple[Executable, Launch],
    ) -> str:
        """Return how a kernel differs from NumPy on a few elements; empty if it does not."""
        try:
            difference = numpy_difference(kernel, form, schedule, *compiled, self.numerics != "relaxed")
        except Exception as error:  # a check that fails is no difference
            self._observe(Event("kernel.unchecked", repr(error)))
            return ""
        if difference:
            log.warning("a kernel is not used, as it differs from NumPy: %s", difference)
        return difference

    def product(
        self, form: str, dtype: np.dtype, columns: int
    ) -> Callable[[int, int, int, int], bytes]:
        """Return the factory of argument blocks of a product."""
        return self.backend.product(form, dtype, columns)

    def wide(self, dtype: np.dtype, fetches: bool) -> Callable[[Tile], bytes]:
        """Return the factory of argument blocks of products with wide matrices."""
        return self.backend.wide(dtype, fetches)

    def pairs(self, dtype: np.dtype, pairs: Pairs) -> Callable[[Pairs], bytes]:
        """Return the factory of argument blocks of products of small matrices with the strides `pairs`."""
        return self.backend.pairs(dtype, pairs)

    def compressed(
        self, form: str, dtype: np.dtype, index: np.dtype, columns: int
    ) -> Callable[[SparseProduct], bytes]:
        """Return the factory of argument blocks of products over compressed rows."""
        return self.backend.compressed(form, dtype, index, columns)

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[BlockStage], combines: list[Combine],
        cut: Blocking, nanoseconds: float,
    ) -> Launchable:
        """Return the argument block of a row kernel and its launcher."""
        return self.backend.rows(scalars, stages, combines, cut, self.threads, nanoseconds), self._launch

    def sampled_operator(self, name: str) -> Callable[..., np.ndarray]:
        """Return the function that computes the operator `name` at the stored entries of a sparse matrix."""
        if self._stored_operators is None:
            self._stored_operators = self.backend.stored(self.threads)
        function: Callable[..., np.ndarray] = self._stored_operators.operator(name)
        return function

    def allocator(self) -> Callable[..., np.ndarray]:
        """Return the allocator of output arrays."""
        return allocator()


def _draft(
    roots: tuple[Hop, ...], layouts: LeafLayouts, outs: Outs | None, aliases: Aliases,
) -> Draft:
    roots = tuple(roots)
    places = {slot: Layout(*place) for slot, place in layouts.items()}
    return Draft(roots, places, outs or (None,) * len(roots), frozenset(aliases))


def _unsupported(hop: Hop) -> str | None:
    return "left to NumPy"
