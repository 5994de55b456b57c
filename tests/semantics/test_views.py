"""Rows B1 to B17 and C1 to C17: views, aliasing, in-place operations on overlapping operands."""

from __future__ import annotations

import pytest

from tests.semantics.oracle import check

# Rows B1 to B17 of the semantics sheet: views and aliasing.

VECTOR = "def make(n): return array((n,), 'f8', 'C', 'normal', n),\n"
TABLE = "def make(n): return array((n, n), 'f8', 'C', 'normal', n),\n"
BODIES_OF_VECTORS = {
    "b1 write through a view": "y = x[1:]\ny += 10\nreturn x.sum(), x, y",
    "b1 view of a view": "y = x[1:][::2]\ny *= 3\nz = x * 2\ny -= 1\nreturn z, x, y",
    "b1 view of a temporary": "t = x * 2\ny = t[1:]\ny += 10\nreturn t.sum(), t, y",
    "b1 store through a view": "t = x * 2\ny = t[::-1]\ny[0] = 7\nreturn t, y",
    "b1 reshaped": "t = x + 1\ny = t.reshape(1, -1)\ny[0, 0] = 5\nt[1:] *= 2\nreturn t, y",
    "b2 whole view": "y = x[:]\nx += 1\nreturn y, x",
    "b2 rebinding": "y = x\nx = x + 1\nreturn y, x",
    "b2 pending and then overwritten": "y = x * 2\nx[:] = 0\nreturn y, x",
    "b2 pending view and then overwritten": "y = x[1:] * 2\nz = x[:-1]\nx[:] = 0\nreturn y, z, x",
    "b2 two writes": "y = x\ny += 1\nx *= 2\nreturn x, y, x is y",
    "b4 identities": (
        "return (np.asarray(x) is x, x.astype(float, copy=False) is x, np.ascontiguousarray(x) is x,"
        " np.atleast_1d(x) is x, np.require(x) is x, np.real(x) is x, x.squeeze() is x,"
        " np.squeeze(x) is x, np.nan_to_num(x, copy=False) is x)"
    ),
    "b4 no identities": "return x.reshape(-1) is x, x.view() is x, x[...] is x, +x is x, x.T is x, x[:] is x",
    "b5 the argument": "return x",
    "b5 a view of the argument": "y = x[...]\nreturn y, y.base is x",
    "b5 twice": "return x, x",
    "b5 one new object": "x = y = x + 1\nreturn x, y, x is y",
    "b6 returned view": "return x[1:], x[1:].base is x",
    "b7 results that overlap": "b = x + 1\nreturn b, b[1:]",
    "b7 results that overlap and are written": "b = x + 1\nc = b[1:]\nc += 1\nreturn b, c, b[::-1]",
    "b12 bases": "return x[1:][1:].base is x, x.base is None, (x + 1).base is None, (x + 1).flags.owndata",
    "b15 swap of numbers": "x[0], x[1] = x[1], x[0]\nreturn x",
    "b15 swap with indices": "x[[0, 1]] = x[[1, 0]]\nreturn x",
    "b16 numbers of a vector": "for v in x:\n    v += 1\nreturn x",
    "b16 list": "return list(x)[:3], [type(v).__name__ for v in x][:2]",
    "b17 rebinding": "x = x + 1\nreturn x",
    "b17 in place": "x += 1\nreturn x",
    "b17 tuple": "t = (x,)\ntry:\n    t[0] += 1\nexcept TypeError as e:\n    return str(e), x",
    "item is a copy": "y = x[1]\nx[1] = 9\nreturn y, x",
    "aggregate and then write": "s = x.sum()\nt = s\ns += 1\nx[:] = 0\nreturn s, t, x",
    "view kept over writes": "y = x[1:]\na = y * 2\nx += 1\nb = y * 2\nx[0] = 3\nreturn a, b, y",
    "chained comparison with views": "m = x > 0\nx[m] = 0\nreturn m, x",
    "copy": "y = x.copy()\nx += 1\ny *= 2\nreturn x, y, np.shares_memory(x, y)",
    "delete": "y = x * 2\nz = y[1:]\ndel y\nz += 1\nreturn z",
}
BODIES_OF_TABLES = {
    "b1 column": "y = x[:, 0]\ny += 10\nreturn x.sum(), x, y",
    "b1 transposed": "y = x.T\ny *= 2\ny[0] = 1\nreturn x, y",
    "b3 reshape of a transposed is a copy": (
        "y = x.T.reshape(-1)\ny += 1\nreturn x, y, np.shares_memory(x, y)"),
    "b3 reshape is a view": "y = x.reshape(-1)\ny += 1\nreturn x, y, np.shares_memory(x, y)",
    "b3 ravel": "y = x.ravel()\nz = x.T.ravel()\ny += 1\nz += 2\nreturn x, y, z",
    "b3 flatten": "y = x.flatten()\ny += 1\nreturn x, y",
    "b3 swapaxes": "y = x.swapaxes(0, 1)\ny[0] = 4\nreturn x, y",
    "b3 newaxis": "y = x[None]\ny += 1\nreturn x, y, y.shape",
    "b3 diagonal": "y = x.diagonal()\nx += 1\nreturn x, y, y.flags.writeable",
    "b3 split": "a, b = np.split(x, [1])\na += 1\nb *= 2\nreturn x, a, b",
    "b3 broadcast_to": "y = np.broadcast_to(x[0], x.shape)\nx += 1\nreturn x, y, y.flags.writeable",
    "b3 flip": "y = np.flip(x)\ny[0, 0] = 5\nreturn x, y",
    "b3 expand, move, squeeze": (
        "y = np.moveaxis(np.expand_dims(x, 0), 0, 2)\ny.squeeze()[0] = 3\nreturn x, y"),
    "b3 views of a temporary": "t = x * 2\na = t.T\nb = t.reshape(-1)\na[0] = 1\nb[-1] = 2\nreturn t, a, b",
    "b15 swap of rows": "x[0], x[1] = x[1], x[0]\nreturn x",
    "b16 rows are views": "for r in x:\n    r += 1\nreturn x",
    "b16 rows of a temporary": "t = x * 1\nfor i, r in enumerate(t):\n    r *= i\nreturn t",
    "b16 unpacked": "r, *rest = x\nr[0] = 9\nreturn x, rest",
    "rows written one by one": (
        "t = np.zeros(x.shape)\nfor i in range(min(5, len(x))):\n    t[i] = x[i] * 2\nreturn t"),
    "columns written one by one": "for i in range(1, min(4, len(x))):\n    x[:, i] += x[:, i - 1]\nreturn x",
    "row and then table": "r = x[0]\ny = x * 2\nr += 1\nz = x * 3\nreturn y, z, r",
}


