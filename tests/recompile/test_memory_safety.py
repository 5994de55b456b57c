"""Kernels touch the user's elements and nothing else, and their code lives as long as anyone runs it."""

from __future__ import annotations

import ctypes
import gc
import mmap
import multiprocessing
import random
import sys
import threading

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import Layout
from jitla.hops import Hop, Meta, apply, evaluate, leaf, make
from jitla.recompile import BoundProgram, Compiler
from tests.recompile.dags import expected, layouts_of, run

PAGE = mmap.PAGESIZE
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect and fork")
F8, F4, BOOL = np.dtype("f8"), np.dtype("f4"), np.dtype(bool)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(LlvmBackend())


class Fenced:
    """Memory between two pages that nobody may touch."""

    def __init__(self, pages: int, writeable: bool = True) -> None:
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.size = pages * PAGE
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + PAGE
        self.protect(self.start - PAGE, PAGE, 0)
        self.protect(self.start + self.size, PAGE, 0)

    def protect(self, at: int, size: int, how: int) -> None:
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(size), how) == 0

    def array(self, values: np.ndarray, at_end: bool, shift: int = 0) -> np.ndarray:
        """Copy `values` to the very beginning or end, `shift` bytes away from it."""
        at = self.start + (self.size - values.nbytes - shift if at_end else shift)
        raw = (ctypes.c_char * values.nbytes).from_address(at)
        made = np.frombuffer(raw, values.dtype).reshape(values.shape)
        made[...] = values
        return made

    def lock(self) -> None:
        self.protect(self.start, self.size, mmap.PROT_READ)


def roots_over(shape: tuple[int, ...]) -> dict[str, tuple[Hop, ...]]:
    x, y = leaf(0, Meta(shape, F8)), leaf(1, Meta(shape, F4))
    m = leaf(2, Meta(shape, BOOL))
    z = apply("add", apply("multiply", x, x), y)
    last = (len(shape) - 1,)
    return {
        "cell": (z, apply("less", x, y), make("cast", (y,), dtype=np.dtype("i8"))),
        "polynomial": (apply("exp", x), apply("sin", y)),
        "choice": (apply("where", m, x, y), make("cast", (m,), dtype=np.dtype("i2"))),
        "full": (make("sum", (z,), axis=tuple(range(len(shape))), keepdims=False),),
        "rows": (make("sum", (z,), axis=last, keepdims=False),
                 make("max", (apply("exp", y),), axis=last, keepdims=False)),
        "cols": (make("sum", (z,), axis=(0,), keepdims=False),),
    }


@linux
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("name", list(roots_over((2, 3))))
def test_no_byte_beyond_the_operands_is_read(compiler, name, at_end) -> None:
    rng = np.random.default_rng(0)
    fences = [Fenced(4), Fenced(4), Fenced(4)]
    for shape in ((1,), (2,), (7,), (33,), (129,), (1001,), (3, 5), (5, 31), (31, 33)):
        roots = roots_over(shape)[name]
        plain = [rng.random(shape), rng.random(shape, np.float32), rng.random(shape) > 0.5]
        leaves = [f.array(a, at_end) for f, a in zip(fences, plain, strict=True)]
        layouts = layouts_of(leaves)
        program = compiler.build(roots, layouts)
        for fence in fences:
            fence.lock()  # the operands are not written either
        got = run(program.bind(program.identity(), layouts), leaves)
        again = run(program.bind(program.identity(), layouts), plain)
        for fence in fences:
            fence.protect(fence.start, fence.size, mmap.PROT_READ | mmap.PROT_WRITE)
        for a, b, want in zip(got, again, expected(roots, plain), strict=True):
            assert a.tobytes() == b.tobytes()
            np.testing.assert_allclose(a, want, rtol=1e-6)


@linux
def test_stores_stay_inside_their_leaf(compiler) -> None:
    fence, other = Fenced(2), Fenced(2)
    for n in (1, 3, 7, 8, 33, 1000):
        for shift in (0, 1, 4):
            for at_end in (True, False):
                a = fence.array(np.arange(n, dtype=F8), at_end, shift)
                b = other.array(np.arange(n, dtype=F8), not at_end, shift)
                x, y = leaf(0, Meta((n,), F8)), leaf(1, Meta((n,), F8))
                root = apply("add", apply("multiply", x, y), y)
                layouts = layouts_of([a, b])
                program = compiler.build((root,), layouts, (0,))
                assert run(program.bind(program.identity(), layouts), [a, b])[0] is a
                np.testing.assert_array_equal(a, np.arange(n) ** 2.0 + np.arange(n))


