"""Equal parts of a memory on the chip, and what lies in each.

Knows: keys of what is held. Must not know: layers, instructions.
Receives keys; returns parts, and whether they have to be filled.
"""

from __future__ import annotations

from collections.abc import Hashable

from jitla.accel.spec import Memory
from jitla.classes import dataclass


@dataclass(slots=True)
class Slots:
    """Equal parts of a memory, and what lies in each; the one used longest ago makes room."""

    memory: Memory
    size: int
    held: dict[int, Hashable]

    def find(self, key: Hashable) -> tuple[int, bool]:
        """Return the part for `key`, and whether it has to be filled."""
        for slot, other in self.held.items():
            if other == key:
                self.held[slot] = self.held.pop(slot)
                return slot, False
        slot = next(iter(self.held))
        del self.held[slot]
        self.held[slot] = key
        return slot, True
