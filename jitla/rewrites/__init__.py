"""Algebraic rewriting of the operator DAG into equivalent, cheaper DAGs.

A rewrite rule (`rule`) is data: a pattern, a condition, a replacement and an exactness level; `rules_*` list
the rules by family, `contractions` reorders chains of products and expands `einsum`. `simplify` (`engine`)
applies the rules bottom-up to a fixpoint; no other file uses the lists, which are apart because each is read
for itself. `minimise_cost` (`search`) then runs a cost-guided search among `SUBSTITUTIONS`
(`substitutions`), whose benefit depends on the sizes. Both are called by `recompile` before fusion; the
package itself uses the operators of `hops` only.
"""

from typing import TYPE_CHECKING

from jitla.process.loading import lazy_exports

if TYPE_CHECKING:
    from jitla.rewrites.contractions import Chain, find_matmul_chains, is_well_ordered
    from jitla.rewrites.engine import (
        DEFAULT_RULES,
        DYNAMIC_RULES,
        RULES,
        STATIC_RULES,
        simplify,
    )
    from jitla.rewrites.rule import (
        LEVELS,
        AnyConst,
        App,
        AttrVar,
        Bindings,
        Exactness,
        Hook,
        Num,
        Pattern,
        Rule,
        RuleSet,
        Var,
        VarArgs,
        ops,
        single_use,
    )
    from jitla.rewrites.search import (
        Costs,
        SearchBudget,
        SearchResult,
        axis_lengths,
        minimise_cost,
        moves,
    )
    from jitla.rewrites.substitutions import SUBSTITUTIONS
else:
    __getattr__ = lazy_exports(
        __name__,
        contractions="Chain find_matmul_chains is_well_ordered",
        engine="DEFAULT_RULES DYNAMIC_RULES RULES STATIC_RULES simplify",
        rule=(
            "AnyConst App AttrVar Bindings Exactness Hook LEVELS Num Pattern Rule RuleSet Var "
            "VarArgs ops single_use"
        ),
        search="Costs SearchBudget SearchResult axis_lengths minimise_cost moves",
        substitutions="SUBSTITUTIONS",
    )

__all__ = [
    "DEFAULT_RULES", "DYNAMIC_RULES", "LEVELS", "RULES", "STATIC_RULES", "SUBSTITUTIONS", "AnyConst", "App",
    "AttrVar", "Bindings", "Chain", "Costs", "Exactness", "Hook", "Num", "Pattern", "Rule", "RuleSet",
    "SearchBudget", "SearchResult", "Var", "VarArgs", "axis_lengths", "find_matmul_chains",
    "is_well_ordered", "minimise_cost", "moves", "ops", "simplify", "single_use",
]
