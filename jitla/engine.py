"""Builds compilers, stores and background services from the options in force."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from math import prod
from os.path import exists
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from jitla import packages
from jitla.compile_stats import COMPILING, CompilationDisabled, Reason
from jitla.concurrency import fork_safe_lock
from jitla.config import Config, cache_directory, current
from jitla.errors import CacheWarning, ConfigError, MemoryLimitWarning
from jitla.events import Event, Recorder, log
from jitla.process.loading import RESOURCE_ERRORS
from jitla.process.resources import require_memory
from jitla.tiering.loop_detector import (
    any_reachable,
    has_loops,
)
from jitla.tiering.queue import CompileQueue

if TYPE_CHECKING:
    from jitla.accel import Device
    from jitla.codegen import CompiledProgram, Jit, LlvmBackend
    from jitla.hops import Machine
    from jitla.loopir import LoopProgram, StateLayout
    from jitla.loopjit import LoopFunction, Loops, LoopSite, Source, Specialisation
    from jitla.recompile import BoundProgram, Compiler, Program, ScheduleTuner
    from jitla.rewrites import RuleSet
    from jitla.runtime.disk_cache import DiskCache, DiskPlanStore
    from jitla.tracing import HoistingPolicy, Request
    from jitla.tuner.records import Records

MAX_SMALL_ELEMENTS, MAX_CACHED_ELEMENTS = 1 << 13, 1 << 20  # what first-level and shared caches hold
THREADING_MARGIN = 1.2  # times the break-even, by an estimate, from which kernels are shared among threads
HOISTED_MEMORY_SHARE = 0.1  # of the memory, for values that stay the same during a call
MAX_UNROLLED_OPERATIONS = 512  # of loops offloaded as one block: the taps of a window are iterations
COMPILER_LIBRARY_BYTES = 256 << 20  # bytes of address space that the compiler's library takes, and more
LONG_ROW_ELEMENTS = 1 << 14  # elements of a row: eight of them fill the scratch memory of a thread

MIN_INDICES_TO_LOAD = 1 << 24  # indices, masks or labels that NumPy takes as long for as loading the compiler


class Engine:
    """The services of the process, built on first use, and one compiler per configuration."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None
        self.states: WeakSet[Any] = WeakSet()  # of decorated functions
        self._lock = fork_safe_lock()
        self._compilers: dict[tuple[Any, ...], Compiler] = {}
        self._indexed: dict[tuple[str, int, bool], Any] = {}
        self._backends: dict[str, LlvmBackend] = {}
        self._machine: Machine | None = None
        self._disks: dict[tuple[str, int], DiskCache] = {}
        self._plan_stores: dict[tuple[Any, ...], DiskPlanStore] = {}
        self._loops: Loops | None = None
        self._loop_jit: Jit | None = None
        self._background: CompileQueue | None = None
        self._records: dict[str, Records] = {}
        self.session: ScheduleTuner | None = None  # that tunes
        # Receives the events of compilers.
        self.observe: Callable[[Event], None] = lambda event: self.recorder.record(event)

    def __reduce__(self) -> str:
        return "ENGINE"  # a pickled function refers to the engine of the process that loads it

    @property
    def recorder(self) -> Recorder:
        """The event log."""
        if self._recorder is None:
            with self._lock:
                if self._recorder is None:
                    self._recorder = Recorder(current().events)
        return self._recorder

    @property
    def background(self) -> CompileQueue:
        """The queue of background compilation."""
        if self._background is None:
            with self._lock:
                if self._background is None:
                    self._background = CompileQueue()
        return self._background

    @property
    def has_compiler(self) -> bool:
        """Whether a compiler has been built."""
        return bool(self._compilers)

    @property
    def uses_reference_machine(self) -> bool:
        """Whether plans assume the reference machine, as this one is not calibrated."""
        return self._machine is None or self._machine is packages.hops.REFERENCE_MACHINE

    @staticmethod
    def _key(config: Config) -> tuple[Any, ...]:
        """Return the options that a compiler depends on."""
        return (config.numerics, config.num_threads, config.fusion, config.memory_limit, config.cpu,
               config.without_rules, config.rewrites, config.search_bound, config.search_steps,
               config.search_ms, config.search_from_us, config.accelerator, config.placement,
               config.schedules, config.tune_after_ms)

    def compiler(self, config: Config) -> Compiler:
        """Return the compiler for `config`."""
        key = self._key(config)
        found = self._compilers.get(key)
        if found is None:
            if not COMPILING.current.allowed:
                raise CompilationDisabled
            with self._lock:
                found = self._compilers.get(key) or self._new_compiler(config)
                self._compilers[key] = found
        return found

    def _new_compiler(self, config: Config) -> Compiler:
        runtime = packages.runtime
        backend = self._backend(config.cpu)
        if self._machine is None:
            self._machine = self.stored_machine(config) or packages.hops.REFERENCE_MACHINE
        machine = self._machine
        backend.serial_ns = THREADING_MARGIN * machine.break_even(machine.wake) * 1e9
        runtime.set_wake_threshold(machine.break_even(machine.rouse))
        runtime.reserve_threads(config.num_threads)
        threads = config.num_threads or runtime.threads()
        effort = packages.rewrites.SearchBudget(
            config.search_bound, config.search_steps, config.search_ms * 1e-3, config.search_from_us * 1e-6)
        return packages.recompile.Compiler(
            backend, effort=effort,
            rules=(lambda: self.rules(config.without_rules)) if config.rewrites else None,
            numerics=config.numerics, threads=config.num_threads, fusion=config.fusion,
            memory_limit=config.memory_limit, machine=machine.with_threads(threads),
            observe=lambda event: self.observe(event), placement=config.placement,
            tuning=self._schedule_tuner(config),
            devices=self.devices(config.accelerator, config.numerics == "strict", config),
            plan_store=self.plan_store(config),
            environment=f"{backend.jit.maker} {machine.with_threads(threads)!r}")

    def plan_store(self, config: Config) -> DiskPlanStore:
        """Return the store of plans on disk."""
        key = self._key(config)
        if key not in self._plan_stores:
            self._plan_stores[key] = packages.runtime.disk_cache.DiskPlanStore(self.disk, key)
        return self._plan_stores[key]

    def schedule_records(self, config: Config) -> Records | None:
        """Return the tuning records of the cache directory; None if nothing was tuned."""
        directory = cache_directory(config)
        if directory in self._records or config.disk_cache and exists(f"{directory}/tuned"):
            return self.schedule_records_to_extend(config)
        return None

    def schedule_records_to_extend(self, config: Config) -> Records:
        """Return the tuning records of the cache directory, empty if nothing was tuned."""
        directory = cache_directory(config)
        if directory not in self._records:
            store = packages.tuner.records
            self._records[directory] = store.load_records(directory if config.disk_cache else "")
        return self._records[directory]

    def _schedule_tuner(self, config: Config) -> ScheduleTuner | None:
        """Return the tuner that chooses schedules; None if nothing was tuned or pinned."""
        to_extend = self.schedule_records_to_extend(config) if config.tune_after_ms > 0 else None
        records = self.schedule_records(config) if to_extend is None else to_extend
        if self.session is not None or records is None and not config.schedules:
            return self.session
        store = packages.tuner.records
        chooser = store.ScheduleChooser(
            records, self.host(), config.numerics == "relaxed", store.parse_pins(config.schedules))
        if to_extend is not None:
            tuner = packages.tuner.background.BackgroundTuner
            chooser.watch = tuner(config, to_extend, chooser.block, self.background).profiled
        return chooser

    def use_tuning_session(self, session: ScheduleTuner | None = None) -> None:
        """Build new compilers whose schedules `session` chooses; None: records do again."""
        with self._lock:
            self.session = session
            self._compilers.clear()

    def drop_compiler(self, config: Config) -> None:
        """Drop the compiler for `config`, whose pinned schedules have changed."""
        with self._lock:
            self._compilers.pop(self._key(config), None)

    def unroll_limit(self, config: Config, always: bool = False) -> int:
        """Return the most operations of merged loop iterations in one block."""
        return MAX_UNROLLED_OPERATIONS if config.accelerator or always else 0

    def devices(self, names: str, bitwise: bool = False, config: Config | None = None) -> tuple[Device, ...]:
        """Return the simulated accelerators called `names`; raise `ConfigError` for an unknown name.

        If products have to be NumPy's to the bit, none that add up floats. Tiles are those that were tuned by
        the records of a config.
        """
        if not names:
            return ()
        accel = packages.accel
        found = (accel.preset(name) for name in names.split(","))
        records = None if config is None or self.session is not None else self.schedule_records(config)
        specs = [spec for spec in found if not (bitwise and spec.is_float)]
        if config is None or records is None:
            return tuple(accel.Device(spec) for spec in specs)
        tiles = packages.tuner.accel_layers.tiling_chooser(records, config.numerics == "relaxed")
        return tuple(accel.Device(spec, tiles=tiles) for spec in specs)

    def rules(self, without: str) -> RuleSet:
        """Return the rewrite rules except those in `without`; raise `ConfigError` for an unknown name."""
        rules = packages.rewrites.RULES
        names = without.split(",") if without else []
        unknown = sorted(set(names) - {rule.name for rule in rules})
        if unknown:
            raise ConfigError(
                f"without_rules: no rewrite is called {', '.join(unknown)}; docs/rules.md names all")
        return rules.without(*names) if names else rules

    def literal_values(self, config: Config) -> Mapping[str, Collection[Any]]:
        """Return the values of literals that rewrites match, by operator."""
        if not config.rewrites:
            return {}
        # Of all rules it is known beforehand: no call waits until rewrites are loaded.
        found: Mapping[str, Collection[Any]] = (
            self.rules(config.without_rules).at(config.numerics).matched_numbers
            if config.without_rules else packages.tracing.LITERAL_VALUES[config.numerics])
        return found

    def _backend(self, cpu: str = "") -> LlvmBackend:
        """Return the LLVM backend for a processor level (empty: this one); its run time is loaded."""
        found = self._backends.get(cpu)
        if found is None:
            if not packages.is_loaded("codegen"):
                require_memory(COMPILER_LIBRARY_BYTES)
            codegen, runtime, tracing = packages.codegen, packages.runtime, packages.tracing
            target = codegen.level_target(cpu) if cpu else None
            found = codegen.LlvmBackend(launch=runtime.native_launch(), target=target, shelf=self.disk,
                                        writers=self._planner_fingerprint)
            found.launch  # noqa: B018  (loads the native run time)
            table = runtime.layout_table()
            assert table is not None, "the native run time is loaded"
            tracing.LAYOUT_CACHE.install(*table)
            tracing.install_native_methods(runtime.native_methods())
            self._backends[cpu] = found
        return found

    def _planner_fingerprint(self) -> str:
        """Return the fingerprint of the code that writes LLVM text."""
        return packages.runtime.disk_cache.planner_fingerprint()

    def disk(self) -> DiskCache | None:
        """Return the disk cache of machine code under the options in force; None if it is off."""
        config = current()
        return self._disk_of(config) if config.disk_cache else None

    def _disk_of(self, config: Config) -> DiskCache:
        key = cache_directory(config), config.disk_cache_limit
        if key not in self._disks:
            disk = packages.runtime.disk_cache.DiskCache
            made = disk(*key, refuse=self._warn_cache_refused, observe=self.recorder.record)
            self._disks.setdefault(key, made)
        return self._disks[key]

    def _warn_cache_refused(self, reason: str) -> None:
        text = f"{reason}: machine code is not kept; see the options cache_dir and disk_cache"
        try:
            packages.tracing.call_here(warnings.warn, text, CacheWarning)
        except CacheWarning:  # where warnings are errors: the program must not end for it
            log.warning("%s", text)

    def report_failure(self, name: str, text: str) -> None:
        """Log, once, that calls of the function `name` run in NumPy because of an error."""
        with suppress(*RESOURCE_ERRORS):  # there may be no memory, and no logging module, to tell it with
            self.recorder.record_once(Event("failure", f"{name}: {text}"))

    def check_cpu(self, cpu: str) -> None:
        """Raise `ConfigError` if this processor cannot run code for the level `cpu`."""
        codegen = packages.codegen
        missing = codegen.lacking(codegen.level_target(cpu))
        if missing:
            raise ConfigError(f"cpu={cpu!r} is not possible here: this processor has no {', '.join(missing)}")

    def index_loops(self, config: Config, seen: int = MIN_INDICES_TO_LOAD) -> Any:
        """Return the native gather and scatter loops; a site has `seen` that many indices so far.

        For few indices NumPy takes less than loading the compiler: `CompilationDisabled` is raised.
        """
        if config.compile == "auto" and not self._backends and seen < MIN_INDICES_TO_LOAD:
            raise CompilationDisabled
        ordered = config.numerics == "strict"
        key = config.cpu, config.num_threads, ordered
        found = self._indexed.get(key)
        if found is None:
            with self._lock:
                packages.runtime.reserve_threads(config.num_threads)
                made = self._backend(config.cpu).indexed(config.num_threads, ordered)
                found = self._indexed.setdefault(key, made)
        return found

    def loop_function(self, function: FunctionType) -> LoopFunction | None:
        """Return `function` with its loops rewritten, so that compiled code may run them; None without loops.
        """
        if not any_reachable(function, has_loops):
            return None
        with self._lock:
            self._loops = self._loops or packages.loopjit.Loops(self._request_loop)
        return self._loops.version(function)

    def _request_loop(
        self, site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
        groups: tuple[int, ...],
    ) -> None:
        """Have a loop compiled in the background; if that fails, Python runs it."""
        options = copy_context()  # in force where the loop runs

        def compile_loop() -> None:
            specialisation.job.start()
            packages.loopjit.loop_compiler.compile_specialisation(
                site, specialisation, values, source, groups, self._compile_loop, submit,
                self._loop_records(), self._load_loop,
                lambda: packages.codegen.load_loop_entry(self._jit_of_loops()))

        def run(job: Callable[[], None]) -> None:
            try:
                job()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                specialisation.refuse(f"the compiler failed: {text}")
                self.report_failure(site.function.__qualname__, text)
            finally:
                specialisation.job.finish()

        def submit(job: Callable[[], None]) -> None:
            self.background.submit(lambda: options.run(run, job))

        if not self.background.busy:
            specialisation.job.start()
        submit(compile_loop)

    def _jit_of_loops(self) -> Jit:
        """Return the compiler of loop programs."""
        with self._lock:
            if self._loop_jit is None:
                if not packages.is_loaded("codegen"):
                    require_memory(COMPILER_LIBRARY_BYTES)
                self._loop_jit = packages.codegen.Jit(shelf=self.disk)
        return self._loop_jit

    def _loop_records(self) -> Any:
        """Return the records of loops on disk under the options in force."""
        return packages.loopjit.records.RecordStore(
            self.disk, lambda: f"{self._planner_fingerprint()} {self._jit_of_loops().maker}")

    def _compile_loop(self, program: LoopProgram) -> CompiledProgram:
        """Compile and load a loop program for the options in force."""
        compiled = packages.codegen.compile_quickly(program, self._jit_of_loops())
        packages.loopjit.LoopSite.is_compiler_loaded = True
        return compiled

    def _load_loop(
        self, program: Callable[[], LoopProgram], layout: StateLayout, keys: tuple[str, ...],
    ) -> CompiledProgram | None:
        """Load a loop program whose machine code is kept on disk; None if it is not."""
        found = packages.codegen.load_program(program, layout, keys, self._jit_of_loops())
        packages.loopjit.LoopSite.is_compiler_loaded |= found is not None
        return found

    def stored_machine(self, config: Config) -> Machine | None:
        """Return the stored calibration of this machine, or None."""
        return packages.runtime.disk_cache.load_machine(cache_directory(config), self.host())

    def host(self) -> str:
        """Return the key of calibrations: processor, vector width, number of threads."""
        target = self._backend().jit.target
        return f"{target.cpu}, {target.vector_bytes} bytes, {packages.runtime.threads()} threads"

    def calibrate(self, config: Config) -> Machine:
        """Calibrate the machine, store the result, and plan with it from now on."""
        with self._lock:
            self._machine = packages.tuner.calibration.measure(self._backend())
            packages.runtime.disk_cache.save_machine(
                cache_directory(config), self.host(), self._machine)
            self._compilers.clear()  # their plans were made for other constants
            return self._machine

    def bind(
        self, config: Config, key: tuple[Any, ...], sizes: tuple[int, ...],
        layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]], make: Callable[[], Request],
    ) -> tuple[BoundProgram, Reason | None]:
        """Return the bound program of a block, and why it was compiled, if others of its class did not suit.

        The program of a class that is new is built. Which plan is best depends on the sizes: blocks of
        another magnitude are another class.
        """
        def recipe() -> tuple[Any, ...]:
            request = make()
            return request.roots, request.layouts, request.outs, request.aliases

        compiler, size = self.compiler(config), magnitude(layouts)
        reason = next(
            (Reason("magnitude", magnitude_text(n), magnitude_text(size)) for n in range(6)
             if compiler.has((key, n)) and not compiler.has((key, size))), None)
        try:
            program = compiler.program((key, size), recipe)
        except CompilationDisabled as refused:
            refused.reason = reason
            raise
        if program.sizes is None:
            program.sizes = sizes
        bound, other = self._bind_program(compiler, program, sizes, layouts)
        return bound, other or reason

    def has_plan(self, config: Config, request: Request) -> bool:
        """Return whether the plan of a block is on disk, and with it its machine code."""
        planned, hops = self.plan_store(config), packages.hops
        try:
            return bool(planned.has(hops.block_digest(*request[:4])))
        except hops.NotSerialisable:
            return False

    def bind_other_magnitude(
        self, config: Config, key: tuple[Any, ...], sizes: tuple[int, ...],
        layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> BoundProgram | None:
        """Return a block bound to the program of another size class; None if none is compiled or suits."""
        size, compiler = magnitude(layouts), self._compilers.get(self._key(config))
        if compiler is None:
            return None
        first = size - size % 3  # with long rows as here, or without
        for other in sorted({*range(first, first + 3)} - {size}, key=lambda n: abs(n - size)):
            found = compiler.cached_program((key, other))
            if found is not None and found.sizes is not None:
                with suppress(CompilationDisabled):
                    return self._bind_program(compiler, found, sizes, layouts)[0]
        return None

    def _bind_program(
        self, compiler: Compiler, program: Program, sizes: tuple[int, ...],
        layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]],
    ) -> tuple[BoundProgram, Reason | None]:
        layout = packages.fusion.Layout
        places = {slot: layout(*place) for slot, place in layouts.items()}
        assert program.sizes is not None
        bound, reason = compiler.bind(program, dict(zip(program.sizes, sizes, strict=True)), places)
        bound.reports_flags = True
        return bound, reason

    def hoisting_policy(self, config: Config) -> HoistingPolicy | None:
        """Return the policy for hoisting loop-invariant values; None if none are hoisted."""
        if config.invariants == "none" or config.memory_limit:
            return None
        max_bytes = int(HOISTED_MEMORY_SHARE * packages.runtime.memory())
        if config.invariants_limit:
            max_bytes = min(max_bytes, config.invariants_limit)
        every = config.invariants == "all"

        def choose(request: Request, same: Collection[int], named: tuple[Any, ...]) -> Any:
            recipe = request.roots, request.layouts, request.outs, request.aliases
            return self.compiler(config).values_to_hoist(recipe, same, named, max_bytes, every)

        return packages.tracing.HoistingPolicy(choose, max_bytes, every)

    def check_memory(self, bound: BoundProgram, limit: int, told: set[Any]) -> None:
        """Warn once, at the user's line, that even the plan with the least memory exceeds the limit."""
        taken = bound.peak()
        if taken > limit and bound.program not in told:
            told.add(bound.program)
            text = (f"no plan of this block stays below memory_limit={limit}: {taken} bytes are "
                    "predicted for the one that is run")
            packages.tracing.call_here(warnings.warn, text, MemoryLimitWarning)


def magnitude(layouts: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]) -> int:
    """Return whether the largest array is small, in the caches, or beyond: 0, 1, 2; with long rows 3 more.

    Blocks of rows that are too long do not stay in a thread's cache.
    """
    elements = max((prod(shape) for shape, _ in layouts.values()), default=0)
    longest = max((shape[-1] for shape, _ in layouts.values() if len(shape) > 1), default=0)
    level = (elements >= MAX_SMALL_ELEMENTS) + (elements >= MAX_CACHED_ELEMENTS)
    return level + 3 * (longest >= LONG_ROW_ELEMENTS)


def magnitude_text(number: int) -> str:
    """Return the description of a size class."""
    return ("small", "in the caches", "beyond the caches")[number % 3] + ", long rows" * (number >= 3)


ENGINE = Engine()
