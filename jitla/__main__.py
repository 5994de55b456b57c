"""``python -m jitla``: the command line.

Knows: the names of the commands. Must not know: what they do.
Receives the arguments of the process; returns its exit status.
"""

from __future__ import annotations

import sys

from jitla import calibrate, demo

USAGE = """usage: python -m jitla demo [--rows N]
       python -m jitla calibrate

demo        fit two classifiers to real flight data, plain and decorated, and compare
calibrate   measure this machine and keep what plans are chosen by
"""


def main(arguments: list[str]) -> int:
    """Run one command."""
    match arguments:
        case ["demo", *rest]:
            return demo.main(rest)
        case ["calibrate"]:
            print(calibrate())
            return 0
        case ["-h" | "--help"]:
            print(USAGE, end="")
            return 0
        case _:
            print(USAGE, end="", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
