"""`python -m tests.library_suites --suite SUITE --mode MODE --shard I/N` runs a shard, or adds them up."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.library_suites.comparison import EXPECTED, MAX_REASONS, differences, groups, shown
from tests.library_suites.copies import NAMES, found_files, prepared, version
from tests.numpy_suite.__main__ import shard_name
from tests.numpy_suite.runner import Batch, Setting, batches, run, shard
from tests.numpy_suite.verdict import Events, Finding, expectations, totals, unused

MODES = ("sync", "default")
LIMIT = 60.0  # seconds of one item
RESPITE = 240.0  # seconds more until a process is ended that says nothing; collecting a file may take as long
SHOWN_ITEMS = 6


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.library_suites",
                                    description="SciPy's or scikit-learn's own tests, the library decorated")
    found.add_argument("--suite", choices=sorted(NAMES), default="scipy")
    found.add_argument("--mode", choices=MODES, default="sync")
    found.add_argument("--shard", type=shard_name, default="1/8", help="I/N, from 1")
    found.add_argument("--jobs", type=int, default=2, help="processes at once")
    found.add_argument("--files", default="", help="only files whose path contains this")
    found.add_argument("-k", dest="expression", default="", help="only items that pytest -k selects")
    found.add_argument("--every", type=int, default=1, help="only one item in so many, always the same")
    found.add_argument("--limit", type=float, default=LIMIT, help="seconds of one item")
    found.add_argument("--home", type=Path, default=Path(".library-suites"), help="folder for results")
    found.add_argument("--fresh", action="store_true", help="run the plain tests again, too")
    found.add_argument("--merge", action="store_true", help="add up the shards that have been run")
    return found


def setting(home: Path, options: Path) -> Setting:
    """Return how workers are started: one thread, examples of hypothesis that are the same in each run."""
    return Setting("tests.library_suites.plugin", str(options), (
        ("OMP_NUM_THREADS", "1"), ("SCIPY_HYPOTHESIS_PROFILE", "deterministic"), ("MPLBACKEND", "agg"),
        ("JITLA_CACHE_DIR", str(home.resolve() / "cache"))))


def run_batches(home: Path, suite: str, mode: str, found: list[Batch], logs: Path, jobs: int = 1,
                more: tuple[str, ...] = (), limit: float = LIMIT) -> Events:
    """Run batches of a library's tests; return what became of each item."""
    folder, options = prepared(home, suite)
    told = ("--package", NAMES[suite], f"--timeout={limit}", "--timeout-method=signal",
            "--continue-on-collection-errors", *more)
    return run(folder, found, mode, logs.resolve(), jobs, told, limit + RESPITE, setting(home, options))


def result_file(home: Path, suite: str, mode: str, name: str) -> Path:
    """Return where the results of a shard are."""
    return home / f"{version(suite)}-{mode}-{name.replace('/', 'of')}.json"


def run_mode(options: argparse.Namespace, mode: str) -> Events:
    """Run the shard in one mode and write its result file."""
    folder, _ = prepared(options.home, options.suite)
    index, count = map(int, options.shard.split("/"))
    files = [path for path in found_files(folder, options.suite) if options.files in str(path)]
    mine = [each._replace(part=thinned(each.part, options.every))
            for each in shard(batches(folder, files), index, count)]
    more = ("-k", options.expression) if options.expression else ()
    name = f"{options.suite}-{mode}-{index}of{count}{options.files}".replace("/", "-")
    began = time.monotonic()
    events = run_batches(options.home, options.suite, mode, mine, options.home / "logs" / name, options.jobs,
                         more, options.limit)
    record: dict[str, Any] = {"mode": mode, "shard": options.shard, "version": version(options.suite),
                              "seconds": round(time.monotonic() - began, 1), "items": events}
    path = result_file(options.home, options.suite, mode, name_of(options))
    path.write_text(json.dumps(record, indent=0, sort_keys=True), encoding="utf-8")
    return events


def name_of(options: argparse.Namespace) -> str:
    """Return what the shard and the selection are called in names of files."""
    every = f"every{options.every}" if options.every > 1 else ""
    return f"{options.shard}{options.files}{options.expression}{every}".replace("/", "of")


def thinned(part: str, every: int) -> str:
    """Return the part of the items of `part` that has one in `every`."""
    index, _, count = part.partition("/")
    return f"{index}/{int(count) * every}"


def results(options: argparse.Namespace) -> tuple[Events, Events]:
    """Run a shard plain, unless its results are there, and in the mode asked for."""
    base = result_file(options.home, options.suite, "plain", name_of(options))
    if options.fresh or not base.exists():
        run_mode(options, "plain")
    return _items(base), run_mode(options, options.mode)


def merged(options: argparse.Namespace) -> tuple[Events, Events]:
    """Add up the result files of the shards of one mode, those that are there."""
    made: tuple[Events, Events] = {}, {}
    count = int(options.shard.split("/")[1])
    for index in range(1, count + 1):
        paths = [result_file(options.home, options.suite, mode, f"{index}/{count}")
                 for mode in ("plain", options.mode)]
        if not all(path.exists() for path in paths):
            print(f"shard {index}/{count} has not been run")
            continue
        for events, path in zip(made, paths, strict=True):
            events.update(_items(path))
    return made


def _items(path: Path) -> Events:
    items: Events = json.loads(path.read_text(encoding="utf-8"))["items"]
    return items


def report(found: list[Finding], now: Events) -> None:
    """Print what is new by cause, what was expected, and the totals."""
    for group in groups((finding for finding in found if finding.reason is None), now):
        print(f"== {len(group.items)} x {group.cause}")
        print("".join(f"   {item}\n" for item in group.items[:SHOWN_ITEMS]), end="")
        if len(group.items) > SHOWN_ITEMS:
            print(f"   and {len(group.items) - SHOWN_ITEMS} more")
        print(f"{group.text}\n")
    for why, count in Counter(f.reason for f in found if f.reason).most_common():
        print(f"{count:5} expected: {why}")
    print(totals(now, found, shown))


def main() -> int:
    """Run or merge, print the totals and what is new; 1 if anything is."""
    options = parser().parse_args()
    options.home.mkdir(exist_ok=True)
    plain, now = merged(options) if options.merge else results(options)
    reasons = expectations(EXPECTED)
    found = differences(plain, now, options.mode, reasons)
    report(found, now)
    if options.merge:
        for pattern in unused(found, options.mode, reasons):
            print(f"expected, but does not differ: {pattern}")
    print(f"{options.suite}, mode {options.mode}, {len(reasons)} of at most {MAX_REASONS} reasons")
    return 1 if any(finding.reason is None for finding in found) else 0


if __name__ == "__main__":
    sys.exit(main())
