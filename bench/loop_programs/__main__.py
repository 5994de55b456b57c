"""Loop programs, plain and compiled, from the first call on.

A table with, per program: the median of a plain call; the first decorated call; the time from the start of
the first call to the first of two calls in a row that are 1.5 times as fast as plain; the regret, the most
that calls so far took longer than plain ones within the first second of calls; how many times as fast as
plain the calls of the first second and of the first four seconds were, and the median of the last third of
calls, by wall time and by CPU time of the process; the last two with numba.njit where it compiles the
unchanged functions, and its compile time; and whether results and arguments have plain's bits ("close":
within rounding). Programs are called until the calls add up to --seconds, so the column for four seconds
needs --seconds 4.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.loop_programs.program import Program
from bench.loop_programs.runner import (
    HEAD,
    WIDTHS,
    BusyCore,
    describe,
    failures,
    measure_program,
    row_of,
    run_process,
    summarize_suites,
)
from bench.loop_programs.suites import SUITES
from bench.loop_programs.suites.folders import SOURCES
from bench.loop_programs.worker import MODES
from bench.tables import text_row


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    sources = "; ".join(f"{variable}: a checkout of {source}" for variable, source in SOURCES.items())
    parser = argparse.ArgumentParser(
        "python -m bench.loop_programs", description=__doc__, epilog=f"Public suites: {sources}.")
    parser.add_argument("names", nargs="*", help="programs or fields; all without")
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="own without; may be repeated")
    parser.add_argument("--modes", default="plain,jitla,njit", help=f"of {','.join(MODES)}; always plain")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of decorated calls")
    parser.add_argument("--timeout", type=float, default=45.0, help="seconds until a process is ended")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no program is begun")
    parser.add_argument("--busy", action="store_true", help="keep one core busy with another process")
    parser.add_argument("--list", action="store_true", help="print the names of programs only")
    parser.add_argument("--out", type=Path, help="write all figures to a file, as JSON")
    options = parser.parse_args(arguments)
    unknown = set(options.modes.split(",")) - set(MODES)
    if unknown:
        parser.error(f"no such modes: {', '.join(sorted(unknown))}")
    return options


def chosen(options: argparse.Namespace) -> list[Program]:
    """Return the programs named on the command line."""
    programs = [p for suite in options.suite or ["own"] for p in SUITES[suite]()]
    if options.names:
        programs = [p for p in programs if p.name in options.names or p.field in options.names]
    return programs


def main(arguments: list[str] | None = None) -> int:
    """Run the programs, print the table and the means; return whether a result differs."""
    options = parsed(arguments)
    programs = chosen(options)
    if options.list:
        for program in programs:
            print(program.suite, program.field, program.name)
        return 0
    modes = options.modes.split(",")
    decorated = [mode for mode in modes if mode in ("jitla", "sync")]
    records: list[dict[str, Any]] = []
    begin = time.perf_counter()

    def run(program: Program, mode: str, folder: Path, seconds: float) -> dict[str, Any]:
        return run_process(program, mode, folder, seconds, options.timeout)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # workers are ended, too
    print(text_row(HEAD, WIDTHS))
    with ExitStack() as stack:
        if options.busy:
            stack.enter_context(BusyCore())
        for program in programs:
            if time.perf_counter() - begin > options.limit:
                print(f"{len(programs) - len(records)} programs not begun within {options.limit:.0f} s")
                break
            records.append(measure_program(program, modes, options.seconds, run))
            for mode in decorated or ["jitla"]:
                print(text_row(row_of(records[-1], mode), WIDTHS), flush=True)
    summaries = {mode: summarize_suites(records, mode) for mode in decorated}
    for mode, suites in summaries.items():
        for suite, summary in suites.items():
            print(*describe(suite, mode, summary), sep="\n")
    failed = [line for record in records for line in failures(record) if " njit: " not in line]
    print(*failed, sep="\n")
    if options.out is not None:
        options.out.write_text(json.dumps({
            "bench": "loop_programs", "seconds": options.seconds, "busy": options.busy,
            "means": summaries, "programs": records}, indent=1), encoding="utf-8")
    return any(record.get(mode, {}).get("same") == "DIFFERS" for record in records for mode in decorated)


if __name__ == "__main__":
    sys.exit(main())
