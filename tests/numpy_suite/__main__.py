"""`python -m tests.numpy_suite --mode MODE --shard I/N` runs a shard; `--merge` adds up the shards."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.numpy_suite.copies import found_files, prepared, version
from tests.numpy_suite.runner import batches, run, shard
from tests.numpy_suite.verdict import (
    MAX_REASONS,
    Events,
    Finding,
    expectations,
    findings,
    totals,
    unused,
)

MODES = ("decorate", "lazy")


def shard_name(given: str) -> str:
    """Return `given` if it names a shard, such as 3/8."""
    index, _, count = given.partition("/")
    if not (index.isdigit() and count.isdigit() and 0 < int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{given!r} is not I/N with 1 <= I <= N")
    return given


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.numpy_suite",
                                    description="NumPy's own tests, decorated")
    found.add_argument("--mode", choices=MODES, default="decorate")
    found.add_argument("--shard", type=shard_name, default="1/8", help="I/N, from 1")
    found.add_argument("--jobs", type=int, default=2, help="processes at once")
    found.add_argument("--files", default="", help="only files whose path contains this")
    found.add_argument("-k", dest="expression", default="", help="only items that pytest -k selects")
    found.add_argument("--home", type=Path, default=Path(".numpy-suite"), help="folder for results")
    found.add_argument("--fresh", action="store_true", help="run the plain tests again, too")
    found.add_argument("--merge", action="store_true", help="add up the shards that have been run")
    return found


def result_file(home: Path, mode: str, name: str) -> Path:
    """Return where the results of a shard are."""
    return home / f"{version()}-{mode}-{name.replace('/', 'of')}.json"


def run_mode(options: argparse.Namespace, mode: str) -> Events:
    """Run the shard in one mode and write its result file."""
    folder = prepared(options.home)
    index, count = map(int, options.shard.split("/"))
    files = [path for path in found_files(folder) if options.files in str(path)]
    mine = shard(batches(folder, files), index, count)
    more = ("-k", options.expression) if options.expression else ()
    logs = options.home.resolve() / "logs" / f"{mode}-{index}of{count}"
    return run(folder, mine, mode, logs, options.jobs, more)


def written(path: Path, mode: str, name: str, events: Events, found: list[Finding],
            seconds: float) -> None:
    """Write a result file."""
    record: dict[str, Any] = {
        "mode": mode, "shard": name, "version": version(), "seconds": round(seconds, 1),
        "items": events, "failures": [finding._asdict() for finding in found],
    }
    path.write_text(json.dumps(record, indent=0, sort_keys=True), encoding="utf-8")


def run_shard(options: argparse.Namespace) -> tuple[Events, list[Finding]]:
    """Run a shard plain, unless its results are there, and in the mode asked for."""
    name = f"{options.shard}{options.files}{options.expression}".replace("/", "of")
    base = result_file(options.home, "plain", name)
    if options.fresh or not base.exists():
        began = time.monotonic()
        plain = run_mode(options, "plain")
        written(base, "plain", options.shard, plain, [], time.monotonic() - began)
    plain = json.loads(base.read_text(encoding="utf-8"))["items"]
    began = time.monotonic()
    now = run_mode(options, options.mode)
    found = findings(plain, now, options.mode, expectations())
    written(result_file(options.home, options.mode, name), options.mode, options.shard, now, found,
            time.monotonic() - began)
    return now, found


def merged(home: Path, mode: str, count: int) -> tuple[Events, list[Finding]]:
    """Add up the result files of the shards of one mode."""
    now: Events = {}
    plain: Events = {}
    for index in range(1, count + 1):
        for kind, events in ((mode, now), ("plain", plain)):
            path = result_file(home, kind, f"{index}/{count}")
            events.update(json.loads(path.read_text(encoding="utf-8"))["items"])
    return now, findings(plain, now, mode, expectations())


def main() -> int:
    """Run or merge, print the totals and what is new; 1 if anything is."""
    options = parser().parse_args()
    options.home.mkdir(exist_ok=True)
    if options.merge:
        now, found = merged(options.home, options.mode, int(options.shard.split("/")[1]))
        for pattern in unused(found, options.mode, expectations()):
            print(f"expected, but does not fail: {pattern}")
    else:
        now, found = run_shard(options)
    new = [finding for finding in found if finding.reason is None]
    for finding in new:
        print(f"== {finding.outcome}: {finding.item}\n{finding.text}\n")
    for why, count in Counter(f.reason for f in found if f.reason).most_common():
        print(f"{count:5} expected: {why}")
    print(totals(now, found))
    print(f"mode {options.mode}, {len(expectations())} of at most {MAX_REASONS} reasons")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
