"""Random DAGs for the search: cells, aggregates, products, shared arrays, several results."""

from __future__ import annotations

import random

import numpy as np

from jitla.fusion import Layout, contiguous
from jitla.hops import Hop, Meta, apply, leaf, make

F8 = np.dtype("f8")
CELLS = ("add", "subtract", "multiply", "divide", "maximum", "power")
UNARY = ("exp", "sqrt", "negative", "tanh", "square")


def joined_dag(
    rng: random.Random, hops: int, matrices: bool = True
) -> tuple[tuple[Hop, ...], dict[int, Layout]]:
    """Return the roots of a DAG of about so many operators, few of which nobody reads."""
    roots, layouts = random_dag(rng, hops, matrices)
    totals = [r if r.meta.shape == () else apply(
        "sum", r, axis=tuple(range(r.meta.ndim)), keepdims=False) for r in roots]
    ends: dict[tuple[int, ...], Hop] = {}
    for r in roots:
        same = ends.get(r.meta.shape)
        ends[r.meta.shape] = r if same is None else apply(rng.choice(("add", "multiply")), same, r)
    some = tuple(ends.values())
    return (some if rng.random() < 0.7 else (*some, rng.choice(totals))), layouts


def random_dag(
    rng: random.Random, hops: int, matrices: bool = True
) -> tuple[tuple[Hop, ...], dict[int, Layout]]:
    """Return the roots of a DAG of about so many operators."""
    n, k = rng.choice((50, 3000, 100_000)), rng.choice((8, 40))
    layouts: dict[int, Layout] = {}

    def array(*shape: int) -> Hop:
        slot = len(layouts)
        layouts[slot] = contiguous(shape, 8)
        return leaf(slot, Meta(shape, F8))

    by_space: dict[tuple[int, ...], list[Hop]] = {(n,): [array(n) for _ in range(rng.randint(1, 3))]}
    if matrices:
        by_space[n, k] = [array(n, k) for _ in range(rng.randint(1, 2))]
        by_space[k,] = [array(k)]
    made: list[Hop] = []
    used: set[Hop] = set()

    def some(space: tuple[int, ...]) -> Hop:
        found = by_space[space]
        return rng.choice(found[-4:] if rng.random() < 0.7 else found)

    for _ in range(hops):
        space = rng.choice([s for s in by_space if len(s) == 2 or s == (n,)])
        x = some(space)
        kind = rng.random()
        if kind < 0.55:
            new = apply(rng.choice(CELLS), x, some(space))
        elif kind < 0.7:
            new = apply(rng.choice(UNARY), x)
        elif len(space) == 1 or kind < 0.76:
            new = apply(rng.choice(("sum", "max")), x, axis=tuple(range(len(space))), keepdims=False)
        elif kind < 0.84:
            new = apply(rng.choice(("sum", "max")), x, axis=(1,), keepdims=rng.random() < 0.5)
        elif space == (n, 1):
            new = apply("multiply", x, some((n, k)))
        elif kind < 0.9:
            new = apply("matmul", x, some((k,)))
        elif kind < 0.94:
            new = apply("matmul", some((n,)), x)
        else:
            column = make("getitem", (some((n,)),), index=(("s", None, None, None), ("n",)))
            new = apply(rng.choice(CELLS), x, column)
        used.update(new.inputs)
        made.append(new)
        by_space.setdefault(new.meta.shape, []).append(new)
        if new.meta.shape == () and rng.random() < 0.5:
            made.append(apply("multiply", some((n,)), new))
            used.add(new)
            by_space[n,].append(made[-1])
    ends = [h for h in made if h not in used]
    extra = rng.sample(made, min(len(made), rng.randint(0, 2)))
    return tuple(dict.fromkeys((*ends, *extra))), layouts
