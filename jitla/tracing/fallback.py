"""Blocks run by NumPy while their programs are pending, and traced calls that are given up."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf
from time import perf_counter, process_time, thread_time
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    Evaluation,
    FlagsRaised,
    Hop,
    OpSpec,
    implementation_of,
    lookup,
    start_recording,
    stop_recording,
    take_flags,
)
from jitla.tracing.lazy import LAZY
from jitla.tracing.tape import (
    LAYOUTS,
    LEAF,
    METAS,
    METHODS,
    OPS,
    SCALAR,
    Entry,
    backward_slice,
    cast_as_ufunc,
    split_entry,
)

__all__ = ["abandon", "serve"]


DEEP = 12  # expressions in each other

_INFIX = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.floor_divide: "//",
    np.remainder: "%", np.bitwise_and: "&", np.bitwise_or: "|", np.bitwise_xor: "^", np.left_shift: "<<",
    np.right_shift: ">>", np.equal: "==", np.not_equal: "!=", np.less: "<", np.less_equal: "<=",
    np.greater: ">", np.greater_equal: ">=",
}
_PREFIX = {np.negative: "-", np.positive: "+", np.invert: "~"}
Run = Callable[[Sequence[Any]], list[Any]]


def script(entries: tuple[Entry, ...], roots: tuple[int, ...]) -> Run:
    """Return what computes the values of `roots` from leaves and, behind them, scalars."""
    writer = _Writer(entries, roots)
    scope: dict[str, Any] = writer.scope
    exec(_compiled(writer.source()), scope)
    run: Run = scope["run"]
    return run


@lru_cache(512)
def _compiled(source: str) -> CodeType:
    return compile(source, "<jitla meanwhile>", "exec")


class _Writer:
    """The text of one block; `scope` holds what it names."""

    def __init__(self, entries: tuple[Entry, ...], roots: tuple[int, ...]) -> None:
        self.entries, self.roots = entries, roots
        self.scope: dict[str, Any] = {}
        self.wanted = sorted({i for r in roots for i in backward_slice(entries, r)})
        self.reads: Counter[int] = Counter(roots)
        for i in self.wanted:
            if entries[i][0] > SCALAR:
                self.reads.update(r for r in split_entry(entries[i])[0] if r >= 0)
        self.left = Counter(self.reads)
        # Entries that are no scalars, as far as known: operators and ufuncs do not make the same of scalars.
        self.arrays: set[int] = set()
        # Of each entry: how it is read, how deep that is, and which variables it reads, once for each time.
        self.texts: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self.lines: list[str] = []

    def source(self) -> str:
        """Return the text of the function `run`."""
        leaf, scalar = 0, sum(e[0] == LEAF for e in self.entries)
        wanted = set(self.wanted)
        for i, entry in enumerate(self.entries):
            if entry[0] == LEAF:
                self.texts[i] = f"L[{leaf}]", 0, ()
                leaf += 1
                if METAS[LAYOUTS[entry[1]].meta].shape:
                    self.arrays.add(i)
            elif entry[0] == SCALAR:
                self.texts[i] = f"L[{scalar}]", 0, ()
                scalar += 1
            else:
                refs = split_entry(entry)[0]
                if i in wanted:
                    self._operation(i, scalar)
                scalar += sum(r < 0 for r in refs)
        results = ", ".join(self.texts[r][0] for r in self.roots)
        body = "".join(f"    {line}\n" for line in (*self.lines, f"return [{results}]"))
        return f"def run(L):\n{body}"

    def _operation(self, i: int, scalar: int) -> None:
        """Write down entry `i`, whose scalars begin at slot `scalar`."""
        refs, attrs = split_entry(self.entries[i])
        args: list[str] = []
        depth = 0
        used: tuple[int, ...] = ()
        for r in refs:
            if r < 0:
                args.append(f"L[{scalar}]")
                scalar += 1
                continue
            text, deep, uses = self.texts[r]
            args.append(text)
            depth = max(depth, deep)
            used += uses
        text = self._call(i, OPS[self.entries[i][0]], args, dict(attrs))
        if self.reads[i] == 1 and i not in self.roots and depth < DEEP:
            self.texts[i] = f"({text})", depth + 1, used
            return
        self.lines.append(f"v{i} = {text}")
        self.left.subtract(used)
        done = [f"v{u}" for u in dict.fromkeys(used) if not self.left[u]]
        if done:
            self.lines.append(f"del {', '.join(done)}")
        self.texts[i] = f"v{i}", 0, (i,)

    def _call(self, i: int, name: str, args: list[str], attrs: dict[str, Any]) -> str:
        """Return the expression of operator `name`."""
        op = lookup(name)
        found = op.numpy[0] if op.numpy else None
        cells = name == "cast" or isinstance(found, np.ufunc) and found.signature is None
        if cells and any(r in self.arrays for r in split_entry(self.entries[i])[0]):
            self.arrays.add(i)
        if not attrs and i in self.arrays:
            if found in _INFIX and len(args) == 2:
                return f"{args[0]} {_INFIX[found]} {args[1]}"
            if found in _PREFIX and len(args) == 1:
                return f"{_PREFIX[found]}{args[0]}"
        given = ""
        if attrs:
            self.scope[f"k{i}"] = attrs
            given = f", **k{i}"
        if name in METHODS:
            rest = ", ".join(args[1:])
            return f"{args[0]}.{name}({(rest + given).removeprefix(', ')})"
        if "within" in attrs:
            self.scope[f"f{i}"] = cast_as_ufunc
        elif name == "cast":
            return f"{args[0]}.astype({(', '.join(args[1:]) + given).removeprefix(', ')})"
        elif cells and i not in self.arrays:
            self.scope[f"f{i}"] = _of_scalars(op)
        else:
            self.scope[f"f{i}"] = found if isinstance(found, np.ufunc) or name == "dot" else op.ref
        return f"f{i}({', '.join(args)}{given})"


def _of_scalars(op: OpSpec) -> Callable[..., Any]:
    """Return what computes `op` where all operands may be scalars."""
    return lambda *operands, **attrs: implementation_of(op, operands)(*operands, **attrs)


# Part of its time that a block's program is thought to save at least: what is foreseen is rough.
LITTLE = 0.05
# Seconds from which on it is looked how many processors a run keeps busy: looking takes microseconds.
LONG = 1e-4


class Request(NamedTuple):
    """What a compiler is asked to make: hops of the values to compute and how they meet memory."""

    roots: tuple[Hop, ...]
    layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
    outs: tuple[int | None, ...]
    aliases: frozenset[tuple[int, int, int]]
    # The user's (file, line) of each root, as far as known: hops may be shared with other functions.
    lines: tuple[tuple[str, int] | None, ...] = ()
    # The same as entries of the tape, and which of them are the roots, if there are such.
    tape: tuple[tuple[Any, ...], tuple[int, ...]] | None = None


class Replay:
    """A block run op by op with NumPy: what is left when no program can be made or one fails."""

    kernels = calls = written = 0
    effects: Any = None
    # Whether there would be a program if one might be made.
    frozen = False

    def __init__(self, request: Request) -> None:
        self.request = request
        self.count = 0
        self._compute = Evaluation(request.roots) if request.tape is None else script(*request.tape)

    @property
    def program(self) -> Any:
        """What counts as the program of this block."""
        return self

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots; they are memory of their own, or the leaf stored into."""
        self.count += 1
        request = self.request
        results: list[Any] = []
        before = start_recording()
        try:
            values = self._compute(leaves)
        finally:
            stop_recording(before)
            flags = take_flags()
        for value in values:
            if isinstance(value, np.ndarray) and is_shared(value, (*results, *leaves)):
                value = value.copy("K")
            results.append(value)
        stored = {slot for slot in request.outs if slot is not None}
        stored |= {b for x, y, _ in request.aliases for a, b in ((x, y), (y, x)) if a in stored}
        saved = {slot: leaves[slot].copy("K") for slot in stored} if flags else {}
        for i, slot in enumerate(request.outs):
            if slot is not None:
                leaves[slot][...] = results[i]
                results[i] = leaves[slot]
        if flags:
            raise FlagsRaised(tuple(results), flags, saved)
        return tuple(results)

    def text(self) -> str:
        """Say what this is."""
        return "== replay\nrun op by op with NumPy"


