"""Small spaces whose costs are known, for the tests of searches."""

from __future__ import annotations

from jitla.fusion import Knob, Space


def bowl(size: int = 12, legal=None, estimate=None) -> Space:
    """A space of three knobs; what its points cost is told by `cost`."""
    choices = tuple(2 ** k for k in range(size))
    knobs = Knob("height", choices), Knob("units", choices, exact=False), Knob("stay", ("here", "there"))
    given = {} if legal is None else {"legal": legal}
    return Space(knobs, (0, 0, 0), estimate=estimate, traits=lambda v: (float(v["height"]),), **given)


def cost(space: Space):
    """Least at height 64 and units 8, there."""
    def of(point):
        h, u, s = point
        return 1.0 + (h - 6) ** 2 * 0.1 + (u - 3) ** 2 * 0.05 + 0.3 * (space.knobs[2].choices[s] == "here")
    return of
