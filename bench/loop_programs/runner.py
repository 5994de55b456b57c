"""Runs programs in a fresh process per mode, and derives the table and the geometric means."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench.loop_programs.program import Program
from bench.loop_programs.worker import EXPECTED
from bench.tables import milliseconds

ROOT = Path(__file__).resolve().parents[2]
HEAD = ("program", "plain ms", "first ms", "compiled s", "regret ms", "x 1s", "x 4s", "x steady", "x CPU",
        "njit x", "njit CPU", "njit s", "result")
WIDTHS = (34, 10, 10, 11, 10, 7, 7, 9, 8, 8, 9, 8, 9)
MEANS = ("speedup_1s", "speedup_4s", "speedup_steady", "speedup_cpu")
Run = Callable[[Program, str, Path, float], dict[str, Any]]


def shared_folder() -> Path:
    """Return the directory where bytecode and jitla's measurements of the machine are kept between runs."""
    return Path(tempfile.gettempdir()) / f"jitla-loop-programs-{os.getuid()}"


def calibrated_folder() -> Path:
    """Return a cache directory with jitla's measurements of the machine and no code, made on first use."""
    folder = shared_folder() / "calibrated"
    if not (folder / "machine.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-W", "ignore", "-m", "jitla", "calibrate"], check=True,
                       stdout=subprocess.DEVNULL, cwd=ROOT,
                       env={**os.environ, "JITLA_CACHE_DIR": str(folder)})
    return folder


def environment(cache: Path) -> dict[str, str]:
    """Return the variables of a worker: an empty cache of code, and modules found compiled to bytecode."""
    shutil.copytree(calibrated_folder(), cache, dirs_exist_ok=True)
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "JITLA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(shared_folder() / "bytecode")}


def run_process(program: Program, mode: str, folder: Path, seconds: float, timeout: float) -> dict[str, Any]:
    """Run a worker; it and the processes it starts end with this call."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.loop_programs.worker",
               program.suite, program.name, mode, str(folder), str(seconds)]
    process = subprocess.Popen(command, cwd=folder, env=environment(folder / f"cache-{mode}"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               start_new_session=True)
    errors = b""
    failure = None
    try:
        errors = process.communicate(timeout=timeout)[1]
    except subprocess.TimeoutExpired:
        failure = f"not done within {timeout:.0f} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    answer = folder / f"{mode}.json"
    if failure is None and answer.exists():
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found
    return {"failed": failure or f"exit code {process.returncode}: {errors.decode(errors='replace')[-300:]}"}


def measure_program(program: Program, modes: Iterable[str], seconds: float, run: Run) -> dict[str, Any]:
    """Measure a program in the plain mode, then in the others; without plain results nothing else is run."""
    record: dict[str, Any] = {"suite": program.suite, "field": program.field, "name": program.name,
                              "load_average": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="jitla-loops-") as name:
        folder = Path(name)
        record["plain"] = run(program, "plain", folder, seconds)
        for mode in modes:
            if mode != "plain" and (folder / EXPECTED).exists():
                record[mode] = run(program, mode, folder, seconds)
    return record


def number(value: float | None, digits: int) -> str:
    """Return a number with digits after the point, or a dash where there is none."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def row_of(record: dict[str, Any], mode: str) -> list[str]:
    """Return the cells of a program in a mode of jitla."""
    plain, figures, njit = record["plain"], record.get(mode, {}), record.get("njit", {})
    title = f"{record['suite']}/{record['name']}"
    title += "" if mode == "jitla" else f" {mode}"
    plain_ms = milliseconds(plain["median"]) if "median" in plain else "-"
    njit_cells = [number(njit.get("speedup_steady"), 1), number(njit.get("speedup_cpu"), 1),
                  number(njit.get("compile_seconds"), 2)]
    if "failed" in njit:
        njit_cells = ["no", "-", "-"]
    if "failed" in plain or "failed" in figures:
        cells = ["-"] * 7
        result = "failed"
    elif not figures:
        cells, result = ["-"] * 7, "-"
    else:
        cells = [milliseconds(figures["first"]), number(figures["compiled"], 2),
                 number(1e3 * figures["regret"], 1), number(figures["speedup_1s"], 2),
                 number(figures.get("speedup_4s"), 2), number(figures["speedup_steady"], 2),
                 number(figures["speedup_cpu"], 2)]
        result = figures["same"]
    return [title, plain_ms, *cells, *njit_cells, result]