def is_shared(value: np.ndarray, others: tuple[Any, ...]) -> bool:
    """Say whether an array is one of `others`, or shares memory with one of them.

    What NumPy has just made and is no view does not.
    """
    if value.base is None:
        return any([value is a for a in others])
    return any(np.may_share_memory(value, a) for a in others if isinstance(a, np.ndarray))


class Stopped:
    """What ran before programs were there, or was run by those forgotten, as a program that is counted."""

    kernels = calls = written = 0


MEANWHILE, FORGOTTEN = Stopped(), Stopped()


class Patience:
    """Seconds that calls have taken in this process while programs were missing.

    `making` counts those in which calls waited for programs of blocks that NumPy had run before.
    """

    seconds = making = 0.0


class Alike:
    """Blocks that one program serves, whatever their sizes: seconds that NumPy took for them so far.

    Whether an earlier process has `kept` it (None: not looked yet), whether it was asked for, is there, or
    will never be.
    """

    __slots__ = ("kept", "spent", "asked", "there", "given_up")

    def __init__(self, spent: float = 0.0) -> None:
        self.kept: bool | None = None
        self.spent = spent
        self.asked = self.there = self.given_up = False


class Standby(Replay):
    """A block that NumPy runs until its program is there: `made`, which is asked for when that pays.

    ``job.ask(standby, again)`` asks for it, once it would have saved `cost` seconds if a run took `least`
    of them, ``job.before(standby)`` before the next run. ``job.saw(seconds, worked)`` is told what a run
    took, and all processors for it, unless it is short. What others `alike` took counts.
    """

    def __init__(
        self, request: Request, cost: float, least: float, job: Any, alike: Alike | None = None,
    ) -> None:
        super().__init__(request)
        self._cost, self.least = cost, least
        self.quickest = inf  # seconds of a run
        self.made: Any = None
        self.alike = alike or Alike()
        self._job = job
        self.spent = 0.0  # seconds, until the program was there

    @property
    def asked(self) -> bool:
        """Whether somebody makes the program, or is about to."""
        return self.alike.asked

    @property
    def program(self) -> Any:
        """The program, once it is there."""
        return self if self.made is None else self.made.program

    @property
    def due(self) -> float:
        """Seconds after which the program is asked for."""
        return self._cost / max(1.0 - self.least / self.quickest, LITTLE)

    @property
    def pace(self) -> float:
        """Seconds that an operation takes; without end if none was done yet."""
        return self.quickest / max(len(self.request.tape[0] if self.request.tape else self.request.roots), 1)

    def run(self, leaves: list[Any]) -> tuple[Any, ...]:
        """Return the values of the roots."""
        if self.made is None and self._is_due():
            self._job.before(self)
        if self.made is not None:
            values: tuple[Any, ...] = self.made.run(leaves)
            return values
        long = self.quickest > LONG
        worked = process_time() if long else 0.0
        start = perf_counter()
        try:
            return super().run(leaves)
        finally:
            taken = perf_counter() - start
            if long:
                self._job.saw(taken, process_time() - worked)
            self.quickest = min(self.quickest, taken)
            self.spent += taken
            self.alike.spent += taken
            Patience.seconds += taken
            if self._is_due():
                self.ask(True)

    def _is_due(self) -> bool:
        return self.alike.spent >= self.due and not self.alike.given_up

    def postpone(self) -> None:
        """Let the program be asked for again when NumPy has taken as long once more as it has by now."""
        self._cost = max(self._cost, 2.0 * self.alike.spent)
        self.alike.asked = False

    def ask(self, again: bool) -> None:
        """Ask for the program; `again`: the block is thought to run once more before it is there."""
        self._job.ask(self, again)


