"""Compiled blocks and counters of one function under one configuration."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from logging import DEBUG, WARNING
from time import perf_counter
from types import CodeType
from typing import Any, Protocol

import numpy as np

from jitla.compile_stats import Made, NothingNew, Reason
from jitla.concurrency import relock
from jitla.config import current
from jitla.errors import FallbackWarning, MemoryLimitWarning, UnsupportedError
from jitla.events import log, moment
from jitla.hops import Hop, by_numpy
from jitla.process.loading import (
    LACKING,
    Retry,
)
from jitla.tracing.fallback import FORGOTTEN, MEANWHILE, Replay, Request, serve
from jitla.tracing.fp_warnings import Effects, Sign
from jitla.tracing.frames import Places, call_at, codes_of, place_of, user_frame
from jitla.tracing.guards import Asked, Journal, ending, is_same, literals_of
from jitla.tracing.tape import LAYOUTS, LEAF, Block, class_key, hops_of


class Fallback:
    """Calls of one NumPy function at one place that were not traced, and why."""

    __slots__ = ("count", "seconds", "reason")

    def __init__(self, func: Any) -> None:
        self.count = 0
        self.seconds = 0.0
        known = by_numpy(func) or by_numpy(vars(np).get(getattr(func, "__name__", "")))
        self.reason = "not in this form, or not of these dtypes" if known else "not in the op table"


class Loop:
    """What was done at one place when it was met: runs of a loop of its own, and NumPy's instead."""

    __slots__ = ("count", "by_numpy", "seconds", "nbytes", "title")

    def __init__(self) -> None:
        self.count = self.by_numpy = self.nbytes = 0
        self.seconds = 0.0
        self.title = ""

    def ran(self, title: str, seconds: float, values: tuple[Any, ...]) -> None:
        """Count a run that read and made `values`."""
        self.title = title
        self.count += 1
        self.seconds += seconds
        self.nbytes += sum(x.nbytes for x in values if isinstance(x, np.ndarray))


def refusal(place: Any, func: Any) -> str:
    """Say at which line of the user's `func` is not traced, why, and what to do."""
    line = linecache.getline(place.file, place.line).strip()
    return (f"{place.file}:{place.line}: {name_of(func)} is not traced by jitla ({Fallback(func).reason})\n"
            f"    {line}\n"
            "remove strict=True to let NumPy run it, or write the line with what docs/supported.md lists")


def name_of(func: Any) -> str:
    """Return what a function is called."""
    return str(getattr(func, "__qualname__", None) or getattr(func, "_name_of__", repr(func)))


# Above so many classes of plans a site stops keying on slice bounds of pending values.
MANY_PLANS = 64
# What is remembered of sizes is bounded in number and in bytes: of an exact block, an operation takes 1 KB.
MAX_EXACT = 4096
MAX_EXACT_ENTRIES = 1 << 15
MAX_CLASSES = 1024
MOST_LINES = 4096  # at which blocks were cut
LEARNING = 2  # calls that note lines, from the one on that meets a new class of plans
LINES_ALWAYS, LINES_IN_LOOPS = 1 << 62, 1 << 61  # from the latter on, calls note lines up to their end
LEAST_AT_ONCE = 1 << 13  # indices: for fewer, NumPy is as fast as a loop that has to be launched
WORTH_A_LOOP = 1 << 20  # indices that NumPy needs a few milliseconds for, as the compiler for a loop


class Compile(Protocol):
    """Makes the runnable program of a block, given its size-free key, its sizes and how to get its hops."""

    def __call__(
        self, key: tuple, sizes: tuple[int, ...],
        layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]], make: Callable[[], Request],
        note: Callable[[str, Made, Reason | None], None],
    ) -> Any: ...


