"""Modules in parts: what is cold or shared is apart, and the parts call each other."""

from __future__ import annotations

import ctypes

import numpy as np

from jitla.codegen import Jit, LlvmBackend, modules
from jitla.codegen.module import parted
from jitla.fusion import Form, Schedule
from jitla.hops import Meta, apply, leaf
from tests.codegen.driver import drive, kernel_of

TEXT = """@table = internal constant [2 x i64] [i64 40, i64 2]
define internal i64 @jitla_two_x() noinline cold {
  %p = getelementptr i64, ptr @table, i64 1
  %v = load i64, ptr %p
  ret i64 %v
}
define internal i64 @rare(i64 %x) cold {
  %two = call i64 @jitla_two_x()
  %r = add i64 %x, %two
  ret i64 %r
}
define i64 @k() {
  %v = load i64, ptr @table
  %r = call i64 @rare(i64 %v)
  ret i64 %r
}
"""


def test_parts_call_each_other() -> None:
    text = parted(TEXT, "; begin\n")
    found = modules(text)
    assert [level for level, _ in found] == [None, 0, 0]
    assert all(part.startswith("; begin\n") and "cold" not in part for _, part in found)
    assert ["@table = " in part for _, part in found] == [True, True, False]
    jit = Jit()
    library = jit.load(text, ("k",))
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["k"])() == 42


def test_kernels_share_the_code_of_functions() -> None:
    backend = LlvmBackend(launch=drive, threads=1)
    x = leaf(0, Meta((9,), np.dtype("f8")))
    made = []
    for second in ("add", "subtract"):
        kernel = kernel_of([apply(second, apply("sin", x), apply("multiply", x, x))])
        made.append(backend.compile(kernel, Form("cell", 1, "cc"), Schedule()).text)
    sine = [{part for _, part in modules(text) if "@jitla_sin_far(" in part} for text in made]
    assert sine[0] == sine[1] and len(sine[0]) == 1
    assert len(backend.jit.objects) < sum(len(modules(text)) for text in made)
