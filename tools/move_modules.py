# ruff: noqa: E501 - it is deleted when the modules are where they belong
"""Moves and merges modules, and rewrites all that names them.

Reads a table of lines ``old<TAB>new``, modules as dotted names below `jitla`, and does one package at a time.
Several old modules with one new name are merged in the order in which the package lists its files. Private
names that two of them define are told apart by the name of the old module.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("jitla", "tests", "bench", "tools")
PACKAGE = "jitla"
Edit = tuple[int, int, str]  # from, to, text


class Source:
    """A module: its text, tree, and offsets of lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.splitlines(True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.data = text.encode()

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset))

    def lines_of(self, node: ast.AST) -> tuple[int, int]:
        return self.starts[node.lineno - 1], self.starts[node.end_lineno]

    def edited(self, edits: Iterable[Edit]) -> str:
        data = self.data
        for begin, end, text in sorted(set(edits), reverse=True):
            data = data[:begin] + text.encode() + data[end:]
        return data.decode()


def bindings(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements of a module bind, but for imports."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        else:
            for each in walk_scope(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id
                elif isinstance(each, (ast.FunctionDef, ast.ClassDef)):
                    yield each.name


def constants(body: Iterable[ast.stmt]) -> Iterator[tuple[ast.Assign, dict[str, str]]]:
    """Yield assignments of names, with the text of the value that each gets."""
    for node in body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield node, {target.id: ast.unparse(value).replace("'", '"')}
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) \
                and len(target.elts) == len(value.elts) and all(isinstance(t, ast.Name) for t in target.elts):
            yield node, {t.id: ast.unparse(v).replace("'", '"') for t, v in zip(target.elts, value.elts, strict=True)}
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call) and ast.unparse(value.func) == "map" \
                and all(isinstance(n, (ast.Constant, ast.Tuple, ast.Load)) for n in ast.walk(value.args[-1])):
            function, given = value.args
            yield node, {t.id: f'{ast.unparse(function)}("{v}")'
                         for t, v in zip(target.elts, ast.literal_eval(given), strict=True)}


