"""What may be chosen about a bound kernel, and the name under which choices are remembered.

Knows: which choices exclude each other, how kernels are named whatever process they are in. Must not know:
who chooses, machine code. Receives kernels bound to sizes; returns keys, and schedules of what is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from jitla.fusion import (
    Form,
    Geometry,
    Kernel,
    Layout,
    RowKernel,
    Schedule,
    Space,
    Values,
    WindowKernel,
    contiguous,
    crosswise,
)
from jitla.hops import Hop, Kind, Shape

Launch = Callable[..., int]
Made = tuple[bytes, Launch]  # an argument block, and what runs it
UNTUNED: Values = MappingProxyType({})
# Chosen instead of other knobs: lines of primitives by which the kernel is run as a nest, or sizes of tiles,
# whether these are walked along rows or down columns, and where what stages pass on is computed.
LOOPS, TILE, ORDER, PLACE = "loops", "tile", "order", "place"
ORDERS, PLACES = ("rows", "columns"), ("block", "inline", "root")


class Key(NamedTuple):
    """A kernel as other processes know it, too, and the sizes it is bound to."""

    kernel: str
    shape: tuple[int, ...]


class Choice(NamedTuple):
    """A bound kernel for whoever chooses: `make` makes its argument block, and what runs it, of choices.

    The last `outputs` operands are results. `make` raises `ScheduleError` if its loops cannot be as chosen.
    `parcel` is what another process makes the same choice of.
    """

    key: Key
    shapes: Mapping[Shape, Shape]
    outputs: int
    space: Callable[[], Space]
    make: Callable[[Values], Made]
    parcel: Callable[[], Any]


class Chosen(NamedTuple):
    """What was chosen for a kernel, who chose that or why it was not possible, and the sizes it is for."""

    values: Values
    said: str
    shapes: Mapping[Shape, Shape]


class Tuning(Protocol):
    """What chooses knobs: what it has `chosen`, and what it has `said` to that."""

    chosen: Mapping[Key, Values]
    said: Mapping[Key, str]

    def block(self, choice: Choice) -> Made:
        """Return what `choice.make` makes of what is chosen."""
        ...


def key_of(
    kernel: Kernel | RowKernel | WindowKernel, shapes: Mapping[Shape, Shape], places: Mapping[Hop, Layout],
) -> Key:
    """Return the key of a bound kernel."""
    number: dict[Hop, int] = {}
    words: list[Any] = [kernel.template, type(kernel).__name__]
    sizes: list[int] = []
    for hop in kernel.inputs:
        number[hop] = len(number)
        shape = places[hop].shape if hop in places else ()
        plain = hop not in places or places[hop] == contiguous(shape, hop.meta.dtype.itemsize)
        bits = hop.attr("bits") if hop.op.name == "const" else len(hop.meta.shape)
        words.append((bits, hop.meta.dtype.str, plain))
        sizes += shape
    for hop in kernel.body:
        number[hop] = len(number)
        words.append((hop.op.name, hop.meta.dtype.str, _attrs(hop) if hop.op.kind is not Kind.LEAF else (),
                      tuple(number[i] if i in number else _view(i, number) for i in hop.inputs)))
    words.append(tuple(number[h] for h in kernel.outputs))
    if not isinstance(kernel, Kernel):
        words.append(tuple(tuple(number[h] for h in s.outputs) for s in kernel.stages))
    sizes += shapes[kernel.shape]
    return Key(sha256(repr(words).encode()).hexdigest()[:24], tuple(sizes))


def _view(view: Hop, number: Mapping[Hop, int]) -> tuple[Any, ...]:
    """Return what is read as a view of which value: a slice between two stages, a matrix turned."""
    return view.op.name, tuple(number.get(i, -1) for i in view.inputs), _attrs(view)


def _attrs(hop: Hop) -> tuple[tuple[str, str], ...]:
    """Return what says how `hop` is done, for any sizes."""
    return tuple((k, str(v)) for k, v in hop.attrs if k not in ("shape", "slot"))


def is_nest(values: Values) -> bool:
    """Tell whether a kernel is run as a nest of loops, if it is chosen like this."""
    return bool(values.get(LOOPS) or values.get(TILE)) or values.get(ORDER, ORDERS[0]) != ORDERS[0] or \
        values.get(PLACE, PLACES[0]) != PLACES[0]


def as_chosen(values: Values, schedule: Schedule) -> Schedule:
    """Return how a loop over elements is run if its vectors and fetches are as chosen."""
    return replace(schedule, unroll=int(values.get("unroll", schedule.unroll)),
                   part=2 if values.get("vector") == "half" else 1, ahead=int(values.get("ahead", 0)))


def short_rows(kernel: Kernel, form: Form, geometry: Geometry) -> bool:
    """Say whether a kernel walks over rows of so few elements that several should share a vector."""
    return 1 < geometry.dims[-1] <= crosswise(kernel, form)
