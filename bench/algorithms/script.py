"""What a script of the benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Script:
    """A function of NumPy, and how its arguments are drawn for a number of rows."""

    name: str
    plain: Callable[..., tuple[Any, ...]]
    make: Callable[[int, Any, np.random.Generator], tuple[Any, ...]]
