"""Floating-point warnings of compiled code: reproduces NumPy's warnings at the user's line from raised flags.

A kernel only reports which flags it raised. `WarningReporter` finds the operations that raised them: it
replays the block with NumPy, or, once that has become expensive, has the program return tests of values
(`FlagTest`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from jitla.hops import (
    DIVIDE,
    INVALID,
    OVERFLOW,
    SCALAR_NARROWED,
    FlagsRaised,
    Hop,
    Kind,
    UserFunction,
    apply,
    const,
    error_state,
    possible_flags,
    start_recording,
    stop_recording,
    take_flags,
)
from jitla.tracing.frames import Place, Places, call_at, user_place
from jitla.tracing.tape import (
    LEAF,
    OP_ID,
    SCALAR,
    UNAVAILABLE,
    Block,
    backward_slice,
    casting_operation,
    evaluate_entries,
    hops_of,
    is_same_view,
    split_entry,
)

_STATES = {"divide": DIVIDE, "over": OVERFLOW, "invalid": INVALID}
_TEXTS = {DIVIDE: "divide by zero", OVERFLOW: "overflow", INVALID: "invalid value"}


class _Calm:
    """The state of `np.errstate` and the warning filters that was last found to raise no exceptions.

    Its parts are kept alive, so that their identities stay unique.
    """

    __slots__ = ("state", "filters", "count", "first")

    def __init__(self) -> None:
        self.state: Any = None
        self.filters: Any = None
        self.count = 0
        self.first: Any = None


_CALM = _Calm()


def calm() -> bool:
    """Return whether flags lead to warnings at most, never to exceptions or calls of user code.

    Then values may be computed later than at their line. The answer is valid until code other than the
    tracer's runs.
    """
    filters, known = warnings.filters, _CALM
    if error_state() is known.state and filters is known.filters and len(filters) == known.count \
            and (not filters or filters[0] is known.first):
        return True
    return _look()


def _look() -> bool:
    global _CALM
    state, filters = error_state(), warnings.filters
    asked = np.geterr()
    if asked["under"] != "ignore" or any(asked[k] not in ("ignore", "warn") for k in _STATES):
        return False
    if "warn" in asked.values() and _raises(filters):
        return False
    found = _Calm()
    found.state, found.filters, found.count = state, filters, len(filters)
    found.first = filters[0] if filters else None
    _CALM = found
    return True


def _raises(filters: Any) -> bool:
    """Return whether the filters turn some RuntimeWarning into an exception."""
    for action, message, category, module, line in filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if message is None and module is None and line == 0:
                return False
    return str(warnings.defaultaction) == "error"  # type: ignore[attr-defined]


# An error state, kept alive so that its identity stays unique, and the flags that it does not ignore.
_heeded: tuple[Any, int] = (None, 0)


def audible(flags: int) -> int:
    """Return those of `flags` that NumPy does not ignore in the current error state."""
    global _heeded
    state, heeded = _heeded
    if error_state() is not state:
        state, asked = error_state(), np.geterr()
        heeded = sum(bit for kind, bit in _STATES.items() if asked[kind] != "ignore")
        _heeded = state, heeded
    return flags & heeded


def texts(flags: int, name: str) -> list[str]:
    """Return the texts of NumPy's warnings of `flags` in the operation `name`, in NumPy's order."""
    return [f"{text} encountered in {name}" for bit, text in _TEXTS.items() if flags & bit]


class _Unhashable(str):
    """A text without a hash: a warning of it raises `TypeError` before it is shown or counted."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


def is_shown(text: str, place: Place) -> bool:
    """Return whether a RuntimeWarning of `text` at `place` would be shown or recorded now."""
    action = _action(text, place)
    if action not in ("default", "module", "once"):
        return action != "ignore"
    registry = place.names.get("__warningregistry__")
    if not registry:
        return True
    try:
        # Python first clears a registry that is older than the filters.
        warnings.warn_explicit(_Unhashable(text), RuntimeWarning, place.file, place.line,
                               place.names.get("__name__") or "<string>", registry)
    except TypeError:
        pass
    # For "once" and "module" Python also enters a key without a line.
    key = (text, RuntimeWarning)
    return not registry.get((*key, place.line)) and (action == "default" or not registry.get(key))


def _action(text: str, place: Place) -> str:
    module = str(place.names.get("__name__") or "<string>")
    for action, message, category, pattern, line in warnings.filters:
        if (issubclass(RuntimeWarning, category) and line in (0, place.line)
                and (message is None or message.match(text))
                and (pattern is None or pattern.match(module))):
            return str(action)
    return str(warnings.defaultaction)  # type: ignore[attr-defined]


