"""Random layers with data; ``python -m tests.accel.layers 0:2000`` runs so many against NumPy."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitla.accel import (
    AluOp,
    EpilogueOp,
    Layer,
    SlidingWindow,
    compile_layer,
    preset,
    reference_result,
    verify,
)

STORED = {1: np.int8, 2: np.int16, 4: np.int32}


def window(rng: np.random.Generator, pads: bool) -> SlidingWindow:
    taps = int(rng.integers(1, 4))
    stride, dilation = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    before, after = (int(rng.integers(0, taps)) for _ in range(2)) if pads else (0, 0)
    least = max((taps - 1) * dilation + 1 - before - after, 1)
    return SlidingWindow(least + int(rng.integers(0, 9)), taps, stride, dilation, before, after)


def steps(rng: np.random.Generator) -> Iterator[EpilogueOp]:
    for _ in range(int(rng.integers(0, 5))):
        kind = int(rng.integers(0, 7))
        if kind == 0:
            yield EpilogueOp(AluOp.SHR, int(rng.integers(-15, 16)))
        elif kind == 1:
            yield EpilogueOp(AluOp.MUL, int(rng.integers(-300, 300)))
        elif kind == 2:
            yield EpilogueOp(AluOp.ADD, operand="full", form="full")
        elif kind == 3:
            yield EpilogueOp(AluOp((1, 0, 2)[int(rng.integers(0, 3))]), operand="channel", form="channel")
        else:
            yield EpilogueOp(AluOp(int(rng.integers(0, 3))), int(rng.integers(-32768, 32768)))


def layer(rng: np.random.Generator) -> Layer:
    """Return a layer: products more often than others, sizes on both sides of what blocks and tiles have."""
    mode: Any = ("product", "product", "product", "sum", "max", "min")[int(rng.integers(0, 6))]
    flat = mode == "product" and rng.integers(0, 2)
    rows, columns = (SlidingWindow(1),
                     SlidingWindow(1)) if flat else (window(rng, mode == "product") for _ in range(2))
    channels, filters = (int(rng.integers(1, 70)) for _ in range(2))
    images = int(rng.integers(1, 200 if flat else 4))
    return Layer(images, channels, filters if mode == "product" else channels, rows, columns,
                 int(rng.integers(1, 3)) if mode == "product" else 1, mode, tuple(steps(rng)),
                 int(rng.choice([1, 1, 2, 4])))


def arrays(rng: np.random.Generator, made: Layer) -> dict[str, Any]:
    """Return data by name of the array."""
    found: dict[str, Any] = {"images": rng.integers(-128, 128, made.input_shape, dtype=np.int8)}
    if made.mode == "product":
        found["weights"] = rng.integers(-128, 128, made.weight_shape, dtype=np.int8)
    for step in made.steps:
        if step.operand:
            shape = (made.groups, made.filters) if step.form == "channel" else made.output_shape
            found[step.operand] = rng.integers(-(1 << 31), 1 << 31, shape, dtype=np.int32)
    return found


def wanted(made: Layer, data: dict[str, Any]) -> Any:
    """Return what NumPy makes of it."""
    operands = {s.operand: data[s.operand] for s in made.steps if s.operand}
    operands = {k: v[:, None, None, None, :] if v.ndim == 2 else v for k, v in operands.items()}
    result = reference_result(made, data["images"], data.get("weights"), operands)
    return result.astype(STORED[made.stored])


def fault(seed: int) -> str:
    """Return what is wrong with the layer of `seed`: nothing, if all is as it should be."""
    rng = np.random.default_rng(seed)
    made = layer(rng)
    data = arrays(rng, made)
    job = compile_layer(preset("vta-pynq"), made, int(rng.integers(1, 3)))
    broken = verify(job.program)
    if broken:
        return f"{seed}: {broken[0]} in {made}"
    names = {k if k == "images" else f"out.{k}": v for k, v in data.items()}
    found = job.run(names)
    return "" if np.array_equal(found, wanted(made, data)) else f"{seed}: other results for {made}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="first:last")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    faults = [f for seed in range(first, last) if (f := fault(seed))]
    print("\n".join([*faults, f"{last - first} layers, {len(faults)} faults"]))


if __name__ == "__main__":
    main()
