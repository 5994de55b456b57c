"""The compiler: its cache, its checks of kernels against NumPy, failures of compilation."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.codegen.kernels import cell_layouts as crosswise
from jitla.codegen.kernels import reduce_all as reduce
from jitla.errors import BackendError
from jitla.events import Event
from jitla.fusion import (
    MIN_STREAMED_BYTES,
    Executable,
    Form,
    Geometry,
    InterpretedBackend,
    InterpretedKernel,
    Kernel,
    Layout,
    Schedule,
)
from jitla.hops import Hop, Meta, apply, const, leaf, lookup
from jitla.recompile import Compiler, LruCache
from jitla.recompile.compiler import OPERATION_BYTES, PROGRAM_BYTES, numpy_difference
from tests.codegen.driver import BACKEND, drive, kernel_of
from tests.recompile.dags import layouts_of

# The compiler: what it keeps, what it compiles, what it does when compiling fails.

F8 = np.dtype("f8")


class Counting(InterpretedBackend):
    """A backend that notes what it compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list = []

    def compile(self, kernel, form, schedule):
        self.seen.append((form, schedule))
        return super().compile(kernel, form, schedule)


class Broken(InterpretedBackend):
    """A backend whose compiler fails."""

    def compile(self, kernel, form, schedule):
        raise BackendError("out of registers")


def recipe(n: int = 50):
    x, y = leaf(0, Meta((n,), F8)), leaf(1, Meta((n,), F8))
    root: Hop = apply("exp", apply("add", x, y))
    arrays = [np.arange(float(n)), np.ones(n)]
    return ((root,), layouts_of(arrays), (None,), frozenset()), arrays


