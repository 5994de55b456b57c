"""Schedules as text: the primitives by name, one call to a line, and what each makes of a nest.

Knows: all primitives. Must not know: what they do.
Receives a nest and lines such as ``tile(y, x, 8, 8)``; returns the nest after every line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from jitla.nests.factoring import rfactor, tensorise
from jitla.nests.nodes import Intrinsic, Nest
from jitla.nests.placing import cache_read, cache_write, compute_at, compute_inline, store_at
from jitla.nests.splitting import (
    bind,
    fuse,
    parallel,
    refuse,
    reorder,
    split,
    tile,
    unroll,
    vectorise,
)

PRIMITIVES: dict[str, Callable[..., Nest]] = {f.__name__: f for f in (
    split, fuse, reorder, tile, vectorise, unroll, parallel, bind, compute_inline, compute_at, store_at,
    cache_read, cache_write, rfactor, tensorise)}


def scheduled(
    nest: Nest, schedule: str, relaxed: bool = False, intrinsics: Mapping[str, Intrinsic] | None = None,
) -> Nest:
    """Return `nest` after the lines of a schedule; names of loops and buffers are written as they are."""
    for line in schedule.splitlines():
        if line.strip():
            nest = _applied(nest, line.strip(), relaxed, intrinsics or {})
    return nest


def _applied(nest: Nest, line: str, relaxed: bool, intrinsics: Mapping[str, Intrinsic]) -> Nest:
    try:
        call = ast.parse(line, mode="eval").body
    except SyntaxError:
        raise refuse("no-primitive", line) from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) \
            or call.func.id not in PRIMITIVES:
        raise refuse("no-primitive", f"{line}; there are {', '.join(PRIMITIVES)}")
    words: list[Any] = [_word(a) for a in call.args]
    named = {str(k.arg): _word(k.value) for k in call.keywords}
    if call.func.id == "rfactor":
        named["relaxed"] = relaxed
    if call.func.id == "tensorise" and len(words) == 2:
        if words[1] not in intrinsics:
            raise refuse("intrinsic", f"{words[1]} is not declared")
        words[1] = intrinsics[words[1]]
    try:
        return PRIMITIVES[call.func.id](nest, *words, **named)
    except TypeError as error:
        raise refuse("no-primitive", f"{line}: {error}") from None


def _word(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise refuse("no-primitive", ast.unparse(node)) from None
