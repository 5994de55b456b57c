"""Nests and schedules with listings in `golden/`, renewed by `python -m tests.loopir.listings`."""

from __future__ import annotations

from pathlib import Path

from jitla.loopir import Intrinsic, Nest, apply_schedule, parse, show

GOLDEN = Path(__file__).with_name("golden")


def product(n: int, dtype: str = "float32") -> Nest:
    return parse(f"""
def product(A: '{dtype}[{n},{n}]', B: '{dtype}[{n},{n}]', C: '{dtype}[{n},{n}]') -> (C,):
    for y in range({n}):
        for x in range({n}):
            C[y, x] = {dtype}(0)
    for i in range({n}):
        for j in range({n}):
            for k in range({n}):
                C[i, j] = add(..., multiply(A[k, i], B[k, j]))
""")


def intrinsics(dtype: str = "float32") -> dict[str, Intrinsic]:
    """A machine with a scratchpad: blocks are loaded, stored, and multiplied there."""
    pad, far = f"'{dtype}[8,8] scratchpad'", f"'{dtype}[8,8]'"
    texts = (
        f"def load8(to: {pad}, of: {far}) -> (to,):\n    for a in range(8):\n        for b in range(8):\n"
        "            to[a, b] = of[a, b]",
        f"def store8(to: {far}, of: {pad}) -> (to,):\n    for a in range(8):\n        for b in range(8):\n"
        "            to[a, b] = of[a, b]",
        f"def multiply8(C: {pad}, A: {pad}, B: {pad}) -> (C,):\n    for i in range(8):\n"
        "        for j in range(8):\n            for k in range(8):\n"
        "                C[i, j] = add(..., multiply(A[k, i], B[k, j]))",
    )
    found = {}
    for text in texts:
        nest = parse(text)
        order = {b.name: b for b in (*nest.outputs, *nest.inputs)}
        found[nest.name] = Intrinsic(nest.name, tuple(order.values()), nest.body)
    return found


TILES = """
tile(i, j, 8, 8)
split(k, 8)
reorder(i_o, j_o, k_o, i_i, j_i, k_i)
"""
SCRATCHPAD = TILES + """
cache_write(C, j_o, 'scratchpad', 'c')
cache_read(A, k_o, 'scratchpad', 'a')
cache_read(B, k_o, 'scratchpad', 'b')
tensorise(i_i, multiply8)
tensorise(a_0, load8)
tensorise(b_0, load8)
tensorise(c_0, load8)
tensorise(c_02, store8)
parallel(i_o)
"""


def rectified(m: int, n: int, k: int) -> Nest:
    return parse(f"""
def rectified(x: 'float32[{m},{k}]', w: 'float32[{n},{k}]', out: 'float32[{m},{n}]') -> (out,):
    acc = alloc('float32[{m},{n}]')
    for a in range({m}):
        for b in range({n}):
            acc[a, b] = float32(0.0)
    for i in range({m}):
        for j in range({n}):
            for r in range({k}):
                acc[i, j] = add(..., multiply(x[i, r], w[j, r]))
    for y in range({m}):
        for z in range({n}):
            out[y, z] = maximum(acc[y, z], float32(0.0))
""")


RECTIFIED = """
tile(y, z, 8, 16)
compute_at(acc, z_o, 'register')
split(r, 4)
reorder(r_o, r_i, i, j)
vectorise(j)
vectorise(z_i)
parallel(y_o)
"""


def blur(m: int, n: int) -> Nest:
    return parse(f"""
def blur(A: 'float32[{m},{n}]', out: 'float32[{m - 2},{n - 2}]') -> (out,):
    rows = alloc('float32[{m},{n - 2}]')
    for a in range({m}):
        for b in range({n - 2}):
            rows[a, b] = divide(add(add(A[a, b], A[a, b + 1]), A[a, b + 2]), float32(3.0))
    for y in range({m - 2}):
        for x in range({n - 2}):
            out[y, x] = divide(add(add(rows[y, x], rows[y + 1, x]), rows[y + 2, x]), float32(3.0))
""")


BLUR = {
    "root": "parallel(y)\nvectorise(x)\nparallel(a)\nvectorise(b)",
    "inline": "compute_inline(rows)\nparallel(y)\nvectorise(x)",
    "chunk": "split(y, 32)\nparallel(y_o)\ncompute_at(rows, y_o)\nvectorise(b)\nvectorise(x)",
    "reuse": "split(y, 32)\nparallel(y_o)\nstore_at(rows, y_o, y_i, ring=True)\nvectorise(b)\nvectorise(x)",
}


def listings() -> dict[str, str]:
    """Return every listing: the nest, the schedule, and what becomes of it."""
    found = {}
    for name, schedule in (("vanilla", ""), ("tiles", TILES), ("scratchpad", SCRATCHPAD)):
        found[f"product_{name}"] = _listing(product(1024), schedule)
    found["rectified"] = _listing(rectified(64, 128, 256), RECTIFIED)
    for name, schedule in BLUR.items():
        found[f"blur_{name}"] = _listing(blur(4000, 6000), schedule)
    return found


def _listing(nest: Nest, schedule: str) -> str:
    made = apply_schedule(nest, schedule, intrinsics=intrinsics())
    lines = [f"# {line}" for line in schedule.split("\n") if line]
    return "\n".join([*lines, show(made)])


def main() -> None:
    """Write all listings down."""
    GOLDEN.mkdir(exist_ok=True)
    for name, text in listings().items():
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
