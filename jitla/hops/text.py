"""Text of DAGs for people (`show`, `parse`), and their serialised form (`HopRows`, `hops_from_rows`)."""

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
from jitla.hops.node import (
    Hop,
    Kind,
    Meta,
    const,
    const_value,
    leaf,
    make,
    topo,
)
from jitla.hops.ops_elementwise import UserFunction


def format_line(line: Any) -> str:
    """Format a source line: (file, number) without folders, any other value as `str`."""
    if isinstance(line, tuple) and len(line) == 2:
        return f"{basename(line[0])}:{line[1]}"
    return str(line)


def show(roots: Iterable[Hop], lines: bool = False) -> str:
    """Format the DAG below `roots`, numbered in topological order; `lines` adds source lines."""
    roots = tuple(roots)
    number = {hop: n for n, hop in enumerate(topo(roots), 1)}
    width = max((len(f"({n}) {_term(hop, number)}") for hop, n in number.items()), default=0)
    text = []
    for hop, n in number.items():
        text_row = f"({n}) {_term(hop, number)}".ljust(min(width, 48)) + "  " + _meta(hop.meta)
        # a leaf is shared by all uses of its slot: the line of one of them means nothing
        shown = lines and hop.line is not None and hop.op.name != "leaf"
        text.append(text_row + (f"  # {format_line(hop.line)}" if shown else ""))
    text.append("roots" + "".join(f" ({number[r]})" for r in roots))
    return "\n".join(text) + "\n"


def _term(hop: Hop, number: dict[Hop, int]) -> str:
    """Format an operator as a Python call: inputs are numbers, attributes are keywords."""
    if hop.op.name == "const":
        return f"const({_literal(hop)})"
    words = [str(number[i]) for i in hop.inputs]
    words += [f"{k}={_attr(k, v)}" for k, v in hop.attrs]
    return f"{hop.op.name}({', '.join(words)})"


def _meta(meta: Meta) -> str:
    nnz = "" if meta.nnz is None else f" nnz<={meta.nnz}"
    return f"{_dtype(meta.dtype)}[{','.join(map(str, meta.shape))}]{nnz}"


def _dtype(dtype: np.dtype) -> str:
    """Return the name of `dtype`, or its code if the name loses the byte order or the unit."""
    return dtype.name if np.dtype(dtype.name) == dtype else dtype.str


def _literal(hop: Hop) -> str:
    """Return a constant's value as a literal that parses to the same bits, or else its bits."""
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
    """Return the roots of a DAG formatted by `show`; source lines become strings."""
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


_SCALAR_TYPES = frozenset({int, float, str, bool, type(None)})


class NotSerialisable(Exception):
    """A value has no serialised form; the plan or block that holds it is not stored."""


class HopRows:
    """Serialised hops, one row each: operator, operands, attributes, metadata of leaves, source line."""

    def __init__(self, roots: Sequence[Hop], records: Mapping[str, type] | None = None) -> None:
        self._names = {kind: name for name, kind in (records or {}).items()}
        self.rows: list[Any] = []
        self.numbers: dict[Hop, int] = {}
        self._lines: dict[Any, int] = {}
        for hop in topo(roots):
            self._add(hop)
            self._lines.setdefault(hop.line, self.numbers[hop])
            self.rows[-1].pop()  # a block's digest does not depend on its source lines

    def _add(self, hop: Hop) -> None:
        if isinstance(hop.op.ref, UserFunction):
            raise NotSerialisable(f"{hop.op.name} is a user's")
        meta_fields = (hop.meta.shape, hop.meta.dtype, hop.meta.nnz) if hop.op.kind is Kind.LEAF else None
        meta = self.encode(meta_fields)
        self.rows.append([hop.op.name, [self.numbers[i] for i in hop.inputs],
                          [[k, self.encode(v)] for k, v in hop.attrs], meta, self._lines.get(hop.line)])
        self.numbers[hop] = len(self.numbers)

    def number_of(self, hop: Hop) -> int:
        """Return the row number of `hop`, which is appended if it is missing."""
        if hop not in self.numbers:
            for missing in topo((hop,)):
                if missing not in self.numbers:
                    self._add(missing)
        return self.numbers[hop]

    def encode(self, value: Any) -> Any:
        """Return the JSON form of a value: scalars as they are, lists for tuples, else one-item dicts."""
        kind = type(value)
        if kind in _SCALAR_TYPES:
            return value
        if kind is tuple:
            if value and all(type(v) is Hop for v in value):
                return {"hops": [self.number_of(v) for v in value]}
            return [self.encode(v) for v in value]
        if kind is Hop:
            return {"hop": self.number_of(value)}
        if kind in self._names:
            parts = value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)]
            return {self._names[kind]: [self.encode(v) for v in parts]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.dtype) and np.dtype(value.str) == value:
            return {"dtype": value.str}
        raise NotSerialisable(f"{kind.__name__} has no text")


def decode_value(encoded: Any, hops: Sequence[Hop], records: Mapping[str, type]) -> Any:
    """Return the value whose JSON form is `encoded`."""
    kind = type(encoded)
    if kind is list:
        return tuple([decode_value(v, hops, records) for v in encoded])
    if kind is not dict:
        return encoded
    ((name, content),) = encoded.items()
    match name:
        case "hop":
            return hops[content]
        case "hops":
            return tuple([hops[n] for n in content])
        case "bytes":
            return bytes.fromhex(content)
        case "dtype":
            return np.dtype(content)
    return records[name](*[decode_value(v, hops, records) for v in content])


def _hop_from_row(row: Sequence[Any], hops: Sequence[Hop], lines: Sequence[Any]) -> Hop:
    """Return the hop of a row."""
    name, inputs, pairs, meta, line_row = row
    line = None if line_row is None else lines[line_row]
    attrs: dict[str, Any] = {k: decode_value(v, hops, {}) for k, v in pairs}
    if meta is None:
        return make(name, [hops[n] for n in inputs], line, **attrs)
    shape, dtype, nnz = decode_value(meta, hops, {})
    if name == "const":
        return const(np.frombuffer(attrs["bits"], dtype)[0], dtype, line)
    return leaf(attrs["slot"], Meta(shape, dtype, nnz), attrs["form"], line)


def hops_from_rows(rows: Sequence[Any], roots: Sequence[Hop]) -> list[Hop]:
    """Return the hops below `roots`, followed by those of `rows`, which were serialised after them."""
    hops = list(topo(roots))
    lines = [h.line for h in hops]
    for row in rows:
        hops.append(_hop_from_row(row, hops, lines))
    return hops


def block_digest(
    roots: Sequence[Hop], layouts: Mapping[int, tuple[tuple[int, ...], tuple[int, ...]]],
    outs: tuple[int | None, ...], aliases: frozenset[tuple[int, int, int]], *extras: Any,
) -> str:
    """Return the digest that identifies a block in the cache; raise `NotSerialisable` if it has none."""
    rows = HopRows(roots)
    numbers = [rows.numbers[r] for r in roots]
    places = sorted((slot, *layout) for slot, layout in layouts.items())
    fields = [rows.rows, numbers, places, outs or (None,) * len(numbers), sorted(aliases), extras]
    try:
        text = json.dumps(fields, separators=(",", ":"))
    except TypeError as error:
        raise NotSerialisable(str(error)) from None
    return hashlib.sha256(text.encode()).hexdigest()
