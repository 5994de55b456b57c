"""Make a failing program small: delete statements, simplify arguments, reduce sizes.

Knows: ast, the runner. Must not know: how programs are drawn. Receives source text and a test that
says whether text still fails in the same way; returns smaller text, and a pytest file of it.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator

Test = Callable[[str], bool]


def shrink(source: str, fails: Test, most: int = 400) -> str:
    """Return the smallest source found that still fails."""
    left = [most]

    def counted(text: str) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(text)

    best, size = source, len(source) + 1
    while len(best) < size and left[0] > 0:
        size = len(best)
        for step in (_without_statements, _flattened, _smaller_sizes, _simpler_expressions):
            best = _descend(best, step, counted)
    return best


def _descend(source: str, step: Callable[[str], Iterator[str]], fails: Test) -> str:
    found = True
    while found:
        found = False
        for text in step(source):
            if text != source and len(text) <= len(source) and fails(text):
                source, found = text, True
                break
    return source


def _bodies(tree: ast.Module) -> list[list[ast.stmt]]:
    return [value for node in ast.walk(tree) for name in ("body", "orelse")
            if isinstance(value := getattr(node, name, None), list) and value and not isinstance(node, ast.Lambda)]


def _without_statements(source: str) -> Iterator[str]:
    """Leave out one statement, from the last to the first; never the last of a body."""
    tree = ast.parse(source)
    for place, body in reversed(list(enumerate(_bodies(tree)))):
        for at in reversed(range(len(body))):
            if isinstance(body[at], (ast.Import, ast.ImportFrom)):
                continue
            other = copy.deepcopy(tree)
            lines = _bodies(other)[place]
            if len(lines) == 1:
                lines[0] = ast.Pass()
            else:
                del lines[at]
            yield ast.unparse(ast.fix_missing_locations(other))


def _flattened(source: str) -> Iterator[str]:
    """Put the body of a branch or loop in its place."""
    tree = ast.parse(source)
    for place, body in enumerate(_bodies(tree)):
        for at, line in enumerate(body):
            if isinstance(line, (ast.If, ast.For, ast.While, ast.Try)):
                other = copy.deepcopy(tree)
                lines = _bodies(other)[place]
                lines[at:at + 1] = lines[at].body  # type: ignore[attr-defined]
                yield ast.unparse(ast.fix_missing_locations(other))


def _smaller_sizes(source: str) -> Iterator[str]:
    """Make numbers in the table of sizes smaller, and seeds and layouts plain."""
    found = re.search(r"= (\[\(.*?\)\])\[call\]", source)
    if found:
        for number in re.finditer(r"\d+", found.group(1)):
            for value in ("1", "2", "3", "17", str(int(number.group()) // 2)):
                if int(value) < int(number.group()):
                    at = found.start(1) + number.start()
                    yield source[:at] + value + source[at + len(number.group()):]
    for old, new in ((r"'(sliced|reversed|permuted|broadcast|readonly|offset|F)'", "'C'"),
                     (r"'(special|wide|normal|uniform)'", "'nice'"), (r"'(f4|i1|u1|i4|i8)'", "'f8'"),
                     (r"\('C', 'C'\)\[call > 2\]", "'C'"), (r"\('f8', 'f8'\)\[call > 2\]", "'f8'")):
        for match in re.finditer(old, source):
            yield source[:match.start()] + new + source[match.end():]


def _simpler_expressions(source: str) -> Iterator[str]:
    """Put an operand in the place of an expression."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    for at, node in enumerate(nodes):
        for name in ("operand", "left", "right"):
            if isinstance(node, (ast.BinOp, ast.UnaryOp)) and hasattr(node, name):
                yield _replaced(tree, at, lambda n, name=name: getattr(n, name))
        if isinstance(node, ast.Call):
            for number in range(len(node.args)):
                yield _replaced(tree, at, lambda n, number=number: n.args[number])
            if isinstance(node.func, ast.Attribute) and not node.args:
                yield _replaced(tree, at, lambda n: n.func.value)
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 1:
            for number in range(len(node.elts)):
                yield _dropped(tree, at, number)


def _replaced(tree: ast.Module, at: int, part: Callable[[ast.AST], ast.AST]) -> str:
    other = copy.deepcopy(tree)
    target = list(ast.walk(other))[at]

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return part(node) if node is target else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(other)))


def _dropped(tree: ast.Module, at: int, number: int) -> str:
    other = copy.deepcopy(tree)
    target = list(ast.walk(other))[at]
    del target.elts[number]  # type: ignore[attr-defined]
    return ast.unparse(ast.fix_missing_locations(other))


def as_test(source: str, name: str, said: str) -> str:
    """Return a pytest file that runs one program."""
    return (f'"""{said}"""\n\nfrom tests.fuzz.runner import run\n\nSOURCE = r\'\'\'\n{source}\n\'\'\'\n\n\n'
            f"def test_program() -> None:\n    assert run(SOURCE, {name!r}).faults == []\n")
