"""Comparison of results with the plain function's: equal bits, close values, or a difference."""

from __future__ import annotations

from typing import Any

import numpy as np

BITS, CLOSE, DIFFERENT = 0, 1, 2
LABELS = ("bits", "close", "DIFFERS")
TOLERANCE = 1e-6  # relative, of float64; rounding may differ where sums are reordered
SINGLE_TOLERANCE = 1e-3  # of float32 and complex64
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))


def compare(expected: Any, actual: Any) -> int:
    """Return BITS for the same type and bits, CLOSE for numbers within the tolerance, else DIFFERENT.

    Objects other than arrays, numbers, text and containers of them are not compared.
    """
    if isinstance(expected, np.ndarray):
        return compare_arrays(expected, actual)
    if isinstance(expected, (np.generic, *PLAIN_TYPES)):
        if type(expected) is type(actual) and repr(expected) == repr(actual):
            return BITS
        return CLOSE if _close(np.asarray(expected), np.asarray(actual)) else DIFFERENT
    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            return DIFFERENT
        same_type = BITS if type(actual) is type(expected) else CLOSE
        return max([same_type, *(compare(a, b) for a, b in zip(expected, actual, strict=True))])
    if isinstance(expected, dict):
        if not isinstance(actual, dict) or list(actual) != list(expected):
            return DIFFERENT
        return max([BITS, *(compare(value, actual[key]) for key, value in expected.items())])
    return BITS if type(actual) is type(expected) else DIFFERENT


def compare_arrays(expected: np.ndarray[Any, Any], actual: Any) -> int:
    """Compare an array with a result; shapes must be equal, and dtypes for equal bits."""
    if not isinstance(actual, np.ndarray) or actual.shape != expected.shape:
        return DIFFERENT
    if expected.dtype == actual.dtype:
        if expected.dtype == object:
            return BITS if repr(expected) == repr(actual) else DIFFERENT
        if _bits_equal(expected, actual):
            return BITS
    return CLOSE if _close(expected, actual) else DIFFERENT


def _bits_equal(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> bool:
    if expected.flags.c_contiguous and actual.flags.c_contiguous and expected.itemsize % 8 == 0:
        words = expected.reshape(-1).view(np.uint64), actual.reshape(-1).view(np.uint64)
        return bool((words[0] == words[1]).all())
    return expected.tobytes() == actual.tobytes()


def _close(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> bool:
    if expected.shape != actual.shape or "O" in (expected.dtype.char, actual.dtype.char):
        return False
    if expected.dtype.kind in "bSU" or actual.dtype.kind in "bSU":
        return bool(np.array_equal(expected, actual))
    rtol = SINGLE_TOLERANCE if expected.dtype.char in "efF" else TOLERANCE
    with np.errstate(all="ignore"):
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 0.0
        return bool(np.allclose(actual, expected, rtol=rtol, atol=rtol * 1e-3 * scale, equal_nan=True))
