"""Whether other code of the program may write unseen: threads, handlers of signals, tracers."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: test runners have threads, handlers and tracers.
HEAD = """
import signal, sys, threading, types
from jitla.tracing.frames import is_alone
stop = threading.Event()
def waits(): stop.wait()
"""
CASES = {
    "nothing": ("pass", True),
    "a thread": ("threading.Thread(target=waits, daemon=True).start()", False),
    "a thread that has ended": ("t = threading.Thread(target=print); t.start(); t.join()", True),
    "a thread of a notebook": ("waits.__module__ = 'ipykernel.iostream'; "
                               "threading.Thread(target=waits, daemon=True).start()", True),
    "one of these and another": ("threading.Thread(target=waits, daemon=True).start(); "
                                 "waits.__module__ = 'tqdm'; "
                                 "threading.Thread(target=stop.wait, daemon=True).start()", False),
    "a thread nobody knows": ("import _thread; _thread.start_new_thread(waits, ())", False),
    "a handler": ("signal.signal(signal.SIGINT, lambda *x: None)", False),
    "a handler of an alarm": ("signal.signal(signal.SIGTERM, waits)", False),
    "handlers that were there": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", True),
    "a tracer": ("sys.settrace(lambda *x: None)", False),
    "a profiler": ("sys.setprofile(lambda *x: None)", False),
}


@pytest.mark.parametrize("case", CASES)
def test_is_alone(case: str) -> None:
    text, alone = CASES[case]
    program = f"{HEAD}{text}\nimport time; time.sleep(0.05); print(is_alone()); stop.set()"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout.split()[-1] == str(alone)


def test_a_thread_is_not_alone_beside_the_main_one() -> None:
    program = HEAD + "t = threading.Thread(target=lambda: print(is_alone())); t.start(); t.join()"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert made.stdout == "False\n"
