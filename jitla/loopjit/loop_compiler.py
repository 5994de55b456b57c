"""Compilation of loops: what names stand for, lowering, machine code, and the functions with rewritten loops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from jitla.classes import dataclass
from jitla.instrument import compile_changed, syntax_tree_of
from jitla.introspection import is_installed, package_of
from jitla.loopir.program import Allocate, ExitKind, LoopProgram
from jitla.loopjit import liveness
from jitla.loopjit.loop_sites import MIN_ARENA_BYTES, LoopSite, Specialisation, State
from jitla.loopjit.lowering import Helper, LoweredLoop, lower_loop
from jitla.loopjit.operands import arrays_in, entry_environment, state_writer
from jitla.loopjit.rewriting import CONSTANTS, RewrittenLoop, rewrite
from jitla.loopjit.sources import Endless, Source, SourceLowering
from jitla.loopjit.values import LoweringRefused

MISSING = object()
GENERATOR_FLAGS = 0x20 | 0x80 | 0x200


class NameResolver:
    """Resolves names outside of a function, and notes what they stand for."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.assumptions: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.codes: dict[FunctionType, CodeType] = {}

    def global_name(self, name: str, function: FunctionType | None) -> Any:
        """Return the value of a global or builtin name."""
        owner: Any = function or self.function
        if name in owner.__code__.co_freevars:
            return self._free_variable(name, owner)
        space: Mapping[str, Any] = owner.__globals__
        if name not in space:
            self._note(space, name, MISSING)
            space = owner.__builtins__
        if name not in space:
            raise LoweringRefused(f"{name} is not defined")
        return self._note(space, name, space[name])

    @staticmethod
    def _free_variable(name: str, owner: FunctionType) -> Any:
        raise LoweringRefused(f"{name} is a variable of another function")

    def attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module."""
        space = vars(module)
        if name not in space:
            raise LoweringRefused(f"{module.__name__}.{name} is not defined")
        return self._note(space, name, space[name])

    def _note(self, space: Mapping[str, Any], name: str, value: Any) -> Any:
        self.assumptions[id(space), name] = space, name, value
        return value

    def helper(self, function: Any) -> Helper | None:
        """Return a function of the user's as one that is inlined, or None."""
        if type(function) is not FunctionType:
            return None
        inner = getattr(function, "__wrapped__", function)
        if type(inner) is not FunctionType or is_installed(inner.__code__.co_filename) \
                and package_of(inner) != package_of(self.function):
            return None
        code = inner.__code__
        if code.co_flags & GENERATOR_FLAGS:
            raise LoweringRefused("a call of a generator")
        source = syntax_tree_of(inner)
        if source is None or not isinstance(source.node, ast.FunctionDef):
            raise LoweringRefused(f"the source of {inner.__name__} is not found")
        args = source.node.args
        if args.vararg or args.kwarg:
            raise LoweringRefused(f"{inner.__name__} takes any number of arguments")
        names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs))
        positional = names[:len(args.posonlyargs) + len(args.args)]
        values = inner.__defaults__ or ()
        defaults = dict(zip(positional[len(positional) - len(values):], values, strict=True))
        defaults |= inner.__kwdefaults__ or {}
        self.codes[inner] = code
        return Helper(inner, names, defaults, tuple(source.node.body))

    def is_current(self) -> bool:
        """Return whether all names still stand for the same."""
        for space, name, value in self.assumptions.values():
            if space.get(name, MISSING) is not value:
                return False
        return all(function.__code__ is code for function, code in self.codes.items())


@dataclass(frozen=True)
class LoopFunction:
    """A function whose loops may be run by compiled code, with its loop sites, and why other loops are left out."""

    function: FunctionType
    sites: tuple[LoopSite, ...]
    refused: tuple[tuple[int, str], ...]


Request = Callable[[LoopSite, Specialisation, Sequence[Any], Source, tuple[int, ...]], None]