@pytest.mark.threads
def test_programs_are_built_once_by_many_threads():
    compiler = Compiler(Counting())
    made = []

    def make():
        made.append(1)
        return recipe()[0]

    found = []
    threads = [threading.Thread(target=lambda: found.append(compiler.program("k", make)))
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 1 and len({id(p) for p in found}) == 1
    compiler.clear()
    assert compiler.program("k", make) is not found[0] and len(made) == 2


def test_programs_used_long_ago_make_room():
    compiler = Compiler(Counting(), max_programs=2)
    first = compiler.program(1, lambda: recipe()[0])
    compiler.program(2, lambda: recipe()[0])
    assert compiler.program(1, lambda: recipe()[0]) is first
    compiler.program(3, lambda: recipe()[0])
    assert compiler.program(1, lambda: recipe()[0]) is first
    assert compiler.statistics() == {
        "programs": 2, "kernels": 0, "nbytes": 2 * (PROGRAM_BYTES + 4 * OPERATION_BYTES), "dropped": 1}


def test_large_programs_make_room_for_others():
    compiler = Compiler(Counting(), max_program_bytes=3 * PROGRAM_BYTES)
    for key in range(5):
        compiler.program(key, lambda: recipe()[0])
    assert compiler.statistics()["programs"] == 2 and compiler.has(4) and not compiler.has(2)
    compiler.clear()
    assert compiler.statistics()["nbytes"] == 0


def test_a_kernel_is_compiled_once_for_all_sizes():
    backend = Counting()
    compiler = Compiler(backend)
    for n in (50, 60, 70):
        (roots, layouts, outs, aliases), arrays = recipe(n)
        program = compiler.build(roots, layouts, outs, aliases)
        bound = program.bind(program.identity(), layouts)
        assert np.array_equal(bound.run(arrays)[0], np.exp(arrays[0] + arrays[1]))
        other = [np.arange(9.0), np.ones(9)]
        again = program.bind({n: 9}, layouts_of(other))
        assert np.array_equal(again.run(other)[0], np.exp(other[0] + 1))
        assert (bound.count, again.count) == (1, 1)
    assert len(backend.seen) == 1


def test_equal_kernels_of_other_programs_are_compiled_once():
    """Names, leaves and lines are not part of a kernel; which operands are the same is."""
    backend = Counting()
    compiler = Compiler(backend)
    x, y, z = (leaf(i, Meta((50,), np.dtype("f8"))) for i in range(3))
    layouts = {i: Layout((50,), (8,)) for i in range(3)}
    sums = [apply("exp", apply("add", *two)) for two in ((x, y), (y, z), (z, x), (x, x))]
    for root in sums:
        program = compiler.build((root,), layouts)
        program.bind(program.identity(), layouts)
    assert len(backend.seen) == 2


def test_another_layout_is_another_form():
    backend = Counting()
    compiler = Compiler(backend)
    (roots, layouts, *_), arrays = recipe()
    program = compiler.build(roots, layouts)
    program.bind(program.identity(), layouts)
    program.bind(program.identity(), layouts | {0: Layout((50,), (16,))})
    assert [f.inner for f, _ in backend.seen] == ["ccc", "scc"]


def test_large_fresh_results_go_around_the_caches():
    backend = Counting()
    compiler = Compiler(backend, threads=3)
    (roots, layouts, *_), _ = recipe()
    program = compiler.build(roots, layouts)
    for n in (50, MIN_STREAMED_BYTES // 8):
        program.bind({50: n}, {i: Layout((n,), (8,)) for i in range(2)})
    stored = compiler.build(roots, layouts, (0,))
    stored.bind({50: n}, {i: Layout((n,), (8,)) for i in range(2)})
    assert [s for _, s in backend.seen] == [Schedule(threads=3), Schedule(3, nontemporal=True)]


@pytest.mark.parametrize("slot, around", [(0, False), (2, True)])
def test_large_results_written_into_memory_go_around_the_caches_unless_it_is_read(slot, around):
    backend = Counting()
    (roots, layouts, *_), _ = recipe()
    stored = Compiler(backend).build(roots, layouts | {2: Layout((50,), (8,))}, (slot,))
    n = MIN_STREAMED_BYTES // 8
    stored.bind({50: n}, {i: Layout((n,), (8,)) for i in range(3)})
    assert [s.nontemporal for _, s in backend.seen] == [around]


def test_a_kernel_that_fails_to_compile_is_interpreted():
    events = []
    compiler = Compiler(Broken(), observe=events.append)
    (roots, layouts, *_), arrays = recipe()
    program = compiler.build(roots, layouts)
    result = program.bind(program.identity(), layouts).run(arrays)[0]
    assert np.array_equal(result, np.exp(arrays[0] + arrays[1]))
    assert "kernel.failed" in [e.kind for e in events]


def test_strict_leaves_transcendentals_to_numpy():
    (roots, layouts, *_), _ = recipe()
    strict = Compiler(Counting(), numerics="strict").build(roots, layouts)
    assert (strict.kernels, strict.calls) == (1, 1)
    assert "numerics=strict" in strict.text()
    assert Compiler(Counting()).build(roots, layouts).calls == 0


def test_text_tells_every_stage_and_the_users_lines():
    x = leaf(0, Meta((5077,), F8))  # nobody else has such hops, and so lines for them
    root = apply("multiply", apply("add", x, x, line=("/home/me/train.py", 7)), x, line="train.py:8")
    text = Compiler(Counting()).build((root,), {0: Layout((5077,), (8,))}).text()
    assert "/home" not in text
    for part in ("== hops", "== rewrites", "== rules fired", "== plan", "K0 Cell 5077", "== program",
                 "# train.py:7", "# train.py:8", "def run(L):"):
        assert part in text


@pytest.mark.parametrize("value, kind", [(2.0, float), (2, int), (True, bool)])
def test_weak_scalars_become_the_exact_dtype(value, kind):
    x = leaf(0, Meta((5,), np.dtype("f4")))
    weak = leaf(1, Meta((), np.dtype("f4")), "weak")
    double = leaf(1, Meta((), F8), "weak")
    roots = (apply("add", x, weak), apply("multiply", double, double))
    program = Compiler(Counting(), rules=None).build(roots, {0: Layout((5,), (4,))})
    found = program.bind(program.identity(), program.layouts).run([np.ones(5, "f4"), value])
    assert found[0].dtype == "f4" and found[0][0] == 1 + value
    assert type(found[1]) is np.float64 and found[1] == value * value


def test_equal_results_are_arrays_of_their_own():
    (roots, layouts, *_), arrays = recipe()
    program = Compiler(Counting()).build(roots * 2, layouts)
    a, b = program.bind(program.identity(), layouts).run(arrays)
    assert a is not b and not np.shares_memory(a, b) and np.array_equal(a, b)


# The LRU cache of the compiler: eviction by number and by bytes.


def test_what_was_not_used_for_longest_goes() -> None:
    kept: LruCache[str] = LruCache(2)
    kept.put(1, "one")
    kept.put(2, "two")
    assert kept.get(1) == "one"
    kept.put(3, "three")
    assert kept.values() == ["one", "three"] and 2 not in kept and kept.get(2) is None
    assert kept.evicted == 1


def test_bytes_are_bounded_too() -> None:
    kept: LruCache[str] = LruCache(10, max_bytes=100)
    for key, nbytes in ((1, 40), (2, 40), (1, 10), (3, 50)):
        kept.put(key, str(key), nbytes)
    assert kept.nbytes == 100 and len(kept) == 3 and kept.evicted == 0
    kept.put(4, "4", 20)
    assert kept.values() == ["1", "3", "4"] and kept.nbytes == 80
    kept.put(5, "5", 1000)  # larger than the room: it is kept alone
    assert kept.values() == ["5"] and kept.nbytes == 1000
    kept.put(6, "6", 1)
    assert kept.values() == ["6"] and kept.nbytes == 1
    kept.clear()
    assert len(kept) == kept.nbytes == 0


# Kernels are compared with NumPy before they are used, and those that differ are not.

VECTOR_META = Meta((4,), np.dtype(np.float64))
X, Y = leaf(0, VECTOR_META), leaf(1, VECTOR_META)
CELL, FULL = Form("cell", 1, "ccc"), Form("full", 1, "ccb")


class Off(InterpretedKernel):
    """A kernel of which one element is not what it should be."""

    def template(self, geometry: Geometry, more: bool = False) -> bytes:
        block: Any = super().template(geometry, more)
        run = block.run

        def wrong(*operands: Any) -> None:
            run(*operands)
            last = operands[-1].reshape(-1)
            last[-1] = last[-1] * 2 + 1

        block.run = wrong
        return block


class Careless(InterpretedBackend):
    """A compiler that makes such kernels."""

    def compile(self, kernel: Kernel, form: Form, schedule: Schedule) -> InterpretedKernel:
        return Off(kernel, form)


def kernels() -> list[tuple[Kernel, Form]]:
    total = apply("sum", apply("multiply", X, Y), axis=(0,), keepdims=False)
    return [(kernel_of([apply("multiply", X, Y)]), CELL), (kernel_of([total]), FULL)]


@pytest.mark.parametrize(("kernel", "form"), kernels())
def test_a_kernel_that_differs_is_not_used(kernel: Kernel, form: Form, caplog: Any) -> None:
    told: list[Event] = []
    compiler = Compiler(Careless(), observe=told.append)
    made, launch = compiler.executable(kernel, "key", form, Schedule())
    assert type(made) is InterpretedKernel
    assert [event.kind for event in told] == ["kernel.failed"] and "in NumPy" in told[0].subject
    assert "differs from NumPy" in caplog.text


@pytest.mark.parametrize(("kernel", "form"), kernels())
def test_a_kernel_that_does_not_differ_is(kernel: Kernel, form: Form) -> None:
    made: Executable = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), made, drive, True) == ""
    told: list[Event] = []
    found, _ = Compiler(InterpretedBackend(), observe=told.append).executable(kernel, "key", form, Schedule())
    assert type(found) is InterpretedKernel and [event.kind for event in told] == ["kernel"]
    assert made.text


