"""Code that counts a reference for each value on its stack, as all code did before Python 3.14.

Knows: bytecode of CPython 3.14. Must not know: twins, what references are counted for.
Receives a code object; returns one that does the same.

Since 3.14 a local variable may be put onto the stack without a reference of its own. Then a count does not
tell whether a value is held by a variable alone, or waits on the stack as well.
"""

from __future__ import annotations

import dis
import operator
from types import CodeType

__all__ = ["owned", "owned_words"]

_OWNED = {
    dis.opmap[borrows]: dis.opmap[owns]
    for borrows, owns in (
        ("LOAD_FAST_BORROW", "LOAD_FAST"), ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST"))
    if borrows in dis.opmap
}
_TABLE = bytes(_OWNED.get(opcode, opcode) for opcode in range(256))


def owned(code: CodeType) -> CodeType:
    """Return `code` and the code inside of it without borrowed references; itself, if there are none."""
    if not _OWNED:
        return code
    words = owned_words(code)
    inside = tuple(owned(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    if words == code.co_code and all(map(operator.is_, inside, code.co_consts)):
        return code
    return code.replace(co_code=words, co_consts=inside)


def owned_words(code: CodeType) -> bytes:
    """Return the instructions of `code` without borrowed references: the same for both sorts of code."""
    if not _OWNED:
        return code.co_code
    words = bytearray(code.co_code)  # caches are zeros in it
    words[::2] = words[::2].translate(_TABLE)
    return bytes(words)
