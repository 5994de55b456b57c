"""Tiles tuned on one simulator, the best few confirmed on another: ``python -m bench.tuner.confirm LAYER``.

Knows: tables of layers, a machine with other costs. Must not know: how spaces are searched.
Receives a layer; prints by how much the chosen tiles are worse than the best, for numbers of candidates.
"""

from __future__ import annotations

import sys
from functools import cache
from statistics import median

from bench.accelerator import layer
from bench.tuner.tables import MACHINE, Table, tables
from jitla.accel import HLS, IDEAL, Spec, Stage, measure, preset, to_tiling
from jitla.accel.assemble import assemble
from jitla.fusion import Point
from jitla.tuner import Settings, search

CONFIRMED, SEEDS, TRIALS, BEST = (0, 1, 4, 16), 30, 32, 48
# Other boards: bursts of 16 beats, arithmetic that takes twice as long; and one where only work takes time.
OTHERS = {"de10nano, hls": (Spec("other", "de10nano"), HLS), "pynq, ideal": (preset(MACHINE), IDEAL)}


def regrets(table: Table, other: str) -> dict[int, float]:
    """Return the median regret on another machine, by how many candidates are confirmed there."""
    spec, costs = OTHERS[other]
    made = layer(table.name)

    @cache
    def there(point: Point) -> float:
        tiling = to_tiling(table.space.values(point))
        return float(measure(assemble(spec, [Stage("out", made, "images")], [tiling]).program, costs).cycles)

    best = min(map(there, sorted(table.costs, key=table.costs.__getitem__)[:BEST]))
    found: dict[int, list[float]] = {k: [] for k in CONFIRMED}
    for seed in range(SEEDS):
        result = search(table.space, table.costs.__getitem__, Settings(trials=TRIALS, use_prior=False), seed)
        ranked = sorted(result.points, key=table.costs.__getitem__)
        for k in CONFIRMED:
            finalists = [*ranked[:k], table.space.default] if k else ranked[:1]
            found[k].append(min(map(there, finalists)) / best - 1.0)
    return {k: median(v) for k, v in found.items()}


def main() -> None:
    """Print a line for each other machine."""
    wanted = sys.argv[1:] or ["C5"]
    for table in tables():
        if table.name in wanted:
            for other in OTHERS:
                said = "  ".join(f"k={k} {v:6.2%}" for k, v in regrets(table, other).items())
                print(f"{table.name} on {other}: {said}", flush=True)


if __name__ == "__main__":
    main()
