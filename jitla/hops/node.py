"""Nodes of the operator DAG: hops, the metadata of their values, and the specifications of their operators.

`Meta` is the shape, dtype and bound on nonzeros of a value, `OpSpec` the specification of an operator, in a
registry of all, with recipes in the verbs of a `ScalarBuilder`. A `Hop` is an interned node with operator,
inputs, attributes and metadata; the functions below it make, traverse and slice DAGs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np

from jitla.classes import dataclass
from jitla.concurrency import fork_safe_lock
from jitla.errors import InternalError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Meta:
    """The metadata of an array: `shape`, `dtype`, and `nnz`.

    `nnz` is an upper bound on the number of nonzeros, valid if no operand was infinite or NaN; None means no
    bound. Expected numbers are estimated in `sparsity`.
    """

    shape: Shape
    dtype: np.dtype
    nnz: int | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array with this meta."""
        return self.size * self.dtype.itemsize


def broadcast(shapes: tuple[Shape, ...]) -> Shape:
    """Return the shape that `shapes` broadcast to; raise NumPy's ufunc error if they do not."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    out = [1] * max(map(len, shapes))
    for shape in shapes:
        for i, n in enumerate(shape, len(out) - len(shape)):
            if n != 1:
                if out[i] not in (1, n):
                    raise ValueError(_MISMATCH.format(" ".join(map(_format_shape, shapes))))
                out[i] = n
    return tuple(out)


_MISMATCH = "operands could not be broadcast together with shapes {} "


def _format_shape(shape: Shape) -> str:
    """Format a shape as NumPy's messages do: without spaces."""
    return str(shape).replace(" ", "")


def reduced_shape(shape: Shape, axis: tuple[int, ...], keepdims: bool) -> Shape:
    """Return the shape after reducing over `axis` (sorted, non-negative)."""
    if keepdims:
        return tuple(1 if i in axis else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axis)


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