@linux
def test_strides_beyond_four_gigabytes(compiler) -> None:
    step, n = (1 << 32) + 8, 3
    try:
        space = mmap.mmap(-1, step * n, flags=mmap.MAP_PRIVATE | 0x4000)  # MAP_NORESERVE
    except OSError:
        pytest.skip("no room for so many addresses")
    a = np.ndarray((n, 2), F8, space, strides=(step, 8))
    a[...] = [[1, 2], [3, 4], [5, 6]]
    for view in (a, a[::-1], a[::2, ::-1]):
        leaves = [view]
        x = leaf(0, Meta(view.shape, F8))
        root = apply("multiply", x, x)
        layouts = layouts_of(leaves)
        program = compiler.build((root,), layouts)
        np.testing.assert_array_equal(
            run(program.bind(program.identity(), layouts), leaves)[0], np.array(view) ** 2)
    del a, view, leaves


def chain(k: int) -> Hop:
    """One of 1024 expressions, so that every one needs a kernel of its own."""
    a, b = leaf(0, Meta((1000,), F8)), leaf(1, Meta((1000,), F8))
    root = apply("add", a, b)
    for bit in range(10):
        root = apply(("multiply", "subtract")[k >> bit & 1], root, (a, b)[bit & 1])
    return root


def many(compiler: Compiler, count: int) -> tuple[list[BoundProgram], list[np.ndarray], list[bytes]]:
    leaves = list(np.random.default_rng(0).random((2, 1000)))
    layouts = {i: Layout((1000,), (8,)) for i in (0, 1)}
    bounds = []
    for k in range(count):
        program = compiler.program(k, lambda k=k: ((chain(k),), layouts, (None,), frozenset()))
        bounds.append(program.bind(program.identity(), layouts))
    return bounds, leaves, [evaluate([chain(k)], leaves)[0].tobytes() for k in range(count)]


@pytest.mark.threads
def test_code_outlives_caches_and_compilers() -> None:
    small = Compiler(LlvmBackend(), max_programs=2, max_kernels=2)
    bounds, leaves, wants = many(small, 24)
    assert small.statistics()["kernels"] == 2
    runs = [b.run for b in bounds]
    del small, bounds
    gc.collect()
    wrong: list[int] = []

    def work(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(400):
            k = order.randrange(len(runs))
            if runs[k](leaves)[0].tobytes() != wants[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


@pytest.mark.threads
def test_compilers_make_room_while_others_run() -> None:
    """Kernels come and go in one thread, with their code, while another runs its own."""
    small = Compiler(LlvmBackend(), max_programs=1, max_kernels=1)
    (kept, *_), leaves, (want, *_) = many(small, 1)
    stop, wrong = threading.Event(), []

    def work() -> None:
        while not stop.is_set():
            if kept.run(leaves)[0].tobytes() != want:
                wrong.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            many(small, 12)
            gc.collect()
    finally:
        stop.set()
        thread.join(60)
    assert not wrong


def _child(bound: BoundProgram, leaves: list[np.ndarray], want: bytes, found) -> None:
    found.put(all(bound.run(leaves)[0].tobytes() == want for _ in range(5)))


@pytest.mark.process
@pytest.mark.threads
@linux
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_fork_while_kernels_run(compiler) -> None:
    n = 400_000
    leaves = list(np.random.default_rng(1).random((2, n)))
    a, b = leaf(0, Meta((n,), F8)), leaf(1, Meta((n,), F8))
    layouts = layouts_of(leaves)
    root = apply("exp", apply("multiply", a, b))
    program = compiler.build((root,), layouts)
    bound = program.bind(program.identity(), layouts)
    want = bound.run(leaves)[0].tobytes()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            bound.run(leaves)

    thread = threading.Thread(target=work)
    thread.start()
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    try:
        for _ in range(6):
            child = context.Process(target=_child, args=(bound, leaves, want, found))
            child.start()
            assert found.get(timeout=30)
            child.join(30)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join(30)
