"""The cheapest order in which a chain of products is multiplied.

Knows: rows, columns and stored entries of the factors. Must not know: hops, how products are run.
Receives the factors and what a product costs; returns where to split the chain, and its price.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

#: Multiplications that take as long as reading or writing an element: products do many with each.
TOUCH = 16.0

Splits = dict[tuple[int, int], int]
Spans = dict[tuple[int, int], "Matrix"]


class Matrix(NamedTuple):
    """What matters of a factor: its size, and how many entries are stored; None: all."""

    rows: int
    columns: int
    stored: float | None = None

    @property
    def entries(self) -> float:
        """Entries that are read when it is read."""
        return float(self.rows * self.columns) if self.stored is None else self.stored

    @property
    def density(self) -> float:
        """Part of the elements that is stored."""
        return self.entries / max(self.rows * self.columns, 1)


Price = Callable[[Matrix, Matrix], float]


def product(left: Matrix, right: Matrix) -> Matrix:
    """Return what is known of a product; nonzeros of two sparse factors are taken to lie anywhere."""
    if left.stored is None or right.stored is None:
        return Matrix(left.rows, right.columns)
    hit = 1.0 - (1.0 - left.density * right.density) ** left.columns
    return Matrix(left.rows, right.columns, hit * left.rows * right.columns)


def price(left: Matrix, right: Matrix) -> float:
    """Return the multiplications that a product takes, and what moving its operands is worth in these."""
    pairs = left.rows * left.columns * right.columns * left.density * right.density
    return pairs + TOUCH * (left.entries + right.entries + product(left, right).entries)


def spans(factors: Sequence[Matrix]) -> Spans:
    """Return what is known of the product of every run of factors, whatever its order is."""
    found: Spans = {}
    for i, factor in enumerate(factors):
        found[i, i] = factor
        for j in range(i + 1, len(factors)):
            found[i, j] = product(found[i, j - 1], factors[j])
    return found


def cheapest(factors: Sequence[Matrix], price: Price = price) -> tuple[float, Splits]:
    """Return the least price of a chain, and for every run of factors where its last product splits it."""
    known = spans(factors)
    cost: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(len(factors))}
    split: Splits = {}
    for span in range(1, len(factors)):
        for i in range(len(factors) - span):
            j = i + span
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + price(known[i, k], known[k + 1, j]), k) for k in range(i, j))
    return cost[0, len(factors) - 1], split


def price_of(factors: Sequence[Matrix], split: Splits, price: Price = price) -> float:
    """Return the price of a chain in a given order; infinite where no such order is."""
    known = spans(factors)

    def below(i: int, j: int) -> float:
        if i == j:
            return 0.0
        k = split.get((i, j))
        return inf if k is None else below(i, k) + below(k + 1, j) + price(known[i, k], known[k + 1, j])

    return below(0, len(factors) - 1)
