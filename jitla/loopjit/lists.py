"""Lists in loops: memory that the program is entered with, with a header of three words for each list.

A list is the address of its header, so that names and other lists can share it. Its items are held as words
of its class (`jitla.loopjit.list_types`); appending moves them to more memory. Memory is taken from a heap
that lives until the program is left; `jitla.loopjit.list_memory` writes lists to it, and reads them back.
Items are read when the expression is evaluated, as later operands may change the list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import arrays, scalars
from jitla.loopjit.builder import (
    LoweringContext,
    ProgramBuilder,
    apply,
    both,
    cast,
    choose,
    compare,
    minus,
    negated,
    out_of_bounds,
    plus,
    times,
)
from jitla.loopjit.list_types import (
    CAPACITY,
    DATA,
    HEADER_WORDS,
    HEAP,
    HEAP_END,
    LENGTH,
    UNBOUND_HANDLE,
    WORD_BYTES,
    ItemPart,
    ItemType,
    ListClass,
    ListTypes,
    leaves_of,
    words_of,
)
from jitla.loopjit.loop_sites import NO_LIST_MEMORY
from jitla.loopjit.values import (
    MAX_EXTENT,
    NONE,
    STORAGE,
    UNBOUND,
    Abstract,
    Arr,
    ListOf,
    LoweringRefused,
    Num,
    Sliced,
    StaticValue,
    Tup,
    describe,
    is_none,
    kind_range,
    number,
    of_kind,
)

MIN_CAPACITY = 4  # items that there is memory for in a list that grows
MAX_ITEMS = 1 << 40
EMPTY = "an item of an empty list"
ZERO, ONE = ir.constant(0), ir.constant(1)


class ListContext(LoweringContext, Protocol):
    """The lowering as lists see it."""

    list_types: ListTypes

    def class_name(self) -> Hashable:
        """Return the name of the class of lists that the present expression makes."""
        ...

    def settled(self, value: Abstract) -> Abstract:
        """Return a value that later statements do not change."""
        ...

    def iteration(self, source: Abstract) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return the number of items of what a loop goes through, and the function from index to item."""
        ...


class NoItemsYet(LoweringRefused):
    """An item is read of a list for which no statement so far has items."""


# --------------------------------------------------------------------------- memory


def allocate(b: ProgramBuilder, words: ir.Value) -> ir.Value:
    """Return the address of `words` words of new memory, from the heap of the run; without any, leave."""
    begin = b.temporary(b.scalar(HEAP, ir.INT64))
    left = apply("right_shift", apply("subtract", b.scalar(HEAP_END, ir.INT64), begin), ir.constant(3))
    b.check(compare("greater", words, left), NO_LIST_MEMORY)
    b.assign(HEAP, plus(begin, times(words, ir.constant(WORD_BYTES))))
    return begin


def words_at(b: ProgramBuilder, address: ir.Value, count: ir.Value, word: int = 0,
             dtype: np.dtype = ir.INT64, apart: int = 1) -> str:
    """Return a view of memory: `count` elements of a dtype, `apart` words from each other, from a word on."""
    view = b.view(b.fresh("w"), dtype, 1)
    b.emit(ir.BindMemory(view, plus(address, ir.constant(WORD_BYTES * word)), (count,),
                         (ir.constant(WORD_BYTES * apart),)))
    return view


def header(b: ProgramBuilder, value: ListOf) -> str:
    """Return a view of the header of a list."""
    return words_at(b, value.handle, ir.constant(HEADER_WORDS))


def field(b: ProgramBuilder, view: str, word: int) -> ir.Value:
    """Return a word of a header, as it is now."""
    return b.temporary(ir.Element(view, (ir.constant(word),), ir.INT64))


def require_list(b: ProgramBuilder, value: ListOf) -> ListOf:
    """Return a list variable that has a value; where it has none Python raises UnboundLocalError."""
    if not value.may_be_unbound:
        return value
    b.check(compare("equal", value.handle, ir.constant(UNBOUND_HANDLE)), "a variable without a value")
    return ListOf(value.handle, value.lists)


