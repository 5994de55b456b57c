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
from typing import Any, NamedTuple

import numpy as np

from jitla.errors import InternalError
from jitla.hops import NUMPY_CALL_SECONDS, FlagsRaised
from jitla.instrument import live_locals
from jitla.tracing import frames
from jitla.tracing.fallback import InterimReplay, TracingBudget, interpret
from jitla.tracing.fp_warnings import (
    EntryHistory,
    can_defer_warnings,
    find_dead_casts,
    replay_last_entry,
)
from jitla.tracing.frames import LOCAL, UserLine, user_line, user_place
from jitla.tracing.guards import is_same
from jitla.tracing.hoisting import HoistingState, new_hoisting_state, numpy_seconds_of
from jitla.tracing.lazy import LAZY, Lazy, LazyArray, Placeholder, apply_view, proxy_in_memory
from jitla.tracing.open_tape import (
    ENTRIES,
    LEAVES,
    NODES,
    SCALARS,
    VIEWS,
    DetachedTape,
    Tape,
    TapeParts,
)
from jitla.tracing.tape import (
    CELLS,
    LEAF,
    NBYTES,
    OP_ID,
    SCALAR,
    AnnotatedTape,
    Block,
    Entry,
    backward_slice,
    depends_on_slots,
    hops_of,
    layout_id,
    split_entry,
)

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