def warn(text: str, place: Place) -> None:
    """Issue a RuntimeWarning as NumPy does from code at `place`."""
    registry = place.names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, RuntimeWarning, place.file, place.line,
                           place.names.get("__name__") or "<string>", registry)


# Operations where an infinite result of finite operands means overflow, or division by zero.
_OVERFLOWING = frozenset({
    "add", "subtract", "multiply", "square", "exp", "exp2", "expm1", "sinh", "cosh", "cast"})
_DIVIDING = frozenset({"log", "log2", "log10", "log1p"})
# Operations where it means either: division by zero if the operand with this index is zero.
_EITHER = {"divide": 1, "reciprocal": 0, "power": 0}
_NAMED = _OVERFLOWING | _DIVIDING | _EITHER.keys() | {"sqrt"}


class Sign(NamedTuple):
    """A computed value that is true if entry `entry` raised `flags`: all if `exact`, else some of them."""

    entry: int
    flags: int
    exact: bool
    shown_by: Hop


def signs_of(entry: int, hop: Hop, flags: int) -> list[Sign] | None:
    """Return tests for those `flags` that computing `hop` may have raised; None: its value does not tell."""
    if hop.meta.dtype.kind in "iu" and hop.op.name != "cast":
        return [Sign(entry, flags, False, _any(_bad_division(hop)))]
    if hop.op.name in ("logaddexp", "logaddexp2"):
        return None  # NumPy's loops compare NaNs in a way that raises flags
    if hop.meta.dtype.kind != "f" or any(i.meta.dtype.kind != "f" for i in hop.inputs):
        return None
    if hop.op.kind is not Kind.CELL:
        return [Sign(entry, flags, False, _of_whole(hop))]
    if hop.op.name == "power" and _flags_infinities(hop.meta.dtype):
        return None
    nan, inf = apply("isnan", hop), apply("isinf", hop)
    for given in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", apply("isnan", given)))
        inf = apply("logical_and", inf, apply("isfinite", given))
    name = hop.op.name
    if name not in _NAMED or not hop.meta.shape:
        return [Sign(entry, flags, False, _any(apply("logical_or", nan, inf)))]
    shown = {INVALID: nan}
    if name in _OVERFLOWING:
        shown[OVERFLOW] = inf
    elif name in _DIVIDING:
        shown[DIVIDE] = inf
    elif name in _EITHER:
        divisor = apply("logical_not", hop.inputs[_EITHER[name]])
        shown[DIVIDE] = apply("logical_and", inf, divisor)
        shown[OVERFLOW] = apply("logical_and", inf, apply("logical_not", divisor))
    return [Sign(entry, bit, True, _any(at)) for bit, at in shown.items() if bit & flags]


@cache
def _flags_infinities(dtype: np.dtype) -> bool:
    """Return whether NumPy's powers of infinite exponents raise flags: its loops for some processors do."""
    with np.errstate(divide="raise", over="raise"):
        try:
            for base in (0.0, np.finfo(dtype).max):
                np.power(np.full(2, base, dtype), np.full(2, -np.inf if not base else np.inf, dtype))
        except FloatingPointError:
            return True
    return False


def _of_whole(hop: Hop) -> Hop:
    """Return a test whether the result of a non-cell operation has NaN or an infinity that no operand has."""
    nan, inf = _any(apply("isnan", hop)), _any(apply("isinf", hop))
    for given in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", _any(apply("isnan", given))))
        inf = apply("logical_or", inf, _any(apply("isinf", given)))
    return apply("logical_or", nan, inf)


def _bad_division(hop: Hop) -> Hop:
    """Return a mask of elements where integers are divided by zero, or the minimum by -1."""
    divisor, dtype = hop.inputs[-1], hop.meta.dtype
    bad = apply("logical_not", divisor)
    if hop.op.name != "floor_divide" or dtype.kind == "u":
        return bad
    minus, least = const(-1, dtype), const(np.iinfo(dtype).min, dtype)
    beyond = apply("logical_and", apply("equal", divisor, minus), apply("equal", hop, least))
    return apply("logical_or", bad, beyond)


def _any(hop: Hop) -> Hop:
    axes = tuple(range(len(hop.meta.shape)))
    return apply("any", hop, axis=axes, keepdims=False) if axes else hop


_CAST = "overflow encountered in cast"
_CAST_OP = OP_ID["cast"]

# Replays of a block, and nanoseconds spent in them, before a program with flag tests is compiled.
PATIENCE = 2
WORTH = 3e7
# Nanoseconds in which NumPy replays an entry: per call and per element.
_CALL, _ELEMENT = 5e3, 1.0
# Flag tests of a block; blocks that need more are always replayed.
MOST_SIGNS = 64


