"""How long a kernel takes from its definition to machine code, and from kept machine code to a call.

Inner parts used: `Compiler` of jitla.recompile with `LlvmBackend` and `Jit` of jitla.codegen, since
the public interface compiles each kernel once.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from bench.measure import Estimate, estimate
from jitla.codegen import Jit, LlvmBackend, modules
from jitla.events import Event
from jitla.fusion import Layout
from jitla.hops import Hop, Meta, apply, const, leaf, make
from jitla.recompile import Compiler

SHAPE = (3000, 40)
F8 = np.dtype("f8")
Objects = MutableMapping[str, bytes]
Texts = list[tuple[str, tuple[str, ...]]]
DEFINED = re.compile(r"^define .*@(\w+)\(", re.M)


def leaves(n: int) -> list[Hop]:
    """Array leaves of `SHAPE`."""
    return [leaf(slot, Meta(SHAPE, F8)) for slot in range(n)]


def total(hop: Hop) -> Hop:
    """Sum of all elements."""
    return make("sum", [hop], axis=(0, 1), keepdims=False)


def sum_of_products() -> tuple[Hop, ...]:
    """``a * b + c * d - e``."""
    a, b, c, d, e = leaves(5)
    return (apply("subtract", apply("add", apply("multiply", a, b), apply("multiply", c, d)), e),)


def hinge() -> tuple[Hop, ...]:
    """The two sums of a squared hinge loss."""
    margin, y = leaves(2)
    out = apply("maximum", apply("subtract", y, margin), const(0.0, F8))
    return total(apply("multiply", out, out)), total(apply("multiply", out, y))


def logistic_search() -> tuple[Hop, ...]:
    """The two sums of a line search for a logistic regression."""
    x, d, y = leaves(3)
    one = const(1.0, F8)
    step = leaf(3, Meta((), F8), "scalar")
    margin = apply("multiply", y, apply("add", x, apply("multiply", step, d)))
    p = apply("divide", one, apply("add", one, apply("exp", margin)))
    slope = apply("multiply", apply("multiply", p, y), d)
    rest = apply("multiply", apply("multiply", p, apply("subtract", one, p)), d)
    return total(slope), total(apply("multiply", rest, d))


def row_sums() -> tuple[Hop, ...]:
    """``(x * y).sum(axis=1)``."""
    x, y = leaves(2)
    return (make("sum", [apply("multiply", x, y)], axis=(1,), keepdims=False),)


def exponentials() -> tuple[Hop, ...]:
    """``exp(x) / (1 + exp(y))``."""
    x, y = leaves(2)
    return (apply("divide", apply("exp", x), apply("add", apply("exp", y), apply("exp", x))),)


def wave() -> tuple[Hop, ...]:
    """``sin(x) + y``."""
    x, y = leaves(2)
    return (apply("add", apply("sin", x), y),)


def waves() -> tuple[Hop, ...]:
    """``sin(x) * cos(y) + tanh(x)``."""
    x, y = leaves(2)
    return (apply("add", apply("multiply", apply("sin", x), apply("cos", y)), apply("tanh", x)),)


CASES: dict[str, Callable[[], tuple[Hop, ...]]] = {
    "a*b+c*d-e": sum_of_products, "two sums of a hinge": hinge, "(x*y).sum(axis=1)": row_sums,
    "sin(x)+y": wave,
    "two logistic sums": logistic_search, "exp(x)/(exp(y)+exp(x))": exponentials,
    "sin(x)*cos(y)+tanh(x)": waves,
}


class Keeping(LlvmBackend):
    """A backend that keeps what it made."""

    def __init__(self, objects: Objects) -> None:
        super().__init__(objects=dict(objects))
        self.made: list[Any] = []

    def compile(self, *asked: Any) -> Any:
        """Compile and keep."""
        self.made.append(super().compile(*asked))
        return self.made[-1]


def build(roots: tuple[Hop, ...], objects: Objects) -> tuple[float, Texts, Any]:
    """Seconds that the kernel of `roots` took from plan to entry point; its text; the backend.

    `objects` is machine code that was there before.
    """
    events: list[Event] = []
    backend = Keeping(objects)
    backend.jit.load("define void @k() {\n  ret void\n}\n", ("k",))  # LLVM starts
    compiler = Compiler(backend, observe=events.append)
    places = {slot: Layout(SHAPE, (SHAPE[1] * 8, 8)) for slot in range(5)}
    program = compiler.build(roots, places)
    program.bind(program.identity(), places)
    texts: Texts = [(e.text, ("k", "fin") if "@fin(" in e.text else ("k",)) for e in backend.made]
    return sum(e.seconds for e in events if e.kind == "kernel"), texts, backend


def shared(texts: Texts, jit: Jit) -> Objects:
    """Machine code of functions such as sin: what other kernels left behind in the same process."""
    found = {}
    for text, _ in texts:
        for level, part in modules(text):
            if all(name.startswith("jitla_") for name in DEFINED.findall(part)):
                key = jit.key(part, level)
                found[key] = jit.objects[key]
    return found


def load(objects: Objects, texts: Texts) -> float:
    """Seconds to make kept machine code callable in a fresh compiler."""
    jit = Jit(objects)
    jit.load("define void @k() {\n  ret void\n}\n", ("k",))
    start = time.perf_counter()
    for text, names in texts:
        jit.load(text, names)
    return time.perf_counter() - start


def measure(make_roots: Callable[[], tuple[Hop, ...]], rounds: int) -> tuple[Estimate, ...]:
    """Compile from nothing, compile where functions are there, and load, anew in each round."""
    first, later, loaded = [], [], []
    for _ in range(rounds):
        seconds, texts, backend = build(make_roots(), {})
        first.append(seconds)
        later.append(build(make_roots(), shared(texts, backend.jit))[0])
        loaded.append(load(backend.jit.objects, texts))
    return estimate(first), estimate(later), estimate(loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{options.rounds} rounds, ms, median [95 % interval]")
    print(f"{'kernel':28}{'compile, first':>24}{'functions there':>24}{'load':>24}")
    report = {}
    for name, make_roots in CASES.items():
        found = measure(make_roots, options.rounds)
        print(f"{name:28}" + "".join(f"{e.show(1e3):>24}" for e in found), flush=True)
        keys = ("first_s", "compile_s", "load_s")
        report[name] = {key: e.value for key, e in zip(keys, found, strict=True)}
    print(json.dumps({"bench": "compiling", "kernels": report}))


if __name__ == "__main__":
    main()
