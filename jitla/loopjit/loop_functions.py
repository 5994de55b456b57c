"""Functions with loops: the rewritten function, its loop sites, and whether calls live by their loops."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from jitla.classes import dataclass
from jitla.instrument import compile_changed, syntax_tree_of, walk_tree
from jitla.introspection import hide_module
from jitla.loopjit import liveness
from jitla.loopjit.callees import CalleeVersion, bindings, called, handed
from jitla.loopjit.loop_sites import LoopSite, Request
from jitla.loopjit.objects import calls_methods, fields_of_method
from jitla.loopjit.rewriting import CONSTANTS, RewrittenLoop, count_source_arguments, rewrite
from jitla.loopjit.specialisations import Specialisation, State
from jitla.tiering.loop_detector import (
    MAX_CALL_DEPTH,
    any_reachable,
    has_element_loops,
    has_loops,
)

if TYPE_CHECKING:
    from jitla.loopir import LoopProgram

NO_TYPES: Mapping[str, type] = {}
GENERATOR_FLAGS = 0x20 | 0x80 | 0x200
MIN_LOOP_SHARE = 0.2  # of the time of calls, below which loops do not decide how the rest of a call runs
JUDGED_SECONDS = 1e-3  # of calls, after which the share of loops is known
FIRST_CALL_SECONDS = 2e-3  # that the first call of a process may take more than others
JUDGED_CALLS = 64  # until it is settled whether a function lives by its loops


@dataclass(frozen=True)
class RewrittenFunction:
    """A function whose loops may be run by compiled code, its loop sites, and lines and reasons of other
    loops.
    """

    function: FunctionType
    sites: tuple[LoopSite, ...]
    refused: tuple[tuple[int, str], ...]


def rewrite_function(
    function: FunctionType, request: Request, known: frozenset[CodeType] = frozenset(),
    callee: Callable[[FunctionType, frozenset[CodeType]], Any] = lambda function, known: None,
    earlier: Sequence[LoopSite] = (), types: Mapping[str, type] = NO_TYPES,
) -> RewrittenFunction | None:
    """Return `function` with its outermost loops rewritten; None if it has no loops.

    Of sites that were there `earlier` those that are disabled stay as they were written, and loops within
    them are rewritten if `LoopSite.inner_loops` holds; the others are used again.

    `types` are the classes of arguments that are objects, as far as they are known: attributes that their
    methods use are variables of loops that call them.

    `callee` returns the loop function of a function that it calls, for calls outside of loops that are
    compiled; `known` is the code of the functions that call this one.
    """
    code = function.__code__
    if code.co_flags & GENERATOR_FLAGS:
        return None
    source = syntax_tree_of(function)
    if source is None or not isinstance(source.node, ast.FunctionDef):
        return None
    loops = liveness.analyse(source.node)
    defined = local_functions(source.node)
    refused: list[tuple[int, str]] = []
    sites: list[LoopSite] = []
    rewritten: list[RewrittenLoop] = []
    constants = dict(CONSTANTS)
    local = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    sites_before = {(site.node.lineno, site.node.col_offset): site for site in earlier}
    for loop in candidates(source.node.body, refused, sites_before):
        live = loops.get(loop)
        if live is None:
            continue
        reason = unsuitable(loop, frozenset((*code.co_varnames, *code.co_cellvars)))
        if reason:
            refused.append((loop.lineno, reason))
            continue
        assigned = liveness.names_stored(loop) - liveness.comprehension_names(loop)
        terminals = terminal_statements(loop)
        read = frozenset[str]().union(*map(liveness.names_read, terminals))
        kept = assigned & (live.at_header | live.behind | read)
        functions = {name: node for name, node in defined.items() if name in live.assigned}
        names = tuple(sorted(
            (live.at_header | read) & local & (live.assigned | frozenset(code.co_freevars)) - functions.keys()
            | global_arrays(liveness.names_read(loop) - local, function.__globals__)))
        key = f"\0loops site {len(sites)}"
        source_arguments = count_source_arguments(
            loop, lambda name: name in local or name in function.__globals__)
        site = sites_before.get((loop.lineno, loop.col_offset))
        objects = frozenset(names) - assigned
        fields, stored = fields_used(loop, objects, wanted_fields(site, loop, objects, types))
        operands = (*names, *map(".".join, fields))
        if site is None or operands != site.names:
            wanted = site.wanted_fields if site is not None else {}
            site = LoopSite(loop, function, operands, kept | frozenset(map(".".join, stored)), terminals,
                            request, source_arguments)
            site.wanted_fields = dict(wanted)
        site.local_functions, site.has_objects = functions, bool(stored)
        sites.append(site)
        constants[key] = site
        reads = [f"'{key}'.field({name}, '{field}')" if (name, field) not in stored else
                 f"'{key}'.stored_field({name}, '{field}'{others_with(field, name, fields)})"
                 for name, field in fields]
        rewritten.append(
            RewrittenLoop(loop, key, (*names, *reads), site.results, terminals, source_arguments))
    callees = _callees(function, source.node, [site.node for site in sites], known | {code}, callee)
    if not sites and not callees:
        return RewrittenFunction(function, (), tuple(refused)) if refused else None
    for number, (call, loop_function) in enumerate(callees):
        handed(call, key := f"\0loops callee {number}")
        constants[key] = CalleeVersion(loop_function)
    rewrite(source.node, rewritten)
    changed = compile_changed(source, code, constants)
    if changed is None:
        return None
    made = FunctionType(changed, function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    others = {id(each): each for _, each in callees}
    inner = [site for each in others.values() for site in each.entries]
    return RewrittenFunction(made, (*sites, *inner), tuple(refused))


def local_functions(function: ast.FunctionDef) -> dict[str, ast.FunctionDef | ast.Lambda]:
    """Return the functions that a function defines by name, those that are bound once."""
    bound = Counter(bindings(function))
    found: dict[str, ast.FunctionDef | ast.Lambda] = {}
    for node in function.body:
        match node:
            case ast.FunctionDef(name=name, decorator_list=[]):
                found[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                found[name] = value
    return {name: node for name, node in found.items() if bound[name] == 1}


Fields = Sequence[tuple[str, str]]


def fields_used(
    loop: ast.AST, names: frozenset[str], wanted: Fields,
) -> tuple[Fields, frozenset[tuple[str, str]]]:
    """Return the attributes of objects with these names that a loop uses, and those that it may assign.

    They are its operands. `wanted` are further ones, which functions that are called in the loop use.
    """
    used: dict[tuple[str, str], None] = {}
    stored: set[tuple[str, str]] = set()
    called = {id(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)}
    for node in ast.walk(loop):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=field, ctx=context) if name in names \
                    and id(node) not in called and not field.startswith("__") and (
                    isinstance(context, ast.Store) or not hasattr(np.ndarray, field)):
                used[name, field] = None
                if isinstance(context, ast.Store):
                    stored.add((name, field))
    for each in wanted:
        if each[0] in names:
            used[each[0], each[1]] = None
            stored.add(each)
    return list(used), frozenset(stored)


def wanted_fields(site: LoopSite | None, loop: ast.AST, names: frozenset[str],
                  types: Mapping[str, type]) -> Fields:
    """Return the attributes that functions called in a loop use, of objects with these names."""
    found = dict.fromkeys(site.wanted_fields if site is not None else ())
    for node in ast.walk(loop):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in names \
                    and name in types:
                found |= dict.fromkeys((name, field) for field in fields_of_method(types[name], method))
    return list(found)


def others_with(field: str, name: str, fields: Fields) -> str:
    """Return the arguments for other objects with an attribute of this name."""
    return "".join(f", {other}" for other, each in fields if each == field and other != name)


def global_arrays(names: frozenset[str], space: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of global arrays among `names`, and among those that functions with these names read.
    """
    found: set[str] = set()
    seen: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name in seen or name not in space:
            continue
        seen.add(name)
        value = space[name]
        if type(value) is np.ndarray:
            found.add(name)
        inner = getattr(value, "__wrapped__", value)
        if type(inner) is FunctionType and inner.__globals__ is space:
            stack += [each for each in inner.__code__.co_names if each not in inner.__code__.co_varnames]
    return frozenset(found)


