"""Types of lists in loops: what their items are, by classes of lists that may be one object.

Lists that meet in a variable, or in another list, are of one class (Steensgaard's analysis): all of them have
items of one type, held in the same words. A class is named by the operand or by the expression that makes it,
and only ever gets wider types; a loop is lowered again until none does.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import numpy as np

from jitla.classes import dataclass
from jitla.loopir.program import INT64
from jitla.loopjit.values import NONE, TAG_DTYPE, LoweringRefused, storage_of

#: The possible kinds of numbers (none: there are no items yet), the items of tuples, or the class of lists.
ItemType: TypeAlias = "frozenset[str] | tuple[ItemType, ...] | ListClass"

#: Scalars of a program: the begin of the memory that is left for lists, and its end.
HEAP, HEAP_END = ".heap", ".heap_end"
#: Words in front of the items of a list: address of the items, length, items that there is memory for.
DATA, LENGTH, CAPACITY = 0, 1, 2
HEADER_WORDS = 3
WORD_BYTES = 8
UNBOUND_HANDLE = 0  # instead of the address of a header, of a variable that has no value


@dataclass(frozen=True, slots=True)
class ItemPart:
    """Part of an item: the first word that holds it, and its dtype there."""

    word: int
    dtype: np.dtype


class ListClass:
    """Lists that may be one object; `is_changed` and `is_grown` say what a program does to them."""

    __slots__ = ("table", "_representative", "_items", "is_changed", "is_grown")

    def __init__(self, table: ListTypes) -> None:
        self.table = table
        self._representative: ListClass | None = None
        self._items: ItemType = frozenset()
        self.is_changed = self.is_grown = False

    def find(self) -> ListClass:
        """Return the class that stands for all that are the same."""
        found = self
        while found._representative is not None:
            found = found._representative
        return found

    @property
    def items(self) -> ItemType:
        """The type of the items."""
        return self.find()._items

    def accept(self, items: ItemType) -> None:
        """Widen the type of the items."""
        own = self.find()
        wider = join_types(own._items, items)
        own = own.find()
        if not same_type(wider, own._items):
            own._items = wider
            own.table.version += 1

    def unify(self, other: ListClass) -> None:
        """Make two classes one."""
        one, two = self.find(), other.find()
        if one is two:
            return
        two._representative = one
        one.is_changed |= two.is_changed
        one.is_grown |= two.is_grown
        one.table.version += 1
        one.accept(two._items)

    def note_change(self) -> None:
        """Note that items are assigned or removed."""
        self.find().is_changed = True

    def note_growth(self) -> None:
        """Note that items are appended."""
        self.find().is_grown = True


class ListTypes:
    """The classes of lists of a loop by name; `version` counts how often one got wider."""

    def __init__(self) -> None:
        self.version = 0
        self._classes: dict[Hashable, ListClass] = {}

    def of(self, name: Hashable) -> ListClass:
        """Return the class with a name."""
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = ListClass(self)
        return found.find()


def same_type(a: ItemType, b: ItemType) -> bool:
    """Return whether two types of items are the same."""
    if isinstance(a, ListClass) and isinstance(b, ListClass):
        return a.find() is b.find()
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_type, a, b))
    return a == b


def join_types(a: ItemType, b: ItemType) -> ItemType:
    """Return the type of items that are of one of two types; classes of lists become one."""
    if isinstance(a, frozenset) and not a:
        return b
    if isinstance(b, frozenset) and not b:
        return a
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        if (a | b) - {NONE}:
            storage_of(a | b)
        return a | b
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(map(join_types, a, b))
    if isinstance(a, ListClass) and isinstance(b, ListClass):
        a.unify(b)
        return a.find()
    raise LoweringRefused(f"a list of {describe_type(a)} and {describe_type(b)}")


def describe_type(items: ItemType) -> str:
    """Return a few words for the items of a list, for messages."""
    if isinstance(items, ListClass):
        return "lists"
    if isinstance(items, tuple):
        return f"tuples of {len(items)}"
    return "nothing" if not items else f"numbers ({', '.join(sorted(items))})"


def storage_of_items(kinds: frozenset[str]) -> np.dtype:
    """Return the dtype in which numbers of these kinds are held."""
    return storage_of(kinds) if kinds - {NONE} else INT64


def leaves_of(items: ItemType, begin: int = 0) -> list[ItemPart]:
    """Return the parts of an item, the first at the word `begin`: a number, and its tag if there are several
    kinds.
    """
    if isinstance(items, ListClass):
        return [ItemPart(begin, INT64)]
    if isinstance(items, tuple):
        leaves: list[ItemPart] = []
        for part in items:
            leaves += leaves_of(part, begin)
            begin += words_of(part)
        return leaves
    storage = storage_of_items(items)
    parts = [ItemPart(begin, storage)]
    if len(items) > 1:
        parts.append(ItemPart(begin + max(1, storage.itemsize // WORD_BYTES), TAG_DTYPE))
    return parts


def words_of(items: ItemType) -> int:
    """Return the number of words that hold an item."""
    if isinstance(items, tuple):
        return sum(map(words_of, items))
    if isinstance(items, ListClass):
        return 1
    return max(1, storage_of_items(items).itemsize // WORD_BYTES) + (len(items) > 1)
