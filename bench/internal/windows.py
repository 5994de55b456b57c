"""Never slower: a thousand calls in a row of a function that was just decorated, and of the plain one.

Sets: "probes", programs of a line or a few that each show one thing of NumPy; "expressions" and "algorithms"
from one element up; "loops" over elements; "examples" of the README and the demo. Functions of which a
thousand calls take too long are called as often as there is time for, and what is left is reckoned as the
last quarter of the calls. The plain function is timed between them, in turns of a twentieth, so that other
work on the machine meets both, but not while something is compiled. Something else was compiled in the
process before: what that takes the first time is `bench.internal.recompilation`'s.

Where other programs run, ``--clock process`` counts the processor's time of all threads: calls take no
more than that, and what is over is to be measured again alone (``--names FILE``, lines of the output).

python -m bench.internal.windows [--sets expressions,probes] [--part 2/8] [--seconds 1.0]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import jitla
from bench.algorithms import DENSE, l2svm, logistic
from bench.element_loops import PROGRAMS
from bench.expressions import CASES
from jitla.engine import ENGINE
from tests.semantics import modes
from tests.semantics.table import ROWS, cases

WINDOW = 1000
LEAST = 12  # calls of what takes long
TURNS = 20  # in which the plain function and the decorated one are called
PART, SECONDS = 0.05, 5e-6  # that a call may take longer
STALL = 1e-3  # seconds that one call of a loop over elements may take longer
SETTLE = 5.0  # seconds that programs are waited for after a window, at most
SCALES = (0.0, 0.01, 0.1, 1.0)
SHOWN = 78  # characters of a name
ROWS_OF = (1, 30, 1000, 20_000)


class Subject(NamedTuple):
    """A function that is called a thousand times, and what it is called with."""

    name: str
    plain: Callable[..., Any]
    arguments: tuple[Any, ...]


class Window(NamedTuple):
    """Seconds of a call: plain, decorated in all of a window, late in it; of the first; how many calls; of
    the slowest plain one, and of the slowest decorated one.
    """

    name: str
    plain: float
    mean: float
    late: float
    first: float
    calls: int
    plain_worst: float
    worst: float

    @property
    def stalls(self) -> bool:
        """Whether one call took longer than any may, even beside the slowest plain one."""
        return self.worst > (1 + PART) * self.plain_worst + STALL

    @property
    def over(self) -> float:
        """Seconds of a call more than are allowed."""
        return self.mean - (1 + PART) * self.plain - SECONDS


def expressions() -> Iterator[Subject]:
    """Yield expressions of real programs, smaller and smaller."""
    for case in CASES:
        for scale in SCALES:
            rng = np.random.default_rng(7)
            shapes = [tuple(max(1, round(n * scale)) for n in shape) for shape in case.shapes]
            yield Subject(f"{case.function.__name__} {scale:g}", case.function,
                          tuple(rng.normal(size=shape) for shape in shapes))


def algorithms() -> Iterator[Subject]:
    """Yield whole algorithms, on more and more rows."""
    for script in DENSE:
        for rows in ROWS_OF:
            try:
                made = script.make(rows, np.float64, np.random.default_rng(7))
            except ValueError:  # more clusters than rows
                continue
            yield Subject(f"{script.name} {rows}", script.plain, made)


def loops() -> Iterator[Subject]:
    """Yield loops over elements."""
    for program in PROGRAMS:
        yield Subject(program.function.__name__, program.function, program.make(np.random.default_rng(0)))


def hinge(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> Any:
    out = np.maximum(1.0 - y * (X @ w), 0.0)
    return 0.5 * (out * out).sum(), -(X.T @ (out * y))


def newton_sqrt(a: np.ndarray) -> Any:
    x = np.ones_like(a)
    while np.abs(x * x - a).max() > 1e-12:
        x = 0.5 * (x + a / x)
    x[a == 0] = 0.0
    return x


def softplus(x: np.ndarray) -> Any:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0)


def total(x: np.ndarray, scale: float = 1.0, axis: int | None = None) -> Any:
    return (x * scale).sum(axis)


def examples() -> Iterator[Subject]:
    """Yield examples of the README and the demo."""
    for rows in (1, 10, 300, 1000, 10_000, 100_000, 1_000_000):
        rng = np.random.default_rng(1)
        X, w, x = rng.normal(size=(rows, 20)), rng.normal(size=20), rng.normal(size=rows)
        y = np.sign(X[:, 0])
        yield Subject(f"hinge {rows}", hinge, (X, y, w))
        yield Subject(f"newton_sqrt {rows}", newton_sqrt, (np.abs(x) + 0.1,))
        yield Subject(f"softplus {rows}", softplus, (x,))
        yield Subject(f"total {rows}", total, (x, 2.0, 0))
        if rows <= 10_000:
            yield Subject(f"l2svm {rows}", l2svm, (X, y))
            yield Subject(f"logistic {rows}", logistic, (X, y))


def probes() -> Iterator[Subject]:
    """Yield programs of the tables of semantics."""
    for path in sorted(ROWS.glob("*.txt")):
        for number, case in enumerate(cases(path)):
            names = modes.module(case.module({}), f"window-{case.row}-{number}", lambda f: f)
            for n in case.sizes:
                try:
                    made = tuple(modes.arguments(case, n, names).values())
                except Exception as error:  # rows that need more than one process, or another library
                    print(f"left out: {case.label} n={n}: {error!r}", file=sys.stderr)
                    continue
                yield Subject(f"{case.label} n={n}", names["f"], made)


SETS: dict[str, Callable[[], Iterator[Subject]]] = {
    "examples": examples, "expressions": expressions, "algorithms": algorithms, "loops": loops,
    "probes": probes}


CLOCKS = {"wall": time.perf_counter, "process": time.process_time}


def timed(
    function: Callable[..., Any], arguments: tuple[Any, ...], calls: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the seconds of calls one after the other; what they raise belongs to them."""
    taken = []
    for _ in range(calls):
        start = clock()
        try:
            function(*arguments)
        except Exception:
            pass
        taken.append(clock() - start)
    return taken