def length(b: ProgramBuilder, value: ListOf) -> Num:
    """Return the number of items, as it is now."""
    view = header(b, require_list(b, value))
    return of_kind("int", field(b, view, LENGTH), 0, MAX_EXTENT)


def copy_words(b: ProgramBuilder, source: ir.Value, target: ir.Value, count: ir.Value) -> None:
    """Copy words from an address to another that is below it, or to other memory."""
    one, two = words_at(b, source, count), words_at(b, target, count)
    at = b.scalar(b.fresh("i"), ir.INT64)
    b.emit(ir.For(b.fresh("copy"), at.name, ZERO, count, 1, (
        ir.StoreElement(two, (at,), ir.Element(one, (at,), ir.INT64)),)))


# --------------------------------------------------------------------------- items


def type_of(value: Abstract) -> ItemType:
    """Return the type of a value as an item of a list."""
    match value:
        case Num(kinds):
            return kinds - {UNBOUND}
        case StaticValue(None):
            return frozenset({NONE})
        case Tup(items, False):
            return tuple(map(type_of, items))
        case ListOf(lists=lists):
            found: ListClass = lists.find()
            return found
    raise LoweringRefused(f"a list of {describe(value)}")


def as_item(low: ListContext, value: Abstract, name: Hashable) -> Abstract:
    """Return a value that may be stored in a list: lists among it that are written out are made."""
    value = low.settled(value)
    match value:
        case Num():
            return scalars.assigned(low.b, value)
        case ListOf():
            return require_list(low.b, value)
        case Tup(items, True):
            return make(low, items, (name, "[]"))
        case Tup(items):
            return Tup(tuple(as_item(low, item, (name, k)) for k, item in enumerate(items)))
    return value


def store(b: ProgramBuilder, items: ItemType, data: ir.Value, at: ir.Value, value: Abstract) -> None:
    """Store a value of the type of the items at an index in bounds."""
    apart = words_of(items)
    _store(b, items, leaves_of(items), data, at, apart, value)


def _store(b: ProgramBuilder, items: ItemType, leaves: Sequence[ItemPart], data: ir.Value, at: ir.Value,
           apart: int, value: Abstract) -> None:
    def put(leaf: ItemPart, part: ir.Value) -> None:
        view = words_at(b, data, ONE, leaf.word, leaf.dtype, apart)
        b.emit(ir.StoreElement(view, (at,), part))

    if isinstance(items, tuple):
        assert isinstance(value, Tup)
        begin = 0
        for part, item in zip(items, value.items, strict=True):
            count = len(leaves_of(part))
            _store(b, part, leaves[begin:begin + count], data, at, apart, item)
            begin += count
    elif isinstance(value, ListOf):
        put(leaves[0], value.handle)
    elif isinstance(value, Num):
        put(leaves[0], scalars.stored_as(b, value, leaves[0].dtype))
        if len(leaves) > 1:
            put(leaves[1], scalars.tag_of(value))
    else:
        assert is_none(value)
        put(leaves[0], ir.constant(0, leaves[0].dtype))
        if len(leaves) > 1:
            put(leaves[1], scalars.TAG_OF_NONE)


def load(b: ProgramBuilder, items: ItemType, data: ir.Value, at: ir.Value) -> Abstract:
    """Return the item at an index in bounds, read now."""
    return _load(b, items, leaves_of(items), data, at, words_of(items))


