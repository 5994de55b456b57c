"""Hops as text, one line each, and back.

Knows: the line format ``(3) add(1, 2)  float64[1000,3] nnz<=10``. Must not know: any operator.
Receives roots or text; returns text or roots; each is the inverse of the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from os.path import basename
from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops.meta import Meta
from jitla.hops.node import Hop, const, const_value, leaf, make, topo


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


def _place(line: Any) -> str:
    """Write a (file, line) pair without folders, anything else as it is."""
    return f"{basename(line[0])}:{line[1]}" if isinstance(line, tuple) else str(line)


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
