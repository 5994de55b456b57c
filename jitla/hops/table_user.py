"""The op table, part eight: element-wise functions that users have compiled, entered when one is met.

Knows: steps of a function, how they become a recipe. Must not know: who compiled it, how it was read.
Receives a function, what its loop reads and writes, and its steps; returns its entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from jitla.hops.meta import Meta
from jitla.hops.spec import Attrs, Kind, OpSpec, ScalarBuilder, Zeros, register
from jitla.hops.table_cell import cell_meta
from jitla.locks import relock

_lock = relock()
_entered: dict[str, OpSpec] = {}


class Step(NamedTuple):
    """A verb of `ScalarBuilder` or ``arg``; operands as numbers of steps; the dtype it makes, a constant."""

    verb: str
    operands: tuple[int, ...]
    dtype: np.dtype
    value: Any = None


class Body(NamedTuple):
    """What a function computes: the step that it returns, and that whose truth raises `invalid` (or -1)."""

    steps: tuple[Step, ...]
    result: int
    odd: int = -1

    @property
    def approximate(self) -> bool:
        """Say whether kernels have other functions than its compiler, which round in other ways."""
        return any(step.verb == "math" for step in self.steps)

    def emit(self, b: ScalarBuilder, *args: Any) -> Any:
        """Write it as a recipe."""
        made: list[Any] = []
        for verb, operands, dtype, value in self.steps:
            given = [made[k] for k in operands]
            match verb:
                case "arg":
                    made.append(args[value])
                case "const":
                    made.append(b.const(value, dtype))
                case "cast":
                    made.append(b.cast(given[0], dtype))
                case "math":
                    made.append(b.math(value, *given))
                case _:
                    made.append(getattr(b, verb)(*given))
        if self.odd >= 0:
            b.flag("invalid", made[self.odd])
        return made[self.result]


class Compiled:
    """A user's function, called as NumPy calls a ufunc; `alarms`: kernels of it that raised flags."""

    def __init__(self, function: Callable[..., Any], name: str, approximate: bool) -> None:
        self.function = function
        self.__name__ = name
        self.approximate = approximate
        self.alarms = 0

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def approximate(op: OpSpec) -> bool:
    """Say whether a kernel that does `op` may have other last bits than its reference."""
    return op.transcendental or isinstance(op.ref, Compiled) and op.ref.approximate


def enter(
    function: Callable[..., Any], name: str, ins: tuple[np.dtype, ...], out: np.dtype, body: Body,
) -> OpSpec:
    """Return the entry of a function that computes `body`; two of a name that do the same have one."""
    said = sha256(repr((ins, out, body)).encode()).hexdigest()[:12]
    known = f"{re.sub(r'[^A-Za-z0-9_]', '_', name)}_{said}"

    def meta(metas: tuple[Meta, ...], attrs: Attrs) -> Meta:
        return cell_meta(metas, out, Zeros.NONE)

    with _lock:
        if known not in _entered:
            made = Compiled(function, name, body.approximate)
            _entered[known] = register(OpSpec(
                name=known, kind=Kind.CELL, arity=len(ins), ref=made, meta=meta,
                resolve=lambda dtypes, attrs: ins, doc=f"{name}, which the user has compiled",
                numpy=(made,), emit=body.emit))
        return _entered[known]
