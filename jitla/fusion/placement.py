"""Placement of the parts of a program on devices: the assignment with the least time, found exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from jitla.classes import dataclass

HOST = 0
MoveSeconds = Callable[[int, int, int], float]  # (value, from, to) -> seconds


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """A task that reads values and produces one, by number; `seconds` are by device, the host first."""

    seconds: tuple[float, ...]
    reads: tuple[int, ...]
    result: int


def assign_places(
    parts: Sequence[PlacementTask], wanted: Iterable[int], move: MoveSeconds,
) -> tuple[float, tuple[int, ...]]:
    """Return the least seconds, and the device of each part that achieves them.

    Values that no part produces are on the host, where those in `wanted` must be in the end. A value is moved
    once to each other device that reads it. Of equally fast assignments the one with earlier devices is
    returned.
    """
    wanted = frozenset(wanted)
    remaining_seconds = [0.0]
    for part in reversed(parts):
        remaining_seconds.append(remaining_seconds[-1] + min(part.seconds))
    remaining_seconds.reverse()
    best: tuple[float, tuple[int, ...]] = (inf, ())
    # (seconds so far, devices of the first parts), depth first
    stack: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while stack:
        so_far, places = stack.pop()
        at = len(places)
        if so_far + remaining_seconds[at] >= best[0]:
            continue
        if at == len(parts):
            best = so_far, places
            continue
        for place in reversed(range(len(parts[at].seconds))):
            added = _added_seconds(parts, places, place, wanted, move)
            if so_far + added < inf:
                stack.append((so_far + added, (*places, place)))
    return best


def assignment_seconds(
    parts: Sequence[PlacementTask], places: Sequence[int], wanted: Iterable[int], move: MoveSeconds,
) -> float:
    """Return the seconds of an assignment."""
    results = frozenset(wanted)
    return sum(_added_seconds(parts, tuple(places[:i]), places[i], results, move) for i in range(len(parts)))


def _added_seconds(
    parts: Sequence[PlacementTask], places: tuple[int, ...], place: int, wanted: frozenset[int],
    move: MoveSeconds,
) -> float:
    """Return the seconds that the next part adds on a device: its own, and those of moving values."""
    at = len(places)
    part = parts[at]
    total = part.seconds[place]
    before = list(zip(parts, places, strict=False))
    location = {p.result: where for p, where in before}
    for value in dict.fromkeys(part.reads):
        source = location.get(value, HOST)
        is_on_host = place == HOST and value in wanted  # moved there when it was computed
        is_moved = any(where == place and value in p.reads for p, where in before)
        if source != place and not is_on_host and not is_moved:
            total += move(value, source, place)
    if part.result in wanted and place != HOST:
        total += move(part.result, place, HOST)
    return total
