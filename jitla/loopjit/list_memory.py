"""Lists at run time: which lists a loop may reach, their items as words of memory, and what came of them.

A part of a loop works on a copy of all lists that it may reach. When it has ended well, items that are other
than before are assigned to the same list objects, and new items are appended. So a part that is undone has
not touched any list.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import chain
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.list_types import (
    CAPACITY,
    DATA,
    HEADER_WORDS,
    LENGTH,
    UNBOUND_HANDLE,
    WORD_BYTES,
    ItemType,
    ListClass,
    ListTypes,
    leaves_of,
    words_of,
)
from jitla.loopjit.operands import MAX_TUPLE
from jitla.loopjit.rewriting import SEQUENCE, Unassigned
from jitla.loopjit.values import EXACT_FLOAT64, KIND_TYPES, NONE, STORAGE, TAGS

MAX_DEPTH = 4  # of lists and tuples in each other
MIN_HEAP_WORDS = 1 << 14  # of memory for new lists
MAX_HEAP_WORDS = 1 << 27
SHARE_REPLACED = 4  # of the items of a list, from which all between the first and the last are assigned

#: A path from the operands of a loop to lists: the operand (a name, then places in tuples), and from there
#: "[]" for the items of lists, and places in tuples.
Path = tuple[tuple[Any, ...], tuple[Any, ...]]
#: Types of items that lists have at run time: kinds of numbers, items of tuples, or the type of lists.
Observed = frozenset[str] | tuple[str, Any]

_KINDS: dict[type, str] = {**{kind_type: kind for kind, kind_type in KIND_TYPES.items()}, type(None): NONE}
_KIND_BY_TAG = {code: kind for kind, code in TAGS.items()}
_TAGS_OF_TYPES = {kind_type: TAGS[kind] for kind_type, kind in _KINDS.items()}


class Handle(int):
    """The address of the header of a list, instead of the list."""


class UnsupportedList(Exception):
    """A list whose items no program has."""


def observe(items: Sequence[Any], depth: int = 0) -> Observed:
    """Return the type of items of a list."""
    types = set(map(type, items))
    if types <= _KINDS.keys():
        return frozenset(map(_KINDS.__getitem__, types))
    if depth < MAX_DEPTH and len(types) == 1:
        if types == {list}:
            return "list", observe(list(chain.from_iterable(items)), depth + 1)
        if types == {tuple}:
            sizes = set(map(len, items))
            if len(sizes) == 1 and 0 < (size := sizes.pop()) <= MAX_TUPLE:
                columns = zip(*items, strict=True)
                return "tuple", tuple(observe(column, depth + 1) for column in columns) if size else ()
    names = ", ".join(sorted(kind.__name__ for kind in types))
    raise UnsupportedList(f"a list of {names:.60}")


def widest(a: Observed, b: Observed) -> Observed:
    """Return the type of items that are of one of two types."""
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    if not a or not b:
        return a or b
    if isinstance(a, tuple) and isinstance(b, tuple) and a[0] == b[0]:
        if a[0] == "list":
            return "list", widest(a[1], b[1])
        if len(a[1]) == len(b[1]):
            return "tuple", tuple(map(widest, a[1], b[1]))
    raise UnsupportedList("a list of items of several types")


def fits(items: ItemType, observed: Observed) -> bool:
    """Return whether words for items of a type hold items of the type at run time."""
    if not observed:
        return True
    if isinstance(items, ListClass):
        return observed[0] == "list" and fits(items.items, observed[1]) if isinstance(
            observed, tuple) else False
    if isinstance(items, tuple):
        return isinstance(observed, tuple) and observed[0] == "tuple" and len(observed[1]) == len(items) \
            and all(map(fits, items, observed[1]))
    return isinstance(observed, frozenset) and observed <= items


def may_be_list(value: Any) -> bool:
    """Return whether a value is a list, or a tuple with one, that a program may have."""
    if type(value) is list:
        return not value or type(value[0]) in _KINDS or type(value[0]) in (list, tuple)
    return type(value) is tuple and len(value) <= MAX_TUPLE and any(map(may_be_list, value))


@dataclass(eq=False)
class ListOperands:
    """The lists among the operands of a loop.

    `observed` are the types of items of the operands that are lists, `bags` all lists by path, each once,
    with copies: signal handlers and other threads may change lists. `pairs` are paths that lead to one
    object.
    """

    observed: dict[tuple[Any, ...], Observed]
    bags: list[tuple[Path, list[list[Any]], list[list[Any]]]]
    pairs: frozenset[tuple[Path, Path]]
    items: int  # of all lists


NO_OPERANDS = ListOperands({}, [], frozenset(), 0)


def list_operands(names: Sequence[str], values: Sequence[Any], sources: Sequence[list[Any]]) -> ListOperands:
    """Return the lists among operands, and among what a loop goes through."""
    found = ListOperands({}, [], frozenset(), 0)
    walk = _Walk(found)
    for name, value in zip(names, values, strict=True):
        if type(value) in (list, tuple) and may_be_list(value):
            walk.add(value, (name,))
    for k, value in enumerate(sources):
        walk.add(value, (SEQUENCE, k))
    found.pairs = frozenset(walk.pairs)
    return found


class _Walk:
    """Collects the lists that operands lead to."""

    def __init__(self, operands: ListOperands) -> None:
        self.operands = operands
        self.paths: dict[int, Path] = {}  # by the identity of lists
        self.pairs: set[tuple[Path, Path]] = set()

    def add(self, value: Any, path: tuple[Any, ...]) -> None:
        """Collect an operand, or what is in a tuple."""
        if type(value) is list:
            try:
                self.operands.observed[path] = observe(list(value))
            except UnsupportedList:
                return
            self.bag([value], (path, ()))
        elif type(value) is tuple and len(value) <= MAX_TUPLE:
            for k, item in enumerate(value):
                self.add(item, (*path, k))

    def bag(self, lists: Sequence[list[Any]], path: Path) -> None:
        """Collect the lists at a path, and those in them."""
        by_identity = {id(value): value for value in lists}
        for known in self.paths.keys() & by_identity.keys():
            if self.paths[known] != path:
                self.pairs.add((self.paths[known], path))
            del by_identity[known]
        if not by_identity:
            return
        self.paths.update(dict.fromkeys(by_identity, path))
        objects = list(by_identity.values())
        copies = list(map(list, objects))
        self.operands.bags.append((path, objects, copies))
        self.operands.items += sum(map(len, copies))
        first = next(filter(None, copies), None)
        if first is not None and type(first[0]) in (list, tuple):
            self.items(_flat(copies), path)

    def items(self, items: Sequence[Any], path: Path) -> None:
        """Collect the lists among items of lists or tuples."""
        if type(items[0]) is list:
            self.bag(items, (path[0], (*path[1], "[]")))
            return
        for k, part in enumerate(items[0]):
            if type(part) in (list, tuple):
                self.items([item[k] for item in items], (path[0], (*path[1], k)))


def _flat(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the items of lists, one list after the other."""
    return lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))


