"""The compiler that tracing is handed: programs by key, kernels by structure and form.

Knows: what has been compiled already. Must not know: how kernels are compiled, what a key means.
Receives roots or a way to get them; returns programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla import fusion as planning
from jitla import rewrites
from jitla.errors import BackendError
from jitla.events import Event, log
from jitla.fusion import (
    Backend,
    Combine,
    Cut,
    Entries,
    Executable,
    Form,
    Interpreted,
    InterpretedBackend,
    Kernel,
    Layout,
    Pairs,
    Schedule,
    Stage,
    Tile,
)
from jitla.hops import REFERENCE, Hop, Kind, Machine, approximate, topo
from jitla.locks import relock
from jitla.making import MAKING
from jitla.recompile.asked import Nested
from jitla.recompile.checking import difference
from jitla.recompile.choices import Launch, Made, Tuning
from jitla.recompile.drafts import Draft, Tools
from jitla.recompile.kept import Shelf
from jitla.recompile.program import Program
from jitla.recompile.recent import Recent
from jitla.recompile.remembered import Remembered
from jitla.recompile.stores import Aliases, Outs
from jitla.rests import hurry
from jitla.rewrites import Effort
from jitla.runtime import allocator

if TYPE_CHECKING:
    from jitla.nests import Nest
    from jitla.recompile.placing import Device

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
        numerics: str = "numpy", machine: Machine = REFERENCE,
        threads: int = 0, fusion: str = "cost", memory_limit: int = 0, effort: Effort | None = None,
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
            cache(lambda: planning.Recall()),
            cache(lambda: rewrites.SUBSTITUTIONS.at(numerics)) if searches else None, effort or Effort(),
            devices, placement)
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
            None, _unsupported, REFERENCE, (), "cost", self, self._observe, self._tools.check))
        with self._alone():
            if kernels:
                MAKING.now.check()
            program = made.program(draft)
        program.tell = partial(self._told, program.tell)
        return program

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
        if self.numerics == "strict" and (approximate(hop.op) or hop.op.kind is Kind.CALL):
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
            return Interpreted(kernel, form), InterpretedBackend().launch
        found = self._differs(kernel, form, schedule, made)
        if found:
            self._observe(Event("kernel.failed", found, perf_counter() - start))
            return Interpreted(kernel, form), InterpretedBackend().launch
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
    ) -> Callable[[Entries], bytes]:
        """Return what makes argument blocks of products over compressed rows."""
        return self.backend.compressed(form, dtype, index, columns)

    def rows_block(
        self, scalars: tuple[np.dtype | None, ...], stages: list[Stage], combines: list[Combine], cut: Cut,
        nanoseconds: float,
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
