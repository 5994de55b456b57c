"""Syntax trees of functions: found, copied, and compiled as code of the same function.

The tree is that which the code object of the function was compiled from.
"""

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

from jitla.concurrency import fork_safe_lock

__all__ = [
    "CONTEXT_FLAGS", "FRAME_ATTRIBUTES", "FRAME_READERS", "FunctionNode", "NO_LIMIT", "Source",
    "bytecode_without_borrows", "compile_changed", "compile_inside", "copy_tree", "find_source",
    "is_same_code", "lambda_of", "syntax_tree_of", "walk_tree", "without_borrows",
]


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
# Builtins that read the variables of a frame, and the number of arguments with which they do not.
NO_LIMIT = sys.maxsize
FRAME_READERS = {"locals": NO_LIMIT, "vars": 1, "dir": 1, "eval": 2, "exec": 2}
FRAME_ATTRIBUTES = frozenset({"f_locals"})


_OWNING_OPCODES = {
    dis.opmap[borrows]: dis.opmap[owns]
    for borrows, owns in (
        ("LOAD_FAST_BORROW", "LOAD_FAST"), ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST"))
    if borrows in dis.opmap
}
_OWNING_TABLE = bytes(_OWNING_OPCODES.get(opcode, opcode) for opcode in range(256))


def without_borrows(code: CodeType) -> CodeType:
    """Return `code` and its inner code with owned instead of borrowed references; itself if it has none.

    Hooks read reference counts, to which borrowed references do not add.
    """
    if not _OWNING_OPCODES:
        return code
    words = bytecode_without_borrows(code)
    inside = tuple(without_borrows(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    if words == code.co_code and all(map(operator.is_, inside, code.co_consts)):
        return code
    return code.replace(co_code=words, co_consts=inside)


def bytecode_without_borrows(code: CodeType) -> bytes:
    """Return the bytecode of `code` with every borrowing load replaced by an owning one."""
    if not _OWNING_OPCODES:
        return code.co_code
    words = bytearray(code.co_code)  # caches are zeros in it
    words[::2] = words[::2].translate(_OWNING_TABLE)
    return bytes(words)


# CO_NESTED, CO_ITERABLE_COROUTINE, CO_METHOD: flags of a function's context, not of its body
CONTEXT_FLAGS = 0x10 | 0x100 | 0x800_0000


def is_same_code(a: CodeType, b: CodeType, lines: bool) -> bool:
    """Return whether two code objects are equivalent; with `lines`, also line by line."""
    return (
        # a function defined in an instrumented one does not borrow
        bytecode_without_borrows(a) == bytecode_without_borrows(b)
        and a.co_exceptiontable == b.co_exceptiontable
        and a.co_names == b.co_names
        and a.co_varnames == b.co_varnames
        and a.co_cellvars == b.co_cellvars
        and a.co_freevars == b.co_freevars
        and (a.co_flags ^ b.co_flags) & ~CONTEXT_FLAGS == 0
        and a.co_qualname == b.co_qualname
        and (a.co_argcount, a.co_posonlyargcount, a.co_kwonlyargcount)
        == (b.co_argcount, b.co_posonlyargcount, b.co_kwonlyargcount)
        and (not lines or list(a.co_lines()) == list(b.co_lines()))
        and len(a.co_consts) == len(b.co_consts)
        and all(_is_same_constant(x, y, lines) for x, y in zip(a.co_consts, b.co_consts, strict=True))
    )


def _is_same_constant(a: Any, b: Any, lines: bool) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, CodeType):
        return is_same_code(a, b, lines)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(
            _is_same_constant(x, y, lines) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, frozenset):
        return {(type(x), repr(x)) for x in a} == {(type(x), repr(x)) for x in b}
    return repr(a) == repr(b)


AnyNode = TypeVar("AnyNode", bound=ast.AST)
WRAPPER = "__jitla_outer__"
SHIELD = "__jitla_class__"
MISSING_FIELD = object()
LEAF_TYPES = frozenset((int, str, type(None)))  # types of most fields of a syntax tree that are no nodes
PYTEST, PYTEST_NAME = "_pytest.assertion.rewrite", "@pytest_ar"
FUTURE_FLAGS = reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
FUNCTION_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# reentrant: the garbage collector may run the program's functions inside
_warnings_lock = fork_safe_lock()


class Source(NamedTuple):
    """Syntax tree of a function, the class that mangles its names, and the names its module imports."""

    node: FunctionNode
    private: str | None
    imports: tuple[str, ...]


def find_source(fn: FunctionType) -> Source | None:
    """Return the syntax tree that `fn.__code__` was compiled from; None if it is not found for certain."""
    code = fn.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, fn.__globals__))
    if not text:
        return None
    try:
        source = _find_by_lines(fn, text) or _find_at_line(code, text) \
            or _find_by_compiling(code, _index_functions(text, ""))
        if source is None and PYTEST_NAME in fn.__globals__:
            source = _find_by_compiling(code, _index_functions(text, code.co_filename))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return source


