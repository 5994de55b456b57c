"""Statements with windows and blocks: aggregates over few elements each, and steps that follow each other."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draft import Draft

SLIDING = "np.lib.stride_tricks.sliding_window_view"
AGGREGATES = ("sum", "sum", "mean", "max", "min", "prod", "std", "any")


def windows(draft: Draft, source: str) -> str | None:
    """Return an aggregate over windows or blocks of `source`, or of one another; None if it is small."""
    value = draft.value(source)
    if type(value) is not np.ndarray or not value.ndim or min(value.shape) < 2:
        return None
    found = draft.pick((_sliding, _sliding, _sliding, _blocks, _steps))(draft, value)
    return f"(lambda t: {found})({source})"


def _sliding(draft: Draft, value: np.ndarray) -> str:
    axes = sorted(draft.rng.sample(range(value.ndim), draft.rng.randint(1, min(value.ndim, 2))))
    sizes = tuple(draft.rng.randint(1, min(value.shape[a], 9 if len(axes) < 2 else 4)) for a in axes)
    axis = tuple(range(-len(axes), 0)) if draft.chance(0.8) else -1
    view = f"{SLIDING}(t{draft.pick(('', '', ' * 2', ' + t'))}, {sizes}, axis={tuple(axes)})"
    if draft.chance(0.2):
        view += "[::2]"
    if draft.chance(0.3):
        view = f"({view} * {draft.pick(('3', f'np.arange(1.0, {sizes[-1]} + 1)'))})"
    return f"{view}.{draft.pick(AGGREGATES)}(axis={axis})"


def _blocks(draft: Draft, value: np.ndarray) -> str:
    m, n = (draft.rng.randint(1, min(length, 4)) for length in (value.shape[0], value.shape[-1]))
    text = f"t[:t.shape[0] // {m} * {m}]" if value.ndim < 2 else \
        f"t[:t.shape[0] // {m} * {m}, ..., :t.shape[-1] // {n} * {n}]"
    if value.ndim == 2:
        made = f"{text}.reshape(t.shape[0] // {m}, {m}, t.shape[1] // {n}, {n})"
        return f"{made}.{draft.pick(AGGREGATES)}(axis={draft.pick(((1, 3), (3,), (1,)))})"
    return f"{text}.reshape(t.shape[0] // {m}, {m}, *t.shape[1:]).{draft.pick(AGGREGATES)}(axis=1)"


def _steps(draft: Draft, value: np.ndarray) -> str:
    """Return a stencil of what windows give, which is one of windows again."""
    n = draft.rng.randint(1, max(min(value.shape) // 2, 1))
    inner = f"{SLIDING}(t, {n}, axis=0).{draft.pick(('sum', 'mean', 'max'))}(axis=-1)"
    outer = f"{SLIDING}(s, {min(n, 3)}, axis=s.ndim - 1)"
    return f"(lambda s: {outer}.{draft.pick(('sum', 'max'))}(axis=-1) * 0.5)({inner})"