class Past(NamedTuple):
    """History of an entry from an earlier tape: its source position, and whether its warnings were issued."""

    place: Place | None
    told: bool


class Part(NamedTuple):
    """The operation that a cast is part of: its name, and the index of its operand's entry."""

    name: str
    of: int


class Effects:
    """Issues the warnings of the runs of one bound program; knows the source positions of its entries."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._wanted: set[int] = set()
        self.hits = 0
        self._spent = 0.0
        self._hops: list[Hop] = []
        # Casts that are parts of operations.
        self._parts: dict[int, Part] = {}
        self._capable: dict[int, int] | None = None
        # The flag tests that the program returns after the values of its roots, and the flags they cover.
        self._signs: tuple[Sign, ...] = ()
        self._observed = 0
        self._asked = 0

    def tell(
        self, block: Block, roots: tuple[int, ...], store: Any, hit: FlagsRaised, past: dict[int, Past],
        prepare: Callable[[], None],
    ) -> bool:
        """Issue the warnings of a run of `block` that raised `hit`; return whether there may be some.

        `prepare` is called before the first of them, because showing a warning may run user code.
        """
        narrow = hit.flags & SCALAR_NARROWED
        flags = audible(hit.flags | (OVERFLOW if narrow else 0))
        if not flags:
            return False
        if self._capable is None:
            self._capable = self._look_at(block, roots)
        seen = hit.values[len(roots):]
        if seen and not narrow and not flags & ~self._observed:
            told = self._told(seen, flags, past, prepare)
            if told is not None:
                return told
        places: dict[int, Place] = {}
        for i, mask in self._capable.items():
            if mask & flags and not (i in past and past[i].told):
                place = self._place(i, past)
                if self._is_open(i, mask & flags, place) or narrow and is_shown(_CAST, place):
                    places[i] = place
        if not places:
            return False
        self.hits += 1
        for made in (self._hops[i].op.ref for i in places):
            if isinstance(made, UserFunction):
                made.flagged_kernels += 1
        self._spent += sum(_CALL + _ELEMENT * self._hops[i].meta.size for i in self._wanted)
        leaves = _as_before(block, store, hit)
        left = flags if hit.exact else 0
        prepare()
        _Performance(places, self._capable, self._hops, self._parts, left).play(block, leaves, self._wanted)
        return True

    def to_observe(self, flags: int) -> tuple[Sign, ...]:
        """Return the tests that a program has to compute for `flags`; none while replays are cheap enough."""
        flags = audible(flags)
        patient = self.hits < PATIENCE or self._spent < WORTH
        if patient or not flags & ~self._asked or self._capable is None:
            return ()
        self._asked |= flags
        found: list[Sign] = []
        for i, mask in self._capable.items():
            if mask & self._asked:
                signs = signs_of(i, self._hops[i], mask & self._asked)
                if signs is None or len(found) > MOST_SIGNS:
                    return ()
                found += signs
        return tuple(found)

    def observe(self, signs: tuple[Sign, ...]) -> None:
        """Record that the program returns the values of `signs` from now on."""
        self._signs = signs
        self._observed = self._asked

    def _told(
        self, seen: Sequence[Any], flags: int, past: dict[int, Past], prepare: Callable[[], None],
    ) -> bool | None:
        """Issue the warnings that flag tests identify; return whether there are any; None: replay."""
        told = [sign for sign, value in zip(self._signs, seen, strict=True)
                if value and sign.flags & flags and not (sign.entry in past and past[sign.entry].told)]
        if not all(sign.exact for sign in told):
            return None
        if told:
            prepare()
        raised: dict[int, int] = {}
        for sign in told:
            raised[sign.entry] = raised.get(sign.entry, 0) | sign.flags
        for i, mask in raised.items():
            for text in texts(mask, self._name(i) or ""):
                warn(text, self._place(i, past))
        return bool(told)

    def _place(self, i: int, past: dict[int, Past]) -> Place:
        return (past[i].place if i in past else self.places.get(i)) or user_place()

    def _look_at(self, block: Block, roots: tuple[int, ...]) -> dict[int, int]:
        """Return the computed entries that can raise flags, each with these flags."""
        self._hops = hops_of(block)
        self._parts = {i: Part(name, split_entry(entry)[0][0]) for i, entry in enumerate(block.entries)
                       if entry[0] == _CAST_OP and (name := casting_operation(split_entry(entry)[1]))}
        self._wanted = {i for r in roots for i in backward_slice(block.entries, r)}
        able = {i: possible_flags(self._hops[i]) for i in sorted(self._wanted) if self._does(block, i)}
        return {i: mask for i, mask in able.items() if mask}

    def _does(self, block: Block, i: int) -> bool:
        """Return whether entry `i` computes something: a cast to the same dtype does not."""
        entry = block.entries[i]
        mine = () if entry[0] in (LEAF, SCALAR) else split_entry(entry)[0]
        return all(self._hops[r] is not self._hops[i] for r in mine if r >= 0)

    def _is_open(self, i: int, flags: int, place: Place) -> bool:
        """Return whether a warning of entry `i` would be shown or recorded."""
        name = self._name(i)
        return name is None or any(is_shown(text, place) for text in texts(flags, name))

    def _name(self, i: int) -> str | None:
        """Return the name of entry `i` in NumPy's warnings; None if it is unknown."""
        return self._parts[i].name if i in self._parts else _name(self._hops[i])


