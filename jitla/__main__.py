"""``python -m jitla``: the command line."""

from __future__ import annotations

import os
import sys

from jitla import calibrate
from jitla.cli import commands, demo
from jitla.errors import JitlaError

USAGE = """usage: python -m jitla demo [--rows N]
       python -m jitla calibrate
       python -m jitla info
       python -m jitla bench [--rows N] [--seconds S]
       python -m jitla explain MODULE:FUNCTION [--data FILE.npz] [--level LEVEL] [--html FILE.html]
       python -m jitla tune MODULE:FUNCTION [--data FILE.npz] [--trials N] [--seconds S]
       python -m jitla run [--jit [MODULE:]FUNCTION] [--jit-all] [--once] SCRIPT [ARGUMENTS ...]
       python -m jitla cache info|clear

demo        fit two classifiers to real flight data, plain and decorated, and compare
calibrate   measure the constants of this machine for the cost model, and save them
info        show versions, processor, caches, memory, cache directory, constants of this machine
bench       time a few functions, plain and decorated alternately
explain     call a function with the arrays of a file and explain the call
tune        search faster schedules for a function called with the arrays of a file, and save them
run         run a script with functions decorated, after a plain run for comparison
cache       show the place and size of the disk cache, or empty it
"""


def main(arguments: list[str]) -> int:
    """Run one command."""
    match arguments:
        case ["demo", *rest]:
            return demo.main(rest)
        case ["calibrate"]:
            print(calibrate())
            return 0
        case ["info", *rest]:
            return commands.info_command(rest)
        case ["bench", *rest]:
            return commands.bench_command(rest)
        case ["explain", *rest]:
            return commands.explain_command(rest)
        case ["tune", *rest]:
            return commands.tune_command(rest)
        case ["run", *rest]:
            return commands.run_command(rest)
        case ["cache", "info" | "clear" as what]:
            return commands.cache_command(what)
        case ["-h" | "--help"]:
            print(USAGE, end="")
            return 0
        case _:
            said = f"python -m jitla: there is no command {' '.join(arguments)}\n" if arguments else ""
            print(said + USAGE, end="", file=sys.stderr)
            return 2


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except JitlaError as wrong:
        sys.exit(f"jitla: {wrong}")
    except BrokenPipeError:  # who reads it, such as head, has had enough; Python would try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
