"""Rows of whole pipelines: pyramids over intensities, a grid over places and intensities, columns of air."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numba import prange

from bench.algorithms.images import bilateral_grid, local_laplacian
from bench.peers.row import Array, Row
from bench.peers.stencils import finished

LEVELS, PYRAMID, ALPHA = 4, 5, 0.3  # of local_laplacian
SIDE, RANGE = 8, 0.1  # of a cell of bilateral_grid


def edited(image: Array) -> Array:
    return local_laplacian(image)[0]


def _held(hl: Any, source: Any, w: int, h: int, *others: Any) -> Callable[[Any, Any], Any]:
    """Values of `source` by place, those at the edge beyond it."""
    return lambda x, y: source[(hl.clamp(x, 0, w - 1), hl.clamp(y, 0, h - 1), *others)]


def edited_halide(hl: Any, image: Array) -> Callable[[], Array]:
    given, x, y, k = hl.Buffer(image), *map(hl.Var, "xyk")
    sizes = [image.shape[::-1]]
    for _ in range(PYRAMID - 1):
        sizes.append(tuple((n + 1) // 2 for n in sizes[-1]))
    rooted, steps = [], hl.f32(LEVELS - 1)

    def halved(source: Any, size: tuple[int, int], *others: Any) -> Any:
        down, across, at = hl.Func("down"), hl.Func("halved"), _held(hl, source, *size, *others)
        down[(x, y, *others)] = (at(x, 2 * y - 1) + 3.0 * at(x, 2 * y) + 3.0 * at(x, 2 * y + 1)
                                 + at(x, 2 * y + 2)) / 8.0
        i = 2 * x
        across[(x, y, *others)] = (
            down[(i - 1, y, *others)] + 3.0 * down[(i, y, *others)] + 3.0 * down[(i + 1, y, *others)]
            + down[(i + 2, y, *others)]) / 8.0
        rooted.append((across, down))
        return across

    def doubled(source: Any, size: tuple[int, int], *others: Any) -> Any:
        rows, both, at = hl.Func("rows"), hl.Func("doubled"), _held(hl, source, *size, *others)
        rows[(x, y, *others)] = 0.75 * at(x, y // 2) + 0.25 * at(x, y // 2 - 1 + 2 * (y % 2))
        far = hl.clamp(x // 2 - 1 + 2 * (x % 2), 0, size[0] - 1)
        both[(x, y, *others)] = 0.75 * rows[(x // 2, y, *others)] + 0.25 * rows[(far, y, *others)]
        return both

    first, remapped = hl.Func("grey"), hl.Func("remapped")
    first[x, y] = given[x, y]
    centre = hl.cast(hl.Float(32), k) / steps
    apart = given[x, y] - centre
    far = apart * steps
    remapped[x, y, k] = apart + centre + hl.f32(ALPHA) * far * hl.exp(-far * far / 2.0) / steps
    greys, towers = [first], [remapped]
    for size in sizes[:-1]:
        greys.append(halved(greys[-1], size))
    for size in sizes[:-1]:
        towers.append(halved(towers[-1], size, k))
    out: Any = None
    for n in reversed(range(PYRAMID)):
        detail, made = hl.Func("detail"), hl.Func("made")
        last = n == PYRAMID - 1
        detail[x, y, k] = towers[n][x, y, k] - (
            hl.f32(0) if last else doubled(towers[n + 1], sizes[n + 1], k)[x, y, k])
        scaled = hl.clamp(greys[n][x, y] * steps, 0.0, steps)
        low = hl.clamp(hl.cast(hl.Int(32), scaled), 0, LEVELS - 2)
        share = scaled - hl.cast(hl.Float(32), low)
        chosen = (1.0 - share) * detail[x, y, low] + share * detail[x, y, low + 1]
        made[x, y] = chosen if out is None else doubled(out, sizes[n + 1])[x, y] + chosen
        if n:
            rooted.append((made, None))
        out = made
    result = hl.Func("edited")
    result[x, y] = hl.clamp(out[x, y], 0.0, 1.0)

    def schedule() -> None:
        result.parallel(y, 32).vectorize(x, 8)
        for stage, down in rooted:
            stage.compute_root().parallel(y, 4).vectorize(x, 8, hl.TailStrategy.GuardWithIf)
            if down is not None:
                down.compute_at(stage, y).vectorize(x, 8)

    return finished(hl, result, image.shape, image.dtype, schedule)


def smoothed(image: Array) -> Array:
    return bilateral_grid(image)[0]


def smoothed_loop(image):
    h, w = image.shape
    depth = int(1 / RANGE) + 2
    m, n = (h - 1) // SIDE + 2, (w - 1) // SIDE + 2
    grid = np.zeros((m, n, depth, 2))
    for a in prange(m):
        for i in range(max(a * SIDE - SIDE // 2, 0), min(a * SIDE + SIDE // 2, h)):
            for j in range(w):
                z = int(image[i, j] / RANGE + 0.5)
                b = (j + SIDE // 2) // SIDE
                grid[a, b, z, 0] += image[i, j]
                grid[a, b, z, 1] += 1.0
    deep, wide, tall = np.empty_like(grid), np.empty_like(grid), np.empty_like(grid)
    taps = (1.0, 4.0, 6.0, 4.0, 1.0)
    for a in prange(m):
        for b in range(n):
            for z in range(depth):
                for c in range(2):
                    total = 0.0
                    for t in range(max(0, 2 - z), min(5, depth + 2 - z)):
                        total += taps[t] * grid[a, b, z + t - 2, c]
                    deep[a, b, z, c] = total
        for b in range(n):
            for z in range(depth):
                for c in range(2):
                    total = 0.0
                    for t in range(max(0, 2 - b), min(5, n + 2 - b)):
                        total += taps[t] * deep[a, b + t - 2, z, c]
                    wide[a, b, z, c] = total
    for a in prange(m):
        for b in range(n):
            for z in range(depth):
                for c in range(2):
                    total = 0.0
                    for t in range(max(0, 2 - a), min(5, m + 2 - a)):
                        total += taps[t] * wide[a + t - 2, b, z, c]
                    tall[a, b, z, c] = total
    out = np.empty_like(image)
    for i in prange(h):
        y = i // SIDE
        fy = i / SIDE - y
        for j in range(w):
            x = j // SIDE
            fx = j / SIDE - x
            level = image[i, j] / RANGE
            c = min(int(level), depth - 2)
            fc = level - c
            num = den = 0.0
            for dy in range(2):
                for dx in range(2):
                    for dc in range(2):
                        share = (fy if dy else 1 - fy) * (fx if dx else 1 - fx) * (fc if dc else 1 - fc)
                        num += share * tall[y + dy, x + dx, c + dc, 0]
                        den += share * tall[y + dy, x + dx, c + dc, 1]
            out[i, j] = num / den
    return out


def smoothed_halide(hl: Any, image: Array) -> Callable[[], Array]:
    h, w = image.shape
    given, x, y, z, c = hl.Buffer(image), *map(hl.Var, "xyzc")
    depth = int(1 / RANGE) + 2
    cell, grid = hl.RDom([(0, SIDE), (0, SIDE)], "cell"), hl.Func("grid")
    i, j = y * SIDE + cell.y - SIDE // 2, x * SIDE + cell.x - SIDE // 2
    inside = (i >= 0) & (i < h) & (j >= 0) & (j < w)
    value = given[hl.clamp(j, 0, w - 1), hl.clamp(i, 0, h - 1)]
    at = hl.clamp(hl.cast(hl.Int(32), value / hl.f32(RANGE) + 0.5), 0, depth - 1)
    grid[x, y, z, c] = hl.f32(0)
    grid[x, y, at, c] += hl.select(inside, hl.select(c == 0, value, hl.f32(1)), hl.f32(0))
    deep, wide, tall = map(hl.Func, ("deep", "wide", "tall"))
    taps = tuple(enumerate((1.0, 4.0, 6.0, 4.0, 1.0), -2))
    deep[x, y, z, c] = reduce(add, [t * grid[x, y, z + n, c] for n, t in taps])
    wide[x, y, z, c] = reduce(add, [t * deep[x + n, y, z, c] for n, t in taps])
    tall[x, y, z, c] = reduce(add, [t * wide[x, y + n, z, c] for n, t in taps])
    level = given[x, y] / hl.f32(RANGE)
    low = hl.clamp(hl.cast(hl.Int(32), level), 0, depth - 2)
    shares = [(0, 1.0 - part, 1, part) for part in (
        hl.cast(hl.Float(32), x % SIDE) / float(SIDE), hl.cast(hl.Float(32), y % SIDE) / float(SIDE),
        level - hl.cast(hl.Float(32), low))]
    sums = [
        reduce(add, [
            shares[0][2 * dx + 1] * shares[1][2 * dy + 1] * shares[2][2 * dc + 1]
            * tall[x // SIDE + dx, y // SIDE + dy, low + dc, which]
            for dx in (0, 1) for dy in (0, 1) for dc in (0, 1)])
        for which in (0, 1)]
    out = hl.Func("smoothed")
    out[x, y] = sums[0] / sums[1]

    def schedule() -> None:
        out.parallel(y, 8).vectorize(x, 8)
        deep.compute_root().reorder(c, z, x, y).parallel(y).vectorize(x, 8).unroll(c, 2)
        deep.bound(c, 0, 2)
        grid.compute_at(deep, x).reorder(c, z, x, y).unroll(c, 2)
        grid.update().reorder(c, cell.x, cell.y, x, y).unroll(c, 2)
        wide.compute_root().reorder(c, x, y, z).parallel(z).vectorize(x, 8).unroll(c, 2)
        tall.compute_root().reorder(c, x, y, z).parallel(z).vectorize(x, 8).unroll(c, 2)
        for stage in (wide, tall):
            stage.bound(c, 0, 2)

    return finished(hl, out, image.shape, image.dtype, schedule)


def advection(rates: Array, wind: Array, lift: Array, before: Array, given: Array) -> None:
    """Vertical advection, implicit: a system of three diagonals for every column of air."""
    m, n, depth = rates.shape
    step = 0.15
    upper, right = np.empty((m, n, depth)), np.empty((m, n, depth))
    for k in range(depth):
        known = step * before[:, :, k] + given[:, :, k] + rates[:, :, k]
        below = above = 0.0
        if k > 0:
            below = -0.125 * (lift[1:, :, k] + lift[:-1, :, k])
            known = known - below * (wind[:, :, k - 1] - wind[:, :, k])
        if k < depth - 1:
            above = 0.125 * (lift[1:, :, k + 1] + lift[:-1, :, k + 1])
            known = known - above * (wind[:, :, k + 1] - wind[:, :, k])
        middle = step - below - above
        if k > 0:
            middle = middle - upper[:, :, k - 1] * below
            known = known - right[:, :, k - 1] * below
        upper[:, :, k] = above / middle
        right[:, :, k] = known / middle
    column = right[:, :, -1]
    rates[:, :, -1] = step * (column - before[:, :, -1])
    for k in range(depth - 2, -1, -1):
        column = right[:, :, k] - upper[:, :, k] * column
        rates[:, :, k] = step * (column - before[:, :, k])


def advection_loop(rates, wind, lift, before, given):
    m, n, depth = rates.shape
    step = 0.15
    for i in prange(m):
        upper, right = np.empty(depth), np.empty(depth)
        for j in range(n):
            for k in range(depth):
                known = step * before[i, j, k] + given[i, j, k] + rates[i, j, k]
                below = above = 0.0
                if k > 0:
                    below = -0.125 * (lift[i + 1, j, k] + lift[i, j, k])
                    known -= below * (wind[i, j, k - 1] - wind[i, j, k])
                if k < depth - 1:
                    above = 0.125 * (lift[i + 1, j, k + 1] + lift[i, j, k + 1])
                    known -= above * (wind[i, j, k + 1] - wind[i, j, k])
                middle = step - below - above
                if k > 0:
                    middle -= upper[k - 1] * below
                    known -= right[k - 1] * below
                upper[k] = above / middle
                right[k] = known / middle
            column = right[depth - 1]
            rates[i, j, depth - 1] = step * (column - before[i, j, depth - 1])
            for k in range(depth - 2, -1, -1):
                column = right[k] - upper[k] * column
                rates[i, j, k] = step * (column - before[i, j, k])


def pictured(rng: np.random.Generator, scale: float) -> tuple[Array]:
    """An image of soft shapes and hard edges, 0 to 1."""
    m, n = max(int(1536 * scale), 64), 2048
    i, j = np.ogrid[:m, :n]
    soft = 0.5 + 0.3 * np.sin(i / 37) * np.cos(j / 53) + 0.1 * ((i // 64 + j // 64) % 2)
    return (np.clip(soft + 0.02 * rng.standard_normal((m, n)), 0, 1).astype("f4"),)


def air(rng: np.random.Generator, scale: float) -> list[Array]:
    m, n, depth = max(int(128 * scale), 8), 128, 160
    return [rng.random((rows, n, depth)) for rows in (m, m, m + 1, m, m)]


ROWS = (
    Row("local Laplacian of 1536x2048 float32", edited, pictured, halide=edited_halide, tolerance=1e-4),
    Row("bilateral grid of 1536x2048 float32", smoothed, pictured, numba=smoothed_loop,
        halide=smoothed_halide, tolerance=1e-4),
    Row("vertical advection 128x128x160", advection, air, numba=advection_loop, writes=0),
)
