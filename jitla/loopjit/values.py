"""Abstract values of the loop compiler: numbers, arrays, element-wise expressions, tuples and constants.

A number has one or several possible kinds: a kind is a type of Python or NumPy scalars. Where the kind
depends on the path taken, a tag variable holds its code at run time.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit.rewriting import Unassigned

#: The type of each kind. Python's scalars are weak operands in NumPy's promotion.
KIND_TYPES: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "complex": complex, "b1": np.bool_, "i1": np.int8,
    "i2": np.int16,
    "i4": np.int32, "i8": np.int64, "u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "u8": np.uint64,
    "f4": np.float32, "f8": np.float64, "c8": np.complex64, "c16": np.complex128,
}
KIND_OF_TYPE = {kind_type: kind for kind, kind_type in KIND_TYPES.items()}
PYTHON_KINDS = frozenset({"int", "float", "bool", "complex"})
#: The kind of a variable that has no value on some path.
UNBOUND = "unbound"
#: The kind of a variable that is None at times, and a number at others.
NONE = "none"
#: Tags of kinds at run time; 0 is an unbound variable.
TAGS = {UNBOUND: 0, NONE: 100} | {kind: code for code, kind in enumerate(KIND_TYPES, 1)}
TAG_DTYPE = np.dtype(np.int8)
#: The dtype of the variable that holds a number of each kind.
STORAGE = {kind: np.dtype({"int": "i8", "float": "f8", "bool": "b1", "complex": "c16"}.get(kind, kind))
           for kind in KIND_TYPES}
INT64_LOW, INT64_HIGH = -(1 << 63), (1 << 63) - 1
MAX_OPTIONS = 4  # types of a variable
MAX_EXTENT = 1 << 47  # elements along an axis: addresses have 48 bits
MAX_FOLDED_POWER = 1024  # exponent of constants
EXACT_FLOAT64 = 1 << 53  # integers up to this magnitude are exact as float64

_EXAMPLES: dict[str, Any] = {kind: kind_type(1) for kind, kind_type in KIND_TYPES.items()}
_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow, "BitAnd": operator.and_,
    "BitOr": operator.or_, "BitXor": operator.xor, "LShift": operator.lshift, "RShift": operator.rshift,
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq,
    "NotEq": operator.ne, "USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert,
    "abs": abs,
}


class LoweringRefused(Exception):
    """A loop, or a statement of it, that cannot be compiled: why, and at which line (0: of the statement)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class NeverCompiled(LoweringRefused):
    """A loop that is left to Python whatever the rest of it is, as a conditional statement is its main work.
    """


@cache
def result_kind(name: str, *kinds: str) -> str:
    """Return the kind of the result of an operator, such as ``Add``, applied to scalars of `kinds`."""
    try:
        with np.errstate(all="ignore"):
            result = _OPERATORS[name](*(_EXAMPLES[kind] for kind in kinds))
    except TypeError as error:
        raise LoweringRefused(f"Python raises TypeError: {error}") from error
    kind = KIND_OF_TYPE.get(type(result))
    if kind is None:
        raise LoweringRefused(f"{name} of {' and '.join(kinds)} gives a {type(result).__name__}")
    return kind


def fold(name: str, *values: Any) -> Any:
    """Return the result of an operator applied to constants; None if NumPy warns, or the result is large."""
    if name in ("Pow", "LShift") and isinstance(values[1], int) and values[1] > MAX_FOLDED_POWER:
        return None
    try:
        with np.errstate(all="raise"):
            return _OPERATORS[name](*values)
    except FloatingPointError:
        return None


@dataclass(frozen=True)
class Helper:
    """A function of the user's that is inlined: its parameters, defaults and body.

    `function` is None for one that the function with the loop defines, and `code` then its syntax tree.
    """

    function: FunctionType | None
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    body: tuple[ast.stmt, ...]
    name: str
    code: Any
    local_names: frozenset[str]


@dataclass(eq=False)
class LocalFunction:
    """A function that the function with the loop defines before it, once."""

    node: ast.FunctionDef | ast.Lambda
    name: str