def _load(b: ProgramBuilder, items: ItemType, leaves: Sequence[ItemPart], data: ir.Value, at: ir.Value,
          apart: int) -> Abstract:
    def get(leaf: ItemPart) -> ir.Value:
        view = words_at(b, data, ONE, leaf.word, leaf.dtype, apart)
        return b.temporary(ir.Element(view, (at,), leaf.dtype))

    if isinstance(items, tuple):
        parts: list[Abstract] = []
        begin = 0
        for part in items:
            count = len(leaves_of(part))
            parts.append(_load(b, part, leaves[begin:begin + count], data, at, apart))
            begin += count
        return Tup(tuple(parts))
    if isinstance(items, ListClass):
        return ListOf(get(leaves[0]), items.find())
    if not items:
        raise NoItemsYet("a list without items")
    if items == {NONE}:
        return StaticValue(None)
    ranges = [kind_range(kind) for kind in items - {NONE}]
    return Num(items, get(leaves[0]), get(leaves[1]) if len(leaves) > 1 else None,
               min(low for low, _ in ranges), max(high for _, high in ranges))


def item(b: ProgramBuilder, value: ListOf, index: Abstract) -> Abstract:
    """Return ``value[index]`` of a number."""
    value, data, place = located(b, value, index)
    return load(b, value.lists.items, data, place)


def located(b: ProgramBuilder, value: ListOf, index: Abstract) -> tuple[ListOf, ir.Value, ir.Value]:
    """Return a list, the address of its items, and an index in bounds."""
    if not isinstance(index, Num):
        raise LoweringRefused(f"an index of a list that is {describe(index)}")
    value = require_list(b, value)
    view = header(b, value)
    place = arrays.position(b, scalars.index_value(b, b.evaluated(index)), field(b, view, LENGTH))
    return value, field(b, view, DATA), place


def store_item(low: ListContext, value: ListOf, index: Abstract, new: Abstract) -> None:
    """Lower ``value[index] = new`` of a number."""
    new = as_item(low, new, low.class_name())
    value.lists.accept(type_of(new))
    value.lists.note_change()
    value, data, place = located(low.b, value, index)
    store(low.b, value.lists.items, data, place, new)


# --------------------------------------------------------------------------- new lists


def allocate_list(b: ProgramBuilder, lists: ListClass, count: ir.Value) -> tuple[ListOf, ir.Value]:
    """Return a new list of `count` items that are to be stored, and the address of the items."""
    b.check(out_of_bounds(count, ir.constant(MAX_ITEMS)), NO_LIST_MEMORY)
    words = plus(times(count, ir.constant(words_of(lists.items))), ir.constant(HEADER_WORDS))
    address = allocate(b, b.temporary(words))
    data = b.temporary(plus(address, ir.constant(WORD_BYTES * HEADER_WORDS)))
    made = ListOf(address, lists.find())
    view = header(b, made)
    for word, content in ((DATA, data), (LENGTH, count), (CAPACITY, count)):
        b.emit(ir.StoreElement(view, (ir.constant(word),), content))
    return made, data


def make(low: ListContext, values: Sequence[Abstract], name: Hashable) -> ListOf:
    """Return a new list of these items."""
    lists = low.list_types.of(name)
    items = [as_item(low, value, name) for value in values]
    for value in items:
        lists.accept(type_of(value))
    made, data = allocate_list(low.b, lists, ir.constant(len(items)))
    for k, value in enumerate(items):
        store(low.b, made.lists.items, data, ir.constant(k), value)
    return made


def as_list(low: ListContext, value: Abstract) -> ListOf:
    """Return a value that has to be a list."""
    if isinstance(value, ListOf):
        return require_list(low.b, value)
    if isinstance(value, Tup) and value.is_list:
        return make(low, value.items, low.class_name())
    raise LoweringRefused(f"{describe(value)} instead of a list")


def filled(low: ListContext, count: ir.Value, item_at: Callable[[ir.Value], Abstract],
           types: ItemType) -> ListOf:
    """Return a new list of `count` items of some type, each made in a loop."""
    b = low.b
    lists = low.list_types.of(low.class_name())
    lists.accept(types)
    made, data = allocate_list(b, lists, count)
    each(b, count, lambda at: store(b, made.lists.items, data, at, item_at(at)))
    return made


def each(b: ProgramBuilder, count: ir.Value, body: Callable[[ir.Value], None],
         begin: ir.Value = ZERO) -> None:
    """Emit a loop over the integers from `begin` below `count`."""
    at = b.scalar(b.fresh("i"), ir.INT64)
    with b.into([]) as statements:
        body(at)
    b.emit(ir.For(b.fresh("each"), at.name, begin, count, 1, statements))  # type: ignore[arg-type]


