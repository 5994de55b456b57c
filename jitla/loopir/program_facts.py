"""Facts about the views and scalars of a loop program that hold wherever the program is.

They are collected once from all statements, whatever their order: which memory a view may refer to, which
strides it is likely to have, and how often each scalar is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jitla.loopir.program import (
    Allocate,
    BindMemory,
    BindView,
    Block,
    For,
    If,
    LoopProgram,
    Place,
    Read,
    Repeat,
    Statement,
    constant,
    program_nodes,
)

__all__ = ["ProgramFacts", "count_reads"]

ONE = constant(1)


class ProgramFacts:
    """Facts about the variables of one program."""

    def __init__(self, program: LoopProgram) -> None:
        self.program = program
        self._bindings: dict[str, list[BindView | Allocate]] = {}
        self._in_lists: set[str] = set()  # views of the memory of lists, which all may be the same
        self._origins = {name: frozenset({origin}) for name, origin in program.origins}
        self._ndim = {view.name: view.ndim for view in program.views}
        self._memory: dict[str, frozenset[str] | None] = {}
        self.reads = count_reads(program.body)
        self.results = frozenset(program.results)
        self._collect(program.body)

    def _collect(self, body: Sequence[Statement]) -> None:
        for statement in body:
            match statement:
                case BindMemory(name):
                    self._in_lists.add(name)
                case BindView(name) | Allocate(name):
                    self._bindings.setdefault(name, []).append(statement)
                case For(body=inner) | Repeat(body=inner) | Block(body=inner):
                    self._collect(inner)
                case If(then=then, otherwise=otherwise):
                    self._collect(then)
                    self._collect(otherwise)

    # -- memory ---------------------------------------------------------------------------------

    def memory_of(self, view: str) -> frozenset[str] | None:
        """Return the names of the memory that a view may refer to; None if it may be any."""
        if view not in self._memory:
            self._memory[view] = self._find_memory(view)
        return self._memory[view]

    def _find_memory(self, view: str) -> frozenset[str] | None:
        found = set(self.allocations_of(view))
        for name in self._sources(view):
            if name in self._in_lists:
                found.add("lists")
            if name in self.program.parameters:
                origins = self._origins.get(name)
                if origins is None:
                    return None
                found |= origins
        return frozenset(found)

    def _sources(self, view: str) -> list[str]:
        """Return the views that a view may be part of, itself among them."""
        found = [view]
        for name in found:
            found += [binding.source for binding in self._bindings.get(name, ())
                      if isinstance(binding, BindView) and binding.source not in found]
        return found

    def allocations_of(self, view: str) -> frozenset[str]:
        """Return the names of the memory that statements have allocated and a view may refer to."""
        return frozenset(f"allocated {id(binding)}" for name in self._sources(view)
                         for binding in self._bindings.get(name, ()) if isinstance(binding, Allocate))

    def ndim(self, view: str) -> int:
        """Return the number of axes of a view."""
        return self._ndim[view]

    def may_share_memory(self, one: str, other: str) -> bool:
        """Return whether two views may refer to the same memory."""
        a, b = self.memory_of(one), self.memory_of(other)
        return a is None or b is None or bool(a & b)

    # -- strides --------------------------------------------------------------------------------

    def likely_stride(self, view: str, axis: int) -> str:
        """Return the likely stride along an axis: "unit" (one element), "zero", or "other".

        Arrays that the program is entered with are taken to be in C order.
        """
        return self._stride(view, axis, frozenset()) or "other"

    def _stride(self, view: str, axis: int, seen: frozenset[str]) -> str | None:
        if view in seen:
            return None
        kinds = [self._bound_stride(binding, axis, seen | {view}) for binding in self._bindings.get(view, ())]
        if view in self.program.parameters:
            kinds.append("unit" if axis == self._ndim[view] - 1 else "other")
        kinds = [kind for kind in kinds if kind is not None]
        return "unit" if "unit" in kinds else kinds[0] if kinds else None

    def _bound_stride(self, binding: BindView | Allocate, axis: int, seen: frozenset[str]) -> str | None:
        if isinstance(binding, Allocate):
            later = binding.shape[axis + 1:]
            return "unit" if all(size == ONE for size in later) else "other"
        part = binding.axes[axis]
        if part.axis is None:
            return "zero"
        kind = self._stride(binding.source, part.axis, seen)
        return "other" if kind == "unit" and part.step != ONE else kind


def count_reads(body: Sequence[Statement]) -> Counter[str]:
    """Return how often each scalar is read in statements."""
    return Counter(node.name for node in program_nodes(body) if isinstance(node, (Read, Place)))