class FieldsWanted(NeverCompiled):
    """A function that is called in the loop uses attributes of objects that are no operands yet."""

    def __init__(self, fields: Iterable[tuple[str, str]], reason: str) -> None:
        super().__init__(reason)
        self.fields = list(fields)


# --------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Num:
    """A scalar: its possible kinds, its value, the tag of its kind if there are several, and bounds.

    `low` and `high` bound an integer or bool. `known` is a tuple with the Python constant that it is, or
    empty.
    """

    kinds: frozenset[str]
    value: ir.Value
    tag: ir.Value | None = None
    low: int = INT64_LOW
    high: int = INT64_HIGH
    known: tuple[Any, ...] = ()

    @property
    def kind(self) -> str:
        """The only kind."""
        if len(self.kinds) != 1:
            raise LoweringRefused(f"a value is {' or '.join(sorted(self.kinds))}")
        return next(iter(self.kinds))

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the variable that holds it."""
        return ir.dtype_of_value(self.value)

    @property
    def is_python(self) -> bool:
        """Whether it is certainly a scalar of Python."""
        return self.kinds <= PYTHON_KINDS


@dataclass(frozen=True, slots=True)
class Subscript:
    """How a view was made from another: the base view, and per axis of it a `Point` or the values of a slice.
    """

    base: str
    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """An index as it is written, and whether it is certainly not negative."""

    value: ir.Value
    counts_from_begin: bool


#: Among the origins of arrays: it may be an object of Python's; it may be a view that the program makes.
IS_OBJECT, IS_VIEW = "is an object", "is a view"
#: Tags of array variables; 0 is an unbound variable.
VIEW_TAG, OBJECT_TAG = 1, 2


@dataclass(frozen=True, slots=True)
class Arr:
    """An array: its view variable, dtype, number of axes, and which memory it may refer to.

    `origins` are groups of operands, statements that allocate, and `IS_OBJECT` or `IS_VIEW`. `subscript`
    says how the view was made, if in the same statement. `tag` is 0 where the variable has no value.
    """

    view: str
    dtype: np.dtype
    ndim: int
    origins: frozenset[str]
    writeable: bool = True
    subscript: Subscript | None = None
    tag: ir.Value | None = None
    fresh: bool = False  # allocated, C-contiguous, and referred to by no other variable
    sizes: tuple[ir.Value, ...] | None = None  # extents, if the view was made in the same statement
    single: frozenset[int] = frozenset()  # axes that are known to have one element

    def may_share_memory(self, other: Arr) -> bool:
        """Return whether both may refer to the same memory."""
        return bool(self.origins & other.origins - {IS_OBJECT, IS_VIEW})

    @property
    def shape(self) -> tuple[ir.Value, ...]:
        """The extents."""
        if self.sizes is not None:
            return self.sizes
        return tuple(ir.constant(1) if axis in self.single else ir.Extent(self.view, axis)
                     for axis in range(self.ndim))


@dataclass(frozen=True, slots=True)
class Elementwise:
    """An expression over arrays that is not stored: `element(index)` returns the value of one element.

    Without `is_ordered` NumPy's result may have its axes in another order in memory than C's. `array` is the
    array whose elements these are, if there is one.
    """

    dtype: np.dtype
    shape: tuple[ir.Value, ...]
    element: Callable[[tuple[ir.Value, ...]], ir.Value]
    operands: tuple[Arr, ...]
    is_ordered: bool = True
    array: Arr | None = None
    is_view: bool = False  # NumPy has a view of other memory, which the program does not have

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Tup:
    """A tuple of values whose number is known, or a list that is not changed."""

    items: tuple[Abstract, ...]
    is_list: bool = False


class ClassOfLists(Protocol):
    """Lists that may be one object, with items of one type (`jitla.loopjit.list_types.ListClass`)."""

    @property
    def items(self) -> Any:
        """The type of the items."""
        ...

    def find(self) -> Any:
        """Return the class that stands for all that are the same."""
        ...

    def accept(self, items: Any) -> None:
        """Widen the type of the items."""
        ...

    def unify(self, other: Any) -> None:
        """Make two classes one."""
        ...

    def note_change(self) -> None:
        """Note that items are assigned or removed."""
        ...

    def note_growth(self) -> None:
        """Note that items are appended."""
        ...


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list: the address of its header in memory (0 if the variable has no value), and its class."""

    handle: ir.Value
    lists: ClassOfLists
    may_be_unbound: bool = False


