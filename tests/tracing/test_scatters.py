"""Indices, masks and labels in decorated functions: NumPy's results and errors, and that loops of ours ran."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.tracing.site import Site
from tests.tracing.sameness import same

MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random(3000), rng.integers(0, 40, 3000)
"""
DONE = {
    "table": ("take", "x = b * 2; return a[x], (a + 1)[x.reshape(3, -1)], x"),
    "rows": ("take", "return a.reshape(-1, 3)[b] * 2, np.take(a, b), a.take(b), np.take(a.reshape(-1, 2), b, axis=0)"),
    "bytes": ("take", "lut = (a[:256] * 100).astype('u1'); return lut[b.astype('u1')]"),
    "negative": ("take", "return a[b - 40], a[-b]"),
    "mask": ("compress", "m = a > 0.5; return a[m], (a * 2)[m].sum(), b[m] + 1, a[m].mean(), a.reshape(-1, 3)[b[:1000] > 5]"),
    "masks": ("compress", "x = a.reshape(30, 100); return x[x > 0.3], x[x > 2], x[x > -1]"),
    "counts": ("bincount", "return np.bincount(b), np.bincount(b * 1, minlength=99), np.bincount(b, None, 3)"),
    "weights": ("bincount", "w = a * 3; return np.bincount(b, w), np.bincount(b, weights=a > 0.5, minlength=7)"),
    "histogram": ("histogram", "return np.histogram(a), np.histogram(a * 2, 7, (0.1, 1)), np.histogram(a, bins=3, range=[0, 0.5], density=None)"),
    "at": ("add_at", "t = np.zeros(40); np.add.at(t, b, a); np.add.at(t, b, 1); u = t * 2; np.add.at(u, b - 40, a * 1.5); return t, u"),
    "at whole": ("add_at", "t = np.zeros(40, int); v = t[1:]; np.add.at(t, b, 2); return t, v + 1"),
    "running": ("running", "x = a.reshape(-1, 30); y = np.cumsum(x, axis=0); x = x * 2 - 1; z = x.cumsum(0); x[1] = 7; return y, z, x, np.cumsum(b.reshape(3, 10, 100), axis=-3)"),
}
LEFT = {
    "running too far": "return np.cumsum(a.reshape(-1, 30) * 1e308, axis=0)",
    "running otherwise": "x = a.reshape(-1, 30); return np.cumsum(x, axis=1), np.cumsum(x), np.cumsum(x.T, axis=0), np.cumsum(x > 0.5, axis=0), x.cumsum(0, dtype='f4')",
    "beyond": "return a[b + 2990]",
    "below": "return a[b - 3001]",
    "mask too long": "return a[:2999][a > 0.5]",
    "labels below": "return np.bincount(b - 1)",
    "no labels": "return np.bincount(a)",
    "weights too short": "return np.bincount(b, a[1:])",
    "minlength": "return np.bincount(b, minlength=-1)",
    "range": "return np.histogram(a, 5, (1, 0))",
    "not finite": "return np.histogram(np.log(a - a))",
    "many bins": "return np.histogram(a, 1000, (1.0, 1.0 + 1e-15))",
    "take": "return a.take(b, mode='wrap'), np.take(a, b, axis=1)",
    "take beyond": "return np.take(a, b * 100)",
    "at beyond": "np.add.at(a, b + 2980, 1.0)",
    "at too few": "np.add.at(a, b, np.ones(7))",
    "at a constant": "a.flags.writeable = False; np.add.at(a, b, 1.0)",
    "overflow": "t = np.full(40, 1e308); np.add.at(t, b, a * 1e308); return t",
    "others": "return np.take(a, b.astype('u8')) if a.size else 0",
    "at others": "t = np.zeros(40, 'f4'); np.add.at(t, b, 0.1); np.add.at(t, b, a); u = np.zeros(40, complex); np.add.at(u, b, a); return t, u",
    "density": "return np.histogram(a, density=True), np.histogram(a, weights=b), np.histogram(a, 'auto'), np.histogram(b)",
}


