"""What `match` takes for a sequence: arrays, since NumPy 2.5, and so what stands for them.

Knows: a flag of classes. Must not know: proxies. Receives a class; changes it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

__all__ = ["match_like_arrays"]

_SEQUENCE = 1 << 5


def match_like_arrays(kind: type) -> None:
    """Let patterns of sequences match instances of `kind` if they match arrays.

    Registering the class with `collections.abc.Sequence` would do so, too, but `isinstance` says that arrays
    are none.
    """
    flags = kind.__flags__
    if flags & _SEQUENCE == np.ndarray.__flags__ & _SEQUENCE:
        return
    size: Any = type.__basicsize__  # of the class of classes it is a number
    words = (ctypes.c_ulong * (size // ctypes.sizeof(ctypes.c_ulong))).from_address(id(kind))
    places = [i for i, word in enumerate(words) if word == flags]
    if len(places) == 1:
        words[places[0]] ^= _SEQUENCE