def serve(site: Any, served: Any) -> None:
    """Let blocks that waited for the program that `served` has got be met anew: it only has to be bound."""
    alike = served.alike
    alike.there = True
    site.standbys.discard(served)
    others = _waiting(site, alike)
    if not others:
        return
    found = {key: closed.bound for key, closed in site.exact.items() if closed.bound in others}
    site.retire(list(found))
    for each in others:
        if each in found.values():
            site.standbys.discard(each)
            site.lines.pop(each, None)
            site.past[MEANWHILE] = site.past.get(MEANWHILE, 0) + site.past.pop(each, 0)
        else:  # the rest of a block of which values are kept: it asks for itself
            each.alike = Alike(alike.spent)


def abandon(site: Any, alike: Alike) -> None:
    """Let NumPy run for ever what waits for a program that cannot be made."""
    alike.given_up = True
    with site.lock:
        site.standbys -= _waiting(site, alike)


def _waiting(site: Any, alike: Alike) -> set[Any]:
    return {each for each in list(site.standbys) if each.alike is alike}


# A traced call may take so many times the seconds of a plain one, and so many seconds more.
DEARER, OVER = 1.1, 0.03
# Where that is not known, it is looked every so many seconds whether tracing takes more than NumPy does for
# the blocks, of whose time programs would save less than this part.
LOOK, RETREAT_LITTLE = 0.01, 0.5
# A place may meet so many new blocks in one call. If it meets more, of other sizes each time, it is looked
# whether the call takes longer than NumPy once making them took such a part of all seconds, and so many; then
# from now to now, all seconds having grown by a part.
NEW, PART, LEAST, GROWN = 8, 0.2, 0.005, 0.25
# So many times the seconds of NumPy, which are only foreseen, may this thread have worked meanwhile; it is
# looked for at least so many seconds.
VAIN, WHILE = 1.5, 0.02
_MENDED = frozenset({list, dict, set})
# Whether what is written into `f_locals` reaches the locals by itself (PEP 667).
_WRITES_THROUGH = sys.version_info >= (3, 13)


