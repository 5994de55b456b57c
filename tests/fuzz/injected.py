"""`python -m tests.fuzz.injected`: injects bugs, one at a time, which the fuzzer has to find."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import jitla.codegen.kernel_abi
import jitla.codegen.kernels.reduce_all
import jitla.recompile.compiler
import jitla.tracing.mutation
from jitla.hops import (
    INVALID,
    lookup,
)
from jitla.hops import (
    interpreter as flags,
)
from jitla.recompile import Compiler
from jitla.rewrites import RULES, Rule, RuleSet, Var, ops
from jitla.tracing.force import BlockCloser
from jitla.tracing.open_tape import SCALARS
from tests.fuzz import layers, load
from tests.fuzz.generate import generate
from tests.fuzz.runner import run

MOST = 1000  # programs within which a bug is found


def wrong_rule() -> None:
    """Quotients as products with reciprocals, whatever numerics is asked for."""
    x, y = Var("X"), Var("Y")
    rule = Rule("div-as-mul", ops.divide(x, y), ops.multiply(x, ops.reciprocal(y)), doc="twice rounded")
    layers.RULES = RULES + RuleSet([rule])
    Compiler.__init__.__kwdefaults__["rules"] = lambda: layers.RULES  # type: ignore[attr-defined]


def wrong_stride() -> None:
    """Kernels step through strided inputs as if nothing lay between the elements."""
    real = jitla.codegen.kernel_abi.operands

    def dense(*given: Any) -> Any:
        return tuple(
            replace(o, letter="c") if o.letter == "s" and o.role == "in" else o for o in real(*given))

    jitla.codegen.kernel_abi.operands = dense


def missed_alias() -> None:
    """A write leaves alone the pending values that read another view of the same memory."""
    memory = jitla.tracing.mutation

    class Blind:
        """NumPy, to whom views are strangers."""

        def __getattr__(self, name: str) -> Any:
            return getattr(np, name)

        def may_share_memory(self, a: np.ndarray, b: np.ndarray) -> bool:
            return a is b

    def blinded(real: Callable[..., None]) -> Callable[..., None]:
        def settle(self: Any, target: Any = None) -> None:
            memory.np = Blind()  # type: ignore[assignment]
            try:
                real(self, target)
            finally:
                memory.np = np

        return settle

    for name in ("before_write", "compute_readers"):
        setattr(memory.MemoryDependences, name, blinded(getattr(memory.MemoryDependences, name)))


def wrong_promotion() -> None:
    """Integers times Python floats are floats of 32 bits."""
    spec = lookup("multiply")
    real = spec.resolve

    def narrow(given: Any, attrs: Any) -> Any:
        whole = any(isinstance(g, np.dtype) and g.kind in "iu" for g in given)
        return (np.dtype("f4"),) * 2 if whole and float in given else real(given, attrs)

    object.__setattr__(spec, "resolve", narrow)


def swapped_where() -> None:
    """Where the condition holds the other value is taken."""
    spec = lookup("where")
    real = spec.emit
    assert real is not None
    object.__setattr__(spec, "emit", lambda b, c, x, y, attrs: real(b, c, y, x, attrs))


def dropped_flag() -> None:
    """Nobody is told of divisions by zero."""
    flags._FLOAT_FLAGS["divide"] = INVALID


def stale_leaf() -> None:
    """A block met again runs with the numbers of the first time."""
    real, kept = BlockCloser._run_program, dict[Any, list[Any]]()

    def first(self: Any, parts: Any, closed: Any) -> Any:
        held = list(kept.setdefault(closed, parts[SCALARS]))
        return real(self, (*parts[:SCALARS], held, *parts[SCALARS + 1:]), closed)

    BlockCloser._run_program = first  # type: ignore[method-assign]


def wrong_tail() -> None:
    """Reductions leave out the last element if it is the only one that fills no vector."""
    real = jitla.codegen.kernels.reduce_all._leaf

    def cut(*given: Any) -> str:
        text = real(*given)
        assert "icmp ne i64 %rest, 0" in text
        return text.replace("icmp ne i64 %rest, 0", "icmp ugt i64 %rest, 1")

    jitla.codegen.kernels.reduce_all._leaf = cut


class Bug(NamedTuple):
    """What puts a bug in, and the layer that has it."""

    put: Callable[[], None]
    layer: str


BUGS = (
    Bug(wrong_rule, "rewrites"), Bug(wrong_stride, "codegen"), Bug(missed_alias, "tracing"),
    Bug(wrong_promotion, "tracing"), Bug(swapped_where, "codegen"), Bug(dropped_flag, "tracing"),
    Bug(stale_leaf, "tracing"), Bug(wrong_tail, "codegen"),
)


def hunt(bug: Bug, most: int) -> dict[str, Any]:
    """Put a bug in and run programs, none like another, until one differs; name the layer."""
    warnings.simplefilter("ignore")
    load.quick_kernels()
    jitla.configure(compile="sync")
    jitla.recompile.compiler.numpy_difference = lambda *given: ""  # else some kernels would not run
    bug.put()
    gc.disable()
    for seed in range(most):
        source, name = generate(seed, 1), f"injected-{seed}"
        faults = run(source, name).faults
        if faults:
            kind = faults[0][2].kind
            layer = layers.guilty(source, name, kind)
            return {"found": seed + 1, "kind": kind, "layer": layer}
        if seed % 32 == 0:
            gc.collect()
    return {"found": 0, "kind": "", "layer": ""}


def main() -> int:
    """Hunt every bug, or those that are named."""
    names = [bug.put.__name__ for bug in BUGS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.injected", description=__doc__)
    parser.add_argument("bugs", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--most", type=int, default=MOST, help="programs, at most, for each")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = [bug for bug in BUGS if bug.put.__name__ in given.bugs]
    if given.worker:
        sys.stdout.write(json.dumps(hunt(chosen[0], given.most)) + "\n")
        return 0
    missed = 0
    for bug in chosen:
        name = bug.put.__name__
        command = [sys.executable, "-m", "tests.fuzz.injected", "--worker", "--most", str(given.most), name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        right = found["found"] and found["layer"] == bug.layer
        missed += not right
        sys.stdout.write(
            f"{name:16} found after {found['found']:5} programs  {found['kind']:9} layer {found['layer']:9}"
            f"{'' if right else f'  SHOULD BE {bug.layer}'}\n")
        sys.stdout.flush()
    return missed


if __name__ == "__main__":
    sys.exit(main())
