"""Features of Python and NumPy in compiled loops: rewritten functions against plain ones."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from jitla.codegen.jit import Jit
from jitla.codegen.loop_programs import compile_program
from jitla.loopjit import hypotenuse, loop_sites, specialisations
from jitla.loopjit.loop_compiler import compile_specialisation
from jitla.loopjit.loop_functions import rewrite_function
from jitla.loopjit.loop_sites import LoopSite
from jitla.loopjit.sources import Source
from jitla.loopjit.specialisations import Specialisation, State

JIT = Jit()


def _request(site: LoopSite, specialisation: Specialisation, values: Sequence[Any], source: Source,
             groups: tuple[int, ...]) -> None:
    compile_specialisation(site, specialisation, values, source, groups,
                           lambda program: compile_program(program, JIT))


def _outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[tuple[str, str]]]:
    """Return the result or exception of a call with its arguments, and the warnings with their categories."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except Exception as error:
            result = (type(error), str(error))
    return (result, args), [(w.category.__name__, str(w.message)) for w in caught]


def compare(
    function: FunctionType, make: Callable[[], tuple[Any, ...]], calls: int = 4,
) -> list[Specialisation]:
    """Call a function and its rewritten form; return the specialisations of the loops that were run."""
    rewritten = rewrite_function(function, _request)
    assert rewritten is not None
    for site in rewritten.sites:
        site.hot_seconds = 0.0
    for _ in range(calls):
        args = make()
        plain = _outcome(function, copy.deepcopy(args))
        jitted = _outcome(rewritten.function, copy.deepcopy(args))
        assert loop_sites._same(plain[0], jitted[0]), (plain[0], jitted[0])
        assert plain[1] == jitted[1]
    return [s for site in rewritten.sites for s in site.specialisations.values()]


def compiled(function: FunctionType, make: Callable[[], tuple[Any, ...]], calls: int = 4,
             failures: int = 0) -> None:
    """Assert that all loops of a function are compiled and used; Python did at most `failures` parts."""
    found = compare(function, make, calls)
    assert any(s.state is State.READY and s.successes for s in found), [
        (s.state, s.reason, s.line, s.failure) for s in found]
    for specialisation in found:
        assert specialisation.state is not State.REFUSED, (specialisation.reason, specialisation.line)
        assert specialisation.failures <= failures, specialisation.failure


def random(*shape: int, seed: int = 1) -> np.ndarray:
    """Return random floats."""
    return np.random.default_rng(seed).random(shape)


# --------------------------------------------------------------------------- control flow and variables


def test_arrays_made_in_inner_loops() -> None:
    """An array that an iteration of an inner loop makes is used by the next one."""
    def function(a: Any, out: Any) -> None:
        for i in range(len(out)):
            x = a[i]
            y = x
            for _ in range(3):
                y = x
                x = x + a[i]
                y[0] += 1.0
            out[i] = x[0] + y[0]

    compiled(function, lambda: (random(30, 4), np.zeros(30)))


def test_variable_without_value_before_the_loop() -> None:
    """A variable that only the loop assigns is read behind it."""
    def function(a: Any, limit: float) -> Any:
        for x in a:
            if x > limit:
                big = x
        for k in range(len(a)):
            pass
        return big, k

    compiled(function, lambda: (random(200), 0.5))
    compare(function, lambda: (random(200), 1.5))


# --------------------------------------------------------------------------- reductions

SHAPES = ((4, 5), (40, 3), (7, 1), (2, 3, 40), (5, 1, 6), (3, 2, 2, 9))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_along_axes(shape: tuple[int, ...], dtype: str, keepdims: bool) -> None:
    """Sums, extrema, means and variances along each axis, along several, and along all."""
    first = {False: reduce_first, True: reduce_first_kept}[keepdims]
    last = {False: reduce_last, True: reduce_last_kept}[keepdims]
    two = {False: reduce_two, True: reduce_two_kept}[keepdims]
    for function in (first, last, two):
        compare(function, lambda: ((random(20, *shape) * 50 - 20).astype(dtype),))
        if 1 not in shape and (function not in (reduce_two, reduce_two_kept) or len(shape) > 2):
            compiled(function, lambda: ((random(20, *shape) * 50 - 20).astype(dtype),))


def reduce_first(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=0).shape)
    spread = 0.0
    for x in a:
        total += x.sum(axis=0)
        total += np.max(x, axis=0) - np.mean(x, 0)
        total += x.any(axis=0)
        spread += np.std(x, axis=0, ddof=0).sum() + x.var() + x.std()
    return total, spread


