"""Loop nests as machine code: every kind of loop and statement, vectors and their epilogues, memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.errors import BackendError, NestError
from jitla.loopir import apply_schedule, parse, run
from tests.loopir.listings import SCRATCHPAD, TILES, blur, intrinsics, product

# Nests as machine code: every kind of loop and statement, vectors and what is left of them, memory.


@pytest.fixture(scope="module")
def backend() -> LlvmBackend:
    return LlvmBackend()


def arrays_of(nest, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for b in nest.inputs:
        parts = rng.normal(size=(2, *b.shape)) * 50
        found[b.name] = (parts[0] + 1j * parts[1] if b.dtype.kind == "c" else parts[0]).astype(b.dtype)
    return found


def assert_same(backend, nest, **given):
    arrays = {**arrays_of(nest), **given}
    want, got = run(nest, arrays), backend.nest(nest, threads=2, serial_ns=0.0)(arrays)
    for name, array in want.items():
        assert got[name].tobytes() == array.tobytes(), name


def nest(*lines, A="float32[6,37]", B="float32[6,37]"):
    return parse("\n".join([f"def f(A: '{A}', B: '{B}') -> (B,):", *["    " + line for line in lines]]))


LOOPS = ("for i in range(6):", "    for j in vectorised(37):")


@pytest.mark.parametrize("schedule", (TILES, SCRATCHPAD))
def test_products_with_intrinsics(backend, schedule):
    assert_same(backend, apply_schedule(product(16), schedule, intrinsics=intrinsics()))


@pytest.mark.parametrize("schedule", (
    "compute_inline(rows)", "split(y, 4)\nparallel(y_o)\ncompute_at(rows, y_o)\nvectorise(x)",
    "split(y, 5)\nparallel(y_o)\nstore_at(rows, y_o, y_i, ring=True)",
    "split(y, 5, 'shifted')\nsplit(x, 8, 'peeled')\nvectorise(x_i)\nunroll(y_i)"))
def test_blurs(backend, schedule):
    assert_same(backend, apply_schedule(blur(23, 41), schedule))


@pytest.mark.parametrize("dtype", ("bool", "int8", "uint64", "float32", "complex128"))
@pytest.mark.parametrize("j", ("j", "-1*j + 36", "min(j + 3, 36)", "(j + 5) % 37", "(j // 2)", "2"))
def test_vectors_of_elements_that_lie_anyhow(backend, dtype, j):
    body = f"        B[i, j] = add(A[i, {j}], A[-1*i + 5, j])"
    assert_same(backend, nest(*LOOPS, body, A=f"{dtype}[6,37]", B=f"{dtype}[6,37]"))


@pytest.mark.parametrize("guard", ("j < 20", "37*i + j < 150", "i < 4", "-1*j < -8", "(j % 5) < 2"))
def test_guards_cut_vectors_off(backend, guard):
    lines = (*LOOPS, f"        if {guard}:", "            B[i, j] = add(..., A[i, j])")
    made = nest(*lines)
    assert_same(backend, made, B=np.ones((6, 37), "f4"))


def test_every_second_element_and_columns(backend):
    wide = nest("for i in range(6):", "    for j in vectorised(18):",
                "        B[i, 2*j + 1] = multiply(A[i, 2*j], A[i, j])")
    assert_same(backend, wide, B=np.zeros((6, 37), "f4"))
    tall = nest("for j in range(6):", "    for i in vectorised(37):", "        B[i, j] = negative(A[i, j])",
                A="float64[37,6]", B="float64[37,6]")
    assert_same(backend, tall)


def test_functions_are_near(backend):
    made = nest(*LOOPS, "        B[i, j] = exp(sin(A[i, j]))")
    arrays = arrays_of(made)
    assert np.allclose(backend.nest(made)(arrays)["B"], np.exp(np.sin(arrays["A"])), rtol=1e-6)


def test_parallel_loops_in_serial_ones(backend):
    made = nest("s = alloc('float32[6,37]')", "for i in range(6):", "    for j in vectorised(37):",
                "        B[i, j] = A[i, j]",
                "for t in range(5):", "    for a in parallel(6):", "        for b in vectorised(35):",
                "            s[a, b + 1] = add(B[a, b], B[a, b + 2])",
                "    if t < 4:", "        for c in parallel(6):", "            for d in vectorised(35):",
                "                B[c, d + 1] = multiply(s[c, d + 1], float32(0.5))")
    assert_same(backend, made)


def test_turns_that_update_one_place_do_not_do_so_at_once(backend):
    made = nest("for k in parallel(300):", "    for j in range(7):", "        B[0, j] = add(..., A[k, j])",
                A="int32[300,7]", B="int32[1,7]")
    code, given = backend.nest(made, threads=2, serial_ns=0.0), {"B": np.zeros((1, 7), "i4")}
    A = arrays_of(made)["A"]
    for _ in range(20):
        assert np.array_equal(code({"A": A, **given})["B"][0], A.sum(0))


@pytest.mark.threads
def test_threads_have_memory_of_their_own(backend):
    made = nest("for i in parallel(64):", "    s = alloc('float32[513]')", "    for a in vectorised(513):",
                "        s[a] = A[i, a]", "    for j in vectorised(512):",
                "        B[i, j] = subtract(s[j + 1], s[j])",
                A="float32[64,513]", B="float32[64,512]")
    arrays = arrays_of(made)
    want, code = np.diff(arrays["A"]), backend.nest(made, threads=4, serial_ns=0.0)
    found = []

    def often():
        found.extend(np.array_equal(code(arrays)["B"], want) for _ in range(50))

    workers = [threading.Thread(target=often) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [True] * 150


def test_what_is_no_operand_is_refused(backend):
    code = backend.nest(nest(*LOOPS, "        B[i, j] = A[i, j]"))
    with pytest.raises(NestError, match="operand"):
        code({"A": np.zeros((6, 37))})
    with pytest.raises(BackendError, match="float16"):
        backend.nest(nest(*LOOPS, "        B[i, j] = A[i, j]", A="float16[6,37]", B="float16[6,37]"))
    with pytest.raises(NestError, match="dependent-iterations"):
        backend.nest(nest("for i in parallel(5):", "    B[i + 1, 0] = B[i, 0]"))
