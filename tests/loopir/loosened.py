"""Sums taken apart by `rfactor`, as only `relaxed` allows: near NumPy's, and the same however they are run.

The bound is that of a sum in any order: as many roundings as there are terms, of the sum of their magnitudes.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from jitla.errors import ScheduleError
from jitla.loopir import apply_schedule, parse, run, show, verify
from tests.loopir.agree import STEPS, backend, line_for


def near(seed: int, taken: Counter[str]) -> str | None:
    """Return what is wrong with the relaxed schedule of `seed`, None if nothing is."""
    rng = random.Random(seed)
    dtype, op = rng.choice(("float32", "float64")), rng.choice(("add", "subtract", "maximum"))
    m, n, depth = rng.randint(3, 7), rng.randint(3, 12), rng.randint(4, 20)
    nest = parse("\n".join([
        f"def drawn(A: '{dtype}[{m},{depth + 1}]', W: '{dtype}[{depth},{n}]', "
        f"out: '{dtype}[{m},{n}]') -> (out,):",
        f"    s = alloc('{dtype}[{m},{depth}]')",
        f"    for a in range({m}):", f"        for b in range({depth}):",
        f"            s[a, b] = {op}(A[a, b], A[a, b + 1])",
        f"    for y in range({m}):", f"        for x in range({n}):", f"            for k in range({depth}):",
        "                out[y, x] = add(..., multiply(s[y, k], W[k, x]))"]))
    verify(nest)
    data = np.random.default_rng(seed)
    arrays = {b.name: (data.normal(size=b.shape) * 100).astype(dtype) for b in (*nest.inputs, *nest.outputs)}
    lines = [f"split(k, {rng.randint(2, 4)})"] if rng.random() < 0.7 else []
    lines.append(f"rfactor({rng.choice(('k_o', 'k_i')) if lines else 'k'})")
    changed = apply_schedule(nest, "\n".join(lines), relaxed=True)
    for _ in range(5 * STEPS):
        line = line_for(rng, changed)
        try:
            changed = apply_schedule(changed, line, relaxed=True)
        except ScheduleError as error:
            taken[f"refused: {error.law}"] += 1
            continue
        lines.append(line)
        if len(lines) > STEPS:
            break
    for line in lines:
        taken[line.split("(")[0]] += 1
    told = "\n".join([show(nest), *lines, show(changed)])
    found = run(changed, arrays)["out"]
    stage = getattr(np, op)(arrays["A"][:, :-1], arrays["A"][:, 1:]).astype("f8")
    whole, given = arrays["W"].astype("f8"), arrays["out"].astype("f8")
    bound = (depth + 2) * np.finfo(dtype).eps * (np.abs(stage) @ np.abs(whole) + np.abs(given))
    if not (np.abs(found - (stage @ whole + given)) <= bound).all():
        return "farther away than rounding\n" + told
    if run(changed, arrays, backwards=True)["out"].tobytes() != found.tobytes():
        return "bits differ backwards\n" + told
    if backend().nest(changed, threads=2, serial_ns=0.0)(arrays)["out"].tobytes() != found.tobytes():
        return "machine code differs\n" + told
    if found.tobytes() != run(nest, arrays)["out"].tobytes():
        taken["other bits"] += 1
    return None