def reduce_first_kept(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=0, keepdims=True).shape)
    for x in a:
        total += x.sum(axis=0, keepdims=True) + x.mean(axis=0, keepdims=True) + x.max(keepdims=True)
        total += x.all(axis=0, keepdims=True)
    return total


def reduce_last(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=-1).shape)
    for x in a:
        total += x.sum(axis=-1) + np.prod(x[..., :2], axis=-1)
        total += np.min(x, axis=-1) - x.mean(-1) + x.var(axis=-1)
    return total


def reduce_last_kept(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=-1, keepdims=True).shape)
    for x in a:
        total += x.sum(axis=-1, keepdims=True) + np.min(x - 1, axis=-1, keepdims=True)
        total += (x - x.mean(axis=-1, keepdims=True)).std(axis=-1, keepdims=True)
    return total


def reduce_two(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=(0, 1)).shape)
    for x in a:
        total += x.sum(axis=(0, 1))
        total += np.max(x, axis=(0, 1)) * np.mean(x, axis=(-2, -1)).sum()
        total += np.sum(x[1:-1, ..., :-1], axis=-1).sum() + x[:-1].sum()
    return total


def reduce_two_kept(a: Any) -> Any:
    total = np.zeros(a[0].sum(axis=(0, 1), keepdims=True).shape)
    for x in a:
        total += x.sum(axis=(0, 1), keepdims=True) + np.any(x > 20, axis=(-1, -2)).sum()
        total += np.sum(x * 2, axis=(0, -1), keepdims=True).max()
    return total


def test_results_in_fortran_order() -> None:
    """A sum over a result that NumPy stores in Fortran order, as its operands are, is left to Python."""
    def function(a: Any) -> Any:
        total = 0.0
        for x in a:
            total += (x.T + 1).sum()
        return total

    compare(function, lambda: (random(10, 30, 41),))


# --------------------------------------------------------------------------- scalars


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u8", "f4", "f8", "?"])
def test_numbers_of_several_kinds(dtype: str) -> None:
    """A number is a Python one at first, and a NumPy scalar later."""
    def function(a: Any, n: int) -> Any:

        for i in range(n):
            total = 0
            scale = 2
            for x in a[i]:
                total += x
                if x > 3:
                    scale = x
            kept_one = total * scale
            kept_two = -total
            kept_three = abs(total) + scale ** 2
            a[i, 0] = total > scale
        return total, scale, kept_one, kept_two, kept_three

    found = compare(function, lambda: ((random(20, 3) * 5).astype(dtype), 20))
    assert all(s.state is not State.REFUSED for s in found) or dtype in ("u1", "u8", "f4", "?"), [
        s.reason for s in found]


def test_powers_of_integers() -> None:
    """Powers of integers with exponents that are computed, negative constants among them."""
    def function(n: int) -> Any:
        total = 0
        ratio = 0.0
        for i in range(n):
            total += i ** (i % 5) + 2 ** (i % 7) - (-3) ** (i % 4)
            ratio += 2 ** -3 + (i + 1) ** -2
        return total, ratio

    compiled(function, lambda: (100,))

    def big(n: int, a: Any) -> Any:
        total = 0
        for i in range(n):
            total += 10 ** i
            a[i % 4] = a[i % 4] ** a[1]
        return total

    compare(big, lambda: (40, np.array([2, 3, 1, 0])))
    compare(big, lambda: (10, np.array([2, -3, 1, 0])))
    compare(big, lambda: (10, np.array([2, 3, 1, 0], np.int8)))


# --------------------------------------------------------------------------- subscripts with arrays


def test_masks_are_read() -> None:
    """Elements that a mask selects are summed, counted and stored."""
    def function(a: Any, d: Any, limits: Any) -> Any:
        total = 0.0
        count = 0
        for x in limits:
            chosen = d[a > x]
            total += chosen.sum() + len(chosen) + a[a <= x].sum() + d[(a > x) & (d > 0.5)].sum()
            count += np.count_nonzero(a > x)
            for k in np.nonzero(d > x)[0]:
                count += k
        return total, count

    compiled(function, lambda: (random(300), random(300, seed=2), random(20, seed=3)))


def test_masks_of_some_axes() -> None:
    """A mask selects rows, or elements of an array with two axes."""
    def function(a: Any, m: Any, out: Any) -> Any:
        total = 0.0
        for i in range(len(out)):
            rows = a[m[i]]
            out[i] = rows.sum(axis=0).sum() + a[m[i], 1].sum()
            total += a[a > 0.3].sum()
            a[a < 0.1] = 0.5
            a[m[i], 0] += 0.25
            a[a > 1] -= 0.5
        return total

    compiled(function, lambda: (random(12, 5), random(20, 12) > 0.5, np.zeros(20)))


