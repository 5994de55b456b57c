"""Interprets single entries of a tape by NumPy, without changing the tape.

Apart from `force`, its user, as the reference of what an entry means.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops import start_recording, stop_recording
from jitla.tracing.fallback import is_shared, replay_function
from jitla.tracing.tape import (
    LEAF,
    Entry,
)


def interpret(
    entries: list[Entry] | tuple[Entry, ...], index: int, leaves: list[np.ndarray], scalars: list[Any],
) -> Any:
    """Return the value of entry `index` in new memory, without floating-point warnings.

    Other code may append to the lists while this runs.
    """
    prefix = tuple(entries[: index + 1])
    inputs = leaves[: sum(entry[0] == LEAF for entry in prefix)]
    before = start_recording()
    try:
        value = replay_function(prefix, (index,))([*inputs, *scalars])[0]
    finally:
        stop_recording(before)
    if isinstance(value, np.ndarray) and is_shared(value, tuple(inputs)):
        value = value.copy("K")
    return value
