"""Benchmarks outside of `bench/internal` import only public names of jitla."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, modules

INTERNAL = ROOT / "bench" / "internal"
FILES = [path for path in sorted((ROOT / "bench").rglob("*.py")) if INTERNAL not in path.parents]
# What files may import beyond public names, and why.
EXCEPTIONS = {
    "bench/algorithms/__init__.py": {"jitla.cli.demo_algorithms"},  # the demo's classifiers are measured, too
    "bench/algorithms/real.py": {"jitla.cli.demo_data"},  # the demo's flights, read as the demo reads them
    # Limits of the machine are measured by kernels in LLVM's language, which jitla's own JIT compiles.
    "bench/kernels.py": {"bench.internal.machine"},
    "bench/peers/outcome.py": {"bench.internal.machine"},
}


def public_names() -> set[str]:
    for node in modules()["jitla"].tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return {*ast.literal_eval(node.value), "__version__"}
    raise AssertionError("jitla has no __all__")


PUBLIC = public_names()


def inner_names(tree: ast.Module) -> Iterator[str]:
    """Yield what is imported or read of jitla and is not public, and what is imported of `bench.internal`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            yield from (n for n in names if n.startswith(("jitla.", "bench.internal")))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module == "jitla":
                yield from (f"jitla.{alias.name}" for alias in node.names if alias.name not in PUBLIC)
            elif module.startswith("jitla."):
                yield module
            elif module.startswith("bench.internal"):
                yield from (f"{module}.{alias.name}" for alias in node.names)
            elif module == "bench":
                yield from (f"bench.{alias.name}" for alias in node.names if alias.name == "internal")
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "jitla" and node.attr not in PUBLIC:
                yield f"jitla.{node.attr}"
            elif node.attr.startswith("__jitla_"):
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.startswith("jitla.") and node.value in modules():  # for `import_module`
                yield node.value


def label(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=label)
def test_benchmarks_import_public_names_only(path: Path) -> None:
    inner = set(inner_names(ast.parse(path.read_text(encoding="utf-8"))))
    assert inner == EXCEPTIONS.get(label(path), set()), "move it to bench/internal, or use a public name"


@pytest.mark.parametrize("source", [
    "from jitla.engine import ENGINE", "import jitla.fusion", "from jitla import runtime",
    "jitla.engine.ENGINE", "fast.__jitla_state__", "import_module('jitla.tuner.lightgbm_model')",
    "from bench import internal", "import bench.internal.machine", "from bench.internal.machine import Bench",
])
def test_inner_names_are_found(source: str) -> None:
    assert list(inner_names(ast.parse(source)))


@pytest.mark.parametrize("source", [
    "from jitla import jit, options", "import jitla\njitla.config.current()", "from bench import measure"])
def test_public_names_are_allowed(source: str) -> None:
    assert not list(inner_names(ast.parse(source)))
