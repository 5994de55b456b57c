"""Random nests under random schedules: what a primitive does not refuse leaves every bit as it was.

`python -m tests.loopir --count 2000` draws that many; each nest is run as it is, after its schedule,
after it with independent turns backwards, and as machine code on two threads. NumPy computes the same on
whole arrays.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from jitla.codegen import LlvmBackend
from jitla.errors import ScheduleError
from jitla.loopir import Loop, Nest, apply_schedule, parse, run, show, verify
from jitla.loopir.analysis import (
    all_loops,
    allocated_buffers,
)

DTYPES = ("float32", "float64", "int32", "uint16")
STEPS = 5


class Stage(NamedTuple):
    """Lines of loops that fill a buffer, its shape, and what NumPy makes of the stage before and of W."""

    lines: list[str]
    shape: tuple[int, int]
    whole: Callable[[np.ndarray, np.ndarray], np.ndarray]


class Drawn(NamedTuple):
    """A nest, and the stages that it consists of."""

    nest: Nest
    stages: list[Stage]

    def whole(self, A: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Return what NumPy computes on whole arrays."""
        with np.errstate(all="ignore"):
            for stage in self.stages:
                A = stage.whole(A, W)
        return A


@cache
def backend() -> LlvmBackend:
    """Return what compiles for this processor."""
    return LlvmBackend()


def draw(rng: random.Random) -> Drawn:
    """Return a chain of one to three stages: stencils, reductions, element-wise."""
    dtype = rng.choice(DTYPES)
    rows, columns = rng.randint(5, 9), rng.randint(5, 9)
    if rng.random() < 0.3:
        columns += rng.randint(10, 40)  # some vectors
    lines, last, shape, found = [], "A", (rows, columns), []
    stages = rng.randint(1, 3)
    for n in range(stages):
        name = "out" if n == stages - 1 else f"s{n}"
        drawn = rng.choice((_stencil, _stencil, _pointwise, _product))
        made = drawn(rng, n, last, name, shape, dtype)
        if name != "out":
            lines.append(f"    {name} = alloc('{dtype}[{made.shape[0]},{made.shape[1]}]')")
        lines += ["    " + line for line in made.lines]
        last, shape = name, made.shape
        found.append(made)
    head = f"def drawn(A: '{dtype}[{rows},{columns}]', W: '{dtype}[{SIDE},{SIDE}]', " \
           f"out: '{dtype}[{shape[0]},{shape[1]}]') -> (out,):"
    nest = parse("\n".join([head, *lines]))
    verify(nest)
    return Drawn(nest, found)


SIDE = 9  # of the other matrix of products


def _over(n, shape, body):
    return [f"for y{n} in range({shape[0]}):", f"    for x{n} in range({shape[1]}):",
            *["        " + b for b in body]]


