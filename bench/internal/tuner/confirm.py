"""Tiles tuned on one simulator, used on another: ``python -m bench.internal.tuner.confirm --results DIR``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from bench.internal.accelerator import layer
from bench.internal.tuner.contest import Result, history, searched
from bench.internal.tuner.report import BOARDS
from bench.internal.tuner.tables import MACHINE, Table, tables
from bench.tables import markdown_row, percentages
from jitla.accel import HLS, IDEAL, AccelSpec, LayerStage, measure, preset, to_tiling
from jitla.accel.lowering import assemble
from jitla.fusion import Point
from jitla.tuner.search import (
    Settings,
    search,
)

CONFIRMED, SEEDS, TRIALS, BEST = (0, 1, 4, 16), 30, 32, 48
SECOND = "vta-ultra96"  # a preset of which there are tables as well
# Boards whose costs are others.
OTHERS = {"bursts of 16 beats, slow arithmetic": (AccelSpec("other", "de10nano"), HLS),
          "only work takes time": (preset(MACHINE), IDEAL)}


def regrets(table: Table, other: str) -> dict[int, list[float]]:
    """Return quartiles of the regret on another machine, by how many candidates are confirmed there."""
    spec, costs = OTHERS[other]
    made = layer(table.name)

    @cache
    def there(point: Point) -> float:
        tiling = to_tiling(table.space.values(point))
        return float(measure(assemble(spec, [LayerStage("out", made, "images")], [tiling]).program,
                             costs).cycles)

    best = min(map(there, sorted(table.costs, key=table.costs.__getitem__)[:BEST]))
    found: dict[int, list[float]] = {k: [] for k in CONFIRMED}
    for seed in range(SEEDS):
        result = search(table.space, table.costs.__getitem__, Settings(trials=TRIALS, use_prior=False), seed)
        ranked = sorted(result.points, key=table.costs.__getitem__)
        for k in CONFIRMED:
            finalists = [*ranked[:k], table.space.default] if k else ranked[:1]
            found[k].append(min(map(there, finalists)) / best - 1.0)
    return {k: quantiles(v, n=4) for k, v in found.items()}


def alike(one: Table, other: Table) -> tuple[float, int]:
    """Return the rank correlation of what tiles take that both machines can run, and how many these are."""
    def known(table: Table) -> dict[tuple[object, ...], float]:
        return {tuple(table.space.values(p).values()): c for p, c in table.costs.items() if c < float("inf")}

    first, second = known(one), known(other)
    both = [v for v in first if v in second]
    ranks = [np.argsort(np.argsort([t[v] for v in both])) for t in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1]), len(both)


def moved(before: Table, here: Table) -> dict[str, list[Result]]:
    """Return searches on one machine without and with the table that another has of the same layer."""
    past = history([before])
    return {f"{'history' if told else 'none'}{', estimate' if prior else ''}":
            [searched(here, seed, told, use_prior=prior) for seed in range(SEEDS)]
            for prior in (False, True) for told in (None, past)}


def confirmed(every: list[Table]) -> Iterator[str]:
    """Yield the table of regrets."""
    yield CONFIRMING
    yield markdown_row(["layer", "other machine", *(f"{k} confirmed" for k in CONFIRMED)])
    yield f"|{'---|' * (2 + len(CONFIRMED))}"
    for table in every:
        for other in OTHERS:
            said = [percentages(m, low, high, digits=2) for low, m, high in regrets(table, other).values()]
            yield markdown_row([table.name, other, *said])


def transferred(every: list[Table]) -> Iterator[str]:
    """Yield the table of what one machine teaches about another."""
    yield MOVING
    ways = ("nothing known", "history", "estimate", "both")
    yield markdown_row(["layer", "from, to", "tiles of both", "rank correlation", *ways])
    yield f"|{'---|' * (4 + len(ways))}"
    there = {t.name: t for t in tables(SECOND)}
    for table in every:
        if table.name not in there:
            continue
        for one, other, names in ((table, there[table.name], f"{MACHINE}, {SECOND}"),
                                  (there[table.name], table, f"{SECOND}, {MACHINE}")):
            rank, shared = alike(one, other)
            said = [f"{median(r.trials for r in rs):g}, {median(r.regrets[-1] for r in rs):.2%}"
                    for rs in moved(one, other).values()]
            yield markdown_row([table.name, names, str(shared), f"{rank:.3f}", *said])


CONFIRMING = f"""Tiles are searched on one simulated machine, {MACHINE}, with {TRIALS} trials and without the
estimate. The best few are then confirmed on another one, beside what is chosen untuned, and the best there
is taken. Regret there, against the best of the {BEST} that are best here; medians and quartiles of {SEEDS}
seeds. With none confirmed the best here is taken as it is.
"""
MOVING = f"""
Trials to 95 % of the best speed and regret after 32, medians of {SEEDS} seeds: with nothing known, with the
table that the other machine has of the same layer as history, with the analytic estimate, with both. Rank
correlation is Spearman's, over the tiles that both machines have room for.
"""


def main() -> None:
    """Print both tables, and write them where a page is made of results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layer", nargs="*", default=["C3", "C5", "C8"])
    parser.add_argument("--results", type=Path, help="a folder to write the tables to")
    given = parser.parse_args()
    every = [t for t in tables() if t.name in given.layer]
    lines = []
    for line in (*confirmed(every), *transferred(every)):
        print(line, flush=True)
        lines.append(line)
    if given.results:
        given.results.mkdir(exist_ok=True)
        (given.results / BOARDS).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
