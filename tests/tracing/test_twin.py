"""Twins do exactly what their functions do, and call the hooks where they should."""

from __future__ import annotations

import gc
import linecache
import sys
import textwrap
import weakref
from typing import Any

import numpy as np
import pytest

from jitla.tracing.twin import Twins, instrument
from tests.tracing.twin_corpus import COROUTINES, SNIPPETS
from tests.tracing.twin_kit import Hook, Outcome, define


def function(body: str, prefix: str = "") -> Any:
    """A function of three arguments with that body."""
    return define(f"{prefix}def f(a, b, c):\n" + textwrap.indent(body, "    "))


@pytest.mark.parametrize("body", SNIPPETS)
def test_twin_does_the_same(body: str) -> None:
    original = function(body)
    twin = instrument(original, Hook())
    assert twin is not None
    first, second = Outcome(original, "a", "b", "c"), Outcome(twin, "a", "b", "c")
    assert first.facts() == second.facts()


@pytest.mark.parametrize("body", COROUTINES)
def test_twin_of_coroutine_does_the_same(body: str) -> None:
    original = function(body, "async ")
    twin = instrument(original, Hook())
    assert twin is not None
    first, second = Outcome(original, "a", "b", "c"), Outcome(twin, "a", "b", "c")
    assert first.facts() == second.facts()
