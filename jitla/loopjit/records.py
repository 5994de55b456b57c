"""Records of loops on disk: what lowering and the check of a loop have shown, for later processes.

A record belongs to the code of a function, the position of a loop in it, kinds of operands, and versions of
jitla, NumPy, Python, LLVM and processor. It has a log of the names that lowering looked up, with a
description of what each stood for: functions by their code, numbers by their values, functions of libraries
by their names. `replay` looks them up again; a record is used if all descriptions are the same. It says
either why the loop is refused, or has the tables by which a program is entered, and the keys of its machine
code, which has passed its check. Then nothing is lowered nor checked again.

Files that are damaged, or that other users could have written, are not read (`jitla.runtime.disk_cache`).
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np

from jitla.introspection import is_decorated, is_installed
from jitla.loopir import LoopProgram, StateLayout
from jitla.loopjit.operands import CONSTANTS, MAX_TUPLE, ListItems, key_of
from jitla.loopjit.rewriting import Unassigned
from jitla.loopjit.values import Arr, Conflict, Num, StaticValue, Tup, Union, is_constant

FORMAT = "loop record 1"
MAX_ITEMS = 64  # of a tuple that is described
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
#: Packages whose objects are the same in all processes with the same versions of Python and NumPy.
_KNOWN_PACKAGES = frozenset({"builtins", "cmath", "math", "numpy", "operator"})
#: Errors of reading a record of another form.
_MALFORMED = (pickle.UnpicklingError, AttributeError, ImportError, LookupError, EOFError, TypeError,
              ValueError)


class NotRecordable(Exception):
    """A value that is not described: another process could not tell whether its own is the same."""


class Store(Protocol):
    """Keeps bytes from process to process; `maker` says which versions they are of."""

    def get(self, key: str, maker: str) -> bytes | None:
        """Return the bytes of `key`."""
        ...

    def put(self, key: str, maker: str, code: bytes) -> None:
        """Keep bytes."""
        ...


class LoopTables(NamedTuple):
    """How a program is entered: the layout of its state, exits, terminal statements by exit, variables."""

    layout: StateLayout
    exits: tuple[tuple[str, int, str], ...]
    terminals: dict[int, int]
    values: dict[str, Any]
    results: dict[str, Any]
    written: tuple[int, ...]
    undo: bool
    arena_bytes: int
    raises: bool


class LoweringRecord(NamedTuple):
    """What is known of a loop: the log of names, and a reason with its line, or tables and keys of code."""

    steps: tuple[Any, ...]
    reason: str
    line: int
    tables: LoopTables | None = None
    keys: tuple[str, ...] = ()
    program: bytes = b""

    def read_program(self) -> LoopProgram:
        """Return the program, for explanations."""
        found: LoopProgram = pickle.loads(self.program)
        return found


# --------------------------------------------------------------------------- descriptions


def code_digest(code: CodeType) -> str:
    """Return a digest of a code object with all that it does, and its lines."""
    return hashlib.sha256(repr(_code_words(code)).encode()).hexdigest()


def _code_words(code: CodeType) -> tuple[Any, ...]:
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_qualname,
            code.co_firstlineno, code.co_linetable, code.co_exceptiontable,
            tuple(map(_constant_words, code.co_consts)))


def _constant_words(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code_words(value)
    if isinstance(value, tuple):
        return "tuple", *map(_constant_words, value)
    if isinstance(value, frozenset):
        return "frozenset", *sorted(repr(_constant_words(item)) for item in value)
    return type(value).__name__, repr(value)


def describe_object(value: Any) -> Any:
    """Return what has to be the same in another process for `value` to be the same there."""
    kind = type(value)
    if kind in _SCALARS:
        return kind.__name__, repr(value)
    if isinstance(value, np.generic):
        return "scalar", kind.__name__, value.tobytes()
    if kind is tuple and len(value) <= MAX_ITEMS:
        return "tuple", *map(describe_object, value)
    if kind in (list, np.ndarray):  # their items are looked up, or arrays are operands
        return kind.__name__
    if isinstance(value, np.dtype):
        return "dtype", value.str, str(value)
    if isinstance(value, ModuleType):
        if sys.modules.get(value.__name__) is value:
            return "module", value.__name__
    elif kind is FunctionType:
        inner = getattr(value, "__wrapped__", value)
        if type(inner) is FunctionType:  # the inner one is inlined
            return ("function", _describe_function(inner),
                    None if inner is value or is_decorated(value) else _describe_function(value))
    else:
        path = _import_path(value)
        if path is not None:
            return "object", *path
    raise NotRecordable(kind.__name__)


def _describe_function(function: FunctionType) -> Any:
    return (function.__module__, function.__qualname__, code_digest(function.__code__),
            is_installed(function.__code__.co_filename), describe_object(function.__defaults__),
            tuple((name, describe_object(item)) for name, item in (function.__kwdefaults__ or {}).items()))


def _import_path(value: Any) -> tuple[str, str] | None:
    """Return module and name by which every process finds an object; None if there are none."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    if type(name) is not str or type(module) is not str or module.partition(".")[0] not in _KNOWN_PACKAGES:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


def _describe_operand(value: Any) -> Any:
    """Return what a record depends on of an operand."""
    if type(value) is ListItems:
        return "list", *map(_describe_operand, value)
    if type(value) is tuple and len(value) <= MAX_TUPLE:
        return "tuple", *map(_describe_operand, value)
    if isinstance(value, CONSTANTS) and not isinstance(value, str):
        return "constant", describe_object(value)
    return _stable(key_of(value))


