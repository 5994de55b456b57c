"""How far off estimates of nonzeros are: three methods on chains of products of skewed matrices.

    python -m bench.internal.estimators [--seeds 5] [--size 2000]

For every kind of chain: the mean relative error of all products in it, against counting; below that,
what one estimate takes and what leads to it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import reduce

import numpy as np
import scipy.sparse as sp

from jitla.hops import ESTIMATORS, Hop, Meta, Sketch, apply, csr_sketch, estimate_nnz, leaf

Chain = list[sp.csr_array]
Make = Callable[[int, np.random.Generator], Chain]
F8 = np.dtype(float)


def uniform(m: int, n: int, density: float, rng: np.random.Generator) -> sp.csr_array:
    """Nonzeros spread evenly."""
    found = sp.random_array((m, n), density=density, format="csr", rng=rng)
    found.data[:] = 1
    return found


def skewed(
    m: int, n: int, nnz: int, rows: float, columns: float, rng: np.random.Generator,
) -> sp.csr_array:
    """Rows and columns whose share of the nonzeros falls with a power of a random rank."""
    at = []
    for size, power in ((m, rows), (n, columns)):
        share = rng.permutation(1.0 / np.arange(1, size + 1) ** power)
        at.append(rng.choice(size, nnz, p=share / share.sum()))
    found = sp.csr_array((np.ones(nnz), at), shape=(m, n))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def permuting(n: int, rng: np.random.Generator) -> sp.csr_array:
    """One nonzero in every row and column."""
    return sp.csr_array((np.ones(n), rng.permutation(n), np.arange(n + 1)), shape=(n, n))


def blocks(n: int, count: int, density: float, rng: np.random.Generator) -> sp.csr_array:
    """Dense blocks along the diagonal, of different sizes."""
    ends = np.sort(rng.choice(np.arange(1, n), count - 1, replace=False))
    sizes = np.diff([0, *ends, n])
    return sp.csr_array(sp.block_diag([uniform(k, k, density, rng) for k in sizes]))


def tokens(n: int, width: int, rng: np.random.Generator) -> sp.csr_array:
    """Rows that pick one column each, few of them nearly always."""
    share = 1.0 / np.arange(1, width + 1) ** 1.1
    columns = rng.choice(width, n, p=share / share.sum())
    return sp.csr_array((np.ones(n), columns, np.arange(n + 1)), shape=(n, width))


def words(n: int, width: int, rng: np.random.Generator) -> sp.csr_array:
    """Full rows, but for every other column."""
    found = np.zeros((n, width))
    found[:, ::2] = 1
    return sp.csr_array(found)


def diagonal(n: int) -> sp.csr_array:
    """Ones on the diagonal."""
    return sp.eye_array(n, format="csr")


CHAINS: dict[str, Make] = {
    "even": lambda n, r: [uniform(n, n, 2 / n, r) for _ in range(4)],
    "even, denser": lambda n, r: [uniform(n, n, 0.02, r) for _ in range(3)],
    "skewed rows": lambda n, r: [skewed(n, n, 3 * n, 1.0, 0.0, r) for _ in range(3)],
    "skewed columns": lambda n, r: [skewed(n, n, 3 * n, 0.0, 1.0, r) for _ in range(3)],
    "skewed both": lambda n, r: [skewed(n, n, 5 * n, 0.8, 0.8, r) for _ in range(3)],
    "skewed inner": lambda n, r: [skewed(n, n, 4 * n, 0.0, 1.0, r), skewed(n, n, 4 * n, 1.0, 0.0, r)],
    "power of a graph": lambda n, r: [skewed(n, n, 3 * n, 0.7, 0.7, r)] * 4,
    "X.T @ X": lambda n, r: (lambda x: [x.T.tocsr(), x])(skewed(4 * n, n, 12 * n, 0.5, 0.9, r)),
    "permuted": lambda n, r: [permuting(n, r), skewed(n, n, 5 * n, 0.8, 0.8, r), permuting(n, r)],
    "scaled": lambda n, r: [diagonal(n), skewed(n, n, 5 * n, 0.8, 0.8, r), diagonal(n)],
    "blocks": lambda n, r: [blocks(n, 20, 0.3, r) for _ in range(3)],
    "tokens": lambda n, r: [tokens(4 * n, n, r), words(n, 60, r)],
    "tokens, skewed": lambda n, r: [tokens(4 * n, n, r), skewed(n, n, 5 * n, 1.0, 0.5, r)],
}


def counted(chain: Chain) -> list[int]:
    """Return the nonzeros of every product, from the left."""
    counts = []
    product = chain[0]
    for factor in chain[1:]:
        product = product @ factor
        product.data[:] = 1  # products of ones do not vanish; they would overflow
        counts.append(product.nnz)
    return counts


def hops_of(chain: Chain) -> tuple[list[Hop], list[Hop]]:
    """Return leaves for the factors, and the products from the left."""
    leaves = [leaf(k, Meta(x.shape, F8, x.nnz)) for k, x in enumerate(chain)]
    products: list[Hop] = []
    reduce(lambda a, b: products.append(apply("matmul", a, b)) or products[-1], leaves)  # type: ignore
    return leaves, products


def sketches_of(chain: Chain, leaves: list[Hop]) -> dict[Hop, Sketch]:
    """Return the sketches of the factors."""
    return {h: csr_sketch(x.indptr, x.indices, x.shape) for h, x in zip(leaves, chain, strict=True)}


def errors(make: Make, size: int, seed: int) -> dict[str, list[float]]:
    """Return the relative errors of the products of one chain, by method."""
    chain = make(size, np.random.default_rng(seed))
    leaves, products = hops_of(chain)
    wanted = counted(chain)
    known = sketches_of(chain, leaves)
    found: dict[str, list[float]] = {}
    for method in ESTIMATORS:
        estimates = estimate_nnz(products, method, known)
        found[method] = [abs(estimates[p] - n) / n for p, n in zip(products, wanted, strict=True)]
    return found


def times(size: int) -> dict[str, float]:
    """Return what methods take for a chain of four skewed matrices, and what counting takes."""
    chain = CHAINS["power of a graph"](size, np.random.default_rng(0))
    leaves, products = hops_of(chain)
    known = sketches_of(chain, leaves)
    asked: dict[str, Callable[[], object]] = {
        "counting": lambda: counted(chain), "mnc, from matrices": lambda: sketches_of(chain, leaves),
    }
    asked |= {m: lambda m=m: estimate_nnz(products, m, known)  # type: ignore
              for m in ESTIMATORS}
    return {name: min(_seconds(run) for _ in range(5)) for name, run in asked.items()}


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--size", type=int, default=2000)
    given = parser.parse_args()
    print(f"{'mean relative error':<20}" + "".join(f"{m:>10}" for m in ESTIMATORS))
    sums: dict[str, list[float]] = {m: [] for m in ESTIMATORS}
    for name, make in CHAINS.items():
        rows = [errors(make, given.size, seed) for seed in range(given.seeds)]
        means = {m: float(np.mean([e for row in rows for e in row[m]])) for m in ESTIMATORS}
        for m in ESTIMATORS:
            sums[m].append(means[m])
        print(f"{name:<20}" + "".join(f"{means[m]:>10.3f}" for m in ESTIMATORS))
    print(f"{'mean':<20}" + "".join(f"{np.mean(sums[m]):>10.3f}" for m in ESTIMATORS))
    print(f"{'median':<20}" + "".join(f"{np.median(sums[m]):>10.3f}" for m in ESTIMATORS))
    print()
    for name, seconds in times(given.size).items():
        print(f"{name:<20}{seconds * 1e3:>10.2f} ms")


if __name__ == "__main__":
    main()
