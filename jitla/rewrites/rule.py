"""Patterns over hops, rewrite rules, and sets of rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from jitla.classes import cached_property, dataclass
from jitla.errors import InternalError
from jitla.hops import Hop, const, const_value, lookup, make

Bound = dict[str, Any]
Shared = Callable[[Hop], bool]


@dataclass(frozen=True, slots=True)
class Var:
    """Stands for any hop; the same variable twice means the very same node."""

    name: str


@dataclass(frozen=True, slots=True)
class AttrVar:
    """Stands for the value of an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Num:
    """A 0-d constant of exactly this value (-0.0 is not 0.0); built with the dtype of `like`."""

    value: Any
    like: Var | None = None


@dataclass(frozen=True, slots=True)
class AnyConst:
    """Stands for any 0-d constant; bound as a hop."""

    name: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Stands for all further operands of an operator that takes any number; bound as a tuple of hops."""

    name: str


@dataclass(frozen=True, slots=True)
class App:
    """An operator applied to patterns; `once` asks that the node has no other user."""

    op: str
    args: tuple[Pattern, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    once: bool = False


Pattern = Var | Num | AnyConst | Rest | App


class _Constructors:
    """One constructor per entry of the op table: ``ops.add(X, Y)`` is the pattern of that op."""

    def __getattr__(self, name: str) -> Callable[..., App]:
        try:
            arity = lookup(name).arity
        except KeyError:
            raise InternalError(f"rewrites: {name!r} is not in the op table") from None

        def construct(*args: Pattern, **attrs: Any) -> App:
            if arity is not None and len(args) != arity:
                raise InternalError(f"rewrites: {name} takes {arity} operands, not {len(args)}")
            return App(name, args, tuple(sorted(attrs.items())))

        return construct


ops = _Constructors()


def once(pattern: App) -> App:
    """Return `pattern` restricted to nodes that nothing else uses, so that it goes away."""
    return replace(pattern, once=True)


def variables(pattern: Pattern) -> set[str]:
    """Return the names that `pattern` binds or needs."""
    match pattern:
        case Var(name) | AnyConst(name) | Rest(name):
            return {name}
        case Num(_, like):
            return {like.name} if like else set()
        case App(_, args, attrs):
            below = {v.name for _, v in attrs if isinstance(v, AttrVar)}
            return below.union(*map(variables, args))


def numbers(pattern: Pattern) -> Iterator[tuple[str, frozenset[float]]]:
    """Yield each operator in `pattern` that has a number as operand, with the number; nothing for any."""
    if isinstance(pattern, App):
        for arg in pattern.args:
            if isinstance(arg, Num):
                yield pattern.op, frozenset({arg.value})
            elif isinstance(arg, AnyConst):
                yield pattern.op, frozenset()
            yield from numbers(arg)


def operand_ops(app: App) -> frozenset[str]:
    """Return the ops that the operands of a match have."""
    apps = {a.op for a in app.args if isinstance(a, App)}
    return frozenset(apps | {"const" for a in app.args if isinstance(a, (Num, AnyConst))})


def matches(pattern: Pattern, hop: Hop, bound: Bound, shared: Shared) -> Iterator[Bound]:
    """Yield every way in which `hop` fits `pattern`, extending `bound`."""
    match pattern:
        case Var(name):
            if bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case Num(value):
            if hop.op.name == "const" and same_number(const_value(hop), value):
                yield bound
        case AnyConst(name):
            if hop.op.name == "const" and bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case App():
            if hop.op.name == pattern.op and not (pattern.once and shared(hop)):
                yield from _match_parts(pattern, hop, bound, shared)


def _match_parts(app: App, hop: Hop, bound: Bound, shared: Shared) -> Iterator[Bound]:
    """Match attributes, then operands in each order the op allows."""
    open_ended = bool(app.args) and isinstance(app.args[-1], Rest)
    if len(app.args) != len(hop.inputs) and not (open_ended and len(app.args) <= len(hop.inputs) + 1):
        return
    start = _match_attrs(app, hop, bound)
    if start is None:
        return
    yield from _match_all(app.args, hop.inputs, start, shared)
    if hop.op.commutes_in(hop.meta.dtype) and len(hop.inputs) == 2 and hop.inputs[0] is not hop.inputs[1]:
        yield from _match_all(app.args, hop.inputs[::-1], start, shared)


def _match_attrs(app: App, hop: Hop, bound: Bound) -> Bound | None:
    found = dict(bound)
    given = dict(hop.attrs)
    for name, want in app.attrs:
        if name not in given:
            return None
        value = given[name]
        if isinstance(want, AttrVar):
            want = found.setdefault(want.name, value)
        if type(want) is not type(value) or want != value:
            return None
    return found


def _match_all(
    patterns: tuple[Pattern, ...], hops: tuple[Hop, ...], bound: Bound, shared: Shared,
) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    if isinstance(patterns[0], Rest):
        yield {**bound, patterns[0].name: hops}
        return
    for first in matches(patterns[0], hops[0], bound, shared):
        yield from _match_all(patterns[1:], hops[1:], first, shared)


def build(pattern: Pattern, bound: Mapping[str, Any], line: Any = None) -> Hop:
    """Return the hop that `pattern` stands for under `bound`; new nodes get the user's `line`."""
    match pattern:
        case Var(name) | AnyConst(name):
            hop: Hop = bound[name]
            return hop
        case Num(value, like):
            if like is None:
                raise InternalError(f"rewrites: to build {value!r} needs a dtype (like=)")
            return const(value, bound[like.name].meta.dtype)
        case Rest(name):
            raise InternalError(f"rewrites: {name!r} stands for several operands, which build() has to place")
        case App(op, args, attrs):
            given = {n: bound[v.name] if isinstance(v, AttrVar) else v for n, v in attrs}
            return make(op, [build(a, bound, line) for a in args], line, **given)


