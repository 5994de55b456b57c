"""What users have made with ``numba.guvectorize`` that goes through rows element by element.

Knows: how Numba keeps such a function, what a loop over a row looks like in its instructions. Must not know:
tapes, hooks. Receives a function and the dtypes of operands; returns what it computes of each element, and
itself as a function of operands of any shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitla.hops import Body
from jitla.tracing.instructions import Found, Held, Reader, Unread

# What stands for itself in a loop over rows, beside numbers.
_OUT, _SHAPE, _COUNT, _RANGE, _TURN, _INDEX, _GOES = (Held(name) for name in (
    "out", "shape", "count", "range", "turn", "index", "goes"))
_STORED = "\0stored"


class Rows(Reader):
    """Reads a loop over all elements of rows that stores one element in each turn."""

    def __init__(
        self, annotation: Any, ins: tuple[np.dtype, ...], out: np.dtype, rows: tuple[bool, ...],
    ) -> None:
        super().__init__(annotation, ins, out)
        self.held: list[Found] = [Held(("row", k)) if row else self.ins[k] for k, row in enumerate(rows)]
        self.held.append(_OUT)
        self.head = -1
        self.before: frozenset[str] = frozenset()

    def way(self, label: int, held: dict[str, Found], above: frozenset[int]) -> int:
        """Return what is stored from a block on, until the next turn begins."""
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
        """Read the head of the loop, its body, and what comes behind it: nothing."""
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
        """Note what is stored in the element of this turn."""
        value = held[statement.value.name]
        if held[statement.target.name] is not _OUT or held[statement.index.name] is not _INDEX:
            raise Unread("an element of another turn")
        held[_STORED] = self.cast(value, self.out)

    def assigned(self, name: str, value: Any, held: dict[str, Found]) -> Found:
        """Return what is assigned to a variable; one from before the loop would hand something on."""
        if name in self.before:
            raise Unread("a value that one turn hands to the next")
        if type(value).__name__ == "Arg":
            return self.held[value.index]
        return super().assigned(name, value, held)

    def expression(self, name: str, node: Any, held: dict[str, Found]) -> Found:
        """Return the value of an expression, of elements of this turn only."""
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
    """A function of rows as one of operands of any shape; those that are no rows are numbers."""

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
    """Return which operands of a function are rows, if all these have as many elements as its one result."""
    builder = function.gufunc_builder
    (out,), ins = builder.sout, tuple(builder.sin)
    if len(out) != 1 or any(each not in ((), out) for each in map(tuple, ins)):
        raise Unread("operands of several lengths")
    options = {**builder.targetoptions}
    if options.pop("nopython", True) is not True or any(options.values()):
        raise Unread(f"options {options}")
    return tuple(bool(each) for each in ins)


def read(function: Any, given: tuple[Any, ...]) -> tuple[tuple[np.dtype, ...], np.dtype, Body]:
    """Return what a function for operands of these types reads, gives, and computes of each element."""
    rows = rows_of(function)
    wanted = tuple(np.dtype(each) for each in given)
    for signature, made in function.gufunc_builder.nb_func.overloads.items():
        *ins, out = [np.dtype(str(getattr(each, "dtype", each))) for each in signature.args]
        if tuple(ins) == wanted and out.kind == "f":
            reader = Rows(made.type_annotation, wanted, out, rows)
            return wanted, out, reader.body()
    raise Unread("no loop for such operands is kept")
