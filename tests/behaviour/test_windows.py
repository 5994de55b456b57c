"""Stencils of stencils as one pass with a window that slides: bits are NumPy's, nothing is left in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import during

RNG = np.random.default_rng(11)
Array = np.ndarray


def box(s: Array) -> Array:
    return (s[:-2, :-2] + s[:-2, 1:-1] + s[:-2, 2:] + s[1:-1, :-2] + s[1:-1, 1:-1] + s[1:-1, 2:]
            + s[2:, :-2] + s[2:, 1:-1] + s[2:, 2:])


def harris(a: Array) -> Array:
    x = (a[1:-1, 2:] - a[1:-1, :-2]) / a.dtype.type(2)
    y = (a[2:, 1:-1] - a[:-2, 1:-1]) / a.dtype.type(2)
    xx, yy, xy = box(x * x), box(y * y), box(x * y)
    return xx * yy - xy * xy - a.dtype.type(0.04) * (xx + yy) * (xx + yy)


def blur(a: Array) -> Array:
    three = a.dtype.type(3)
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) // three
    return (rows[:-2] + rows[1:-1] + rows[2:]) // three


def smaller(a: Array) -> Array:
    return np.sqrt(box(a * a)) / (1 + a[1:-1, 1:-1] * a[1:-1, 1:-1])


def three_times(a: Array) -> Array:
    return smaller(smaller(smaller(a)))


def far(a: Array) -> Array:
    b = a / (1 + a * a)
    return b[8:] / (1 + b[:-8]) - b[3:-5] / (2 + b[5:-3])


def two_results(a: Array) -> tuple[Array, Array]:
    b = box(a / (1 + a * a))
    c = box(b / (1 + b * b))
    return c + 1, c * c


def weighted(a: Array) -> Array:
    columns = np.arange(a.shape[1], dtype=a.dtype)
    b = a * columns / (1 + a * a)
    return box(b / columns[::-1].max()) * columns[1:-1]


def quarter(b: Array) -> Array:
    return (b[:-1:2, :-1:2] + b[1::2, :-1:2] + b[:-1:2, 1::2] + b[1::2, 1::2]) / b.dtype.type(4)


def means(a: Array) -> Array:
    return quarter(a / (1 + a * a))


def pyramid(a: Array) -> Array:
    b = quarter(box(a / (1 + a * a)))
    return quarter(box(b / (1 + b * b)))


def thirds(a: Array) -> Array:
    b = np.sqrt(a) / (1 + a)
    c = b[:-2:3, 1:] + b[1:-1:3, 1:] * b[2::3, :-1]
    return c[2:] / (1 + c[:-2])


def slice_of_slice(a: Array) -> Array:
    b = (np.sqrt(a) / (1 + a))[::2, ::2]
    return b[2:] * b[:-2]


PROGRAMS = (harris, three_times, far, two_results, weighted)
STRIDED = (means, pyramid, thirds, slice_of_slice)


def same(found: object, wanted: object) -> None:
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        assert a.tobytes() == b.tobytes()


def is_window(fast: Callable[..., object], *given: Array) -> bool:
    return "Window" in str(jitla.explain(fast, *given, level="plan"))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", ("f4", "f8"))
def test_results_are_numpys(program, dtype):
    a = RNG.random((211, 640)).astype(dtype)
    fast = jitla.jit(program, compile="sync")
    wanted = program(a)
    same(fast(a), wanted)
    same(fast(a), wanted)
    assert is_window(fast, a)


@pytest.mark.parametrize("program", STRIDED)
def test_rows_that_are_left_out_are_none_of_memory(program):
    fast = jitla.jit(program, compile="sync")
    a = RNG.random((420, 960), dtype="f4")
    wanted = program(a)
    same(fast(a), wanted)
    assert is_window(fast, a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1 + (program is pyramid)
    for m, n in ((423, 960), (424, 961), (422, 961), (60, 90), (2400, 34)):  # other rests, other blocks
        a = RNG.random((m, n), dtype="f4")
        same(fast(a), program(a)) if program is not thirds or m % 3 == 0 else None
    for threads in (1, 5):
        a = RNG.random((1200, 700))
        with jitla.options(num_threads=threads):
            same(jitla.jit(program, compile="sync")(a), program(a))


def test_rows_that_nobody_reads_warn_as_they_do_in_numpy():
    def every_second(a):
        b = (1 / (a * a - 1))[::2, ::2]
        return b[1:] - b[:-1]

    a = RNG.random((400, 500)) + 2
    fast = jitla.jit(every_second, compile="sync")
    same(fast(a), every_second(a))
    assert is_window(fast, a)
    a[7, 7] = 1.0
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        fast(a)


@pytest.mark.parametrize("dtype", ("u2", "u1", "i4", "i8"))
def test_whole_numbers_wrap_as_numpys(dtype):
    a = RNG.integers(0, np.iinfo(dtype).max, (300, 700)).astype(dtype)
    same(jitla.jit(blur, compile="sync")(a), blur(a))


def test_nothing_between_the_stages_is_in_memory():
    a = RNG.random((800, 900))
    fast = jitla.jit(harris, compile="sync")
    fast(a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1
    assert "0 intermediates in memory" in str(jitla.explain(fast, a))
    assert "define" in str(jitla.explain(fast, a, level="llvm"))


def test_sizes_change_without_compiling_anew():
    fast = jitla.jit(harris, compile="sync")
    for m, n in ((400, 500), (401, 500), (90, 3000), (17, 40), (6, 9), (5, 500), (500, 5), (2000, 33)):
        a = RNG.random((m, n), dtype="f4")
        same(fast(a), harris(a))


@pytest.mark.parametrize("lie", (
    lambda a: a.T.copy().T, lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a[::2, ::3], lambda a: a.T,
    lambda a: np.broadcast_to(a[:1], a.shape)))
def test_arrays_may_lie_anyhow(lie):
    a = lie(RNG.random((300, 420), dtype="f4"))
    for program in (harris, far):
        fast = jitla.jit(program, compile="sync")
        fast(np.ascontiguousarray(a))
        same(fast(a), program(a))
        same(jitla.jit(program, compile="sync")(a), program(a))


@pytest.mark.parametrize("shape", ((12, 40_000), (9, 300_000)))
def test_few_long_rows_are_no_windows(shape):
    a = RNG.random(shape, dtype="f4")
    fast = jitla.jit(harris, compile="sync")
    same(fast(a), harris(a))
    assert not is_window(fast, a)
    long = RNG.random((300, 320), dtype="f4")  # what was planned for others runs on few long rows, too
    fast = jitla.jit(harris, compile="sync")
    fast(long)
    same(fast(a), harris(a))


def test_bits_do_not_depend_on_threads():
    a = RNG.random((700, 800))
    found = []
    for threads in (1, 2, 5):
        with jitla.options(num_threads=threads):
            found.append(jitla.jit(three_times, compile="sync")(a).tobytes())
    assert found[0] == found[1] == found[2] == three_times(a).tobytes()


def test_large_results_go_past_the_caches():
    a = RNG.random((2203, 4001), dtype="f4")
    same(jitla.jit(harris, compile="sync")(a), harris(a))


def test_a_value_that_is_returned_is_in_memory():
    def both(a):
        b = a / (1 + a * a)
        return b, box(b)

    a = RNG.random((300, 400))
    same(jitla.jit(both, compile="sync")(a), both(a))


def test_warnings_are_numpys():
    def inverse(a):
        return box(1 / (a * a - 1))

    a = RNG.random((300, 500)) + 2
    fast = jitla.jit(inverse, compile="sync")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(fast(a), inverse(a))
    a[0, 0] = 1.0  # in the corner: one element of the first stage alone is infinite
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        found = fast(a)
    with np.errstate(all="ignore"):
        same(found, inverse(a))


def test_an_image_written_over_itself():
    def smooth(a):
        b = box(a / (1 + a * a))
        a[2:-2, 2:-2] = box(b / (1 + b * b))

    a = RNG.random((400, 500))
    b = a.copy()
    smooth(a)
    jitla.jit(smooth, compile="sync")(b)
    assert a.tobytes() == b.tobytes()


def test_a_limit_of_memory_holds():
    a = RNG.random((600, 700))
    fast = jitla.jit(harris, compile="sync", memory_limit="1GB")
    same(fast(a), harris(a))


@pytest.mark.parametrize("level", ["llvm", "asm"])
def test_the_code_of_windows_can_be_read(level):
    fast = jitla.jit(far, compile="sync")
    a = RNG.random((211, 640))
    fast(a)
    assert is_window(fast, a)
    told = str(jitla.explain(fast, a, level=level))
    assert told.count(" of K1") >= 2, told  # what makes `b`, what reads it
