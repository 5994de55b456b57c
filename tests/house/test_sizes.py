"""Files and functions stay small."""

from __future__ import annotations

import ast
from statistics import median

from tests.house.source import Function, Module, modules, of_every

FILE_SOFT, FILE_HARD = 300, 800
FUNCTION_HARD, FUNCTION_MEDIAN = 60, 10
LONG_FILES = 0.1  # share of files that may be between the soft and the hard limit

MODULES = list(modules().values())
FUNCTIONS = [(module, function) for module in MODULES for function in module.functions()]
every_module = of_every(MODULES)


def is_op_table(module: Module) -> bool:
    """Op tables are one entry per operator: their length says nothing."""
    return module.path.name.startswith("table") and module.path.parent.name == "hops"


def lines_of(function: Function) -> int:
    """Lines from `def` to the end, less the docstring."""
    count = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        doc = function.body[0]
        count -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return count


@every_module
def test_no_file_passes_the_hard_limit(module):
    assert is_op_table(module) or len(module.text.splitlines()) <= FILE_HARD


def test_few_files_pass_the_soft_limit():
    long = [m.label for m in MODULES
            if not is_op_table(m) and len(m.text.splitlines()) > FILE_SOFT]
    assert len(long) <= LONG_FILES * len(MODULES), long


@every_module
def test_no_function_is_too_long(module):
    long = {f"{f.name} at line {f.lineno}": lines_of(f) for f in module.functions()
            if lines_of(f) > FUNCTION_HARD}
    assert not long


def test_the_median_function_is_short():
    assert median(lines_of(f) for _, f in FUNCTIONS) <= FUNCTION_MEDIAN

