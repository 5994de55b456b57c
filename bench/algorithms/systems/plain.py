"""The scripts as they are.

Knows: nothing but the function. Must not know: jitla. Receives it with arguments; returns the call.
"""

from __future__ import annotations

from typing import Any

from bench.algorithms.systems.entered import Entered


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the plain call."""
    return Entered(lambda: plain(*arguments))
