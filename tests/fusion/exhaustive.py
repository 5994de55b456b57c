"""The search against trying every choice of points: `python -m tests.fusion.exhaustive`.

The search prunes; trying everything does not: it prices every subset of the points of every partition.
Neither hurries: a DAG of which one does not end within `LONGEST` is left out, and counted. How results
are divided among kernels is tried otherwise in `tests.fusion.every`. A seed makes one DAG: with `--first`
several processes share the work.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, isclose
from time import monotonic, process_time

from jitla.fusion import Facts, all_layouts
from jitla.fusion.candidates import Candidates
from jitla.fusion.cost_model import CostModel
from jitla.fusion.enumeration import EnumerationResult, Partition, Search, partitions
from jitla.fusion.memo import Memo
from jitla.hops import REFERENCE_MACHINE, Hop
from tests.fusion.dags import joined_dag, random_dag

Dag = tuple[tuple[Hop, ...], dict[int, object]]
WIDEST = 13  # values in memory when all points are there: with more, dividing them takes too long
LONGEST = 20_000  # kernels priced for one partition, and a third as many ways to divide one set of results
SHORTEST = 4_000  # likewise with pruning: what takes more takes too long without
MANY = 14  # points of long DAGs
MOST_HOPS = 60  # operators tried to get there


def small(seed: int) -> Dag:
    """Draw a DAG of some operators over matrices and vectors."""
    rng = random.Random(seed)
    make = rng.choice((random_dag, joined_dag))
    return make(rng, rng.randint(4, 17))


def long(seed: int) -> Dag:
    """Draw a DAG, with more and more operators until it has many points; most are in one partition."""
    rng = random.Random(seed)
    matrices, hops = rng.random() < 0.5, rng.randint(10, 16)
    while True:
        dag = joined_dag(random.Random(seed), hops, matrices)
        points = sum(len(p.points) for p in prepared(dag)[2])
        if points >= MANY or hops >= MOST_HOPS:
            return dag
        hops += max(1, (MANY - points) // 2)


def prepared(dag: Dag) -> tuple[Memo, Candidates, list[Partition]]:
    """Explore a DAG and divide it."""
    roots, layouts = dag
    facts = Facts(lambda hop: None, all_layouts(roots, layouts))
    memo = Memo(roots, facts)
    kernels = Candidates(memo, CostModel(REFERENCE_MACHINE, facts.layouts))
    return memo, kernels, partitions(memo, kernels)


def width(memo: Memo, parts: list[Partition]) -> int:
    """Return how many values of one partition may be in memory at most."""
    return max((len(p.points) + (p.values & memo.forced & ~memo.views).bit_count() for p in parts), default=0)


def searched(dag: Dag, prune: bool) -> list[EnumerationResult] | None:
    """Search every partition of a DAG; None if that takes too long."""
    memo, kernels, parts = prepared(dag)
    most = SHORTEST if prune else LONGEST
    done: list[EnumerationResult] = []
    for p in parts:
        done.append(Search(p, memo, kernels, kernels.evaluated + most, prune).run())
        if done[-1].budget_exhausted:
            return None
    return done


@dataclass
class Tally:
    """What has been compared."""

    dags: int = 0
    drawn: int = 0
    wide: int = 0
    long: int = 0
    plans: int = 0
    costed: int = 0
    gaps: list[int] = field(default_factory=list)
    points: Counter[int] = field(default_factory=Counter)
    largest: Counter[int] = field(default_factory=Counter)
    seconds_drawn: float = 0.0
    seconds: float = 0.0
    seconds_every: float = 0.0

    def compare(self, seed: int, dag: Dag) -> None:
        """Search a DAG both ways, if that does not take too long."""
        start = process_time()
        pruned = searched(dag, True)
        middle = process_time()
        every = searched(dag, False) if pruned is not None else None
        self.seconds += middle - start
        self.seconds_every += process_time() - middle
        if pruned is None or every is None:
            self.long += 1
            return
        self.dags += 1
        for found, tried in zip(pruned, every, strict=True):
            points = len(tried.partition.points)
            assert tried.costed == 1 << points
            assert found.costed + found.pruned_by_cost >= 1 << points
            self.plans += tried.costed
            self.costed += found.costed
            if not isclose(found.seconds, tried.seconds, rel_tol=1e-9):
                self.gaps.append(seed)
        sizes = [len(f.partition.points) for f in every]
        self.points[sum(sizes)] += 1
        self.largest[max(sizes, default=0)] += 1

    def show(self, title: str) -> str:
        """Say what was compared."""
        counts, largest = (", ".join(f"{n}: {k}" for n, k in sorted(some.items()))
                           for some in (self.points, self.largest))
        return (
            f"{title}: {self.dags} DAGs ({self.drawn} drawn, {self.wide} left out as too wide, {self.long} "
            f"as too long), {len(self.gaps)} gaps{self.gaps[:20] or ''}\n"
            f"  by points {counts}\n  by points of the largest partition {largest}\n"
            f"  {self.plans} plans tried, {self.costed} costed with pruning; {self.seconds_every:.1f} s "
            f"against {self.seconds:.1f} s, {self.seconds_drawn:.1f} s to draw\n")


def compare(
    count: int, first: int, draw: Callable[[int], Dag], wanted: Callable[[int], bool], widest: int = WIDEST,
    seconds: float = inf,
) -> Tally:
    """Compare on `count` DAGs whose number of points is wanted; stop early after so many seconds."""
    tally = Tally()
    start = monotonic()
    for seed in _seeds(first):
        if tally.dags == count or monotonic() - start > seconds:
            break
        tally.drawn += 1
        begun = process_time()
        dag = draw(seed)
        memo, _, parts = prepared(dag)
        tally.seconds_drawn += process_time() - begun
        if not wanted(sum(len(p.points) for p in parts)):
            continue
        if width(memo, parts) > widest:
            tally.wide += 1
            continue
        tally.compare(seed, dag)
    return tally


def _seeds(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def main() -> int:
    """Compare as many DAGs as asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=4800, help="DAGs of 1 to 10 points")
    parser.add_argument("--long", type=int, default=200, help="DAGs of 14 points")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--minutes", type=float, default=inf, help="of each kind, at most")
    given = parser.parse_args()
    gaps = 0
    for title, count, draw, wanted, widest in (
            ("1 to 10 points", given.small, small, lambda n: 1 <= n <= 10, WIDEST),
            (f"{MANY} points", given.long, long, lambda n: n == MANY, WIDEST + 8)):
        tally = compare(count, given.first, draw, wanted, widest, 60.0 * given.minutes)
        sys.stdout.write(tally.show(title))
        sys.stdout.flush()
        gaps += len(tally.gaps)
    return bool(gaps)


if __name__ == "__main__":
    sys.exit(main())
