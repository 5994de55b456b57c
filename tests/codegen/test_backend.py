"""What the backend accepts, how it cuts kernels into units, and that code depends on no size."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import Form, Geometry, Kernel, Schedule
from jitla.hops import Meta, apply, leaf, make
from tests.codegen.driver import BACKEND, drive, kernel_of

ONE = Schedule()


def words(template: bytes) -> tuple[int, ...]:
    """Return the block's words."""
    return struct.unpack(f"<{len(template) // 8}q", template)


def square_plus(n: int, slots: tuple[int, int] = (0, 1)) -> Kernel:
    """Return the kernel of ``x * x + y`` over `n` elements."""
    x, y = (leaf(s, Meta((n,), np.dtype("f8"))) for s in slots)
    return kernel_of([apply("add", apply("multiply", x, x), y)])


def test_supports_says_why_not() -> None:
    def reason(name: str, source: str, **attrs: object) -> str | None:
        x = leaf(0, Meta((4,), np.dtype(source)))
        return BACKEND.supports(make(name, (x,), **attrs))

    assert reason("negative", "f8") is None
    assert reason("exp", "f8") is None
    assert "float16" in str(reason("negative", "f2"))
    assert "no kernels" in str(reason("negative", "g"))
    assert reason("negative", "c16") is None
    assert "no recipe" in str(reason("exp", "c8"))
    assert "no recipe" in str(reason("cast", "c16", dtype=np.dtype("f8")))
    assert reason("sum", "c8", axis=(0,), keepdims=False) is None
    assert "first of several NaNs" in str(reason("max", "c16", axis=(0,), keepdims=False))
    assert "one after the other" in str(reason("prod", "c8", axis=(0,), keepdims=False))
    assert "byte-swapped" in str(reason("cast", ">f8", dtype=np.dtype("f8")))
    assert "uint32" in str(reason("cast", "f8", dtype=np.dtype("u4")))
    assert "spacing" in str(reason("spacing", "f8"))
    assert reason("sum", "f8", axis=(0,), keepdims=False) is None
    assert reason("prod", "i8", axis=(0,), keepdims=False) is None
    assert "one after the other" in str(reason("prod", "f8", axis=(0,), keepdims=False))


def test_code_depends_on_neither_sizes_nor_leaves() -> None:
    form = Form("cell", 1, "ccc")
    a = BACKEND.compile(square_plus(100), form, ONE)
    b = BACKEND.compile(square_plus(7777, (3, 9)), form, ONE)
    assert a.text == b.text and a.object is b.object


def test_block_words() -> None:
    backend = LlvmBackend(launch=drive, threads=2)
    executable = backend.compile(square_plus(100), Form("cell", 1, "ccc"), ONE)
    small = words(executable.template(Geometry((100,), ((8,),) * 3)))
    assert small[1] == len(small) and small[2:6] == (1, 1, 0, 0) and small[7] % 2**32 == 3
    assert small[8:14] == (0,) * 6
    large = words(executable.template(Geometry((10_000_000,), ((8,),) * 3)))
    assert large[2] > 1000 and 6 <= -(-large[2] // large[3]) <= 8


def test_scalars_are_marked() -> None:
    x, y = leaf(0, Meta((9,), np.dtype("f4"))), leaf(1, Meta((), np.dtype("f4")), "scalar")
    kernel = kernel_of([apply("multiply", x, y)])
    executable = BACKEND.compile(kernel, Form("cell", 1, "cc"), ONE)
    block = words(executable.template(Geometry((9,), ((4,), (4,)))))
    kinds = block[8 + 3 : 8 + 6]
    scalar_at = [h.meta.shape for h in kernel.inputs].index(())
    assert sorted(kinds) == [0, 0, 1] and kinds[scalar_at] == 1


@pytest.mark.parametrize("n", [0, 5, 100_000, 5_000_000])
def test_units_of_a_sum_depend_on_its_size_only(n: int) -> None:
    x = leaf(0, Meta((n,), np.dtype("f8")))
    kernel = kernel_of([make("sum", (x,), axis=(0,), keepdims=False)])
    blocks = []
    for threads in (1, 2, 7):
        backend = LlvmBackend(launch=drive, threads=threads)
        executable = backend.compile(kernel, Form("full", 1, "cb"), ONE)
        blocks.append(words(executable.template(Geometry((n,), ((8,), (0,))))))
        assert blocks[-1][4] != 0
    assert len({(b[2], b[5], b[12:]) for b in blocks}) == 1


def test_schedule_caps_the_threads() -> None:
    backend = LlvmBackend(launch=drive, threads=2)
    executable = backend.compile(square_plus(8), Form("cell", 1, "ccc"), Schedule(threads=1))
    block = words(executable.template(Geometry((10_000_000,), ((8,),) * 3)))
    assert block[3] == block[2]


def test_native_launch_runs_kernels_on_all_threads() -> None:
    backend = LlvmBackend()
    rng = np.random.default_rng(8)
    for n in (10, 3_000_000):
        x, y, out = rng.standard_normal(n), rng.standard_normal(n), np.empty(n)
        kernel = square_plus(n)
        executable = backend.compile(kernel, Form("cell", 1, "ccc"), ONE)
        operands = [(x, y)[h.attr("slot")] for h in kernel.inputs]
        backend.launch(executable.template(Geometry((n,), ((8,),) * 3)), *operands, out)
        assert (out == x * x + y).all()
        leaf_x = leaf(0, Meta((n,), x.dtype))
        kernel = kernel_of([make("sum", (leaf_x,), axis=(0,), keepdims=False)])
        total = np.empty(1)
        executable = backend.compile(kernel, Form("full", 1, "cb"), ONE)
        backend.launch(executable.template(Geometry((n,), ((8,), (0,)))), x, total)
        assert total[0] == x.sum()
