"""Rewrites on and off: sixty expressions of real programs, what they take by the model and by the clock."""

from __future__ import annotations

import argparse
import json
import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import jitla
from bench.expressions import CASES, Array, Case
from bench.measure import Estimate, estimate, repeats, seconds, settle
from jitla.engine import ENGINE
from jitla.hops import bytes_of, flops, topo
from jitla.recompile import Program

LEAST = 2e-3  # seconds that a batch lasts at least
TURN, TURNS = 10, 300  # calls in a row, and how many times, of what is small
SLOWER = 1.03  # bar: nothing takes longer by more
AGAIN = 4  # how many times as many rounds what looks slower gets at most
BATCH, BATCHES = 5e-4, 7  # seconds of a batch at least; of so many in turn the least is one of a pair

# ------------------------------------------------------------------------------ measuring


@dataclass
class Row:
    """What a case takes without and with rewrites; `path` is what the search did."""

    name: str
    flops: tuple[float, float]
    nbytes: tuple[float, float]
    model: tuple[float, float]
    times: tuple[float, float]
    path: str

    @property
    def ratio(self) -> float:
        """How many times faster it is with rewrites."""
        return self.times[0] / self.times[1]


def arguments_of(case: Case) -> list[Array]:
    """Return the arguments, the same every time."""
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) + 0.1 for shape in case.shapes]


def compiled(case: Case, arguments: list[Array], **options: Any) -> tuple[Callable[[], Any], Program]:
    """Return a call of the function with `options`, and the last program that was compiled for it."""
    fast = jitla.jit(case.function, compile="sync")

    def call() -> Any:
        with jitla.options(numerics=case.numerics, **options):
            return fast(*arguments)

    call()
    call()
    with jitla.options(numerics=case.numerics, **options) as config:
        return call, ENGINE.compiler(config).programs()[-1]


def work(program: Program) -> tuple[float, float]:
    """Return the operations of a program, and the bytes that its operators move one by one."""
    hops = topo(program.plan.outputs)
    return sum(map(flops, hops)), float(sum(map(bytes_of, hops)))


def predicted(program: Program) -> float:
    """Return the seconds that the planner expects."""
    assert program.explain_plan is not None
    return program.explain_plan(program.stages[-1].draft).seconds


def measure(case: Case, rounds: int) -> Row:
    """Compile a case both ways, compare the results, and time both in turn."""
    arguments = arguments_of(case)
    made = [compiled(case, arguments, rewrites=on) for on in (False, True)]
    for one, other in zip(*(_flat(call()) for call, _ in made), strict=True):
        scale = float(np.max(np.abs(one))) or 1.0
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9 * scale), case.name
    amounts = [work(program) for _, program in made]
    if made[0][1].plan.outputs == made[1][1].plan.outputs:
        made = made[:1] * 2  # its code is the same
    calls = [call for call, _ in made]
    least = least_of(calls[:1] if calls[0] is calls[1] else calls, rounds)
    model = [predicted(program) for _, program in made]
    found = made[1][1].stages[-1].draft.outcome
    path = " > ".join(made[1][1].fired) if found is None or not found.fired else " > ".join(
        rule.name for rule in found.fired)
    (f0, b0), (f1, b1) = amounts
    return Row(case.name, (f0, f1), (b0, b1), (model[0], model[1]), (least[0], least[1]), path)


