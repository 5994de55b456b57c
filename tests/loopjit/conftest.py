"""Loops over elements are compiled as soon as they were run once, by what stands for the compiler."""

from __future__ import annotations

import pytest

from tests.loopjit import emulated


@pytest.fixture
def eager(monkeypatch):
    """Let every loop pay, and return what makes the version of a function."""
    emulated.eager(monkeypatch.setattr)
    emulated.FAULTS.clear()
    yield emulated.version
    assert not emulated.FAULTS
