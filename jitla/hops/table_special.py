"""The op table, part four: SciPy's element-wise functions, entered when one of them is met.

Knows: their names, and how long they take. Must not know: SciPy, which need not be there; LLVM.
Receives a ufunc that a program called; returns its entry, if it is a function of ``scipy.special``.
"""

from __future__ import annotations

import sys

import numpy as np

from jitla.hops.spec import OpSpec, Zeros, by_numpy
from jitla.hops.table_cell import transcendental
from jitla.locks import relock

_ANY, _NONE = Zeros.ANY, Zeros.NONE
# name -> operations of an element, meaning, when it is zero
_KNOWN: dict[str, tuple[float, str, Zeros]] = {
    "erf": (88, "error function", _ANY),
    "erfc": (96, "1 - erf(x)", _NONE),
    "ndtr": (104, "cumulative distribution of the standard normal", _NONE),
    "expit": (44, "1 / (1 + e**-x)", _NONE),
    "log_expit": (79, "log(expit(x))", _NONE),
    "logit": (50, "log(x / (1 - x))", _NONE),
    "xlogy": (50, "x * log(y), 0 where x is 0", _NONE),
    "xlog1py": (60, "x * log(1 + y), 0 where x is 0", _NONE),
}
_lock = relock()


def adopt(fn: np.ufunc) -> OpSpec | None:
    """Return the entry of SciPy's ufunc `fn`, made when it is met first; None if there is none."""
    known = _KNOWN.get(fn.__name__)
    if known is None:
        return None
    if getattr(sys.modules.get("scipy.special"), fn.__name__, None) is not fn:
        return None
    flops, doc, zeros = known
    with _lock:
        found = by_numpy(fn)
        return transcendental(fn, flops, doc, zeros) if found is None else found
