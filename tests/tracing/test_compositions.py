"""NumPy's functions that NumPy writes in Python: jitted as plain, for operands of many kinds."""

from __future__ import annotations

import numpy as np
import pytest

import jitla
from tests.tracing.sameness import same

SUMS = [f"np.{name}(a{options})" for name in ("nansum", "nanmean", "nanvar", "nanstd", "nanmin", "nanmax")
        for options in ("", ", axis=0", ", -1, keepdims=True", ", axis=(0, 1)", ", axis=7")]
CALLS = [
    "np.nanvar(a, 0, None, None, 1)", "np.nanstd(a, ddof=40)", "np.nansum(a, out=np.zeros(6), axis=0)",
    "np.nanmean(a, where=a > 0)", "np.nanmean(a[:0], axis=0)", "np.nanmean(a, axis=0) + 1",
    "np.nan_to_num(a * 2)", "np.nan_to_num(a, nan=-1.0, posinf=3, neginf=0) + 1",
    "np.average(a)", "np.average(a, axis=0, weights=b)", "np.average(a, axis=0, weights=b[:, 0])",
    "np.average(a, weights=b * 0)", "np.average(a, axis=-1, keepdims=True, weights=b)",
    "np.cov(a)", "np.cov(a, rowvar=False)", "np.corrcoef(a[0])",
    "np.round(np.corrcoef(a.ravel(), b.ravel()), 9)",
    "np.polyval([1, 2, 3], a)", "np.polyval(b.ravel()[:3], a * 2)", "np.polyval([], a)",
    "np.polyval(np.array([1, 2], 'f4'), a)", "np.trapezoid(a.ravel(), b.ravel())", "np.trapezoid(a, b)",
    "np.trapezoid(a[0], dx=.5) + 1", "np.select([a > 0, a < -1], [a, b], 0)",
    "np.select([a > 0, a < -1], [1, 2])", "np.select([a > 0, b > 0], [1, 2.5], 3)",
    "np.select([a > 0], [a], b)", "np.select([a], [1])", "np.zeros_like(a)",
    "np.zeros_like((a * 2).T) + 1", "np.ones_like(a * 2, dtype=int)",
    "np.full_like(a * 2, 3)", "np.full_like(a, b[0, 0])", "np.zeros_like(a * 2, shape=(3,))",
    "np.zeros_like(a, order='F')", "np.squeeze(a[:1] * 2)", "np.squeeze(a[:1, :1])", "np.flip(a) + 1",
    "np.flip(a * 2, -1)", "np.flip(a, 3)", "np.fliplr(a) * b", "np.fliplr(a[0])", "np.flipud(a)",
    "np.vdot(a[0], b[0])", "np.vdot(a, b)", "np.split(a * 2, 2)[1] + 1", "np.split(a, [1, 9], axis=1)",
    "np.split(a, 5)",
]
COMPARED = [
    "np.isclose(a, b)", "np.isclose(a * 2, b, atol=1, rtol=0) & (a > 0)",
    "np.isclose(a, a * (1 + 1e-6))", "np.isclose(a, 0)", "np.isclose(0.5, a, 1)",
    "np.isclose(a, a, equal_nan=True)",
    "np.isclose(a, b[0])", "np.isclose(a, b[:3])", "np.isclose(a, np.nan)", "np.isclose(a, b, rtol=np.nan)",
    "np.isclose(a > 0, b)", "np.isclose(b, (a * 3 > 1).astype('i1'))", "np.isclose(a, a * 1e308)",
    "np.isclose(a * 1j, b)", "np.isclose(a[:0], b[:0])", "np.allclose(a, a + 1e-9)", "np.allclose(a, b)",
    "np.allclose(a * 2, a + a, equal_nan=True)", "np.array_equal(a * 2, a + a)", "np.array_equal(a, b)",
    "np.array_equal(a, b[:2])", "np.array_equal(a, a, equal_nan=True)", "np.array_equiv(a, a[:1])",
    "np.array_equiv(a, b)", "np.array_equal(a, 'word')", "np.cross(a[:, :3], b[:, 3:])",
    "np.cross(a[:, :3], b)",
    "np.cross(a[:, :3] * 2, b[:, :3]) + 1", "np.cross(a[0, :3], b[0, :3])", "np.cross(a[:3], b[:3], axis=0)",
    "np.cross(a[:, :3] * 1e200, b[:, :3] * 1e200)", "np.round(np.vecdot(a, b), 9)", "np.vecdot(a, b[:, 1:])",
    "np.round(np.vecdot(a[None] * 2, b[None]), 9)", "np.vecdot(a, b, axis=0)", "np.round(np.sinc(a * 2), 5)",
    "np.round(np.sinc(a - a), 9)", "np.round(np.sinc(a * 1e-320), 9)", "np.ptp(a)", "np.ptp(a * 1e308)",
    "np.ptp(a * 2, keepdims=True)", "np.ptp(a - np.inf)",
]
FORMS = {
    "single": "normal.astype('f4')", "missing": "missing", "integers": "(normal * 3).astype(int)",
    "infinite": "infinite", "spread": "np.broadcast_to(missing[:1], (4, 6))",
    "reversed and down": "np.asfortranarray(missing)[::-1, ::-1]",
    "zeros": "np.array([[0.0, -0.0, 1, 2, -0.0, 3]] * 4)",
}
HEAD = """
normal = np.random.default_rng(3).standard_normal((4, 6))
missing, infinite = normal.copy(), normal.copy()
missing[1, 2] = missing[2, 3] = np.nan
infinite[[1, 2, 3], [1, 1, 3]] = np.inf, -np.inf, np.inf
def make(): return {form}, normal
"""


