"""Random NumPy programs on bytes, jitted; ``python -m tests.accel.shapes 0:2000`` runs so many on the device.

Products of matrices and stacks, convolutions in all the ways in which they are written, with what follows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import jitla

Array = Any
Step = Callable[[Array, list[Array]], Array]
I32 = np.int32
_windows = np.lib.stride_tricks.sliding_window_view


class Case(NamedTuple):
    """A program with its arguments; `kind` says what it is."""

    kind: str
    function: Callable[..., Array]
    given: tuple[Array, ...]


# ---------------------------------------------------------------------- arrays as users have them


def size(rng: np.random.Generator) -> int:
    """Return a length: often one, or about what a block or a tile has."""
    return int(rng.choice([1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 64, 65, int(rng.integers(1, 90))]))


def laid(rng: np.random.Generator, values: Array) -> Array:
    """Return the same values, laid out in memory in some way."""
    kind = int(rng.integers(0, 8))
    if kind == 1:
        return np.asfortranarray(values)
    if kind == 2 and values.ndim:
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    if kind == 3 and values.ndim:
        return np.ascontiguousarray(values[::-1])[::-1]
    if kind == 4 and values.ndim:
        return np.ascontiguousarray(values[..., ::-1])[..., ::-1]
    if kind == 5:
        return np.pad(values, 1)[(slice(1, -1),) * values.ndim]
    return values


def bytes_of(rng: np.random.Generator, *shape: int) -> Array:
    """Return bytes, sometimes only the largest and smallest."""
    values = rng.integers(-128, 128, shape, dtype=np.int8)
    if rng.integers(0, 6) == 0:
        values = np.where(values > 0, 127, -128).astype(np.int8)
    return laid(rng, values)


def words(rng: np.random.Generator, *shape: int) -> Array:
    """Return integers, sometimes so large that sums wrap."""
    most = int(rng.choice([100, 5000, (1 << 31) - 1]))
    return laid(rng, rng.integers(-most - 1, most + 1, shape, dtype=I32))


# ---------------------------------------------------------------------- what follows a product


def epilogue(rng: np.random.Generator, shape: Sequence[int]) -> tuple[Step, list[Array]]:
    """Return what is done to sums of a shape, and the arrays that takes."""
    steps: list[Step] = []
    extra: list[Array] = []
    for _ in range(int(rng.integers(0, 5))):
        steps.append(_step(rng, shape, extra))
    end = int(rng.integers(0, 4))

    def run(sums: Array, arrays: list[Array]) -> Array:
        for step in steps:
            sums = step(sums, arrays)
        if end == 1:
            return np.clip(sums, -128, 127).astype(np.int8)
        if end == 2:
            return np.maximum(sums >> 4, 0).astype(np.int8)
        return sums.astype(np.int16) if end == 3 else sums

    return run, extra


def _step(rng: np.random.Generator, shape: Sequence[int], extra: list[Array]) -> Step:
    kind, number = int(rng.integers(0, 10)), int(rng.integers(-40000, 40000))
    shift, low, at = int(rng.integers(0, 20)), int(rng.integers(-300, 0)), len(extra)
    if kind == 0:
        return lambda s, e: s >> shift
    if kind == 1:
        return lambda s, e: np.left_shift(s, shift)
    if kind == 2:
        return lambda s, e: np.clip(s, low, 127)
    if kind == 3:
        return lambda s, e: np.maximum(s, 0)
    if kind == 4:
        return lambda s, e: np.minimum(s + number, number)
    if kind == 5:
        return lambda s, e: s * (number % 300 - 150)
    if kind == 6:
        extra.append(words(rng, shape[-1]))
        return lambda s, e: s + e[at]
    if kind == 7:
        extra.append(words(rng, *shape))
        return lambda s, e: np.maximum(s, e[at])
    if kind == 8:
        extra.append(bytes_of(rng, *shape))
        return lambda s, e: e[at] + s
    extra.append(words(rng, *shape))
    return lambda s, e: s - e[at]


# ---------------------------------------------------------------------- products


def matrices(rng: np.random.Generator) -> Case:
    """Return a product of two matrices, or of a vector."""
    n, k, m = size(rng), size(rng), size(rng)
    form = int(rng.integers(0, 6))
    x, w = bytes_of(rng, n, k), bytes_of(rng, k, m)
    after, extra = epilogue(rng, (m,) if form == 3 else (n, m))
    if form == 3:
        x = bytes_of(rng, k)
    if form == 4:
        w = bytes_of(rng, m, k)
    sums = (
        lambda x, w: x.astype(I32) @ w.astype(I32), lambda x, w: np.matmul(x, w, dtype=I32),
        lambda x, w: np.dot(x.astype(I32), w.astype(I32)), lambda x, w: x.astype(I32) @ w.astype(I32),
        lambda x, w: x.astype(I32) @ w.T.astype(I32),
        lambda x, w: np.einsum("ij,jk->ik", x.astype(I32), w.astype(I32)),
    )[form]
    return Case("matmul", lambda x, w, *e: after(sums(x, w), list(e)), (x, w, *extra))


def stacks(rng: np.random.Generator) -> Case:
    """Return products of stacks of matrices, one of which may be a single one."""
    b, n, k, m = int(rng.integers(1, 5)), size(rng), size(rng), size(rng)
    form = int(rng.integers(0, 4))
    left, right = ((b,), (b,)) if form < 2 else ((b,), ()) if form == 2 else ((2, b), (1, b))
    x, w = bytes_of(rng, *left, n, k), bytes_of(rng, *right, k, m)
    after, extra = epilogue(rng, (*left, n, m))

    def run(x: Array, w: Array, *e: Array) -> Array:
        return after(x.astype(I32) @ w.astype(I32), list(e))

    return Case("stack", run, (x, w, *extra))


# ---------------------------------------------------------------------- convolutions


class Conv(NamedTuple):
    """Sizes of a convolution on ``[image, row, column, channel]``."""

    taps: tuple[int, int]
    stride: int
    dilation: int

    def outputs(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return how many rows and columns there are."""
        rows, columns = ((n - (t - 1) * self.dilation - 1) // self.stride + 1
                         for n, t in zip(shape[1:3], self.taps, strict=True))
        return rows, columns

    def part(self, x: Array, i: int, j: int) -> Array:
        """Return the pixels of a tap."""
        rows, columns = self.outputs(x.shape)
        i, j, s = i * self.dilation, j * self.dilation, self.stride
        return x[:, i:i + (rows - 1) * s + 1:s, j:j + (columns - 1) * s + 1:s]


