"""Paths through a program: the values of variables where they meet, and the conversions that this takes.

Every path that reaches a meeting point ends in an `Edge`, a place for statements. Where the kinds of a
variable differ, the variable gets a representation for all of them, and each edge converts to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit.arrays import identity_axes
from jitla.loopjit.builder import Edge, ProgramBuilder, compare
from jitla.loopjit.list_types import UNBOUND_HANDLE
from jitla.loopjit.scalars import stored_as, tag_of
from jitla.loopjit.values import (
    INT64_LOW,
    IS_VIEW,
    NONE,
    OBJECT_TAG,
    TAG_DTYPE,
    TAGS,
    UNBOUND,
    VIEW_TAG,
    Abstract,
    Arr,
    Conflict,
    Instance,
    ListOf,
    Num,
    StaticValue,
    Tup,
    Union,
    is_none,
    join,
    kind_range,
    option_of,
    storage_of,
)

Environment = dict[str, Abstract]


@dataclass(eq=False)
class Meeting:
    """A point where paths meet: the edges of the paths, with the values of variables on each."""

    edges: list[tuple[Edge, Environment]]

    @staticmethod
    def empty() -> Meeting:
        """Return a point that no path has reached."""
        return Meeting([])

    def reach(self, b: ProgramBuilder, env: Environment) -> None:
        """End the current path here; a jump may follow."""
        edge = Edge([])
        b.emit(edge)
        self.edges.append((edge, dict(env)))

    def merge(self, b: ProgramBuilder, scope: str) -> Environment | None:
        """Return the variables behind the meeting point, and fill the edges; None if nothing reaches it."""
        if not self.edges:
            return None
        if len(self.edges) == 1:
            return self.edges[0][1]
        merged = meet([env for _, env in self.edges], scope, b)
        for edge, env in self.edges:
            convert_all(b, edge, env, merged)
        return merged


def meet(envs: list[Environment], scope: str, b: ProgramBuilder) -> Environment:
    """Return the representation of all variables where paths with these values meet."""
    merged: Environment = {}
    for name in dict.fromkeys(name for env in envs for name in env):
        values = [env.get(name) for env in envs]
        first = values[0]
        if first is not None and all(value is first for value in values):
            merged[name] = first
        else:
            merged[name] = representation(b, f"{scope}{name}", join(values))
    return merged


def representation(b: ProgramBuilder, name: str, value: Abstract) -> Abstract:
    """Return a value held in the variables of `name`."""
    match value:
        case Num():
            storage = storage_of(value.kinds)
            held = b.scalar(f"{name}.{storage.str[1:]}", storage)
            tagged = len(value.kinds) > 1
            tag = b.scalar(f"{name}.tag", TAG_DTYPE) if tagged else None
            return Num(value.kinds, held, tag, value.low, value.high, value.known)
        case Arr():
            view = b.view(f"{name}.{value.dtype.str[1:]}_{value.ndim}", value.dtype, value.ndim)
            tag = b.scalar(f"{name}.tag", TAG_DTYPE) if value.tag is not None else None
            return Arr(view, value.dtype, value.ndim, value.origins, value.writeable, None, tag,
                       single=value.single)
        case ListOf():
            return ListOf(b.scalar(f"{name}.list", ir.INT64), value.lists, value.may_be_unbound)
        case Tup(items):
            return Tup(tuple(representation(b, f"{name}.{k}", item) for k, item in enumerate(items)),
                       value.is_list)
        case Union(options):
            return Union(tuple(representation(b, name, option) for option in options),
                         b.scalar(f"{name}.option", TAG_DTYPE))
        case StaticValue() | Instance() | Conflict():
            return value
        case _:
            return Conflict(f"a variable is a {type(value).__name__.lower()} on several paths")


def convert_all(b: ProgramBuilder, edge: Edge, env: Mapping[str, Abstract], target: Environment) -> None:
    """Fill an edge with the conversions of all variables to those of `target`."""
    with b.into(edge.statements):
        for name, value in target.items():
            source = env.get(name)
            if source is not value:
                convert(b, source, value)


def convert(b: ProgramBuilder, source: Abstract | None, target: Abstract) -> None:
    """Assign a value to the variables of `target`; None is an unbound variable."""
    match target:
        case Union(options):
            assert isinstance(target.number, ir.Read)
            if isinstance(source, Union):
                _convert_union(b, source, target)
                return
            number = option_of(target, source)
            convert(b, source, options[number])
            b.assign(target.number.name, ir.constant(number, TAG_DTYPE))
        case Num():
            assert isinstance(target.value, ir.Read)
            if isinstance(source, Num):
                b.assign(target.value.name, stored_as(b, source, target.value.dtype))
            elif is_none(source):
                b.assign(target.value.name, ir.constant(0, target.value.dtype))
            if isinstance(target.tag, ir.Read):
                tag = tag_of(source) if isinstance(source, Num) else ir.constant(
                    TAGS[NONE] if is_none(source) else 0, TAG_DTYPE)
                b.assign(target.tag.name, tag)
        case Arr():
            if isinstance(source, Arr):
                copy_view(b, target.view, source)
            if isinstance(target.tag, ir.Read):
                tag = ir.constant(0, TAG_DTYPE)
                if isinstance(source, Arr):
                    known = VIEW_TAG if IS_VIEW in source.origins else OBJECT_TAG
                    tag = source.tag if source.tag is not None else ir.constant(known, TAG_DTYPE)
                b.assign(target.tag.name, tag)
        case ListOf(handle=ir.Read(name)):
            b.assign(name, source.handle if isinstance(source, ListOf) else ir.constant(UNBOUND_HANDLE))
        case Tup(items) if isinstance(source, Tup):
            for one, other in zip(source.items, items, strict=True):
                convert(b, one, other)


def _convert_union(b: ProgramBuilder, source: Union, target: Union) -> None:
    """Assign a variable of several types to another: the value of the option that it is of."""
    assert isinstance(target.number, ir.Read)
    copy = b.temporary(source.number)
    for k, option in enumerate(source.options):
        with b.into([]) as statements:
            convert(b, option, target)
        same = ir.Assign(target.number.name, ir.constant(k, TAG_DTYPE))
        if statements != [same] or source.number != target.number:
            b.emit(ir.If(compare("equal", copy, ir.constant(k, TAG_DTYPE)),
                         statements))  # type: ignore[arg-type]


def copy_view(b: ProgramBuilder, view: str, source: Arr) -> None:
    """Assign an array to the view variable `view`."""
    if view != source.view:
        b.emit(ir.BindView(view, source.view, (), identity_axes(
            Arr(source.view, source.dtype, source.ndim, source.origins))))


def widened(before: Abstract, after: Abstract) -> Abstract:
    """Return the value of a variable at a loop header after another round: bounds that moved are given up."""
    if isinstance(before, Num) and isinstance(after, Num):
        ranges = [kind_range(kind) for kind in after.kinds if kind not in (UNBOUND, NONE)]
        least, most = min(r[0] for r in ranges), max(r[1] for r in ranges)
        low = after.low if after.low >= before.low else max(INT64_LOW, least)
        high = after.high if after.high <= before.high else most
        return Num(after.kinds, after.value, after.tag, low, high, after.known)
    if isinstance(before, Tup) and isinstance(after, Tup) and len(before.items) == len(after.items):
        return Tup(tuple(map(widened, before.items, after.items)), after.is_list)
    if isinstance(before, Union) and isinstance(after, Union) and len(before.options) == len(after.options):
        return Union(tuple(map(widened, before.options, after.options)), after.number)
    return after


def restricted(env: Environment, names: Iterable[str]) -> Environment:
    """Return the variables with these names."""
    wanted = set(names)
    return {name: value for name, value in env.items() if name in wanted}
