"""Hops as rows of plain values, and back: what may be kept as text.

Knows: which values of attributes can be written down. Must not know: plans, where texts are kept.
Receives roots, and records of hops; returns rows that JSON takes, words for roots, hops for rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from jitla.hops.meta import Meta
from jitla.hops.node import Hop, const, leaf, make, topo
from jitla.hops.spec import Kind
from jitla.hops.table_user import Compiled

_PLAIN = frozenset({int, float, str, bool, type(None)})


class Unwritable(Exception):
    """A value that has no text: what it is part of is not kept."""


class Rows:
    """Hops as rows, each once: operator, operands, attributes, what is known of leaves, whose line it has."""

    def __init__(self, roots: Sequence[Hop], records: Mapping[str, type] | None = None) -> None:
        self._names = {kind: name for name, kind in (records or {}).items()}
        self.rows: list[Any] = []
        self.numbers: dict[Hop, int] = {}
        self._lines: dict[Any, int] = {}
        for hop in topo(roots):
            self._add(hop)
            self._lines.setdefault(hop.line, self.numbers[hop])
            self.rows[-1].pop()  # the lines of what was asked for are no part of it

    def _add(self, hop: Hop) -> None:
        if isinstance(hop.op.ref, Compiled):
            raise Unwritable(f"{hop.op.name} is a user's")
        known = (hop.meta.shape, hop.meta.dtype, hop.meta.nnz) if hop.op.kind is Kind.LEAF else None
        meta = self.value(known)
        self.rows.append([hop.op.name, [self.numbers[i] for i in hop.inputs],
                          [[k, self.value(v)] for k, v in hop.attrs], meta, self._lines.get(hop.line)])
        self.numbers[hop] = len(self.numbers)

    def hop(self, hop: Hop) -> int:
        """Return the number of `hop`, written down by then."""
        if hop not in self.numbers:
            for each in topo((hop,)):
                if each not in self.numbers:
                    self._add(each)
        return self.numbers[hop]

    def value(self, value: Any) -> Any:
        """Return what stands for a value: itself, a list for a tuple, a dictionary of one for all else."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            if value and all(type(v) is Hop for v in value):
                return {"hops": [self.hop(v) for v in value]}
            return [self.value(v) for v in value]
        if kind is Hop:
            return {"hop": self.hop(value)}
        if kind in self._names:
            parts = value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)]
            return {self._names[kind]: [self.value(v) for v in parts]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.dtype) and np.dtype(value.str) == value:
            return {"dtype": value.str}
        raise Unwritable(f"{kind.__name__} has no text")


def value_of(told: Any, hops: Sequence[Hop], records: Mapping[str, type]) -> Any:
    """Return the value that `told` stands for."""
    kind = type(told)
    if kind is list:
        return tuple([value_of(v, hops, records) for v in told])
    if kind is not dict:
        return told
    ((name, content),) = told.items()
    match name:
        case "hop":
            return hops[content]
        case "hops":
            return tuple([hops[n] for n in content])
        case "bytes":
            return bytes.fromhex(content)
        case "dtype":
            return np.dtype(content)
    return records[name](*[value_of(v, hops, records) for v in content])


def _hop(row: Sequence[Any], hops: Sequence[Hop], lines: Sequence[Any]) -> Hop:
    """Return the hop of a row."""
    name, inputs, pairs, meta, at = row
    line = None if at is None else lines[at]
    attrs: dict[str, Any] = {k: value_of(v, hops, {}) for k, v in pairs}
    if meta is None:
        return make(name, [hops[n] for n in inputs], line, **attrs)
    shape, dtype, nnz = value_of(meta, hops, {})
    if name == "const":
        return const(np.frombuffer(attrs["bits"], dtype)[0], dtype, line)
    return leaf(attrs["slot"], Meta(shape, dtype, nnz), attrs["form"], line)


def hops_of(rows: Sequence[Any], roots: Sequence[Hop]) -> list[Hop]:
    """Return the hops below `roots`, and those of `rows`, which were written down after these."""
    hops = list(topo(roots))
    lines = [h.line for h in hops]
    for row in rows:
        hops.append(_hop(row, hops, lines))
    return hops


def words_of(
    roots: Sequence[Hop], layouts: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
    outs: tuple[int | None, ...], aliases: frozenset[tuple[int, int, int]], *more: Any,
) -> str:
    """Return words by which what is made of a block is found; raise `Unwritable` if it has none."""
    rows = Rows(roots)
    numbers = [rows.numbers[r] for r in roots]
    places = sorted((slot, *place) for slot, place in layouts.items())
    told = [rows.rows, numbers, places, outs or (None,) * len(numbers), sorted(aliases), more]
    try:
        text = json.dumps(told, separators=(",", ":"))
    except TypeError as wrong:
        raise Unwritable(str(wrong)) from None
    return hashlib.sha256(text.encode()).hexdigest()
