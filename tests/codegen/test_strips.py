"""Long bodies in strips: the bits of the body in one piece, for any length, layout and overlap."""

from __future__ import annotations

import numpy as np
import pytest

from jitla.codegen.kernels import body as strips
from jitla.fusion import Schedule
from jitla.hops import Hop, Meta, apply, leaf
from tests.codegen.driver import run_cells

RNG = np.random.default_rng(5)
NAMES = ("exp", "tanh", "sin", "log1p", "exp", "exp2", "cbrt", "expm1")


def _body(x: Hop, y: Hop) -> list[Hop]:
    """Return results of several functions, the first one ready early, and a choice by a mask made early."""
    early = apply("exp", apply("negative", x))
    mask = apply("less", early, y)
    total = early
    for name in NAMES:
        total = apply("add", apply(name, apply("multiply", total, y)), x)
    return [early, apply("where", mask, total, y), mask]


def _ran(
    arrays: list[np.ndarray], outs: list[np.ndarray], schedule: Schedule, chunk: int = 0,
) -> list[np.ndarray]:
    leaves = [leaf(i, Meta(a.shape, a.dtype), "array") for i, a in enumerate(arrays)]
    run_cells(_body(*leaves), arrays, outs, schedule, chunk)
    return outs


def _results(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    return [np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, bool)]


def _arrays(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    return [RNG.uniform(0.05, 0.9, shape).astype(dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (8,), (333,), (2051,), (3, 5), (5, 64), (2, 700), (3, 2, 41)], ids=str)
def test_bits_are_those_of_one_piece(
    shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = _arrays(shape, dtype)
    turned = [arrays[0], np.repeat(arrays[1], 2, axis=-1)[..., ::2]]
    for given in (arrays, turned):
        for schedule in (Schedule(), Schedule(nontemporal=True)):
            got = _ran(given, _results(shape, dtype), schedule, chunk=1)
            with monkeypatch.context() as patch:
                patch.setattr(strips, "INSTRUCTIONS", 10**6)
                want = _ran(given, _results(shape, dtype), schedule)
            for g, w in zip(got, want, strict=True):
                assert g.tobytes() == w.tobytes()


def test_results_may_overwrite_operands() -> None:
    x, y = _arrays((3000,), "f8")
    want = _ran([x, y], _results((3000,), "f8"), Schedule())
    first, second, mask = x.copy(), y.copy(), np.empty(3000, bool)
    _ran([first, second], [first, second, mask], Schedule())
    for g, w in zip((first, second, mask), want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_long_bodies_are_cut_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[int] = []
    parts = strips.parts
    monkeypatch.setattr(strips, "parts", lambda loop: cut.append(len(found := parts(loop))) or found)
    x, y = _arrays((100,), "f8")
    _ran([x, y], _results((100,), "f8"), Schedule())
    out = np.empty(100)
    run_cells([apply("exp", leaf(0, Meta(x.shape, x.dtype), "array"))], [x], [out], Schedule(), 0)
    assert cut[0] > 2 and cut[-1] == 1
