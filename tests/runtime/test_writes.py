"""Memory is watched for writes: by NumPy, by the system, at every place, and not after it is gone."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitla.runtime import (
    watch_arrays,
    writes,
)

needed = pytest.mark.skipif(watch_arrays((np.ones(4096),)) is None, reason="no write protection here")


@pytest.fixture
def arrays() -> tuple[np.ndarray, ...]:
    return np.ones(100_000), np.arange(100, dtype=np.int32), np.zeros((300, 200))


@needed
@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("at", [0, 0.5, 1])
def test_a_write_at_any_place_is_seen_for_ever(arrays: Any, which: int, at: float) -> None:
    watch = watch_arrays(arrays)
    assert watch.is_same() and watch.is_same()
    flat = arrays[which].reshape(-1)
    flat[round(at * (flat.size - 1))] += 1
    assert not watch.is_same()
    assert not watch.is_same()
    assert watch_arrays(arrays).is_same()


@needed
def test_what_the_system_writes_is_seen(arrays: Any) -> None:
    watch = watch_arrays(arrays)
    with Path("/dev/zero").open("rb") as file:
        file.readinto(memoryview(arrays[0])[5000:5010].cast("B"))
    assert not watch.is_same()


@needed
def test_two_may_watch_the_same_memory(arrays: Any) -> None:
    first = watch_arrays(arrays[:2])
    arrays[0][50_000] = 7
    second = watch_arrays(arrays[::2])  # which must not make the write unseen
    assert not first.is_same() and second.is_same()
    arrays[0][50_000] = 8
    assert not second.is_same()


@needed
def test_memory_that_lies_across_what_is_watched_is_not(arrays: Any) -> None:
    watch = watch_arrays(arrays)
    assert watch_arrays((arrays[0][1000:],)) is None
    del watch
    gc.collect()
    assert watch_arrays((arrays[0][1000:],)).is_same()


@needed
def test_a_watch_does_not_keep_arrays() -> None:
    array = np.ones(100_000)
    gone, watch = weakref.ref(array), watch_arrays((array,))
    del array
    assert gone() is None
    assert watch is not None


@needed
def test_a_child_watches_anew(arrays: Any) -> None:
    watch = watch_arrays(arrays)
    child = os.fork()
    if not child:
        own = None if watch.is_same() else watch_arrays(arrays)
        fine = own is not None and own.is_same()
        arrays[0][:] = 3
        os._exit(0 if fine and not own.is_same() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert watch.is_same()  # the child wrote into memory of its own


@needed
def test_nothing_is_watched_where_memory_is_lent_to_devices(arrays: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(writes, "_is_pinned", lambda: True)
    assert watch_arrays(arrays) is None


def test_nothing_is_watched_where_the_system_does_not_help(arrays: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(writes, "_system", None)
    monkeypatch.setattr(writes, "_USERFAULTFD", {})
    assert watch_arrays(arrays) is None