def _stencil(rng, n, last, name, shape, dtype):
    dy, dx = rng.randint(0, 2), rng.randint(0, 2)
    step = rng.choice((1, 1, 1, 2))
    made = ((shape[0] - dy - 1) // step + 1, (shape[1] - dx - 1) // step + 1)
    if min(made) < 2:
        return _pointwise(rng, n, last, name, shape, dtype)
    places = [(a, b) for a in range(dy + 1) for b in range(dx + 1)]
    ops = [rng.choice(("add", "subtract", "maximum", "multiply")) for _ in places[1:]]
    terms = [f"{last}[{step}*y{n} + {a}, {step}*x{n} + {b}]" for a, b in places]
    value = terms[0]
    for op, term in zip(ops, terms[1:], strict=True):
        value = f"{op}({value}, {term})"

    def whole(A, W):
        views = [A[a::step, b::step][:made[0], :made[1]] for a, b in places]
        found = views[0]
        for op, view in zip(ops, views[1:], strict=True):
            found = getattr(np, op)(found, view)
        return found

    return Stage(_over(n, made, [f"{name}[y{n}, x{n}] = {value}"]), made, whole)


def _pointwise(rng, n, last, name, shape, dtype):
    here, by = f"{last}[y{n}, x{n}]", rng.randint(1, 5)
    near = np.dtype(dtype).type(by)
    value, whole = rng.choice((
        (f"add(multiply({here}, {dtype}({by})), {here})", lambda A, W: A * near + A),
        (f"floor_divide({here}, {dtype}({by}))", lambda A, W: A // near),
        (f"remainder({here}, {dtype}({by}))", lambda A, W: A % near),
        (f"minimum(negative({here}), absolute({here}))", lambda A, W: np.minimum(-A, np.abs(A)))))
    return Stage(_over(n, shape, [f"{name}[y{n}, x{n}] = {value}"]), shape, whole)


def _product(rng, n, last, name, shape, dtype):
    op = rng.choice(("add", "add", "maximum"))
    made = (shape[0], rng.randint(3, SIDE))
    update = f"{name}[y{n}, x{n}] = {op}(..., multiply({last}[y{n}, k{n}], W[k{n}, x{n}]))"
    depth = min(shape[1], SIDE)
    loops = [f"for k{n} in range({depth}):", "    " + update]

    def whole(A, W):
        found = np.zeros(made, A.dtype)
        for k in range(depth):
            found = getattr(np, op)(found, A[:, k:k + 1] * W[k, :made[1]])
        return found

    if rng.random() < 0.5:
        return Stage(_over(n, made, [f"{name}[y{n}, x{n}] = {dtype}(0)", *loops]), made, whole)
    first = _over(n, made, [f"{name}[y{n}, x{n}] = {dtype}(0)"])
    first = [line.replace(f"y{n}", f"z{n}").replace(f"x{n}", f"w{n}") for line in first]
    return Stage(first + _over(n, made, loops), made, whole)


def line_for(rng: random.Random, nest: Nest) -> str:
    """Return a primitive that may fit."""
    loops = [x.name for x in all_loops(nest.body)]
    inner = [b.name for b in allocated_buffers(nest.body)] or ["out"]
    every = [*inner, "A", "W", "out"]
    nested = [(x.name, y.name) for x in all_loops(nest.body) for y in x.body if isinstance(y, Loop)]
    a, b = rng.choice(nested) if nested and rng.random() < 0.7 else (rng.choice(loops), rng.choice(loops))
    tail = rng.choice(("masked", "masked", "shifted", "peeled"))
    return rng.choice((
        f"split({a}, {rng.randint(2, 5)}, '{tail}')", f"split({a}, {rng.randint(2, 5)}, '{tail}')",
        f"fuse({a}, {b})", f"reorder({a}, {b})", f"tile({a}, {b}, {rng.randint(2, 4)}, {rng.randint(2, 4)})",
        f"vectorise({a})", f"unroll({a})", f"parallel({a})", f"bind({a})",
        f"compute_inline({rng.choice(inner)})",
        f"compute_at({rng.choice(inner)}, {a})", f"compute_at({rng.choice(inner)}, {a})",
        f"store_at({rng.choice(inner)}, {a}, {b}, ring={rng.random() < 0.5})",
        f"cache_read({rng.choice(every)}, {a})", f"cache_write({rng.choice(every)}, {a})", f"rfactor({a})"))


def sliding_lines(rng: random.Random, nest: Nest) -> list[str]:
    """Return primitives that keep the last buffer over the turns of a loop."""
    inner = [b.name for b in allocated_buffers(nest.body)]
    last = [x.name for x in nest.body if isinstance(x, Loop)][-1]
    if not inner:
        return []
    ring = rng.random() < 0.5
    return [f"split({last}, {rng.randint(2, 4)})", f"store_at({inner[-1]}, {last}_o, {last}_i, ring={ring})"]


def agree(seed: int, taken: Counter[str]) -> str | None:
    """Return what is wrong with the nest and schedule of `seed`, None if nothing is."""
    rng = random.Random(seed)
    drawn = draw(rng)
    nest = drawn.nest
    data = np.random.default_rng(seed)
    arrays = {b.name: (data.normal(size=b.shape) * 100).astype(b.dtype) for b in nest.inputs}
    arrays["out"] = np.zeros(nest.outputs[0].shape, nest.outputs[0].dtype)
    want = drawn.whole(arrays["A"], arrays["W"]).tobytes()
    if run(nest, arrays)["out"].tobytes() != want:
        return f"it is not what NumPy computes\n{show(nest)}"
    lines, changed = [], nest
    tries = 0
    sliding = sliding_lines(rng, nest) if rng.random() < 0.4 else []
    while len(lines) < STEPS and tries < 10 * STEPS:
        tries += 1
        line = sliding.pop(0) if sliding else line_for(rng, changed)
        try:
            changed = apply_schedule(changed, line)
        except ScheduleError as error:
            taken[f"refused: {error.law}"] += 1
            continue
        taken[line.split("(")[0]] += 1
        lines.append(line)
    for loop in [x.name for x in all_loops(changed.body) if rng.random() < 0.6]:
        try:
            changed = apply_schedule(changed, f"vectorise({loop})")
        except ScheduleError:
            continue
        taken["vectorise"] += 1
        lines.append(f"vectorise({loop})")
    told = "\n".join([show(nest), *lines, show(changed)])
    if parse(show(changed)) != changed:
        return "the text does not parse back\n" + told
    for backwards in (False, True):
        if run(changed, arrays, backwards)["out"].tobytes() != want:
            return f"bits differ, backwards: {backwards}\n" + told
    if backend().nest(changed, threads=2, serial_ns=0.0)(arrays)["out"].tobytes() != want:
        return "machine code differs\n" + told
    return None
