"""The convolutions of ResNet-18 on the simulated accelerator: how busy its array is, and what bounds it.

Cycles are simulated; nothing here is a time of this computer. What a layer is bound by: the array takes a
step per block of products; every accumulator is set to zero and goes through a shift and two limits, in the
same unit (roof "unit"); bytes come over the bus (roof "bus").
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from time import perf_counter

from jitla.accel import (
    AluOp,
    EpilogueOp,
    Layer,
    SlidingWindow,
    compile_layer,
    preset,
    utilisation_bounds,
    verify,
)

# name: height and width, channels, filters, taps, stride
LAYERS = {
    "C2": (56, 64, 64, 3, 1), "C3": (56, 64, 64, 1, 1), "C4": (56, 64, 128, 3, 2), "C5": (56, 64, 128, 1, 2),
    "C6": (28, 128, 128, 3, 1), "C7": (28, 128, 256, 3, 2), "C8": (28, 128, 256, 1, 2),
    "C9": (14, 256, 256, 3, 1), "C10": (14, 256, 512, 3, 2), "C11": (14, 256, 512, 1, 2),
    "C12": (7, 512, 512, 3, 1),
}
STEPS = (EpilogueOp(AluOp.SHR, 8), EpilogueOp(AluOp.MAX, 0), EpilogueOp(AluOp.MIN, 127))


def layer(name: str) -> Layer:
    """Return a layer on one image, with zeros around it, results shifted and cut to bytes."""
    size, channels, filters, taps, stride = LAYERS[name]
    pad = taps // 2
    window = SlidingWindow(size, taps, stride, 1, pad, pad)
    return Layer(1, channels, filters, window, window, steps=STEPS)


def lines(names: list[str], machine: str, check: bool) -> Iterator[str]:
    """Yield the table."""
    spec = preset(machine)
    yield f"{machine}: simulated cycles at {spec.board.clock_mhz} MHz"
    yield f"{'':5}{'1 thread':>17}{'2 threads':>17}{'serial':>9}   roof: unit   bus   MAC/B   bound by"
    for name in names:
        made = layer(name)
        start = perf_counter()
        jobs = [compile_layer(spec, made, threads) for threads in (1, 2)]
        faults = sum(len(verify(j.program)) for j in jobs) if check else 0
        seconds = perf_counter() - start
        alone, both = (j.timing for j in jobs)
        serial = jobs[1].serial_cycles
        unit, bus = utilisation_bounds(made, spec)
        bound = "bus" if bus < unit else "unit"
        yield (f"{name:5}{alone.cycles:>9} {alone.utilisation:>6.1%} {both.cycles:>9} "
               f"{both.utilisation:>6.1%} "
               f"{serial:>8} {unit:>12.1%} {bus:>6.1%} {both.roofline.intensity:>7.1f}   {bound}"
               f"   ({seconds:.1f} s{f', {faults} faults' if check else ''})")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layer", action="append", choices=list(LAYERS))
    parser.add_argument("--machine", default="vta-pynq")
    parser.add_argument("--verify", action="store_true", help="check all rules of every stream")
    given = parser.parse_args()
    for line in lines(given.layer or list(LAYERS), given.machine, given.verify):
        print(line, flush=True)


if __name__ == "__main__":
    main()
