"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jitla.runtime import process as freed

_FAULTS = """
import resource
import numpy as np
from jitla.runtime import retain_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        held = [np.ones(100_000) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), int(retain_freed_memory()), faults() and faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there the heap is told")
def test_operations_on_freed_memory_meet_no_page_faults() -> None:
    found = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    before, asked, after = map(int, found.stdout.split())
    assert not asked or after < before / 10  # 5,200 and 1


def test_little_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed, "memory", lambda: 4 * freed.FREED_BLOCK_BYTES)
    assert not freed.retain_freed_memory()
