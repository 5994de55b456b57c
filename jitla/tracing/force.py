"""The end of a block: liveness of its values, lookup of its program, run and delivery of values.

A block is looked up by its entries and the reference counts of their proxies ("exact block"). On a miss its
values are classified: live ones are roots that the program computes; views are derived from roots; values
that are referenced but proven dead get a recipe, by which they can be rematerialised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import islice
from math import inf
from operator import itemgetter
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from jitla.errors import InternalError
from jitla.hops import NUMPY_CALL_SECONDS, FlagsRaised
from jitla.instrument import live_locals
from jitla.tracing import frames
from jitla.tracing.fallback import InterimReplay, TracingBudget
from jitla.tracing.fp_warnings import (
    EntryHistory,
    can_defer_warnings,
    find_dead_casts,
    replay_last_entry,
)
from jitla.tracing.frames import Places, UserLine, user_place
from jitla.tracing.guards import is_same
from jitla.tracing.hoisting import HoistingState, new_hoisting_state, numpy_seconds_of
from jitla.tracing.interpreter import interpret
from jitla.tracing.lazy import (
    LAZY,
    Lazy,
    LazyArray,
    LazyScalar,
    Placeholder,
    apply_view,
    proxy_in_memory,
    scalar_entry,
)
from jitla.tracing.tape import (
    LAYOUTS,
    LEAF,
    OP_ID,
    SCALAR,
    SCALAR_META,
    AnnotatedTape,
    Block,
    backward_slice,
    depends_on_slots,
    hops_of,
    layout_id,
    scalars_of,
    split_entry,
)
from jitla.tracing.thread_state import LOCAL

EMPTY = np.empty(0)  # in place of leaf arrays, where only metas matter

MAX_VALUE_BYTES = 1 << 28  # a block with a larger value is not timed with NumPy
UNAFFORDABLE_SECONDS = 1e9  # the estimate for such a block


class ClosedBlock:
    """One exact block: its bound program, and the delivery of values to proxies after a run."""

    __slots__ = ("bound", "roots", "alive", "places", "views", "rematerialisable", "hoisting_state", "fixed",
    "entries",
                 "metas", "_numpy_seconds")

    def __init__(
        self, bound: Any, roots: tuple[int, ...], views: tuple[int, ...], rematerialisable: tuple[int, ...],
        fixed: dict[int, Any],
    ) -> None:
        self.bound = bound
        self.roots = roots
        # Entries whose proxies may be referenced.
        self.alive = (*roots, *views, *rematerialisable)
        # For each root: its position, entry and layout id, once the program has run.
        self.places: tuple[tuple[int, int, int], ...] = ()
        self.views = views
        self.rematerialisable = rematerialisable
        # Detects and hoists values that are the same in every run, if there may be some.
        self.hoisting_state: HoistingState | None = None
        # Scalars, by number, that are literals of the program.
        self.fixed = tuple(fixed.items())
        self.entries: tuple[Any, ...] = ()
        self.metas: tuple[int, ...] = ()  # of the entries
        self._numpy_seconds = -1.0

    def literals_match(self, scalars: list[Any]) -> bool:
        """Return whether the scalars have the values of the program's literals."""
        for number, value in self.fixed:
            scalar = scalars[number]
            if scalar is not value and not is_same(scalar, value):  # constants of code are identical objects
                return False
        return True

    @property
    def numpy_seconds(self) -> float:
        """Estimated seconds of a run by NumPy and SciPy; computed on demand, as most blocks run once."""
        if self._numpy_seconds < 0.0:
            leaves = sum(entry[0] == LEAF for entry in self.entries)
            block = Block(self.entries, self.metas, [EMPTY] * leaves, [], {}, hops=[])
            calls = sum(entry[0] > SCALAR for entry in self.entries)
            most = max((h.meta.nbytes for h in hops_of(block)), default=0)
            self._numpy_seconds = (
                UNAFFORDABLE_SECONDS if most > MAX_VALUE_BYTES
                else numpy_seconds_of(block) + NUMPY_CALL_SECONDS * calls)
        return self._numpy_seconds

    def set_numpy_seconds(self, measured: float) -> None:
        """Replace the estimate by the measured seconds of a run by NumPy; inf: there was none."""
        if measured < inf:
            self._numpy_seconds = measured

    @property
    def runs(self) -> int:
        """Number of runs."""
        if self.bound is None:
            return 0
        main = None if self.hoisting_state is None else self.hoisting_state.remainder
        count: int = self.bound.count + (0 if main is None else main.count)
        return count

    def stop_watching(self, site: Any) -> None:
        """Stop hoisting: run the whole block from now on."""
        if self.hoisting_state is not None:
            site.count_retired(self.hoisting_state.remainder)
            self.hoisting_state = None


