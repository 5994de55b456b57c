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
from jitla.tracing.frames import Places, UserLine, call_at, user_place
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


class _DeferrableState:
    """The state of `np.errstate` and the warning filters that was last found to raise no exceptions.

    Its parts are kept alive, so that their identities stay unique.
    """

    __slots__ = ("state", "filters", "count", "first")

    def __init__(self) -> None:
        self.state: Any = None
        self.filters: Any = None
        self.count = 0
        self.first: Any = None


_DEFERRABLE = _DeferrableState()


def can_defer_warnings() -> bool:
    """Return whether flags lead to warnings at most, never to exceptions or calls of user code.

    Then values may be computed later than at their line. The answer is valid until code other than the
    tracer's runs.
    """
    filters, known = warnings.filters, _DEFERRABLE
    if error_state() is known.state and filters is known.filters and len(filters) == known.count \
            and (not filters or filters[0] is known.first):
        return True
    return _examine_state()


def _examine_state() -> bool:
    global _DEFERRABLE
    state, filters = error_state(), warnings.filters
    settings = np.geterr()
    if settings["under"] != "ignore" or any(settings[k] not in ("ignore", "warn") for k in _STATES):
        return False
    if "warn" in settings.values() and _filters_raise(filters):
        return False
    deferrable = _DeferrableState()
    deferrable.state, deferrable.filters, deferrable.count = state, filters, len(filters)
    deferrable.first = filters[0] if filters else None
    _DEFERRABLE = deferrable
    return True


def _filters_raise(filters: Any) -> bool:
    """Return whether the filters turn some RuntimeWarning into an exception."""
    for action, message, category, module, line in filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if message is None and module is None and line == 0:
                return False
    return str(warnings.defaultaction) == "error"  # type: ignore[attr-defined]


# An error state, kept alive so that its identity stays unique, and the flags that it does not ignore.
_reported: tuple[Any, int] = (None, 0)


def reported_flags(flags: int) -> int:
    """Return those of `flags` that NumPy does not ignore in the current error state."""
    global _reported
    state, find_dead_casts = _reported
    if error_state() is not state:
        state, settings = error_state(), np.geterr()
        find_dead_casts = sum(bit for kind, bit in _STATES.items() if settings[kind] != "ignore")
        _reported = state, find_dead_casts
    return flags & find_dead_casts


def warning_texts(flags: int, name: str) -> list[str]:
    """Return the texts of NumPy's warnings of `flags` in the operation `name`, in NumPy's order."""
    return [f"{text} encountered in {name}" for bit, text in _TEXTS.items() if flags & bit]