class Allowance:
    """What tracing may cost in one call: at `until` it is to be looked at."""

    __slots__ = ("traced", "until", "_begun", "_known", "_making", "_new", "_usual", "_much", "_next",
                 "_numpy")

    def __init__(self, plain: float) -> None:
        """Begin a call whose plain function takes `plain` seconds; 0: that is not known."""
        self._begun = perf_counter()
        self.traced = 0.0  # seconds until the call went on plain
        self._known = plain > 0.0
        self._making = Patience.making
        self.until = self._usual = self._begun + (DEARER * plain + OVER if plain else LOOK)
        # When it is to be looked what meeting new blocks costs, as soon as it costs much; when that was done
        # last, and the seconds that NumPy would have taken by then.
        self._much, self._next, self._numpy = False, 0.0, (0.0, 0.0)
        self._new: dict[tuple[int, ...], tuple[int, float]] = {}  # by path: how many, and seconds

    def meet(self, path: tuple[int, ...], seconds: float) -> None:
        """Take note of a new block at `path`, which took so long to make."""
        count, spent = self._new.get(path, (0, 0.0))
        self._new[path] = count + 1, spent + seconds
        if count >= NEW and spent + seconds > max(LEAST, PART * (perf_counter() - self._begun)):
            self.until, self._much = min(self.until, self._next), True

    def ends(self, site: Any) -> bool:
        """Say at `until` whether the call goes on plain; what it waited for programs does not count."""
        waited, self._making = Patience.making - self._making, Patience.making
        if waited > 0.0:
            self._begun, self._usual = self._begun + waited, self._usual + waited
            self.until, self._much, self._next = self._usual, False, 0.0
            return False
        now = perf_counter()
        over = self._much and now >= self._next and self._meets_in_vain(site, now)
        if not over and now >= self._usual:
            over = self._known or self._costs(site, now)
        if over:
            self.traced = now - self._begun
        return over

    def _meets_in_vain(self, site: Any, now: float) -> bool:
        """Say whether tracing took longer than NumPy is foreseen to, since this was asked last."""
        first, (before, numpy) = not self._next, self._numpy
        self._numpy = worked, by_numpy = thread_time(), site.by_numpy()
        self.until, self._much, self._next = self._usual, False, now + max(WHILE, GROWN * (now - self._begun))
        return not first and worked - before > VAIN * (by_numpy - numpy)

    def _costs(self, site: Any, now: float) -> bool:
        """Say whether tracing takes more than it may give, by what was met so far."""
        self.until = self._usual = now + LOOK
        waiting = list(site.standbys)
        if not waiting or any(bound not in site.standbys for bound in site.bounds()):
            return False  # programs are there: they may make up for what was spent
        numpy = sum([each.spent for each in waiting])
        others = sum([record.seconds for record in list(site.fallbacks.values())])
        saves = sum([max(each.quickest - each.least, 0.0) * each.count for each in waiting if each.count])
        undisturbed = sum([each.quickest * each.count for each in waiting if each.count])
        return now - self._begun > DEARER * (numpy + others) + LOOK and saves < RETREAT_LITTLE * undisturbed


def put_back(session: Any, frames: list[FrameType]) -> None:
    """Put ndarrays and scalars where locals of `frames` are proxies of `session` in memory."""
    for frame in frames:
        names = frame.f_locals
        for held in list(names.values()):
            if type(held) in _MENDED:
                session.plain(held)
        values = {
            name: v._v for name, v in names.items()
            if type(v) in LAZY and v._s is session and v._n < 0 and v._v is not None}
        if values:
            _write_locals(frame, names, values)
        elif not _WRITES_THROUGH:
            names.clear()


def settle_locals(session: Any, frame: FrameType, seen: frozenset[int]) -> None:
    """Put what proxies stand for where the local variables of a suspended `frame` hold some."""
    names = frame.f_locals
    values = {}
    for name, held in list(names.items()):
        made = session.plain(held, seen)
        if made is not held:
            values[name] = made
    if values:
        _write_locals(frame, names, values)
    elif not _WRITES_THROUGH:
        names.clear()


def _write_locals(frame: FrameType, names: Any, values: dict[str, Any]) -> None:
    """Assign `values` to local variables of `frame`, whose `f_locals` is `names`."""
    if _WRITES_THROUGH:
        names.update(values)
        return
    # It is a copy, of which all that is there is written back: only what is another shall be. Nor may it
    # keep arrays longer than the user does.
    names.clear()
    names.update(values)
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    names.clear()