def rewrite_function(function: FunctionType, request: Request) -> LoopFunction | None:
    """Return `function` with its outermost loops rewritten; None if it has none that could be compiled."""
    code = function.__code__
    if code.co_flags & GENERATOR_FLAGS:
        return None
    source = syntax_tree_of(function)
    if source is None or not isinstance(source.node, ast.FunctionDef):
        return None
    loops = liveness.analyse(source.node)
    refused: list[tuple[int, str]] = []
    sites: list[LoopSite] = []
    rewritten: list[RewrittenLoop] = []
    constants = dict(CONSTANTS)
    local = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    for loop in candidates(source.node.body, refused):
        live = loops.get(loop)
        if live is None:
            continue
        reason = unsuitable(loop, live, frozenset((*code.co_varnames, *code.co_cellvars)), local)
        if reason:
            refused.append((loop.lineno, reason))
            continue
        assigned = liveness.names_stored(loop)
        terminals = terminal_statements(loop)
        read = frozenset[str]().union(*map(liveness.names_read, terminals))
        kept = assigned & (live.at_header | live.behind | read)
        names = tuple(sorted((live.at_header | read) & local & (live.assigned | frozenset(code.co_freevars))))
        key = f"\0loops site {len(sites)}"
        site = LoopSite(loop, function, names, kept, terminals, request)
        sites.append(site)
        constants[key] = site
        rewritten.append(RewrittenLoop(loop, key, names, site.results, terminals))
    if not sites:
        return None
    rewrite(source.node, rewritten)
    changed = compile_changed(source, code, constants)
    if changed is None:
        return None
    made = FunctionType(changed, function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return LoopFunction(made, tuple(sites), tuple(refused))


def candidates(body: Sequence[ast.stmt], refused: list[tuple[int, str]]) -> list[ast.For | ast.While]:
    """Return the outermost loops without statements that no loop program has; of other loops those within them."""
    found: list[ast.For | ast.While] = []
    for node in body:
        if isinstance(node, (ast.For, ast.While)):
            line, reason = unsupported(node.body)
            if not reason:
                found.append(node)
                continue
            refused.append((line, reason))
        for field in ("body", "orelse", "finalbody"):
            found += candidates(getattr(node, field, []), refused) if not isinstance(
                node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) else []
        for handler in getattr(node, "handlers", []):
            found += candidates(handler.body, refused)
    return found


_SUPPORTED = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Pass, ast.Break,
              ast.Continue, ast.Return, ast.Raise, ast.Assert)


def unsupported(body: Sequence[ast.stmt]) -> tuple[int, str]:
    """Return line and reason of the first unconditional statement that no loop program has."""
    for node in body:
        if not isinstance(node, _SUPPORTED):
            return node.lineno, f"a {type(node).__name__.lower()} statement"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) \
                and isinstance(node.value.func, ast.Name) and node.value.func.id == "print":
            return node.lineno, "a call of print"
        if isinstance(node, (ast.For, ast.While)):
            found = unsupported(node.body)
            if found[1]:
                return found
    return 0, ""


def unsuitable(loop: ast.For | ast.While, live: liveness.LoopLiveness, own: frozenset[str],
               local: frozenset[str]) -> str:
    """Return why a loop cannot be entered by compiled code, or nothing."""
    for node in ast.walk(loop):
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return "a yield or await expression"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return "a global or nonlocal statement"
        if isinstance(node, ast.NamedExpr):
            return "an assignment expression"
    stored = liveness.names_stored(loop)
    if stored - own:
        return f"{min(stored - own)} is no local variable"
    missing = (live.at_header & own) - live.assigned
    if missing:
        return f"{min(missing)} may have no value where the loop begins"
    return ""


def terminal_statements(loop: ast.For | ast.While) -> tuple[ast.stmt, ...]:
    """Return the statements in a loop that leave the function."""
    found: list[ast.stmt] = []
    stack: list[ast.AST] = [*reversed(loop.body)]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Return, ast.Raise)):
            found.append(node)
        elif not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.AsyncFunctionDef)):
            stack += reversed(list(ast.iter_child_nodes(node)))
    return tuple(found)


# --------------------------------------------------------------------------- compilation

CompileProgram = Callable[[LoopProgram], Any]


def lower_specialisation(
    site: LoopSite, values: Sequence[Any], source: Source, groups: Sequence[int],
) -> tuple[LoweredLoop, NameResolver]:
    """Lower a loop for operands like `values`."""
    resolver = NameResolver(site.function)
    code = site.function.__code__
    count = len(arrays_in(values))
    lowered = lower_loop(
        site.node, lambda b: entry_environment(b, site.names, values, groups[:count]),
        None if isinstance(source, Endless) else lambda b: SourceLowering(b, groups[count:]).lower(source),
        site.kept, frozenset((*code.co_varnames, *code.co_cellvars)), resolver, site.function.__name__)
    return lowered, resolver


def compile_specialisation(
    site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
    groups: tuple[int, ...], compile_program: CompileProgram,
) -> None:
    """Compile a loop for operands like `values`, or refuse it."""
    try:
        lowered, resolver = lower_specialisation(site, values, source, groups)
        compiled = compile_program(lowered.program)
    except LoweringRefused as refused:
        specialisation.refuse(refused.reason, refused.line)
        return
    specialisation.lowered, specialisation.code = lowered, compiled
    specialisation.writer = state_writer(lowered.values, compiled.layout.places)
    specialisation.written = tuple(
        k for k, group in enumerate(groups) if f"group {group}" in lowered.written)
    specialisation.undo = lowered.program.raises or any(
        exit_point.kind is ExitKind.UNDO for exit_point in lowered.program.exits)
    specialisation.arena_bytes = MIN_ARENA_BYTES if _allocates(lowered.program.body) else 0
    specialisation.is_current = resolver.is_current
    specialisation.state = State.COMPILED


def _allocates(node: Any) -> bool:
    stack = [node]
    while stack:
        part = stack.pop()
        if isinstance(part, Allocate):
            return True
        if isinstance(part, tuple):
            stack += part
        else:
            stack += [getattr(part, name) for name in ("then", "otherwise", "body") if hasattr(part, name)]
    return False