def from_source(low: ListContext, source: Abstract) -> ListOf:
    """Return ``list(source)``."""
    b = low.b
    if isinstance(source, Tup):
        return make(low, source.items, low.class_name())
    count, item_at = low.iteration(source)
    count = b.temporary(count)
    made = make(low, (), low.class_name())
    each(b, count, lambda at: append(low, made, item_at(of_kind("int", at, 0, MAX_EXTENT))))
    return made


def repeated(low: ListContext, value: Abstract, times_: Abstract) -> ListOf:
    """Return ``value * times_`` of a list and a number."""
    if not isinstance(times_, Num):
        raise LoweringRefused(f"a list times {describe(times_)}")
    b = low.b
    count = b.temporary(apply("maximum", scalars.index_value(b, times_).value, ZERO))
    b.check(compare("greater", count, ir.constant(MAX_ITEMS >> 8)), NO_LIST_MEMORY)
    if isinstance(value, Tup):
        items = [as_item(low, x, low.class_name()) for x in value.items]
        if len(items) == 1:
            return filled(low, count, lambda at: items[0], type_of(items[0]))
        value = make(low, items, low.class_name())
    value = as_list(low, value)
    view = header(b, value)
    size, data = field(b, view, LENGTH), field(b, view, DATA)
    b.check(compare("greater", size, ir.constant(1 << 22)), NO_LIST_MEMORY)
    items_type = value.lists.items
    return filled(low, b.temporary(times(count, size)), lambda at: load(
        b, items_type, data, b.temporary(apply("remainder", at, size))), items_type)


def concatenated(low: ListContext, left: Abstract, right: Abstract) -> ListOf:
    """Return the sum of two lists."""
    b = low.b
    sources = [as_list(low, left), as_list(low, right)]
    lists = low.list_types.of(low.class_name())
    for source in sources:
        lists.accept(source.lists.items)
    views = [header(b, source) for source in sources]
    sizes = [field(b, view, LENGTH) for view in views]
    made, data = allocate_list(b, lists, b.temporary(plus(sizes[0], sizes[1])))
    for begin, size, view, source in zip((ZERO, sizes[0]), sizes, views, sources, strict=True):
        _copy_items(b, source.lists.items, field(b, view, DATA), made.lists.items, data, begin, size)
    return made


def _copy_items(b: ProgramBuilder, items: ItemType, source: ir.Value, target_items: ItemType,
                target: ir.Value, begin: ir.Value, count: ir.Value) -> None:
    """Copy items of a list to another one, from the index `begin` on."""
    each(b, count, lambda at: store(
        b, target_items, target, b.temporary(plus(begin, at)), load(b, items, source, at)))


def sliced(low: ListContext, value: ListOf, parts: Sliced) -> ListOf:
    """Return a slice of a list, which is a new list."""
    b = low.b
    value = require_list(b, value)
    view = header(b, value)
    size, data = field(b, view, LENGTH), field(b, view, DATA)
    axis = arrays.slice_axis(b, 0, size, parts.parts)
    items = value.lists.items
    return filled(low, b.temporary(axis.length), lambda at: load(
        b, items, data, b.temporary(plus(axis.begin, times(at, axis.step)))), items)


# --------------------------------------------------------------------------- changes


def append(low: ListContext, value: ListOf, new: Abstract) -> None:
    """Lower ``value.append(new)``."""
    b = low.b
    new = as_item(low, new, low.class_name())
    value.lists.accept(type_of(new))
    value.lists.note_growth()
    value = require_list(b, value)
    view, size = _with_memory(b, value)
    store(b, value.lists.items, field(b, view, DATA), size, new)
    b.emit(ir.StoreElement(view, (ir.constant(LENGTH),), plus(size, ONE)))


