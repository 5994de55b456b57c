"""The processor's flags: read and set on every way, and not raised by comparisons."""

from __future__ import annotations

import ctypes
import re
import sys
from string import Template

import numpy as np
import pytest

from jitla.codegen import Jit, host_target
from jitla.codegen.ir_elementwise import (
    float_ir,
    quiet,
)

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


_CHOICES = {"divide": ("fdiv {v} %x, %y", 1.0, 4), "to_integer": ("fptosi {v} %x to <{n} x i64>", 1e300, 1),
            "to_single": ("fptrunc {v} %x to <{n} x float>", 1e300, 8)}


@linux
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("name", _CHOICES)
def test_choices_compute_what_they_do_not_choose(name: str, lanes: int) -> None:
    """An operation whose result is not chosen still raises its flag."""
    line, number, flag = _CHOICES[name]
    vec = f"<{lanes} x double>"
    kind = {"divide": vec, "to_integer": f"<{lanes} x i64>", "to_single": f"<{lanes} x float>"}[name]
    body = f"""define void @f(ptr %to, ptr %given, ptr %other) {{
  %x = load {vec}, ptr %given, align 8
  %y = load {vec}, ptr %other, align 8
  %c = fcmp ogt {vec} %y, splat (double 1.0)
  %q = {line.format(v=vec, n=lanes)}
  %p = {"freeze " + kind + " %q" if name == "to_integer" else f"bitcast {kind} %q to {kind}"}
  %s = select <{lanes} x i1> %c, {kind} %p, {kind} zeroinitializer
  store {kind} %s, ptr %to, align 8
  ret void
}}
"""
    code, get, put = loaded(False)
    made = Jit().load(quiet(body, host_target().features), ("f",))
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(made.addresses["f"])
    out, given, other = np.empty(lanes), np.ones(lanes), np.full(lanes, 2.0)
    base = get() & ~0x3F
    for wanted in (0, flag):
        put(base)
        f(out.ctypes.data, given.ctypes.data, other.ctypes.data)
        raised = get() & 13
        put(base)
        assert raised == wanted and code
        given[-1], other[-1] = number, 0.0