@dataclass(frozen=True, slots=True)
class StaticValue:
    """A Python object that is the same whenever the program runs: a function, module, dtype, None, text."""

    value: Any


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the user's, by the name of the operand; its attributes are variables of a loop.
    """

    owner: str
    kind: type


@dataclass(frozen=True, slots=True)
class Sliced:
    """A slice object."""

    parts: tuple[Abstract | None, Abstract | None, Abstract | None]


@dataclass(frozen=True, slots=True)
class Ranged:
    """A range object."""

    start: Num
    stop: Num
    step: Num


@dataclass(frozen=True, slots=True)
class Iterated:
    """An ``enumerate``, ``zip`` or ``reversed`` object over `parts`."""

    function: str
    parts: tuple[Abstract, ...]
    start: Num | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """The value of a variable that is of incompatible types on different paths; it cannot be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Union:
    """The value of a variable that is of one of several types: `number` is that of the option it is of.

    The options are numbers, arrays of several dtypes and numbers of axes, tuples, constants as None, and
    `UNASSIGNED`. Each has its own variables, of which those of one option have values.
    """

    options: tuple[Abstract, ...]
    number: ir.Value

    def is_option(self, index: int) -> ir.Value:
        """Return whether the value is that of an option."""
        return ir.Apply("equal", (self.number, ir.constant(index, TAG_DTYPE)), ir.BOOL)


Abstract = (Num | Arr | Elementwise | Tup | ListOf | StaticValue | Instance | Sliced | Ranged | Iterated
            | Conflict | Union)
Arrayish = (Arr, Elementwise)
#: The option of a variable that has no value on some path.
UNASSIGNED = StaticValue(Unassigned)


def number(value: Any) -> Num:
    """Return a constant of Python or NumPy as a number."""
    kind = KIND_OF_TYPE.get(type(value))
    if kind is None:
        raise LoweringRefused(f"a {type(value).__name__}")
    storage = STORAGE[kind]
    if storage.kind in "iu" and not INT64_LOW <= int(value) <= INT64_HIGH:
        raise LoweringRefused(f"the integer {value} has more than 64 bits")
    bounds = (int(value), int(value)) if storage.kind in "biu" else (INT64_LOW, INT64_HIGH)
    return Num(frozenset({kind}), ir.constant(value, storage), None, *bounds, (value,))


def of_kind(kind: str, value: ir.Value, low: int | None = None, high: int | None = None) -> Num:
    """Return `value` as a number of one kind, with the bounds of its kind or narrower ones."""
    least, most = kind_range(kind)
    return Num(frozenset({kind}), value, None, least if low is None else max(low, least),
               most if high is None else min(high, most))


@cache
def kind_range(kind: str) -> tuple[int, int]:
    """Return the bounds of the integers of a kind; those of int64 for floats."""
    storage = STORAGE[kind]
    if storage.kind == "b":
        return 0, 1
    if storage.kind in "iu":
        info = np.iinfo(storage)
        return int(info.min), int(info.max)
    return INT64_LOW, INT64_HIGH


def storage_of(kinds: frozenset[str]) -> np.dtype:
    """Return the dtype of a variable that holds numbers of any of `kinds` without loss."""
    dtypes = {STORAGE[kind] for kind in kinds - {UNBOUND, NONE}}
    if len(dtypes) == 1:
        return next(iter(dtypes))
    if any(d == np.uint64 for d in dtypes):
        raise LoweringRefused("a value is a uint64 at times, and another number")
    letters = {d.kind for d in dtypes}
    if letters <= set("biu"):
        return ir.INT64
    if letters <= set("biuf"):
        return np.dtype(np.float64)
    return np.dtype(np.complex128)


