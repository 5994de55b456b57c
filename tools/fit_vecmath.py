"""Makes the coefficients in ``jitla/codegen/vecmath/coefficients.py``.

Method: least squares at Chebyshev nodes with 60 digits (within a factor of two of minimax),
the coefficients rounded one after the other, lowest first, each time refitting the rest.
"""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Callable

import numpy as np
from mpmath import mp, mpf

mp.dps = 60
LN2, LN10 = mp.log(2), mp.log(10)
Core = Callable[[mpf], mpf]


def nodes(lo: mpf, hi: mpf, count: int) -> list[mpf]:
    """Chebyshev nodes of an interval."""
    points = [mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    return [(lo + hi) / 2 + (hi - lo) / 2 * p for p in points]


def rounded(value: mpf, dtype: type) -> float:
    """The nearest number of the format."""
    return float(dtype(float(value)))


def polynomial(f: Core, lo: float, hi: float, degree: int, dtype: type) -> list[float]:
    """Coefficients of near-minimax absolute error, lowest first."""
    done: list[float] = []
    xs = nodes(mpf(lo), mpf(hi), 4 * (degree + 1))
    fs = [f(x) for x in xs]
    while len(done) <= degree:
        rest = [y - evaluate(done, x) for x, y in zip(xs, fs, strict=True)]
        powers = range(len(done), degree + 1)
        system = mp.matrix([[x**j for j in powers] for x in xs])
        done.append(rounded(mp.lu_solve(system, mp.matrix(rest))[0], dtype))
    return done


def rational(
    f: Core, lo: float, hi: float, top: int, bottom: int, dtype: type
) -> tuple[list[float], list[float]]:
    """P and Q with Q(0) = 1 and f ~ P / Q."""
    xs = nodes(mpf(lo), mpf(hi), top + 1 + bottom)
    fs = [f(x) for x in xs]
    rows = [
        [x**j for j in range(top + 1)] + [-y * x**j for j in range(1, bottom + 1)]
        for x, y in zip(xs, fs, strict=True)
    ]
    c = [rounded(v, dtype) for v in mp.lu_solve(mp.matrix(rows), mp.matrix(fs))]
    return c[: top + 1], [1.0, *c[top + 1 :]]


def worst(f: Core, approx: Core, lo: float, hi: float) -> float:
    """Largest error on a grid, relative to the function's largest value."""
    xs = [mpf(lo) + (mpf(hi) - mpf(lo)) * i / 400 for i in range(1, 401)]
    scale = max(abs(f(x)) for x in xs)
    return float(max(abs(approx(x) - f(x)) for x in xs) / scale)


def evaluate(c: list[float], x: mpf) -> mpf:
    """The polynomial in exact arithmetic."""
    return mp.polyval([mpf(v) for v in reversed(c)], x) if c else mpf(0)


def series(f: Core, limit: mpf, small: float = 1e-12) -> Core:
    """f with its limit at zero, where the closed form cancels."""
    return lambda x: limit if abs(x) < small else f(x)


def log_rest(z: mpf) -> mpf:
    """R with log((1+s)/(1-s)) = 2s + s*R(z), z = s*s, divided by z."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) / s - 2) / z


def log_far(z: mpf) -> mpf:
    """R with 3*atanh(s)/s = 3 + z + z**2*R(z), z = s*s."""
    s = mp.sqrt(z)
    return (3 * mp.atanh(s) / s - 3 - z) / z**2


def log2_whole(z: mpf) -> mpf:
    """L with log2((1+s)/(1-s)) = s*L(z), z = s*s."""
    s = mp.sqrt(z)
    return 2 * mp.atanh(s) / s / LN2


def erf_rest(z: mpf) -> mpf:
    """R with erf(x) = x + x*R(z), z = x*x."""
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def erfcx_rest(q: mpf) -> mpf:
    """W with erfc(x) = e**(-x*x - 1/2) * (1 + W(q)) / (x + 1/2), q = (x - 3)/(x + 3)."""
    x = 3 * (1 + q) / (1 - q)
    return (x + mpf(1) / 2) * mp.erfc(x) * mp.exp(x * x + mpf(1) / 2) - 1


def cosh_rest(z: mpf) -> mpf:
    """C with cosh(x) = 1 + z*C(z), z = x*x."""
    return (mp.cosh(mp.sqrt(z)) - 1) / z


def odd_rest(f: Core) -> Core:
    """R with f(x) = x + x*z*R(z), z = x*x."""
    return lambda z: (f(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def cos_rest(z: mpf) -> mpf:
    """C with cos(x) = 1 - z/2 + z**2*C(z), z = x*x."""
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


NONE = -1  # float32 takes float64's
QUARTER = float(mp.pi / 4) * 1.0001
HALF = float(LN2 / 2) * 1.0001
S = (float(mp.sqrt(2)) - 1) / (float(mp.sqrt(2)) + 1)
POLYNOMIALS: list[tuple[str, Core, float, float, int, int]] = [
    # name, core, interval, degree for float64, degree for float32
    ("EXP", series(lambda r: (mp.exp(r) - 1 - r) / r**2, mpf(1) / 2), -HALF, HALF, 9, 4),
    (
        "EXP2",
        series(lambda r: (2**r - 1 - r * LN2) / r**2, LN2**2 / 2),
        -0.50001,
        0.50001,
        10,
        4,
    ),
    ("COSH", series(cosh_rest, mpf(1) / 2, 1e-20), 0.0, HALF**2, 5, 2),
    ("SINH", series(odd_rest(mp.sinh), mpf(1) / 6, 1e-20), 0.0, HALF**2, 5, 2),
    ("ATANH", series(odd_rest(mp.atanh), mpf(1) / 3, 1e-20), 0.0, 0.0762, 8, 3),
    ("ASIN", series(odd_rest(mp.asin), mpf(1) / 6, 1e-20), 0.0, 0.25, 12, 4),
    ("ATAN", series(odd_rest(mp.atan), mpf(-1) / 3, 1e-20), 0.0, 0.3601, 14, 5),
    ("SIN", series(odd_rest(mp.sin), -mpf(1) / 6, 1e-20), 0.0, QUARTER**2, 5, NONE),
    ("COS", series(cos_rest, mpf(1) / 24, 1e-20), 0.0, QUARTER**2, 5, NONE),
    ("SIN_SHORT", series(odd_rest(mp.sin), -mpf(1) / 6, 1e-20), 0.0, QUARTER**2, 2, NONE),
    ("COS_SHORT", series(cos_rest, mpf(1) / 24, 1e-20), 0.0, QUARTER**2, 2, NONE),
    ("CBRT", mp.cbrt, 0.7071, 1.4143, 5, 2),
    ("ERF", series(erf_rest, 2 / mp.sqrt(mp.pi) - 1, 1e-20), 0.0, 0.2501, 8, 4),
    ("ERFCX", erfcx_rest, -0.7143, 0.8066, 21, 10),
    ("POW_LOG", series(log_far, mpf(3) / 5, 1e-20), 0.0, S * S * 1.0001, 7, NONE),
    ("POW_LOG2_SHORT", series(log2_whole, 2 / LN2, 1e-20), 0.0, S * S * 1.0001, 4, NONE),
    ("POW_EXP2_SHORT", lambda r: 2**r, -0.50001, 0.50001, 7, NONE),
    ("LOG", series(log_rest, mpf(2) / 3, 1e-20), 0.0, S * S * 1.0001, 6, 2),
]
RATIONALS: list[tuple[str, Core, float, float, tuple[int, int], tuple[int, int]]] = [
    ("TANH", series(odd_rest(mp.tanh), mpf(-1) / 3, 1e-20), 0.0, 0.391, (2, 3), (1, 1)),
]


def split(value: mpf, bits: int, parts: int, dtype: type) -> list[float]:
    """A constant as a sum of parts; all but the last have at most ``bits`` bits."""
    out = []
    for i in range(parts):
        if i == parts - 1:
            out.append(rounded(value, dtype))
            break
        exponent = int(mp.floor(mp.log(abs(value), 2))) + 1 - bits
        head = mp.nint(value / mpf(2) ** exponent) * mpf(2) ** exponent
        out.append(float(head))
        value -= head
    return out


# name, value, parts, bits of the leading parts (float64, float32). The leading part times
# an exponent (11 or 8 bits) or times a half mantissa (26 or 12 bits) has to be exact.
CONSTANTS: list[tuple[str, mpf, int, int, int]] = [
    ("LN2_EXPONENT", LN2, 2, 42, 15),
    ("LN2_HALVES", LN2, 2, 26, 12),
    ("LOG2E_HALVES", 1 / LN2, 2, 26, 12),
    ("LOG10E_HALVES", 1 / LN10, 2, 26, 12),
    ("POW_LOG2E", 2 / (3 * LN2), 2, 26, 12),
    ("LOG10_2_EXPONENT", LN2 / LN10, 2, 42, 15),
    ("LOG2E", 1 / LN2, 1, 53, 24),
    ("PI", mp.pi, 2, 53, 24),
    ("HALF_PI", mp.pi / 2, 4, 33, 12),
    ("HALF_PI_SHORT", mp.pi / 2, 2, 33, 12),
    ("ROOT_HALF", mp.sqrt(mpf(1) / 2), 2, 26, 12),
    ("TWO_OVER_PI", 2 / mp.pi, 1, 53, 24),
    ("CBRT2", mp.cbrt(2), 1, 53, 24),
]


def digits() -> list[int]:
    """The words of 2/pi."""
    with mp.workprec(1400):
        number = int(mp.floor(2 / mp.pi * mpf(2) ** (64 * 19)))
    return [number >> (64 * (19 - i)) & (2**64 - 1) for i in range(20)]


def table(dtype: type, suffix: int) -> list[str]:
    """The lines of one format's table."""
    lines = []
    for name, f, lo, hi, d64, d32 in POLYNOMIALS:
        degree = d64 if suffix == 64 else d32
        if degree == NONE:
            continue
        c = polynomial(f, lo, hi, degree, dtype)
        e = worst(f, lambda x, c=c: evaluate(c, x), lo, hi)
        lines += [f"    # degree {len(c) - 1}, error {e:.1e}", *entry(name, c)]
    for name, f, lo, hi, q64, q32 in RATIONALS:
        p, q = rational(f, lo, hi, *(q64 if suffix == 64 else q32), dtype)
        e = worst(f, lambda x, p=p, q=q: evaluate(p, x) / evaluate(q, x), lo, hi)
        lines.append(f"    # degrees {len(p) - 1}/{len(q) - 1}, error {e:.1e}")
        lines += entry(f"{name}_P", p) + entry(f"{name}_Q", q)
    for name, value, parts, b64, b32 in CONSTANTS:
        lines += entry(name, split(value, b64 if suffix == 64 else b32, parts, dtype))
    return lines


def entry(name: str, numbers: list[float]) -> list[str]:
    """One entry of a table, filled lines."""
    text = " ".join(f"{v!r}," for v in numbers)
    lines = textwrap.wrap(text, 88, break_on_hyphens=False)
    return [f'    "{name}": (', *(f"        {line}" for line in lines), "    ),"]


def main(path: str) -> None:
    """Write the table file."""
    text = [
        '"""Coefficients and split constants of the vector math functions.',
        "",
        "The lowest coefficient comes first.",
        "Made by ``tools/fit_vecmath.py``; do not edit by hand.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        '__all__ = ["TABLES", "TWO_OVER_PI_WORDS"]',
        "",
        "F64: dict[str, tuple[float, ...]] = {",
        *table(np.float64, 64),
        "}",
        "F32: dict[str, tuple[float, ...]] = {",
        *table(np.float32, 32),
        "}",
        "TABLES = {64: F64, 32: F32}",
        "",
        "# The binary digits of 2/pi behind 64 zeros, 64 a word: for arguments up to 2**1024.",
        "TWO_OVER_PI_WORDS = (",
        *textwrap.indent(
            textwrap.fill(" ".join(f"0x{word:016X}," for word in digits()), 92), "    "
        ).split("\n"),
        ")",
    ]
    pathlib.Path(path).write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
