"""Equal but cheaper: rewrites as data, and the engine that applies them.

Reading order: pattern, rule, conditions, static, reorg, sums, stored, dynamic, orders, chains, slices, engine.
"""

from jitla.rewrites.engine import DEFAULT, DYNAMIC, RULES, STATIC, simplify
from jitla.rewrites.pattern import AnyConst, App, AttrVar, Bound, Num, Pattern, Var, once, ops
from jitla.rewrites.rule import LEVELS, Exactness, Hook, Rule, RuleSet

__all__ = [
    "DEFAULT", "DYNAMIC", "LEVELS", "RULES", "STATIC", "AnyConst", "App", "AttrVar", "Bound",
    "Exactness", "Hook", "Num", "Pattern", "Rule", "RuleSet", "Var", "once", "ops", "simplify",
]
