"""A part of a program that the device can do: a nest that fits an intrinsic, and the steps after it.

Knows: which operators on accumulators the device has, for which numbers. Must not know: costs, streams.
Receives roots; returns units, and for values of their inputs the layer with its arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jitla.accel.access import Access, Places, Splits, regrouped, sources
from jitla.accel.fits import INTRINSICS, fit
from jitla.accel.intrinsic import Fit, Intrinsic
from jitla.accel.isa import AluOp
from jitla.accel.nest import is_sum, keeps_integers, nest_of, replaced
from jitla.accel.spec import Memory, Spec
from jitla.classes import dataclass
from jitla.hops import Hop, Kind, topo, uses

_OPS = {"add": AluOp.ADD, "subtract": AluOp.ADD, "maximum": AluOp.MAX, "minimum": AluOp.MIN,
        "multiply": AluOp.MUL, "right_shift": AluOp.SHR, "left_shift": AluOp.SHR}
_SELECTING = frozenset({"maximum", "minimum"})  # what bytes and accumulators have the same result of
_VIEWS = frozenset({"reshape", "ravel", "transpose", "expand_dims", "squeeze"})


class Touch(NamedTuple):
    """A step on accumulators as a program has it: by operator, with a scalar or the elements of an array."""

    name: str
    scalar: Hop | None
    access: Access | None


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one layer does for a program: from the values it reads to `out`, that is `body` in all."""

    intrinsic: Intrinsic
    fit: Fit
    touches: tuple[Touch, ...]
    out: Hop
    at: Places  # where in `out` results are, by the axes of the fit
    body: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    stored: int
    terms: tuple[Access, ...]  # all that is read, but for what steps read
    longer: bool  # the program's accumulators have more bits: all values have to be shown to fit

    def reads(self) -> Iterator[tuple[Hop, Places]]:
        """Yield values that are read, and where."""
        for access in self.terms:
            yield access.hop, access.at
        for touch in self.touches:
            if touch.access is not None:
                yield touch.access.hop, touch.access.at

    @property
    def name(self) -> str:
        """The intrinsic and what follows it, for people."""
        return " ".join([self.intrinsic.name, *(t.name for t in self.touches)])


# ---------------------------------------------------------------------- finding units


def units(roots: Sequence[Hop], spec: Spec, intrinsics: Sequence[Intrinsic] = INTRINSICS) -> list[Unit]:
    """Return the units of a DAG, operands first; no hop is in two."""
    users = uses(roots)
    taken: set[Hop] = set()
    found = []
    order = topo(roots)
    inner = _inside_sums(order)
    for hop in order:
        if hop in taken or hop in inner or 0 in hop.meta.shape:
            continue
        unit = _unit(hop, users, frozenset(roots), spec, intrinsics)
        if unit is not None and not taken.intersection(unit.body):
            found.append(unit)
            taken.update(unit.body)
    return found


def _inside_sums(order: Sequence[Hop]) -> set[Hop]:
    """Return the terms of sums of products: the sum is looked at, not they."""
    sums: set[Hop] = set()
    inside: set[Hop] = set()
    for hop in order:
        if not is_sum(hop, hop.meta.shape) or not hop.meta.shape:
            continue
        arrays = _added(hop)
        if all(i.op.name in ("matmul", "dot") or i in sums for i in arrays) and len(arrays) + len(sums) > 0:
            sums.add(hop)
            inside.update(arrays)
    tops = sums - inside
    lone = {h for h in tops
            if not sums.intersection(h.inputs) and len(_added(h)) < 2}
    return inside - {i for h in lone for i in h.inputs}


def _added(hop: Hop) -> list[Hop]:
    """Return the operands of a sum but numbers, however often these are there."""
    return [i for i in hop.inputs if i.meta.shape and i.op.name != "full"]


def _unit(hop: Hop, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: Spec,
          intrinsics: Sequence[Intrinsic]) -> Unit | None:
    wide = spec.element(Memory.ACC).dtype
    for pads in (True, False):  # zeros around values are made by loads, if they are where these make them
        nest = nest_of(hop, wide, pads)
        made = fit(nest, intrinsics) if nest is not None else None
        if made is not None:
            break
    if nest is None or made is None:
        return None
    body = _between(hop, {a.hop for t in nest.terms for a in t})
    terms = [h for h in body if h is not hop and h.op.name in ("matmul", "dot", "add")]
    if any(set(users[h]) - set(body) or h in roots for h in terms):
        return None  # a term is wanted by itself
    splits = Splits()
    touches, out, at, chain = _chain(hop, nest.out, users, roots, spec, splits)
    if splits.parts:
        nest = replaced(nest, splits)
        made = fit(nest, intrinsics)
        if made is None:
            return None
        touches = tuple(t if t.access is None else
                        t._replace(access=Access(t.access.hop, splits.places(t.access.at))) for t in touches)
        at = splits.places(at)
    touches = (*(Touch("add", h, None) for h in nest.scalars), *touches)
    stored = min(out.meta.dtype.itemsize, wide.itemsize)
    inside = {*body, *chain}
    reads = [a.hop for t in nest.terms for a in t]
    for touch in touches:
        reads += [touch.access.hop] if touch.access is not None else [touch.scalar] if touch.scalar else []
    inputs = tuple(dict.fromkeys(h for h in reads if h not in inside and h.op.name != "const"))
    longer = hop.meta.dtype.itemsize > wide.itemsize
    every = tuple(a for t in nest.terms for a in t)
    return Unit(made[0], made[1], touches, out, at, tuple(inside), inputs, stored, every, longer)


