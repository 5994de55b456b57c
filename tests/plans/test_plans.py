"""The fixtures of this folder: snippets, the structure of their plans, and their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitla.fusion import InterpretedBackend, Layout, format_plan, plan, structure
from jitla.hops import Hop, Meta, WeakScalar, apply, by_numpy, leaf, make
from jitla.recompile import Compiler

SHAPES = {"X": (300, 40), "Y": (300, 40), "v": (40,), "w": (40,), "r": (300,),
          "V": (40, 7), "P": (300, 7),
          "A": (2000, 24), "W": (24, 200), "W2": (24, 200), "b": (200,), "S": (2000, 200), "G": (200, 24),
          "U": (2000, 100), "H": (100, 200), "m": (100,), "d": (100,), "q": (2000,)}


class Traced:
    """A value of a snippet; operators build hops."""

    def __init__(self, hop: Hop) -> None:
        self.hop = hop

    def _with(self, name: str, *others: Any, **attrs: Any) -> Traced:
        return Traced(apply(name, self.hop, *[plain(o) for o in others], **attrs))

    def _after(self, name: str, other: Any) -> Traced:
        return Traced(apply(name, plain(other), self.hop))

    def __add__(self, o): return self._with("add", o)
    def __mul__(self, o): return self._with("multiply", o)
    def __sub__(self, o): return self._with("subtract", o)
    def __radd__(self, o): return self._after("add", o)
    def __rtruediv__(self, o): return self._after("divide", o)
    def __rsub__(self, o): return self._after("subtract", o)
    def __truediv__(self, o): return self._with("divide", o)
    def __neg__(self): return self._with("negative")
    def __pow__(self, o): return self._with("power", o)
    def __gt__(self, o): return self._with("greater", o)
    def __matmul__(self, o): return self._with("matmul", o)

    def __getitem__(self, key):
        index = tuple(("s", k.start, k.stop, k.step) for k in key)
        return Traced(make("getitem", (self.hop,), index=index))

    @property
    def T(self):
        return Traced(make("transpose", (self.hop,), axes=(1, 0)))

    def _reduce(self, name, axis=None, keepdims=False):
        every = tuple(range(self.hop.meta.ndim))
        return self._with(name, axis=every if axis is None else (axis,), keepdims=keepdims)

    def sum(self, **how): return self._reduce("sum", **how)
    def max(self, **how): return self._reduce("max", **how)

    def __array_ufunc__(self, ufunc, method, *inputs):
        return Traced(apply(by_numpy(ufunc).name, *map(plain, inputs)))


def plain(value: Any) -> Hop | WeakScalar:
    """The operand behind a value; literals take slots from 100 on."""
    if isinstance(value, Traced):
        return value.hop
    LITERALS.append(value)
    return WeakScalar(99 + len(LITERALS), type(value))


LITERALS: list[float] = []


def fixtures() -> Iterator[tuple[str, list[str], str, str]]:
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        title = ""
        for block in path.read_text().split("\n\n"):
            lines = block.splitlines()
            notes = [line for line in lines if line.startswith("#")]
            title = notes[0][2:] if notes else title
            code = [line for line in lines if line and not line.startswith("#")]
            if code:
                *code, returned, wanted = code
                yield title, code, returned.removeprefix("return: "), wanted


@pytest.mark.parametrize("title, code, returned, wanted", list(fixtures()))
def test_plan_of_a_snippet(title, code, returned, wanted):
    LITERALS.clear()
    data = np.random.default_rng(0)
    arrays = {n: data.random(s) for n, s in SHAPES.items()} | {"s": np.float64(0.5)}
    names: dict[str, Any] = {"np": np}
    for slot, (name, value) in enumerate(arrays.items()):
        form = "array" if np.ndim(value) else "scalar"
        names[name] = Traced(leaf(slot, Meta(np.shape(value), value.dtype), form))
    exec("\n".join(code), names)
    roots = tuple(names[n].hop for n in re.split(r",\s*", returned))
    layouts = {i: Layout(x.shape, x.strides) for i, x in enumerate(arrays.values()) if x.ndim}
    backend = InterpretedBackend()
    found = plan(roots, layouts, lambda h: None if h.op.name == "matmul" else backend.supports(h))
    count = ", ".join(f"{k} {n}" for k, n in structure(found).items())
    assert f"structure: {count}" == wanted, f"{title}\n{format_plan(found)}"

    program = Compiler(backend, rules=None, check=True).build(roots, layouts)
    leaves = [*arrays.values(), *[None] * (100 - len(arrays)), *LITERALS]
    got = program.bind(program.identity(), layouts).run(leaves)
    values: dict[str, Any] = {"np": np, **arrays}
    exec("\n".join(code), values)
    for value, name in zip(got, re.split(r",\s*", returned), strict=True):
        assert np.array_equal(value, values[name]), title
