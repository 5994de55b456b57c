"""Functions whose loops are compiled as soon as they begin."""

from __future__ import annotations

import pytest

from tests.loopjit import compiled


@pytest.fixture
def eager():
    """Return what makes the loop function of a function, whose loops are compiled at once."""
    return compiled.loop_function
