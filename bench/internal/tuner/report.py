"""The page about how well the tuner searches: tables and pictures of what searches did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TypedDict

from bench.algorithms.charts import bars, lines
from bench.internal.tuner.contest import LEAST, TRIALS, Orders, Result
from bench.internal.tuner.tables import Table
from bench.tables import LEFT, markdown, percentages

BESIDE = ("tuner", "no transfer", "genetic", "annealing", "random")  # in the page's first table
SEEDS = 30  # that a page tells without saying so
FLOOR = 0.1  # per cent: less regret is drawn as this
BOARDS = "boards.md"  # what bench.internal.tuner.confirm has written beside results
FLAT = 1.05  # times the best: where the default is as near, there is nothing to learn


class Summary(TypedDict):
    """What is kept of the searches by one method: median and quartiles, and medians along the way."""

    trials: list[float]
    regret: list[float]  # after 32
    curve: list[float]
    seeds: int


def kept(results: Sequence[Result]) -> Summary:
    """Return what is kept of results."""
    trials, last = [r.trials for r in results], [r.regrets[-1] for r in results]
    return {"trials": _spread(trials), "regret": [round(v, 4) for v in _spread(last)],
            "curve": [round(median(r.curve[n] for r in results), 4) for n in range(LEAST)],
            "seeds": len(results)}


def _spread(values: Sequence[float]) -> list[float]:
    low, _, high = quantiles(values, n=4)
    return [median(values), low, high]


def write(page: Path, tables: Sequence[Table], place: Path) -> None:
    """Write a page, and pictures into a folder of its name."""
    found: dict[str, dict[str, Summary]] = {
        t.name: json.loads((place / f"{t.name}.json").read_text()) for t in tables}
    pictures = page.with_suffix("")
    pictures.mkdir(exist_ok=True)
    (pictures / "trials.svg").write_text(bars({t.name: _bars(t, found[t.name]) for t in tables},
                                              [*BESIDE, "expected"], "trials to 95 % of the best speed"))
    (pictures / "regret.svg").write_text(
        lines(_curves(tables, found), "trials", "regret, %, mean of medians"))
    here = pictures.name
    parts = [HEAD, f"![trials, table by table]({here}/trials.svg)\n", _trials(tables, found),
             "\n## Regret after 32 trials\n", f"![regret by trials]({here}/regret.svg)\n",
             _regrets(tables, found), "\n## Ablations\n", ABLATIONS, _ablations(tables, found),
             "\n## Ranking pairs of schedules\n", PAIRS, _orders(tables, place)]
    boards = place / BOARDS
    parts += ["\n## From one accelerator to another\n", boards.read_text()] if boards.exists() else []
    page.write_text("\n".join(parts) + "\n")


def _bars(table: Table, found: Mapping[str, Summary]) -> dict[str, float]:
    made = {name: found[name]["trials"][0] for name in BESIDE if name in found}
    return {**made, "expected": table.random_trials()}


def _curves(tables: Sequence[Table], found: Mapping[str, Mapping[str, Summary]]
            ) -> dict[str, list[tuple[float, float]]]:
    return {name: [(n + 1.0, max(100 * mean(found[t.name][name]["curve"][n] for t in tables), FLOOR))
                   for n in range(LEAST)]
            for name in BESIDE if all(name in found[t.name] for t in tables)}


def _trial_counts(spread: Sequence[float]) -> str:
    if spread[0] > TRIALS:
        return "never"
    high = "never" if spread[2] > TRIALS else f"{spread[2]:g}"
    return f"{spread[0]:g} ({spread[1]:g}–{high})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return markdown(head, rows, [LEFT] * len(head))


def _trials(tables: Sequence[Table], found: Mapping[str, Mapping[str, Summary]]) -> str:
    head = ("table", "points", "good", "default", "estimate", *BESIDE, "expected", "of it", "of genetic")
    made = []
    for t in tables:
        here, expected = found[t.name], t.random_trials()
        own, bred = here["tuner"]["trials"][0], here["genetic"]["trials"][0]
        flat = " (flat)" if t.usual <= FLAT * t.best else ""
        guess = f"{t.costs[t.guess] / t.best:.2f}" if t.space.estimate is not None else "none"
        made.append([t.name + flat, str(len(t.costs)), str(t.good()), f"{t.usual / t.best:.2f}", guess,
                     *(_trial_counts(here[n]["trials"]) if n in here else "" for n in BESIDE),
                     f"{expected:.1f}", f"{own / expected:.2f}", f"{own / bred:.2f}"])
    return _table(head, made)


def _regrets(tables: Sequence[Table], found: Mapping[str, Mapping[str, Summary]]) -> str:
    return _table(("table", *BESIDE), [
        [t.name, *(percentages(*found[t.name][n]["regret"], digits=1) if n in found[t.name] else ""
                   for n in BESIDE)]
        for t in tables])


def _ablations(tables: Sequence[Table], found: Mapping[str, Mapping[str, Summary]]) -> str:
    every = dict.fromkeys(n for t in tables for n in found[t.name])
    others = [n for n in ("other sizes", *every) if n not in BESIDE[1:]]
    others = list(dict.fromkeys(others))
    return _table(("table", *others), [
        [t.name, *(_both(found[t.name][n]) if n in found[t.name] else "" for n in others)] for t in tables])


def _both(made: Summary) -> str:
    seeds = "" if made["seeds"] == SEEDS else f" ({made['seeds']})"
    return f"{made['trials'][0]:g}, {made['regret'][0]:.1%}{seeds}"


def _orders(tables: Sequence[Table], place: Path) -> str:
    head = ("table", "noise", "estimate", "all", "5 % apart", "10 % apart", "noise apart", "measured again",
            "other sizes known")
    made = []
    for t in tables:
        file = place / f"{t.name}.orders.json"
        if file.exists():
            o = Orders(*json.loads(file.read_text()))
            noise = ["", ""] if t.noise is None else [f"{o.beyond:.2f}", f"{o.attainable:.2f}"]
            shares = [f"{s:.2f}" for s in (o.estimate, o.every, *o.apart)]
            made.append([t.name, "" if t.noise is None else f"{t.noise:.1%}", *shares, *noise,
                         f"{o.sizes:.2f}"])
    return _table(head, made)


HEAD = """# How well the tuner searches

