"""A tape that notes where its entries come from.

Knows: the user's frames. Must not know: what entries mean. Receives entries; keeps places, lines and codes.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from jitla.tracing import frames
from jitla.tracing.places import Places, place_of


class Learning(list[tuple]):
    """A tape that also notes the user's line of each entry, until a site's plans are known."""

    def __init__(self, lines: dict[int, Any]) -> None:
        super().__init__()
        lines.clear()
        self.lines = lines
        self.places = Places(straight=True)
        self.codes: dict[int, CodeType] = {}

    def note(self) -> None:
        """Note where the entry that is appended next comes from."""
        n = len(self)
        places = self.places
        frame, called = frames.origin()
        self.codes[n] = frame.f_code
        places[n] = place = place_of(frame, called)
        if places.straight:
            places.straight = frames.is_straight()
        self.lines[n] = place[:2]