@pytest.fixture(autouse=True)
def _few_are_enough():
    with jitla.options(thresholds=TracingThresholds(
            min_loop_indices=0, min_compiled_indices=0, min_column_scan_elements=0)):
        yield


@pytest.fixture
def loops(monkeypatch):
    """Names of the loops that did what they were asked for."""
    done = []
    plain = Site.run_index_loop

    def noted(site, name, *args):
        found = plain(site, name, *args)
        if found is not None and found is not False:
            done.append(name)
        assert not site.failures
        return found

    monkeypatch.setattr(Site, "run_index_loop", noted)
    return done


@pytest.mark.parametrize("name", DONE)
def test_done_at_once(name, loops):
    loop, body = DONE[name]
    same(f"{MAKE}\n@jit\ndef f(a, b):\n    {body}\n")
    assert loop in loops


@pytest.mark.parametrize("name", LEFT)
def test_left_to_numpy(name, loops):
    same(f"{MAKE}\n@jit\ndef f(a, b):\n    {LEFT[name]}\n")


def test_what_is_read_late_is_read_before_values_are_added():
    same(f"""{MAKE}
@jit
def f(a, b):
    x = a + 1
    y = a[:50] * 2
    np.add.at(a, b, 1.0)
    return x, y, a
""")


def test_what_is_added_to_itself():
    same(f"""{MAKE}
@jit
def f(a, b):
    np.add.at(a, b, a)
    np.add.at(b, b, 1)
    np.add.at(a, b % 10, a[:3000] * 1)
    return a, b
""")


def test_few_indices_are_not_worth_a_loop():
    asked = []
    site = Site("f", None, False, lambda: asked.append(1), thresholds=TracingThresholds(
        min_loop_indices=1000, min_compiled_indices=2000))
    assert site.run_index_loop("take", 999, np.ones(3), np.zeros(999, int)) is None and not asked
    assert site.run_index_loop("take", 1000, np.ones(3), np.zeros(1000, int)) is None and not asked
    assert site.run_index_loop("take", 1000, np.ones(3), np.zeros(1000, int)) is None and asked
    assert len(site.failures) == 1  # None has no loops


def test_a_loop_that_fails_is_numpys_and_is_counted(monkeypatch):
    class Broken:
        def take(self, *args):
            raise MemoryError("no code")

    @jitla.jit
    def f(a, b):
        return a[b]

    a, b = np.arange(5.0), np.arange(5)
    f(a, b)
    for site in f.__jitla_state__.all_sites():
        monkeypatch.setattr(site, "_indexed", Broken)
    assert np.array_equal(f(a, b), a) and f.stats()["failures"] == 1


def test_warnings_of_sums_are_numpys():
    @jitla.jit
    def f(t, b, a):
        np.add.at(t, b, a)
        return t

    with warnings.catch_warnings(record=True) as wanted:
        warnings.simplefilter("always")
        plain = np.full(4, 1e308)
        np.add.at(plain, np.arange(4), np.full(4, 1e308))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        mine = f(np.full(4, 1e308), np.arange(4), np.full(4, 1e308))
    assert [str(w.message) for w in found] == [str(w.message) for w in wanted]
    assert np.array_equal(plain, mine)


@pytest.mark.parametrize("kind", ["?", "u1", "i8", "f4", "f8", "c16"])
def test_what_is_not_zero_is_counted_with_what_computes_it(kind):
    same(f"""
def make():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (20, 30)).astype('{kind}')
    y = x.astype('f8')
    y[3, 4], y[3, 5] = np.nan, -0.0
    return x, y
@jit
def f(x, y):
    z = x == y
    n = np.count_nonzero(x)
    log = [n, n + 1, np.count_nonzero(y * 2), np.count_nonzero(z), np.count_nonzero(y > 0.5) / n]
    log += [np.count_nonzero(v, axis=k) for v in (x, y, z, y > 0) for k in (0, 1, -1, (0, 1), ())]
    log += [np.count_nonzero(x, keepdims=True), np.count_nonzero(x[:0]), np.count_nonzero(y[0, 0])]
    return log, np.count_nonzero(y, axis=1, keepdims=True), np.count_nonzero([n, 0])
""")


