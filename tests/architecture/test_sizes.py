"""Functions stay short."""

from __future__ import annotations

import ast

from tests.architecture.source import Function, modules, of_every

MAX_FUNCTION_LINES = 80

MODULES = list(modules().values())
every_module = of_every(MODULES)


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, less the docstring."""
    count = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        doc = function.body[0]
        count -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return count


@every_module
def test_no_function_is_too_long(module):
    long = {f"{f.name} at line {f.lineno}": lines_of(f) for f in module.functions()
            if lines_of(f) > MAX_FUNCTION_LINES}
    assert not long
