"""What a call takes at its peak: its results and 64 MB, over the arguments, measured by the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.behaviour.taking import INDEXED

ROOT = Path(__file__).parents[2]
#: Rows that NumPy runs in part, whose own temporaries these are.
NUMPYS = ("query of 1e7 rows, by mask", "query of 1e7 rows, by where")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="the system is asked as Linux is")
def test_fused_plans_take_little_more_than_their_results() -> None:
    command = [sys.executable, "-m", "tests.behaviour.taking"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    found = {name: int(over) for name, over in rows.items() if over != "None"}
    assert len(found) > 40 and {row.name for row in INDEXED} <= set(found)
    assert not {name: over for name, over in found.items() if over > 64 << 20 and name not in NUMPYS}
