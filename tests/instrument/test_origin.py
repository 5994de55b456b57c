"""Where a function was written: its lines alone tell, if they compile to exactly its code."""

from __future__ import annotations

import ast
import linecache
from types import FunctionType

import pytest

from jitla.instrument.instrumented import find_source

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