def swapped(monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, Form]:
    """The other value is taken where a condition holds."""
    spec = lookup("where")
    real = spec.emit
    assert real is not None
    condition = apply("less", X, Y)
    kernel = kernel_of([apply("where", condition, X, Y)])
    object.__setattr__(spec, "emit", lambda b, c, x, y, attrs: real(b, c, y, x, attrs))
    return kernel, CELL


def shortened(monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, Form]:
    """Sums leave out the last element if it is the only one that fills no vector."""
    real = reduce._leaf
    monkeypatch.setattr(reduce, "_leaf", lambda *given: real(*given).replace(
        "icmp ne i64 %rest, 0", "icmp ugt i64 %rest, 1"))
    return kernels()[1]


@pytest.mark.parametrize("put", [swapped, shortened])
def test_a_wrong_instruction_is_found(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = lookup("where")
    real = spec.emit
    try:
        kernel, form = put(monkeypatch)
        backend = LlvmBackend(launch=drive, threads=1)
        made = backend.compile(kernel, form, Schedule())
        assert numpy_difference(kernel, form, Schedule(), made, drive, True)
    finally:
        object.__setattr__(spec, "emit", real)


def test_functions_without_exact_results_may_round_but_not_be_wrong() -> None:
    kernel = kernel_of([apply("exp", apply("add", X, const(1.0, "f8")))])
    form = Form("cell", 1, "cc")

    class Rounded(Off):
        def template(self, geometry: Geometry, more: bool = False) -> bytes:
            block: Any = InterpretedKernel.template(self, geometry, more)
            run = block.run

            def other(*operands: Any) -> None:
                run(*operands)
                operands[-1][...] = operands[-1] * factor

            block.run = other
            return block

    launch = InterpretedBackend().launch
    for factor, wrong in ((1.0, False), (1.0 + 4e-16, False), (1.001, True)):
        assert bool(numpy_difference(kernel, form, Schedule(), Rounded(kernel, form), launch, True)) is wrong


def test_results_are_as_precise_as_what_they_were_made_of() -> None:
    x = leaf(0, Meta((4,), np.dtype(np.float32)))
    kernel = kernel_of([apply("cast", apply("exp", x), dtype=np.dtype(np.float64))])
    form = Form("cell", 1, "cc")
    executable = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), executable, drive, True) == ""


