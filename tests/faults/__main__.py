"""``python -m tests.faults [WORD ...]``: run all faults, or those whose names have one of the words.

Prints what went wrong, and counts; ends with 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.faults import catalogue
from tests.faults.running import Outcome, load, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--exactly", action="store_true", help="words are whole names")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        load(Path(directory, "filled"))
        wanted = [n for n in catalogue.names() if not given.words or any(
            w == n if given.exactly else w in n for w in given.words)]
        return run_all(wanted, given.verbose)


def run_all(names: list[str], verbose: bool) -> int:
    """Run the faults called `names`, and say what became of them."""
    groups: Counter[str] = Counter()
    failed: list[Outcome] = []
    for outcome in map(run, names):
        groups[outcome.name.partition("[")[0]] += 1
        if verbose:
            print(f"{outcome.seconds:6.2f} s  {outcome.name}", flush=True)
        if outcome.wrong:
            failed.append(outcome)
            print(f"== {outcome.name}\n{outcome.wrong}", flush=True)
    for group, count in groups.items():
        print(f"{count:4}  {group}")
    print(f"{len(names)} faults, {len(failed)} not survived", *[o.name for o in failed])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