def least_of(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the least seconds of one call or two, timed in turn.

    Where the second looks slower both are timed again: two programs of the same code differ by more than
    `SLOWER` in some rounds, their leasts do not when there are enough of them.
    """
    least = [math.inf] * len(calls)
    times = [repeats(call, LEAST) for call in calls]
    for turn in range(rounds * (1 + AGAIN)):
        if turn >= rounds and turn % rounds == 0 and least[-1] <= least[0] * SLOWER:
            break
        for way in range(len(calls))[::1 if turn % 2 else -1]:
            settle()
            calls[way]()
            least[way] = min(least[way], min(seconds(calls[way]) for _ in range(times[way])))
    return [least[0], least[-1]]


def pairs(cases: list[Case], count: int, notes: Path) -> None:
    """Time each case `count` times without and with rewrites, in turn, and add the pairs to `notes`.

    One process may be lucky with its memory, so this is run in several, and `judged` tells of all of them.
    """
    for case in cases:
        arguments = arguments_of(case)
        made = [compiled(case, arguments, rewrites=on) for on in (False, True)]
        if made[0][1].plan.outputs == made[1][1].plan.outputs:
            continue  # its code is the same
        calls = [call for call, _ in made]
        times = max(repeats(call, BATCH) for call in calls)
        taken = []
        for turn in range(count):
            settle()
            order = calls if turn % 2 else calls[::-1]
            order[0]()  # wakes threads
            batches = [[seconds(call, times) for call in order] for _ in range(BATCHES)]
            pair = [min(column) for column in zip(*batches, strict=True)]
            taken.append(pair if turn % 2 else pair[::-1])
        with notes.open("a") as out:
            out.write(json.dumps({"case": case.name, "pairs": taken}) + "\n")


def judged(notes: Path) -> str:
    """Say for all pairs in `notes` what of the time is left with rewrites, in intervals of 95 %."""
    every: dict[str, list[list[list[float]]]] = {}
    for line in notes.read_text().splitlines():
        found = json.loads(line)
        every.setdefault(found["case"], []).append(found["pairs"])
    lines, slower, means = [], [], []
    for name, processes in sorted(every.items()):
        ratio = ratio_of([pair for process in processes for pair in process])
        apart = " ".join(f"{ratio_of(process).value:.3f}" for process in processes)
        means.append(ratio.value)
        slower += [name] * (ratio.low > SLOWER)
        lines.append(f"{name:<26}{ratio.show(digits=3)}  processes: {apart}")
    mean = math.exp(sum(map(math.log, means)) / len(means))
    told = f"{len(lines)} cases, geometric mean {1 / mean:.2f} times faster; slower: {slower}"
    return "\n".join([*lines, told])


def ratio_of(taken: list[list[float]]) -> Estimate:
    """Return the time with rewrites, of that without."""
    return estimate([after / before for before, after in taken])


def _flat(result: Any) -> list[Array]:
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def show(rows: list[Row]) -> str:
    """Write the table."""
    head = (f"{'case':<26}{'Mflop':>9}{'after':>9}{'MB':>8}{'after':>8}{'model us':>10}{'after':>8}"
            f"{'us':>9}{'after':>8}{'ratio':>7}  rules")
    lines = [head]
    for r in rows:
        lines.append(
            f"{r.name:<26}{r.flops[0] / 1e6:>9.2f}{r.flops[1] / 1e6:>9.2f}{r.nbytes[0] / 1e6:>8.2f}"
            f"{r.nbytes[1] / 1e6:>8.2f}{r.model[0] * 1e6:>10.1f}{r.model[1] * 1e6:>8.1f}"
            f"{r.times[0] * 1e6:>9.1f}{r.times[1] * 1e6:>8.1f}{r.ratio:>7.2f}  {r.path}")
    mean = math.exp(sum(math.log(r.ratio) for r in rows) / len(rows))
    costlier = [r.name for r in rows if r.model[1] > r.model[0] * 1.001]
    slower = [r.name for r in rows if r.ratio * SLOWER < 1]
    lines.append(f"geometric mean {mean:.2f}; costlier by the model: {costlier}; slower: {slower}")
    return "\n".join(lines)


def bounds(case: Case, tried: tuple[float, ...]) -> str:
    """Say what searches with other bounds come to: predicted microseconds, states expanded and priced."""
    arguments = arguments_of(case)
    words = [f"{case.name:<26}"]
    for bound in tried:
        _, program = compiled(case, arguments, search_bound=bound, search_ms=1000, search_steps=300)
        found = program.stages[-1].draft.outcome
        words.append(f"{bound:>6}: {found.after * 1e6:8.1f} us {found.expanded:4} {found.priced:3}")
    return "  ".join(words)


def uphill(cases: list[Case], rounds: int) -> str:
    """Compare searches that only go downhill with usual ones: predicted and measured microseconds."""
    lines = [f"{'case':<26}{'model us':>10}{'uphill':>9}{'us':>9}{'uphill':>9}{'ratio':>7}  rules"]
    for case in cases:
        arguments = arguments_of(case)
        made = [compiled(case, arguments, search_bound=bound, search_ms=1000) for bound in (1.0, 1.05)]
        if made[0][1].plan.outputs != made[1][1].plan.outputs:
            model = [predicted(program) * 1e6 for _, program in made]
            least = [t * 1e6 for t in least_of([call for call, _ in made], rounds)]
            found = made[1][1].stages[-1].draft.outcome
            lines.append(f"{case.name:<26}{model[0]:>10.1f}{model[1]:>9.1f}{least[0]:>9.1f}{least[1]:>9.1f}"
                         f"{least[0] / least[1]:>7.2f}  {' > '.join(r.name for r in found.fired)}")
    lines.append(f"{len(lines) - 1} of {len(cases)} cases differ")
    return "\n".join(lines)


def times(cases: list[Case]) -> str:
    """Say how long the searches of programs take, the first plan among them, in milliseconds."""
    took = []
    for case in cases:
        _, program = compiled(case, arguments_of(case))
        took += [(s.seconds * 1e3, case.name) for s in program.stages if s.name == "rewrites.search"]
    at = np.percentile([ms for ms, _ in took], [0, 50, 90, 99, 100])
    longest = ", ".join(f"{name} {ms:.1f}" for ms, name in sorted(took)[:-6:-1])
    return f"{len(took)} searches: " + " ".join(f"{ms:.2f}" for ms in at) + f" ms; the longest: {longest}"


def small(chains: int) -> str:
    """Compare orders of small products, of 2 to 49 rows and columns, by their least times.

    These calls take microseconds, so they are timed in many short turns.
    """
    rng = np.random.default_rng(8)
    worst, ratios = [], []
    for _ in range(chains):
        lengths = [int(i) for i in rng.integers(2, 50, rng.integers(4, 7))]
        shapes = [(a, b) for a, b in zip(lengths, lengths[1:], strict=False)]
        if rng.random() < 0.5:
            shapes[-1] = shapes[-1][:1]
        case = Case(_chain_of(len(shapes)), list(shapes))
        arguments = arguments_of(case)
        made = [compiled(case, arguments, rewrites=on) for on in (False, True)]
        if made[1][1].fired:
            least = [min(taken) for taken in zip(*(
                [seconds(call, TURN) for call, _ in made] for _ in range(TURNS)), strict=True)]
            ratios.append(least[0] / least[1])
            worst.append((ratios[-1], f"{ratios[-1]:.2f} {shapes}"))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    least = "\n".join(text for _, text in sorted(worst)[:5])
    return f"{len(ratios)} of {chains} chains reordered, geometric mean {mean:.2f}; the worst:\n{least}"


def _chain_of(count: int) -> Callable[..., Any]:
    """Return a function that multiplies so many factors from the left."""
    names = [f"a{n}" for n in range(count)]
    scope: dict[str, Any] = {}
    source = f"def chain({', '.join(names)}):\n    return {' @ '.join(names)}\n"
    place = f"<chain of {count}>"
    linecache.cache[place] = (len(source), None, source.splitlines(True), place)
    exec(compile(source, place, "exec"), scope)
    return scope["chain"]


def main() -> None:
    """Measure the cases named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bounds", action="store_true", help="search with several bounds, measure nothing")
    parser.add_argument("--small", type=int, default=0, help="compare so many chains of small products")
    parser.add_argument("--uphill", action="store_true", help="compare with searches that never go uphill")
    parser.add_argument("--times", action="store_true", help="time the searches only")
    parser.add_argument("--pairs", type=int, default=0, help="time each case so many times; adds to --notes")
    parser.add_argument("--notes", type=Path, default=Path("pairs.jsonl"), help="file with pairs of times")
    parser.add_argument("--judged", action="store_true", help="say what the pairs in --notes come to")
    given = parser.parse_args()
    if given.judged:
        print(judged(given.notes))
        return
    if given.small:
        print(small(given.small))
        return
    chosen = [c for c in CASES if not given.names or c.name.rstrip("*") in given.names]
    if given.pairs:
        pairs(chosen, given.pairs, given.notes)
        return
    if given.uphill:
        print(uphill(chosen, given.rounds))
        return
    if given.times:
        print(times(chosen))
        return
    if given.bounds:
        for case in chosen:
            print(bounds(case, (1.0, 1.01, 1.05, 1.1, 1.3)), flush=True)
        return
    print(show([measure(case, given.rounds) for case in chosen]))


if __name__ == "__main__":
    main()
