"""Element-wise functions compiled by Numba's `vectorize` and `guvectorize` as operators of the tape.

`NumbaIRReader` translates Numba's typed IR of a function into the steps of a kernel body, by symbolic
execution of all paths; both sides of a branch become a select. The first call compares results of the body
and the function. Functions that cannot be translated are called.
"""

from __future__ import annotations

import math
import operator
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from jitla.hops import Body, NumpyBuilder, Step, UserFunction, lookup, register_user_function
from jitla.tracing.lazy import LAZY
from jitla.tracing.tape import METAS, register_op

MOST_STATEMENTS = 200  # on all paths through a function together
_BOOL, _FLOAT, _INT = (np.dtype(kind) for kind in (np.bool_, np.float64, np.int64))
_DTYPES = {dtype.name: dtype for dtype in (_BOOL, _FLOAT, _INT, np.dtype(np.float32))}
_ARITHMETIC = {operator.add: "add", operator.sub: "sub", operator.mul: "mul"}
_ORDERS = {operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge"}
_COMPARING = {**_ORDERS, operator.eq: "eq", operator.ne: "ne"}
_LOGIC = {operator.and_: "and_", operator.or_: "or_", operator.xor: "xor"}
_ROOTS = (math.sqrt, np.sqrt)
_ABSOLUTE = (abs, math.fabs, np.abs, np.fabs)
_EXTREMES = {min: "lt", max: "gt"}
_MODULES = (math, np)
# Functions for which kernels have polynomial approximations.
_FUNCTIONS: dict[Any, str] = {getattr(module, name): name for module in _MODULES for name in (
    "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh")}
_FUNCTIONS |= {getattr(module, f"{arc}{name}"): f"arc{name}"
               for module, arc in ((math, "a"), (np, "arc")) for name in ("sin", "cos", "tan")}
_POWERS = (1, 2, 3, 4)


class Unread(Exception):
    """A function has an instruction without a known equivalent in kernels; the text says which."""


class Held(NamedTuple):
    """Value of a variable that is no number of the kernel: a function, a module, a constant truth value."""

    value: Any


Found = int | Held


class Reader:
    """Translates the IR of a scalar function into steps, on all paths; branches become selects."""

    def __init__(self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype) -> None:
        self.blocks, self.types, self.calls = annotation.blocks, annotation.typemap, annotation.calltypes
        self.out = out
        self.steps: list[Step] = []
        self.known: dict[Step, int] = {}
        self.invalid_step = -1
        self.count = 0
        self.ins = [self.step("arg", dtype, value=k) for k, dtype in enumerate(ins)]

    def body(self) -> Body:
        """Return the body that the function computes."""
        result = self.way(min(self.blocks), {}, frozenset())
        if self.steps[result].verb == "const":
            raise Unread("a constant")
        return Body(tuple(self.steps), result, self.invalid_step)

    def step(self, verb: str, dtype: np.dtype, *operands: int, value: Any = None) -> int:
        """Return the number of a step; equal steps are added once."""
        made = Step(verb, operands, dtype, value)
        key = made if verb != "const" else made._replace(value=repr(value))  # zeros have signs
        if key not in self.known:
            self.known[key] = len(self.steps)
            self.steps.append(made)
        return self.known[key]

    def dtype(self, found: Found) -> np.dtype:
        """Return the dtype of a number."""
        if isinstance(found, Held):
            raise Unread("no number")
        return self.steps[found].dtype

    def of(self, kind: Any) -> np.dtype:
        """Return the dtype of a type of Numba."""
        dtype = _DTYPES.get(str(getattr(kind, "literal_type", kind)))
        if dtype is None:
            raise Unread(f"a number of type {kind}")
        return dtype

    def cast(self, found: Found, dtype: np.dtype) -> int:
        """Return a number converted to another dtype."""
        given = self.dtype(found)
        assert isinstance(found, int)
        if given == dtype:
            return found
        if dtype.kind != "f":
            raise Unread(f"a {given} as a {dtype}")
        return self.step("cast", dtype, found)

    # ------------------------------------------------------------------ statements

    def way(self, label: int, held: dict[str, Found], above: frozenset[int]) -> int:
        """Return the number that the paths from a basic block on return."""
        if label in above:
            raise Unread("a loop")
        above |= {label}
        for statement in self.blocks[label].body:
            self.count += 1
            if self.count > MOST_STATEMENTS:
                raise Unread("too many statements")
            match type(statement).__name__:
                case "Assign":
                    name = statement.target.name
                    held[name] = self.assigned(name, statement.value, held)
                case "Jump":
                    return self.way(statement.target, held, above)
                case "Branch":
                    test = held[statement.cond.name]
                    if isinstance(test, Held) and type(test.value) is bool:
                        return self.way(statement.truebr if test.value else statement.falsebr, held, above)
                    if self.dtype(test) != _BOOL:
                        raise Unread("a condition that is no truth value")
                    assert isinstance(test, int)
                    ways = [self.way(to, dict(held), above) for to in (statement.truebr, statement.falsebr)]
                    return ways[0] if ways[0] == ways[1] else self.step("select", self.out, test, *ways)
                case "Return":
                    return self.cast(held[statement.value.name], self.out)
                case "SetItem":
                    self.stored(statement, held)
                case "Del":
                    pass
                case other:
                    raise Unread(other)
        raise Unread("a block without an end")

    def stored(self, statement: Any, held: dict[str, Found]) -> None:
        """Translate the store of an element; scalar functions have none."""
        raise Unread("a stored element")

    def assigned(self, name: str, value: Any, held: dict[str, Found]) -> Found:
        """Return the value of an assignment, converted to the type of the variable."""
        found: Found
        match type(value).__name__:
            case "Arg":
                found = self.ins[value.index]
            case "Const" | "Global" | "FreeVar":
                found = self.named(name, value.value)
            case "Var":
                found = held[value.name]
            case "Expr":
                found = self.expression(name, value, held)
            case other:
                raise Unread(other)
        return found if isinstance(found, Held) else self.cast(found, self.of(self.types[name]))

    def named(self, name: str, value: Any) -> Found:
        """Return a constant, or a function or module by its name."""
        if type(value) not in (int, float):
            return Held(value)
        dtype = self.of(self.types[name])
        return self.step("const", dtype, value=dtype.type(value).item())

    def expression(self, name: str, node: Any, held: dict[str, Found]) -> Found:
        """Return the value of an expression."""
        match node.op:
            case "cast":
                return held[node.value.name]
            case "getattr":
                owner = held[node.value.name]
                module = owner.value if isinstance(owner, Held) else None
                if isinstance(module, ModuleType) and module in _MODULES:
                    return self.named(name, getattr(module, node.attr))
            case "binop" | "inplace_binop":
                function = node.fn if node.op == "binop" else node.immutable_fn
                power = getattr(self.types[node.rhs.name], "literal_value", None)
                return self.binary(function, node, held[node.lhs.name], held[node.rhs.name], power)
            case "unary":
                return self.unary(node.fn, held[node.value.name])
            case "call":
                called = held[node.func.name]
                given = [held[each.name] for each in node.args]
                if isinstance(called, Held) and not node.kws and node.vararg is None:
                    known = called.value is bool and isinstance(given[0], Held)
                    return given[0] if known else self.call(called.value, given, name)
        raise Unread(node.op)

    # ------------------------------------------------------------------ operations

    def binary(self, function: Any, node: Any, left: Found, right: Found, power: Any) -> int:
        """Translate a binary operation, with the casts of Numba."""
        signature = self.calls[node]
        made = self.of(signature.return_type)
        if function is operator.pow:
            return self.power(self.cast(left, made), power)
        if function is operator.truediv:
            return self.step("div", self.floating(made), self.cast(left, made), self.cast(right, made))
        dtype = self.of(signature.args[0])
        if self.of(signature.args[1]) != dtype:
            raise Unread("operands of two types")
        a, b = self.cast(left, dtype), self.cast(right, dtype)
        if function in _COMPARING:
            return self.compare(_COMPARING[function], a, b)
        if function in _ARITHMETIC and dtype == made != _BOOL:
            return self.step(_ARITHMETIC[function], dtype, a, b)
        if function in _LOGIC and dtype == made == _BOOL:
            return self.step(_LOGIC[function], dtype, a, b)
        raise Unread(f"{getattr(function, '__name__', function)} of {dtype}")

    def floating(self, dtype: np.dtype) -> np.dtype:
        """Return `dtype` if it is a floating-point type, else raise."""
        if dtype.kind != "f":
            raise Unread(f"a {dtype} where a float is needed")
        return dtype

    def compare(self, verb: str, a: int, b: int) -> int:
        """Translate a comparison; ordered ones raise the flag `invalid` for NaN, as Numba's vectors do."""
        if verb in _ORDERS.values() and self.dtype(a).kind == "f":
            for each in (a, b):
                if self.steps[each].verb != "const":
                    odd = self.step("ne", _BOOL, each, each)
                    self.invalid_step = odd if self.invalid_step in (-1, odd) else self.step("or_", _BOOL,
                        self.invalid_step, odd)
        if self.dtype(a) == _BOOL:
            raise Unread("truth values compared")
        return self.step(verb, _BOOL, a, b)

    def power(self, base: int, exponent: Any) -> int:
        """Expand a power with a small constant exponent into multiplications, in Numba's order."""
        if type(exponent) is not int or exponent not in _POWERS or self.dtype(base) == _BOOL:
            raise Unread("a power")
        dtype = self.dtype(base)
        made, square = -1, base
        while exponent:
            if exponent & 1:
                made = square if made < 0 else self.step("mul", dtype, made, square)
            exponent >>= 1
            if exponent:
                square = self.step("mul", dtype, square, square)
        return made

    def unary(self, function: Any, operand: Found) -> int:
        """Translate a unary operation."""
        dtype = self.dtype(operand)
        assert isinstance(operand, int)
        if function is operator.not_ and dtype == _BOOL:
            return self.step("not_", dtype, operand)
        if function is operator.neg and dtype != _BOOL:
            return self.step("neg", dtype, operand)
        raise Unread(f"{getattr(function, '__name__', function)} of {dtype}")

    def call(self, function: Any, given: list[Found], name: str) -> int:
        """Translate a call of a known function."""
        dtypes = [self.dtype(each) for each in given]
        numbers = [each for each in given if isinstance(each, int)]
        made = self.of(self.types[name])
        if len(given) == 1:
            if function is bool and dtypes[0] == _BOOL:
                return numbers[0]
            if function is float:
                return self.cast(numbers[0], self.floating(made))
            if any(function is each for each in _ROOTS):
                return self.step("sqrt", made, self.cast(numbers[0], self.floating(made)))
            if function in _FUNCTIONS and dtypes[0] == self.floating(made):
                return self.step("math", made, numbers[0], value=_FUNCTIONS[function])
            if any(function is each for each in _ABSOLUTE) and dtypes[0] == self.floating(made):
                return self.step("abs", made, numbers[0])
        elif len(given) == 2 and any(function is each for each in _EXTREMES):
            best, other = (self.cast(each, self.floating(made)) for each in numbers)
            return self.step("select", made, self.compare(_EXTREMES[function], other, best), other, best)
        raise Unread(f"a call of {getattr(function, '__name__', function)}")


# Symbolic values in a loop over rows: the output row, its shape and length, the range and its iterator, the
# index, and the condition of the loop.
_OUT, _SHAPE, _COUNT, _RANGE, _TURN, _INDEX, _GOES = (Held(name) for name in (
    "out", "shape", "count", "range", "turn", "index", "goes"))
_STORED = "\0stored"


class Rows(Reader):
    """Translates a loop over all elements of rows that stores one element per iteration."""

    def __init__(
        self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype, rows: tuple[bool, ...],
    ) -> None:
        super().__init__(annotation, ins, out)
        self.held: list[Found] = [Held(("row", k)) if row else self.ins[k] for k, row in enumerate(rows)]
        self.held.append(_OUT)
        self.head = -1
        self.before: frozenset[str] = frozenset()

    def way(self, label: int, held: dict[str, Found], above: frozenset[int]) -> int:
        """Return the number that the paths from a basic block to the end of the iteration store."""
        if label == self.head:
            found = held.get(_STORED)
            if not isinstance(found, int):
                raise Unread("an element that is not stored in each turn")
            return found
        statements = self.blocks[label].body
        if type(statements[-1]).__name__ == "Branch" and self.head < 0:
            return self.turns(label, statements, held, above)
        return super().way(label, held, above)

    def turns(self, label: int, statements: Any, held: dict[str, Found], above: frozenset[int]) -> int:
        """Translate the loop with the header `label`; its exit has to do nothing but return."""
        for statement in statements[:-1]:
            if type(statement).__name__ == "Assign":
                name = statement.target.name
                held[name] = self.assigned(name, statement.value, held)
        last = statements[-1]
        if held[last.cond.name] is not _GOES:
            raise Unread("a choice before the loop")
        for statement in self.blocks[last.falsebr].body:
            kind = type(statement).__name__
            ends = kind == "Assign" and str(self.types[statement.target.name]) == "none"
            if not ends and kind not in ("Del", "Return"):
                raise Unread("something behind the loop")
        self.head, self.before = label, frozenset(held)
        return super().way(last.truebr, held, above | {label})

    def stored(self, statement: Any, held: dict[str, Found]) -> None:
        """Translate the store of the element of this iteration."""
        value = held[statement.value.name]
        if held[statement.target.name] is not _OUT or held[statement.index.name] is not _INDEX:
            raise Unread("an element of another turn")
        held[_STORED] = self.cast(value, self.out)

    def assigned(self, name: str, value: Any, held: dict[str, Found]) -> Found:
        """Return the value of an assignment; a variable from before the loop would be loop-carried."""
        if name in self.before:
            raise Unread("a value that one turn hands to the next")
        if type(value).__name__ == "Arg":
            return self.held[value.index]
        return super().assigned(name, value, held)

    def expression(self, name: str, node: Any, held: dict[str, Found]) -> Found:
        """Return the value of an expression; only elements of this iteration may be read."""
        match node.op:
            case "getattr" if node.attr == "shape" and _is_row(held[node.value.name]):
                return _SHAPE
            case "static_getitem" if held[node.value.name] is _SHAPE and node.index == 0:
                return _COUNT
            case "call":
                called = held[node.func.name]
                given = [held[each.name] for each in node.args]
                if isinstance(called, Held) and len(given) == 1 and not node.kws:
                    if called.value is range and given[0] is _COUNT:
                        return _RANGE
                    if called.value is len and _is_row(given[0]):
                        return _COUNT
            case "getiter" if held[node.value.name] is _RANGE:
                return _TURN
            case "iternext" if held[node.value.name] is _TURN:
                return _TURN
            case "pair_first" if held[node.value.name] is _TURN:
                return _INDEX
            case "pair_second" if held[node.value.name] is _TURN:
                return _GOES
            case "getitem" if held[node.index.name] is _INDEX:
                row = held[node.value.name]
                if isinstance(row, Held) and type(row.value) is tuple:
                    return self.ins[row.value[1]]
        return super().expression(name, node, held)


def _is_row(found: Found) -> bool:
    return isinstance(found, Held) and (found is _OUT or type(found.value) is tuple)


class Elementwise:
    """Adapter that applies a function of rows to operands of any shape, of which `rows` are rows."""

    def __init__(self, function: Any, rows: tuple[bool, ...]) -> None:
        self.function, self.rows = function, rows
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        if any(np.ndim(each) for each, row in zip(args, self.rows, strict=True) if not row):
            some = [np.asarray(each) for each in np.broadcast_arrays(*args)]
            return self.function(*[each[..., None] if row else each
                                   for each, row in zip(some, self.rows, strict=True)])[..., 0]
        shape = np.broadcast_shapes(*map(np.shape, args))
        given = [np.broadcast_to(each, shape or (1,)) if row else each
                 for each, row in zip(args, self.rows, strict=True)]
        return self.function(*given).reshape(shape)[()]


def rows_of(function: Any) -> tuple[bool, ...]:
    """Return which operands of a function are rows; they have to be as long as its single result."""
    builder = function.gufunc_builder
    (out,), ins = builder.sout, tuple(builder.sin)
    if len(out) != 1 or any(each not in ((), out) for each in map(tuple, ins)):
        raise Unread("operands of several lengths")
    options = {**builder.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Unread(f"options {options}")
    return tuple(bool(each) for each in ins)


def read(function: Any, given: tuple[Any, ...]) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Translate a `guvectorize` function; return the dtypes of operands and result, and the body."""
    rows = rows_of(function)
    wanted = tuple(np.dtype(each) for each in given)
    for signature, made in function.gufunc_builder.nb_func.overloads.items():
        *ins, out = [np.dtype(str(getattr(each, "dtype", each))) for each in signature.args]
        if tuple(ins) == wanted and out.kind == "f":
            reader = Rows(made.type_annotation, wanted, out, rows)
            return wanted, out, reader.body()
    raise Unread("no loop for such operands is kept")


SAMPLE = 1 << 14  # elements that are compared
# Runs whose kernels raised flags, after which a function is called instead: only a call issues its warnings.
MOST_ALARMS = 8
NEAR = {"d": 1e-9, "f": 1e-3}  # by character of the dtype


class Met:
    """One function: its operators by types of operands, None where it is called, and the reason."""

    __slots__ = ("loops", "operators", "why")

    def __init__(self) -> None:
        self.loops = -1
        self.operators: dict[tuple[Any, ...], str | None] = {}
        self.why = ""

    def keep(self, given: tuple[Any, ...], why: str) -> None:
        """Record that the function is called for operands of these types, and the reason."""
        self.operators[given], self.why = None, why


_KINDS = frozenset({"DUFunc", "GUFunc"})  # types of the results of `numba.vectorize` and `numba.guvectorize`
_MET: WeakKeyDictionary[Any, Met] = WeakKeyDictionary()


def is_numba(function: Any) -> bool:
    """Return whether a function was compiled with Numba."""
    return type(function).__module__.startswith("numba.")


def through(session: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """Record the call of an element-wise function; NotImplemented if it has to be called.

    The first call for operands of some types runs the function, and returns its result.
    """
    if type(function).__name__ not in _KINDS or len(args) != function.nin \
            or _is_of_rows(function) and not _of_rows(function, args):
        return NotImplemented
    given = tuple([METAS[x._m].dtype if type(x) in LAZY else x.dtype if type(x) is np.ndarray else type(x)
                   for x in args])
    met = _MET.get(function)
    if met is None:
        met = _MET[function] = Met()
    if met.loops != function.ntypes:  # Numba has compiled another loop, which may be used for old types, too
        met.loops = function.ntypes
        met.operators.clear()
    if given not in met.operators:
        return _first(session, function, args, given, met)
    name = met.operators[given]
    if name is None:
        return NotImplemented
    made = lookup(name).ref
    if isinstance(made, UserFunction) and made.flagged_kernels > MOST_ALARMS:
        met.keep(given, "it warns too often")
        return NotImplemented
    return session.try_record(name, args)


def _is_of_rows(function: Any) -> bool:
    return type(function).__name__ == "GUFunc"


def _of_rows(function: Any, args: tuple[Any, ...]) -> bool:
    """Return whether operands that are rows have one shape, and the others are numbers."""
    try:
        rows = rows_of(function)
    except (Unread, AttributeError, ValueError, TypeError):  # internals of Numba, which may change
        return False
    shapes = [METAS[x._m].shape if type(x) in LAZY else x.shape if type(x) is np.ndarray else ()
              for x in args]
    found = {shape for shape, row in zip(shapes, rows, strict=True) if row}
    return len(found) == 1 and () not in found and not any(
        shape for shape, row in zip(shapes, rows, strict=True) if not row)


def title_of(function: Any) -> str:
    """Return the description of a function compiled with Numba for explanations."""
    met = _MET.get(function) if type(function).__name__ in _KINDS else None
    why = f" ({met.why})" if met is not None and met.why else ""
    return f"{getattr(function, '__name__', 'a function')}, compiled with Numba{why}"


def _first(session: Any, function: Any, args: tuple[Any, ...], given: tuple[Any, ...], met: Met) -> Any:
    """Call a function, and enter an operator for it if its translation gives the same values."""
    try:
        ins, out, body = _read(function, given)
    except (Unread, AttributeError, KeyError, TypeError) as why:  # internals of Numba, which may change
        met.keep(given, str(why) if isinstance(why, Unread) else "its loop is not known yet")
        return NotImplemented
    result = session.call_opaque(function, args, {})
    wanted = session.plain(result)
    operands = [np.asarray(each) for each in session.plain(args)]
    if np.asarray(wanted).size and np.asarray(wanted).dtype == out:
        if _agrees(body, ins, operands, np.asarray(wanted)):
            called = Elementwise(function, rows_of(function)) if _is_of_rows(function) else function
            made = register_user_function(called, function.__name__, ins, out, body)
            register_op(made)
            met.operators[given] = made.name
        else:
            met.keep(given, "other values than expected")
    return result


def _read(function: Any, given: tuple[Any, ...]) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Translate a function; return the dtypes of operands and result, and the body."""
    if _is_of_rows(function):
        return read(function, given)
    options = {**function.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Unread(f"options {options}")
    known = [each if each in (int, float) else np.dtype(each) for each in given]
    *ins, out = function.ufunc.resolve_dtypes((*known, None))
    if out.kind != "f":
        raise Unread(f"a result of {out}")
    for signature, made in function._dispatcher.overloads.items():
        names = [str(each) for each in signature.args]
        if names == [each.name for each in ins] and str(made.signature.return_type) == out.name:
            reader = Reader(made.type_annotation, tuple(ins), out)
            return tuple(ins), out, reader.body()
    raise Unread("its instructions are not kept")


def _agrees(body: Body, ins: tuple[np.dtype, ...], operands: list[np.ndarray], wanted: np.ndarray) -> bool:
    """Return whether a sample of elements is equal up to NaN payloads, or close if the body approximates."""
    step = max(wanted.size // SAMPLE, 1)
    some = [np.broadcast_to(each, wanted.shape).flat[::step].astype(dtype)
            for each, dtype in zip(operands, ins, strict=True)]
    with np.errstate(all="ignore"):
        made = np.broadcast_to(body.emit(NumpyBuilder(), *some, {}), some[0].shape)
    found = wanted.flat[::step]
    if body.approximate:
        return bool(np.isclose(made, found, NEAR[found.dtype.char], 0.0, equal_nan=True).all())
    same = (made == found) & (np.signbit(made) == np.signbit(found)) | np.isnan(made) & np.isnan(found)
    return bool(same.all())
