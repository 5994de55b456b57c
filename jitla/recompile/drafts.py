"""What is known of a program on its way, and what its making takes.

Knows: the records only. Must not know: stages, what they do.
Receives roots and tools; holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from jitla.classes import dataclass
from jitla.events import Event
from jitla.fusion import Layout, Plan
from jitla.hops import Hop, Machine
from jitla.recompile.program import Workshop
from jitla.recompile.stores import Aliases, Outs
from jitla.rewrites import Effort

if TYPE_CHECKING:
    from jitla.fusion import Recall, Spelling
    from jitla.recompile.placing import Device, Placed
    from jitla.rewrites import Outcome, RuleSet


@dataclass(frozen=True, slots=True)
class Draft:
    """What is known of a program on its way; a stage returns a draft with more in it."""

    roots: tuple[Hop, ...]
    layouts: Mapping[int, Layout]
    outs: Outs
    aliases: Aliases
    fired: tuple[str, ...] = ()
    outcome: Outcome | None = None
    lengths: frozenset[int] = frozenset()
    plan: Plan | None = None
    placed: Placed | None = None
    spelling: Spelling | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What the stages work with, handed in from above; rules are loaded when somebody asks for them."""

    rules: Callable[[], RuleSet] | None
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: tuple[str, ...]
    fusion: str
    workshop: Workshop
    observe: Callable[[Event], None]
    check: bool = False
    limit: int = 0
    recall: Callable[[], Recall] | None = None
    substitutions: Callable[[], RuleSet] | None = None
    effort: Effort = Effort()
    devices: tuple[Device, ...] = ()
    placement: str = "cost"
