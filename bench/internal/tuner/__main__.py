"""The tuner on its tables: ``python -m bench.internal.tuner``; ``--fill`` measures missing points."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.internal.tuner.contest import contest, history, orders, shown, told
from bench.internal.tuner.functions import FUNCTIONS
from bench.internal.tuner.kernels import again
from bench.internal.tuner.kernels import fill as fill_kernel
from bench.internal.tuner.report import Summary, kept, write
from bench.internal.tuner.tables import MACHINE, Table, fill, kernel_tables, tables
from jitla.tuner.model import BUILT_IN_PATH

PAST = 150  # points of every table that the library's own history is made of


def main() -> None:
    """Fill tables, compare searches on those that are complete, or make of that what is shipped and shown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fill", action="append", help="a layer whose points are simulated, or a kernel")
    parser.add_argument("--again", action="append", help="a kernel whose best points are measured again")
    parser.add_argument("--seconds", type=float, default=240.0, help="for each that is filled")
    parser.add_argument("--machine", default=MACHINE)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--table", action="append", help="only these")
    parser.add_argument("--method", action="append", help="only these")
    parser.add_argument("--orders", action="store_true", help="pairs put in order by history")
    parser.add_argument("--past", action="store_true", help="write the history that comes with the library")
    parser.add_argument("--results", type=Path, help="a folder to write results to")
    parser.add_argument("--page", type=Path, help="a page that is made of the results in that folder")
    given = parser.parse_args()
    for name in given.fill or ():
        if name in FUNCTIONS:
            print(fill_kernel(name, given.seconds), flush=True)
            continue
        there, every = fill(name, given.machine, given.seconds)
        print(f"{name}: {there} of {every} points")
    for name in given.again or ():
        print(again(name, given.seconds), flush=True)
    every_table = [*kernel_tables(), *tables(given.machine)]
    if given.past:
        made = history(kernel_tables(), PAST)
        assert made is not None
        BUILT_IN_PATH.write_text(json.dumps(made.trees.to_json(), separators=(",", ":")) + "\n")
    elif given.page:
        there = [t for t in every_table if (given.results / f"{t.name}.json").exists()]
        write(given.page, there, given.results)
    elif not given.fill and not given.again:
        chosen = [t for t in every_table if not given.table or t.name in given.table]
        only = [m.replace("_", " ") for m in given.method or ()]
        for table in chosen:
            _shown(table, every_table, given.seeds, only, given.orders, given.results)


def _shown(table: Table, every: list[Table], seeds: int, only: list[str], pairs: bool, place: Path | None
           ) -> None:
    print(told(table), flush=True)
    file = place / f"{table.name}.json" if place is not None else None
    if place is not None:
        place.mkdir(exist_ok=True)
    found: dict[str, Summary] = json.loads(file.read_text()) if file is not None and file.exists() else {}
    for name, results in contest(table, every, seeds, only):
        found[name] = kept(results)
        print(f"  {name:20} {shown(results)}", flush=True)
        if file is not None:
            file.write_text(json.dumps(found) + "\n")
    if pairs:
        made = orders(table, every)
        print(f"  pairs in order: {made}", flush=True)
        if place is not None:
            (place / f"{table.name}.orders.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
