"""Loops that are meant to go wrong are the same through emulated kernels: see `adversarial`."""

from __future__ import annotations

import pytest

from tests.loopjit import adversarial, emulated


@pytest.mark.parametrize("plain", adversarial.PROGRAMS, ids=lambda plain: plain.__name__)
def test_what_goes_wrong_goes_wrong_as_in_python(plain, monkeypatch):
    emulated.eager(monkeypatch.setattr)
    loops = emulated.version(plain)
    for kind in ("float64", "uint8", "int64"):
        assert not adversarial.compared(plain, loops.version, kind, 12)
    assert not emulated.FAULTS
