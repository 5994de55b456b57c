"""Whether NumPy resizes an array that one variable holds, and nothing else.

Since 2.5 it does not on Python 3.14, where it cannot tell, and says that this may be wrong; jitla can tell.
"""

from __future__ import annotations

import numpy as np
import pytest


def _refuses() -> bool:
    lone = np.zeros(2)
    try:
        lone.resize(3)
    except ValueError as error:
        return "false positive" in str(error)
    return False


REFUSES = _refuses()


def skip_refused(program: str) -> None:
    """Skip a test of `program` if it resizes arrays and NumPy would not."""
    if REFUSES and "resize" in program and "np.resize" not in program:
        pytest.skip("NumPy refuses to resize what only one variable holds")
