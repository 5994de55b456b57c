"""Instrumented functions: made from source, bound to the cells of the original."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from jitla.instrument.bytecode import PerCode
from jitla.instrument.expressions import FRAME_ATTRIBUTES, FRAME_READERS, ReadsFrame
from jitla.instrument.hook_nodes import CONSTANTS, HOOKS, PROXY
from jitla.instrument.scope import MISSING, Assumptions, Statics, analyse, holds
from jitla.instrument.source_lookup import Source, compile_inside, copied, find_source, owned
from jitla.instrument.statements import rewrite
from jitla.introspection.frames import looks_at_frames
from jitla.introspection.recursion import call_with_room

__all__ = ["Twins", "changed_code", "instrument", "is_twin", "tree_of"]


# Why there is no twin if nothing else is known.
UNKNOWN = "its source was not found, or is not that of the function"


class Made(NamedTuple):
    """The code of a twin, None if there is none and why, and what was assumed to make it."""

    code: CodeType | None
    assumed: Assumptions
    reason: str = ""


# Classes of objects whose methods are hooks: no code but that of twins has one among its constants.
_KINDS: set[type] = set()


def _has_hooks(code: CodeType) -> bool:
    return any(_has_hooks(each) if isinstance(each, CodeType) else type(each) in _KINDS
               for each in code.co_consts)


#: Whether code is that of a twin, or of a function made in one.
is_twin: PerCode[bool] = PerCode(_has_hooks)


class Nothing:
    """Stands for the class of proxies where there are none."""


def _nothing_known(function: Any) -> bool:
    return False


class Twins:
    """The twins made for one hook object, remembered per code object."""

    def __init__(
        self, hook: Any, known: Callable[[Any], bool] = _nothing_known, proxy: type = Nothing
    ) -> None:
        self._hook = hook
        _KINDS.add(type(hook))
        self._known = known
        self._proxy = proxy
        self._made: PerCode[Made] = PerCode(lambda code: Made(None, {}))
        # By the code of functions inside of twins: what it was made of.
        self._users: PerCode[CodeType] = PerCode(lambda code: code)

    def instrument(self, fn: FunctionType) -> FunctionType | None:
        """Return the twin of `fn`; `fn` itself if it needs no hook, None if its source is unsure."""
        if is_twin(fn.__code__):
            return fn
        made = self._made.get(fn.__code__)
        if made is None or not self._holds(made, fn):
            made = self._made.put(
                fn.__code__, call_with_room(make, fn, self._known, self._proxy, self._hook))
            if made.code is not None:
                self._pair(made.code, fn.__code__)
        if made.code is None or made.code is fn.__code__:
            return fn if made.code else None
        return self._bind(fn, made.code)

    def reason(self, fn: FunctionType) -> str:
        """Say why `fn` has no twin."""
        made = self._made.get(fn.__code__)
        return (made.reason if made else "") or UNKNOWN

    def bare(self, part: Any) -> Any:
        """Return the code that a function made in a twin has where nothing is traced; else `part`."""
        if type(part) is CodeType:
            return self._users.get(part) or part
        return part

    def _pair(self, twin: CodeType, plain: CodeType) -> None:
        """Remember of which code each code inside of `twin` was made."""
        made, users = ([each for each in code.co_consts if isinstance(each, CodeType)]
                       for code in (twin, plain))
        if [each.co_qualname for each in made] == [each.co_qualname for each in users]:
            for inner, outer in zip(made, users, strict=True):
                if inner is not outer:
                    self._users.put(inner, outer)
                    self._pair(inner, outer)

    def is_current(self, fn: FunctionType) -> bool:
        """Say whether the globals still are what the twin of `fn` was made for."""
        made = self._made.get(fn.__code__)
        return made is not None and self._holds(made, fn)

    def watched(self, fn: FunctionType) -> list[tuple[Mapping[str, Any], str, Any]]:
        """Return what the twin of `fn` was made for: (namespace, name, object found there).

        The object is `NOT_ARRAY` where any that cannot be an array will do, `MISSING` where none is.
        """
        made = self._made.get(fn.__code__)
        builtin = fn.__builtins__  # type: ignore[attr-defined]
        found: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        for path, expected in made.assumed.items() if made else ():
            space: Mapping[str, Any] = fn.__globals__
            if path[0] not in space:
                found[id(space), path[0]] = space, path[0], MISSING
                space = builtin
            for name in path[:-1]:
                module = space.get(name, MISSING)
                found[id(space), name] = space, name, module
                space = vars(module) if isinstance(module, ModuleType) else {}
            found[id(space), path[-1]] = space, path[-1], expected
        return list(found.values())

    def _holds(self, made: Made, fn: FunctionType) -> bool:
        return holds(made.assumed, fn.__globals__, fn.__builtins__)  # type: ignore[attr-defined]

    def _bind(self, fn: FunctionType, code: CodeType) -> FunctionType:
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        twin = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
        twin.__kwdefaults__ = fn.__kwdefaults__
        twin.__qualname__ = fn.__qualname__
        twin.__module__ = fn.__module__
        twin.__doc__ = fn.__doc__
        twin.__dict__ = fn.__dict__  # attributes set on one are seen on the other
        # 3.14 computes annotations when asked for: they are not asked for here
        annotations = "__annotate__" if hasattr(fn, "__annotate__") else "__annotations__"
        for name in (annotations, "__type_params__"):
            if hasattr(fn, name):
                setattr(twin, name, getattr(fn, name))
        return twin


def make(fn: FunctionType, known: Callable[[Any], bool], proxy: type, hook: Any) -> Made:
    """Make the code of a twin of `fn`."""
    looks = looks_at_frames(fn)
    if looks:
        return Made(None, {}, f"it looks at frames of the stack, by {looks}")
    source = find_source(fn)
    if source is None:
        return Made(None, {}, UNKNOWN)
    code = fn.__code__
    statics = Statics(fn.__globals__, fn.__builtins__, known)  # type: ignore[attr-defined]
    try:
        node = copied(source.node)
        rewrite(node, analyse(node, code.co_freevars), statics, source.private)
        twin = compile_inside(source, node, code, constants={**CONSTANTS, PROXY: proxy, HOOKS: hook})
    except ReadsFrame as reads:
        return Made(None, {}, str(reads))
    except RecursionError:
        return Made(None, {}, "its expressions are nested too deep")
    if twin is None or not set(twin.co_freevars) <= {*code.co_freevars}:
        return Made(None, {}, UNKNOWN)
    return Made(owned(twin if is_twin(twin) else code), statics.assumed)


def instrument(
    fn: FunctionType, hook: Any, known: Callable[[Any], bool] = _nothing_known
) -> FunctionType | None:
    """Make the twin of `fn` whose hooks are the methods of `hook`; nothing is remembered."""
    return Twins(hook, known).instrument(fn)


def tree_of(function: FunctionType) -> Source | None:
    """Return a copy of the tree of `function`; None if it is not known, or may look at its frame."""
    source = find_source(function)
    if source is None or isinstance(source.node, ast.Lambda) or any(map(_looks, ast.walk(source.node))):
        return None
    return Source(copied(source.node), source.private, source.imports)


def _looks(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in FRAME_READERS
        case ast.Attribute(attr=name):
            return name in FRAME_ATTRIBUTES
    return False


def changed_code(source: Source, code: CodeType, objects: Mapping[str, Any]) -> CodeType | None:
    """Compile a changed tree; strings that are keys of `objects` become what stands there."""
    made = compile_inside(source, source.node, code, (), objects)
    return made if made is not None and made.co_freevars == code.co_freevars else None
