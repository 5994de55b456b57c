"""Modules are compiled once per content, loaded and unloaded; LLVM starts on first use."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading

import pytest

from jitla.codegen import Jit
from jitla.codegen.jit import Objects
from jitla.errors import BackendError

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


def test_nothing_starts_before_first_use() -> None:
    code = (
        "import llvmlite.binding as llvm\n"
        "llvm.initialize_native_target = llvm.create_lljit_compiler = None\n"
        "from jitla.codegen import LlvmBackend\n"
        "LlvmBackend(launch=None, threads=2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_old_object_bytes_make_room() -> None:
    kept = Objects()
    for k in range(Objects.LIMIT + 5):
        kept[str(k)] = b""
    assert len(kept) == Objects.LIMIT and "4" not in kept and str(Objects.LIMIT + 4) in kept


def test_objects_take_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objects, "ROOM", 100)
    objects = Objects()
    for k in range(5):
        objects[f"key{k}"] = bytes(40)
        objects["same"] = bytes(10 + k)
    assert list(objects) == ["key4", "same"] or list(objects) == ["key3", "key4", "same"]
    assert objects.held == sum(map(len, objects.values())) <= 100
    objects["large"] = bytes(1000)
    assert list(objects) == ["large"] and objects.held == 1000
