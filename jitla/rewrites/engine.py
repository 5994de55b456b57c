"""The engine: rules are tried bottom-up at every node until none fires."""

from __future__ import annotations

from jitla.concurrency import rest
from jitla.events import log
from jitla.hops import Hop, make, topo
from jitla.rewrites.conditions import (
    ORDERED,
    VIEWS,
    borrows,
    order_free,
    owns,
    shared_nodes,
)
from jitla.rewrites.einsum import PATHS, SUMS
from jitla.rewrites.matmul_chains import CHAINS, FACTORS
from jitla.rewrites.rule import (
    Hook,
    Rule,
    RuleSet,
)
from jitla.rewrites.rules_aggregates import EXTREMES_AND_BLOCKS, SIZED
from jitla.rewrites.rules_elementwise import CELLS, LOGICAL, RELATED
from jitla.rewrites.rules_matmul import DIAGONALS, MATRICES, SCALED_PRODUCTS
from jitla.rewrites.rules_relaxed import REALS
from jitla.rewrites.rules_reorg import (
    RINGS,
    ROLLS,
    SLICES,
    STORED,
    STRUCTURE,
)

STATIC: RuleSet = (
    CELLS + LOGICAL + RELATED + REALS + STRUCTURE + ROLLS + EXTREMES_AND_BLOCKS
    + MATRICES + SCALED_PRODUCTS + DIAGONALS + SUMS + STORED)
DYNAMIC: RuleSet = SIZED + PATHS + FACTORS + CHAINS + SLICES + RINGS
RULES: RuleSet = STATIC + DYNAMIC  # a dynamic rule may open the way for a static one
DEFAULT: RuleSet = RULES.at("numpy")

_ROUNDS = 3  # of local rules and whole-DAG rules in turn; one is usual
_DEEPEST = 60  # firings in one another's results
_PER_NODE = 20  # firings allowed, on average


def simplify(
    roots: tuple[Hop, ...], rules: RuleSet = DEFAULT, on_match: Hook | None = None,
) -> tuple[Hop, ...]:
    """Return `roots` rewritten by `rules` until none fires.

    Before a rule fires, ``on_match(rule, before, after)`` is asked and may refuse by False.
    A root that was memory of its own stays so: it never becomes an argument or a view of one.
    """
    hook = on_match or _agree
    given = roots = tuple(roots)
    for _ in range(_ROUNDS):
        work = _Work(roots, rules, hook)
        after = tuple(_fresh(r, work.normal(r)) for r in roots)
        whole = after
        for rule in rules.across:
            assert rule.across is not None
            whole = rule.across(whole, hook)
        roots = whole
        if whole == after:
            break
    return tuple(_fresh(old, new) for old, new in zip(given, roots, strict=True))


def _agree(rule: Rule, before: Hop, after: Hop) -> bool:
    return True


def _fresh(old: Hop, new: Hop) -> Hop:
    """Return `new`, copied if it is less its own memory than `old` was."""
    if new is old or owns(new):
        return new
    if owns(old) or borrows(new) and not borrows(old):
        return make("cast", (new,), old.line, dtype=new.meta.dtype)
    return new


class _Work:
    """One walk over a DAG: what each node became, which nodes are shared, how often rules fired."""

    def __init__(self, roots: tuple[Hop, ...], rules: RuleSet, hook: Hook) -> None:
        self.rules = rules
        self.hook = hook
        self.shared = shared_nodes(roots)
        self.done: dict[Hop, Hop] = {}
        self.budget = _PER_NODE * (len(topo(roots)) + 10)
        self.depth = 0

    def normal(self, root: Hop) -> Hop:
        """Return what `root` becomes when no rule fires in it any more."""
        stack = [root]
        while stack:
            hop = stack[-1]
            waiting = [i for i in hop.inputs if i not in self.done]
            if hop in self.done or not waiting:
                stack.pop()
                if hop not in self.done:
                    self.done[hop] = self._settled(hop)
            else:
                stack.extend(reversed(waiting))
        return self.done[root]

    def _settled(self, hop: Hop) -> Hop:
        """Return what `hop` becomes, its inputs being done."""
        rest()
        new = self._rebuilt(hop)
        if hop in self.shared:
            self.shared.add(new)
        after = self._fired(new)
        if after is not None:
            self.depth += 1
            new = self.normal(after)
            self.depth -= 1
        if hop in self.shared:
            self.shared.add(new)
        self.done.setdefault(new, new)
        return new

    def _rebuilt(self, hop: Hop) -> Hop:
        """Return `hop` on what its inputs became."""
        inputs = [self.done[i] for i in hop.inputs]
        if hop.op.name in VIEWS or hop.op.name in ORDERED and not order_free(hop.meta.dtype):
            inputs = [_fresh(old, new) for old, new in zip(hop.inputs, inputs, strict=True)]
        if all(new is old for old, new in zip(hop.inputs, inputs, strict=True)):
            return hop
        return make(hop.op.name, inputs, hop.line, **dict(hop.attrs))

    def _fired(self, hop: Hop) -> Hop | None:
        """Return the result of the first rule that fires at `hop`."""
        for rule in self.rules.rooted(hop):
            for after in rule.candidates(hop, self.shared.__contains__):
                if self.hook(rule, hop, after):
                    return after if self._within_budget(rule) else None
        return None

    def _within_budget(self, rule: Rule) -> bool:
        self.budget -= 1
        if self.budget < 0 or self.depth > _DEEPEST:
            log.warning("rewrites: stopped at rule %s, which seems to fire without end", rule.name)
            return False
        return True