def test_selected_elements_are_changed() -> None:
    """Stores and in-place operations through arrays of integers, some of them equal or negative."""
    def function(a: Any, b: Any, i: Any, j: Any, n: int) -> None:
        for k in range(n):
            a[i] += 1
            a[j] = a[i] * 2
            b[i, j] = a[: len(i)]
            b[k, i] -= b[i, k]
            b[:, j] *= 0.5
            b[i] = b[j]
            a[i + k] = k

    def arguments(one: int, two: int) -> tuple[Any, ...]:
        return random(30), random(12, 12), np.array([3, 1, 3, one]), np.array([0, 5, 5, two]), 12

    compiled(function, lambda: arguments(-2, 7))
    compare(function, lambda: arguments(-2, 77))
    compare(function, lambda: arguments(22, 7))


def test_overlapping_selections() -> None:
    """Values and indices that the store changes are read before."""
    def function(a: Any, p: Any, n: int) -> Any:
        for k in range(n):
            p[p] = p[::-1]
            a[p] = a[::-1] + k
            a[a > 5] = a[a > 5][::-1] - 3
        return a

    compiled(function, lambda: (random(8), np.array([3, 1, 2, 0, 7, 6, 5, 4]), 20))


def test_masks_that_do_not_fit() -> None:
    """Exceptions of subscripts with masks are Python's."""
    def function(a: Any, m: Any, n: int) -> Any:
        total = 0.0
        for k in range(n):
            total += a[m[k:]].sum()
            a[m] = a[:3]
        return total

    compare(function, lambda: (random(8), random(8) > 0.5, 4))
    compare(function, lambda: (random(8), random(9) > 0.5, 4))


def test_dot_of_a_reversed_vector() -> None:
    """`np.dot` copies vectors that run backwards; `@` does not."""
    def function(a: Any, out: Any) -> None:
        for k in range(1, len(a)):
            out[k] = np.dot(a[:k], a[k - 1::-1]) + np.dot(np.flip(a[:k]), a[:k]) + a[:k] @ a[k - 1::-1]

    compiled(function, lambda: (random(100), np.zeros(100)))


def test_copies_of_views() -> None:
    """Copies of columns and transposed arrays."""
    def function(a: Any) -> Any:
        total = 0.0
        for k in range(len(a)):
            x = a[:, k].copy()
            x[0] = 5
            y = a[k:, 1:].astype(np.float32)
            z = np.zeros_like(a[1:, k:])
            total += x.sum() + y.sum() + np.copy(a[:, :-1]).sum() + z.sum() + a.T.copy().sum()
        return total

    compiled(function, lambda: (random(20, 20),))


# --------------------------------------------------------------------------- shapes


def test_reshaped_and_joined_arrays() -> None:
    """Views of other shapes, and arrays joined along an axis or a new one."""
    def function(a: Any, v: Any, n: int) -> Any:
        total = 0.0
        for k in range(n):
            m = a[k].reshape(3, -1)
            m[1, 0] += 1
            total += m.sum(axis=0).max() + a[k].ravel()[2] + np.reshape(v, (2, 6))[1, k % 6]
            total += np.concatenate((v[:k], v[k:] * 2)).sum() + np.hstack([v, m[0]]).mean()
            total += np.stack((v, v + k)).sum(axis=0).max() + np.vstack((v, v))[1, k]
            total += np.concatenate([m, m[:, :1]], axis=1).sum() + m.swapaxes(0, 1)[1, 2] + m.flatten().sum()
            total += np.transpose(m)[0, 1] + np.expand_dims(v, 0)[0, k] + v[:, None][k, 0]
            total += a[k].transpose(1, 0)[0, 0]
            total += np.squeeze(v[None], axis=0)[k] + np.diff(v).sum() + np.diff(m, axis=0).max()
        return total

    compiled(function, lambda: (random(12, 2, 6), random(12), 12))


