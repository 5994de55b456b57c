"""Values of a DAG exchanged for leaves: somebody has them already.

Knows: which operators return views. Must not know: who has the values, why.
Receives roots and the values with their slots; returns roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jitla.hops.cost import VIEWS
from jitla.hops.node import Hop, leaf, make, substitute


def given(roots: Iterable[Hop], slots: Mapping[Hop, int]) -> tuple[Hop, ...]:
    """Rebuild `roots` with the values in `slots` as leaves in these slots.

    A root that is one of them, or a view of one, becomes a copy: whoever gave the value keeps it.
    """
    made = {h: leaf(slot, h.meta, "array" if h.meta.shape else "scalar") for h, slot in slots.items()}
    copies = {h: make("cast", (own,), h.line, dtype=h.meta.dtype) for h, own in made.items()}
    return tuple(substitute((r,), copies if _memory_of(r) in made else made)[0] for r in roots)


def _memory_of(hop: Hop) -> Hop:
    while hop.op.name in VIEWS:
        hop = hop.inputs[0]
    return hop