@pytest.mark.parametrize("name", FORMS)
def test_they_mean_what_numpy_means(name: str):
    alike(name, SUMS + CALLS)


@pytest.mark.parametrize("name", ["single", "integers", "infinite", "spread"])
def test_arrays_are_compared_as_numpy_compares_them(name: str):
    alike(name, COMPARED)


def alike(name: str, calls: list[str]) -> None:
    """Fail if one of the calls gives anything else jitted than plain."""
    lines = []
    for call in calls:
        lines += ["    try:", f"        found.append({call})", "    except Exception as error:",
                  "        found.append((type(error), str(error)))"]
    program = ["@jit", "def f(a, b):", "    found = []", *lines, "    return found", ""]
    same(HEAD.format(form=FORMS[name]) + "\n".join(program), calls=1)


def test_they_are_no_reason_to_leave_loops():
    """Nothing is handed to NumPy, and what is in memory is read by kernels."""
    def f(x, y):
        clean = np.nan_to_num(x * y)
        level = np.nanmean(x) + np.average(x, weights=y)
        return np.polyval([2, 1, 0], clean) - level, np.select([x > level, y > 0.5], [1.0, 2.0], 3.0)

    rng = np.random.default_rng(0)
    given = rng.random(5000), rng.random(5000)
    fast = jitla.jit(f, compile="sync")
    for one, other in zip(fast(*given), f(*given), strict=True):
        assert np.array_equal(one, other)
    assert fast.stats()["fallbacks"] == 0 and fast.stats()["kernel_runs"] > 2


@pytest.mark.parametrize("dtype", ["i1", "u1", "u8", "f2", "f4"])
def test_numbers_to_choose_are_cast_as_numpy_casts_them(dtype: str):
    """It makes arrays of them: what does not fit wraps around, is refused, or warns where it is chosen."""
    calls = [f"np.select([a > 1, a > 100], [a, {n}], {m})"
             for n, m in ((3, 0), (300, 7), (-3, 0), (1e300, 0), (np.pi, -1), (2**70, 0))]
    lines = []
    for call in (*calls, "np.average(a, axis=5)", "np.average(a, weights=a, axis=(0, 5))",
                 "np.average(a, axis=(0, -2))", "np.nan_to_num(a, nan=None)"):
        lines += ["    try:", f"        found.append({call})", "    except Exception as error:",
                  "        found.append((type(error), str(error)))"]
    make = f"def make(): return (np.arange(6).reshape(2, 3).astype('{dtype}'),)"
    same("\n".join([make, "@jit", "def f(a):", "    found = []", *lines, "    return found", ""]), calls=1)
