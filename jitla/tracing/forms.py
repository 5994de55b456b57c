"""Other forms of what lies in memory and stays the same: made once products have lost what making one takes.

Knows: which memory was multiplied, and what its product lost for want of another form. Must not know: which
forms there are, how writes are noted (whoever made the site does), plans.
Receives arrays, and forms by name with what each saves and costs; returns the best that there is.

A form belongs to memory, not to a function or a call: it lasts until that is written, by whomever, or freed.
Half of its price is waited for before the memory is watched, the other half while it is. Memory that was
written meanwhile has to stay the same for twice as long before it gets a form again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.hops import Shape
from jitla.locks import relock
from jitla.tracing.alone import is_alone
from jitla.tracing.enacting import address
from jitla.tracing.frames import user_frame
from jitla.tracing.keeping import owner_of
from jitla.tracing.places import place_of
from jitla.tracing.site import Site

LEAST = 1e5  # nanoseconds that a use has to save: to see whether memory was written takes a fifth of that
FEW = 2  # uses before a form is made where costs do not matter
MOST = 64  # matrices in memory that are remembered

Arrays = tuple[np.ndarray, ...]
Key = tuple[Any, ...]


class Way(NamedTuple):
    """A form that there may be: what a use of it saves and what making it takes, in nanoseconds.

    ``make()`` returns arrays and how many bytes they take, None if there is no form; the title says what it
    is.
    """

    name: str
    saves: float
    costs: float
    make: Callable[[], tuple[Any, int] | None]
    title: str
    shape: Shape


class Form(NamedTuple):
    """A form that was made, which refers to nothing of the memory it was made of."""

    value: Any
    nbytes: int


class Told:
    """What is told of a form that products of a function use, like of other values that are kept."""

    __slots__ = ("way", "line", "bound", "made", "used", "nbytes")

    def __init__(self, way: Way) -> None:
        self.way = way._replace(make=_unmade)
        place = place_of(user_frame())
        self.line = place.file, place.line
        self.bound: Any = None
        self.made = self.used = self.nbytes = 0

    def description(self) -> tuple[str, Shape, list[tuple[str, Any]]]:
        """Return what it is, the shape, and what it was made for, with the user's line."""
        return self.way.title, self.way.shape, [("product", self.line)]


class Remembered:
    """What is known of memory that was multiplied."""

    __slots__ = ("owners", "lost", "patience", "watch", "forms", "never")

    def __init__(self, owners: tuple[Any, ...]) -> None:
        self.owners = owners  # references: when one is gone, so is this
        self.lost: dict[str, float] = {}
        self.patience = 1.0
        self.watch: Any = None
        self.forms: dict[str, Form] = {}
        self.never: set[str] = set()

    def was_written(self) -> None:
        """Begin anew, more patiently."""
        self.lost.clear()
        self.forms.clear()
        self.watch = None
        self.patience *= 2

    @property
    def nbytes(self) -> int:
        """Bytes of all forms."""
        return sum(form.nbytes for form in self.forms.values())


_known: dict[Key, Remembered] = {}
_lock = relock()


def form_of(site: Site, arrays: Arrays, ways: list[Way]) -> Form | None:
    """Return the form of `arrays` that saves most, where it exists or it is time to make it."""
    if site.keeper is None or not ways:
        return None
    key = tuple([(address(x), x.shape, x.strides, x.dtype.char) for x in arrays])
    with _lock:
        found = _known.get(key)
        if found is None:
            _note(key, arrays, ways, site)
            return None
        if found.watch is not None and not found.watch.is_same():
            found.was_written()
        best = max((w for w in ways if w.name in found.forms), key=_saves, default=None)
        least = LEAST if best is None else LEAST + best.saves
        for way in ways:
            if way.name in found.forms or way.name in found.never:
                continue
            if (site.keeper.every or way.saves >= least) and _is_time(found, way, arrays, site):
                best = way
        if best is None:
            return None
        _told(site, best).used += 1
        return found.forms[best.name]


def forget_forms() -> None:
    """Forget all memory."""
    with _lock:
        _known.clear()


def _note(key: Key, arrays: Arrays, ways: list[Way], site: Site) -> None:
    """Remember memory from now on, if something would save enough."""
    every = site.keeper.every
    if not every and max(map(_saves, ways)) < LEAST:
        return
    owners = [owner_of(x) for x in arrays]
    if any(type(x) is not np.ndarray or x.base is not None or not x.flags.owndata for x in owners):
        return  # others may write where the system does not see it
    while len(_known) >= MOST:
        del _known[next(iter(_known))]
    gone: Callable[[Any], Any] = lambda _: _known.pop(key, None)  # noqa: E731
    made = _known[key] = Remembered(tuple(ref(x, gone) for x in owners))
    made.lost = {way.name: 1.0 if every else way.saves for way in ways}


def _is_time(found: Remembered, way: Way, arrays: Arrays, site: Site) -> bool:
    """Count a use without a form; make the form if it is time, and say whether it is there."""
    every = site.keeper.every
    price = (FEW if every else way.costs) * found.patience
    lost = found.lost[way.name] = found.lost.get(way.name, 0.0) + (1.0 if every else way.saves)
    site.awaited = 0
    if 2 * lost >= price and found.watch is None:
        found.watch = site.keeper.watch(arrays) if is_alone() else None
        if found.watch is None:
            found.was_written()
            return False
    if lost < price:
        if price < inf:
            site.awaited = ceil((price - lost) / (1.0 if every else way.saves)) + 1
        return False
    try:
        made = way.make()
    except Exception as error:
        site.failed(error)
        made = None
    if made is None or not found.watch.is_same() or not _make_room(found, made[1], site.keeper.room):
        found.never.add(way.name)
        return False
    found.forms[way.name] = Form(*made)
    told = _told(site, way)
    told.made, told.nbytes = told.made + 1, made[1]
    site.most_kept = max(site.most_kept, _taken())
    return True


def _told(site: Site, way: Way) -> Told:
    told: Told | None = site.parts.get((way.title, way.shape))
    if told is None:
        told = site.parts[way.title, way.shape] = Told(way)
    return told


def _make_room(found: Remembered, nbytes: int, room: int) -> bool:
    """Drop forms of other memory until there are `nbytes` left of `room`; say whether there are."""
    for other in list(_known.values()):
        if _taken() + nbytes <= room:
            break
        if other is not found:
            other.was_written()
    return _taken() + nbytes <= room


def _taken() -> int:
    """Return the bytes of all forms; memory may be freed meanwhile."""
    return sum(each.nbytes for each in list(_known.values()))


def _saves(way: Way) -> float:
    return way.saves


def _unmade() -> None:
    """Stand for what makes a form: that refers to the memory it is made of."""
