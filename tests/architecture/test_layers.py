"""Layers of packages, import cycles, imports through `__init__`, and the imports of benchmarks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, Import, Module, imports, late_imports, modules, of_every

# Layers of packages, no import cycles, packages entered by their `__init__`, and who imports what.

# Packages of one rank never import each other.
RANKS: tuple[tuple[str, ...], ...] = (
    ("classes", "errors", "concurrency", "compile_stats"),
    ("process", "introspection"),
    ("config", "events"),
    ("hops", "instrument", "tiering"),
    ("tracing", "rewrites", "fusion", "runtime", "loopir"),  # loopir: what several packages above read
    ("codegen", "accel", "recompile", "loopjit"),  # loopjit: nothing in it is traced or planned
    ("explanations", "tuner"),
    ("packages",),  # loads those below on first use
    ("engine",),
    ("dispatch",),
    ("api",),
    ("cli",),
    ("__init__", "__main__"),
)
LOWEST = 3  # the first ranks may be imported by all above
# What a room may import from the rank below its own and lower; others may import all of it.
FRIENDS = {
    "recompile": {"hops", "rewrites", "fusion", "runtime", "loopir"},
    "codegen": {"hops", "fusion", "runtime", "loopir"},
    "accel": {"hops", "fusion", "runtime", "loopir"},
}
# Packages each of whose files is for the layers above.
OPEN = {f"jitla.{name}" for name in (
    "cli", "dispatch", "explanations", "process", "tiering", "runtime", "tuner")}
# Modules that are imported whole: their names say what they are only with it, as `ir.If` and `ir.Value`.
NAMESPACES = {"jitla.loopir.program"}
LOADING = "jitla.process.loading"
# Loads what is named to it; that is imported, too, where types are checked.
LATER = "jitla.process.loading"
CUSTOMS = {"llvmlite": {"codegen"}, "numba": set(), "lightgbm": {"tuner"}}
LOADERS = {"jitla.cli.commands"}  # of modules that users name
PRINTERS = {"jitla.__main__", "jitla.cli.commands", "jitla.cli.demo"}

MODULES = list(modules().values())
every_module = of_every(MODULES)


def room_of(name: str) -> str:
    """First component below the package: a folder, a root file or "__init__"."""
    return (name.split(".") + ["__init__"])[1]


def rank_of(room: str) -> int:
    for rank, rooms in enumerate(RANKS):
        if room in rooms:
            return rank
    raise AssertionError(f"{room} has no rank: add it to RANKS, and say why it is a new room")


def is_folder(room: str) -> bool:
    return modules().get(f"jitla.{room}") is not None and modules()[f"jitla.{room}"].is_door


def own_imports(module: Module) -> list[Import]:
    return [i for i in imports(module) if i.target.split(".")[0] == "jitla"]


def rank_fault(found: Import) -> str | None:
    """Why `found` breaks the ranks, or None."""
    source, target = room_of(found.importer.name), room_of(found.target)
    if source == target:
        return None
    high, low = rank_of(source), rank_of(target)
    if low > high and (source, target) != ("cli", "__init__"):
        return f"{found.where}: upward, from rank {high} to rank {low}"
    if low == high:
        if is_folder(source) or is_folder(target):
            return f"{found.where}: packages of one layer never import each other"
    if source == "cli" and target == "__init__":
        return None  # what users import
    allowed = FRIENDS.get(source)
    if allowed is not None and low >= LOWEST and target not in allowed:
        return f"{found.where}: {source} may import {sorted(allowed)} only"
    return None


def door_fault(found: Import) -> str | None:
    """Why `found` enters a folder by the window, or None."""
    source = found.importer.name.split(".")
    target = found.target.split(".")
    if found.target in NAMESPACES:
        return None
    if found.importer.is_door:
        source.append("__init__")
    for depth in range(2, min(len(target), 3)):  # packages inside of a package are open to all of it
        package = target[:depth]
        if ".".join(package) in OPEN:
            continue
        if source[:depth] != package:
            return f"{found.where}: import it from {'.'.join(package)}"
    return None


def contents(door: Module) -> set[str]:
    """Files and folders directly inside the folder of `door`."""
    prefix = door.name + "."
    return {name[len(prefix):].split(".")[0] for name in modules() if name.startswith(prefix)}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components that have several nodes; see Tarjan (1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def faults(module: Module, judge) -> list[str]:
    return [fault for found in own_imports(module) if (fault := judge(found))]


@every_module
def test_imports_go_down_the_ranks(module):
    assert not faults(module, rank_fault)


@every_module
def test_folders_are_entered_by_the_front_door(module):
    assert not faults(module, door_fault)


def test_files_do_not_import_each_other_in_a_cycle():
    """Neither directly nor by others; what is imported for type checkers only counts, too."""
    graph = {m.name: {i.target for i in own_imports(m) if i.target in modules()} - {m.name} for m in MODULES}
    # a package imports its files, which do not import it
    graph = {name: {t for t in targets if not name.startswith(t + ".")} for name, targets in graph.items()}
    assert not cycles(graph)


@of_every([m for m in MODULES if m.is_door])
def test_a_front_door_only_reexports(door):
    """Docstring, imports, `__all__`, what is loaded late, and in the package itself constants."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    if door.name == "jitla":
        allowed += (ast.FunctionDef, ast.If)
    for node in door.tree.body:
        if _late(node) is not None:
            continue
        assert isinstance(node, allowed), f"{door.label}:{node.lineno}"
        if door.name != "jitla" and isinstance(node, ast.Assign):
            assert [t.id for t in node.targets if isinstance(t, ast.Name)] == ["__all__"]


