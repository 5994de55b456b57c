"""`python -m tests.rewrites --seeds A:B --numerics L`: random subsets of the rewrites on random DAGs.

This is the fuzzer without the compiler: some hundred DAGs a second, each with several subsets, and then with
steps of the search, taken blindly. `--state` says where to go on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from jitla.hops import Hop, show, substitute, topo
from jitla.rewrites import RULES, SUBSTITUTIONS, moves, simplify
from tests.rewrites.programs import (
    close,
    grain,
    operands,
    random_roots,
    same_bits,
    signs_matter,
    values,
)
from tests.rewrites.test_search import random_products

Roots = tuple[Hop, ...]
SHARES = (1.0, 0.5, 0.2)
PRODUCTS = frozenset({"matmul", "dot"})
STEPS = 4
SAVED = 500  # seeds from one note of where it is to the next


def drawn(rng: np.random.Generator, seed: int) -> Roots:
    """Return a DAG: every fourth is one of products, sums and weights."""
    return random_products(rng, int(rng.integers(3, 12))) if seed % 4 == 3 else random_roots(rng)


def variants(roots: Roots, numerics: str, rng: np.random.Generator) -> list[Roots]:
    """Return what subsets of the rules make of `roots`, and where steps of the search lead from there."""
    found = []
    allowed, steps = RULES.at(numerics), SUBSTITUTIONS.at(numerics)
    for share in SHARES:
        found.append(simplify(roots, allowed.only(*[r.name for r in allowed if rng.random() < share])))
    state = found[-1]
    for _ in range(STEPS):
        ways = list(moves(state, steps, frozenset()))
        if not ways:
            break
        state = substitute(state, ways[int(rng.integers(len(ways)))][1])
        found.append(state)
    return found


def differs(seed: int, numerics: str) -> str | None:
    """Return two DAGs that should mean the same and do not."""
    rng = np.random.default_rng(seed)
    roots = drawn(rng, seed)
    exact = numerics == "strict"
    given = operands(roots, rng, special=exact)
    wanted = values(roots, given)
    size = _largest(roots, given) if seed % 4 == 3 else 1.0
    eps = grain(roots)
    try:
        found = variants(roots, numerics, rng)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}\n{show(roots)}"
    for after in found:
        for x, y in zip(wanted, values(after, given), strict=True):
            same = same_bits(x, y, signs_matter(roots)) if exact else close(x / size, y / size, eps) \
                if size > 1.0 else close(x, y, eps)
            if not same and not _left_open(roots, after, given, numerics):
                return show(roots) + "\n" + show(after)
    return None


def _largest(roots: Roots, given: list[Any]) -> float:
    """Return the largest value on the way: products of products may cancel, but for its roundings."""
    floats = [v for v in values(topo(roots), given) if v.dtype.kind in "fc"]
    return max((float(np.max(np.abs(v), initial=1.0, where=np.isfinite(v))) for v in floats), default=1.0)


def _left_open(roots: Roots, after: Roots, given: list[Any], numerics: str) -> bool:
    """Return whether docs/dev/semantics.md permits the difference: products, or values beyond the reals."""
    if numerics == "strict":
        return any(_in_other_memory(hop) for hop in topo(after) if hop.op.name in PRODUCTS)
    products = any(hop.op.name in PRODUCTS for hop in topo(roots))
    return (products or numerics == "relaxed") and beyond_reals(roots, given)


def _in_other_memory(product: Hop) -> bool:
    """Say whether BLAS may go another way: the factors are one matrix, or one is the same everywhere."""
    factors = []
    for hop in product.inputs:
        while hop.op.name in ("transpose", "cast"):
            hop = hop.inputs[0]
        factors.append(hop)
    return len({*factors}) < len(factors) or any(hop.op.name == "broadcast_to" for hop in factors)


def beyond_reals(roots: Roots, given: list[Any]) -> bool:
    """Say whether a value on the way to the results is no finite number, of which reals say nothing."""
    every = [h for h in topo(roots) if h.meta.dtype.kind in "fc"]
    return not all(np.all(np.isfinite(v)) for v in values(tuple(every), given))


def main() -> int:
    """Run the seeds asked for that the state does not count as run."""
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites", description=__doc__)
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument("--numerics", choices=("strict", "numpy", "relaxed"), default="numpy")
    parser.add_argument("--state", default="", help="file with the seed to go on from")
    given = parser.parse_args()
    first, last = map(int, given.seeds.split(":"))
    state = Path(given.state) if given.state else None
    begin = max(first, int(state.read_text())) if state is not None and state.exists() else first
    failing = []
    for seed in range(begin, last):
        if state is not None and seed % SAVED == 0:
            state.write_text(str(seed))
        text = differs(seed, given.numerics)
        if text is not None:
            failing.append(seed)
            sys.stdout.write(f"{seed}:\n{text}\n")
            sys.stdout.flush()
    if state is not None:
        state.write_text(str(last))
    sys.stdout.write(f"{last - begin} DAGs, {given.numerics}: {len(failing)} differences {failing}\n")
    return bool(failing)


if __name__ == "__main__":
    sys.exit(main())
