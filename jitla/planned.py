"""Plans from process to process: where they are kept, and what they hold for.

A plan follows from what was asked for, the options, and what plans: the same files of the same version. It
lies beside machine code, in a file of its own with the same checks, and within the same limit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from jitla.config import __version__

__all__ = ["Planned", "planner"]

PLANNERS = ("hops", "rewrites", "fusion", "recompile", "loopir", "codegen")  # whose files decide on plans
MOST = 64  # texts that were asked after and are not used yet


class Planned:
    """Texts by words, on the disk that `disk` returns if there is one now, for one set of options."""

    on = True  # tests, which change what plans are made by, have it otherwise

    def __init__(self, disk: Callable[[], Any], options: tuple[Any, ...]) -> None:
        self._disk = disk
        self._options = f"{options!r}\0"
        self._near: dict[str, bytes] = {}

    def has(self, words: str) -> bool:
        """Tell whether there is a text, which is at hand from now on."""
        found = self._near.get(words) or self.get(words)
        if found is not None:
            self._near[words] = found
            while len(self._near) > MOST:
                self._near.pop(next(iter(self._near)), None)
        return found is not None

    def get(self, words: str) -> bytes | None:
        """Return the text of `words`."""
        near = self._near.pop(words, None)
        disk = self._disk() if near is None and self.on else None
        found: bytes | None = near if disk is None else disk.get(self._options + words, planner())
        return found

    def put(self, words: str, text: bytes) -> None:
        """Keep the text of `words`."""
        disk = self._disk() if self.on else None
        if disk is not None:
            disk.put(self._options + words, planner(), text)


@cache
def planner() -> str:
    """Return what makes plans here: versions, and which files, by their sizes and dates."""
    machine = os.uname().machine if hasattr(os, "uname") else ""
    found = (f"plans of jitla {__version__} numpy {np.__version__} python {sys.hexversion:x} "
             f"{sys.platform} {machine}")
    here = os.path.dirname(__file__)
    for room in PLANNERS:
        try:
            with os.scandir(os.path.join(here, room)) as entries:
                files = [e.stat() for e in entries if e.name.endswith(".py")]
        except OSError:  # an archive: the version has to tell
            continue
        newest = max((s.st_mtime_ns for s in files), default=0)
        found += f" {room} {len(files)} {sum(s.st_size for s in files)} {newest}"
    return found