def candidates(
    body: Sequence[ast.stmt], refused: list[tuple[int, str]], sites: Mapping[tuple[int, int], LoopSite],
) -> list[ast.For | ast.While]:
    """Return the outermost loops without statements that no loop program has; of other loops those within
    them.

    `sites` are those of an earlier version by position.
    """
    found: list[ast.For | ast.While] = []
    for node in body:
        if isinstance(node, (ast.For, ast.While)):
            line, reason = unsupported(node.body)
            site = sites.get((node.lineno, node.col_offset))
            if site is not None and site.disabled and not site.is_outdated:
                line, reason = site.disabled
                if not site.inner_loops:
                    refused.append((line, reason))
                    continue
            if not reason:
                found.append(node)
                continue
            refused.append((line, reason))
        for field in ("body", "orelse", "finalbody"):
            found += candidates(getattr(node, field, []), refused, sites) if not isinstance(
                node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) else []
        for handler in getattr(node, "handlers", []):
            found += candidates(handler.body, refused, sites)
    return found


_SUPPORTED = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Pass,
              ast.Break,
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


def unsuitable(loop: ast.For | ast.While, own: frozenset[str]) -> str:
    """Return why a loop cannot be entered by compiled code, or nothing; `own` are the names of local
    variables.
    """
    for node in walk_tree(loop):
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return "a yield or await expression"
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            return "a global or nonlocal statement"
        if isinstance(node, ast.NamedExpr):
            return "an assignment expression"
    stored = liveness.names_stored(loop) - liveness.comprehension_names(loop)
    if stored - own:
        return f"{min(stored - own)} is no local variable"
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



