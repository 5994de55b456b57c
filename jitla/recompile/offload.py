"""Placement of operators on the host or on devices, by cost; and splits by rows between both.

`assign_places` finds the assignment with the least time exactly, by branch and bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.fusion import Layout, all_layouts, plan_with_seconds
from jitla.hops import Hop, Machine, format_line, leaf, make, substitute, topo, uses
from jitla.recompile.program import rebuild

# --------------------------------------------------------------------------- assignment of parts to devices


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


# --------------------------------------------------------------------------- operators and their parts


def split_rows(out: Hop, inputs: Sequence[Hop], rows: int, by_rows: Sequence[bool],
               make_part: Callable[[Hop], Any]) -> Hop | None:
    """Return `out` with its first rows on a device and the rest on the host; None if that is impossible.

    `make_part` returns the device's part for the DAG of the first `rows` rows. `by_rows` tells of which
    inputs rows are sliced, too.
    """
    total = out.meta.shape[0]
    leaf_of = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar") for i, h in enumerate(inputs)}
    (whole,) = substitute((out,), leaf_of)
    head, tail = (_with_row_count(whole, total, n) for n in (rows, total - rows))
    part = make_part(head) if head is not None else None
    if part is None or head is None or tail is None:
        return None
    leaves = {h.attr("slot"): h for h in topo((tail,)) if h.op.name == "leaf"}
    replacements = {leaves[i]: _rows(h, rows, total) if cut else h
                    for i, (h, cut) in enumerate(zip(inputs, by_rows, strict=True)) if i in leaves}
    (last,) = substitute((tail,), replacements)
    slots = [h.attr("slot") for h in part.inputs]
    first = make("offload", [_rows(inputs[i], 0, rows) if by_rows[i] else inputs[i] for i in slots], out.line,
                 part=part)
    return make("concatenate", (first, last), out.line, axis=0)


def _rows(hop: Hop, start: int, stop: int) -> Hop:
    return make("getitem", (hop,), hop.line, index=(("s", start, stop, None),))


def _with_row_count(whole: Hop, total: int, rows: int) -> Hop | None:
    """Return the DAG for another number of rows; None if another size equals theirs."""
    sizes = {n for h in topo((whole,)) for n in h.meta.shape}
    sizes |= {n for h in topo((whole,)) for k, v in h.attrs if k == "shape" for n in v}
    try:
        (resized,) = rebuild((whole,), {n: n for n in sizes} | {total: rows})
    except (InternalError, ValueError, IndexError):
        return None
    return resized if resized.meta.shape == (rows, *whole.meta.shape[1:]) else None


Roots = tuple[Hop, ...]


class OffloadUnit(Protocol):
    """An operator or group of operators that a device executes as a whole."""

    out: Hop
    body: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    name: str


class OffloadTarget(Protocol):
    """A machine beside the host."""

    @property
    def name(self) -> str:
        """Name of the machine."""
        ...

    def units(self, roots: Sequence[Hop]) -> list[Any]:
        """Return the units of a DAG that it can execute; no hop is in two."""
        ...

    def seconds(self, unit: Any) -> float:
        """Return the predicted seconds of a unit."""
        ...

    def moving(self, nbytes: int) -> float:
        """Return the seconds to transfer `nbytes` to or from the device."""
        ...

    def follows(self, first: Any, second: Any) -> bool:
        """Return whether `second` can read the result of `first` in the device's memory."""
        ...

    def rows(self, group: Sequence[Any], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
        """Return for each input whether its rows are those of the result; None if rows depend on others."""
        ...

    def part(self, group: Sequence[Any]) -> Any:
        """Return what runs units in sequence: a callable with `inputs`, `meta` and `text()`."""
        ...


@dataclass(frozen=True, slots=True)
class PlacementChoice:
    """The place of a unit, with predicted seconds at host and devices, and of the transfers."""

    name: str
    line: Any
    seconds: tuple[float, ...]
    moving: tuple[float, ...]
    place: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Roots with offloaded parts, and the decisions; `forced`: not by cost."""

    roots: Roots
    devices: tuple[str, ...]
    choices: tuple[PlacementChoice, ...]
    parts: tuple[Any, ...]
    forced: bool


@dataclass(frozen=True, slots=True)
class HostContext:
    """What predictions for the host depend on."""

    layouts: Mapping[int, Layout]
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: Collection[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A unit, as each device that supports it executes it, by number of the device."""

    units: dict[int, Any]

    @property
    def first(self) -> Any:
        return next(iter(self.units.values()))


def place_operators(roots: Roots, devices: Sequence[OffloadTarget], mode: str,
                    context: HostContext) -> Placement:
    """Choose places of operators, and insert offloaded parts into the DAG.

    `mode` is "cost"; "forced" for all that a device supports; or "split" for a number of rows such that
    device and host take about equally long.
    """
    forced = mode != "cost"
    names = tuple(d.name for d in devices)
    candidates = _candidates(roots, devices)
    if not candidates:
        return Placement(roots, names, (), (), forced)
    links = _links(candidates, devices)
    parts = _parts(candidates, roots, devices, links, context, mode)
    moves = _TransferCosts(devices, parts.bytes)
    _, places = assign_places(parts.work, parts.wanted, moves)
    choices = tuple(
        PlacementChoice(c.first.name, c.first.out.line, w.seconds, _transfer_seconds(c.first, devices), where)
        for c, w, where in zip(candidates, parts.work, places, strict=True))
    groups = _groups(candidates, places, links, roots)
    parts_of = {g[-1].out: devices[p - 1].part(g) for p, g in groups}
    if mode != "split":
        return Placement(_with_parts(roots, parts_of), names, choices, tuple(parts_of.values()), forced)
    shares = {c.first.out: host / max(host + devices[0].seconds(c.first), 1e-12)
              for c, host in zip(candidates, parts.host, strict=True)}
    return _split(roots, devices, groups, parts_of, shares, Placement(roots, names, choices, (), True))


def _transfer_seconds(unit: OffloadUnit, devices: Sequence[OffloadTarget]) -> tuple[float, ...]:
    """Return for each place the seconds to transfer all operands and the result."""
    arrays = [h for h in (*unit.inputs, unit.out) if h.meta.shape]
    return (0.0, *(sum(d.moving(h.meta.nbytes) for h in arrays) for d in devices))


def _candidates(roots: Roots, devices: Sequence[OffloadTarget]) -> list[_Candidate]:
    """Return the units some device supports, in topological order; the first device wins overlaps."""
    candidates: dict[Hop, _Candidate] = {}
    owner: dict[Hop, Hop] = {}
    for number, device in enumerate(devices, 1):
        for unit in device.units(roots):
            candidate = candidates.get(unit.out)
            if candidate is not None and set(candidate.first.body) == set(unit.body):
                candidate.units[number] = unit
            elif not any(h in owner for h in unit.body):
                candidates[unit.out] = _Candidate({number: unit})
                owner.update(dict.fromkeys(unit.body, unit.out))
    order = {h: i for i, h in enumerate(topo(roots))}
    return [candidates[h] for h in sorted(candidates, key=order.__getitem__)]


def _links(candidates: Sequence[_Candidate], devices: Sequence[OffloadTarget]) -> dict[tuple[int, int], bool]:
    """Return for pairs of units whether the second can read the first's result in device memory."""
    producer = {c.first.out: i for i, c in enumerate(candidates)}
    links = {}
    for j, c in enumerate(candidates):
        for hop in c.first.inputs:
            i = producer.get(hop)
            if i is not None:
                links[i, j] = all(devices[p - 1].follows(candidates[i].units[p], u)
                                  for p, u in c.units.items() if p in candidates[i].units)
    return links


@dataclass(frozen=True, slots=True)
class _Parts:
    work: list[PlacementTask]
    host: list[float]
    wanted: set[int]
    bytes: dict[int, int]


def _parts(candidates: Sequence[_Candidate], roots: Roots, devices: Sequence[OffloadTarget],
           links: Mapping[tuple[int, int], bool], context: HostContext, mode: str) -> _Parts:
    """Return the units as tasks of the placement search, with values numbered."""
    number: dict[Any, int] = {}
    nbytes: dict[int, int] = {}

    def value(hop: Hop, copy: bool = False) -> int:
        key = (hop, copy)
        if key not in number:
            nbytes[len(number)] = hop.meta.nbytes
            number[key] = len(number)
        return number[key]

    producer = {c.first.out: i for i, c in enumerate(candidates)}
    bodies = {h: j for j, c in enumerate(candidates) for h in c.first.body}
    users = uses(roots)
    work, wanted = [], set[int]()
    units = [c.first for c in candidates]
    host = [0.0] * len(units) if mode == "forced" else _host_seconds(units, roots, context)
    for j, c in enumerate(candidates):
        places = range(1, len(devices) + 1)
        if mode == "cost":
            device_seconds = [devices[p - 1].seconds(c.units[p]) if p in c.units else inf for p in places]
            seconds = [host[j], *device_seconds]
        else:
            seconds = [inf, *(0.0 if p == min(c.units) else inf for p in places)]
        reads = []
        for hop in c.first.inputs:
            if hop.meta.shape:
                through_host = hop in producer and not links[producer[hop], j]
                reads.append(value(hop, through_host))
                if through_host:
                    wanted.add(value(hop))
        out = c.first.out
        if out in roots or any(u not in bodies for u in users[out]):
            wanted.add(value(out))
        work.append(PlacementTask(tuple(seconds), tuple(reads), value(out)))
    return _Parts(work, host, wanted, nbytes)


def _host_seconds(units: Sequence[OffloadUnit], roots: Roots, context: HostContext) -> list[float]:
    """Return the predicted seconds of each unit on the host, by itself."""
    places = all_layouts(roots, context.layouts)
    seconds = []
    for unit in units:
        leaf_of = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar")
                   for i, h in enumerate(unit.inputs)}
        (root,) = substitute((unit.out,), leaf_of)
        layouts = {i: places[h] for i, h in enumerate(unit.inputs)}
        seconds.append(plan_with_seconds(
            (root,), layouts, context.supports, context.machine, context.templates, "cost")[1])
    return seconds


