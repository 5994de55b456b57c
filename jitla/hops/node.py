"""The hop: a node of the operator DAG, interned; walks over DAGs, and constant slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from jitla.classes import dataclass
from jitla.concurrency import relock
from jitla.errors import InternalError
from jitla.hops.meta import Meta
from jitla.hops.opspec import Kind, OpSpec, lookup


class Hop:
    """A high-level operator: `op`, `inputs`, `attrs` (sorted pairs), `meta`; `line` is the user's.

    Equality is identity: `make` interns, so equal expressions are one node, whatever their `line`.
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
        """Value of attribute `name`."""
        return dict(self.attrs)[name]

    def __repr__(self) -> str:
        return f"<hop {self.op.name} {self.meta.shape} {self.meta.dtype}>"


@dataclass(frozen=True, slots=True)
class Weak:
    """A Python scalar at leaf position `slot`; `kind` is one of bool, int, float, complex.

    With a `value` it is that number, whatever lies there.
    """

    slot: int
    kind: type
    value: Any = None


_POOL: WeakValueDictionary[tuple[Any, ...], Hop] = WeakValueDictionary()
# Reentrant: collecting garbage inside may run code that makes hops.
_LOCK = relock()


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
    """Return the value at leaf position `slot`.

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
    """Return the node `name(*inputs, **attrs)`; inputs have the dtypes the op computes in."""
    op = lookup(name)
    args = tuple(inputs)
    if "dtype" in attrs:
        attrs["dtype"] = np.dtype(attrs["dtype"])
    meta = op.meta(tuple(h.meta for h in args), attrs)
    if op.swaps(meta.dtype) and len(args) == 2 and _rank(args[1]) < _rank(args[0]):
        args = (args[1], args[0])
    return _intern(op, args, tuple(sorted(attrs.items())), meta, line)


def _rank(hop: Hop) -> tuple[bool, bool, str, int]:
    """Order of operands of commuting ops: arrays before scalars, leaves by slot."""
    slot = hop.attr("slot") if hop.op.name == "leaf" else -1
    return (hop.meta.ndim == 0, hop.op.kind is not Kind.LEAF, hop.op.name, slot)


def apply(name: str, *operands: Hop | Weak, line: Any = None, **attrs: Any) -> Hop:
    """Like `make`, with NumPy's promotion: inputs are cast, weak scalars take the loop's dtype."""
    op = lookup(name)
    given = tuple([o.kind if isinstance(o, Weak) else o.meta.dtype for o in operands])
    dtypes = op.resolve(given, attrs)
    inputs = [_conform(o, d, line) for o, d in zip(operands, dtypes, strict=True)]
    return make(name, inputs, line, **attrs)


def _conform(operand: Hop | Weak, dtype: np.dtype, line: Any) -> Hop:
    if isinstance(operand, Weak):
        if operand.value is not None:
            return const(operand.value, dtype, line)
        return leaf(operand.slot, Meta((), dtype), "weak", line)
    if operand.meta.dtype == dtype:
        return operand
    return make("cast", (operand,), line, dtype=dtype)


def topo(roots: Iterable[Hop]) -> list[Hop]:
    """Every node below `roots`, inputs before users, in a deterministic order; iterative."""
    order: list[Hop] = []
    seen: set[Hop] = set()
    stack: list[Hop | None] = list(roots)
    stack.reverse()
    while stack:
        hop = stack.pop()
        if hop is None:  # below it on the stack lies a node whose inputs are in order
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif hop not in seen:
            seen.add(hop)
            if hop.inputs:
                stack += (hop, None, *hop.inputs[::-1])
            else:
                order.append(hop)
    return order


def uses(roots: Iterable[Hop]) -> dict[Hop, list[Hop]]:
    """Map each node to its users, one entry per use."""
    users: dict[Hop, list[Hop]] = {}
    for hop in topo(roots):
        users.setdefault(hop, [])
        for i in hop.inputs:
            users[i].append(hop)
    return users


def substitute(roots: Iterable[Hop], replace: Mapping[Hop, Hop]) -> tuple[Hop, ...]:
    """Rebuild `roots` with the nodes in `replace` exchanged; metas are inferred anew."""
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
    """Raise `InternalError`, naming `stage`, unless every meta is what its operator infers anew."""
    for hop in topo(roots):
        if hop.op.kind is Kind.LEAF:
            continue
        inferred = hop.op.meta(tuple([i.meta for i in hop.inputs]), dict(hop.attrs))
        if inferred != hop.meta:
            raise InternalError(f"{stage}: {hop!r} should have {inferred}")


#: Of one axis, how many elements are left out in front and behind; of a value, one for each.
Margins = tuple[tuple[int, int], ...]

WIDEST = 8  # elements left out at most


class Section(NamedTuple):
    """What a slice takes of an axis: every `step`-th element, but for `first` and `end` ones at its ends."""

    first: int
    end: int
    step: int

    def then(self, other: Section) -> Section:
        """Return what is left if `other` is taken of what this takes."""
        return Section(self.first + self.step * other.first, self.end + self.step * other.end,
                       self.step * other.step)

    @property
    def item(self) -> tuple[str, int | None, int | None, int | None]:
        """The item of an index that takes this."""
        return "s", self.first or None, -self.end or None, self.step if self.step > 1 else None


WHOLE = Section(0, 0, 1)


def taken_by(index: Iterable[tuple[Any, ...]]) -> list[Section] | None:
    """Return what the slices of an index take, counted from the ends of axes; None for others."""
    found = []
    for item in index:
        if item[0] != "s" or (step := 1 if item[3] is None else item[3]) < 1:
            return None
        first, end = item[1] or 0, item[2] or 0
        if first < 0 or end > 0 or item[2] == 0:
            return None
        found.append(Section(first, -end, step))
    return found


def sections(view: Hop) -> tuple[Section, ...] | None:
    """Return what the slice `view` takes of every axis of its operand; None if it is of another kind."""
    if view.op.name != "getitem" or 0 in view.meta.shape:
        return None
    found = taken_by(view.attr("index"))
    if found is None or any(max(s) > WIDEST for s in found):
        return None
    return (*found, *[WHOLE] * (view.inputs[0].meta.ndim - len(found)))


def margins(view: Hop) -> Margins | None:
    """Return what the slice `view` leaves out of its operand; None if it is none, or of another kind."""
    found = sections(view)
    if found is None or any(s.step != 1 for s in found):
        return None
    return tuple((s.first, s.end) for s in found)