class Site:
    """The memory of one decorated function; shared by its threads."""

    def __init__(
        self, name: str, compile_block: Compile, strict: bool, indexed: Callable[[], Any] | None = None,
        keeper: Any = None, asked: Asked | None = None,
    ) -> None:
        self.name, self.strict = name, strict
        self.unroll_limit = 0  # operations up to which turns of loops stay together
        self.bitwise = False  # products have to be NumPy's
        self.exact: dict[tuple, Any] = {}
        # Entries of those; whether so many classes were met that older ones were forgotten.
        self._entries, self._many = 0, False
        # By path, wanted entry, store and number of entries: key and value of the exact block met last.
        self.likely: dict[tuple, tuple[tuple, Any]] = {}
        self.pinned: dict[tuple, set[int]] = {}
        self.failed_unrolls, self.fused_updates = dict[tuple, int](), set[tuple]()  # turns; changes in place
        self.fallbacks: dict[tuple[str, str, int], Fallback] = {}
        self.loops: dict[tuple[str, str, int], Loop] = {}  # by what was done, file and line
        # By file and line: how often a block was cut there because it had become long, and its operations.
        self.cuts: dict[tuple[str, int], tuple[int, int]] = {}
        self.past: dict[Any, int] = {}
        self.failures, self.classes = list[str](), set[tuple]()
        # By program, which functions share: what it was first bound to here, the line of each hop of that.
        self.lines: dict[Any, tuple[Any, dict[Hop, Any]]] = {}
        # By class: where the entries come from, as it was noted last.
        self.places: dict[tuple, Places] = {}
        # By path and operations, whatever they are done to: the same.
        self.tapes: dict[tuple, Places] = {}
        # By the same: scalars that are literals, by number; none where one had several values.
        self.literals: dict[tuple, dict[int, Any]] = {}
        self.codes: dict[int, CodeType] = {}  # what paths name by its id, which stays its own so
        # By operator: values of literals that plans know.
        self.asked = asked or {}
        self.calls, self.learning = 0, LEARNING
        # Where sparse matrices that were merged have entries together.
        self.unions: Any = None
        self.scattered = 0  # elements that indices, masks or labels were read for
        # What calls are compared with, by whoever asked for it.
        self.checks: Any = None
        # Which calls are left to the plain function; None: none ever.
        self.payoff: Any = None
        # What is called as long as loops over elements are what the function does; None: it has none.
        self.looping: Any = None
        self.journal = Journal()  # what was planned and compiled, and why
        # Whether anything may be planned and compiled now; exact blocks that were left to NumPy because not.
        self.allowed: Callable[[], bool] = _always
        self.frozen: list[tuple] = []
        self.retry = Retry()  # after which what the process lacked for them may be there
        # Blocks that NumPy runs until their programs are there.
        self.standbys: set[Any] = set()
        # Who is told of every record of the journal; the number of the options in force.
        self.told: Callable[[str, Any], None] = _untold
        self.epoch = self.generation = 0
        # Sessions that have ended and can serve again: no proxy of theirs is left.
        self.idle: list[Any] = []
        self.keeper = keeper  # decides which values are kept from run to run of a block; None: none are
        # By entries: values that may be kept; the most bytes that a call has kept; calls until one is made.
        self.parts: dict[tuple, Any] = {}
        self.most_kept = self.awaited = 0
        self.compile = compile_block
        self._indexed = indexed
        self.lock = relock()  # a handler of a signal may call what is being compiled

    @property
    def many_plans(self) -> bool:
        """Whether this site has seen so many classes that values of attributes look like data."""
        return self._many or len(self.classes) > MANY_PLANS

    def pin(self, key: tuple, index: int) -> None:
        """Remember that entry `index` of a block was asked for after all: it is live from now on."""
        self.pinned.setdefault((key[2], len(key[0])), set()).add(index)
        self.retire([key])

    def program(self, block: Block, roots: tuple[int, ...], store: Any, path: Any = ()) -> Any:
        """Return the bound program of `block`, met at `path`; the class level is tried before compiling."""
        with self.lock:
            outs, aliases = stores(roots, store)
            key, sizes = class_key(block, roots, outs, aliases)
            make = partial(self.request, block, roots, outs, aliases)
            if key not in self.classes:
                self.learning = LEARNING
                self._meet(key)
            guard = self.journal.why(path, block, (roots, outs, aliases), key, self.epoch)
            line, count = ending(block, roots)

            def note(tier: str, what: Made, reason: Reason | None) -> None:
                record = self.journal.add(guard, tier, what, reason, line, count)
                self.told(self.name, record)

            made = self._made(key, sizes, block, make, note)
            if made.program not in self.lines:
                self.lines[made.program] = made, lines_of(block)
            if block.places:
                self.places[key] = block.places
            made.effects = Effects(self.places.get(key, block.places))
            return made

    def _meet(self, key: tuple) -> None:
        """Remember a class of blocks; programs are not kept for ever because they were run once."""
        if len(self.classes) >= MAX_CLASSES:
            self.retire(list(self.exact))
            self.past = {FORGOTTEN: sum(self.past.values())}
            for memory in (self.classes, self.places, self.lines):
                memory.clear()
            self._many = True
        self.classes.add(key)

    def _made(
        self, key: tuple, sizes: tuple[int, ...], block: Block, make: Callable[[], Request],
        note: Callable[[str, Made, Reason | None], None],
    ) -> Any:
        """Return what was compiled for a block; where that failed or may not be, what NumPy does."""
        try:
            return self.compile(key, sizes, _layouts(block), make, note)
        except MemoryLimitWarning:
            raise  # the user's filters make it an exception
        except Exception as error:
            made = Replay(make())
            made.frozen = isinstance(error, (NothingNew, RecursionError, *LACKING))  # perhaps not for ever
            if not isinstance(error, (NothingNew, RecursionError)):
                self.failed(error)
                self.retry.fail(error)
            return made

    def swap(self, standby: Any, made: Any) -> None:
        """Run `made` from now on where `standby` did it so far."""
        with self.lock:
            standby.made = made
            for each in list(self.exact.values()):
                if each.bound is standby:
                    each.set_numpy_seconds(standby.quickest)
            self.past[MEANWHILE] = self.past.get(MEANWHILE, 0) + standby.count
            self._replace(standby, made, self.lines.pop(standby, (None, {}))[1])
            serve(self, standby)

    def renew(self, bound: Any, better: Any) -> None:
        """Run `better` from now on where `bound` did it so far, which was made for another magnitude."""
        with self.lock:
            self.count_past(bound)
            self._replace(bound, better, self.lines.get(bound.program, (None, {}))[1])

    def _replace(self, before: Any, made: Any, lines: dict[Hop, Any]) -> None:
        made.effects = before.effects
        self.lines.setdefault(made.program, (made, lines))
        for holder in (*list(self.exact.values()), *list(self.parts.values())):
            if holder.bound is before:
                holder.bound = made
        for watch in [closed.watch for closed in list(self.exact.values()) if closed.watch is not None]:
            watch.replace(before, made)
        self.learning = max(self.learning, 1)  # the next call is not like the ones before

    def settled(self, bound: Any) -> bool:
        """Say whether a block runs its program, and others may be made of it."""
        return bound not in self.standbys and not bound.frozen and self.allowed()

    def hurry(self, again: bool) -> None:
        """Ask for the programs of all blocks that NumPy runs; `again`: the next call is traced."""
        for standby in list(self.standbys):
            standby.ask(again)

    def thaw(self) -> None:
        """Forget what was left to NumPy because nothing was to, or could, be compiled, if that is over."""
        if self.allowed() and self.retry.is_due():
            self.retire(self.frozen)
            self.frozen = []

    def placed(self, block: Block, path: Any, codes: Mapping[int, CodeType]) -> Block:
        """Return `block` with its places and literals: not noted, they are as before.

        Before is where the same operations were met. `codes` are those of the entries, if they were noted.
        """
        tape = _tape(path, block.entries)
        self.codes.update((id(code), code) for code in codes_of(path))
        if block.places:
            self.tapes[tape] = block.places
            if codes and tape not in self.literals:
                self.literals[tape] = literals_of(block, codes, self.asked)
        elif tape in self.tapes:
            places = self.tapes[tape]
            block = block._replace(places=places, lines={i: place[:2] for i, place in places.items()})
        fixed = self.literals.get(tape)
        # The same operations may have other operands now, and fewer scalars: `x > s.limit`.
        if fixed and max(fixed) < len(block.scalars) and all(
                is_same(block.scalars[number], value) for number, value in fixed.items()):
            return block._replace(fixed=fixed)
        return block

    def loosen(self, key: tuple) -> None:
        """Take no scalar of an exact block for a literal any more."""
        self.literals[_tape(key[2], key[0])] = {}
        self.retire([key])

    def observing(
        self, bound: Any, block: Block, roots: tuple[int, ...], store: Any, signs: tuple[Sign, ...],
    ) -> Any:
        """Return the bound program that does what `bound` does, and shows `signs`, too."""
        outs, aliases = stores(roots, store)
        asked = tuple((sign.entry, sign.flags) for sign in signs)
        key, sizes = class_key(block, roots, outs, aliases, "observed", asked)
        request = self.request(block, roots, outs, aliases)
        wanted = (*request.roots, *(sign.shown_by for sign in signs))
        nothing = (None,) * len(signs)
        request = request._replace(
            roots=wanted, outs=(*outs, *nothing), lines=(*request.lines, *nothing), tape=None)
        try:
            made = self.compile(key, sizes, request.layouts, lambda: request, unnoted)
        except NothingNew:
            return bound
        except Exception as error:
            self.failed(error)
            return bound
        self.lines.setdefault(made.program, (made, lines_of(block)))
        self.count_past(bound)
        made.effects = bound.effects
        made.effects.observe(signs)
        return made

    def request(
        self, block: Block, roots: tuple[int, ...], outs: tuple[int | None, ...],
        aliases: frozenset[tuple[int, int, int]],
    ) -> Request:
        """Return what a compiler is asked to make of `block`."""
        hops = hops_of(block)
        lines = tuple(block.lines.get(i) for i in roots)
        return Request(
            tuple(hops[i] for i in roots), _layouts(block), outs, aliases, lines, (block.entries, roots))

    def count_past(self, bound: Any) -> None:
        """Remember how often a bound program has run that is given up."""
        if bound is not None:
            self.past[bound.program] = self.past.get(bound.program, 0) + bound.count

    def note_cut(self, line: tuple[str, int], operations: int) -> None:
        """Remember that a block of so many operations was ended at a line because it had become long."""
        if line in self.cuts or len(self.cuts) < MOST_LINES:
            count, most = self.cuts.get(line, (0, 0))
            self.cuts[line] = count + 1, max(most, operations)

    def note_lines(self) -> None:
        """Let every call note the user's line of each operation."""
        self.learning = LINES_ALWAYS

    @contextmanager
    def noting_lines(self) -> Iterator[None]:
        """Let a call in the ``with`` block do the same, however often it does what is known."""
        self.learning = max(self.learning, LINES_IN_LOOPS)
        try:
            yield
        finally:
            if self.learning <= LINES_IN_LOOPS:
                self.learning = LEARNING

    def keep(self, key: tuple, closed: Any) -> None:
        """Remember how an exact block is run; when there are too many, the older half is forgotten."""
        with self.lock:
            if len(self.exact) >= MAX_EXACT or self._entries >= MAX_EXACT_ENTRIES:
                self.retire(list(self.exact)[:(len(self.exact) + 1) // 2])
                self._forget_parts()
            if key not in self.exact:
                self._entries += len(key[0])
            self.exact[key] = closed
        if closed.bound is not None and closed.bound.frozen:
            self.frozen.append(key)

    def outdate(self, generation: int) -> None:
        """Forget exact blocks because the ids in their keys have been given up."""
        self.retire(list(self.exact))
        self._forget_parts()
        self.generation = generation

    def _forget_parts(self) -> None:
        for part in list(self.parts.values()):
            self.count_past(part.bound)
        self.parts.clear()

    def retire(self, keys: list[tuple]) -> None:
        """Forget exact blocks, but not what they have done."""
        self.likely.clear()
        if len(self.tapes) >= MAX_EXACT:
            self.tapes.clear()
            self.literals.clear()
        with self.lock:
            for key in keys:
                closed = self.exact.pop(key, None)
                if closed is not None:
                    self._entries -= len(key[0])
                    self.count_past(closed.bound)
                    closed.stop_watching(self)

    def runs(self) -> dict[Any, int]:
        """Return how often each program has run."""
        found = dict(self.past)
        for bound in self.bounds():
            found[bound.program] = found.get(bound.program, 0) + bound.count
        return found

    def bounds(self) -> list[Any]:
        """Return what runs blocks now."""
        every = list(self.exact.values())
        found = [x.bound for x in (*every, *list(self.parts.values()))]
        found += [closed.watch.main for closed in every if closed.watch is not None]
        return [bound for bound in found if bound is not None]

    def by_numpy(self) -> float:
        """Return the seconds that NumPy and SciPy would have taken for what has run so far, roughly."""
        blocks = sum(each.numpy_seconds * each.runs for each in list(self.exact.values()))
        records: list[Any] = [*self.fallbacks.values(), *self.loops.values()]
        return float(blocks + sum(record.seconds for record in records))

    def replay(self, block: Block, roots: tuple[int, ...], store: Any, error: Exception) -> Replay:
        """Return what runs `block` after its program failed with `error`."""
        self.failed(error)
        return Replay(self.request(block, roots, *stores(roots, store)))

    def at_once(self, name: str, size: int, *args: Any) -> Any:
        """Do what `size` indices, masks or labels say with a loop that is no part of a plan.

        None if there is no such loop, or it is not worth its compilation: NumPy then has to do it,
        errors included.
        """
        if size < LEAST_AT_ONCE or self._indexed is None:
            return None
        self.scattered += size
        start, made = perf_counter(), None
        if self.scattered >= WORTH_A_LOOP:
            try:
                made = getattr(self._indexed(), name)(*args)
            except NothingNew:
                made = None
            except Exception as error:
                self.failed(error)
        self._looped(name, size, args, made, perf_counter() - start)
        return made

    def _looped(self, name: str, size: int, args: tuple, made: Any, seconds: float) -> None:
        """Count what a loop has done under the user's line, or that NumPy has to."""
        place = place_of(user_frame())
        record = self.loops.setdefault((name, place.file, place.line), Loop())
        if made is None or made is False:
            record.by_numpy += 1
            return
        parts = *args, *(made if type(made) is tuple else (made,))
        record.ran(f"{name} {size} {args[0].dtype}", seconds, parts)

    def compiled(self, title: str, place: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call at `place` what the user has compiled, and count it."""
        start = perf_counter()
        result = call_at(place, func, args, kwargs)
        record = self.loops.setdefault((name_of(func), place.file, place.line), Loop())
        record.ran(title, perf_counter() - start, (*args, result))
        return result

    def fallback(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run `func` with NumPy and count it under the user's line."""
        place = place_of(user_frame())
        if self.strict and any(isinstance(a, np.ndarray) for a in (*args, *kwargs.values())):
            raise UnsupportedError(refusal(place, func))
        return self.counted(place, func, args, kwargs)

    def counted(self, place: Any, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run `func` at `place` and count it."""
        name, file, line = name_of(func), place.file, place.line
        record = self.fallbacks.get((name, file, line))
        if record is None:
            record = self.fallbacks.setdefault((name, file, line), Fallback(func))
        start = perf_counter()
        try:
            result = call_at(place, func, args, kwargs)
        finally:
            seconds = perf_counter() - start
            record.count += 1
            record.seconds += seconds
            moment(name, start, seconds)
        if record.count == 1 and current().fallback == "warn":
            text = (f"{name} is {record.reason}: NumPy ran it, for {seconds * 1e3:.3g} ms; "
                    "docs/supported.md has what is traced, fallback=\"silent\" keeps this quiet")
            call_at(place, warnings.warn, (text, FallbackWarning), {})
        return result

    def failed(self, error: Exception) -> None:
        """Note that a program failed and NumPy computed the block; the first time in the log, too."""
        if isinstance(error, RecursionError):
            return  # only the stack was too short
        if len(self.failures) < 100:
            self.failures.append(f"{type(error).__name__}: {error}")
        text = "%s: a program failed and NumPy ran instead: %s"
        log.log(DEBUG if self.failures[1:] else WARNING, text, self.name, repr(error))

    def clear(self) -> None:
        """Forget everything learnt."""
        for memory in (self.exact, self.likely, self.pinned, self.fallbacks, self.loops, self.classes,
                       self.cuts, self.past, self.places, self.tapes, self.literals, self.lines, self.parts,
                       self.codes, self.failed_unrolls, self.fused_updates):
            memory.clear()
        self.failures.clear()
        self.unions = None
        self.journal.clear()
        self.frozen = []
        self._entries, self._many = 0, False
        self.standbys.clear()
        if self.payoff is not None:
            self.payoff.clear()
        self.calls, self.learning = 0, LEARNING


def _always() -> bool:
    return True


def _untold(name: str, record: Any) -> None:
    """Tell nobody."""


def unnoted(tier: str, made: Made, reason: Reason | None) -> None:
    """Take note of nothing: it belongs to what was noted."""


def _tape(path: Any, entries: tuple[tuple, ...]) -> tuple:
    """Return what operations done at one place are known by, whatever they are done to."""
    return path, tuple([entry[0] for entry in entries])


def lines_of(block: Block) -> dict[Hop, Any]:
    """Return the user's line of each hop of a block, as far as lines were noted."""
    hops = hops_of(block)
    return {hops[i]: line for i, line in block.lines.items()}


def stores(
    roots: tuple[int, ...], store: Any
) -> tuple[tuple[int | None, ...], frozenset[tuple[int, int, int]]]:
    """Return into which leaf each root is written, which leaves that overlaps, and how far they reach."""
    if store is None:
        return (None,) * len(roots), frozenset()
    outs = tuple(store.slot if i == store.index else None for i in roots)
    return outs, frozenset((store.slot, k, store.reach) for k in store.aliases)


def _layouts(block: Block) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    known = [LAYOUTS[e[1]] for e in block.entries if e[0] == LEAF]
    return {slot: (layout.shape, layout.strides) for slot, layout in enumerate(known)}
