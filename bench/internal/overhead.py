"""What jitla costs per operation, leaf, force and call, on arrays too small to matter themselves.

Inner parts used: the bound programs of a decorated function, to tell running a program from
finding it; the rewritten version of a function with a loop, to tell entering compiled code from
dispatching a call.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np

import jitla
from bench.measure import Estimate, compare, estimate, seconds

Array = np.ndarray
ELEMENTS = 16
BATCH = 200


def no_op(x, y):
    return None


def ops_1(x, y):
    return x + y


def ops_9(x, y):
    z = x + y
    z = z * x
    z = z - y
    z = z * x
    z = z + y
    z = z * x
    z = z - y
    z = z * x
    return z + y


def ops_17(x, y):
    z = x + y
    z = z * x
    z = z - y
    z = z * x
    z = z + y
    z = z * x
    z = z - y
    z = z * x
    z = z + y
    z = z * x
    z = z - y
    z = z * x
    z = z + y
    z = z * x
    z = z - y
    z = z * x
    return z + y


def given_6(a, b, c, d, e, f):
    return None


def given_10(a, b, c, d, e, f, g, h, i, j):
    return None


# As many operations each, on more and more arrays.
def leaves_2(a, b):
    return a + b + a + b + a + b + a + b + a + b


def leaves_6(a, b, c, d, e, f):
    return a + b + c + d + e + f + a + b + c + d


def leaves_10(a, b, c, d, e, f, g, h, i, j):
    return a + b + c + d + e + f + g + h + i + j


def forces_1(x, y):
    return float((x * y).sum())


def forces_3(x, y):
    p = float((x * y).sum())
    q = float((x * y).sum())
    return p + q + float((x * y).sum())


def forces_5(x, y):
    p = float((x * y).sum())
    q = float((x * y).sum())
    r = float((x * y).sum())
    s = float((x * y).sum())
    return p + q + r + s + float((x * y).sum())


def five_ops(x, y):
    return np.abs((x * y + x) * y - x)


def summed(x, n):
    s = 0.0
    for i in range(n):
        s += x[i]
    return s


def scaled(x, y, n):
    for i in range(n):
        y[i] = 2.0 * x[i]
    return y


FAMILIES: dict[str, tuple[tuple[int, Callable[..., object]], ...]] = {
    "op": ((1, ops_1), (9, ops_9), (17, ops_17)),
    "argument": ((2, no_op), (6, given_6), (10, given_10)),
    "leaf": ((2, leaves_2), (6, leaves_6), (10, leaves_10)),
    "force": ((1, forces_1), (3, forces_3), (5, forces_5)),
}
SIZES = (10, 1_000, 100_000)


def arguments(function: Callable[..., object]) -> list[Array]:
    """Small distinct arrays, one per parameter."""
    rng = np.random.default_rng(2)
    return [rng.normal(size=ELEMENTS) for _ in range(function.__code__.co_argcount)]


def slopes(rounds: int, decorate: Callable[..., Callable[..., object]]) -> dict[str, list[float]]:
    """Seconds per further op, argument, leaf, force; and per call that does nothing or one op."""
    calls = {
        (name, n): (lambda g=decorate(f), a=arguments(f): g(*a))
        for name, family in FAMILIES.items() for n, f in family
    }
    for call in calls.values():
        seconds(call, 5)
    found: dict[str, list[float]] = {name: [] for name in (*FAMILIES, "call", "one op")}
    for _ in range(rounds):
        taken = {key: seconds(call, BATCH) for key, call in calls.items()}
        for name, family in FAMILIES.items():
            counts = [n for n, _ in family]
            found[name].append(float(np.polyfit(counts, [taken[name, n] for n in counts], 1)[0]))
        found["call"].append(taken["argument", 2])
        found["one op"].append(taken["op", 1])
    return found


def program_of(function: Callable[..., object]) -> Callable[[], object]:
    """A call of what `function` was compiled to, kernel included, without finding it."""
    given = arguments(function)
    fast = jitla.jit(function, compile="sync")
    for _ in range(3):
        fast(*given)
    run = [closed.bound.run for site in fast.__jitla_state__.all_sites()
           for closed in site.exact.values() if closed.bound is not None][-1]
    return lambda: run(given)


def programs(rounds: int) -> dict[str, Estimate]:
    """Seconds of the compiled program alone, of a scalar and of an array."""
    calls = {"of it, the program of a scalar": program_of(forces_1),
             "of it, the program of an array": program_of(ops_1)}
    return {name: estimate([seconds(call, BATCH) for _ in range(rounds)])
            for name, call in calls.items()}


def breakdown(found: dict[str, list[float]]) -> dict[str, Estimate]:
    """Solve for the parts, round by round.

    A leaf is an array argument that is read: it is taken in once a call, and entered once a block.
    A further scalar force comes with two ops and two arrays entered; the call that does nothing has
    taken in two arguments.
    """
    op, argument, leaf, force, call, one = (
        np.array(found[name]) for name in ("op", "argument", "leaf", "force", "call", "one op"))
    entered = leaf - argument
    scalar = force - 2 * op - 2 * entered
    array = one - call - op - 2 * entered
    parts = {"traced operation": op, "leaf": leaf, "of it, taking in the argument": argument,
             "call that does nothing": call, "force of a scalar, plan known": scalar,
             "force of an array, plan known": array}
    return {name: estimate(values.tolist()) for name, values in parts.items()}


def warm_calls(pairs: int) -> dict[int, dict[str, object]]:
    """A function of five operations, plain and decorated in turn."""
    fast = jitla.jit(five_ops)
    report: dict[int, dict[str, object]] = {}
    print(f"\n{'five operations on':28}{'NumPy µs':>12}{'jitla µs':>12}   ratio")
    for size in SIZES:
        rng = np.random.default_rng(size)
        x, y = rng.normal(size=size), rng.normal(size=size)
        fast(x, y)
        found = compare(lambda x=x, y=y: five_ops(x, y), lambda x=x, y=y: fast(x, y), pairs,
                        least=2e-3)
        print(f"{size:>18,} elements{found.first.value * 1e6:13.2f}{found.second.value * 1e6:12.2f}"
              f"   {found.ratio.show()}", flush=True)
        report[size] = {"numpy_s": found.first.value, "jitla_s": found.second.value,
                        "ratio": [found.ratio.value, found.ratio.low, found.ratio.high]}
    return report


def enter_loops(pairs: int) -> dict[str, dict[str, float]]:
    """Microseconds of functions with short loops: plain, entered by Python, and entered natively."""
    report: dict[str, dict[str, float]] = {}
    print(f"\n{'loops of':28}{'plain µs':>12}{'by Python':>12}{'natively':>12}{'decorated':>12}")
    x = np.arange(1000.0) + 0.5
    for function in (summed, scaled):
        operands = (x,) if function is summed else (x, x.copy())
        fast = jitla.jit(function)
        end = perf_counter() + 30.0
        while perf_counter() < end:
            fast(*operands, 100)
            loops = fast.__jitla_state__.loop_function
            if loops is not None and any(site.enter != site.begin for site in loops.entries):
                break
        site, enter = loops.entries[0], loops.entries[0].enter
        for n in (100, 10, 3):
            calls = {"plain": partial(function, *operands, n), "native": partial(loops.version, *operands, n),
                     "decorated": partial(fast, *operands, n)}
            found: dict[str, list[float]] = {name: [] for name in (*calls, "python")}
            for _ in range(pairs):
                for name, call in calls.items():
                    found[name].append(seconds(call, BATCH))
                site.enter = site.begin
                found["python"].append(seconds(calls["native"], BATCH))
                site.enter = enter
            best = {name: min(values) * 1e6 for name, values in found.items()}
            print(f"{function.__name__:14}{n:>3} iterations{best['plain']:12.2f}{best['python']:12.2f}"
                  f"{best['native']:12.2f}{best['decorated']:12.2f}", flush=True)
            report[f"{function.__name__} {n}"] = best
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(f"{ELEMENTS} float64, {options.rounds} rounds, µs, median [95 % interval]")
    plain = breakdown(slopes(options.rounds, lambda f: f))
    parts = breakdown(slopes(options.rounds, jitla.jit(compile="sync")))
    inside = programs(options.rounds)
    print(f"{'':34}{'NumPy':>24}{'jitla':>24}")
    for name, part in (parts | inside).items():
        beside = plain[name].show(1e6) if name in plain else ""
        print(f"{name:34}{beside:>24}{part.show(1e6):>24}")
    report = warm_calls(max(30, options.rounds))
    loops = enter_loops(options.rounds)
    print(json.dumps({
        "bench": "overhead",
        "parts_s": {name: [p.value, p.low, p.high] for name, p in (parts | inside).items()},
        "five_ops": report,
        "loops_us": loops,
    }))


if __name__ == "__main__":
    main()
