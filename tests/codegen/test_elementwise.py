"""Recipes of element-wise operators give NumPy's bits and floating-point flags."""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
import warnings
from string import Template

import numpy as np
import pytest

from jitla.codegen import Jit, host_target
from jitla.codegen.ir_elementwise import LlvmBuilder, float_ir, quiet
from jitla.hops import Kind, Meta, all_ops, const, leaf, make
from tests.codegen.driver import BACKEND, run_cells

# Every recipe that the backend accepts: NumPy's bits, in vectors and in tails.

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


# Short ways of division are exact: near multiples, at the limits, for all magnitudes.

N = 2051


def floats(dtype: np.dtype, rng: np.random.Generator) -> list[np.ndarray]:
    """Return arrays of several magnitudes."""
    normal, wide = rng.standard_normal(N), 10 if dtype.itemsize == 4 else 290
    powers = 10.0 ** rng.integers(-wide, wide, N)
    eighths = rng.integers(-50, 50, N) / 8
    return [a.astype(dtype) for a in (normal, normal * powers, eighths, eighths * 0.1)]


def compare(x: np.ndarray, y: np.ndarray) -> None:
    """Compare the three divisions of `x` by `y` with NumPy, signs of zeros included."""
    a, b = (leaf(i, Meta((N,), x.dtype)) for i in range(2))
    for name in ("remainder", "floor_divide", "fmod"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(np, name)(x, y)
        got = np.empty_like(want)
        run_cells([make(name, (a, b))], [x, y], [got])
        np.testing.assert_array_equal(got, want, err_msg=name)
        if x.dtype.kind == "f":
            there = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(want)[there])


@pytest.mark.parametrize("dtype", [np.dtype("f8"), np.dtype("f4")], ids=str)
def test_float_remainders(dtype: np.dtype) -> None:
    rng = np.random.default_rng(1)
    for x in floats(dtype, rng):
        for y in floats(dtype, rng):
            compare(x, y)
            near = (y * rng.integers(1, 2**20, N)).astype(dtype)
            compare(np.nextafter(near, rng.choice([-np.inf, np.inf], N).astype(dtype)), y)
            compare(near, y)


