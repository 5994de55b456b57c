"""Functions stay short, and files are not cut up: one with a single user says why it is apart."""

from __future__ import annotations

import ast

from tests.architecture.source import Function, Module, imports, modules, of_every

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


def users_of(module: Module) -> set[str]:
    """Names of the modules that import `module`."""
    return {other.name for other in MODULES if other is not module
            and any(found.target == module.name for found in imports(other))}


@of_every([m for m in MODULES if not m.is_door])
def test_a_file_with_one_user_says_why_it_is_apart(module):
    """In its docstring or in that of its package. What its package exports has users elsewhere."""
    package = modules()[module.name.rpartition(".")[0]]
    users = users_of(module)
    if len(users) == 1 and users != {package.name}:
        is_explained = "apart" in f"{module.doc} {package.doc}".lower()
        assert is_explained, f"only {min(users)} imports it"
