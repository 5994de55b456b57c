"""Computes single entries of a tape by NumPy, without changing the tape."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops import start_recording, stop_recording
from jitla.tracing.fallback import is_shared, script
from jitla.tracing.tape import (
    LEAF,
    Entry,
)


def interpret(
    entries: list[Entry] | tuple[Entry, ...], index: int, leaves: list[np.ndarray], scalars: list[Any],
) -> Any:
    """Return the value of entry `index`, in memory of its own; floating-point warnings are not given.

    The lists may grow at the end while this runs.
    """
    known = tuple(entries[: index + 1])
    read = leaves[: sum(entry[0] == LEAF for entry in known)]
    before = start_recording()
    try:
        value = script(known, (index,))([*read, *scalars])[0]
    finally:
        stop_recording(before)
    if isinstance(value, np.ndarray) and is_shared(value, tuple(read)):
        value = value.copy("K")
    return value
