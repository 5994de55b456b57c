"""How lanes are shared by threads: parts of the first axis, each done by whoever is free.

Knows: how many lanes there are, about what one costs. Must not know: what is done in them, how threads wait.
Receives lanes and how long they are; returns lines.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from jitla.loops.lanes import Lanes

# Parts that lanes are cut into: some more than threads, as these are not equally fast. Of lanes that lie side
# by side a part has some.
PARTS, BESIDE = 16, 16
# Statements of a turn in one lane that take a microsecond; microseconds that are worth cutting; those that a
# job can say.
STATEMENTS, WORTH, MOST = 1000, 50, (1 << 21) - 1


def shares(lanes: Lanes, box: Sequence[str], parameters: str) -> list[str]:
    """Return the lines that have `quick` done by all threads, and ask whether processors noted anything."""
    count = sum(isinstance(node, (ast.Assign, ast.AugAssign)) for node in ast.walk(lanes.turn))
    least = 1 if lanes.axes > 1 else BESIDE
    return [
        f"cost = min(({' * '.join(box)}) * int64({count}) // int64({STATEMENTS}), int64({MOST}))",
        f"grain = max(n0 // int64({PARTS}), int64({least})) if cost > int64({WORTH}) else n0",
        f"shared(quick, n0, grain, cost, {parameters})",
        "odd = rare(raised(int64(0)))",
    ]


def extent(name: str, axis: int, cut: tuple[int, int | None]) -> str:
    """Return the text of how many places a cut leaves of an axis."""
    first, last = cut
    if last is not None and last >= 0:
        return f"int64({last - first})"
    return f"(d_{name}_{axis} - int64({first - (last or 0)}))"
