"""One-line expressions of the rule fixtures, read into hops and written from them.

``sum(transpose(X[3,4].f4), axis=(0,))``: calls are ops of the table, names are leaves. The first
mention of a leaf declares its shape and, after a dot, its dtype (float64 if absent). A number
takes the dtype of the other operand. `axis` defaults to all axes, `keepdims` to False, `axes`
to the reverse order; ``cast(X, f4)`` and ``reshape(X, 3, 4)`` take their attribute in place.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jitla.hops import Hop, Meta, apply, const, const_value, leaf, lookup, make

FOLDER = Path(__file__).parents[1] / "rules"
DECLARED = re.compile(r"\b(\w+)\[([\d,() ]*)\](\.\w+)?")
# In programs what is counted is computed all the same; of sparse matrices only what is stored is.
FEWER_VALUES = {"count-below", "sampled-of-cell"}
REDUCERS = {"sum", "prod", "min", "max", "any", "all", "mean", "var", "std"}


class Reader:
    """Reads expressions; leaves are known by name from one expression to the next."""

    def __init__(self) -> None:
        self.leaves: dict[str, Hop] = {}

    def read(self, text: str) -> tuple[Hop, ...]:
        """Return the hops of `text`, several if it has commas at top level."""
        body = ast.parse(text.strip(), mode="eval").body
        parts = body.elts if isinstance(body, ast.Tuple) else [body]
        return tuple(self.hop(p) for p in parts)

    def hop(self, node: ast.expr, beside: np.dtype | None = None) -> Hop:
        match node:
            case ast.Attribute(ast.Subscript(ast.Name(name), size), dtype):
                return self.leaf(name, size, np.dtype(dtype))
            case ast.Subscript(ast.Name(name), size):
                return self.leaf(name, size, np.dtype("f8"))
            case ast.Name(name) if not literal(node):
                return self.leaves[name]
            case ast.Call(ast.Name("const"), [value, ast.Name(dtype)]):
                return const(number(value), np.dtype(dtype))
            case ast.Call(ast.Name(op), args, keywords):
                return self.call(op, args, {k.arg: ast.literal_eval(k.value) for k in keywords})
        assert beside is not None, f"a number needs an array beside it: {ast.unparse(node)}"
        return const(number(node), beside)

    def leaf(self, name: str, size: ast.expr, dtype: np.dtype) -> Hop:
        shape = ast.literal_eval(size)
        shape = shape if isinstance(shape, tuple) else (shape,)
        hop = leaf(len(self.leaves), Meta(shape, dtype), "array")
        assert self.leaves.setdefault(name, hop) is hop, f"{name} is declared twice"
        return hop

    def call(self, op: str, args: list[ast.expr], attrs: dict[str, Any]) -> Hop:
        arity = lookup(op).arity
        rest = args[arity:] if arity is not None else []
        args = args[:arity] if arity is not None else args
        known = {i: self.hop(a) for i, a in enumerate(args) if not literal(a)}
        beside = list(known.values())[-1].meta.dtype if known else np.dtype("f8")
        inputs = [known.get(i) or self.hop(a, beside) for i, a in enumerate(args)]
        attrs |= attributes(op, inputs, rest, attrs)
        if lookup(op).kind.value in ("cell", "agg") and op not in ("cast", "where"):
            return apply(op, *inputs, **attrs)
        return make(op, inputs, **attrs)


def literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("nan", "inf")
    return not isinstance(node, (ast.Call, ast.Subscript, ast.Attribute))


def number(node: ast.expr) -> Any:
    return eval(compile(ast.Expression(node), "fixture", "eval"), {"nan": np.nan, "inf": np.inf})


def attributes(op: str, inputs: list[Hop], rest: list[ast.expr], given: dict) -> dict[str, Any]:
    """The attributes that were left out or given in place."""
    ndim = inputs[0].meta.ndim if inputs else 0
    match op:
        case "cast":
            return {"dtype": np.dtype(ast.unparse(rest[0]))}
        case "reshape" | "broadcast_to" | "full":
            return {"shape": tuple(number(n) for n in rest)}
        case "transpose":
            return {"axes": given.get("axes", tuple(range(ndim))[::-1])}
        case _ if op in REDUCERS or op == "count":
            found = {"axis": given.get("axis", tuple(range(ndim)))}
            return found if op == "count" else found | {"keepdims": given.get("keepdims", False)}
    return {}


def write(hop: Hop, names: dict[Hop, str]) -> str:
    """Return the expression that reads as `hop`, all attributes spelled out."""
    if hop.op.name == "const":
        return f"const({const_value(hop)}, {hop.meta.dtype.str[1:]})"
    if hop in names:
        return names[hop]
    words = [write(i, names) for i in hop.inputs]
    words += [f"{k}={v.str[1:] if isinstance(v, np.dtype) else v}" for k, v in hop.attrs]
    return f"{hop.op.name}({', '.join(words)})"


@dataclass(frozen=True)
class Line:
    """One line of a fixture: `name | before => after`."""

    place: str
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.place}-{self.name}"


def fixture_lines(folder: Path = FOLDER) -> list[Line]:
    """Return the lines of all fixtures in `folder`."""
    found = []
    for file in sorted(folder.glob("*.txt")):
        for number, row in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            row = row.partition("#")[0].strip()
            if row:
                name, rule = row.split("|")
                before, after = rule.split("=>")
                found.append(Line(f"{file.stem}:{number}", *map(str.strip, (name, before, after))))
    return found
