"""Op table: element-wise operators, SciPy's special functions, and ufuncs of users."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from jitla.concurrency import relock
from jitla.errors import InternalError
from jitla.hops import ops_complex as parts
from jitla.hops.meta import Meta, broadcast
from jitla.hops.opspec import Attrs, Kind, OpSpec, Safe, ScalarBuilder, Zeros, by_numpy, register
from jitla.hops.sparsity import bounded, of_cell

Recipe = Callable[..., Any]
Dtypes = tuple[Any, ...]

BOOL = np.dtype(np.bool_)
ANY, ALL, NONE = Zeros.ANY, Zeros.ALL, Zeros.NONE
ALWAYS, NONZERO, NEVER = Safe.ALWAYS, Safe.NONZERO, Safe.NEVER

# --------------------------------------------------------------------------- dtypes and metas


def strong(dtype: Any) -> Any:
    """Return `dtype` as NumPy's promotion takes it: a Python bool is no weak scalar."""
    return BOOL if dtype is bool else dtype


@lru_cache(maxsize=4096)
def loop(ufunc: np.ufunc, dtypes: Dtypes) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """Return the dtypes that the loop NumPy picks for `dtypes` reads, and the one it writes."""
    *ins, out = ufunc.resolve_dtypes((*map(strong, dtypes), None))
    return tuple(ins), out


_EXAMPLE = {bool: True, int: 0, float: 0.0, complex: 0j}


@lru_cache(maxsize=4096)
def common_dtype(dtypes: Dtypes) -> np.dtype:
    """Return ``np.result_type`` of dtypes and weak Python scalar types."""
    return np.result_type(*(_EXAMPLE[d] if isinstance(d, type) else d for d in dtypes))


def cell_meta(metas: tuple[Meta, ...], dtype: np.dtype, zeros: Zeros) -> Meta:
    """Return the meta of an element-wise result: broadcast shape, nonzeros by `zeros`."""
    shape = broadcast(tuple([m.shape for m in metas]))
    bound = of_cell(zeros)(metas, shape, {}) if any(m.nnz is not None for m in metas) else None
    return bounded(Meta(shape, dtype), bound)


# --------------------------------------------------------------------------- constructors


def _portable(recipe: Recipe | None, on_complex: Recipe | None) -> Recipe | None:
    """Limit `recipe` to bool, integer and real operands, `on_complex` to those with two parts.

    For the rest it is not expressible; nor are parts that no recipe casts to, of long doubles.
    """
    if recipe is None:
        return None

    def emit(builder: ScalarBuilder, *args: Any) -> Any:
        *values, attrs = args
        if all(v.dtype.kind in "biuf" for v in values):
            return recipe(builder, *values)
        if on_complex is None or any(v.dtype.char not in "?FD" for v in values):
            return None
        return on_complex(builder, *values)

    return emit


def cell(
    ufunc: np.ufunc, emit: Recipe | None, doc: str, zeros: Zeros = NONE, *, commutes: bool = False,
    transcendental: bool = False, flops: float = 1.0, also: tuple[Any, ...] = (), name: str = "",
    on_complex: Recipe | None = None, safe: tuple[Safe, ...] = (),
) -> OpSpec:
    """Declare the operator that NumPy's `ufunc` is; `also` are other callables that mean it.

    `emit` is the recipe for reals, `on_complex` the one for complex operands. `safe` is given where it
    is not what `zeros` says.
    """

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        dtypes = tuple([m.dtype for m in metas])
        ins, out = loop(ufunc, dtypes)
        if ins != dtypes:
            raise InternalError(f"{ufunc.__name__}: operands {dtypes} are not cast to {ins}")
        return cell_meta(metas, out, zeros)

    return register(OpSpec(
        name=name or ufunc.__name__, kind=Kind.CELL, arity=ufunc.nin, ref=ufunc, meta=meta,
        resolve=lambda dtypes, attrs: loop(ufunc, dtypes)[0], doc=doc, numpy=(ufunc, *also),
        emit=_portable(emit, on_complex), zeros=zeros, commutes=commutes, transcendental=transcendental,
        flops=flops, safe=safe,
    ))


# A zero dividend; a zero in the first operand, or in any, whatever the others are.
_DIVIDEND, _FIRST, _EITHER = (NONZERO, NEVER), (ALWAYS, NEVER), (ALWAYS, ALWAYS)


