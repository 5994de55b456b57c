"""Programs on sparse matrices of every kind, plain and traced: what SciPy gives is what has to come out."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import jitla

KINDS = tuple(getattr(sp, f"{f}_{k}") for f in ("csr", "csc", "coo") for k in ("array", "matrix"))
DTYPES = ("f8", "f4", "i8", "?", "c16", "i4")
DISORDERS = ("plain", "plain", "zeros", "unsorted", "twice", "long", "holes", "special")

# X, Y, Z: sparse, of one shape; d: dense, of it; r, c: a row and a column; v, w: vectors; p, q: matrices
STEPS = {
    "same": (
        "X * 2", "2 * X", "X * 0.5", "X / 4", "X / 3.0", "-X", "abs(X)", "X.power(2)", "X.power(3)",
        "X ** 2", "np.sqrt(abs(X))", "X.sin()", "X.log1p()", "X.sign()", "X.expm1()", "np.floor(X)",
        "X.tanh()", "X.rint()", "X.multiply(3)", "X.multiply(d)", "X.multiply(d + 1)", "X.multiply(r)",
        "X.multiply(c)", "X.multiply(v)", "X / (abs(d) + 3)", "X / c", "X.astype('f4')",
        "X.astype('f8')", "X.astype('c16')", "X.copy()", "X.conj()", "X.tocsr()", "X.tocoo()",
        "X.maximum(0)", "X.minimum(0)", "X != 0", "X > 0.5", "X < -0.25", "X * d", "X * k", "X / k",
        "X.dot(2)", "round(X, 1)", "X.multiply(p @ q.T)", "X.T.T", "X.tocsc().tocsr()", "(X * 1.5).T.T",
        "X.minimum(-1) * 2", "(X != 0) * 3.0", "X * np.float32(2)", "X - X * 2", "X + X", "X + Y",
        "X - Y", "X.multiply(Y)", "X.maximum(Y)", "X.minimum(Y)", "X + Y * 2",
        "(X * 2).multiply(X.sqrt())", "X + X.multiply(d)", "Y - X", "Y.multiply(X)",
        "(X != 0).multiply(Y)", "X.maximum(0) + Y", "X + 0", "X - 0", "-Y", "X / X.sum()", "X * Y",
        "np.multiply(X, 3)", "np.multiply(0.5, X)", "np.multiply(X, Y)",
    ),
    "end": (
        "X.sum()", "X.mean()", "X.sum(0)", "X.sum(1)", "X.sum(axis=-1)", "X.sum(axis=0)", "X.mean(0)",
        "X.mean(1)", "X @ v", "X.dot(v)", "w @ X", "X @ v[:, None]", "X @ q", "p.T @ X", "X.T @ w",
        "X.T @ p", "X.dot(q)", "X.toarray()", "X.todense()", "X.nnz", "X.data", "X.T", "X.transpose()",
        "X.T.sum(0)", "X.dtype", "X.format", "X.shape", "type(X)", "X * v", "X[2:5]", "X[1]", "X.max()",
        "X.min(axis=0)", "np.sum(X)", "(X.T * 2).sum(1)", "X.T @ (X @ v)", "(X.T @ w) + v",
        "X.getnnz()", "X.diagonal()", "X + d", "X.T.tocsr()", "X.power(2).sum(1)",
        "X.multiply(X).sum()", "(X @ v).sum()", "sp.issparse(X)", "repr(X)", "np.sum(X * 2)",
        "X.count_nonzero()", "(X + Y).sum(1)", "X.nonzero()", "X.has_sorted_indices",
        "X.has_canonical_format", "(X - Y).sum()", "(X + Y).multiply(Z).sum()", "X @ v @ w", "v @ X.T",
        "sp.hstack([X, Y])", "X.T.multiply(Y.T).sum(0)", "X @ Y.T @ w", "X.T @ Y @ q", "X.T @ (Y * 2)",
        "(X @ Y.T).sum()", "(X.T @ X).T @ v", "(X @ X.T).nnz",
        "np.multiply(X, d[:2, :2])[1, 0]", "np.multiply(v, X * 2)[0]", "(X * 2).__class__",
    ),
    "change": (
        "X.data[:] = X.data * 2", "X.data *= 2", "X *= 2", "X.sum_duplicates()", "X.eliminate_zeros()",
        "X.sort_indices()", "X.data = X.data[::-1].copy()", "X = X * 1; X.data[0] = 5", "X /= 2",
        "Y = X", "Y = X.T; X.data[0] = 3; X = Y.T", "Z = X.T; Z.data[0] = 7; Y = Z.T",
        "Z = X.T; Z *= 2; X = Z.T",
        "Y = X.T; X.data = X.data * 3; X = Y.T * 1 - X", "Y = X.T; X.sum_duplicates(); X = Y.T",
        "e = X @ v; X.data[-1] = 9", "e = X.T @ w; X.data = X.data[::-1].copy(); a = X.T @ w",
        "X.indices = X.indices.copy()", "P = X.T @ Y; X.data[0] = 4; a = P @ v; b = P @ v; e = P",
        "P = X @ Y.T; Y.indices = Y.indices[::-1].copy(); e = P @ w", "P = X.T @ X; X *= 3; a = P @ v",
 "Y = X.T.copy().T; Y.data[0] = 1", "Y = X.T.sum(); Z = X.T.T",
    ),
}


def matrix(rng: np.random.Generator, kind: Any, dtype: str, disorder: str, shape: tuple[int, int]) -> Any:
    """Make a matrix whose entries lie as `disorder` says."""
    m, n = shape
    count = int(rng.integers(1, m * n + 1))
    rows, columns = rng.integers(0, m, count), rng.integers(0, n, count)
    if disorder != "twice":
        _, first = np.unique(rows * n + columns, return_index=True)
        rows, columns = rows[first], columns[first]
    if disorder == "holes":
        rows = rows // 2 * 2
        _, first = np.unique(rows * n + columns, return_index=True)
        rows, columns = rows[first], columns[first]
    rows, columns = rows.astype("i4"), columns.astype("i4")
    values = _values(rng, dtype, len(rows), disorder)
    if kind in KINDS[4:] and disorder in ("unsorted", "twice", "plain"):
        order = rng.permutation(len(rows)) if disorder != "plain" else np.lexsort((columns, rows))
        return kind((values[order], (rows[order], columns[order])), shape=shape)
    if kind in KINDS[4:]:
        return kind(matrix(rng, sp.csr_array, dtype, disorder, shape))
    major, minor = (columns, rows) if kind in KINDS[2:4] else (rows, columns)
    order = np.lexsort((rng.permutation(len(rows)) if disorder == "unsorted" else minor, major))
    starts = np.searchsorted(major[order], np.arange((n if kind in KINDS[2:4] else m) + 1, dtype="i4"))
    made = kind((values, minor[order].astype("i4"), starts.astype("i4")), shape=shape)
    if disorder == "long":
        made.indices, made.indptr = made.indices.astype("i8"), made.indptr.astype("i8")
    return made


def _values(rng: np.random.Generator, dtype: str, count: int, disorder: str) -> np.ndarray:
    values = np.round(rng.normal(size=count) * 4, 2)
    if dtype == "c16":
        values = values + 1j * np.round(rng.normal(size=count), 2)
    if disorder == "special" and dtype in ("f8", "f4", "c16"):
        values[rng.random(count) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e300])
    if disorder == "zeros":
        values[rng.random(count) < 0.3] = 0
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def operands(rng: np.random.Generator) -> dict[str, Any]:
    """Draw what programs are run on."""
    m, n = (int(k) for k in rng.integers(1 if rng.random() < 0.1 else 2, 14, 2))
    dtype = str(rng.choice(DTYPES, p=(0.45, 0.2, 0.1, 0.1, 0.1, 0.05)))
    dense = str(rng.choice(["f8", "f4"])) if dtype != "f4" else "f4"
    found: dict[str, Any] = {}
    for name in "XYZ":
        kind = KINDS[rng.integers(len(KINDS))] if name == "X" or rng.random() < 0.3 else type(found["X"])
        disorder = str(rng.choice(DISORDERS))
        if disorder == "long" and not issubclass(type(found["X"]) if found else kind, sp.sparray):
            disorder = "plain"  # which indices SciPy's matrices get then is an accident
        found[name] = matrix(rng, kind, dtype, disorder, (m, n))
    for name, shape in dict(d=(m, n), r=(1, n), c=(m, 1), v=(n,), w=(m,), p=(m, 3), q=(n, 3)).items():
        found[name] = np.round(rng.normal(size=shape) * 2, 2).astype(dense)
    found["k"] = float(np.round(rng.normal(), 2))
    return found


def program(rng: np.random.Generator) -> str:
    """Draw a function of the operands."""
    lines = []
    for _ in range(rng.integers(1, 5)):
        if rng.random() < 0.12:
            lines.append(str(rng.choice(STEPS["change"])))
        elif rng.random() < 0.3:
            lines.append(f"{rng.choice(['a', 'b', 'e'])} = {rng.choice(STEPS['end'])}")
        else:
            step = str(rng.choice(STEPS["same"]))
            lines.append(f"{'X' if rng.random() < 0.7 else 'Z'} = {step}")
    lines.append(f"b = {rng.choice(STEPS['end'])}")
    body = "\n    ".join(lines)
    head = "def f(X, Y, Z, d, r, c, v, w, p, q, k):\n    a = b = e = None"
    return f"{head}\n    {body}\n    return a, b, e, X, Y, Z\n"


def outcome(function: Any, given: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return what a call gives, or the error; and the categories of its warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = function(**given)
        except Exception as error:
            result = error
    return result, sorted({str(w.message) for w in warned if "fficien" not in str(w.message)})


def differs(a: Any, b: Any, fine: float, path: str = "") -> Iterator[str]:
    """Say where two results differ; floats may be rounded otherwise, in steps of `fine`."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        if type(a) is not type(b) or str(a) != str(b):
            yield f"{path}: {a!r} != {b!r}"
    elif type(a) is not type(b):
        yield f"{path}: {type(a)} != {type(b)}"
    elif isinstance(a, tuple):
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differs(x, y, fine, f"{path}[{k}]")
    elif sp.issparse(a):
        fields = ("coords", "data") if a.format == "coo" else ("indptr", "indices", "data")
        if a.format in ("csr", "csc", "coo"):
            for name in ("shape", "dtype", *fields):
                yield from differs(getattr(a, name), getattr(b, name), fine, f"{path}.{name}")
        else:
            yield from differs(a.toarray(), b.toarray(), fine, path)
    elif isinstance(a, np.ndarray):
        if (a.dtype, a.shape, a.strides) != (b.dtype, b.shape, b.strides):
            yield f"{path}: {a.dtype, a.shape, a.strides} != {b.dtype, b.shape, b.strides}"
        elif not close(a, b, fine):
            yield f"{path}: {a!r} != {b!r}"
    elif isinstance(a, np.generic):
        if a.dtype != b.dtype or not close(a, b, fine):
            yield f"{path}: {a!r} != {b!r}"
    elif a is not b and a != b and a == a:
        yield f"{path}: {a!r} != {b!r}"


