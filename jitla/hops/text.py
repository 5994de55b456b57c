"""Text of DAGs: printer, parser, and the serialised form."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from os.path import basename
from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops.meta import Meta
from jitla.hops.node import Hop, const, const_value, leaf, make, topo
from jitla.hops.ops_elementwise import Compiled
from jitla.hops.opspec import Kind


def place(line: Any) -> str:
    """Write a user's line: (file, number) without folders, anything else as it is."""
    if isinstance(line, tuple) and len(line) == 2:
        return f"{basename(line[0])}:{line[1]}"
    return str(line)


def show(roots: Iterable[Hop], lines: bool = False) -> str:
    """Write the DAG below `roots`, numbered in topological order; `lines` adds the user's lines."""
    roots = tuple(roots)
    number = {hop: n for n, hop in enumerate(topo(roots), 1)}
    width = max((len(f"({n}) {_term(hop, number)}") for hop, n in number.items()), default=0)
    text = []
    for hop, n in number.items():
        row = f"({n}) {_term(hop, number)}".ljust(min(width, 48)) + "  " + _meta(hop.meta)
        # a leaf is shared by all who read that slot: whose line it has says nothing
        shown = lines and hop.line is not None and hop.op.name != "leaf"
        text.append(row + (f"  # {place(hop.line)}" if shown else ""))
    text.append("roots" + "".join(f" ({number[r]})" for r in roots))
    return "\n".join(text) + "\n"


def _term(hop: Hop, number: dict[Hop, int]) -> str:
    """Write the operator as a Python call: inputs are numbers, attributes are keywords."""
    if hop.op.name == "const":
        return f"const({_literal(hop)})"
    words = [str(number[i]) for i in hop.inputs]
    words += [f"{k}={_attr(k, v)}" for k, v in hop.attrs]
    return f"{hop.op.name}({', '.join(words)})"


def _meta(meta: Meta) -> str:
    nnz = "" if meta.nnz is None else f" nnz<={meta.nnz}"
    return f"{_dtype(meta.dtype)}[{','.join(map(str, meta.shape))}]{nnz}"


def _dtype(dtype: np.dtype) -> str:
    """The name, or where that loses the byte order or the unit, the code."""
    return dtype.name if np.dtype(dtype.name) == dtype else dtype.str


def _literal(hop: Hop) -> str:
    """The value as a literal if it reads back to the same bits, else the bits."""
    scalar = const_value(hop)
    text = str(scalar)
    if not re.fullmatch(r"[-+0-9.eE]+|True|False", text):
        text = repr(text)
    try:
        again = hop.meta.dtype.type(ast.literal_eval(text))
    except (TypeError, ValueError):
        return f"bits={hop.attr('bits').hex()!r}"
    return text if again.tobytes() == hop.attr("bits") else f"bits={hop.attr('bits').hex()!r}"


def _attr(name: str, value: Any) -> str:
    match name:
        case "dtype":
            return repr(_dtype(np.dtype(value)))
        case "index":
            return repr(", ".join(map(_index_item, value)))
    return repr(value)


def _index_item(item: tuple[Any, ...]) -> str:
    match item:
        case ("i", i):
            return str(i)
        case ("n",):
            return "newaxis"
        case ("e",):
            return "..."
        case ("s", *bounds):
            shown = ["" if b is None else str(b) for b in bounds]
            return ":".join(shown if shown[2] else shown[:2])
    raise InternalError(f"no index item: {item}")


# --------------------------------------------------------------------------- reading

_ROW = re.compile(
    r"\((?P<n>\d+)\) (?P<term>\w+\(.*\))  +(?P<dtype>[^\s\[]+(?:\[\w+\])?)"
    r"\[(?P<shape>[\d,]*)\](?: nnz<=(?P<nnz>\d+))?(?:  # (?P<line>.*))?"
)


def parse(text: str) -> tuple[Hop, ...]:
    """Return the roots that `show` wrote as `text`; user's lines come back as strings."""
    hops: dict[int, Hop] = {}
    for row in text.splitlines():
        if row.startswith("roots"):
            return tuple(hops[int(n)] for n in re.findall(r"\((\d+)\)", row))
        match = _ROW.fullmatch(row.rstrip())
        if match is None:
            raise ValueError(f"no hop: {row!r}")
        hops[int(match["n"])] = _parse_hop(match, hops)
    raise ValueError("no line of roots")


def _parse_hop(match: re.Match[str], hops: dict[int, Hop]) -> Hop:
    shape = tuple(int(n) for n in match["shape"].split(",") if n)
    nnz = None if match["nnz"] is None else int(match["nnz"])
    meta = Meta(shape, np.dtype(match["dtype"]), nnz)
    name, args, attrs = _parse_term(match["term"])
    match name:
        case "leaf":
            hop = leaf(meta=meta, line=match["line"], **attrs)
        case "const":
            value = _from_bits(attrs["bits"], meta.dtype) if "bits" in attrs else args[0]
            hop = const(value, meta.dtype, match["line"])
        case _:
            hop = make(name, [hops[n] for n in args], match["line"], **attrs)
    if hop.meta != meta:
        raise ValueError(f"({match['n']}) is {_meta(hop.meta)}, the text says {_meta(meta)}")
    return hop


def _from_bits(bits: str, dtype: np.dtype) -> Any:
    return np.frombuffer(bytes.fromhex(bits), dtype)[0]


def _parse_term(term: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Split a call into name, positional literals, and attributes."""
    call = ast.parse(term, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    args = [ast.literal_eval(a) for a in call.args]
    attrs = {str(k.arg): _parse_attr(str(k.arg), ast.literal_eval(k.value)) for k in call.keywords}
    return call.func.id, args, attrs


def _parse_attr(name: str, value: Any) -> Any:
    match name:
        case "dtype":
            return np.dtype(value)
        case "index":
            return tuple(_parse_index_item(item) for item in value.split(", ") if item)
    return value


def _parse_index_item(item: str) -> tuple[Any, ...]:
    match item:
        case "newaxis":
            return ("n",)
        case "...":
            return ("e",)
        case _ if ":" in item:
            bounds = [int(b) if b else None for b in item.split(":")]
            return ("s", *bounds, *[None] * (3 - len(bounds)))
    return ("i", int(item))


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