def _math(name: str) -> Recipe:
    return lambda b, *xs: b.math(name, *xs)


def _verb(name: str) -> Recipe:
    return lambda b, *xs: getattr(b, name)(*xs)


def _by_kind(**recipes: Recipe) -> Recipe:
    """Choose the recipe by the first operand: `b` bool, `i` integers, `f` float; absent = none."""

    def emit(b: ScalarBuilder, x: Any, *rest: Any) -> Any:
        recipe = recipes.get("i" if x.dtype.kind == "u" else x.dtype.kind)
        return None if recipe is None else recipe(b, x, *rest)

    return emit


def _or_bool(verb: str, on_bool: Recipe) -> Recipe:
    """`verb` for numbers, `on_bool` for bools."""
    return _by_kind(b=on_bool, i=_verb(verb), f=_verb(verb))


def _same(b: ScalarBuilder, x: Any) -> Any:
    return x


_AND, _OR, _XOR, _NOT = _verb("and_"), _verb("or_"), _verb("xor"), _verb("not_")

# --------------------------------------------------------------------------- arithmetic


def _sign(b: ScalarBuilder, x: Any) -> Any:
    """NaN stays NaN, -0.0 gives 0.0."""
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    positive = b.gt(x, zero)
    if x.dtype.kind == "u":
        return b.select(positive, one, zero)
    below = b.select(b.lt(x, zero), b.const(-1, x.dtype), zero)
    if x.dtype.kind == "f":
        below = b.select(b.ne(x, x), x, below)
    return b.select(positive, one, below)


def _square(b: ScalarBuilder, x: Any) -> Any:
    return b.mul(x, x)


def _scaled(factor: Callable[[Any], Any]) -> Recipe:
    """Multiply by a constant that NumPy computes in the operand's precision (not for float16)."""

    def emit(b: ScalarBuilder, x: Any) -> Any:
        if x.dtype.itemsize < 4:
            return None
        return b.mul(x, b.const(factor(x.dtype.type), x.dtype))

    return emit


def _heaviside(b: ScalarBuilder, x: Any, at_zero: Any) -> Any:
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    known = b.select(b.gt(x, zero), one, b.select(b.lt(x, zero), zero, x))
    return b.select(b.eq(x, zero), at_zero, known)


cell(np.add, _or_bool("add", _OR), "sum; `or` of bools", ALL, commutes=True,
     on_complex=parts.by_part("add"))
cell(np.subtract, _verb("sub"), "difference", ALL, on_complex=parts.by_part("sub"))
cell(np.multiply, _or_bool("mul", _AND), "product; `and` of bools", ANY, commutes=True,
     on_complex=parts.multiply)
cell(np.divide, _verb("div"), "true quotient", on_complex=parts.divide, safe=_DIVIDEND)
cell(np.floor_divide, _verb("floordiv"), "quotient rounded down", safe=_DIVIDEND)
cell(np.remainder, _verb("rem"), "remainder with the divisor's sign", safe=_DIVIDEND)
cell(np.fmod, _verb("fmod"), "remainder with the dividend's sign", safe=_DIVIDEND)
cell(np.power, _by_kind(f=_math("power")), "x to the power y; integers are left to NumPy",
     transcendental=True, flops=145)
cell(np.float_power, _math("float_power"), "power in at least float64",
     transcendental=True, flops=145)
cell(np.negative, _verb("neg"), "-x", ANY, on_complex=parts.by_part("neg"))
cell(np.positive, _same, "+x", ANY, on_complex=_same)
cell(np.absolute, _or_bool("abs", _same), "magnitude; of the least integer: itself", ANY,
     on_complex=parts.absolute)
cell(np.fabs, _verb("abs"), "magnitude, in floating point", ANY)
cell(np.sqrt, _verb("sqrt"), "square root", ANY)
cell(np.square, _square, "x * x", ANY, on_complex=parts.square)
cell(np.reciprocal, _by_kind(f=lambda b, x: b.div(b.const(1, x.dtype), x)),
     "1 / x in the dtype of x; integers are left to NumPy", on_complex=parts.reciprocal)
