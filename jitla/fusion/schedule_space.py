"""Knobs of a schedule and the space of their combinations, with legality and sampling; callers give knobs."""

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
Point = tuple[int, ...]  # the index of every knob's choice
MAX_LISTED_POINTS = 200_000  # combinations that are enumerated
MAX_RANDOM_TRIES = 1000  # random combinations tried until one is legal


@dataclass(frozen=True, slots=True)
class Knob:
    """One tunable parameter, with its choices in order; not `exact` if it changes the order of summation."""

    name: str
    choices: tuple[Value, ...]
    exact: bool = True


def _is_any_legal(values: Values) -> bool:
    return True


def _no_traits(values: Values) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True, eq=False)
class Space:
    """All combinations of knobs, of which some are `legal`; `default` is the untuned one.

    `estimate` predicts seconds, or a number proportional to them; None without a prediction. `traits` are
    numbers that are comparable between spaces of the same kind.
    """

    knobs: tuple[Knob, ...]
    default: Point
    legal: Callable[[Values], bool] = _is_any_legal
    estimate: Callable[[Values], float] | None = None
    traits: Callable[[Values], tuple[float, ...]] = _no_traits
    _legal: dict[Point, bool] = field(default_factory=dict)

    @property
    def combinations(self) -> int:
        """The number of combinations, legal or not."""
        return prod(len(k.choices) for k in self.knobs)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """All legal points, in order; empty for very large spaces."""
        if self.combinations > MAX_LISTED_POINTS:
            return ()
        combinations = product(*(range(len(k.choices)) for k in self.knobs))
        return tuple(p for p in combinations if self.is_legal(p))

    def values(self, point: Point) -> dict[str, Value]:
        """Return the choices at a point, by knob."""
        return {k.name: k.choices[i] for k, i in zip(self.knobs, point, strict=True)}

    def is_legal(self, point: Point) -> bool:
        """Return whether a combination may be run; the default always may."""
        legal = self._legal.get(point)
        if legal is None:
            legal = self._legal[point] = point == self.default or self.legal(self.values(point))
        return legal

    def point(self, values: Values) -> Point | None:
        """Return the point with exactly these `values`; None if it does not exist or is illegal."""
        if any(values.get(k.name) not in k.choices for k in self.knobs) or len(values) != len(self.knobs):
            return None
        point = tuple(k.choices.index(values[k.name]) for k in self.knobs)
        return point if self.is_legal(point) else None

    def nearest(self, values: Values) -> Point | None:
        """Return the point closest to `values`, which may come from another space; None if it is illegal."""
        point = tuple(_nearest(k.choices, values[k.name]) if k.name in values else self.default[i]
                      for i, k in enumerate(self.knobs))
        return point if self.is_legal(point) else None

    def random(self, rng: np.random.Generator) -> Point:
        """Return a uniformly random legal point."""
        if self.points:
            return self.points[int(rng.integers(len(self.points)))]
        for _ in range(MAX_RANDOM_TRIES):
            point = tuple(int(rng.integers(len(k.choices))) for k in self.knobs)
            if self.is_legal(point):
                return point
        return self.default

    def neighbours(self, point: Point) -> Iterator[Point]:
        """Yield the legal points that differ by one step of one knob."""
        for at, knob in enumerate(self.knobs):
            for other in (point[at] - 1, point[at] + 1):
                moved = (*point[:at], other, *point[at + 1:])
                if 0 <= other < len(knob.choices) and self.is_legal(moved):
                    yield moved

    def pinned(self, values: Values) -> Space:
        """Return the space in which knobs are fixed to `values`, which must be among their choices."""
        knobs, default = list(self.knobs), list(self.default)
        names = [k.name for k in knobs]
        for name, value in values.items():
            if name not in names:
                raise ConfigError(f"unknown knob {name}; knobs: {', '.join(names) or 'none'}")
            at = names.index(name)
            if value not in knobs[at].choices:
                choices = ", ".join(map(str, knobs[at].choices))
                raise ConfigError(f"{name} must be one of {choices}, not {value!r}")
            knobs[at], default[at] = replace(knobs[at], choices=(value,)), 0
        space = Space(tuple(knobs), tuple(default), self.legal, self.estimate, self.traits)
        defaults = space.values(space.default)
        if defaults == self.values(self.default) or self.legal(defaults):
            return space
        for point in product(*(range(len(k.choices)) for k in knobs)):
            if self.legal(space.values(point)):
                return replace(space, default=point, _legal={})
        raise ConfigError(f"no schedule with {', '.join(f'{k}={v}' for k, v in values.items())} is legal")

    def exact(self) -> Space:
        """Return the space without choices that change the order of summation."""
        fixed = {k.name: k.choices[i] for k, i in zip(self.knobs, self.default, strict=True) if not k.exact}
        return self.pinned(fixed) if fixed else self


def _nearest(choices: tuple[Value, ...], value: Value) -> int:
    if isinstance(value, str):
        return choices.index(value) if value in choices else 0
    numbers = [(abs(np.log2((c + 1) / (value + 1))), i) for i, c in enumerate(choices) if isinstance(c, int)]
    return int(min(numbers)[1]) if numbers else 0
