"""The end of a block: liveness, lookup of its program, delivery of values."""

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
from jitla.tracing.fallback import Allowance, Standby
from jitla.tracing.fp_warnings import Past, calm, heeded, performed
from jitla.tracing.frames import Place, Places, here
from jitla.tracing.guards import is_same
from jitla.tracing.hoisting import Watch, watch, work_of
from jitla.tracing.interpreter import interpret
from jitla.tracing.lazy import (
    LAZY,
    Gone,
    Lazy,
    LazyArray,
    LazyScalar,
    in_memory,
    scalar_entry,
    view_of,
)
from jitla.tracing.tape import (
    LAYOUTS,
    LEAF,
    OP_ID,
    SCALAR,
    SCALAR_META,
    Block,
    Learning,
    cone,
    hops_of,
    layout_id,
    readers,
    scalars_of,
    split,
)
from jitla.tracing.thread_state import LOCAL

NOTHING = np.empty(0)  # stands for arrays that were read

MOST_BYTES = 1 << 28  # of one value: what makes larger ones is not worth a try
NEVER = 1e9  # seconds


class Closed:
    """How one exact block is run: its bound program and what happens to each proxy."""

    __slots__ = ("bound", "roots", "alive", "places", "views", "ghosts", "watch", "fixed", "entries", "metas",
                 "_foreseen")

    def __init__(
        self, bound: Any, roots: tuple[int, ...], views: tuple[int, ...], ghosts: tuple[int, ...],
        fixed: dict[int, Any],
    ) -> None:
        self.bound = bound
        self.roots = roots
        # Entries that somebody may hold proxies of.
        self.alive = (*roots, *views, *ghosts)
        # For each root: its position, entry and layout, once the program has run.
        self.places: tuple[tuple[int, int, int], ...] = ()
        self.views = views
        self.ghosts = ghosts
        # What finds and keeps values that stay the same from run to run, if there may be some.
        self.watch: Watch | None = None
        # Scalars, by number, that the program takes for literals.
        self.fixed = tuple(fixed.items())
        self.entries: tuple[Any, ...] = ()
        self.metas: tuple[int, ...] = ()  # of the entries
        self._foreseen = -1.0

    def fits(self, scalars: list[Any]) -> bool:
        """Say whether the literals of the program are what the scalars are."""
        for number, value in self.fixed:
            given = scalars[number]
            if given is not value and not is_same(given, value):  # constants of code are the same objects
                return False
        return True

    @property
    def foreseen(self) -> float:
        """Seconds that NumPy and SciPy would take for it: found when asked for, most blocks run once."""
        if self._foreseen < 0.0:
            leaves = sum(entry[0] == LEAF for entry in self.entries)
            block = Block(self.entries, self.metas, [NOTHING] * leaves, [], {}, hops=[])
            calls = sum(entry[0] > SCALAR for entry in self.entries)
            most = max((h.meta.nbytes for h in hops_of(block)), default=0)
            self._foreseen = NEVER if most > MOST_BYTES else work_of(block) + NUMPY_CALL_SECONDS * calls
        return self._foreseen

    def foresee(self, measured: float) -> None:
        """Take what NumPy took for what it will take, if it has run."""
        if measured < inf:
            self._foreseen = measured

    @property
    def runs(self) -> int:
        """How often it has run."""
        if self.bound is None:
            return 0
        main = None if self.watch is None else self.watch.main
        count: int = self.bound.count + (0 if main is None else main.count)
        return count

    def stop_watching(self, site: Any) -> None:
        """Run the block as it is from now on."""
        if self.watch is not None:
            site.count_past(self.watch.main)
            self.watch = None


_getrefcount = sys.getrefcount
# References that `map(getrefcount, nodes)` sees for an object held by the list alone.
BASE = next(map(_getrefcount, [object()]))


def _listed() -> int:
    things = [object()]
    return [_getrefcount(each) for each in things][0]


