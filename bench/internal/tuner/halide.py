"""A blur of slices, untuned and tuned, beside Halide's by hand and by its schedulers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import numpy as np

import jitla
from bench.peers.stencils import blur, blur_halide

TURNS = 40
SHAPE = 3000, 4000
PLUGINS = ("Mullapudi2016", "Adams2019")
KNOBS = ("stores", "unroll", "vector", "ahead", "threads", "height", "units")


def scheduled(hl: Any, image: np.ndarray, plugin: str) -> Callable[[], Any]:
    """Return the blur as one of Halide's schedulers runs it."""
    name = f"libautoschedule_{plugin.lower()}.so"
    hl.load_plugin(str(next(Path(hl.__file__).parent.rglob(name))))
    given, x, y = hl.Buffer(image), hl.Var("x"), hl.Var("y")
    rows, out = hl.Func("rows"), hl.Func("blur")
    third = hl.f32(1 / 3)
    rows[x, y] = third * (given[x, y] + given[x, y + 1] + given[x, y + 2])
    out[x, y] = third * (rows[x, y] + rows[x + 1, y] + rows[x + 2, y])
    height, width = image.shape
    out.set_estimates([hl.Range(0, width - 2), hl.Range(0, height - 2)])
    pipeline, target = hl.Pipeline(out), hl.get_jit_target_from_environment()
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(plugin, {"parallelism": os.cpu_count() or 1}))
    made = hl.Buffer(np.empty((height - 2, width - 2), image.dtype))
    pipeline.compile_jit(target)
    return lambda: pipeline.realize(made)


def main() -> None:
    """Tune, then time all in turn."""
    hl = import_module("halide")
    jitla.configure(cache_dir=sys.argv[1], progress=False)
    image = np.random.default_rng(1).random(SHAPE, np.float32)
    plain, tuned = (jitla.jit(blur, compile="sync") for _ in range(2))
    plain(image)
    for kernel in jitla.schedule(plain):  # as it is untuned, whatever is found
        jitla.schedule(plain, kernel=kernel.kernel, **{k: v for k, v in kernel.usual.items() if k in KNOBS})
    print(jitla.tune(tuned, image, trials=24, seconds=12))
    runs: dict[str, Callable[[], Any]] = {"tuned": lambda: tuned(image), "untuned": lambda: plain(image),
                                          "halide by hand": blur_halide(hl, image)}
    for plugin in PLUGINS:
        runs[f"halide, {plugin}"] = scheduled(hl, image, plugin)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            start = perf_counter()
            run()
            seconds[name].append(perf_counter() - start)
    for name, taken in seconds.items():
        ratios = [t / own for t, own in zip(taken, seconds["tuned"], strict=True)]
        low, middle, high = quantiles(ratios, n=4)
        each = median(taken) * 1e9 / image.size
        print(f"{name:22} {median(taken) * 1e3:6.2f} ms  {each:5.2f} ms/megapixel  "
              f"{middle:.2f} ({low:.2f}-{high:.2f}) of tuned", flush=True)


if __name__ == "__main__":
    main()
