"""What masks and indices name is read where it is used: NumPy's results, also if something is written between."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.tracing.mutation import PositionReader
from jitla.tracing.numpy_api import functions as scatters
from tests.tracing.sameness import same

MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random(3000), rng.random(3000), rng.integers(0, 40, 3000), rng.random(3000) > 0.4
"""
LATER = {
    "cells": "return a[m] * 2 + b[m], np.sqrt(a[m]), a[m]",
    "totals": "x = a[m]; return x.sum(), x.mean(), (x - b[m]).std(), x.max(), x.argmax(), x[m[:5].size:].sum()",
    "indices": "return a[g] * b[g], a[g - 40].sum(), (a[g] > b[g]).any()",
    "computed": "x = a * 2; k = x > 1; return x[k] + b[k], (x + 1)[k].sum(), k[k].sum()",
    "few": "k = a < 1e-3; return a[k] * 2, b[k].sum(), a[a < 0].sum(), a[a < 0] * 2, a[a >= 0] + b[a >= 0]",
    "kinds": "return [(a * 9).astype(t)[m] + b.astype(t)[m] for t in ('?', 'i1', 'u2', 'i4', 'f4', 'f8', 'c16')]",
    "vectors": "return np.sqrt(a[m]) / (b[m] + 1), (a[m] * 9 // 1) @ (b[m] * 9 // 1), np.outer(a[m][:3], b[m][:4]), np.sort(a[m]), np.cumsum(a[m])",
    "views": "x = a[m]; return x[::2] * 2, x[:-1] - x[1:], x[:, None] * np.arange(3.0), x.reshape(1, -1) + x[0], x[::-1]",
    "shapes": "x = a[m]; return len(x), x.shape, x.size, x.dtype, list(x[:3]), x.nbytes",
    "the table itself": "return a[g] + a, a[np.arange(3000) * 7 % 3000] * a",
    "key changes": "x = a[m] * 2; m[:7] = ~m[:7]; y = a[m]; m ^= a > 0.5; return x, y, a[m] + 1, m",
    "index changes": "x = a[g]; g += 1; y = a[g]; g[:] = 0; return x, y, a[g] - 1",
    "table changes": "x = a[m]; y = a[g] * 2; a[5:] = 7; a *= 2; return x, y, a[m], a[g] + x[0]",
    "what is read is written": "x = a[m]; x[3] = 5; y = b[m]; y *= x; x += y; return x, y, a, b",
    "into the table": "a[...] = a[g] * 2; b[1:] = b[g[1:]]; a += b[g]; return a, b",
    "into a part": "a[:1000] = a[g[:1000] + 1500] + 1; v = a[500:]; v[:] = v[g[:2500]]; return a, v",
    "in a loop": "t = 0.0\n    for _ in range(4):\n        k = a > t\n        t = t + a[k].mean() / 8\n        b = b + a[g]\n    return t, b",
    "warnings": "return a[m] / (b[m] - b[m]), np.log(a[g] - 1)",
    "printed": "x = a[m]; print(x[:3], x.sum()); print(f'{a[g].mean():.3f}'); return x",
    "kept": "d = {'x': a[m]}; l = [b[m]]; d['y'] = d['x'] - l[0]; return d, l",
}
TALLIED = {
    "weights": "k = g[m]; return np.bincount(k, a[m], 40), np.bincount(k, weights=a[m] * b[m], minlength=50), np.bincount(k, minlength=40)",
    "computed weights": "return np.bincount(g, a * 2), np.bincount(g, weights=a > 0.5), np.bincount(g, np.sqrt(a), 60)",
    "kinds": "return [np.bincount(g.astype(t)[m], a[m], 45) for t in ('i1', 'u1', 'i2', 'u2', 'i4', 'u4', 'i8')]",
    "weights of kinds": "return [np.bincount(g, (a * 99).astype(t) + b.astype(t)) for t in ('i1', 'u4', 'i8', 'f4', 'f8')]",
    "used": "s, n = np.bincount(g, a - b), np.bincount(g[m], minlength=41); return s / (n[:40] + 1), s.sum(), n.max(), (s * 2)[g[:5]]",
    "other labels": "h = g // 2; return np.bincount(h, a * 2), np.bincount(g, a * 2), np.bincount(g[m], b[m], 40)",
    "kept, too": "k = g[m]; x = a[m] * 2; s = np.bincount(k, x, 40); return s, k, x, x.sum()",
    "label changes": "s = np.bincount(g[m], a[m], 40); g[:9] = 55; t = np.bincount(g, a + 0); m[:] = True; return s, t, np.bincount(g[m], b[m], 60)",
    "weight changes": "s = np.bincount(g, a * 2); a[:] = 1; return s, np.bincount(g, a * 2)",
    "not a number": "w = np.where(a > 0.5, np.inf, a) - np.where(b > 0.5, np.inf, b); return np.bincount(g, w), np.bincount(g, -a * 0)",
}
LEFT = {
    "labels beyond are not read": "h = np.where(m, g, -1); k = h[m]; return np.bincount(k, a[m], 40), np.bincount(k, a[m])",
    "number of labels": "k = g[g < 7]; return np.bincount(k, a[g < 7]), np.bincount(k, a[g < 7], 3)",
    "labels below": "return np.bincount(g[m] - 1, a[m])",
    "too few weights": "return np.bincount(g[m], (a * 1)[g[:5]])",
    "minlength": "return np.bincount(g[m], a[m], -1)",
    "complex weights": "return np.bincount(g[m], a[m] * 1j)",
    "unsafe labels": "return np.bincount(g.astype('u8')[m], a[m], 40)",
    "two dimensions": "return np.bincount(g[m], (a[m])[:, None])",
    "too long a mask": "return a[:2999][m] * 2",
    "beyond": "return a[g + 2990] * 2",
    "below": "return a[g - 3001] * 2",
    "strided": "return a[::2][m[::2]] * 2, a[::-1][m].sum(), a.reshape(-1, 3)[m[:1000]] + 1, a[m[::-1]]",
    "an integer": "return a[np.int64(3)] * 2, a[True].shape, a[m, None].shape",
}


