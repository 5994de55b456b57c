"""Casts of floats to integers whose result is undefined, also where NumPy does not warn of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def storable(value: Any, target: Any) -> Any:
    """Return what is about to be stored into `target`; warn if integers cannot hold it."""
    if isinstance(target, np.ndarray):
        _told(value, target.dtype)
    return value


def astype(array: Any, dtype: Any, *more: Any, **options: Any) -> Any:
    """Do ``array.astype(dtype)``; warn if integers cannot hold it."""
    if isinstance(array, (np.ndarray, np.generic)):
        _told(array, np.dtype(dtype))
    return array.astype(dtype, *more, **options)


def _told(value: Any, dtype: np.dtype) -> None:
    cells = value if isinstance(value, (np.ndarray, np.generic, float)) else None
    if cells is None or dtype.kind not in "iu" or np.asarray(cells).dtype.kind not in "fc":
        return
    with np.errstate(all="ignore"):
        whole = np.trunc(np.real(np.asarray(cells)).astype(np.longdouble))
    known = np.iinfo(dtype)
    if not np.all((whole >= known.min) & (whole <= known.max)):
        warnings.warn("invalid value encountered in cast", RuntimeWarning, stacklevel=3)
