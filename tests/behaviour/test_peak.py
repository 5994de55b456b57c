"""What a call takes at its peak: its results and 64 MB, over the arguments, measured by the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Rows that NumPy runs in part, whose own temporaries these are.
NUMPYS = ("query of 1e7 rows, by mask", "query of 1e7 rows, by where")

CHILD = """
import gc, os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import jitla
from bench.peers import ROWS
from jitla import runtime

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))

def size(value):
    return sum(map(size, value)) if type(value) is tuple else getattr(value, "nbytes", 0)

def taken(row):
    few = row.make(np.random.default_rng(5), 0.01)
    scale = min(1.0, 0.01 * 96e6 / max(map(size, few)))
    arguments, function = row.make(np.random.default_rng(5), scale), jitla.jit(row.plain)
    kept = function(*arguments)
    if not function.stats()["kernels"]:
        return None
    kept = None
    runtime.keep_limit(0)
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    result = function(*arguments)
    over = status("VmHWM") - before - size(result)
    runtime.keep_limit(256 << 20)
    return over

for row in ROWS:
    if not row.long:
        print(row.name, taken(row), sep="\\t", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="the system is asked as Linux is")
def test_fused_plans_take_little_more_than_their_results(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHILD)
    command = [sys.executable, str(script), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("\t") for line in done.stdout.splitlines())
    found = {name: int(over) for name, over in rows.items() if over != "None"}
    assert len(found) > 30
    assert not {name: over for name, over in found.items() if over > 64 << 20 and name not in NUMPYS}
