"""Facts remembered per code object, by identity, for as long as the code object lives.

Knows: code objects and weak references. Must not know: which facts are kept.
Receives a function that computes a fact; returns the fact, computed once per code object.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Generic, TypeVar

T = TypeVar("T")

__all__ = ["PerCode"]


class PerCode(Generic[T]):
    """A cache keyed by the identity of a code object.

    Code objects compare by value and without their file name, so a dictionary keyed by them would
    confuse two equal functions of two files.
    """

    __slots__ = ("_make", "_facts")

    def __init__(self, make: Callable[[CodeType], T]) -> None:
        self._make = make
        self._facts: dict[int, tuple[weakref.ref[CodeType], T]] = {}

    def __call__(self, code: CodeType) -> T:
        """Fact of `code`, computed at the first call."""
        entry = self._facts.get(id(code))
        if entry is not None and entry[0]() is code:
            return entry[1]
        return self.put(code, self._make(code))

    def get(self, code: CodeType) -> T | None:
        """Fact of `code` if it is known."""
        entry = self._facts.get(id(code))
        return entry[1] if entry is not None and entry[0]() is code else None

    def put(self, code: CodeType, fact: T) -> T:
        """Remember `fact` for `code`."""
        facts, key = self._facts, id(code)

        def forget(ref: weakref.ref[CodeType]) -> None:
            # the identity may already belong to a younger code object
            entry = facts.get(key)
            if entry is not None and entry[0] is ref:
                del facts[key]

        facts[key] = (weakref.ref(code, forget), fact)
        return fact

    def __len__(self) -> int:
        return len(self._facts)
