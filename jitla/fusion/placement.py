"""Where the parts of a program run: the assignment of places that takes least time, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from jitla.classes import dataclass

HOST = 0
Move = Callable[[int, int, int], float]  # (value, from, to) -> seconds


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """What reads values and makes one, by number; `seconds` are those at every place, the host's first."""

    seconds: tuple[float, ...]
    reads: tuple[int, ...]
    makes: int


def assign_places(
    parts: Sequence[PlacementTask], wanted: Iterable[int], move: Move,
) -> tuple[float, tuple[int, ...]]:
    """Return the least seconds, and the place of each part that leads to them.

    Values no part makes lie on the host, where those `wanted` are to be in the end. A value is moved once to
    each other place where it is read. Of equal assignments the one with earlier places wins.
    """
    wanted = frozenset(wanted)
    rest = [0.0]
    for part in reversed(parts):
        rest.append(rest[-1] + min(part.seconds))
    rest.reverse()
    best: tuple[float, tuple[int, ...]] = (inf, ())
    # (next part, seconds so far, places, where each value is)
    stack: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while stack:
        so_far, places = stack.pop()
        at = len(places)
        if so_far + rest[at] >= best[0]:
            continue
        if at == len(parts):
            best = so_far, places
            continue
        for place in reversed(range(len(parts[at].seconds))):
            more = _more(parts, places, place, wanted, move)
            if so_far + more < inf:
                stack.append((so_far + more, (*places, place)))
    return best


def assignment_seconds(
    parts: Sequence[PlacementTask], places: Sequence[int], wanted: Iterable[int], move: Move,
) -> float:
    """Return what an assignment takes."""
    kept = frozenset(wanted)
    return sum(_more(parts, tuple(places[:i]), places[i], kept, move) for i in range(len(parts)))


def _more(
    parts: Sequence[PlacementTask], places: tuple[int, ...], place: int, wanted: frozenset[int], move: Move,
) -> float:
    """Return what the next part adds at a place: its time, and values that come there or go to the host."""
    at = len(places)
    part = parts[at]
    total = part.seconds[place]
    before = list(zip(parts, places, strict=False))
    made = {p.makes: where for p, where in before}
    for value in dict.fromkeys(part.reads):
        home = made.get(value, HOST)
        known = place == HOST and value in wanted  # it went there when it was made
        read = any(where == place and value in p.reads for p, where in before)
        if home != place and not known and not read:
            total += move(value, home, place)
    if part.makes in wanted and place != HOST:
        total += move(part.makes, place, HOST)
    return total