def test_arrays_of_numbers() -> None:
    """Arrays from tuples and lists, lists as indices and in loops."""
    def function(a: Any, n: int) -> Any:
        total = 0.0
        for k in range(n):
            c, s = np.cos(k * 0.1), np.sin(k * 0.1)
            r = np.array([[c, -s], [s, c]])
            total += (r @ np.array([1.0, k])).sum() + np.array((k, 2)).sum() + np.array([a[k], a[k]])[1, 0]
            a[[k, 0]] = a[[0, k]]
            for d in [1, 2]:
                total += d * a[k, d]
            if k in [1, 5, 7]:
                total += 1
            a[k, :2] = [k, 2.5]
            x = [k, total]
            total += x[1] * 0.5 + len(x)
        return total

    compiled(function, lambda: (random(12, 3), 12))


def test_rolled_and_padded_arrays() -> None:
    """Rolls along an axis, and pads with constants, edges and the other end."""
    def function(a: Any, m: Any, n: int) -> Any:
        total = 0.0
        for k in range(-n, n):
            total += (np.roll(a, k) * a).sum() + np.roll(m, k, axis=1)[1, 2]
            total += np.roll(m, -k, 0).sum(axis=1)[0]
            p = np.pad(m, 1)
            q = np.pad(m, 1, mode="wrap")
            e = np.pad(m, ((1, 0), (0, 2)), mode="edge")
            total += (p[:-2, 1:-1] + q[2:, 2:]).sum() + e.sum() + np.pad(a, (2, 1), constant_values=3).mean()
        return total

    compiled(function, lambda: (random(15), random(4, 6), 20))


def test_ranges_of_numbers() -> None:
    """`arange` with steps and of floats, and `linspace`."""
    def function(n: int, h: float) -> Any:
        total = 0.0
        for k in range(2, n):
            total += np.arange(k).sum() + np.arange(1, 50, k).sum() + np.arange(0.0, 3.0, h).sum()
            total += np.linspace(0, k, 7)[3] + np.linspace(-1.5, 1.5, k).sum() + np.arange(k * 0.1, 5).sum()
            total += np.eye(k)[1].sum()
        return total

    compiled(function, lambda: (30, 0.1))


def test_clipped_arrays() -> None:
    """`clip`, `sign` and rounding of arrays and scalars."""
    def function(a: Any) -> Any:
        total = 0.0
        for x in a:
            total += np.clip(a, 0.2, 0.7).sum() + np.clip(x, 0.1, 0.5) + a.clip(0.3, 0.4).max()
            total += np.sign(a - 0.5).sum() + np.sign(x - 0.5) + (a * 10).round().sum()
        return total

    compiled(function, lambda: (random(40),))


# --------------------------------------------------------------------------- loops and numbers


def test_else_clauses_and_steps() -> None:
    """`else` of inner loops, ranges with variable steps, and strict zips."""
    def function(a: Any, n: int) -> Any:
        total = 0
        for k in range(1, n):
            for i in range(0, n, k):
                if a[i] > 0.9:
                    break
            else:
                total += k
            while i > 0:
                i -= k
                if i == 3:
                    break
            else:
                total += 100
            for d in (1, 2):
                if d == k:
                    break
            else:
                total += 1000
            for x, y in zip(a[:k], a[k : 2 * k], strict=True):
                total += x > y
        return total

    compiled(function, lambda: (random(60), 30))


def test_complex_numbers_of_python() -> None:
    """Products, quotients and absolute values of complex numbers of Python, and products of NumPy's."""
    def function(a: Any, n: int) -> Any:
        z = 0.5 + 0.25j
        steps = 0
        for k in range(n):
            c = complex(0.3 + k * 0.001, -0.2)
            z = z * z + c
            if abs(z) > 2:
                z = z / c / abs(z) - 0.5
                steps += 1
            a[k] = a[k] * a[k] + a[k] / a[0] * z
        return z, steps

    compiled(function, lambda: (random(300) + 1j * random(300, seed=2), 300))


def test_low_bits_of_large_products() -> None:
    """Products of Python integers that do not fit, whose low bits a mask or a modulus keeps."""
    def function(a: Any, n: int) -> Any:
        h = 2166136261
        state = 12345
        for k in range(n):
            h = ((h ^ int(a[k])) * 0xCC9E2D51CC9E2D5) & 0xFFFFFFFF
            h = (h << 33 | h) + (h << 60) & 0x7FFFFFFFFFFFFFFF
            state = (6364136223846793005 * state + 1442695040888963407) % 2 ** 61
            h = (h - state * state) % 1024
            h ^= ~(state * 7) & 0xFF
        return h, state

    compiled(function, lambda: (np.random.default_rng(1).integers(0, 1 << 40, 300), 300))


MOVES = [0, 0, 1, -1]