class Uses(ast.NodeVisitor):
    """The places where names mean what the module binds."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.hidden: list[set[str]] = []
        self.found: list[ast.AST] = []

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.names and not any(node.id in scope for scope in self.hidden):
            self.found.append(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # Positions inside are not reliable before Python 3.12.
        node.seen = self.names.difference(*self.hidden)
        self.found.append(node)

    def visit_Global(self, node: ast.Global) -> None:
        if self.names & set(node.names):
            self.found.append(node)

    def _function(self, node: ast.AST, args: ast.arguments, body: list[ast.AST]) -> None:
        for default in (*args.defaults, *[d for d in args.kw_defaults if d is not None]):
            self.visit(default)
        for each in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if each is not None and each.annotation is not None:
                self.visit(each.annotation)
        local = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a}
        shared: set[str] = set()
        for each in body:
            for inner in walk_scope(each):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    local.add(inner.id)
                elif isinstance(inner, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                    local.add(inner.name)
                elif isinstance(inner, (ast.Global,)):
                    shared |= set(inner.names)
                elif isinstance(inner, ast.ExceptHandler) and inner.name:
                    local.add(inner.name)
                elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                    local |= {(a.asname or a.name).partition(".")[0] for a in inner.names}
        self.hidden.append(local - shared)
        for each in body:
            self.visit(each)
        self.hidden.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for each in node.decorator_list:
            self.visit(each)
        if node.returns is not None:
            self.visit(node.returns)
        if node.name in self.names and not self.hidden:
            self.found.append(node)
        self._function(node, node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in (*node.decorator_list, *node.bases, *[k.value for k in node.keywords]):
            self.visit(each)
        if node.name in self.names and not self.hidden:
            self.found.append(node)
        own = {n for n in bindings(node.body)}
        for each in node.body:
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for one in (*each.decorator_list, *each.args.defaults):
                    self._within(own, one)
                self._function(each, each.args, each.body)
                if each.returns is not None:
                    self.visit(each.returns)
            else:
                self._within(own, each)

    def _within(self, own: set[str], node: ast.AST) -> None:
        self.hidden.append(own)
        self.visit(node)
        self.hidden.pop()

    def _comprehension(self, node: ast.AST) -> None:
        local = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        self.hidden.append(local)
        self.generic_visit(node)
        self.hidden.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below one that belong to the same scope."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp,
                         ast.DictComp, ast.GeneratorExp)):
        return
    for each in ast.iter_child_nodes(node):
        yield from walk_scope(each)


def renaming_edits(source: Source, names: dict[str, str]) -> Iterator[Edit]:
    """Yield the edits that give module-level names others."""
    uses = Uses(set(names))
    uses.visit(source.tree)
    for node in uses.found:
        begin, end = source.span(node)
        if isinstance(node, ast.Name):
            yield begin, end, names[node.id]
        elif isinstance(node, ast.JoinedStr):
            text = source.data[begin:end].decode()
            seen = {name: names[name] for name in node.seen}
            new = re.sub(r"\{[^{}]*\}", lambda m, seen=seen: replaced(m.group(), seen), text)
            if new != text:
                yield begin, end, new
        elif isinstance(node, ast.Global):
            yield begin, end, "global " + ", ".join(names.get(n, n) for n in node.names)
        else:
            word = f"{'class' if isinstance(node, ast.ClassDef) else 'def'} {node.name}"
            at = source.data.index(word.encode(), begin)
            yield at, at + len(word.encode()), word[: -len(node.name)] + names[node.name]


def replaced(text: str, names: dict[str, str]) -> str:
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: names.get(m.group(), m.group()), text)


@dataclass
class Part:
    """A module that is merged: what is taken out of it."""

    name: str
    source: Source
    doc: str = ""
    imports: list[tuple[str, str | None, str]] = field(default_factory=list)  # module, name, local name
    checked: list[tuple[str, str | None, str]] = field(default_factory=list)  # the same for type checkers only
    public: list[str] = field(default_factory=list)
    is_hidden: bool = False
    removed: list[Edit] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    constants: list[tuple[ast.Assign, dict[str, str]]] = field(default_factory=list)


def is_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" \
        and not node.orelse and all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in node.body)


def imported(node: ast.stmt) -> Iterator[tuple[str, str | None, str]]:
    for alias in node.names:
        if isinstance(node, ast.Import):
            yield alias.name, None, alias.asname or alias.name
        else:
            yield node.module, alias.name, alias.asname or alias.name


def read(name: str) -> Part:
    source = Source((ROOT / PACKAGE / (name.replace(".", "/") + ".py")).read_text())
    part = Part(name, source)
    kept = []
    for k, node in enumerate(source.tree.body):
        if k == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            part.doc = node.value.value
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            pass
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            part.imports += imported(node)
        elif is_checking(node):
            part.checked += [each for one in node.body for each in imported(one)]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            part.public = list(ast.literal_eval(node.value))
        elif isinstance(node, ast.Expr) and ast.unparse(node) == "hide_module(__name__)":
            part.is_hidden = True
        else:
            kept.append(node)
            continue
        part.removed.append((*source.lines_of(node), ""))
    part.defined = set(bindings(kept))
    part.constants = list(constants(kept))
    return part


class Moves:
    """Where modules and names go."""

    def __init__(self, table: dict[str, str]) -> None:
        self.table = table
        self.names: dict[tuple[str, str], str] = {}  # of an old module: other names

    def module(self, dotted: str) -> str | None:
        """Return the new name of `jitla.x.y`, or None if it stays."""
        if not dotted.startswith(PACKAGE + "."):
            return None
        new = self.table.get(dotted[len(PACKAGE) + 1:])
        return f"{PACKAGE}.{new}" if new else None

    def merge(self, target: str, parts: list[Part], doc: str) -> str:
        """Return the text of a merged module."""
        group = {f"{PACKAGE}.{part.name}" for part in parts}
        owner: dict[str, tuple[str, str | None]] = {}  # what a name means in the merged module
        edits: dict[str, dict[str, str]] = {part.name: {} for part in parts}
        values: dict[str, str] = {}  # of names that are constants in an earlier part
        for part in parts:
            self._share(part, values)
            stem = part.name.rpartition(".")[2]
            renames = edits[part.name]
            for module, name, local in (*part.imports, *part.checked):
                if name is not None and f"{module}.{name}" in group:
                    old = f"{module}.{name}"[len(PACKAGE) + 1:]
                    for node in ast.walk(part.source.tree):
                        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) \
                                and node.value.id == local:
                            new = self.names.get((old, node.attr), node.attr)
                            part.removed.append((*part.source.span(node), new))
                    continue
                if module in group:
                    new = self.names.get((module[len(PACKAGE) + 1:], name), name)
                    if local != new:
                        renames[local] = new
                    continue
                meaning = module, name
                if owner.setdefault(local, meaning) != meaning:
                    renames[local] = self._other(local, stem, owner)
                    owner[renames[local]] = meaning
            for name in sorted(part.defined):
                meaning = part.name, name
                if owner.setdefault(name, meaning) != meaning:
                    renames[name] = self.names[part.name, name] = self._other(name, stem, owner)
                    owner[renames[name]] = meaning
                    sys.stdout.write(f"  {part.name}.{name} -> {renames[name]}\n")
        lines = [f'"""{doc.strip()}\n"""' if "\n" in doc.strip() else f'"""{doc.strip()}"""', "",
                 "from __future__ import annotations", ""]
        checked: list[str] = []
        loaded = {each for part in parts for each in part.imports}
        for part in parts:
            for listed, into in ((part.imports, lines), (part.checked, checked)):
                for module, name, local in listed:
                    if module in group or f"{module}.{name}" in group or into is checked and (module, name, local) in loaded:
                        continue
                    new = edits[part.name].get(local, local)
                    into.append(f"import {module}" + f" as {new}" * (new != module) if name is None else
                                f"from {module} import {name}" + f" as {new}" * (new != name))
        if checked:
            lines += ["", "if TYPE_CHECKING:", *["    " + line for line in checked]]
        public = sorted({edits[part.name].get(name, name) for part in parts for name in part.public})
        if public:
            listed = ", ".join(f'"{name}"' for name in public)
            lines += ["", f"__all__ = [{listed}]" if len(listed) < 90 else
                      "__all__ = [\n" + textwrap.fill(listed, 106, initial_indent="    ",
                                                      subsequent_indent="    ") + ",\n]"]
        body = []
        for part in parts:
            text = part.source.edited((*part.removed, *renaming_edits(part.source, edits[part.name])))
            body.append(text.strip("\n"))
        if any(part.is_hidden for part in parts):
            body.append("hide_module(__name__)")
        return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(filter(None, body)) + "\n"

    @staticmethod
    def _share(part: Part, values: dict[str, str]) -> None:
        """Take out of a part the constants that an earlier one has, with the same value."""
        for node, found in part.constants:
            same = {name for name, value in found.items() if values.get(name) == value}
            if same:
                left = {name: value for name, value in found.items() if name not in same}
                text = f"{', '.join(left)} = {', '.join(left.values())}" if left else ""
                part.removed.append((*part.source.span(node), text))
                part.defined -= same
            for name, value in found.items():
                values.setdefault(name, value)
        for name in part.defined - {n for _, found in part.constants for n in found}:
            values.setdefault(name, "")

    @staticmethod
    def _other(name: str, stem: str, owner: dict[str, object]) -> str:
        new = f"{stem.upper()}_{name}" if name.isupper() and len(name) > 1 else f"{name}_{stem}"
        if name[0].isupper() and not name.isupper():
            new = f"{stem.title()}{name}"
        if name.startswith("_") and name.isupper():
            new = f"_{stem.upper()}{name}"
        assert new not in owner, new
        return new

    def rewrite(self, path: Path) -> str | None:
        """Return the text of a file with other names for what moves, or None if nothing does."""
        text = path.read_text()
        source = Source(text)
        edits: list[Edit] = []
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                edits += self._import_from(source, node)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    new = self.module(alias.name)
                    if new:
                        begin, end = source.span(alias)
                        edits.append((begin, end, new + f" as {alias.asname}" * bool(alias.asname)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith((".room", ".rooms.get")) \
                    and isinstance(node.args[0], ast.Constant) and node.args[0].value in self.table:
                edits.append((*source.span(node.args[0]), f'"{self.table[node.args[0].value]}"'))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                edits += self._string(source, node)
        new = source.edited(edits)
        new = re.sub(r"(?<=\bjitla/)([\w/]+)\.py", self._path, new)
        return new if new != text else None

    def _path(self, found: re.Match[str]) -> str:
        new = self.table.get(found.group(1).replace("/", "."))
        return (new.replace(".", "/") if new else found.group(1)) + ".py"

    def _import_from(self, source: Source, node: ast.ImportFrom) -> Iterator[Edit]:
        indent = " " * node.col_offset
        out: dict[str, list[str]] = {}
        changed = False
        for alias in node.names:
            new = self.module(node.module)
            name, local = alias.name, alias.asname or alias.name
            if new:
                changed = True
                name = self.names.get((node.module[len(PACKAGE) + 1:], name), name)
                out.setdefault(new, []).append(name + f" as {local}" * (local != name))
                continue
            sub = self.module(f"{node.module}.{alias.name}")
            if sub and alias.name not in public_names(node.module):
                changed = True
                package, _, name = sub.rpartition(".")
                out.setdefault(package, []).append(name + f" as {local}" * (local != name))
                continue
            out.setdefault(node.module, []).append(name + f" as {local}" * (local != name))
        if changed:
            begin, end = source.span(node)
            yield begin, end, f"\n{indent}".join(
                f"from {module} import {names[0]}" if len(names) == 1 else
                f"from {module} import (\n{indent}    " + f",\n{indent}    ".join(names) + f",\n{indent})"
                for module, names in out.items())

    def _string(self, source: Source, node: ast.Constant) -> Iterator[Edit]:
        begin, end = source.span(node)
        text = source.data[begin:end].decode()
        new = re.sub(rf"(?<![\w.]){PACKAGE}((?:\.\w+)+)", self._dotted, text)
        if new != text:
            yield begin, end, new

    def _dotted(self, found: re.Match[str]) -> str:
        words = found.group(1)[1:].split(".")
        for count in range(len(words), 0, -1):
            new = self.table.get(".".join(words[:count]))
            if new:
                return ".".join([PACKAGE, new, *words[count:]])
        return found.group()


@cache
def public_names(module: str) -> frozenset[str]:
    """Return the names in `__all__` of a package."""
    path = ROOT / module.replace(".", "/") / "__init__.py"
    tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
    return frozenset(name for node in tree.body if isinstance(node, ast.Assign)
                     and ast.unparse(node.targets[0]) == "__all__" for name in ast.literal_eval(node.value))


def doors(text: str, moves: Moves, package: str) -> str:
    """Return the text of a package with the files of its lazy names regrouped."""
    source = Source(text)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_exports":
            files: dict[str, list[str]] = {}
            for word in node.keywords:
                new = moves.table.get(f"{package}.{word.arg}", f"{package}.{word.arg}").rpartition(".")[2]
                files.setdefault(new, []).extend(ast.literal_eval(word.value).split())
            lines = ["door(", "        __name__,"]
            for file, names in sorted(files.items()):
                joined = " ".join(sorted(names))
                if len(joined) + len(file) < 90:
                    lines.append(f'        {file}="{joined}",')
                    continue
                lines.append(f"        {file}=(")
                line = ""
                for name in sorted(names):
                    if len(line) + len(name) > 80:
                        lines.append(f'            "{line}"')
                        line = ""
                    line += name + " "
                lines += [f'            "{line.rstrip()}"', "        ),"]
            begin, end = source.span(node)
            return source.edited([(begin, end, "\n".join([*lines, "    )"]))])
    return text


def order_of(package: str) -> list[str]:
    """Return the files of a package in the order it lists them in."""
    text = ast.get_docstring(ast.parse((ROOT / PACKAGE / package / "__init__.py").read_text())) or ""
    found = re.search(r"Reading order: (.*?)\.(?:\s|$)", text, re.DOTALL)
    return re.split(r",\s+", " ".join(found.group(1).split())) if found else []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path)
    parser.add_argument("package")
    parser.add_argument("--order", default="")
    parser.add_argument("--docs", type=Path, help="lines of module and docstring")
    args = parser.parse_args()
    table = dict(line.split("\t") for line in args.table.read_text().split("\n") if line.strip())
    docs = dict(line.split("\t", 1) for line in args.docs.read_text().split("\n") if line.strip())
    inside = args.package + "." if args.package else ""
    moves = Moves({old: new for old, new in table.items() if old.startswith(inside)})
    order = args.order.split() or order_of(args.package)
    groups: dict[str, list[str]] = {}
    for old in sorted(moves.table, key=lambda name: order.index(name.rpartition(".")[2])):
        groups.setdefault(moves.table[old], []).append(old)
    texts: dict[str, str] = {}
    for target, olds in groups.items():
        if olds == [target]:
            continue
        if len(olds) > 1:
            sys.stdout.write(f"{target} <- {', '.join(olds)}\n")
            texts[target] = moves.merge(target, [read(old) for old in olds], docs[target].replace("\\n", "\n"))
    for target, olds in groups.items():
        new = ROOT / PACKAGE / (target.replace(".", "/") + ".py")
        new.parent.mkdir(parents=True, exist_ok=True)
        paths = [ROOT / PACKAGE / (old.replace(".", "/") + ".py") for old in olds]
        largest = max(paths, key=lambda path: path.stat().st_size)
        if new not in paths:
            subprocess.run(["git", "mv", largest, new], check=True, cwd=ROOT)
            paths.remove(largest)
        for path in paths:
            if path != new:
                subprocess.run(["git", "rm", "-qf", path], check=True, cwd=ROOT)
        if target in texts:
            new.write_text(texts[target])
    front = ROOT / PACKAGE / args.package / "__init__.py"
    if args.package:
        front.write_text(doors(front.read_text(), moves, args.package))
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path == Path(__file__):
                continue
            changed = moves.rewrite(path)
            if changed is not None:
                path.write_text(changed)
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "Makefile"]:
        text = path.read_text()
        new = re.sub(r"(?<=\bjitla/)([\w/]+)\.py", moves._path, text)
        new = re.sub(rf"(?<![\w.]){PACKAGE}((?:\.\w+)+)", moves._dotted, new)
        if new != text:
            path.write_text(new)


if __name__ == "__main__":
    main()
