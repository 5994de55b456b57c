"""How long a kernel takes from its definition to machine code, and from kept machine code to a call.

Knows: a few kernels, large and small. Must not know: how code is made.
Receives the number of rounds; prints a table, then the same as JSON.

The doors used: `Compiler` of jitla.recompile with `LlvmBackend` and `Jit` of jitla.codegen, since
the public interface compiles each kernel once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.measure import Estimate, estimate
from jitla.codegen import Jit, LlvmBackend
from jitla.events import Event
from jitla.fusion import Layout
from jitla.hops import Hop, Meta, apply, const, leaf, make
from jitla.recompile import Compiler

SHAPE = (3000, 40)
F8 = np.dtype("f8")


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


def row_sums() -> tuple[Hop, ...]:
    """``(x * y).sum(axis=1)``."""
    x, y = leaves(2)
    return (make("sum", [apply("multiply", x, y)], axis=(1,), keepdims=False),)


def exponentials() -> tuple[Hop, ...]:
    """``exp(x) / (1 + exp(y))``."""
    x, y = leaves(2)
    return (apply("divide", apply("exp", x), apply("add", apply("exp", y), apply("exp", x))),)


def waves() -> tuple[Hop, ...]:
    """``sin(x) * cos(y) + tanh(x)``."""
    x, y = leaves(2)
    return (apply("add", apply("multiply", apply("sin", x), apply("cos", y)), apply("tanh", x)),)


CASES: dict[str, Callable[[], tuple[Hop, ...]]] = {
    "a*b+c*d-e": sum_of_products, "two sums of a hinge": hinge, "(x*y).sum(axis=1)": row_sums,
    "exp(x)/(exp(y)+exp(x))": exponentials, "sin(x)*cos(y)+tanh(x)": waves,
}


class Keeping(LlvmBackend):
    """A backend that keeps what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Any] = []

    def compile(self, *asked: Any) -> Any:
        """Compile and keep."""
        self.made.append(super().compile(*asked))
        return self.made[-1]


def build(roots: tuple[Hop, ...]) -> tuple[float, list[tuple[str, tuple[str, ...]]], Any]:
    """Seconds that the kernel of `roots` took from plan to entry point; its text; the backend."""
    events: list[Event] = []
    backend = Keeping()
    backend.jit.load("define void @k() {\n  ret void\n}\n", ("k",))  # LLVM starts
    compiler = Compiler(backend, observe=events.append)
    places = {slot: Layout(SHAPE, (SHAPE[1] * 8, 8)) for slot in range(5)}
    program = compiler.build(roots, places)
    program.bind(program.identity(), places)
    texts = [(e.text, ("k", "fin") if "@fin(" in e.text else ("k",)) for e in backend.made]
    return sum(e.seconds for e in events if e.kind == "kernel"), texts, backend


def load(objects: Any, texts: list[tuple[str, tuple[str, ...]]]) -> float:
    """Seconds to make kept machine code callable in a fresh compiler."""
    jit = Jit(objects)
    jit.load("define void @k() {\n  ret void\n}\n", ("k",))
    start = time.perf_counter()
    for text, names in texts:
        jit.load(text, names)
    return time.perf_counter() - start


def measure(make_roots: Callable[[], tuple[Hop, ...]], rounds: int) -> tuple[Estimate, Estimate]:
    """Compile and load anew in each round."""
    compiled, loaded = [], []
    for _ in range(rounds):
        seconds, texts, backend = build(make_roots())
        compiled.append(seconds)
        loaded.append(load(backend.jit.objects, texts))
    return estimate(compiled), estimate(loaded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{options.rounds} rounds, ms, median [95 % interval]")
    print(f"{'kernel':28}{'compile':>24}{'load':>24}")
    report = {}
    for name, make_roots in CASES.items():
        made, loaded = measure(make_roots, options.rounds)
        print(f"{name:28}{made.show(1e3):>24}{loaded.show(1e3):>24}", flush=True)
        report[name] = {"compile_s": made.value, "load_s": loaded.value}
    print(json.dumps({"bench": "compiling", "kernels": report}))


if __name__ == "__main__":
    main()
