"""Whether NumPy may refuse to resize an array that one variable holds, and nothing else.

On Python 3.14 counts of references are not what they were: since 2.5 NumPy refuses where it cannot tell.
That depends on the instruction that loads the variable, and NumPy says that it may be wrong. jitla can tell.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

REFUSES = sys.version_info >= (3, 14) and np.lib.NumpyVersion(np.__version__) >= "2.5.0"


def skip_refused(program: str) -> None:
    """Skip a test of `program` if it resizes arrays and NumPy may refuse to."""
    if REFUSES and "resize" in program and "np.resize" not in program:
        pytest.skip("NumPy may refuse to resize what only one variable holds")