# --------------------------------------------------------------------------- joins


def join(values: Sequence[Abstract | None]) -> Abstract:
    """Return the value of a variable where paths meet; None stands for an unbound variable.

    The result's variables (`value`, `tag`, `view`, `number`) are dummies; `flow.representation` names them.
    """
    options: list[Abstract] = []
    for value in values:
        if value is not None:
            options += value.options if isinstance(value, Union) else (value,)
    unbound = len([value for value in values if value is not None]) < len(values) or any(
        is_constant(option, Unassigned) for option in options)
    options = [option for option in options if not is_constant(option, Unassigned)]
    conflict = next((option for option in options if isinstance(option, Conflict)), None)
    if conflict is not None or not options:
        return conflict or UNASSIGNED
    if any(isinstance(option, Num) for option in options):
        joined = [_join_numbers([option for option in options if isinstance(option, Num)], False,
                                any(map(is_none, options)))]
        options = [option for option in options if not isinstance(option, Num) and not is_none(option)]
    else:
        joined = []
    classes: dict[Any, list[Abstract]] = {}
    for option in options:
        classes.setdefault(_class_of(option), []).append(option)
    joined += [_join_alike(alike) for _, alike in sorted(classes.items(), key=lambda item: repr(item[0]))]
    conflict = next((option for option in joined if isinstance(option, Conflict)), None)
    if conflict is not None:
        return conflict
    if len(joined) == 1:
        return _or_unbound(joined[0]) if unbound else joined[0]
    if len(joined) > MAX_OPTIONS or any(
            isinstance(x, (Sliced, Ranged, Iterated, Elementwise)) for x in joined):
        return Conflict(f"a variable is {' or '.join(sorted({describe(x) for x in joined}))}")
    return Union((*joined, *((UNASSIGNED,) if unbound else ())), ir.constant(0, TAG_DTYPE))


def _class_of(value: Abstract) -> Any:
    """Return what values have in common that can be held in the same variables."""
    match value:
        case Arr(dtype=dtype, ndim=ndim, writeable=writeable):
            return "array", dtype.str, ndim, writeable
        case Tup(items, is_list):
            return "tuple", len(items), is_list
        case StaticValue(thing):
            return "constant", describe(value), id(thing)
        case Instance(owner):
            return "object", owner
        case _:
            return "other", type(value).__name__


def _join_alike(values: list[Abstract]) -> Abstract:
    """Return the value of a variable whose values on several paths are of one class, and no numbers."""
    first = values[0]
    match first:
        case Arr():
            arrays = [value for value in values if isinstance(value, Arr)]
            origins = frozenset[str]().union(*(a.origins for a in arrays))
            tagged = any(a.tag is not None for a in arrays) or origins >= {IS_OBJECT, IS_VIEW}
            return Arr(first.view, first.dtype, first.ndim, origins, first.writeable, None,
                       ir.constant(0, TAG_DTYPE) if tagged else None,
                       single=frozenset.intersection(*(a.single for a in arrays)))
        case ListOf():
            return _join_lists([value for value in values if isinstance(value, ListOf)])
        case Tup():
            tuples = [value for value in values if isinstance(value, Tup)]
            return Tup(tuple(join(items) for items in zip(*(t.items for t in tuples), strict=True)),
                       first.is_list)
        case StaticValue() | Instance():
            return first
    return first if len(values) == 1 else Conflict(f"a variable is {describe(first)} on several paths")


def _or_unbound(value: Abstract) -> Abstract:
    """Return the value of a variable that has this value, or none."""
    if isinstance(value, Num):
        return _join_numbers([value], True, False)
    if isinstance(value, Arr):
        return Arr(value.view, value.dtype, value.ndim, value.origins, value.writeable, None,
                   ir.constant(0, TAG_DTYPE), single=value.single)
    if isinstance(value, ListOf):
        return ListOf(value.handle, value.lists, True)
    return Conflict("a variable has no value on some path")


