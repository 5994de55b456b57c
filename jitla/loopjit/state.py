"""State of loop programs: how the values of variables are written and read back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopir import read_memory
from jitla.loopjit.list_memory import Handle, ListMemory, Observed
from jitla.loopjit.list_types import UNBOUND_HANDLE
from jitla.loopjit.operands import (
    address_of,
)
from jitla.loopjit.rewriting import Unassigned
from jitla.loopjit.values import (
    EXACT_FLOAT64,
    IS_OBJECT,
    IS_VIEW,
    KIND_OF_TYPE,
    KIND_TYPES,
    NONE,
    OBJECT_TAG,
    STORAGE,
    TAGS,
    UNBOUND,
    VIEW_TAG,
    Abstract,
    Arr,
    Instance,
    ListOf,
    Num,
    StaticValue,
    Tup,
    Union,
)

_KIND_BY_TAG = {code: kind for kind, code in TAGS.items()}


@dataclass(frozen=True)
class ListKinds:
    """The types of items of lists among the operands of a loop, and the lists that are one object."""

    observed: Mapping[tuple[Any, ...], Observed]
    pairs: frozenset[Any]


NO_LISTS = ListKinds({}, frozenset())
_FORMATS = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
            "f4": "f", "f8": "d"}


def state_writer(
    values: Mapping[str, Abstract], names: Sequence[str], places: Mapping[str, int],
) -> Callable[[bytearray, Sequence[Any]], None]:
    """Return a function that writes the values of `names`; other variables are unbound."""
    writers = [(names.index(name), _writer(value, places)) for name, value in values.items()
               if name in names and not isinstance(value, (StaticValue, Instance))]
    unbound = [_writer(value, places) for name, value in values.items()
               if name not in names and not isinstance(value, (StaticValue, Instance))]

    def write(state: bytearray, given: Sequence[Any]) -> None:
        for place, writer in writers:
            writer(state, given[place])
        for writer in unbound:
            writer(state, Unassigned)

    return write


def _writer(value: Abstract, places: Mapping[str, int]) -> Callable[[bytearray, Any], None]:
    match value:
        case Num(value=ir.Read(name, dtype), tag=tag):
            return _number_writer(dtype, 8 * places[name], tag, places)
        case Arr(view, tag=tag):
            offset = 8 * places[view]
            packer = struct.Struct(f"={1 + 2 * value.ndim}q")
            tag_offset = 8 * places[tag.name] if isinstance(tag, ir.Read) else -1

            def write(state: bytearray, array: Any) -> None:
                if tag_offset >= 0:
                    state[tag_offset] = 0 if array is Unassigned else OBJECT_TAG
                if array is not Unassigned:
                    packer.pack_into(state, offset, address_of(array), *array.shape, *array.strides)

            return write
        case ListOf(handle=ir.Read(name)):
            packer, offset = struct.Struct("=q"), 8 * places[name]

            def write_handle(state: bytearray, handle: Any) -> None:
                packer.pack_into(state, offset, UNBOUND_HANDLE if handle is Unassigned else handle)

            return write_handle
        case Tup(items):
            numbers = [k for k, item in enumerate(items) if not isinstance(item, (StaticValue, Instance))]
            writers = [_writer(items[k], places) for k in numbers]

            def write_items(state: bytearray, value: Any) -> None:
                for k, writer in zip(numbers, writers, strict=True):
                    writer(state, value[k])

            return write_items
        case Union(options, ir.Read(name)):
            offset = 8 * places[name]
            branches = [(k, option, _writer(option, places)) for k, option in enumerate(options)]

            def write_option(state: bytearray, value: Any) -> None:
                number, writer = next((k, writer) for k, option, writer in branches if is_of(option, value))
                state[offset] = number
                writer(state, value)

            return write_option
    return lambda state, value: None


def is_of(option: Abstract, value: Any) -> bool:
    """Return whether a Python value can be held in the variables of an abstract value."""
    match option:
        case Num(kinds):
            return value is None and NONE in kinds or value is Unassigned and UNBOUND in kinds \
                or KIND_OF_TYPE.get(type(value)) in kinds
        case Arr():
            return type(value) is np.ndarray and (value.dtype, value.ndim, value.flags.writeable) == (
                option.dtype, option.ndim, option.writeable)
        case Tup(items):
            return type(value) is tuple and len(value) == len(items)
        case ListOf():
            return isinstance(value, Handle)
        case StaticValue(thing):
            return value is thing
    return False


def _number_writer(dtype: np.dtype, offset: int, tag: Any, places: Mapping[str, int],
                   ) -> Callable[[bytearray, Any], None]:
    tag_offset = 8 * places[tag.name] if isinstance(tag, ir.Read) else -1
    letters = _FORMATS.get(dtype.str[1:])
    if letters is None:
        def write_complex(state: bytearray, value: Any) -> None:
            if tag_offset >= 0:
                state[tag_offset] = _tag_of(value)
                _require_exact(value)
            if value is not Unassigned and value is not None:
                data = dtype.type(value).tobytes()
                state[offset:offset + len(data)] = data

        return write_complex
    packer = struct.Struct(f"={letters}")
    kind = float if dtype.kind == "f" else int

    def write_tagged(state: bytearray, value: Any) -> None:
        state[tag_offset] = _tag_of(value)
        if value is not Unassigned and value is not None:
            if kind is float:
                _require_exact(value)
            packer.pack_into(state, offset, kind(value))

    def write(state: bytearray, value: Any) -> None:
        if value is not Unassigned:
            packer.pack_into(state, offset, value)

    return write_tagged if tag_offset >= 0 else write


def _tag_of(value: Any) -> int:
    """Return the tag of the kind of a value."""
    return TAGS[UNBOUND if value is Unassigned else NONE if value is None else KIND_OF_TYPE[type(value)]]


def _require_exact(value: Any) -> None:
    """Raise OverflowError for an integer that float64 may not hold: code cannot be entered with it."""
    if isinstance(value, (int, np.integer)) and abs(int(value)) > EXACT_FLOAT64:
        raise OverflowError("an integer of more than 53 bits")


def read_results(
    results: Mapping[str, Abstract], state: bytearray | bytes, places: Mapping[str, int],
    arrays: Sequence[np.ndarray], lists: ListMemory | None = None,
) -> dict[str, Any]:
    """Return the variables that a program gives back; `Unassigned` for those that have no value."""
    memory = _Memory(arrays, lists)
    found = {name: _read(value, state, places, memory) for name, value in results.items()}
    if memory.spans:
        memory.copy_spans()
        found = {name: _read(value, state, places, memory) for name, value in results.items()}
    return found


def _read(
    value: Abstract, state: bytearray | bytes, places: Mapping[str, int], memory: _Memory,
) -> Any:
    match value:
        case Num(kinds, ir.Read(name, dtype), tag):
            kind = _KIND_BY_TAG[state[8 * places[tag.name]]] if isinstance(tag,
                                                                           ir.Read) else next(iter(kinds))
            if kind == UNBOUND:
                return Unassigned
            if kind == NONE:
                return None
            offset = 8 * places[name]
            stored = np.frombuffer(state[offset:offset + dtype.itemsize], dtype)[0].item()
            if type(stored) is complex and STORAGE[kind].kind != "c":
                stored = stored.real
            return KIND_TYPES[kind](stored)
        case Arr(view, tag=tag):
            known = VIEW_TAG if IS_VIEW in value.origins and IS_OBJECT not in value.origins else OBJECT_TAG
            found = state[8 * places[tag.name]] if isinstance(tag, ir.Read) else known
            if not found:
                return Unassigned
            words = struct.unpack_from(f"={1 + 2 * value.ndim}q", state, 8 * places[view])
            shape, strides = words[1:1 + value.ndim], words[1 + value.ndim:]
            return memory.array(words[0], value.dtype, shape, strides, value.writeable, found == VIEW_TAG)
        case Tup(items):
            parts = [_read(item, state, places, memory) for item in items]
            return Unassigned if any(part is Unassigned for part in parts) else tuple(parts)
        case ListOf(handle=ir.Read(name)):
            assert memory.lists is not None
            (handle,) = struct.unpack_from("=q", state, 8 * places[name])
            return memory.lists.list_at(handle, value.lists.find())
        case StaticValue(thing):
            return thing
        case Union(options, ir.Read(name)):
            return _read(options[state[8 * places[name]]], state, places, memory)
    raise AssertionError(value)


class _Memory:
    """Finds the arrays that views of a program stand for.

    Memory of the arena is copied: first the spans of all views are collected, then `copy_spans` copies those
    that overlap as one, so that arrays share memory as views do.
    """

    def __init__(self, arrays: Sequence[np.ndarray], lists: ListMemory | None) -> None:
        self._arrays = arrays
        self.lists = lists
        self.spans: list[tuple[int, int]] = []
        self._copies: list[tuple[int, int, bool, np.ndarray]] = []  # begin, end, whether views share it, copy
        self._views: dict[Any, np.ndarray] = {}

    def array(self, address: int, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...],
              writeable: bool, is_view: bool) -> np.ndarray | None:
        """Return the operand that is there, a view of one or of a copy; None if the copy is not made yet."""
        for array in self._arrays:
            if not is_view and address_of(array) == address and array.shape == shape \
                    and array.strides == strides \
                    and array.dtype == dtype and array.flags.writeable == writeable:
                return array
        for array in self._arrays:
            low, high = np.lib.array_utils.byte_bounds(array)
            if low <= address < high and array.flags.writeable == writeable:
                return _view(array, address, dtype, shape, strides)
        key = address, dtype, shape, strides
        if key not in self._views:
            if 0 in shape:
                self._views[key] = np.empty(shape, dtype)
                return self._views[key]
            ends = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
            low = address + sum(end for end in ends if end < 0)
            high = address + sum(end for end in ends if end > 0) + dtype.itemsize
            if not self._copies:
                self.spans.append((low, high))
                return None
            begin, _, is_shared, copy = next(found for found in self._copies if found[0] <= low < found[1])
            view = np.ndarray(shape, dtype, copy, address - begin, strides)
            self._views[key] = view if is_shared or not view.flags.c_contiguous else view.copy()
        return self._views[key]

    def copy_spans(self) -> None:
        """Copy the memory of the collected spans."""
        merged: list[tuple[int, int, bool]] = []
        for low, high in sorted(self.spans):
            if merged and low < merged[-1][1]:
                merged[-1] = merged[-1][0], max(high, merged[-1][1]), True
            else:
                merged.append((low, high, False))
        single = np.dtype(np.uint8)
        self._copies = [(low, high, is_shared, read_memory(low, single, (high - low,), (1,)).copy())
                        for low, high, is_shared in merged]


class _Interface:
    """Memory of an array from another address on; NumPy makes a view of it that keeps the array alive."""

    def __init__(self, array: np.ndarray, interface: dict[str, Any]) -> None:
        self.array = array
        self.__array_interface__ = interface


def _view(array: np.ndarray, address: int, dtype: np.dtype, shape: tuple[int, ...],
          strides: tuple[int, ...]) -> np.ndarray:
    """Return a view of the memory of an array, whose base is that which NumPy's views of it have."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.flags.c_contiguous and owner.flags.writeable and array.flags.writeable:
        return np.ndarray(shape, dtype, owner, address - address_of(owner), strides)
    interface = {"data": (address, not array.flags.writeable), "shape": shape, "strides": strides,
                 "typestr": dtype.str, "version": 3}
    return np.asarray(_Interface(array, interface))
