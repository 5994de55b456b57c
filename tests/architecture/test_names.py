"""Plain names, no two public classes of one name, short functions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.architecture.source import Function, Module, imports, modules, of_every

# Names say what things are: no vague words, and no two public classes of one name.

Definition = Function | ast.ClassDef

#: Participles, moods and metaphors: they do not say what a thing is.
VAGUE = frozenset(
    "alike asked calm crowd door found ghost given gone hard held house kept known late lost made met purse "
    "rest rests room seen told turn turns twin way ways wild".split())

#: Qualified names that contain a vague word, each with the reason why.
EXCEPTIONS: dict[str, str] = {
}

#: Class names that exist in several modules, each with the reason why.
SHARED: dict[str, str] = {
    "Block": "statements with a label in a loop program, and operations between two materialisation points",
    "Element": "the element of a view in a loop program, and the element type of the accelerator",
    "Elementwise": "an expression over arrays in a loop, and a function that Numba compiled for elements",
    "Num": "a number in a loop, and a number in the pattern of a rule",
    "ProgramBuilder": "builds loop programs from syntax trees, and programs from traced operations",
    "Load": "a load from memory, as an instruction of the accelerator and as an expression of a loop nest",
    "Store": "a store to memory, as an instruction of the accelerator and as a statement of a loop nest",
}


def words_of(name: str) -> list[str]:
    """Words of an identifier, in lower case; they end at underscores, capitals and digits."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Functions and classes defined by `body`, also under conditions."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from definitions(node.body)
            yield from definitions(getattr(node, "orelse", []))


def public_names(module: Module) -> Iterator[str]:
    """Qualified names of public functions and classes, and of public methods of all classes."""
    for node in definitions(module.tree.body):
        if not node.name.startswith("_"):
            yield f"{module.name}.{node.name}"
        if isinstance(node, ast.ClassDef):
            for member in definitions(node.body):
                if not member.name.startswith("_"):
                    yield f"{module.name}.{node.name}.{member.name}"


@cache
def vague_names() -> frozenset[str]:
    return frozenset(name for module in modules().values() for name in public_names(module)
                     if not VAGUE.isdisjoint(words_of(name.rpartition(".")[2])))


@cache
def shared_classes() -> dict[str, list[str]]:
    """Names of public classes that several modules define, with these modules."""
    places = defaultdict(list)
    for module in modules().values():
        for node in definitions(module.tree.body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: found for name, found in places.items() if len(set(found)) > 1}


def test_words_of_a_name():
    assert words_of("is_lost_in_fork") == ["is", "lost", "in", "fork"]
    assert words_of("LaneTurns2D") == ["lane", "turns", "d"]
    assert words_of("HTMLWriter") == ["html", "writer"]


def test_public_names_contain_no_vague_words():
    assert not sorted(vague_names() - set(EXCEPTIONS))


def test_exceptions_of_vague_names_exist():
    assert not sorted(set(EXCEPTIONS) - vague_names())


def test_public_class_names_exist_once():
    assert not {name: places for name, places in shared_classes().items() if name not in SHARED}


def test_shared_class_names_exist():
    assert not set(SHARED) - set(shared_classes())


def bound_twice(module: Module) -> list[str]:
    """Names that a module assigns at two places of its top level: the first value is lost."""
    names = [name.id for node in module.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)
             for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
             for name in ast.walk(target)
             if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
    return sorted({name for name in names if names.count(name) > 1})


def test_constants_have_one_value():
    assert {m.label: names for m in modules().values() if (names := bound_twice(m))} == {}


# Functions stay short, and files are not cut up: one with a single user says why it is apart.

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
