"""Rows O1 to O9: complex numbers."""

from __future__ import annotations

import itertools
import linecache
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import jitla
from tests.semantics.oracle import check, nothing_compiles

# Rows O1 to O9 of the semantics sheet: complex numbers, compiled and handed on.

DTYPES = ("c16", "c8")
MAKE = """
def make(n):
    z = array((n,), {dtype!r}, 'C', 'special', n)
    w = array((n,), {dtype!r}, 'C', 'normal', n + 1)
    return z, w, array((n,), 'f8', 'C', 'normal', n + 2)
"""
EXPRESSIONS = {
    "o1 order": (
        "z < w, z >= w, z > w, z <= z, np.maximum(z, w), np.minimum(w, z), np.fmax(z, w), "
        "np.fmin(z, w)"),
    "o1 equality": "z == w, z != z, (z == z).all(), z.any(), w.all()",
    "o1 extremes": "w.max(), w.min(), w.argmax(), np.sort(w), z.max(), np.argmin(z)",
    "o2 products": "z * w, z * 1j, x * 1j, z * x, 2 * z, z * True, z * np.complex64(2 + 1j), z * z",
    "o2 quotients": "z / w, w / z, z / 0, 1 / z, z / 2, x / w, w / np.float32(3), np.reciprocal(z)",
    "o3 product with the conjugate": (
        "(w * w.conj()).imag, (w * np.conj(w)).real, w.conjugate() * w"),
    "o4 powers": (
        "z ** 2, z ** 0.5, z ** -1, z ** 1, z ** 2.0, z ** -1.0, w ** 3, w ** 0, w ** 2.5, w **"
        " 1j, 2 ** w, w ** w, x ** 1j"),
    "o4 powers of ufuncs": "np.power(z, 2), np.square(z), np.power(w, 0.5), np.float_power(w, 2)",
    "o5 branch cuts": (
        "np.sqrt(-z), np.log(-z), np.angle(-z).round(2), np.sqrt(x + 0j), "
        "np.angle(w, deg=True).round()"),
    "o5 other functions": (
        "np.exp(1j * x), np.sin(w), np.cos(w), np.tanh(w), np.arctan(w), np.log1p(w)"),
    "o6 magnitude": "abs(z), np.abs(w) ** 2, np.absolute(z * w), np.linalg.norm(w), abs(w.sum())",
    "o7 statistics": (
        "np.vdot(z, w), np.dot(w, w), w @ w, w.var(), (w * 2).std(), w.mean(), np.mean(z * w)"),
    "o7 rounding and signs": (
        "np.round(w, 2), np.sign(z), w.round(1), np.rint(w), np.clip(w, 0, 1), -z, +z"),
    "o7 classes": (
        "np.isnan(z), np.isinf(z), np.isfinite(z), np.isreal(w), np.iscomplex(w * 1), "
        "np.iscomplexobj(w), np.isrealobj(x), np.iscomplexobj(x * 2), np.real_if_close(w)"),
    "o7 logic": (
        "np.logical_and(z, w), np.logical_not(z), np.logical_xor(z, x), z.astype(bool), "
        "bool(w[0])"),
    "o7 casts": (
        "w.astype('c8') * 2, x.astype(complex) + z, (w * 2).astype('c16'), (x > "
        "0).astype('c8'), np.arange(3).astype(complex) * 1j"),
    "o8 parts": (
        "z.real * 2, z.imag + z.real, (z * w).real, (z * w).imag + 1, np.real(z), np.imag(w * "
        "2), np.real(x) is x, x.real is x, x.imag, x.conj() is x, (w * 2).conj()"),
    "o8 flags of parts": (
        "x.imag.flags.writeable, (w + 1).real.flags.writeable, (w + 1).real.strides, (w + "
        "1).imag.base is None, w.real.base is w"),
    "o9 sums": (
        "z.sum(), w.sum(), (w * z).sum(), w.prod(), np.cumsum(w), w[::2].sum(), (w + "
        "1)[::-1].sum()"),
    "where": (
        "np.where(x > 0, z, w), np.where(z.imag > 0, w * 2, x), np.where(x > 0, 1j, w), "
        "np.where(w, 1, 2j)"),
    "scalars": (
        "w[0] * w[1], w.sum() * w[0] / w[1], w[0].real, w[0].conj(), complex(w.sum()), w[0] ** "
        "2, w[0] == 1, type(w[0] * 2), type(w.sum().imag), abs(w[0]), w.sum() * 2 + 1j, w * "
        "w.sum(), w / abs(w).max()"),
    "weak numbers": (
        "w + 1j, w * 2.5, w - (1 + 2j), 3 / w, x + (0 + 0j), x * complex(1, -0.0), "
        "np.float32(2) * w, w * np.complex128(1j), (x > 0) * 1j, np.arange(len(x)) * 1j"),
    "transform": "np.fft.fft(w * 2), np.fft.ifft(np.fft.fft(w) * w).real, np.conj(np.fft.rfft(x))",
    "joined": (
        "np.concatenate([w, x]), np.concatenate([w * 2, z]), np.stack([w, z]), np.array([w[0], "
        "1])"),
}
BODIES = {
    "o8 write through a part": "z.imag[0] = 9\nz.real[1:] *= 2\nz.real += x\nreturn z",
    "o8 assign a part": (
        "z.real = x\nz.imag = 3\ny = w * 2\ny.real = x\ny.imag[1:] = 0\nreturn z, y"),
    "o8 parts of a pending value": (
        "y = z * w\nr, i = y.real, y.imag\nr += 1\ni[0] = 5\nreturn y, r, i, y.real"),
    "o8 part kept over a write": "y = w + 1j\nr = y.real\ny *= 2\nreturn r, y.imag, y",
    "o8 part of a view": "y = (w * 2)[1:]\nr = y.real\nr[0] = 7\nreturn y, r",
    "o8 read-only part of reals": (
        "try:\n    x.imag[0] = 1\nexcept ValueError as e:\n    return str(e)"),
    "o8 no part of reals": "try:\n    x.imag = 9\nexcept TypeError as e:\n    return str(e)",
    "o8 parts as operands": "r = (z * w).real\nt = r * 2\nreturn t, r",
    "o8 dropped part": (
        "y = z * w\nr = y.real\nt = (r * r).sum()\nif t > 0:\n    t += r[0]\nreturn t"),
    "o7 no quotient": "try:\n    return z // w\nexcept TypeError as e:\n    return str(e)",
    "o7 no remainder": "try:\n    return w % 2\nexcept TypeError as e:\n    return str(e)",
    "o7 no float": "try:\n    return float(w[0])\nexcept TypeError as e:\n    return str(e)",
    "o7 no floor": "try:\n    return np.floor(w)\nexcept TypeError as e:\n    return str(e)",
    "o7 no arctan2": "try:\n    return np.arctan2(w, w)\nexcept TypeError as e:\n    return str(e)",
    "o7 in place into reals": "try:\n    x *= w\nexcept TypeError as e:\n    return str(e), x",
    "in place": "z *= w\nw += 1j\nz -= w\nz /= 3\ny = z * 2\ny **= 2\nreturn z, w, y",
    "in place, one number": (
        "y = w[:1] * 2\nfor _ in range(9):\n    w[:1] *= np.exp(1j * x[:1])\n    y *= w[1:2] * 2\n"
        "    np.multiply(y, z[:1] * 1, out=y)\nreturn w, y"),
    "in place with reals": "w += x\nw *= 2\ny = w * 1\ny -= x\nreturn w, y",
    "stores": "z[1:] = w[:-1] * 2\nw[::2] = x[::2]\nw[0] = 1 + 2j\nreturn z, w",
    "out": "np.multiply(z, w, out=w)\nnp.add(w, 1, out=z)\nnp.absolute(w, out=x)\nreturn z, w, x",
    "views": (
        "y = w * 1\nv = y.view(x.real.dtype if y.itemsize == 16 else np.float32)\nv += "
        "1\nreturn y, v"),
    "iteration": "s = 0\nfor v in w[:5]:\n    s += v * v\nreturn s, [v for v in (w * 2)[:3]]",
    "loop": "for _ in range(4):\n    w = w * w / (1 + abs(w)) + 1j * x\nreturn w",
    "iterated map": (
        "c = w * 2\ny = np.zeros_like(c)\nm = np.ones(len(x), bool)\nfor _ in range(6):\n    y "
        "= np.where(m, y * y + c, y)\n    m = m & (abs(y) <= 2)\nreturn y, m"),
    "masked": "m = w.real > 0\nw[m] = 1j\nw[~m] *= 2\nreturn w, w[m].sum()",
    "branch": "if (w * 2).real.sum() > 0:\n    return w + 1\nreturn w - 1j",
}