cell(np.sign, _sign, "-1, 0 or 1", ANY)
cell(np.copysign, _verb("copysign"), "magnitude of x, sign of y", ALL, safe=_FIRST)
# NumPy warns of each by its name.
cell(np.deg2rad, _scaled(lambda t: t(np.pi) / t(180)), "degrees to radians", ANY)
cell(np.radians, _scaled(lambda t: t(np.pi) / t(180)), "degrees to radians", ANY)
cell(np.rad2deg, _scaled(lambda t: t(180) / t(np.pi)), "radians to degrees", ANY)
cell(np.degrees, _scaled(lambda t: t(180) / t(np.pi)), "radians to degrees", ANY)
cell(np.heaviside, _heaviside, "0, y or 1 for negative, zero or positive x", ALL)
cell(np.gcd, None, "greatest common divisor", ALL, commutes=True, flops=150)
cell(np.lcm, None, "least common multiple", ANY, commutes=True, flops=200, safe=_EITHER)
cell(np.conjugate, _same, "complex conjugate", ANY, on_complex=parts.conjugate)
cell(np.nextafter, None, "next float from x towards y", ALL, flops=130)
cell(np.spacing, None, "distance to the next float", flops=100)
cell(np.ldexp, None, "x * 2**n", ALL, flops=60, safe=_FIRST)

# --------------------------------------------------------------------------- rounding


def _rounding(ufunc: np.ufunc, doc: str) -> OpSpec:
    """Declare a function that is one verb on floats and leaves integers alone."""
    return cell(ufunc, _by_kind(b=_same, i=_same, f=_verb(ufunc.__name__)), doc, ANY)


_rounding(np.floor, "round down")
_rounding(np.ceil, "round up")
_rounding(np.trunc, "round towards zero")
_rounding(np.rint, "round half to even")

# --------------------------------------------------------------------------- transcendental


def transcendental(ufunc: np.ufunc, flops: float, doc: str, zeros: Zeros = NONE) -> OpSpec:
    """Declare a function that is one `math` verb and takes as long as `flops` additions."""
    return cell(ufunc, _math(ufunc.__name__), doc, zeros, transcendental=True, flops=flops)


transcendental(np.exp, 38, "e**x")
transcendental(np.exp2, 38, "2**x")
transcendental(np.expm1, 44, "e**x - 1", ANY)
transcendental(np.log, 47, "natural logarithm")
transcendental(np.log2, 53, "logarithm to base 2")
transcendental(np.log10, 60, "logarithm to base 10")
transcendental(np.log1p, 57, "log(1 + x)", ANY)
transcendental(np.cbrt, 48, "cube root", ANY)
transcendental(np.sin, 46, "sine", ANY)
transcendental(np.cos, 46, "cosine")
transcendental(np.tan, 84, "tangent", ANY)
transcendental(np.arcsin, 40, "inverse sine", ANY)
transcendental(np.arccos, 40, "inverse cosine")
transcendental(np.arctan, 46, "inverse tangent", ANY)
transcendental(np.sinh, 52, "hyperbolic sine", ANY)
transcendental(np.cosh, 50, "hyperbolic cosine")
transcendental(np.tanh, 48, "hyperbolic tangent", ANY)
transcendental(np.arcsinh, 97, "inverse hyperbolic sine", ANY)
transcendental(np.arccosh, 110, "inverse hyperbolic cosine")
transcendental(np.arctanh, 57, "inverse hyperbolic tangent", ANY)
transcendental(np.arctan2, 54, "angle of the point (y, x)")
transcendental(np.hypot, 40, "length of the vector (x, y)", ALL)
transcendental(np.logaddexp, 84, "log(e**x + e**y)")
transcendental(np.logaddexp2, 90, "log2(2**x + 2**y)")

# --------------------------------------------------------------------------- comparisons


def _mixed(b: ScalarBuilder, verb: str, signed: Any, unsigned: Any) -> Any:
    """`signed <verb> unsigned`, exactly: a negative number is below every unsigned one."""
    negative = b.lt(signed, b.const(0, signed.dtype))
    plain = getattr(b, verb)(b.cast(signed, unsigned.dtype), unsigned)
    if verb in ("lt", "le", "ne"):
        return b.or_(negative, plain)
    return b.and_(b.not_(negative), plain)


_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def _compare(verb: str, on_bool: Recipe) -> Recipe:
    """Compare operands of one dtype, or int64 with uint64, for which NumPy has loops."""

    def emit(b: ScalarBuilder, x: Any, y: Any) -> Any:
        if x.dtype.kind == "b":
            return on_bool(b, x, y)
        if x.dtype == y.dtype:
            return getattr(b, verb)(x, y)
        return _mixed(b, verb, x, y) if x.dtype.kind == "i" else _mixed(b, _SWAPPED[verb], y, x)

    return emit


