"""The process before and after native code is loaded: native methods, buffers, freed memory."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jitla.runtime import process as freed
from jitla.runtime.process import (
    NativeMethods,
    _has_refcount_first,
    _slot_offset,
    make_method,
    numpy_empty,
)

# Before native code is loaded

ROOT = Path(__file__).parents[2]

CODE = """
import sys; sys.path.insert(0, sys.argv[1])
import numpy as np
from jitla import runtime
assert "llvmlite" not in sys.modules
assert runtime.native_launch() is None and runtime.threads() == 1 and runtime.statistics() == {}
assert runtime.empty((2, 3), np.dtype("f8")).shape == (2, 3)
assert runtime.empty_ordered((200, 300), np.dtype("f8"), (1, 0)).flags.f_contiguous
runtime.set_threads(3)
from tests.runtime.kernels import launch, template
assert runtime.native_launch() is launch
import jitla.codegen.native.loader as native, tests.runtime.kernels as kernels
assert native.load_native(kernels.jit.load) is launch
assert runtime.threads() == (3 if sys.platform == "linux" else 1)
assert runtime.empty_ordered((200, 300), np.dtype("f8"), (1, 0)).flags.f_contiguous
"""


@pytest.mark.process
def test_before_and_after_the_native_code() -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(ROOT)], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# Native methods are installed only where everything is found.


class Slotted:
    __slots__ = ("a", "b", "__weakref__")

    def ask(self) -> str:
        return "Python"


class Wider(Slotted):
    __slots__ = ("c",)


class Open:
    def ask(self) -> str:
        return "Python"


def test_places_are_where_the_values_are():
    made = Wider()
    for name in ("a", "b", "c"):
        thing = object()
        setattr(made, name, thing)
        place = _slot_offset(Wider, name)
        assert ctypes.c_void_p.from_address(id(made) + place).value == id(thing)
    assert _slot_offset(Slotted, "a") == _slot_offset(Wider, "a")
    assert len({_slot_offset(Wider, name) for name in ("a", "b", "c")}) == 3


def test_what_is_no_slot_has_no_place():
    assert _slot_offset(Open, "a") is None


def test_this_python_counts_as_expected():
    assert _has_refcount_first()


def test_nothing_is_installed_where_a_slot_is_not_found():
    native = NativeMethods({}, ("ask",), ("at_a",))
    assert not native.install({"ask": Open}, {}, {}, {"a": (Open,)})
    assert not native.installed
    assert Open().ask() == "Python"


def test_classes_that_differ_are_refused():
    class Other:
        __slots__ = ("A", "a")

    assert _slot_offset(Other, "a") != _slot_offset(Slotted, "a")
    native = NativeMethods({}, ("ask",), ("at_a",))
    assert not native.install({"ask": Slotted}, {}, {}, {"a": (Slotted, Other)})
    assert Slotted().ask() == "Python"


def test_a_method_of_a_class_gets_its_instance():
    @ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.POINTER(ctypes.py_object),
                       ctypes.c_ssize_t)
    def given(owner, args, count):
        return owner, [args[i] for i in range(count)]

    made = make_method(Slotted, "given", ctypes.cast(given, ctypes.c_void_p).value, "What is given.")
    instance = Slotted()
    assert made(instance, 1, "x") == (instance, [1, "x"])
    assert (made.__name__, made.__doc__) == ("given", "What is given.")


# `empty` without native code gives the same layouts.


@pytest.mark.parametrize("axes", [(), (0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_plain_empty(axes: tuple[int, ...]) -> None:
    a = numpy_empty((3, 4, 5), np.dtype("f4"), axes)
    assert a.flags.owndata and a.shape == (3, 4, 5) and a.dtype == np.float32
    order = axes or (0, 1, 2)
    assert list(np.argsort([-s for s in a.strides], kind="stable")) == list(order)


# Freed memory stays with the process.

_FAULTS = """
import resource
import numpy as np
from jitla.runtime import retain_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        held = [np.ones(100_000) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), int(retain_freed_memory()), faults() and faults())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="only there the heap is told")
def test_operations_on_freed_memory_meet_no_page_faults() -> None:
    found = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    before, asked, after = map(int, found.stdout.split())
    assert not asked or after < before / 10  # 5,200 and 1


def test_little_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed, "memory", lambda: 4 * freed.FREED_BLOCK_BYTES)
    assert not freed.retain_freed_memory()