def indented(body: str) -> str:
    return "\n".join("    " + line for line in body.splitlines())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_complex_expressions_give_numpys_results(name: str, dtype: str) -> None:
    check(f"@jit\ndef f(z, w, x):\n    return {EXPRESSIONS[name]}\n{MAKE.format(dtype=dtype)}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BODIES)
def test_complex_functions_give_numpys_results(name: str, dtype: str) -> None:
    check(f"@jit\ndef f(z, w, x):\n{indented(BODIES[name])}\n{MAKE.format(dtype=dtype)}")


LAYOUTS = ("C", "F", "sliced", "reversed", "permuted", "broadcast", "offset")


# Products of reversed complex64 are a written difference, tested below.
@pytest.mark.parametrize(
    "layout, dtype", [(at, d) for at in LAYOUTS for d in DTYPES if (at, d) != ("reversed", "c8")])
@pytest.mark.parametrize("second", ["C", "permuted", "sliced"])
def test_layouts(layout: str, second: str, dtype: str) -> None:
    check(
        f"""
@jit
def f(z, w, row):
    y = z * w + row * 1j
    r = (y.real + z.imag) * 2
    return (y, r, y.sum(), y.sum(axis=0), y.sum(axis=1), z.sum(axis=0), z.sum(axis=1), z.sum(),
            y.T.sum(axis=0), z.real.sum(axis=1), y.imag.sum(), abs(y), y.mean(axis=0),
            (z != 0).any(axis=1), z.imag, w.conj())
def make(n):
    return (array((n, n + 1), {dtype!r}, {layout!r}, 'normal', n),
            array((n, n + 1), {dtype!r}, {second!r}, 'special', n + 1),
            array((n + 1,), {dtype!r}, 'C', 'normal', 3))
""",
        sizes=(1, 2, 3, 17, 100),
    )


@jitla.jit
def product(x, y):
    return x * y


@jitla.jit
def scalars(x, y):
    s, t = x.sum(), y.sum()
    return np.multiply(s, t), np.absolute(s), s * t, abs(s)


def units(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest distance in units of the last place of the larger part."""
    larger = np.maximum(abs(wanted.real), abs(wanted.imag))
    apart = np.maximum(abs(found.real - wanted.real), abs(found.imag - wanted.imag))
    return float((apart / np.spacing(larger)).max())


def test_o3_products_of_reversed_complex64_are_rounded_as_others() -> None:
    """The written difference: NumPy's fused loop takes no negative strides of complex64."""
    rng = np.random.default_rng(3)
    x, y = ((rng.standard_normal(5000) + 1j * rng.standard_normal(5000)).astype("c8") for _ in range(2))
    with jitla.options(compile="sync"):
        found = product(x[::-1], y)
    assert found.tobytes() == (x[::-1].copy() * y).tobytes()
    assert units(found, x[::-1] * y) <= 2


def test_o3_scalars_are_multiplied_as_their_operators_do() -> None:
    """The written difference: of scalars, the ufunc's name does what the operator does."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        x, y = (rng.standard_normal(50) + 1j * rng.standard_normal(50) for _ in range(2))
        found, wanted = scalars(x, y), scalars.__wrapped__(x, y)
        assert found[2:] == wanted[2:]
        assert all(units(np.array(f), np.array(w)) <= 2 for f, w in zip(found, wanted, strict=True))


@pytest.mark.parametrize("compiles", [True, False])
def test_o2_complex_scalars_with_nan_are_ordered_as_scalars(
    compiles: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    @jitla.jit
    def f(x, y):
        s, t = x.max(), y[0]
        return s > 1, s < 2, s >= t, s <= t, (x > t).any(), s == t

    with nullcontext() if compiles else nothing_compiles(monkeypatch):
        for first in (complex(1.5, np.nan), complex(np.nan, 1.5), complex(2, 0)):
            x = np.array([first, 1 + 1j])
            with np.errstate(all="ignore"):
                assert f(x, x[1:]) == f.__wrapped__(x, x[1:])


@pytest.mark.parametrize("first, second", [("F", "d"), ("F", "F"), ("D", "d"), ("D", "F"), ("f", "D")])
def test_o2_scalars_of_two_types_are_ordered_as_those(first: str, second: str) -> None:
    def f(x, y):
        s, t, r = x.sum(), y.sum(), x[0]
        return s > t, t < s, s <= t, t >= s, r < t, t > r, s > y[0], np.less(s, t), s < x, r > y

    fast, parts = jitla.jit(f), (-np.inf, 1.0, np.nan)
    values = np.array([complex(a, b) for a in parts for b in parts])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in itertools.product(values[:, None].astype(first), values[:, None].astype(second)):
            assert repr(fast(x, y)) == repr(f(x, y))


def test_o7_the_warning_of_a_lost_imaginary_part_is_numpys() -> None:
    text = "def f(w, x):\n    y = w * 2\n    x[:] = y\n    return y.astype(float)\n"
    linecache.cache["<lost>"] = (len(text), None, text.splitlines(True), "<lost>")
    names: dict = {"__name__": "lost"}
    exec(compile(text, "<lost>", "exec"), names)
    found = []
    for f in (names["f"], jitla.jit(names["f"])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            f(np.array([1 + 1j, 2]), np.zeros(2))
        found.append([(w.category, str(w.message)) for w in caught])
    assert len(found[0]) == 2 and found[0] == found[1]


def test_programs_of_complex_numbers_are_compiled() -> None:
    @jitla.jit
    def f(z, w):
        y = z * w + 1j
        return abs(y / w.conj()) ** 2, y.sum(), np.where(y.real > 0, y, 0)

    z = np.linspace(0, 1, 5000) + 1j
    with jitla.options(compile="sync"):
        f(z, z)
    found = dict(f.stats())
    assert found["numpy_calls"] == found["fallbacks"] == found["failures"] == 0