def test_items_of_tuples_by_variables() -> None:
    """Items of tuples and lists of numbers at indices that are computed."""
    steps = (1, 2.5, -3)

    def function(n: int, moves: tuple[int, ...]) -> Any:
        total = 0.0
        for k in range(n):
            total += moves[k % 4] + moves[-1 - k % 3]
            pair = (k, k * 2, 7)
            total += pair[k % 3] * (1, 2.5, -3)[k % 3]
        return total

    del steps
    compiled(function, lambda: (30, (1, 2, 3, 4)))
    compare(function, lambda: (5, (1, 2, 3)))


def test_functions_of_python_on_vectors() -> None:
    """`sum`, `min`, `max`, `any` and `all` of vectors, and sums of tuples."""
    def function(a: Any, m: Any, n: int) -> Any:
        total = 0.0
        for k in range(n):
            total += sum(a[k:]) + min(a[k:]) + max(a * k) + sum((k, 2.5, a[k])) + sum(m[k])
            if any(m[k] > 20) and not all(m[k] > 1):
                total += max(m[k]) - min(m[k])
            total += np.linalg.norm(a[k:]) + np.linalg.norm(a[:k + 1] - 0.5)
        return total

    compiled(function, lambda: (random(30), np.arange(300).reshape(30, 10) % 23, 30))


def test_arrays_are_rolled_in_place() -> None:
    """What `np.roll` reads may be what the statement stores."""
    def function(m: Any, x: Any, shifts: Any) -> Any:
        for k, (i, j) in enumerate(zip(shifts, shifts[::-1], strict=True)):
            m[:, :, k] = np.roll(m[:, :, k], i, axis=1)
            m[:, :, k] = np.roll(m[:, :, k], j, axis=0) - m[:, :, k]
            x[:] = np.roll(x, i)
            x += np.roll(x, j)
            x[:] = np.where(np.roll(x, 1) > x, x * 0.25, np.roll(x * 0.5, i))
        return m, x

    compiled(function, lambda: (random(5, 7, 6), random(11), np.array([0, 1, -1, 2, 0, 3])))


def test_products_of_several_dtypes_and_of_integers() -> None:
    """Factors are converted first; matrices of integers; ``float("inf")``."""
    def function(i: Any, j: Any, m: Any, x: Any, y: Any) -> Any:
        total = float("-inf")
        for k in range(len(i)):
            product = (i @ m)[k] + m @ i[k] + np.dot(m, i)[:, k] + i[k] @ x + (x @ i) * np.dot(x, i[:, k])
            product = product + (m @ y)[k] + y @ x + (y @ j)[0] - m.T @ j[0]
            total = max(total, product.max(), float("1.5") if k > 2 else -float("inf"))
            total += (i @ j)[k, 0] + np.dot(j, i[k])[0] + (i.T @ i)[0, k] + np.dot(i, j).sum()
            total += j[k] @ i[:, k]
        return total

    integers = np.random.default_rng(2).integers(-9, 9, (2, 6, 6))
    compiled(function, lambda: (integers[0], integers[1].astype(np.int32), random(6, 6), random(6),
                                random(6, 6).astype(np.float32)))
    compare(function, lambda: (integers[0].T, integers[1][::-1].astype(np.int32), random(6, 6).T,
                               random(12)[::-2], random(6, 6).astype(np.float32).T))