def _find_by_lines(fn: FunctionType, text: str) -> Source | None:
    """Return the tree of a module-level function if its own lines compile to exactly its code.

    Parsing the whole of a long file takes a hundred times as long. Imports of the module change the bytecode
    of attribute calls: modules are imported before the lines, and other imports make the comparison fail, so
    that the whole file is parsed.
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
    excerpt = head + "\n" * first + "".join(lines[first:last])
    try:
        with _silence_warnings():
            tree = ast.parse(excerpt)
            compiled = compile(excerpt, "<text>", "exec", code.co_flags & FUTURE_FLAGS, dont_inherit=True)
    except SyntaxError:
        return None
    matches = [each for each in compiled.co_consts
            if isinstance(each, CodeType) and each.co_name == code.co_name]
    nodes = [node for node in tree.body if isinstance(node, FUNCTION_NODES) and _name(node) == code.co_name]
    if len(matches) != 1 or len(nodes) != 1 or matches[0].co_linetable != code.co_linetable \
            or not is_same_code(matches[0], code, lines=False):
        return None
    return Source(nodes[0], None, modules)


def _find_at_line(code: CodeType, text: str) -> Source | None:
    """Return the tree of the only function at the line of `code` if it compiles to exactly `code`."""
    position = code.co_name, code.co_firstlineno
    matches = _compile_text(text, code.co_flags & FUTURE_FLAGS).get(position, ())
    if len(matches) != 1 or matches[0].co_linetable != code.co_linetable:
        return None
    if not is_same_code(matches[0], code, lines=False):
        return None
    tree, imports = _parse_text(text)
    functions = [
        (node, private) for node, private in _iterate_functions(tree, code.co_firstlineno)
        if (_name(node), _first_line(node)) == position
    ]  # fmt: skip
    return Source(*functions[0], imports) if len(functions) == 1 else None


@lru_cache(maxsize=8)
def _compile_text(text: str, flags: int) -> dict[tuple[str, int], list[CodeType]]:
    """Compile `text`; return its code objects by name and first line."""
    with _silence_warnings():
        pending = [compile(text, "<text>", "exec", flags, dont_inherit=True)]
    functions: dict[tuple[str, int], list[CodeType]] = {}
    while pending:
        code = pending.pop()
        functions.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        pending.extend(each for each in code.co_consts if isinstance(each, CodeType))
    return functions


@lru_cache(maxsize=8)
def _parse_text(text: str) -> tuple[ast.Module, tuple[str, ...]]:
    """Parse `text`; return its tree and the names it imports."""
    with _silence_warnings():
        tree = ast.parse(text)
    return tree, tuple(_imported_names(tree))


def _find_by_compiling(code: CodeType, index: dict[tuple[str, int], list[Source]]) -> Source | None:
    """Return the only candidate at the line of `code` that compiles to `code` when it is compiled alone."""
    exact: list[Source] = []
    close: list[Source] = []
    for candidate in index.get((code.co_name, code.co_firstlineno), ()):
        # a notebook compiles every statement separately: its functions see no imports
        for source in (candidate, Source(candidate.node, candidate.private, ())):
            compiled = compile_inside(source, source.node, code)
            if compiled is not None and is_same_code(compiled, code, lines=False):
                if compiled.co_linetable == code.co_linetable:
                    exact.append(source)
                elif is_same_code(compiled, code, lines=True):
                    close.append(source)
                break
    # columns distinguish lambdas on one line; without columns only a single candidate is safe
    chosen = exact or close
    return chosen[0] if len(chosen) == 1 else None


@contextmanager
def _silence_warnings() -> Iterator[None]:
    """Suppress warnings of the parser and the compiler, which the import of the module has shown.

    `warnings.catch_warnings` would reset Python's registry of the user's warnings that were shown.
    """
    with _warnings_lock:
        saved = warnings.filters
        warnings.filters = [("ignore", None, Warning, None, 0)]
        try:
            yield
        finally:
            warnings.filters = saved


@lru_cache(maxsize=8)
def _index_functions(text: str, test_file: str) -> dict[tuple[str, int], list[Source]]:
    """Return the functions of `text` by name and first line; those of `test_file` as pytest rewrites them."""
    tree, imports = _parse_text(text)
    if test_file:
        # pytest has compiled the test file with rewritten assert statements
        with _silence_warnings():
            tree = ast.parse(text)
            sys.modules[PYTEST].rewrite_asserts(tree, text.encode(), test_file)
        imports = tuple(_imported_names(tree))
    functions: dict[tuple[str, int], list[Source]] = {}
    for node, private in _iterate_functions(tree):
        position = _name(node), _first_line(node)
        functions.setdefault(position, []).append(Source(node, private, imports))
    return functions


def _iterate_functions(tree: ast.Module, line: int = 0) -> Iterator[tuple[FunctionNode, str | None]]:
    """Yield the functions of a tree, with the class they are in; if `line` is given, those that span it."""
    pending: list[tuple[ast.AST, str | None]] = [(tree, None)]
    while pending:
        node, private = pending.pop()
        if isinstance(node, FUNCTION_NODES):
            yield node, private
        inner = node.name if isinstance(node, ast.ClassDef) else private
        for child in ast.iter_child_nodes(node):
            if not line or not isinstance(child, ast.stmt) or _covers(child, line):
                pending.append((child, inner))


def _covers(node: ast.stmt, line: int) -> bool:
    # decorators precede the first line of the node
    above: list[ast.expr] = getattr(node, "decorator_list", [])
    first = above[0].lineno if above else node.lineno
    return first <= line <= (node.end_lineno or line)


def _imported_names(tree: ast.Module) -> Iterator[str]:
    # attribute calls on names that the module imports compile to other instructions
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            yield from (name for name in names if name != "*")
        if not isinstance(node, (*FUNCTION_NODES, ast.ClassDef, ast.expr)):
            pending.extend(ast.iter_child_nodes(node))


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _first_line(node: FunctionNode) -> int:
    if isinstance(node, ast.Lambda) or not node.decorator_list:
        return node.lineno
    return node.decorator_list[0].lineno


#: Fields that are no nodes, or nodes without fields.
_LEAF_FIELDS = frozenset({"ctx", "id", "attr", "op", "ops", "kind", "type_comment"})
_CHILD_FIELDS: dict[type, tuple[str, ...]] = {ast.Constant: ()}


def walk_tree(node: ast.AST) -> list[Any]:
    """Return the nodes of a syntax tree, except contexts and operators; those of an upper level come first.

    `ast.walk` takes several times as long.
    """
    found: list[Any] = [node]
    known = _CHILD_FIELDS
    for part in found:
        kind = type(part)
        fields = known.get(kind)
        if fields is None:
            fields = known[kind] = tuple(name for name in kind._fields if name not in _LEAF_FIELDS)
        for name in fields:
            value = getattr(part, name, None)
            if type(value) is list:
                found += [item for item in value if isinstance(item, ast.AST)]
            elif type(value) not in LEAF_TYPES and isinstance(value, ast.AST):
                found.append(value)
    return found


def copy_tree(node: Any) -> Any:
    """Copy a syntax tree; a node with several parents becomes several nodes."""
    kind: Any = type(node)
    if kind is list:
        return [copy_tree(each) for each in node]
    if not isinstance(node, ast.AST):
        return node  # a name or a constant
    # no other attributes: tools that show tracebacks set references on nodes, even on those all trees share
    names = kind._fields + kind._attributes
    if not names:
        return node
    copied, contents = kind.__new__(kind), vars(node)
    # values are tested before the recursive call: most are no trees
    vars(copied).update([
        (name, value if type(value) in LEAF_TYPES else copy_tree(value))
        for name in names if (value := contents.get(name, MISSING_FIELD)) is not MISSING_FIELD])
    return copied


def strip_signature(node: FunctionNode) -> FunctionNode:
    """Return `node` without the parts evaluated outside its body: decorators, defaults, annotations."""
    stripped = copy.copy(node)
    stripped.args = copy.copy(node.args)
    stripped.args.defaults = []
    stripped.args.kw_defaults = [None] * len(node.args.kwonlyargs)
    for name in ("posonlyargs", "args", "kwonlyargs"):
        setattr(stripped.args, name, [_unannotated(arg) for arg in getattr(node.args, name)])
    stripped.args.vararg = node.args.vararg and _unannotated(node.args.vararg)
    stripped.args.kwarg = node.args.kwarg and _unannotated(node.args.kwarg)
    if not isinstance(stripped, ast.Lambda):
        # a decorator's line is the first line of the code object
        stripped.decorator_list = [
            ast.copy_location(ast.Constant(None), decorator)
            for decorator in stripped.decorator_list[:1]
        ]
        stripped.returns = None
        if hasattr(stripped, "type_params"):
            stripped.type_params = []
    return stripped


def _unannotated(arg: ast.arg) -> ast.arg:
    arg = copy.copy(arg)
    arg.annotation = None
    return arg


def compile_inside(
    source: Source, node: FunctionNode, code: CodeType,
    extra: Iterable[str] = (), constants: Mapping[str, Any] | None = None,
) -> CodeType | None:
    """Compile `node` with the free variables, the class and the flags of `code`.

    `extra` are additional free variables; string constants that are keys of `constants` become their values.
    """  # fmt: skip
    arguments = [_at_first_line(ast.arg(name)) for name in (*code.co_freevars, *extra)]
    free = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
    node = strip_signature(node)
    inner: ast.stmt = _at_first_line(ast.Expr(node)) if isinstance(node, ast.Lambda) else node
    # inside a class body the function does not see its name or that of its class; "_" mangles no name
    private = source.private or "_"
    for name in (private, SHIELD):
        inner = _at_first_line(ast.ClassDef(name, [], [], [inner], [], **_no_type_params()))
    outer = _at_first_line(ast.FunctionDef(WRAPPER, free, [inner], [], **_no_type_params()))
    imports = [_at_first_line(ast.Import([_at_first_line(ast.alias(name))])) for name in source.imports]
    module = ast.Module([*imports, outer], [])
    try:
        with _silence_warnings():
            compiled = compile(
                module, code.co_filename, "exec", code.co_flags & FUTURE_FLAGS, dont_inherit=True
            )
    except (SyntaxError, ValueError, RecursionError):
        return None
    for name in (WRAPPER, SHIELD, private, code.co_name):
        inside = [c for c in compiled.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if len(inside) != 1:
            return None
        compiled = inside[0]
    compiled = _requalify(compiled, compiled.co_qualname, code.co_qualname, constants or {})
    context = code.co_flags & CONTEXT_FLAGS
    return compiled.replace(co_flags=compiled.co_flags & ~CONTEXT_FLAGS | context)


def _at_first_line(node: AnyNode) -> AnyNode:
    """Give `node` a position on the first line."""
    node.lineno = node.end_lineno = 1  # type: ignore[attr-defined]
    node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    return node


def _no_type_params() -> dict[str, Any]:
    return {"type_params": []} if "type_params" in ast.FunctionDef._fields else {}


def _requalify(code: CodeType, old: str, new: str, constants: Mapping[str, Any]) -> CodeType:
    """Replace the prefix `old` of qualified names in `code` by `new`, and string constants by `constants`."""
    def constant(value: Any) -> Any:
        if isinstance(value, CodeType):
            return _requalify(value, old, new, constants)
        if isinstance(value, str):
            # a class body holds its qualified name as a constant
            return new + value[len(old):] if value.startswith(old) else constants.get(value, value)
        return value

    qualname = code.co_qualname
    return code.replace(
        co_consts=tuple(constant(value) for value in code.co_consts),
        co_qualname=new + qualname[len(old):] if qualname.startswith(old) else qualname,
    )


def syntax_tree_of(function: FunctionType) -> Source | None:
    """Return a copy of the syntax tree of `function`; None if it is not found, or may read its frame."""
    source = find_source(function)
    if source is None or isinstance(source.node, ast.Lambda) \
            or any(map(_reads_frame, walk_tree(source.node))):
        return None
    return Source(copy_tree(source.node), source.private, source.imports)


def lambda_of(function: FunctionType) -> Source | None:
    """Return a copy of the syntax tree of a lambda; None if it is not found, or may read its frame."""
    source = find_source(function)
    if source is None or not isinstance(source.node, ast.Lambda) \
            or any(map(_reads_frame, walk_tree(source.node))):
        return None
    return Source(copy_tree(source.node), source.private, source.imports)


def _reads_frame(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in FRAME_READERS
        case ast.Attribute(attr=name):
            return name in FRAME_ATTRIBUTES
    return False


def compile_changed(source: Source, code: CodeType, objects: Mapping[str, Any]) -> CodeType | None:
    """Compile a changed tree of `code`; string constants that are keys of `objects` become their values."""
    compiled = compile_inside(source, source.node, code, (), objects)
    return compiled if compiled is not None and compiled.co_freevars == code.co_freevars else None