def rest() -> None:
    """Wait until nothing is compiled behind the program."""
    begun = time.perf_counter()
    while ENGINE.background.busy and time.perf_counter() - begun < SETTLE:
        time.sleep(0.01)


def measure(subject: Subject, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Window:
    """Time a window of one subject."""
    plain = subject.plain
    timed(plain, subject.arguments, 2)
    least = min(timed(plain, subject.arguments, 3))
    calls = int(min(max(seconds / max(least, 1e-9), LEAST), WINDOW))
    fast = jitla.jit(plain)
    taken: list[float] = []
    usual = timed(plain, subject.arguments, max(calls // TURNS, 1), clock)
    while len(taken) < calls:
        taken += timed(fast, subject.arguments, min(calls - len(taken), max(calls // TURNS, 1)), clock)
        if not ENGINE.background.busy:
            usual += timed(plain, subject.arguments, max(calls // TURNS, 1), clock)
    rest()
    late = median(taken[-max(calls // 4, 3):])
    whole = sum(taken) + (WINDOW - calls) * late
    return Window(subject.name, sum(usual) / len(usual), whole / WINDOW, late, taken[0], calls,
                  max(usual), max(taken))


def show(window: Window) -> None:
    """Print one line."""
    print(f"{window.name[:SHOWN]:{SHOWN}}{window.plain * 1e6:11.1f}"
          f"{window.mean * 1e6:11.1f}{window.late * 1e6:11.1f}"
          f"{window.first * 1e3:10.2f}{window.calls:6}"
          f"{window.plain_worst * 1e3:10.2f}{window.worst * 1e3:9.2f}", flush=True)


def main() -> None:
    """Measure the sets, or a part of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--part", default="1/1", help="which of how many parts of each set")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window, about")
    parser.add_argument("--only", default="", help="what names contain")
    parser.add_argument("--names", default="", help="a file whose lines begin with the names to measure")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--all", action="store_true", help="print all, not only what is slower")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    jitla.jit(softplus, compile="sync")(np.ones(10))
    print(f"{'µs a call':{SHOWN}}{'NumPy':>11}{'window':>11}{'late':>11}{'first ms':>10}{'calls':>6}"
          f"{'slowest':>10}{'ms':>9}")
    wanted = {line[:SHOWN].rstrip() for line in open(given.names)} if given.names else None
    report = {}
    for name in given.sets.split(","):
        found = []
        for number, subject in enumerate(SETS[name]()):
            if number % parts == part - 1 and given.only in subject.name and \
                    (wanted is None or subject.name[:SHOWN].rstrip() in wanted):
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    found.append(measure(subject, given.seconds, CLOCKS[given.clock]))
                if given.all or found[-1].over > 0.0:
                    show(found[-1])
        over = [w for w in found if w.over > 0.0]
        print(f"{name}: {len(over)} of {len(found)} slower than allowed, "
              f"{sum(w.stalls for w in found)} with a call that took too long", flush=True)
        report[name] = {"measured": len(found), "over": [w._asdict() for w in over]}
    print(json.dumps({"bench": "windows", **report}))


if __name__ == "__main__":
    main()
