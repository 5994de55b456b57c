"""Native entry of compiled loops: a vectorcall function that reads arguments and calls the code."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopjit.deopt import Nothing
from jitla.loopjit.translator import LoopKernel
from jitla.loopjit.types import (
    BY_CODE,
    CODES,
    FLAGS,
    ITEM,
    PYTHON,
    STORAGE,
    TYPES,
    Array,
    Given,
    Scalar,
)
from jitla.runtime import make_builtin

# Where an object's own part begins; the fields of an array.
HEADER = object.__basicsize__
_DATA, _NDIM, _DIMS, _STRIDES, _DESCR, _FLAGS = (HEADER + at for at in (0, 8, 16, 24, 40, 48))
# Slots with places of their own; functions of Python by name.
ELSE, KERNEL, RUNS, TIME, FINISH = range(5)
FUNCTIONS = ("PyObject_Vectorcall", "PyObject_CallNoArgs", "Py_IncRef", "Py_DecRef", "PyDict_GetItem",
             "PyLong_AsLongLongAndOverflow", "PyLong_FromLongLong", "PyFloat_FromDouble", "PyTuple_New",
             "PyTuple_SetItem", "PyBytes_FromStringAndSize", "PyEval_SaveThread", "PyEval_RestoreThread",
             "clock")
NAME = "jitla_loop_door"
# The clock that never goes back, as the C library calls it.
CLOCK: int | None = getattr(time, "CLOCK_MONOTONIC", None)
# Bits of integers of Python: nests are compiled for small ones, larger ones, and the largest.
_LEAST = {31: 0, 62: 31, 63: 62}
_LOADED = {"i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "i8", "u2": "i16", "u4": "i32",
           "b1": "i8", "f4": "float", "f8": "double", "float": "double"}


@dataclass(frozen=True)
class ExpectedName:
    """What one name of a dictionary has to be; None if it must not be there."""

    space: Any
    name: str
    value: Any


class EntryWriter:
    """Writes instructions; remembers what slots hold."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # The first are places of their own, the next are functions.
        self.objects: list[Any] = []
        self._known: dict[int, int] = {}
        self._count = 0

    def put(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def get(self, text: str) -> str:
        """Write an instruction; return the name of its result."""
        self._count += 1
        self.put(f"%r{self._count} = {text}")
        return f"%r{self._count}"

    def slot(self, index: int) -> str:
        """Read a slot."""
        return self.get(f"load ptr, ptr {self.at('%slots', index)}")

    def object(self, thing: Any) -> str:
        """Read the slot that holds `thing`."""
        index = self._known.get(id(thing))
        if index is None:
            index = self._known[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return self.slot(FINISH + 1 + len(FUNCTIONS) + index)

    def call(self, name: str, result: str, args: str) -> str:
        """Call a function of Python."""
        made = f"call {result} {self.slot(FINISH + 1 + FUNCTIONS.index(name))}({args})"
        if result != "void":
            return self.get(made)
        self.put(made)
        return ""

    def at(self, base: str, index: int) -> str:
        """Return where the word of that number is."""
        return self.get(f"getelementptr i64, ptr {base}, i64 {index}")

    def field(self, thing: str, offset: int, kind: str = "ptr") -> str:
        """Read a field of an object."""
        where = self.get(f"getelementptr i8, ptr {thing}, i64 {offset}")
        return self.get(f"load {kind}, ptr {where}, align 1")

    def block(self) -> str:
        """Return a name for a place to go to."""
        self._count += 1
        return f"at{self._count}"

    def need(self, condition: str, other: str = "miss") -> None:
        """Go on only if `condition` holds."""
        self._count += 1
        self.put(f"br i1 {condition}, label %go{self._count}, label %{other}")
        self.lines.append(f"go{self._count}:")

    def same(self, a: str, b: str, kind: str = "ptr", other: str = "miss") -> None:
        """Go on only if both are the same."""
        self.need(self.get(f"icmp eq {kind} {a}, {b}"), other)


def native_entry_text(
    kernel: LoopKernel, names: Sequence[str], outside: Sequence[str], given: dict[str, Given],
    examples: dict[str, Any], found: Sequence[ExpectedName], live: Sequence[str], is_unobserved: Any,
    space: Any,
) -> tuple[str, list[Any]]:
    """Return the IR of the function that is called instead of Python's loop, and the objects it reads.

    It is called with what `names` are; `outside` are looked up in `space`. `examples` are the types of all
    values, for arrays the types of their elements. Of the variables, those in `live` are returned.
    """
    text = EntryWriter()
    _require_unobserved(text, is_unobserved, found)
    values = {name: text.field("%args", 8 * k) for k, name in enumerate(names)}
    for name in outside:
        space_of = text.object(space)
        values[name] = text.call("PyDict_GetItem", "ptr", f"ptr {space_of}, ptr {text.object(name)}")
        text.need(text.get(f"icmp ne ptr {values[name]}, null"))
    sizes = kernel.packing.size // 8 - sum(2 * _ndim(given[name]) for name in kernel.arrays)
    pointers = {}
    for name, value in values.items():
        what = given[name]
        if isinstance(examples[name], tuple):
            _array(text, value, *examples[name])
        else:
            text.same(text.field(value, HEADER - 8), text.object(examples[name]))
        if isinstance(what, Array):
            pointers[name] = text.field(value, _DATA)
            sizes = _shape(text, value, what, sizes)
        elif isinstance(what, Scalar):
            _scalar(text, value, what, kernel, name)
    _run(text, [pointers[name] for name in kernel.arrays])
    _results(text, kernel, live)
    body = "\n".join(text.lines)
    words = kernel.packing.size // 8
    return _FRAME.format(
        name=NAME, words=words + 1, last=words, body=body, size=8 * words + 8, n=len(names),
        slots=HEADER, other=8 * ELSE, finish=8 * FINISH,
        vectorcall=8 * (FINISH + 1 + FUNCTIONS.index("PyObject_Vectorcall")),
        bytes=8 * (FINISH + 1 + FUNCTIONS.index("PyBytes_FromStringAndSize")),
        unref=8 * (FINISH + 1 + FUNCTIONS.index("Py_DecRef"))), text.objects


_FRAME = """
define ptr @{name}(ptr %self, ptr %args, i64 %given) {{
begin:
  %memory = alloca [{words} x i64], align 16
  %label = getelementptr i64, ptr %memory, i64 {last}
  %item = alloca ptr, align 8
  %error = alloca ptr, align 8
  %over = alloca i32, align 4
  %start = alloca [2 x i64], align 8
  %end = alloca [2 x i64], align 8
  %one = alloca [1 x ptr], align 8
  %pslots = getelementptr i8, ptr %self, i64 {slots}
  %slots = load ptr, ptr %pslots
  %enough = icmp eq i64 %given, {n}
  br i1 %enough, label %first, label %miss
first:
{body}
finish:
  ; Python unpacks it all, and goes on
  %pbytes = getelementptr i8, ptr %slots, i64 {bytes}
  %fbytes = load ptr, ptr %pbytes
  %whole = call ptr %fbytes(ptr %memory, i64 {size})
  %none = icmp eq ptr %whole, null
  br i1 %none, label %failed, label %tell
tell:
  store ptr %whole, ptr %one
  %pfinish = getelementptr i8, ptr %slots, i64 {finish}
  %ffinish = load ptr, ptr %pfinish
  %pvector = getelementptr i8, ptr %slots, i64 {vectorcall}
  %fvector = load ptr, ptr %pvector
  %told = call ptr %fvector(ptr %ffinish, ptr %one, i64 1, ptr null)
  %punref = getelementptr i8, ptr %slots, i64 {unref}
  %funref = load ptr, ptr %punref
  call void %funref(ptr %whole)
  ret ptr %told
failed:
  ret ptr null
miss:
  %pother = getelementptr i8, ptr %slots, i64 {other}
  %fother = load ptr, ptr %pother
  %pcall = getelementptr i8, ptr %slots, i64 {vectorcall}
  %fcall = load ptr, ptr %pcall
  %passed = call ptr %fcall(ptr %fother, ptr %args, i64 %given, ptr null)
  ret ptr %passed
}}
"""


def _ndim(what: Given) -> int:
    assert isinstance(what, Array)
    return what.ndim


def _require_unobserved(text: EntryWriter, is_unobserved: Any, found: Sequence[ExpectedName]) -> None:
    """Go on only if nobody watches, and names are what they were."""
    for asked, wanted in ((is_unobserved, True), (sys.gettrace, None)):
        answer = text.call("PyObject_CallNoArgs", "ptr", f"ptr {text.object(asked)}")
        text.need(text.get(f"icmp ne ptr {answer}, null"), "failed")
        text.call("Py_DecRef", "void", f"ptr {answer}")  # both are for ever
        text.same(answer, text.object(wanted))
    for each in found:
        there = text.call(
            "PyDict_GetItem", "ptr", f"ptr {text.object(each.space)}, ptr {text.object(each.name)}")
        text.same(there, "null" if each.value is None else text.object(each.value))


def _array(text: EntryWriter, value: str, dtype: Any, ndim: int, flags: int) -> None:
    """Go on only for an array of that type, with as many axes and such flags."""
    text.same(text.field(value, HEADER - 8), text.object(np.ndarray))
    text.same(text.field(value, _DESCR), text.object(dtype))
    text.same(text.field(value, _NDIM, "i32"), str(ndim), "i32")
    text.same(text.get(f"and i32 {text.field(value, _FLAGS, 'i32')}, {FLAGS}"), str(flags), "i32")


def _shape(text: EntryWriter, value: str, what: Array, place: int) -> int:
    """Write lengths and steps where the kernel reads them; return the place behind them."""
    shift = ITEM[what.kind].bit_length() - 1
    dims, strides = text.field(value, _DIMS), text.field(value, _STRIDES)
    for axis in range(what.ndim):
        length = text.field(dims, 8 * axis, "i64")
        step = text.field(strides, 8 * axis, "i64")
        if not what.contiguous and shift:  # of others it is known
            rest = text.get(f"and i64 {step}, {(1 << shift) - 1}")
            text.same(rest, "0", "i64")
        text.put(f"store i64 {length}, ptr {text.at('%memory', place)}")
        text.put(f"store i64 {text.get(f'ashr i64 {step}, {shift}')}, ptr {text.at('%memory', place + 1)}")
        place += 2
    return place


def _scalar(text: EntryWriter, value: str, what: Scalar, kernel: LoopKernel, name: str) -> None:
    """Write a number where the kernel reads it."""
    held = kernel.variables[name].storage
    kind = what.kind
    if kind == "int":
        number = _integer(text, value, what.bits)
    elif kind == "bool":
        number = text.get(f"zext i1 {text.get(f'icmp eq ptr {value}, {text.object(True)}')} to i64")
    else:
        number = text.field(value, HEADER, _LOADED[kind])
        if _LOADED[kind] == "float":
            number = text.get(f"fpext float {number} to double")
        elif STORAGE[kind] in "ib" and kind != "i8":
            number = text.get(f"{'zext' if kind[0] in 'ub' else 'sext'} {_LOADED[kind]} {number} to i64")
    if STORAGE[kind] in "ib" and held in "ds":
        number = text.get(f"sitofp i64 {number} to double")
    stored = "i64" if held in "ib" else "double"
    text.put(f"store {stored} {number}, ptr {text.at('%memory', kernel.places[name])}")


def _integer(text: EntryWriter, value: str, bits: int) -> str:
    """Go on only with an integer of as many bits as the nest was compiled for."""
    number = text.call("PyLong_AsLongLongAndOverflow", "i64", f"ptr {value}, ptr %over")
    text.same(text.get("load i32, ptr %over"), "0", "i32")
    below = text.get(f"icmp slt i64 {number}, 0")
    size = text.get(f"select i1 {below}, i64 {text.get(f'sub i64 0, {number}')}, i64 {number}")
    text.need(text.get(f"icmp ult i64 {size}, {1 << bits}"))
    if _LEAST[bits]:
        text.need(text.get(f"icmp uge i64 {size}, {1 << _LEAST[bits]}"))
    return number


def _run(text: EntryWriter, pointers: list[str]) -> None:
    """Run the kernel, timed, while other threads may run."""
    text.call("clock", "i32", f"i32 {CLOCK}, ptr %start")
    thread = text.call("PyEval_SaveThread", "ptr", "")
    arrays = "".join(f", ptr {each}" for each in pointers)
    text.get(f"call i32 {text.slot(KERNEL)}(ptr %label, ptr %error, ptr %memory, ptr %memory{arrays})")
    text.call("PyEval_RestoreThread", "void", f"ptr {thread}")
    text.call("clock", "i32", f"i32 {CLOCK}, ptr %end")
    spent = []
    for word in range(2):  # it raises nothing: its status is of no use
        a, b = (text.field(each, 8 * word, "i64") for each in ("%end", "%start"))
        spent.append(text.get(f"sub i64 {a}, {b}"))
    total = text.get(f"add i64 {text.get(f'mul i64 {spent[0]}, 1000000000')}, {spent[1]}")
    _add(text, TIME, total)
    _add(text, RUNS, "1")
    text.same(text.get("load i64, ptr %label"), "0", "i64", "finish")


def _add(text: EntryWriter, place: int, more: str) -> None:
    where = text.at("%slots", place)
    before = text.get(f"load i64, ptr {where}")
    text.put(f"store i64 {text.get(f'add i64 {before}, {more}')}, ptr {where}")


def _results(text: EntryWriter, kernel: LoopKernel, live: Sequence[str]) -> None:
    """Return a tuple of zero and the variables that are read later."""
    made = text.call("PyTuple_New", "ptr", f"i64 {1 + len(live)}")
    text.need(text.get(f"icmp ne ptr {made}, null"), "failed")
    zero = text.object(0)
    text.call("Py_IncRef", "void", f"ptr {zero}")
    text.call("PyTuple_SetItem", "i32", f"ptr {made}, i64 0, ptr {zero}")
    for place, name in enumerate(live, 1):
        item = _boxed(text, kernel, name)
        text.need(text.get(f"icmp ne ptr {item}, null"), "failed")
        text.call("PyTuple_SetItem", "i32", f"ptr {made}, i64 {place}, ptr {item}")
    text.put(f"ret ptr {made}")


def _boxed(text: EntryWriter, kernel: LoopKernel, name: str) -> str:
    """Return a variable as Python has it, or what says that it was not assigned."""
    nothing = text.object(Nothing)
    text.call("Py_IncRef", "void", f"ptr {nothing}")
    text.put(f"store ptr {nothing}, ptr %item")
    if name in kernel.gives:
        place, variable = 2 * kernel.gives.index(name), kernel.variables[name]
        code = text.get(f"load i64, ptr {text.at('%memory', place + 1)}")
        for kind in sorted(variable.kinds):
            other = text.block()
            text.same(code, str(CODES[kind]), "i64", other)
            text.call("Py_DecRef", "void", f"ptr {nothing}")
            text.put(f"store ptr {_number(text, place, kind, variable.storage)}, ptr %item")
            text.put(f"br label %{other}")
            text.lines.append(f"{other}:")
    return text.get("load ptr, ptr %item")


def _number(text: EntryWriter, place: int, kind: str, held: str) -> str:
    """Make a number of that kind of what is at a place."""
    where = text.at("%memory", place)
    stored = "i64" if held in "ib" else "double"
    value = text.get(f"load {stored}, ptr {where}")
    if STORAGE[kind] in "ib" and stored == "double":
        value = text.get(f"fptosi double {value} to i64")
    if STORAGE[kind] == "b":
        truth = text.get(f"icmp ne i64 {value}, 0")
        made = text.get(f"select i1 {truth}, ptr {text.object(True)}, ptr {text.object(False)}")
        text.call("Py_IncRef", "void", f"ptr {made}")
    elif STORAGE[kind] == "i":
        made = text.call("PyLong_FromLongLong", "ptr", f"i64 {value}")
    else:
        made = text.call("PyFloat_FromDouble", "ptr", f"double {value}")
    if kind in PYTHON:
        return made
    text.put(f"store ptr {made}, ptr %one")
    args = f"ptr {text.object(TYPES[kind])}, ptr %one, i64 1, ptr null"
    found = text.call("PyObject_Vectorcall", "ptr", args)
    text.call("Py_DecRef", "void", f"ptr {made}")
    return found


class CompiledKernel:
    """A compiled kernel, ready to be called."""

    __slots__ = ("address", "kernel", "seconds", "writes", "_call", "_items", "_free", "_library", "_names")

    def __init__(self, kernel: LoopKernel, writes: tuple[str, ...], library: Any, address: int) -> None:
        self.kernel = kernel
        self.writes = writes
        self.address = address
        self.seconds = 0.0  # that the last call took, without packing
        self._library = library  # the code lives as long as this does
        pointers = [ctypes.c_void_p] * (4 + len(kernel.arrays))
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, *pointers)(address)
        self._items = tuple(np.dtype(name).itemsize for name in kernel.pointers)
        only = tuple(name for name in kernel.takes if name not in kernel.gives)
        self._names = kernel.gives, only
        # Memory that is not in use.
        self._free: list[tuple[Any, int]] = []

    def __call__(self, given: dict[str, Any]) -> tuple[Any, ...]:
        """Run the code; return the number of the statement to go on with, the variables, the counters."""
        try:
            memory, address = self._free.pop()
        except IndexError:
            memory, address = self._memory()
        pointers = self._packed(given, memory)
        start = perf_counter()
        self._call(address, address + 8, address + 16, address + 16, *pointers)
        self.seconds = perf_counter() - start
        label = ctypes.c_int64.from_address(address).value
        found = self.unpacked(label, memory, 16)
        self._free.append((memory, address))
        return found

    def _packed(self, given: dict[str, Any], memory: Any) -> list[int]:
        """Write numbers and lengths where the code reads them; return addresses of arrays."""
        kernel = self.kernel
        takes, truths = kernel.takes, kernel.truths
        packed: list[Any] = []
        for name in self._names[0]:
            packed += (given[name] if name in takes else 0, 0)
        packed += (0,) * (3 * kernel.counters)
        packed += [given[name] for name in self._names[1]]
        for place, name in truths:
            packed[place] = bool(given[name])  # those of NumPy cannot be packed
        pointers = []
        for name, item in zip(kernel.arrays, self._items, strict=True):
            array = given[name]
            pointers.append(array.ctypes.data)
            for length, stride in zip(array.shape, array.strides, strict=True):
                packed += (length, stride // item)
        kernel.packing.pack_into(memory, 16, *packed)
        return pointers

    def _memory(self) -> tuple[Any, int]:
        memory = ctypes.create_string_buffer(self.kernel.packing.size + 24)
        return memory, ctypes.addressof(memory)

    def unpacked(self, label: int, memory: Any, offset: int) -> tuple[Any, ...]:
        """Return the number of the statement to go on with, the variables, the counters."""
        kernel = self.kernel
        back = kernel.unpacking.unpack_from(memory, offset)
        count = 2 * len(kernel.gives)
        values = {}
        for name, value, code in zip(kernel.gives, back[:count:2], back[1:count:2], strict=True):
            values[name] = BY_CODE[code](value) if code else Nothing
        return label, *(values.get(name, Nothing) for name in self.writes), *back[count:]


class Slots(np.ndarray):
    """The memory that a native entry reads; its own attributes keep what it points to."""

    kept: list[Any]


class NativeEntry:
    """A builtin that runs compiled code for values of one kind, and calls another for all other values."""

    def __init__(self, code: CompiledKernel, objects: Sequence[Any], loaded: tuple[Any, int],
                 finish: Callable[[tuple[Any, ...]], Any]) -> None:
        library, address = loaded
        self._code = code
        self._finish = finish
        slots = np.zeros(FINISH + 1 + len(FUNCTIONS) + len(objects), np.int64).view(Slots)
        # a call in progress needs all of it, even when the entry has been replaced
        slots.kept = [library, code, *objects, self._finished]
        slots[KERNEL], slots[FINISH] = code.address, id(slots.kept[-1])
        slots[FINISH + 1:] = [*_functions(), *map(id, objects)]
        self._slots = slots
        self.ask: Callable[..., Any] = make_builtin("nest", address, "Run a nest.", slots)

    def before(self, other: Callable[..., Any]) -> Callable[..., Any]:
        """Let `other` be asked about all other values; return what is to be asked first."""
        self._slots.kept.append(other)
        self._slots[ELSE] = id(other)
        return self.ask

    @property
    def runs(self) -> int:
        """How often it has run compiled code."""
        return int(self._slots[RUNS])

    @property
    def seconds(self) -> float:
        """How long that took."""
        return 1e-9 * int(self._slots[TIME])

    def _finished(self, memory: bytes) -> Any:
        """Unpack what compiled code left where Python has to go on."""
        label = int.from_bytes(memory[-8:], "little", signed=True)
        return self._finish(self._code.unpacked(label, memory, 0))


@cache
def _functions() -> list[int]:
    """Return the addresses of the functions that native entries call."""
    found = []
    for name in FUNCTIONS:
        function = ctypes.CDLL(None).clock_gettime if name == "clock" else getattr(ctypes.pythonapi, name)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        found.append(address)
    return found
