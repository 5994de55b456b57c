"""What a row came to, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from bench import tables
from bench.internal import machine
from bench.measure import Estimate, estimate
from bench.peers.contestants import MAKERS
from bench.peers.row import Row

PEERS = tuple(name for name in MAKERS if name != "jitla")
HEADER = ["ms", *MAKERS, "rate of jitla", "of limit", "best peer ÷ jitla", "of leasts", "best"]
WIDTHS = [37, *[max(9, len(name) + 1) for name in MAKERS], 15, 9, 22, 10, 12]


@dataclass(frozen=True)
class Limits:
    """What the machine can do: bytes per second read and copied, instructions of float64 per second.

    Of what is copied both what is read and what is written counts.
    """

    reading: float
    copying: float
    issuing: float

    def seconds(self, read: float, written: float, work: float) -> float:
        """The least time that moving and working takes."""
        # Memory writes while it reads: a byte written costs what a copy takes beyond reading its source.
        write = max(0.0, 2 / self.copying - 1 / self.reading)
        return max(read / self.reading + written * write, work / self.issuing)

    def or_better(self, other: Limits) -> Limits:
        """The best of two measurements."""
        return Limits(max(self.reading, other.reading), max(self.copying, other.copying),
                      max(self.issuing, other.issuing))


def measured(bench: machine.Bench, threads: int) -> Limits:
    """Measure, with as many threads as the contestants have."""
    rows = machine.measure(bench)
    key = "one" if threads == 1 else "all"
    best = {kind: max(row[key] for name, row in rows.items() if name.startswith(kind))
            for kind in ("read", "copy", "multiply-add")}
    return Limits(best["read"] * 1e9, best["copy"] * 1e9, best["multiply-add"] / 2 * 1e9)


@dataclass
class Outcome:
    """What must move and be done, medians by contestant, the ratio to the best peer, what went wrong.

    `share` is the least possible over measured time, by what the machine could do in the same round.
    """

    row: Row
    read: int = 0
    written: int = 0
    work: float = 0.0
    seconds: dict[str, Estimate] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    best: str = ""
    ratio: Estimate | None = None
    share: Estimate | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def rate(self) -> str:
        """What jitla computes or moves in a second: instructions count two, as multiply-adds do."""
        if "jitla" not in self.seconds:
            return "-"
        time = self.seconds["jitla"].value * 1e9
        if self.work:
            return f"{2 * self.work / time:.1f} GFLOP/s"
        return f"{(self.read + self.written) / time:.1f} GB/s"

    def of_limits(self, taken: Sequence[float], limits: Sequence[Limits]) -> Estimate:
        """Least possible over the seconds `taken` by jitla, each round by its own limits."""
        possible = (each.seconds(self.read, self.written, self.work) for each in limits)
        return estimate([least / t for least, t in zip(possible, taken, strict=True)])

    def of_leasts(self) -> float | None:
        """Best peer over jitla, each by its least time: what other programs disturb least."""
        peers = [t for n, t in self.least.items() if n in PEERS]
        return min(peers) / self.least["jitla"] if peers and "jitla" in self.least else None

    def cells(self) -> list[str]:
        """The row of the table."""
        times = [f"{self.seconds[n].value * 1e3:.2f}" if n in self.seconds else "-" for n in MAKERS]
        share, leasts = self.share, self.of_leasts()
        return [self.row.name, *times, self.rate(), f"{share.value:.0%}" if share else "-",
                self.ratio.show() if self.ratio else "-", f"{leasts:.2f}" if leasts else "-",
                self.best or "-"]

    def record(self) -> dict[str, object]:
        """The same for JSON."""
        return {
            "seconds": {n: e.value for n, e in self.seconds.items()}, "least": self.least,
            "rate": self.rate(), "best": self.best,
            "of_limit": listed(self.share), "ratio": listed(self.ratio),
            "of_leasts": self.of_leasts(), "notes": self.notes,
        }


def listed(estimate: Estimate | None) -> list[float] | None:
    """A median and its interval for JSON."""
    return estimate and [estimate.value, estimate.low, estimate.high]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The whole table as the documentation has it."""
    marks = [tables.LEFT, *[tables.RIGHT] * (len(HEADER) - 2), tables.LEFT]
    return tables.markdown(HEADER, [o.cells() for o in outcomes], marks)


def means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Geometric means of peer ÷ jitla: of the best peer in each row, and of each in the rows it runs."""
    ratios = {"best peer": [o.ratio.value for o in outcomes if o.ratio]}
    ratios["best peer, of leasts"] = [r for o in outcomes if (r := o.of_leasts())]
    for name in PEERS:
        ratios[name] = [o.seconds[name].value / o.seconds["jitla"].value for o in outcomes
                        if {name, "jitla"} <= o.seconds.keys()]
    return {name: geometric_mean(found) for name, found in ratios.items() if found}
