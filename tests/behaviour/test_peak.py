"""What a call takes at its peak: its results and 64 MB, over the arguments, measured by the system.

Arguments are of 24 MB, and what is over less than one more of them, which says the same in a third of the
time: ``python -m tests.behaviour.taking 96e6`` measures more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.taking import INDEXED

ROOT = Path(__file__).parents[2]
LARGEST = 24_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="the system is asked as Linux is")
def test_fused_plans_take_little_more_than_their_results() -> None:
    command = [sys.executable, "-m", "tests.behaviour.taking", str(LARGEST)]
    # else the C library keeps blocks of less than 32 MB that are free
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=840, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    found = {name: int(over) for name, over in rows.items() if over != "None"}
    assert len(found) > 40 and {row.name for row in INDEXED} <= set(found)
    assert not {name: over for name, over in found.items() if over > 0.9 * LARGEST}
