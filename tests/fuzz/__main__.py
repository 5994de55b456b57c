"""`python -m tests.fuzz --seeds A:B --jobs N --state FILE`: run random programs, count, show."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.fuzz.tally import Tally

CHUNK = 960  # whole families
REAL = 6  # one chunk in so many compiles at the level users get, the others at level 0
PROMPT = 11  # in one chunk of so many programs observe flags as soon as they may
LARGE = 3  # in one chunk of so many small arrays are copied before they are updated in place, as usual
FEW_INDICES = 4  # in one chunk of so many NumPy reads and writes where few indices say, as usual
SPLIT = 2  # in one chunk of so many threads share what has few entries
AS_USUAL = 9  # in one chunk of so many SciPy does what has few entries, as usual
SUBSETS = 5  # in one chunk of so many random subsets of the rewrites are on
TURNS = 4  # in one chunk of so many NumPy serves two calls of three, whichever is faster
PINNED = 6  # in one chunk of so many kernels are run by random schedules
RETREAT = 8  # in one chunk of so many traced calls go on plain from some block on
KEEPING = 3  # in one chunk of so many values are kept from run to run of a block as usual, else always
FEW = 30  # programs between two collections of what is no longer used
HANGS = 240.0  # seconds that programs of one text may take
BUSY, DRAWN = 120, 20  # seconds of processors that they may take, and that drawing them may


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Differential fuzzer")
    found.add_argument("--seeds", default="0:20000", help="range of programs, A:B, or one program")
    found.add_argument("--jobs", type=int, default=2, help="processes at once")
    found.add_argument("--time", type=float, default=float("inf"), help="stop after so many seconds")
    found.add_argument("--kernels", choices=("reuse", "fresh"), default="reuse",
                       help="families of similar programs, or every program unlike the others")
    found.add_argument("--kind", choices=("dense", "sparse"), default="dense",
                       help="arrays, or sparse matrices of SciPy mixed with arrays")
    found.add_argument("--state", default="", help="file with a line for each program: goes on from there")
    found.add_argument("--numerics", choices=("strict", "numpy", "relaxed"), default="numpy")
    found.add_argument("--compile", choices=("sync", "background", "auto"), default="sync",
                       help="when programs are compiled: before they run, behind NumPy, by their costs")
    found.add_argument("--subsets", action="store_true", help="random subsets of the rewrites, always")
    found.add_argument("--pins", action="store_true", help="random schedules, always")
    found.add_argument("--retreat", action="store_true", help="traced calls go on plain, always")
    found.add_argument("--plain", action="store_true", help="plain against plain: tests the fuzzer")
    found.add_argument("--show", action="store_true", help="print the programs")
    found.add_argument("--shrink", type=int, default=0, help="make the first N failing ones small")
    found.add_argument("--out", default=".fuzz", help="folder for failing programs")
    found.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return found


def drawn(seed: int, given: argparse.Namespace) -> str:
    """Return the source of a program."""
    from tests.fuzz import family, generate, sparse

    room = sparse if given.kind == "sparse" else generate
    return room.generate(seed, family.FAMILY if given.kernels == "reuse" else 1)


def work(first: int, last: int, given: argparse.Namespace) -> None:
    """Run programs; one line of JSON at the start and at the end of each."""
    from tests.fuzz import load, pinned, subsets
    from tests.fuzz.family import DATA
    from tests.fuzz.runner import runs

    if first // CHUNK % REAL and not given.plain:
        load.quick_kernels()
    if first // CHUNK % PROMPT == 1 and not given.plain:
        load.observe_at_once()
    if first // CHUNK % LARGE and not given.plain:
        load.store_late()
    if first // CHUNK % FEW_INDICES and not given.plain:
        load.index_at_once()
    if given.kind == "sparse" and first // CHUNK % AS_USUAL and not given.plain:
        load.record_all()
    if given.kind == "sparse" and first // CHUNK % SPLIT == 1 and not given.plain:
        load.split_all()
    if (first // CHUNK % RETREAT == 5 or given.retreat) and not given.plain:
        load.retreat_somewhere()
    turns = first // CHUNK % TURNS == 1 and given.compile == "sync" and not given.plain
    if turns:
        load.take_turns()
    if (first // CHUNK % SUBSETS == 2 or given.subsets) and not given.plain:
        subsets.apply_some()
    if given.numerics != "numpy" and not given.plain:
        subsets.set_numerics(given.numerics)
    if first // CHUNK % KEEPING and not given.plain:
        load.keep_values()
    if (first // CHUNK % PINNED == 3 or given.pins) and not given.plain:
        pinned.pin_all()
    load.compile_as("auto" if turns else given.compile)
    gc.freeze()
    gc.disable()
    group = DATA if given.kernels == "reuse" else 1
    for start in range(first - first % group, last, group):
        if start % FEW == 0 or start <= first:
            gc.collect(1)  # what outlives a program or two stays
        at, end = max(start, first), min(start + group, last)
        subsets.draw(start)
        say({"drawing": [at, end]})
        bound(DRAWN)
        text = drawn(end - 1, given)
        bound(BUSY)
        reports = runs(text, f"fuzz-{end - 1}", skip=at - start)
        for seed in range(at, end):
            say({"start": seed})
            say(_record(seed, seed == start, next(reports)))
        reports.close()
    faulthandler.cancel_dump_traceback_later()


def bound(seconds: int) -> None:
    """End this process when it has taken so much more time of processors, or hangs."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, most))
    faulthandler.dump_traceback_later(HANGS, exit=True)


