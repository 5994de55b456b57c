"""Rewrite rules: patterns over hops, matching, replacement, sets of rules by root operator, and conditions.

Conditions are named predicates on the root and the bindings of a match. The first sentence of a condition
completes "the rule applies if" in docs/rules.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from jitla.classes import cached_property, dataclass
from jitla.errors import InternalError
from jitla.hops import (
    Hop,
    Shape,
    const,
    const_value,
    lookup,
    make,
    may_hold_signalling_nan,
    possible_flags,
    topo,
)

# --------------------------------------------------------------------------- rules


Bindings = dict[str, Any]
IsShared = Callable[[Hop], bool]


@dataclass(frozen=True, slots=True)
class Var:
    """A pattern variable that matches any hop; a second occurrence must match the same node."""

    name: str


@dataclass(frozen=True, slots=True)
class AttrVar:
    """A pattern variable that matches the value of an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Num:
    """A pattern for a 0-d constant of exactly this value (-0.0 is not 0.0).

    On the right side of a rule the constant has the dtype of `like`.
    """

    value: Any
    like: Var | None = None


@dataclass(frozen=True, slots=True)
class AnyConst:
    """A pattern variable that matches any 0-d constant; bound to a hop."""

    name: str


@dataclass(frozen=True, slots=True)
class VarArgs:
    """A pattern for all remaining operands of a variadic operator; bound to a tuple of hops."""

    name: str


