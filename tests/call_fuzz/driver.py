"""The command line: programs run in processes of their own, so that crashes and hangs have a seed.

Receives arguments; prints differences and counts.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
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
    found.add_argument("--without", default="", help="no statements that have one of these texts, between |")
    found.add_argument("--out", default="", help="file to which a line of JSON is added for each difference")
    found.add_argument("--seconds", type=float, default=60.0, help="for making one program small")
    return found


def prepare(variant: str) -> None:
    """Set jitla up so that small calls are traced soon, and as the variant says."""
    import jitla
    from tests.fuzz import load

    load.prepare()
    load.quick_kernels()
    load.trace_soon()
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


class Child:
    """A fork of this process in which `work` says things as JSON.

    This process must have one thread only: what others hold at a fork stays locked.
    """

    def __init__(self, work: Callable[[Callable[[Any], None]], None], seconds: float) -> None:
        self._log = tempfile.TemporaryFile("w+")  # what a crash says
        self._text = ""
        self.said: list[Any] = []
        self.ended = ""  # how it ended, if that was badly
        self.reading, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            self._run(work, writing, seconds)
        os.close(writing)

    def _run(self, work: Callable[[Callable[[Any], None]], None], writing: int, seconds: float) -> None:
        status = 1
        try:
            os.close(self.reading)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(self._log.fileno(), 2)
            faulthandler.enable(self._log)
            with os.fdopen(writing, "w") as stream:
                def say(what: Any) -> None:
                    faulthandler.dump_traceback_later(seconds, exit=True, file=self._log)
                    stream.write(json.dumps(what) + "\n")
                    stream.flush()

                work(say)
            status = 0
        except BaseException:
            traceback.print_exc(file=self._log)
            self._log.flush()
        finally:
            os._exit(status)

    def listen(self) -> bool:
        """Take in what there is; return whether more may come."""
        got = os.read(self.reading, 1 << 16)
        self._text += got.decode()
        *lines, self._text = self._text.split("\n")
        self.said += [json.loads(line) for line in lines]
        if got:
            return True
        os.close(self.reading)
        _, status = os.waitpid(self._pid, 0)
        ended = os.waitstatus_to_exitcode(status)
        if ended:
            self._log.seek(0)
            self.ended = f"exit {ended}: {self._log.read()[:4000]}"
        self._log.close()
        return False


def in_child(work: Callable[[Callable[[Any], None]], None], seconds: float) -> tuple[list[Any], str]:
    """Run `work` in a fork; return what it says, and how it ended if that was badly."""
    child = Child(work, seconds)
    while child.listen():
        pass
    return child.said, child.ended


def run_seeds(
    chunks: list[tuple[int, int]], modes: tuple[str, ...], variant: str = "", without: tuple[str, ...] = (),
    jobs: int = 1,
) -> Iterator[tuple[int, list[Any]]]:
    """Run ranges of programs in forks; yield each with its differences, where a crash is one."""
    left, running = chunks[::-1], dict[int, tuple[Child, int, int]]()
    while left or running:
        while left and len(running) < jobs:
            first, last = left.pop()
            child = Child(partial(_work, first, last, modes, variant, without), HANGS)
            running[child.reading] = child, first, last
        for reading in select.select(list(running), [], [])[0]:
            child, first, last = running[reading]
            if child.listen():
                continue
            del running[reading]
            done = [(seed, faults) for what, seed, faults in child.said if what == "done"]
            yield from done
            if child.ended:
                failed = first + len(done)
                if failed < last:
                    yield failed, [["?", -1, "crash", "", "", child.ended]]
                if failed + 1 < last:
                    left.append((failed + 1, last))


def _work(
    first: int, last: int, modes: tuple[str, ...], variant: str, without: tuple[str, ...],
    say: Callable[[Any], None],
) -> None:
    from tests.call_fuzz.runner import compare

    prepare(variant or variant_of(first))
    gc.freeze()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            say(("begin", seed, []))
            say(("done", seed, compare(generate(seed, without), f"calls_{seed}", Path(folder), modes)))


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
    modes, without = tuple(given.modes.split(",")), tuple(filter(None, given.without.split("|")))
    if given.show is not None:
        print(generate(given.show, without))
        return 0
    if given.shrink is not None or given.file:
        return _one(given, modes, without)
    start, _, end = given.seeds.partition(":")
    first, last = int(start), int(end or int(start) + 1)
    from tests.fuzz import load

    load.prepare()
    chunks = [(max(a, first), min(a + CHUNK, last)) for a in range(first - first % CHUNK, last, CHUNK)]
    counted: Counter[str] = Counter()
    begun = time.monotonic()
    for seed, faults in run_seeds(chunks, modes, given.variant, without, given.jobs):
        counted["programs"] += 1
        if faults:
            counted["differing"] += 1
            counted[faults[0][2]] += 1
            _tell(seed, faults, given.out)
        if counted["programs"] % (20 * CHUNK) == 0:
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


def _one(given: argparse.Namespace, modes: tuple[str, ...], without: tuple[str, ...]) -> int:
    from tests.call_fuzz.runner import Difference
    from tests.call_fuzz.shrink import shrink
    from tests.fuzz import load

    load.prepare()
    text = Path(given.file).read_text() if given.file else generate(given.shrink, without)
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
        return any(other[2] == kind and re.split(r"\W", other[3])[0] == place
                   and other[5].split()[:1] == there.split()[:1] for other in found)

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
