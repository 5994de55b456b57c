"""Text form of loop nests, which reads like Python: printer and parser.

In ``C[i, j] = add(..., x)`` the dots are the previous value of the element.
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
    minimum,
    number,
    quotient,
    remainder,
    variable,
)

KIND_BY_NAME = {"range": LoopKind.SERIAL, **{k.value: k for k in LoopKind if k is not LoopKind.SERIAL}}
KIND_NAMES = {kind: name for name, kind in KIND_BY_NAME.items()}


def show(nest: Nest) -> str:
    """Format a nest, its intrinsics first."""
    parts = [_format_definition(i.name, i.operands, "", i.body) for i in nest.intrinsics]
    outputs = ", ".join(b.name for b in nest.outputs)
    parts.append(_format_definition(nest.name, (*nest.inputs, *nest.outputs), f" -> ({outputs},)", nest.body))
    return "\n\n".join(parts) + "\n"


def _format_definition(name: str, operands: tuple[Buffer, ...], returns: str, body: Body) -> str:
    words = ", ".join(f"{b.name}: '{_format_type(b)}'" for b in operands)
    return "\n".join([f"def {name}({words}){returns}:", *_format_body(body, "    ")])


def _format_type(buffer: Buffer) -> str:
    shape = ",".join(map(str, buffer.shape))
    return f"{buffer.dtype.name}[{shape}]" + (
        "" if buffer.scope is Scope.MEMORY else f" {buffer.scope.value}")


def _format_body(body: Body, indent: str) -> Iterator[str]:
    if not body:
        yield indent + "pass"
    for statement in body:
        match statement:
            case Store(buffer, index, value):
                yield f"{indent}{_format_element(buffer, index)} = {show_value(value)}"
            case Update(buffer, index, op, value):
                yield f"{indent}{_format_element(buffer, index)} = {op}(..., {show_value(value)})"
            case Loop(name, extent, inner, kind):
                yield f"{indent}for {name} in {KIND_NAMES[kind]}({extent}):"
                yield from _format_body(inner, indent + "    ")
            case Guard(index, below, inner):
                yield f"{indent}if {index} < {below}:"
                yield from _format_body(inner, indent + "    ")
            case Alloc(buffer):
                yield f"{indent}{buffer.name} = alloc('{_format_type(buffer)}')"
            case Invoke(name, windows):
                words = ", ".join(_format_element(w.buffer, w.index) for w in windows)
                yield f"{indent}{name}({words})"


def _format_element(buffer: str, index: tuple[Index, ...]) -> str:
    return f"{buffer}[{', '.join(map(str, index)) or '()'}]"


def show_value(value: Value) -> str:
    """Format a value."""
    match value:
        case Load(buffer, index):
            return _format_element(buffer, index)
        case Number(dtype, bits):
            return _format_number(dtype, bits)
        case Apply(op, args, _, attrs):
            words = [*map(show_value, args), *[f"{k}={_format_attr(v)}" for k, v in attrs]]
            return f"{op}({', '.join(words)})"


def _format_attr(value: Any) -> str:
    return repr(value.name) if isinstance(value, np.dtype) else repr(value)


def _format_number(dtype: np.dtype, bits: bytes) -> str:
    text = str(np.frombuffer(bits, dtype)[0])
    plain = re.fullmatch(r"[-+0-9.eE]+|True|False", text)
    if plain and dtype.type(ast.literal_eval(text)).tobytes() == bits:
        return f"{dtype.name}({text})"
    return f"{dtype.name}('{bits.hex()}')"


# --------------------------------------------------------------------------- reading


def parse(text: str) -> Nest:
    """Return the nest that `show` formatted as `text`."""
    try:
        definitions = ast.parse(text).body
    except SyntaxError as error:
        raise NestError("malformed-text", str(error)) from None
    if not definitions or not all(isinstance(d, ast.FunctionDef) for d in definitions):
        raise NestError("malformed-text", "expected function definitions, the nest last")
    *intrinsic_definitions, nest_definition = [d for d in definitions if isinstance(d, ast.FunctionDef)]
    intrinsics = tuple([Intrinsic(p.name, _parse_operands(p), _Reader(_parse_operands(p)).body(p.body))
                        for p in intrinsic_definitions])
    operands = _parse_operands(nest_definition)
    output_names = {n.id for n in getattr(nest_definition.returns, "elts", ()) if isinstance(n, ast.Name)}
    inputs = tuple(b for b in operands if b.name not in output_names)
    outputs = tuple(b for b in operands if b.name in output_names)
    return Nest(nest_definition.name, inputs, outputs, _Reader(operands).body(nest_definition.body),
                intrinsics)


def _parse_operands(definition: ast.FunctionDef) -> tuple[Buffer, ...]:
    return tuple(_parse_buffer(a.arg, _parse_constant(a.annotation, str)) for a in definition.args.args)


_TYPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?: (?P<scope>\w+))?")


def _parse_buffer(name: str, text: str) -> Buffer:
    match = _TYPE.fullmatch(text)
    if match is None or (match["scope"] or "memory") not in {s.value for s in Scope}:
        raise NestError("malformed-text", f"{name}: {text!r} is not a buffer type")
    shape = tuple(int(n) for n in match["shape"].split(",") if n)
    return Buffer(name, shape, np.dtype(match["dtype"]), Scope(match["scope"] or "memory"))


def _parse_constant(node: ast.AST | None, kind: type) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is kind:
        return node.value
    raise _syntax_error(node)


def _syntax_error(node: ast.AST | None) -> NestError:
    return NestError("malformed-text", ast.unparse(node) if node is not None else "something is missing")


class _Reader:
    """Parses statements; knows the buffers in scope, for the dtypes of values."""

    def __init__(self, operands: tuple[Buffer, ...]) -> None:
        self.buffers = {b.name: b for b in operands}

    def body(self, nodes: list[ast.stmt]) -> Body:
        """Parse a sequence of statements."""
        return tuple(self.statement(n) for n in nodes if not isinstance(n, ast.Pass))

    def statement(self, node: ast.stmt) -> Statement:
        """Parse one statement."""
        match node:
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind), [extent], []),
                         body) if kind in KIND_BY_NAME:
                return Loop(name, _parse_constant(extent, int), self.body(body), KIND_BY_NAME[kind])
            case ast.If(ast.Compare(index, [ast.Lt()], [below]), body, []):
                limit = read_index(below)
                if not limit.terms:
                    return Guard(read_index(index), limit.constant, self.body(body))
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("alloc"), [kind], [])):
                self.buffers[name] = _parse_buffer(name, _parse_constant(kind, str))
                return Alloc(self.buffers[name])
            case ast.Assign([ast.Subscript() as at], ast.Call(ast.Name(op), [ast.Constant(v), value], [])) \
                    if v is ...:
                return Update(*self.element(at), op, self.value(value))
            case ast.Assign([ast.Subscript() as at], value):
                return Store(*self.element(at), self.value(value))
            case ast.Expr(ast.Call(ast.Name(name), windows, [])):
                return Invoke(name, tuple(Window(*self.element(w)) for w in windows))
        raise _syntax_error(node)

    def element(self, node: ast.expr) -> tuple[str, tuple[Index, ...]]:
        """Parse a subscript into buffer and index."""
        match node:
            case ast.Subscript(ast.Name(buffer), ast.Tuple(parts)):
                return buffer, tuple(map(read_index, parts))
            case ast.Subscript(ast.Name(buffer), index):
                return buffer, (read_index(index),)
        raise _syntax_error(node)

    def value(self, node: ast.expr) -> Value:
        """Parse a value; its dtype is inferred by the op table."""
        match node:
            case ast.Subscript():
                return Load(*self.element(node))
            case ast.Call(ast.Name(name), [literal], []) if name in np.sctypeDict:
                return _make_number(np.dtype(name), ast.literal_eval(literal))
            case ast.Call(ast.Name(op), args, keywords):
                values = [self.value(a) for a in args]
                attrs = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
                if "dtype" in attrs:
                    attrs["dtype"] = np.dtype(attrs["dtype"])
                for load in (v for v in values if isinstance(v, Load)):
                    if load.buffer not in self.buffers:
                        raise NestError("unknown-buffer", f"{load.buffer} is not there")
                return apply(op, values, [dtype_of(v, self.buffers) for v in values], attrs)
        raise _syntax_error(node)


def apply(op: str, args: list[Value], dtypes: list[np.dtype], attrs: dict[str, Any]) -> Apply:
    """Return the operator `op` applied to values of these dtypes."""
    try:
        spec = lookup(op)
    except KeyError:
        raise NestError("unknown-operator", f"{op} is not in the op table") from None
    meta = spec.meta(tuple(Meta((), d) for d in dtypes), attrs)
    return Apply(op, tuple(args), meta.dtype, tuple(sorted(attrs.items())))


def _make_number(dtype: np.dtype, value: Any) -> Number:
    return Number(dtype, bytes.fromhex(value) if isinstance(value, str) else dtype.type(value).tobytes())


def read_index(node: ast.expr) -> Index:
    """Parse an index."""
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
            return read_index(right) * read_index(times).constant
        case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(by))):
            return quotient(read_index(left), by)
        case ast.BinOp(left, ast.Mod(), ast.Constant(int(by))):
            return remainder(read_index(left), by)
        case ast.Call(ast.Name("min"), [of, ast.Constant(int(limit))], []):
            return minimum(read_index(of), limit)
    raise _syntax_error(node)
