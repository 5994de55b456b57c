"""The hops below the roots, who uses them, and the borders between the loops that compute them.

Knows: which operands may be computed in the loop of their user. Must not know: which plan is best.
Receives roots, facts, and hops that are computed or given otherwise; answers questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from jitla.fusion.kernel import Product, RowKernel, data_inputs
from jitla.fusion.templates import CELL, MAGG, Facts, iteration, template_of
from jitla.hops import Hop, Kind, Shape


class Graph:
    """The hops below the roots, who uses them, and how many borders lie in front of each.

    `given` are values that lie in memory already; `made` are those computed otherwise, and how.
    """

    def __init__(
        self, roots: Iterable[Hop], facts: Facts, given: frozenset[Hop] = frozenset(),
        made: Mapping[Hop, RowKernel | Product] | None = None,
    ) -> None:
        self.facts = facts
        self.given = given
        self.made = made or {}
        self.roots = frozenset(roots)
        self.users: dict[Hop, list[Hop]] = {r: [] for r in roots}
        self.order = self._sorted(tuple(roots))
        self.place = {h: i for i, h in enumerate(self.order)}
        self.level: dict[Hop, int] = {}
        for hop in self.order:
            if not self.is_given(hop):
                self.level[hop] = max(map(self._behind(hop), self.inputs(hop)), default=0)

    def inputs(self, hop: Hop) -> tuple[Hop, ...]:
        """Return the values that have to be there before `hop` is computed."""
        if self.is_given(hop):
            return ()
        return self.made[hop].inputs if hop in self.made else data_inputs(hop)

    def _sorted(self, roots: tuple[Hop, ...]) -> list[Hop]:
        """Return the hops needed, operands first, and note their users."""
        order: list[Hop] = []
        seen: set[Hop] = set()
        stack = [(r, False) for r in reversed(roots)]
        while stack:
            hop, done = stack.pop()
            if done:
                order.append(hop)
            elif hop not in seen:
                seen.add(hop)
                stack.append((hop, True))
                for operand in self.inputs(hop):
                    self.users.setdefault(operand, []).append(hop)
                stack += [(i, False) for i in reversed(self.inputs(hop)) if i not in seen]
        return order

    def is_given(self, hop: Hop) -> bool:
        """Tell whether `hop` needs no step."""
        return hop.op.kind is Kind.LEAF or hop in self.given

    def _behind(self, hop: Hop) -> Callable[[Hop], int]:
        """Level that `hop` needs because of one operand: every border crossed adds one."""

        def level(operand: Hop) -> int:
            if self.is_given(operand):
                return 0
            return self.level[operand] + (0 if self.joins(hop, operand) else 1)

        return level

    def joins(self, hop: Hop, operand: Hop) -> bool:
        """Tell whether `operand` may be computed in the loop that computes `hop`."""
        if self.is_call(hop) or self.is_given(operand) or operand in self.made:
            return False
        return template_of(hop).fuse(hop, operand, self.facts)

    def is_call(self, hop: Hop) -> bool:
        """Tell whether `hop` is not computed by a loop planned here."""
        if self.is_given(hop):
            return False
        if hop in self.made:
            return True
        return not (CELL.open(hop, self.facts) or MAGG.open(hop, self.facts))

    def groups(self) -> list[list[Hop]]:
        """Hops that could share a loop: same level, same iteration space; operands first."""
        found: dict[tuple[int, Shape], list[Hop]] = {}
        for hop in self.order:
            if not self.is_given(hop) and not self.is_call(hop):
                found.setdefault((self.level[hop], iteration(hop)), []).append(hop)
        return list(found.values())

    def together(self, hop: Hop, operand: Hop) -> bool:
        """Tell whether the two are in one group."""
        return self.joins(hop, operand) and self.level[hop] == self.level[operand]


def have_an_order(roots: Sequence[Hop], kernels: Sequence[RowKernel]) -> bool:
    """Tell whether no row kernel waits for itself, by way of one over another number of rows."""
    if len({kernel.rows for kernel in kernels}) == 1:
        return True  # levels have seen to it
    made = {h: kernel for kernel in kernels for h in kernel.outputs}
    done: dict[int, bool] = {}
    stack: list[Hop | RowKernel] = [made.get(r, r) for r in roots]
    while stack:
        node = stack[-1]
        if id(node) in done:
            done[id(stack.pop())] = True
            continue
        done[id(node)] = False
        read = node.inputs if isinstance(node, RowKernel) else data_inputs(node)
        for operand in (made.get(i, i) for i in read):
            if id(operand) not in done:
                stack.append(operand)
            elif not done[id(operand)]:
                return False
    return True