# --------------------------------------------------------------------------- classes of operands


def class_of(types: ListTypes, path: tuple[Any, ...], observed: Observed) -> ListClass:
    """Return the class of the lists at a path, whose items have a type at run time."""
    lists = types.of(path)
    lists.accept(_item_type(types, path, observed))
    return lists.find()


def class_at(types: ListTypes, path: Path) -> ListClass:
    """Return the class of the lists at a path of a program that is lowered."""
    lists = types.of(path[0])
    items: ItemType = lists.items
    for step in path[1]:
        if step == "[]":
            assert isinstance(items, ListClass)
            lists = items.find()
            items = lists.items
        else:
            assert isinstance(items, tuple)
            items = items[step]
    return lists


def _item_type(types: ListTypes, path: tuple[Any, ...], observed: Observed) -> ItemType:
    if isinstance(observed, frozenset):
        return observed
    if observed[0] == "list":
        return class_of(types, (*path, "[]"), observed[1])
    return tuple(_item_type(types, (*path, k), part) for k, part in enumerate(observed[1]))


def unify_operands(types: ListTypes, pairs: frozenset[tuple[Path, Path]]) -> None:
    """Make the classes of lists that are one object the same."""
    for one, other in sorted(pairs, key=repr):
        class_at(types, one).unify(class_at(types, other))


# --------------------------------------------------------------------------- words


