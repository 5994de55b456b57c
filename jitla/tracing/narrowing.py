"""Operations whose results are stored in another dtype: how they are cast, and what NumPy says of that.

Knows: in-place ufuncs of NumPy. Must not know: tapes, sessions, blocks.
Receives a ufunc and dtypes; returns attributes of the cast behind it, and the function that does it.

`x += y` of narrower floats is one call: what overflows as it is stored overflows in the addition, NumPy says,
not in a cast. The cast knows which operation it belongs to, and is done by that where it has to warn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# With what an operation changes nothing, not even the sign of a zero.
_NEUTRAL = {"add": -0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}

Attrs = tuple[tuple[str, Any], ...]


def conversion(ufunc: Any, made: np.dtype, known: np.dtype) -> Attrs | None:
    """Return the attributes of the cast that stores what `ufunc` made; None if that is NumPy's business."""
    if made is known or np.can_cast(made, known, "safe" if made.kind in "fc" else "same_kind"):
        return (("dtype", known),)
    if ufunc.__name__ in _NEUTRAL and made == np.float64 and known == np.float32:
        return (("dtype", known), ("within", ufunc.__name__))
    return None


def within(attrs: Attrs) -> str | None:
    """Return the operation that a cast is part of."""
    return next((value for name, value in attrs if name == "within"), None)


def stored(operation: str, made: Any, dtype: np.dtype) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return the call that casts what `operation` made as that does when it stores it."""
    out = np.empty_like(made, dtype=dtype)
    return getattr(np, operation), [made, _NEUTRAL[operation]], {"out": out, "casting": "same_kind"}


def narrowed(x: Any, dtype: np.dtype, within: str) -> Any:
    """Cast as the operation does that stores what it made."""
    function, args, options = stored(within, x, dtype)
    return function(*args, **options)
