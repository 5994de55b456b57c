"""The compiler: what it keeps, what it compiles, what it does when compiling fails."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jitla.errors import BackendError
from jitla.fusion import MIN_STREAMED_BYTES, InterpretedBackend, Layout, Schedule
from jitla.hops import Hop, Meta, apply, leaf
from jitla.recompile import Compiler
from jitla.recompile.compiler import (
    OPERATION_BYTES,
    PROGRAM_BYTES,
)
from tests.recompile.support import layouts_of

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
