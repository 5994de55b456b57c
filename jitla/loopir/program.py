"""Loop programs: typed statements over scalars and views, with control flow, checks and exits.

A program is what one loop of a Python function is lowered to. It is entered with the values of scalars and
the descriptors of views, runs iterations of its outermost loop, and is left by an exit. Scalars and views
are mutable variables; a view is a data pointer, a shape and strides in bytes. Nothing in a program refers to
Python objects, so programs can be printed, interpreted and compiled in any process.

Statements have no side effects before their last step: every check of a statement comes before its store.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import Any

import numpy as np

from jitla.classes import dataclass
from jitla.loopir.nodes import Apply as Apply
from jitla.loopir.nodes import Number as Number

INT64 = np.dtype(np.int64)
FLOAT32_FUNCTIONS = frozenset({"powf"})  # of the C library
BOOL = np.dtype(bool)


# --------------------------------------------------------------------------- variables


@dataclass(frozen=True, slots=True)
class ScalarVariable:
    """A mutable scalar of one dtype: bool, integer, float or complex."""

    name: str
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class ViewVariable:
    """A mutable view of memory: data pointer, and a size and a stride in bytes for each axis."""

    name: str
    dtype: np.dtype
    ndim: int


# --------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class Read:
    """The value of a scalar variable."""

    name: str
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Element:
    """The element of a view at an index in bounds: int64 values, none negative."""

    view: str
    index: tuple[Value, ...]
    dtype: np.dtype


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of elements along an axis of a view, as int64."""

    view: str
    axis: int


