"""Nests as text that reads like Python, and back.

In ``C[i, j] = add(..., x)`` the dots are the element itself, as it was.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitla.errors import NestError
from jitla.hops import Meta, lookup
from jitla.loopir.analysis import Body
from jitla.loopir.nodes import (
    Alloc,
    Apply,
    Buffer,
    Guard,
    Index,
    Intrinsic,
    Invoke,
    Load,
    Loop,
    LoopKind,
    Nest,
    Number,
    Scope,
    Statement,
    Store,
    Update,
    Value,
    Window,
    dtype_of,
    least,
    number,
    quotient,
    rest,
    variable,
)

KINDS = {"range": LoopKind.SERIAL, **{k.value: k for k in LoopKind if k is not LoopKind.SERIAL}}
KIND_NAMES = {kind: name for name, kind in KINDS.items()}


def show(nest: Nest) -> str:
    """Write a nest down, its intrinsics first."""
    parts = [_define(i.name, i.operands, "", i.body) for i in nest.intrinsics]
    outputs = ", ".join(b.name for b in nest.outputs)
    parts.append(_define(nest.name, (*nest.inputs, *nest.outputs), f" -> ({outputs},)", nest.body))
    return "\n\n".join(parts) + "\n"


def _define(name: str, operands: tuple[Buffer, ...], makes: str, body: Body) -> str:
    words = ", ".join(f"{b.name}: '{_type(b)}'" for b in operands)
    return "\n".join([f"def {name}({words}){makes}:", *_lines(body, "    ")])


def _type(buffer: Buffer) -> str:
    shape = ",".join(map(str, buffer.shape))
    return f"{buffer.dtype.name}[{shape}]" + (
        "" if buffer.scope is Scope.MEMORY else f" {buffer.scope.value}")


def _lines(body: Body, indent: str) -> Iterator[str]:
    if not body:
        yield indent + "pass"
    for statement in body:
        match statement:
            case Store(buffer, index, value):
                yield f"{indent}{_element(buffer, index)} = {show_value(value)}"
            case Update(buffer, index, op, value):
                yield f"{indent}{_element(buffer, index)} = {op}(..., {show_value(value)})"
            case Loop(name, extent, inner, kind):
                yield f"{indent}for {name} in {KIND_NAMES[kind]}({extent}):"
                yield from _lines(inner, indent + "    ")
            case Guard(index, below, inner):
                yield f"{indent}if {index} < {below}:"
                yield from _lines(inner, indent + "    ")
            case Alloc(buffer):
                yield f"{indent}{buffer.name} = alloc('{_type(buffer)}')"
            case Invoke(name, windows):
                words = ", ".join(_element(w.buffer, w.index) for w in windows)
                yield f"{indent}{name}({words})"


def _element(buffer: str, index: tuple[Index, ...]) -> str:
    return f"{buffer}[{', '.join(map(str, index)) or '()'}]"


def show_value(value: Value) -> str:
    """Write a value down."""
    match value:
        case Load(buffer, index):
            return _element(buffer, index)
        case Number(dtype, bits):
            return _literal(dtype, bits)
        case Apply(op, args, _, attrs):
            words = [*map(show_value, args), *[f"{k}={_attr(v)}" for k, v in attrs]]
            return f"{op}({', '.join(words)})"


def _attr(value: Any) -> str:
    return repr(value.name) if isinstance(value, np.dtype) else repr(value)


def _literal(dtype: np.dtype, bits: bytes) -> str:
    text = str(np.frombuffer(bits, dtype)[0])
    plain = re.fullmatch(r"[-+0-9.eE]+|True|False", text)
    if plain and dtype.type(ast.literal_eval(text)).tobytes() == bits:
        return f"{dtype.name}({text})"
    return f"{dtype.name}('{bits.hex()}')"


# --------------------------------------------------------------------------- reading


def parse(text: str) -> Nest:
    """Return the nest that `show` wrote as `text`."""
    try:
        defined = ast.parse(text).body
    except SyntaxError as error:
        raise NestError("no-text-of-a-nest", str(error)) from None
    if not defined or not all(isinstance(d, ast.FunctionDef) for d in defined):
        raise NestError("no-text-of-a-nest", "a text consists of definitions, the nest's is the last one")
    *parts, last = [d for d in defined if isinstance(d, ast.FunctionDef)]
    intrinsics = tuple([Intrinsic(p.name, _operands(p), _Reader(_operands(p)).body(p.body)) for p in parts])
    operands = _operands(last)
    made = {n.id for n in getattr(last.returns, "elts", ()) if isinstance(n, ast.Name)}
    inputs = tuple(b for b in operands if b.name not in made)
    outputs = tuple(b for b in operands if b.name in made)
    return Nest(last.name, inputs, outputs, _Reader(operands).body(last.body), intrinsics)


def _operands(defined: ast.FunctionDef) -> tuple[Buffer, ...]:
    return tuple(_buffer(a.arg, _constant(a.annotation, str)) for a in defined.args.args)


_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?: (?P<scope>\w+))?")


def _buffer(name: str, text: str) -> Buffer:
    match = _TYPE.fullmatch(text)
    if match is None or (match["scope"] or "memory") not in {s.value for s in Scope}:
        raise NestError("no-text-of-a-nest", f"{name}: {text!r} is no type of a buffer")
    shape = tuple(int(n) for n in match["shape"].split(",") if n)
    return Buffer(name, shape, np.dtype(match["dtype"]), Scope(match["scope"] or "memory"))


def _constant(node: ast.AST | None, kind: type) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is kind:
        return node.value
    raise _refused(node)


def _refused(node: ast.AST | None) -> NestError:
    return NestError("no-text-of-a-nest", ast.unparse(node) if node is not None else "something is missing")


class _Reader:
    """Reads statements; knows the buffers that are there, for the dtypes of values."""

    def __init__(self, operands: tuple[Buffer, ...]) -> None:
        self.buffers = {b.name: b for b in operands}

    def body(self, nodes: list[ast.stmt]) -> Body:
        """Return the statements that are written as `nodes`."""
        return tuple(self.statement(n) for n in nodes if not isinstance(n, ast.Pass))

    def statement(self, node: ast.stmt) -> Statement:
        """Return one statement."""
        match node:
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind), [extent], []), body) if kind in KINDS:
                return Loop(name, _constant(extent, int), self.body(body), KINDS[kind])
            case ast.If(ast.Compare(index, [ast.Lt()], [below]), body, []):
                most = read_index(below)
                if not most.terms:
                    return Guard(read_index(index), most.plus, self.body(body))
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc"), [kind], [])):
                self.buffers[name] = _buffer(name, _constant(kind, str))
                return Alloc(self.buffers[name])
            case ast.Assign([ast.Subscript() as at], ast.Call(ast.Name(op), [ast.Constant(v), value], [])) \
                    if v is ...:
                return Update(*self.element(at), op, self.value(value))
            case ast.Assign([ast.Subscript() as at], value):
                return Store(*self.element(at), self.value(value))
            case ast.Expr(ast.Call(ast.Name(name), windows, [])):
                return Invoke(name, tuple(Window(*self.element(w)) for w in windows))
        raise _refused(node)

    def element(self, node: ast.expr) -> tuple[str, tuple[Index, ...]]:
        """Return buffer and index."""
        match node:
            case ast.Subscript(ast.Name(buffer), ast.Tuple(parts)):
                return buffer, tuple(map(read_index, parts))
            case ast.Subscript(ast.Name(buffer), index):
                return buffer, (read_index(index),)
        raise _refused(node)

    def value(self, node: ast.expr) -> Value:
        """Return a value; its dtype is what the op table infers."""
        match node:
            case ast.Subscript():
                return Load(*self.element(node))
            case ast.Call(ast.Name(name), [literal], []) if name in np.sctypeDict:
                return _number(np.dtype(name), ast.literal_eval(literal))
            case ast.Call(ast.Name(op), args, keywords):
                values = [self.value(a) for a in args]
                attrs = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
                if "dtype" in attrs:
                    attrs["dtype"] = np.dtype(attrs["dtype"])
                for load in (v for v in values if isinstance(v, Load)):
                    if load.buffer not in self.buffers:
                        raise NestError("unknown-buffer", f"{load.buffer} is not there")
                return apply(op, values, [dtype_of(v, self.buffers) for v in values], attrs)
        raise _refused(node)


def apply(op: str, args: list[Value], dtypes: list[np.dtype], attrs: dict[str, Any]) -> Apply:
    """Return the operator applied to values of these dtypes."""
    try:
        spec = lookup(op)
    except KeyError:
        raise NestError("unknown-operator", f"{op} is not in the op table") from None
    meta = spec.meta(tuple(Meta((), d) for d in dtypes), attrs)
    return Apply(op, tuple(args), meta.dtype, tuple(sorted(attrs.items())))


def _number(dtype: np.dtype, value: Any) -> Number:
    return Number(dtype, bytes.fromhex(value) if isinstance(value, str) else dtype.type(value).tobytes())


def read_index(node: ast.expr) -> Index:
    """Return the index that an expression is."""
    match node:
        case ast.Name(name):
            return variable(name)
        case ast.Constant(int(value)):
            return number(value)
        case ast.UnaryOp(ast.USub(), of):
            return read_index(of) * -1
        case ast.BinOp(left, ast.Add(), right):
            return read_index(left) + read_index(right)
        case ast.BinOp(left, ast.Sub(), right):
            return read_index(left) - read_index(right)
        case ast.BinOp(times, ast.Mult(), right) if not read_index(times).terms:
            return read_index(right) * read_index(times).plus
        case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(by))):
            return quotient(read_index(left), by)
        case ast.BinOp(left, ast.Mod(), ast.Constant(int(by))):
            return rest(read_index(left), by)
        case ast.Call(ast.Name("min"), [of, ast.Constant(int(most))], []):
            return least(read_index(of), most)
    raise _refused(node)