`python -m bench.internal.tuner --results FOLDER` runs the searches; with
`--page docs/reports/tuner-search.md` it generates this page from FOLDER.
[Tuning](../tuning.md) describes the tuner.

Searches are replayed on tables in which every point of a schedule space was measured: kernels of the
processor, and layers of ResNet-18 on the simulated accelerator, whose cycles are exact. The untuned schedule
was timed beside every point; the best 24 points were timed again until the best 24 were stable. No search is
given the default. Seeds are even; odd ones were used to develop the search. History comes from the tables of
other functions, never from the kernel itself or another size of it. At most 64 trials; "never": not within
those. Medians and quartiles of 30 seeds. "Expected" is the expected number of random trials,
`(N + 1) / (k + 1)` for `k` good points (within 5 % of the best) of `N`. "Default" and "estimate": the time of
the untuned schedule, and of the point that the analytic estimate prefers, over the best. "Of it", "of
genetic": trials of the tuner over those. A table is flat where the default is within 5 % of the best: there
is nothing to learn.

## Trials until near the best
"""
ABLATIONS = """\
Trials to 95 % of the best speed (65: never), and regret after 32 trials, medians. "No transfer" has no
history, "other sizes" also has tables of the same function, "no estimate" has no analytic estimate, "neither"
has nothing to begin with. "Trees" fits boosted trees to the ranks of the kernel's own samples instead of a
Gaussian process, "squares" the same trees to the logarithm of their speed, "neural" a network of 24 units,
"lightgbm" LightGBM's trees (the extra `jitla[tuner]`). The tuner scores every point of these spaces;
"annealed scores" and "beam of scores" search for good scores by annealing and by a beam, as in spaces of more
than 20,000 points. What was not run has no column. In brackets: seeds, where they were not 30.
"""
PAIRS = """\
Of all pairs of points of a table that differ by 1 %, the share that history and estimate put in order,
without any measurement of this kernel: trees are fitted to the tables of other functions. "5 % apart" counts
pairs that differ by 5 %, "noise apart" those that differ by more than the untuned schedule varies (the middle
half of its times). Closer pairs cannot be distinguished by one measurement: "measured again" is the share
that the table itself would put in order of a second measurement with the same noise, an upper bound. Cycles
have no noise.
"""