@pytest.fixture(autouse=True)
def _few_are_enough():
    with jitla.options(thresholds=TracingThresholds(
            min_loop_indices=0, min_compiled_indices=0, min_positions=0, min_deferred_key_elements=0)):
        yield


@pytest.fixture
def picked(monkeypatch):
    """What was read later."""
    found = []
    plain = PositionReader.read_at

    def noted(session, table, key):
        made = plain(session, table, key)
        if made is not None:
            found.append(made.shape)
        assert not session.site.failures
        return made

    monkeypatch.setattr(PositionReader, "read_at", noted)
    return found


@pytest.mark.parametrize("name", LATER)
def test_read_later(name, picked):
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {LATER[name]}\n", calls=3)
    assert picked


@pytest.mark.parametrize("name", TALLIED)
def test_added_up_later(name, monkeypatch):
    recorded = []
    plain = scatters._record_bincount

    def noted(*args):
        made = plain(*args)
        recorded.append(made is not NotImplemented)
        return made

    monkeypatch.setattr(scatters, "_record_bincount", noted)
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {TALLIED[name]}\n", calls=3)
    assert any(recorded)


@pytest.mark.parametrize("name", LEFT)
def test_left_to_numpy(name):
    same(f"{MAKE}\n@jit\ndef f(a, b, g, m):\n    {LEFT[name]}\n")


def columns(size, kept):
    rng = np.random.default_rng(size)
    return rng.integers(0, 6, size), rng.random(size), rng.random(size), rng.random(size) < kept


def query(g, x, y, m):
    g, x, y = g[m], x[m], y[m]
    z = x * (1.0 - y)
    return np.bincount(g, z, 6), np.bincount(g, z * (1.0 + y), 6), np.bincount(g, minlength=6)


@pytest.mark.parametrize("size", [1, 2, 130, 2049, 100_003])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 1.0])
def test_a_query_of_any_size(size, kept):
    jitted = jitla.jit(query)
    args = columns(size, kept)
    for _ in range(3):
        for found, wanted in zip(jitted(*args), query(*args), strict=True):
            assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    assert not jitted.stats()["failures"]


def test_all_columns_of_a_query_are_read_once():
    jitted = jitla.jit(query)
    args = columns(100_003, 0.5)
    for _ in range(3):
        jitted(*args)
    (site,) = jitted.__jitla_state__.all_sites()
    kernels = [s for p in site.runs() for s in p.plan.steps if getattr(s, "template", "") == "Tally"]
    assert len(kernels) == 1 and len(kernels[0].outputs) == 3
    assert all(p.materialised == 0 for p in site.runs())


def test_masks_that_keep_other_numbers_share_a_plan():
    @jitla.jit
    def f(x, y, m):
        return x[m] * y[m]

    rng = np.random.default_rng(0)
    x, y = rng.random(1000), rng.random(1000)
    for kept in (0.3, 0.4, 0.5, 0.6):
        m = rng.random(1000) < kept
        assert np.array_equal(f(x, y, m), x[m] * y[m])
    (site,) = f.__jitla_state__.all_sites()
    assert len(site.runs()) == 1


def test_what_is_read_is_not_taken_for_what_lies_beside_it():
    """A table may have as many elements as there are positions."""
    @jitla.jit
    def f(x, w, i):
        return x[i] * w[i], (x[i] - w[i]).sum(), np.sqrt(x[i]) + w

    rng = np.random.default_rng(0)
    x, w, i = rng.random(5000), rng.random(5000), rng.integers(0, 5000, 5000)
    for _ in range(2):
        product, total, root = f(x, w, i)
        assert np.array_equal(product, x[i] * w[i]) and total == (x[i] - w[i]).sum()
        assert np.array_equal(root, np.sqrt(x[i]) + w)
