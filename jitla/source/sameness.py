"""Whether two code objects are made of the same text.

Knows: code objects. Must not know: text, syntax trees.
Receives code objects; returns truth values.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from jitla.source.owned import owned_words

__all__ = ["PLACE_FLAGS", "same_code"]

# CO_NESTED, CO_ITERABLE_COROUTINE, CO_METHOD: say where a function stands or what was made of it
PLACE_FLAGS = 0x10 | 0x100 | 0x800_0000


def same_code(a: CodeType, b: CodeType, lines: bool) -> bool:
    """Say whether two code objects do the same; with `lines`, at the same lines."""
    return (
        owned_words(a) == owned_words(b)  # a function that a twin makes does not borrow
        and a.co_exceptiontable == b.co_exceptiontable
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_cellvars == b.co_cellvars
        and a.co_freevars == b.co_freevars
        and (a.co_flags ^ b.co_flags) & ~PLACE_FLAGS == 0
        and a.co_qualname == b.co_qualname
        and (a.co_argcount, a.co_posonlyargcount, a.co_kwonlyargcount)
        == (b.co_argcount, b.co_posonlyargcount, b.co_kwonlyargcount)
        and (not lines or list(a.co_lines()) == list(b.co_lines()))
        and len(a.co_consts) == len(b.co_consts)
        and all(_same_constant(x, y, lines) for x, y in zip(a.co_consts, b.co_consts, strict=True))
    )


def _same_constant(a: Any, b: Any, lines: bool) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, CodeType):
        return same_code(a, b, lines)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(
            _same_constant(x, y, lines) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, frozenset):
        return {(type(x), repr(x)) for x in a} == {(type(x), repr(x)) for x in b}
    return repr(a) == repr(b)
