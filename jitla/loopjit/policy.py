"""When a loop nest is compiled, when its code is trusted, and whether a run takes it or Python.

Compiled code first runs on copies, and its results are compared with Python's, before it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from time import perf_counter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.deopt import Nothing
from jitla.loopjit.detect import EXITS, DetectedNest
from jitla.loopjit.types import described, signature

if TYPE_CHECKING:
    from jitla.loopjit.callees import Helpers
    from jitla.loopjit.native_entry import CompiledKernel, NativeEntry


@dataclass(eq=False)
class Variant:
    """One nest for one kind of values: cold, waiting, tried, trusted, or left to Python."""

    state: str = "cold"
    reason: str = ""
    line: int = 0
    element: bool = True
    given: tuple[Any, ...] = ()
    code: CompiledKernel | None = None
    # Names outside of the function, and what they were.
    assumed: list[tuple[Mapping[str, Any], str, Any]] = field(default_factory=list)
    # Functions that are written out in its code, and what they were.
    helpers: dict[FunctionType, CodeType] = field(default_factory=dict)
    key: Any = None
    # What is called instead of Python's way once it is trusted.
    native_entry: NativeEntry | None = None
    # Runs by Python and their seconds; by compiled code; those that Python finished.
    plain: int = 0
    seconds: float = 0.0
    runs: int = 0
    compiled: float = 0.0
    left: int = 0
    # Runs that were the same; the seconds of those by Python, and by compiled code.
    same: int = 0
    matched: float = 0.0
    tried: float = 0.0
    kinds: str = ""

    def unchanged(self) -> bool:
        """Say whether all functions that are written out do what they did."""
        return all(function.__code__ is code for function, code in self.helpers.items())

    @property
    def all_runs(self) -> int:
        """Runs of compiled code, whoever began them."""
        return self.runs + (self.native_entry.runs if self.native_entry is not None else 0)

    @property
    def all_compiled(self) -> float:
        """Seconds of them."""
        return self.compiled + (self.native_entry.seconds if self.native_entry is not None else 0.0)

    def refuse(self, reason: str, line: int = 0, element: bool = True) -> None:
        """Leave it to Python from now on."""
        self.state, self.reason, self.line, self.element = "refused", reason, line, element
        self.code = None


class Run:
    """One run by Python that is timed, and compared if compiled code was tried before."""

    __slots__ = ("variant", "start", "found", "copies", "tried")

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.found: tuple[Any, ...] | None = None
        self.tried = 0.0
        self.copies: list[tuple[np.ndarray, np.ndarray]] = []
        self.start = perf_counter()


# Seconds that a nest has to take altogether before it is compiled, the same while a process is there that
# compiles, or where another nest of the function is compiled; on average.
WORTH, READY, BESIDE, SHORT = 5e-3, 1e-3, 5e-5, 2.5e-6
# A refused nest whose runs take less on average is not looked at any more.
WORTHWHILE = 1e-4
# Runs of Python after which the average is believed; of how many one is timed while something is compiled.
SOME, SAMPLED = 64, 8
# Runs that have to be the same before compiled code is trusted; one is enough that takes so many seconds.
TRIALS, LONG = 2, 1.0
# Runs that may be tried until one is not much shorter than others were: the first of a call often are.
MOST_TRIALS, SHORTER = 16, 0.5
# Runs, of those that were tried or done, that Python may have to finish.
MOST_LEFT, SHARE_LEFT = 8, 0.5
# Kinds of values for which one nest is compiled.
MOST_VARIANTS = 8
# Times what Python takes that compiled code may take; seconds that a native entry takes.
SLOWER, PACKED = 0.9, 1e-6
COPIED, MISSING = 1 << 28, object()  # bytes that are copied to compare; what a name that is nowhere is
_MADE = {"waiting", "tried", "trusted"}  # states of what is compiled, or will be


class Entry:
    """What is asked before one nest of one function; the text of the version calls it."""

    def __init__(
        self, nest: DetectedNest, names: tuple[str, ...], space: Mapping[str, Any],
        builtin: Mapping[str, Any],
        make: Callable[[Entry, Variant], None], is_unobserved: Callable[[], bool],
        ready: Callable[[], bool] = lambda: False,
    ) -> None:
        self.nest = nest
        self.names = names
        self.space = space
        self.builtin = builtin
        # Has a nest translated and compiled for a kind of values, elsewhere.
        self.make = make
        self.is_unobserved = is_unobserved  # whether nobody observes calls
        self.ready = ready  # and this, whether a process is there that compiles
        # What the version calls before the nest.
        self.ask: Callable[..., Any] = self.plainly
        self.variants: dict[Any, Variant] = {}
        self.exits = {label for node, label in nest.labels.items() if isinstance(node, EXITS)}
        # Nothing is asked while something is compiled, nor once everything is left to Python.
        self.rests = False
        # How often it was asked; whether runs are timed still while something is compiled.
        self.asked = 0
        self.timed = True
        self.file = ""
        # What functions of the user's do that it calls.
        self.helpers: Helpers | None = None
        # All nests of the function.
        self.beside: list[Entry] = []
        # Names of the module that the nest reads.
        self.outside = tuple(name for name in nest.globals if name not in names)

    def plainly(self, *values: Any) -> Any:
        """Return what the nest assigns, or None, or a run that is to be done by Python."""
        self.asked += 1
        if self.rests and (not self.timed or self.asked % SAMPLED):
            return None
        if self.outside:
            values += tuple([self.space.get(name) for name in self.outside])
        key = signature(values)
        variant = self.variants.get(key) or self._new(key)
        if variant.state == "cold":
            variant.given = tuple(map(described, values))
            return Run(variant)
        if self.rests:
            return Run(variant)
        code = variant.code
        if code is None or not self.is_unobserved() or sys.gettrace() is not None:
            return None
        if not self._holds(variant):
            del self.variants[key]
            self._open()
            return None
        given = dict(zip((*self.names, *self.outside), values, strict=True))
        if variant.state == "trusted":
            return self._run(variant, code, given)
        return self._try(variant, code, given) if variant.state == "tried" else None

    def seconds(self) -> float:
        """Return about how long Python would have run the nest altogether."""
        found = list(self.variants.values())
        runs = sum(each.plain for each in found)
        return self.asked * sum(each.seconds for each in found) / runs if runs else 0.0

    def clear(self) -> None:
        """Forget what was learnt, but for what is being compiled."""
        if not self.rests:
            self.variants.clear()
            self.asked = 0
            self.timed = True
            self._open()

    def _open(self) -> None:
        """Chain the native entries of all trusted variants; Python's loop is the last."""
        ask: Callable[..., Any] = self.plainly
        for variant in list(self.variants.values()):
            if variant.state == "trusted" and variant.native_entry is not None:
                ask = variant.native_entry.before(ask)
        self.ask = ask

    def _new(self, key: Any) -> Variant:
        variant = Variant()
        if len(self.variants) >= MOST_VARIANTS:
            variant.refuse("it runs with too many kinds of values")
            return variant
        variant.key = key
        return self.variants.setdefault(key, variant)

    def _holds(self, variant: Variant) -> bool:
        return variant.unchanged() and all(
            space.get(name, MISSING) is found for space, name, found in variant.assumed)

    # -- by Python -----------------------------------------------------------------------------

    def done(self, run: Run) -> None:
        """Note that Python has run the nest; compare if it was tried."""
        variant = run.variant
        taken = perf_counter() - run.start
        weight = SAMPLED if self.rests and run.found is None else 1
        variant.plain += weight
        variant.seconds += weight * taken
        if run.found is not None:
            self._compare(run, taken)
        elif variant.state == "cold":
            if variant.seconds >= self._worth() and variant.seconds >= SHORT * variant.plain:
                self.order(variant)
            elif variant.plain >= SOME and variant.seconds < SHORT * variant.plain:
                variant.refuse(f"a run takes {1e6 * variant.seconds / variant.plain:.1f} µs only")
                self.look()

    def _worth(self) -> float:
        """Return the seconds that a nest has to take: fewer where another is compiled anyway."""
        states = {v.state for each in self.beside for v in list(each.variants.values())}
        return min(WORTH, BESIDE if states & _MADE else READY if self.ready() else WORTH)

    def order(self, variant: Variant) -> None:
        """Have it translated and compiled, elsewhere."""
        variant.state = "waiting"
        self.rests = True
        self.make(self, variant)

    def look(self) -> None:
        """Ask again, unless everything is left to Python for good."""
        states = {variant.state for variant in self.variants.values()}
        short = all(variant.seconds < WORTHWHILE * variant.plain for variant in self.variants.values())
        self._open()
        self.rests = "waiting" in states or states == {"refused"} and short

    # -- by compiled code ----------------------------------------------------------------------

    def _run(self, variant: Variant, code: CompiledKernel, given: dict[str, Any]) -> Any:
        start = perf_counter()
        found = code(given)
        variant.compiled += perf_counter() - start
        variant.runs += 1
        return self.left(variant, found) if found[0] else (0, *self._living(found))

    def left(self, variant: Variant, found: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Note that Python goes on where compiled code ended; of lanes it does all."""
        if found[0] not in self.exits:
            variant.left += 1
            if variant.left >= MOST_LEFT and variant.left > SHARE_LEFT * variant.all_runs:
                variant.refuse("Python has to finish it too often")
                self.look()
        return found if self.nest.lanes is None else None

    def _living(self, found: tuple[Any, ...]) -> list[Any]:
        values = dict(zip(self.nest.writes, found[1:], strict=False))
        return [values[name] for name in self.nest.live]

    def _try(self, variant: Variant, code: CompiledKernel, given: dict[str, Any]) -> Run | None:
        """Run the compiled code on copies; Python will run it on what was given."""
        copies = _copies(given, code.kernel.written)
        if copies is None:
            return None
        run = Run(variant)
        start = perf_counter()
        run.found = code({**given, **{name: copies[id(given[name])][1] for name in given
                                              if id(given[name]) in copies}})
        run.tried = perf_counter() - start
        if variant.native_entry is not None:
            run.tried = min(run.tried, code.seconds + PACKED)
        run.copies = list(copies.values())
        run.start = perf_counter()
        return run

    def _compare(self, run: Run, taken: float) -> None:
        variant, found = run.variant, run.found
        assert found is not None
        if found[0] and found[0] not in self.exits:
            variant.left += 1
            if variant.left >= MOST_LEFT and variant.left > variant.same:
                variant.refuse("Python has to finish it too often")
                self.look()
            return
        if not found[0] and sys.exc_info()[0] is not None:
            return  # Python did not come to the end
        held = sys._getframe(2).f_locals
        for name, value in zip(self.nest.writes, found[1:], strict=False):
            if value is not Nothing and not _same(value, held.get(name, Nothing)):
                return self._differs(variant, name)
        for array, copy in run.copies:
            if not _same_memory(array, copy):
                return self._differs(variant, "an array")
        variant.same += 1
        variant.matched += taken
        variant.tried += run.tried
        if taken < LONG and variant.same < MOST_TRIALS and (
                variant.same < TRIALS or taken < SHORTER * variant.seconds / variant.plain):
            return
        if variant.tried > SLOWER * variant.matched:
            if variant.same < MOST_TRIALS and taken < WORTHWHILE:
                return  # the first runs of code take longer than others
            variant.refuse("compiled code takes longer")
            self.look()
        else:
            variant.state = "trusted"
            self._open()

    def _differs(self, variant: Variant, what: str) -> None:
        variant.refuse(f"compiled code made another {what} than Python")
        self.look()


def _copies(
    given: dict[str, Any], written: tuple[str, ...]
) -> dict[int, tuple[np.ndarray, np.ndarray]] | None:
    """Return copies of the arrays that are written; None where one would not stand for all that it is."""
    arrays = {id(value): value for value in given.values() if type(value) is np.ndarray}
    stores = {id(given[name]) for name in written}
    if sum(arrays[key].nbytes for key in stores) > COPIED:
        return None
    for key in stores:
        for other, value in arrays.items():
            if other != key and np.may_share_memory(arrays[key], value):
                return None
    return {key: (arrays[key], arrays[key].copy(order="K")) for key in stores}


def _same(a: Any, b: Any) -> bool:
    """Say whether two numbers are the same to every program."""
    return type(a) is type(b) and (a == b or a != a and b != b) and str(a) == str(b)


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a) & ~np.isnan(a), np.signbit(b) & ~np.isnan(b)))