def _with_memory(b: ProgramBuilder, value: ListOf) -> tuple[str, ir.Value]:
    """Provide memory for one more item; return the header and the length."""
    view = header(b, value)
    size = field(b, view, LENGTH)
    words = words_of(value.lists.items)
    with b.into([]) as growing:
        wider = b.temporary(apply("maximum", times(size, ir.constant(2)), ir.constant(MIN_CAPACITY)))
        b.check(compare("greater", wider, ir.constant(MAX_ITEMS)), NO_LIST_MEMORY)
        data = allocate(b, b.temporary(times(wider, ir.constant(words))))
        copy_words(b, field(b, view, DATA), data, b.temporary(times(size, ir.constant(words))))
        b.emit(ir.StoreElement(view, (ir.constant(DATA),), data))
        b.emit(ir.StoreElement(view, (ir.constant(CAPACITY),), wider))
    b.emit(ir.If(compare("greater_equal", size, ir.Element(view, (ir.constant(CAPACITY),), ir.INT64)),
                 growing))  # type: ignore[arg-type]
    return view, size


def extend(low: ListContext, value: ListOf, source: Abstract) -> None:
    """Lower ``value.extend(source)``."""
    value = require_list(low.b, value)
    if isinstance(source, Tup):
        for new in [as_item(low, item, low.class_name()) for item in source.items]:
            append(low, value, new)
        return
    count, item_at = low.iteration(source)
    each(low.b, low.b.temporary(count), lambda at: append(
        low, value, item_at(of_kind("int", at, 0, MAX_EXTENT))))


def pop(low: ListContext, value: ListOf, index: Abstract | None) -> Abstract:
    """Lower ``value.pop(index)``."""
    b = low.b
    value.lists.note_change()
    value = require_list(b, value)
    view = header(b, value)
    size = field(b, view, LENGTH)
    last = b.temporary(minus(size, ONE))
    if index is None:
        b.check(compare("less_equal", size, ZERO), "pop from an empty list")
        found = load(b, value.lists.items, field(b, view, DATA), last)
    else:
        if not isinstance(index, Num):
            raise LoweringRefused(f"pop of {describe(index)}")
        place = arrays.position(b, scalars.index_value(b, b.evaluated(index)), size)
        data = field(b, view, DATA)
        found = load(b, value.lists.items, data, place)
        words = ir.constant(words_of(value.lists.items))
        target = b.temporary(plus(data, times(times(place, words), ir.constant(WORD_BYTES))))
        source = plus(target, times(words, ir.constant(WORD_BYTES)))
        copy_words(b, source, target, b.temporary(times(minus(last, place), words)))
    b.emit(ir.StoreElement(view, (ir.constant(LENGTH),), last))
    return found


def insert(low: ListContext, value: ListOf, index: Abstract, new: Abstract) -> None:
    """Lower ``value.insert(index, new)``."""
    b = low.b
    if not isinstance(index, Num):
        raise LoweringRefused(f"insert at {describe(index)}")
    new = as_item(low, new, low.class_name())
    value.lists.accept(type_of(new))
    value.lists.note_growth()
    value.lists.note_change()
    value = require_list(b, value)
    view, size = _with_memory(b, value)
    place = b.temporary(scalars.index_value(b, index).value)
    negative = compare("less", place, ZERO)
    place = b.temporary(apply("minimum", choose(
        negative, apply("maximum", plus(place, size), ZERO), place), size))
    data = field(b, view, DATA)
    words = ir.constant(words_of(value.lists.items))
    memory = words_at(b, data, b.temporary(times(plus(size, ONE), words)))
    at = b.scalar(b.fresh("i"), ir.INT64)
    begin, end = (b.temporary(minus(times(x, words), ONE)) for x in (size, place))
    b.emit(ir.For(b.fresh("move"), at.name, begin, end, -1, (
        ir.StoreElement(memory, (plus(at, words),), ir.Element(memory, (at,), ir.INT64)),)))
    store(b, value.lists.items, data, place, new)
    b.emit(ir.StoreElement(view, (ir.constant(LENGTH),), plus(size, ONE)))


