"""Modules say what they know, errors have a section; the architecture page names files that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import ROOT, Function, Module, modules, of_every

MODULES = list(modules().values())
every_module = of_every(MODULES)


def is_stub(function: Function) -> bool:
    """A protocol's verb: nothing but an ellipsis below the docstring."""
    last = function.body[-1]
    return isinstance(last, ast.Expr) and getattr(last.value, "value", None) is ...


VERBS = {f.name for m in MODULES for f in m.functions() if is_stub(f)}


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Public classes, functions and methods, not those inside functions or private classes."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, node
            yield from public(node.body, f"{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_"):
            # a method that speaks a protocol's verb, or that of `ast`, is documented there
            if not (prefix and (node.name in VERBS or node.name.startswith("visit_"))):
                yield prefix + node.name, node


@every_module
def test_a_module_has_a_docstring(module):
    assert module.doc


def is_overload(node: ast.AST) -> bool:
    """Whether `node` only states one of the types of the function that follows."""
    marks = getattr(node, "decorator_list", [])
    return any(isinstance(m, ast.Name) and m.id == "overload" for m in marks)


@every_module
def test_the_public_has_docstrings(module: Module):
    missing = [name for name, node in public(module.tree.body)
               if not ast.get_docstring(node) and not is_overload(node)]
    assert not missing


def test_every_error_has_a_section():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    tree = modules()["jitla.errors"].tree
    classes = [n.name for n in tree.body if isinstance(n, ast.ClassDef)]
    assert sorted(sections) == sorted(classes)


DEVELOPER_PAGES = sorted((ROOT / "docs" / "dev").glob("*.md"))
SOURCE_PATH = re.compile(r"`(jitla/[\w/]*(?:\.py)?)`")


def test_developer_pages_name_files_that_exist():
    for page in DEVELOPER_PAGES:
        named = set(SOURCE_PATH.findall(page.read_text(encoding="utf-8")))
        assert not [name for name in named if not (ROOT / name).exists()], page.name


def test_the_architecture_page_names_every_package():
    page = (ROOT / "docs" / "dev" / "architecture.md").read_text(encoding="utf-8")
    packages = {f"jitla/{m.path.parent.name}/" for m in MODULES if m.is_door and m.name.count(".") == 1}
    assert packages <= set(SOURCE_PATH.findall(page))


def test_user_pages_have_no_columns_of_tests():
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"\bheld by\b|`test_\w+`", text, re.IGNORECASE), page.name


def test_no_page_names_a_machine():
    docs = ROOT / "docs"
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs.glob("*.md"), *DEVELOPER_PAGES,
             *docs.glob("reports/*.md")]
    for page in pages:
        assert not re.search(r"/(home|root|work)/", page.read_text(encoding="utf-8")), page.name