class Hop:
    """A high-level operator: `op`, `inputs`, `attrs` (sorted pairs), `meta`; `line` is the source line.

    Equality is identity: `make` interns nodes (hash consing), so equal expressions are one node,
    whatever their `line`.
    """

    __slots__ = ("op", "inputs", "attrs", "meta", "line", "__weakref__")

    def __init__(
        self, op: OpSpec, inputs: tuple[Hop, ...], attrs: tuple[tuple[str, Any], ...],
        meta: Meta, line: Any,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.meta = meta
        self.line = line

    def attr(self, name: str) -> Any:
        """Return the value of attribute `name`."""
        return dict(self.attrs)[name]

    def __repr__(self) -> str:
        return f"<hop {self.op.name} {self.meta.shape} {self.meta.dtype}>"


@dataclass(frozen=True, slots=True)
class WeakScalar:
    """A Python scalar at leaf position `slot`; `kind` is one of bool, int, float, complex.

    If `value` is set, it is that constant, independent of the slot.
    """

    slot: int
    kind: type
    value: Any = None


_POOL: WeakValueDictionary[tuple[Any, ...], Hop] = WeakValueDictionary()
# Reentrant: garbage collection under the lock may run finalizers that make hops.
_LOCK = fork_safe_lock()


def _intern(
    op: OpSpec, inputs: tuple[Hop, ...], attrs: tuple[tuple[str, Any], ...], meta: Meta, line: Any,
) -> Hop:
    # True, 1 and 1.0 are equal, and 0.0 equals -0.0, but as attributes they differ.
    exact = tuple([(k, type(v), v.hex() if type(v) is float else v) for k, v in attrs])
    key = (op.name, tuple(map(id, inputs)), exact, meta if op.kind is Kind.LEAF else None)
    with _LOCK:
        hop = _POOL.get(key)
        if hop is None:
            hop = _POOL[key] = Hop(op, inputs, attrs, meta, line)
        return hop


def leaf(slot: int, meta: Meta, form: str = "array", line: Any = None) -> Hop:
    """Return the leaf at position `slot`.

    `form`: "array" (an ndarray), "scalar" (a NumPy scalar of exactly `meta.dtype`) or "weak"
    (a Python scalar, to be converted to `meta.dtype` before use).
    """
    return _intern(lookup("leaf"), (), (("form", form), ("slot", slot)), meta, line)


def const(value: Any, dtype: Any, line: Any = None) -> Hop:
    """Return the 0-d constant `value` of `dtype`; equal bits are one node (-0.0 is not 0.0)."""
    scalar = np.dtype(dtype).type(value)
    bits = scalar.tobytes()
    meta = Meta((), scalar.dtype, None if scalar else 0)
    return _intern(lookup("const"), (), (("bits", bits),), meta, line)


def const_value(hop: Hop) -> Any:
    """Return the NumPy scalar of a `const` hop."""
    return np.frombuffer(hop.attr("bits"), hop.meta.dtype)[0]


def make(name: str, inputs: Iterable[Hop], line: Any = None, **attrs: Any) -> Hop:
    """Return the node `name(*inputs, **attrs)`; inputs have the dtypes that the operator computes in."""
    op = lookup(name)
    args = tuple(inputs)
    if "dtype" in attrs:
        attrs["dtype"] = np.dtype(attrs["dtype"])
    meta = op.meta(tuple(h.meta for h in args), attrs)
    if op.commutes_in(meta.dtype) and len(args) == 2 and _operand_order(args[1]) < _operand_order(args[0]):
        args = (args[1], args[0])
    return _intern(op, args, tuple(sorted(attrs.items())), meta, line)


def _operand_order(hop: Hop) -> tuple[bool, bool, str, int]:
    """Return the sort key of operands of commutative operators: arrays before scalars, leaves by slot."""
    slot = hop.attr("slot") if hop.op.name == "leaf" else -1
    return (hop.meta.ndim == 0, hop.op.kind is not Kind.LEAF, hop.op.name, slot)


def apply(name: str, *operands: Hop | WeakScalar, line: Any = None, **attrs: Any) -> Hop:
    """Return `name(*operands, **attrs)` with NumPy's promotion: inputs are cast, weak scalars converted."""
    op = lookup(name)
    types = tuple([o.kind if isinstance(o, WeakScalar) else o.meta.dtype for o in operands])
    dtypes = op.resolve(types, attrs)
    inputs = [_cast_operand(o, d, line) for o, d in zip(operands, dtypes, strict=True)]
    return make(name, inputs, line, **attrs)


def _cast_operand(operand: Hop | WeakScalar, dtype: np.dtype, line: Any) -> Hop:
    if isinstance(operand, WeakScalar):
        if operand.value is not None:
            return const(operand.value, dtype, line)
        return leaf(operand.slot, Meta((), dtype), "weak", line)
    if operand.meta.dtype == dtype:
        return operand
    return make("cast", (operand,), line, dtype=dtype)


def topo(roots: Iterable[Hop]) -> list[Hop]:
    """Return every node below `roots`, inputs before users, in a deterministic order.

    Depth-first post-order with an explicit stack: DAGs may be deeper than the recursion limit.
    """
    order: list[Hop] = []
    visited: set[Hop] = set()
    stack: list[Hop | None] = list(roots)
    stack.reverse()
    while stack:
        hop = stack.pop()
        if hop is None:  # marker: the inputs of the next node on the stack are in `order`
            ordered = stack.pop()
            assert ordered is not None
            order.append(ordered)
        elif hop not in visited:
            visited.add(hop)
            if hop.inputs:
                stack += (hop, None, *hop.inputs[::-1])
            else:
                order.append(hop)
    return order


def uses(roots: Iterable[Hop]) -> dict[Hop, list[Hop]]:
    """Return a map from each node to its users, with one entry per use."""
    users: dict[Hop, list[Hop]] = {}
    for hop in topo(roots):
        users.setdefault(hop, [])
        for i in hop.inputs:
            users[i].append(hop)
    return users


def substitute(roots: Iterable[Hop], replace: Mapping[Hop, Hop]) -> tuple[Hop, ...]:
    """Rebuild `roots` with the nodes in `replace` exchanged; metadata is inferred again."""
    roots = tuple(roots)
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        if hop in replace:
            new[hop] = replace[hop]
        elif all(new[i] is i for i in hop.inputs):
            new[hop] = hop
        else:
            inputs = [new[i] for i in hop.inputs]
            new[hop] = make(hop.op.name, inputs, hop.line, **dict(hop.attrs))
    return tuple(new[r] for r in roots)


def verify(roots: Iterable[Hop], stage: str = "hops") -> None:
    """Raise `InternalError`, naming `stage`, unless every node's metadata equals the inferred one."""
    for hop in topo(roots):
        if hop.op.kind is Kind.LEAF:
            continue
        inferred = hop.op.meta(tuple([i.meta for i in hop.inputs]), dict(hop.attrs))
        if inferred != hop.meta:
            raise InternalError(f"{stage}: {hop!r} should have {inferred}")


#: For every axis, the number of elements dropped at the front and at the back.
Margins = tuple[tuple[int, int], ...]

MAX_MARGIN = 8  # elements


class Section(NamedTuple):
    """A constant slice of one axis: every `step`-th element, without `first` and `end` ones at the ends."""

    first: int
    end: int
    step: int

    def then(self, other: Section) -> Section:
        """Return the composition: `other` applied to the elements of this section."""
        return Section(self.first + self.step * other.first, self.end + self.step * other.end,
                       self.step * other.step)

    @property
    def item(self) -> tuple[str, int | None, int | None, int | None]:
        """The equivalent item of an `index` attribute."""
        return "s", self.first or None, -self.end or None, self.step if self.step > 1 else None


WHOLE_AXIS = Section(0, 0, 1)


def sections_of_index(index: Iterable[tuple[Any, ...]]) -> list[Section] | None:
    """Return the sections of an index of slices, relative to the ends of axes; None for any other index."""
    result = []
    for item in index:
        if item[0] != "s" or (step := 1 if item[3] is None else item[3]) < 1:
            return None
        first, end = item[1] or 0, item[2] or 0
        if first < 0 or end > 0 or item[2] == 0:
            return None
        result.append(Section(first, -end, step))
    return result


def sections(view: Hop) -> tuple[Section, ...] | None:
    """Return the section of every axis that the slice `view` takes; None if it is no narrow slice."""
    if view.op.name != "getitem" or 0 in view.meta.shape:
        return None
    result = sections_of_index(view.attr("index"))
    if result is None or any(max(s) > MAX_MARGIN for s in result):
        return None
    return (*result, *[WHOLE_AXIS] * (view.inputs[0].meta.ndim - len(result)))


def margins(view: Hop) -> Margins | None:
    """Return the elements that the slice `view` drops at the ends of every axis; None for other hops."""
    slices = sections(view)
    if slices is None or any(s.step != 1 for s in slices):
        return None
    return tuple((s.first, s.end) for s in slices)