def is_none(value: Abstract | None) -> bool:
    """Return whether a value is None for sure."""
    return is_constant(value, None)


def is_constant(value: Abstract | None, thing: Any) -> bool:
    """Return whether a value is an object that is known."""
    return isinstance(value, StaticValue) and value.value is thing


def option_of(union: Union, value: Abstract | None) -> int:
    """Return the number of the option that holds a value."""
    if value is None:
        value = UNASSIGNED
    if isinstance(value, Num) or is_none(value) and isinstance(union.options[0], Num):
        return 0
    wanted = _class_of(value)
    return next(k for k, option in enumerate(union.options)
                if not isinstance(option, Num) and _class_of(option) == wanted)


def _join_numbers(values: list[Num], unbound: bool, none: bool) -> Abstract:
    kinds = frozenset[str]().union(*(value.kinds for value in values), {UNBOUND} if unbound else (),
                                   {NONE} if none else ())
    try:
        storage = storage_of(kinds)
    except LoweringRefused as refused:
        return Conflict(refused.reason)
    first = values[0]
    known = first.known if not none and all(_same_constant(v.known, first.known) for v in values) else ()
    tag = ir.constant(0, TAG_DTYPE) if len(kinds) > 1 else None
    return Num(kinds, ir.constant(0, storage), tag, min(v.low for v in values), max(v.high for v in values),
               known)


def _join_lists(values: list[ListOf]) -> Abstract:
    first = values[0]
    try:
        for other in values[1:]:
            first.lists.unify(other.lists)
    except LoweringRefused as refused:
        return Conflict(refused.reason)
    return ListOf(ir.constant(0), first.lists, any(value.may_be_unbound for value in values))


def _same_constant(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return bool(a) and bool(b) and type(a[0]) is type(b[0]) and repr(a[0]) == repr(b[0])


def same_representation(a: Abstract | None, b: Abstract | None) -> bool:
    """Return whether two stored values have the same variables, kinds, bounds and origins."""
    if isinstance(a, Num) and isinstance(b, Num):
        return (a.kinds, a.dtype, a.low, a.high, len(a.known)) == (b.kinds, b.dtype, b.low, b.high,
                                                                   len(b.known))
    if isinstance(a, Arr) and isinstance(b, Arr):
        return (a.dtype, a.ndim, a.origins, a.writeable, a.tag is None, a.single) == \
            (b.dtype, b.ndim, b.origins, b.writeable, b.tag is None, b.single)
    if isinstance(a, Tup) and isinstance(b, Tup):
        return len(a.items) == len(b.items) and all(map(same_representation, a.items, b.items))
    if isinstance(a, ListOf) and isinstance(b, ListOf):
        return a.lists.find() is b.lists.find() and a.may_be_unbound == b.may_be_unbound
    if isinstance(a, StaticValue) and isinstance(b, StaticValue):
        return a.value is b.value
    if isinstance(a, Instance) and isinstance(b, Instance):
        return a.owner == b.owner
    if isinstance(a, Union) and isinstance(b, Union):
        return len(a.options) == len(b.options) and all(map(same_representation, a.options, b.options))
    return type(a) is type(b)


def describe(value: Abstract) -> str:
    """Return a few words for a value, for messages."""
    match value:
        case Num(kinds):
            return f"a number ({', '.join(sorted(kinds))})"
        case Arr() | Elementwise():
            return f"an array of {value.dtype} with {value.ndim} axes"
        case Tup(items=items):
            return f"a {'list' if value.is_list else 'tuple'} of {len(items)}"
        case ListOf():
            return "a list"
        case Instance(kind=kind):
            return f"a {kind.__name__}"
        case StaticValue(thing):
            return f"{getattr(thing, '__name__', thing)!s:.40}"
        case Union(options):
            return " or ".join(map(describe, options))
        case _:
            return f"a {type(value).__name__.lower()}"