@dataclass(frozen=True, slots=True)
class App:
    """A pattern for an operator and its operands; `single_use` requires that the node has no other user."""

    op: str
    args: tuple[Pattern, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    single_use: bool = False


Pattern = Var | Num | AnyConst | VarArgs | App


class _Constructors:
    """Pattern constructors, one for each entry of the op table: ``ops.add(X, Y)`` is a pattern for `add`."""

    def __getattr__(self, name: str) -> Callable[..., App]:
        try:
            arity = lookup(name).arity
        except KeyError:
            raise InternalError(f"rewrites: {name!r} is not in the op table") from None

        def construct(*args: Pattern, **attrs: Any) -> App:
            if arity is not None and len(args) != arity:
                raise InternalError(f"rewrites: {name} takes {arity} operands, not {len(args)}")
            return App(name, args, tuple(sorted(attrs.items())))

        return construct


ops = _Constructors()


def aggregate(name: str, *args: App | Var, **attrs: object) -> App:
    """Return the pattern of an aggregate."""
    built: App = getattr(ops, name)(*args, **attrs)
    return built


def single_use(pattern: App) -> App:
    """Return `pattern` restricted to nodes without other users: the rewrite then removes them."""
    return replace(pattern, single_use=True)


def bound_names(pattern: Pattern) -> set[str]:
    """Return the names of the variables in `pattern`."""
    match pattern:
        case Var(name) | AnyConst(name) | VarArgs(name):
            return {name}
        case Num(_, like):
            return {like.name} if like else set()
        case App(_, args, attrs):
            below = {v.name for _, v in attrs if isinstance(v, AttrVar)}
            return below.union(*map(bound_names, args))


def number_operands(pattern: Pattern) -> Iterator[tuple[str, frozenset[float]]]:
    """Yield the operators in `pattern` with constant operands, and the values; an empty set means any."""
    if isinstance(pattern, App):
        for arg in pattern.args:
            if isinstance(arg, Num):
                yield pattern.op, frozenset({arg.value})
            elif isinstance(arg, AnyConst):
                yield pattern.op, frozenset()
            yield from number_operands(arg)


def required_operand_ops(app: App) -> frozenset[str]:
    """Return the op names that must occur among the operands of a match."""
    apps = {a.op for a in app.args if isinstance(a, App)}
    return frozenset(apps | {"const" for a in app.args if isinstance(a, (Num, AnyConst))})


def matches(pattern: Pattern, hop: Hop, bound: Bindings, shared: IsShared) -> Iterator[Bindings]:
    """Yield the bindings of every match of `hop` with `pattern`, extending `bound`."""
    match pattern:
        case Var(name):
            if bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case Num(value):
            if hop.op.name == "const" and is_same_number(const_value(hop), value):
                yield bound
        case AnyConst(name):
            if hop.op.name == "const" and bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case App():
            if hop.op.name == pattern.op and not (pattern.single_use and shared(hop)):
                yield from _match_operator(pattern, hop, bound, shared)


def _match_operator(app: App, hop: Hop, bound: Bindings, shared: IsShared) -> Iterator[Bindings]:
    """Match the attributes, then the operands, in both orders if the operator is commutative."""
    open_ended = bool(app.args) and isinstance(app.args[-1], VarArgs)
    if len(app.args) != len(hop.inputs) and not (open_ended and len(app.args) <= len(hop.inputs) + 1):
        return
    start = _match_attrs(app, hop, bound)
    if start is None:
        return
    yield from _match_operands(app.args, hop.inputs, start, shared)
    if hop.op.commutes_in(hop.meta.dtype) and len(hop.inputs) == 2 and hop.inputs[0] is not hop.inputs[1]:
        yield from _match_operands(app.args, hop.inputs[::-1], start, shared)


def _match_attrs(app: App, hop: Hop, bound: Bindings) -> Bindings | None:
    """Return `bound` extended by the attribute variables of `app`; None if an attribute differs."""
    bindings = dict(bound)
    hop_attrs = dict(hop.attrs)
    for name, expected in app.attrs:
        if name not in hop_attrs:
            return None
        value = hop_attrs[name]
        if isinstance(expected, AttrVar):
            expected = bindings.setdefault(expected.name, value)
        if type(expected) is not type(value) or expected != value:
            return None
    return bindings


def _match_operands(
    patterns: tuple[Pattern, ...], hops: tuple[Hop, ...], bound: Bindings, shared: IsShared,
) -> Iterator[Bindings]:
    """Match operands with patterns pairwise, backtracking over the matches of each operand."""
    if not patterns:
        yield bound
        return
    if isinstance(patterns[0], VarArgs):
        yield {**bound, patterns[0].name: hops}
        return
    for first in matches(patterns[0], hops[0], bound, shared):
        yield from _match_operands(patterns[1:], hops[1:], first, shared)


def instantiate(pattern: Pattern, bound: Mapping[str, Any], line: Any = None) -> Hop:
    """Return the hop for `pattern` under the bindings `bound`; new nodes get the source `line`."""
    match pattern:
        case Var(name) | AnyConst(name):
            hop: Hop = bound[name]
            return hop
        case Num(value, like):
            if like is None:
                raise InternalError(f"rewrites: to build {value!r} needs a dtype (like=)")
            return const(value, bound[like.name].meta.dtype)
        case VarArgs(name):
            raise InternalError(
                f"rewrites: {name!r} matches several operands; a rule with it needs a build function")
        case App(op, args, attrs):
            attrs_given = {n: bound[v.name] if isinstance(v, AttrVar) else v for n, v in attrs}
            return make(op, [instantiate(a, bound, line) for a in args], line, **attrs_given)


def is_same_number(number: Any, value: Any) -> bool:
    """Return whether the NumPy scalar `number` has the value `value`, sign of zero included."""
    if isinstance(number, np.bool_) != isinstance(value, bool) or number.dtype.kind not in "biuf":
        return False
    if number != value:
        return False
    negative = math.copysign(1.0, value) < 0
    return bool(number) or number.dtype.kind != "f" or bool(np.signbit(number)) == negative


Exactness = Literal["exact", "rounding", "relaxed"]
Hook = Callable[["Rule", Hop, Hop], bool]

#: Values that rules for any constant distinguish: powers of two, whose reciprocals are exact.
CONSTANT_CLASSES = frozenset({0.5, 2.0})

LEVELS: dict[str, tuple[Exactness, ...]] = {
    "strict": ("exact",),
    "numpy": ("exact", "rounding"),
    "relaxed": ("exact", "rounding", "relaxed"),
}


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite rule from `left` to `right`, or to the result of `build(root, bound)`, if `when` holds.

    `exactness`: "exact" preserves every bit (payload and sign of NaN aside), "rounding" is equal over
    the reals with no worse error bound, "relaxed" is equal over the reals. `doc` states the benefit and,
    below "exact", the possible differences. `whole_dag` rewrites the whole DAG at once. `joint` yields, for
    a DAG and the axis lengths in use, replacements of several nodes together; only the search uses it.
    """

    name: str
    left: App
    right: Pattern | None = None
    when: Callable[[Hop, Bindings], bool] | None = None
    build: Callable[[Hop, Bindings], Hop] | None = None
    exactness: Exactness = "exact"
    doc: str = ""
    whole_dag: Callable[[tuple[Hop, ...], Hook], tuple[Hop, ...]] | None = None
    joint: Callable[[tuple[Hop, ...], frozenset[int]], Iterator[Mapping[Hop, Hop]]] | None = None

    def __post_init__(self) -> None:
        if not self.doc:
            raise InternalError(f"rule {self.name}: it has no doc line")
        if self.exactness not in LEVELS["relaxed"]:
            raise InternalError(f"rule {self.name}: there is no exactness {self.exactness!r}")
        if sum(x is not None for x in (self.right, self.build, self.whole_dag, self.joint)) != 1:
            raise InternalError(f"rule {self.name}: exactly one of right, build, across, jointly is needed")
        if self.when is not None and self.when.__name__ == "<lambda>":
            raise InternalError(f"rule {self.name}: its condition has no name")
        try:
            lookup(self.left.op)
        except KeyError:
            raise InternalError(f"rule {self.name}: there is no op {self.left.op!r}") from None
        loose = bound_names(self.right) - bound_names(self.left) if self.right is not None else set()
        if loose:
            raise InternalError(f"rule {self.name}: {sorted(loose)} occur only on its right side")

    @cached_property
    def required_ops(self) -> frozenset[str]:
        """The op names that must occur among the operands of a match."""
        return required_operand_ops(self.left)

    def candidates(self, hop: Hop, shared: IsShared) -> Iterator[Hop]:
        """Yield the replacements of `hop` by this rule, best match first."""
        for bound in matches(self.left, hop, {}, shared):
            if self.when is None or self.when(hop, bound):
                after = self.build(hop, bound) if self.build else self._replacement(hop, bound)
                if after is not hop:
                    check_type_unchanged(self, hop, after)
                    yield after

    def _replacement(self, hop: Hop, bound: dict[str, Any]) -> Hop:
        assert self.right is not None
        return instantiate(self.right, bound, hop.line)


def check_type_unchanged(rule: Rule, before: Hop, after: Hop) -> None:
    """Raise `InternalError` if `rule` changed the shape or the dtype of a value."""
    old, new = before.meta, after.meta
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        raise InternalError(
            f"rule {rule.name}: {before.op.name} of {old.shape} {old.dtype} became "
            f"{after.op.name} of {new.shape} {new.dtype}")


class RuleSet:
    """An ordered set of rules with unique names, indexed by the operator at their root."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        names = [r.name for r in self.rules]
        twice = sorted(n for n, count in Counter(names).items() if count > 1)
        if twice:
            raise InternalError(f"rules: the names {twice} are used twice")
        self._joint = tuple(r for r in self.rules if r.joint is not None)

    @cached_property
    def _by_op(self) -> dict[str, list[tuple[frozenset[str], Rule]]]:
        # built on demand: many sets are only parts of larger ones
        by_op: dict[str, list[tuple[frozenset[str], Rule]]] = {}
        for rule in self.rules:
            if rule.whole_dag is None and rule.joint is None:
                by_op.setdefault(rule.left.op, []).append((rule.required_ops, rule))
        return by_op

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
        """Return the set without the rules called `names`."""
        return RuleSet(r for r in self.rules if r.name not in names)

    def only(self, *names: str) -> RuleSet:
        """Return the rules called `names`, in the set's order."""
        wanted = frozenset(names)
        return RuleSet(r for r in self.rules if r.name in wanted)

    def rules_for(self, hop: Hop) -> Iterator[Rule]:
        """Yield the rules that may match `hop`, by its op and the ops of its operands."""
        entries = self._by_op.get(hop.op.name)
        if entries:
            below = {i.op.name for i in hop.inputs}
            for needed, rule in entries:
                if needed <= below:
                    yield rule

    @property
    def matched_numbers(self) -> dict[str, frozenset[float]]:
        """By operator, the constants that rules match as operands; `CONSTANT_CLASSES` for any constant."""
        by_op: dict[str, frozenset[float]] = {}
        for rule in self.rules:
            for op, values in number_operands(rule.left):
                by_op[op] = by_op.get(op, frozenset()) | (values or CONSTANT_CLASSES)
        return by_op

    @property
    def joint(self) -> tuple[Rule, ...]:
        """The rules that replace several nodes together."""
        return self._joint

    @property
    def whole_dag(self) -> tuple[Rule, ...]:
        """The rules that rewrite the whole DAG."""
        return tuple(r for r in self.rules if r.whole_dag is not None)


# --------------------------------------------------------------------------- properties of operators


#: Operators whose result is a view of the operand if NumPy can make it one.
VIEW_OPS = frozenset(
    "transpose reshape ravel broadcast_to expand_dims squeeze flip getitem diagonal part".split())
#: Operators whose result bits depend on the memory order of the operand.
ORDER_SENSITIVE = frozenset("sum prod mean var std cumsum cumprod matmul dot trace".split())
ROUNDING_OPS = frozenset("floor ceil trunc rint".split())
#: Aggregates whose result bits do not depend on the order of the elements.
ORDER_INSENSITIVE = frozenset({"min", "max", "any", "all"})
_MAX_DROPPABLE_NODES = 200
SWAP = (1, 0)  # axes of a matrix that is transposed


def owns_memory(hop: Hop) -> bool:
    """Return whether the value of `hop` owns its memory, in the order that NumPy allocates."""
    return hop.attr("form") == "scalar" if hop.op.name == "leaf" else hop.op.name not in VIEW_OPS


def may_alias_argument(hop: Hop) -> bool:
    """Return whether the value of `hop` may be a view of an argument."""
    while hop.op.name in VIEW_OPS:
        hop = hop.inputs[0]
    return not owns_memory(hop)


def shared_nodes(roots: tuple[Hop, ...]) -> set[Hop]:
    """Return the nodes with more than one use; being a root is a use."""
    seen_once: set[Hop] = set()
    shared: set[Hop] = set()
    for used in (roots, *[hop.inputs for hop in topo(roots)]):
        for hop in used:
            (shared if hop in seen_once else seen_once).add(hop)
    return shared


def has_associative_sum(dtype: np.dtype) -> bool:
    """Return whether sums of `dtype` have the same bits in any order."""
    return dtype.kind in "biu"


def is_droppable(hop: Hop) -> bool:
    """Return whether `hop` can be eliminated: computing it raises no warning and no exception."""
    below = topo((hop,))
    return len(below) <= _MAX_DROPPABLE_NODES and not any(map(possible_flags, below))


# Float results of the first group never have the sign bit set, NaN aside; those of the second group do not
# if no operand has.
_NON_NEGATIVE_OPS = frozenset({"square", "absolute", "exp", "exp2", "norm", "count", "var", "std", "cosh"})
_SIGN_PRESERVING_OPS = VIEW_OPS | frozenset((
    "add multiply divide sqrt maximum minimum fmax fmin where sum prod min max mean floor ceil trunc rint "
    "positive matmul dot hypot expm1 log1p cumsum concatenate stack reciprocal cbrt").split())
_MAX_SIGN_DEPTH = 8


def is_non_negative(hop: Hop, depth: int = _MAX_SIGN_DEPTH) -> bool:
    """Return whether the sign bit is clear in all elements of `hop`, floats or cast to floats, NaN aside."""
    name, dtype = hop.op.name, hop.meta.dtype
    if dtype.kind in "bu":
        return True
    if dtype.kind != "f" or not depth:
        return False
    if name == "cast":
        source = hop.inputs[0].meta.dtype.kind
        return source in "bu" or source == "f" and is_non_negative(hop.inputs[0], depth - 1)
    if name == "const":
        return not np.signbit(const_value(hop))
    operands = hop.inputs[1:] if name == "where" else hop.inputs
    preserved = name in _SIGN_PRESERVING_OPS and all(is_non_negative(i, depth - 1) for i in operands)
    return preserved or name in _NON_NEGATIVE_OPS


def constant_like(hop: Hop, value: Any) -> Hop:
    """Return the constant `value` in the dtype and shape of `hop`."""
    single = const(value, hop.meta.dtype)
    if not hop.meta.shape:
        return single
    return make("broadcast_to", (single,), hop.line, shape=hop.meta.shape)


def as_column(x: Hop) -> Hop:
    """Return the vector `x` as a column."""
    return make("reshape", (x,), x.line, shape=(*x.meta.shape, 1))


def are_wide_floats(*hops: Hop) -> bool:
    """Return whether all are floats of at least 32 bits: sums of smaller ones overflow easily."""
    return all(h.meta.dtype.kind == "f" and h.meta.dtype.itemsize >= 4 for h in hops)


def is_column(x: Hop, length: int) -> bool:
    """Return whether `x` is a column of several elements."""
    return x.meta.shape == (length, 1) and length > 1


def is_row(x: Hop, length: int) -> bool:
    """Return whether `x` is a vector, or a row, of several elements."""
    return x.meta.shape in ((length,), (1, length)) and length > 1


def as_vector(x: Hop) -> Hop:
    """Return `x`, a column or a row, as a vector."""
    return x if x.meta.ndim == 1 else make("reshape", (x,), x.line, shape=(x.meta.size,))


def is_lossless_cast(old: np.dtype, new: np.dtype) -> bool:
    """Return whether the cast from `old` to `new` preserves every value; int64 to float64 does not."""
    if old == new or old.kind == "b":
        return new.kind in "biuf"
    if old.kind not in "iuf" or new.kind not in "iuf":
        return False
    if old.kind == "f" or new.kind == old.kind:
        return new.kind == old.kind and new.itemsize >= old.itemsize
    bits = 8 * old.itemsize - (old.kind == "i")
    if new.kind == "f":
        return bool(bits <= np.finfo(new).nmant + 1)
    return old.kind == "u" and new.kind == "i" and new.itemsize > old.itemsize


def is_power_of_two(value: np.floating) -> bool:
    """Return whether `value` and its reciprocal are normal powers of two."""
    info = np.finfo(value.dtype)
    size = abs(float(value))
    least = float(info.smallest_normal)
    return least <= size <= 1 / least and math.frexp(size)[0] == 0.5


def min_reduced_elements(hop: Hop, axis: tuple[int, ...]) -> int:
    """Return a lower bound on the number of elements reduced along `axis`, for all sizes of the call class.

    A plan is shared by all sizes; only lengths 0 and 1 are fixed, any other stands for 2 or more.
    """
    return math.prod(min(hop.meta.shape[i], 2) for i in axis)


# --------------------------------------------------------------------------- products of matrices


def product_shape(left: Hop, right: Hop) -> Shape | None:
    """Return the shape of the matrix product of two float matrices or vectors; None if it is not defined."""
    a, b = left.meta, right.meta
    if a.dtype != b.dtype or a.dtype.kind != "f" or a.dtype.itemsize < 4:
        return None
    if a.ndim not in (1, 2) or b.ndim not in (1, 2) or not a.shape[-1] == b.shape[0] > 0:
        return None
    return a.shape[:-1] + b.shape[1:]


def is_float_product(hop: Hop) -> bool:
    """Return whether `hop` is a matrix product of float matrices or vectors with a non-empty sum."""
    return hop.op.name == "matmul" and product_shape(*hop.inputs) == hop.meta.shape


def transposed(hop: Hop) -> Hop:
    """Return the transpose of a matrix; two transposes cancel."""
    if hop.op.name == "transpose" and hop.attr("axes") == SWAP:
        return hop.inputs[0]
    return make("transpose", (hop,), hop.line, axes=SWAP)


# --------------------------------------------------------------------------- conditions of rules


def x_is_bool(root: Hop, b: Bindings) -> bool:
    """X is boolean."""
    return bool(b["X"].meta.dtype.kind == "b")


def x_is_real(root: Hop, b: Bindings) -> bool:
    """X is not complex."""
    return bool(b["X"].meta.dtype.kind in "biuf")


def x_is_signed(root: Hop, b: Bindings) -> bool:
    """X has a dtype with negative numbers."""
    return bool(b["X"].meta.dtype.kind in "ifc")


def x_is_float(root: Hop, b: Bindings) -> bool:
    """X holds floats."""
    return bool(b["X"].meta.dtype.kind == "f")


def x_is_int_or_float(root: Hop, b: Bindings) -> bool:
    """X holds integers or floats."""
    return bool(b["X"].meta.dtype.kind in "iuf")


def x_has_no_signalling_nan(root: Hop, b: Bindings) -> bool:
    """X has no signalling NaN: it is computed, or holds integers."""
    return not may_hold_signalling_nan(b["X"])


def x_is_int(root: Hop, b: Bindings) -> bool:
    """X holds integers, not bools."""
    return bool(b["X"].meta.dtype.kind in "iu")


def x_is_real_in_result_shape(root: Hop, b: Bindings) -> bool:
    """X is not complex and has the shape of the result."""
    return x_is_real(root, b) and x_has_result_shape(root, b)


def x_is_float_in_result_shape(root: Hop, b: Bindings) -> bool:
    """X holds floats and has the shape of the result."""
    return x_is_float(root, b) and x_has_result_shape(root, b)


def same_float_dtype_and_shape(root: Hop, b: Bindings) -> bool:
    """X and Y hold floats of the same dtype, and X has the shape of the result."""
    return x_is_float_in_result_shape(root, b) and same_dtype(root, b)


def same_dtype(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype."""
    return bool(b["X"].meta.dtype == b["Y"].meta.dtype)


def same_dtype_and_shape(root: Hop, b: Bindings) -> bool:
    """X and Y have the same dtype, and X has the shape of the result."""
    return same_dtype(root, b) and x_has_result_shape(root, b)


def x_is_non_negative(root: Hop, b: Bindings) -> bool:
    """The sign bit is clear in all elements of X."""
    return is_non_negative(b["X"])


def x_is_complex(root: Hop, b: Bindings) -> bool:
    """X holds complex numbers."""
    return bool(b["X"].meta.dtype.kind == "c")


def x_is_non_negative_float(root: Hop, b: Bindings) -> bool:
    """X holds floats whose sign bits are clear."""
    return x_is_float(root, b) and is_non_negative(b["X"])


def x_is_droppable(root: Hop, b: Bindings) -> bool:
    """Computing X raises no warning."""
    return is_droppable(b["X"])


def y_is_droppable(root: Hop, b: Bindings) -> bool:
    """Computing Y raises no warning, and X has the shape of the result."""
    return is_droppable(b["Y"]) and x_has_result_shape(root, b)


def x_is_integral(root: Hop, b: Bindings) -> bool:
    """X holds integers, or floats that were rounded to integers."""
    return x_is_int_or_bool(root, b) or b["X"].op.name in ROUNDING_OPS


def x_is_int_or_bool(root: Hop, b: Bindings) -> bool:
    """X has an integer or boolean dtype."""
    return bool(b["X"].meta.dtype.kind in "biu")


def cannot_be_nan(root: Hop, b: Bindings) -> bool:
    """Neither X nor Y can hold a NaN."""
    return all(b[v].meta.dtype.kind in "biu" for v in "XY")


def base_is_array(root: Hop, b: Bindings) -> bool:
    """X is an array of float32, float64 or integers: NumPy's array loops special-case the exponent.

    On scalars the ``**`` operator calls the C library instead.
    """
    return bool(b["X"].meta.ndim > 0 and b["X"].meta.dtype.char in "fdbBhHiIlLqQ")


def base_is_float_array(root: Hop, b: Bindings) -> bool:
    """X is an array of float32 or float64: NumPy's array loops special-case the exponent."""
    return base_is_array(root, b) and b["X"].meta.dtype.kind == "f"


def x_has_result_shape(root: Hop, b: Bindings) -> bool:
    """The result has the shape of X."""
    return bool(root.meta.shape == b["X"].meta.shape)


def multiply_by_reciprocal(root: Hop, b: Bindings) -> Hop:
    """Build X * (1/K)."""
    value = const_value(b["K"])
    one = value.dtype.type(1)
    return make("multiply", (b["X"], const(one / value, value.dtype)), root.line)


def reshape_x(root: Hop, b: Bindings) -> Hop:
    """Build X in the shape of the result."""
    return make("reshape", (b["X"],), root.line, shape=root.meta.shape)


def build_zeros(root: Hop, b: Bindings) -> Hop:
    """Build zero, or false, for every element."""
    return constant_like(root, 0)


def build_true(root: Hop, b: Bindings) -> Hop:
    """Build true for every element."""
    return constant_like(root, True)


def x_is_droppable_int(root: Hop, b: Bindings) -> bool:
    """X holds integers, and computing it raises no warning."""
    return x_is_int(root, b) and is_droppable(b["X"])


def is_order_insensitive(root: Hop, b: Bindings) -> bool:
    """The result does not depend on the order of the reduction."""
    dtype = root.meta.dtype  # complex extremes: with several partial NaNs, the order selects one
    return root.op.name in ORDER_INSENSITIVE and dtype.kind != "c" or has_associative_sum(dtype)
