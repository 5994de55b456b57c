"""State of the lowering of a loop: variables, paths between statements, inlined functions.

The classes of `expressions`, `inlining`, `statements` and `nested_loops` add the rest, in this order.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from types import FunctionType, ModuleType
from typing import Any, Protocol

from jitla.classes import dataclass
from jitla.loopir import program as ir
from jitla.loopjit import arrays, lists, scalars
from jitla.loopjit.builder import (
    ProgramBuilder,
    is_fresh,
)
from jitla.loopjit.flow import Environment, Meeting, representation
from jitla.loopjit.flow import convert as convert_variable
from jitla.loopjit.list_types import ListTypes
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Conflict,
    Elementwise,
    Helper,
    Instance,
    Iterated,
    ListOf,
    LocalFunction,
    LoweringRefused,
    Num,
    Ranged,
    Sliced,
    StaticValue,
    Tup,
)


class Resolver(Protocol):
    """Finds what names outside of a function stand for, and notes them, as compiled code depends on them."""

    function: FunctionType  # the one with the loop
    lists: list[Any]  # that are constants

    def global_name(self, name: str, function: FunctionType | None) -> Any:
        """Return the value of a global or builtin name of `function`; None: of the function with the loop."""
        ...

    def attribute(self, module: ModuleType, name: str) -> Any:
        """Return an attribute of a module."""
        ...

    def method(self, kind: type, name: str) -> FunctionType | None:
        """Return the method of a class."""
        ...

    def list_items(self, value: list[Any]) -> tuple[Any, ...]:
        """Return the items of a list that is a constant."""
        ...

    def forget_lists(self, count: int) -> None:
        """Keep the first `count` lists only: what used the others is left to Python."""
        ...

    def helper(self, function: Any) -> Helper | None:
        """Return a function of the user's as one that is inlined, or None."""
        ...


@dataclass(eq=False)
class LoopTarget:
    """A loop around the statement that is lowered: where ``break`` and ``continue`` lead, and how."""

    end: Meeting
    break_: ir.Statement
    next_iteration: Meeting
    continue_: ir.Statement
    final: int = -1  # the exit that ``break`` takes, of the outermost loop
    ended: Meeting = field(default_factory=Meeting.empty)  # where the loop ends by its test
    normal: str = ""  # label of the block that ends there


@dataclass(eq=False)
class Inlined:
    """A function that is being inlined: where its ``return`` statements lead, and the name of its result."""

    label: str
    end: Meeting
    result: str
    helper: Helper
    caller: Environment