class _Unhashable(str):
    """A text without a hash: a warning of it raises `TypeError` before it is shown or counted."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


def is_shown(text: str, place: UserLine) -> bool:
    """Return whether a RuntimeWarning of `text` at `place` would be shown or recorded now."""
    action = _filter_action(text, place)
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


def _filter_action(text: str, place: UserLine) -> str:
    module = str(place.names.get("__name__") or "<string>")
    for action, message, category, pattern, line in warnings.filters:
        if (issubclass(RuntimeWarning, category) and line in (0, place.line)
                and (message is None or message.match(text))
                and (pattern is None or pattern.match(module))):
            return str(action)
    return str(warnings.defaultaction)  # type: ignore[attr-defined]


def warn(text: str, place: UserLine) -> None:
    """Issue a RuntimeWarning as NumPy does from code at `place`."""
    registry = place.names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(text, RuntimeWarning, place.file, place.line,
                           place.names.get("__name__") or "<string>", registry)


# Operations where an infinite result of finite operands means overflow, or division by zero.
_OVERFLOW_OPS = frozenset({
    "add", "subtract", "multiply", "square", "exp", "exp2", "expm1", "sinh", "cosh", "cast"})
_DIVISION_OPS = frozenset({"log", "log2", "log10", "log1p"})
# Operations where it means either: division by zero if the operand with this index is zero.
_OVERFLOW_OR_DIVISION_OPS = {"divide": 1, "reciprocal": 0, "power": 0}
_DISTINGUISHED_OPS = _OVERFLOW_OPS | _DIVISION_OPS | _OVERFLOW_OR_DIVISION_OPS.keys() | {"sqrt"}


class FlagTest(NamedTuple):
    """A computed value that is true if entry `entry` raised `flags`: all if `exact`, else some of them."""

    entry: int
    flags: int
    exact: bool
    condition: Hop


def flag_tests_of(entry: int, hop: Hop, flags: int) -> list[FlagTest] | None:
    """Return tests for those `flags` that computing `hop` may have raised; None: its value does not tell."""
    if hop.meta.dtype.kind in "iu" and hop.op.name != "cast":
        return [FlagTest(entry, flags, False, _any(_invalid_divisions(hop)))]
    if hop.op.name in ("logaddexp", "logaddexp2"):
        return None  # NumPy's loops compare NaNs in a way that raises flags
    if hop.meta.dtype.kind != "f" or any(i.meta.dtype.kind != "f" for i in hop.inputs):
        return None
    if hop.op.kind is not Kind.CELL:
        return [FlagTest(entry, flags, False, _test_reduction(hop))]
    if hop.op.name == "power" and _flags_infinities(hop.meta.dtype):
        return None
    nan, inf = apply("isnan", hop), apply("isinf", hop)
    for operand in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", apply("isnan", operand)))
        inf = apply("logical_and", inf, apply("isfinite", operand))
    name = hop.op.name
    if name not in _DISTINGUISHED_OPS or not hop.meta.shape:
        return [FlagTest(entry, flags, False, _any(apply("logical_or", nan, inf)))]
    masks = {INVALID: nan}
    if name in _OVERFLOW_OPS:
        masks[OVERFLOW] = inf
    elif name in _DIVISION_OPS:
        masks[DIVIDE] = inf
    elif name in _OVERFLOW_OR_DIVISION_OPS:
        divisor = apply("logical_not", hop.inputs[_OVERFLOW_OR_DIVISION_OPS[name]])
        masks[DIVIDE] = apply("logical_and", inf, divisor)
        masks[OVERFLOW] = apply("logical_and", inf, apply("logical_not", divisor))
    return [FlagTest(entry, bit, True, _any(at)) for bit, at in masks.items() if bit & flags]


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


def _test_reduction(hop: Hop) -> Hop:
    """Return a test whether the result of a non-cell operation has NaN or an infinity that no operand has."""
    nan, inf = _any(apply("isnan", hop)), _any(apply("isinf", hop))
    for operand in hop.inputs:
        nan = apply("logical_and", nan, apply("logical_not", _any(apply("isnan", operand))))
        inf = apply("logical_or", inf, _any(apply("isinf", operand)))
    return apply("logical_or", nan, inf)


def _invalid_divisions(hop: Hop) -> Hop:
    """Return a mask of elements where integers are divided by zero, or the minimum by -1."""
    divisor, dtype = hop.inputs[-1], hop.meta.dtype
    invalid = apply("logical_not", divisor)
    if hop.op.name != "floor_divide" or dtype.kind == "u":
        return invalid
    minus, least = const(-1, dtype), const(np.iinfo(dtype).min, dtype)
    overflow = apply("logical_and", apply("equal", divisor, minus), apply("equal", hop, least))
    return apply("logical_or", invalid, overflow)


def _any(hop: Hop) -> Hop:
    axes = tuple(range(len(hop.meta.shape)))
    return apply("any", hop, axis=axes, keepdims=False) if axes else hop


_CAST = "overflow encountered in cast"
_CAST_OP = OP_ID["cast"]

# Replays of a block before a program with flag tests is compiled.
MIN_REPLAYS = 2
# Nanoseconds in which NumPy replays an entry: per call and per element.
_CALL_NS, _ELEMENT_NS = 5e3, 1.0
# Flag tests of a block; blocks that need more are always replayed.
MAX_FLAG_TESTS = 64


class EntryHistory(NamedTuple):
    """History of an entry from an earlier tape: its source position, and whether its warnings were issued."""

    place: UserLine | None
    has_warned: bool


class CastOwner(NamedTuple):
    """The operation that a cast is part of: its name, and the index of its operand's entry."""

    name: str
    operand: int


