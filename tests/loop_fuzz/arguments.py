"""Arguments of random functions with loops: arrays of any dtype and layout, and numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.loop_fuzz.generate import NUMPY_KINDS, PARAMETERS, is_tame

FLOATING = ("f8", "f8", "f8", "f4", "i8", "i4", "c16")
INTEGER = ("i8", "i8", "i4", "u1", "i1", "u4", "u8", "i2")
ANY = ("f8", "f4", "i8", "i4", "u1", "i2", "u8", "?", "c16", "u2", "c8", "f2", "U3")
_FLOATS = (0.0, 1.0, 2.5, -1.5, 3.0, 0.1, -7.25, 100.0)
_WILD = (-0.0, float("nan"), float("inf"), -float("inf"), 1e308, 1e-310, 1e200)


def is_large(seed: int) -> bool:
    """Return whether arrays are longer than what NumPy adds, or computes, at a time."""
    return random.Random(f"size {seed}").random() < 0.1


class Arguments:
    """Makes the arguments of one seed; the same whenever it is called."""

    def __init__(self, seed: int, variant: int) -> None:
        self.tame, self.is_large = is_tame(seed), is_large(seed)
        self.random = random.Random(f"arguments {seed} {variant}")
        self.wild = self.random.random() < 0.2

    def value(self, dtype: np.dtype) -> Any:
        """Return an element."""
        r = self.random
        if dtype.kind == "b":
            return r.random() < 0.5
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            if self.wild and r.random() < 0.15:
                return int(r.choice((info.min, info.max)))
            return r.randint(-9 if dtype.kind == "i" else 0, 12)
        if dtype.kind == "U":
            return r.choice("abc")
        number = r.choice(_WILD) if self.wild and r.random() < 0.2 else r.choice(_FLOATS)
        if dtype.itemsize == 2 or dtype.kind == "c":
            number = r.choice(_FLOATS)
        return complex(number, r.choice(_FLOATS)) if dtype.kind == "c" else number

    def array(self, dtype: Any, *shape: int) -> np.ndarray:
        """Return an array of any layout."""
        kind = np.dtype(dtype)
        layout = self.random.choice(
            (
                "c",
                "c",
                "c",
                "c",
                "strided",
                "reversed",
                "fortran",
                "offset",
                "unaligned" if self.random.random() < 0.1 else "c",
            )
        )
        data = np.array([self.value(kind) for _ in range(int(np.prod(shape)))], kind).reshape(shape)
        if layout == "strided":
            base = np.zeros((*shape[:-1], 2 * shape[-1] + 1), kind)
            made = base[..., : 2 * shape[-1] : 2]
        elif layout == "reversed":
            made = np.zeros(shape, kind)[::-1]
        elif layout == "fortran":
            made = np.zeros(shape, kind, order="F")
        elif layout == "offset":
            made = np.zeros((shape[0] + 2, *shape[1:]), kind)[1:-1]
        elif layout == "unaligned" and kind.itemsize > 1:
            size = int(np.prod(shape)) * kind.itemsize
            made = np.zeros(size + 1, np.uint8)[1:].view(kind).reshape(shape)
        else:
            made = np.zeros(shape, kind)
        made[...] = data
        if self.random.random() < 0.02:
            made.flags.writeable = False
        return made

    def whole(self) -> int:
        """Return a Python integer."""
        r = self.random
        if r.random() < 0.2:
            return r.choice(
                (
                    2**31 - 1,
                    2**31,
                    -(2**31),
                    2**53,
                    2**53 + 1,
                    2**62,
                    2**63 - 1,
                    -(2**63),
                    2**63,
                    2**62 - 1,
                )
            )
        return r.randint(-5, 12)

    def scalar(self) -> Any:
        """Return a scalar of any kind."""
        r = self.random
        kind = r.choice(("int", "float", "bool", *NUMPY_KINDS))
        if kind == "int":
            return self.whole()
        if kind == "float":
            return r.choice(_WILD) if r.random() < 0.2 else r.choice(_FLOATS)
        if kind == "bool":
            return r.random() < 0.5
        return getattr(np, kind)(self.value(np.dtype(getattr(np, kind))))

    def make(self) -> dict[str, Any]:
        """Return the arguments by name."""
        r = self.random
        n = r.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 5, 6, 7))
        if self.is_large:
            n = r.choice((12, 17, 33, 130, 300))
        width = r.choice((1, 2, 3, 4, 5))
        if r.random() < 0.15:
            width = max(n, 1)
        dtype = "f8" if self.tame else r.choice(FLOATING)
        whole = "i8" if self.tame else r.choice(INTEGER)
        a, b = (
            self.array(dtype, n),
            self.array(dtype if self.tame or r.random() < 0.8 else r.choice(ANY), n),
        )
        c = self.array(whole, n)
        d = self.array(dtype if self.tame else r.choice(ANY), n)
        m, p = self.array(dtype, n, width), self.array(dtype, width, n)
        roll = r.random()
        if roll < 0.06:
            b = a
        elif roll < 0.12:
            base = self.array(dtype, n + 1)
            a, b = base[:-1], base[1:]
        elif roll < 0.16:
            p = m.T
        elif roll < 0.2 and width:
            a = m[:, 0]
        elif roll < 0.24:
            b = a[::-1]
        elif roll < 0.26:
            d = c
        if r.random() < 0.03:
            b = self.array(dtype, n + 1)
        e = np.array(
            [r.randint(-n, n - 1) if r.random() < 0.99 else n for _ in range(n)] if n else [],
            r.choice(("i8", "i8", "i4", "i1" if n < 100 else "i2")),
        )
        q = np.array([r.random() < 0.5 for _ in range(n)], bool)
        t: Any = tuple(r.randint(-2, 5) for _ in range(r.choice((2, 2, 3, 4))))
        if r.random() < 0.2:
            t = list(t)
        k: Any = self.whole()
        if r.random() < 0.1:
            k = np.int64(max(-(2**63), min(k, 2**63 - 1)))
        x = r.choice(_WILD) if self.wild else r.choice(_FLOATS)
        y, z = self.scalar(), self.scalar()
        if self.tame:
            y, z = np.float64(r.choice(_FLOATS)), r.choice(_FLOATS)
        values = (a, b, c, d, m, p, q, e, n, k, x, y, z, t)
        return dict(zip(PARAMETERS, values, strict=True))


def arguments(seed: int, variant: int) -> list[Any]:
    """Return the arguments of a seed, in order."""
    with np.errstate(all="ignore"):
        return list(Arguments(seed, variant).make().values())