def _stable(key: Any) -> Any:
    """Return a key of operands without objects of this process."""
    if isinstance(key, tuple):
        return tuple(map(_stable, key))
    if isinstance(key, np.dtype):
        return "dtype", key.str, str(key)
    return f"{key.__module__}.{key.__qualname__}" if isinstance(key, type) else key


# --------------------------------------------------------------------------- logs of names


class NameLog:
    """Logs what names stand for; `constants` are the operands that are looked up in."""

    def __init__(self, constants: Sequence[Any]) -> None:
        self._objects: list[Any] = list(constants)
        self.steps: list[tuple[Any, ...]] = []
        self.is_complete = True  # whether all that was looked up is described

    def note(self, kind: str, owner: Any, name: str, value: Any) -> None:
        """Log that a name of `owner` (None: of the function with the loop) stands for `value`."""
        number = -1 if owner is None else next(
            (k for k, known in enumerate(self._objects) if known is owner), None)
        if number is None:
            self.is_complete = False
            return
        try:
            self.steps.append((kind, number, name, describe_object(value) if kind != "items" else tuple(
                map(describe_object, value))))
        except NotRecordable:
            self.is_complete = False
        self._objects.append(value)

    def object(self, number: int) -> Any:
        """Return the object that a step refers to."""
        return None if number < 0 else self._objects[number]


class Lookups(Protocol):
    """Looks names up, and logs that: see `jitla.loopjit.loop_compiler.NameResolver`."""

    log: NameLog

    def global_name(self, name: str, function: FunctionType | None) -> Any:
        """Return the value of a global or builtin name."""
        ...

    def attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module."""
        ...

    def list_items(self, value: list[Any]) -> tuple[Any, ...]:
        """Return the items of a list."""
        ...

    def note_inlined(self, function: FunctionType, inner: FunctionType) -> None:
        """Note that a function is inlined."""
        ...


def replay(steps: Sequence[tuple[Any, ...]], lookups: Lookups, refused: type[Exception]) -> bool:
    """Return whether the names of a log stand for the same in this process; they are looked up again."""
    for step in steps:
        kind, number, name, _ = step
        owner = lookups.log.object(number)
        try:
            if kind == "global":
                lookups.global_name(name, owner)
            elif kind == "attribute":
                lookups.attribute(owner, name)
            elif kind == "items":
                lookups.list_items(owner)
            else:
                lookups.note_inlined(owner, getattr(owner, "__wrapped__", owner))
        except (refused, AttributeError, TypeError):  # there is no such name, or it is something else
            return False
        if not lookups.log.is_complete or lookups.log.steps[-1] != step:
            return False
    return True


# --------------------------------------------------------------------------- records


def constants_in(values: Sequence[Any]) -> list[Any]:
    """Return the operands that are constants of a program, and what they wrap."""
    return [value for value in values if isinstance(value, CONSTANTS)]


def record_key(site: Any, values: Sequence[Any], source: Any, groups: Sequence[int]) -> str | None:
    """Return the key of the record of a loop for operands like `values`; None if they are not described."""
    try:
        operands = tuple(map(_describe_operand, values))
    except NotRecordable:
        return None
    node = site.node
    function = site.function
    return repr((FORMAT, function.__module__, is_installed(function.__code__.co_filename),
                 code_digest(function.__code__), node.lineno, node.col_offset, site.names, site.results,
                 _stable(source.key), tuple(groups), operands))


def _is_plain(value: Any) -> bool:
    """Return whether another process reads an abstract value as it is."""
    if isinstance(value, (Tup, Union)):
        return all(map(_is_plain, value.items if isinstance(value, Tup) else value.options))
    if isinstance(value, StaticValue):
        return type(value.value) in _SCALARS or is_constant(value, Unassigned)
    return isinstance(value, (Num, Arr))


class RecordStore:
    """Reads and writes records; `maker` returns the versions that they are of."""

    on = True  # False in tests, which change the compiler

    def __init__(self, disk: Callable[[], Store | None], maker: Callable[[], str]) -> None:
        self._disk = disk
        self._maker = maker

    def find(self, key: str | None) -> LoweringRecord | None:
        """Return the record of a key."""
        disk = self._disk() if self.on else None
        if disk is None or key is None:
            return None
        data = disk.get(key, self._maker())
        if data is None:
            return None
        try:
            found = pickle.loads(data)
        except _MALFORMED:  # of another version of a class: the loop is compiled
            return None
        return found if type(found) is LoweringRecord else None

    def put(self, key: str | None, log: NameLog, reason: str, line: int = 0) -> None:
        """Keep why a loop is refused."""
        disk = self._disk() if self.on else None
        if key is not None and log.is_complete and disk is not None:
            disk.put(key, self._maker(), pickle.dumps(LoweringRecord(tuple(log.steps), reason, line)))

    def put_code(
        self, key: str | None, log: NameLog, tables: LoopTables, keys: tuple[str, ...], program: LoopProgram,
    ) -> None:
        """Keep the tables and keys of code that has passed its check."""
        disk = self._disk() if self.on else None
        values = {name: value for name, value in tables.values.items()
                  if not isinstance(value, (StaticValue, Conflict))}  # which are not written to the state
        known = [*tables.results.values(), *values.values()]
        if key is None or disk is None or not keys or not log.is_complete or not all(map(_is_plain, known)):
            return
        disk.put(key, self._maker(), pickle.dumps(LoweringRecord(
            tuple(log.steps), "", 0, tables._replace(values=values), keys, pickle.dumps(program))))
