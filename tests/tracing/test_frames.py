"""Frames of the user, as tracebacks and counts show them."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import jitla
from jitla.tracing.frames import (
    frame_kind,
    user_line,
)


def helper(x):
    return x + np.ones(7)


@jitla.jit
def fails(a):
    y = a * 2
    return helper(y)


def test_a_traceback_ends_at_the_users_line() -> None:
    with pytest.raises(ValueError, match="broadcast") as caught:
        fails(np.ones(3))
    frames = [f for f in traceback.extract_tb(caught.value.__traceback__) if "jitla/tracing" in f.filename]
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.name == "helper" and not frames


def test_generators_too() -> None:
    @jitla.jit
    def steps(a):
        yield a * 2
        yield helper(a)

    running = steps(np.ones(3))
    next(running)
    with pytest.raises(ValueError, match="broadcast") as caught:
        next(running)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "helper"


def test_user_line_is_here() -> None:
    file, line = user_line()
    assert file == __file__ and line == test_user_line_is_here.__code__.co_firstlineno + 1


def test_own_files_are_internal() -> None:
    assert frame_kind(frame_kind.__code__) == 1 and frame_kind(helper.__code__) == 0
