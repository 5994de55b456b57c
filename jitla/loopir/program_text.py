"""Text form of loop programs, which reads like Python: printer and parser.

Arithmetic that wraps and comparisons are infix; `checked_add(x, y, exit=2)` leaves by an exit. Literals are
int64, float64 or bool; `f4(0.5)` are other constants, and strings of hexadecimal digits their bytes. Dots
and slashes in names are written as letters, so that all names are identifiers of Python.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from jitla.errors import NestError
from jitla.hops import Meta, lookup
from jitla.loopir import program as ir

__all__ = ["parse_program", "show_program"]

FLOAT64 = np.dtype(np.float64)
_INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}
_OPERATORS: dict[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "left_shift", ast.RShift: "right_shift", ast.Lt: "less",
    ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
_CHECKED = "checked_"


#: What stands for characters of names that identifiers of Python do not have.
_LETTERS = str.maketrans("./", "·ǀ")
_ORIGINALS = {letter: character for character, letter in _LETTERS.items()}


def _identifier(name: str) -> str:
    prefix = "_" if name.startswith(".") else "_.." if name[:1].isdigit() else ""
    return f"{prefix}{name}".translate(_LETTERS)


def _original(identifier: str) -> str:
    if identifier.startswith("_··"):
        identifier = identifier[3:]
    return identifier.removeprefix("_" if identifier.startswith("_·") else "").translate(_ORIGINALS)


# --------------------------------------------------------------------------- writing


def show_program(program: ir.LoopProgram) -> str:
    """Format a program: its exits, its variables, its statements."""
    types: dict[str, str] = {s.name: _type_name(s.dtype) for s in program.scalars}
    for view in program.views:
        types[view.name] = f"{_type_name(view.dtype)}[{', '.join(':' * view.ndim) or '()'}]"
    lines = [f"@exit_point({k}, {e.kind.value!r}, {e.line}, {e.reason!r})"
             for k, e in enumerate(program.exits)]
    if program.written:
        lines.append(f"@written({', '.join(map(_identifier, program.written))})")
    if program.raises:
        lines.append("@raises")
    lines += [f"@memory({_identifier(view)}, {origin!r})" for view, origin in program.origins]
    types = {_identifier(name): kind for name, kind in types.items()}
    parameters = list(map(_identifier, program.parameters))
    given = ", ".join(f"{name}: {types[name]}" for name in parameters)
    returned = "".join(f"{_identifier(name)}, " for name in program.results).rstrip()
    lines.append(f"def {_identifier(program.name)}({given}) -> ({returned}):")
    lines += [f"    {name}: {kind}" for name, kind in types.items() if name not in parameters]
    return "\n".join([*lines, *_format_body(program.body, "    ")]) + "\n"


def _type_name(dtype: np.dtype) -> str:
    return dtype.str[1:]


def _format_body(body: Sequence[ir.Statement], indent: str) -> Iterator[str]:
    if not body:
        yield indent + "pass"
    for statement in body:
        yield from _format_statement(statement, indent)


def _format_statement(statement: ir.Statement, indent: str) -> Iterator[str]:
    inner = indent + "    "
    match statement:
        case ir.If(test, then, otherwise):
            yield f"{indent}if {show_value(test)}:"
            yield from _format_body(then, inner)
            if otherwise:
                yield f"{indent}else:"
                yield from _format_body(otherwise, inner)
        case ir.For(label, name, begin, end, step, body, independent):
            words = [show_value(begin), show_value(end), str(step), f"label={label!r}"]
            words += ["independent=True"] if independent else []
            yield f"{indent}for {_identifier(name)} in range({', '.join(words)}):"
            yield from _format_body(body, inner)
        case ir.Repeat(label, body):
            yield f"{indent}while {label!r}:"
            yield from _format_body(body, inner)
        case ir.Block(label, body):
            yield f"{indent}with block({label!r}):"
            yield from _format_body(body, inner)
        case _:
            yield indent + _format_line(statement)


def _format_line(statement: ir.Statement) -> str:
    match statement:
        case ir.Assign(name, value):
            return f"{_identifier(name)} = {show_value(value)}"
        case ir.StoreElement(view, index, value):
            return f"{_format_element(view, index)} = {show_value(value)}"
        case ir.BindView(name, source, points, axes):
            words = [_identifier(source), *(f"point({axis}, {show_value(value)})" for axis, value in points)]
            return f"{_identifier(name)} = view({', '.join([*words, *map(_format_axis, axes)])})"
        case ir.BindMemory(name, address, shape, strides):
            words = [*map(show_value, (address, *shape)), f"strides={_format_tuple(strides)}"]
            return f"{_identifier(name)} = memory({', '.join(words)})"
        case ir.Allocate(name, shape, zero, number):
            kind = "zeros" if zero else "empty"
            return f"{_identifier(name)} = {kind}({', '.join([*map(show_value, shape), f'exit={number}'])})"
        case ir.Break(label):
            return f"break_({label!r})"
        case ir.Continue(label):
            return f"continue_({label!r})"
        case ir.Check(test, number):
            return f"check({show_value(test)}, exit={number})"
        case ir.Leave(number):
            return f"leave({number})"
        case ir.InnerLoop(routine, operands, dims, steps):
            words = [repr(routine), *map(_format_operand, operands)]
            return f"call({', '.join(words)}, dims={_format_tuple(dims)}, steps={_format_tuple(steps)})"
        case ir.Sort(kind, values, length, indices, number):
            words = [repr(kind), *map(_format_operand, (values, *([indices] if indices else [])))]
            return f"sort({', '.join([*words, show_value(length)])}, exit={number})"
        case ir.Dot(dtype, a, a_step, b, b_step, out, length):
            words = [repr(_type_name(dtype)), _format_operand(a), show_value(a_step), _format_operand(b),
                     show_value(b_step), _format_operand(out), show_value(length)]
            return f"dot({', '.join(words)})"
    raise AssertionError(statement)


def _format_axis(axis: ir.AxisMap) -> str:
    begin, length, step = (show_value(v) for v in (axis.begin, axis.length, axis.step))
    return f"axis({axis.axis}, {begin}, {length}, {step})"


def _format_operand(operand: ir.Operand) -> str:
    return _format_element(operand.view, operand.index) if isinstance(operand, ir.Address) else \
        _identifier(operand.name)


def _format_tuple(values: Sequence[ir.Value]) -> str:
    return f"({''.join(f'{show_value(v)}, ' for v in values).rstrip()})"


def _format_element(view: str, index: Sequence[ir.Value]) -> str:
    return f"{_identifier(view)}[{', '.join(map(show_value, index)) or '()'}]"


def show_value(value: ir.Value) -> str:
    """Format a value."""
    match value:
        case ir.Number(dtype, bits):
            return _format_number(dtype, bits)
        case ir.Read(name, _):
            return _identifier(name)
        case ir.Element(view, index, _):
            return _format_element(view, index)
        case ir.Extent(view, axis):
            return f"size({_identifier(view)}, {axis})"
        case ir.Stride(view, axis):
            return f"stride({_identifier(view)}, {axis})"
        case ir.Expires(view):
            return f"expires({_identifier(view)})"
        case ir.Pointer(view, index):
            return f"pointer({_format_element(view, index) if index else _identifier(view)})"
        case ir.Checked(op, args, dtype, number):
            words = [*map(show_value, args), *([f"dtype={_type_name(dtype)!r}"] if op == "cast" else [])]
            return f"{_CHECKED}{op}({', '.join(words)}, exit={number})"
        case ir.Foreign(function, args):
            return f"c.{function}({', '.join(map(show_value, args))})"
        case ir.Apply(op, args, _, attrs):
            operands = cast(tuple[ir.Value, ...], args)
            if op in _INFIX and not attrs:
                return f" {_INFIX[op]} ".join(map(_format_inner, operands))
            words = [*map(show_value, operands), *(f"{k}={_format_attr(v)}" for k, v in attrs)]
            return f"{op}({', '.join(words)})"


def _format_inner(value: ir.Value) -> str:
    text = show_value(value)
    return f"({text})" if isinstance(value, ir.Apply) and value.op in _INFIX and not value.attrs else text


def _format_attr(value: Any) -> str:
    return repr(_type_name(value)) if isinstance(value, np.dtype) else repr(value)


def _format_number(dtype: np.dtype, bits: bytes) -> str:
    number = np.frombuffer(bits, dtype)[0]
    text = repr(number.item())
    if re.fullmatch(r"-?\d+|True|False", text) or re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", text):
        if dtype.type(ast.literal_eval(text)).tobytes() == bits:
            return text if dtype in (ir.INT64, FLOAT64, ir.BOOL) else f"{_type_name(dtype)}({text})"
    return f"{_type_name(dtype)}('{bits.hex()}')"


# --------------------------------------------------------------------------- reading


def parse_program(text: str) -> ir.LoopProgram:
    """Return the program that `show_program` formatted as `text`."""
    try:
        definitions = ast.parse(text).body
    except SyntaxError as error:
        raise NestError("malformed-text", str(error)) from None
    if len(definitions) != 1 or not isinstance(definitions[0], ast.FunctionDef):
        raise NestError("malformed-text", "expected one function definition")
    node = _Renamed().visit(definitions[0])
    scalars: list[ir.ScalarVariable] = []
    views: list[ir.ViewVariable] = []
    declared = [(a.arg, a.annotation) for a in node.args.args]
    declared += [(s.target.id, s.annotation) for s in node.body
                 if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
    for name, annotation in declared:
        match annotation:
            case ast.Name(kind):
                scalars.append(ir.ScalarVariable(name, _parse_dtype(kind, annotation)))
            case ast.Subscript(ast.Name(kind), ast.Tuple(axes)):
                views.append(ir.ViewVariable(name, _parse_dtype(kind, annotation), len(axes)))
            case ast.Subscript(ast.Name(kind), ast.Slice()):
                views.append(ir.ViewVariable(name, _parse_dtype(kind, annotation), 1))
            case _:
                raise _syntax_error(annotation)
    exits: list[ir.ExitPoint] = []
    written: tuple[str, ...] = ()
    raises = False
    origins: list[tuple[str, str]] = []
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(ast.Name("exit_point"), [_, exit_kind, line, reason], []):
                kind_ = ir.ExitKind(_constant(exit_kind, str))
                exits.append(ir.ExitPoint(kind_, _constant(line, int), _constant(reason, str)))
            case ast.Call(ast.Name("written"), names, []):
                written = tuple(map(_name, names))
            case ast.Name("raises"):
                raises = True
            case ast.Call(ast.Name("memory"), [view, origin], []):
                origins.append((_name(view), _constant(origin, str)))
            case _:
                raise _syntax_error(decorator)
    results = tuple(map(_name, getattr(node.returns, "elts", ())))
    parameters = tuple(a.arg for a in node.args.args)
    body = _Parser(scalars, views).body([s for s in node.body if not isinstance(s, ast.AnnAssign)])
    return ir.LoopProgram(_original(node.name), tuple(scalars), tuple(views), parameters, results, body,
                       tuple(exits), written, raises, tuple(origins))


def _parse_dtype(name: str, node: ast.AST | None) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        raise _syntax_error(node) from None


def _constant(node: ast.AST | None, kind: type) -> Any:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(value)) if type(value) is kind and kind is not str:
            return -value  # type: ignore[operator]
        case ast.Constant(value) if type(value) is kind:
            return value
    raise _syntax_error(node)


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    raise _syntax_error(node)


def _syntax_error(node: ast.AST | None) -> NestError:
    return NestError("malformed-text", ast.unparse(node) if node is not None else "something is missing")


def _keywords(node: ast.Call) -> dict[str, ast.expr]:
    return {str(k.arg): k.value for k in node.keywords}


class _Renamed(ast.NodeTransformer):
    """Gives names their dots back."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename a use of a name."""
        node.id = _original(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Rename a parameter."""
        node.arg = _original(node.arg)
        return node


class _Parser:
    """Parses statements and values; dtypes follow from those of variables."""

    def __init__(self, scalars: Sequence[ir.ScalarVariable], views: Sequence[ir.ViewVariable]) -> None:
        self.scalars = {s.name: s.dtype for s in scalars}
        self.views = {v.name: v.dtype for v in views}

    def body(self, nodes: Sequence[ast.stmt]) -> tuple[ir.Statement, ...]:
        """Parse a sequence of statements."""
        return tuple(self.statement(n) for n in nodes if not isinstance(n, ast.Pass))

    def statement(self, node: ast.stmt) -> ir.Statement:
        """Parse one statement."""
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("view"), [source, *parts])) \
                    if name in self.views:
                return self.bound(name, _name(source), parts)
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("memory"), [place, *shape]) as call) \
                    if name in self.views:
                strides = self.value_tuple(_keywords(call).get("strides"))
                return ir.BindMemory(name, self.value(place), self.values(shape), strides)
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("zeros" | "empty" as kind), shape) as call) \
                    if name in self.views:
                return ir.Allocate(name, self.values(shape), kind == "zeros", self.exit(call))
            case ast.Assign([ast.Name(name)], value):
                return ir.Assign(name, self.value(value))
            case ast.Assign([ast.Subscript() as place], value):
                return ir.StoreElement(*self.element(place), self.value(value))
            case ast.If(test, then, otherwise):
                return ir.If(self.value(test), self.body(then), self.body(otherwise))
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [begin, end, step]) as call, body):
                words = _keywords(call)
                return ir.For(_constant(words.get("label"), str), name, self.value(begin), self.value(end),
                              _constant(step, int), self.body(body), "independent" in words)
            case ast.While(ast.Constant(str(label)), body):
                return ir.Repeat(label, self.body(body))
            case ast.With([ast.withitem(ast.Call(ast.Name("block"), [label]))], body):
                return ir.Block(_constant(label, str), self.body(body))
            case ast.Expr(ast.Call(ast.Name(name)) as call):
                return self.call(name, call)
        raise _syntax_error(node)

    def call(self, name: str, node: ast.Call) -> ir.Statement:
        """Parse a statement that is written as a call."""
        match name, node.args:
            case "break_", [label]:
                return ir.Break(_constant(label, str))
            case "continue_", [label]:
                return ir.Continue(_constant(label, str))
            case "check", [test]:
                return ir.Check(self.value(test), self.exit(node))
            case "leave", [number]:
                return ir.Leave(_constant(number, int))
            case "call", [routine, *operands]:
                words = _keywords(node)
                return ir.InnerLoop(_constant(routine, str), tuple(map(self.operand, operands)),
                                 self.value_tuple(words.get("dims")), self.value_tuple(words.get("steps")))
            case "sort", [kind, values, *indices, length]:
                places = [ir.Address(*self.element(place)) for place in (values, *indices)]
                return ir.Sort(_constant(kind, str), places[0], self.value(length),
                            places[1] if indices else None, self.exit(node))
            case "dot", [dtype, a, a_step, b, b_step, out, length]:
                return ir.Dot(np.dtype(_constant(dtype, str)), self.operand(a), self.value(a_step),
                           self.operand(b), self.value(b_step), self.operand(out), self.value(length))
        raise _syntax_error(node)

    def bound(self, name: str, source: str, parts: Sequence[ast.expr]) -> ir.BindView:
        """Parse a view of a view."""
        points: list[tuple[int, ir.Value]] = []
        axes: list[ir.AxisMap] = []
        for part in parts:
            match part:
                case ast.Call(ast.Name("point"), [axis, value]):
                    points.append((_constant(axis, int), self.value(value)))
                case ast.Call(ast.Name("axis"), [axis, *values]) if len(values) == 3:
                    number = None if isinstance(axis, ast.Constant) and axis.value is None else \
                        _constant(axis, int)
                    begin, length, step = self.values(values)
                    axes.append(ir.AxisMap(number, begin, length, step))
                case _:
                    raise _syntax_error(part)
        return ir.BindView(name, source, tuple(points), tuple(axes))

    def exit(self, node: ast.Call) -> int:
        """Parse the number of an exit."""
        number: int = _constant(_keywords(node).get("exit"), int)
        return number

    def value_tuple(self, node: ast.expr | None) -> tuple[ir.Value, ...]:
        """Parse a tuple of values."""
        if not isinstance(node, ast.Tuple):
            raise _syntax_error(node)
        return self.values(node.elts)

    def operand(self, node: ast.expr) -> ir.Operand:
        """Parse an operand of a routine."""
        return ir.Place(node.id) if isinstance(node, ast.Name) else ir.Address(*self.element(node))

    def element(self, node: ast.expr) -> tuple[str, tuple[ir.Value, ...]]:
        """Parse a subscript into a view and an index."""
        match node:
            case ast.Subscript(ast.Name(view), ast.Tuple(parts)):
                return view, self.values(parts)
            case ast.Subscript(ast.Name(view), part):
                return view, (self.value(part),)
        raise _syntax_error(node)

    def values(self, nodes: Sequence[ast.expr]) -> tuple[ir.Value, ...]:
        """Parse values."""
        return tuple(map(self.value, nodes))

    def value(self, node: ast.expr) -> ir.Value:
        """Parse a value."""
        match node:
            case ast.Constant(bool() | int() | float() as number):
                return _make_number(np.dtype(type(number)), number)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                return _make_number(np.dtype(type(number)), -number)
            case ast.Name(name) if name in self.scalars:
                return ir.Read(name, self.scalars[name])
            case ast.Subscript(ast.Name(view)) if view in self.views:
                _, index = self.element(node)
                return ir.Element(view, index, self.views[view])
            case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
                return _make_apply(_OPERATORS[type(operator)], self.values((left, right)), {})
            case ast.Compare(left, [operator], [right]) if type(operator) in _OPERATORS:
                return _make_apply(_OPERATORS[type(operator)], self.values((left, right)), {})
            case ast.Call(ast.Attribute(ast.Name("c"), function), args):
                return ir.Foreign(function, self.values(args))
            case ast.Call(ast.Name(name)):
                return self.called(name, node)
        raise _syntax_error(node)

    def called(self, name: str, node: ast.Call) -> ir.Value:
        """Parse a value that is written as a call."""
        match name, node.args:
            case "size", [view, axis]:
                return ir.Extent(_name(view), _constant(axis, int))
            case "stride", [view, axis]:
                return ir.Stride(_name(view), _constant(axis, int))
            case "expires", [ast.Name(view)]:
                return ir.Expires(view)
            case "pointer", [ast.Name(view)]:
                return ir.Pointer(view)
            case "pointer", [place]:
                return ir.Pointer(*self.element(place))
        words = _keywords(node)
        if name.startswith(_CHECKED):
            args = self.values(node.args)
            dtype = ir.dtype_of_value(args[0])
            if "dtype" in words:
                dtype = np.dtype(_constant(words["dtype"], str))
            return ir.Checked(name[len(_CHECKED):], args, dtype, self.exit(node))
        if re.fullmatch(r"[biufc]\d+", name) and len(node.args) == 1:
            return _make_number(_parse_dtype(name, node), ast.literal_eval(node.args[0]))
        attrs = {key: ast.literal_eval(value) for key, value in words.items()}
        if "dtype" in attrs:
            attrs["dtype"] = np.dtype(attrs["dtype"])
        return _make_apply(name, self.values(node.args), attrs)


def _make_number(dtype: np.dtype, value: Any) -> ir.Number:
    return ir.Number(dtype, bytes.fromhex(value) if isinstance(value, str) else dtype.type(value).tobytes())


def _make_apply(op: str, args: tuple[ir.Value, ...], attrs: dict[str, Any]) -> ir.Apply:
    """Return an operator of the op table, with the dtype of its result."""
    try:
        spec = lookup(op)
    except KeyError:
        raise NestError("unknown-operator", f"{op} is not in the op table") from None
    dtypes = spec.resolve(tuple(map(ir.dtype_of_value, args)), attrs)
    dtype = spec.meta(tuple(Meta((), d) for d in dtypes), attrs).dtype
    return ir.Apply(op, cast(Any, args), dtype, tuple(attrs.items()))