@pytest.mark.parametrize("dtype", [np.dtype("i8"), np.dtype("u8")], ids=str)
@pytest.mark.parametrize("bits", [3, 20, 40, 50, 51, 52, 53, 62])
def test_integer_quotients(dtype: np.dtype, bits: int) -> None:
    rng = np.random.default_rng(bits)
    low = -(2**bits) if dtype.kind == "i" else 0
    x = rng.integers(low, 2**bits, N, dtype)
    for small in (3, bits // 2, bits):
        y = rng.integers(-(2**small) if dtype.kind == "i" else 0, 2**small, N, dtype)
        compare(x, y)
        compare(x // np.where(y == 0, 1, y) * y, y)


def by_scalar(x: np.ndarray, y: np.generic, constant: bool) -> None:
    """Compare the divisions of `x` by the scalar `y`, an operand or a `constant`, with NumPy."""
    a = leaf(0, Meta((N,), x.dtype))
    for name in ("remainder", "floor_divide", "fmod"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(np, name)(x, y)
        b = const(y, x.dtype) if constant else leaf(1, Meta((), x.dtype), "scalar")
        got = np.empty_like(want)
        run_cells([make(name, (a, b))], [x] if constant else [x, y], [got])
        np.testing.assert_array_equal(got, want, err_msg=f"{name} {y}")


@pytest.mark.parametrize("code", list("bBhHiIqQ"))
def test_integers_by_a_scalar(code: str) -> None:
    dtype = np.dtype(code)
    rng, info = np.random.default_rng(5), np.iinfo(dtype)
    places = 8 * dtype.itemsize - (dtype.kind == "i")
    divisors = {0, 1, 2, 3, 7, 10, info.max, info.max - 1, info.max // 2 + 1}
    divisors |= {2**k + d for k in (5, 12, 21, 30, 48, 49, 50, 51, 62) if k < places for d in (-1, 0, 1)}
    if dtype.kind == "i":
        divisors |= {-d for d in divisors} | {info.min, info.min + 1}
    for y in sorted(divisors):
        for bits in {3, min(places, 31), min(places, 48), min(places, 49), places}:
            low = -(2**bits) if dtype.kind == "i" else 0
            x = rng.integers(low, 2**bits, N, dtype, endpoint=False)
            near = (x.astype(object) // (y or 1) * (y or 1)).tolist()
            x[N // 2:] = [min(max(v + k % 3 - 1, low), 2**bits - 1) for k, v in enumerate(near[N // 2:])]
            x[:4] = info.min, info.max, 0, 1
            if bits < places:
                x[:2] = low, 2**bits - 1
            by_scalar(x, dtype.type(y), constant=bits == places and abs(y) < 8)


@pytest.mark.parametrize("dtype", [np.dtype("f8"), np.dtype("f4")], ids=str)
@pytest.mark.parametrize("to", [np.dtype(c) for c in "bhiqBHQ"], ids=str)
def test_casts_to_integers(dtype: np.dtype, to: np.dtype) -> None:
    rng = np.random.default_rng(3)
    for x in [*floats(dtype, rng), *(rng.standard_normal(N).astype(dtype) * 2.0**k for k in (50, 51, 52))]:
        for special in ((), (np.nan, np.inf, -np.inf, -0.0, 2.0**63, -(2.0**63), 2.0**31, 0.5, -0.5)):
            x = x.astype(dtype)
            x[100:100 + len(special)] = special
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                want = x.astype(to)
            got = np.empty(N, to)
            run_cells([make("cast", (leaf(0, Meta((N,), dtype)),), dtype=to)], [x], [got])
            np.testing.assert_array_equal(got, want)


# The processor's flags: read and set on every way, and not raised by comparisons.

linux = pytest.mark.skipif(
    sys.platform != "linux" or not host_target().triple.startswith("x86_64"), reason="x86 Linux")
_ENV = ("fetestexcept", "feclearexcept", "feraiseexcept")


def loaded(library: bool):
    """`get` and `set` as C functions, by the processor's own instructions or by the C library's."""
    names = {name: f"@{name}.table" for name in _ENV}
    tables = "".join(f"@{name}.table = global ptr null\n" for name in _ENV) if library else ""
    text = Template(float_ir("x86_64", library)).substitute(names) if library else float_ir("x86_64")
    doors = """
define i32 @get() { %v = call i32 @float.get()
  ret i32 %v }
define void @set(i32 %v) { call void @float.set(i32 %v)
  ret void }
"""
    exported = ("get", "set", *((f"{n}.table" for n in _ENV) if library else ()))
    code = Jit().load(tables + text + doors, exported)
    if library:
        libm = ctypes.CDLL("libm.so.6")
        for name in _ENV:
            at = ctypes.cast(getattr(libm, name), ctypes.c_void_p).value
            ctypes.c_void_p.from_address(code.addresses[f"{name}.table"]).value = at
    get = ctypes.CFUNCTYPE(ctypes.c_int)(code.addresses["get"])
    put = ctypes.CFUNCTYPE(None, ctypes.c_int)(code.addresses["set"])
    return code, get, put


@linux
@pytest.mark.parametrize("library", [False, True])
def test_flags_are_set_and_read(library: bool) -> None:
    code, get, put = loaded(library)
    base = get() & ~0x3F
    for flags in (0, 1, 4, 8, 13, 5, 0):
        put(base | flags)
        assert get() & 13 == flags
    put(base)
    assert code.addresses


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64", "vax"])
@pytest.mark.parametrize("library", [False, True])
def test_every_machine_has_its_text(machine: str, library: bool) -> None:
    text = float_ir(machine, library)
    assert "@float.get()" in text and "@float.set(i32 %v)" in text
    assert set(re.findall(r"\$(\w+)", text)) <= set(_ENV)


def test_only_ordered_comparisons_of_floats_are_rewritten() -> None:
    text = "  %a = fcmp olt <4 x double> %x, splat (double 1.0)\n  %b = icmp slt <4 x i64> %x, %y\n" \
           "  %c = fcmp uno <4 x double> %x, %y\n  %d = fadd <4 x double> %x, %y\n"
    found = quiet(text, frozenset({"avx"}))
    assert found.count("constrained") == 1 and 'metadata !"olt"' in found
    assert quiet(text, frozenset()) == text


_CHOICES = {"divide": ("fdiv {v} %x, %y", 1.0, 4), "to_integer": ("fptosi {v} %x to <{n} x i64>", 1e300, 1),
            "to_single": ("fptrunc {v} %x to <{n} x float>", 1e300, 8)}


@linux
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("name", _CHOICES)
def test_choices_compute_what_they_do_not_choose(name: str, lanes: int) -> None:
    """An operation whose result is not chosen still raises its flag."""
    line, number, flag = _CHOICES[name]
    vec = f"<{lanes} x double>"
    kind = {"divide": vec, "to_integer": f"<{lanes} x i64>", "to_single": f"<{lanes} x float>"}[name]
    body = f"""define void @f(ptr %to, ptr %given, ptr %other) {{
  %x = load {vec}, ptr %given, align 8
  %y = load {vec}, ptr %other, align 8
  %c = fcmp ogt {vec} %y, splat (double 1.0)
  %q = {line.format(v=vec, n=lanes)}
  %p = {"freeze " + kind + " %q" if name == "to_integer" else f"bitcast {kind} %q to {kind}"}
  %s = select <{lanes} x i1> %c, {kind} %p, {kind} zeroinitializer
  store {kind} %s, ptr %to, align 8
  ret void
}}
"""
    code, get, put = loaded(False)
    made = Jit().load(quiet(body, host_target().features), ("f",))
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(made.addresses["f"])
    out, given, other = np.empty(lanes), np.ones(lanes), np.full(lanes, 2.0)
    base = get() & ~0x3F
    for wanted in (0, flag):
        put(base)
        f(out.ctypes.data, given.ctypes.data, other.ctypes.data)
        raised = get() & 13
        put(base)
        assert raised == wanted and code
        given[-1], other[-1] = number, 0.0
