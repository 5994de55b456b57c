"""The source of the package, parsed once, for the tests of its architecture. Nothing here imports jitla."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "jitla"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A source file of the package; `name` is dotted, "jitla.hops" for its `__init__`."""

    path: Path

    @property
    def label(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def is_door(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if self.is_door else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.label)

    @property
    def doc(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


def of_every(chosen: Iterable[Module]) -> Callable[[Callable[[Module], None]], Callable[[], None]]:
    """Make one test of a law about a module: it names all of the `chosen` that break it."""
    def decorate(law: Callable[[Module], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for module in chosen:
                try:
                    law(module)
                except AssertionError as error:
                    broken.append(f"{module.label}: {error}")
            assert not broken, "\n".join(broken)
        test.__name__, test.__doc__ = law.__name__, law.__doc__
        return test
    return decorate


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by dotted name."""
    found = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
    return {module.name: module for module in found}


@dataclass(frozen=True)
class Import:
    """One imported name: the module it comes from, resolved to the deepest module that exists."""

    importer: Module
    target: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.importer.label}:{self.line} imports {self.target}"


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Every import of `module`, at top level or not."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[Import]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield Import(module, deeper if deeper in modules() else base, node.lineno)


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".")
    steps = node.level - (1 if module.is_door else 0)
    package = package[: len(package) - steps]
    return ".".join([*package, *([node.module] if node.module else [])])


def late_imports(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports inside functions."""
    for function in module.functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
