"""Python methods and functions whose code is native."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from sys import getrefcount
from typing import Any

__all__ = ["Methods", "builtin", "method", "native"]


_FASTCALL = 0x80


class _Method(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def builtin(name: str, address: int, doc: str, owner: Any = None) -> Callable[..., Any]:
    """Make the METH_FASTCALL function at `address` an ordinary builtin, called with `owner` first."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
    given = None if owner is None else id(owner)  # the builtin keeps it
    made: Callable[..., Any] = make(_record(name, address, doc), given, None)
    return made


def method(owner: type, name: str, address: int, doc: str) -> Callable[..., Any]:
    """Make the METH_FASTCALL function at `address` a method that instances of `owner` can be given."""
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = make(owner, _record(name, address, doc))
    return made


def _record(name: str, address: int, doc: str) -> int:
    record = _Method(name.encode(), address, _FASTCALL, doc.encode())
    # the function may outlive every reference we could keep: its record lives for ever
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))
    return ctypes.addressof(record)


def native(address: int, *arguments: Any, result: Any = None) -> Callable[..., Any]:
    """Make the C function at `address` callable, with the GIL kept."""
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


class Methods:
    """The native methods at `addresses`; `fields` is the order of their table."""

    def __init__(self, addresses: Mapping[str, int], names: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.names = names
        self.fields = fields
        self.installed = False
        # Python's methods of the same names, which say what the native ones do.
        self.replaced: dict[str, Any] = {}

    def install(
        self, owner: type, objects: Mapping[str, Any], numbers: Mapping[str, int],
        slots: Mapping[str, tuple[type, ...]],
    ) -> bool:
        """Give `owner` the native methods; whether this Python is what they expect.

        `objects` and `numbers` go into the table as they are, under `py_` the methods of `owner` that
        are replaced and `argument`; `slots` under `at_`, found in instances of the classes given.
        """
        if self.installed:
            return True
        found: dict[str, int | None] = {}
        for name, kinds in slots.items():
            places = {_place(kind, name) for kind in kinds}
            found[f"at_{name}"] = places.pop() if len(places) == 1 else None
        if None in found.values() or not _counts():
            return False
        kept = [*objects.values()]
        for thing in kept:  # the native code refers to them for ever
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        words: dict[str, Any] = found | dict(numbers) | {name: id(thing) for name, thing in objects.items()}
        table = (ctypes.c_int64 * len(self.fields)).from_address(self.addresses["jitla_tape"])
        table[:] = [words[name] for name in self.fields]
        for name in self.names:
            python = self.replaced[name] = getattr(owner, name)
            doc = python.__doc__ or ""
            setattr(owner, name, method(owner, name, self.addresses[f"jitla_{name}"], doc))
        self.installed = True
        return True


def _place(kind: type, slot: str) -> int | None:
    """Where instances of `kind` keep a slot: the one word that changes with it."""
    new: Any = kind.__new__
    made, mark = new(kind), object()
    size, header = kind.__basicsize__, object.__basicsize__
    setattr(made, slot, mark)
    words = (ctypes.c_int64 * (size // 8)).from_address(id(made))
    found = [8 * i for i, word in enumerate(words) if word == id(mark) and 8 * i >= header]
    delattr(made, slot)
    return found[0] if len(found) == 1 and not words[found[0] // 8] else None


def _counts() -> bool:
    """Whether an object begins with its reference count, in 32 bits."""
    seen = set()
    for n in (0, 1, 5, 70_000):
        thing = object()
        more = [thing] * n
        count = ctypes.c_uint32.from_address(id(thing)).value
        seen.add((getrefcount(thing) - count, count - len(more)))
    return len(seen) == 1
