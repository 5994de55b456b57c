"""The loop templates: when one opens at a hop, takes in an operand, merges with another, closes.

Knows: shapes, kinds of hops, what the backend supports, layouts. Must not know: which plan is best.
Receives hops and `Facts`; returns verdicts. Search over them is another file's work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from jitla.classes import dataclass
from jitla.fusion.ends import iteration
from jitla.fusion.kernel import Form, Geometry, Kernel, Product
from jitla.fusion.layout import Layout
from jitla.fusion.walks import geometry
from jitla.hops import Hop, Kind

CELLS = (Kind.CELL, Kind.TAKE)


@dataclass(slots=True)
class Facts:
    """What the templates ask about: the backend's verdict per hop, where every value lies, products."""

    supports: Callable[[Hop], str | None]
    layouts: Mapping[Hop, Layout]
    products: dict[Hop, Product | None] = field(default_factory=dict)
    #: Over how many rows values are computed one after the other.
    rows: dict[Hop, int] = field(default_factory=dict)
    #: Whether a row kernel that makes a value makes rows of a product with a wide matrix on the way.
    wide: dict[Hop, bool] = field(default_factory=dict)
    _reasons: dict[Hop, str] = field(default_factory=dict)

    def reason(self, hop: Hop) -> str:
        """Return why `hop` cannot be computed in a kernel; empty if it can."""
        if hop not in self._reasons:
            self._reasons[hop] = self._judge(hop)
        return self._reasons[hop]

    def is_product(self, hop: Hop) -> bool:
        """Tell whether the backend has loops for the matrix product `hop`."""
        return self.supports(hop) is None

    def _judge(self, hop: Hop) -> str:
        if hop.op.kind not in (*CELLS, Kind.AGG, Kind.TALLY):
            return "not element-wise"
        if iteration(hop) == ():
            return "scalar"
        if 0 in iteration(hop):
            return "no elements"
        return self.supports(hop) or ""


@dataclass(frozen=True, slots=True)
class Template:
    """One way to write a loop.

    `open(hop, facts)`: can a loop start with `hop` as a result. `fuse(hop, operand, facts)`: can
    `operand` be computed inside the loop that computes `hop`. `merge(a, b)`: may two loops with
    results `a` and `b` be one. `close(hop, facts)`: does `hop` end the loop, so that nothing inside reads it.
    `walk(kernel, layouts)`: the layout variant, None if a kernel of this template cannot run there.
    """

    name: str
    doc: str
    open: Callable[[Hop, Facts], bool]
    fuse: Callable[[Hop, Hop, Facts], bool]
    merge: Callable[[Hop, Hop], bool]
    close: Callable[[Hop, Facts], bool]
    walk: Callable[[Kernel, Mapping[Hop, Layout]], tuple[Form, Geometry] | None]


def _opens(*kinds: Kind) -> Callable[[Hop, Facts], bool]:
    return lambda hop, facts: hop.op.kind in kinds and not facts.reason(hop)


def _cell_of_same_shape(hop: Hop, operand: Hop, facts: Facts) -> bool:
    """The operand is element-wise over the same space; aggregates, tables, broadcast values are borders."""
    return (
        operand.op.kind in CELLS
        and operand.meta.shape == iteration(hop)
        and not (hop.op.kind is Kind.TAKE and operand is hop.inputs[0])
        and not facts.reason(operand)
    )


def _same_space(a: Hop, b: Hop) -> bool:
    return iteration(a) == iteration(b)


def _same_reduction(a: Hop, b: Hop) -> bool:
    """Aggregates over the same axes of one space; a cell fits any of them.

    Not sums of reals and of complex numbers, whose pairwise trees differ: NumPy counts both parts.
    """
    found = [h for h in (a, b) if h.op.kind is Kind.AGG]
    trees = {h.meta.dtype.kind for h in found if h.op.name == "sum"} & {"f", "c"}
    return _same_space(a, b) and len({h.attr("axis") for h in found}) <= 1 and len(trees) <= 1


def _same_labels(a: Hop, b: Hop) -> bool:
    """Sums by the same labels."""
    kinds = a.op.kind is b.op.kind is Kind.TALLY
    return kinds and a.inputs[0] is b.inputs[0] and a.meta.shape == b.meta.shape


def _walk(kernel: Kernel, layouts: Mapping[Hop, Layout]) -> tuple[Form, Geometry] | None:
    return geometry(kernel, kernel.shape, layouts)


CELL = Template(
    "Cell", "element-wise results over one space, of any layouts",
    _opens(*CELLS), _cell_of_same_shape, _same_space, lambda hop, facts: False, _walk,
)
MAGG = Template(
    "MAgg", "several aggregates over the same axes, and cells on the way, in one pass",
    _opens(Kind.AGG), _cell_of_same_shape, _same_reduction, lambda hop, facts: hop.op.kind is Kind.AGG, _walk,
)
TALLY = Template(
    "Tally", "several sums by the same labels, and cells on the way, block after block",
    _opens(Kind.TALLY), _cell_of_same_shape, _same_labels, lambda hop, facts: hop.op.kind is Kind.TALLY,
    _walk,
)
