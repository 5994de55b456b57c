"""Native methods are installed only where everything is found."""

from __future__ import annotations

import ctypes

from jitla.runtime.native_call import (
    NativeMethods,
    _has_refcount_first,
    _slot_offset,
    make_method,
)


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
    assert not native.install(Open, {}, {}, {"a": (Open,)})
    assert not native.installed
    assert Open().ask() == "Python"


def test_classes_that_differ_are_refused():
    class Other:
        __slots__ = ("A", "a")

    assert _slot_offset(Other, "a") != _slot_offset(Slotted, "a")
    assert not NativeMethods({}, ("ask",), ("at_a",)).install(Slotted, {}, {}, {"a": (Slotted, Other)})
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
