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

MAX_STATEMENTS = 200  # on all paths through a function together
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


class Untranslatable(Exception):
    """A function has an instruction without a known equivalent in kernels; the text says which."""


class Symbol(NamedTuple):
    """Value of a variable that is no number of the kernel: a function, a module, a constant truth value."""

    value: Any


Operand = int | Symbol


class ScalarTranslator:
    """Translates the IR of a scalar function into steps, on all paths; branches become selects."""

    def __init__(self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype) -> None:
        self.blocks, self.types, self.calls = annotation.blocks, annotation.typemap, annotation.calltypes
        self.out = out
        self.steps: list[Step] = []
        self.numbers: dict[Step, int] = {}
        self.invalid_step = -1
        self.count = 0
        self.ins = [self.step("arg", dtype, value=k) for k, dtype in enumerate(ins)]

    def body(self) -> Body:
        """Return the body that the function computes."""
        result = self.translate_block(min(self.blocks), {}, frozenset())
        if self.steps[result].verb == "const":
            raise Untranslatable("a constant")
        return Body(tuple(self.steps), result, self.invalid_step)

    def step(self, verb: str, dtype: np.dtype, *operands: int, value: Any = None) -> int:
        """Return the number of a step; equal steps are added once."""
        new_step = Step(verb, operands, dtype, value)
        key = new_step if verb != "const" else new_step._replace(value=repr(value))  # zeros have signs
        if key not in self.numbers:
            self.numbers[key] = len(self.steps)
            self.steps.append(new_step)
        return self.numbers[key]

    def dtype(self, operand: Operand) -> np.dtype:
        """Return the dtype of a number."""
        if isinstance(operand, Symbol):
            raise Untranslatable("no number")
        return self.steps[operand].dtype

    def dtype_of(self, kind: Any) -> np.dtype:
        """Return the dtype of a type of Numba."""
        dtype = _DTYPES.get(str(getattr(kind, "literal_type", kind)))
        if dtype is None:
            raise Untranslatable(f"a number of type {kind}")
        return dtype

    def cast(self, operand: Operand, dtype: np.dtype) -> int:
        """Return a number converted to another dtype."""
        source = self.dtype(operand)
        assert isinstance(operand, int)
        if source == dtype:
            return operand
        if dtype.kind != "f":
            raise Untranslatable(f"a {source} as a {dtype}")
        return self.step("cast", dtype, operand)

    # ------------------------------------------------------------------ statements

    def translate_block(self, label: int, variables: dict[str, Operand], path: frozenset[int]) -> int:
        """Return the number that the paths from a basic block on return."""
        if label in path:
            raise Untranslatable("a loop")
        path |= {label}
        for statement in self.blocks[label].body:
            self.count += 1
            if self.count > MAX_STATEMENTS:
                raise Untranslatable("too many statements")
            match type(statement).__name__:
                case "Assign":
                    name = statement.target.name
                    variables[name] = self.translate_assignment(name, statement.value, variables)
                case "Jump":
                    return self.translate_block(statement.target, variables, path)
                case "Branch":
                    test = variables[statement.cond.name]
                    if isinstance(test, Symbol) and type(test.value) is bool:
                        target = statement.truebr if test.value else statement.falsebr
                        return self.translate_block(target, variables, path)
                    if self.dtype(test) != _BOOL:
                        raise Untranslatable("a condition that is not boolean")
                    assert isinstance(test, int)
                    a, b = [self.translate_block(target, dict(variables), path)
                            for target in (statement.truebr, statement.falsebr)]
                    return a if a == b else self.step("select", self.out, test, a, b)
                case "Return":
                    return self.cast(variables[statement.value.name], self.out)
                case "SetItem":
                    self.translate_store(statement, variables)
                case "Del":
                    pass
                case other:
                    raise Untranslatable(other)
        raise Untranslatable("a block without a terminator")

    def translate_store(self, statement: Any, variables: dict[str, Operand]) -> None:
        """Translate the store of an element; scalar functions have none."""
        raise Untranslatable("a stored element")

    def translate_assignment(self, name: str, value: Any, variables: dict[str, Operand]) -> Operand:
        """Return the value of an assignment, converted to the type of the variable."""
        result: Operand
        match type(value).__name__:
            case "Arg":
                result = self.ins[value.index]
            case "Const" | "Global" | "FreeVar":
                result = self.global_value(name, value.value)
            case "Var":
                result = variables[value.name]
            case "Expr":
                result = self.expression(name, value, variables)
            case other:
                raise Untranslatable(other)
        return result if isinstance(result, Symbol) else self.cast(result, self.dtype_of(self.types[name]))

    def global_value(self, name: str, value: Any) -> Operand:
        """Return a constant, or a function or module by its name."""
        if type(value) not in (int, float):
            return Symbol(value)
        dtype = self.dtype_of(self.types[name])
        return self.step("const", dtype, value=dtype.type(value).item())

    def expression(self, name: str, node: Any, variables: dict[str, Operand]) -> Operand:
        """Return the value of an expression."""
        match node.op:
            case "cast":
                return variables[node.value.name]
            case "getattr":
                owner = variables[node.value.name]
                module = owner.value if isinstance(owner, Symbol) else None
                if isinstance(module, ModuleType) and module in _MODULES:
                    return self.global_value(name, getattr(module, node.attr))
            case "binop" | "inplace_binop":
                function = node.fn if node.op == "binop" else node.immutable_fn
                power = getattr(self.types[node.rhs.name], "literal_value", None)
                return self.binary(function, node, variables[node.lhs.name], variables[node.rhs.name], power)
            case "unary":
                return self.unary(node.fn, variables[node.value.name])
            case "call":
                called = variables[node.func.name]
                arguments = [variables[each.name] for each in node.args]
                if isinstance(called, Symbol) and not node.kws and node.vararg is None:
                    known = called.value is bool and isinstance(arguments[0], Symbol)
                    return arguments[0] if known else self.call(called.value, arguments, name)
        raise Untranslatable(node.op)

    # ------------------------------------------------------------------ operations

    def binary(self, function: Any, node: Any, left: Operand, right: Operand, power: Any) -> int:
        """Translate a binary operation, with the casts of Numba."""
        signature = self.calls[node]
        result_dtype = self.dtype_of(signature.return_type)
        if function is operator.pow:
            return self.power(self.cast(left, result_dtype), power)
        if function is operator.truediv:
            return self.step("div", self.floating(result_dtype),
                             self.cast(left, result_dtype), self.cast(right, result_dtype))
        dtype = self.dtype_of(signature.args[0])
        if self.dtype_of(signature.args[1]) != dtype:
            raise Untranslatable("operands of two types")
        a, b = self.cast(left, dtype), self.cast(right, dtype)
        if function in _COMPARING:
            return self.compare(_COMPARING[function], a, b)
        if function in _ARITHMETIC and dtype == result_dtype != _BOOL:
            return self.step(_ARITHMETIC[function], dtype, a, b)
        if function in _LOGIC and dtype == result_dtype == _BOOL:
            return self.step(_LOGIC[function], dtype, a, b)
        raise Untranslatable(f"{getattr(function, '__name__', function)} of {dtype}")

    def floating(self, dtype: np.dtype) -> np.dtype:
        """Return `dtype` if it is a floating-point type, else raise."""
        if dtype.kind != "f":
            raise Untranslatable(f"a {dtype} where a float is needed")
        return dtype

    def compare(self, verb: str, a: int, b: int) -> int:
        """Translate a comparison; ordered ones raise the flag `invalid` for NaN, as Numba's vectors do."""
        if verb in _ORDERS.values() and self.dtype(a).kind == "f":
            for each in (a, b):
                if self.steps[each].verb != "const":
                    unordered = self.step("ne", _BOOL, each, each)
                    self.invalid_step = unordered if self.invalid_step in (-1, unordered) else self.step(
                        "or_", _BOOL, self.invalid_step, unordered)
        if self.dtype(a) == _BOOL:
            raise Untranslatable("a comparison of booleans")
        return self.step(verb, _BOOL, a, b)

    def power(self, base: int, exponent: Any) -> int:
        """Expand a power with a small constant exponent into multiplications, in Numba's order."""
        if type(exponent) is not int or exponent not in _POWERS or self.dtype(base) == _BOOL:
            raise Untranslatable("a power")
        dtype = self.dtype(base)
        product, square = -1, base
        while exponent:
            if exponent & 1:
                product = square if product < 0 else self.step("mul", dtype, product, square)
            exponent >>= 1
            if exponent:
                square = self.step("mul", dtype, square, square)
        return product

    def unary(self, function: Any, operand: Operand) -> int:
        """Translate a unary operation."""
        dtype = self.dtype(operand)
        assert isinstance(operand, int)
        if function is operator.not_ and dtype == _BOOL:
            return self.step("not_", dtype, operand)
        if function is operator.neg and dtype != _BOOL:
            return self.step("neg", dtype, operand)
        raise Untranslatable(f"{getattr(function, '__name__', function)} of {dtype}")

    def call(self, function: Any, arguments: list[Operand], name: str) -> int:
        """Translate a call of a known function."""
        dtypes = [self.dtype(each) for each in arguments]
        numbers = [each for each in arguments if isinstance(each, int)]
        result_dtype = self.dtype_of(self.types[name])
        if len(arguments) == 1:
            if function is bool and dtypes[0] == _BOOL:
                return numbers[0]
            if function is float:
                return self.cast(numbers[0], self.floating(result_dtype))
            if any(function is each for each in _ROOTS):
                return self.step("sqrt", result_dtype, self.cast(numbers[0], self.floating(result_dtype)))
            if function in _FUNCTIONS and dtypes[0] == self.floating(result_dtype):
                return self.step("math", result_dtype, numbers[0], value=_FUNCTIONS[function])
            if any(function is each for each in _ABSOLUTE) and dtypes[0] == self.floating(result_dtype):
                return self.step("abs", result_dtype, numbers[0])
        elif len(arguments) == 2 and any(function is each for each in _EXTREMES):
            best, other = (self.cast(each, self.floating(result_dtype)) for each in numbers)
            test = self.compare(_EXTREMES[function], other, best)
            return self.step("select", result_dtype, test, other, best)
        raise Untranslatable(f"a call of {getattr(function, '__name__', function)}")