def close(a: Any, b: Any, fine: float) -> bool:
    """Equal but for rounding: sums of large terms that cancel are rounded as those."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    fine = max(fine, float(np.finfo(a.dtype).eps))
    with np.errstate(all="ignore"):
        largest = np.max(np.abs(a), initial=1.0, where=np.isfinite(a))
        return bool(np.allclose(a, b, rtol=fine * 512, atol=fine * 64 * max(largest, 16), equal_nan=True))


def faults(seed: int) -> list[str]:
    """Run the program of a seed plain and traced, three times; return what differs, and the program."""
    rng = np.random.default_rng(seed)
    text = program(rng)
    given = operands(rng)
    names: dict[str, Any] = {"np": np, "sp": sp}
    filename = f"<sparse {seed}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    exec(compile(text, filename, "exec"), names)
    fast = jitla.jit(names["f"])
    found = []
    fine = float(np.finfo("f4" if "f4" in text or "float32" in text else given["d"].dtype).eps)
    for call in range(3):
        sides = [{k: x.copy() if hasattr(x, "copy") else x for k, x in given.items()} for _ in range(2)]
        (wanted, heard), (result, heard_too) = outcome(names["f"], sides[0]), outcome(fast, sides[1])
        found += [f"call {call} {f}" for f in differs(wanted, result, fine)]
        left = [tuple(side.values()) for side in sides]
        found += [f"call {call} operand {f}" for f in differs(left[0], left[1], fine)]
        if not set(heard_too) <= set(heard):  # what nobody reads says nothing
            found.append(f"call {call} warnings: {heard} != {heard_too}")
    failures = fast.stats().failures
    if failures:
        found.append(f"{failures} programs failed")
    linecache.cache.pop(filename, None)
    return [f"seed {seed}\n{text}" + "\n".join(found[:4])] if found else []
