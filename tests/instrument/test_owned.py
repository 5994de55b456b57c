"""Code whose stack owns what lies on it does the same, and counts a reference more where it did not."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from sys import getrefcount
from types import CodeType, FunctionType

from jitla.instrument.instrumented import without_borrows


def counted(x, deep):
    inner = [[getrefcount(each) for each in (y,)] for y in (x,)]
    return getrefcount(x), (lambda z: getrefcount(z))(x), inner, deep + len(inner)


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def test_no_instruction_borrows() -> None:
    made = without_borrows(counted.__code__)
    names = {i.opname for code in codes(made) for i in dis.get_instructions(code)}
    assert "LOAD_FAST" in names
    assert not [name for name in names if "BORROW" in name]


def test_a_variable_and_the_stack_are_two_references() -> None:
    function = FunctionType(without_borrows(counted.__code__), globals())
    direct, called, inner, rest = function(object(), 1)
    assert direct >= 2 and called >= 2 and inner[0][0] >= 2 and rest == 2


def test_what_borrows_nothing_is_left_alone() -> None:
    made = without_borrows(counted.__code__)
    assert without_borrows(made) is made