def same_number(found: Any, wanted: Any) -> bool:
    """Say whether the NumPy scalar `found` has the value `wanted`, sign of zero included."""
    if isinstance(found, np.bool_) != isinstance(wanted, bool) or found.dtype.kind not in "biuf":
        return False
    if found != wanted:
        return False
    negative = math.copysign(1.0, wanted) < 0
    return bool(found) or found.dtype.kind != "f" or bool(np.signbit(found)) == negative


Exactness = Literal["exact", "rounding", "relaxed"]
Hook = Callable[["Rule", Hop, Hop], bool]

HALVED = frozenset({0.5, 2.0})  # classes of values that rules for any constant need to tell apart

LEVELS: dict[str, tuple[Exactness, ...]] = {
    "strict": ("exact",),
    "numpy": ("exact", "rounding"),
    "relaxed": ("exact", "rounding", "relaxed"),
}


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite from `left` to `right`, or to what `build(root, bound)` returns, if `when` holds.

    `exactness`: "exact" keeps every bit (payload and sign of NaN aside), "rounding" is equal over
    the reals with no worse error bound, "relaxed" is equal over the reals. `doc` says why it
    helps and, below "exact", what it may change. `across` marks a rewrite of the whole DAG. `jointly`
    yields, of a whole DAG and the lengths in use, what several nodes become together: only searches ask.
    """

    name: str
    left: App
    right: Pattern | None = None
    when: Callable[[Hop, Bound], bool] | None = None
    build: Callable[[Hop, Bound], Hop] | None = None
    exactness: Exactness = "exact"
    doc: str = ""
    across: Callable[[tuple[Hop, ...], Hook], tuple[Hop, ...]] | None = None
    jointly: Callable[[tuple[Hop, ...], frozenset[int]], Iterator[Mapping[Hop, Hop]]] | None = None

    def __post_init__(self) -> None:
        if not self.doc:
            raise InternalError(f"rule {self.name}: it has no doc line")
        if self.exactness not in LEVELS["relaxed"]:
            raise InternalError(f"rule {self.name}: there is no exactness {self.exactness!r}")
        if sum(x is not None for x in (self.right, self.build, self.across, self.jointly)) != 1:
            raise InternalError(f"rule {self.name}: exactly one of right, build, across, jointly is needed")
        if self.when is not None and self.when.__name__ == "<lambda>":
            raise InternalError(f"rule {self.name}: its condition has no name")
        try:
            lookup(self.left.op)
        except KeyError:
            raise InternalError(f"rule {self.name}: there is no op {self.left.op!r}") from None
        loose = variables(self.right) - variables(self.left) if self.right is not None else set()
        if loose:
            raise InternalError(f"rule {self.name}: {sorted(loose)} occur only on its right side")

    @cached_property
    def below(self) -> frozenset[str]:
        """The ops that the operands of a match have."""
        return operand_ops(self.left)

    def candidates(self, hop: Hop, shared: Shared) -> Iterator[Hop]:
        """Yield what `hop` may become by this rule, best match first."""
        for bound in matches(self.left, hop, {}, shared):
            if self.when is None or self.when(hop, bound):
                after = self.build(hop, bound) if self.build else self._replacement(hop, bound)
                if after is not hop:
                    check(self, hop, after)
                    yield after

    def _replacement(self, hop: Hop, bound: dict[str, Any]) -> Hop:
        assert self.right is not None
        return build(self.right, bound, hop.line)


def check(rule: Rule, before: Hop, after: Hop) -> None:
    """Raise `InternalError` if `rule` changed the shape or the dtype of a value."""
    old, new = before.meta, after.meta
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        raise InternalError(
            f"rule {rule.name}: {before.op.name} of {old.shape} {old.dtype} became "
            f"{after.op.name} of {new.shape} {new.dtype}")


class RuleSet:
    """An ordered set of rules with unique names, found by the op at their root."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        names = [r.name for r in self.rules]
        twice = sorted(n for n, count in Counter(names).items() if count > 1)
        if twice:
            raise InternalError(f"rules: the names {twice} are given twice")
        self._joint = tuple(r for r in self.rules if r.jointly is not None)

    @cached_property
    def _by_op(self) -> dict[str, list[tuple[frozenset[str], Rule]]]:
        # of sets that are asked only: many are put together for others
        found: dict[str, list[tuple[frozenset[str], Rule]]] = {}
        for rule in self.rules:
            if rule.across is None and rule.jointly is None:
                found.setdefault(rule.left.op, []).append((rule.below, rule))
        return found

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, name: str) -> Rule:
        return next(r for r in self.rules if r.name == name)

    def __add__(self, other: RuleSet) -> RuleSet:
        return RuleSet((*self.rules, *other.rules))

    def at(self, numerics: str) -> RuleSet:
        """Return the rules that the numerics level allows."""
        return RuleSet(r for r in self.rules if r.exactness in LEVELS[numerics])

    def without(self, *names: str) -> RuleSet:
        """Return the set less the rules called `names`."""
        return RuleSet(r for r in self.rules if r.name not in names)

    def only(self, *names: str) -> RuleSet:
        """Return the rules called `names`, in the set's order."""
        wanted = frozenset(names)
        return RuleSet(r for r in self.rules if r.name in wanted)

    def rooted(self, hop: Hop) -> Iterator[Rule]:
        """Yield the rules whose left side has the op of `hop` at its root and its operands' below."""
        entries = self._by_op.get(hop.op.name)
        if entries:
            below = {i.op.name for i in hop.inputs}
            for needed, rule in entries:
                if needed <= below:
                    yield rule

    @property
    def asked(self) -> dict[str, frozenset[float]]:
        """By operator: the numbers that rules look for among its operands, `HALVED` if they take any."""
        found: dict[str, frozenset[float]] = {}
        for rule in self.rules:
            for op, values in numbers(rule.left):
                found[op] = found.get(op, frozenset()) | (values or HALVED)
        return found

    @property
    def joint(self) -> tuple[Rule, ...]:
        """The rules by which several nodes become something together."""
        return self._joint

    @property
    def across(self) -> tuple[Rule, ...]:
        """The rules that look at the whole DAG."""
        return tuple(r for r in self.rules if r.across is not None)
