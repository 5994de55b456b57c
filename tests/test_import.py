"""`import jitla` is cheap and does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 0.030  # seconds, or
SHARE = 1 / 3  # of what NumPy itself takes, where the machine is slow or busy
PAIRS = 7
ROUNDS = 6  # more only where the first did not do: a busy machine needs more tries
HEAVY = ("scipy", "llvmlite", "numba", "cloudpickle")

TIME_NUMPY = "import time; t = time.process_time(); import numpy; print(time.process_time() - t)"
TIME_JITLA = ("import time, numpy; t = time.process_time(); import jitla;"
              " print(time.process_time() - t)")
WATCH = """
import json, sys, threading
import numpy

opened, threads, sockets = [], [], []

def watch(event, arguments):
    if event == "open":
        path, mode = str(arguments[0]), arguments[1]
        if not path.endswith((".py", ".pyc")) and ".pyc." not in path:
            opened.append(path)
    elif event.startswith(("socket.", "subprocess.", "os.fork", "ctypes.dlopen")):
        opened.append(event)
    elif event == "_thread.start_new_thread":
        threads.append(event)

before = set(sys.modules)
native = threading.active_count()
sys.addaudithook(watch)
import jitla
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "opened": opened,
    "threads": len(threads) + threading.active_count() - native,
}))
"""


def run(source: str) -> str:
    """Output of a fresh interpreter without user site, tracing or hooks."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-s", "-c", source], env=environment, cwd=ROOT,
                          capture_output=True, text=True, check=True)
    return done.stdout


def test_import_costs_little_over_numpy():
    """The processor's time, best of several runs each, taken in turn: load only ever adds to it."""
    run(TIME_JITLA)  # write the bytecode first
    numpy, jitla = [], []
    for _ in range(ROUNDS):
        for _ in range(PAIRS):
            numpy.append(float(run(TIME_NUMPY)))
            jitla.append(float(run(TIME_JITLA)))
        if min(jitla) <= max(LIMIT, SHARE * min(numpy)):
            return
    raise AssertionError(f"import jitla costs {1e3 * min(jitla):.1f} ms over numpy")


def test_import_loads_nothing_heavy():
    loaded = {name.split(".")[0] for name in json.loads(run(WATCH))["modules"]}
    assert not loaded & set(HEAVY)


def test_import_starts_no_thread_and_opens_no_file():
    seen = json.loads(run(WATCH))
    assert seen["threads"] == 0
    assert seen["opened"] == []
