"""What schedules of other kernels have taught: of those the library was made with, and those tuned here."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jitla.fusion import Space
from jitla.tuner.features import features
from jitla.tuner.model import History
from jitla.tuner.records import Records
from jitla.tuner.trees import Trees

__all__ = ["PLACE", "built_in", "remembered"]

PLACE = Path(__file__).parent / "past.json"  # ``python -m bench.tuner --past`` writes it


@cache
def built_in() -> History:
    """Return what kernels of the tables in ``bench/tuner`` have taught."""
    return History(Trees.parse(json.loads(PLACE.read_text())))


def remembered(records: Records, target: str, space: Space) -> History | None:
    """Return what is known of spaces whose traits mean the same as those of `space`."""
    width = features(space, [space.default], structural=True).shape[1]
    before = built_in() if built_in().width == width else None
    return History.of(records.samples(width, target), before)