def failures(record: dict[str, Any]) -> list[str]:
    """Return the errors of a program, one per mode."""
    return [f"{record['suite']}/{record['name']} {mode}: {figures['failed']}"
            for mode, figures in record.items() if isinstance(figures, dict) and "failed" in figures]


def mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the values that are there, or None."""
    known = [v for v in values if v is not None and v > 0 and math.isfinite(v)]
    return geometric_mean(known) if known else None


def summarize_suites(records: list[dict[str, Any]], mode: str) -> dict[str, dict[str, Any]]:
    """Return counts and geometric means per suite for a mode of jitla, beside Numba's where it compiles."""
    summaries: dict[str, dict[str, Any]] = {}
    for suite in dict.fromkeys(record["suite"] for record in records):
        rows = [r for r in records if r["suite"] == suite and "speedup_steady" in r.get(mode, {})]
        if not rows:
            continue
        figures = [r[mode] for r in rows]
        both = [r for r in rows if "speedup_steady" in r.get("njit", {})]
        summary: dict[str, Any] = {"programs": len(rows),
                                   "load_average": sum(r["load_average"] for r in rows) / len(rows)}
        summary |= {name: mean(f.get(name) for f in figures) for name in MEANS}
        summary |= {
            "compiled": sum(f["compiled"] is not None for f in figures),
            "compiled_median": _median_compiled(figures),
            "slower": sum(f["speedup_cpu"] < 0.95 and f["speedup_steady"] < 0.95 for f in figures),
            "slower_1s": sum(f["speedup_1s"] < 0.95 for f in figures),
            "regret_mean": sum(f["regret"] for f in figures) / len(figures),
            "different": sum(f["same"] == "DIFFERS" for f in figures),
            "njit_programs": len(both),
            "njit_steady": mean(r["njit"]["speedup_steady"] for r in both),
            "njit_cpu": mean(r["njit"]["speedup_cpu"] for r in both),
            "cpu_where_njit": mean(r[mode]["speedup_cpu"] for r in both),
            "steady_where_njit": mean(r[mode]["speedup_steady"] for r in both),
            "njit_compile_mean": sum(r["njit"]["compile_seconds"] for r in both) / max(len(both), 1)}
        summaries[suite] = summary
    return summaries


def _median_compiled(figures: list[dict[str, Any]]) -> float | None:
    known = sorted(f["compiled"] for f in figures if f["compiled"] is not None)
    return known[len(known) // 2] if known else None


def describe(suite: str, mode: str, s: dict[str, Any]) -> list[str]:
    """Return the lines that tell of a suite."""
    n = {name: number(value, 2) for name, value in s.items()}
    lines = [
        f"{suite}, {mode}: {s['programs']} programs, load average {n['load_average']}; "
        f"geometric means: before 1 s {n['speedup_1s']}, before 4 s {n['speedup_4s']}, "
        f"steady {n['speedup_steady']} times plain ({n['speedup_cpu']} by CPU time)",
        f"  1.5 times plain reached by {s['compiled']} (median after {n['compiled_median']} s); "
        f"slower than 0.95 of plain: {s['slower_1s']} before 1 s, {s['slower']} steady; "
        f"mean regret {1e3 * s['regret_mean']:.1f} ms; results that differ: {s['different']}"]
    if s["njit_programs"]:
        lines.append(
            f"  numba.njit compiles {s['njit_programs']}, in {n['njit_compile_mean']} s on average; "
            f"there njit is {n['njit_steady']} times plain ({n['njit_cpu']} by CPU time), "
            f"{mode} {n['steady_where_njit']} ({n['cpu_where_njit']})")
    return lines


class BusyCore:
    """A process that keeps a core busy while the block runs."""

    def __enter__(self) -> BusyCore:
        self._process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        time.sleep(0.1)
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
