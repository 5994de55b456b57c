"""The function that is called instead of one with loops, and its compiled code on disk."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from inspect import signature
from os.path import dirname
from pathlib import Path
from time import perf_counter
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

from jitla.instrument import compile_changed, syntax_tree_of
from jitla.introspection import hide_module
from jitla.loopjit.arithmetic import callable_in_nests
from jitla.loopjit.callees import CalleeVersion, Helpers, called, defined, handed
from jitla.loopjit.deopt import CONSTANTS, nest_placeholder, replace
from jitla.loopjit.detect import DetectedNest, DetectedNests, alone, computed, find, reduction
from jitla.loopjit.policy import Entry, Variant
from jitla.profiling.loop_detector import (
    MAX_CALL_DEPTH,
    any_reachable,
    may_have_element_loops,
)


class MachineCodeCache(Protocol):
    """Keeps machine code under a key; `maker` says what made it, and for which processor."""

    def get(self, key: str, maker: str) -> bytes | None:
        """Return what is kept under `key`."""
        ...

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep `code`."""
        ...


# Returns the cache of machine code and the name of the processor; None: no cache.
CodeCacheAccess = Callable[[], tuple[MachineCodeCache, str]] | None
Ask = Callable[[str, tuple[str, ...]], tuple[str, bytes]]


def cached_object(text: str, pointers: tuple[str, ...], ask: Ask, program: str,
                  code_cache: CodeCacheAccess) -> tuple[str, bytes]:
    """Return name and object of the code for `text`, from the cache if they are there."""
    if code_cache is None:
        return ask(text, pointers)
    object_cache, processor = code_cache()
    maker = f"{processor} {_compiler(program)}"
    key = _key(text, pointers)
    found = object_cache.get(key, maker)
    if found is None:
        name, data = ask(text, pointers)
        object_cache.put(key, maker, name.encode() + b"\n" + data)
        return name, data
    first, _, data = found.partition(b"\n")
    return first.decode(), data


def _key(text: str, pointers: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(["loop", text, list(pointers)]).encode()).hexdigest()


@cache
def _compiler(program: str) -> str:
    """Say what compiles: the releases of Numba and llvmlite, by the files they say it in, and who calls them.

    Asked of the packages' metadata it would take a fourth of all that a process loads for its first loop.
    """
    found = hashlib.sha256(Path(program).read_bytes())
    for package in ("numba", "llvmlite"):
        spec = find_spec(package)
        release = Path(spec.origin).with_name("_version.py") if spec and spec.origin else None
        found.update(release.read_bytes() if release and release.exists() else b"unknown")
    return f"Numba {found.hexdigest()}"


_GENERATORS = 0x20 | 0x80 | 0x200
# Nests that take a smaller part of a call than this do not decide how the rest of it runs.
PART = 0.2
# The same of loops over slices, which tracing would serve, too.
PART_OF_LANES = 0.6
# Seconds of calls after which that is known.
ENOUGH = 1e-3
# Calls until it is settled whether a function lives by its loops.
CALLS = 64


class NestRecord(NamedTuple):
    """What became of one nest, or of a loop that is none."""

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


