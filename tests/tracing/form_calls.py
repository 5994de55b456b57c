"""Products of a matrix that stays the same, and the titles of its kept forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jitla


def product(X: Any, v: Any) -> Any:
    return X @ v


def transposed(X: Any, w: Any) -> Any:
    return X.T @ w


def title(fast: Callable[..., Any]) -> list[str]:
    return [value.title for value in jitla.explain(fast).record.kept]
