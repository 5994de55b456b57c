"""Operator specifications (`OpSpec`), the registry of all operators, and the `ScalarBuilder` protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.hops.meta import Meta

Attrs = Mapping[str, Any]


class Kind(Enum):
    """How an operator relates input and output elements."""

    LEAF = "leaf"  # a value from outside: argument, scalar, constant
    CELL = "cell"  # element-wise with broadcasting
    AGG = "agg"  # reduces over axes
    TAKE = "take"  # gather: element-wise in its second operand, the positions in a table
    TALLY = "tally"  # scatter-add: sums of the second operand by the labels in the first
    CALL = "call"  # everything else: products, reorganisations, indexing, ranges


class Zeros(Enum):
    """When an output element is zero, given the input elements at the same position."""

    ANY = "any"  # if one input is zero (finite operands)
    ALL = "all"  # if all inputs are zero
    NONE = "none"  # no guarantee


class ZeroSafety(Enum):
    """Condition on the other operands under which a zero (of either sign) in one operand gives zero."""

    ALWAYS = "always"  # no condition
    FINITE = "finite"  # neither infinite nor NaN
    NONZERO = "nonzero"  # neither 0 nor NaN
    NEVER = "never"  # no general condition; single values may still do


class ScalarBuilder(Protocol):
    """Verbs that a cell recipe may use; values have a `.dtype`, and the operands of one verb share it.

    `cast` follows ``astype(casting="unsafe")``, never to bool from another dtype (recipes write
    that as `ne`). Comparisons return bool. `select` takes a bool first, then any dtype, bool included.
    Only `and_ or_ xor not_`, `select` and `cast` from bool take bools.
    `floordiv`/`rem` follow NumPy's floor semantics (ints: 0 for a zero divisor; floats:
    npy_divmod); `fmod` has C's sign. `minimum`/`maximum` propagate NaN, `fmin`/`fmax` ignore it;
    either of two zeros may be returned. `copysign` may get a constant first.
    `math(name, *xs)` is a transcendental by its name in the table. Integer arithmetic wraps, also `neg`
    and `abs` of the least integer; `and_ or_ xor not_` of integers are bitwise;
    shifts by at least the width give 0 (or the sign, for `shr` of negative values).
    Complex values come from `pair` and from operands; only `real` and `imag` take them.
    `muladd` is x * y + z of floats, rounded once where NumPy's complex loops do so on this processor,
    else twice. `flag` raises a floating-point flag ("invalid", "divide" or "overflow") if the
    bool `c` holds anywhere, for flags that NumPy's loops raise beyond those of their arithmetic.
    """

    def const(self, value: Any, dtype: np.dtype) -> Any: ...
    def cast(self, x: Any, dtype: np.dtype) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def sub(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any: ...
    def div(self, x: Any, y: Any) -> Any: ...
    def floordiv(self, x: Any, y: Any) -> Any: ...
    def rem(self, x: Any, y: Any) -> Any: ...
    def fmod(self, x: Any, y: Any) -> Any: ...
    def neg(self, x: Any) -> Any: ...
    def abs(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def floor(self, x: Any) -> Any: ...
    def ceil(self, x: Any) -> Any: ...
    def trunc(self, x: Any) -> Any: ...
    def rint(self, x: Any) -> Any: ...
    def copysign(self, x: Any, y: Any) -> Any: ...
    def minimum(self, x: Any, y: Any) -> Any: ...
    def maximum(self, x: Any, y: Any) -> Any: ...
    def fmin(self, x: Any, y: Any) -> Any: ...
    def fmax(self, x: Any, y: Any) -> Any: ...
    def eq(self, x: Any, y: Any) -> Any: ...
    def ne(self, x: Any, y: Any) -> Any: ...
    def lt(self, x: Any, y: Any) -> Any: ...
    def le(self, x: Any, y: Any) -> Any: ...
    def gt(self, x: Any, y: Any) -> Any: ...
    def ge(self, x: Any, y: Any) -> Any: ...
    def and_(self, x: Any, y: Any) -> Any: ...
    def or_(self, x: Any, y: Any) -> Any: ...
    def xor(self, x: Any, y: Any) -> Any: ...
    def not_(self, x: Any) -> Any: ...
    def shl(self, x: Any, y: Any) -> Any: ...
    def shr(self, x: Any, y: Any) -> Any: ...
    def select(self, c: Any, x: Any, y: Any) -> Any: ...
    def real(self, x: Any) -> Any: ...
    def imag(self, x: Any) -> Any: ...
    def pair(self, re: Any, im: Any) -> Any: ...
    def muladd(self, x: Any, y: Any, z: Any) -> Any: ...
    def flag(self, kind: str, c: Any) -> None: ...
    def math(self, name: str, *xs: Any) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class OpSpec:
    """The specification of one operator: semantics, type rules, recipe and cost.

    `ref(*arrays, **attrs)` is the NumPy semantics; results of shape () are NumPy scalars.
    `meta(metas, attrs)` infers the metadata of the result.
    `resolve(dtypes, attrs)` returns the dtypes that the inputs are cast to; weak Python scalars appear
    as the types bool/int/float/complex. `numpy` are the callables that the entry stands for.

    `emit(builder, *values, attrs)` is the recipe (cells only), `attrs` being a mapping passed last.
    `emit` None: never in a kernel. A recipe that *returns* None is not expressible for these
    operand dtypes; it decides so from `value.dtype` before it touches the builder.
    `zeros` assumes finite operands. `safe` says for every operand of a cell whether positions where it
    is 0 may be skipped, and under which condition on the others.
    `flops` counts operations per output element if there is no recipe; a function
    ``(metas, attrs) -> float`` gives the total instead.
    """

    name: str
    kind: Kind
    arity: int | None
    ref: Callable[..., Any]
    meta: Callable[[tuple[Meta, ...], Attrs], Meta]
    resolve: Callable[[tuple[Any, ...], Attrs], tuple[np.dtype, ...]]
    doc: str
    numpy: tuple[Any, ...] = ()
    emit: Callable[..., Any] | None = None
    zeros: Zeros = Zeros.NONE
    safe: tuple[ZeroSafety, ...] = ()
    commutes: bool = False
    transcendental: bool = False
    flops: float | Callable[[tuple[Meta, ...], Attrs], float] = 1.0

    def commutes_in(self, dtype: np.dtype) -> bool:
        """Return whether operands may be swapped in a result of `dtype`.

        Not in complex products: which of two terms is rounded depends on the order.
        """
        return self.commutes and not (dtype.kind == "c" and self.name == "multiply")


_BY_NAME: dict[str, OpSpec] = {}
_BY_NUMPY: dict[Any, OpSpec] = {}


def register(spec: OpSpec) -> OpSpec:
    """Add `spec` to the op table; names and NumPy callables are unique.

    An equal declaration replaces the previous one: a table whose import failed is imported again.
    """
    if spec.kind is Kind.CELL and not spec.safe:
        spec = replace(spec, safe=_default_zero_safety(spec.zeros, spec.arity or 0))
    previous = _BY_NAME.get(spec.name)
    if previous is not None and _identity(previous) != _identity(spec):
        raise InternalError(f"op table: {spec.name!r} is declared twice")
    _BY_NAME[spec.name] = spec
    for fn in spec.numpy:
        _BY_NUMPY[fn] = spec
    return spec


def _identity(spec: OpSpec) -> tuple[Any, ...]:
    """Return the fields that identify a declaration: equal for two declarations of one operator only."""
    return spec.kind, spec.arity, spec.doc


def _default_zero_safety(zeros: Zeros, arity: int) -> tuple[ZeroSafety, ...]:
    """Return the safety that follows from `zeros`: none needed for unary operators, else finite operands."""
    if arity == 1:
        return (ZeroSafety.NEVER if zeros is Zeros.NONE else ZeroSafety.ALWAYS,)
    return (ZeroSafety.FINITE if zeros is Zeros.ANY else ZeroSafety.NEVER,) * arity


def lookup(name: str) -> OpSpec:
    """Return the entry called `name`."""
    return _BY_NAME[name]


def by_numpy(fn: Any) -> OpSpec | None:
    """Return the entry of the NumPy callable `fn`, or None."""
    return _BY_NUMPY.get(fn)


def all_ops() -> tuple[OpSpec, ...]:
    """Return all entries, in table order."""
    return tuple(_BY_NAME.values())
