"""The stored machine: found by later processes, trusted only where it was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jitla
from jitla.__main__ import main
from jitla.codegen import LlvmBackend
from jitla.config import Config, cache_directory
from jitla.engine import ENGINE
from jitla.hops import REFERENCE_MACHINE
from jitla.runtime import disk_cache
from jitla.runtime.process import _PROCESS
from jitla.tuner import calibration
from jitla.tuner.calibration import CacheSizes, cache_sizes

# The stored machine: found by later processes, trusted only where it was measured.

ROOT = Path(__file__).resolve().parents[1]


# ------------------------------------------------------------------------------ the file


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    place = disk_cache.save_machine(tmp_path / "new" / "directory", "host", REFERENCE_MACHINE)
    assert place is not None and disk_cache.load_machine(place.parent, "host") == REFERENCE_MACHINE
    assert [p.name for p in place.parent.iterdir()] == [disk_cache.MACHINE_FILE_NAME]


def test_another_host_or_version_is_not_trusted(tmp_path: Path) -> None:
    place = disk_cache.save_machine(tmp_path, "host", REFERENCE_MACHINE)
    assert place is not None and disk_cache.load_machine(tmp_path, "other") is None
    record = json.loads(place.read_text())
    place.write_text(json.dumps(record | {"version": disk_cache.MACHINE_FORMAT_VERSION + 1}))
    assert disk_cache.load_machine(tmp_path, "host") is None


@pytest.mark.parametrize("text", [
    "", "{", "[]", "{}", "null", '{"version": 1, "host": "host", "machine": 3}'])
def test_a_broken_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / disk_cache.MACHINE_FILE_NAME).write_text(text)
    assert disk_cache.load_machine(tmp_path, "host") is None


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert disk_cache.save_machine(tmp_path / "file" / "below", "host", REFERENCE_MACHINE) is None


# ------------------------------------------------------------------------------ where it is kept


def test_the_option_says_where(tmp_path: Path) -> None:
    assert cache_directory(Config(cache_dir=str(tmp_path))) == str(tmp_path)
    assert Config(cache_dir=tmp_path).cache_dir == str(tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(("platform", "variable", "end"), [
    ("linux", "XDG_CACHE_HOME", "jitla"), ("win32", "LOCALAPPDATA", "jitla"), ("darwin", "", "Caches/jitla"),
])
def test_the_users_cache_is_the_systems(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, variable: str, end: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "own"))
        assert cache_directory(Config()) == str(tmp_path / "own" / "jitla")
        monkeypatch.delenv(variable)
    found = Path(cache_directory(Config()))
    assert found.is_relative_to(tmp_path) and str(found).endswith(end)


# ------------------------------------------------------------------------------ measuring


def test_cache_sizes_are_the_systems(tmp_path: Path) -> None:
    for index, (level, size) in enumerate([("1", "32K"), ("2", "1024K"), ("3", "8192K")]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "level").write_text(level + "\n")
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert cache_sizes(tmp_path) == CacheSizes(1 << 20, 8 << 20)
    (tmp_path / "index2" / "size").write_text("many\n")
    assert cache_sizes(tmp_path) == CacheSizes(1 << 20, calibration.DEFAULT_SHARED_BYTES)
    default = CacheSizes(calibration.DEFAULT_NEAR_BYTES, calibration.DEFAULT_SHARED_BYTES)
    assert cache_sizes(tmp_path / "nothing") == default


def test_a_measured_machine_is_possible() -> None:
    found = calibration.measure(LlvmBackend())
    assert [lv.name for lv in found.levels] == ["near", "shared", "memory"]
    rates = [r for lv in found.levels for r in (lv.read, lv.write)] + [found.stream]
    assert all(0 < r.one <= r.all < float("inf") for r in rates)
    assert all(getattr(found, k) > 0 for k in ("unit", "product", "launch", "wake", "call", "rouse"))
    assert found.scalar >= 1 and found.fault >= 0 and found.threads >= 1


# ------------------------------------------------------------------------------ in use


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A gate that has not looked yet, and a measurement that takes no time."""
    monkeypatch.setattr(ENGINE, "_machine", None)
    monkeypatch.setattr(ENGINE, "_compilers", {})
    monkeypatch.setattr(calibration, "measure", lambda backend: REFERENCE_MACHINE._replace(name="measured"))
    return tmp_path


def test_calibrating_keeps_and_uses_the_machine(measured: Path) -> None:
    with jitla.options(cache_dir=measured) as config:
        before = ENGINE.compiler(config)
        assert jitla.calibrate().name == "measured"
        after = ENGINE.compiler(config)
    assert after is not before
    assert (before._tools.machine.name, after._tools.machine.name) == ("reference", "measured")
    assert json.loads((measured / disk_cache.MACHINE_FILE_NAME).read_text())["machine"]["name"] == "measured"


def test_kernels_are_shared_where_that_was_measured_to_pay(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = REFERENCE_MACHINE._replace(name="measured", threads=3, wake=1e-6, rouse=20e-6)
    monkeypatch.setattr(calibration, "measure", lambda backend: found)
    with jitla.options(cache_dir=measured) as config:
        ENGINE.compiler(config)
        assert ENGINE._backend().serial_ns == pytest.approx(12_000)
        jitla.calibrate()
        ENGINE.compiler(config)
        assert ENGINE._backend().serial_ns == pytest.approx(1_800)
        assert _PROCESS.pool["wake"] == 29
        monkeypatch.setattr(ENGINE, "_machine", None)
        monkeypatch.setattr(ENGINE, "_compilers", {})
        monkeypatch.setattr(disk_cache, "load_machine", lambda *_: None)
        ENGINE.compiler(config)
    assert ENGINE._backend().serial_ns == pytest.approx(12_000) and _PROCESS.pool["wake"] == 99


def test_it_holds_where_nothing_can_be_written(measured: Path) -> None:
    (measured / "file").write_text("")
    with jitla.options(cache_dir=measured / "file") as config:
        jitla.calibrate()
        assert ENGINE.compiler(config)._tools.machine.name == "measured"


def test_fewer_threads_are_planned_for(measured: Path) -> None:
    with jitla.options(cache_dir=measured, num_threads=1) as config:
        assert ENGINE.compiler(config)._tools.machine.threads == 1


def test_the_command_line_calibrates(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with jitla.options(cache_dir=measured):
        assert main(["calibrate"]) == 0
    assert "measured" in capsys.readouterr().out and (measured / disk_cache.MACHINE_FILE_NAME).exists()


SOURCE = """
import sys
import numpy as np
import jitla
from jitla.engine import ENGINE
assert jitla.jit(lambda x: x + 1.0)(np.ones(1000)).sum() == 2000
print(ENGINE._machine.name, ENGINE.host())
assert "jitla.calibration" not in sys.modules
"""


def run(directory: Path) -> list[str]:
    environment = os.environ | {"JITLA_CACHE_DIR": str(directory), "PYTHONPATH": str(ROOT)}
    script = directory / "script.py"
    script.write_text(SOURCE)
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True,
                          check=True, timeout=120)
    return done.stdout.strip().split(" ", 1)


@pytest.mark.process
def test_another_process_finds_it_and_measures_nothing(tmp_path: Path) -> None:
    name, host = run(tmp_path)
    assert name == "reference"
    disk_cache.save_machine(tmp_path, host, REFERENCE_MACHINE._replace(name="stored"))
    assert run(tmp_path) == ["stored", host]
