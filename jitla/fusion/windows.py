"""Chains of cells linked by shifted slices, as one pass over blocks of rows with a window that slides.

Knows: kernels of a plan, slices that leave out elements at the ends or between. Must not know: backends.
Receives the steps of a plan; returns steps in which chains of kernels are one, where that costs less.

What a stage makes is read by later ones some rows further on, too. It stays in the cache: of every block of
rows a stage makes only those that are new, and keeps the last ones for the next block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jitla.classes import dataclass
from jitla.fusion.blocks import has_windows
from jitla.fusion.kernel import Call, Kernel, Step, WindowKernel, tables
from jitla.fusion.memory import window_row
from jitla.fusion.price import Prices
from jitla.fusion.templates import CELL
from jitla.hops import WHOLE, Hop, Kind, sections


@dataclass(slots=True)
class _Chain:
    """Kernels that could be one: the last of them makes the results."""

    stages: list[Kernel]
    views: list[Call]


def windowed(steps: Sequence[Step], roots: Sequence[Hop], prices: Prices) -> list[Step]:
    """Return the steps of a plan, in running order, with chains of stencils as one where that is cheaper."""
    found = list(steps)
    tried: set[int] = set()
    while True:
        last = next((s for s in reversed(found) if isinstance(s, Kernel) and id(s) not in tried), None)
        if last is None:
            return found
        tried.add(id(last))
        chain = _chain(last, found, frozenset(roots), prices)
        while chain is not None:
            kernel = _kernel(chain)
            if kernel is not None and _is_near(kernel) and \
                    prices.step(kernel).total < sum(prices.step(s).total for s in chain.stages):
                gone = {id(s) for s in (*chain.stages, *chain.views)} - {id(last)}
                found = [kernel if s is last else s for s in found if id(s) not in gone]
                break
            chain = _shorter(chain)


def _is_near(kernel: WindowKernel) -> bool:
    """Tell whether what lies between the stages stays near, and there is something to share out."""
    rate = kernel.rate
    kept = sum(rate[h] * (h.meta.nbytes // h.meta.shape[0]) for h in kernel.inner)
    return has_windows(window_row(kernel), kept, kernel.rows, kernel.ahead())


def _shorter(chain: _Chain) -> _Chain | None:
    """Return a chain without its first kernel; None if no slices are left in it."""
    stages = chain.stages[1:]
    made = {h for s in stages for h in s.outputs}
    views = [v for v in chain.views if v.hop.inputs[0] in made]
    return _Chain(stages, views) if views else None


def _chain(last: Kernel, steps: Sequence[Step], roots: frozenset[Hop], prices: Prices) -> _Chain | None:
    """Return the kernels that only make what `last` reads, by way of slices or as it is; None if none do."""
    readers: dict[Hop, list[Step]] = {}
    for step in steps:
        for hop in step.inputs:
            readers.setdefault(hop, []).append(step)
    if not _fits(last, prices):
        return None
    chain = _Chain([last], [])
    inside = {id(last)}
    cells = {h for s in steps if isinstance(s, Kernel) for h in s.outputs}
    for step in reversed(steps):
        if isinstance(step, Call) and sections(step.hop) is not None and step.hop not in roots:
            if step.hop.inputs[0] in cells and _whole(step.hop, readers) and \
                    _only(readers.get(step.hop, ()), inside):
                inside.add(id(step))
                chain.views.append(step)
        elif isinstance(step, Kernel) and step is not last and _fits(step, prices):
            if all(h not in roots and _only(readers.get(h, ()), inside) and _whole(h, readers)
                   for h in step.outputs):
                inside.add(id(step))
                chain.stages.append(step)
    made = {h for s in chain.stages for h in s.outputs}
    chain.views = [v for v in chain.views if v.hop.inputs[0] in made]
    chain.stages.reverse()
    chain.views.reverse()
    return chain if chain.views else None


def _only(readers: Iterable[Step], inside: set[int]) -> bool:
    """Tell whether somebody reads a value, and all who do are `inside`."""
    every = [id(s) for s in readers]
    return bool(every) and inside.issuperset(every)


def _whole(hop: Hop, readers: dict[Hop, list[Step]]) -> bool:
    """Tell whether kernels read `hop` element by element: nowhere is it repeated, or a table."""
    return all(isinstance(s, Call) or isinstance(s, Kernel) and s.shape == hop.meta.shape
               for s in readers[hop])


def _fits(kernel: Kernel, prices: Prices) -> bool:
    """Tell whether a kernel is cells over rows that lie one after the other."""
    if kernel.template != CELL.name or len(kernel.shape) < 2 or tables(kernel.body):
        return False
    if min(kernel.shape) < 2 or any(h.op.kind is not Kind.CELL for h in kernel.body):
        return False
    return all(_by_rows(prices.layouts[h].strides) for h in (*kernel.inputs, *kernel.outputs)
               if h.meta.shape == kernel.shape)


def _by_rows(strides: Sequence[int]) -> bool:
    return all(strides[0] >= abs(s) for s in strides[1:])


def _rates(chain: _Chain) -> tuple[int, ...] | None:
    """Return how many rows of every stage belong to one of the last; None if readers differ in that."""
    maker = {h: at for at, s in enumerate(chain.stages) for h in s.outputs}
    views = {v.hop: v.hop.inputs[0] for v in chain.views}
    found = {len(chain.stages) - 1: 1}
    for at in range(len(chain.stages) - 1, -1, -1):
        if at not in found:
            return None
        for hop in chain.stages[at].inputs:
            source = views.get(hop, hop)
            if source not in maker:
                continue
            section = (sections(hop) or (WHOLE,))[0] if hop in views else WHOLE
            rate = found[at] * section.step
            if found.setdefault(maker[source], rate) != rate:
                return None
    return tuple(found[at] for at in range(len(chain.stages)))


def _kernel(chain: _Chain) -> WindowKernel | None:
    """Return the chain as one kernel; None if its stages do not walk the same rows."""
    last = chain.stages[-1]
    rows = last.shape[0]
    made = {h for s in chain.stages for h in s.outputs} | {v.hop for v in chain.views}
    inputs: dict[Hop, int | None] = {}
    rates = _rates(chain)
    if rates is None:
        return None
    for stage, rate in zip(chain.stages, rates, strict=True):
        if len(stage.shape) != len(last.shape) or stage.shape[0] < rate * rows:
            return None
        for hop in stage.inputs:
            if hop in made:
                continue
            own = hop.meta.ndim == len(stage.shape) and hop.meta.shape[0] == stage.shape[0]
            axis = 0 if own else None
            if inputs.setdefault(hop, axis) != axis:
                return None  # rows of one stage, and the same for all of another
    return WindowKernel(
        rows, tuple(chain.stages), rates, tuple(v.hop for v in chain.views), tuple(inputs),
        tuple(inputs.values()), last.outputs)
