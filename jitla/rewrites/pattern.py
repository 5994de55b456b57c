"""The language in which rewrites are written: variables, constructors, match and build.

Knows: the op table's names and which ops commute. Must not know: any particular rewrite.
Receives hops and patterns; returns bindings of variables, or hops built from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.errors import InternalError
from jitla.hops import Hop, const, const_value, lookup, make

Bound = dict[str, Any]
Shared = Callable[[Hop], bool]


@dataclass(frozen=True, slots=True)
class Var:
    """Stands for any hop; the same variable twice means the very same node."""

    name: str


@dataclass(frozen=True, slots=True)
class AttrVar:
    """Stands for the value of an attribute."""

    name: str


@dataclass(frozen=True, slots=True)
class Num:
    """A 0-d constant of exactly this value (-0.0 is not 0.0); built with the dtype of `like`."""

    value: Any
    like: Var | None = None


@dataclass(frozen=True, slots=True)
class AnyConst:
    """Stands for any 0-d constant; bound as a hop."""

    name: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Stands for all further operands of an operator that takes any number; bound as a tuple of hops."""

    name: str


@dataclass(frozen=True, slots=True)
class App:
    """An operator applied to patterns; `once` asks that the node has no other user."""

    op: str
    args: tuple[Pattern, ...]
    attrs: tuple[tuple[str, Any], ...] = ()
    once: bool = False


Pattern = Var | Num | AnyConst | Rest | App


class _Constructors:
    """One constructor per entry of the op table: ``ops.add(X, Y)`` is the pattern of that op."""

    def __getattr__(self, name: str) -> Callable[..., App]:
        try:
            arity = lookup(name).arity
        except KeyError:
            raise InternalError(f"rewrites: {name!r} is not in the op table") from None

        def construct(*args: Pattern, **attrs: Any) -> App:
            if arity is not None and len(args) != arity:
                raise InternalError(f"rewrites: {name} takes {arity} operands, not {len(args)}")
            return App(name, args, tuple(sorted(attrs.items())))

        return construct


ops = _Constructors()


def once(pattern: App) -> App:
    """Return `pattern` restricted to nodes that nothing else uses, so that it goes away."""
    return replace(pattern, once=True)


def variables(pattern: Pattern) -> set[str]:
    """Return the names that `pattern` binds or needs."""
    match pattern:
        case Var(name) | AnyConst(name) | Rest(name):
            return {name}
        case Num(_, like):
            return {like.name} if like else set()
        case App(_, args, attrs):
            below = {v.name for _, v in attrs if isinstance(v, AttrVar)}
            return below.union(*map(variables, args))


def numbers(pattern: Pattern) -> Iterator[tuple[str, frozenset[float]]]:
    """Yield each operator in `pattern` that has a number as operand, with the number; nothing for any."""
    if isinstance(pattern, App):
        for arg in pattern.args:
            if isinstance(arg, Num):
                yield pattern.op, frozenset({arg.value})
            elif isinstance(arg, AnyConst):
                yield pattern.op, frozenset()
            yield from numbers(arg)


def operand_ops(app: App) -> frozenset[str]:
    """Return the ops that the operands of a match have."""
    apps = {a.op for a in app.args if isinstance(a, App)}
    return frozenset(apps | {"const" for a in app.args if isinstance(a, (Num, AnyConst))})


def matches(pattern: Pattern, hop: Hop, bound: Bound, shared: Shared) -> Iterator[Bound]:
    """Yield every way in which `hop` fits `pattern`, extending `bound`."""
    match pattern:
        case Var(name):
            if bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case Num(value):
            if hop.op.name == "const" and same_number(const_value(hop), value):
                yield bound
        case AnyConst(name):
            if hop.op.name == "const" and bound.get(name, hop) is hop:
                yield {**bound, name: hop}
        case App():
            if hop.op.name == pattern.op and not (pattern.once and shared(hop)):
                yield from _match_parts(pattern, hop, bound, shared)


def _match_parts(app: App, hop: Hop, bound: Bound, shared: Shared) -> Iterator[Bound]:
    """Match attributes, then operands in each order the op allows."""
    open_ended = bool(app.args) and isinstance(app.args[-1], Rest)
    if len(app.args) != len(hop.inputs) and not (open_ended and len(app.args) <= len(hop.inputs) + 1):
        return
    start = _match_attrs(app, hop, bound)
    if start is None:
        return
    yield from _match_all(app.args, hop.inputs, start, shared)
    if hop.op.swaps(hop.meta.dtype) and len(hop.inputs) == 2 and hop.inputs[0] is not hop.inputs[1]:
        yield from _match_all(app.args, hop.inputs[::-1], start, shared)


def _match_attrs(app: App, hop: Hop, bound: Bound) -> Bound | None:
    found = dict(bound)
    given = dict(hop.attrs)
    for name, want in app.attrs:
        if name not in given:
            return None
        value = given[name]
        if isinstance(want, AttrVar):
            want = found.setdefault(want.name, value)
        if type(want) is not type(value) or want != value:
            return None
    return found


def _match_all(
    patterns: tuple[Pattern, ...], hops: tuple[Hop, ...], bound: Bound, shared: Shared,
) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    if isinstance(patterns[0], Rest):
        yield {**bound, patterns[0].name: hops}
        return
    for first in matches(patterns[0], hops[0], bound, shared):
        yield from _match_all(patterns[1:], hops[1:], first, shared)


def build(pattern: Pattern, bound: Mapping[str, Any], line: Any = None) -> Hop:
    """Return the hop that `pattern` stands for under `bound`; new nodes get the user's `line`."""
    match pattern:
        case Var(name) | AnyConst(name):
            hop: Hop = bound[name]
            return hop
        case Num(value, like):
            if like is None:
                raise InternalError(f"rewrites: to build {value!r} needs a dtype (like=)")
            return const(value, bound[like.name].meta.dtype)
        case Rest(name):
            raise InternalError(f"rewrites: {name!r} stands for several operands, which build() has to place")
        case App(op, args, attrs):
            given = {n: bound[v.name] if isinstance(v, AttrVar) else v for n, v in attrs}
            return make(op, [build(a, bound, line) for a in args], line, **given)


def same_number(found: Any, wanted: Any) -> bool:
    """Say whether the NumPy scalar `found` has the value `wanted`, sign of zero included."""
    if isinstance(found, np.bool_) != isinstance(wanted, bool) or found.dtype.kind not in "biuf":
        return False
    if found != wanted:
        return False
    negative = math.copysign(1.0, wanted) < 0
    return bool(found) or found.dtype.kind != "f" or bool(np.signbit(found)) == negative