def test_code_is_given_up_in_a_run_that_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run after which compiled code is found slow may end by a terminal statement."""
    def function(x: Any, limit: float) -> Any:
        for k in range(len(x)):
            if x[k] > limit:
                return k
        return None

    monkeypatch.setattr(Specialisation, "loses", lambda self: True)
    (found,) = compare(function, lambda: (random(30), 0.9), specialisations.JUDGED_RUNS + 8)
    assert found.state is State.REFUSED
    assert found.reason == specialisations.LOSS


def test_membership() -> None:
    """`in` tuples, sets of constants and arrays; an item that is the same object is equal, NaN or not."""
    def function(x: Any, m: Any) -> Any:
        total = 0
        for k in range(len(x)):
            one, other = x[k], x[k - 1]
            total += (k in (1, 4, 6)) + 2 * (k not in {2, 3}) + 4 * (one in (0.5, 2.0))
            total += 8 * (2.0 * k in {2, 4})
            total += 16 * (k in m) + 32 * (one not in m[k % 3]) + 64 * (one in x) + 128 * (k % 3 in m[0] + 1)
            total += 256 * (one in (one, 1.0)) + 512 * (one in (other, 1.0))
        return total

    x = np.array([0.5, 2.0, np.nan, 7.0, -1.0, np.nan, 3.0])
    compare(function, lambda: (x, np.arange(9).reshape(3, 3) % 5))
    compiled(function, lambda: (x[[0, 1, 3, 4, 6]], np.arange(9).reshape(3, 3) % 5))


def test_hypotenuses_have_the_bits_of_python() -> None:
    """`math.hypot` is more exact than that of the C library; extreme magnitudes are left to Python."""
    def function(m: Any, out: Any) -> Any:
        for k in range(len(m)):
            out[k, 0] = math.hypot(m[k, 0], m[k, 1])
            out[k, 1] = math.hypot(m[k, 0], m[k, 1], m[k, 2])
            out[k, 2] = math.hypot(float(m[k, 2]) - 1, k)
        return out

    assert hypotenuse.is_exact_here() or sys.version_info >= (3, 12)
    m = random(400, 3) * 10.0 ** np.random.default_rng(3).uniform(-6, 6, (400, 3))
    m[:12] = [[0, 0, 0], [0, 0, 7], [-0.0, 5, 12], [1e-310, 0, 3], [2.0**-999, 1, 1], [1e305, 1e305, 1],
              [np.inf, np.nan, 1], [1, np.nan, 1], [np.inf, 1, -np.inf], [3, 4, 12], [1e-200, 1e200, 1],
              [1, 1, 1]]
    compare(function, lambda: (m, np.zeros((400, 3))))
    compiled(function, lambda: (m[12:], np.zeros((388, 3))))


def _scaled(x: Any, y: Any, factor: float = 2.0) -> Any:
    return x * factor + y


def test_reductions_of_numbers_and_starred_arguments() -> None:
    """A sum of a sum; tuples are spread over parameters."""
    def function(m: Any, out: Any, n: int) -> Any:
        for k in range(n):
            pair = m[k, 0], float(k)
            out[k, 0] = np.sum(np.sum(m[k])) + np.mean(m[k].max())
            out[k, 0] -= np.min(m[k, 1]) * np.max(k * 1.5)
            out[k, 1] = np.sum(-0.0) if k % 2 else np.max(-0.0)
            out[k, 2] = _scaled(*pair) + _scaled(m[k, 1], *(3.0, 4.0)) + max(*pair, 2.0)
        return out

    compiled(function, lambda: (random(20, 3), np.zeros((20, 3)), 20))


def test_types_sizes_and_pow() -> None:
    """`isinstance` is decided when the loop is compiled; `pow`, `np.size`, `np.shape` and `np.ndim`."""
    def function(a: Any, m: Any, n: int) -> Any:
        total = 0.0
        for k in range(n):
            total += pow(a[k], 2) + pow(k, 3) + pow(2, k % 5) + pow(a[k] + 4, k) + pow(m, 2)[0, k % 3]
            if isinstance(a[k], float) and not isinstance(k, (float, np.floating)):
                total += np.size(m) + np.size(m, 1) + np.size(m, -2) + np.ndim(a)
            if isinstance(m, np.ndarray):
                total += np.shape(m)[0] * k
            else:
                total += m.no_attribute_of_arrays
        return total

    compiled(function, lambda: (random(20), random(4, 3), 20))


def test_modular_powers_are_left_to_python() -> None:
    """`pow` with a modulus refuses the loop."""
    def function(n: int) -> Any:
        total = 0
        for k in range(n):
            total += pow(3, k, 7)
        return total

    (found,) = compare(function, lambda: (20,))
    assert "pow" in found.reason


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norms_of_vectors_of_any_stride(dtype: Any) -> None:
    """NumPy makes the vector contiguous first: another order of summation than for a stride."""
    def function(m: Any, out: Any) -> Any:
        for k in range(m.shape[1]):
            out[0, k] = np.linalg.norm(m[:, k])
            out[1, k] = np.linalg.norm(m[::-2, k])
            out[2, k] = np.linalg.norm(m[k])
            out[3, k] = np.linalg.norm(m[k, ::-1])
        return out

    compiled(function, lambda: (random(37, 21).astype(dtype), np.zeros((4, 21), dtype)))


def test_repeated_counted_and_triangular_arrays() -> None:
    """`repeat`, `bincount`, `triu` and `tril`, and ranges that run backwards."""
    def function(a: Any, m: Any, x: Any) -> Any:
        total = 0.0
        for k in range(1, len(a)):
            total += np.repeat(a[:k], k).sum() + np.repeat(m, 2, axis=1).sum(axis=0)[3]
            total += np.arange(k, -1, -1).sum()
            total += np.bincount(x[:k]).argmax() + np.bincount(x[:k], a[:k], minlength=9).sum()
            total += np.triu(m, 1).sum() + np.tril(-m * a[k]).sum() + np.triu(m).max()
        return total

    compiled(function, lambda: (random(20), random(5, 6), np.random.default_rng(1).integers(0, 12, 20)))


def _factorial(n: int) -> int:
    return 1 if n < 2 else n * _factorial(n - 1)


def test_recursion_is_refused() -> None:
    """Loops that call recursive functions are left to Python at once."""
    def function(n: int) -> Any:
        total = 0
        for k in range(n):
            if k > 3:
                total += _factorial(k % 10)
        return total

    (found,) = compare(function, lambda: (30,))
    assert found.state is State.REFUSED
    assert "recursive" in found.reason


def test_outermost_loops_over_nested_calls() -> None:
    """Loops over strict zips, enumerated zips, and reversed ranges and arrays."""
    def function(a: Any, b: Any) -> Any:
        total = 0.0
        for x, y in zip(a, b, strict=True):
            total += x * y
        for k, (x, y) in enumerate(zip(a, b, strict=False)):
            total += k * x - y
        for k in reversed(range(2, len(a))):
            total = total * 0.5 + a[k]
        for x in reversed(a):
            total = total * 0.5 + x
        for k, x in zip(range(3, 1000, 2), reversed(b), strict=False):
            total = total * 0.5 + x * k
        for k, x in enumerate(reversed(range(10)), 5):
            total += k * x
        return total

    compiled(function, lambda: (random(50), random(50, seed=2)))
    compare(function, lambda: (random(50), random(49, seed=2)))
    compare(function, lambda: (random(50), 5))


# --------------------------------------------------------------------------- names


TABLE = np.arange(10.0)
OFFSETS = [3, 5, 7]
double = lambda x: 2 * x + TABLE[1]  # noqa: E731


def _looked_up(k: int) -> Any:
    return TABLE[k % 10]


def _around(scale: float) -> Any:
    def inner(x: float) -> float:
        return x * scale
    return inner


tripled = _around(3.0)


def test_names_outside_of_the_function() -> None:
    """Global arrays, also in helpers, lists, lambdas, and helpers with variables of other functions."""
    def function(n: int) -> Any:
        total = 0.0
        steps = [1, -1, 2]
        TABLE[:3] = 0.0
        for k in range(n):
            TABLE[k % 3] += 0.5
            total += _looked_up(k) + double(k) + tripled(k) + OFFSETS[k % 3] * steps[k % 3]
            if k in OFFSETS:
                total -= 1
        return total

    compiled(function, lambda: (40,))
    OFFSETS[1] = 11
    compare(function, lambda: (40,))
    OFFSETS.append(2)
    compare(function, lambda: (40,))


def test_lists_that_grow() -> None:
    """A list that the loop changes is left to Python, and one that is longer in each run."""
    def function(n: int, seen: list[int]) -> Any:
        total = 0
        for k in range(n):
            total += seen[k % len(seen)]
            if k == n - 1:
                seen.append(k)
        return total

    compare(function, lambda: (40, [1, 2]))


def test_numbers_that_are_none_at_first() -> None:
    """A variable is None until it is assigned a number."""
    def function(a: Any, limit: float) -> Any:
        best = None
        where = None
        last = None
        total = 0.0
        for k, x in enumerate(a):
            if best is None or x < best:
                best = x
                where = k
            if x > limit:
                last = 2.5 if last is None else last + 1.0
            elif last:
                total += last
            if x > 0.99:
                last = None
        return best, where, last, total

    compiled(function, lambda: (random(200), 0.5))
    compare(function, lambda: (random(200), 1.5))

    def wrong(a: Any) -> Any:
        best = None
        for x in a:
            if x > 0.9:
                best = best + x
            if x > 0.5:
                best = x
        return best

    compare(wrong, lambda: (random(200),))


def test_chained_comparisons() -> None:
    """Chained comparisons of numbers of Python and NumPy."""
    def function(a: Any, n: int) -> Any:
        total = 0
        kept = False
        for k in range(n):
            if 0 <= k < n - 1 and 0 < a[k] < 0.5 <= a[k + 1]:
                total += 1
            kept = 3 < k < a[k] * n
        return total, kept

    compiled(function, lambda: (random(50), 50))


def test_sums_of_complex_numbers() -> None:
    """Sums of complex arrays, along axes as well."""
    def function(a: Any, out: Any) -> Any:
        total = 0j
        for k in range(len(a)):
            total += a[k].sum() + np.sum(a[k, 1:] * a[k, :-1])
            out[k] = a[k].sum(axis=0)[1] - a[k].sum(axis=1)[0]
        return total

    compiled(function, lambda: (random(12, 5, 40) + 1j * random(12, 5, 40, seed=2), np.zeros(12, complex)))


@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_products_of_stacks_of_matrices(dtype: str) -> None:
    """`@` of arrays with three axes, and of one with a matrix."""
    def function(a: Any, b: Any, m: Any, out: Any) -> None:
        for k in range(len(out)):
            out[k] = (a[k] @ b[k])[1, 0, 2] + (a[k] @ m)[0, 1, 1] + (m @ b[k])[1, 2, 0]
            out[k] += np.matmul(a[k], b[k].copy())[0, 0, 0]

    compiled(function, lambda: (random(9, 2, 4, 5).astype(dtype), random(9, 2, 5, 4).astype(dtype),
                                random(5, 5).astype(dtype), np.zeros(9, dtype)))


def test_powers_of_complex_numbers() -> None:
    """Powers of Python's complex numbers with constant exponents."""
    def function(n: int) -> Any:
        z = 0.7 + 0.4j
        total = 0j
        for k in range(n):
            z = z - (z ** 3 - 1) / (3 * z ** 2) * (0.5 + 0.001 * k)
            total += z ** 7 + z ** 1
        return z, total

    compiled(function, lambda: (200,))


