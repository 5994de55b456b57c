"""A cache that forgets what was not used for longest.

Knows: keys, numbers of bytes. Must not know: what is kept. Receives values; returns those still there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

from jitla.locks import relock

V = TypeVar("V")


class Recent(Generic[V]):
    """The `limit` values used last, by key, as far as there is `room` for their bytes; safe in threads."""

    def __init__(self, limit: int, room: float = inf) -> None:
        self._limit, self._room = limit, room
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = relock()
        self.dropped = self.nbytes = 0

    def get(self, key: Hashable) -> V | None:
        """Return the value of `key` if it is kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Hashable, value: V, nbytes: int = 0) -> None:
        """Keep `value`, which takes so many bytes; those used longest ago make room."""
        with self._lock:
            self.nbytes += nbytes - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, nbytes
            while len(self._kept) > self._limit or self.nbytes > self._room and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self.nbytes -= freed
                self.dropped += 1

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept.clear()
            self.nbytes = 0

    def values(self) -> list[V]:
        """Return all values kept."""
        with self._lock:
            return [value for value, _ in self._kept.values()]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)