class BlockCloser:
    """Closes blocks: looks up or builds their programs, runs them and delivers values to proxies.

    Signal handlers and finalizers may interrupt every method wherever it calls a function or allocates, and
    may record operations themselves. State therefore changes in steps that neither call nor allocate.
    """

    __slots__ = ("session", "site", "tape", "rematerialisable", "hits", "budget", "running_store",
                 "raised_flags")

    def __init__(self, session: Any, site: Any, tape: Tape) -> None:
        self.session = session
        self.site = site
        self.tape = tape
        self.rematerialisable: list[Lazy] = []  # pending values that are on no tape, but have recipes
        self.hits = 0  # successive blocks that were known, while lines are recorded
        self.budget: TracingBudget | None = None
        # The store of the tape that is being run, and the floating-point flags that its run raised.
        self.running_store: LeafWrite | None = None
        self.raised_flags: FlagsRaised | None = None

    def value(self, proxy: Lazy) -> Any:
        """Return the ndarray or NumPy scalar of `proxy`; this closes the block if the value is pending."""
        value = proxy._v
        if value is not None:
            return value
        path = frames.path() if LOCAL.session is self.session is proxy._s else None
        if path is None or proxy._v is not None:
            return proxy._s.closer.compute_separately(proxy)
        n = proxy._n
        if n < 0:
            n = self.rematerialise(proxy)
        parts = self.close(n, None, path)
        value = proxy._v
        if value is None:
            self.site.note_failure(InternalError("a block was closed without the requested value"))
            assert parts is not None
            value = self._set_value(proxy, interpret(parts[ENTRIES], n, parts[LEAVES], parts[SCALARS]))
        return value

    def settle(self, array: LazyArray) -> np.ndarray:
        """Return the memory of `array`; its pending views become views of that memory."""
        root: Any = array
        tape = self.tape
        while root._v is None and root._n in tape.views:
            root = tape.views[root._n][0]
        if root._v is None:
            self.value(root)
        if array._v is None:
            self.value(array)
        return array._v

    def compute_separately(self, proxy: Lazy) -> Any:
        """Return the value of `proxy`, computed by NumPy, without closing the open block.

        This is for code outside of the session: of another session or thread, or code that interrupted an
        operation of this one.
        """
        open_tape = self.tape
        for _ in range(MAX_ATTEMPTS):
            n = proxy._n
            if proxy._v is not None:
                return proxy._v
            if n < 0 and proxy._r is not None:
                block, index, _ = proxy._r
                return self._set_value(proxy, interpret(block.entries, index, block.leaves, block.scalars))
            tape = DetachedTape(open_tape.ops, open_tape.nodes, open_tape.leaves, open_tape.scalars, None,
                                open_tape.views, {})
            if n >= 0:
                if n < len(tape.nodes) and (tape.nodes[n] is proxy or type(tape.nodes[n]) not in LAZY):
                    return self._set_value(proxy, self._interpret(tape, n))
            else:  # it has no number any more: its tape is being run, or about to be
                for each in (tape, DetachedTape(*open_tape.running) if open_tape.running else tape):
                    number = each.numbers().get(id(proxy))
                    if number is not None:
                        return self._set_value(proxy, self._interpret(each, number))
                if LOCAL.session is self.session and proxy._v is None:
                    break
            sleep(ATTEMPT_SECONDS)  # the thread that owns the session has just closed the block
        raise InternalError(LOST_VALUE)

    def _interpret(self, tape: DetachedTape, n: int) -> Any:
        """Return the value of entry `n`, computed by NumPy."""
        if n in tape.views:
            parent, method, args = tape.views[n]
            return apply_view(
                self.compute_separately(parent) if parent._v is None else parent._v, method, args)
        running, running_store = self.tape.running, self.running_store
        if running_store is not None and running and tape.nodes is running[NODES] \
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
            return self.tape.enter(proxy)  # code that interrupted this has computed it
        if proxy._r is None:
            raise InternalError(LOST_VALUE)
        tape = self.tape
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
                    numbers[i] = tape.enter(proxy_in_memory(self.session, block.leaves[leaf], entry[1]))
                leaf += 1
                continue
            if entry[0] == SCALAR:
                count, refs, attrs = 1, (), ()
            else:
                refs, attrs = split_entry(entry)
                count = sum(r < 0 for r in refs)
            if is_needed:
                numbers[i] = len(tape.ops)
                refs = tuple(r if r < 0 else numbers[r] for r in refs)
                if entry[0] != SCALAR:
                    entry = (entry[0], *refs, *((attrs,) if attrs else ()))
                tape.past[numbers[i]] = EntryHistory(places.get(i), i in computed)
                tape.append(entry, Placeholder(block.metas[i]), tuple(block.scalars[scalar : scalar + count]))
            scalar += count
        proxy._n = n = numbers[index]
        proxy._r = None
        tape.nodes[n] = proxy
        return n

    def _origins(self, key: tuple) -> tuple[Mapping[int, UserLine], set[int]]:
        """Return the places of a closed block's entries, if recorded, and the entries that were computed."""
        closed = self.site.exact.get(key)
        if closed is None or closed.bound is None:
            return {}, set()
        computed = {i for r in closed.roots for i in backward_slice(key[0], r)}
        return closed.bound.effects.places, computed

    # ------------------------------------------------------------------ the end of a block

    def close(
        self, wanted: int = -1, store: LeafWrite | None = None, path: tuple | None = None,
        consumed: tuple[int, int] = NOTHING_CONSUMED,
    ) -> TapeParts | None:
        """Close the block: compute entry `wanted` and live values, perform `store`; return the detached tape.

        `consumed` = (entry, references): the running operation drops its own references to this value
        afterwards; `references` is the number of all others.
        """
        tape = self.tape
        if len(tape.nodes) == len(tape.entered):
            if frames.path() is not None:
                tape.forget()
            return None
        if path is None:
            path = frames.path()
            if path is None:
                self.settle_interrupted(store)
                return None
        nodes, site = tape.nodes, self.site
        count = len(nodes)
        place = (path, wanted, store, count)
        key, closed = site.likely.get(place, NO_LIKELY_BLOCK)
        if closed is None or not tape.repeats(key[0], key[1]):
            references = tuple(map(_getrefcount, islice(nodes, count)))
            key = (tuple(tape.ops[:count]), references, path, wanted, store)
            closed = site.exact.get(key)
            if closed is not None:
                site.likely[place] = (key, closed)
        is_new = closed is None or closed.fixed and not closed.literals_match(tape.scalars)
        alive: Iterable[int]
        if is_new:
            alive = [i for i, node in enumerate(nodes) if type(node) in LAZY]
            if closed is None:
                self.hits = min(self.hits, 0)
        else:
            alive = closed.alive
            if tape.lines is not None:
                self.hits += 1
                if self.hits > 32:
                    tape.lines = None
        parts = tape.detach(count, alive)
        outs: tuple | None = None
        try:
            if is_new:
                closed = self._close_new(DetachedTape(*parts), key, store, consumed, closed is not None)
            if store is not None:
                self.running_store = store
            outs = self._run_program(parts, closed) if closed.roots else ()
            self._deliver(parts, closed, key, outs)
        except BaseException:  # an interrupt: leaves that were overwritten must not be read again
            self.raised_flags = None
            if outs is not None:
                self._deliver(parts, closed, key, outs)
            elif self.running_store is None:
                self._set_recipes(DetachedTape(*parts), key)
            raise
        finally:
            tape.running = self.running_store = None
        if self.raised_flags is not None:
            raised_flags, self.raised_flags = self.raised_flags, None
            self._give_warnings(closed, DetachedTape(*parts), store, raised_flags)
        budget = self.budget
        if budget is not None and perf_counter() > budget.check_at and budget.is_exhausted(site):
            self.session.continue_untraced()
        return parts

    def flush(self) -> None:
        """Close the block if it holds operations."""
        tape = self.tape
        if len(tape.nodes) > len(tape.entered):
            self.close()

    def close_long_block(self) -> None:
        """Close the block because it is long, unless the site unrolls loop iterations to longer blocks."""
        tape, site = self.tape, self.site
        if len(tape.ops) >= site.unroll_limit:
            site.note_cut(user_line(), len(tape.nodes) - len(tape.entered))
            self.flush()

    def limit_entered_bytes(self) -> None:
        """Close the block if the arrays that only it keeps alive take too much memory."""
        entered = self.tape.entered
        if len(entered) > 1:
            counts = list(map(_getrefcount, entered))  # before variables below refer to the proxies
            unreferenced = (p._v for p, count in zip(entered, counts, strict=True) if count == LIST_REFS)
            nbytes = sum(value.nbytes for value in unreferenced if value is not None)
            if nbytes > self.site.thresholds.max_entered_bytes:
                self.close()

    def settle_interrupted(self, store: LeafWrite | None) -> None:
        """Compute referenced values and perform `store` in interrupting code; the block stays open."""
        tape = self.tape
        counts = list(map(_getrefcount, tape.nodes))
        for node, count in zip(list(tape.nodes), counts, strict=False):
            if type(node) in LAZY and count > LIST_REFS and node._n >= 0 and node._v is None:
                self.compute_separately(node)
        if store is not None:
            tape.leaves[store.slot][...] = interpret(tape.ops, store.index, tape.leaves, tape.scalars)

    # ------------------------------------------------------------------ running and delivery

    def _run_program(self, parts: TapeParts, closed: ClosedBlock) -> tuple:
        """Run the program of a block and return its values; set `raised_flags` if it raised any."""
        outs = None
        try:
            if closed.hoisting_state is not None:
                outs = closed.hoisting_state.run(
                    self.session, DetachedTape(*parts), closed, self.running_store)
            if outs is None:
                outs = closed.bound.run(parts[LEAVES] + parts[SCALARS])
        except FlagsRaised as raised:
            outs, self.raised_flags = raised.values[: len(closed.roots)], raised.with_traceback(None)
        except Exception as error:
            try:
                outs = self.run_by_numpy(DetachedTape(*parts), closed, self.running_store, error)
            except FlagsRaised as raised:
                outs, self.raised_flags = raised.values, raised.with_traceback(None)
        if not closed.places:
            closed.places = tuple([
                (k, i, layout_id(v) if isinstance(v, np.ndarray) else -1)
                for k, (i, v) in enumerate(zip(closed.roots, outs, strict=True))])
        return outs

    def run_by_numpy(
        self, tape: DetachedTape, closed: ClosedBlock, store: LeafWrite | None, error: Exception,
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
            self._set_recipes(DetachedTape(*parts), key, closed)

    def _set_recipes(self, tape: DetachedTape, key: tuple, closed: ClosedBlock | None = None) -> None:
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
        self, closed: ClosedBlock, tape: DetachedTape, store: LeafWrite | None, raised_flags: FlagsRaised,
    ) -> None:
        """Give the floating-point warnings of a block whose values have been delivered.

        Filters, `warnings.showwarning` and streams may be the user's: they run outside of the session.
        """
        effects, site, block = closed.bound.effects, self.site, tape.block()
        if type(tape.ops) is AnnotatedTape:
            effects.places = block.places
        session, LOCAL.session = LOCAL.session, None
        try:
            fill_slots = self.session.boundary.fill_slots
            if effects.report(block, closed.roots, store, raised_flags, tape.past, fill_slots):
                self.session.memory.hoisted.clear()
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
        tape = self.tape
        ops, leaves, scalars, place = tape.ops[: n + 1], tape.leaves, tape.scalars, user_place()
        node._n = -1
        if frames.path() is not None:
            tape.forget()
        boundary = self.session.boundary
        if boundary.slots:
            boundary.fill_slots()
        session, LOCAL.session = LOCAL.session, None
        try:
            value = replay_last_entry(ops, leaves, scalars, place)
        finally:
            LOCAL.session = session
        node._l = layout_id(value) if isinstance(value, np.ndarray) else -1
        node._v = value

    def update_error_state(self) -> None:
        """Update `immediate` after code ran that may have changed the handling of floating-point errors."""
        self.session.memory.hoisted.clear()
        tape = self.tape
        if can_defer_warnings() is tape.immediate and frames.path() is not None:
            self.close()
            tape.immediate = not tape.immediate
            tape.reset()

    # ------------------------------------------------------------------ new blocks

    def _close_new(
        self, tape: DetachedTape, key: tuple, store: LeafWrite | None, consumed: tuple[int, int],
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

    def _build(self, tape: DetachedTape, key: tuple, store: LeafWrite | None,
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
        self, tape: DetachedTape, key: tuple, block: Block, store: LeafWrite | None,
        consumed: tuple[int, int],
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


MAX_ITERATIONS = 4  # iterations of a block: with more, the halo recomputed at tile borders grows
MIN_STENCIL_BYTES = 8 << 20  # of an iteration's result: smaller arrays stay in a cache between iterations
MIN_STENCIL_SLICES = 2
# Bytes of the result of an element-wise iteration, and entries of a block of such iterations: longer blocks
# are slow to compile, and bound by arithmetic rather than by memory.
MIN_CELL_BYTES, MAX_CELL_ENTRIES = 1 << 20, 48
MAX_UNUSED_BATCHES = 2  # successive batches of one iteration; the last batch of a loop may be one
_GETITEM = OP_ID["getitem"]


class IterationBatcher:
    """Merges successive loop iterations into one block if each only continues the one before."""

    __slots__ = ("site", "tape", "_last")

    def __init__(self, site: Any, tape: Tape) -> None:
        self.site = site
        self.tape = tape
        # Of the last iteration after which the block stayed open: the tape's entries, the number of such
        # iterations, and the number of entries.
        self._last: tuple[list[tuple], int, int] = [], 0, 0

    def continues_block(self) -> bool:
        """Return whether the open block continues with the next iteration of a loop."""
        tape = self.tape
        node = tape.nodes[-1]
        if type(node) is not LazyArray or NBYTES[node._m] < MIN_CELL_BYTES:
            return False
        ops = tape.ops
        ops_before, iterations, begin = self._last
        if ops_before is not ops:
            iterations = begin = 0
        if iterations + 1 >= MAX_ITERATIONS or len(ops) == begin or node._v is not None or \
                not self._is_worth_batching(begin, iterations > 0, NBYTES[node._m]):
            return False
        loop, failures = frames.path(), self.site.failed_unrolls
        if loop is None:
            return False
        if iterations:
            failures.pop(loop, None)
        elif failures.get(loop, 0) >= MAX_UNUSED_BATCHES:
            return False
        else:
            failures[loop] = failures.get(loop, 0) + 1  # reset when a second iteration reads results
        self._last = ops, iterations + 1, len(ops)
        return True

    def _is_worth_batching(self, begin: int, again: bool, size: int) -> bool:
        """Return whether an iteration with a result of `size` bytes is worth batching with the next one."""
        return size >= MIN_STENCIL_BYTES and self._is_stencil(begin, again) \
            or _is_chain(self.tape.ops, begin, again)

    def _is_stencil(self, begin: int, again: bool) -> bool:
        """Return whether an iteration is element-wise over slices; `again`: of pending values."""
        slices, leaf = 0, 0
        leaves = self.tape.leaves
        for at, entry in enumerate(self.tape.ops):
            op = entry[0]
            if op == LEAF:
                slices += at >= begin and not again and leaves[leaf].base is not None
                leaf += 1
            elif at >= begin and op == _GETITEM:
                slices += 1
            elif at >= begin and op != SCALAR and not CELLS[op]:
                return False
        return slices >= MIN_STENCIL_SLICES


def _is_chain(ops: list[Entry], begin: int, again: bool) -> bool:
    """Return whether an iteration is a few element-wise operations; `again`: which read pending values."""
    cells = [entry for entry in ops[begin:] if entry[0] not in (LEAF, SCALAR)]
    pending = {at for at, entry in enumerate(ops[:begin]) if entry[0] not in (LEAF, SCALAR)}
    return (2 * len(ops) - begin <= MAX_CELL_ENTRIES and all(CELLS[entry[0]] for entry in cells)
            and (not again or any(not pending.isdisjoint(split_entry(entry)[0]) for entry in cells)))
