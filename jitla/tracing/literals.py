"""Scalars of a tape that are literals of the code that made it, so that plans may know their values.

Knows: constants of code objects, by line. Must not know: blocks' ends, which rewrites there are.
Receives where entries come from, and values that rewrites ask for; returns which scalars are such literals.

`x * 1` has the same tape as `x * k`: whoever takes a scalar for a literal looks at its value in every run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from opcode import opmap
from types import CodeType
from typing import Any

import numpy as np

from jitla.source import PerCode
from jitla.tracing.tape import KIND_CODE, OPS, SCALAR, Block, split

#: By operator: the values of scalars that some rewrite asks for.
Asked = Mapping[str, Collection[Any]]

#: The same by level of numerics, for all rewrites, which are not loaded before there is a compiler.
ASKED: dict[str, Asked] = {"strict": {
    "add": frozenset({-0.0}), "subtract": frozenset({0}), "multiply": frozenset({1, 2, -1}),
    "divide": frozenset({0.5, 1, 2.0}), "power": frozenset({0.5, 1, 2, -1}),
    "logical_and": frozenset({True}), "logical_or": frozenset({False}),
}}
ASKED["numpy"] = ASKED["strict"]
ASKED["relaxed"] = {
    **ASKED["numpy"], "power": frozenset({0.5, 1, 2, 3, 4, -1}), "multiply": frozenset({0, 1, 2, -1}),
    "where": frozenset({0}),
}

_KINDS = frozenset({KIND_CODE[int], KIND_CODE[float]})
_LOADS = frozenset(opmap[name] for name in ("LOAD_CONST", "RETURN_CONST") if name in opmap)
_SMALL, _EXTENDED = opmap.get("LOAD_SMALL_INT"), opmap["EXTENDED_ARG"]
_EQUAL = frozenset({int, bool, str, np.int64, np.bool_})
_FLOATS = frozenset({float, np.float64})


def is_same(a: Any, b: Any) -> bool:
    """Say whether two scalars have the same type and bits."""
    if a is b:
        return True
    kind = type(a)
    return kind is type(b) and (kind in _EQUAL or kind in _FLOATS and a != 0.0) and bool(a == b)


def literals_of(block: Block, codes: Mapping[int, CodeType], asked: Asked) -> dict[int, Any]:
    """Return the scalars of `block`, by number, that are literals with values asked for.

    `codes` are those that the entries come from, at the lines in `block.places`.
    """
    found: dict[int, Any] = {}
    number = 0
    for i, entry in enumerate(block.entries):
        if entry[0] == SCALAR:
            number += 1
        elif entry[0] > SCALAR:
            values = asked.get(OPS[entry[0]], ())
            for ref in split(entry)[0]:
                if ref >= 0:
                    continue
                value = block.scalars[number]
                if ref in _KINDS and value in values and i in codes:
                    if any(is_same(value, n) for n in _numbers(codes[i], block.places[i].line)):
                        found[number] = value
                number += 1
    return found


def _numbers(code: CodeType, line: int) -> list[Any]:
    """Return the numbers that stand in a line of `code`."""
    return _NUMBERS(code).get(line, [])


def _by_line(code: CodeType) -> dict[int | None, list[Any]]:
    found: dict[int | None, list[Any]] = {}
    for at, value in _loaded(code):
        if type(value) in (int, float):
            found.setdefault(at, []).append(value)
    return found


_NUMBERS = PerCode(_by_line)


def _loaded(code: CodeType) -> Iterator[tuple[int | None, Any]]:
    """Yield the constants that `code` loads, with their lines; `dis` would take ten times as long."""
    found, number = code.co_code, 0
    for at, place in zip(range(0, len(found), 2), code.co_positions(), strict=False):
        kind, number = found[at], number << 8 | found[at + 1]
        if kind in _LOADS:
            yield place[0], code.co_consts[number]
        elif kind == _SMALL:
            yield place[0], number
        if kind != _EXTENDED:
            number = 0
