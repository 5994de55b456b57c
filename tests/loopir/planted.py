"""Schedules that would change a result, planted in random nests: every one has to be refused, for its reason.

Each is drawn with the nest that it would lead to, written out: NumPy runs both, and where bits are the same
all the same that is counted, so that no harmless schedule passes for a planted one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jitla.errors import ScheduleError
from jitla.loopir import Nest, apply_schedule, parse, run, verify

FLOATS = ("float32", "float64")
DTYPES = (*FLOATS, "int32", "uint16")


class Planted(NamedTuple):
    """Lines of a nest, a schedule, the law that refuses it, and lines that it would lead to."""

    lines: list[str]
    schedule: str
    law: str
    would_be: list[str]
    dtype: str
    prelude: str = ""


def _loops(*heads: tuple[str, int], body: list[str]) -> list[str]:
    lines = [f"{'    ' * depth}for {name} in range({extent}):" for depth, (name, extent) in enumerate(heads)]
    return lines + ["    " * len(heads) + line for line in body]


def _recurrence(rng: random.Random, n: int) -> Planted:
    """A turn of y reads what an earlier one wrote, or overwrites what a later one reads."""
    dy, dx = rng.randint(1, 2), rng.randint(-2, 2)
    y, x = ("y", n - dy), ("x", n - abs(dx))
    op, back = rng.choice(("add", "subtract", "maximum")), rng.random() < 0.5

    def body(at: str, plus: int = 0) -> list[str]:
        put, got = f"out[{at} + {plus + dy}, x + {max(dx, 0)}]", f"out[{at} + {plus}, x + {max(-dx, 0)}]"
        return [f"{got if back else put} = {op}({put if back else got}, A[{at} + {plus}, x])"]

    backwards = _loops(y, x, body=body("-y", n - dy - 1))
    ways = [("parallel(y)", "dependent-iterations", backwards),
            ("bind(y)", "dependent-iterations", backwards)]
    if dx < 0:
        crossed = _loops(x, y, body=body("y"))
        ways += [("reorder(x, y)", "order-matters", crossed),
                 (f"tile(y, x, {y[1]}, 1)", "order-matters", crossed)]
    else:
        ways.append(("fuse(y, x)\nparallel(y_x)", "dependent-iterations", backwards))
    return Planted(_loops(y, x, body=body("y")), *rng.choice(ways), rng.choice(DTYPES))


def _rounded(rng: random.Random, n: int) -> Planted:
    """A sum of floats in another order, or some of its terms twice."""
    depth, factor = rng.choice([p for p in ((5, 2), (5, 3), (6, 4), (7, 2), (7, 3), (8, 3)) if p[0] <= n])
    first = ["out[y, x] = A[x, y]"] if rng.random() < 0.5 else []

    def over(*loops: list[str]) -> list[str]:
        return _loops(("y", n), ("x", n), body=[*first, *sum(loops, [])])

    def terms(at: str, *heads: tuple[str, int]) -> list[str]:
        return _loops(*heads, body=[f"out[y, x] = add(..., multiply(A[y, {at}], A[x, {at}]))"])

    whole = depth - depth % factor
    backwards = over(terms(f"-k + {depth - 1}", ("k", depth)))
    twice = over(terms("k", ("k", whole)), terms(f"l + {depth - factor}", ("l", factor)))
    crossed = over(terms(f"k + {whole}", ("k", depth - whole)),
                   terms(f"{factor}*o + i", ("i", factor), ("o", whole // factor)))
    ways = [(f"{how}(k)", "dependent-iterations", backwards) for how in ("parallel", "bind", "vectorise")]
    ways += [(f"split(k, {factor}, 'shifted')", "done-twice", twice),
             (f"split(k, {factor})\nreorder(k_i, k_o)", "order-matters", crossed)]
    if not first:
        ways.append(("rfactor(k)", "order-matters", backwards))
    return Planted(over(terms("k", ("k", depth))), *rng.choice(ways), rng.choice(FLOATS), "unroll(x)")


def _overwritten(rng: random.Random, n: int) -> Planted:
    """A stage reads what the loops that would compute it overwrite."""
    dy, op = rng.randint(1, 2), rng.choice(("add", "subtract", "maximum"))
    far = n - dy
    make = f"{op}(A[a, b], out[a, b])"
    lines = [f"s = alloc('DTYPE[{n},{n}]')", *_loops(("a", n), ("b", n), body=[f"s[a, b] = {make}"]),
             *_loops(("y", far), ("x", n), body=[f"out[y + {dy}, x] = negative(s[y, x])"])]
    inlined = make.replace("[a, b]", "[y, x]")
    would_be = _loops(("y", far), ("x", n), body=[f"out[y + {dy}, x] = negative({inlined})"])
    schedule = rng.choice(("compute_inline(s)", "compute_at(s, y)", "compute_at(s, x)"))
    return Planted(lines, schedule, "overwritten", would_be, rng.choice(DTYPES), "unroll(x)")


def _outside(rng: random.Random, n: int) -> Planted:
    """A stage that is read again behind the loops that would compute it, where it is gone by then."""
    make = rng.choice(("add(A[a, b], A[a, b])", "multiply(A[a, b], A[b, a])", "negative(A[a, b])"))
    before = [f"s = alloc('DTYPE[{n},{n}]')", *_loops(("a", n), ("b", n), body=[f"s[a, b] = {make}"]),
              *_loops(("y", n), ("x", n), body=["out[y, x] = s[y, x]"])]

    def again(buffer: str) -> list[str]:
        return _loops(("v", n), ("w", n), body=[f"out[v, w] = add(out[v, w], {buffer}[w, v])"])

    schedule = rng.choice(("compute_at(s, y)", "compute_at(s, x)", "compute_at(s, v)"))
    would_be = before + again("A")
    return Planted(before + again("s"), schedule, "used-outside", would_be, rng.choice(DTYPES))


FAMILIES: tuple[Callable[[random.Random, int], Planted], ...] = (
    _recurrence, _rounded, _overwritten, _outside)


def _nest(lines: list[str], dtype: str, n: int) -> Nest:
    head = f"def planted(A: '{dtype}[{n},{n}]', out: '{dtype}[{n},{n}]') -> (out,):"
    nest = parse("\n".join([head, *["    " + line.replace("DTYPE", dtype) for line in lines]]))
    verify(nest)
    return nest


def refused(seed: int, taken: Counter[str]) -> str | None:
    """Return what is wrong with the planted schedule of `seed`, None if it is refused."""
    rng = random.Random(seed)
    n = rng.randint(6, 10)
    made = rng.choice(FAMILIES)(rng, n)
    nest = _nest(made.lines, made.dtype, n)
    data = np.random.default_rng(seed)
    arrays = {name: (data.normal(size=(n, n)) * 100).astype(made.dtype) for name in ("A", "out")}
    meant, changed = (run(x, arrays)["out"] for x in (nest, _nest(made.would_be, made.dtype, n)))
    apart = meant.tobytes() != changed.tobytes()
    taken["of them change bits where they are done" if apart else "of them change no bit of this data"] += 1
    if made.prelude and rng.random() < 0.5:
        try:
            nest = apply_schedule(nest, made.prelude)
        except ScheduleError:
            taken["of them without what comes before"] += 1
    try:
        apply_schedule(nest, made.schedule)
    except ScheduleError as error:
        taken[error.law] += 1
        return None if error.law == made.law else f"refused for another reason: {error}\n{made.schedule}"
    return "\n".join(["not refused", *made.lines, made.schedule])
