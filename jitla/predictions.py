"""What a plan was predicted to cost, as records and as text: terms, other rules' plans, the search.

Knows: the records it is given and how to lay them out. Must not know: hops, plans, machines.
Receives records; returns lines of text, the same for the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jitla.classes import dataclass

__all__ = ["CostRecord", "RivalRecord", "bytes_text", "duration", "rival_line", "search_lines",
           "summary_line"]

TERMS = ("read", "write", "work", "launch")


@dataclass(frozen=True, slots=True)
class RivalRecord:
    """The plan that came second: values it keeps in memory or computes anew, other than the one chosen.

    `terms` are what it costs more by what it is spent on, as in `TERMS`.
    """

    seconds: float
    keeps: tuple[str, ...]
    drops: tuple[str, ...]
    terms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CostRecord:
    """What the planner says of a plan; `fusion` is the rule it was made by, `rules` what others cost.

    `costs` has the terms of every step and its seconds. Counts are choices of values to keep in memory.
    `free` is what a plan without the limit of memory would cost and take, where it is another one.
    """

    fusion: str
    costs: tuple[tuple[float, ...], ...]
    rules: tuple[tuple[str, float], ...] = ()
    bound: float = 0.0
    kernels: int = 0
    partitions: int = 0
    points: int = 0
    costed: int = 0
    by_cost: int = 0
    by_structure: int = 0
    spent: bool = False
    rival: RivalRecord | None = None
    peak: int = 0
    limit: int = 0
    free: tuple[float, int] | None = None

    @property
    def seconds(self) -> float:
        """What the plan is predicted to take."""
        return sum(c[-1] for c in self.costs)


def summary_line(cost: CostRecord) -> str:
    """Return one line: the plan, those of other rules in the same unit, its memory."""
    seconds = [cost.seconds, *(s for _, s in cost.rules)]
    unit, factor = _unit(max(seconds))
    chosen = "" if cost.fusion == "cost" else f" by the rule {cost.fusion!r}"
    words = [f"{seconds[0] * factor:.3g} {unit}{chosen}"]
    others = [f"{name} {s * factor:.3g}" for name, s in cost.rules]
    limit = f" of {bytes_text(cost.limit)}" if cost.limit else ""
    tail = [f"peak {bytes_text(cost.peak)}{limit}", *(["search ended early"] if cost.spent else [])]
    if others:
        words.append(f"other rules: {', '.join(others)}")
    return "predicted: " + "; ".join([*words, *tail])


def search_lines(cost: CostRecord, titles: Sequence[str]) -> Iterator[str]:
    """Return what every step costs, what the search has looked at, and what came second."""
    for title, terms in zip(titles, cost.costs, strict=True):
        parts = ", ".join(f"{name} {duration(s)}" for name, s in zip(TERMS, terms, strict=False) if s)
        yield f"{title:<3} {duration(terms[-1])}" + (f": {parts}" if parts else "")
    if cost.fusion != "cost":
        return
    where = _times(cost.partitions, "partition")
    yield (f"at least {duration(cost.bound)}; {_times(cost.kernels, 'kernel')} considered; "
           f"{_times(cost.points, 'value')} to keep in memory or not, in {where}")
    yield (f"plans: {cost.costed} costed, {cost.by_cost} skipped by cost, "
           f"{cost.by_structure} by structure" + ("; the budget ran out" if cost.spent else ""))
    if cost.free is not None:
        seconds, peak = cost.free
        yield (f"without memory_limit: {duration(seconds)}, which takes {bytes_text(peak)} "
               f"instead of {bytes_text(cost.peak)}")
    else:
        yield from _rival(cost)


def rival_line(cost: CostRecord) -> str:
    """Return one line on the plan that came second, and what it does otherwise; nothing if there was none."""
    if cost.rival is None:
        return ""
    words = [f"keeps {', '.join(cost.rival.keeps)}"] if cost.rival.keeps else []
    words += [f"does not keep {', '.join(cost.rival.drops)}"] if cost.rival.drops else []
    return f"second: {duration(cost.rival.seconds)}; it {' and '.join(words)}"


def _rival(cost: CostRecord) -> Iterator[str]:
    if cost.rival is None:
        yield "no other plan was costed"
        return
    yield rival_line(cost)
    terms = list(zip(TERMS, cost.rival.terms, strict=True))
    more = [f"{name} {duration(s)}" for name, s in terms if s > 0]
    less = [f"{name} {duration(-s)}" for name, s in terms if s < 0]
    some = [("more", more), ("less", less)]
    yield "   " + "; ".join(f"{word} {', '.join(parts)}" for word, parts in some if parts)


def duration(seconds: float) -> str:
    """Return seconds with three digits, in the unit that suits."""
    unit, factor = _unit(seconds)
    return f"{seconds * factor:.3g} {unit}" if seconds else "0 s"


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _unit(seconds: float) -> tuple[str, float]:
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
    return next((u for u in units if seconds * u[1] >= 1.0), ("ns", 1e9))


def bytes_text(nbytes: int) -> str:
    """Return bytes with three digits, in the unit that suits."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes} bytes"
