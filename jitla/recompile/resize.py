"""The same computation for other sizes.

Knows: hops and which attributes hold shapes. Must not know: plans, programs.
Receives roots and which size became which; returns roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from jitla.errors import InternalError
from jitla.hops import Hop, Meta, Shape, leaf, make, topo


def compose(made_for: Mapping[int, int], dims: Mapping[int, int]) -> dict[int, int] | None:
    """Return the sizes a variant was made for as the sizes now; None if it is of another class."""
    found = {0: 0, 1: 1}
    for old, size in made_for.items():
        if found.setdefault(size, dims.get(old, -1)) != dims.get(old, -1):
            return None
    return found


def rebuild(roots: tuple[Hop, ...], dims: Mapping[int, int]) -> tuple[Hop, ...]:
    """Return the same DAG over leaves of other sizes."""
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        inputs = [new[i] for i in hop.inputs]
        if hop.op.name == "const":
            new[hop] = hop
        elif hop.op.name == "leaf":
            shape = tuple(n if n < 2 else dims[n] for n in hop.meta.shape)
            new[hop] = leaf(
                hop.attr("slot"), Meta(shape, hop.meta.dtype), hop.attr("form"), hop.line)
        else:
            attrs = {k: _resize(v, inputs, dims) if k == "shape" else v for k, v in hop.attrs}
            new[hop] = make(hop.op.name, inputs, hop.line, **attrs)
    return tuple(new[r] for r in roots)


def _resize(shape: Shape, inputs: Sequence[Hop], dims: Mapping[int, int]) -> Shape:
    """Translate a shape; one size that no symbol stands for follows from the number of elements."""
    sizes = [n if n < 2 else dims.get(n, -1) for n in shape]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = inputs[0].meta.size // max(-prod(sizes), 1)
    if -1 in sizes:
        raise InternalError(f"program: sizes of {shape} are not among {dict(dims)}")
    return tuple(sizes)
