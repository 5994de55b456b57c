"""Processors that code is made for, and the line between the modules of a text."""

from __future__ import annotations

from jitla.classes import dataclass

__all__ = ["PART", "Target"]

PART = ";;; a part of level {}\n"  # begins a further module in a text, with LLVM's level for it


@dataclass(frozen=True, slots=True)
class Target:
    """The processor code is made for: `triple`, `cpu`, `features` (names), native vector bytes."""

    triple: str
    cpu: str
    features: frozenset[str]
    vector_bytes: int

    @property
    def feature_string(self) -> str:
        """Features as LLVM wants them."""
        return ",".join("+" + f for f in sorted(self.features))

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one native vector."""
        return self.vector_bytes // itemsize
