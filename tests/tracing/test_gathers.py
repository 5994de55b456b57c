"""What several indices name together, rows and columns that one names, what is repeated or padded: NumPy's results."""

# ruff: noqa: E501 - programs are as users write them
from __future__ import annotations

import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.config import TracingThresholds
from jitla.tracing import (
    gather as bounded,
)
from jitla.tracing import (
    gather as gathers,
)
from tests.tracing.sameness import same

MAKE = """
def make():
    rng = np.random.default_rng(0)
    return rng.random((9, 13, 4)), rng.integers(-9, 9, 17), rng.integers(-13, 13, 21), rng.integers(-4, 4, (17, 13)), rng.integers(0, 13, (17, 13)).astype('i4')
"""
LATER = {
    "rows": "return .75 * a[i] + .25 * a[i[::-1].copy()], a[i + 0].sum(), a[i]",
    "columns": "return a[:, j] * 2, a[:, j], a[:, :, k[0].copy()] + 1",
    "columns beside rows": "return a[:, j[:13].copy()] - a, a[:, i[:4] % 4].transpose(1, 0, 2) + 1, a[:, j].transpose(1, 0, 2)[::2] * 2",
    "several": "return a[i[:, None], np.arange(13), k] * 2 + a[i[:, None], np.arange(13), -1 - k]",
    "of some axes": "return a[i[:, None], m] * 2, a[:, m, k] * 2, a[:, m, k]",
    "computed": "return a[(i + 0)[:, None], np.minimum(m + 1, 12), k * 1] - 1, k * 1, a[i * 1] * 2",
    "aggregates": "x = a[i[:, None], m, k]; return x.sum(0), x.sum(1), (x * 2).sum(), a[:, j].sum(1), a[i].mean(axis=(0, 1)), x.argmax(1), a[i].max(2)",
    "kinds": "return [(a * 9).astype(t)[:, j[:9] + 0] + (a * 5).astype(t)[:, j[:9] + 0] for t in ('?', 'i1', 'u2', 'i4', 'f4', 'f8', 'c16')]",
    "indices of kinds": "return [a[i[:, None].astype(t) % 9, m.astype(t), k.astype(t) % 4] * 2 for t in ('i1', 'u1', 'i2', 'u4', 'i8')]",
    "a turned operand": "return a[i[:, None], m, k].T * 2 + a[:, :, 0].T[:, :1], a[i[:9]][:, j[:13] % 13] * a.transpose(1, 0, 2).copy().transpose(1, 0, 2)",
    "products": "x = (a[i[:, None], m, k] * 9) // 1; return x @ x.T",
    "the table changes": "x = a[i]; a[:3] = 7; y = a[:, j] * 2; a *= 2; return x, y, a",
    "an index changes": "x = a[i] * 1; i[:] = 0; y = a[i[:, None], m, k]; m[:] = 1; return x, y, a[i[:, None], m, k]",
    "into the table": "a[...] = a[i[:9]] * 2; a[:, :, 1] = a[i[:9, None], m[:9], k[:9]]; return a",
    "what is read is written": "x = a[i]; x[3] = 5; y = a[:, j]; y *= 2; return x, y, a",
    "repeated": "return np.repeat(a, 2, axis=1) * 2 + 1, np.repeat(a * 2, 3, axis=0) - 1, np.repeat(a, 2, -1), np.tile(a, (2, 1, 3)) + 1, np.tile(a, 2)",
    "padded": "return [np.pad(a, ((1, 2), (3, 20), (0, 5)), mode=t)[1:] * 2 for t in ('edge', 'wrap', 'reflect', 'symmetric')], np.pad(a * 2, 1, 'edge')",
    "padded and written": "p = np.pad(a, 1, mode='edge'); a[0] = 5; p[1] = 3; return p, a",
    "neighbours": "n = i[:, None]; l = k % 3; return a[n, m, l] * .5 + a[n, m, l + 1] * .25 + a[n - 1, m, 1 + l] + a[n, m, l - 1] * l + a[n, m, -4 + l], l",
    "neighbours of bytes": "n = i[:, None]; l = (k % 3).astype('i1'); u = l.astype('u1'); return [a[n, m, x] * 2 for x in (l + 1, l - 2, u + 1, l + -4, u)]",
    "a neighbour changes": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; l += 1; y = a[n, m, l] * 2; l[2:5] = -4; z = a[n, m, l] + 1; np.subtract(l, 1, out=l, where=l > 0); l.sort(); return x, y, z, a[n, m, l] * 2, l",
    "rows of a neighbour change": "n = i[:, None]; l = k % 3; x = a[n, m, l] * 2; r = l[3]; r[...] = 3; y = a[n, m, l] * 2; np.put(l, [1, 2], [-1, -2]); np.copyto(l[4], 1); return x, y, a[n, m, l] + 1, a[n, m, l - 1]",
    "neighbours added up": "z = np.zeros((17, 13), 'f4')\n    for d in (0, 1):\n        for e in (0, 1):\n            z += .5 * a[i[:, None] % 8 + d, m % 12 + e, k % 3 + d]\n    w = z\n    w -= a[i[:, None], m, k]\n    w *= z\n    return z, w is z",
    "in a loop": "t = 0.0\n    for n in range(4):\n        t = t + a[(i + n) % 9][:, :, ::-1].mean()\n        a = a[:, j[:13].copy()] + n\n    return t, a",
    "a warning": "return a[i] / (a[i] - a[i]), np.log(a[:, j] - 2)",
}
LEFT = {
    "beyond": "return a[i + 8] * 2",
    "below": "return a[:, j - 12]",
    "one of several beyond": "return a[i[:, None], m + 5, k]",
    "one of several below": "return a[i[:, None], m, k * 2]",
    "a neighbour beyond": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; return x, a[n, m, l + 2]",
    "a neighbour that was changed": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; l[0, 0] = 4; return x, a[n, m, l]",
    "a neighbour changed elsewhere": "n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; np.asarray(l)[0, 0] = 9; return x, a[n, m, l]",
    "a neighbour changed by others": "import ctypes\n    n = i[:, None]; l = k % 3; x = a[n, m, l] + a[n, m, l + 1]; ctypes.memset(l.ctypes.data, 3, 8); return x, a[n, m, l]",
    "bytes that wrap": "n = i[:, None]; l = (k % 3 + 120).astype('i1'); x = a[n, m, l - 119]; return x, a[n, m, l + 7]",
    "shapes that do not fit": "return a[i, j]",
    "caught": "try:\n        return a[i[:, None], m + 5, k]\n    except IndexError as error:\n        return str(error), a[i] * 2",
    "too many": "return a[i[:, None], m, k, k]",
    "axes between": "return a[i[:, None], :, k], a[None, i], a[..., k % 4], a[i, None], a[0, j], a[i[:9] > 0], a[i[:, None], m, 1]",
    "orders": "return np.asfortranarray(a)[i], a[np.asfortranarray(m) % 9], a[::-1][i], a[i[::-1]]",
    "lists and floats": "return a[[1, 2]], a[:, [3]], a[i * 1.0]",
    "repeats": "return np.repeat(a, 2), np.repeat(a, i % 2 + 1, axis=0)",
    "times": "return np.repeat(a, [1] * 13, axis=1), np.tile(a, (2, 1, 1, 1)), np.repeat(a, 0, 1), np.tile(a, 0)",
    "an axis that is not there": "return np.repeat(a, 2, axis=5)",
}


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch):
    plain = LlvmBackend.compile

    def compiled(*args):
        try:
            return plain(*args)
        except Exception as error:
            raise SystemExit(str(error)) from error  # NumPy would do it

    monkeypatch.setattr(LlvmBackend, "compile", compiled)
    with jitla.options(thresholds=TracingThresholds(min_gather_elements=1)):
        yield


