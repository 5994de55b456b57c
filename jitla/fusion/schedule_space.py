"""What may be chosen about how a kernel runs: knobs, and the space of their combinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import product
from math import prod

import numpy as np

from jitla.classes import cached_property, dataclass
from jitla.errors import ConfigError

Value = int | str
Values = Mapping[str, Value]
Point = tuple[int, ...]  # the position of the choice of every knob
FEW = 200_000  # combinations that are gone through one by one
TRIES = 1000  # random combinations until one is legal


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice, its values in order; not `exact` if it changes in which order values are added up."""

    name: str
    choices: tuple[Value, ...]
    exact: bool = True


def _any(values: Values) -> bool:
    return True


def _nothing(values: Values) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True, eq=False)
class Space:
    """All combinations of knobs, of which some are `legal`; `default` is what runs untuned.

    `estimate` predicts seconds, or anything in proportion to them, None if nothing does. `traits` are numbers
    that mean the same in other spaces of this kind.
    """

    knobs: tuple[Knob, ...]
    default: Point
    legal: Callable[[Values], bool] = _any
    estimate: Callable[[Values], float] | None = None
    traits: Callable[[Values], tuple[float, ...]] = _nothing
    _legal: dict[Point, bool] = field(default_factory=dict)

    @property
    def combinations(self) -> int:
        """How many combinations there are, legal or not."""
        return prod(len(k.choices) for k in self.knobs)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All legal points, in order; of very large spaces none are listed."""
        if self.combinations > FEW:
            return ()
        every = product(*(range(len(k.choices)) for k in self.knobs))
        return tuple(p for p in every if self.is_legal(p))

    def values(self, point: Point) -> dict[str, Value]:
        """Return what is chosen at a point."""
        return {k.name: k.choices[i] for k, i in zip(self.knobs, point, strict=True)}

    def is_legal(self, point: Point) -> bool:
        """Tell whether a combination may be run; what runs untuned always may."""
        found = self._legal.get(point)
        if found is None:
            found = self._legal[point] = point == self.default or self.legal(self.values(point))
        return found

    def point(self, values: Values) -> Point | None:
        """Return the point at which exactly `values` are chosen; None if there is none that is legal."""
        if any(values.get(k.name) not in k.choices for k in self.knobs) or len(values) != len(self.knobs):
            return None
        found = tuple(k.choices.index(values[k.name]) for k in self.knobs)
        return found if self.is_legal(found) else None

    def nearest(self, values: Values) -> Point | None:
        """Return the legal point whose choices are next to `values`, which another space may have had."""
        point = tuple(_nearest(k.choices, values[k.name]) if k.name in values else self.default[i]
                      for i, k in enumerate(self.knobs))
        return point if self.is_legal(point) else None

    def random(self, rng: np.random.Generator) -> Point:
        """Return a legal point, all as likely."""
        if self.points:
            return self.points[int(rng.integers(len(self.points)))]
        for _ in range(TRIES):
            point = tuple(int(rng.integers(len(k.choices))) for k in self.knobs)
            if self.is_legal(point):
                return point
        return self.default

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield legal points with one choice next to the one here."""
        for at, knob in enumerate(self.knobs):
            for other in (point[at] - 1, point[at] + 1):
                moved = (*point[:at], other, *point[at + 1:])
                if 0 <= other < len(knob.choices) and self.is_legal(moved):
                    yield moved

    def pinned(self, values: Values) -> Space:
        """Return the space in which some knobs have one choice each, which has to be one of theirs."""
        knobs, default = list(self.knobs), list(self.default)
        names = [k.name for k in knobs]
        for name, value in values.items():
            if name not in names:
                raise ConfigError(f"no knob is called {name}; there are {', '.join(names) or 'none'}")
            at = names.index(name)
            if value not in knobs[at].choices:
                there = ", ".join(map(str, knobs[at].choices))
                raise ConfigError(f"{name} cannot be {value!r}, only {there}")
            knobs[at], default[at] = replace(knobs[at], choices=(value,)), 0
        made = Space(tuple(knobs), tuple(default), self.legal, self.estimate, self.traits)
        usual = made.values(made.default)
        if usual == self.values(self.default) or self.legal(usual):
            return made
        for point in product(*(range(len(k.choices)) for k in knobs)):
            if self.legal(made.values(point)):
                return replace(made, default=point, _legal={})
        raise ConfigError(f"with {', '.join(f'{k}={v}' for k, v in values.items())} no schedule is legal")

    def exact(self) -> Space:
        """Return the space without choices that change in which order values are added up."""
        kept = {k.name: k.choices[i] for k, i in zip(self.knobs, self.default, strict=True) if not k.exact}
        return self.pinned(kept) if kept else self


def _nearest(choices: tuple[Value, ...], value: Value) -> int:
    if isinstance(value, str):
        return choices.index(value) if value in choices else 0
    numbers = [(abs(np.log2((c + 1) / (value + 1))), i) for i, c in enumerate(choices) if isinstance(c, int)]
    return int(min(numbers)[1]) if numbers else 0