_getrefcount = sys.getrefcount
# Reference count that `map(getrefcount, nodes)` returns for an object that only the list refers to.
LIST_REFS = next(map(_getrefcount, [object()]))


def _count_in_comprehension() -> int:
    objects = [object()]
    return [_getrefcount(each) for each in objects][0]


# The same in a comprehension: list, variable, and before Python 3.14 the argument on the stack.
COMPREHENSION_REFS = _count_in_comprehension()
EXIT_PATH: tuple = ("exit",)
LOST_VALUE = "a value was lost when the write beside it was interrupted"
# Number of retries, and seconds between them, for a value that another thread is computing.
MAX_ATTEMPTS, ATTEMPT_SECONDS = 10_000, 1e-4
NOTHING_CONSUMED = (-1, 0)
NO_LIKELY_BLOCK: tuple[tuple, Any] = ((), None)
_CAST = OP_ID["cast"]


class LeafWrite(NamedTuple):
    """A write of entry `index` into the memory of leaf `slot`; the leaves `aliases` overlap it.

    The aliases have the layout of the target and begin at most `reach` steps of its longest stride away
    from it; -1 if not all do, or if it does not matter.
    """

    index: int  # type: ignore[assignment]  # tuples have a method of this name
    slot: int
    aliases: tuple[int, ...]
    reach: int


class Tape(NamedTuple):
    """A tape detached from its session for a run; the proxies on it have no entry number any more."""

    ops: list[tuple]
    nodes: list[Any]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any] | None
    views: dict[int, tuple[Lazy, Any, tuple]]
    past: dict[int, EntryHistory]

    def block(self) -> Block:
        """Return the tape as a block."""
        ops, count = self.ops, len(self.ops)
        lines = {i: line for i, line in (self.lines or {}).items() if i < count}
        places = ops.places if type(ops) is AnnotatedTape else Places()
        return Block(tuple(ops), self.metas(), self.leaves, self.scalars, lines, places, [])

    def metas(self) -> tuple[int, ...]:
        """Return the meta of each entry."""
        return tuple([
            LAYOUTS[e[1]].meta if e[0] == LEAF else SCALAR_META[e[1]] if e[0] == SCALAR else n._m
            for e, n in zip(self.ops, self.nodes, strict=True)])

    def numbers(self) -> dict[int, int]:
        """Return the entry number of each proxy, by the id of the proxy."""
        return {id(node): i for i, node in enumerate(self.nodes) if type(node) in LAZY}


# The fields of a tape as a plain tuple, which is created in half the time, and the indices of some.
TapeParts: TypeAlias = tuple[
    list[tuple], list[Any], list[np.ndarray], list[Any], dict[int, Any] | None,
    dict[int, tuple[Lazy, Any, tuple]], dict[int, EntryHistory]]
OPS: Final = 0
NODES: Final = 1
LEAVES: Final = 2
SCALARS: Final = 3
VIEWS: Final = 5


class ImmediateNodes(list[Any]):
    """The nodes of a tape whose entries are computed at once.

    For lists of this type the native methods call their Python twins.
    """

    __slots__ = ()


