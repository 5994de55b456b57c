"""Expressions that have something to rewrite: signs, logic, choices, extremes, products."""

from __future__ import annotations

from tests.fuzz.draft import Draft

# Of two arrays of one shape.
CELLS = (
    "(-{0} * {1})", "(-(-{0}))", "({0} - -{1})", "(-{0} / (np.abs({1}) + 1))", "np.abs(-{0})", "({0} * {0})",
    "(np.abs({0}) * np.abs({1}))", "np.maximum(-{0}, -{1})", "np.minimum({0}, -{0})",
    "np.maximum({0}, -{0})", "np.maximum(np.maximum({0}, {1}), {1})", "np.abs({0} * {0})",
    "(~({0} > 1) & ~({1} > 1))", "(~({0} > 1) | ({0} > 1))", "(({0} > 1) * ({1} > 0))",
    "(({0} < {1}) | ({0} == {1}))", "(({0} <= {1}) & ({0} != {1}))", "(np.isnan({0}) | np.isinf({0}))",
    "np.isnan(np.abs({0}))", "({0} != {0})", "(({0} > 0) == (-{0} < -{1}))",
    "np.where({0} > 0, -{0}, -{1})", "np.where({0} > 0, np.where({0} > 0, {0}, {1}), {1})",
    "np.where(~({0} > 0), {0}, {1})", "({0} * 3 + {0} * {1})", "(({0} + {1}) - {1})",
    "({0} * ({1} > 0).astype(float))", "({0}.T + {1}.T).T", "({0} + {1})[1:][:-1]",
    "np.sqrt(np.abs({0})).max(axis=0)", "(-{0}).min(axis=-1)", "(~({0} > 0)).any(axis=0)",
    "np.argmax(-{0}, axis=0)", "({0} + {1}).reshape(-1).max(keepdims=True)",
    "np.concatenate([{0} + 1, {1}]).max(axis=0)", "np.concatenate([{0} + 1, {1}]).sum(axis=0)",
    "({0} + {1}).T.sum(axis=0)", "({0} + {1}).max(axis=0).max(axis=0, keepdims=True)",
)
# Of two matrices of one shape, whose products are rounded in another order.
PRODUCTS = (
    "({0} @ {1}.T).sum(axis=0)", "({0} @ {1}.T + {0} @ {1}.T).sum(axis=1)", "np.diag({0} @ {1}.T)",
    "(np.diag({0}[0] + 1) @ {1}.T)", "({0} @ np.diag({1}[0]))", "(({0} * {1}[0]) @ {0}[0])",
    "(({0} * {1}[:, :1]) @ {0}[0])", "({0}[:, 0] @ ({1} * {0}[:, :1]))", "((-{0}) @ {1}[0])",
    "({0} @ {1}.T)[:2]", "(np.hstack([{0}, {1}]) @ np.concatenate([{0}[0], {1}[0]]))",
    "(np.vstack([{0}, {1}]) @ {0}[0])", "(np.outer({0}[0], {1}[0]) @ {1}[0])",
    "np.outer({0}[0], {1}[0]).sum(axis=0)", "(({0} + 1).T @ ({1} * 2)).T", "({0} * ({0} @ {1}.T).trace())",
    "np.triu({0} * {1}, 1).sum(axis=0)", "np.tril({0} + {1})", "np.dstack([{0}, {1} * 2]).sum(axis=2)",
)


def patterned(draft: Draft, first: str, second: str, matrices: bool) -> str:
    """Return an expression of two arrays, perhaps of `matrices`."""
    forms = PRODUCTS if matrices and not draft.exact and draft.chance(0.5) else CELLS
    return draft.pick(forms).format(first, second)
