"""The source lines of functions; code whose stack owns its operands."""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Iterator
from sys import getrefcount
from types import CodeType, FunctionType

import pytest

from jitla.instrument.source import find_source, without_borrows

# Where a function was written: its lines alone tell, if they compile to exactly its code.

ONE = "def one(x, *,\n        y=1\n):\n    # of rows\n\n    return np.exp(x + y)\n"
TWO = "@given\n@given\ndef two(x):\n    return [one(each) for each in x]\n"
HEAD = "import numpy as np\ndef given(f): return f\n"


def defined(text, name, shown=None):
    space = {}
    file = f"<{name} of {hash(text)}>"
    exec(compile(text, file, "exec"), space)
    shown = shown or text
    linecache.cache[file] = len(shown), None, shown.splitlines(True), file
    return space[name]


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("rest", ["", "def broken(:\n"])
def test_a_function_is_found_whatever_stands_behind_it(name, rest):
    text = HEAD + ONE + TWO
    source = find_source(defined(text, name, text + rest))
    wanted = next(node for node in ast.parse(text).body if getattr(node, "name", "") == name)
    assert source is not None
    assert ast.dump(source.node, include_attributes=True) == ast.dump(wanted, include_attributes=True)


@pytest.mark.parametrize("edited", [ONE.replace("+ y", "- y"), "\n" + ONE])
def test_a_function_whose_lines_are_others_by_now_is_not_found(edited):
    function = defined(HEAD + ONE, "one", HEAD + edited)
    assert type(function) is FunctionType
    assert find_source(function) is None


# Code whose stack owns what lies on it does the same, and counts a reference more where it did not.


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
