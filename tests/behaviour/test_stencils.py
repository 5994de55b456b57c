"""Stencils: shifted views, rolled arrays, windows and blocks, chains of stencils in one pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import jitla
from tests.behaviour.counting import counts, during

# Shifted parts of one array: one kernel, in place without a copy, in time loops.

RNG = np.random.default_rng(3)
Array = np.ndarray


def cross(a: Array) -> Array:
    return a[1:-1, 1:-1] + a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]


def jacobi(a: Array) -> None:
    a[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


def heat(a: Array) -> None:
    a[1:-1, 1:-1] += 0.1 * (
        a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1])


def alternating(a: Array) -> Array:
    b = a.copy()
    for _ in range(5):
        b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])
        a, b = b, a
    return a


def steps(a: Array) -> None:
    for _ in range(5):
        jacobi(a)


def along(a: Array) -> None:
    a[1:-1] = 0.5 * (a[:-2] + a[2:])


def far(a: Array) -> None:
    a[300:] = a[300:] - a[:-300]


def cube(a: Array) -> None:
    a[1:-1, 1:-1, 1:-1] = (a[:-2, 1:-1, 1:-1] + a[1:-1, 2:, 1:-1]) * a[1:-1, 1:-1, :-2]


def every_second(a: Array) -> None:
    a[1:-1:2, 1:-1:2] = a[:-2:2, 1:-1:2] + a[2::2, 1:-1:2]


def upside_down(a: Array) -> None:
    a[1:-1, 1:-1] = a[::-1][1:-1, 1:-1] + a[:-2, 1:-1]


def backwards(a: Array) -> None:
    b = a[::-1]
    b[1:-1, 1:-1] = b[:-2, 1:-1] + b[2:, 1:-1]


def blur(a: Array) -> Array:
    rows = (a[:-2] + a[1:-1] + a[2:]) / 3
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 3


def differences(a: Array) -> Array:
    squares = a * a - 0.5
    return (squares[1:] - squares[:-1]) * a[:-1]


def inner(a: Array) -> Array:
    ratios = 1 / a
    return ratios[1:-1, 1:-1] - ratios[:-2, 1:-1]


def both_asked(a: Array) -> tuple[Array, Array]:
    twice = a + a
    return twice[1:] - twice[:-1], twice


def into_itself(a: Array) -> None:
    twice = a * 0.75
    a[1:-1] = twice[2:] - twice[:-2]


SQUARES = [(20, 30), (401, 402), (4, 50_000), (50_000, 4)]
CASES = [(f, SQUARES) for f in (
    cross, jacobi, heat, alternating, steps, along, backwards, blur, differences, inner, both_asked,
    into_itself)]
CASES += [(f, [(21, 31), (401, 403)]) for f in (every_second, upside_down)]
CASES += [(f, [(400,), (300_000,)]) for f in (along, far)]
CASES += [(cube, [(6, 7, 8), (60, 61, 62)])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("function, shapes", CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_same_as_numpy(
    function: Callable[[Array], object], shapes: list[tuple[int, ...]], dtype: str, order: str,
    threads: int,
) -> None:
    fast = jitla.jit(function)
    with jitla.options(num_threads=threads):
        for shape in shapes:
            plain = RNG.random(shape).astype(dtype, order=order)
            mine = plain.copy("K")
            for _ in range(2):
                want, got = function(plain), fast(mine)
                np.testing.assert_array_equal(mine, plain)
                for x, y in zip(flat(got), flat(want), strict=True):
                    np.testing.assert_array_equal(x, y)
                    assert x.strides == y.strides and x.flags.owndata == y.flags.owndata


def flat(found: object) -> tuple[Array, ...]:
    """Return the arrays that a function gave."""
    return found if isinstance(found, tuple) else () if found is None else (found,)  # type: ignore[return-value]


@pytest.mark.parametrize("function", [blur, differences])
def test_slices_of_a_value_take_one_kernel(function: Callable[[Array], Array]) -> None:
    fast = jitla.jit(function)
    a = RNG.random((500, 500))
    fast(a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1


@pytest.mark.parametrize("place", [(0, 0), (-1, -1), (7, 9)])
@pytest.mark.parametrize("value", [np.inf, 1e308, 0.0])
@pytest.mark.parametrize("function", [blur, differences, inner, both_asked])
def test_values_of_which_slices_are_taken_warn_as_numpys(
    function: Callable[[Array], Array], value: float, place: tuple[int, int],
) -> None:
    fast = jitla.jit(function)
    for shape in ((4, 5), (3, 3), (40, 50), (2, 9)):
        a = RNG.random(shape) + 1
        a[min(place[0], shape[0] - 1), min(place[1], shape[1] - 1)] = value
        a[-1, 0] = -value
        for _ in range(2):
            said = []
            for call in (function, fast):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    found = flat(call(a))
                said.append(([str(w.message) for w in caught], [x.tobytes() for x in found]))
            assert said[0] == said[1]


@pytest.mark.parametrize("function, shape", [(jacobi, (500, 500)), (heat, (500, 500)), (cube, (60, 60, 60)),
                                             (along, (300_000,))])
def test_large_updates_in_place_take_no_copy(
    function: Callable[[Array], None], shape: tuple[int, ...]
) -> None:
    fast = jitla.jit(function)
    a = RNG.random(shape)
    fast(a)
    found = during(fast, lambda: fast(a))
    assert (found.kernel_runs, found.numpy_calls, found.materialised) == (1, 0, 0)


def test_parts_that_lie_otherwise_take_a_copy() -> None:
    fast = jitla.jit(upside_down)
    a = RNG.random((500, 500))
    fast(a)
    assert during(fast, lambda: fast(a)).materialised == 1


def test_steps_of_many_lengths_share_plans() -> None:
    def shifted(a: Array, by: int) -> None:
        a[by:] = a[by:] + a[:-by]

    fast = jitla.jit(shifted)
    plain = np.zeros(400_000)
    plain[0] = 1
    mine = plain.copy()
    for by in (1, 2, 3, 5, 8, 13, 21, 34, 55, 1000):
        shifted(plain, by)
        fast(mine, by)
        np.testing.assert_array_equal(mine, plain)
    assert fast.stats()["failures"] == 0


@pytest.mark.parametrize("n", [100, 600])
@pytest.mark.parametrize("value", [np.inf, 1e308, np.nan])
def test_warnings_are_numpys(n: int, value: float) -> None:
    fast = jitla.jit(jacobi)
    for _ in range(3):
        plain = RNG.random((n, n))
        plain[50, 50], plain[52, 50] = value, -value if np.isinf(value) else value
        mine = plain.copy()
        said = []
        for call, a in ((jacobi, plain), (fast, mine)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(a)
            said.append([str(w.message) for w in caught])
        assert said[0] == said[1]
        np.testing.assert_array_equal(mine, plain)


# Rolled arrays: NumPy's results for all shapes and shifts, one copy where cells read them.

ROLLS_RNG = np.random.default_rng(8)


def laplace(a: Array) -> Array:
    return -4 * a + np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1)


def several(a: Array) -> tuple[Array, ...]:
    shifted = np.roll(np.roll(a, 3, 0), -1, 1)
    return np.roll(a, (1, -2), (0, 1)) * 2 + shifted, np.roll(a, np.int64(-3), axis=-1) + a, shifted


def rolled_far(a: Array) -> Array:
    return np.roll(a, 7, 0) + np.roll(a, -8, 1) * np.roll(a, (1, 1, -1), (0, 0, 1)) + np.roll(a, 2, (0, 1))


def asked_for(a: Array) -> tuple[Array, ...]:
    up = np.roll(a, 1, 0)
    return up, up + a, np.roll(a, 0, 0), np.roll(a, 2) + a


def rolled_flat(a: Array) -> tuple[Array, ...]:
    flat = a.ravel()
    moved = np.roll(flat, 1)
    return flat - 0.5 * (flat - np.roll(flat, 1)), moved, np.roll(flat, (1, -3)), np.roll(flat, -1, 0)


def added_up(a: Array) -> tuple[Array, ...]:
    return (np.roll(a, 1, 0) * a).sum(), np.roll(a, 1, 1).sum(0), (np.roll(a, 1, 1) + a).max(1)


def of_cells(a: Array) -> Array:
    b = a * a + 1
    return np.roll(b, 1, 0) + np.roll(b, -1, 1) * b


def of_views(a: Array) -> Array:
    return np.roll(a[1:], 1, 0) + a[1:] + np.roll(a[:, ::-1], 1, 1)[1:] + np.roll(a.T, 1, 0).T[1:]


def in_time(a: Array) -> Array:
    b = a.copy()
    for _ in range(4):
        b += (laplace(b) * 2).astype(b.dtype)
    return b


def neighbours(a: Array) -> Array:
    total = 0
    for i in (-1, 0, 1):
        for j in range(-1, 2):
            if i or j:
                total = total + np.roll(np.roll(a, i, 0), j, 1)
    return total


def generated(a: Array) -> Array:
    return sum(np.roll(np.roll(a, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1) if i != 0 or j != 0)


def listed(a: Array) -> Array:
    return sum([np.roll(a, (i, j), (0, 1)) for i, j in ((0, 1), (1, 0), (1, 1))])


PROGRAMS = (
    laplace, several, rolled_far, asked_for, rolled_flat, added_up, of_cells, of_views, in_time,
    neighbours, generated, listed)
SHAPES = ((16, 17), (40, 30), (3, 4), (2, 2), (1, 5), (0, 3), (50, 60))
ORDERS = (np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2])


def facts(value: object) -> object:
    if isinstance(value, tuple):
        return [facts(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.shape, value.strides, value.dtype, value.flags.owndata, value.tobytes("A")
    return type(value), repr(value)


def outcome(function: Callable[..., object], a: Array) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            return facts(function(a.copy("K"))), [str(w.message) for w in told]
        except Exception as error:
            return type(error), str(error)


@pytest.mark.parametrize("program", PROGRAMS)
def test_rolls_are_numpys(program: Callable[..., object]) -> None:
    """One function for all sizes, larger and smaller than the shifts."""
    fast = jitla.jit(program, compile="sync")
    for code, shapes, orders in (("f8", SHAPES, ORDERS[:1]), ("f8", SHAPES[:3], ORDERS[1:]),
                                 ("i2", SHAPES[:3], ORDERS[:1]), ("c16", SHAPES[:1], ORDERS[:1])):
        for shape in shapes:
            numbers = (ROLLS_RNG.standard_normal(shape) * 9).astype(code)
            for order in orders:
                a = order(numbers)
                assert outcome(fast, a) == outcome(program, a), (code, shape, a.strides)
    assert counts(fast).failures == 0


@pytest.mark.parametrize("arguments", [
    (1, 2), (1.0, 0), ((1, 2), (0, 1, 0)), (1, (0, 5)), ("1", 0), (np.array([1, 2]), (0, 1)),
    ([1, 2], [0, 1]), (True, 0), (100, 0), (-(2**40), 1), ((), ()), ((1, 2), 0), (1, ()), (None, 0)])
def test_odd_arguments_are_numpys(arguments: tuple[object, object]) -> None:
    def rolled(a: Array) -> Array:
        return np.roll(a, *arguments) + a

    fast = jitla.jit(rolled, compile="sync")
    a = ROLLS_RNG.random((5, 6))
    for _ in range(2):
        assert outcome(fast, a) == outcome(rolled, a)


@pytest.mark.parametrize(("program", "rolls"), [(laplace, 5), (neighbours, 8), (generated, 8), (listed, 3)])
def test_one_copy_serves_all_rolls(program: Callable[..., object], rolls: int) -> None:
    fast = jitla.jit(program, compile="sync")
    a = ROLLS_RNG.integers(0, 9, (64, 80))
    assert facts(fast(a)) == facts(program(a))
    found = counts(fast)
    assert (found.programs, found.kernels, found.numpy_calls, found.fallbacks) == (1, 2, rolls, 0)


def test_what_is_rolled_is_written_where_its_edges_have_room() -> None:
    """What is computed and then rolled is no array of its own."""
    fast = jitla.jit(of_cells, compile="sync")
    a = ROLLS_RNG.random((64, 80))
    assert facts(fast(a)) == facts(of_cells(a))
    found = counts(fast)
    assert (found.programs, found.kernels, found.numpy_calls) == (1, 2, 3)


def test_a_long_loop_has_a_plan_for_its_turns() -> None:
    def lags(a: Array, most: int) -> list[float]:
        return [float((a * np.roll(a, k)).sum()) for k in range(most)]

    fast = jitla.jit(lags, compile="sync")
    a = ROLLS_RNG.random(500)
    assert fast(a, 40) == lags(a, 40)
    assert counts(fast).programs <= 20


def test_what_was_rolled_by_nothing_is_a_result_of_its_own() -> None:
    def back(a: Array) -> tuple[Array, Array]:
        return np.roll(a, 0, 0) | a, np.minimum(np.roll(np.roll(a, -1), 1), a)

    fast = jitla.jit(back, compile="sync")
    a = ROLLS_RNG.integers(0, 9, 7)
    assert facts(fast(a)) == facts(back(a))
    assert all(made.base is None for made in fast(a))


# Stencils of stencils as one pass with a window that slides: bits are NumPy's, nothing is left in memory.

WINDOWS_RNG = np.random.default_rng(11)


def box(s: Array) -> Array:
    return (s[:-2, :-2] + s[:-2, 1:-1] + s[:-2, 2:] + s[1:-1, :-2] + s[1:-1, 1:-1] + s[1:-1, 2:]
            + s[2:, :-2] + s[2:, 1:-1] + s[2:, 2:])


def harris(a: Array) -> Array:
    x = (a[1:-1, 2:] - a[1:-1, :-2]) / a.dtype.type(2)
    y = (a[2:, 1:-1] - a[:-2, 1:-1]) / a.dtype.type(2)
    xx, yy, xy = box(x * x), box(y * y), box(x * y)
    return xx * yy - xy * xy - a.dtype.type(0.04) * (xx + yy) * (xx + yy)


def integer_blur(a: Array) -> Array:
    three = a.dtype.type(3)
    rows = (a[:, :-2] + a[:, 1:-1] + a[:, 2:]) // three
    return (rows[:-2] + rows[1:-1] + rows[2:]) // three


def smaller(a: Array) -> Array:
    return np.sqrt(box(a * a)) / (1 + a[1:-1, 1:-1] * a[1:-1, 1:-1])


def three_times(a: Array) -> Array:
    return smaller(smaller(smaller(a)))


def far_neighbours(a: Array) -> Array:
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


WINDOWS_PROGRAMS = (harris, three_times, far_neighbours, two_results, weighted)
STRIDED = (means, pyramid, thirds, slice_of_slice)


def same(found: object, wanted: object) -> None:
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, wanted)), strict=True):
        assert (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        assert a.tobytes() == b.tobytes()


def is_window(fast: Callable[..., object], *given: Array) -> bool:
    return "Window" in str(jitla.explain(fast, *given, level="plan"))


@pytest.mark.parametrize("program", WINDOWS_PROGRAMS)
@pytest.mark.parametrize("dtype", ("f4", "f8"))
def test_results_are_numpys(program, dtype):
    a = WINDOWS_RNG.random((211, 640)).astype(dtype)
    fast = jitla.jit(program, compile="sync")
    wanted = program(a)
    same(fast(a), wanted)
    same(fast(a), wanted)
    assert is_window(fast, a)


@pytest.mark.parametrize("program", STRIDED)
def test_rows_that_are_left_out_are_none_of_memory(program):
    fast = jitla.jit(program, compile="sync")
    a = WINDOWS_RNG.random((420, 960), dtype="f4")
    wanted = program(a)
    same(fast(a), wanted)
    assert is_window(fast, a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1 + (program is pyramid)
    for m, n in ((423, 960), (424, 961), (422, 961), (60, 90), (2400, 34)):  # other rests, other blocks
        a = WINDOWS_RNG.random((m, n), dtype="f4")
        same(fast(a), program(a)) if program is not thirds or m % 3 == 0 else None
    for threads in (1, 5):
        a = WINDOWS_RNG.random((1200, 700))
        with jitla.options(num_threads=threads):
            same(jitla.jit(program, compile="sync")(a), program(a))


def test_rows_that_nobody_reads_warn_as_they_do_in_numpy():
    def every_second(a):
        b = (1 / (a * a - 1))[::2, ::2]
        return b[1:] - b[:-1]

    a = WINDOWS_RNG.random((400, 500)) + 2
    fast = jitla.jit(every_second, compile="sync")
    same(fast(a), every_second(a))
    assert is_window(fast, a)
    a[7, 7] = 1.0
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        fast(a)


@pytest.mark.parametrize("dtype", ("u2", "u1", "i4", "i8"))
def test_whole_numbers_wrap_as_numpys(dtype):
    a = WINDOWS_RNG.integers(0, np.iinfo(dtype).max, (300, 700)).astype(dtype)
    same(jitla.jit(integer_blur, compile="sync")(a), integer_blur(a))


def test_nothing_between_the_stages_is_in_memory():
    a = WINDOWS_RNG.random((800, 900))
    fast = jitla.jit(harris, compile="sync")
    fast(a)
    assert during(fast, lambda: fast(a)).kernel_runs == 1
    assert "0 intermediates in memory" in str(jitla.explain(fast, a))
    assert "define" in str(jitla.explain(fast, a, level="llvm"))


def test_sizes_change_without_compiling_anew():
    fast = jitla.jit(harris, compile="sync")
    for m, n in ((400, 500), (401, 500), (90, 3000), (17, 40), (6, 9), (5, 500), (500, 5), (2000, 33)):
        a = WINDOWS_RNG.random((m, n), dtype="f4")
        same(fast(a), harris(a))


@pytest.mark.parametrize("lie", (
    lambda a: a.T.copy().T, lambda a: a[::-1], lambda a: a[:, ::-1], lambda a: a[::2, ::3], lambda a: a.T,
    lambda a: np.broadcast_to(a[:1], a.shape)))
def test_arrays_may_lie_anyhow(lie):
    a = lie(WINDOWS_RNG.random((300, 420), dtype="f4"))
    for program in (harris, far_neighbours):
        fast = jitla.jit(program, compile="sync")
        fast(np.ascontiguousarray(a))
        same(fast(a), program(a))
        same(jitla.jit(program, compile="sync")(a), program(a))


@pytest.mark.parametrize("shape", ((12, 40_000), (9, 300_000)))
def test_few_long_rows_are_no_windows(shape):
    a = WINDOWS_RNG.random(shape, dtype="f4")
    fast = jitla.jit(harris, compile="sync")
    same(fast(a), harris(a))
    assert not is_window(fast, a)
    long = WINDOWS_RNG.random((300, 320), dtype="f4")  # a plan for other sizes runs on few long rows, too
    fast = jitla.jit(harris, compile="sync")
    fast(long)
    same(fast(a), harris(a))


def test_bits_do_not_depend_on_threads():
    a = WINDOWS_RNG.random((700, 800))
    found = []
    for threads in (1, 2, 5):
        with jitla.options(num_threads=threads):
            found.append(jitla.jit(three_times, compile="sync")(a).tobytes())
    assert found[0] == found[1] == found[2] == three_times(a).tobytes()


def test_large_results_go_past_the_caches():
    a = WINDOWS_RNG.random((2203, 4001), dtype="f4")
    same(jitla.jit(harris, compile="sync")(a), harris(a))


def test_a_value_that_is_returned_is_in_memory():
    def both(a):
        b = a / (1 + a * a)
        return b, box(b)

    a = WINDOWS_RNG.random((300, 400))
    same(jitla.jit(both, compile="sync")(a), both(a))


def test_warnings_of_windows_are_numpys():
    def inverse(a):
        return box(1 / (a * a - 1))

    a = WINDOWS_RNG.random((300, 500)) + 2
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

    a = WINDOWS_RNG.random((400, 500))
    b = a.copy()
    smooth(a)
    jitla.jit(smooth, compile="sync")(b)
    assert a.tobytes() == b.tobytes()


def test_a_limit_of_memory_holds():
    a = WINDOWS_RNG.random((600, 700))
    fast = jitla.jit(harris, compile="sync", memory_limit="1GB")
    same(fast(a), harris(a))


@pytest.mark.parametrize("level", ["llvm", "asm"])
def test_the_code_of_windows_can_be_read(level):
    fast = jitla.jit(far_neighbours, compile="sync")
    a = WINDOWS_RNG.random((211, 640))
    fast(a)
    assert is_window(fast, a)
    told = str(jitla.explain(fast, a, level=level))
    assert told.count(" of K1") >= 2, told  # what makes `b`, what reads it


# Aggregates over windows and blocks as stencils: bits and strides are NumPy's, no window is written.

SLIDING_RNG = np.random.default_rng(12)
sliding = np.lib.stride_tricks.sliding_window_view
WEIGHTS = SLIDING_RNG.random((3, 3))


def sliding_box(a: Array) -> Array:
    return sliding(a, (3, 3)).sum(axis=(-2, -1))


def sliding_means(a: Array) -> Array:
    return sliding(a, (5, 2)).mean(axis=(2, 3))


def sliding_weighted(a: Array) -> Array:
    return (sliding(a, (3, 3)) * WEIGHTS).sum(axis=(-2, -1))


def extremes(a: Array) -> Array:
    return sliding(a, (2, 4)).max(axis=(-1, -2)) - sliding(a, (2, 4)).min(axis=(-1, -2))


def sliding_every_second(a: Array) -> Array:
    return sliding(a, (3, 3))[::2, ::2].max(axis=(-2, -1))


def along_columns(a: Array) -> Array:
    return sliding(a, 9, axis=0).sum(axis=-1)


def long_rows(a: Array) -> Array:
    return sliding(a, 17, axis=1).sum(axis=-1)


def separable(a: Array) -> Array:
    return sliding(sliding(a * 2, 3, axis=0).sum(axis=-1), 3, axis=1).sum(axis=-1)


def sliding_several(a: Array) -> Array:
    return sliding(a, (3, 3)).sum(axis=2).prod(axis=-1)


def spread(a: Array) -> Array:
    return sliding(a, (3, 2)).std(axis=(-2, -1))


def pooled(a: Array) -> Array:
    return a.reshape(a.shape[0] // 2, 2, a.shape[1] // 3, 3).max(axis=(1, 3))


def pooled_sums(a: Array) -> Array:
    return (a + 1).reshape(a.shape[0] // 2, 2, a.shape[1] // 3, 3).sum(axis=(1, 3))


WINDOWS = (sliding_box, sliding_means, sliding_weighted, extremes, sliding_every_second, along_columns,
           long_rows, separable, sliding_several)
LAYOUTS: tuple[Callable[[Array], Array], ...] = (
    lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: np.repeat(a, 2, 1)[:, ::2],
    lambda a: a.T.copy().T)


@pytest.mark.parametrize("program", (*WINDOWS, pooled, pooled_sums), ids=lambda f: f.__name__)
def test_bits_are_numpys_however_arrays_lie(program):
    fast = jitla.jit(program, compile="sync")
    for dtype in ("f8", "f4"):
        for lie in LAYOUTS:
            scales = 10.0 ** SLIDING_RNG.integers(-3, 4, (40, 66))
            a = lie((SLIDING_RNG.standard_normal((40, 66)) * scales).astype(dtype))
            same(fast(a), program(a))
    same(fast(a[:20, :60]), program(a[:20, :60]))


def test_deviations_of_windows():
    a = SLIDING_RNG.standard_normal((40, 66))
    same(jitla.jit(spread, compile="sync")(a), spread(a))


@pytest.mark.parametrize("dtype", ("?", "u1", "i4", "c16", "f2"))
def test_other_dtypes(dtype):
    a = SLIDING_RNG.integers(0, 50, (30, 42)).astype(dtype)
    for program in (sliding_box, sliding_means, pooled):
        same(jitla.jit(program, compile="sync")(a), program(a))
    holes = jitla.jit(lambda m: sliding(m, (3, 3)).any(axis=(-2, -1)) & ~sliding(m, (3, 3)).all(axis=(2, 3)))
    same(holes(a > 40), holes.__wrapped__(a > 40))


@pytest.mark.parametrize("program", (sliding_box, sliding_means, sliding_weighted, extremes, separable,
                                     pooled))
def test_no_window_is_written(program):
    a = SLIDING_RNG.random((200, 300))
    fast = jitla.jit(program, compile="sync")
    fast(a)
    counted = during(fast, lambda: fast(a))
    assert (counted.materialised, counted.fallbacks, counted.kernel_runs) == (1, 0, 1)  # the result


def test_zeros_keep_their_signs():
    a = np.full((12, 12), -0.0)
    for program in (sliding_box, along_columns, extremes, pooled):
        same(jitla.jit(program, compile="sync")(a), program(a))


def test_rows_of_sliced_windows_are_those_that_are_left():
    def program(a):
        return sliding(a, 9, axis=0)[::2].max(axis=(0, -1)), sliding(a, (3, 2))[::3, ::2].sum(axis=(0, 2, 3))

    a = SLIDING_RNG.random((22, 37))
    same(jitla.jit(program, compile="sync")(a), program(a))


def test_windows_of_another_length_are_others():
    def sums(a, n):
        return sliding(a, n).sum(axis=-1)

    def blocks(a, n):
        return a.reshape(-1, n, a.shape[1]).sum(axis=1)

    x, a = SLIDING_RNG.random(3000), SLIDING_RNG.random((240, 50))
    for program, given in ((sums, x), (blocks, a)):
        fast = jitla.jit(program, compile="sync")
        for n in (3, 5, 8, 12, 3, 60, 120):
            same(fast(given, n), program(given, n))


def test_an_array_that_lies_otherwise_is_added_up_in_another_order():
    def pool(b):
        return b.sum(axis=(1, 3))

    fast = jitla.jit(pool, compile="sync")
    a = SLIDING_RNG.standard_normal((24, 3, 30, 4))
    for b in (a, a.transpose(2, 1, 0, 3), a.copy().swapaxes(1, 3), np.asfortranarray(a), a[:, ::-1],
              np.broadcast_to(a[:, :1], a.shape)):
        same(fast(b), pool(b))


def test_overflow_is_said_to_be_that_of_a_reduction():
    a = np.full((20, 20), 1e308)
    with pytest.warns(RuntimeWarning, match="overflow encountered in reduce"):
        found = jitla.jit(sliding_box, compile="sync")(a)
    assert np.isinf(found).all()


def test_windows_stay_views_that_nobody_may_write():
    def view(a):
        w = sliding(a, 3)
        total = w.sum(axis=-1)
        return w, total

    a = SLIDING_RNG.random(50)
    w, total = jitla.jit(view, compile="sync")(a)
    assert np.shares_memory(w, a) and not w.flags.writeable
    same(total, view(a)[1])

    def write(a):
        w = sliding(a * 2, 3)
        w += 1

    with pytest.raises(ValueError, match="read-only"):
        jitla.jit(write, compile="sync")(a)


def test_windows_see_what_is_written_below_them():
    def later(a):
        w = sliding(a, 3)
        before = w.sum(axis=-1)
        a[5] = 100.0
        return before, w.sum(axis=-1)

    a, b = np.arange(20.0), np.arange(20.0)
    same(jitla.jit(later, compile="sync")(a), later(b))


def test_some_turns_of_a_loop_over_a_large_array_are_one_pass():
    def steps(a, n):
        for _ in range(n):
            a = 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
        return a

    a = SLIDING_RNG.random((1100, 1100))
    fast = jitla.jit(steps, compile="sync")
    same(fast(a, 6), steps(a, 6))
    assert during(fast, lambda: same(fast(a, 6), steps(a, 6))).kernel_runs == 2
    small = a[:90, :90]  # these stay in a cache from turn to turn
    assert during(fast, lambda: same(fast(small, 6), steps(small, 6))).kernel_runs == 6


def test_some_turns_that_work_cell_by_cell_are_one_pass():
    def horner(x, factors):
        y = np.zeros_like(x)
        for factor in factors:
            y = y * x + factor
        return y

    x = SLIDING_RNG.random(1 << 17)
    fast = jitla.jit(horner, compile="sync")
    for count in (5, 5, 5, 8):  # the turn that is left over does not keep later ones apart
        factors = list(SLIDING_RNG.random(count))
        same(fast(x, factors), horner(x, factors))
    assert during(fast, lambda: same(fast(x, factors), horner(x, factors))).kernel_runs == 2
    small = x[:100]
    assert during(fast, lambda: same(fast(small, factors), horner(small, factors))).kernel_runs == 8


def test_turns_that_have_nothing_to_do_with_each_other_are_blocks():
    def apart(a):
        total = 0.0
        for k in range(4):
            total = max(total, float((a[1:] - a[:-1] * k).max()))
        b = a
        for k in range(4):
            b = a[1:] - a[:-1] * k
        return total, b

    a = SLIDING_RNG.random((1100, 1100))
    fast = jitla.jit(apart, compile="sync")
    found, wanted = fast(a), apart(a)
    assert found[0] == wanted[0]
    same(found[1], wanted[1])
