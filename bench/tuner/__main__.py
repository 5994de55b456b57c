"""The tuner on its tables: ``python -m bench.tuner``; ``--fill`` measures what is missing of them.

Knows: the command line. Must not know: how anything is searched.
Receives names of layers; prints lines.
"""

from __future__ import annotations

import argparse

from bench.tuner.contest import lines
from bench.tuner.kernels import FUNCTIONS
from bench.tuner.kernels import fill as fill_kernel
from bench.tuner.tables import MACHINE, fill, kernel_tables, tables


def main() -> None:
    """Fill tables, or compare searches on those that are complete."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fill", action="append", help="a layer whose points are simulated, or a kernel")
    parser.add_argument("--seconds", type=float, default=240.0, help="for each that is filled")
    parser.add_argument("--machine", default=MACHINE)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--table", action="append", help="only these")
    parser.add_argument("--method", action="append", help="only these")
    given = parser.parse_args()
    for name in given.fill or ():
        if name in FUNCTIONS:
            print(fill_kernel(name, given.seconds), flush=True)
            continue
        there, every = fill(name, given.machine, given.seconds)
        print(f"{name}: {there} of {every} points")
    if given.fill:
        return
    made = [t for t in (*kernel_tables(), *tables(given.machine)) if not given.table or t.name in given.table]
    only = [m.replace("_", " ") for m in given.method or ()]
    for line in lines(made, given.seeds, only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
