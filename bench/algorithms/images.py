"""Pipelines over images, written with slices."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def blur(image: Array) -> tuple[Array, float]:
    """A box of 3 x 3, columns first."""
    across = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3
    down = (across[:-2] + across[1:-1] + across[2:]) / 3
    return down, float(down.mean())


def unsharp(image: Array, amount: float = 1.5, threshold: float = 0.02) -> tuple[Array, float]:
    """Sharpen by what a blur of 5 x 5 leaves out; channels are last."""
    across = (image[:, :-4] + 4 * image[:, 1:-3] + 6 * image[:, 2:-2] + 4 * image[:, 3:-1]
              + image[:, 4:]) / 16
    soft = (across[:-4] + 4 * across[1:-3] + 6 * across[2:-2] + 4 * across[3:-1] + across[4:]) / 16
    middle = image[2:-2, 2:-2]
    sharp = middle * (1 + amount) - soft * amount
    out = np.where(np.abs(middle - soft) < threshold, middle, sharp)
    return np.clip(out, 0, 1), float(out.mean())


def harris(image: Array, k: float = 0.04) -> tuple[Array, float]:
    """Corners: gradients by Sobel, sums of their products in windows of 3 x 3."""
    Ix = (image[:-2, 2:] - image[:-2, :-2] + 2 * (image[1:-1, 2:] - image[1:-1, :-2])
          + image[2:, 2:] - image[2:, :-2]) / 12
    Iy = (image[2:, :-2] - image[:-2, :-2] + 2 * (image[2:, 1:-1] - image[:-2, 1:-1])
          + image[2:, 2:] - image[:-2, 2:]) / 12

    def window(A: Array) -> Array:
        return (A[:-2, :-2] + A[:-2, 1:-1] + A[:-2, 2:] + A[1:-1, :-2] + A[1:-1, 1:-1] + A[1:-1, 2:]
                + A[2:, :-2] + A[2:, 1:-1] + A[2:, 2:])

    Sxx, Syy, Sxy = window(Ix * Ix), window(Iy * Iy), window(Ix * Iy)
    response = Sxx * Syy - Sxy * Sxy - k * (Sxx + Syy) ** 2
    return response, float(np.abs(response).mean())


def equalise(image: Array) -> tuple[Array, float]:
    """Make all of 256 levels of grey as frequent."""
    counts = np.bincount(image.ravel(), minlength=256)
    total = counts.cumsum()
    first = total[total > 0][0]
    table = np.round((total - first) / (image.size - first) * 255).astype(np.uint8)
    out = table[image]
    return out, float(out.mean())


def camera(raw: Array, matrix: Array, gamma: float = 2.2, contrast: float = 0.5) -> tuple[Array, float]:
    """From a sensor with filters GR/BG to colours: hot pixels, missing colours, correction, curve."""
    middle = raw[2:-2, 2:-2]
    around = np.maximum(np.maximum(raw[:-4, 2:-2], raw[4:, 2:-2]), np.maximum(raw[2:-2, :-4], raw[2:-2, 4:]))
    clean = np.minimum(middle, around).astype(np.float32)
    gr, r, b, gb = clean[::2, ::2], clean[::2, 1::2], clean[1::2, ::2], clean[1::2, 1::2]
    h, w = min(gr.shape[0], gb.shape[0]) - 1, min(gr.shape[1], gb.shape[1]) - 1
    green = np.empty((2 * h, 2 * w), np.float32)
    red, blue = np.empty_like(green), np.empty_like(green)
    green[::2, ::2], green[1::2, 1::2] = gr[:h, :w], gb[:h, :w]
    green[::2, 1::2] = (gr[:h, :w] + gr[:h, 1:w + 1] + gb[:h, :w]) / 3
    green[1::2, ::2] = (gb[:h, :w] + gr[:h, :w] + gr[1:h + 1, :w]) / 3
    red[::2, 1::2] = r[:h, :w]
    red[::2, ::2] = (r[:h, :w] + r[:h, 1:w + 1]) / 2
    red[1::2, 1::2] = (r[:h, :w] + r[1:h + 1, :w]) / 2
    red[1::2, ::2] = (r[:h, :w] + r[1:h + 1, 1:w + 1]) / 2
    blue[1::2, ::2] = b[:h, :w]
    blue[1::2, 1::2] = (b[:h, :w] + b[:h, 1:w + 1]) / 2
    blue[::2, ::2] = (b[:h, :w] + b[1:h + 1, :w]) / 2
    blue[::2, 1::2] = (b[:h, :w] + b[1:h + 1, 1:w + 1]) / 2
    out = np.empty((2 * h, 2 * w, 3), np.float32)
    for c in range(3):
        out[:, :, c] = matrix[c, 0] * red + matrix[c, 1] * green + matrix[c, 2] * blue + matrix[c, 3]
    x = np.clip(out / 1023, 0, 1) ** (1 / gamma)
    curve = np.where(x < 0.5, 0.5 * (2 * x) ** (1 + contrast), 1 - 0.5 * (2 - 2 * x) ** (1 + contrast))
    result = (np.clip(curve, 0, 1) * 255 + 0.5).astype(np.uint8)
    return result, float(result.mean())


def _halved(A: Array) -> Array:
    """Smooth and take every other row and column."""
    A = np.pad(A, ((1, 2), (1, 2)) + ((0, 0),) * (A.ndim - 2), mode="edge")
    down = (A[:-3:2] + 3 * A[1:-2:2] + 3 * A[2:-1:2] + A[3::2]) / 8
    return (down[:, :-3:2] + 3 * down[:, 1:-2:2] + 3 * down[:, 2:-1:2] + down[:, 3::2]) / 8


def _doubled(A: Array, shape: tuple[int, ...]) -> Array:
    """Twice as many rows and columns, between neighbours."""
    h, w = shape[:2]
    i, j = np.arange(h), np.arange(w)
    near, far = np.minimum(i // 2, len(A) - 1), np.clip(i // 2 - 1 + 2 * (i % 2), 0, len(A) - 1)
    rows = 0.75 * A[near] + 0.25 * A[far]
    near, far = np.minimum(j // 2, A.shape[1] - 1), np.clip(j // 2 - 1 + 2 * (j % 2), 0, A.shape[1] - 1)
    return 0.75 * rows[:, near] + 0.25 * rows[:, far]


def local_laplacian(image: Array, levels: int = 4, pyramid: int = 5, alpha: float = 0.3,
                    beta: float = 1.0) -> tuple[Array, float]:
    """Sharpen details at every scale and keep edges; `image` is grey, 0 to 1."""
    grey = [image]
    for _ in range(pyramid - 1):
        grey.append(_halved(grey[-1]))
    centres = np.arange(levels, dtype=image.dtype) / (levels - 1)
    x = (image[:, :, None] - centres) * (levels - 1)
    remapped = beta * (image[:, :, None] - centres) + centres + alpha * x * np.exp(-x * x / 2) / (levels - 1)
    towers = [remapped]
    for _ in range(pyramid - 1):
        towers.append(_halved(towers[-1]))
    details = [towers[i] - _doubled(towers[i + 1], towers[i].shape) for i in range(pyramid - 1)]
    details.append(towers[-1])
    out = None
    for level in reversed(range(pyramid)):
        scaled = np.clip(grey[level] * (levels - 1), 0, levels - 1)
        low = np.minimum(scaled.astype(np.int32), levels - 2)
        t = scaled - low
        i, j = np.ogrid[:low.shape[0], :low.shape[1]]
        chosen = (1 - t) * details[level][i, j, low] + t * details[level][i, j, low + 1]
        out = chosen if out is None else _doubled(out, chosen.shape) + chosen
    return np.clip(out, 0, 1), float(out.mean())


def bilateral_grid(image: Array, s: int = 8, r: float = 0.1) -> tuple[Array, float]:
    """Smooth within edges, by a grid of places and intensities."""
    h, w = image.shape
    z = (image / r + 0.5).astype(np.int64)
    depth = int(1 / r) + 2
    rows, columns = (h - 1) // s + 2, (w - 1) // s + 2
    i, j = (np.arange(h) + s // 2) // s, (np.arange(w) + s // 2) // s
    at = ((i[:, None] * columns + j) * depth + z).ravel()
    total = np.bincount(at, image.ravel(), rows * columns * depth).reshape(rows, columns, depth)
    weight = np.bincount(at, minlength=rows * columns * depth).reshape(rows, columns, depth).astype(float)
    for axis in range(3):
        for grid in (total, weight):
            padded = np.pad(grid, [(2, 2) if a == axis else (0, 0) for a in range(3)])
            p = np.moveaxis(padded, axis, 0)
            grid[...] = np.moveaxis(p[:-4] + 4 * p[1:-3] + 6 * p[2:-2] + 4 * p[3:-1] + p[4:], 0, axis)
    y, x, c = np.arange(h) / s, np.arange(w) / s, image / r
    y0, x0 = y.astype(int), x.astype(int)
    c0 = np.minimum(c.astype(int), depth - 2)
    fy, fx, fc = (y - y0)[:, None], x - x0, c - c0
    y0 = y0[:, None]
    num = np.zeros_like(image)
    den = np.zeros_like(image)
    for dy in (0, 1):
        for dx in (0, 1):
            for dc in (0, 1):
                share = (fy if dy else 1 - fy) * (fx if dx else 1 - fx) * (fc if dc else 1 - fc)
                num += share * total[y0 + dy, x0 + dx, c0 + dc]
                den += share * weight[y0 + dy, x0 + dx, c0 + dc]
    out = num / den
    return out, float(out.mean())


def snake(phi: Array, edges: Array, steps: int = 20, dt: float = 0.25, mu: float = 0.2,
          lam: float = 5.0, nu: float = 1.5) -> tuple[Array, float]:
    """Segment by a level set that moves to edges without being made anew."""
    phi = phi.copy()
    gy = np.zeros_like(edges)
    gx = np.zeros_like(edges)
    gy[1:-1] = (edges[2:] - edges[:-2]) / 2
    gx[:, 1:-1] = (edges[:, 2:] - edges[:, :-2]) / 2
    for _ in range(steps):
        phi[0], phi[-1], phi[:, 0], phi[:, -1] = phi[2], phi[-3], phi[:, 2], phi[:, -3]
        dy = np.zeros_like(phi)
        dx = np.zeros_like(phi)
        dy[1:-1] = (phi[2:] - phi[:-2]) / 2
        dx[:, 1:-1] = (phi[:, 2:] - phi[:, :-2]) / 2
        norm = np.sqrt(dx ** 2 + dy ** 2) + 1e-10
        ny, nx = dy / norm, dx / norm
        curvature = np.zeros_like(phi)
        curvature[1:-1, 1:-1] = (ny[2:, 1:-1] - ny[:-2, 1:-1] + nx[1:-1, 2:] - nx[1:-1, :-2]) / 2
        laplace = np.zeros_like(phi)
        laplace[1:-1, 1:-1] = (phi[2:, 1:-1] + phi[:-2, 1:-1] + phi[1:-1, 2:] + phi[1:-1, :-2]
                               - 4 * phi[1:-1, 1:-1])
        dirac = np.where(np.abs(phi) <= 1.5, (1 + np.cos(np.pi * phi / 1.5)) / 3, 0)
        phi += dt * (mu * (laplace - curvature) + lam * dirac * (gy * ny + gx * nx + edges * curvature)
                     + nu * dirac * edges)
    return phi, float((phi < 0).mean())


def grey(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return an image of ten times as many pixels as rows: a smooth one with noise, 0 to 1."""
    n = int(np.sqrt(rows * 10)) // 16 * 16 + 16
    i, j = np.ogrid[:n, :n]
    image = 0.5 + 0.3 * np.sin(i / 37) * np.cos(j / 53) + 0.1 * ((i // 64 + j // 64) % 2)
    return (np.clip(image + 0.02 * rng.standard_normal((n, n)), 0, 1).astype(dtype),)


def colour(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return an image of three channels."""
    (image,) = grey(rows // 3 + 1, dtype, rng)
    return (np.stack([image, image[::-1], image[:, ::-1]], axis=2),)


def levels(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return an image of 256 levels."""
    (image,) = grey(rows, np.float64, rng)
    return ((image * 180 + 30).astype(np.uint8),)


def sensor(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return what a sensor of ten bits sees, and a matrix that corrects colours."""
    (image,) = grey(rows, np.float64, rng)
    matrix = np.array([[1.6, -0.4, -0.2, -9.0], [-0.3, 1.5, -0.2, -9.0], [-0.1, -0.6, 1.7, -9.0]], np.float32)
    return (image * 1000).astype(np.uint16), matrix


def contour(rows: int, dtype: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Return a level set to start with, and edges of a disc."""
    n = int(np.sqrt(rows * 2)) + 16
    i, j = np.ogrid[:n, :n]
    distance = np.hypot(i - n / 2, j - n / 2) - n / 4
    inside = np.maximum(abs(i - n / 2), abs(j - n / 2)) < n / 2.5
    slope = 1 / (1 + np.exp(distance)) * (1 - 1 / (1 + np.exp(distance))) * 4
    return np.where(inside, -2.0, 2.0).astype(dtype), (1 / (1 + 20 * slope ** 2)).astype(dtype)
