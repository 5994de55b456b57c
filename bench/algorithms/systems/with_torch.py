"""The scripts with torch: the NumPy function given to torch.compile, ports, and ports compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from bench.algorithms.systems.entered import Entered, NotHere, lines_changed, port


def enter(name: str, script: str, plain: Any, arguments: tuple[Any, ...]) -> Entered:
    """Return the call."""
    if any(sp.issparse(a) for a in arguments):
        raise NotHere("ports are for dense arrays")
    if name == "torch-compile":
        compiled = torch.compile(plain)
        return Entered(lambda: compiled(*arguments))
    function, _ = port("torch", plain)
    changed = lines_changed(plain, function)
    ready = torch.compile(function) if name == "torch-port" else function
    given = tuple(_moved(a) for a in arguments)

    def call() -> Any:
        with torch.no_grad():
            return ready(*given)

    return Entered(call, changed)


def _moved(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return [torch.from_numpy(v) for v in value] if isinstance(value, list) else value
