"""Source text and syntax tree of a code object, and code objects of syntax trees."""

from __future__ import annotations
import __future__

import ast
import copy
import dis
import linecache
import operator
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, reduce
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeVar

from jitla.concurrency import relock
from jitla.instrument.scope import FunctionNode

__all__ = [
    "PLACE_FLAGS", "Source", "compile_inside", "copied", "find_source", "owned", "owned_words",
    "same_code",
]


_OWNED = {
    dis.opmap[borrows]: dis.opmap[owns]
    for borrows, owns in (
        ("LOAD_FAST_BORROW", "LOAD_FAST"), ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST"))
    if borrows in dis.opmap
}
_TABLE = bytes(_OWNED.get(opcode, opcode) for opcode in range(256))


def owned(code: CodeType) -> CodeType:
    """Return `code` and the code inside of it without borrowed references; itself, if there are none."""
    if not _OWNED:
        return code
    words = owned_words(code)
    inside = tuple(owned(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    if words == code.co_code and all(map(operator.is_, inside, code.co_consts)):
        return code
    return code.replace(co_code=words, co_consts=inside)


def owned_words(code: CodeType) -> bytes:
    """Return the instructions of `code` without borrowed references: the same for both sorts of code."""
    if not _OWNED:
        return code.co_code
    words = bytearray(code.co_code)  # caches are zeros in it
    words[::2] = words[::2].translate(_TABLE)
    return bytes(words)


# CO_NESTED, CO_ITERABLE_COROUTINE, CO_METHOD: say where a function stands or what was made of it
PLACE_FLAGS = 0x10 | 0x100 | 0x800_0000


def same_code(a: CodeType, b: CodeType, lines: bool) -> bool:
    """Say whether two code objects do the same; with `lines`, at the same lines."""
    return (
        owned_words(a) == owned_words(b)  # a function that a twin makes does not borrow
        and a.co_exceptiontable == b.co_exceptiontable
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_cellvars == b.co_cellvars
        and a.co_freevars == b.co_freevars
        and (a.co_flags ^ b.co_flags) & ~PLACE_FLAGS == 0
        and a.co_qualname == b.co_qualname
        and (a.co_argcount, a.co_posonlyargcount, a.co_kwonlyargcount)
        == (b.co_argcount, b.co_posonlyargcount, b.co_kwonlyargcount)
        and (not lines or list(a.co_lines()) == list(b.co_lines()))
        and len(a.co_consts) == len(b.co_consts)
        and all(_same_constant(x, y, lines) for x, y in zip(a.co_consts, b.co_consts, strict=True))
    )


def _same_constant(a: Any, b: Any, lines: bool) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, CodeType):
        return same_code(a, b, lines)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(
            _same_constant(x, y, lines) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, frozenset):
        return {(type(x), repr(x)) for x in a} == {(type(x), repr(x)) for x in b}
    return repr(a) == repr(b)


N = TypeVar("N", bound=ast.AST)
WRAPPER = "__jitla_outer__"
SHIELD = "__jitla_class__"
ABSENT = object()
ATOMS = frozenset((int, str, type(None)))  # what most fields of a syntax tree hold
PYTEST, PYTEST_NAME = "_pytest.assertion.rewrite", "@pytest_ar"
FUTURE = reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# reentrant: the garbage collector may run a program's own functions inside
_quiet = relock()


class Source(NamedTuple):
    """A function's syntax tree, the class that mangles its names, and its module's imports."""

    node: FunctionNode
    private: str | None
    imports: tuple[str, ...]


def find_source(fn: FunctionType) -> Source | None:
    """Find the syntax tree `fn.__code__` was compiled from."""
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, fn.__globals__))
    if not text:
        return None
    try:
        source = _alone(fn, text) or _found(code, text) or _match(code, _index(text, ""))
        if source is None and PYTEST_NAME in fn.__globals__:
            source = _match(code, _index(text, code.co_filename))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return source


def _alone(fn: FunctionType, text: str) -> Source | None:
    """Find the tree of a function of a module by its lines alone, if these compile to exactly its code.

    All of a long file takes a hundred times as long. What is imported in it matters to calls of attributes:
    of names that are no modules the code is another, and the file is read after all.
    """
    code = fn.__code__
    if code.co_name != code.co_qualname:
        return None
    modules = tuple(name for name in code.co_names if issubclass(type(fn.__globals__.get(name)), ModuleType))
    lines, first = text.splitlines(True), code.co_firstlineno - 1
    last = first
    while last < len(lines) and (lines[last][:1] in " \t\r\n\f#)]}@" or last == first
                                 or lines[last - 1].startswith("@")):
        last += 1
    head = f"import {', '.join(modules)}" if modules and first else ""
    part = head + "\n" * first + "".join(lines[first:last])
    try:
        with _silence():
            tree = ast.parse(part)
            compiled = compile(part, "<text>", "exec", code.co_flags & FUTURE, dont_inherit=True)
    except SyntaxError:
        return None
    same = [each for each in compiled.co_consts
            if isinstance(each, CodeType) and each.co_name == code.co_name]
    nodes = [node for node in tree.body if isinstance(node, FUNCTIONS) and _name(node) == code.co_name]
    if len(same) != 1 or len(nodes) != 1 or same[0].co_linetable != code.co_linetable \
            or not same_code(same[0], code, lines=False):
        return None
    return Source(nodes[0], None, modules)