class WarningReporter:
    """Issues the warnings of the runs of one bound program; knows the source positions of its entries.

    Replays of blocks take `min_replay_ns` nanoseconds at least before a program with flag tests is compiled.
    """

    def __init__(self, places: Places, min_replay_ns: float) -> None:
        self.places, self._min_replay_ns = places, min_replay_ns
        self._computed: set[int] = set()
        self.replays = 0
        self._replay_ns = 0.0
        self._hops: list[Hop] = []
        # Casts that are parts of operations.
        self._cast_owners: dict[int, CastOwner] = {}
        self._flag_masks: dict[int, int] | None = None
        # The flag tests that the program returns after the values of its roots, and the flags they cover.
        self._tests: tuple[FlagTest, ...] = ()
        self._tested_flags = 0
        self._requested_flags = 0

    def report(
        self, block: Block, roots: tuple[int, ...], store: Any, hit: FlagsRaised,
        past: dict[int, EntryHistory], prepare: Callable[[], None],
    ) -> bool:
        """Issue the warnings of a run of `block` that raised `hit`; return whether there may be some.

        `prepare` is called before the first of them, because showing a warning may run user code.
        """
        narrow = hit.flags & SCALAR_NARROWED
        flags = reported_flags(hit.flags | (OVERFLOW if narrow else 0))
        if not flags:
            return False
        if self._flag_masks is None:
            self._flag_masks = self._analyse(block, roots)
        test_values = hit.values[len(roots):]
        if test_values and not narrow and not flags & ~self._tested_flags:
            has_warned = self._report_by_tests(test_values, flags, past, prepare)
            if has_warned is not None:
                return has_warned
        places: dict[int, UserLine] = {}
        for i, mask in self._flag_masks.items():
            if mask & flags and not (i in past and past[i].has_warned):
                place = self._place(i, past)
                if self._would_show(i, mask & flags, place) or narrow and is_shown(_CAST, place):
                    places[i] = place
        if not places:
            return False
        self.replays += 1
        for function in (self._hops[i].op.ref for i in places):
            if isinstance(function, UserFunction):
                function.flagged_kernels += 1
        self._replay_ns += sum(_CALL_NS + _ELEMENT_NS * self._hops[i].meta.size for i in self._computed)
        leaves = _saved_leaves(block, store, hit)
        remaining = flags if hit.exact else 0
        prepare()
        _Replay(places, self._flag_masks, self._hops, self._cast_owners, remaining).run(
            block, leaves, self._computed)
        return True

    def tests_to_compute(self, flags: int) -> tuple[FlagTest, ...]:
        """Return the tests that a program has to compute for `flags`; none while replays are cheap enough."""
        flags = reported_flags(flags)
        replay = self.replays < MIN_REPLAYS or self._replay_ns < self._min_replay_ns
        if replay or not flags & ~self._requested_flags or self._flag_masks is None:
            return ()
        self._requested_flags |= flags
        flag_tests: list[FlagTest] = []
        for i, mask in self._flag_masks.items():
            if mask & self._requested_flags:
                tests = flag_tests_of(i, self._hops[i], mask & self._requested_flags)
                if tests is None or len(flag_tests) > MAX_FLAG_TESTS:
                    return ()
                flag_tests += tests
        return tuple(flag_tests)

    def install_tests(self, tests: tuple[FlagTest, ...]) -> None:
        """Record that the program returns the values of `tests` from now on."""
        self._tests = tests
        self._tested_flags = self._requested_flags

    def _report_by_tests(
        self, values: Sequence[Any], flags: int, past: dict[int, EntryHistory], prepare: Callable[[], None],
    ) -> bool | None:
        """Issue the warnings that flag tests identify; return whether there are any; None: replay."""
        raised_tests = [test for test, value in zip(self._tests, values, strict=True)
                        if value and test.flags & flags
                        and not (test.entry in past and past[test.entry].has_warned)]
        if not all(test.exact for test in raised_tests):
            return None
        if raised_tests:
            prepare()
        raised: dict[int, int] = {}
        for test in raised_tests:
            raised[test.entry] = raised.get(test.entry, 0) | test.flags
        for i, mask in raised.items():
            for text in warning_texts(mask, self._name(i) or ""):
                warn(text, self._place(i, past))
        return bool(raised_tests)

    def _place(self, i: int, past: dict[int, EntryHistory]) -> UserLine:
        return (past[i].place if i in past else self.places.get(i)) or user_place()

    def _analyse(self, block: Block, roots: tuple[int, ...]) -> dict[int, int]:
        """Return the computed entries that can raise flags, each with these flags."""
        self._hops = hops_of(block)
        self._cast_owners = {i: CastOwner(name, split_entry(entry)[0][0])
                             for i, entry in enumerate(block.entries)
                             if entry[0] == _CAST_OP and (name := casting_operation(split_entry(entry)[1]))}
        self._computed = {i for r in roots for i in backward_slice(block.entries, r)}
        masks = {i: possible_flags(self._hops[i])
                 for i in sorted(self._computed) if self._is_operation(block, i)}
        return {i: mask for i, mask in masks.items() if mask}

    def _is_operation(self, block: Block, i: int) -> bool:
        """Return whether entry `i` computes something: a cast to the same dtype does not."""
        entry = block.entries[i]
        operands = () if entry[0] in (LEAF, SCALAR) else split_entry(entry)[0]
        return all(self._hops[r] is not self._hops[i] for r in operands if r >= 0)

    def _would_show(self, i: int, flags: int, place: UserLine) -> bool:
        """Return whether a warning of entry `i` would be shown or recorded."""
        name = self._name(i)
        return name is None or any(is_shown(text, place) for text in warning_texts(flags, name))

    def _name(self, i: int) -> str | None:
        """Return the name of entry `i` in NumPy's warnings; None if it is unknown."""
        return self._cast_owners[i].name if i in self._cast_owners else _name(self._hops[i])


