"""Abstract values of the operands that a loop is entered with, and of what it goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit.builder import ProgramBuilder
from jitla.loopjit.flow import Environment, representation
from jitla.loopjit.list_memory import class_of, unify_operands
from jitla.loopjit.list_types import ListTypes
from jitla.loopjit.objects import OpaqueField, is_plain_object
from jitla.loopjit.operands import CONSTANTS, LARGE_BITS, MAX_TUPLE, SMALL_BITS, ListItems
from jitla.loopjit.rewriting import SEQUENCE, START
from jitla.loopjit.sources import Enumerated, Items, LiveItems, Range, Source, Zipped
from jitla.loopjit.state import NO_LISTS, ListKinds
from jitla.loopjit.values import (
    IS_OBJECT,
    KIND_OF_TYPE,
    STORAGE,
    Abstract,
    Arr,
    Conflict,
    Instance,
    Iterated,
    ListOf,
    LoweringRefused,
    Num,
    Ranged,
    StaticValue,
    Tup,
    kind_range,
    number,
)


def entry_environment(
    b: ProgramBuilder, names: Sequence[str], values: Sequence[Any], groups: Sequence[int],
    lists: ListKinds = NO_LISTS, types: ListTypes | None = None,
) -> Environment:
    """Return the variables of a loop that is entered with `values`."""
    types = types or ListTypes()
    operands = OperandValues(list(groups), lists, types)
    found = {name: representation(b, name, operands.abstract(value, (name,)))
             for name, value in zip(names, values, strict=True)}
    unify_operands(types, lists.pairs)
    return found


@dataclass(eq=False)
class OperandValues:
    """Makes abstract values of operands; `groups` are those of the arrays that are still to come."""

    groups: list[int]
    lists: ListKinds
    types: ListTypes

    def abstract(self, value: Any, path: tuple[Any, ...]) -> Abstract:
        """Return the abstract value of an operand."""
        kind = type(value)
        if kind is list and path in self.lists.observed:
            return ListOf(ir.constant(0), class_of(self.types, path, self.lists.observed[path]))
        if kind is tuple and len(value) <= MAX_TUPLE:
            return Tup(tuple(self.abstract(item, (*path, k)) for k, item in enumerate(value)))
        if value is OpaqueField:
            return Conflict("reads or stores of it may do more")
        if len(path) == 1 and is_plain_object(value) and not isinstance(value, CONSTANTS):
            return Instance(path[0], kind)
        return abstract(value, self.groups)


def abstract(value: Any, groups: list[int]) -> Abstract:
    """Return the abstract value of a Python value that is no list; `groups` are as in `OperandValues`."""
    kind = type(value)
    if kind is np.ndarray:
        group = groups.pop(0)
        if value.dtype.str[1:] not in STORAGE or not value.dtype.isnative or not value.ndim \
                or not value.flags.aligned:
            return Conflict(f"an array of {value.dtype} with {value.ndim} axes that programs do not have")
        origins = frozenset({f"group {group}", IS_OBJECT})
        return Arr("", value.dtype, value.ndim, origins, value.flags.writeable,
                   single=frozenset(axis for axis, size in enumerate(value.shape) if size == 1))
    if kind is int:
        bits = value.bit_length()
        if bits > LARGE_BITS:
            raise LoweringRefused("an integer of more than 62 bits")
        limit = (1 << (SMALL_BITS if bits <= SMALL_BITS else LARGE_BITS)) - 1
        return Num(frozenset({"int"}), ir.constant(0), None, 0 if value >= 0 else -limit, limit)
    if kind in KIND_OF_TYPE:
        name = KIND_OF_TYPE[kind]
        bounds = kind_range(name)
        return Num(frozenset({name}), ir.constant(0, STORAGE[name]), None, *bounds)
    if kind is ListItems:
        return Tup(tuple(abstract(item, groups) for item in value), True)
    if isinstance(value, CONSTANTS):
        return StaticValue(value)
    return Conflict(f"a variable is a {kind.__name__}")


def lower_source(b: ProgramBuilder, groups: Sequence[int], source: Source, lists: ListKinds = NO_LISTS,
                 types: ListTypes | None = None) -> Abstract:
    """Return the abstract value of what a loop goes through; its parameters are declared."""
    return _SourceLowering(b, groups, lists, types or ListTypes()).lower(source)


class _SourceLowering:
    """Declares the parameters of a program for what its loop goes through."""

    def __init__(self, b: ProgramBuilder, groups: Sequence[int], lists: ListKinds, types: ListTypes) -> None:
        self.b = b
        self._groups = list(groups)
        self._starts = self._arrays = self._lists = 0
        self._kinds, self._types = lists, types

    def lower(self, source: Source) -> Abstract:
        """Return the abstract value of `source`."""
        match source:
            case Range():
                _, step, least, small, fits = source.key
                if not fits:
                    raise LoweringRefused("a range of integers of more than 62 bits")
                limit = (1 << (SMALL_BITS if small else 2 * SMALL_BITS)) - 1
                start = self.b.scalar(f"{START}{self._starts}", ir.INT64)
                self._starts += 1
                low = least if least >= 0 else -limit
                first = Num(frozenset({"int"}), start, None, low, limit)
                stop = Num(frozenset({"int"}), ir.constant(0), None, low - (step < 0), limit)
                return Ranged(first, stop, number(step))
            case Items(array=array):
                value = abstract(array, self._groups)
                if not isinstance(value, Arr):
                    raise LoweringRefused(f"a loop over an array of {array.dtype}")
                view = self.b.view(f"{SEQUENCE}{self._arrays}", value.dtype, value.ndim)
                self._arrays += 1
                self.b.enter_with(view, value)
                return Arr(view, value.dtype, value.ndim, value.origins, value.writeable)
            case LiveItems():
                path = (SEQUENCE, self._lists)
                handle = self.b.scalar(f"{SEQUENCE}.list{self._lists}", ir.INT64)
                self._lists += 1
                if path not in self._kinds.observed:
                    raise LoweringRefused("a loop over a list of other objects than numbers")
                return ListOf(handle, class_of(self._types, path, self._kinds.observed[path]))
            case Enumerated(inner=inner, start=begin):
                return Iterated("enumerate", (self.lower(inner),), number(begin))
            case Zipped(parts=parts):
                return Iterated("zip", tuple(self.lower(part) for part in parts))
        raise AssertionError(source)
