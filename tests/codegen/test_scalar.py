"""Every recipe that the backend accepts gives NumPy's bits, in vectors and in tails."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from jitla.codegen.ir_elementwise import LlvmBuilder
from jitla.hops import Kind, Meta, all_ops, leaf, make
from tests.codegen.driver import BACKEND, run_cells

DTYPES = [np.dtype(c) for c in "?bhilBHILfdFD"]
OPS = {op.name: op for op in all_ops() if op.kind is Kind.CELL and op.name != "cast"}


def samples(dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Return values of `dtype` that ops treat specially, then random ones."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        special = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1]
        special.append(8 * dtype.itemsize)
        special += [-1, -2, -7] if dtype.kind == "i" else []
        return np.array([*special, *rng.integers(info.min, info.max, 8, dtype)], dtype)
    if dtype.kind == "c":
        parts = samples(np.dtype(f"f{dtype.itemsize // 2}"), rng)
        pairs = np.empty((len(parts), len(parts)), dtype)
        pairs.real, pairs.imag = parts[:, None], parts
        return pairs[::2, ::3].ravel()
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    special = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan]
    special += [tiny, -tiny, huge, -huge]
    return np.array([*special, 3, -7, 0.1, 1e-9, *(rng.standard_normal(8) * 100)], dtype)


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Compare bits, but any NaN is NaN."""
    if want.dtype.kind == "c":
        return same(got.real.copy(), want.real.copy()) and same(got.imag.copy(), want.imag.copy())
    if want.dtype.kind == "f":
        nan = np.isnan(want)
        return bool((np.isnan(got) == nan).all()) and got[~nan].tobytes() == want[~nan].tobytes()
    return got.tobytes() == want.tobytes()


def expressible() -> list[tuple[str, tuple[np.dtype, ...]]]:
    """Return every op with every combination of dtypes it takes without a cast."""
    found = []
    for name, op in OPS.items():
        for dtypes in itertools.product(DTYPES, repeat=op.arity or 0):
            try:
                hop = make(name, [leaf(i, Meta((5,), d)) for i, d in enumerate(dtypes)])
            except Exception:  # whatever the table refuses is not asked for
                continue
            if hop.op.transcendental or BACKEND.supports(hop) is not None:
                continue
            found.append((name, dtypes))
    return found


@pytest.mark.parametrize("name", sorted(OPS))
def test_recipe_gives_numpys_bits(name: str) -> None:
    rng = np.random.default_rng(1)
    for _, dtypes in (e for e in expressible_of(name)):
        columns = [samples(d, rng) for d in dtypes]
        grid = [np.concatenate([g.ravel(), g.ravel()[:3]]) for g in np.meshgrid(*columns)]
        hop = make(name, [leaf(i, Meta(g.shape, g.dtype)) for i, g in enumerate(grid)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = np.asarray(OPS[name].ref(*grid))
        got = np.empty_like(want)
        run_cells([hop], grid, [got])
        if name in ("maximum", "minimum", "fmax", "fmin", "clip") and want.dtype.kind == "f":
            got, want = got + 0.0, want + 0.0  # either zero may win
        assert same(got, want), (name, dtypes, [
            (*(g[i] for g in grid), got[i], want[i])
            for i in range(len(got)) if not same(got[i : i + 1], want[i : i + 1])][:8])


def expressible_of(name: str) -> list[tuple[str, tuple[np.dtype, ...]]]:
    """Return the entries of `expressible` for one op."""
    global _ALL
    if _ALL is None:
        _ALL = expressible()
    return [e for e in _ALL if e[0] == name]


_ALL: list[tuple[str, tuple[np.dtype, ...]]] | None = None


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_cast_is_numpys(source: np.dtype) -> None:
    rng = np.random.default_rng(2)
    values = samples(source, rng)
    if source.kind == "f":
        limits = [127.5, 128, 255, 256, -129, 32767.9, 65536, 2.0**31, -(2.0**31), 3e9, 2.0**32]
        limits += [5e9, 2.0**63, -(2.0**63), 1.8e19, 2.0**64, 1e30, -1e30, -3e9, -0.9]
        values = np.concatenate([values, np.array(limits, source)])
    x = leaf(0, Meta(values.shape, source))
    for target in DTYPES:
        hop = make("cast", (x,), dtype=target)
        if BACKEND.supports(hop) is not None:
            lost = source.kind == "c" and target.kind not in "bc"
            assert lost or source.kind == "f" and target == np.uint32
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = values.astype(target)
        got = np.empty_like(want)
        run_cells([hop], [values], [got])
        assert same(got, want), (source, target, values[got != want], got[got != want])


def test_most_of_the_table_is_covered() -> None:
    names = {name for name, _ in expressible()}
    assert len(names) > 45, sorted(set(OPS) - names)


def test_constants_are_written_by_their_bits() -> None:
    b = LlvmBuilder([], 4)
    assert b.const(0.1, np.float64).text == "splat (double 0x3FB999999999999A)"
    assert b.const(0.1, np.float32).text == "splat (float 0x3FB99999A0000000)"
    assert b.const(-1, np.int8).text == "splat (i8 -1)"
    assert b.const(True, np.bool_).text == "splat (i1 true)"
