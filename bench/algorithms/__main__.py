"""Whole algorithms, every system in turn, each run in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.algorithms.cases import DENSITIES, Case, cases
from bench.algorithms.host import machine

ALL = ("numpy", "jitla", "numba", "numba-expert", "jax", "torch-compile", "torch", "torch-port", "dask",
       "systemds", "systemds-codegen", "sklearn", "numpy-nudged")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS",
           "JITLA_NUM_THREADS", "NPROC")  # the last is XLA's
ERROR_LINES = 3


def runs(chosen: list[Case], systems: list[str], processes: int) -> Iterator[tuple[Case, str, int]]:
    """Yield what is to be run: of every case, the systems in turn, then once more."""
    for case in chosen:
        for number in range(processes):
            for system in systems:
                yield case, system, number


def done(file: Path) -> set[tuple[str, str, int]]:
    """Return what the file has already."""
    if not file.exists():
        return set()
    found = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return {(Case(**r["case"]).key, r["system"], r["process"]) for r in found if "case" in r}


def environment(system: str, threads: int, kept: Path, fresh: Path) -> dict[str, str]:
    """Return the variables of a process: as many threads for all, and no code of earlier processes.

    Modules are found compiled to bytecode, as they are where packages are installed.
    """
    wanted = {**os.environ, **dict.fromkeys(THREADS, str(threads)),
              "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "JAX_PLATFORMS": "cpu",
              "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(kept.parent / "bytecode")}
    if system == "jitla:kept-code":
        return wanted | {"JITLA_CACHE_DIR": str(kept.parent / "code")}
    cache = fresh / "cache"
    shutil.copytree(kept, cache, dirs_exist_ok=True)
    return wanted | {"JITLA_CACHE_DIR": str(cache)}


def calibrated(folder: Path) -> Path:
    """Return a directory in which jitla finds what it measured of this machine, and no code."""
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "jitla", "calibrate"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "JITLA_CACHE_DIR": str(folder)})
        shutil.copytree(folder, folder.parent / "code", dirs_exist_ok=True)
        subprocess.run([sys.executable, "-m", "compileall", "-q", "jitla", "bench"], check=True,
                       env={**os.environ, "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode")})
    return folder


def one(case: Case, system: str, options: argparse.Namespace, kept: Path) -> dict[str, Any]:
    """Run one system on one case; return what its process said."""
    wanted = json.dumps({"case": case.record(), "system": system, "seconds": seconds(system, options)})
    with tempfile.TemporaryDirectory() as fresh:
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "bench.algorithms.worker", wanted], capture_output=True, text=True,
                timeout=options.limit, env=environment(system, options.threads, kept, Path(fresh)))
        except subprocess.TimeoutExpired:
            return {"failed": f"not done within {options.limit:g} s"}
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()[-ERROR_LINES:]
        return {"failed": f"ended with {ended.returncode}: " + " / ".join(lines)}
    found: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def seconds(system: str, options: argparse.Namespace) -> float:
    """Return for how long a system is called: a number for all, or more of them, as in "1,jitla=5"."""
    found = dict(part.rpartition("=")[::2] for part in options.seconds.split(","))
    return float(found.get(system.partition(":")[0]) or found.get("", 3.0))


def begun(file: Path) -> None:
    """Begin the file with the machine and the versions on it; what is there must be of the same."""
    here = machine()
    if not file.exists():
        file.write_text(json.dumps({"machine": here}) + "\n", encoding="utf-8")
    with file.open(encoding="utf-8") as found:
        there = json.loads(found.readline()).get("machine")
    if there != here:
        raise SystemExit(f"{file} has runs of another machine, or of other versions: {there}")


def told(file: Path, record: dict[str, Any]) -> None:
    """Add a record to the file."""
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(record) + "\n")


def shown(case: Case, system: str, found: dict[str, Any]) -> str:
    """Return a line about one run."""
    head = f"{case.key:66} {system:18}"
    if "steady" not in found:
        return f"{head} {found.get('absent') or found.get('failed')}"[:200]
    return (f"{head} first {found['first'] * 1e3:9.2f} ms, steady {found['steady'] * 1e3:9.3f} ms, "
            f"peak {found['peak'] / 1e6:7.1f} MB, objective {found['objective']:.12g}")


def chosen(options: argparse.Namespace) -> list[Case]:
    """Return the cases that are asked for."""
    rows = [int(float(n)) for n in options.rows.split(",") if n]
    densities = [float(d) for d in options.densities.split(",") if d]
    found = cases(rows, options.dtypes.split(","), densities, options.real)
    parts = options.only.lower().split(";")
    return [c for c in found if any(p in c.key.lower() for p in parts)]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(prog="bench.algorithms", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="parts of cases, such as 'PCA | 1000', with ; between")
    parser.add_argument("--rows", default="1e3,1e4,1e5,1e6", help="with commas between; empty: none")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--densities", default=",".join(map(str, DENSITIES)), help="of sparse matrices")
    parser.add_argument("--real", action="store_true", help="real data, too")
    parser.add_argument("--systems", default=",".join(ALL), help="also jitla:VARIANT")
    parser.add_argument("--seconds", default="3", help="of calls in each process; 1,jitla=5: by system")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a process is ended")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all of this")
    parser.add_argument("--file", type=Path, default=Path("algorithms.jsonl"))
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    start = time.monotonic()
    begun(options.file)
    kept = calibrated(options.file.resolve().with_suffix(".cache") / "calibrated")
    have = done(options.file)
    for case, system, number in runs(chosen(options), options.systems.split(","), options.processes):
        if (case.key, system, number) in have:
            continue
        if time.monotonic() - start > options.budget:
            print("the budget is gone; run it again for the rest")
            return
        found = one(case, system, options, kept)
        record = {"case": case.record(), "system": system, "process": number, "threads": options.threads,
                  "seconds": seconds(system, options), **found}
        told(options.file, record)
        print(shown(case, system, found), flush=True)


if __name__ == "__main__":
    main()
