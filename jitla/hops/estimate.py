"""Estimates of how many elements of every hop are other than 0, by three methods.

Knows: what operators do to zeros. Must not know: where sketches come from, what estimates are for.
Receives roots, a method, what is known of some hops; returns a number for every hop.

`worst` gives the bound of the metas, `meta` what is to be expected if nonzeros are spread evenly, `mnc`
what sketches of matrices say, and where there is none what `meta` says. `weighted` does as `mnc`, but in
products lets long rows and columns be hit more often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log1p, prod
from typing import Any

import numpy as np

from jitla.hops import sketch
from jitla.hops.meta import Meta
from jitla.hops.nnz import count
from jitla.hops.node import Hop, topo
from jitla.hops.sketch import Sketch
from jitla.hops.spec import Kind, Zeros

ESTIMATORS = ("meta", "worst", "mnc", "weighted")
State = Any  # what a method knows of a hop: a number of nonzeros, or a sketch
Rule = Callable[[Hop, list[State]], "State | None"]
_MOVED = frozenset({
    "transpose", "reshape", "ravel", "broadcast_to", "expand_dims", "squeeze", "flip", "getitem", "full",
})
_PRODUCTS = frozenset({"matmul", "dot"})
_JOINED = frozenset({"concatenate", "stack"})


def estimated(
    roots: Iterable[Hop], method: str, known: Mapping[Hop, Sketch] | None = None,
) -> dict[Hop, float]:
    """Return how many elements of every hop below `roots` are other than 0, as far as can be said.

    `known` gives sketches of leaves; of the others, metas say how many nonzeros there are.
    """
    known = known or {}
    states: dict[Hop, State] = {}
    for hop in topo(roots):
        if hop in known:
            states[hop] = known[hop] if method in ("mnc", "weighted") else known[hop].nnz
        else:
            states[hop] = _METHODS[method](hop, [states[i] for i in hop.inputs])
    return {hop: total(state) for hop, state in states.items()}


def total(state: State) -> float:
    """Return the number of nonzeros that `state` says."""
    return state.nnz if isinstance(state, Sketch) else float(state)


# --------------------------------------------------------------------------- at most


def _worst(hop: Hop, given: list[State]) -> float:
    if hop.op.kind is Kind.LEAF:
        return count(hop.meta)
    metas = tuple(Meta(i.meta.shape, i.meta.dtype, min(int(n), i.meta.size))
                  for i, n in zip(hop.inputs, given, strict=True))
    return count(hop.op.meta(metas, dict(hop.attrs)))


# --------------------------------------------------------------------------- spread evenly


def _average(hop: Hop, given: list[State]) -> float:
    if hop.op.kind is Kind.LEAF or not hop.meta.size:
        return count(hop.meta)
    shares = [total(n) / max(i.meta.size, 1) for i, n in zip(hop.inputs, given, strict=True)]
    return min(_density(hop, shares) * hop.meta.size, _worst(hop, [np.ceil(total(n)) for n in given]))


def _density(hop: Hop, shares: list[float]) -> float:
    """Return the part of a result that is other than 0, from those of the operands."""
    name, zeros = hop.op.name, hop.op.zeros
    if name in _MOVED:
        return shares[0]
    if name in _PRODUCTS and all(i.meta.ndim for i in hop.inputs):
        return _hit(shares[0] * shares[1], hop.inputs[0].meta.shape[-1])
    if name in _JOINED:
        return sum(s * i.meta.size for s, i in zip(shares, hop.inputs, strict=True)) / hop.meta.size
    if name == "where":
        return shares[0] * shares[1] + (1.0 - shares[0]) * shares[2]
    if hop.op.kind is Kind.CELL:
        if zeros is Zeros.ANY:
            return prod(shares)
        return 1.0 if zeros is Zeros.NONE else 1.0 - prod(1.0 - s for s in shares)
    if len(hop.inputs) == 1 and hop.inputs[0].meta.size:
        joins = hop.inputs[0].meta.size // hop.meta.size
        if zeros is Zeros.ANY:
            return shares[0] ** joins
        return _hit(shares[0], joins) if zeros is Zeros.ALL else 1.0
    return 1.0


def _hit(share: float, times: int) -> float:
    """Return how likely one of so many tries with this chance succeeds."""
    return 1.0 if share >= 1.0 else -float(np.expm1(times * log1p(-share)))


# --------------------------------------------------------------------------- by sketches


def _weighted(hop: Hop, given: list[State]) -> State:
    return _sketched(hop, given, _SKETCHES | dict.fromkeys(_PRODUCTS, _of_weighted))


def _sketched(hop: Hop, given: list[State], rules: Mapping[str, Rule] | None = None) -> State:
    """Return the sketch of a matrix; a number of what is none."""
    found = None
    if hop.meta.ndim == 2 or any(isinstance(s, Sketch) for s in given):
        rule = (rules or _SKETCHES).get(hop.op.name) or _BY_KIND.get(hop.op.kind)
        found = rule(hop, given) if rule is not None and all(hop.meta.shape) else None
    if found is None:
        found = _average(hop, given)
    if hop.meta.ndim == 2 and not isinstance(found, Sketch):
        return sketch.of_total(hop.meta.shape, found)
    return found


def _of_matmul(hop: Hop, given: list[State], weighted: bool = False) -> State | None:
    a, b = given
    if not isinstance(a, Sketch):
        return None
    if isinstance(b, Sketch):
        return sketch.product(a, b, weighted)
    if hop.inputs[1].meta.ndim == 1:
        return sketch.nnz_of_product(a, sketch.of_total((a.shape[1], 1), b), weighted)
    return None


def _of_weighted(hop: Hop, given: list[State]) -> State | None:
    return _of_matmul(hop, given, True)


def _of_transpose(hop: Hop, given: list[State]) -> State | None:
    return given[0].T if hop.attr("axes") == (1, 0) else given[0]


def _of_joined(hop: Hop, given: list[State]) -> State | None:
    return sketch.joined(given, hop.attr("axis")) if hop.meta.ndim == 2 else None


def _of_reshape(hop: Hop, given: list[State]) -> State | None:
    a = given[0]
    return sketch.reshaped(a, hop.meta.shape) if isinstance(a, Sketch) and hop.meta.ndim == 2 else None


def _of_getitem(hop: Hop, given: list[State]) -> State | None:
    """Know slices of matrices, in order."""
    kinds = [item[0] for item in hop.attr("index")]
    if not isinstance(given[0], Sketch) or set(kinds) != {"s"} or hop.meta.ndim != 2:
        return None
    rows, columns = ([slice(*item[1:]) for item in hop.attr("index")] + [slice(None)])[:2]
    return sketch.part(given[0], rows, columns)


def _of_eye(hop: Hop, given: list[State]) -> State | None:
    n, m = hop.meta.shape
    return sketch.of_diagonal(n) if n == m and not hop.attr("k") else None


def _of_cell(hop: Hop, given: list[State]) -> State | None:
    zeros = hop.op.zeros
    if zeros is Zeros.NONE or hop.op.name == "where":
        return None
    sketches = [_spread(hop, i, s) for i, s in zip(hop.inputs, given, strict=True)]
    found = sketches[0]
    for other in sketches[1:]:
        found = sketch.intersection(found, other) if zeros is Zeros.ANY else sketch.union(found, other)
    return found


def _spread(hop: Hop, operand: Hop, state: State) -> Sketch:
    """Return the sketch of an operand, repeated in the shape of the result."""
    if isinstance(state, Sketch) and operand.meta.shape == hop.meta.shape:
        return state
    return sketch.of_total(hop.meta.shape, total(state) / max(operand.meta.size, 1) * hop.meta.size)


def _of_sums(hop: Hop, given: list[State]) -> State | None:
    """Know which rows or columns are empty."""
    a, axis = given[0], hop.attr("axis")
    if hop.op.zeros is not Zeros.ALL or len(axis) != 1 or hop.meta.ndim != 1:
        return None
    return float(np.minimum(a.rows if axis[0] else a.columns, 1.0).sum())


_SKETCHES: dict[str, Rule] = {
    "matmul": _of_matmul, "dot": _of_matmul, "transpose": _of_transpose, "concatenate": _of_joined,
    "reshape": _of_reshape, "getitem": _of_getitem, "eye": _of_eye,
}
_BY_KIND = {Kind.CELL: _of_cell, Kind.AGG: _of_sums}
_METHODS: dict[str, Callable[[Hop, list[State]], State]] = {
    "worst": _worst, "meta": _average, "mnc": _sketched, "weighted": _weighted,
}