class LoweringState(ABC):
    """Variables and paths of the lowering of a loop; `env` are the variables of the current function."""

    def __init__(self, resolver: Resolver, list_types: ListTypes) -> None:
        self.b = ProgramBuilder()
        self.list_types = list_types
        self.place: tuple[Any, ...] = ()  # of the expression that is lowered
        self.local_functions: Mapping[str, LocalFunction] = {}  # of the function with the loop
        self.outer_names: frozenset[str] = frozenset()  # of the variables of the function with the loop
        self.fields: frozenset[str] = frozenset()  # variables that are attributes of objects
        self.stored_fields: frozenset[str] = frozenset()  # those that are assigned
        self.fixed_lists: frozenset[str] = frozenset()  # names of lists of which items are read only
        self.env: Environment = {}
        self.reachable = True
        self.resolver = resolver
        self.scope = ""
        self.targets: list[LoopTarget] = []
        self.inlined: list[Inlined] = []
        self.conditional = 0  # branches around the statement that is lowered
        # statements of Python that end the loop, by the exit that they take
        self.terminals: list[ast.stmt] = []
        self.terminal_exits: dict[tuple[int, int], int] = {}
        self.final_edges: list[tuple[int, Environment, Any]] = []
        self.statements = 0
        self.global_arrays: Environment = {}  # that are operands
        self.headers: dict[tuple[Any, ...], Environment] = {}
        self.stores = 0
        self.local_names: frozenset[str] = frozenset()
        self.written: set[str] = set()
        self.without_items: LoweringRefused | None = None  # an item is read of a list that has none yet

    def leave_for_good(self, exit_number: int) -> None:
        """Leave the program by a final exit, with the variables as they are."""
        meeting = Meeting.empty()
        meeting.reach(self.b, self.env)
        self.final_edges.append((exit_number, dict(self.env), meeting.edges[0][0]))
        self.b.emit(ir.Leave(exit_number))
        self.reachable = False

    def jump(self, to: Meeting, statement: ir.Statement) -> None:
        """End the current path with a jump to a meeting point."""
        to.reach(self.b, self.env)
        self.b.emit(statement)
        self.reachable = False

    def branch(self, test: ir.Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Lower two paths, one of which is taken, and join them."""
        known = scalars.static_truth(test)
        if known is not None:
            (then if known else otherwise)()
            return
        before = dict(self.env)
        meeting = Meeting.empty()
        paths: list[list[Any]] = []
        self.conditional += 1
        try:
            for path in (then, otherwise):
                self.env, self.reachable = dict(before), True
                with self.b.into([]) as statements:
                    path()
                    if self.reachable:
                        meeting.reach(self.b, self.env)
                paths.append(statements)
        finally:
            self.conditional -= 1
        self.b.emit(ir.If(test, paths[0], paths[1]))  # type: ignore[arg-type]
        self.continue_from(meeting)

    def continue_from(self, meeting: Meeting) -> None:
        """Go on behind a meeting point, if it is reached."""
        merged = meeting.merge(self.b, self.scope)
        self.reachable = merged is not None
        if merged is not None:
            self.env = merged

    def stored(self, name: str, value: Abstract) -> Abstract:
        """Return a value held in the variables of the name of the current function."""
        value = self.settled(value)
        if isinstance(value, Iterated):
            raise LoweringRefused("a variable that is an iterator")
        if isinstance(value, Tup) and name not in self.fixed_lists:
            value = self.with_lists(value, (self.class_name(), name))
        if isinstance(value, (StaticValue, Instance, Sliced, Ranged, Conflict)):
            return value
        held = representation(self.b, f"{self.scope}{name}", value)
        convert_variable(self.b, value, held)
        return held

    def with_lists(self, value: Tup, name: Hashable) -> Abstract:
        """Return a tuple or list that is written out with the lists in it made, if its items are numbers,
        lists and tuples.
        """
        if value.is_list:
            return lists.make(self, value.items, name) if lists.is_storable(value) else value
        return Tup(tuple(self.with_lists(item, (name, k)) if isinstance(item, Tup) else item
                         for k, item in enumerate(value.items)))

    def class_name(self) -> Hashable:
        """Return the name of the class of lists that the present expression makes."""
        return (self.inlined[-1].helper.code if self.inlined else None, *self.place)

    def settled(self, value: Abstract) -> Abstract:
        """Return a value that later statements do not change: computed now, and stored if it is an
        expression.
        """
        match value:
            case Num():
                return self.b.evaluated(value)
            case ListOf():
                return ListOf(self.b.temporary(value.handle), value.lists, value.may_be_unbound)
            case Elementwise():
                arrays.require_value(value)
                return arrays.array_of(self.b, value)
            case Tup(items):
                return Tup(tuple(self.settled(item) for item in items), value.is_list)
            case Ranged(start, stop, step):
                return Ranged(self.b.evaluated(start), self.b.evaluated(stop), self.b.evaluated(step))
            case Arr(view) if not is_fresh(view):
                copy = self.b.view(self.b.fresh("v"), value.dtype, value.ndim)
                bound = arrays.require_bound(self.b, value)
                self.b.emit(ir.BindView(copy, view, (), arrays.identity_axes(bound)))
                tag = self.b.temporary(value.tag) if value.tag is not None else None
                return Arr(copy, value.dtype, value.ndim, value.origins, value.writeable, None, tag,
                           single=value.single)
        return value

    @abstractmethod
    def expression(self, node: ast.expr) -> Abstract:
        """Return the value of an expression."""

    @abstractmethod
    def operate(self, op: str, left: Abstract, right: Abstract) -> Abstract:
        """Return the result of a binary operator."""

    @abstractmethod
    def call(self, node: ast.Call) -> Abstract:
        """Return the result of a call."""

    @abstractmethod
    def block(self, body: Sequence[ast.stmt]) -> None:
        """Lower statements until one is left."""

    @abstractmethod
    def counted_loop(self, node: ast.For) -> None:
        """Lower a ``for`` loop."""

    @abstractmethod
    def while_loop(self, node: ast.While) -> None:
        """Lower a ``while`` loop."""

    @abstractmethod
    def iteration(self, source: Abstract) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return the number of items of what a loop goes through, and the function from index to item."""
