"""The command line: programs run in processes of their own, some in each, so that crashes and hangs have a seed.

Receives arguments; prints differences and counts.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.call_fuzz.program import generate

CHUNK = 50  # programs of one process
HANGS = 20.0  # seconds that one program may take
VARIANTS = ("usual", "turns", "retreat", "kept")  # by chunk: how jitla is set up


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="python -m tests.call_fuzz", description="Fuzzer of call structure")
    found.add_argument("--seeds", default="0:2000", help="range of programs, A:B, or one program")
    found.add_argument("--jobs", type=int, default=1, help="processes at once")
    found.add_argument("--modes", default="sync,background,auto", help="of compiling, separated by commas")
    found.add_argument("--shrink", type=int, default=None, help="make the program of this seed small")
    found.add_argument("--show", type=int, default=None, help="print the program of this seed")
    found.add_argument("--file", default="", help="run the program in a file, or shrink it with --shrink 0")
    found.add_argument("--variant", default="", choices=("", *VARIANTS), help="of all chunks")
    found.add_argument("--out", default="", help="file that a line of JSON is appended to for each difference")
    found.add_argument("--seconds", type=float, default=60.0, help="for making one program small")
    return found


def prepare(variant: str) -> None:
    """Set jitla up so that small calls are traced soon, and as the variant says."""
    import jitla
    from jitla import cold
    from tests.fuzz import load

    load.prepare()
    load.quick_kernels()
    cold.PATIENCE = ()  # one plain call of a kind, then it is traced
    jitla.configure(disk_cache=False)
    if variant == "turns":
        load.take_turns()
    elif variant == "retreat":
        load.retreat_somewhere()
    elif variant == "kept":
        load.keep_values()


def variant_of(seed: int) -> str:
    """Return how jitla is set up for a program."""
    return VARIANTS[seed // CHUNK % len(VARIANTS)]


def in_child(work: Callable[[Callable[[Any], None]], None], seconds: float) -> tuple[list[Any], str]:
    """Run `work` in a fork, which says things as JSON; return them, and how it ended if that was badly."""
    reading, writing = os.pipe()
    log = tempfile.TemporaryFile("w+")  # what a crash says
    child = os.fork()
    if not child:
        os.close(reading)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(log.fileno(), 2)
        faulthandler.enable(log)
        status = 1
        try:
            with os.fdopen(writing, "w") as stream:
                def say(what: Any) -> None:
                    faulthandler.dump_traceback_later(seconds, exit=True, file=log)
                    stream.write(json.dumps(what) + "\n")
                    stream.flush()

                work(say)
                status = 0
        except BaseException:
            traceback.print_exc(file=log)
            log.flush()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = [json.loads(line) for line in stream]
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    log.seek(0)
    return said, f"exit {ended}: {log.read()[:4000]}" if ended else ""


def run_seeds(first: int, last: int, modes: tuple[str, ...], variant: str) -> list[tuple[int, list[Any]]]:
    """Run programs in forks; return the differences of each, where a crash is one."""
    found: list[tuple[int, list[Any]]] = []
    while first < last:
        said, status = in_child(lambda say: _work(first, last, modes, variant, say), HANGS)
        done = [(seed, faults) for what, seed, faults in said if what == "done"]
        found += done
        begun = [seed for what, seed, _ in said if what == "begin"]
        if len(begun) > len(done):
            found.append((begun[-1], [["?", -1, "crash", "", "", status]]))
            first = begun[-1] + 1
        elif status:
            at = done[-1][0] + 1 if done else first
            found.append((at, [["?", -1, "crash", "between programs", "", status]]))
            first = at + 1
        else:
            first = last
    return found


def _work(first: int, last: int, modes: tuple[str, ...], variant: str, say: Callable[[Any], None]) -> None:
    from tests.call_fuzz.runner import compare

    prepare(variant or variant_of(first))
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            say(("begin", seed, []))
            say(("done", seed, compare(generate(seed), f"calls_{seed}", Path(folder), modes)))


def differences(text: str, modes: tuple[str, ...], variant: str) -> list[Any]:
    """Return the differences of one program, run in a fork."""
    def work(say: Callable[[Any], None]) -> None:
        prepare(variant)
        say(None)
        say(_differences(text, modes))

    said, ended = in_child(work, HANGS / 4)
    return said[1] if len(said) > 1 else [["?", -1, "crash", "", "", ended]]


def _differences(text: str, modes: tuple[str, ...], calls: int = 4) -> list[Any]:
    """Return the differences of one program, run in this process."""
    from tests.call_fuzz.runner import compare

    with tempfile.TemporaryDirectory() as folder:
        return compare(text, "calls", Path(folder), modes, calls)


def main() -> int:
    """Do what the command line asks for."""
    sys.dont_write_bytecode = True
    given = parser().parse_args()
    modes = tuple(given.modes.split(","))
    if given.show is not None:
        print(generate(given.show))
        return 0
    if given.shrink is not None or given.file:
        return _one(given, modes)
    start, _, end = given.seeds.partition(":")
    first, last = int(start), int(end or int(start) + 1)
    # threads that wait for forks: the processes that are forked from here have no threads of jitla
    from tests.fuzz import load

    load.prepare()
    chunks = [(a, min(a - a % CHUNK + CHUNK, last)) for a in range(first - first % CHUNK, last, CHUNK)]
    chunks = [(max(a, first), b) for a, b in chunks]
    counted: Counter[str] = Counter()
    begun = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        for found in pool.map(lambda c: run_seeds(*c, modes, given.variant), chunks):
            for seed, faults in found:
                counted["programs"] += 1
                counted["differing"] += bool(faults)
                if faults:
                    counted[faults[0][2]] += 1
                    _tell(seed, faults, given.out)
            if counted["programs"] % (20 * CHUNK) < len(found):
                print(f"... {counted['programs']} programs, {counted['differing']} differ", flush=True)
    rate = counted["programs"] / max(time.monotonic() - begun, 1e-9)
    print(f"{counted['programs']} programs, {counted['differing']} differ, {rate:.1f} a second; "
          + ", ".join(f"{n} {kind}" for kind, n in counted.items() if kind not in ("programs", "differing")))
    return bool(counted["differing"])


def _tell(seed: int, faults: list[Any], out: str) -> None:
    from tests.call_fuzz.runner import Difference

    modes = ",".join(fault[0] for fault in faults)
    print(f"{seed} ({variant_of(seed)}; {modes}): {str(Difference(*faults[0]))[:2500]}", flush=True)
    if out:
        with open(out, "a") as stream:
            stream.write(json.dumps({"seed": seed, "variant": variant_of(seed), "faults": faults}) + "\n")


def _one(given: argparse.Namespace, modes: tuple[str, ...]) -> int:
    from tests.call_fuzz.runner import Difference
    from tests.call_fuzz.shrink import shrink
    from tests.fuzz import load

    load.prepare()
    text = Path(given.file).read_text() if given.file else generate(given.shrink)
    variant = given.variant or ("usual" if given.file else variant_of(given.shrink))
    faults = differences(text, modes, variant)
    for fault in faults:
        print(Difference(*fault))
    if not faults or given.shrink is None:
        return bool(faults)
    mode, call, kind, path, _, there = faults[0]
    calls = call + 1 if call >= 0 else 4
    wanted, place = modes if mode == "?" else (mode,), re.split(r"\W", path)[0]
    if variant != "usual" and any(f[2] == kind for f in differences(text, wanted, "usual")):
        variant = "usual"

    def is_like(found: list[Any]) -> bool:
        return any(f[2] == kind and re.split(r"\W", f[3])[0] == place and f[5].split()[:1] == there.split()[:1]
                   for f in found)

    def work(say: Callable[[Any], None]) -> None:
        prepare(variant)
        signal.signal(signal.SIGPROF, stop)

        def fails(other: str) -> bool:
            signal.setitimer(signal.ITIMER_PROF, 5)
            try:
                found = is_like(_differences(other, wanted, calls))
            except (Stopped, Exception):  # no program at all any more
                return False
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if found:
                say(other)
            return found

        say(text)
        say(shrink(text, fails, given.seconds))

    if kind == "crash":
        small = shrink(text, lambda other: is_like(differences(other, wanted, variant)), given.seconds)
    else:
        small = in_child(work, given.seconds + HANGS)[0][-1]
    print(f"# {variant}")
    for fault in differences(small, modes, variant):
        print("# " + str(Difference(*fault)).replace("\n", "\n# "))
    print(small)
    return 1


class Stopped(BaseException):
    """A program has taken too long."""


def stop(number: int, frame: Any) -> None:
    """End a program that has taken too long."""
    raise Stopped