def _callees(
    function: FunctionType, tree: ast.AST, loops: Sequence[ast.AST], known: frozenset[CodeType],
    callee: Callable[[FunctionType, frozenset[CodeType]], Any],
) -> list[tuple[ast.Call, Any]]:
    """Return the calls of functions with loops outside of the loops of the function, each with its loop
    function.
    """
    found: dict[int, Any] = {}
    calls = []
    for call, target in called(function, tree, loops):
        if target.__code__ in known or len(known) > MAX_CALL_DEPTH or not any_reachable(target, has_loops):
            continue
        if id(target) not in found:
            found[id(target)] = callee(target, known)
        loop_function = found[id(target)]
        if loop_function is not None and loop_function.entries:
            calls.append((call, loop_function))
    return calls


# --------------------------------------------------------------------------- functions at run time


class LoopSiteRecord(NamedTuple):
    """A loop for one combination of kinds of its operands, or a loop that is not compiled.

    Python has done `plain` iterations in `seconds`, compiled code `runs` parts in `compiled` seconds.
    Compiled code could not do a single iteration `left` times, last for the reason `failure`.
    """

    file: str
    line: int
    state: str
    reason: str
    kinds: str
    plain: int
    runs: int
    left: int
    seconds: float
    compiled: float
    failure: str = ""
    program: LoopProgram | None = None


_STATE_NAMES = {State.COLD: "cold", State.QUEUED: "waiting", State.COMPILED: "tried", State.READY: "trusted",
                State.REFUSED: "refused"}