def _comparison(
    ufunc: np.ufunc, verb: str, on_bool: Recipe, doc: str, zeros: Zeros = NONE, *,
    commutes: bool = False, safe: tuple[Safe, ...] = (),
) -> OpSpec:
    """Declare a comparison: `verb` on numbers, logic on bools."""
    on_complex = {"eq": parts.equal, "ne": parts.not_equal}.get(verb) or parts.comparison(verb)
    return cell(ufunc, _compare(verb, on_bool), doc, zeros, commutes=commutes,
                on_complex=on_complex, safe=safe)


_comparison(np.equal, "eq", lambda b, x, y: b.not_(b.xor(x, y)), "x == y", commutes=True,
            safe=(NONZERO, NONZERO))
_comparison(np.not_equal, "ne", _XOR, "x != y", ALL, commutes=True)
_comparison(np.less, "lt", lambda b, x, y: b.and_(b.not_(x), y), "x < y", ALL)
_comparison(np.less_equal, "le", lambda b, x, y: b.or_(b.not_(x), y), "x <= y")
_comparison(np.greater, "gt", lambda b, x, y: b.and_(x, b.not_(y)), "x > y", ALL)
_comparison(np.greater_equal, "ge", lambda b, x, y: b.or_(x, b.not_(y)), "x >= y")

# --------------------------------------------------------------------------- selection
# Not declared commuting: which of two zeros wins, or which NaN, depends on the order.

cell(np.maximum, _or_bool("maximum", _OR), "larger of two; NaN wins", ALL,
     on_complex=parts.extreme("ge", nan_of=0))
cell(np.minimum, _or_bool("minimum", _AND), "smaller of two; NaN wins", ALL,
     on_complex=parts.extreme("le", nan_of=0))
cell(np.fmax, _or_bool("fmax", _OR), "larger of two; NaN loses", ALL,
     on_complex=parts.extreme("ge", nan_of=1))
cell(np.fmin, _or_bool("fmin", _AND), "smaller of two; NaN loses", ALL,
     on_complex=parts.extreme("le", nan_of=1))

_CLIP: np.ufunc = np._core.umath.clip  # type: ignore[attr-defined]


def _clip(b: ScalarBuilder, x: Any, low: Any, high: Any) -> Any:
    """The upper bound wins where the bounds cross; a NaN anywhere gives NaN.

    A zero that equals a bound keeps its sign, as with scalar bounds in NumPy.
    """
    if x.dtype.kind == "b":
        return b.and_(b.or_(x, low), high)
    raised = b.select(b.lt(x, low), low, x)
    inside = b.select(b.gt(raised, high), high, raised)
    if x.dtype.kind != "f":
        return inside
    inside = b.select(b.ne(low, low), low, inside)
    return b.select(b.ne(high, high), high, inside)


cell(_CLIP, _clip, "x limited to [low, high]", ALL, also=(np.clip,), name="clip")


