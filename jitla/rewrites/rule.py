"""Rewrites as data: a rule, what is checked when it is made and when it fires, sets of rules.

Knows: the form of a rule. Must not know: any particular rule, nor the order they are tried in.
Receives patterns, conditions and builders; returns rules, sets of them, and rewritten hops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from jitla.classes import cached_property, dataclass
from jitla.errors import InternalError
from jitla.hops import Hop, lookup
from jitla.rewrites.pattern import (
    App,
    Bound,
    Pattern,
    Shared,
    build,
    matches,
    numbers,
    operand_ops,
    variables,
)

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
