"""Dataclasses whose methods are written out when they are first called, and properties computed once.

The standard library writes and compiles five methods for each class that is defined: for the classes that a
first call loads that took a sixth of it. Most of these methods are never called.

Before Python 3.12 `functools.cached_property` has a lock, which stays closed for ever in a process that is
forked while another thread computes. Here two threads may compute a value at once: it is the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "dataclass"]

_MISSING = dataclasses.MISSING
_TOLD = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")


def _compiled(cls: type, name: str, parameters: str, lines: list[str], known: dict[str, Any]) -> Any:
    """Return method `name` of `cls`, which stands in the class from now on."""
    found: dict[str, Any] = {}
    body = "\n ".join(lines or ["pass"])
    exec(f"def {name}(self{parameters}):\n {body}", known, found)
    made = found[name]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, made)
    return made


def _values(cls: type, of: str) -> str:
    """Return the text of a tuple of the fields of `of` that are compared."""
    names = [f"{of}.{f.name}" for f in dataclasses.fields(cls) if f.compare]
    return f"({', '.join(names)},)" if names else "()"


def _write_init(cls: type, frozen: bool) -> Any:
    """Write the method that takes the fields."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
    words: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for at, f in enumerate(dataclasses.fields(cls)):
        value = f.name
        if f.default_factory is not _MISSING:
            known[f"_f{at}"] = f.default_factory
            value = f"_f{at}() if {f.name} is _MISSING else {f.name}" if f.init else f"_f{at}()"
            word = f"{f.name}=_MISSING"
        elif f.default is not _MISSING:
            known[f"_d{at}"] = f.default
            word = f"{f.name}=_d{at}"
        else:
            word = f.name
        if f.init:
            words[bool(f.kw_only)].append(word)
        elif f.default is not _MISSING:
            value = f"_d{at}"
        elif f.default_factory is _MISSING:
            continue  # `__post_init__` sets it
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = words[False] + (["*", *words[True]] if words[True] else [])
    return _compiled(cls, "__init__", "".join(f", {word}" for word in given), lines, known)


def _write_eq(cls: type) -> Any:
    """Write the method that compares fields."""
    lines = ["if other.__class__ is self.__class__:", f"    return {_values(cls, 'self')} == "
             f"{_values(cls, 'other')}", "return NotImplemented"]
    return _compiled(cls, "__eq__", ", other", lines, {})


def _write_hash(cls: type) -> Any:
    """Write the method that hashes fields."""
    return _compiled(cls, "__hash__", "", [f"return hash({_values(cls, 'self')})"], {})


def _repr(self: Any) -> str:
    words = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{self.__class__.__qualname__}({', '.join(words)})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _restored(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _freeze(cls: Any, own: list[str]) -> None:
    """Let no attribute be changed but in instances of classes below that are not frozen themselves."""
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


class _Told:
    """What the standard library says of the fields of a class, found when somebody asks for it."""

    def __init__(self, given: type, kw_only: bool) -> None:
        self.holder = given
        self._bases, self._kw_only = given.__bases__, kw_only
        words = given.__annotations__
        self._content = {"__annotations__": words, "__module__": given.__module__, "__doc__": given.__doc__,
                         **{k: v for k, v in given.__dict__.items() if k in words}}

    def found(self) -> type:
        """Put it all into the class; return a class that has it."""
        stand_in = type(self.holder)(self.holder.__name__, self._bases, self._content)
        told: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(stand_in)
        for name in _TOLD:
            setattr(self.holder, name, getattr(told, name))
        made: type = told
        return made


class _Asked:
    """An attribute of the class of fields."""

    def __init__(self, name: str, told: _Told) -> None:
        self._name, self._told = name, told

    def __get__(self, it: Any, cls: type) -> Any:
        return getattr(self._told.found(), self._name)


def _with_slots(given: type, names: list[str]) -> type:
    """Return a class as given with slots for the fields `names`."""
    above = {name for c in given.__mro__[1:-1] for name in _slots(c)}
    content = {k: v for k, v in given.__dict__.items() if k not in (*names, "__dict__", "__weakref__")}
    made = type(given)(given.__name__, given.__bases__,
                       {**content, "__slots__": tuple(n for n in names if n not in above)})
    made.__qualname__ = given.__qualname__
    return made


def _slots(cls: type) -> tuple[str, ...]:
    found = cls.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def _made(given: type, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    own = given.__dict__
    names = [k for k, v in given.__annotations__.items() if not str(v).startswith("ClassVar")]
    told = _Told(given, kw_only)
    cls: Any = _with_slots(given, names) if slots else given
    told.holder = cls
    for name in _TOLD:
        setattr(cls, name, _Asked(name, told))
    for name in () if slots else names:
        value = own.get(name)
        if isinstance(value, dataclasses.Field):
            if value.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        _write_init(cls, frozen)(self, *args, **named)

    if "__init__" not in own:
        cls.__init__ = __init__
    if "__repr__" not in own:
        cls.__repr__ = _repr
    if eq and "__eq__" not in own:
        cls.__eq__ = lambda self, other: _write_eq(cls)(self, other)
    if eq and (own.get("__hash__") is None and "__eq__" in own or "__hash__" not in own):
        cls.__hash__ = (lambda self: _write_hash(cls)(self)) if frozen else None
    if frozen:
        _freeze(cls, names)
    if frozen and slots and "__getstate__" not in own:
        cls.__getstate__, cls.__setstate__ = _state, _restored
    made: type = cls
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass
    from functools import cached_property
else:
    class cached_property:
        """A property that is computed when it is first asked for, and then is in the object's dictionary."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, held: Any, owner: type | None = None) -> Any:
            if held is None:
                return self
            value = held.__dict__[self._name] = self._compute(held)
            return value

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True,
        kw_only: bool = False,
    ) -> type | Callable[[type], type]:
        """Return a class with the methods of its fields, as `dataclasses.dataclass` does."""
        if cls is None:
            return lambda given: _made(given, frozen, slots, eq, kw_only)
        return _made(cls, frozen, slots, eq, kw_only)