def _record(seed: int, text: bool, report: Any) -> dict:
    from tests.fuzz import load

    return {
        "seed": seed,
        "calls": report.calls,
        "raised": report.raised,
        "compiled": report.compiled,
        "text": text,
        "real": not load.QUICK,
        "undefined": report.undefined,
        "rounding": report.rounding,
        "counted": report.counted,
        "kernels": load.new_kernels(),
        "faults": [(call, threads, fault.kind, str(fault)) for call, threads, fault in report.faults],
    }


def say(record: dict) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def fork_workers(given: argparse.Namespace) -> None:
    """Run the ranges of programs that are asked for, one a line, each in a process of its own."""
    from tests.fuzz import load

    load.PLAIN = given.plain
    load.prepare()
    for line in sys.stdin:
        first, last = map(int, line.split())
        child = os.fork()
        if not child:
            faulthandler.register(signal.SIGXCPU, chain=True)
            work(first, last, given)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say({"end": os.waitstatus_to_exitcode(status)})


def drive(chunks: Queue, tally: Tally, given: argparse.Namespace) -> None:
    """Run chunks of programs in worker processes until none or no time is left."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz", "--worker"]
    command += ["--kind", given.kind, "--kernels", given.kernels, "--numerics", given.numerics]
    command += ["--plain"] * given.plain + ["--subsets"] * given.subsets + ["--pins"] * given.pins
    command += ["--retreat"] * given.retreat
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1) as forks:
        errors: list[str] = []
        threading.Thread(target=listen, args=(forks, errors), daemon=True).start()
        while not tally.over():
            try:
                first, last = chunks.get_nowait()
            except Empty:
                break
            while first < last and not tally.over():
                first = one_worker(first, last, tally, forks, errors)
        forks.kill()  # a worker that still runs ends at the next line it cannot write


def listen(forks: subprocess.Popen[str], errors: list[str]) -> None:
    """Collect what processes write to their standard error, until nobody listens any more."""
    with suppress(ValueError):
        errors.extend(forks.stderr or [])


def one_worker(
    first: int, last: int, tally: Tally, forks: subprocess.Popen[str], errors: list[str]
) -> int:
    """Run one process; return the first program it did not finish, or `last`."""
    assert forks.stdin is not None and forks.stdout is not None
    errors.clear()
    forks.stdin.write(f"{first} {last}\n")
    started, ended = first - 1, 1
    drawing: list[int] = []
    for line in forks.stdout:
        record = json.loads(line)
        if "end" in record:
            ended = record["end"]
            break
        if "drawing" in record:
            drawing = record["drawing"]
            continue
        if "start" in record:
            started, drawing = record["start"], []
            continue
        tally.add(record)
        first = record["seed"] + 1
        if tally.over():
            return last
    if not ended:
        return last
    time.sleep(0.2)  # what it said at its end arrives
    said = "".join(errors)[-1500:]
    if drawing:
        tally.skip(*drawing, f"exit {ended}: {said}")
        return drawing[1]
    failed = max(first, started)
    tally.crash(failed, f"exit {ended}: {said}")
    return failed + 1


def keep(tally: Tally, given: argparse.Namespace) -> None:
    """Name the layer of every difference; write it as a pytest file, the first ones made small."""
    from tests.fuzz.layers import guilty
    from tests.fuzz.runner import run
    from tests.fuzz.shrink import as_test, shrink

    tally.out.mkdir(exist_ok=True, parents=True)
    for n, (seed, text) in enumerate(sorted(tally.failing)):
        source, name = drawn(seed, given), f"fuzz-{seed}"
        if not text.startswith("exit"):
            wanted = [fault.kind for _, _, fault in run(source, name).faults][:1]
            if wanted:
                text = f"{guilty(source, name, wanted[0])}: {text}"
                sys.stdout.write(f"{seed}: {text[:100]}\n")

            def fails(other: str, wanted: list[str] = wanted, name: str = name) -> bool:
                try:
                    return [f.kind for _, _, f in run(other, name).faults][:1] == wanted
                except Exception:
                    return False

            source = shrink(source, fails) if n < given.shrink and wanted else source
        said = text.replace("\\", "/").replace('"""', "'''")
        (tally.out / f"test_{seed}.py").write_text(as_test(source, name, said))


def main() -> int:
    """Run what the command line asks for."""
    given = parser().parse_args()
    first, _, end = given.seeds.partition(":")
    start, last = int(first), int(end or int(first) + 1)
    if given.worker:
        fork_workers(given)
        return 0
    if given.show:
        sys.stdout.write("\n\n".join(drawn(seed, given) for seed in range(start, last)))
        return 0
    mode = given.kernels + " sparse" * (given.kind == "sparse")
    tally, chunks = Tally(Path(given.out), given.time, given.state, mode), Queue()
    for part in tally.left(start, last, CHUNK):
        chunks.put(part)
    drivers = [threading.Thread(target=drive, args=(chunks, tally, given)) for _ in range(given.jobs)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    if tally.failing:
        keep(tally, given)
    sys.stdout.write(tally.summary() + "\n")
    return bool(tally.failing)


if __name__ == "__main__":
    sys.exit(main())