def _slices(conv: Conv, form: int) -> Callable[[Array, Array], Array]:
    """Return a sum over taps, added up in one of the ways that people write."""
    taps = list(product(range(conv.taps[0]), range(conv.taps[1])))

    def fresh(x: Array, w: Array) -> Array:
        total = 0
        for i, j in taps:
            total = total + conv.part(x, i, j).astype(I32) @ w[i, j].astype(I32)
        return total

    def zeros(x: Array, w: Array) -> Array:
        total = np.zeros((len(x), *conv.outputs(x.shape), w.shape[-1]), I32)
        for i, j in taps:
            total += conv.part(x, i, j).astype(I32) @ w[i, j].astype(I32)
        return total

    def first(x: Array, w: Array) -> Array:
        total = None
        for i, j in taps:
            term = np.matmul(conv.part(x, i, j).astype(I32), w[i, j].astype(I32))
            if total is None:
                total = term
            else:
                total += term
        return total

    def rows(x: Array, w: Array) -> Array:
        parts = np.concatenate([conv.part(x, i, j) for i, j in taps], axis=3)
        return parts.astype(I32) @ w.reshape(-1, w.shape[-1]).astype(I32)

    return (fresh, zeros, first, rows)[form]


def _sliding(conv: Conv, form: int) -> Callable[[Array, Array], Array]:
    def seen(x: Array) -> Array:
        return _windows(x, conv.taps, axis=(1, 2))[:, ::conv.stride, ::conv.stride]

    def einsum(x: Array, w: Array) -> Array:
        return np.einsum("nhwcij,ijco->nhwo", seen(x).astype(I32), w.astype(I32))

    def tensordot(x: Array, w: Array) -> Array:
        return np.tensordot(seen(x).astype(I32), w.astype(I32), axes=((4, 5, 3), (0, 1, 2)))

    def rows(x: Array, w: Array) -> Array:
        parts = seen(x).transpose(0, 1, 2, 4, 5, 3)
        n, h, c = parts.shape[:3]
        flat = parts.reshape(n * h * c, -1).astype(I32) @ w.reshape(-1, w.shape[-1]).astype(I32)
        return flat.reshape(n, h, c, -1)

    return (einsum, tensordot, rows)[form]