SUMS = apply("sum", apply("multiply", X, Y), axis=(0,), keepdims=False)
LAID = [
    (Form("cell", 2, "ccc"), False), (Form("cell", 2, "cbc"), True), (Form("cell", 3, "csc"), False),
    (Form("cell", 2, "scs"), False), (Form("cell", 1, "csc"), False), (Form("rows", 2, "ccb"), True),
    (Form("rows", 3, "ccb"), False), (Form("cols", 2, "ccc"), False), (Form("full", 2, "frb"), False)]


@pytest.mark.parametrize(("form", "crosswise"), LAID, ids=lambda x: f"{x}"[5:])
def test_kernels_are_looked_at_however_arrays_lie(form: Form, crosswise: bool) -> None:
    kernel = kernel_of([apply("multiply", X, Y) if form.mode == "cell" else SUMS])
    schedule = Schedule(crosswise=crosswise)
    made = BACKEND.compile(kernel, form, schedule)
    assert numpy_difference(kernel, form, schedule, made, drive, True) == ""
    launch = InterpretedBackend().launch
    assert "in NumPy" in numpy_difference(kernel, form, schedule, Off(kernel, form), launch, True)


def test_rows_that_share_vectors_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, form = kernel_of([apply("multiply", X, Y)]), Form("cell", 2, "ccc")
    schedule = Schedule(crosswise=True)
    real = crosswise.across
    monkeypatch.setattr("jitla.codegen.kernels.cell.across", lambda *a: real(*a).replace("fmul", "fadd"))
    made = LlvmBackend(launch=drive, threads=1).compile(kernel, form, schedule)
    assert numpy_difference(kernel, form, schedule, made, drive, True)


def test_results_of_other_kernels_are_arrays_like_others() -> None:
    every = apply("all", leaf(0, Meta((4, 3), np.dtype(bool))), axis=(1,), keepdims=True)
    count = apply("sum", apply("cast", every, dtype=np.dtype(np.int64)), axis=(0, 1), keepdims=False)
    kernel = Kernel("MAgg", (4, 1), (every,), (count.inputs[0], count), (count,))
    form = Form("full", 1, "cb")
    made = BACKEND.compile(kernel, form, Schedule())
    assert numpy_difference(kernel, form, Schedule(), made, drive, True) == ""


def test_what_is_stored_between_rows_is_found() -> None:
    class Beyond(Off):
        def template(self, geometry: Geometry, more: bool = False) -> bytes:
            block: Any = InterpretedKernel.template(self, geometry, more)
            run = block.run

            def wrong(*operands: Any) -> None:
                run(*operands)
                operands[-1][geometry.dims[-1]] = 1.0

            block.run = wrong
            return block

    kernel, form = kernel_of([apply("multiply", X, Y)]), Form("cell", 2, "ccc")
    launch = InterpretedBackend().launch
    assert numpy_difference(kernel, form, Schedule(), Beyond(kernel, form), launch, True)


def test_delayed_stores_and_tables_are_not_looked_at() -> None:
    kernel, _ = kernels()[0]
    launch = InterpretedBackend().launch
    for form, schedule in ((CELL, Schedule(delayed=True)), (Form("tally", 1, "ccc"), Schedule())):
        assert numpy_difference(kernel, form, schedule, Off(kernel, form), launch, True) == ""
