"""Placement of operators on the host and the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.fusion import HOST, Layout, PlacementTask, all_layouts, assign_places, plan_with_seconds
from jitla.hops import Hop, Machine, format_line, leaf, make, substitute, topo, uses
from jitla.recompile.program import rebuild


def split_rows(out: Hop, inputs: Sequence[Hop], rows: int, by_rows: Sequence[bool],
               offered: Callable[[Hop], Any]) -> Hop | None:
    """Return `out` with its first `rows` made by what is `offered` for them; None if there is nothing.

    `by_rows` says of which inputs the rows are cut, too.
    """
    total = out.meta.shape[0]
    own = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar") for i, h in enumerate(inputs)}
    (whole,) = substitute((out,), own)
    head, tail = (_of_rows(whole, total, n) for n in (rows, total - rows))
    part = offered(head) if head is not None else None
    if part is None or head is None or tail is None:
        return None
    given = {h.attr("slot"): h for h in topo((tail,)) if h.op.name == "leaf"}
    rest = {given[i]: _rows(h, rows, total) if cut else h
            for i, (h, cut) in enumerate(zip(inputs, by_rows, strict=True)) if i in given}
    (last,) = substitute((tail,), rest)
    slots = [h.attr("slot") for h in part.inputs]
    first = make("offload", [_rows(inputs[i], 0, rows) if by_rows[i] else inputs[i] for i in slots], out.line,
                 part=part)
    return make("concatenate", (first, last), out.line, axis=0)


def _rows(hop: Hop, start: int, stop: int) -> Hop:
    return make("getitem", (hop,), hop.line, index=(("s", start, stop, None),))


def _of_rows(whole: Hop, total: int, rows: int) -> Hop | None:
    """Return the DAG for another number of rows; None if other sizes are the same as theirs."""
    sizes = {n for h in topo((whole,)) for n in h.meta.shape}
    sizes |= {n for h in topo((whole,)) for k, v in h.attrs if k == "shape" for n in v}
    try:
        (made,) = rebuild((whole,), {n: n for n in sizes} | {total: rows})
    except (InternalError, ValueError, IndexError):
        return None
    return made if made.meta.shape == (rows, *whole.meta.shape[1:]) else None


Roots = tuple[Hop, ...]


class Offer(Protocol):
    """What a device can do as a whole."""

    out: Hop
    body: tuple[Hop, ...]
    inputs: tuple[Hop, ...]
    name: str


class Device(Protocol):
    """A machine beside the host."""

    name: str

    def units(self, roots: Sequence[Hop]) -> list[Any]:
        """Return what it can do of a DAG; no hop is in two."""
        ...

    def seconds(self, unit: Any) -> float:
        """Return what a unit is predicted to take."""
        ...

    def moving(self, nbytes: int) -> float:
        """Return what bringing or fetching so many bytes takes."""
        ...

    def follows(self, first: Any, second: Any) -> bool:
        """Tell whether `second` can read the result of `first` where that lies."""
        ...

    def rows(self, group: Sequence[Any], inputs: Sequence[Hop]) -> tuple[bool, ...] | None:
        """Tell of which inputs of a group the rows are those of its result; None if rows meet."""
        ...

    def part(self, group: Sequence[Any]) -> Any:
        """Return what runs units one after the other: callable, with its `inputs`, `meta` and `text()`."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a part runs: predicted seconds at the host and at every device, and of the way there and back."""

    name: str
    line: Any
    seconds: tuple[float, ...]
    moving: tuple[float, ...]
    place: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Roots with offloaded parts, and how that was decided; `forced`: not by cost."""

    roots: Roots
    devices: tuple[str, ...]
    choices: tuple[Choice, ...]
    parts: tuple[Any, ...]
    forced: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What the host's predictions depend on."""

    layouts: Mapping[int, Layout]
    supports: Callable[[Hop], str | None]
    machine: Machine
    templates: Collection[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A part with the unit of every device that can do it, by number of the device."""

    units: dict[int, Any]

    @property
    def first(self) -> Any:
        return next(iter(self.units.values()))


def placed(roots: Roots, devices: Sequence[Device], mode: str, terms: Terms) -> Placed:
    """Choose places, and put operators that run elsewhere into the DAG.

    `mode`: by "cost", "forced" for all that a device can do, or "split" for as many rows of that as
    take a device and the host about as long.
    """
    forced = mode != "cost"
    names = tuple(d.name for d in devices)
    candidates = _candidates(roots, devices)
    if not candidates:
        return Placed(roots, names, (), (), forced)
    links = _links(candidates, devices)
    parts = _parts(candidates, roots, devices, links, terms, mode)
    moves = _Moves(devices, parts.bytes)
    _, places = assign_places(parts.work, parts.wanted, moves)
    choices = tuple(Choice(c.first.name, c.first.out.line, w.seconds, _ways(c.first, devices), where)
                    for c, w, where in zip(candidates, parts.work, places, strict=True))
    groups = _groups(candidates, places, links, roots)
    made = {g[-1].out: devices[p - 1].part(g) for p, g in groups}
    if mode != "split":
        return Placed(_with(roots, made), names, choices, tuple(made.values()), forced)
    shares = {c.first.out: host / max(host + devices[0].seconds(c.first), 1e-12)
              for c, host in zip(candidates, parts.host, strict=True)}
    return _split(roots, devices, groups, made, shares, Placed(roots, names, choices, (), True))


def _ways(unit: Offer, devices: Sequence[Device]) -> tuple[float, ...]:
    """Return the seconds for bringing all operands to each place, and the result back."""
    arrays = [h for h in (*unit.inputs, unit.out) if h.meta.shape]
    return (0.0, *(sum(d.moving(h.meta.nbytes) for h in arrays) for d in devices))


def _candidates(roots: Roots, devices: Sequence[Device]) -> list[_Candidate]:
    """Return what some device can do, operands first; where they disagree on parts, the first one wins."""
    found: dict[Hop, _Candidate] = {}
    taken: dict[Hop, Hop] = {}
    for at, device in enumerate(devices, 1):
        for unit in device.units(roots):
            known = found.get(unit.out)
            if known is not None and set(known.first.body) == set(unit.body):
                known.units[at] = unit
            elif not any(h in taken for h in unit.body):
                found[unit.out] = _Candidate({at: unit})
                taken.update(dict.fromkeys(unit.body, unit.out))
    order = {h: i for i, h in enumerate(topo(roots))}
    return [found[h] for h in sorted(found, key=order.__getitem__)]


def _links(candidates: Sequence[_Candidate], devices: Sequence[Device]) -> dict[tuple[int, int], bool]:
    """Return for parts and readers of their results whether these can read them where they lie."""
    made = {c.first.out: i for i, c in enumerate(candidates)}
    found = {}
    for j, c in enumerate(candidates):
        for hop in c.first.inputs:
            i = made.get(hop)
            if i is not None:
                found[i, j] = all(devices[p - 1].follows(candidates[i].units[p], u)
                                  for p, u in c.units.items() if p in candidates[i].units)
    return found


@dataclass(frozen=True, slots=True)
class _Parts:
    work: list[PlacementTask]
    host: list[float]
    wanted: set[int]
    bytes: dict[int, int]


def _parts(candidates: Sequence[_Candidate], roots: Roots, devices: Sequence[Device],
           links: Mapping[tuple[int, int], bool], terms: Terms, mode: str) -> _Parts:
    """Return the parts as the search for places takes them: values are numbered."""
    number: dict[Any, int] = {}
    nbytes: dict[int, int] = {}

    def value(hop: Hop, copy: bool = False) -> int:
        key = (hop, copy)
        if key not in number:
            nbytes[len(number)] = hop.meta.nbytes
            number[key] = len(number)
        return number[key]

    made = {c.first.out: i for i, c in enumerate(candidates)}
    bodies = {h: j for j, c in enumerate(candidates) for h in c.first.body}
    users = uses(roots)
    work, wanted = [], set[int]()
    units = [c.first for c in candidates]
    host = [0.0] * len(units) if mode == "forced" else _host_seconds(units, roots, terms)
    for j, c in enumerate(candidates):
        places = range(1, len(devices) + 1)
        if mode == "cost":
            theirs = [devices[p - 1].seconds(c.units[p]) if p in c.units else inf for p in places]
            seconds = [host[j], *theirs]
        else:
            seconds = [inf, *(0.0 if p == min(c.units) else inf for p in places)]
        reads = []
        for hop in c.first.inputs:
            if hop.meta.shape:
                through_host = hop in made and not links[made[hop], j]
                reads.append(value(hop, through_host))
                if through_host:
                    wanted.add(value(hop))
        out = c.first.out
        if out in roots or any(u not in bodies for u in users[out]):
            wanted.add(value(out))
        work.append(PlacementTask(tuple(seconds), tuple(reads), value(out)))
    return _Parts(work, host, wanted, nbytes)


def _host_seconds(units: Sequence[Offer], roots: Roots, terms: Terms) -> list[float]:
    """Return what the host is predicted to take for each part by itself."""
    lies = all_layouts(roots, terms.layouts)
    found = []
    for unit in units:
        own = {h: leaf(i, h.meta, "array" if h.meta.shape else "scalar") for i, h in enumerate(unit.inputs)}
        (root,) = substitute((unit.out,), own)
        layouts = {i: lies[h] for i, h in enumerate(unit.inputs)}
        found.append(plan_with_seconds(
            (root,), layouts, terms.supports, terms.machine, terms.templates, "cost")[1])
    return found


class _Moves:
    """Seconds for moving values, from device to device by way of the host."""

    def __init__(self, devices: Sequence[Device], nbytes: Mapping[int, int]) -> None:
        self._devices, self._bytes = devices, nbytes

    def __call__(self, value: int, source: int, target: int) -> float:
        return sum(self._devices[p - 1].moving(self._bytes[value]) for p in (source, target) if p != HOST)


def _groups(candidates: Sequence[_Candidate], places: Sequence[int], links: Mapping[tuple[int, int], bool],
            roots: Roots) -> list[tuple[int, list[Any]]]:
    """Return runs of parts at one device, each read by the next alone, where its results lie."""
    users = uses(roots)
    readers: dict[int, list[int]] = {}
    for i, j in links:
        readers.setdefault(i, []).append(j)
    after: dict[int, int] = {}
    for i, found in readers.items():
        out = candidates[i].first.out
        inside = all(u in candidates[found[0]].first.body for u in users[out])
        if len(found) == 1 and inside and out not in roots and links[i, found[0]] and \
                places[i] == places[found[0]] != HOST and found[0] not in after.values():
            after[i] = found[0]
    groups = []
    for i, c in enumerate(candidates):
        if places[i] == HOST or i in after.values():
            continue
        group, at = [c.units[places[i]]], i
        while at in after:
            at = after[at]
            group.append(candidates[at].units[places[at]])
        groups.append((places[i], group))
    return groups


def _split(roots: Roots, devices: Sequence[Device], groups: Sequence[tuple[int, list[Any]]],
           made: Mapping[Hop, Any], shares: Mapping[Hop, float], found: Placed) -> Placed:
    """Return roots in which the first rows of groups are a device's, and the rest the host's."""
    parts: list[Any] = []
    for at, group in groups:
        device, whole = devices[at - 1], made[group[-1].out]
        out = whole.out

        def offered(head: Hop, device: Device = device, count: int = len(group)) -> Any:
            units = device.units((head,))
            return device.part(units) if len(units) == count and units[-1].out is head else None

        by_rows = device.rows(group, whole.inputs)
        total = out.meta.shape[0] if out.meta.shape else 0
        rows = round(total * sum(shares[u.out] for u in group) / len(group))
        if by_rows is None or not 0 < rows < total:
            continue
        joined = split_rows(out, whole.inputs, rows, by_rows, offered)
        if joined is not None:
            parts += [h.attr("part") for h in joined.inputs if h.op.name == "offload"]
            roots = substitute(roots, {out: joined})
    return replace(found, roots=roots, parts=tuple(parts))


def _with(roots: Roots, made: Mapping[Hop, Any]) -> Roots:
    """Return roots with parts in the place of what they compute."""
    new: dict[Hop, Hop] = {}
    for hop in topo(roots):
        if hop in made:
            part = made[hop]
            new[hop] = make("offload", [new[i] for i in part.inputs], hop.line, part=part)
        elif all(new[i] is i for i in hop.inputs):
            new[hop] = hop
        else:
            new[hop] = make(hop.op.name, [new[i] for i in hop.inputs], hop.line, **dict(hop.attrs))
    return tuple(new[r] for r in roots)


def show_placed(found: Placed | None) -> str:
    """Write down the decisions, and what devices do."""
    if found is None or not found.choices:
        return "nothing a device can do"
    lines = []
    for i, c in enumerate(found.choices, 1):
        where = found.devices[c.place - 1] if c.place != HOST else "host"
        line = f"  # {format_line(c.line)}" if c.line else ""
        lines.append(f"({i}) {c.name}  ->  {where}{' (forced)' if found.forced else ''}{line}")
        if not found.forced:
            lines.append(f"    host {c.seconds[HOST] * 1e6:.4g} us predicted")
            lines += [f"    {name} {s * 1e6:.4g} us simulated + {m * 1e6:.4g} us transfers"
                      for name, s, m in zip(found.devices, c.seconds[1:], c.moving[1:], strict=True)
                      if s < inf]
    for part in found.parts:
        lines.append(part.text())
    return "\n".join(lines)
