"""Native code as Python callables.

Knows: CPython's method record. Must not know: what a function does, llvmlite.
Receives addresses; returns builtins and ctypes functions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

__all__ = ["builtin", "method", "native"]

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