def value(x: Any) -> Any:
    """Return a 0-d array as NumPy scalar, anything else as it is."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def _where_resolve(dtypes: Dtypes, attrs: Attrs) -> tuple[np.dtype, ...]:
    dtype = common_dtype(dtypes[1:])
    return BOOL, dtype, dtype


def _where_meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
    condition, x, y = metas
    if condition.dtype != BOOL or x.dtype != y.dtype:
        raise InternalError(f"where: operands {[m.dtype for m in metas]} are not cast")
    shape = broadcast((condition.shape, x.shape, y.shape))
    return bounded(Meta(shape, x.dtype), of_cell(ALL)((x, y), shape, attrs))


register(OpSpec(
    name="where", kind=Kind.CELL, arity=3, ref=lambda c, x, y: value(np.where(c, x, y)),
    meta=_where_meta, resolve=_where_resolve, doc="x where the condition holds, else y",
    numpy=(np.where,), emit=_portable(_verb("select"), parts.choose), zeros=ALL,
    safe=(NEVER, NONZERO, NEVER),
))


def _cast(b: ScalarBuilder, x: Any, attrs: Attrs) -> Any:
    dtype = np.dtype(attrs["dtype"])
    if x.dtype.char in "FD" and dtype == BOOL:
        return parts.truth(b, x)
    if dtype.char in "FD" and (x.dtype.kind in "biuf" or x.dtype.char in "FD"):
        return parts.convert(b, x, dtype)
    if x.dtype.kind not in "biuf" or dtype.kind not in "biuf":
        return None  # NumPy warns where the imaginary part is lost
    if dtype == BOOL and x.dtype != BOOL:
        return b.ne(x, b.const(0, x.dtype))
    return b.cast(x, dtype)


register(OpSpec(
    name="cast", kind=Kind.CELL, arity=1, ref=lambda x, dtype: value(np.asarray(x).astype(dtype)),
    meta=lambda metas, attrs: cell_meta(metas, np.dtype(attrs["dtype"]), ANY),
    resolve=lambda dtypes, attrs: tuple(map(np.dtype, dtypes)),
    doc="x in another dtype, as `astype` converts", emit=_cast, zeros=ANY,
))

# --------------------------------------------------------------------------- logic and bits


def _truth(b: ScalarBuilder, x: Any) -> Any:
    """NaN is true."""
    if x.dtype.kind == "c":
        return parts.truth(b, x)
    return x if x.dtype.kind == "b" else b.ne(x, b.const(0, x.dtype))


def _logical(recipe: Recipe) -> Recipe:
    return lambda b, *xs: recipe(b, *(_truth(b, x) for x in xs))


for _name, _recipe, _text, _zeros, _others in (
    ("and", _AND, "both are true", ANY, _EITHER), ("or", _OR, "one is true", ALL, ()),
    ("xor", _XOR, "exactly one is true", ALL, ()),
):
    cell(getattr(np, f"logical_{_name}"), _logical(_recipe), _text, _zeros, commutes=True,
         on_complex=_logical(_recipe), safe=_others)
cell(np.logical_not, _by_kind(b=_NOT, i=lambda b, x: b.eq(x, b.const(0, x.dtype)),
                              f=lambda b, x: b.eq(x, b.const(0, x.dtype))), "is false",
     on_complex=_logical(_NOT))
cell(np.bitwise_and, _AND, "bits set in both", ANY, commutes=True, safe=_EITHER)
cell(np.bitwise_or, _OR, "bits set in one", ALL, commutes=True)
cell(np.bitwise_xor, _XOR, "bits set in exactly one", ALL, commutes=True)
cell(np.bitwise_count, None, "number of set bits of the magnitude", ANY, flops=5)
cell(np.invert, _NOT, "all bits flipped")
cell(np.left_shift, _verb("shl"), "bits moved up; past the width all are lost", ALL, safe=_FIRST)
cell(np.right_shift, _verb("shr"), "bits moved down; past the width the sign remains", ALL,
     safe=_FIRST)

# --------------------------------------------------------------------------- float classes


def _never(b: ScalarBuilder, x: Any) -> Any:
    return b.xor(x, x) if x.dtype.kind == "b" else b.ne(x, x)


def _always(b: ScalarBuilder, x: Any) -> Any:
    return b.not_(b.xor(x, x)) if x.dtype.kind == "b" else b.eq(x, x)


def _against_inf(verb: str) -> Recipe:
    return lambda b, x: getattr(b, verb)(b.abs(x), b.const(np.inf, x.dtype))


def _signbit(b: ScalarBuilder, x: Any) -> Any:
    return b.lt(b.copysign(b.const(1, x.dtype), x), b.const(0, x.dtype))


cell(np.isnan, _by_kind(b=_never, i=_never, f=lambda b, x: b.ne(x, x)), "is NaN", ANY,
     on_complex=parts.isnan)
cell(np.isinf, _by_kind(b=_never, i=_never, f=_against_inf("eq")), "is infinite", ANY,
     on_complex=parts.either(_against_inf("eq")))
cell(np.isfinite, _by_kind(b=_always, i=_always, f=_against_inf("lt")),
     "is neither NaN nor infinite", on_complex=parts.both(_against_inf("lt")))
cell(np.signbit, _signbit, "has the sign bit set")

# --------------------------------------------------------------------------- complex parts


def _fresh(x: Any) -> Any:
    """Copy `x` in the order in which a ufunc allocates its result."""
    return np.logical_or(x, x) if x.dtype == BOOL else np.positive(x)


def _part(name: str, on_real: Recipe, on_complex: Recipe, doc: str) -> OpSpec:
    """Declare a part of complex numbers, as a value of its own and not as a view."""

    def ref(x: Any) -> Any:
        return _fresh(getattr(x, name))

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        given = metas[0].dtype
        return cell_meta(metas, given.type(0).real.dtype, ANY)

    return register(OpSpec(
        name=name, kind=Kind.CELL, arity=1, ref=ref, meta=meta, doc=doc, zeros=ANY,
        resolve=lambda dtypes, attrs: tuple(map(np.dtype, dtypes)),
        emit=_portable(on_real, on_complex),
    ))


_part("real", _same, parts.real, "the real part, copied")
_part("imag", lambda b, x: _never(b, x) if x.dtype.kind == "b" else b.const(0, x.dtype), parts.imag,
      "the imaginary part, copied; 0 of reals")


_ANY, _NONE = Zeros.ANY, Zeros.NONE
# name -> operations of an element, meaning, when it is zero
_KNOWN: dict[str, tuple[float, str, Zeros]] = {
    "erf": (88, "error function", _ANY),
    "erfc": (96, "1 - erf(x)", _NONE),
    "ndtr": (104, "cumulative distribution of the standard normal", _NONE),
    "expit": (44, "1 / (1 + e**-x)", _NONE),
    "log_expit": (79, "log(expit(x))", _NONE),
    "logit": (50, "log(x / (1 - x))", _NONE),
    "xlogy": (50, "x * log(y), 0 where x is 0", _NONE),
    "xlog1py": (60, "x * log(1 + y), 0 where x is 0", _NONE),
}
_lock = relock()


def adopt(fn: np.ufunc) -> OpSpec | None:
    """Return the entry of SciPy's ufunc `fn`, made when it is met first; None if there is none."""
    known = _KNOWN.get(fn.__name__)
    if known is None:
        return None
    if getattr(sys.modules.get("scipy.special"), fn.__name__, None) is not fn:
        return None
    flops, doc, zeros = known
    with _lock:
        found = by_numpy(fn)
        return transcendental(fn, flops, doc, zeros) if found is None else found