@dataclass(frozen=True, slots=True)
class Stride:
    """The bytes between neighbours along an axis of a view, as int64."""

    view: str
    axis: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of an element of a view as int64, for tests of overlap; without index, of its first."""

    view: str
    index: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Expires:
    """Whether the memory of a view was allocated in the iteration before: it ends with this iteration.

    A program with this value allocates from two halves of the arena in turns, so that memory lives until the
    next iteration of the outermost loop ends.
    """

    view: str

    @property
    def dtype(self) -> np.dtype:
        """Bool."""
        return BOOL


@dataclass(frozen=True, slots=True)
class Checked:
    """Integer arithmetic that leaves the program by `exit` where the result does not fit into `dtype`.

    `op` is ``add``, ``sub``, ``mul``, ``neg``, ``shl`` (a shift by less than 0 or by the width and more
    leaves, too), ``floordiv`` or ``mod`` (rounded down; a zero divisor leaves), or ``cast`` of an integer or
    float (which leaves where the value is not exactly representable).
    """

    op: str
    args: tuple[Value, ...]
    dtype: np.dtype
    exit: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """A call of a function of the C library, such as ``exp``; operands and result are float64.

    Those of `FLOAT32_FUNCTIONS` are float32.
    """

    function: str
    args: tuple[Value, ...]

    @property
    def dtype(self) -> np.dtype:
        """The dtype of operands and result."""
        return np.dtype(np.float32 if self.function in FLOAT32_FUNCTIONS else np.float64)


Value = Number | Apply | Read | Element | Extent | Stride | Pointer | Expires | Checked | Foreign
ProgramValue = Value  # outside this package, where `Value` is one of a nest


def dtype_of_value(value: Value) -> np.dtype:
    """Return the dtype of a value."""
    return INT64 if isinstance(value, (Extent, Stride, Pointer)) else value.dtype


def constant(value: object, dtype: np.dtype | type = INT64) -> Number:
    """Return `value` as a constant of `dtype`."""
    kind = np.dtype(dtype)
    return Number(kind, kind.type(value).tobytes())


# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """Assignment to a scalar variable."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class StoreElement:
    """Assignment to the element of a view at an index in bounds."""

    view: str
    index: tuple[Value, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class AxisMap:
    """One axis of a new view: `length` elements from `begin`, `step` apart, of an axis of the source.

    With `axis` None the new axis has stride 0.
    """

    axis: int | None
    begin: Value
    length: Value
    step: Value


@dataclass(frozen=True, slots=True)
class BindView:
    """Assignment to a view variable: part of the view `source`; `points` are indices of axes that go.

    Several axes may be parts of one axis of the source: their offsets are added.
    """

    name: str
    source: str
    points: tuple[tuple[int, Value], ...]
    axes: tuple[AxisMap, ...]


@dataclass(frozen=True, slots=True)
class BindMemory:
    """Assignment to a view variable: the memory at an address, with sizes, and strides in bytes.

    It is memory that the program is entered with, for lists. No array shares it.
    """

    name: str
    address: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Allocate:
    """Assignment of fresh C-contiguous memory to a view variable, from the arena of the program.

    The memory lives until the iteration of the outermost loop ends (see `Expires`). `zero` clears it. A
    program that runs out of arena memory, or whose shape has a negative size, is left by `exit`.
    """

    name: str
    shape: tuple[Value, ...]
    zero: bool
    exit: int


@dataclass(frozen=True, slots=True)
class If:
    """A branch on a bool."""

    test: Value
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """A counted loop: `name` takes the values of ``range(begin, end, step)``, whose ends are read once.

    `step` is a constant other than 0. Assignments to `name` in the body do not change the count. Iterations
    are `independent` if none reads or stores an element that another one stores.
    """

    label: str
    name: str
    begin: Value
    end: Value
    step: int
    body: tuple[Statement, ...]
    independent: bool = False


@dataclass(frozen=True, slots=True)
class Repeat:
    """An endless loop, which is left by `Break`, or by an exit."""

    label: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Statements that `Break` with this label leaves."""

    label: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Break:
    """Jump behind the loop or block `label` around it."""

    label: str


@dataclass(frozen=True, slots=True)
class Continue:
    """Jump to the next iteration of the loop `label` around it."""

    label: str


@dataclass(frozen=True, slots=True)
class Check:
    """Leave the program by `exit` if `test` holds; it is unlikely to."""

    test: Value
    exit: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the program by `exit`."""

    exit: int


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an element of a view as an operand of a routine."""

    view: str
    index: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a scalar variable as an operand of a routine."""

    name: str


Operand = Address | Place


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """A call of the inner loop of a NumPy ufunc: ``loop(pointers, dims, steps, data)``.

    `routine` is ``"<ufunc>.<type characters>"``, as in ``"exp.d->d"`` or ``"matmul.dd->d"``.
    """

    routine: str
    operands: tuple[Operand, ...]
    dims: tuple[Value, ...]
    steps: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Dot:
    """A call of the `dot` function of a dtype: ``out = sum(a[i * a_step] * b[i * b_step])`` over `length`."""

    dtype: np.dtype
    a: Operand
    a_step: Value
    b: Operand
    b_step: Value
    out: Operand
    length: Value


@dataclass(frozen=True, slots=True)
class Sort:
    """Sort `length` elements that follow each other in memory, by NumPy's function for their dtype.

    `kind` is ``"quicksort"`` or ``"stable"``. With `indices`, which are int64, these are sorted by the
    elements that they refer to. Without memory for it the program is left by `exit`.
    """

    kind: str
    values: Address
    length: Value
    indices: Address | None
    exit: int


Statement = (Assign | StoreElement | BindView | BindMemory | Allocate | If | For | Repeat | Block | Break
             | Continue | Check | Leave | InnerLoop | Dot | Sort)
ProgramStatement = Statement


# --------------------------------------------------------------------------- programs


class ExitKind(Enum):
    """What the state of a program is worth when it is left."""

    PART = "part"  # the part is done: scalars, views and memory are those of Python
    FINAL = "final"  # the loop is over, by its end, ``break``, or a statement that leaves it; state as above
    UNDO = "undo"  # the iteration cannot be done: memory has to be restored, and Python runs the iteration


@dataclass(frozen=True, slots=True)
class ExitPoint:
    """One way out of a program; `line` and `reason` say where and why the program is left."""

    kind: ExitKind
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class LoopProgram:
    """A loop as a program.

    `parameters` are scalars and views that have values on entry, `results` those that are given back at
    every exit; both are places of the state that the program is called with. `written` are views among the
    parameters whose memory may be written. `raises` says whether floating-point flags have to be looked at.
    `origins` are pairs of a view among the parameters and the name of its memory: views whose memory has
    different names share none.
    """

    name: str
    scalars: tuple[ScalarVariable, ...]
    views: tuple[ViewVariable, ...]
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    body: tuple[Statement, ...]
    exits: tuple[ExitPoint, ...]
    written: tuple[str, ...] = ()
    raises: bool = False
    origins: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Where variables are in the state of a program, in words of 8 bytes; `size` words in all.

    A scalar takes one word (its first bytes), complex128 two; a view takes its pointer, sizes and strides.
    The last two words are the begin and the end of the arena.
    """

    places: dict[str, int]
    arena: int
    size: int


def state_layout(program: LoopProgram) -> StateLayout:
    """Return the layout of the state of `program`."""
    scalars = {s.name: s for s in program.scalars}
    views = {v.name: v for v in program.views}
    places: dict[str, int] = {}
    word = 0
    for name in dict.fromkeys((*program.parameters, *program.results)):
        places[name] = word
        word += 1 + 2 * views[name].ndim if name in views else max(1, scalars[name].dtype.itemsize // 8)
    return StateLayout(places, word, word + 2)


def uses_expiry(program: LoopProgram) -> bool:
    """Return whether a program has an `Expires` value, and allocates from two halves of the arena."""
    return any(isinstance(node, Expires) for node in program_nodes(program.body))


#: The fields of each class of nodes that are nodes, or tuples with nodes.
_PARTS: dict[type, Callable[[Any], Any] | None] = {
    Number: None, Read: None, Extent: None, Stride: None, Expires: None, Leave: None, Break: None,
    Continue: None, Place: None,
    Apply: attrgetter("args"), Element: attrgetter("index"), Pointer: attrgetter("index"),
    Checked: attrgetter("args"), Foreign: attrgetter("args"), Assign: attrgetter("value"),
    StoreElement: attrgetter("index", "value"), AxisMap: attrgetter("begin", "length", "step"),
    BindView: attrgetter("points", "axes"), BindMemory: attrgetter("address", "shape", "strides"),
    Allocate: attrgetter("shape"),
    If: attrgetter("test", "then", "otherwise"), For: attrgetter("begin", "end", "body"),
    Repeat: attrgetter("body"), Block: attrgetter("body"), Check: attrgetter("test"),
    Address: attrgetter("index"), InnerLoop: attrgetter("operands", "dims", "steps"),
    Dot: attrgetter("a", "a_step", "b", "b_step", "out", "length"),
    Sort: attrgetter("values", "length", "indices"),
}
#: The fields of classes of nodes that are names of variables.
_NAMES = {
    Read: ("name",), Element: ("view",), Extent: ("view",), Stride: ("view",), Pointer: ("view",),
    Expires: ("view",), Assign: ("name",), StoreElement: ("view",), BindView: ("name", "source"),
    BindMemory: ("name",), Allocate: ("name",), For: ("name",), Address: ("view",), Place: ("name",),
}


def program_nodes(body: Any) -> list[Any]:
    """Return all statements, values and operands in a tree of nodes, in no order, as often as they occur."""
    found: list[Any] = []
    stack = [body]
    parts = _PARTS
    while stack:
        part = stack.pop()
        kind = part.__class__
        if kind is tuple:
            stack += part
        elif kind in parts:
            found.append(part)
            read = parts[kind]
            if read is not None:
                stack.append(read(part))
    return found


def variables_in(nodes: list[Any]) -> set[str]:
    """Return the names of the variables that nodes read or assign."""
    return {getattr(node, name) for node in nodes for name in _NAMES.get(node.__class__, ())}