# Those that it sees in a comprehension: the list's, the variable's, before Python 3.14 its argument's too.
LISTED = _listed()
EXIT: tuple = ("exit",)
LOST = "a value was lost when the write beside it was interrupted"
# How often, and after how many seconds, a thread looks again for a value that another one is computing.
MAX_ATTEMPTS, ATTEMPT_SECONDS = 10_000, 1e-4
CLOSING_NOTHING = (-1, 0)
NOWHERE: tuple[tuple, Any] = ((), None)
_CAST = OP_ID["cast"]


class Store(NamedTuple):
    """A write into existing memory: entry `index` goes to leaf `slot`; `aliases` overlap it otherwise.

    These are the same view but for where it begins, at most `reach` steps of its longest stride away; -1
    if not all of them are, or if it does not matter.
    """

    index: int  # type: ignore[assignment]  # tuples have a method of this name
    slot: int
    aliases: tuple[int, ...]
    reach: int


class Tape(NamedTuple):
    """A tape that was taken off its session to be run; the proxies on it have no number any more."""

    ops: list[tuple]
    nodes: list[Any]
    leaves: list[np.ndarray]
    scalars: list[Any]
    lines: dict[int, Any] | None
    views: dict[int, tuple[Lazy, Any, tuple]]
    past: dict[int, Past]

    def block(self) -> Block:
        """Return it as a record."""
        ops, count = self.ops, len(self.ops)
        lines = {i: line for i, line in (self.lines or {}).items() if i < count}
        places = ops.places if type(ops) is Learning else Places()
        return Block(tuple(ops), self.metas(), self.leaves, self.scalars, lines, places, [])

    def metas(self) -> tuple[int, ...]:
        """Return the meta of each entry."""
        return tuple([
            LAYOUTS[e[1]].meta if e[0] == LEAF else SCALAR_META[e[1]] if e[0] == SCALAR else n._m
            for e, n in zip(self.ops, self.nodes, strict=True)])

    def numbers(self) -> dict[int, int]:
        """Return the number of each proxy's entry, by the identity of the proxy."""
        return {id(node): i for i, node in enumerate(self.nodes) if type(node) in LAZY}


# The fields of a tape as a plain tuple, which is made in half the time, and where some of them are.
TapeParts: TypeAlias = tuple[
    list[tuple], list[Any], list[np.ndarray], list[Any], dict[int, Any] | None,
    dict[int, tuple[Lazy, Any, tuple]], dict[int, Past]]
OPS: Final = 0
NODES: Final = 1
LEAVES: Final = 2
SCALARS: Final = 3
VIEWS: Final = 5


class Attentive(list[Any]):
    """The nodes of a tape whose entries are done at once: native methods leave it to Python's."""

    __slots__ = ()