@dataclass(eq=False)
class ListChanges:
    """What a part of a loop did to lists: items that are assigned, new lengths, items that are appended."""

    lengths: list[tuple[list[Any], int]] = field(default_factory=list)
    items: list[tuple[list[Any], int, Any]] = field(default_factory=list)
    blocks: list[tuple[list[Any], int, list[Any]]] = field(default_factory=list)
    appended: list[tuple[list[Any], list[Any]]] = field(default_factory=list)

    def commit(self, of: Callable[[list[Any]], list[Any]] = lambda target: target) -> None:
        """Change the lists, or what `of` returns for them."""
        for target, length in self.lengths:
            del of(target)[length:]
        for target, place, item in self.items:
            of(target)[place] = item
        for target, begin, items in self.blocks:
            of(target)[begin:begin + len(items)] = items
        for target, items in self.appended:
            of(target).extend(items)

    def expected(self) -> list[tuple[list[Any], list[Any]]]:
        """Return the lists that are changed, each with a copy that is changed."""
        copies: dict[int, tuple[list[Any], list[Any]]] = {}
        self.commit(lambda target: copies.setdefault(id(target), (target, list(target)))[1])
        return list(copies.values())


@dataclass(eq=False)
class _Block:
    """The lists of a bag in memory: their headers and items from these words on, and their lengths."""

    objects: list[list[Any]]
    lists: ListClass
    headers: int
    data: int
    lengths: np.ndarray
    starts: np.ndarray  # of the items of each list, in items