_entered: dict[str, OpSpec] = {}


class Step(NamedTuple):
    """A verb of `ScalarBuilder` or ``arg``; operands as numbers of steps; the dtype it makes, a constant."""

    verb: str
    operands: tuple[int, ...]
    dtype: np.dtype
    value: Any = None


class Body(NamedTuple):
    """What a function computes: the step that it returns, and that whose truth raises `invalid` (or -1)."""

    steps: tuple[Step, ...]
    result: int
    odd: int = -1

    @property
    def approximate(self) -> bool:
        """Say whether kernels have other functions than its compiler, which round in other ways."""
        return any(step.verb == "math" for step in self.steps)

    def emit(self, b: ScalarBuilder, *args: Any) -> Any:
        """Write it as a recipe."""
        made: list[Any] = []
        for verb, operands, dtype, value in self.steps:
            given = [made[k] for k in operands]
            match verb:
                case "arg":
                    made.append(args[value])
                case "const":
                    made.append(b.const(value, dtype))
                case "cast":
                    made.append(b.cast(given[0], dtype))
                case "math":
                    made.append(b.math(value, *given))
                case _:
                    made.append(getattr(b, verb)(*given))
        if self.odd >= 0:
            b.flag("invalid", made[self.odd])
        return made[self.result]


class Compiled:
    """A user's function, called as NumPy calls a ufunc; `alarms`: kernels of it that raised flags."""

    def __init__(self, function: Callable[..., Any], name: str, approximate: bool) -> None:
        self.function = function
        self.__name__ = name
        self.approximate = approximate
        self.alarms = 0

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def approximate(op: OpSpec) -> bool:
    """Say whether a kernel that does `op` may have other last bits than its reference."""
    return op.transcendental or isinstance(op.ref, Compiled) and op.ref.approximate


def enter(
    function: Callable[..., Any], name: str, ins: tuple[np.dtype, ...], out: np.dtype, body: Body,
) -> OpSpec:
    """Return the entry of a function that computes `body`; two of a name that do the same have one."""
    said = sha256(repr((ins, out, body)).encode()).hexdigest()[:12]
    known = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{said}"

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        return cell_meta(metas, out, Zeros.NONE)

    with _lock:
        if known not in _entered:
            made = Compiled(function, name, body.approximate)
            _entered[known] = register(OpSpec(
                name=known, kind=Kind.CELL, arity=len(ins), ref=made, meta=meta,
                resolve=lambda dtypes, attrs: ins, doc=f"{name}, which the user has compiled",
                numpy=(made,), emit=body.emit))
        return _entered[known]
