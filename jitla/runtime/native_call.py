"""Python callables over native code: builtin functions, methods of classes, and C functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from sys import getrefcount
from typing import Any

__all__ = ["NativeMethods", "make_builtin", "make_method", "c_function"]


_FASTCALL = 0x80


class _Method(ctypes.Structure):
    """CPython's `PyMethodDef`."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


def make_builtin(name: str, address: int, doc: str, owner: Any = None) -> Callable[..., Any]:
    """Return a builtin for the METH_FASTCALL function at `address`, called with `owner` first."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,) * 3
    owner_address = None if owner is None else id(owner)  # the builtin holds a reference
    function: Callable[..., Any] = make(_method_definition(name, address, doc), owner_address, None)
    return function


def make_method(owner: type, name: str, address: int, doc: str) -> Callable[..., Any]:
    """Return a method descriptor of `owner` for the METH_FASTCALL function at `address`."""
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, (ctypes.py_object, ctypes.c_void_p)
    function: Callable[..., Any] = make(owner, _method_definition(name, address, doc))
    return function


def _method_definition(name: str, address: int, doc: str) -> int:
    """Return the address of a new `PyMethodDef`, which is never freed."""
    record = _Method(name.encode(), address, _FASTCALL, doc.encode())
    # the function may outlive every reference we could hold
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))
    return ctypes.addressof(record)


def c_function(address: int, *arguments: Any, result: Any = None) -> Callable[..., Any]:
    """Return the C function at `address` as a callable that holds the GIL while it runs."""
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


class NativeMethods:
    """The native methods at `addresses`; `fields` is the order of the table they read."""

    def __init__(self, addresses: Mapping[str, int], names: tuple[str, ...], fields: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.names = names
        self.fields = fields
        self.installed = False
        # Python's methods of the same names: their documentation and fallback.
        self.replaced: dict[str, Any] = {}

    def install(
        self, owner: type, objects: Mapping[str, Any], numbers: Mapping[str, int],
        slots: Mapping[str, tuple[type, ...]],
    ) -> bool:
        """Replace methods of `owner` by native ones; return False if this Python has another memory layout.

        `objects` and `numbers` go into the table as they are; the replaced methods of `owner` are there under
        `py_` and their names; `slots` give the offsets under `at_`, equal in instances of all classes given.
        """
        if self.installed:
            return True
        offsets: dict[str, int | None] = {}
        for name, classes in slots.items():
            places = {_slot_offset(kind, name) for kind in classes}
            offsets[f"at_{name}"] = places.pop() if len(places) == 1 else None
        if None in offsets.values() or not _has_refcount_first():
            return False
        referenced = [*objects.values()]
        for value in referenced:  # native code refers to them for the rest of the process
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        words: dict[str, Any] = offsets | dict(numbers) | {name: id(value) for name, value in objects.items()}
        table = (ctypes.c_int64 * len(self.fields)).from_address(self.addresses["jitla_tape"])
        table[:] = [words[name] for name in self.fields]
        for name in self.names:
            original = self.replaced[name] = getattr(owner, name)
            doc = original.__doc__ or ""
            setattr(owner, name, make_method(owner, name, self.addresses[f"jitla_{name}"], doc))
        self.installed = True
        return True


def _slot_offset(kind: type, slot: str) -> int | None:
    """Return the byte offset of a slot in instances of `kind`; None if it is not found.

    It is the one word that changes when the slot is set.
    """
    new: Any = kind.__new__
    instance, mark = new(kind), object()
    size, header = kind.__basicsize__, object.__basicsize__
    setattr(instance, slot, mark)
    words = (ctypes.c_int64 * (size // 8)).from_address(id(instance))
    offsets = [8 * i for i, word in enumerate(words) if word == id(mark) and 8 * i >= header]
    delattr(instance, slot)
    return offsets[0] if len(offsets) == 1 and not words[offsets[0] // 8] else None


def _has_refcount_first() -> bool:
    """Return whether an object begins with its reference count, in 32 bits."""
    differences = set()
    for n in (0, 1, 5, 70_000):
        target = object()
        references = [target] * n
        count = ctypes.c_uint32.from_address(id(target)).value
        differences.add((getrefcount(target) - count, count - len(references)))
    return len(differences) == 1