def convolution(rng: np.random.Generator) -> Case:
    """Return a convolution, with zeros around or not, and a pooling behind it or not."""
    form = int(rng.integers(0, 7))
    conv = Conv((int(rng.integers(1, 4)), int(rng.integers(1, 4))), int(rng.integers(1, 3)),
                int(rng.integers(1, 3)) if form < 4 else 1)
    sums = _slices(conv, form) if form < 4 else _sliding(conv, form - 4)
    channels, filters = int(rng.choice([1, 3, 5, 16, 20, 33])), int(rng.choice([1, 4, 16, 17, 40]))
    pads = int(rng.integers(0, 2))
    reach = [(t - 1) * conv.dilation + 1 for t in conv.taps]
    high, wide = (max(r - 2 * pads, 1) + int(rng.integers(0, 9)) for r in reach)
    x = bytes_of(rng, int(rng.integers(1, 4)), high, wide, channels)
    w = bytes_of(rng, *conv.taps, channels, filters)
    padded = (len(x), high + 2 * pads, wide + 2 * pads, channels)
    rows, columns = conv.outputs(padded)
    after, extra = epilogue(rng, (len(x), rows, columns, filters))
    pools = rows % 2 == columns % 2 == 0 and rng.integers(0, 2)

    def run(x: Array, w: Array, *e: Array) -> Array:
        if pads:
            x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        made = after(sums(x, w), list(e))
        if pools:
            made = made.reshape(len(x), rows // 2, 2, columns // 2, 2, -1).max(axis=(2, 4))
        return made

    names = ("slices", "in place", "from the first", "im2col", "einsum", "tensordot", "windows")
    return Case(f"convolution: {names[form]}", run, (x, w, *extra))


def block(rng: np.random.Generator) -> Case:
    """Return two convolutions with what came in added to the second, as in residual networks."""
    channels = int(rng.choice([3, 16, 20]))
    conv = Conv((3, 3), 1, 1)
    sums = _slices(conv, int(rng.integers(0, 3)))
    x = bytes_of(rng, int(rng.integers(1, 3)), int(rng.integers(1, 9)), int(rng.integers(1, 9)), channels)
    w, v = (bytes_of(rng, 3, 3, channels, channels) for _ in range(2))
    around = ((0, 0), (1, 1), (1, 1), (0, 0))

    def run(x: Array, w: Array, v: Array, b: Array) -> Array:
        y = np.clip((sums(np.pad(x, around), w) + b) >> 7, 0, 127).astype(np.int8)
        return np.clip((sums(np.pad(y, around), v) >> 7) + x, 0, 127).astype(np.int8)

    return Case("residual", run, (x, w, v, words(rng, channels)))


def case(seed: int) -> Case:
    """Return the program of a seed."""
    rng = np.random.default_rng((12, seed))
    kind = int(rng.integers(0, 10))
    return (matrices if kind < 3 else stacks if kind < 5 else block if kind == 9 else convolution)(rng)


# ---------------------------------------------------------------------- running


def fault(seed: int, counted: dict[str, list[int]]) -> str:
    """Return what is wrong with the program of `seed`; count, by kind, programs, and those on the device."""
    made = case(seed)
    copies = [a.copy() for a in made.given]
    with np.errstate(all="ignore"):
        wanted = made.function(*made.given)
    decorated = jitla.jit(made.function)
    with np.errstate(all="ignore"), jitla.options(accelerator="vta-pynq", placement="forced", compile="sync"):
        found = decorated(*made.given)
    if decorated.stats().failures:
        return f"{seed}: failures in {made.kind}"
    if not np.array_equal(found, wanted) or found.dtype != wanted.dtype:
        return f"{seed}: other results of {made.kind}"
    if found.strides != wanted.strides:
        return f"{seed}: {made.kind} lies otherwise: {found.strides}, not {wanted.strides} of {wanted.shape}"
    if not all(map(np.array_equal, made.given, copies)):
        return f"{seed}: arguments of {made.kind} were written to"
    parts = [h.attr("part") for s in decorated.__jitla_state__.all_sites() for p in s.runs()
             for step in p.plan.steps for h in [getattr(step, "hop", None)]
             if h is not None and h.op.name == "offload"]
    tally = counted.setdefault(made.kind, [0, 0, 0])
    tally[0] += 1
    tally[1] += any(p.runs for p in parts)
    tally[2] += any(p.refused for p in parts)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="first:last")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    counted: dict[str, list[int]] = {}
    faults = [f for seed in range(first, last) if (f := fault(seed, counted))]
    for kind, (programs, device, refused) in sorted(counted.items()):
        print(f"{kind}: {programs} programs, {device} on the device, {refused} with numbers it has not")
    print("\n".join([*faults, f"{last - first} programs, {len(faults)} faults"]))


if __name__ == "__main__":
    main()
