"""Random expressions: text that computes an array or a number from the variables of a draft."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft

# Names of functions, operators and literals, and how often they are drawn

FLOAT_UNARY = {
    "np.sqrt": 4,
    "np.exp": 3,
    "np.log": 2,
    "np.sin": 1,
    "np.cos": 1,
    "np.tanh": 2,
    "np.log1p": 1,
    "np.expm1": 1,
    "np.exp2": 0.5,
    "np.log2": 0.5,
    "np.log10": 0.5,
    "np.arctan": 0.5,
    "np.cbrt": 0.3,
    "np.sinh": 0.3,
    "np.cosh": 0.3,
    "np.arcsin": 0.3,
    "np.tan": 0.3,
    "np.arccos": 0.2,
    "np.arctanh": 0.2,
    "np.arcsinh": 0.2,
    "np.arccosh": 0.2,
    "special.erf": 0.5,
    "special.erfc": 0.5,
    "special.ndtr": 0.5,
    "special.expit": 0.7,
    "special.log_expit": 0.4,
    "special.logit": 0.4,
}
ANY_UNARY = {
    "np.abs": 3,
    "np.square": 3,
    "np.negative": 1,
    "-": 3,
    "np.floor": 1,
    "np.ceil": 1,
    "np.sign": 1,
    "np.rint": 1,
    "np.trunc": 1,
    "np.reciprocal": 0.5,
    "np.isnan": 0.7,
    "np.isfinite": 0.7,
    "~": 0.5,
    "np.positive": 0.3,
    "np.logical_not": 0.5,
    "np.isinf": 0.3,
    "np.signbit": 0.3,
    "abs": 0.5,
    "np.conj": 0.3,
    "np.real": 0.2,
    "np.imag": 0.2,
}
OPERATORS = {
    "+": 8,
    "-": 8,
    "*": 8,
    "/": 5,
    "**": 0.7,
    "//": 1,
    "%": 1,
    "<": 1.5,
    "<=": 0.7,
    ">": 1.5,
    ">=": 0.7,
    "==": 0.7,
    "!=": 0.7,
    "&": 0.6,
    "|": 0.6,
    "^": 0.4,
    "<<": 0.2,
    ">>": 0.2,
}
BINARY_CALLS = {
    "np.minimum": 2,
    "np.maximum": 2,
    "np.add": 1,
    "np.multiply": 1,
    "np.subtract": 1,
    "np.fmin": 0.5,
    "np.fmax": 0.5,
    "np.hypot": 0.4,
    "np.arctan2": 0.4,
    "np.logaddexp": 0.4,
    "np.logaddexp2": 0.2,
    "np.float_power": 0.3,
    "special.xlogy": 0.3,
    "special.xlog1py": 0.3,
    "np.copysign": 0.4,
    "np.fmod": 0.4,
    "np.logical_and": 0.5,
    "np.logical_or": 0.5,
    "np.power": 0.4,
    "np.divide": 1,
    "np.remainder": 0.3,
    "np.floor_divide": 0.3,
    "np.heaviside": 0.2,
    "np.greater": 0.3,
}
INEXACT_CALLS = (
    "np.hypot", "np.arctan2", "np.logaddexp", "np.logaddexp2", "np.power", "np.float_power",
    "special.xlogy", "special.xlog1py",
)
REDUCTIONS = {
    "sum": 8,
    "mean": 3,
    "max": 3,
    "min": 3,
    "prod": 0.5,
    "any": 1,
    "all": 1,
    "argmax": 1,
    "argmin": 1,
    "var": 1,
    "std": 1,
}
CASTS = (
    "np.float64", "np.float32", "np.int64", "np.int32", "np.int8", "np.uint8", "bool", "float", "int",
    "complex",
)
NUMBERS = (
    "2",
    "0.5",
    "1.0",
    "3",
    "-1",
    "2.5",
    "0",
    "1",
    "10",
    "0.1",
    "-0.75",
    "True",
    "1e-3",
    "7",
    "np.float32(1.5)",
    "np.float64(0.3)",
    "np.int64(2)",
    "np.int32(3)",
    "np.uint8(4)",
    "np.int8(-3)",
    "1j",
    "(0.5 - 2j)",
)
EXPONENTS = ("2", "0.5", "-1", "1", "3", "2.0", "1.5", "0", "-2.5", "4", "np.float32(0.7)", "1 / 3")


# Expressions that rules rewrite

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


# Expressions


def number(draft: Draft) -> str:
    """Return a number: a literal or a variable."""
    held = draft.scalars()
    if held and draft.chance(0.4):
        return draft.pick(held)
    return draft.pick(NUMBERS)


def array_expression(draft: Draft, depth: int | None = None, like: np.ndarray | None = None) -> str | None:
    """Return an expression with an array as value; one that fits `like`, if given."""
    depth = draft.pick((0, 1, 1, 2, 2, 3, 4)) if depth is None else depth
    for _ in range(4):
        text = _drawn(draft, depth, like)
        if text is None:
            continue
        value = draft.value(text)
        if type(value) is not np.ndarray or not _worth(draft, value):
            continue
        if like is None or _fits(value, like):
            return text
    return None


def _worth(draft: Draft, value: np.ndarray) -> bool:
    if value.dtype.char not in "?bBhHiIlLqQefdFD":
        return False
    if value.dtype == np.float16 and draft.chance(0.8):
        return False
    dead = value.dtype.kind == "f" and value.size > 0 and not np.isfinite(value).any()
    return not dead or draft.chance(0.1)


def _fits(value: np.ndarray, like: np.ndarray) -> bool:
    try:
        return np.broadcast_shapes(value.shape, like.shape) == like.shape
    except ValueError:
        return False


def place(draft: Draft, like: np.ndarray | None = None) -> str | None:
    """Return a place that holds an array."""
    found = draft.arrays(lambda a: like is None or _fits(a, like))
    if not found:
        return None
    return draft.pick(found[-4:] if draft.chance(0.3) else found)


def _drawn(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    if depth <= 0:
        text = place(draft, like)
        return view(draft, text) if text and like is None and draft.chance(0.15) else text
    maker = draft.weighted(MAKERS)
    return maker(draft, depth - 1, like)


def _unary(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    inner = array_expression(draft, depth, like)
    if inner is None:
        return None
    if draft.chance(0.2 if draft.exact else 0.45):
        call = "np.sqrt" if draft.exact else draft.weighted(FLOAT_UNARY)
        if call in ("np.sqrt", "np.log", "np.log2", "np.log10") and draft.chance(0.7):
            inner = f"np.abs({inner})"
        if call in ("np.exp", "np.sinh", "np.cosh", "np.expm1", "np.exp2") and draft.chance(0.6):
            inner = f"-np.abs({inner})"
        if call in ("special.logit", "np.arctanh", "np.arccos") and draft.chance(0.7):
            inner = draft.pick((f"np.abs({inner}) % 1", f"special.expit({inner})", f"np.clip({inner}, 0, 1)"))
        return f"{call}({inner})"
    call = draft.weighted(ANY_UNARY)
    return f"({call}{inner})" if call in "-~" else f"{call}({inner})"


def _binary(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    left = array_expression(draft, depth, like)
    if left is None:
        return None
    right = _partner(draft, depth, left, like)
    if right is None:
        return None
    if draft.chance(0.2):
        call = draft.weighted(BINARY_CALLS)
        call = "np.add" if draft.exact and call in INEXACT_CALLS else call
        right = f"np.abs({right})" if "xlog" in call and draft.chance(0.6) else right
        return f"{call}({left}, {right})"
    sign = draft.weighted(OPERATORS)
    sign = "*" if draft.exact and sign == "**" else sign
    if sign == "**":
        forms = (f"({left}) ** {draft.pick(EXPONENTS)}",) * 3
        return draft.pick((*forms, f"np.abs({left}) ** {right}", f"({left}) ** {right}", f"2.0 ** {left}"))
    if sign in ("/", "//", "%") and draft.chance(0.6):
        right = f"(np.abs({right}) + 1)"
    if draft.chance(0.3):
        left, right = right, left
    return f"({left} {sign} {right})"


def _partner(draft: Draft, depth: int, left: str, like: np.ndarray | None) -> str | None:
    """Return a second operand: a number, the same, or something that broadcasts."""
    if draft.chance(0.35):
        return number(draft)
    if draft.chance(0.08):
        return left
    value = draft.value(left)
    if value is None:
        return None
    if like is None and draft.chance(0.2):
        return array_expression(draft, depth)
    return array_expression(draft, depth, value if like is None or draft.chance(0.5) else like)


def _choice(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    inner = array_expression(draft, depth, like)
    if inner is None:
        return None
    other = _partner(draft, 0, inner, like)
    if other is None:
        return None
    kind = draft.pick(("where", "where", "where", "clip", "clip", "method", "mask"))
    if kind == "where":
        test = array_expression(draft, 0, draft.value(inner))
        return test and f"np.where({test} {draft.pick('<>')} {number(draft)}, {inner}, {other})"
    if kind == "clip":
        low, high = draft.pick((("-1", "1"), ("0", "2"), ("0.5", "3.5"), ("None", "1"), ("-2", other)))
        return f"np.clip({inner}, {low}, {high})"
    if kind == "method":
        return f"({inner}).clip(0, 3)"
    return f"({inner}) * ({inner} > {number(draft)})"


def _cast(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    inner = array_expression(draft, depth, like)
    if inner is None:
        return None
    kind = draft.pick(CASTS)
    value = draft.value(inner)
    if value is None:
        return None
    if value.dtype.kind == "f" and ("int" in kind):
        inner = f"np.clip(np.nan_to_num({inner}), 0, 100)"
    return f"({inner}).astype({kind})"


def reduction(draft: Draft, inner: str, whole: bool = False) -> str | None:
    """Return a reduction of `inner`: a number if `whole`, else perhaps over an axis."""
    value = draft.value(inner)
    if type(value) is not np.ndarray:
        return None
    name = draft.weighted(REDUCTIONS)
    given = []
    if value.ndim and not whole and draft.chance(0.8):
        axis = draft.pick(range(-value.ndim, value.ndim))
        several = value.ndim > 1 and name not in ("argmax", "argmin") and draft.chance(0.15)
        given.append(f"axis={tuple(range(value.ndim))[-2:] if several else axis}")
    if not whole and draft.chance(0.35):
        given.append("keepdims=True")
    if name in ("var", "std") and draft.chance(0.3):
        given.append("ddof=1")
    if draft.chance(0.5):
        return f"np.{name}({', '.join([inner, *given])})"
    return f"({inner}).{name}({', '.join(given)})"


def _reduced(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    inner = array_expression(draft, depth, like)
    return inner and reduction(draft, inner)


def view(draft: Draft, text: str) -> str | None:
    """Return an expression that is a view of `text`, or may be one."""
    value = draft.value(text)
    if type(value) is not np.ndarray or value.ndim == 0:
        return text
    one = (
        "[1:]",
        "[:-1]",
        "[::-1]",
        "[::2]",
        "[:]",
        "[1:-1]",
        ".reshape(-1)",
        "[...]",
        "[:2]",
        "[np.newaxis]",
        "[:, None]",
        ".ravel()",
        ".T",
        "[-2:]",
        "[1::2]",
        "[np.arange(2 * len(A)) % len(A) - 1]",
    )
    two = (
        "[:, 1:]",
        "[:, ::-1]",
        "[0]",
        "[:, 0]",
        "[-1]",
        "[:, :1]",
        "[:1]",
        "[::2, ::-1]",
        "[..., -1]",
        ".reshape(-1)",
        "[:, None, :]",
        ".T",
        ".T",
        ".swapaxes(0, 1)",
        "[1:, :-1]",
        ".reshape(A.shape[::-1])",
        ".transpose()",
        "[:, np.arange(2 * A.shape[1]) % A.shape[1]]",
        "[np.arange(len(A))[:, None] - 1, np.arange(A.shape[1])]",
        "[np.arange(len(A))[::-1][:, None] * 1, np.minimum(np.arange(A.shape[1]), 1)]",
        "[:, np.arange(A.shape[1]) - 1]",
    )
    if draft.chance(0.03):
        form = draft.pick(("np.repeat({}, 2, axis=0)", "np.pad({}, 1, mode='edge')", "np.tile({}, 2)"))
        return form.format(text)
    if value.dtype.kind == "c" and draft.chance(0.3):
        return text + draft.pick((".real", ".imag", ".conj()"))
    ending = draft.pick(one if value.ndim == 1 or draft.chance(0.3) else two)
    return text + ending.replace("A", text)


def _viewed(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    inner = array_expression(draft, depth, like)
    return inner and view(draft, inner)


def _product(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    left = None if draft.exact else array_expression(draft, min(depth, 1))
    value = left and draft.value(left)
    if value is None or value.ndim == 0:
        return None
    length = value.shape[-1]
    rights = draft.arrays(lambda a: a.ndim in (1, 2) and a.shape[0] == length)
    turned = [f"{t}.T" for t in draft.arrays(lambda a: a.ndim == 2 and a.shape[1] == length)]
    if not rights + turned:
        return None
    right = draft.pick(rights + turned)
    form = draft.pick(("({} @ {})", "({} @ {})", "np.dot({}, {})", "np.matmul({}, {})", "({}).dot({})"))
    if draft.chance(0.3):
        weight = number(draft) if draft.chance(0.5) else f"{draft.pick(rights + turned)}.sum()"
        left = f"({weight} * {left})"
    found = form.format(left, right)
    return _continued(draft, found) if draft.chance(0.4) else found


def _continued(draft: Draft, product: str) -> str:
    """Return a product, times one more factor, weighted, or beside another one of the same matrix."""
    value = draft.value(product)
    if value is None or value.ndim == 0:
        return product
    length = value.shape[-1]
    nexts = draft.arrays(lambda a: a.ndim in (1, 2) and a.shape[0] == length)
    rows = draft.arrays(lambda a: a.shape == (length,))
    forms = [f"({product} @ {n})" for n in nexts] + [f"({r} * {product})" for r in rows]
    forms += [f"({product}).T"] * (value.ndim == 2)
    return draft.pick(forms) if forms else product


def _created(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    source = place(draft, like)
    if source is None:
        return None
    length = f"{source}.shape[-1]"
    forms = [
        f"np.zeros({source}.shape)",
        f"np.ones_like({source})",
        f"np.zeros_like({source})",
        f"np.full({source}.shape, {number(draft)})",
        f"np.ones({source}.shape, dtype=np.float32)",
        f"np.arange({length})",
        f"np.arange({length}) * 0.5",
        f"np.linspace(0, 1, {length})",
        f"np.ones({length})",
        f"np.array({source})",
        f"{source}.copy()",
        f"np.copy({source})",
    ]
    return draft.pick(forms)


def _helped(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    names = list(draft.helpers)
    if not names:
        return None
    name = draft.pick(names)
    first = array_expression(draft, depth, like)
    if first is None or draft.helpers[name] == 1:
        return first and f"{name}({first})"
    second = _partner(draft, 0, first, like)
    return second and f"{name}({first}, {second})"


def _joined(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    first = array_expression(draft, depth, like)
    second = first and place(draft)
    if second is None:
        return None
    return draft.pick(
        (
            f"np.concatenate([{first}, {second}])",
            f"np.stack([{first}, {first}])",
            f"np.cum{draft.pick(('sum', 'sum', 'prod'))}({first}{draft.pick(('', ', axis=0', ', axis=-1'))})",
            f"np.outer(({first}).ravel()[:40], ({second}).ravel()[:40])",
            f"np.diff({first})",
            f"np.sort({first}, axis=None)",
            f"np.round({first}, 1)",
            f"np.nan_to_num({first})",
            f"np.pad({first}, {draft.pick((1, (0, 2), (3, 0)))})",
            f"np.roll({first}, {draft.pick((1, -1, 2, -7, 9))}, {draft.pick((0, -1, None))})",
        )
    )


def _composed(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    """What NumPy itself writes in Python."""
    first = array_expression(draft, depth, like)
    second = first and place(draft)
    if second is None:
        return None
    axis = draft.pick(("", ", axis=0", ", axis=-1", ", axis=-1, keepdims=True"))
    name = draft.pick(("sum", "mean", "var", "std", "min", "max"))
    return draft.pick(
        (
            f"np.nan{name}({first}{axis})",
            f"np.nan{name}({first}{axis}) + {second}",
            f"np.nan_to_num({first}, nan={number(draft)})",
            f"np.average({first}{axis})",
            f"np.isclose({first}, {second}, rtol={draft.pick((1e-5, 0, 0.5))}) * {second}",
            f"np.isclose({first}, {number(draft)}, equal_nan=True) | (not np.allclose({second}, {first}))",
            f"np.ptp({first}{axis.replace(', keepdims=True', '')})",
            f"np.vecdot({first}, {second})",
            f"np.average({first}, weights={first})",
            f"np.polyval([{number(draft)}, 1, {number(draft)}], {first})",
            f"np.trapezoid({first})",
            f"np.select([{first} > 0, {first} < {number(draft)}], [{first}, {number(draft)}])",
            f"np.select([{first} > 0, {second} > 0], [1, 2.5], 3)",
            f"np.full_like({first}, {number(draft)})",
            f"np.ones_like({first}) * {second}",
            f"np.flip({first})",
            f"np.flip({first}, -1) + {second}",
            f"np.squeeze({first})",
            f"np.split({first}, [1, 3])[1]",
        )
    )


def _stencil(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    """Rolls of one value that are put together."""
    first = array_expression(draft, min(depth, 1), like)
    value = first and draft.value(first)
    if value is None or not np.ndim(value):
        return None
    sign = draft.pick(("+", "*", "-", "<"))
    axes = [draft.pick((0, -1)) for _ in range(3)]
    rolled = [f"np.roll({first}, {draft.pick((1, -1, 3, -2, 0, 8))}, {axis})" for axis in axes]
    return draft.pick((
        f"({rolled[0]} {sign} ({first}))",
        f"({rolled[0]} {sign} {rolled[1]} + {rolled[2]} * ({first}))",
        f"np.roll({rolled[0]}, {draft.pick((1, -2))}, {axes[1]}) {sign} {rolled[2]}",
        f"sum(np.roll({first}, k, {axes[0]}) for k in (-1, 0, 1))",
    ))


def _rewritable(draft: Draft, depth: int, like: np.ndarray | None) -> str | None:
    first = array_expression(draft, min(depth, 1), like)
    value = first and draft.value(first)
    second = value is not None and value.ndim and array_expression(draft, 0, value)
    if not second:
        return None
    same = np.shape(draft.value(second)) == value.shape
    return patterned(draft, f"({first})", f"({second if same else first})", value.ndim == 2)


MAKERS = {
    _binary: 42,
    _unary: 18,
    _choice: 8,
    _cast: 3,
    _reduced: 7,
    _viewed: 9,
    _product: 4,
    _created: 4,
    _helped: 5,
    _joined: 1.5,
    _composed: 2,
    _stencil: 1.5,
    _rewritable: 5,
}


def number_expression(draft: Draft) -> str | None:
    """Return an expression with a number as value."""
    source = array_expression(draft)
    if source is None:
        return None
    text = reduction(draft, source, whole=True)
    if draft.chance(0.15):
        text = draft.pick(
            (
                f"{source}.shape[0]",
                f"{source}.size",
                f"len({source})",
                f"{source}.flat[0]",
                f"{source}.item(0)",
            )
        )
    if text and draft.chance(0.25):
        text = draft.pick(
            (
                "float({})",
                "{} * 0.5",
                "{} + 1",
                "-{}",
                "np.sqrt({})",
                "abs({})",
                "{} / 3",
                "int({} > 0)",
                "bool({})",
            )
        ).format(text)
    value = text and draft.value(text)
    if value is None or isinstance(value, np.ndarray):
        return None
    return text