def _name(hop: Hop) -> str | None:
    """Return the name of an operation in NumPy's warnings; None if it is unknown."""
    if hop.op.kind is Kind.CELL and hop.meta.shape != ():
        if isinstance(hop.op.ref, UserFunction):
            return None  # it warns at a line of the library that compiled it
        return "cast" if hop.op.name == "cast" else hop.op.numpy[0].__name__
    return None


def _saved_leaves(block: Block, store: Any, hit: FlagsRaised) -> list[Any]:
    """Return the leaves as they were before the run; `UNAVAILABLE` for those overwritten while read."""
    if store is None:
        return list(block.leaves)
    target = block.leaves[store.slot]
    saved: list[Any] = []
    for k, leaf in enumerate(block.leaves):
        saved_slot = next((s for s in hit.saved if k == s or is_same_view(leaf, block.leaves[s])), None)
        if saved_slot is not None:
            saved.append(hit.saved[saved_slot])
        else:
            saved.append(UNAVAILABLE if np.may_share_memory(leaf, target) else leaf)
    return saved


class _Replay:
    """Replay of a block with NumPy: entries with a position may warn there, the others are silent."""

    def __init__(
        self, places: dict[int, UserLine], flag_masks: dict[int, int], hops: list[Hop],
        cast_owners: dict[int, CastOwner],
        flags: int,
    ) -> None:
        self.places = places
        self.flag_masks = flag_masks
        self.hops = hops
        self.cast_owners = cast_owners
        self.raised: dict[int, int] = {}
        self.flags = flags
        self.flags_seen = 0
        self.lost: list[int] = []

    def run(self, block: Block, leaves: list[Any], entries_to_run: set[int]) -> None:
        """Run the entries in `entries_to_run`; issue the warnings of those whose operands are lost."""
        called = {i: place.called for i, place in self.places.items()}
        evaluate_entries(block.entries, leaves, block.scalars, entries_to_run, called, self._run_entry)
        remaining = self.flags & ~self.flags_seen
        # Operands are lost only to kernels that write where they read: element-wise ones, after reductions.
        cells = [i for i in self.lost if self.hops[i].op.kind is Kind.CELL]
        for i in cells or self.lost:
            mask = self.flag_masks[i] & remaining
            remaining &= ~mask
            if i in self.places:
                name = self.cast_owners[i].name if i in self.cast_owners else _name(self.hops[i])
                for text in warning_texts(mask, name or self.hops[i].op.name):
                    warn(text, self.places[i])

    def _run_entry(self, i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if function is None or any(a is UNAVAILABLE for a in args):
            if i in self.flag_masks:
                self.lost.append(i)
            return UNAVAILABLE
        before = start_recording()
        try:
            value = function(*args, **kwargs)
        finally:
            stop_recording(before)
            raised = take_flags()
        self.flags_seen |= raised
        self.raised[i] = raised
        if i in self.cast_owners:
            raised &= ~self.raised.get(self.cast_owners[i].operand, 0)  # one call warns once
        if raised and i in self.places:
            call_at(self.places[i], function, args, kwargs)
        return value


def replay_last_entry(
    entries: list[Any], leaves: list[np.ndarray], scalars: list[Any], place: UserLine
) -> Any:
    """Return the value of the last entry, computed by NumPy at `place`, with its warnings and errors."""
    last = len(entries) - 1

    def run(i: int, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return call_at(place, function, args, kwargs)

    entries_to_run = set(backward_slice(tuple(entries), last))
    return evaluate_entries(entries, leaves, scalars, entries_to_run, {last: place.called}, run)[last]


def find_dead_casts(block: Block, roots: list[int]) -> list[int]:
    """Return the casts that can warn and whose values are dead: neither roots nor read by these.

    Dead arithmetic is eliminated together with its warnings. Programs use casts for the warning alone, to
    check whether values fit.
    """
    computed = {i for r in roots for i in backward_slice(block.entries, r)}
    dropped = [i for i, e in enumerate(block.entries) if e[0] == _CAST_OP and i not in computed]
    hops = hops_of(block) if dropped else []
    return [i for i in dropped if possible_flags(hops[i])
            and not np.can_cast(hops[i].inputs[0].meta.dtype, hops[i].meta.dtype)]