# Symbolic values in a loop over rows: the output row, its shape and length, the range and its iterator, the
# index, and the condition of the loop.
_OUT, _SHAPE, _COUNT, _RANGE, _ITERATOR, _INDEX, _HAS_NEXT = (Symbol(name) for name in (
    "out", "shape", "count", "range", "iterator", "index", "has_next"))
_STORED_ELEMENT = "\0stored"


class RowTranslator(ScalarTranslator):
    """Translates a loop over all elements of rows that stores one element per iteration."""

    def __init__(
        self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype, rows: tuple[bool, ...],
    ) -> None:
        super().__init__(annotation, ins, out)
        self.variables: list[Operand] = [
            Symbol(("row", k)) if row else self.ins[k] for k, row in enumerate(rows)]
        self.variables.append(_OUT)
        self.header = -1
        self.before: frozenset[str] = frozenset()

    def translate_block(self, label: int, variables: dict[str, Operand], path: frozenset[int]) -> int:
        """Return the number that the paths from a basic block to the end of the iteration store."""
        if label == self.header:
            stored = variables.get(_STORED_ELEMENT)
            if not isinstance(stored, int):
                raise Untranslatable("an element that is not stored in each iteration")
            return stored
        statements = self.blocks[label].body
        if type(statements[-1]).__name__ == "Branch" and self.header < 0:
            return self.translate_loop(label, statements, variables, path)
        return super().translate_block(label, variables, path)

    def translate_loop(
        self, label: int, statements: Any, variables: dict[str, Operand], path: frozenset[int],
    ) -> int:
        """Translate the loop with the header `label`; its exit has to do nothing but return."""
        for statement in statements[:-1]:
            if type(statement).__name__ == "Assign":
                name = statement.target.name
                variables[name] = self.translate_assignment(name, statement.value, variables)
        last = statements[-1]
        if variables[last.cond.name] is not _HAS_NEXT:
            raise Untranslatable("a branch before the loop")
        for statement in self.blocks[last.falsebr].body:
            kind = type(statement).__name__
            ends = kind == "Assign" and str(self.types[statement.target.name]) == "none"
            if not ends and kind not in ("Del", "Return"):
                raise Untranslatable("statements after the loop")
        self.header, self.before = label, frozenset(variables)
        return super().translate_block(last.truebr, variables, path | {label})

    def translate_store(self, statement: Any, variables: dict[str, Operand]) -> None:
        """Translate the store of the element of this iteration."""
        value = variables[statement.value.name]
        if variables[statement.target.name] is not _OUT or variables[statement.index.name] is not _INDEX:
            raise Untranslatable("an element of another iteration")
        variables[_STORED_ELEMENT] = self.cast(value, self.out)

    def translate_assignment(self, name: str, value: Any, variables: dict[str, Operand]) -> Operand:
        """Return the value of an assignment; a variable from before the loop would be loop-carried."""
        if name in self.before:
            raise Untranslatable("a value carried from one iteration to the next")
        if type(value).__name__ == "Arg":
            return self.variables[value.index]
        return super().translate_assignment(name, value, variables)

    def expression(self, name: str, node: Any, variables: dict[str, Operand]) -> Operand:
        """Return the value of an expression; only elements of this iteration may be read."""
        match node.op:
            case "getattr" if node.attr == "shape" and _is_row(variables[node.value.name]):
                return _SHAPE
            case "static_getitem" if variables[node.value.name] is _SHAPE and node.index == 0:
                return _COUNT
            case "call":
                called = variables[node.func.name]
                arguments = [variables[each.name] for each in node.args]
                if isinstance(called, Symbol) and len(arguments) == 1 and not node.kws:
                    if called.value is range and arguments[0] is _COUNT:
                        return _RANGE
                    if called.value is len and _is_row(arguments[0]):
                        return _COUNT
            case "getiter" if variables[node.value.name] is _RANGE:
                return _ITERATOR
            case "iternext" if variables[node.value.name] is _ITERATOR:
                return _ITERATOR
            case "pair_first" if variables[node.value.name] is _ITERATOR:
                return _INDEX
            case "pair_second" if variables[node.value.name] is _ITERATOR:
                return _HAS_NEXT
            case "getitem" if variables[node.index.name] is _INDEX:
                row = variables[node.value.name]
                if isinstance(row, Symbol) and type(row.value) is tuple:
                    return self.ins[row.value[1]]
        return super().expression(name, node, variables)


