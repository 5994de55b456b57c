"""Worker processes: one for each batch of test files, a new one after a crash or a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.numpy_suite.items import LAST_LINES, events

# Batches: some test files, or one part of a large one

BYTES = 120_000


class Batch(NamedTuple):
    """Files that one process runs, and which part I/N of their items."""

    files: tuple[str, ...]
    part: str
    weight: int


def batches(folder: Path, files: Iterable[Path]) -> list[Batch]:
    """Split large files into parts and put small ones together."""
    made: list[Batch] = []
    small: list[str] = []
    room = BYTES
    for path in files:
        size = (folder / path).stat().st_size
        if size > BYTES:
            count = -(-size // BYTES)
            made += [Batch((str(path),), f"{i}/{count}", size // count) for i in range(count)]
            continue
        if size > room:
            made.append(Batch(tuple(small), "0/1", BYTES - room))
            small, room = [], BYTES
        small.append(str(path))
        room -= size
    return [*made, Batch(tuple(small), "0/1", BYTES - room)]


def shard(found: list[Batch], index: int, count: int) -> list[Batch]:
    """Return the batches of shard `index` of `count` (from 1): about equal work, always the same."""
    loads = [0] * count
    mine: list[Batch] = []
    for batch in sorted(found, key=lambda b: (-b.weight, b)):
        lightest = loads.index(min(loads))
        loads[lightest] += batch.weight
        if lightest == index - 1:
            mine.append(batch)
    return mine


# Workers

ROOT = Path(__file__).resolve().parents[2]
HANGS = 120.0
STARTUP = 300.0  # until the first sign of life, which comes after everything has been imported
POLL = 0.1
MAX_WORKERS = 40  # for one batch

Events = dict[str, dict[str, Any]]


class Setting(NamedTuple):
    """How pytest is started in a worker."""

    plugin: str = "tests.numpy_suite.plugin"
    options: str = "pytest.ini"
    environment: tuple[tuple[str, str], ...] = ()


def run(folder: Path, found: Iterable[Batch], mode: str, logs: Path, jobs: int = 1,
        more: tuple[str, ...] = (), hangs: float = HANGS, setting: Setting = Setting()) -> Events:
    """Run batches, `jobs` at once; return what became of each item."""
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.iterdir():
        old.unlink()
    result: Events = {}
    with ThreadPoolExecutor(jobs) as pool:
        for made in pool.map(
                lambda each: _batch(folder, each[1], mode, logs / f"{each[0]}.log", more, hangs,
                                    setting),
                enumerate(found)):
            result.update(made)
    return result


def _batch(folder: Path, batch: Batch, mode: str, log: Path, more: tuple[str, ...],
           hangs: float, setting: Setting) -> Events:
    for _ in range(MAX_WORKERS):
        end, text = _worker(folder, batch, mode, log, more, hangs, setting)
        found = events(log) if log.exists() else {}
        running = [item for item, event in found.items() if "outcome" not in event]
        if not running:
            if end not in (0, 1, 5):  # passed, failed, nothing to run
                text = text or f"ended with {end} before any item"
                found[f"{' '.join(batch.files)} ({batch.part})"] = {"outcome": "error", "text": text}
            break
        outcome = "hang" if end is None else "crash"
        with log.open("a", encoding="utf-8") as file:
            file.write(_line(running[0], outcome, f"{outcome}, exit code {end}\n{text}"))
    return events(log) | found if log.exists() else found


def _line(item: str, outcome: str, text: str) -> str:
    return json.dumps({"end": item, "outcome": outcome, "text": text}) + "\n"


def _worker(folder: Path, batch: Batch, mode: str, log: Path, more: tuple[str, ...],
            hangs: float, setting: Setting) -> tuple[int | None, str]:
    """Run one process until it ends or says nothing for too long; return its end and last words."""
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-c", setting.options,
               "--rootdir", ".", "-q", "-p", setting.plugin, "--mode", mode,
               "--log-items", str(log), "--part", batch.part, *more, *batch.files]
    words = log.with_suffix(".out")
    with words.open("wb") as out:
        worker = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, env=_environment(setting))
        size, since = -1, time.monotonic()
        while worker.poll() is None:
            time.sleep(POLL)
            now = log.stat().st_size if log.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > (hangs if now else max(hangs, STARTUP)):
                worker.kill()
                worker.wait()
                return None, _tail(words)
    return worker.returncode, _tail(words)


def _environment(setting: Setting) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", **dict(setting.environment)}


def _tail(words: Path) -> str:
    return "\n".join(words.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