@of_every([m for m in MODULES if m.is_door and contents(m) and m.name.count(".") < 2
           and m.name not in OPEN])
def test_a_front_door_says_what_is_public(door):
    names = [
        ast.literal_eval(node.value) for node in door.tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    assert len(names) == 1 or door.name == "jitla"


@every_module
def test_customs(module):
    for found in imports(module):
        rooms = CUSTOMS.get(found.target.split(".")[0])
        assert rooms is None or room_of(module.name) in rooms, f"{found.where}: only {rooms} may"


@every_module
def test_only_config_reads_the_environment(module):
    if module.name == "jitla.config":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
            raise AssertionError(f"{module.label}:{node.lineno} reads the environment")
    for found in imports(module):
        assert found.target not in ("os.environ", "os.getenv"), found.where


@every_module
def test_the_library_does_not_print(module):
    if module.name in PRINTERS:
        return
    for node in ast.walk(module.tree):
        called = node.func if isinstance(node, ast.Call) else None
        assert not (isinstance(called, ast.Name) and called.id == "print"), (
            f"{module.label}:{node.lineno} prints"
        )


@every_module
def test_only_one_file_imports_late(module):
    if module.name == LOADING:
        return
    for node in late_imports(module):
        raise AssertionError(f"{module.label}:{node.lineno} imports inside a function")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and module.name not in LOADERS:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert name not in ("import_module", "__import__"), (
                f"{module.label}:{node.lineno} imports by name"
            )


def _late(node: ast.stmt) -> tuple[dict[str, str], dict[str, str]] | None:
    """Names that are imported where types are checked, and those that are loaded late, with their modules.

    Files of a package have names relative to it. None for other statements.
    """
    if not (isinstance(node, ast.If) and node.orelse and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"):
        return None
    told = {a.asname or a.name: n.module or "" for n in node.body if isinstance(n, ast.ImportFrom)
            for a in n.names}
    late: dict[str, str] = {}
    for found in node.orelse:
        assert isinstance(found, ast.Assign) and isinstance(found.value, ast.Call), ast.unparse(found)
        call = found.value
        if getattr(call.func, "id", "") == "lazy_exports":
            files = {w.arg: ast.literal_eval(w.value) for w in call.keywords if w.arg}
            files |= {file: names for w in call.keywords if not w.arg
                      for file, names in ast.literal_eval(w.value).items()}
            late |= {n: f".{file}" for file, names in files.items() for n in names.split()}
        elif getattr(call.func, "id", "") == "lazy_modules":
            paths = [ast.literal_eval(a).rpartition(".") for a in call.args[1:]]
            late |= {name: package for package, _, name in paths}
        else:
            assert getattr(call.func, "id", "") == "lazy_functions", ast.unparse(found)
            file, *names = [ast.literal_eval(a) for a in call.args]
            late |= dict.fromkeys(names, file)
            targets = getattr(found.targets[0], "elts", [])
            assert [t.id for t in targets] == names, ast.unparse(found)
    return told, late


@every_module
def test_what_is_loaded_late_is_imported_where_types_are_checked(module):
    """So the rules of imports hold for it."""
    if LATER not in [i.target for i in imports(module)]:
        return
    for node in module.tree.body:
        pair = _late(node)
        if pair is None:
            continue
        told, late = pair
        if module.is_door:
            files = {file.split(".")[-1] for file in late.values() if file.startswith(".")}
            assert not files & set(late), "a file of that name would be found instead"
            late = {name: module.name + file if file.startswith(".") else file for name, file in late.items()}
        missing = {n: f for n, f in late.items() if told.get(n) != f}
        if module.is_door or module.name == "jitla.packages":
            missing |= {n: f for n, f in told.items() if f.startswith("jitla") and n not in late}
        assert not missing, f"{module.label}:{node.lineno}: {missing}"


@every_module
def test_every_room_has_a_rank(module):
    rank_of(room_of(module.name))


class TestTheTestItself:
    """Each law fires on an import that breaks it."""

    @pytest.mark.parametrize(("source", "target", "judge"), [
        ("jitla.hops", "jitla.fusion", rank_fault),
        ("jitla.fusion", "jitla.rewrites", rank_fault),
        ("jitla.codegen", "jitla.rewrites", rank_fault),
        ("jitla.errors", "jitla.hops", rank_fault),
        ("jitla.fusion.kernel", "jitla.hops.node", door_fault),
    ])
    def test_fires(self, source, target, judge):
        assert judge(Import(modules()[source], target, 1))

    @pytest.mark.parametrize(("source", "target", "judge"), [
        ("jitla.fusion", "jitla.hops", rank_fault),
        ("jitla.hops", "jitla.errors", rank_fault),
        ("jitla.fusion.kernel", "jitla.hops", door_fault),
        ("jitla.hops", "jitla.hops.node", door_fault),
    ])
    def test_keeps(self, source, target, judge):
        assert judge(Import(modules()[source], target, 1)) is None

    def test_a_cycle_is_found(self):
        graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
        assert cycles(graph) == [["a", "b", "c"]]
        assert not cycles({**graph, "c": {"d"}})


# Benchmarks outside of `bench/internal` import only public names of jitla.

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