class ListMemory:
    """Memory of a run of a program: the lists that it may reach, as words."""

    def __init__(self, operands: ListOperands, types: ListTypes, heap_words: int) -> None:
        self.handles: dict[int, int] = {}
        self._blocks: list[_Block] = []
        word = 0
        for path, objects, copies in operands.bags:
            lists = class_at(types, path).find()
            lengths = np.fromiter(map(len, copies), np.int64, len(copies))
            ends = np.cumsum(lengths)
            data = word + HEADER_WORDS * len(objects)
            self._blocks.append(_Block(objects, lists, word, data, lengths, ends - lengths))
            word = data + int(ends[-1]) * words_of(lists.items)
        self.words = np.empty(word + heap_words, np.int64)
        self.base = int(self.words.ctypes.data)
        self.heap = self.base + WORD_BYTES * word, self.base + WORD_BYTES * (word + heap_words)
        self._objects: dict[int, list[Any]] = {}  # by handle
        for block in self._blocks:
            count, first = len(block.objects), self.base + WORD_BYTES * block.headers
            apart = WORD_BYTES * HEADER_WORDS
            handles = range(first, first + apart * count, apart)
            self.handles.update(zip(map(id, block.objects), handles, strict=True))
            self._objects.update(zip(handles, block.objects, strict=True))
        for block, (_, _, copies) in zip(self._blocks, operands.bags, strict=True):
            headers = self._headers(block)
            headers[:, DATA] = self._addresses(block)
            headers[:, LENGTH] = headers[:, CAPACITY] = block.lengths
            rows = self._rows(block, self.words)
            if len(rows):
                try:
                    self._write(block.lists.items, _flat(copies), rows, 0)
                except (KeyError, TypeError, ValueError) as error:
                    raise OverflowError("lists were changed by other code while they were read") from error
        self._before = self.words[:word].copy() if any(
            block.lists.is_changed for block in self._blocks) else self.words

    def _headers(self, block: _Block) -> np.ndarray:
        count = len(block.objects)
        return self.words[block.headers:block.headers + HEADER_WORDS * count].reshape(count, HEADER_WORDS)

    def _addresses(self, block: _Block) -> np.ndarray:
        apart = WORD_BYTES * words_of(block.lists.items)
        addresses: np.ndarray = self.base + WORD_BYTES * block.data + apart * block.starts
        return addresses

    def _rows(self, block: _Block, words: np.ndarray) -> np.ndarray:
        """Return the items of the lists of a block, each a row."""
        apart = words_of(block.lists.items)
        count = int(block.starts[-1] + block.lengths[-1])
        return words[block.data:block.data + count * apart].reshape(count, apart)

    def replace_lists(self, value: Any) -> Any:
        """Return a value with lists replaced by the addresses of their headers."""
        if type(value) is list:
            handle = self.handles.get(id(value))
            return value if handle is None else Handle(handle)
        return tuple(map(self.replace_lists, value)) if type(value) is tuple else value

    def _write(self, items: ItemType, values: Sequence[Any], target: np.ndarray, begin: int) -> None:
        """Write items to words, each to a row from the column `begin` on."""
        if isinstance(items, ListClass):
            target[:, begin] = np.frombuffer(array("q", map(self.handles.__getitem__, map(id, values))),
                                             np.int64)
            return
        if isinstance(items, tuple):
            for part, column in zip(items, zip(*values, strict=True), strict=True):
                self._write(part, column, target, begin)
                begin += words_of(part)
            return
        leaves = leaves_of(items, begin)
        storage = leaves[0].dtype
        if len(leaves) > 1:
            target[:, leaves[1].word] = array("q", map(_TAGS_OF_TYPES.__getitem__, map(type, values)))
            _require_exact(storage, values)
        if NONE in items:
            values = [0 if value is None else value for value in values]
        if "b1" in items and storage.kind != "b":  # which is no integer to `array`
            values = [bool(value) if type(value) is np.bool_ else value for value in values]
        _write_numbers(storage, values, target, begin)

    # -- after the run ------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Return whether no list has got another length meanwhile, by another thread."""
        return all(list(map(len, block.objects)) == block.lengths.tolist() for block in self._blocks)

    def list_at(self, handle: int, lists: ListClass) -> Any:
        """Return the list whose header is at an address: an operand, or a new list."""
        if handle == UNBOUND_HANDLE:
            return Unassigned
        found = self._objects.get(handle)
        if found is None:
            found = self._objects[handle] = []
            begin = (handle - self.base) // WORD_BYTES
            found += self._items(lists.items, begin, 0, int(self.words[begin + LENGTH]))
        return found

    def _items(self, items: ItemType, header: int, begin: int, end: int) -> list[Any]:
        """Return items of a list as Python has them."""
        return self._read(items, self._rows_of(items, header, begin, end), 0)

    def _rows_of(self, items: ItemType, header: int, begin: int, end: int) -> np.ndarray:
        apart = words_of(items)
        data = (int(self.words[header + DATA]) - self.base) // WORD_BYTES
        return self.words[data + begin * apart:data + end * apart].reshape(end - begin, apart)

    def _read(self, items: ItemType, rows: np.ndarray, begin: int) -> list[Any]:
        if not len(rows):
            return []
        if isinstance(items, ListClass):
            return [self.list_at(handle, items) for handle in rows[:, begin].tolist()]
        if isinstance(items, tuple):
            columns = []
            for part in items:
                columns.append(self._read(part, rows, begin))
                begin += words_of(part)
            return list(zip(*columns, strict=True))
        leaves = leaves_of(items, begin)
        storage = leaves[0].dtype
        width = max(1, storage.itemsize // WORD_BYTES)
        column = np.ascontiguousarray(rows[:, begin:begin + width]).view(storage)[:, 0]
        if len(leaves) == 1:
            return _python_values(column, next(iter(items), NONE))
        tags = np.ascontiguousarray(rows[:, leaves[1].word:leaves[1].word + 1]).view(np.int8)[:, 0].tolist()
        makers = {tag: _maker(_KIND_BY_TAG[tag]) for tag in set(tags)}
        return [makers[tag](value) for tag, value in zip(tags, column.tolist(), strict=True)]

    def changes(self) -> ListChanges:
        """Return what the program did to the operands."""
        found = ListChanges()
        for block in self._blocks:
            lists = block.lists.find()
            if lists.is_changed or lists.is_grown:
                headers = self._headers(block)
                other = (headers[:, LENGTH] != block.lengths) | (headers[:, DATA] != self._addresses(block))
                if lists.is_changed:
                    self._changed_in_place(block, other, found)
                for k in np.flatnonzero(other).tolist():
                    self._changed(block, k, int(headers[k, LENGTH]), found)
        return found

    def _changed_in_place(self, block: _Block, but: np.ndarray, found: ListChanges) -> None:
        """Note the items that are assigned of lists whose memory is where it was, and as long."""
        rows, before = self._rows(block, self.words), self._rows(block, self._before)
        places = np.flatnonzero((rows != before).any(axis=1))
        if not len(places):
            return
        numbers = np.searchsorted(block.starts, places, "right") - 1
        if but.any():
            places, numbers = places[~but[numbers]], numbers[~but[numbers]]
        if len(block.objects) == 1 and len(places):
            low, high = int(places[0]), int(places[-1]) + 1
            if SHARE_REPLACED * len(places) >= high - low:
                found.blocks.append((block.objects[0], low, self._read(block.lists.items, rows[low:high], 0)))
                return
        values = self._read(block.lists.items, rows[places], 0)
        objects = block.objects
        found.items += [(objects[number], place, value) for number, place, value in zip(
            numbers.tolist(), (places - block.starts[numbers]).tolist(), values, strict=True)]

    def _changed(self, block: _Block, number: int, length: int, found: ListChanges) -> None:
        """Note what became of a list that has another length, or is elsewhere."""
        target, items = block.objects[number], block.lists.items
        size, start = int(block.lengths[number]), int(block.starts[number])
        header = block.headers + HEADER_WORDS * number
        common = min(size, length)
        if block.lists.find().is_changed:
            rows = self._rows_of(items, header, 0, common)
            before = self._rows(block, self._before)[start:start + common]
            places = np.flatnonzero((rows != before).any(axis=1))
            if len(places):
                low, high = int(places[0]), int(places[-1]) + 1
                if SHARE_REPLACED * len(places) >= high - low:
                    found.blocks.append((target, low, self._read(items, rows[low:high], 0)))
                else:
                    found.items += [(target, place, value) for place, value in zip(
                        places.tolist(), self._read(items, rows[places], 0), strict=True)]
        if length < size:
            found.lengths.append((target, length))
        elif length > size:
            found.appended.append((target, self._items(items, header, size, length)))


def have_same_bits(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether sequences of one length are of floats, or integers, and equal in every bit.

    If not, or if they have other items, they may be the same nevertheless.
    """
    types = {*map(type, a), *map(type, b)}
    if types == {int} or types == {bool}:
        return a == b
    return types == {float} and array("d", a).tobytes() == array("d", b).tobytes()


@dataclass(frozen=True)
class ListCode:
    """What a program that has lists depends on: classes of lists, and lists that are constants."""

    types: ListTypes
    constants: tuple[list[Any], ...]
    allocates: bool  # whether it makes lists, or lets them grow

    def fits(self, operands: ListOperands | None) -> bool:
        """Return whether operands have items of types that the program has words for."""
        return operands is None or all(
            fits(self.types.of(path).items, observed) for path, observed in operands.observed.items())

    def memory(self, operands: ListOperands | None, heap_words: int) -> ListMemory:
        """Return memory with the operands; OverflowError if the program cannot be entered with them."""
        memory = ListMemory(operands or NO_OPERANDS, self.types, heap_words if self.allocates else 0)
        if any(id(value) in memory.handles for value in self.constants):
            raise OverflowError("a list that is a constant is an operand, too")
        return memory


def _nothing(value: Any) -> Any:
    return None


def _maker(kind: str) -> Callable[[Any], Any]:
    """Return the function from a number in storage to a number of a kind."""
    if kind not in KIND_TYPES:
        return _nothing
    kind_type = KIND_TYPES[kind]
    if STORAGE[kind].kind == "c":
        return kind_type
    return lambda value: kind_type(value.real if type(value) is complex else value)


def _python_values(column: np.ndarray, kind: str) -> list[Any]:
    """Return numbers of one kind."""
    values = column.tolist()
    if kind in ("int", "float", "bool", "complex"):
        return values  # type: ignore[no-any-return]
    return [None] * len(values) if kind == NONE else list(map(KIND_TYPES[kind], values))


def _require_exact(storage: np.dtype, values: Sequence[Any]) -> None:
    """Raise OverflowError for integers that are not exact in the storage of several kinds."""
    if storage.kind in "fc":
        for value in values:
            if isinstance(value, (int, np.integer)) and abs(int(value)) > EXACT_FLOAT64:
                raise OverflowError("an integer of more than 53 bits")


def _write_numbers(storage: np.dtype, values: Sequence[Any], target: np.ndarray, begin: int) -> None:
    """Write numbers to words, the first bytes of each; what does not fit raises OverflowError."""
    if storage.str[1:] in ("i8", "f8"):
        code = "q" if storage.kind == "i" else "d"
        target[:, begin] = np.frombuffer(array(code, values), np.int64)
        return
    if storage.kind == "b":
        target[:, begin] = np.array(values, np.bool_)
        return
    width = max(1, storage.itemsize // WORD_BYTES)
    column = np.zeros((len(values), width * WORD_BYTES // storage.itemsize), storage)
    column[:, 0] = values
    target[:, begin:begin + width] = column.view(np.int64)