class BlockCloser:
    """The part of a session that closes blocks; the slots are declared in `Session`.

    Signal handlers and finalizers may interrupt every method wherever it calls a function or allocates, and
    may record operations themselves. State therefore changes in steps that neither call nor allocate.
    """

    __slots__ = ()

    site: Any
    ops: list[tuple]
    nodes: list[Any]
    leaves: list[np.ndarray]
    scalars: list[Any]
    entered: list[Lazy]
    rematerialisable: list[Lazy]
    lines: dict[int, Any] | None
    views: dict[int, tuple[Lazy, Any, tuple]]
    past: dict[int, EntryHistory]
    positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]]
    tables: dict[int, LazyArray]
    extremes: dict[int, tuple[int, int]]
    hoisted: dict[Any, Any]
    immediate: bool
    ended: bool
    budget: TracingBudget | None
    hole: object
    hits: int
    running: TapeParts | None
    running_store: LeafWrite | None
    raised_flags: FlagsRaised | None
    slots: dict[tuple, Any]

    def enter(self, proxy: Lazy) -> int:
        """Append a value that is in memory, or rematerialisable, to the tape; return its entry."""
        value = proxy._v
        if value is None:
            if proxy._r is not None:
                return self.rematerialise(proxy)
            value = self.compute_separately(proxy)  # it is being computed: this code interrupts that
        if type(proxy) is LazyScalar:
            return scalar_entry(self, proxy)
        proxy._n = n = self.append(LAYOUTS[proxy._l].entry, self.hole, leaves=(value,), entered=(proxy,))
        return n

    def append(
        self, entry: tuple, node: Any, scalars: tuple = (), leaves: tuple = (), entered: tuple = (),
    ) -> int:
        """Append an entry to the tape, with its node, scalars and leaves; return its number.

        Signal handlers, and finalizers run by the garbage collector, may record operations themselves
        wherever Python calls a function or allocates: the lists grow by statements that do neither.
        """
        ops, nodes = self.ops, self.nodes
        if type(ops) is AnnotatedTape:
            ops.note_origin()
        entries, also = (entry,), (node,)
        # Nothing is called from here on, so that nothing interrupts it.
        ops += entries
        nodes += also
        self.scalars += scalars
        self.leaves += leaves
        self.entered += entered
        return len(ops) - 1

    def leave(self) -> None:
        """Take the entered values off the tape: their proxies have no entry number any more."""
        for p in self.entered:
            p._n = -1

    def put(self, kind: type[Lazy], entry: tuple, meta: int, *scalars: Any) -> Lazy:
        """Append `entry` and its scalars to the tape; return the proxy of its value, of type `kind`."""
        proxy = kind()
        proxy._s = self
        proxy._m = meta
        proxy._v = proxy._r = None
        proxy._n = n = self.append(entry, proxy, scalars)
        if self.immediate:
            self.perform_now(proxy, n)
        return proxy

    def repeats(self, entries: tuple, references: tuple) -> bool:
        """Return whether the tape consists of `entries`, with these reference counts of the nodes."""
        counts = tuple(map(_getrefcount, self.nodes))
        ops = tuple(self.ops)
        # Hashes are compared first: only if they are equal can attributes be compared safely.
        return references == counts and hash(entries) == hash(ops) and entries == ops

    def value(self, proxy: Lazy) -> Any:
        """Return the ndarray or NumPy scalar of `proxy`; this closes the block if the value is pending."""
        value = proxy._v
        if value is not None:
            return value
        path = frames.path() if LOCAL.session is self is proxy._s else None
        if path is None or proxy._v is not None:
            return proxy._s.compute_separately(proxy)
        n = proxy._n
        if n < 0:
            n = self.rematerialise(proxy)
        parts = self.close(n, None, path)
        value = proxy._v
        if value is None:
            self.site.note_failure(InternalError("a block was closed without the requested value"))
            assert parts is not None
            value = self._set_value(proxy, interpret(parts[OPS], n, parts[LEAVES], parts[SCALARS]))
        return value

    def compute_separately(self, proxy: Lazy) -> Any:
        """Return the value of `proxy`, computed by NumPy, without closing the open block.

        This is for code outside of the session: of another session or thread, or code that interrupted an
        operation of this one.
        """
        for _ in range(MAX_ATTEMPTS):
            n = proxy._n
            if proxy._v is not None:
                return proxy._v
            if n < 0 and proxy._r is not None:
                block, index, _ = proxy._r
                return self._set_value(proxy, interpret(block.entries, index, block.leaves, block.scalars))
            tape = Tape(self.ops, self.nodes, self.leaves, self.scalars, None, self.views, {})
            if n >= 0:
                if n < len(tape.nodes) and (tape.nodes[n] is proxy or type(tape.nodes[n]) not in LAZY):
                    return self._set_value(proxy, self._interpret(tape, n))
            else:  # it has no number any more: its tape is being run, or about to be
                for each in (tape, Tape(*self.running) if self.running else tape):
                    number = each.numbers().get(id(proxy))
                    if number is not None:
                        return self._set_value(proxy, self._interpret(each, number))
                if LOCAL.session is self and proxy._v is None:
                    break
            sleep(ATTEMPT_SECONDS)  # the thread that owns the session has just closed the block
        raise InternalError(LOST_VALUE)

    def _interpret(self, tape: Tape, n: int) -> Any:
        """Return the value of entry `n`, computed by NumPy."""
        if n in tape.views:
            parent, method, args = tape.views[n]
            return apply_view(
                self.compute_separately(parent) if parent._v is None else parent._v, method, args)
        running_store = self.running_store
        if running_store is not None and self.running and tape.nodes is self.running[NODES] \
                and depends_on_slots(
                    tuple(tape.ops[: n + 1]), {running_store.slot, *running_store.aliases})[n]:
            raise InternalError(LOST_VALUE)
        return interpret(tape.ops, n, tape.leaves, tape.scalars)

    def _set_value(self, proxy: Lazy, value: Any) -> Any:
        """Set the value of `proxy`, computed outside of its block, unless it has one by now; return that."""
        if proxy._v is None:
            proxy._l = layout_id(value) if isinstance(value, np.ndarray) else -1
            proxy._v = value
            proxy._n = -1
        return proxy._v

    def rematerialise(self, proxy: Lazy) -> int:
        """Append the recipe of `proxy` to the tape, so that it is pending again; return its entry.

        The value of this entry counts as live in later runs of the block that it comes from.
        """
        if proxy._v is not None:
            return self.enter(proxy)  # code that interrupted this has computed it
        if proxy._r is None:
            raise InternalError(LOST_VALUE)
        block, index, key = proxy._r
        places, computed = self._origins(key)
        self.site.pin(key, index)
        numbers: dict[int, int] = {}
        leaf = scalar = 0
        refs: tuple
        attrs: tuple
        wanted = set(backward_slice(block.entries, index))
        for i, entry in enumerate(block.entries):
            is_needed = i in wanted
            if entry[0] == LEAF:
                if is_needed:
                    numbers[i] = self.enter(proxy_in_memory(self, block.leaves[leaf], entry[1]))
                leaf += 1
                continue
            if entry[0] == SCALAR:
                count, refs, attrs = 1, (), ()
            else:
                refs, attrs = split_entry(entry)
                count = sum(r < 0 for r in refs)
            if is_needed:
                numbers[i] = len(self.ops)
                refs = tuple(r if r < 0 else numbers[r] for r in refs)
                if entry[0] != SCALAR:
                    entry = (entry[0], *refs, *((attrs,) if attrs else ()))
                self.past[numbers[i]] = EntryHistory(places.get(i), i in computed)
                self.append(entry, Placeholder(block.metas[i]), tuple(block.scalars[scalar : scalar + count]))
            scalar += count
        proxy._n = n = numbers[index]
        proxy._r = None
        self.nodes[n] = proxy
        return n

    def _origins(self, key: tuple) -> tuple[Mapping[int, UserLine], set[int]]:
        """Return the places of a closed block's entries, if recorded, and the entries that were computed."""
        closed = self.site.exact.get(key)
        if closed is None or closed.bound is None:
            return {}, set()
        computed = {i for r in closed.roots for i in backward_slice(key[0], r)}
        return closed.bound.effects.places, computed

    def close(
        self, wanted: int = -1, store: LeafWrite | None = None, path: tuple | None = None,
        consumed: tuple[int, int] = NOTHING_CONSUMED,
    ) -> TapeParts | None:
        """Close the block: compute entry `wanted` and live values, perform `store`; return the detached tape.

        `consumed` = (entry, references): the running operation drops its own references to this value
        afterwards; `references` is the number of all others.
        """
        if len(self.nodes) == len(self.entered):
            if frames.path() is not None:
                self.forget()
            return None
        if path is None:
            path = frames.path()
            if path is None:
                self._settle_interrupted(store)
                return None
        nodes, site = self.nodes, self.site
        count = len(nodes)
        place = (path, wanted, store, count)
        key, closed = site.likely.get(place, NO_LIKELY_BLOCK)
        if closed is None or not self.repeats(key[0], key[1]):
            references = tuple(map(_getrefcount, islice(nodes, count)))
            key = (tuple(self.ops[:count]), references, path, wanted, store)
            closed = site.exact.get(key)
            if closed is not None:
                site.likely[place] = (key, closed)
        is_new = closed is None or closed.fixed and not closed.literals_match(self.scalars)
        alive: Iterable[int]
        if is_new:
            alive = [i for i, node in enumerate(nodes) if type(node) in LAZY]
            if closed is None:
                self.hits = min(self.hits, 0)
        else:
            alive = closed.alive
            if self.lines is not None:
                self.hits += 1
                if self.hits > 32:
                    self.lines = None
        parts = self.detach(count, alive)
        outs: tuple | None = None
        try:
            if is_new:
                closed = self._close_new(Tape(*parts), key, store, consumed, closed is not None)
            if store is not None:
                self.running_store = store
            outs = self._run_program(parts, closed) if closed.roots else ()
            self._deliver(parts, closed, key, outs)
        except BaseException:  # an interrupt: leaves that were overwritten must not be read again
            self.raised_flags = None
            if outs is not None:
                self._deliver(parts, closed, key, outs)
            elif self.running_store is None:
                self._set_recipes(Tape(*parts), key)
            raise
        finally:
            self.running = self.running_store = None
        if self.raised_flags is not None:
            raised_flags, self.raised_flags = self.raised_flags, None
            self._give_warnings(closed, Tape(*parts), store, raised_flags)
        budget = self.budget
        if budget is not None and perf_counter() > budget.check_at and budget.is_exhausted(site):
            self.continue_untraced()
        return parts

    def detach(self, count: int, alive: Iterable[int]) -> TapeParts:
        """Detach the tape, which has `count` entries, from the session, and begin an empty one.

        `alive` are the entries whose proxies may be referenced. Code that interrupts this sees the tape as
        it was, or an empty one.
        """
        self.leave()
        nodes, views, past, lines = self.nodes, self.views, self.past, self.lines
        for i in alive:
            nodes[i]._n = -1
        ops: list[tuple] = []
        if lines is not None:
            lines = dict(lines)
            ops = self._empty()
        empty: list[Any] = ImmediateNodes() if self.immediate else []
        parts = self.ops, nodes, self.leaves, self.scalars, lines, views, past
        while nodes[count:]:  # `len` would be a call, after which code can interrupt
            self._truncate(count)
        # Nothing is called from here on, so that nothing interrupts it.
        self.running = parts
        self.ops, self.nodes = ops, empty
        self.leaves, self.scalars, self.entered = [], [], []
        if views:
            self.views = {}
        if past:
            self.past = {}
        if self.positions or self.tables or self.extremes:
            self.positions, self.tables, self.extremes = {}, {}, {}
        return parts

    def _truncate(self, count: int) -> None:
        """Compute and drop the entries that interrupting code has recorded after the first `count`."""
        entries = self.ops[:count]
        leaves, scalars = sum([e[0] == LEAF for e in entries]), scalars_of(entries)
        self._settle_interrupted(None)
        for p in self.entered:
            p._n = -1
        for i in [i for i in self.views if i >= count]:
            del self.views[i]
        # Nothing is called from here on, so that nothing interrupts it.
        del self.ops[count:], self.nodes[count:], self.leaves[leaves:], self.scalars[scalars:]

    def _settle_interrupted(self, store: LeafWrite | None) -> None:
        """Compute referenced values and perform `store` in interrupting code; the block stays open."""
        counts = list(map(_getrefcount, self.nodes))
        for node, count in zip(list(self.nodes), counts, strict=False):
            if type(node) in LAZY and count > LIST_REFS and node._n >= 0 and node._v is None:
                self.compute_separately(node)
        if store is not None:
            self.leaves[store.slot][...] = interpret(self.ops, store.index, self.leaves, self.scalars)

    def _run_program(self, parts: TapeParts, closed: ClosedBlock) -> tuple:
        """Run the program of a block and return its values; set `raised_flags` if it raised any."""
        outs = None
        try:
            if closed.hoisting_state is not None:
                outs = closed.hoisting_state.run(self, Tape(*parts), closed, self.running_store)
            if outs is None:
                outs = closed.bound.run(parts[LEAVES] + parts[SCALARS])
        except FlagsRaised as raised:
            outs, self.raised_flags = raised.values[: len(closed.roots)], raised.with_traceback(None)
        except Exception as error:
            try:
                outs = self.run_by_numpy(Tape(*parts), closed, self.running_store, error)
            except FlagsRaised as raised:
                outs, self.raised_flags = raised.values, raised.with_traceback(None)
        if not closed.places:
            closed.places = tuple([
                (k, i, layout_id(v) if isinstance(v, np.ndarray) else -1)
                for k, (i, v) in enumerate(zip(closed.roots, outs, strict=True))])
        return outs

    def run_by_numpy(
        self, tape: Tape, closed: ClosedBlock, store: LeafWrite | None, error: Exception,
    ) -> tuple[Any, ...]:
        """Run a block by NumPy because its program failed with `error`; may raise `FlagsRaised`."""
        replay = self.site.replay(tape.block(), closed.roots, store, error)
        return replay.run(tape.leaves + tape.scalars)

    def _deliver(self, parts: TapeParts, closed: ClosedBlock, key: tuple, outs: tuple) -> None:
        """Set the values of the proxies, except those that interrupting code has computed."""
        nodes = parts[NODES]
        for k, i, layout in closed.places:
            p = nodes[i]
            if p._v is None:
                p._l = layout
                p._v = outs[k]
        for i in closed.views:
            p = nodes[i]
            if p._v is None:
                parent, method, args = parts[VIEWS][i]
                v = apply_view(parent._v, method, args)
                p._l = layout_id(v)
                p._v = v
        if closed.rematerialisable:
            self._set_recipes(Tape(*parts), key, closed)

    def _set_recipes(self, tape: Tape, key: tuple, closed: ClosedBlock | None = None) -> None:
        """Set the recipes of the rematerialisable proxies; without `closed`, of all that have no value."""
        metas = tape.metas() if closed is None else closed.metas
        recipe = Block(key[0], metas, tape.leaves, tape.scalars, {})
        self.rematerialisable = [
            g for g in self.rematerialisable if _getrefcount(g) > COMPREHENSION_REFS and g._r is not None]
        for i in range(len(tape.nodes)) if closed is None else closed.rematerialisable:
            proxy = tape.nodes[i]
            if type(proxy) in LAZY and proxy._v is None:
                proxy._r = (recipe, i, key)
                self.rematerialisable.append(proxy)

    def _give_warnings(
        self, closed: ClosedBlock, tape: Tape, store: LeafWrite | None, raised_flags: FlagsRaised,
    ) -> None:
        """Give the floating-point warnings of a block whose values have been delivered.

        Filters, `warnings.showwarning` and streams may be the user's: they run outside of the session.
        """
        effects, site, block = closed.bound.effects, self.site, tape.block()
        if type(tape.ops) is AnnotatedTape:
            effects.places = block.places
        session, LOCAL.session = LOCAL.session, None
        try:
            if effects.report(block, closed.roots, store, raised_flags, tape.past, self.fill_slots):
                self.hoisted.clear()
                if not effects.places.straight:
                    site.note_lines()  # the same tape may come from other lines
            signs = effects.tests_to_compute(raised_flags.flags)
            if signs:
                closed.bound = site.observing_program(closed.bound, block, closed.roots, store, signs)
        except (Warning, ArithmeticError):
            raise  # by the user's filters and handlers of warnings
        except Exception as error:
            site.note_failure(error)
        finally:
            LOCAL.session = session

    def perform_now(self, node: Lazy, n: int) -> None:
        """Compute the value of `node`, the proxy of entry `n`, at once, which may call the user's handlers.

        Code that interrupts this leaves the entries that it finds on the tape. It may have computed the
        value, but has not called handlers.
        """
        ops, leaves, scalars, place = self.ops[: n + 1], self.leaves, self.scalars, user_place()
        node._n = -1
        if frames.path() is not None:
            self.forget()
        if self.slots:
            self.fill_slots()
        session, LOCAL.session = LOCAL.session, None
        try:
            value = replay_last_entry(ops, leaves, scalars, place)
        finally:
            LOCAL.session = session
        node._l = layout_id(value) if isinstance(value, np.ndarray) else -1
        node._v = value

    def fill_slots(self) -> None:
        """Replace the proxies in attributes and containers by their values."""
        raise NotImplementedError

    def update_error_state(self) -> None:
        """Update `immediate` after code ran that may have changed the handling of floating-point errors."""
        self.hoisted.clear()
        if can_defer_warnings() is self.immediate and frames.path() is not None:
            self.close()
            self.immediate = not self.immediate
            self.reset()

    def forget(self) -> None:
        """Drop the leaves of a block that has no operations."""
        if self.nodes:
            self.reset()

    def reset(self) -> None:
        """Begin an empty block; compute values that interrupting code has recorded meanwhile."""
        ops: list[tuple] = self._empty()
        nodes: list[Any] = ImmediateNodes() if self.immediate else []
        if len(self.nodes) > len(self.entered):
            self._settle_interrupted(None)
        for p in self.entered:  # including those that interrupting code has added
            p._n = -1
        # Nothing is called from here on, so that nothing interrupts it.
        self.ops, self.nodes = ops, nodes
        self.leaves = []
        self.scalars = []
        self.entered = []
        if self.views:
            self.views = {}
        if self.past:
            self.past = {}
        if self.positions or self.tables or self.extremes:
            self.positions, self.tables, self.extremes = {}, {}, {}

    def _empty(self) -> list[tuple]:
        return [] if self.lines is None else AnnotatedTape(self.lines)

    def _close_new(
        self, tape: Tape, key: tuple, store: LeafWrite | None, consumed: tuple[int, int],
        drops_literals: bool,
    ) -> ClosedBlock:
        """Build a new block; charge the time to the allowance unless its program is in the disk cache.

        `drops_literals`: the block is known, but a scalar that is a literal of its program has another value.
        """
        if drops_literals:
            self.site.drop_literals(key)
            return self._build(tape, key, store, consumed)
        start = perf_counter()
        closed = self._build(tape, key, store, consumed)
        if self.budget is not None and not (
                type(closed.bound) is InterimReplay and closed.bound.program_state.on_disk):
            self.budget.add_new_block(key[2], perf_counter() - start)
        return closed

    def continue_untraced(self) -> None:
        """Continue the call without tracing."""
        raise NotImplementedError

    def _build(self, tape: Tape, key: tuple, store: LeafWrite | None,
               consumed: tuple[int, int]) -> ClosedBlock:
        """Classify the values of the block, and bind a program of its class to sizes and layouts."""
        codes = tape.ops.codes if type(tape.ops) is AnnotatedTape else {}
        block = self.site.with_origins(tape.block(), key[2], codes)
        roots, views, rematerialisable = self._classify_values(tape, key, block, store, consumed)
        if store is not None:
            roots = [store.index, *(r for r in roots if r != store.index)]
        bound = self.site.program(block, tuple(roots), store, key[2]) if roots else None
        closed = ClosedBlock(bound, tuple(roots), tuple(views), tuple(rematerialisable), block.fixed)
        closed.entries, closed.metas = block.entries, block.metas
        closed.hoisting_state = new_hoisting_state(self.site) if roots else None
        self.site.remember_block(key, closed)
        return closed

    def _classify_values(
        self, tape: Tape, key: tuple, block: Block, store: LeafWrite | None, consumed: tuple[int, int],
    ) -> tuple[list[int], list[int], list[int]]:
        """Split the referenced values of a block into roots, views of others, and rematerialisable ones.

        A value is rematerialisable if only dead local variables and dead views refer to it, unless a store
        changes an operand of its recipe.
        """
        ops, refs, path, wanted, _ = key
        numbers = tape.numbers()
        dead = [0] * len(ops) if path is EXIT_PATH else _dead_references(numbers, len(ops))
        reads = depends_on_slots(ops, {store.slot, *store.aliases}) if store else [False] * len(ops)
        pins = self.site.pinned.get((path, len(ops)), ())
        roots: list[int] = []
        views: list[int] = []
        rematerialisable: list[int] = []
        for i in range(len(ops) - 1, -1, -1):
            node = tape.nodes[i]
            if type(node) not in LAZY:
                if store is not None and store.index == i:
                    roots.append(i)
                continue
            references = consumed[1] if i == consumed[0] else refs[i] - LIST_REFS
            unexplained = references - dead[i]
            live = unexplained > 0 or i == wanted or i in pins
            alive = references > 0
            if live or (alive and reads[i]):
                if i in tape.views:
                    views.append(i)
                else:
                    roots.append(i)
            else:
                if alive:
                    rematerialisable.append(i)
                parent = numbers.get(id(tape.views[i][0])) if i in tape.views else None
                if parent is not None:
                    dead[parent] += 1  # only this dead view still refers to its parent
        if _CAST in map(itemgetter(0), ops):
            roots += [i for i in find_dead_casts(block, roots) if type(tape.nodes[i]) in LAZY]
            roots.sort(reverse=True)
        return roots[::-1], views[::-1], [g for g in rematerialisable[::-1] if g not in roots]


def _dead_references(numbers: dict[int, int], count: int) -> list[int]:
    """Return for each entry the number of dead local variables that refer to its proxy."""
    dead = [0] * count
    for frame in frames.user_frames():
        live = live_locals(frame.f_code, frame.f_lasti)
        if live is None:
            continue
        names = frame.f_locals
        for name, value in names.items():
            if id(value) in numbers and name not in live:
                dead[numbers[id(value)]] += 1
        value = None
        if type(names) is dict:
            names.clear()  # before Python 3.13 a copy that the frame stores: it must not refer to arrays
    return dead