def indented(body: str) -> str:
    return "\n".join("    " + line for line in body.splitlines())


@pytest.mark.parametrize("name", BODIES_OF_VECTORS)
def test_views_of_vectors(name: str) -> None:
    check(f"@jit\ndef f(x):\n{indented(BODIES_OF_VECTORS[name])}\n{VECTOR}")


@pytest.mark.parametrize("name", BODIES_OF_TABLES)
def test_views_of_tables(name: str) -> None:
    check(f"@jit\ndef f(x):\n{indented(BODIES_OF_TABLES[name])}\n{TABLE}", sizes=(2, 3, 17, 100))


@pytest.mark.parametrize("second", ["x", "x[:]", "x[::-1]", "x[1:]", "x[:-1]", "x.view(np.int64)", "x[::2]"])
@pytest.mark.parametrize(
    "body",
    [
        "a += 1\nreturn b * 2",
        "y = a * 2\nb[0] = 7\nreturn y, a + 1",
        "y = b * 2\na[:] = 3\nreturn y, b",
        "s = b.sum()\na *= 2\nt = b.sum()\nreturn s, t",
    ],
)
def test_b8_b9_arguments_that_overlap(second: str, body: str) -> None:
    check(f"""
@jit
def f(a, b):
{indented(body)}
def make(n):
    x = array((n,), 'f8', 'C', 'normal', n)
    return x, {second}
""")


@pytest.mark.parametrize(
    "body",
    [
        "a += b\nreturn a",
        "c = a - b\na[:] = c\nreturn b",
        "a[:] = b\nreturn a, b",
        "a *= b[0]\nreturn a",
        "b -= a.sum(axis=0)\nreturn a",
    ],
)
def test_b9_table_and_its_transpose(body: str) -> None:
    check(
        f"""
@jit
def f(a, b):
{indented(body)}
def make(n):
    x = array((n, n), 'f8', 'C', 'normal', n)
    return x, x.T
""",
        sizes=(3, 17, 100),
    )


def test_b8_b9_one_function_with_changing_overlap() -> None:
    check(
        """
@jit
def g(a, b):
    a += b
    return a * 2, b
def f(x):
    results = []
    for other in (x.copy(), x, x[:], x[::-1], x.copy(), x):
        results.append(g(x, other))
    results.append(g(x[1:], x[:-1]))
    results.append(g(x[:-1], x[1:]))
    return results
"""
        + VECTOR
    )


def test_b9_interleaved_fields() -> None:
    check(
        """
@jit
def g(a, b):
    a += b
    b *= 2
    return a + b
def f(x):
    r = np.zeros(len(x), dtype=[('a', 'f8'), ('b', 'f8')])
    r['a'], r['b'] = x, x * 2
    return g(r['a'], r['b']), r['a'].copy(), r['b'].copy()
"""
        + VECTOR
    )


def test_b10_bits_of_numbers() -> None:
    check(
        """
@jit
def f(x):
    y = x.view(np.int64)
    z = x * 2
    y += 1
    w = x * 2
    return z, w, y, 0x5fe6eb50c7b537a9 - (x.view(np.int64) >> 1)
"""
        + VECTOR
    )


def test_b11_parts_of_complex_numbers() -> None:
    check(
        """
@jit
def f(x):
    z = x + 1j
    r = z.real
    z *= 2
    return r, z.imag, z
"""
        + VECTOR
    )


def test_b13_shape_assignment() -> None:
    check(
        """
@jit
def f(x):
    y = x * 2
    x.shape = (1, -1)
    y.shape = (-1, 1)
    return x + 1, y
"""
        + VECTOR
    )


# Rows C1 to C17 of the semantics sheet: in place on operands that overlap the target.

OVERLAP_VECTOR = {
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
OVERLAP_TABLE = {
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
@pytest.mark.parametrize("name", OVERLAP_VECTOR)
def test_overlapping_vectors(name: str, layout: str) -> None:
    check(program(OVERLAP_VECTOR[name], "(n,)", layout), sizes=(9, 130, 8193))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OVERLAP_TABLE)
def test_overlapping_tables(name: str, layout: str) -> None:
    check(program(OVERLAP_TABLE[name], "(n, n)", layout), sizes=(3, 17, 70))


@pytest.mark.parametrize("dtype", ["f4", "i4", "i8", "u1"])
@pytest.mark.parametrize("name", ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c9 first", "two back", "moving"])
def test_other_dtypes(name: str, dtype: str) -> None:
    check(program(OVERLAP_VECTOR[name], "(n,)", "C", dtype), sizes=(9, 130))


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
