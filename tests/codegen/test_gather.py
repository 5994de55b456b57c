"""Totals of values with broadcast and strided operands have NumPy's bits; as a script: a long search."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from jitla.codegen import LlvmBackend
from jitla.fusion import Form, Layout, Schedule, all_layouts, geometry
from jitla.hops import Hop, Meta, apply, leaf, make
from tests.codegen.driver import BACKEND, drive, kernel_of
from tests.codegen.test_reduce import values

ROWS = ["flat", "row", "column", "padded", "strided", "flipped", "turned", "scalar"]
WIDTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 100, 127, 128, 129, 511, 512, 513, 1000]
TOTALS = {"f8": ["sum", "sum", "min", "max"], "f4": ["sum", "sum", "min", "max"],
          "c16": ["sum"], "c8": ["sum"], "i8": ["sum", "prod", "min"],
          "u2": ["min", "max"], "?": ["any", "all"]}
# NumPy's fused products of complex64 do not take negative strides; its plain ones round differently.
COMBINE = {"c8": ["add", "subtract"], "?": ["logical_and", "not_equal"], "u2": ["add", "maximum"]}


def operand(kind: str, dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Return an array (or scalar) that broadcasts to `shape` and lies in memory as `kind` says."""
    width = shape[-1]
    match kind:
        case "row":
            return values(dtype, (width,), rng)
        case "column":
            return values(dtype, (*shape[:-1], 1), rng)
        case "padded":
            return values(dtype, (*shape[:-1], width + 3), rng)[..., :width]
        case "strided":
            return values(dtype, (2 * shape[0], *shape[1:-1], 2 * width), rng)[::2, ..., ::2]
        case "flipped":
            return values(dtype, shape, rng)[..., ::-1]
        case "turned":
            return values(dtype, shape[::-1], rng).T
        case "scalar":
            return values(dtype, (1,), rng)[0]
    return values(dtype, shape, rng)


def leaves_of(arrays: list[Any]) -> list[Hop]:
    """Return the leaves that stand for `arrays`."""
    return [leaf(i, Meta(np.shape(a), a.dtype), "array" if np.shape(a) else "scalar")
            for i, a in enumerate(arrays)]


def total(name: str, x: Hop) -> Hop:
    """Reduce `x` over everything."""
    return make(name, (x,), axis=tuple(range(len(x.meta.shape))), keepdims=False)


def run(
    roots: list[Hop], arrays: list[Any], chunk: int = 0, backend: LlvmBackend = BACKEND,
    schedule: Schedule = Schedule(),
) -> tuple[Form, list[np.ndarray]]:
    """Return the layout variant of one kernel for `roots`, and what it computes."""
    kernel = kernel_of(roots)
    known = {i: Layout(a.shape, a.strides) for i, a in enumerate(arrays) if np.shape(a)}
    layouts = all_layouts(roots, known)
    found = geometry(kernel, kernel.shape, layouts)
    assert found is not None
    form, walk = found
    outs = []
    for root in roots:
        shape, strides = layouts[root]
        size = root.meta.dtype.itemsize
        place = np.empty(int(np.prod(shape)) * size + 1, np.uint8)[1:]  # aligned to nothing
        outs.append(np.ndarray(shape, root.meta.dtype, place, strides=strides))
    given = [arrays[h.attr("slot")] for h in kernel.inputs if h.op.name == "leaf"]
    executable = backend.compile(kernel, form, schedule)  # owns the code
    drive(executable.template(walk), *given, *(o.reshape(1) if not o.shape else o for o in outs), chunk=chunk)
    return form, outs


def compare(
    dtype: str, shape: tuple[int, ...], kinds: list[str], name: str, cell: bool, chunk: int,
    rng: np.random.Generator,
) -> bool:
    """Tell whether a total (and, if `cell`, the value itself) is NumPy's."""
    arrays = [operand(kind, dtype, shape, rng) for kind in kinds]
    names = [str(rng.choice(COMBINE.get(dtype, ["add", "multiply"]))) for _ in arrays[1:]]
    hops = leaves_of(arrays)
    hop, want = hops[0], arrays[0]
    for op, h, a in zip(names, hops[1:], arrays[1:], strict=True):
        hop, want = apply(op, hop, h), getattr(np, op)(want, a)
    if hop.meta.shape != shape:
        return True
    roots = [total(name, hop), *([hop] if cell else [])]
    _, got = run(roots, arrays, chunk)
    same = got[0].tobytes() == np.asarray(getattr(np, name)(want)).tobytes()
    return same and (not cell or got[1].tobytes() == want.tobytes())