class LoopFunction:
    """One function with loops: calls run its rewritten version."""

    def __init__(
        self, function: FunctionType, rewritten: RewrittenFunction,
        remake: Callable[[Sequence[LoopSite], Mapping[str, type]], RewrittenFunction | None] =
        lambda sites, types: None,
    ) -> None:
        self.function = function
        self._remake = remake
        self._types: dict[str, type] = {}  # of arguments that are objects
        self._disabled = 0  # sites that the version does not have any more
        self.version = rewritten.function
        self.entries = rewritten.sites
        self.sites = rewritten.sites  # of all versions so far
        self.refused = rewritten.refused
        self.file = function.__code__.co_filename
        # Python runs loops over elements
        self.kept = not self.entries and has_element_loops(function.__code__)
        self.traced = not self.entries  # whether calls are to be traced, because loops are not what they do
        self._code = function.__code__
        self._calls = 0
        self._watch()
        self._seconds, self._longest = -FIRST_CALL_SECONDS, 0.0

    @property
    def body(self) -> Callable[..., Any]:
        """The function that runs calls: the rewritten one, or one that judges it in its first calls."""
        return self.version if self._calls >= JUDGED_CALLS else self.judge

    def judge(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and judge whether it lives by its loops."""
        return self.call(args, kwargs)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function; the first calls tell whether it lives by its loops."""
        if not self._calls and self.entries:
            self._note_types(args)
        if self._calls >= JUDGED_CALLS and self.is_current():
            return self.version(*args, **kwargs)
        if not self.is_current():
            self.traced = True
            return self.function(*args, **kwargs)
        start = perf_counter()
        try:
            return self.version(*args, **kwargs)
        finally:
            self._calls += 1
            seconds = perf_counter() - start
            self._seconds += seconds
            self._longest = max(self._longest, seconds)
            self._judge()

    def _note_types(self, args: tuple[Any, ...]) -> None:
        """Make a version for arguments that are objects whose methods are called in loops."""
        names = self.function.__code__.co_varnames
        types = {name: type(arg) for name, arg in zip(names, args, strict=False)
                 if type(type(arg)) is type and type(getattr(arg, "__dict__", None)) is dict}
        if types and types != self._types and any(map(calls_methods, (site.node for site in self.entries))):
            self._types = types
            self._refresh()

    def is_left_to_python(self) -> bool:
        """Return whether Python runs it for loops over elements only."""
        return self.kept

    def is_current(self) -> bool:
        """Return whether the function is the one that the version was made of."""
        function, version = self.function, self.version
        return function.__code__ is self._code and function.__defaults__ is version.__defaults__ \
            and function.__kwdefaults__ is version.__kwdefaults__

    def clear(self) -> None:
        """Discard profiles and compiled code."""
        self._calls, self._seconds, self.traced = 0, -FIRST_CALL_SECONDS, not self.entries
        self._longest = 0.0
        for site in self.sites:
            site.clear()

    def _watch(self) -> None:
        """Have calls judged again when a loop is left to Python."""
        owner = ref(self)

        def judge_again() -> None:
            loop_function = owner()
            if loop_function is not None:
                loop_function._calls = 0

        for site in self.entries:
            site.on_give_up = judge_again

    def _judge(self) -> None:
        """Decide whether the function should rather be traced."""
        found = [x for site in self.sites for x in list(site.specialisations.values())]
        if sum(bool(site.disabled) for site in self.sites) > self._disabled:
            self._refresh()
        if not self.entries:
            self.traced = True
        elif self._seconds >= JUDGED_SECONDS:
            for x in found:
                x.collect()
            spent = sum(x.seconds + x.compiled_seconds + max(x.overhead_seconds, x.job.waited_seconds)
                        for x in found)
            ready = any(x.state is State.READY for x in found)
            # One call may have waited for something else.
            self.traced = not ready and spent < MIN_LOOP_SHARE * (self._seconds - self._longest)

    def _refresh(self) -> None:
        """Make a version without the loops that are left to Python."""
        self._disabled = sum(bool(site.disabled) for site in self.sites)
        rewritten = self._remake(self.sites, self._types)
        if rewritten is None:
            self.version, self.entries = self.function, ()
            return
        self.version, self.entries = rewritten.function, rewritten.sites
        places = {(site.node.lineno, site.node.col_offset) for site in rewritten.sites}
        self.sites = tuple(dict.fromkeys((*(site for site in self.sites if (
            site.node.lineno, site.node.col_offset) not in places), *rewritten.sites)))
        self._disabled = sum(bool(site.disabled) for site in self.sites)
        self._calls = 0
        self._watch()

    def records(self) -> list[LoopSiteRecord]:
        """Return what became of its loops."""
        made = [LoopSiteRecord(self.file, line, "refused", reason, "", 0, 0, 0, 0.0, 0.0)
                for line, reason in self.refused if self.kept]
        for site in self.sites:
            for x in list(site.specialisations.values()) or [Specialisation(None)]:
                x.collect()
                code = x.code  # which another thread may discard
                made.append(LoopSiteRecord(
                    site.function.__code__.co_filename, x.line or site.node.lineno, _STATE_NAMES[x.state],
                    x.reason, site.kinds(x), x.iterations, x.runs, x.failures, x.seconds, x.compiled_seconds,
                    x.failure, None if code is None else code.owner.program))
        return made


class Loops:
    """Makes the loop functions of a process; `request` has a loop compiled, in the background."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def version(
        self, function: FunctionType, known: frozenset[CodeType] = frozenset(),
    ) -> LoopFunction | None:
        """Return a function with loops as it is called; None if it has none."""
        rewritten = rewrite_function(function, self._request, known, self.version)
        return None if rewritten is None else LoopFunction(
            function, rewritten,
            lambda sites, types: rewrite_function(function, self._request, known, self.version, sites, types))


hide_module(__name__)