class Particle:
    """An object with fields, one of which is a property."""

    bounce = 0.5

    def __init__(self, n: int) -> None:
        self.mass = 2.0
        self.position = np.zeros(n)
        self.steps = 0

    @property
    def weight(self) -> float:
        """9.81 times the mass."""
        return 9.81 * self.mass


def test_fields_of_objects() -> None:
    """Attributes of objects that a loop reads; properties, and those that it stores, are left to Python."""
    def function(n: int) -> Any:
        p = Particle(n)
        for k in range(n):
            p.position[k] = p.mass * k + p.position[k - 1]
        return p.position

    compiled(function, lambda: (50,))

    def others(n: int) -> Any:
        p = Particle(n)
        total = 0.0
        for k in range(n):
            total += p.weight + p.bounce
            p.steps += 1
            if k == 20:
                p.mass = 3
        return total, p.steps

    compare(others, lambda: (50,))

    def missing(n: int) -> Any:
        p = Particle(n)
        total = 0.0
        for k in range(n):
            total += p.mass
            if k == 30:
                total += p.nothing  # type: ignore[attr-defined]
        return total

    compare(missing, lambda: (50,))


def test_vectors_of_transposed_arrays() -> None:
    """A reshape to one axis copies an array that is not contiguous; one that is a view is written through."""
    def function(a: Any, out: Any) -> Any:
        total = 0.0
        for k in range(len(out)):
            x = np.transpose(a, (1, 0, 2)).reshape(-1)
            y = np.reshape(a[k % 4], (12,))
            a[0, 0, 0] += 1
            y[1] += 0.5
            out[k] = x[0] + x[5] + y[0] + a[:, 1].ravel()[3] + np.ravel(a[:, :, 1:])[2]
            total += (np.reshape(a.T, (len(a) * 12,)) * np.arange(48)).sum()
        return total

    compiled(function, lambda: (random(4, 3, 4), np.zeros(30)))

    def views(a: Any, out: Any) -> Any:
        for k in range(len(out)):
            x = a[:, :1].reshape(-1)
            z = a[:, 0].ravel()
            a[:, 0] += 1
            x[0] += 0.25
            out[k] = x[1] + z[2]
        return a

    compare(views, lambda: (random(4, 3), np.zeros(30)))


def test_statements_that_python_has_to_do_now_and_then() -> None:
    """A loop with an unsupported statement in each fiftieth iteration stays compiled."""
    log: list[float] = []

    def function(a: Any, log: Any) -> Any:
        for i in range(3000):
            for j in range(1, 99):
                a[j] = 0.5 * (a[j - 1] + a[j + 1]) + 0.01
            if i % 50 == 0:
                log.append(str(a[3]))
        return a, len(log)

    found = compare(function, lambda: (np.zeros(100), []), calls=2)
    assert not log
    # the list has no items at first, and texts later
    assert any(s.state is State.READY for s in found) and not any(s.state is State.REFUSED for s in found), [
        (s.state, s.reason) for s in found]
    assert sum(s.compiled_iterations for s in found) > 30 * sum(s.failures for s in found)
