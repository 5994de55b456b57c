"""Command line of the fuzzer: ``python -m tests.loop_fuzz --seeds A:B [--jobs N] [--force-exits]``."""

from __future__ import annotations

import argparse
import collections
import select
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.loop_fuzz.generate import generate
from tests.loop_fuzz.runner import main_of_chunk, plan_of, run
from tests.loop_fuzz.shrink import shrink

SILENCE = 60  # seconds without a line, after which a process is ended
CHUNK = 100


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--machine", type=float, default=0.2, help="share of programs run as machine code"
    )
    parser.add_argument("--force-exits", action="store_true")
    parser.add_argument("--mode")
    parser.add_argument("--shrink", type=int)
    parser.add_argument("--show", type=int)
    parser.add_argument("--chunk", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--file", help="text of a program to run or shrink with the plan of --show or --shrink"
    )
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    begin, end = map(int, options.seeds.split(":"))
    if options.show is not None or options.shrink is not None:
        return _one(options)
    if options.chunk:
        main_of_chunk(begin, end, options.machine, options.force_exits, options.mode)
        return 0
    counts: collections.Counter[str] = collections.Counter()
    deadline = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.jobs) as pool:
        list(
            pool.map(
                lambda at: _chunk(at, min(at + CHUNK, end), options, counts, deadline),
                range(begin, end, CHUNK),
            )
        )
    for text, count in sorted(counts.items(), key=lambda item: -item[1])[:60]:
        print(count, text[:150])
    return int(any(text.startswith(("DIFFERENT", "CRASH", "DIED")) for text in counts))


def _one(options: argparse.Namespace) -> int:
    """Show or shrink one program."""
    seed = options.shrink if options.shrink is not None else options.show
    text = Path(options.file).read_text() if options.file else generate(seed)

    def report_of(text: str):  # type: ignore[no-untyped-def]
        plan = plan_of(seed, options.machine, options.force_exits)
        if options.mode:
            plan.mode = options.mode
        return run(text, plan)

    def kind(text: str) -> str:
        try:
            report = report_of(text)
        except Exception:
            return ""
        if report.crashes:
            return "CRASH " + report.crashes[0].splitlines()[-1][:30]
        if not report.differences:
            return ""
        first = report.differences[0]
        return (
            first.splitlines()[-1][:30]
            if "INTERNAL" in first
            else " ".join(first.split()[2 : 5 if "error:" in first else 3])
        )

    if options.shrink is not None:
        wanted = kind(text)
        print("kind:", wanted)
        if not wanted:
            return 1
        text = shrink(text, lambda new: kind(new) == wanted)
    print(text[text.index("def f(") :] if options.shrink is not None else text)
    plan = plan_of(seed, options.machine, options.force_exits)
    print(options.mode or plan.mode, "machine" if plan.machine else "interpreter", plan.errors)
    print(
        "\n".join(
            map(
                str,
                [*(r := report_of(text)).differences, *r.crashes, *r.refused, *r.failures, r.runs],
            )
        )
    )
    return 0


def _chunk(
    begin: int,
    end: int,
    options: argparse.Namespace,
    counts: collections.Counter[str],
    deadline: float,
) -> None:
    """Run seeds in another process, which may crash."""
    while begin < end and time.monotonic() < deadline:
        arguments = [
            sys.executable,
            "-m",
            "tests.loop_fuzz",
            "--chunk",
            "--seeds",
            f"{begin}:{end}",
            "--machine",
            str(options.machine),
            *(["--force-exits"] if options.force_exits else []),
            *(["--mode", options.mode] if options.mode else []),
        ]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        assert process.stdout is not None
        seed, other = begin, []
        while True:
            ready, _, _ = select.select([process.stdout], [], [], SILENCE)
            line = process.stdout.readline() if ready else ""
            if not line:
                break
            word, _, rest = line.rstrip().partition(" ")
            if word == "seed":
                seed = int(rest)
                counts["programs"] += 1
            elif word == "runs":
                runs, raised, native = map(int, rest.split())
                counts["programs with compiled runs"] += runs > 0
                counts["programs with native entry"] += native > 0
                counts["programs with exceptions"] += raised > 0
            elif word in ("DIFFERENT", "CRASH"):
                print(
                    line.rstrip() if len(line) < 700 else f"{line[:60]} ... {line.rstrip()[-600:]}",
                    flush=True,
                )
                counts[word] += 1
            elif word in ("refused", "failure"):
                counts[f"{word} {rest.partition(' ')[2].partition(' (line')[0]}"] += 1
            else:
                other.append(line)
            if time.monotonic() > deadline:
                break
        process.kill() if process.poll() is None and seed != end - 1 else None
        if process.wait() != 0 and time.monotonic() < deadline:
            print(f"DIED {seed} {process.returncode}", "".join(other)[-800:], flush=True)
            counts["DIED"] += 1
            begin = seed + 1
        else:
            begin = end


if __name__ == "__main__":
    sys.exit(main())