def _found(code: CodeType, text: str) -> Source | None:
    """Find the tree of the one function at a line of `text` that compiles to exactly `code`."""
    place = code.co_name, code.co_firstlineno
    same = _compiled(text, code.co_flags & FUTURE).get(place, ())
    if len(same) != 1 or same[0].co_linetable != code.co_linetable:
        return None
    if not same_code(same[0], code, lines=False):
        return None
    tree, imports = _parsed(text)
    found = [
        (node, private) for node, private in _functions(tree, code.co_firstlineno)
        if (_name(node), _first_line(node)) == place
    ]  # fmt: skip
    return Source(*found[0], imports) if len(found) == 1 else None


@lru_cache(maxsize=8)
def _compiled(text: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """Return the code objects that `text` compiles to, by name and first line."""
    with _silence():
        todo = [compile(text, "<text>", "exec", flags, dont_inherit=True)]
    found: dict[tuple[str, int], list[CodeType]] = {}
    while todo:
        code = todo.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        todo.extend(each for each in code.co_consts if isinstance(each, CodeType))
    return found


@lru_cache(maxsize=8)
def _parsed(text: str) -> tuple[ast.Module, tuple[str, ...]]:
    """Return the tree of `text` and the names it imports."""
    with _silence():
        tree = ast.parse(text)
    return tree, tuple(_imports(tree))


def _match(code: CodeType, index: dict[tuple[str, int], list[Source]]) -> Source | None:
    exact: list[Source] = []
    close: list[Source] = []
    for found in index.get((code.co_name, code.co_firstlineno), ()):
        # a notebook compiles every statement alone: its functions see no imports
        for source in (found, Source(found.node, found.private, ())):
            compiled = compile_inside(source, source.node, code)
            if compiled is not None and same_code(compiled, code, lines=False):
                if compiled.co_linetable == code.co_linetable:
                    exact.append(source)
                elif same_code(compiled, code, lines=True):
                    close.append(source)
                break
    # columns tell lambdas on one line apart; without columns only a single candidate is safe
    chosen = exact or close
    return chosen[0] if len(chosen) == 1 else None


@contextmanager
def _silence() -> Iterator[None]:
    """Let the parser and the compiler say nothing: they have said it before.

    `warnings.catch_warnings` would make Python forget which warnings of the user's were shown.
    """
    with _quiet:
        kept = warnings.filters
        warnings.filters = [("ignore", None, Warning, None, 0)]
        try:
            yield
        finally:
            warnings.filters = kept


@lru_cache(maxsize=8)
def _index(text: str, test_file: str) -> dict[tuple[str, int], list[Source]]:
    tree, imports = _parsed(text)
    if test_file:
        # pytest has compiled the test file with its own assert statements
        with _silence():
            tree = ast.parse(text)
            sys.modules[PYTEST].rewrite_asserts(tree, text.encode(), test_file)
        imports = tuple(_imports(tree))
    found: dict[tuple[str, int], list[Source]] = {}
    for node, private in _functions(tree):
        place = _name(node), _first_line(node)
        found.setdefault(place, []).append(Source(node, private, imports))
    return found


def _functions(tree: ast.Module, line: int = 0) -> Iterator[tuple[FunctionNode, str | None]]:
    """Yield the functions of a tree, those at one line if it is given, with the class they are in."""
    todo: list[tuple[ast.AST, str | None]] = [(tree, None)]
    while todo:
        node, private = todo.pop()
        if isinstance(node, FUNCTIONS):
            yield node, private
        inner = node.name if isinstance(node, ast.ClassDef) else private
        for child in ast.iter_child_nodes(node):
            if not line or not isinstance(child, ast.stmt) or _covers(child, line):
                todo.append((child, inner))


def _covers(node: ast.stmt, line: int) -> bool:
    # decorators stand before what Python calls the first line
    above: list[ast.expr] = getattr(node, "decorator_list", [])
    first = above[0].lineno if above else node.lineno
    return first <= line <= (node.end_lineno or line)


def _imports(tree: ast.Module) -> Iterator[str]:
    # calls of attributes of names imported by the module compile to other instructions
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            yield from (name for name in names if name != "*")
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
            todo.extend(ast.iter_child_nodes(node))


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _first_line(node: FunctionNode) -> int:
    if isinstance(node, ast.Lambda) or not node.decorator_list:
        return node.lineno
    return node.decorator_list[0].lineno


def copied(node: Any) -> Any:
    """Copy a syntax tree; a node that stands in several places becomes several nodes."""
    kind: Any = type(node)
    if kind is list:
        return [copied(each) for each in node]
    if not isinstance(node, ast.AST):
        return node  # a name or a constant
    # nothing else: others who show tracebacks leave references on nodes, also on those that all trees share
    names = kind._fields + kind._attributes
    if not names:
        return node
    twin, contents = kind.__new__(kind), vars(node)
    # each value is looked at here: most are not trees
    vars(twin).update([
        (name, value if type(value) in ATOMS else copied(value))
        for name in names if (value := contents.get(name, ABSENT)) is not ABSENT])
    return twin


def bare(node: FunctionNode) -> FunctionNode:
    """Strip from `node` what runs outside its body: decorators, defaults, annotations."""
    bare = copy.copy(node)
    bare.args = copy.copy(node.args)
    bare.args.defaults = []
    bare.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    for name in ("posonlyargs", "args", "kwonlyargs"):
        setattr(bare.args, name, [_unannotated(arg) for arg in getattr(node.args, name)])
    bare.args.vararg = node.args.vararg and _unannotated(node.args.vararg)
    bare.args.kwarg = node.args.kwarg and _unannotated(node.args.kwarg)
    if not isinstance(bare, ast.Lambda):
        # a decorator's line is the first line of the code object
        bare.decorator_list = [
            ast.copy_location(ast.Constant(None), decorator)
            for decorator in bare.decorator_list[:1]
        ]
        bare.returns = None
        if hasattr(bare, "type_params"):
            bare.type_params = []
    return bare


def _unannotated(arg: ast.arg) -> ast.arg:
    arg = copy.copy(arg)
    arg.annotation = None
    return arg


def compile_inside(
    source: Source, node: FunctionNode, code: CodeType,
    extra: Iterable[str] = (), constants: Mapping[str, Any] | None = None,
) -> CodeType | None:
    """Compile `node` with the free variables, class and flags that `code` has.

    `extra` are further free variables; strings that are keys of `constants` become their values.
    """  # fmt: skip
    arguments = [_first(ast.arg(name)) for name in (*code.co_freevars, *extra)]
    free = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
    node = bare(node)
    inner: ast.stmt = _first(ast.Expr(node)) if isinstance(node, ast.Lambda) else node
    # in a class body the names of function and class are not visible to it; "_" mangles nothing
    private = source.private or "_"
    for name in (private, SHIELD):
        inner = _first(ast.ClassDef(name, [], [], [inner], [], **_no_type_params()))
    outer = _first(ast.FunctionDef(WRAPPER, free, [inner], [], **_no_type_params()))
    imports = [_first(ast.Import([_first(ast.alias(name))])) for name in source.imports]
    module = ast.Module([*imports, outer], [])
    try:
        with _silence():
            compiled = compile(
                module, code.co_filename, "exec", code.co_flags & FUTURE, dont_inherit=True
            )
    except (SyntaxError, ValueError, RecursionError):
        return None
    for name in (WRAPPER, SHIELD, private, code.co_name):
        inside = [c for c in compiled.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if len(inside) != 1:
            return None
        compiled = inside[0]
    compiled = _rename(compiled, compiled.co_qualname, code.co_qualname, constants or {})
    place = code.co_flags & PLACE_FLAGS
    return compiled.replace(co_flags=compiled.co_flags & ~PLACE_FLAGS | place)


def _first(node: N) -> N:
    """Put a node on the first line."""
    node.lineno = node.end_lineno = 1  # type: ignore[attr-defined]
    node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    return node


def _no_type_params() -> dict[str, Any]:
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


def _rename(code: CodeType, old: str, new: str, constants: Mapping[str, Any]) -> CodeType:
    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _rename(value, old, new, constants)
        if isinstance(value, str):
            # a class body holds its qualified name as a constant
            return new + value[len(old):] if value.startswith(old) else constants.get(value, value)
        return value

    qualname = code.co_qualname
    return code.replace(
        co_consts=tuple(constant(value) for value in code.co_consts),
        co_qualname=new + qualname[len(old):] if qualname.startswith(old) else qualname,
    )
