"""``python -m jitla``: the command line.

Knows: the names of the commands, how answers are put. Must not know: what they do.
Receives the arguments of the process; returns its exit status.
"""

from __future__ import annotations

import sys

from jitla import calibrate, demo
from jitla.config import cache_directory, current
from jitla.disk import Disk, Unsafe

USAGE = """usage: python -m jitla demo [--rows N]
       python -m jitla calibrate
       python -m jitla cache info|clear

demo        fit two classifiers to real flight data, plain and decorated, and compare
calibrate   measure this machine and keep what plans are chosen by
cache       say what machine code is kept on disk, and where; remove it
"""


def main(arguments: list[str]) -> int:
    """Run one command."""
    match arguments:
        case ["demo", *rest]:
            return demo.main(rest)
        case ["calibrate"]:
            print(calibrate())
            return 0
        case ["cache", "info" | "clear" as what]:
            return cache(what)
        case ["-h" | "--help"]:
            print(USAGE, end="")
            return 0
        case _:
            print(USAGE, end="", file=sys.stderr)
            return 2


def cache(what: str) -> int:
    """Describe or empty the disk cache."""
    options = current()
    kept = Disk(cache_directory(options), options.disk_cache_limit)
    print(kept.directory + ("" if options.disk_cache else " (not in use: disk_cache is off)"))
    try:
        found = kept.usage() if what == "info" else kept.clear()
    except (OSError, Unsafe) as wrong:
        print(f"not in use: {wrong}")
        return 1
    limit = f" of {kept.limit / 1e6:.0f} MB" if what == "info" and kept.limit else ""
    print(f"{'kept' if what == 'info' else 'removed'}: {found.files} pieces of machine code, "
          f"{found.nbytes / 1e6:.1f} MB{limit}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
