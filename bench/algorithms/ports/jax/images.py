"""Pipelines over images for JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


@jax.jit
def blur(image: Any) -> Any:
    """A box of 3 x 3, columns first."""
    across = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) / 3
    down = (across[:-2] + across[1:-1] + across[2:]) / 3
    return down, down.mean()


@jax.jit
def unsharp(image: Any, amount: float = 1.5, threshold: float = 0.02) -> Any:
    """Sharpen by what a blur of 5 x 5 leaves out; channels are last."""
    across = (image[:, :-4] + 4 * image[:, 1:-3] + 6 * image[:, 2:-2] + 4 * image[:, 3:-1]
              + image[:, 4:]) / 16
    soft = (across[:-4] + 4 * across[1:-3] + 6 * across[2:-2] + 4 * across[3:-1] + across[4:]) / 16
    middle = image[2:-2, 2:-2]
    sharp = middle * (1 + amount) - soft * amount
    out = jnp.where(jnp.abs(middle - soft) < threshold, middle, sharp)
    return jnp.clip(out, 0, 1), out.mean()


@jax.jit
def harris(image: Any, k: float = 0.04) -> Any:
    """Corners: gradients by Sobel, sums of their products in windows of 3 x 3."""
    Ix = (image[:-2, 2:] - image[:-2, :-2] + 2 * (image[1:-1, 2:] - image[1:-1, :-2])
          + image[2:, 2:] - image[2:, :-2]) / 12
    Iy = (image[2:, :-2] - image[:-2, :-2] + 2 * (image[2:, 1:-1] - image[:-2, 1:-1])
          + image[2:, 2:] - image[:-2, 2:]) / 12

    def window(A: Any) -> Any:
        return (A[:-2, :-2] + A[:-2, 1:-1] + A[:-2, 2:] + A[1:-1, :-2] + A[1:-1, 1:-1] + A[1:-1, 2:]
                + A[2:, :-2] + A[2:, 1:-1] + A[2:, 2:])

    Sxx, Syy, Sxy = window(Ix * Ix), window(Iy * Iy), window(Ix * Iy)
    response = Sxx * Syy - Sxy * Sxy - k * (Sxx + Syy) ** 2
    return response, jnp.abs(response).mean()
