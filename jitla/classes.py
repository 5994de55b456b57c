"""Dataclasses whose methods are generated when they are called often, and cached properties without a lock.

The standard library generates and compiles five methods for each dataclass, which is a sixth of the time of
importing the classes for a first call. Most of these methods are never called, others a few times: the first
`INTERPRETED_CALLS` of each go through the fields in a loop.

Before Python 3.12 `functools.cached_property` has a lock, which stays locked forever in a process forked
while another thread computes. Here two threads may compute a value twice: the results are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property", "dataclass"]

INTERPRETED_CALLS = 256  # of a method, which take as long as compiling it
_MISSING = dataclasses.MISSING
_FIELD_ATTRIBUTES = ("__dataclass_fields__", "__dataclass_params__")
_MEMBERS = "__jitla_members__"  # attribute of a class: its own fields


class _Member:
    """One field of a class."""

    __slots__ = ("name", "default", "factory", "init", "compare", "repr", "kw_only")

    def __init__(self, name: str, value: Any, kw_only: bool) -> None:
        self.name, self.default = name, value
        self.factory: Any = _MISSING
        self.init = self.compare = self.repr = True
        self.kw_only = kw_only
        if isinstance(value, dataclasses.Field):
            self.default, self.factory = value.default, value.default_factory
            self.init, self.repr = value.init, value.repr
            self.compare = value.compare
            if value.kw_only is not _MISSING:
                self.kw_only = bool(value.kw_only)


def _members(cls: type) -> list[_Member]:
    """Return the fields of a class, those of its bases first."""
    found: dict[str, _Member] = {}
    for base in reversed(cls.__mro__):
        own = base.__dict__.get(_MEMBERS)
        if own is None and "__dataclass_fields__" in base.__dict__:  # of the standard library
            own = [_Member(f.name, f, False) for f in dataclasses.fields(base)]
        found.update((member.name, member) for member in own or ())
    return list(found.values())


def _compile_method(cls: type, name: str, parameters: str, lines: list[str], globals_: dict[str, Any]) -> Any:
    """Compile method `name` of `cls`, set it in the class, and return it."""
    namespace: dict[str, Any] = {}
    body = "\n ".join(lines or ["pass"])
    exec(f"def {name}(self{parameters}):\n {body}", globals_, namespace)
    method = namespace[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, method)
    return method


def _field_tuple(cls: type, of: str) -> str:
    """Return the source of a tuple of the compared fields of the variable `of`."""
    names = [f"{of}.{f.name}" for f in _members(cls) if f.compare]
    return f"({', '.join(names)},)" if names else "()"


def _compared(cls: type) -> Callable[[Any], Any]:
    """Return the function from an object to its compared fields."""
    names = [f.name for f in _members(cls) if f.compare]
    return attrgetter(*names) if len(names) > 1 else lambda instance: tuple(
        [getattr(instance, name) for name in names])


def _write_init(cls: type, frozen: bool) -> Any:
    """Generate `__init__`."""
    globals_: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for i, f in enumerate(_members(cls)):
        value = f.name
        if f.factory is not _MISSING:
            globals_[f"_f{i}"] = f.factory
            value = f"_f{i}() if {f.name} is _MISSING else {f.name}" if f.init else f"_f{i}()"
            parameter = f"{f.name}=_MISSING"
        elif f.default is not _MISSING:
            globals_[f"_d{i}"] = f.default
            parameter = f"{f.name}=_d{i}"
        else:
            parameter = f.name
        if f.init:
            parameters[f.kw_only].append(parameter)
        elif f.default is not _MISSING:
            value = f"_d{i}"
        elif f.factory is _MISSING:
            continue  # `__post_init__` sets it
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    signature = parameters[False] + (["*", *parameters[True]] if parameters[True] else [])
    return _compile_method(cls, "__init__", "".join(f", {parameter}" for parameter in signature), lines,
                           globals_)


def _write_eq(cls: type) -> Any:
    """Generate `__eq__`."""
    lines = ["if other.__class__ is self.__class__:", f"    return {_field_tuple(cls, 'self')} == "
             f"{_field_tuple(cls, 'other')}", "return NotImplemented"]
    return _compile_method(cls, "__eq__", ", other", lines, {})


def _write_hash(cls: type) -> Any:
    """Generate `__hash__`."""
    return _compile_method(cls, "__hash__", "", [f"return hash({_field_tuple(cls, 'self')})"], {})


def _arguments(members: list[_Member], args: tuple[Any, ...], named: dict[str, Any]) -> list[Any] | None:
    """Return the values of all fields in a call of `__init__`; None if the arguments are wrong."""
    values = list(args)
    matched = 0
    for member in members[len(args):]:
        if member.name in named:
            values.append(named[member.name])
            matched += 1
        elif member.default is not _MISSING:
            values.append(member.default)
        elif member.factory is not _MISSING:
            values.append(member.factory())
        else:
            return None
    return values if len(values) == len(members) and matched == len(named) else None


def _interpreted_init(cls: type, frozen: bool) -> Any:
    """Return an `__init__` that goes through the fields, until it has been called often."""
    calls = 0
    members: list[_Member] = []
    is_plain = False
    assign: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        nonlocal calls, members, is_plain
        if not calls:
            members = _members(cls)
            is_plain = all(member.init and not member.kw_only for member in members)
        calls += 1
        values = _arguments(members, args, named) if is_plain and calls <= INTERPRETED_CALLS else None
        if values is None:
            _write_init(cls, frozen)(self, *args, **named)
            return
        for member, value in zip(members, values, strict=True):
            assign(self, member.name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


def _interpreted_eq(cls: type) -> Any:
    """Return an `__eq__` that reads the fields by name, until it has been called often."""
    calls = 0
    read: Callable[[Any], Any] = _compared

    def __eq__(self: Any, other: Any) -> Any:
        nonlocal calls, read
        if not calls:
            read = _compared(cls)
        calls += 1
        if calls > INTERPRETED_CALLS:
            return _write_eq(cls)(self, other)
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _interpreted_hash(cls: type) -> Any:
    """Return a `__hash__` that reads the fields by name, until it has been called often."""
    calls = 0
    read: Callable[[Any], Any] = _compared

    def __hash__(self: Any) -> int:
        nonlocal calls, read
        if not calls:
            read = _compared(cls)
        calls += 1
        return hash(read(self)) if calls <= INTERPRETED_CALLS else int(_write_hash(cls)(self))

    return __hash__


def _repr(self: Any) -> str:
    words = [f"{f.name}={getattr(self, f.name)!r}" for f in _members(type(self)) if f.repr]
    return f"{self.__class__.__qualname__}({', '.join(words)})"


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in _members(type(self))]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(_members(type(self)), state, strict=True):
        object.__setattr__(self, f.name, value)


def _freeze(cls: Any, own: list[str]) -> None:
    """Reject attribute assignment, except of additional attributes in subclasses that are not frozen."""
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in own:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__


class _LazyFieldInfo:
    """The dataclass metadata of a class (`__dataclass_fields__` ...), computed on first access."""

    def __init__(self, cls: type, kw_only: bool) -> None:
        self.holder = cls
        self._bases, self._kw_only = cls.__bases__, kw_only
        annotations = cls.__annotations__
        self._content = {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": cls.__doc__,
                         **{k: v for k, v in cls.__dict__.items() if k in annotations}}

    def compute(self) -> type:
        """Compute the metadata, set it in the class, and return a class that has it."""
        stand_in = type(self.holder)(self.holder.__name__, self._bases, self._content)
        info: Any = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(stand_in)
        for name in _FIELD_ATTRIBUTES:
            setattr(self.holder, name, getattr(info, name))
        result: type = info
        return result


class _LazyClassAttribute:
    """A metadata attribute of a class that is computed on first access."""

    def __init__(self, name: str, info: _LazyFieldInfo) -> None:
        self._name, self._info = name, info

    def __get__(self, it: Any, cls: type) -> Any:
        return getattr(self._info.compute(), self._name)


def _with_slots(cls: type, names: list[str]) -> type:
    """Return a copy of a class with slots for the fields `names`."""
    inherited = {name for c in cls.__mro__[1:-1] for name in _slots(c)}
    content = {k: v for k, v in cls.__dict__.items() if k not in (*names, "__dict__", "__weakref__")}
    result = type(cls)(cls.__name__, cls.__bases__,
                       {**content, "__slots__": tuple(n for n in names if n not in inherited)})
    result.__qualname__ = cls.__qualname__
    return result


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _process_class(original: type, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    namespace = original.__dict__
    names = [k for k, v in original.__annotations__.items() if not str(v).startswith("ClassVar")]
    info = _LazyFieldInfo(original, kw_only)
    cls: Any = _with_slots(original, names) if slots else original
    info.holder = cls
    for name in _FIELD_ATTRIBUTES:
        setattr(cls, name, _LazyClassAttribute(name, info))
    setattr(cls, _MEMBERS, [_Member(name, namespace.get(name, _MISSING), kw_only) for name in names])
    if "__match_args__" not in namespace:
        names_by_position = tuple([m.name for m in _members(cls) if m.init and not m.kw_only])
        setattr(cls, "__match_args__", names_by_position)  # noqa: B010  (mypy knows of none)
    for name in () if slots else names:
        value = namespace.get(name)
        if isinstance(value, dataclasses.Field):
            if value.default is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)

    if "__init__" not in namespace:
        cls.__init__ = _interpreted_init(cls, frozen)
    if "__repr__" not in namespace:
        cls.__repr__ = _repr
    if eq and "__eq__" not in namespace:
        cls.__eq__ = _interpreted_eq(cls)
    if eq and (namespace.get("__hash__") is None and "__eq__" in namespace or "__hash__" not in namespace):
        cls.__hash__ = _interpreted_hash(cls) if frozen else None
    if frozen:
        _freeze(cls, names)
    if frozen and slots and "__getstate__" not in namespace:
        cls.__getstate__, cls.__setstate__ = _get_state, _set_state
    result: type = cls
    return result


if TYPE_CHECKING:
    from dataclasses import dataclass
    from functools import cached_property
else:
    class cached_property:
        """A property computed on first access and cached in the object's dictionary."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True,
        kw_only: bool = False,
    ) -> type | Callable[[type], type]:
        """Add the methods of a dataclass, as `dataclasses.dataclass` does."""
        if cls is None:
            return lambda decorated: _process_class(decorated, frozen, slots, eq, kw_only)
        return _process_class(cls, frozen, slots, eq, kw_only)