def checking(most):
    """Check at most this many indices when they are recorded."""
    return jitla.options(thresholds=TracingThresholds(min_gather_elements=1, max_checked_indices=most))


@pytest.fixture
def taken(monkeypatch):
    """How often something was read later."""
    found = []
    plain = gathers._record_take

    def noted(*args):
        found.append(plain(*args))
        return found[-1]

    monkeypatch.setattr(gathers, "_record_take", noted)
    return found


@pytest.mark.parametrize("looked_at", [1 << 16, 20])
@pytest.mark.parametrize("name", LATER)
def test_read_later(name, looked_at, taken):
    with checking(looked_at):
        same(f"{MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {LATER[name]}\n")
    assert taken


@pytest.mark.parametrize("looked_at", [1 << 16, 20])
@pytest.mark.parametrize("name", LEFT)
def test_left_to_numpy(name, looked_at):
    with checking(looked_at):
        same(f"{MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {LEFT[name]}\n")


def test_neighbours_of_one_place_cost_one_look(monkeypatch):
    looks = []
    plain = bounded._compute_bounds
    monkeypatch.setattr(bounded, "_compute_bounds", lambda *given: looks.append(1) or plain(*given))
    line = "m = m * 1; k = k % 3; a[0].sum() + k.sum(); return sum(a[i[:, None], m, k + n] * n for n in (0, 1, -2))"
    with checking(20):
        same(f"{MAKE}\n@jit\ndef f(a, i, j, k, m):\n    {line}\n", calls=1)
    assert len(looks) == 2
