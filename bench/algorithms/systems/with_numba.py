"""The scripts compiled by Numba: the same function where it compiles, and loops as experts write them."""

from __future__ import annotations

import types
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

from bench.algorithms.systems.entered import Entered, NotHere, lines_changed, port


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the compiled call."""
    if any(sp.issparse(a) for a in arguments) and name == "numba":
        raise NotHere("Numba knows no sparse matrices")
    if name == "numba":
        function, helpers = plain, _helpers(plain)
        compiled = numba.njit(types.FunctionType(plain.__code__, {**plain.__globals__, **helpers},
                                                 plain.__name__, plain.__defaults__, plain.__closure__))
        changed = 0
    else:
        function, _ = port("loops", plain)
        compiled, changed = function, lines_changed(plain, getattr(function, "py_func", function))
    given = tuple(_typed(a) for a in arguments) if name == "numba" else arguments
    return Entered(lambda: compiled(*given), changed)


def _helpers(plain: Any) -> dict[str, Any]:
    """Return the functions of its module that `plain` calls, compiled."""
    found = {}
    for name in plain.__code__.co_names:
        value = plain.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__module__ == plain.__module__:
            found[name] = numba.njit(value)
    return found


def _typed(value: Any) -> Any:
    """Return lists as Numba wants them."""
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return numba.typed.List(value)
    return value