def clear(low: ListContext, value: ListOf) -> None:
    """Lower ``value.clear()``."""
    value.lists.note_change()
    view = header(low.b, require_list(low.b, value))
    low.b.emit(ir.StoreElement(view, (ir.constant(LENGTH),), ZERO))


def reverse(low: ListContext, value: ListOf) -> None:
    """Lower ``value.reverse()``."""
    b = low.b
    value.lists.note_change()
    value = require_list(b, value)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items

    def swap(at: ir.Value) -> None:
        other = b.temporary(minus(minus(size, ONE), at))
        first, second = load(b, items, data, at), load(b, items, data, other)
        store(b, items, data, at, second)
        store(b, items, data, other, first)

    each(b, b.temporary(apply("right_shift", size, ONE)), swap)


def sort(low: ListContext, value: ListOf, keywords: Mapping[str, Abstract]) -> None:
    """Lower ``value.sort()`` of numbers of one kind; the order of NaN is left to Python."""
    b = low.b
    flag = keywords.get("reverse", number(False))
    if keywords.keys() - {"reverse"} or not isinstance(flag, Num) or not flag.known:
        raise LoweringRefused("a list is sorted with options")
    kind = number_items(value, "an order")
    dtype = STORAGE[kind]
    if dtype.str[1:] not in ("i8", "u8", "f8"):
        raise LoweringRefused(f"an order of {kind}")
    value.lists.note_change()
    value = require_list(b, value)
    backwards = bool(flag.known[0])
    if backwards:  # equal items stay in their order
        reverse(low, value)
    view = header(b, value)
    size = field(b, view, LENGTH)
    items = words_at(b, field(b, view, DATA), size, 0, dtype)
    if dtype.kind == "f":
        each(b, size, lambda at: b.check(compare("not_equal", *[ir.Element(items, (at,), dtype)] * 2),
                                         "NaN is sorted"))
    b.emit(ir.Sort("stable", ir.Address(items, (ZERO,)), size, None, b.undo(NO_LIST_MEMORY)))
    if backwards:
        reverse(low, value)


# --------------------------------------------------------------------------- questions


def search(low: ListContext, value: ListOf, sought: Abstract) -> tuple[ir.Value, ir.Value]:
    """Return the first index of an item that is equal, the length if there is none, and the length."""
    b = low.b
    value = require_list(b, value)
    sought = low.settled(sought)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items
    if not isinstance(items, ListClass) and not items:
        return size, size
    place = b.fresh("place")
    b.assign(place, size)
    block, at = b.fresh("search"), b.scalar(b.fresh("i"), ir.INT64)
    with b.into([]) as statements:
        equal = is_equal(b, load(b, items, data, at), sought)
        b.emit(ir.If(equal, (ir.Assign(place, at), ir.Break(block))))
    b.emit(ir.Block(block, (
        ir.For(b.fresh("each"), at.name, ZERO, size, 1, statements),)))  # type: ignore[arg-type]
    return b.scalar(place, ir.INT64), size


def is_equal(b: ProgramBuilder, one: Abstract, other: Abstract) -> ir.Value:
    """Return whether an item equals another value; a value that differs from itself is left to Python."""
    if isinstance(one, Num) and isinstance(other, Num):
        for x in (one, other):
            if x.dtype.kind in "fc":
                b.check(compare("not_equal", x.value, x.value), "NaN is sought in a list")
        return b.temporary(scalars.truth(b, scalars.binary(b, "Eq", one, other)))
    if isinstance(one, Tup) and isinstance(other, Tup) and one.is_list == other.is_list:
        if len(one.items) != len(other.items):
            return ir.constant(False, ir.BOOL)
        equal: ir.Value = ir.constant(True, ir.BOOL)
        for part, other_part in zip(one.items, other.items, strict=True):
            equal = both(equal, is_equal(b, part, other_part))
        return equal
    raise LoweringRefused(f"{describe(other)} is compared with items that are {describe(one)}")