class Looping:
    """One function that has nests over elements."""

    def __init__(self, function: FunctionType, version: FunctionType | None, entries: list[Entry],
                 refused: list[tuple[int, str]], node: ast.AST | None = None) -> None:
        self._node = node
        # Whether Python keeps its loops, as far as calls have shown.
        self.kept = bool(entries)
        self.function = function
        self.version = version or function
        self._made_of = function.__code__
        self.entries = entries
        self.refused = refused
        self.file = function.__code__.co_filename
        self._calls = 0
        self._seconds = 0.0
        self._judged = False
        # Whether calls of it are to be traced, because loops over elements are not what it does.
        self.traced = not entries

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function; the first calls tell whether it lives by its loops."""
        if self._calls >= CALLS and self.is_current():
            return self.version(*args, **kwargs)
        if not self.is_current():
            self.traced = True
            return self.function(*args, **kwargs)
        start = perf_counter()
        try:
            return self.version(*args, **kwargs)
        finally:
            self._calls += 1
            self._seconds += perf_counter() - start
            self._judge()

    @property
    def sliced(self) -> bool:
        """Whether all its nests are over slices, whose elements are computed as NumPy does."""
        return bool(self.entries) and all(entry.nest.lanes is not None for entry in self.entries)

    def alone(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Say whether Python runs it for nothing but elements."""
        self.kept = not self.entries and self._node is not None \
            and alone(self._node, self._given(args, kwargs))
        return self.kept

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return what the names stand for that are known before a call begins."""
        code, outer = self.function.__code__, self.function.__globals__
        found = {name: outer[name] for name in code.co_names
                 if name in outer and name not in code.co_varnames}
        cells = zip(code.co_freevars, self.function.__closure__ or (), strict=True)
        for name, cell in cells:
            with suppress(ValueError):  # it is empty
                found[name] = cell.cell_contents
        with suppress(TypeError):  # the call is an error
            bound = signature(self.function).bind(*args, **kwargs)
            bound.apply_defaults()
            found |= bound.arguments
        return found

    def is_current(self) -> bool:
        """Say whether the function is the one that the version was made of."""
        function, version = self.function, self.version
        return function.__code__ is self._made_of and function.__defaults__ is version.__defaults__ \
            and function.__kwdefaults__ is version.__kwdefaults__

    def clear(self) -> None:
        """Forget what was learnt."""
        self._calls, self._seconds, self._judged, self.traced = 0, 0.0, False, not self.entries
        for entry in self.entries:
            entry.clear()

    def _judge(self) -> None:
        """Decide whether the function should rather be traced."""
        variants = [variant for entry in self.entries for variant in entry.variants.values()]
        if not self._judged and self._seconds >= ENOUGH:
            self._judged = True
            for entry in self.entries:
                entry.timed = False
            part = PART_OF_LANES if self.sliced else PART
            self.traced = sum(entry.seconds() for entry in self.entries) < part * self._seconds
        elif all(v.state == "refused" for v in variants):
            self.traced = self.sliced or any(not v.element for v in variants)

    def records(self) -> list[NestRecord]:
        """Return what became of its loops."""
        made = [NestRecord(self.file, line, "refused", reason, "", 0, 0, 0, 0.0, 0.0)
                for line, reason in self.refused if self.kept]
        for entry in self.entries:
            for v in list(entry.variants.values()) or [Variant()]:
                made.append(NestRecord(entry.file, v.line or entry.nest.line, v.state, v.reason, v.kinds,
                                       v.plain, v.all_runs, v.left, v.seconds, v.all_compiled))
        return made


class Loops:
    """Makes the versions of functions; what compiles is shared by all of them."""

    def __init__(self, link: Callable[[str, bytes], tuple[Any, int]],
                 load: Callable[[str, str], tuple[Any, int]],
                 loads: Callable[[Callable[[Any], None]], None],
                 unobserved_check: Callable[[], Callable[[], bool]],
                 cache_access: Callable[[], CodeCacheAccess] = lambda: None) -> None:
        self._foreman: Any = None
        self._link = link
        self._load = load
        self._loads = loads  # calls what it is given with `jitla.loopjit.compiler`, once that is loaded
        self._unobserved_check = unobserved_check  # returns the test whether calls are unobserved
        self._cache_access = cache_access

    def _make(self, entry: Entry, variant: Variant) -> None:
        """Have a nest compiled; the options in force now say where machine code is kept."""
        code_cache = self._cache_access()

        def submit(making: Any) -> None:
            self._foreman = self._foreman or making.Foreman(f"{dirname(__file__)}/worker.py")
            tools = making.CompilerTools(self._foreman, self._link, self._load, code_cache,
                                         self._unobserved_check)
            self._foreman.submit(lambda: making.make(entry, variant, tools))

        self._loads(submit)

    def _ready(self) -> bool:
        return self._foreman is not None and self._foreman.ready

    def version(
        self, function: FunctionType, known: frozenset[CodeType] = frozenset(),
    ) -> Looping | None:
        """Return a function with loops over elements as it is called; None if it has none.

        `known` is the code of those that have called it: what goes round is met once.
        """
        code = function.__code__
        if code.co_flags & _GENERATORS:
            return None
        source = syntax_tree_of(function)
        if source is None:
            return None
        helpers = Helpers(function)
        found = _found(source.node, code, function, helpers)
        refused = list(found.refused)
        for node, its in defined(source.node, code):
            if not its.co_flags & _GENERATORS:
                inner = _found(node, its, function, helpers)
                found.nests += inner.nests
                refused += inner.refused
        callees = self._callees(function, source.node, found.nests, known | {code})
        if not found.nests and not callees:
            return Looping(function, None, [], found.refused, source.node) if found.refused else None
        made = self._entries(function, found.nests, helpers)
        replace(source.node, found.nests, [entry.names for entry in made])
        objects = CONSTANTS | {nest_placeholder(number): entry for number, entry in enumerate(made)}
        for number, (call, callee) in enumerate(callees):
            handed(call, key := f"\0loops callee {number}")
            objects[key] = callee
        changed = compile_changed(source, code, objects)
        if changed is None:
            return None
        others = {id(each.loop_function): each.loop_function.entries for _, each in callees}
        made += [entry for each in others.values() for entry in each]
        return Looping(function, _bound(function, changed), made, refused)

    def _callees(
        self, function: FunctionType, tree: ast.AST, nests: list[DetectedNest], known: frozenset[CodeType],
    ) -> list[tuple[ast.Call, CalleeVersion]]:
        """Return the calls of functions that have nests of their own."""
        met: dict[int, Looping | None] = {}
        made = []
        for call, given in called(function, tree, [nest.loop for nest in nests]):
            if given.__code__ in known or len(known) > MAX_CALL_DEPTH \
                    or not may_have_element_loops(given.__code__) \
                    and not any_reachable(given, may_have_element_loops):
                continue
            if id(given) not in met:
                met[id(given)] = self.version(given, known)
            loop_function = met[id(given)]
            if loop_function is not None and loop_function.entries:
                made.append((call, CalleeVersion(loop_function)))
        return made

    def _entries(self, function: FunctionType, nests: list[Any], helpers: Helpers) -> list[Entry]:
        known: Any = function  # not every checker knows that functions have builtins
        builtin = known.__builtins__
        made = [Entry(nest, nest.takes, function.__globals__, builtin, self._make,
                      lambda: self._unobserved_check()(),
                      self._ready) for nest in nests]
        for each in made:
            each.beside, each.file, each.helpers = made, function.__code__.co_filename, helpers
        return made


def _found(node: ast.AST, code: CodeType, function: FunctionType, helpers: Helpers) -> DetectedNests:
    """Find the nests of a function, whose names are those that `function` sees."""
    local = frozenset((*code.co_varnames, *code.co_cellvars))
    found = find(node, local, frozenset(code.co_freevars))
    found.nests = [nest for nest in found.nests if not _calls_unknown(nest, function, helpers, found.refused)]
    return found


def _calls_unknown(
    nest: DetectedNest, function: FunctionType, helpers: Helpers, refused: list[tuple[int, str]],
) -> bool:
    """Say whether a nest calls what no nest can, as names are now; note it."""
    known: Any = function
    for node in computed(nest.loop):
        if not isinstance(node, ast.Call):
            continue
        first, *rest = ast.unparse(node.func).split(".")
        found = function.__globals__.get(first, known.__builtins__.get(first))
        for part in rest:
            found = vars(found).get(part) if isinstance(found, ModuleType) else None
        if found is not None and not callable_in_nests(found, reduction(node) is not None) \
                and isinstance(why := helpers.of(found), str):
            refused.append((node.lineno, f"a call of {ast.unparse(node.func)}{why and ': '}{why}"))
            return True
    return False


def _bound(function: FunctionType, code: CodeType) -> FunctionType:
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__,
                        function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    return made


hide_module(__name__)
