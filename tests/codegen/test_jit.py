"""Modules are compiled once per content, loaded and unloaded; modules in several parts."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from jitla.codegen import Jit, LlvmBackend, modules
from jitla.codegen.jit import Objects
from jitla.codegen.module import parted
from jitla.errors import BackendError
from jitla.fusion import Form, Schedule
from jitla.hops import Meta, apply, leaf
from tests.codegen.driver import drive, kernel_of

# Compiling, loading and unloading modules

TEXT = "define i64 @answer() {{ ret i64 {0} }}"


def call(address: int) -> int:
    """Call a function without arguments."""
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(address)())


def test_compile_load_and_share() -> None:
    jit = Jit()
    one, two = jit.load(TEXT.format(41), ("answer",)), jit.load(TEXT.format(42), ("answer",))
    assert (call(one.addresses["answer"]), call(two.addresses["answer"])) == (41, 42)
    assert jit.load(TEXT.format(41), ("answer",)) is one
    assert len(jit.objects) == 2


def test_objects_come_from_the_mapping() -> None:
    first = Jit()
    data = first.compile(TEXT.format(5))
    second = Jit(dict(first.objects))
    assert second.compile(TEXT.format(5)) is data
    library = second.load(TEXT.format(5), ("answer",))
    assert call(library.addresses["answer"]) == 5


def test_a_dropped_library_can_be_loaded_again() -> None:
    jit = Jit()
    for _ in range(10):
        library = jit.load(TEXT.format(6), ("answer",))
        assert call(library.addresses["answer"]) == 6
        del library
        gc.collect()


def test_bad_text_is_an_error_of_ours() -> None:
    with pytest.raises(BackendError, match="LLVM rejects"):
        Jit().compile("define void @f( {")


@pytest.mark.threads
def test_threads_may_compile_at_once() -> None:
    jit = Jit()
    found: dict[int, int] = {}

    def work(k: int) -> None:
        for i in range(8):
            value = 100 * k + i
            library = jit.load(TEXT.format(value), ("answer",))
            found[value] = call(library.addresses["answer"])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 32 and all(k == v for k, v in found.items())


@pytest.mark.process
def test_nothing_starts_before_first_use() -> None:
    code = (
        "import llvmlite.binding as llvm\n"
        "llvm.initialize_native_target = llvm.create_lljit_compiler = None\n"
        "from jitla.codegen import LlvmBackend\n"
        "LlvmBackend(launch=None, threads=2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_old_object_bytes_make_room() -> None:
    objects = Objects(max_count=50)
    for k in range(55):
        objects[str(k)] = b""
    assert len(objects) == 50 and "4" not in objects and "54" in objects


def test_objects_take_so_many_bytes_at_most() -> None:
    objects = Objects(max_bytes=100)
    for k in range(5):
        objects[f"key{k}"] = bytes(40)
        objects["same"] = bytes(10 + k)
    assert list(objects) == ["key4", "same"] or list(objects) == ["key3", "key4", "same"]
    assert objects.nbytes == sum(map(len, objects.values())) <= 100
    objects["large"] = bytes(1000)
    assert list(objects) == ["large"] and objects.nbytes == 1000


# Modules in parts: what is cold or shared is apart, and the parts call each other.

TWO_PARTS = """@table = internal constant [2 x i64] [i64 40, i64 2]
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
    text = parted(TWO_PARTS, "; begin\n")
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
