"""Instrumented functions: the syntax tree of a function is rewritten, compiled and bound to its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from jitla.instrument.bytecode import CodeCache
from jitla.instrument.expressions import CONSTANTS, HOOKS, PROXY, ReadsFrame
from jitla.instrument.scope import (
    MISSING,
    Assumptions,
    StaticNames,
    analyse_scopes,
    assumptions_hold,
)
from jitla.instrument.source import compile_inside, copy_tree, find_source, without_borrows
from jitla.instrument.statements import rewrite
from jitla.introspection import call_with_stack_headroom, frame_access_of

__all__ = ["Instrumenter", "instrument", "is_instrumented"]


# Reason for a function without instrumented code if no other is known.
SOURCE_UNKNOWN = "its source was not found, or is not that of the function"


class InstrumentedCode(NamedTuple):
    """The instrumented code of a function, None with the reason if there is none, and its assumptions."""

    code: CodeType | None
    assumed: Assumptions
    reason: str = ""


# Classes of objects whose methods are hooks: only instrumented code has one among its constants.
_HOOK_CLASSES: set[type] = set()


def _has_hooks(code: CodeType) -> bool:
    return any(_has_hooks(each) if isinstance(each, CodeType) else type(each) in _HOOK_CLASSES
               for each in code.co_consts)


#: Whether code is that of an instrumented function, or of a function defined inside one.
is_instrumented: CodeCache[bool] = CodeCache(_has_hooks)


class NoProxy:
    """Placeholder for the class of proxies where there are none."""


def _is_never_pure(function: Any) -> bool:
    return False


class Instrumenter:
    """Compiles instrumented functions whose hooks are methods of one object; caches them by code object."""

    def __init__(
        self, hook: Any, is_pure: Callable[[Any], bool] = _is_never_pure, proxy: type = NoProxy
    ) -> None:
        self._hook = hook
        _HOOK_CLASSES.add(type(hook))
        self._is_pure = is_pure
        self._proxy = proxy
        self._cache: CodeCache[InstrumentedCode] = CodeCache(lambda code: InstrumentedCode(None, {}))
        # The original code, by instrumented code of inner functions.
        self._originals: CodeCache[CodeType] = CodeCache(lambda code: code)

    def instrument(self, fn: FunctionType) -> FunctionType | None:
        """Return the instrumented `fn`: `fn` itself if it needs no hook, None if its source is uncertain."""
        if is_instrumented(fn.__code__):
            return fn
        instrumented = self._cache.get(fn.__code__)
        if instrumented is None or not self._is_valid(instrumented, fn):
            instrumented = self._cache.put(
                fn.__code__, call_with_stack_headroom(instrument_code, fn, self._is_pure, self._proxy,
                                                      self._hook))
            if instrumented.code is not None:
                self._record_originals(instrumented.code, fn.__code__)
        if instrumented.code is None or instrumented.code is fn.__code__:
            return fn if instrumented.code else None
        return self._bind(fn, instrumented.code)

    def reason(self, fn: FunctionType) -> str:
        """Return the reason why `fn` cannot be instrumented."""
        instrumented = self._cache.get(fn.__code__)
        return (instrumented.reason if instrumented else "") or SOURCE_UNKNOWN

    def uninstrumented(self, part: Any) -> Any:
        """Return the original of `part` if it is instrumented code of an inner function, else `part`."""
        if type(part) is CodeType:
            return self._originals.get(part) or part
        return part

    def _record_originals(self, code: CodeType, plain: CodeType) -> None:
        """Record the original of each code object inside of the instrumented code."""
        inners, originals = ([each for each in outer.co_consts if isinstance(each, CodeType)]
                             for outer in (code, plain))
        if [each.co_qualname for each in inners] == [each.co_qualname for each in originals]:
            for inner, original in zip(inners, originals, strict=True):
                if inner is not original:
                    self._originals.put(inner, original)
                    self._record_originals(inner, original)

    def is_current(self, fn: FunctionType) -> bool:
        """Return whether the globals still satisfy the assumptions of the instrumented `fn`."""
        instrumented = self._cache.get(fn.__code__)
        return instrumented is not None and self._is_valid(instrumented, fn)

    def assumptions_of(self, fn: FunctionType) -> list[tuple[Mapping[str, Any], str, Any]]:
        """Return the assumptions of the instrumented `fn` as triples (namespace, name, expected object).

        The object is `NOT_ARRAY` where every object that is no array satisfies the assumption, and `MISSING`
        where the name has to be unbound.
        """
        instrumented = self._cache.get(fn.__code__)
        builtin = fn.__builtins__  # type: ignore[attr-defined]
        assumptions: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        for path, expected in instrumented.assumed.items() if instrumented else ():
            space: Mapping[str, Any] = fn.__globals__
            if path[0] not in space:
                assumptions[id(space), path[0]] = space, path[0], MISSING
                space = builtin
            for name in path[:-1]:
                module = space.get(name, MISSING)
                assumptions[id(space), name] = space, name, module
                space = vars(module) if isinstance(module, ModuleType) else {}
            assumptions[id(space), path[-1]] = space, path[-1], expected
        return list(assumptions.values())

    def _is_valid(self, instrumented: InstrumentedCode, fn: FunctionType) -> bool:
        builtin = fn.__builtins__  # type: ignore[attr-defined]
        return assumptions_hold(instrumented.assumed, fn.__globals__, builtin)

    def _bind(self, fn: FunctionType, code: CodeType) -> FunctionType:
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in code.co_freevars)
        function = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
        function.__kwdefaults__ = fn.__kwdefaults__
        function.__qualname__ = fn.__qualname__
        function.__module__ = fn.__module__
        function.__doc__ = fn.__doc__
        function.__dict__ = fn.__dict__  # shared: attributes set on one are set on the other
        # 3.14 computes annotations lazily: reading them here would run the user's code
        annotations = "__annotate__" if hasattr(fn, "__annotate__") else "__annotations__"
        for name in (annotations, "__type_params__"):
            if hasattr(fn, name):
                setattr(function, name, getattr(fn, name))
        return function


def instrument_code(
    fn: FunctionType, is_pure: Callable[[Any], bool], proxy: type, hook: Any,
) -> InstrumentedCode:
    """Compile the instrumented code of `fn`."""
    looks = frame_access_of(fn)
    if looks:
        return InstrumentedCode(None, {}, f"it looks at frames of the stack, by {looks}")
    source = find_source(fn)
    if source is None:
        return InstrumentedCode(None, {}, SOURCE_UNKNOWN)
    code = fn.__code__
    statics = StaticNames(fn.__globals__, fn.__builtins__, is_pure)  # type: ignore[attr-defined]
    try:
        node = copy_tree(source.node)
        rewrite(node, analyse_scopes(node, code.co_freevars), statics, source.private)
        compiled = compile_inside(source, node, code, constants={**CONSTANTS, PROXY: proxy, HOOKS: hook})
    except ReadsFrame as reads:
        return InstrumentedCode(None, {}, str(reads))
    except RecursionError:
        return InstrumentedCode(None, {}, "its expressions are nested too deep")
    if compiled is None or not set(compiled.co_freevars) <= {*code.co_freevars}:
        return InstrumentedCode(None, {}, SOURCE_UNKNOWN)
    return InstrumentedCode(without_borrows(compiled if is_instrumented(compiled) else code), statics.assumed)


def instrument(
    fn: FunctionType, hook: Any, is_pure: Callable[[Any], bool] = _is_never_pure
) -> FunctionType | None:
    """Instrument `fn` with the methods of `hook` as its hooks, without a cache."""
    return Instrumenter(hook, is_pure).instrument(fn)
