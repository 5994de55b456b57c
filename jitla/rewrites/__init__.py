"""Rewrites of the operator DAG into equal but cheaper ones: rules as data, and the engine that applies them.

A rule (`rule`) has a pattern, conditions (`conditions`), a replacement and its exactness; `rules_*` list them
by family. `engine` applies them bottom-up to a fixpoint; `matmul_chains` orders products; `einsum` expands
contractions; `search` looks further, among `substitutions`, by predicted cost.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import door

if TYPE_CHECKING:
    from jitla.rewrites.engine import (
        DEFAULT,
        DYNAMIC,
        RULES,
        STATIC,
        simplify,
    )
    from jitla.rewrites.matmul_chains import (
        Chain,
        product_chains,
        well_ordered,
    )
    from jitla.rewrites.rule import (
        LEVELS,
        AnyConst,
        App,
        AttrVar,
        Bound,
        Exactness,
        Hook,
        Num,
        Pattern,
        Rest,
        Rule,
        RuleSet,
        Var,
        once,
        ops,
    )
    from jitla.rewrites.search import (
        Costs,
        Effort,
        Outcome,
        improve,
        lengths,
        moves,
    )
    from jitla.rewrites.substitutions import SUBSTITUTIONS
else:
    __getattr__ = door(
        __name__,
        engine="DEFAULT DYNAMIC RULES STATIC simplify",
        matmul_chains="Chain product_chains well_ordered",
        rule=(
            "AnyConst App AttrVar Bound Exactness Hook LEVELS Num Pattern Rest Rule RuleSet "
            "Var once ops"
        ),
        search="Costs Effort Outcome improve lengths moves",
        substitutions="SUBSTITUTIONS",
    )

__all__ = [
    "DEFAULT", "DYNAMIC", "LEVELS", "RULES", "STATIC", "SUBSTITUTIONS", "AnyConst", "App", "AttrVar", "Bound",
    "Chain", "Costs", "Effort", "Exactness", "Hook", "Num", "Outcome", "Pattern", "Rest", "Rule", "RuleSet",
    "Var", "improve", "lengths", "moves", "once", "ops", "product_chains", "simplify",
    "well_ordered",
]
