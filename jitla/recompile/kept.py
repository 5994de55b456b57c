"""Plans as text, and back: what a later process finds need not be planned again.

Knows: of what records plans consist, which values of attributes can be written down. Must not know: where the
text is kept, how plans are made.
Receives drafts and programs; returns words by which a plan is found, the text of it, and from that the plan.

Hops of the draft are told by number; only those that rewrites made are written down. What is read is what was
written: a plan that does not come back as it was is not kept at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Protocol

import numpy as np

from jitla.fusion import Call, Kernel, Plan, Product, RowKernel, Spelling, Way, WindowKernel
from jitla.hops import Hop, Kind, Meta, const, leaf, make, topo

_RECORDS: Mapping[str, type] = {c.__name__: c for c in (Call, Kernel, Product, RowKernel, WindowKernel, Way)}
_NAMES = {kind: name for name, kind in _RECORDS.items()}
_PLAIN = frozenset({int, float, str, bool, type(None)})


class Shelf(Protocol):
    """Keeps texts from process to process; never fails."""

    def get(self, words: str) -> bytes | None:
        """Return what is kept under `words`."""
        ...

    def put(self, words: str, text: bytes) -> None:
        """Keep `text`."""
        ...


class Unwritable(Exception):
    """A value that has no text: what it is part of is not kept."""


class Asked(Protocol):
    """What a program is asked for: hops, how leaves lie, where results go, what overlaps."""

    @property
    def roots(self) -> tuple[Hop, ...]: ...

    @property
    def layouts(self) -> Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]]: ...

    @property
    def outs(self) -> tuple[int | None, ...]: ...

    @property
    def aliases(self) -> frozenset[tuple[int, int, int]]: ...


class Kept(NamedTuple):
    """What a program is made of: `given` are the roots as planning began with them."""

    plan: Plan
    given: tuple[Hop, ...]
    spelling: Spelling | None
    searched: bool


def words_of(asked: Asked, *more: Any) -> str:
    """Return the words by which what is made of `asked` is found; raise `Unwritable` if there are none."""
    writer = _Writer(asked.roots)
    numbers = [writer.numbers[r] for r in asked.roots]
    layouts = sorted((slot, *place) for slot, place in asked.layouts.items())
    outs = asked.outs or (None,) * len(numbers)
    told = [writer.rows, numbers, layouts, outs, sorted(asked.aliases), more]
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


def numbers_of(asked: Asked, hops: Collection[Hop]) -> list[int]:
    """Return the numbers of those of `hops` that `asked` consists of."""
    return [n for n, hop in enumerate(topo(asked.roots)) if hop in hops]


def written(asked: Asked, kept: Kept, here: str) -> bytes:
    """Return the text of a plan made `here`; raise `Unwritable` if it does not come back from that."""
    writer = _Writer(asked.roots)
    known = len(writer.rows)
    plan = kept.plan.steps, kept.plan.outputs
    told = [writer.value(part) for part in (plan, kept.given, kept.spelling, kept.searched)]
    text = json.dumps([here, writer.rows[known:], *told], separators=(",", ":")).encode()
    if read(asked, text, here) != kept:
        raise Unwritable("a plan is not the same when it is read")
    return text


def read(asked: Asked, text: bytes, here: str) -> Kept | None:
    """Return the plan that was written down; None if it was made elsewhere, or is not to be understood."""
    try:
        place, rows, *told = json.loads(text)
        if place != here:
            return None
        hops = list(topo(asked.roots))
        lines = [h.line for h in hops]
        for row in rows:
            hops.append(_hop(row, hops, lines))
        plan, given, spelling, searched = (_value(part, hops) for part in told)
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    found = Kept(Plan(*plan), given, spelling, searched)
    return found if _answers(asked, found) else None


def _answers(asked: Asked, kept: Kept) -> bool:
    """Tell whether a plan makes values like those asked for."""
    return len(kept.plan.outputs) == len(asked.roots) and all(
        made.meta.shape == root.meta.shape and (made.meta.dtype == root.meta.dtype or out is not None)
        for made, root, out in zip(kept.plan.outputs, asked.roots, asked.outs, strict=True))


class _Writer:
    """Hops as rows, each once: operator, operands, attributes, what is known of leaves, whose line it has."""

    def __init__(self, roots: Sequence[Hop]) -> None:
        self.rows: list[Any] = []
        self.numbers: dict[Hop, int] = {}
        self._lines: dict[Any, int] = {}
        for hop in topo(roots):
            self._add(hop)
            self._lines.setdefault(hop.line, self.numbers[hop])
            self.rows[-1].pop()  # the lines of what was asked for are no part of it

    def _add(self, hop: Hop) -> None:
        meta = self.value((hop.meta.shape, hop.meta.dtype, hop.meta.nnz)) if hop.op.kind is Kind.LEAF else None
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
        if kind in _NAMES:
            parts = value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)]
            return {_NAMES[kind]: [self.value(v) for v in parts]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.dtype) and np.dtype(value.str) == value:
            return {"dtype": value.str}
        raise Unwritable(f"{kind.__name__} has no text")


def _value(told: Any, hops: Sequence[Hop]) -> Any:
    """Return the value that `told` stands for."""
    kind = type(told)
    if kind is list:
        return tuple([_value(v, hops) for v in told])
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
    return _RECORDS[name](*[_value(v, hops) for v in content])


def _hop(row: Sequence[Any], hops: Sequence[Hop], lines: Sequence[Any]) -> Hop:
    """Return the hop of a row."""
    name, inputs, pairs, meta, at = row
    line = None if at is None else lines[at]
    attrs: dict[str, Any] = {k: _value(v, hops) for k, v in pairs}
    if meta is None:
        return make(name, [hops[n] for n in inputs], line, **attrs)
    shape, dtype, nnz = _value(meta, hops)
    if name == "const":
        return const(np.frombuffer(attrs["bits"], dtype)[0], dtype, line)
    return leaf(attrs["slot"], Meta(shape, dtype, nnz), attrs["form"], line)

