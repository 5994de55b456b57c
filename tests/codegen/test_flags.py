"""The processor's flags: read and set on every way, and not raised by comparisons."""

from __future__ import annotations

import ctypes
import re
import sys
from string import Template

import numpy as np
import pytest

from jitla.codegen import Jit, host_target
from jitla.codegen.flags import float_ir, quiet

linux = pytest.mark.skipif(
    sys.platform != "linux" or not host_target().triple.startswith("x86_64"), reason="x86 Linux")
_ENV = ("fetestexcept", "feclearexcept", "feraiseexcept")


def loaded(library: bool):
    """`get` and `set` as C functions, by the processor's own instructions or by the C library's."""
    names = {name: f"@{name}.table" for name in _ENV}
    tables = "".join(f"@{name}.table = global ptr null\n" for name in _ENV) if library else ""
    text = Template(float_ir("x86_64", library)).substitute(names) if library else float_ir("x86_64")
    doors = """
define i32 @get() { %v = call i32 @float.get()
  ret i32 %v }
define void @set(i32 %v) { call void @float.set(i32 %v)
  ret void }
"""
    exported = ("get", "set", *((f"{n}.table" for n in _ENV) if library else ()))
    code = Jit().load(tables + text + doors, exported)
    if library:
        libm = ctypes.CDLL("libm.so.6")
        for name in _ENV:
            at = ctypes.cast(getattr(libm, name), ctypes.c_void_p).value
            ctypes.c_void_p.from_address(code.addresses[f"{name}.table"]).value = at
    get = ctypes.CFUNCTYPE(ctypes.c_int)(code.addresses["get"])
    put = ctypes.CFUNCTYPE(None, ctypes.c_int)(code.addresses["set"])
    return code, get, put


@linux
@pytest.mark.parametrize("library", [False, True])
def test_flags_are_set_and_read(library: bool) -> None:
    code, get, put = loaded(library)
    base = get() & ~0x3F
    for flags in (0, 1, 4, 8, 13, 5, 0):
        put(base | flags)
        assert get() & 13 == flags
    put(base)
    assert code.addresses


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "vax"])
@pytest.mark.parametrize("library", [False, True])
def test_every_machine_has_its_text(machine: str, library: bool) -> None:
    text = float_ir(machine, library)
    assert "@float.get()" in text and "@float.set(i32 %v)" in text
    assert set(re.findall(r"\$(\w+)", text)) <= set(_ENV)


def test_only_ordered_comparisons_of_floats_are_rewritten() -> None:
    text = "  %a = fcmp olt <4 x double> %x, splat (double 1.0)\n  %b = icmp slt <4 x i64> %x, %y\n" \
           "  %c = fcmp uno <4 x double> %x, %y\n  %d = fadd <4 x double> %x, %y\n"
    found = quiet(text, frozenset({"avx"}))
    assert found.count("constrained") == 1 and 'metadata !"olt"' in found
    assert quiet(text, frozenset()) == text


@linux
def test_choices_of_single_elements_compute_both_sides() -> None:
    """A division that is not chosen still raises its flag."""
    body = """define double @f(double %x0, double %y0) {{
  %x = insertelement <1 x double> poison, double %x0, i32 0
  %y = insertelement <1 x double> poison, double %y0, i32 0
  %q = fdiv <1 x double> %x, %y
  %c = fcmp ogt <1 x double> %y, zeroinitializer
  %s = select <1 x i1> %c, <1 x double> %q, <1 x double> %x
  %r = extractelement <1 x double> %s, i32 0
  ret double %r
}}
"""
    code, get, put = loaded(False)
    text = quiet(body.format(), host_target().features)
    assert "constrained.fdiv.v1f64" in text
    made = Jit().load(text, ("f",))
    f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(made.addresses["f"])
    base = get() & ~0x3F
    put(base)
    assert f(1.0, 0.0) == 1.0
    raised = get() & 13
    put(base)
    assert raised == 4 and np.isfinite(f(1.0, 2.0)) and code
