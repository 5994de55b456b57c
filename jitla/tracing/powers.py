"""Powers: what NumPy's operator takes for which exponent, and exponents that plans may know.

Knows: NumPy's shortcuts, as the NumPy that is installed takes them. Must not know: blocks, frames.
Receives a base and an exponent; returns a ufunc, or the proxy of a power whose exponent is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops import broadcast
from jitla.tracing.array import LazyArray
from jitla.tracing.signature import METAS
from jitla.tracing.tape import KIND_CODE, OP_ID, SCALAR

#: Exponents of which there is something better than a power, if plans know them.
_KNOWN = frozenset({2.0, 0.5, -1.0, 1.0, 3.0, 4.0})
_POWER = OP_ID["power"]


class _Asked(np.ndarray):
    """An array of which every operation is the ufunc that NumPy would have used."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufunc


def _shortcuts() -> dict[tuple[str, type, Any], Any]:
    found: dict[tuple[str, type, Any], Any] = {}
    for char in "lLdD":
        base = np.ones(1, char).view(_Asked)
        for exponent in (2, -1, 1, 0.5, 2.0, -1.0, 1.0):
            ufunc = base**exponent
            if isinstance(ufunc, np.ufunc) and ufunc is not np.power:
                found[base.dtype.kind, type(exponent), exponent] = ufunc
    return found


#: The ufunc that ``x ** exponent`` is, by kind of x, type and value of the exponent, if not `np.power`.
SHORTCUTS = _shortcuts()


def is_paired(x: Any, exponent: Any) -> bool:
    """Say whether every exponent is for one element: NumPy looks what one for many of them is."""
    if not isinstance(exponent, (LazyArray, np.ndarray)):
        return True
    memory: Any = exponent._v if type(exponent) is LazyArray else exponent
    spread = memory is not None and any(
        by == 0 and n > 1 for by, n in zip(memory.strides, memory.shape, strict=True))
    return not spread and exponent.size != 1 and exponent.shape == broadcast((np.shape(x), exponent.shape))


def of_constant(x: Any, exponent: Any) -> LazyArray | None:
    """Record ``np.power(x, exponent)`` with an exponent that is part of the plan; None: it is not."""
    if type(x) is not LazyArray or type(exponent) not in (int, float) or exponent not in _KNOWN:
        return None
    meta = METAS[x._m]
    if meta.dtype.char not in "fd" or not meta.shape:
        return None
    session = x._s
    i = x._n if x._n >= 0 else session.enter(x)
    value = meta.dtype.type(exponent)
    j = session.append((SCALAR, KIND_CODE[type(value)], float(exponent)), session.hole, scalars=(value,))
    made: LazyArray = session.put(LazyArray, (_POWER, i, j), x._m)
    return made