class _TransferCosts:
    """Seconds to transfer values between places, by way of the host."""

    def __init__(self, devices: Sequence[OffloadTarget], nbytes: Mapping[int, int]) -> None:
        self._devices, self._bytes = devices, nbytes

    def __call__(self, value: int, source: int, target: int) -> float:
        return sum(self._devices[p - 1].moving(self._bytes[value]) for p in (source, target) if p != HOST)


def _groups(candidates: Sequence[_Candidate], places: Sequence[int], links: Mapping[tuple[int, int], bool],
            roots: Roots) -> list[tuple[int, list[Any]]]:
    """Return sequences of units on one device, each read by the next alone, in device memory."""
    users = uses(roots)
    readers: dict[int, list[int]] = {}
    for i, j in links:
        readers.setdefault(i, []).append(j)
    after: dict[int, int] = {}
    for i, reading in readers.items():
        out = candidates[i].first.out
        inside = all(u in candidates[reading[0]].first.body for u in users[out])
        if len(reading) == 1 and inside and out not in roots and links[i, reading[0]] and \
                places[i] == places[reading[0]] != HOST and reading[0] not in after.values():
            after[i] = reading[0]
    groups = []
    for i, c in enumerate(candidates):
        if places[i] == HOST or i in after.values():
            continue
        group, end = [c.units[places[i]]], i
        while end in after:
            end = after[end]
            group.append(candidates[end].units[places[end]])
        groups.append((places[i], group))
    return groups


