"""Rows C1 to C17 of the semantics sheet: in place on operands that overlap the target."""

from __future__ import annotations

import pytest

from tests.semantics.oracle import check

VECTOR = {
    "c1": "x[1:] = x[:-1]",
    "c2": "x[1:] += x[:-1]",
    "c3": "x[:-1] += x[1:]",
    "c4": "x[::-1] += x",
    "c5": "x[...] = x[::-1]",
    "c5 copyto": "np.copyto(x[1:], x[:-1])",
    "c6": "np.multiply(x, 2, out=x[::-1])",
    "c7": "np.add(x[0:-2], x[1:-1], out=x[2:])",
    "c9 maximum": "x /= x.max() + 3",
    "c9 last": "x *= x[-1:]",
    "c9 first": "x -= x[0]",
    "c9 mean": "x -= x.mean()",
    "c11": "np.cumsum(x, out=x)",
    "c11 reversed": "np.cumsum(x, out=x[::-1])",
    "c12": "np.clip(x, x[::-1], 3, out=x)",
    "c12 take": "np.take(x, np.arange(len(x))[::-1], out=x)",
    "c13 swap": "x[[2, 0]] = x[[0, 2]]",
    "c15 stencil": "x[1:-1] = x[1:-1] + 0.25 * (x[2:] - 2 * x[1:-1] + x[:-2])",
    "c15 in place": "x[1:-1] += 0.25 * (x[2:] - 2 * x[1:-1] + x[:-2])",
    "two back": "x[2:] = x[1:-1] * 2 - x[:-2]",
    "c17 divmod": "np.divmod(x, 2, out=(x, q))",
    "strided": "x[::2] += x[1::2][0]",
    "every other": "x[1::2] *= x[::2][:len(x[1::2])]",
    "both ends": "x[:len(x) // 2] += x[-(len(x) // 2):]",
    "chain": "y = x[::-1] * 2\nx += y\nx -= y[::-1]",
    "c2 twice": "x[1:] += x[:-1]\nx[1:] += x[:-1]",
    "expression": "x[1:] = np.sqrt(np.abs(x[:-1])) + x[1:] * 2",
    "dot": "x *= x @ x",
    "mask": "x[x > 0] -= 1",
    "mask of itself": "x[x > x.mean()] = x.min()",
    "where": "x[:] = np.where(x > 0, x[::-1], x)",
    "gauss-seidel": "for i in range(1, 5):\n    x[i] = 0.5 * (x[i - 1] + x[i + 1])",
    "moving": "for i in range(4):\n    x[i:i + 4] += x[i + 2:i + 6]",
    "backward": "for i in range(4):\n    x[i + 1:i + 5] -= 0.5 * x[i:i + 4]",
    "other": "t = x * 2\nt[1:] += t[:-1]\nt[::-1] -= t\nx[:] = t",
    "cast": "n = np.arange(len(x))\nn[1:] += n[:-1]\nn[:] = n[::-1] // 2\nx += n",
    "float32": "s = x.astype(np.float32)\ns[1:] += s[:-1]\ns[::-1] *= s\nx[:] = s",
    "scaled by own sum": "x /= np.abs(x).sum()\nx *= x.max()",
    "tuple": "a, b = x[::2], x[1::2]\na[:], b[:] = a * 2, b + 1",
    "c16 no swap": "a, b = x[:3], x[3:6]\na[:], b[:] = b, a",
    "shared temporary": "y = x * 2\nx[:] = y\ny += 1\nx[1:] = y[:-1]",
}
TABLE = {
    "c8": "x += x.T",
    "c8 store": "x[:] = x.T",
    "c9 row": "x -= x[0]",
    "c9 column": "x -= x[:, :1]",
    "c9 maximum": "x /= x.max() + 3",
    "c9 last column": "x *= x[..., :1]",
    "c9 axis": "x -= x.mean(axis=0)",
    "c9 rows": "x /= np.abs(x).sum(axis=1, keepdims=True) + 1",
    "c10 dot": "np.dot(x, x, out=x)",
    "c10 matmul": "np.matmul(x, x, out=x)",
    "c10 operator": "x @= x",
    "c11": "np.add.reduce(x, axis=0, out=x[0])",
    "columns": "x[:, 1:] += x[:, :-1]",
    "rows": "x[1:] += x[:-1]",
    "diagonal shift": "x[1:, 1:] -= x[:-1, :-1]",
    "reversed": "x[::-1, ::-1] += x",
    "transposed product": "x[:] = x @ x.T",
    "rank one": "x -= np.outer(x[0], x[:, 0])",
    "elimination": (
        "for k in range(2):\n    x[k + 1:, k] /= np.abs(x[k, k]) + 1\n"
        "    x[k + 1:, k + 1:] -= x[k + 1:, k:k + 1] * x[k, k + 1:]"
    ),
    "lower": "for i in range(1, 3):\n    x[i] -= 0.5 * x[i - 1]",
    "rows swapped": "x[[0, 1]] = x[[1, 0]]",
    "stencil": "x[1:-1, 1:-1] = 0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])",
    "row by row": "for r in x:\n    r -= x[0]",
    "of a temporary": "t = x * 2\nt += t.T\nt -= t[0]\nx[:] = t",
}
LAYOUTS = ("C", "sliced", "reversed", "F")


def program(lines: str, shape: str, layout: str, dtype: str = "f8") -> str:
    body = "\n".join("    " + line for line in lines.splitlines())
    return (
        f"@jit\ndef f(x, q):\n{body}\n    return x, x.sum()\n"
        f"def make(n):\n    return array({shape}, '{dtype}', '{layout}', 'normal', n), np.zeros({shape})\n"
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VECTOR)
def test_vector(name: str, layout: str) -> None:
    check(program(VECTOR[name], "(n,)", layout), sizes=(9, 130, 8193))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TABLE)
def test_table(name: str, layout: str) -> None:
    check(program(TABLE[name], "(n, n)", layout), sizes=(3, 17, 70))


@pytest.mark.parametrize("dtype", ["f4", "i4", "i8", "u1"])
@pytest.mark.parametrize("name", ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c9 first", "two back", "moving"])
def test_other_dtypes(name: str, dtype: str) -> None:
    check(program(VECTOR[name], "(n,)", "C", dtype), sizes=(9, 130))


@pytest.mark.parametrize("line", ["x[1:] += x[:-1]", "x[::-1] += x", "x[:] = x[::-1] * 2", "x -= x[0]"])
def test_longer_than_a_block_of_a_thread(line: str) -> None:
    check(program(line, "(n,)", "C"), sizes=(300_001,), calls=1)


def test_c14_target_that_overlaps_itself_does_not_crash() -> None:
    check("""
    from numpy.lib.stride_tricks import as_strided
    @jit
    def f(x):
        x += 0
        return x.shape
    def make(n):
        return as_strided(np.zeros(1), (n,), (0,)),
    """)
