"""Tuned against untuned kernels on this machine: tuned here, then timed in turn by a fresh process."""

from __future__ import annotations

import subprocess
import sys
from statistics import median, quantiles
from time import perf_counter

import jitla
from bench.internal.tuner.functions import FUNCTIONS

TRIALS, SECONDS, PAIRS = 32, 8.0, 400


def tuned(name: str) -> None:
    """Tune a function."""
    function, args, numerics = FUNCTIONS[name]
    print(name, jitla.tune(jitla.jit(function, numerics=numerics), *args, trials=TRIALS, seconds=SECONDS))


def compared(name: str) -> str:
    """Return what records make of a function, beside one whose kernels are pinned as they are untuned."""
    function, args, numerics = FUNCTIONS[name]
    fast, plain = (jitla.jit(function, compile="sync", numerics=numerics) for _ in range(2))
    fast(*args), plain(*args)
    for kernel in jitla.schedule(plain):
        usual = {k: v for k, v in kernel.usual.items() if k != "tile"}
        jitla.schedule(plain, kernel=kernel.kernel, program=kernel.program, **usual)
    for _ in range(20):
        fast(*args), plain(*args)
    ratios, seconds = [], []
    for _ in range(PAIRS):
        start = perf_counter()
        fast(*args)
        between = perf_counter()
        plain(*args)
        seconds.append(perf_counter() - between)
        ratios.append((between - start) / seconds[-1])
    low, _, high = quantiles(ratios, n=4)
    said = [line.strip() for line in str(jitla.explain(fast)).splitlines() if "tuned: " in line]
    return f"{name:10} {median(seconds) * 1e6:7.1f} us untuned, tuned takes {median(ratios):.3f} of that " \
        f"({low:.3f}-{high:.3f})  {'; '.join(said) or 'as untuned'}"


def main() -> None:
    """Tune, then compare in a fresh process."""
    directory, *names = sys.argv[1:]
    jitla.configure(cache_dir=directory, progress=False)
    if names[0] == "--compare":
        for name in names[1:]:
            print(compared(name), flush=True)
        return
    for name in names or FUNCTIONS:
        tuned(name)
    subprocess.run([sys.executable, "-m", "bench.internal.tuner.live", directory, "--compare",
                    *(names or FUNCTIONS)], check=True)


if __name__ == "__main__":
    main()