def _split(roots: Roots, devices: Sequence[OffloadTarget], groups: Sequence[tuple[int, list[Any]]],
           parts_of: Mapping[Hop, Any], shares: Mapping[Hop, float], placement: Placement) -> Placement:
    """Return roots in which the first rows of groups are computed by a device, the rest by the host."""
    parts: list[Any] = []
    for place_number, group in groups:
        device, whole = devices[place_number - 1], parts_of[group[-1].out]
        out = whole.out

        def make_part(head: Hop, device: OffloadTarget = device, count: int = len(group)) -> Any:
            units = device.units((head,))
            return device.part(units) if len(units) == count and units[-1].out is head else None

        by_rows = device.rows(group, whole.inputs)
        total = out.meta.shape[0] if out.meta.shape else 0
        rows = round(total * sum(shares[u.out] for u in group) / len(group))
        if by_rows is None or not 0 < rows < total:
            continue
        joined = split_rows(out, whole.inputs, rows, by_rows, make_part)
        if joined is not None:
            parts += [h.attr("part") for h in joined.inputs if h.op.name == "offload"]
            roots = substitute(roots, {out: joined})
    return replace(placement, roots=roots, parts=tuple(parts))


def _with_parts(roots: Roots, parts_of: Mapping[Hop, Any]) -> Roots:
    """Return roots with offloaded parts instead of the operators they compute."""
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        if hop in parts_of:
            part = parts_of[hop]
            new[hop] = make("offload", [new[i] for i in part.inputs], hop.line, part=part)
        elif all(new[i] is i for i in hop.inputs):
            new[hop] = hop
        else:
            new[hop] = make(hop.op.name, [new[i] for i in hop.inputs], hop.line, **dict(hop.attrs))
    return tuple(new[r] for r in roots)


def show_placement(placement: Placement | None) -> str:
    """Return the decisions, and the programs of devices, as text."""
    if placement is None or not placement.choices:
        return "nothing a device can do"
    lines = []
    for i, c in enumerate(placement.choices, 1):
        where = placement.devices[c.place - 1] if c.place != HOST else "host"
        line = f"  # {format_line(c.line)}" if c.line else ""
        lines.append(f"({i}) {c.name}  ->  {where}{' (forced)' if placement.forced else ''}{line}")
        if not placement.forced:
            lines.append(f"    host {c.seconds[HOST] * 1e6:.4g} us predicted")
            lines += [f"    {name} {s * 1e6:.4g} us simulated + {m * 1e6:.4g} us transfers"
                      for name, s, m in zip(placement.devices, c.seconds[1:], c.moving[1:], strict=True)
                      if s < inf]
    for part in placement.parts:
        lines.append(part.text())
    return "\n".join(lines)