def contains(low: ListContext, value: ListOf, sought: Abstract) -> ir.Value:
    """Return whether an item of a list is equal to a value."""
    place, size = search(low, value, sought)
    return low.b.temporary(compare("less", place, size))


def index_of(low: ListContext, value: ListOf, sought: Abstract) -> Num:
    """Return ``value.index(sought)``."""
    place, size = search(low, value, sought)
    low.b.check(compare("equal", place, size), "a value that is not in the list")
    return of_kind("int", place, 0, MAX_EXTENT)


def remove(low: ListContext, value: ListOf, sought: Abstract) -> None:
    """Lower ``value.remove(sought)``."""
    pop(low, value, index_of(low, value, sought))


def count_of(low: ListContext, value: ListOf, sought: Abstract) -> Num:
    """Return ``value.count(sought)``."""
    b = low.b
    value = require_list(b, value)
    sought = low.settled(sought)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items
    name = b.fresh("count")
    total = b.assign(name, ZERO)
    if isinstance(items, ListClass) or items:
        each(b, size, lambda at: b.emit(ir.If(is_equal(b, load(b, items, data, at), sought), (
            ir.Assign(name, plus(total, ONE)),))))
    return of_kind("int", total, 0, MAX_EXTENT)


def number_items(value: ListOf, operation: str) -> str:
    """Return the kind of the items of a list, which have to be numbers of one kind."""
    items: ItemType = value.lists.items
    if isinstance(items, frozenset) and not items:
        raise NoItemsYet("a list without items")
    if not isinstance(items, frozenset) or len(items) > 1 or NONE in items:
        raise LoweringRefused(f"{operation} of a list of several kinds")
    return next(iter(items))


def extremum(low: ListContext, value: ListOf, name: str) -> Num:
    """Return ``min(value)`` or ``max(value)``: the first item that none is beyond."""
    b = low.b
    kind = number_items(value, name)
    if STORAGE[kind].kind == "c":
        raise LoweringRefused(f"{name} of complex numbers")
    value = require_list(b, value)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items
    b.check(compare("equal", size, ZERO), "an extremum of nothing")
    first = load(b, items, data, ZERO)
    assert isinstance(first, Num)
    best = b.assign(b.fresh("best"), first.value)

    def step(at: ir.Value) -> None:
        element = load(b, items, data, at)
        assert isinstance(element, Num)
        if element.dtype.kind == "b":
            beyond = compare("less" if name == "min" else "greater", *(
                cast(x, ir.INT64) for x in (element.value, best)))
        else:
            beyond = compare("less" if name == "min" else "greater", element.value, best)
        b.emit(ir.If(beyond, (ir.Assign(best.name, element.value),)))

    each(b, size, step, ONE)
    return of_kind(kind, best)


def total(low: ListContext, value: ListOf) -> Num:
    """Return ``sum(value)`` of a list of numbers of one kind."""
    b = low.b
    kind = number_items(value, "a sum")
    if kind in ("float", "complex") and sys.version_info >= (3, 12):
        raise LoweringRefused("a sum of Python's floats, which compensates for rounding")
    value = require_list(b, value)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items

    def added(x: Num, at: ir.Value) -> Num:
        element = load(b, items, data, at)
        assert isinstance(element, Num)
        return scalars.binary(b, "Add", x, element)

    first, begin = number(0), ZERO
    if kind not in ("int", "bool"):
        b.check(compare("equal", size, ZERO), "a sum of nothing")
        first, begin = added(first, ZERO), ONE
    result = b.assign(b.fresh("total"), first.value)

    def step(at: ir.Value) -> None:
        following = added(of_kind(first.kind, result), at)
        if following.kind != first.kind:
            raise LoweringRefused(f"a sum of {kind}")
        b.assign(result.name, following.value)

    each(b, size, step, begin)
    return of_kind(first.kind, result)