@pytest.mark.parametrize("kind", ["?", "i4", "c8"])
def test_counts_of_repeated_rows_lie_as_numpys(kind):
    @jitla.jit
    def counts(x):
        return np.count_nonzero(x, axis=-1, keepdims=True), np.count_nonzero(x, axis=1), np.count_nonzero(x)

    row = np.arange(6).reshape(2, 3).astype(kind)
    for x in (np.broadcast_to(row, (50, 2, 3)), np.broadcast_to(row[0], (50, 3)), row):
        for found, wanted in zip(counts(x), counts.__wrapped__(x), strict=True):
            assert np.array_equal(found, wanted) and np.asarray(found).strides == np.asarray(wanted).strides


@pytest.mark.parametrize("size", [10, 3000, 20_000])
@pytest.mark.parametrize("body", [
    "np.take(x, i)", "x.take(i)", "x[i]", "x[x > 0.5]", "np.bincount(i)", "np.bincount(i, x, 5)", "np.histogram(x)",
    "np.histogram(x, 7, (0, 2))", "np.add.at(x, i, 1.0)"])
@pytest.mark.parametrize("least", [0, 1 << 13])
def test_what_there_is_an_entry_for_is_no_fallback_whatever_its_size(body, size, least, tmp_path):
    thresholds = TracingThresholds(min_loop_indices=least, min_compiled_indices=least)
    names: dict = {"np": np}
    (tmp_path / "f.py").write_text(f"def f(x, i):\n    return {body}\n")
    exec(compile((tmp_path / "f.py").read_text(), str(tmp_path / "f.py"), "exec"), names)
    fast = jitla.jit(names["f"], strict=True)
    for step in (1, 2):  # loops want contiguous memory
        x, i = np.random.default_rng(0).random(step * size)[::step], np.arange(step * size)[::step] % size
        for _ in range(2):
            with jitla.options(thresholds=thresholds):
                found = fast(x.copy() if step == 1 else x, i)
            wanted = names["f"](x.copy() if step == 1 else x, i)
            for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
                assert np.array_equal(a, b)
    assert fast.stats()["fallbacks"] == 0


def test_loops_are_explained():
    @jitla.jit
    def f(x, i):
        return x[i], np.bincount(i, x)

    x, i = np.random.default_rng(0).random(4000), np.arange(4000)
    for _ in range(3):
        f(x, i)
    f(np.repeat(x, 2)[::2], i)
    text, line = str(jitla.explain(f)), f.__wrapped__.__code__.co_firstlineno + 2
    place = f"test_scatters.py:{line}"
    assert "== run immediately: 2 places\n" in text
    assert re.search(r"L\d  take 4000 float64, 3 runs, 96 kB each, took [0-9.]+ .?s each, 1 time by NumPy\n", text)
    assert re.search(rf"L\d  bincount 4000 int64, .*\n +{place}  bincount  \| return x\[i\], np.bincount", text)
    table = jitla.coverage()
    assert f"{place}  take" in table and "handed to NumPy" in table
    record = jitla.explain(f).record
    assert [loop.by_numpy for loop in sorted(record.loops, key=lambda loop: loop.operation)] == [1, 1]
    assert all(loop.count == 3 and loop.seconds > 0 for loop in record.loops)
    f.cache_clear()
    assert not jitla.explain(f).record.loops


def test_strict_sums_have_numpys_order():
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 50, 300_000), rng.standard_normal(300_000)

    def sums(b, w):
        t = np.zeros(50)
        np.add.at(t, b, w)
        return np.bincount(b, w), t

    wanted = sums(labels, weights)
    strict = jitla.jit(sums, numerics="strict", compile="sync")
    for found, want in zip(strict(labels, weights), wanted, strict=True):
        assert found.tobytes() == want.tobytes()
    for threads in (1, 2):
        with jitla.options(num_threads=threads):
            usual = jitla.jit(sums, compile="sync")(labels, weights)
        for found, want in zip(usual, wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=0, atol=1e-8)
            assert found.tobytes() != want.tobytes()  # else the other way was not asked for