def _between(hop: Hop, ends: set[Hop]) -> list[Hop]:
    """Return `hop` and all below it, down to `ends`."""
    found: dict[Hop, None] = {}
    stack = [hop]
    while stack:
        one = stack.pop()
        if one in ends or one in found or one.op.kind is Kind.LEAF:
            continue
        found[one] = None
        stack += one.inputs
    return list(found)


def _chain(hop: Hop, at: Places, users: Mapping[Hop, list[Hop]], roots: frozenset[Hop], spec: Spec,
           splits: Splits) -> tuple[tuple[Touch, ...], Hop, Places, list[Hop]]:
    """Follow the only user of each value as far as the device has what it does."""
    touches: list[Touch] = []
    body: list[Hop] = []
    end = hop, at, 0
    bytes_only = hop.meta.dtype.itemsize < spec.element(Memory.ACC).dtype.itemsize
    while hop not in roots and len(set(users[hop])) == 1:
        user = users[hop][0]
        step = _touches(user, hop, splits.places(at), spec, splits)
        narrows = user.op.name == "cast" and not bytes_only and _narrows(user, spec)
        if step is not None and not (bytes_only and any(t.name not in _SELECTING for t in step)):
            touches += step
        elif user.op.name in _VIEWS:
            moved = _moved(user, at, splits)
            if moved is None:
                break
            at = moved
        elif not narrows:
            break
        hop = user
        body.append(user)
        if user.op.name not in _VIEWS:  # views at the end are the host's: they cost nothing there
            end = hop, at, len(body)
        if narrows:
            break
    hop, at, count = end
    return tuple(touches), hop, splits.places(at), body[:count]


def _narrows(user: Hop, spec: Spec) -> bool:
    to, of = user.meta.dtype, user.inputs[0].meta.dtype
    return not spec.is_float and to.kind == "i" and to.itemsize < of.itemsize


def _moved(user: Hop, at: Places, splits: Splits) -> Places | None:
    """Return the positions in the result of a view."""
    at = splits.places(at)
    if user.op.name == "transpose":
        return tuple(at[i] for i in user.attr("axes"))
    return regrouped(at, user.inputs[0].meta.shape, user.meta.shape, splits)


def _touches(user: Hop, hop: Hop, at: Places, spec: Spec, splits: Splits) -> list[Touch] | None:
    """Return what `user` does to accumulators, None if the device does not do that."""
    if user.meta.shape != hop.meta.shape or user.meta.dtype != hop.meta.dtype:
        return None
    name = user.op.name
    if name == "clip" and user.inputs[0] is hop:
        low, high = (_operand(i, at, user, splits) for i in user.inputs[1:])
        return [Touch("maximum", *low), Touch("minimum", *high)] if low and high else None
    if name not in _OPS or len(user.inputs) != 2 or user.inputs.count(hop) != 1:
        return None
    first = user.inputs[0] is hop
    if not first and name in ("subtract", "right_shift", "left_shift"):
        return None
    other = _operand(user.inputs[1 if first else 0], at, user, splits)
    if other is None or spec.is_float and name.endswith("shift"):
        return None
    if other[1] is not None and (name.endswith("shift") or name == "multiply" and spec.dialect == "strict"):
        return None
    return [Touch(name, *other)]


def _operand(hop: Hop, at: Places, user: Hop, splits: Splits) -> tuple[Hop | None, Access | None] | None:
    if hop.meta.shape == ():
        return hop, None
    own = at[len(at) - hop.meta.ndim:]
    here = tuple(own[i] if n > 1 else type(own[i])() for i, n in enumerate(hop.meta.shape))
    before = len(splits.parts)
    access = sources(hop, here, splits, keeps_integers)
    return None if len(splits.parts) != before else (None, access)


def operator_of(touch: Touch) -> AluOp:
    """Return the operation that a step takes."""
    return _OPS[touch.name]