def quantified(low: ListContext, value: ListOf, is_any: bool) -> ir.Value:
    """Return ``any(value)`` or ``all(value)``."""
    b = low.b
    value = require_list(b, value)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items
    result = b.assign(b.fresh("q"), ir.constant(not is_any, ir.BOOL))
    if isinstance(items, frozenset) and not items:
        return result

    def step(at: ir.Value) -> None:
        element = load(b, items, data, at)
        if not isinstance(element, Num):
            raise LoweringRefused(f"the truth of {describe(element)}")
        decides = scalars.truth(b, element)
        b.emit(ir.If(decides if is_any else negated(decides), (
            ir.Assign(result.name, ir.constant(is_any, ir.BOOL)),)))

    each(b, size, step)
    return result


def as_array(low: ListContext, value: ListOf) -> Arr:
    """Return a new array of the items of a list of numbers."""
    b = low.b
    kind = number_items(value, "an array")
    value = require_list(b, value)
    view = header(b, value)
    size, data, items = field(b, view, LENGTH), field(b, view, DATA), value.lists.items
    made = arrays.allocate(b, STORAGE[kind], (size,))

    def step(at: ir.Value) -> None:
        element = load(b, items, data, at)
        assert isinstance(element, Num)
        b.emit(ir.StoreElement(made.view, (at,), element.value))

    each(b, size, step)
    return made


# --------------------------------------------------------------------------- methods


def call_method(low: ListContext, value: ListOf, name: str, args: Sequence[Abstract],
                keywords: dict[str, Abstract]) -> Abstract:
    """Return the result of a method of a list."""
    none = StaticValue(None)
    if name == "sort" and not args:
        sort(low, value, keywords)
        return none
    if keywords:
        raise LoweringRefused(f"an argument {min(keywords)}= of {name}")
    match name, args:
        case "append", [new]:
            append(low, value, new)
            return none
        case "pop", []:
            return pop(low, value, None)
        case "pop", [index]:
            return pop(low, value, index)
        case "extend", [source]:
            extend(low, value, source)
            return none
        case "insert", [index, new]:
            insert(low, value, index, new)
            return none
        case "clear", []:
            clear(low, value)
            return none
        case "reverse", []:
            reverse(low, value)
            return none
        case "remove", [sought]:
            remove(low, value, sought)
            return none
        case "copy", []:
            return sliced(low, value, Sliced((None, None, None)))
        case "index", [sought]:
            return index_of(low, value, sought)
        case "count", [sought]:
            return count_of(low, value, sought)
    raise LoweringRefused(f"a call of the method {name} of a list")


def truth(b: ProgramBuilder, value: ListOf) -> ir.Value:
    """Return whether a list has items."""
    return b.temporary(compare("not_equal", field(b, header(b, require_list(b, value)), LENGTH), ZERO))


def call_function(low: ListContext, function: object, args: Sequence[Abstract],
                  keywords: dict[str, Abstract]) -> Abstract | None:
    """Return the result of a builtin function of lists; None if it is another one."""
    b = low.b
    if function is sorted and len(args) == 1:
        made = from_source(low, args[0])
        sort(low, made, keywords)
        return made
    if function is list and not keywords:
        return from_source(low, args[0]) if args else make(low, (), low.class_name())
    value = args[0] if len(args) == 1 and not keywords else None
    if not isinstance(value, ListOf):
        return None
    if function is len:
        return length(b, value)
    if function is min or function is max:
        return extremum(low, value, "min" if function is min else "max")
    if function is bool:
        return of_kind("bool", truth(b, value))
    if function is sum:
        return total(low, value)
    if function is any or function is all:
        return of_kind("bool", quantified(low, value, function is any))
    return None


def is_same(one: ListOf, other: ListOf) -> ir.Value:
    """Return whether two lists are one object."""
    return compare("equal", one.handle, other.handle)


def is_storable(value: Tup) -> bool:
    """Return whether all items of a tuple, or of a list that is written out, may be items of a list."""
    return all(isinstance(item, (Num, ListOf)) or is_none(item) or isinstance(item, Tup) and is_storable(item)
               for item in value.items)