def search(count: int, seed: int) -> int:
    """Compare `count` random totals with NumPy and return how many differ."""
    rng = np.random.default_rng(seed)
    wrong = 0
    for _ in range(count):
        dtype = str(rng.choice(list(TOTALS)))
        width = int(rng.choice(WIDTHS)) if rng.random() < 0.8 else int(rng.integers(1, 3000))
        rows = int(10 ** rng.uniform(0, 4)) if width < 20 else int(10 ** rng.uniform(0, 2.3))
        shape = (rows, width) if rng.random() < 0.8 else (int(rng.integers(1, 5)), rows, width)
        kinds = [str(k) for k in rng.choice(ROWS, int(rng.integers(2, 5)))]
        name = str(rng.choice(TOTALS[dtype]))
        cell, chunk = bool(rng.random() < 0.3), int(rng.integers(0, 3))
        if not compare(dtype, shape, kinds, name, cell, chunk, rng):
            wrong += 1
            sys.stderr.write(f"{name} {dtype} {shape} {kinds} {cell} {chunk}\n")
    return wrong


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore:overflow")
def test_bits_are_numpys(seed: int) -> None:
    assert search(60, seed) == 0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("kind", ["row", "column", "padded", "strided"])
def test_every_width_of_a_row(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        for rows in (1, 2, 5, 67):
            assert compare(dtype, (rows, width), ["flat", kind], "sum", False, 1, rng), (width, rows)


@pytest.mark.parametrize("kinds, form", [
    (["flat", "row"], Form("full", 2, "frb")),
    (["padded", "column"], Form("full", 2, "cbb")),
    (["turned", "flat", "scalar"], Form("full", 2, "sfb")),
    (["flat", "flat"], Form("full", 1, "ccb")),
])
def test_forms(kinds: list[str], form: Form) -> None:
    rng = np.random.default_rng(4)
    arrays = [operand(kind, "f8", (30, 40), rng) for kind in kinds]
    hops = leaves_of(arrays)
    hop = apply("add", hops[0], hops[1])
    for other in hops[2:]:
        hop = apply("add", hop, other)
    found, _ = run([total("sum", hop)], arrays)
    assert found == form


def test_neighbouring_dimensions_are_joined() -> None:
    rng = np.random.default_rng(5)
    x, y = values("f8", (5, 6, 7), rng), values("f8", (6, 7), rng)
    a, b = leaves_of([x, y])
    found, (got,) = run([total("sum", apply("multiply", a, b))], [x, y])
    assert found == Form("full", 2, "frb")
    assert got.tobytes() == (x * y).sum().tobytes()
    z = values("f8", (1, 6, 1), rng)
    a, c = leaves_of([x, z])
    found, (got,) = run([total("sum", apply("multiply", a, c))], [x, z])
    assert found == Form("full", 3, "fbb")
    assert got.tobytes() == (x * z).sum().tobytes()


def test_nothing_is_read_behind_the_operands() -> None:
    """Rows in front of memory that cannot be read."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    raw = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mprotect"):
        pytest.skip("no page protection")
    for dtype in ("f8", "f4", "i8", "u2"):
        for width in (3, 7, 9, 100):
            size = np.dtype(dtype).itemsize
            row = np.ndarray((width,), dtype, raw, page - width * size)
            thin = np.ndarray((1, 1), dtype, raw, page - size)
            row[:] = 3
            x = np.ones((40, width), dtype)
            for other in (row, np.broadcast_to(thin, (40, 1))):
                a, b = leaves_of([x, other])
                root = total("max", apply("add", a, b))
                libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page), page, 0)
                try:
                    _, (got,) = run([root], [x, other])
                finally:
                    libc.mprotect(ctypes.c_void_p(raw.ctypes.data + page), page, 3)
                assert got == 4


if __name__ == "__main__":
    sys.exit(search(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, seed=11) > 0)
