"""Equal but cheaper: rewrites as data, and the engine that applies them.

Reading order: pattern, rule, conditions, static, logic, related, reals, reorg, aggregates, matrices,
scaled, traces, sums, stored, dynamic, chains, slices, engine.
"""

from jitla.rewrites.engine import DEFAULT, DYNAMIC, RULES, STATIC, simplify
from jitla.rewrites.pattern import AnyConst, App, AttrVar, Bound, Num, Pattern, Rest, Var, once, ops
from jitla.rewrites.rule import LEVELS, Exactness, Hook, Rule, RuleSet

__all__ = [
    "DEFAULT", "DYNAMIC", "LEVELS", "RULES", "STATIC", "AnyConst", "App", "AttrVar", "Bound",
    "Exactness", "Hook", "Num", "Pattern", "Rest", "Rule",
    "RuleSet", "Var", "once", "ops", "simplify",
]
