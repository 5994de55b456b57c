"""Equal but cheaper: rewrites as data, and the engine that applies them.

Reading order: effort, pattern, rule, conditions, static, logic, related, reals, reorg, aggregates, matrices,
scaled, traces, sums, stored, dynamic, orders, paths, factors, chains, slices, rings, engine, weights,
substitutions, parts, search.
"""

from typing import TYPE_CHECKING

from jitla.later import door

if TYPE_CHECKING:
    from jitla.rewrites.chains import Chain, product_chains, well_ordered
    from jitla.rewrites.effort import Effort
    from jitla.rewrites.engine import DEFAULT, DYNAMIC, RULES, STATIC, simplify
    from jitla.rewrites.pattern import (
        AnyConst,
        App,
        AttrVar,
        Bound,
        Num,
        Pattern,
        Rest,
        Var,
        once,
        ops,
    )
    from jitla.rewrites.rule import LEVELS, Exactness, Hook, Rule, RuleSet
    from jitla.rewrites.search import Costs, Outcome, improve, lengths, moves
    from jitla.rewrites.substitutions import SUBSTITUTIONS
else:
    __getattr__ = door(
        __name__,
        chains="Chain product_chains well_ordered",
        effort="Effort",
        engine="DEFAULT DYNAMIC RULES STATIC simplify",
        pattern="AnyConst App AttrVar Bound Num Pattern Rest Var once ops",
        rule="LEVELS Exactness Hook Rule RuleSet",
        search="Costs Outcome improve lengths moves",
        substitutions="SUBSTITUTIONS",
    )

__all__ = [
    "DEFAULT", "DYNAMIC", "LEVELS", "RULES", "STATIC", "SUBSTITUTIONS", "AnyConst", "App", "AttrVar", "Bound",
    "Chain", "Costs", "Effort", "Exactness", "Hook", "Num", "Outcome", "Pattern", "Rest", "Rule", "RuleSet",
    "Var", "improve", "lengths", "moves", "once", "ops", "product_chains", "simplify",
    "well_ordered",
]
