"""Hop, the interned node of the operator DAG; DAG traversal; constant slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from jitla.classes import dataclass
from jitla.concurrency import fork_safe_lock
from jitla.errors import InternalError
from jitla.hops.meta import Meta
from jitla.hops.opspec import Kind, OpSpec, lookup


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
