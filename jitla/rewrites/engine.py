"""Rewrite engine: applies rules bottom-up at every node until no rule fires (normal form)."""

from __future__ import annotations

from jitla.events import log
from jitla.hops import Hop, make, topo
from jitla.rewrites.contractions import (
    CELL_CHAIN_RULES,
    CHAIN_RULES,
    CONTRACTION_PATH_RULES,
    NORM_AND_EINSUM_RULES,
)
from jitla.rewrites.rule import (
    ORDER_SENSITIVE,
    VIEW_OPS,
    Hook,
    Rule,
    RuleSet,
    has_associative_sum,
    may_alias_argument,
    owns_memory,
    shared_nodes,
)
from jitla.rewrites.rules_aggregates import ORDERING_AND_BLOCK_RULES, SIZE_DEPENDENT_RULES
from jitla.rewrites.rules_elementwise import (
    CELL_RULES,
    COMPARISON_CHOICE_AND_CAST_RULES,
    LOGIC_AND_INTEGER_RULES,
)
from jitla.rewrites.rules_matmul import (
    DIAGONAL_RULES,
    MATMUL_RULES,
    SCALING_AND_CONCATENATION_RULES,
)
from jitla.rewrites.rules_relaxed import RELAXED_RULES
from jitla.rewrites.rules_reorg import (
    MOVE_AND_AGGREGATE_RULES,
    RING_RULES,
    ROLL_RULES,
    SAMPLING_RULES,
    SLICE_RULES,
)

#: Rules that do not depend on sizes.
STATIC_RULES: RuleSet = (
    CELL_RULES + LOGIC_AND_INTEGER_RULES + COMPARISON_CHOICE_AND_CAST_RULES + RELAXED_RULES
    + MOVE_AND_AGGREGATE_RULES + ROLL_RULES + ORDERING_AND_BLOCK_RULES
    + MATMUL_RULES + SCALING_AND_CONCATENATION_RULES + DIAGONAL_RULES + NORM_AND_EINSUM_RULES
    + SAMPLING_RULES)
#: Rules that depend on sizes or on costs.
DYNAMIC_RULES: RuleSet = (
    SIZE_DEPENDENT_RULES + CONTRACTION_PATH_RULES + CELL_CHAIN_RULES + CHAIN_RULES + SLICE_RULES
    + RING_RULES)
RULES: RuleSet = STATIC_RULES + DYNAMIC_RULES  # one set: a dynamic rule may enable a static one
DEFAULT_RULES: RuleSet = RULES.at("numpy")

_MAX_ROUNDS = 3  # rounds of local rules followed by whole-DAG rules; one usually suffices
_MAX_DEPTH = 60  # nested firings: a rule fires in the result of another
_MAX_FIRINGS_PER_NODE = 20  # on average over the nodes of the DAG


def simplify(
    roots: tuple[Hop, ...], rules: RuleSet = DEFAULT_RULES, on_match: Hook | None = None,
) -> tuple[Hop, ...]:
    """Return `roots` rewritten by `rules` until none fires.

    Before a rule fires, ``on_match(rule, before, after)`` is called; False rejects the rewrite.
    A root that owned its memory still does: it never becomes an argument or a view of one.
    """
    hook = on_match or _accept_all
    initial = roots = tuple(roots)
    for _ in range(_MAX_ROUNDS):
        work = _Rewriter(roots, rules, hook)
        after = tuple(_preserve_ownership(r, work.normalise(r)) for r in roots)
        rewritten = after
        for rule in rules.whole_dag:
            assert rule.whole_dag is not None
            rewritten = rule.whole_dag(rewritten, hook)
        roots = rewritten
        if rewritten == after:
            break
    return tuple(_preserve_ownership(old, new) for old, new in zip(initial, roots, strict=True))


def _accept_all(rule: Rule, before: Hop, after: Hop) -> bool:
    return True


def _preserve_ownership(old: Hop, new: Hop) -> Hop:
    """Return `new`, copied if it may alias memory that `old` did not."""
    if new is old or owns_memory(new):
        return new
    if owns_memory(old) or may_alias_argument(new) and not may_alias_argument(old):
        return make("cast", (new,), old.line, dtype=new.meta.dtype)
    return new


class _Rewriter:
    """One bottom-up pass over a DAG: the memo of rewritten nodes, the shared nodes, the firings left."""

    def __init__(self, roots: tuple[Hop, ...], rules: RuleSet, hook: Hook) -> None:
        self.rules = rules
        self.hook = hook
        self.shared = shared_nodes(roots)
        self.rewritten: dict[Hop, Hop] = {}
        self.budget = _MAX_FIRINGS_PER_NODE * (len(topo(roots)) + 10)
        self.depth = 0

    def normalise(self, root: Hop) -> Hop:
        """Return the normal form of `root`: no rule fires in it any more."""
        stack = [root]
        while stack:
            hop = stack[-1]
            pending = [i for i in hop.inputs if i not in self.rewritten]
            if hop in self.rewritten or not pending:
                stack.pop()
                if hop not in self.rewritten:
                    self.rewritten[hop] = self._rewrite_node(hop)
            else:
                stack.extend(reversed(pending))
        return self.rewritten[root]

    def _rewrite_node(self, hop: Hop) -> Hop:
        """Return the normal form of `hop`, whose inputs are in the memo."""
        new = self._with_rewritten_inputs(hop)
        if hop in self.shared:
            self.shared.add(new)
        after = self._apply_first_rule(new)
        if after is not None:
            self.depth += 1
            new = self.normalise(after)
            self.depth -= 1
        if hop in self.shared:
            self.shared.add(new)
        self.rewritten.setdefault(new, new)
        return new

    def _with_rewritten_inputs(self, hop: Hop) -> Hop:
        """Return `hop` applied to its rewritten inputs."""
        inputs = [self.rewritten[i] for i in hop.inputs]
        op, dtype = hop.op.name, hop.meta.dtype
        if op in VIEW_OPS or op in ORDER_SENSITIVE and not has_associative_sum(dtype):
            inputs = [_preserve_ownership(old, new) for old, new in zip(hop.inputs, inputs, strict=True)]
        if all(new is old for old, new in zip(hop.inputs, inputs, strict=True)):
            return hop
        return make(hop.op.name, inputs, hop.line, **dict(hop.attrs))

    def _apply_first_rule(self, hop: Hop) -> Hop | None:
        """Return the result of the first rule that fires at `hop`, or None."""
        for rule in self.rules.rules_for(hop):
            for after in rule.candidates(hop, self.shared.__contains__):
                if self.hook(rule, hop, after):
                    return after if self._within_budget(rule) else None
        return None

    def _within_budget(self, rule: Rule) -> bool:
        """Count a firing; return whether the limits on firings and on depth still hold."""
        self.budget -= 1
        if self.budget < 0 or self.depth > _MAX_DEPTH:
            log.warning("rewrites: stopped at rule %s: the rules do not reach a fixpoint", rule.name)
            return False
        return True