def _is_row(operand: Operand) -> bool:
    return isinstance(operand, Symbol) and (operand is _OUT or type(operand.value) is tuple)


class Elementwise:
    """Adapter that applies a function of rows to operands of any shape, of which `rows` are rows."""

    def __init__(self, function: Any, rows: tuple[bool, ...]) -> None:
        self.function, self.rows = function, rows
        self.__name__ = function.__name__

    def __call__(self, *args: Any) -> Any:
        if any(np.ndim(each) for each, row in zip(args, self.rows, strict=True) if not row):
            broadcast = [np.asarray(each) for each in np.broadcast_arrays(*args)]
            return self.function(*[each[..., None] if row else each
                                   for each, row in zip(broadcast, self.rows, strict=True)])[..., 0]
        shape = np.broadcast_shapes(*map(np.shape, args))
        arrays = [np.broadcast_to(each, shape or (1,)) if row else each
                  for each, row in zip(args, self.rows, strict=True)]
        return self.function(*arrays).reshape(shape)[()]


def rows_of(function: Any) -> tuple[bool, ...]:
    """Return which operands of a function are rows; they have to be as long as its single result."""
    builder = function.gufunc_builder
    (out,), ins = builder.sout, tuple(builder.sin)
    if len(out) != 1 or any(each not in ((), out) for each in map(tuple, ins)):
        raise Untranslatable("operands of several lengths")
    options = {**builder.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Untranslatable(f"options {options}")
    return tuple(bool(each) for each in ins)


def translate_gufunc(
    function: Any, argument_types: tuple[Any, ...],
) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Translate a `guvectorize` function; return the dtypes of operands and result, and the body."""
    rows = rows_of(function)
    ins_wanted = tuple(np.dtype(each) for each in argument_types)
    for signature, overload in function.gufunc_builder.nb_func.overloads.items():
        *ins, out = [np.dtype(str(getattr(each, "dtype", each))) for each in signature.args]
        if tuple(ins) == ins_wanted and out.kind == "f":
            translator = RowTranslator(overload.type_annotation, ins_wanted, out, rows)
            return ins_wanted, out, translator.body()
    raise Untranslatable("no loop for such operands is available")


SAMPLE_ELEMENTS = 1 << 14  # elements that are compared
# Runs whose kernels raised flags, after which a function is called instead: only a call issues its warnings.
MAX_ALARMS = 8
RELATIVE_TOLERANCES = {"d": 1e-9, "f": 1e-3}  # by character of the dtype


class NumbaFunction:
    """One function: its operators by types of operands, None where it is called, and the reason."""

    __slots__ = ("loops", "operators", "reason")

    def __init__(self) -> None:
        self.loops = -1
        self.operators: dict[tuple[Any, ...], str | None] = {}
        self.reason = ""

    def reject(self, argument_types: tuple[Any, ...], reason: str) -> None:
        """Record that the function is called for operands of these types, and the reason."""
        self.operators[argument_types], self.reason = None, reason


_KINDS = frozenset({"DUFunc", "GUFunc"})  # types of the results of `numba.vectorize` and `numba.guvectorize`
_KNOWN_FUNCTIONS: WeakKeyDictionary[Any, NumbaFunction] = WeakKeyDictionary()


def is_numba(function: Any) -> bool:
    """Return whether a function was compiled with Numba."""
    return type(function).__module__.startswith("numba.")


def record_or_call(session: Any, function: Any, args: tuple[Any, ...]) -> Any:
    """Record the call of an element-wise function; NotImplemented if it has to be called.

    The first call for operands of some types runs the function, and returns its result.
    """
    if type(function).__name__ not in _KINDS or len(args) != function.nin \
            or _is_gufunc(function) and not _has_row_operands(function, args):
        return NotImplemented
    argument_types = tuple([
        METAS[x._m].dtype if type(x) in LAZY else x.dtype if type(x) is np.ndarray else type(x)
        for x in args])
    entry = _KNOWN_FUNCTIONS.get(function)
    if entry is None:
        entry = _KNOWN_FUNCTIONS[function] = NumbaFunction()
    # Numba has compiled another loop, which may be used for old types, too
    if entry.loops != function.ntypes:
        entry.loops = function.ntypes
        entry.operators.clear()
    if argument_types not in entry.operators:
        return _call_and_translate(session, function, args, argument_types, entry)
    name = entry.operators[argument_types]
    if name is None:
        return NotImplemented
    function_ref = lookup(name).ref
    if isinstance(function_ref, UserFunction) and function_ref.flagged_kernels > MAX_ALARMS:
        entry.reject(argument_types, "it warns too often")
        return NotImplemented
    return session.recorder.try_record(name, args)


def _is_gufunc(function: Any) -> bool:
    return type(function).__name__ == "GUFunc"


def _has_row_operands(function: Any, args: tuple[Any, ...]) -> bool:
    """Return whether operands that are rows have one shape, and the others are numbers."""
    try:
        rows = rows_of(function)
    except (Untranslatable, AttributeError, ValueError, TypeError):  # internals of Numba, which may change
        return False
    shapes = [METAS[x._m].shape if type(x) in LAZY else x.shape if type(x) is np.ndarray else ()
              for x in args]
    row_shapes = {shape for shape, row in zip(shapes, rows, strict=True) if row}
    return len(row_shapes) == 1 and () not in row_shapes and not any(
        shape for shape, row in zip(shapes, rows, strict=True) if not row)


def describe(function: Any) -> str:
    """Return the description of a function compiled with Numba for explanations."""
    entry = _KNOWN_FUNCTIONS.get(function) if type(function).__name__ in _KINDS else None
    reason = f" ({entry.reason})" if entry is not None and entry.reason else ""
    return f"{getattr(function, '__name__', 'a function')}, compiled with Numba{reason}"


def _call_and_translate(
    session: Any, function: Any, args: tuple[Any, ...], argument_types: tuple[Any, ...], entry: NumbaFunction,
) -> Any:
    """Call a function, and enter an operator for it if its translation gives the same values."""
    try:
        ins, out, body = translate(function, argument_types)
    # internals of Numba, which may change
    except (Untranslatable, AttributeError, KeyError, TypeError) as reason:
        known = isinstance(reason, Untranslatable)
        entry.reject(argument_types, str(reason) if known else "its loop is not known yet")
        return NotImplemented
    result = session.boundary.call_opaque(function, args, {})
    wanted = session.boundary.plain(result)
    operands = [np.asarray(each) for each in session.boundary.plain(args)]
    if np.asarray(wanted).size and np.asarray(wanted).dtype == out:
        if _is_equal_on_sample(body, ins, operands, np.asarray(wanted)):
            called = Elementwise(function, rows_of(function)) if _is_gufunc(function) else function
            op = register_user_function(called, function.__name__, ins, out, body)
            register_op(op)
            entry.operators[argument_types] = op.name
        else:
            entry.reject(argument_types, "other values than expected")
    return result


def translate(function: Any, argument_types: tuple[Any, ...]) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Translate a function; return the dtypes of operands and result, and the body."""
    if _is_gufunc(function):
        return translate_gufunc(function, argument_types)
    options = {**function.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Untranslatable(f"options {options}")
    operand_types = [each if each in (int, float) else np.dtype(each) for each in argument_types]
    *ins, out = function.ufunc.resolve_dtypes((*operand_types, None))
    if out.kind != "f":
        raise Untranslatable(f"a result of {out}")
    for signature, overload in function._dispatcher.overloads.items():
        names = [str(each) for each in signature.args]
        if names == [each.name for each in ins] and str(overload.signature.return_type) == out.name:
            translator = ScalarTranslator(overload.type_annotation, tuple(ins), out)
            return tuple(ins), out, translator.body()
    raise Untranslatable("its IR is not available")


def _is_equal_on_sample(
    body: Body, ins: tuple[np.dtype, ...], operands: list[np.ndarray], wanted: np.ndarray,
) -> bool:
    """Return whether a sample of elements is equal up to NaN payloads, or close if the body approximates."""
    step = max(wanted.size // SAMPLE_ELEMENTS, 1)
    samples = [np.broadcast_to(each, wanted.shape).flat[::step].astype(dtype)
            for each, dtype in zip(operands, ins, strict=True)]
    with np.errstate(all="ignore"):
        computed = np.broadcast_to(body.emit(NumpyBuilder(), *samples, {}), samples[0].shape)
    expected = wanted.flat[::step]
    if body.approximate:
        tolerance = RELATIVE_TOLERANCES[expected.dtype.char]
        return bool(np.isclose(computed, expected, tolerance, 0.0, equal_nan=True).all())
    is_equal = (computed == expected) & (np.signbit(computed) == np.signbit(expected)) \
        | np.isnan(computed) & np.isnan(expected)
    return bool(is_equal.all())