def _name(hop: Hop) -> str | None:
    """Return the name of an operation in NumPy's warnings; None if it is unknown."""
    if hop.op.kind is Kind.CELL and hop.meta.shape != ():
        if isinstance(hop.op.ref, UserFunction):
            return None  # it warns at a line of the library that compiled it
        return "cast" if hop.op.name == "cast" else hop.op.numpy[0].__name__
    return None


def _as_before(block: Block, store: Any, hit: FlagsRaised) -> list[Any]:
    """Return the leaves as they were before the run; `UNAVAILABLE` for those overwritten while read."""
    if store is None:
        return list(block.leaves)
    target = block.leaves[store.slot]
    found: list[Any] = []
    for k, leaf in enumerate(block.leaves):
        same = next((s for s in hit.saved if k == s or is_same_view(leaf, block.leaves[s])), None)
        if same is not None:
            found.append(hit.saved[same])
        else:
            found.append(UNAVAILABLE if np.may_share_memory(leaf, target) else leaf)
    return found


class _Performance:
    """Replay of a block with NumPy: entries with a position may warn there, the others are silent."""

    def __init__(
        self, places: dict[int, Place], capable: dict[int, int], hops: list[Hop], parts: dict[int, Part],
        flags: int,
    ) -> None:
        self.places = places
        self.capable = capable
        self.hops = hops
        self.parts = parts
        self.raised: dict[int, int] = {}
        self.flags = flags
        self.heard = 0
        self.unknown: list[int] = []

    def play(self, block: Block, leaves: list[Any], wanted: set[int]) -> None:
        """Compute the entries in `wanted`, and issue the warnings of those whose operands are lost."""
        called = {i: place.called for i, place in self.places.items()}
        evaluate_entries(block.entries, leaves, block.scalars, wanted, called, self._run)
        left = self.flags & ~self.heard
        # Operands are lost only to kernels that write where they read: element-wise ones, after reductions.
        cells = [i for i in self.unknown if self.hops[i].op.kind is Kind.CELL]
        for i in cells or self.unknown:
            mine = self.capable[i] & left
            left &= ~mine
            if i in self.places:
                name = self.parts[i].name if i in self.parts else _name(self.hops[i])
                for text in texts(mine, name or self.hops[i].op.name):
                    warn(text, self.places[i])

    def _run(self, i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if function is None or any(a is UNAVAILABLE for a in args):
            if i in self.capable:
                self.unknown.append(i)
            return UNAVAILABLE
        before = start_recording()
        try:
            value = function(*args, **kwargs)
        finally:
            stop_recording(before)
            raised = take_flags()
        self.heard |= raised
        self.raised[i] = raised
        if i in self.parts:
            raised &= ~self.raised.get(self.parts[i].of, 0)  # one call warns once
        if raised and i in self.places:
            call_at(self.places[i], function, args, kwargs)
        return value


def performed(
    entries: list[Any], leaves: list[np.ndarray], scalars: list[Any], place: Place
) -> Any:
    """Return the value of the last entry, computed by NumPy at `place`, with its warnings and errors."""
    last = len(entries) - 1

    def run(i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return call_at(place, function, args, kwargs)

    wanted = set(backward_slice(tuple(entries), last))
    return evaluate_entries(entries, leaves, scalars, wanted, {last: place.called}, run)[last]


def heeded(block: Block, roots: list[int]) -> list[int]:
    """Return the casts that can warn and whose values are dead: neither roots nor read by these.

    Dead arithmetic is eliminated together with its warnings. Programs use casts for the warning alone, to
    check whether values fit.
    """
    computed = {i for r in roots for i in backward_slice(block.entries, r)}
    dropped = [i for i, e in enumerate(block.entries) if e[0] == _CAST_OP and i not in computed]
    hops = hops_of(block) if dropped else []
    return [i for i in dropped if possible_flags(hops[i])
            and not np.can_cast(hops[i].inputs[0].meta.dtype, hops[i].meta.dtype)]
