"""How far a search goes.

Knows: its limits only. Must not know: rules, what searches. Receives numbers; holds them.
"""

from __future__ import annotations

from jitla.classes import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """How far a search goes: see `Config` for `bound`, `expansions` and `seconds`.

    DAGs that take less than `least` seconds are not searched, those with more operators than `largest` in
    parts. The first plan counts; where it is not `planned` anyway, as in parts, there is none unless a
    neighbour looks better.
    """

    bound: float = 1.05
    expansions: int = 60
    seconds: float = 0.02
    least: float = 100e-6
    largest: int = 12
    planned: bool = True
