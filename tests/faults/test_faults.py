"""A few of the faults, one of each kind; ``make faults`` runs all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.catalogue import names
from tests.faults.running import EXPECTED, FAULTS, fault, run, same

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (
    "content.cut[52]", "content.flipped[300]", "content.machine_code[noise]", "content.no_file[pipe]",
    "disks.writable[511]", "disks.always[rename-EROFS-empty]", "disks.full[100]", "disks.killed[5]",
    "compiling.always[emit-BackendError]", "compiling.stage[3]", "compiling.cold_interrupt[0.0321]",
    "living.fork_while[emit]", "living.fork_in_llvm[lost]", "loops.fork_in[queued]",
    "loops.fork_while[compile]", "loops.shared_arrays[2-1001]", "loops.interrupt[compiled-7]",
    "loops.errstate[compiled-all]",
    "planted.planted[arrays_are_not_restored]", "planted.planted[operands_never_overlap]",
    "planted.planted[code_is_not_compared_with_python]", "planted.planted[tags_are_not_written]",
)
COLD = (
    "cold.interrupt[71]", "cold.interrupt_import[277]", "cold.fork[71]", "cold.no_handles[0]",
    "cold.little_space[40]", "cold.small_stack[32-sync]",
)


def test_there_are_more_than_a_hundred() -> None:
    assert len(names()) > 200 and {*SAMPLE, *COLD} <= set(names())


@pytest.mark.process
@pytest.mark.parametrize("sample", [SAMPLE, COLD], ids=["sample", "cold"])
def test_a_sample_is_survived(sample: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.faults", "--exactly", *sample], cwd=ROOT, timeout=280,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(sample)} faults, 0 not survived" in done.stdout


@pytest.mark.process
@pytest.mark.timing
@pytest.mark.parametrize(("act", "said"), [
    (lambda at: None, ""), (lambda at: same(EXPECTED[::-1]), "AssertionError"),
    (lambda at: __import__("os").abort(), "ended with -6"),
    (lambda at: __import__("time").sleep(60), "hung: stopped"),
])
def test_what_goes_wrong_is_seen(act: object, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.running.SECONDS", 0.4)
    monkeypatch.setitem(FAULTS, "test", act)
    found = run("test").wrong
    assert said in found if said else not found


def test_cases_have_names() -> None:
    before = set(FAULTS)
    fault((1, ValueError), "x")(lambda at, *case: None)
    assert {n.partition("[")[2] for n in set(FAULTS) - before} == {"1-ValueError]", "x]"}
    for name in set(FAULTS) - before:
        del FAULTS[name]