class Closing:
    """The part of a session that ends blocks; state is declared in `Session`."""

    __slots__ = ()

    site: Any
    ops: list[tuple]
    nodes: list[Any]
    leaves: list[np.ndarray]
    scalars: list[Any]
    entered: list[Lazy]
    ghosts: list[Lazy]
    lines: dict[int, Any] | None
    views: dict[int, tuple[Lazy, Any, tuple]]
    past: dict[int, Past]
    positions: dict[tuple[int, int], tuple[np.ndarray, LazyArray]]
    tables: dict[int, LazyArray]
    extremes: dict[int, tuple[int, int]]
    kept: dict[Any, Any]
    attentive: bool
    over: bool
    allowance: Allowance | None
    hole: object
    hits: int
    running: TapeParts | None
    storing: Store | None
    hit: FlagsRaised | None
    slots: dict[tuple, Any]

    def enter(self, proxy: Lazy) -> int:
        """Put a value that is in memory (or a ghost) on the tape; return its entry."""
        value = proxy._v
        if value is None:
            if proxy._r is not None:
                return self.revive(proxy)
            value = self.compute_alone(proxy)  # it is being computed: this is interrupting code
        if type(proxy) is LazyScalar:
            return scalar_entry(self, proxy)
        proxy._n = n = self.append(LAYOUTS[proxy._l].entry, self.hole, leaves=(value,), entered=(proxy,))
        return n

    def append(
        self, entry: tuple, node: Any, scalars: tuple = (), leaves: tuple = (), entered: tuple = (),
    ) -> int:
        """Append an entry to the tape, with its node and what else belongs to it; return its number.

        Signal handlers, and finalizers that the garbage collector runs, may record operations of their own
        wherever Python calls something or allocates. So all lists grow by statements that do neither.
        """
        ops, nodes = self.ops, self.nodes
        if type(ops) is Learning:
            ops.note()
        entries, also = (entry,), (node,)
        # Nothing is called from here on, so that nobody interrupts it.
        ops += entries
        nodes += also
        self.scalars += scalars
        self.leaves += leaves
        self.entered += entered
        return len(ops) - 1

    def leave(self) -> None:
        """Let the values that were entered be off the tape."""
        for p in self.entered:
            p._n = -1

    def put(self, kind: type[Lazy], entry: tuple, meta: int, *scalars: Any) -> Lazy:
        """Append `entry` and its scalars to the tape; return the proxy, of type `kind`, of its value."""
        made = kind()
        made._s = self
        made._m = meta
        made._v = made._r = None
        made._n = n = self.append(entry, made, scalars)
        if self.attentive:
            self.perform(made, n)
        return made

    def repeats(self, entries: tuple, references: tuple) -> bool:
        """Return whether the tape holds `entries`, with so many references to each value."""
        held = tuple(map(_getrefcount, self.nodes))
        ops = tuple(self.ops)
        # Equal hashes first: only then is it certain that attributes can be compared.
        return references == held and hash(entries) == hash(ops) and entries == ops

    def value(self, proxy: Lazy) -> Any:
        """Return the ndarray or NumPy scalar of `proxy`, computing what is needed and live."""
        value = proxy._v
        if value is not None:
            return value
        path = frames.path() if LOCAL.session is self is proxy._s else None
        if path is None or proxy._v is not None:
            return proxy._s.compute_alone(proxy)
        n = proxy._n
        if n < 0:
            n = self.revive(proxy)
        parts = self.close(n, None, path)
        value = proxy._v
        if value is None:
            self.site.failed(InternalError("a block was closed without the value that was asked for"))
            assert parts is not None
            value = self._give_value(proxy, interpret(parts[OPS], n, parts[LEAVES], parts[SCALARS]))
        return value

    def compute_alone(self, proxy: Lazy) -> Any:
        """Return the value of `proxy`, computed by NumPy; the open block stays as it is.

        This serves code that does not run in the session: of another session or thread, or code that
        interrupted an operation of this one.
        """
        for _ in range(MAX_ATTEMPTS):
            n = proxy._n
            if proxy._v is not None:
                return proxy._v
            if n < 0 and proxy._r is not None:
                block, index, _ = proxy._r
                return self._give_value(proxy, interpret(block.entries, index, block.leaves, block.scalars))
            tape = Tape(self.ops, self.nodes, self.leaves, self.scalars, None, self.views, {})
            if n >= 0:
                if n < len(tape.nodes) and (tape.nodes[n] is proxy or type(tape.nodes[n]) not in LAZY):
                    return self._give_value(proxy, self._interpret(tape, n))
            else:  # it has lost its number: its tape is being run, or about to be
                for each in (tape, Tape(*self.running) if self.running else tape):
                    found = each.numbers().get(id(proxy))
                    if found is not None:
                        return self._give_value(proxy, self._interpret(each, found))
                if LOCAL.session is self and proxy._v is None:
                    break
            sleep(ATTEMPT_SECONDS)  # the thread whose session it is has just closed the block
        raise InternalError(LOST)

    def _interpret(self, tape: Tape, n: int) -> Any:
        """Return the value of entry `n`, computed by NumPy."""
        if n in tape.views:
            parent, method, args = tape.views[n]
            return view_of(self.compute_alone(parent) if parent._v is None else parent._v, method, args)
        storing = self.storing
        if storing is not None and self.running and tape.nodes is self.running[NODES] and readers(
                tuple(tape.ops[: n + 1]), {storing.slot, *storing.aliases})[n]:
            raise InternalError(LOST)
        return interpret(tape.ops, n, tape.leaves, tape.scalars)

    def _give_value(self, proxy: Lazy, value: Any) -> Any:
        """Give `proxy` a value that was computed apart from its block, unless it has one by now."""
        if proxy._v is None:
            proxy._l = layout_id(value) if isinstance(value, np.ndarray) else -1
            proxy._v = value
            proxy._n = -1
        return proxy._v

    def revive(self, ghost: Lazy) -> int:
        """Make a ghost pending again: its recipe is put on the tape; the place counts as live from now."""
        if ghost._v is not None:
            return self.enter(ghost)  # interrupting code has computed it
        if ghost._r is None:
            raise InternalError(LOST)
        block, index, key = ghost._r
        known, computed = self._known(key)
        self.site.pin(key, index)
        place: dict[int, int] = {}
        leaf = scalar = 0
        refs: tuple
        attrs: tuple
        wanted = set(cone(block.entries, index))
        for i, entry in enumerate(block.entries):
            taken = i in wanted
            if entry[0] == LEAF:
                if taken:
                    place[i] = self.enter(in_memory(self, block.leaves[leaf], entry[1]))
                leaf += 1
                continue
            if entry[0] == SCALAR:
                count, refs, attrs = 1, (), ()
            else:
                refs, attrs = split(entry)
                count = sum(r < 0 for r in refs)
            if taken:
                place[i] = len(self.ops)
                refs = tuple(r if r < 0 else place[r] for r in refs)
                if entry[0] != SCALAR:
                    entry = (entry[0], *refs, *((attrs,) if attrs else ()))
                self.past[place[i]] = Past(known.get(i), i in computed)
                self.append(entry, Gone(block.metas[i]), tuple(block.scalars[scalar : scalar + count]))
            scalar += count
        ghost._n = n = place[index]
        ghost._r = None
        self.nodes[n] = ghost
        return n

    def _known(self, key: tuple) -> tuple[Mapping[int, Place], set[int]]:
        """Return where a closed block's entries come from, if known, and which were computed."""
        closed = self.site.exact.get(key)
        if closed is None or closed.bound is None:
            return {}, set()
        computed = {i for r in closed.roots for i in cone(key[0], r)}
        return closed.bound.effects.places, computed

    def close(
        self, wanted: int = -1, store: Store | None = None, path: tuple | None = None,
        consumed: tuple[int, int] = CLOSING_NOTHING,
    ) -> TapeParts | None:
        """End the block: compute entry `wanted`, what is live, and `store`; return its tape, if there is one.

        `consumed` = (entry, references): a value that the running operation drops when it is done;
        so many references to it are not the operation's own.
        """
        if len(self.nodes) == len(self.entered):
            if frames.path() is not None:
                self.forget()
            return None
        if path is None:
            path = frames.path()
            if path is None:
                self._settle_alone(store)
                return None
        nodes, site = self.nodes, self.site
        count = len(nodes)
        place = (path, wanted, store, count)
        key, closed = site.likely.get(place, NOWHERE)
        if closed is None or not self.repeats(key[0], key[1]):
            references = tuple(map(_getrefcount, islice(nodes, count)))
            key = (tuple(self.ops[:count]), references, path, wanted, store)
            closed = site.exact.get(key)
            if closed is not None:
                site.likely[place] = (key, closed)
        is_new = closed is None or closed.fixed and not closed.fits(self.scalars)
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
                closed = self._met(Tape(*parts), key, store, consumed, closed is not None)
            if store is not None:
                self.storing = store
            outs = self._outputs(parts, closed) if closed.roots else ()
            self._deliver(parts, closed, key, outs)
        except BaseException:  # an interrupt: what was written into memory must not be read again
            self.hit = None
            if outs is not None:
                self._deliver(parts, closed, key, outs)
            elif self.storing is None:
                self._keep_recipes(Tape(*parts), key)
            raise
        finally:
            self.running = self.storing = None
        if self.hit is not None:
            hit, self.hit = self.hit, None
            self._tell(closed, Tape(*parts), store, hit)
        allowance = self.allowance
        if allowance is not None and perf_counter() > allowance.until and allowance.ends(site):
            self.retreat()
        return parts

    def detach(self, count: int, alive: Iterable[int]) -> TapeParts:
        """Take the tape, which has `count` entries, off the session, and begin an empty one.

        `alive` are the entries that somebody may hold proxies of. Code that interrupts this sees the tape as
        it was, or none.
        """
        self.leave()
        nodes, views, past, lines = self.nodes, self.views, self.past, self.lines
        for i in alive:
            nodes[i]._n = -1
        ops: list[tuple] = []
        if lines is not None:
            lines = dict(lines)
            ops = self._empty()
        empty: list[Any] = Attentive() if self.attentive else []
        parts = self.ops, nodes, self.leaves, self.scalars, lines, views, past
        while nodes[count:]:  # `len` would be a call, behind which code can interrupt
            self._truncate(count)
        # Nothing is called from here on, so that nobody interrupts it.
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
        """Compute what interrupting code has recorded behind the first `count` entries, and drop it."""
        known = self.ops[:count]
        leaves, scalars = sum([e[0] == LEAF for e in known]), scalars_of(known)
        self._settle_alone(None)
        for p in self.entered:
            p._n = -1
        for i in [i for i in self.views if i >= count]:
            del self.views[i]
        # Nothing is called from here on, so that nobody interrupts it.
        del self.ops[count:], self.nodes[count:], self.leaves[leaves:], self.scalars[scalars:]

    def _settle_alone(self, store: Store | None) -> None:
        """Compute what may be read and do `store`; the block stays open, as an operation was interrupted."""
        counts = list(map(_getrefcount, self.nodes))
        for node, count in zip(list(self.nodes), counts, strict=False):
            if type(node) in LAZY and count > BASE and node._n >= 0 and node._v is None:
                self.compute_alone(node)
        if store is not None:
            self.leaves[store.slot][...] = interpret(self.ops, store.index, self.leaves, self.scalars)

    def _outputs(self, parts: TapeParts, closed: Closed) -> tuple:
        """Run the program of a block and return its values; `hit` are the flags that it raised."""
        outs = None
        try:
            if closed.watch is not None:
                outs = closed.watch.run(self, Tape(*parts), closed, self.storing)
            if outs is None:
                outs = closed.bound.run(parts[LEAVES] + parts[SCALARS])
        except FlagsRaised as raised:
            outs, self.hit = raised.values[: len(closed.roots)], raised.with_traceback(None)
        except Exception as error:
            try:
                outs = self.run_by_numpy(Tape(*parts), closed, self.storing, error)
            except FlagsRaised as raised:
                outs, self.hit = raised.values, raised.with_traceback(None)
        if not closed.places:
            closed.places = tuple([
                (k, i, layout_id(v) if isinstance(v, np.ndarray) else -1)
                for k, (i, v) in enumerate(zip(closed.roots, outs, strict=True))])
        return outs

    def run_by_numpy(
        self, tape: Tape, closed: Closed, store: Store | None, error: Exception,
    ) -> tuple[Any, ...]:
        """Run a block by NumPy, as its program failed with `error`; may raise `FlagsRaised`."""
        replay = self.site.replay(tape.block(), closed.roots, store, error)
        return replay.run(tape.leaves + tape.scalars)

    def _deliver(self, parts: TapeParts, closed: Closed, key: tuple, outs: tuple) -> None:
        """Give the proxies their values, but for those that interrupting code has computed."""
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
                v = view_of(parent._v, method, args)
                p._l = layout_id(v)
                p._v = v
        if closed.ghosts:
            self._keep_recipes(Tape(*parts), key, closed)

    def _keep_recipes(self, tape: Tape, key: tuple, closed: Closed | None = None) -> None:
        """Let the ghosts of a block, or all proxies on it that have no value, keep how they are computed."""
        metas = tape.metas() if closed is None else closed.metas
        recipe = Block(key[0], metas, tape.leaves, tape.scalars, {})
        self.ghosts = [g for g in self.ghosts if _getrefcount(g) > LISTED and g._r is not None]
        for i in range(len(tape.nodes)) if closed is None else closed.ghosts:
            ghost = tape.nodes[i]
            if type(ghost) in LAZY and ghost._v is None:
                ghost._r = (recipe, i, key)
                self.ghosts.append(ghost)

    def _tell(self, closed: Closed, tape: Tape, store: Store | None, hit: FlagsRaised) -> None:
        """Give the warnings of a block that raised flags; its values have been delivered.

        Filters, `warnings.showwarning` and streams may be the user's: what they do is outside of the session.
        """
        effects, site, block = closed.bound.effects, self.site, tape.block()
        if type(tape.ops) is Learning:
            effects.places = block.places
        session, LOCAL.session = LOCAL.session, None
        try:
            if effects.tell(block, closed.roots, store, hit, tape.past, self.fill_slots):
                self.kept.clear()
                if not effects.places.straight:
                    site.note_lines()  # other lines may lead to the same tape
            signs = effects.to_observe(hit.flags)
            if signs:
                closed.bound = site.observing(closed.bound, block, closed.roots, store, signs)
        except (Warning, ArithmeticError):
            raise  # what the user's filters and handlers make of a warning
        except Exception as error:
            site.failed(error)
        finally:
            LOCAL.session = session

    def perform(self, node: Lazy, n: int) -> None:
        """Give `node`, the proxy of entry `n`, its value at once: that may call code of users.

        Code that interrupts this, or what leads to it, leaves the entries that it finds on the tape. It may
        have computed the value, but has called nobody.
        """
        ops, leaves, scalars, place = self.ops[: n + 1], self.leaves, self.scalars, here()
        node._n = -1
        if frames.path() is not None:
            self.forget()
        if self.slots:
            self.fill_slots()
        session, LOCAL.session = LOCAL.session, None
        try:
            value = performed(ops, leaves, scalars, place)
        finally:
            LOCAL.session = session
        node._l = layout_id(value) if isinstance(value, np.ndarray) else -1
        node._v = value

    def fill_slots(self) -> None:
        """Write ndarrays into the attributes and containers that hold proxies."""
        raise NotImplementedError

    def attend(self) -> None:
        """Look whether flags may now be more than warnings, after code ran that can have changed that."""
        self.kept.clear()
        if calm() is self.attentive and frames.path() is not None:
            self.close()
            self.attentive = not self.attentive
            self.reset()

    def forget(self) -> None:
        """Drop the leaves of a block that has no operations."""
        if self.nodes:
            self.reset()

    def reset(self) -> None:
        """Begin an empty block; the values that interrupting code has recorded meanwhile are computed."""
        ops: list[tuple] = self._empty()
        nodes: list[Any] = Attentive() if self.attentive else []
        if len(self.nodes) > len(self.entered):
            self._settle_alone(None)
        for p in self.entered:  # those that interrupting code adds, too
            p._n = -1
        # Nothing is called from here on, so that nobody interrupts it.
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
        return [] if self.lines is None else Learning(self.lines)

    def _met(
        self, tape: Tape, key: tuple, store: Store | None, consumed: tuple[int, int], loosens: bool,
    ) -> Closed:
        """Make a block that is new; note what that costs, unless its program is about to be read.

        `loosens`: it is not, but a scalar that was taken for a literal has another value now.
        """
        if loosens:
            self.site.loosen(key)
            return self._miss(tape, key, store, consumed)
        begun = perf_counter()
        made = self._miss(tape, key, store, consumed)
        if self.allowance is not None and not (type(made.bound) is Standby and made.bound.alike.kept):
            self.allowance.meet(key[2], perf_counter() - begun)
        return made

    def retreat(self) -> None:
        """Go on without tracing."""
        raise NotImplementedError

    def _miss(self, tape: Tape, key: tuple, store: Store | None, consumed: tuple[int, int]) -> Closed:
        """Choose roots and ghosts, get a program for the block's class and bind it to its sizes."""
        codes = tape.ops.codes if type(tape.ops) is Learning else {}
        block = self.site.placed(tape.block(), key[2], codes)
        roots, views, ghosts = self._fates(tape, key, block, store, consumed)
        if store is not None:
            roots = [store.index, *(r for r in roots if r != store.index)]
        bound = self.site.program(block, tuple(roots), store, key[2]) if roots else None
        closed = Closed(bound, tuple(roots), tuple(views), tuple(ghosts), block.fixed)
        closed.entries, closed.metas = block.entries, block.metas
        closed.watch = watch(self.site) if roots else None
        self.site.keep(key, closed)
        return closed

    def _fates(
        self, tape: Tape, key: tuple, block: Block, store: Store | None, consumed: tuple[int, int],
    ) -> tuple[list[int], list[int], list[int]]:
        """Split the block's alive values into roots to compute, views to derive, and ghosts."""
        ops, refs, path, wanted, _ = key
        numbers = tape.numbers()
        dead = [0] * len(ops) if path is EXIT else _dead_references(numbers, len(ops))
        reads = readers(ops, {store.slot, *store.aliases}) if store else [False] * len(ops)
        pins = self.site.pinned.get((path, len(ops)), ())
        roots: list[int] = []
        views: list[int] = []
        ghosts: list[int] = []
        for i in range(len(ops) - 1, -1, -1):
            node = tape.nodes[i]
            if type(node) not in LAZY:
                if store is not None and store.index == i:
                    roots.append(i)
                continue
            others = consumed[1] if i == consumed[0] else refs[i] - BASE
            unexplained = others - dead[i]
            live = unexplained > 0 or i == wanted or i in pins
            alive = others > 0
            if live or (alive and reads[i]):
                if i in tape.views:
                    views.append(i)
                else:
                    roots.append(i)
            else:
                if alive:
                    ghosts.append(i)
                parent = numbers.get(id(tape.views[i][0])) if i in tape.views else None
                if parent is not None:
                    dead[parent] += 1  # only this dead view still refers to its parent
        if _CAST in map(itemgetter(0), ops):
            roots += [i for i in heeded(block, roots) if type(tape.nodes[i]) in LAZY]
            roots.sort(reverse=True)
        return roots[::-1], views[::-1], [g for g in ghosts[::-1] if g not in roots]


def _dead_references(numbers: dict[int, int], count: int) -> list[int]:
    """Count, for each of the entries, the local variables that hold its proxy and are never read again."""
    dead = [0] * count
    for frame in frames.user_frames():
        live = live_locals(frame.f_code, frame.f_lasti)
        if live is None:
            continue
        names = frame.f_locals
        for name, held in names.items():
            if id(held) in numbers and name not in live:
                dead[numbers[id(held)]] += 1
        held = None
        if type(names) is dict:
            names.clear()  # before Python 3.13 a copy that the frame keeps: it must not hold arrays
    return dead
