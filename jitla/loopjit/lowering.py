"""Lowering of Python loops to loop programs, by abstract interpretation of their syntax trees.

Statements are lowered in order while the kinds of all variables are followed; loops are lowered again until
the kinds at their headers no longer change. A statement that cannot be lowered leaves the iteration to
Python if it is conditional, and refuses the loop otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from jitla.classes import dataclass
from jitla.instrument import walk_tree
from jitla.loopir import fuse_loops
from jitla.loopir import program as ir
from jitla.loopjit import arrays, calls, library, lists, reductions, scalars, selections, shapes
from jitla.loopjit.bounds import hoist_checks
from jitla.loopjit.builder import (
    ProgramBuilder,
    apply,
    both,
    compare,
    either,
    freeze,
    is_fresh,
    minus,
    negated,
    plus,
    times,
)
from jitla.loopjit.comprehensions import as_loop, as_search
from jitla.loopjit.flags import may_raise_flags
from jitla.loopjit.flow import Environment, Meeting, copy_view, meet, representation, widened
from jitla.loopjit.flow import convert as convert_variable
from jitla.loopjit.list_types import HEAP, HEAP_END, ListTypes
from jitla.loopjit.objects import fields_of_parameter, is_plain_field
from jitla.loopjit.rewriting import (
    BEGIN,
    LIMIT,
    LOOP_BROKEN,
    LOOP_DONE,
    PART_DONE,
    POSITION,
    SEQUENCE,
    START,
    Unassigned,
)
from jitla.loopjit.unions import lower_by_type, names_decided, undecided
from jitla.loopjit.values import (
    KIND_OF_TYPE,
    MAX_EXTENT,
    NONE,
    TAG_DTYPE,
    UNBOUND,
    Abstract,
    Arr,
    Conflict,
    Elementwise,
    FieldsWanted,
    Helper,
    Instance,
    Iterated,
    ListOf,
    LocalFunction,
    LoweringRefused,
    NeverCompiled,
    Num,
    Ranged,
    Sliced,
    StaticValue,
    Tup,
    Union,
    describe,
    is_constant,
    is_none,
    number,
    of_kind,
    same_representation,
)

MAX_ROUNDS = 12  # of lowering a loop until the kinds of its variables no longer change
MAX_STATEMENTS = 600  # statements lowered for one loop, inlined functions included
MAX_NODES = 8_500  # of a program: machine code of as many takes about two seconds
MAX_INLINE_DEPTH = 4  # calls of functions within each other
MAX_CHOICES = 16  # items of a tuple of which one is chosen by a variable
MAX_UNROLLED = 8  # iterations of a loop over a tuple


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


class Lowering:
    """Lowers statements and expressions; `env` are the variables of the current function, None if
    unreachable.
    """

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

    # -- statements ---------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Lower statements until one is left."""
        for node in body:
            if not self.reachable:
                return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement; a conditional one that cannot be lowered leaves the iteration to Python."""
        self.statements += 1
        if self.statements > MAX_STATEMENTS * MAX_ROUNDS:
            raise LoweringRefused(f"more than {MAX_STATEMENTS} statements", node.lineno)
        if not self.inlined:
            self.b.line, self.b.allocations = node.lineno, 0
        name = undecided(self.env, names_decided(node))
        if name is not None:
            lower_by_type(self, name, lambda: self.statement(node))
            return
        constants = len(self.resolver.lists)
        try:
            self._statement(node)
        except FieldsWanted:
            raise
        except lists.NoItemsYet as refused:
            self.without_items = self.without_items or refused
            self.b.leave(refused.reason)
            self.reachable = False
        except LoweringRefused as refused:
            if not self.conditional or isinstance(refused, NeverCompiled):
                raise type(refused)(refused.reason, refused.line or node.lineno) from refused
            self.resolver.forget_lists(constants)
            self.b.leave(refused.reason)
            self.reachable = False

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self.expression(value)
                if len(targets) > 1:
                    found = self.settled(found)
                    if isinstance(found, Tup) and found.is_list:
                        found = lists.make(self, found.items, self.class_name())
                for target in targets:
                    self.assign(target, found)
            case ast.AnnAssign(target=target, value=value):
                if value is not None:
                    self.assign(target, self.expression(value))
            case ast.AugAssign(target=target, op=op, value=value):
                self.augmented(target, type(op).__name__, value)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=value):
                self.settled(self.expression(value))
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(self.test(test), lambda: self.block(body), lambda: self.block(orelse))
            case ast.For():
                self.counted_loop(node)
            case ast.While():
                self.while_loop(node)
            case ast.Break():
                loop = self.targets[-1]
                if loop.final >= 0:
                    self.leave_for_good(loop.final)
                else:
                    self.jump(loop.end, loop.break_)
            case ast.Continue():
                self.jump(self.targets[-1].next_iteration, self.targets[-1].continue_)
            case ast.Return(value=value):
                self.returned(node, value)
            case ast.Raise():
                if self.inlined:
                    raise LoweringRefused("a raise statement of an inlined function")
                self.terminal(node)
            case ast.Assert(test=test):
                holds = self.test(test)
                if scalars.static_truth(holds) is False:
                    raise LoweringRefused("an assertion that fails")
                self.b.check(negated(holds), "an assertion that fails")
            case _:
                raise LoweringRefused(f"a {type(node).__name__.lower()} statement")

    def returned(self, node: ast.stmt, value: ast.expr | None) -> None:
        """Lower a ``return``: Python evaluates the value, unless the function is inlined."""
        if not self.inlined:
            self.terminal(node)
            return
        target = self.inlined[-1]
        result = StaticValue(None) if value is None else self.settled(self.expression(value))
        self.env[target.result] = self.stored(target.result, result)
        self.jump(target.end, ir.Break(target.label))

    def terminal(self, node: ast.stmt) -> None:
        """Leave the loop by a statement that Python does, with the variables as they are."""
        key = (node.lineno, node.col_offset)
        if key not in self.terminal_exits:
            self.terminal_exits[key] = self.b.final(f"a {type(node).__name__.lower()} statement")
            self.terminals.append(node)
        self.leave_for_good(self.terminal_exits[key])

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

    # -- assignments --------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Abstract) -> None:
        """Assign a value to a target."""
        match target:
            case ast.Name(id=name):
                self.env[name] = self.stored(name, value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    raise LoweringRefused("a starred target")
                items = self.items(value, len(elements))
                if len(items) != len(elements):
                    raise LoweringRefused("a tuple of another length than its targets")
                for element, item in zip(elements, [self.settled(item) for item in items], strict=True):
                    self.assign(element, item)
            case ast.Subscript(value=base, slice=index):
                (array,) = self.operands([base], [value])
                self.store(array, self.indices(index, value, array), value)
            case ast.Attribute(value=base, attr=name):
                self.store_field(self.expression(base), name, value)
            case _:
                raise LoweringRefused(f"an assignment to a {type(target).__name__.lower()}")

    def store_field(self, base: Abstract, name: str, value: Abstract) -> None:
        """Assign a value to an attribute of an object."""
        if not isinstance(base, Instance):
            raise LoweringRefused(f"an attribute of {describe(base)} is assigned")
        key = f"{base.owner}.{name}"
        if key not in self.stored_fields:
            raise FieldsWanted([(base.owner, name)],
                               f"an assignment to the attribute {name} of {describe(base)}")
        if isinstance(self.env[key], Conflict):
            raise LoweringRefused(f"the attribute {name} of {describe(base)} is no plain one")
        self.env[key] = self.stored(key, value)

    def field(self, base: Instance, name: str) -> str:
        """Return the name of the variable that is an attribute of an object."""
        key = f"{base.owner}.{name}"
        if key not in self.fields:
            raise FieldsWanted([(base.owner, name)], f"the attribute {name} of {describe(base)}")
        return key

    def items(self, value: Abstract, count: int) -> tuple[Abstract, ...]:
        """Return the items of a tuple, or of a short array that is unpacked."""
        if isinstance(value, Tup):
            return value.items
        if isinstance(value, Arr) and value.ndim:
            bound = arrays.require_bound(self.b, value)
            self.b.check(compare("not_equal", bound.shape[0], ir.constant(count)),
                         "an array of another length")
            return tuple(selections.subscript(self.b, bound, [number(k)]) for k in range(count))
        if isinstance(value, ListOf):
            size = lists.length(self.b, value)
            self.b.check(compare("not_equal", size.value, ir.constant(count)), "a list of another length")
            return tuple(lists.item(self.b, value, number(k)) for k in range(count))
        raise LoweringRefused(f"{describe(value)} is unpacked")

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

    def store(self, base: Abstract, indices: Sequence[Abstract], value: Abstract) -> None:
        """Store a value in part of an array or list."""
        if isinstance(base, ListOf) and len(indices) == 1:
            lists.store_item(self, base, indices[0], value)
            return
        if not isinstance(base, Arr):
            raise LoweringRefused(f"an item of {describe(base)} is assigned")
        if isinstance(value, Tup):
            value = shapes.array_from(self.b, value)
        if not base.writeable:
            raise LoweringRefused("a store to an array that is read only")
        self.written |= base.origins
        self.stores += 1
        if any(isinstance(index, (Arr, Elementwise)) for index in indices):
            self.scatter(base, indices, value)
            return
        place = selections.subscript(self.b, base, indices)
        if isinstance(place, Arr):
            arrays.store(self.b, place, value)
            return
        assert isinstance(place, Num)
        assert isinstance(place.value, ir.Element)
        if isinstance(value, (Arr, Elementwise)):
            raise LoweringRefused("an array is stored in an element")
        if not isinstance(value, Num):
            raise LoweringRefused(f"{describe(value)} is stored in an element")
        element = scalars.as_element(self.b, scalars.bound(self.b, value), base.dtype)
        self.b.emit(ir.StoreElement(place.value.view, place.value.index, element))

    def scatter(self, base: Arr, indices: Sequence[Abstract], value: Abstract) -> None:
        """Store in the elements that arrays select."""
        mask = indices[0]
        if not (len(indices) == 1 and isinstance(value, Num) and isinstance(mask, (Arr, Elementwise))
                and mask.dtype.kind == "b" and mask.ndim == base.ndim):
            selections.put(self.b, base, indices, value)
            return
        target = arrays.require_bound(self.b, base)
        mask = arrays.elementwise(self.b, mask)
        if any(arrays.may_overlap(target, operand) for operand in mask.operands):
            mask = arrays.elementwise(self.b, arrays.materialise(self.b, mask))
        chosen = mask
        for one, two in zip(chosen.shape, target.shape, strict=True):
            if one != two:
                self.b.check(compare("not_equal", one, two), arrays.MISMATCH)
        element = self.b.temporary(scalars.convert(self.b, scalars.bound(self.b, value), base.dtype))
        arrays.each_element(self.b, target.shape, lambda at: self.b.emit(ir.If(
            chosen.element(at), (ir.StoreElement(target.view, at, element),))))

    def augmented(self, target: ast.expr, op: str, value: ast.expr) -> None:
        """Lower ``target op= value``; arrays are changed in place."""
        match target:
            case ast.Name(id=name):
                current = self.name(name)
                if isinstance(current, Tup) and current.is_list:
                    raise LoweringRefused("a list is changed")
                if isinstance(current, ListOf):
                    if op != "Add":
                        raise LoweringRefused(f"{op} of a list in place")
                    lists.extend(self, current, self.settled(self.expression(value)))
                    return
                if isinstance(current, Arr):
                    self.in_place(current, op, self.expression(value))
                else:
                    self.assign(target, self.operate(op, current, self.expression(value)))
            case ast.Subscript(value=base, slice=index):
                array = self.expression(base)
                indices = self.indices(index, array)
                if isinstance(array, ListOf) and len(indices) == 1:
                    self.item_in_place(array, indices[0], op, value)
                    return
                if not isinstance(array, Arr):
                    raise LoweringRefused(f"an item of {describe(array)} is assigned")
                if any(isinstance(item, (Arr, Elementwise)) for item in indices):
                    self.selected_in_place(array, indices, op, value)
                    return
                place = selections.subscript(self.b, array, indices)
                if isinstance(place, Arr):
                    self.in_place(place, op, self.expression(value))
                    return
                assert isinstance(place, Num)
                assert isinstance(place.value, ir.Element)
                result = self.operate(op, place, *self.operands([value], [place]))
                if not array.writeable or not isinstance(result, Num):
                    raise LoweringRefused("an in-place operation on an element")
                self.written |= array.origins
                self.stores += 1
                element = scalars.as_element(self.b, scalars.bound(self.b, result), array.dtype)
                self.b.emit(ir.StoreElement(place.value.view, place.value.index, element))
            case ast.Attribute(value=base, attr=name):
                owner = self.expression(base)
                current = self.attribute(owner, name)
                if isinstance(current, Arr):
                    self.in_place(current, op, self.expression(value))
                elif isinstance(current, ListOf):
                    if op != "Add":
                        raise LoweringRefused(f"{op} of a list in place")
                    lists.extend(self, current, self.settled(self.expression(value)))
                else:
                    (right,) = self.operands([value], [current])
                    self.store_field(owner, name, self.operate(op, current, right))
            case _:
                raise LoweringRefused(f"an assignment to a {type(target).__name__.lower()}")

    def item_in_place(self, base: ListOf, index: Abstract, op: str, value: ast.expr) -> None:
        """Lower ``base[index] op= value`` of a list."""
        index = self.settled(index)
        current = lists.item(self.b, base, index)
        if isinstance(current, ListOf):
            if op != "Add":
                raise LoweringRefused(f"{op} of a list in place")
            lists.extend(self, current, self.settled(self.expression(value)))
            result: Abstract = current
        else:
            result = self.operate(op, current, self.expression(value))
        lists.store_item(self, base, index, result)

    def selected_in_place(self, array: Arr, indices: Sequence[Abstract], op: str, value: ast.expr) -> None:
        """Lower an in-place operation on elements that arrays select: read, changed and stored, as NumPy
        does.
        """
        indices = [vector for item in indices for vector in (
            selections.nonzero(self.b, item) if isinstance(item, (Arr, Elementwise))
            and item.dtype.kind == "b"
            else [self.settled(item)])] if len(indices) == 1 else [self.settled(item) for item in indices]
        taken = arrays.materialise(self.b, selections.take(self.b, array, indices))
        self.in_place(taken, op, self.expression(value))
        self.store(array, indices, taken)

    def in_place(self, target: Arr, op: str, value: Abstract) -> None:
        """Lower an in-place operation on an array."""
        target = arrays.require_bound(self.b, target)
        self.written |= target.origins
        self.stores += 1
        result = self.operate(op, target, value)
        if not isinstance(result, (Arr, Elementwise)):
            raise LoweringRefused("an in-place operation on an array")
        result = arrays.elementwise(self.b, result)
        if not np.can_cast(result.dtype, target.dtype, "same_kind"):
            raise LoweringRefused(f"NumPy raises TypeError: {result.dtype} is not cast to {target.dtype}")
        calls.require_same_shape(self.b, result, target)
        if result.dtype.kind == "f" and target.dtype.kind in "iu":
            raise LoweringRefused("floats are stored in an array of integers")
        arrays.store(self.b, target, result)

    # -- loops --------------------------------------------------------------------------------

    def loop(
        self, node: ast.For | ast.While, body: Callable[[LoopTarget], None],
        wrap: Callable[[str, list[Any]], ir.Statement], ends_at_header: bool = True,
    ) -> None:
        """Lower a loop: its body again and again until the kinds at the header no longer change.

        `body` lowers an iteration, and `wrap` makes the statement. A loop that does not end at its header is
        left by jumps only.
        """
        entry, path = dict(self.env), (node, self.scope)
        names = assigned_names(node) | self.stored_fields
        allocations = self.b.allocations
        before = self.headers.get(path)
        header = entry if before is None else self._header(names, [entry, {**entry, **before}])
        state = self.b.line, self.conditional, self.final_edges
        for _ in range(MAX_ROUNDS):
            self.b.line, self.conditional, _ = state
            self.b.allocations = allocations  # origins of arrays have the same names in each round
            self.final_edges = []
            label, block = self.b.fresh("loop"), self.b.fresh("block")
            target = LoopTarget(Meeting.empty(), ir.Break(block), Meeting.empty(), ir.Continue(label),
                                normal=self.b.fresh("ended"))
            self.env, self.reachable = dict(header), True
            self.targets.append(target)
            try:
                with self.b.into([]) as statements:
                    body(target)
                    if self.reachable:
                        target.next_iteration.reach(self.b, self.env)
            finally:
                self.targets.pop()
            following = self._header(names, [entry, *(env for _, env in target.next_iteration.edges)])
            if all(same_representation(header.get(name), following.get(name)) for name in names):
                break
            header = {name: widened(header[name], value) if name in header and name in names else value
                      for name, value in following.items()}
        else:
            raise LoweringRefused("the kinds of variables that do not settle")
        self.final_edges = [*state[2], *self.final_edges]
        self.headers[path] = {name: header[name] for name in names if name in header}
        for edge, env in [(None, entry), *target.next_iteration.edges]:
            with self.b.into(self.b.statements if edge is None else edge.statements):
                for name in names & header.keys():
                    if env.get(name) is not header[name]:
                        convert_variable(self.b, env.get(name), header[name])
        ended = target.ended
        with self.b.into([]) as whole:
            with self.b.into([]) as looping:
                self.b.emit(wrap(label, statements))
                if ends_at_header:
                    ended.reach(self.b, header)
            self.b.emit(ir.Block(target.normal, looping))  # type: ignore[arg-type]
            self.continue_from(ended)
            if self.reachable:
                self.block(node.orelse)
            if self.reachable:
                target.end.reach(self.b, self.env)
        self.b.emit(ir.Block(block, whole))  # type: ignore[arg-type]
        self.continue_from(target.end)

    def _header(self, names: frozenset[str], envs: list[Environment]) -> Environment:
        """Return the variables at a header that paths lead to; only those with `names` may differ."""
        merged = meet([{name: env[name] for name in names & env.keys()} for env in envs], self.scope, self.b)
        return {**{name: value for name, value in envs[0].items() if name not in names}, **merged}

    def while_loop(self, node: ast.While) -> None:
        """Lower a ``while`` loop."""
        def body(target: LoopTarget) -> None:
            test = self.test_of_loop(node.test)
            if scalars.static_truth(test) is not True:
                with self.b.into([]) as leave:
                    target.ended.reach(self.b, self.env)
                    self.b.emit(ir.Break(target.normal))
                self.b.emit(ir.If(negated(test), leave))  # type: ignore[arg-type]
            self.block(node.body)

        self.loop(node, body, lambda label, statements: ir.Repeat(
            label, statements), ends_at_header=False)  # type: ignore[arg-type]

    def counted_loop(self, node: ast.For) -> None:
        """Lower a ``for`` loop over a range, an array, a tuple, or these enumerated, zipped or reversed."""
        source = self.expression(node.iter)
        if isinstance(source, Tup) or isinstance(source, Iterated) and self._is_unrolled(source):
            self.unrolled(node, source)
            return
        source = self.settled_source(source)
        if has_live_list(source):
            self.list_loop(node, source)
            return
        if isinstance(source, Ranged):
            step = scalars.constant_integer(source.step)
            if step:
                self.range_loop(node, source, step)
                return
        count, item = self.iteration(source)
        name = self.b.fresh("i")

        def body(target: LoopTarget) -> None:
            index = of_kind("int", self.b.scalar(name, ir.INT64), 0, MAX_EXTENT)
            self.assign(node.target, item(index))
            self.block(node.body)

        count = self.b.temporary(count)
        self.loop(node, body, lambda label, statements: ir.For(
            label, name, arrays.ZERO, count, 1, statements))  # type: ignore[arg-type]

    def list_loop(self, node: ast.For, source: Abstract) -> None:
        """Lower a loop over lists, which may get longer or shorter meanwhile."""
        name = self.b.fresh("i")
        self.b.assign(name, arrays.ZERO)

        def body(target: LoopTarget) -> None:
            count, item = self.iteration(source)
            index = self.b.temporary(self.b.scalar(name, ir.INT64))
            with self.b.into([]) as leave:
                target.ended.reach(self.b, self.env)
                self.b.emit(ir.Break(target.normal))
            self.b.emit(ir.If(compare("greater_equal", index, count), leave))  # type: ignore[arg-type]
            self.b.assign(name, plus(index, arrays.ONE))
            self.assign(node.target, item(of_kind("int", index, 0, MAX_EXTENT)))
            self.block(node.body)

        self.loop(node, body, lambda label, statements: ir.Repeat(
            label, statements), ends_at_header=False)  # type: ignore[arg-type]

    def range_loop(self, node: ast.For, source: Ranged, step: int) -> None:
        """Lower a loop over a range with a constant step."""
        low, high = (source.start.low, source.stop.high - 1) if step > 0 else \
            (source.stop.low + 1, source.start.high)
        name = self.b.fresh("i")

        def body(target: LoopTarget) -> None:
            self.assign(node.target, of_kind("int", self.b.scalar(name, ir.INT64), low, max(low, high)))
            self.block(node.body)

        begin, end = self.b.temporary(source.start.value), self.b.temporary(source.stop.value)
        self.loop(node, body, lambda label, statements: ir.For(
            label, name, begin, end, step, statements))  # type: ignore[arg-type]

    def _is_unrolled(self, source: Iterated) -> bool:
        return all(isinstance(part, Tup) for part in source.parts)

    def unrolled(self, node: ast.For, source: Tup | Iterated) -> None:
        """Lower a loop over a tuple iteration by iteration."""
        if isinstance(source, Iterated):
            parts = [part.items for part in source.parts if isinstance(part, Tup)]
            if source.function == "enumerate":
                start = scalars.constant_integer(source.start) if source.start is not None else 0
                if start is None:
                    raise LoweringRefused("an enumerate with a start that is no constant")
                items = tuple(Tup((number(start + k), item)) for k, item in enumerate(parts[0]))
            elif source.function == "reversed":
                items = parts[0][::-1]  # type: ignore[assignment]
            else:
                items = tuple(Tup(tuple(row)) for row in zip(*parts, strict=False))
        else:
            items = source.items  # type: ignore[assignment]
        if len(items) > MAX_UNROLLED:
            self.list_loop(node, lists.make(self, items, self.class_name()))
            return
        settled = [self.settled(item) for item in items]  # iterations may assign what items are read of
        label, end = self.b.fresh("unrolled"), Meeting.empty()
        with self.b.into([]) as statements:
            for item in settled:
                if not self.reachable:
                    break
                once, following = self.b.fresh("once"), Meeting.empty()
                self.targets.append(LoopTarget(end, ir.Break(label), following, ir.Break(once)))
                try:
                    with self.b.into([]) as body:
                        self.assign(node.target, item)
                        self.block(node.body)
                        if self.reachable:
                            following.reach(self.b, self.env)
                finally:
                    self.targets.pop()
                self.b.emit(ir.Block(once, body))  # type: ignore[arg-type]
                self.continue_from(following)
            if self.reachable:
                self.block(node.orelse)
            if self.reachable:
                end.reach(self.b, self.env)
        self.b.emit(ir.Block(label, statements))  # type: ignore[arg-type]
        self.continue_from(end)

    def settled_source(self, source: Abstract) -> Abstract:
        """Return what a loop goes through, read once."""
        match source:
            case Tup():
                return lists.make(self, source.items, self.class_name())
            case ListOf():
                return lists.require_list(self.b, ListOf(
                    self.b.temporary(source.handle), source.lists, source.may_be_unbound))
            case Iterated(function, parts, start):
                return Iterated(function, tuple(self.settled_source(part) for part in parts),
                                None if start is None else self.b.evaluated(start))
            case Ranged() | Arr() | Elementwise():
                return self.settled(source)
        raise LoweringRefused(f"a loop over {describe(source)}")

    def iteration(self, source: Abstract) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return the number of items of what a loop goes through, and the function from index to item."""
        match source:
            case Arr():
                if not source.ndim:
                    raise LoweringRefused("a loop over an array without axes")
                return source.shape[0], lambda index: selections.subscript(self.b, source, [index])
            case ListOf():
                return lists.length(self.b, source).value, lambda index: lists.item(self.b, source, index)
            case Ranged(start, stop, step):
                constant = scalars.constant_integer(step)
                if not constant:
                    return self.stepped(source)
                span = apply("subtract", stop.value, start.value) if constant > 0 else \
                    apply("subtract", start.value, stop.value)
                distance = apply("maximum", span, arrays.ZERO)
                size = abs(constant)
                count = distance if size == 1 else apply(
                    "floor_divide", plus(distance, ir.constant(size - 1)), ir.constant(size))
                ends = (start.low, stop.high - 1) if constant > 0 else (stop.low + 1, start.high)
                return count, lambda index: of_kind(
                    "int", plus(start.value, times(index.value, ir.constant(constant))), *ends)
            case Iterated("zip strict", parts, _):
                counts, items = zip(*map(self.iteration, parts), strict=True)
                for other in counts[1:]:
                    self.b.check(compare("not_equal", counts[0], other), "sequences of different lengths")
                return counts[0], lambda index: Tup(tuple(item(index) for item in items))
            case Iterated("enumerate", (inner,), first):
                length, item = self.iteration(inner)
                begin = first or number(0)
                return length, lambda index: Tup((scalars.binary(self.b, "Add", index, begin), item(index)))
            case Iterated("zip", parts, _):
                counts, items = zip(*map(self.iteration, parts), strict=True)
                least: ir.Value = counts[0]
                for other in counts[1:]:
                    least = apply("minimum", least, other)
                return least, lambda index: Tup(tuple(item(index) for item in items))
            case Iterated("reversed", (inner,), _):
                length, item = self.iteration(inner)
                last = self.b.temporary(minus(length, arrays.ONE))
                return length, lambda index: item(of_kind(
                    "int", apply("subtract", last, index.value), 0, MAX_EXTENT))
        raise LoweringRefused(f"a loop over {describe(source)}")

    def stepped(self, source: Ranged) -> tuple[ir.Value, Callable[[Num], Abstract]]:
        """Return length and items of a range whose step is a variable that is positive."""
        start, step = self.b.evaluated(source.start), self.b.evaluated(source.step)
        if step.low <= 0:
            self.b.check(compare("less_equal", step.value, arrays.ZERO), "a step that is not positive")
        distance = apply("maximum", apply("subtract", source.stop.value, start.value), arrays.ZERO)
        count = apply("floor_divide", plus(distance, apply("subtract", step.value, arrays.ONE)), step.value)
        return self.b.temporary(count), lambda index: of_kind(
            "int", plus(start.value, times(index.value, step.value)), start.low, source.stop.high - 1)

    # -- expressions --------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Abstract:
        """Return the value of an expression."""
        place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        value = self._expression(node, place)
        self.place = place
        return value

    def _expression(self, node: ast.expr, place: tuple[Any, ...]) -> Abstract:
        match node:
            case ast.Constant(value=value):
                return number(value) if type(value) in KIND_OF_TYPE else StaticValue(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.BinOp(left=left, op=op, right=right):
                one, two = self.operands([left, right])
                self.place = place
                return self.operate(type(op).__name__, one, two)
            case ast.ListComp():
                return self.comprehension(node)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return of_kind("bool", negated(self.test(operand)))
            case ast.UnaryOp(op=op, operand=operand):
                return self.negative(type(op).__name__, self.expression(operand))
            case ast.Compare():
                return self.comparison(node)
            case ast.BoolOp():
                return self.connected(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choice(self.test(test), lambda: self.expression(body),
                                   lambda: self.expression(orelse))
            case ast.Tuple(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    raise LoweringRefused("a starred element")
                return Tup(tuple(self.operands(elements)))
            case ast.List(elts=elements):
                if any(isinstance(element, ast.Starred) for element in elements):
                    raise LoweringRefused("a starred element")
                return Tup(tuple(self.operands(elements)), True)
            case ast.Subscript(value=base, slice=index):
                array = self.expression(base)
                indices = self.indices(index, array)
                self.place = place
                return self.item(array, indices)
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if not self.inlined \
                    and self.is_field(f"{owner}.{name}"):
                return self.env[f"{owner}.{name}"]
            case ast.Attribute(value=base, attr=name):
                return self.attribute(self.expression(base), name)
            case ast.Call():
                return self.call(node)
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = iter(self.operands([part for part in (lower, upper, step) if part is not None]))
                return Sliced(tuple(  # type: ignore[arg-type]
                    None if part is None else next(ends) for part in (lower, upper, step)))
        raise LoweringRefused(f"a {type(node).__name__.lower()} expression")

    def operands(self, nodes: Iterable[ast.expr], earlier: Sequence[Abstract] = ()) -> list[Abstract]:
        """Return the values of expressions that are evaluated after `earlier` values of the same statement.

        Values are not computed before they are used, so none of them may be of an array that a function
        called in a later one changes.
        """
        values = list(earlier)
        for node in nodes:
            stores = self.stores
            value = self.expression(node)
            if self.stores != stores and any(map(reads_memory, values)):
                raise LoweringRefused("a function that changes arrays is called after elements are read")
            values.append(value)
        return values[len(earlier):]

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> ListOf:
        """Return the list that a comprehension makes, which is lowered as a loop that appends to it."""
        loop, name, names = as_loop(node)
        self.place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        made = lists.make(self, (), self.class_name())
        self.env[name] = self.stored(name, made)
        self.block([loop])
        if not self.reachable:
            raise LoweringRefused("a comprehension that leaves the iteration to Python")
        found = self.env.pop(name)
        for each in names:
            self.env.pop(each, None)
        assert isinstance(found, ListOf)
        return found

    def search(self, node: ast.GeneratorExp, is_any: bool) -> Abstract:
        """Return ``any`` or ``all`` of a generator, which is lowered as a loop that ends where it is decided.
        """
        statements, name, names = as_search(node, is_any)
        self.block(statements)
        if not self.reachable:
            raise LoweringRefused("a generator that leaves the iteration to Python")
        found = self.name(name)
        for each in (name, *names):
            self.env.pop(each, None)
        return found

    def is_field(self, name: str) -> bool:
        """Return whether an attribute of an object is an operand of the loop."""
        value = self.env.get(name)
        return value is not None and not is_constant(value, Unassigned)

    def name(self, name: str) -> Abstract:
        """Return the value of a name."""
        value = self.env.get(name)
        if isinstance(value, Conflict):
            raise LoweringRefused(f"{name}: {value.reason}")
        if value is not None and not is_constant(value, Unassigned):
            return value
        if name in self.local_names and name not in self.local_functions:
            raise LoweringRefused(f"{name} has no value")
        function = self.inlined[-1].helper.function if self.inlined else None
        if function is None:
            value = self.inlined[0].caller.get(name) if self.inlined else None
            if isinstance(value, Conflict):
                raise LoweringRefused(f"{name}: {value.reason}")
            if value is not None:
                return value
            if name in self.local_functions:
                return StaticValue(self.local_functions[name])
            if name in self.outer_names:
                raise LoweringRefused(f"{name} has no value")
        found = self.resolver.global_name(name, function)
        if type(found) is np.ndarray and name in self.global_arrays \
                and (function or self.resolver.function).__globals__ is self.resolver.function.__globals__:
            return self.global_arrays[name]
        return self.constant(found)

    def constant(self, value: Any) -> Abstract:
        """Return a Python object that does not change as a value."""
        if type(value) in KIND_OF_TYPE:
            return number(value)
        if type(value) is tuple:
            return Tup(tuple(self.constant(item) for item in value))
        if type(value) is list:
            return Tup(tuple(self.constant(item) for item in self.resolver.list_items(value)), True)
        return StaticValue(value)

    def indices(self, node: ast.expr, *earlier: Abstract) -> list[Abstract]:
        """Return the items of a subscript, which are evaluated after `earlier` values."""
        if isinstance(node, ast.Tuple):
            return list(map(self.index, self.operands(node.elts, earlier)))
        (value,) = self.operands([node], earlier)
        return list(value.items) if isinstance(value, Tup) and not value.is_list else [self.index(value)]

    def index(self, value: Abstract) -> Abstract:
        """Return an item of a subscript: a list is an array."""
        if isinstance(value, ListOf):
            return lists.as_array(self, value)
        return shapes.array_from(self.b, value) if isinstance(value, Tup) and value.is_list else value

    def item(self, base: Abstract, indices: Sequence[Abstract]) -> Abstract:
        """Return an item of an array, list or tuple."""
        if isinstance(base, ListOf) and len(indices) == 1:
            if isinstance(indices[0], Sliced):
                return lists.sliced(self, base, indices[0])
            return lists.item(self.b, base, indices[0])
        if isinstance(base, Arr):
            return selections.subscript(self.b, base, indices)
        if isinstance(base, Elementwise):
            if len(indices) < base.ndim or not all(isinstance(index, Num) for index in indices):
                arrays.require_value(base)
            return selections.subscript(self.b, arrays.materialise(self.b, base), indices)
        if isinstance(base, Tup) and len(indices) == 1:
            (index,) = indices
            if isinstance(index, Num) and (place := scalars.constant_integer(index)) is not None \
                    and -len(base.items) <= place < len(base.items):
                return base.items[place]
            if isinstance(index, Num) and 0 < len(base.items) <= MAX_CHOICES:
                return self.chosen_item(base.items, arrays.position(
                    self.b, scalars.index_value(self.b, index), ir.constant(len(base.items))))
        raise LoweringRefused(f"an item of {describe(base)}")

    def chosen_item(self, items: Sequence[Abstract], place: ir.Value) -> Abstract:
        """Return the item of a tuple of numbers, or of tuples of numbers, at an index that is computed."""
        tuples = [item for item in items if isinstance(item, Tup)]
        if len(tuples) == len(items) and len({len(item.items) for item in tuples}) == 1:
            return Tup(tuple(self.chosen_item(column, place)
                             for column in zip(*(item.items for item in tuples), strict=True)))
        numbers = [item for item in items if isinstance(item, Num)]
        if len(numbers) < len(items):
            raise LoweringRefused("an item of a tuple at an index that is computed")
        chosen = scalars.bound(self.b, numbers[0])
        for k, item in enumerate(numbers[1:], 1):
            chosen = scalars.select(self.b, compare("equal", place, ir.constant(k)),
                                    scalars.bound(self.b, item), chosen)
        return chosen

    def attribute(self, base: Abstract, name: str) -> Abstract:
        """Return an attribute of an object, a module, an array or a number."""
        if isinstance(base, Instance):
            value = self.env[self.field(base, name)]
            if isinstance(value, Conflict):
                raise LoweringRefused(f"the attribute {name} of {describe(base)}: {value.reason}")
            if is_constant(value, Unassigned):
                raise LoweringRefused(f"the attribute {name} of {describe(base)} has no value")
            return value
        if isinstance(base, StaticValue):
            if isinstance(base.value, ModuleType):
                return self.constant(self.resolver.attribute(base.value, name))
            if isinstance(base.value, (np.dtype, type)) and name in ("type", "itemsize", "kind"):
                return self.constant(getattr(base.value, name))
        if isinstance(base, Arr):
            found = calls.array_attribute(self.b, base, name)
            if found is not None:
                return found
        if isinstance(base, Elementwise):
            arrays.require_value(base)
            return self.attribute(arrays.materialise(self.b, base), name)
        if isinstance(base, Num) and name in ("real",
                                              "imag") and base.dtype.kind == "c" and len(base.kinds) == 1:
            kind = {"complex": "float", "c8": "f4", "c16": "f8"}[base.kind]
            return of_kind(kind, ir.Apply(name, (base.value,), np.dtype("f4" if kind == "f4" else "f8")))
        raise LoweringRefused(f"the attribute {name} of {describe(base)}")

    def operate(self, op: str, left: Abstract, right: Abstract) -> Abstract:
        """Return the result of a binary operator."""
        if op == "MatMult":
            return reductions.product(self.b, left, right, "matmul")
        if isinstance(left, Num) and isinstance(right, Num):
            return scalars.binary(self.b, op, left, right)
        if isinstance(left, (Arr, Elementwise)) or isinstance(right, (Arr, Elementwise)):
            if op == "Pow":
                return arrays.power(self.b, left, right)
            return arrays.map_elements(self.b, scalars.UFUNCS[op], [left, right])
        if isinstance(left, Tup) and isinstance(right, Tup) and op == "Add":
            if left.is_list != right.is_list:
                raise LoweringRefused("a list and a tuple are added")
            return Tup((*left.items, *right.items), left.is_list)
        if is_list(left) and is_list(right) and op == "Add":
            return lists.concatenated(self, left, right)
        if op == "Mult" and (is_list(left) or is_list(right)):
            return lists.repeated(self, *((left, right) if is_list(left) else (right, left)))
        raise LoweringRefused(f"{op} of {describe(left)} and {describe(right)}")

    def negative(self, op: str, value: Abstract) -> Abstract:
        """Return the result of a unary operator."""
        if isinstance(value, Num):
            return scalars.unary(self.b, op, value)
        if isinstance(value, (Arr, Elementwise)):
            return arrays.map_elements(self.b, scalars.UFUNCS[op], [value])
        raise LoweringRefused(f"{op} of {describe(value)}")

    def comparison(self, node: ast.Compare) -> Abstract:
        """Return the result of a comparison, chained ones included."""
        second = node.comparators[0]
        if isinstance(second, ast.Set) and len(node.ops) == 1 and isinstance(
                node.ops[0], (ast.In, ast.NotIn)):
            second = ast.copy_location(ast.Tuple(second.elts, ast.Load()), second)
        left, first = self.operands([node.left, second])
        if len(node.ops) == 1:
            return self.compare(node.ops[0], left, first)
        result: Abstract | None = None
        stores = self.stores
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = first if result is None else self.expression(right_node)
            if self.stores != stores:
                raise LoweringRefused("a function that changes arrays is called in a chained comparison")
            if isinstance(right, Num):
                right = self.b.evaluated(right)
            found = self.compare(op, left, right)
            if not isinstance(found, Num):
                raise LoweringRefused("a chained comparison of arrays")
            if result is None:
                result = found
            else:
                assert isinstance(result, Num)
                if result.kinds != found.kinds or len(result.kinds) > 1:
                    result = self.b.evaluated(result)
                    result = scalars.select(self.b, scalars.truth(self.b, result), found, result)
                else:
                    result = of_kind(result.kind, both(result.value, found.value))
            left = right
        assert result is not None
        return result

    def compare(self, op: ast.cmpop, left: Abstract, right: Abstract) -> Abstract:
        """Return the result of one comparison."""
        match op:
            case ast.Is() | ast.IsNot():
                for one, other in ((left, right), (right, left)):
                    if is_none(one) and isinstance(other, Num) and NONE in other.kinds:
                        none = scalars.is_none_now(scalars.assigned(self.b, other))
                        return of_kind("bool", none if isinstance(op, ast.Is) else negated(none))
                if isinstance(left, ListOf) and isinstance(right, ListOf):
                    same = lists.is_same(left, right)
                    return of_kind("bool", same if isinstance(op, ast.Is) else negated(same))
                return number(self._is(left, right) == isinstance(op, ast.Is))
            case ast.In() | ast.NotIn() if isinstance(left, Num) and isinstance(right, Tup):
                test: ir.Value = ir.constant(False, ir.BOOL)
                left = scalars.bound(self.b, left)
                for item in right.items:
                    if not isinstance(item, Num):
                        raise LoweringRefused("a test of membership")
                    if left.dtype.kind in "fc" and not (item.known and item.known[0] == item.known[0]):
                        # an item that is the same object is equal, even if it is NaN
                        self.b.check(compare("not_equal", left.value, left.value), "membership of NaN")
                    test = either(test, scalars.truth(self.b, scalars.binary(self.b, "Eq", left, item)))
                return of_kind("bool", test if isinstance(op, ast.In) else negated(test))
            case ast.In() | ast.NotIn() if isinstance(left, Num) and isinstance(right, (Arr, Elementwise)):
                equal = self.operate("Eq", right, left)
                assert isinstance(equal, (Arr, Elementwise))
                found = reductions.reduced(self.b, "any", equal, None)
                assert isinstance(found, Num)
                test = scalars.truth(self.b, found)
                return of_kind("bool", test if isinstance(op, ast.In) else negated(test))
            case ast.In() | ast.NotIn() if isinstance(right, ListOf):
                test = lists.contains(self, right, left)
                return of_kind("bool", test if isinstance(op, ast.In) else negated(test))
            case ast.In() | ast.NotIn() if isinstance(left, StaticValue) and isinstance(right, Tup):
                if not all(map(_is_text, [left, *right.items])):
                    raise LoweringRefused("a test of membership")
                equals = [left.value == x.value for x in right.items if isinstance(x, StaticValue)]
                return number(any(equals) == isinstance(op, ast.In))
            case ast.In() | ast.NotIn():
                raise LoweringRefused("a test of membership")
            case ast.Eq() | ast.NotEq() if isinstance(left, StaticValue) and isinstance(right, StaticValue) \
                    and _is_text(left) and _is_text(right):
                return number((left.value == right.value) == isinstance(op, ast.Eq))
        return self.operate(type(op).__name__, left, right)

    @staticmethod
    def _is(left: Abstract, right: Abstract) -> bool:
        """Return whether two values are one object, where one is None."""
        for one, other in ((left, right), (right, left)):
            if isinstance(one, StaticValue) and one.value is None:
                if isinstance(other, StaticValue):
                    return other.value is None
                if not isinstance(other, Num) or UNBOUND not in other.kinds:
                    return False
        raise LoweringRefused("a test of identity")

    def test(self, node: ast.expr) -> ir.Value:
        """Return the truth of an expression as a bool."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return negated(self.test(node.operand))
        if isinstance(node, ast.BoolOp):
            return self.connected_test(node)
        value = self.expression(node)
        match value:
            case Num():
                return scalars.truth(self.b, value)
            case StaticValue(None):
                return ir.constant(False, ir.BOOL)
            case Tup(items):
                return ir.constant(bool(items), ir.BOOL)
            case ListOf():
                return lists.truth(self.b, value)
        raise LoweringRefused(f"the truth of {describe(value)}")

    def test_of_loop(self, node: ast.expr) -> ir.Value:
        """Return the truth of the test of a ``while`` loop, for each type of the variables that it reads."""
        name = undecided(self.env, names_decided(node))
        if name is None:
            return self.test(node)
        result = self.b.fresh("test")

        def lower() -> None:
            self.env[result] = self.stored(result, of_kind("bool", self.test_of_loop(node)))

        lower_by_type(self, name, lower)
        value = self.env.pop(result, None)
        if not isinstance(value, Num):
            raise LoweringRefused("a test that is not decided")
        return value.value

    def connected_test(self, node: ast.BoolOp) -> ir.Value:
        """Return the truth of ``and`` or ``or``: an operand that may leave is evaluated only if it decides.
        """
        is_and = isinstance(node.op, ast.And)
        result = self.test(node.values[0])
        for operand in node.values[1:]:
            known = scalars.static_truth(result)
            if known is not None:
                if known != is_and:
                    return result
                result = self.test(operand)
                continue
            before = dict(self.env)
            self.conditional += 1
            try:
                with self.b.into([]) as statements:
                    try:
                        other = self.test(operand)
                    except lists.NoItemsYet as refused:
                        self.without_items = self.without_items or refused
                        self.b.leave(refused.reason)
                        other = ir.constant(False, ir.BOOL)
                    if not self.reachable:
                        raise LoweringRefused("an operand that leaves")
            finally:
                self.conditional -= 1
                self.env = before
            if not statements and _is_total(other):
                result = both(result, other) if is_and else either(result, other)
                continue
            name = self.b.fresh("q")
            self.b.assign(name, result)
            with self.b.into(statements):
                self.b.assign(name, other)
            read = self.b.scalar(name, ir.BOOL)
            self.b.emit(ir.If(read if is_and else negated(read), statements))  # type: ignore[arg-type]
            result = read
        return result

    def connected(self, node: ast.BoolOp) -> Abstract:
        """Return the value of ``and`` or ``or``: that of the operand that decides."""
        is_and = isinstance(node.op, ast.And)
        first, *others = node.values
        value = self.expression(first)
        for operand in others:
            if not isinstance(value, Num):
                raise LoweringRefused(f"the truth of {describe(value)}")
            value = self.decided(self.b.evaluated(value), operand, is_and)
        return value

    def decided(self, first: Num, second: ast.expr, is_and: bool) -> Abstract:
        """Return ``first and second`` or ``first or second``."""
        truth = scalars.truth(self.b, first)
        return self.choice(truth if is_and else negated(truth), lambda: self.expression(second),
                           lambda: first)

    def choice(self, test: ir.Value, then: Callable[[], Abstract],
               otherwise: Callable[[], Abstract]) -> Abstract:
        """Return the value of one of two expressions, of which only one is evaluated."""
        known = scalars.static_truth(test)
        if known is not None:
            return then() if known else otherwise()
        name = self.b.fresh("choice")

        def path(evaluate: Callable[[], Abstract]) -> Callable[[], None]:
            def lower() -> None:
                constants = len(self.resolver.lists)
                try:
                    self.env[name] = self.stored(name, evaluate())
                except LoweringRefused as refused:
                    if isinstance(refused, NeverCompiled):
                        raise
                    self.resolver.forget_lists(constants)
                    self.b.leave(refused.reason)
                    self.reachable = False
            return lower

        self.branch(test, path(then), path(otherwise))
        if not self.reachable:
            raise LoweringRefused("a conditional expression")
        value = self.env.pop(name)
        if isinstance(value, Conflict):
            raise LoweringRefused(value.reason)
        return value

    # -- calls --------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Abstract:
        """Return the result of a call."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise LoweringRefused("a call with arguments from a mapping")
        if isinstance(node.func, ast.Attribute):
            base = self.expression(node.func.value)
            if not (isinstance(base, StaticValue) and isinstance(base.value, ModuleType)):
                args, keywords = self.arguments(node, base)
                if isinstance(base, Instance):
                    return self.call_method(base, node.func.attr, args, keywords)
                if isinstance(base, ListOf):
                    self.place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                    args = [self.settled(arg) for arg in args]
                    return lists.call_method(self, base, node.func.attr, args, keywords)
                if isinstance(base, StaticValue) and not isinstance(base.value, np.ufunc):
                    raise LoweringRefused(f"a call of {ast.unparse(node.func)}")
                template = library.method_for(base, node.func.attr, args)
                helper = None if template is None else self.resolver.helper(template)
                if helper is not None:
                    args = [base, *map(self.index, args)]
                    return self.call_of_library(helper, node.func.attr, node.lineno, args, keywords)
                changed = base if node.func.attr in ("fill", "sort") else args[0] if node.func.attr == "at" \
                    and args else None
                if isinstance(changed, Arr):
                    self.written |= changed.origins
                    self.stores += 1
                return calls.call_method(self, base, node.func.attr, args, keywords)
            function = self.attribute(base, node.func.attr)
        else:
            function = self.expression(node.func)
        if not isinstance(function, StaticValue):
            raise LoweringRefused(f"a call of {describe(function)}")
        generator = node.args[0] if len(node.args) == 1 and not node.keywords else None
        if isinstance(generator, ast.GeneratorExp) and any(
                function.value is each for each in (any, all, sum, min, max, list, sorted)):
            if function.value in (any, all) and len(generator.generators) == 1:
                return self.search(generator, function.value is any)
            args, keywords = [self.comprehension(generator)], {}
        else:
            args, keywords = self.arguments(node)
        template = library.function_for(function.value, args)
        if template is not None:
            args = list(map(self.index, args))  # lists are arrays
        helper = self.local_helper(function.value) if isinstance(function.value, LocalFunction) else \
            self.resolver.helper(template or function.value)
        if helper is not None:
            return self.inline(helper, args, keywords) if template is None else self.call_of_library(
                helper, function.value.__name__, node.lineno, args, keywords)
        self.place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        result = lists.call_function(self, function.value, args, keywords)
        if result is not None:
            return result
        if any(isinstance(arg, ListOf) for arg in args) and is_of_numpy(function.value):
            args = [lists.as_array(self, arg) if isinstance(arg, ListOf) else arg for arg in args]
        out = keywords.get("out") or (args[-1] if args else None)
        changes = bool(args) and any(function.value is each for each in calls.CHANGING)
        if changes:
            out = args[0]
        if isinstance(out, Arr) and (
                changes or keywords.get("out") is not None or isinstance(function.value, np.ufunc)
                and len(args) == function.value.nin + 1):
            self.written |= out.origins
            self.stores += 1
        return calls.call(self, function.value, args, keywords)

    def call_of_library(self, helper: Helper, name: str, line: int, args: Sequence[Abstract],
                        keywords: dict[str, Abstract]) -> Abstract:
        """Return the result of a function of NumPy that is written in Python."""
        stores = self.stores
        try:
            return self.inline(helper, args, keywords)
        except LoweringRefused as refused:
            raise LoweringRefused(f"these arguments of {name}: {refused.reason}", line) from refused
        finally:
            self.stores = stores  # they are to arrays that it makes

    def call_method(self, base: Instance, name: str, args: list[Abstract],
                    keywords: dict[str, Abstract]) -> Abstract:
        """Return the result of a method of an object, which is inlined."""
        function = None if f"{base.owner}.{name}" in self.fields else self.resolver.method(base.kind, name)
        helper = None if function is None else self.resolver.helper(function)
        if helper is None:
            raise LoweringRefused(f"a call of the method {name} of {describe(base)}")
        return self.inline(helper, [base, *args], keywords)

    def arguments(self, node: ast.Call, *earlier: Abstract) -> tuple[list[Abstract], dict[str, Abstract]]:
        """Return the arguments of a call, which are evaluated after `earlier` values."""
        names = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        positional = [arg.value if isinstance(arg, ast.Starred) else arg for arg in node.args]
        values = self.operands([*positional, *(keyword.value for keyword in node.keywords)], earlier)
        args: list[Abstract] = []
        for arg, value in zip(node.args, values, strict=False):
            if not isinstance(arg, ast.Starred):
                args.append(value)
            elif isinstance(value, Tup):
                args += value.items
            else:
                raise LoweringRefused(f"a call with starred {describe(value)}")
        return args, dict(zip(names, values[len(node.args):], strict=True))

    def inline(
        self, helper: Helper, args: Sequence[Abstract], keywords: dict[str, Abstract],
    ) -> Abstract:
        """Return the result of a function of the user's, whose body is lowered here."""
        if len(self.inlined) >= MAX_INLINE_DEPTH:
            raise LoweringRefused(f"calls of more than {MAX_INLINE_DEPTH} functions in each other")
        if any(each.helper.code is helper.code for each in self.inlined) \
                or helper.function is self.resolver.function:
            raise NeverCompiled("a recursive function")
        values = dict(zip(helper.parameters, args, strict=False))
        if len(args) > len(helper.parameters) or keywords.keys() & values.keys() \
                or keywords.keys() - set(helper.parameters):
            raise LoweringRefused(f"arguments that {helper.name} does not take")
        values |= keywords
        for name in helper.parameters:
            if name not in values:
                if name not in helper.defaults:
                    raise LoweringRefused(f"an argument of {helper.name} is missing")
                values[name] = self.constant(helper.defaults[name])
        values = {name: self.settled(value) for name, value in values.items()}
        self.require_fields(helper, values)
        outer = self.env
        with self.function_scope(helper) as target:
            self.env = {name: self.stored(name, value) for name, value in values.items()}
            self.env |= {name: outer[name] for name in self.fields if name in outer}
            with self.b.into([]) as statements:
                self.block(helper.body)
                if self.reachable:
                    self.env[target.result] = StaticValue(None)
                    target.end.reach(self.b, self.env)
            self.b.emit(ir.Block(target.label, statements))  # type: ignore[arg-type]
            merged = target.end.merge(self.b, self.scope)
        if merged is None:
            raise LoweringRefused(f"a call of {helper.name} that does not return")
        self.env |= {name: merged[name] for name in self.fields if name in merged}
        result = merged[target.result]
        if isinstance(result, Conflict):
            raise LoweringRefused(f"{helper.name}: {result.reason}")
        return result

    def local_helper(self, function: LocalFunction) -> Helper:
        """Return a function that the function with the loop defines as one that is inlined."""
        args, body = function.node.args, function.node.body
        if args.vararg or args.kwarg or args.kw_defaults and any(args.kw_defaults) \
                or getattr(function.node, "decorator_list", None):
            raise LoweringRefused(f"the parameters of {function.name}")
        names = tuple(arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs))
        positional = names[:len(args.posonlyargs) + len(args.args)]
        defaults: dict[str, Any] = {}
        for name, default in zip(positional[len(positional) - len(args.defaults):], args.defaults,
                                 strict=True):
            if not isinstance(default, ast.Constant):
                raise LoweringRefused(f"the defaults of {function.name}")
            defaults[name] = default.value
        statements = tuple(body) if isinstance(body, list) else (
            ast.copy_location(ast.Return(body), body),)
        if any(isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await))
               for statement in statements for node in ast.walk(statement)):
            raise LoweringRefused("a call of a generator")
        stored = frozenset(node.id for statement in statements for node in ast.walk(statement)
                           if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        return Helper(None, names, defaults, statements, function.name, function.node,
                      frozenset(names) | stored)

    def require_fields(self, helper: Helper, values: dict[str, Abstract]) -> None:
        """Ask for all attributes of objects that a function uses, and that are no variables of the loop."""
        wanted = [(value.owner, field) for name, value in values.items() if isinstance(value, Instance)
                  for field in fields_of_parameter(list(helper.body), name)[0]
                  if f"{value.owner}.{field}" not in self.stored_fields and is_plain_field(value.kind, field)]
        if wanted:
            raise FieldsWanted(wanted, f"attributes that {helper.name} uses")

    @contextmanager
    def function_scope(self, helper: Helper) -> Iterator[Inlined]:
        """Lower statements as those of an inlined function."""
        outer = self.env, self.scope, self.targets, self.local_names, self.fixed_lists
        target = Inlined(self.b.fresh("call"), Meeting.empty(), ".result", helper, self.env)
        self.scope, self.targets = f"{target.label}/", []
        self.local_names = helper.local_names
        self.fixed_lists = names_of_fixed_lists(helper.body)
        self.inlined.append(target)
        try:
            yield target
        finally:
            self.inlined.pop()
            self.env, self.scope, self.targets, self.local_names, self.fixed_lists = outer
            self.reachable = True


def reads_memory(value: Abstract | None) -> bool:
    """Return whether a value is computed of elements of arrays when it is used."""
    match value:
        case Num():
            return _reads_elements(value.value)
        case Elementwise():
            return True
        case Tup(parts) | Sliced(parts) | Iterated(parts=parts):
            return any(map(reads_memory, parts))
        case Ranged(start, stop, step):
            return any(map(reads_memory, (start, stop, step)))
    return False


def _reads_elements(value: ir.Value) -> bool:
    if isinstance(value, (ir.Apply, ir.Checked, ir.Foreign)):
        return any(map(_reads_elements, value.args))
    return isinstance(value, ir.Element)


def is_of_numpy(function: Any) -> bool:
    """Return whether a function is one of NumPy's, which makes arrays of lists."""
    return isinstance(function, np.ufunc) or str(getattr(function, "__module__", "")).startswith("numpy")


def is_list(value: Abstract) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, ListOf) or isinstance(value, Tup) and value.is_list


def has_live_list(source: Abstract) -> bool:
    """Return whether a loop goes through a list, which may change meanwhile."""
    return isinstance(source, ListOf) or isinstance(source, Iterated) and any(
        map(has_live_list, source.parts))


def names_of_fixed_lists(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the names that statements only assign, and read items of: lists with them need no memory."""
    items: set[int] = set()
    loads: dict[str, list[int]] = {}
    changed: set[str] = set()
    for node in (part for statement in body for part in ast.walk(statement)):
        match node:
            case ast.Subscript(value=ast.Name(), ctx=ast.Load()):
                items.add(id(node.value))
            case ast.AugAssign(target=ast.Name(id=name)):
                changed.add(name)
            case ast.For(iter=ast.Name()):
                items.add(id(node.iter))
            case ast.Assign(targets=[ast.Tuple()], value=ast.Name()):
                items.add(id(node.value))
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name() as other]):
                items.add(id(other))
            case ast.Call(func=ast.Name(id="len" | "enumerate" | "zip" | "sum" | "min" | "max"), args=args):
                items.update(map(id, args))
            case ast.Name(id=name, ctx=ast.Load() | ast.Del()):
                loads.setdefault(name, []).append(id(node))
    return frozenset(name for name, places in loads.items() if items.issuperset(places)) - changed


def has_list(value: Abstract) -> bool:
    """Return whether a value is a list, or has one."""
    if isinstance(value, Union):
        return any(map(has_list, value.options))
    return isinstance(value, Tup) and (value.is_list or any(map(has_list, value.items)))


def _is_text(value: Abstract) -> bool:
    """Return whether a value is a known text or None, so that comparisons of it are known."""
    return isinstance(value, StaticValue) and (value.value is None or type(value.value) is str)


@cache
def assigned_names(node: ast.AST) -> frozenset[str]:
    """Return the names that statements in a loop assign."""
    return frozenset(part.id for part in walk_tree(node) if isinstance(part, ast.Name)
                     and isinstance(part.ctx, ast.Store))


def _is_total(value: ir.Value) -> bool:
    """Return whether a value can be evaluated where it is not needed: it cannot leave, nor read out of
    bounds.
    """
    if isinstance(value, (ir.Checked, ir.Element, ir.Foreign)):
        return False
    return not isinstance(value, ir.Apply) or value.op in _CHEAP and all(map(_is_total, value.args))


_CHEAP = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "bitwise_and",
                    "bitwise_or", "logical_not", "add", "subtract", "cast", "where"})


# --------------------------------------------------------------------------- whole loops


@dataclass(frozen=True)
class LoweredLoop:
    """A loop as a program, and how its variables are those of Python.

    `values` are the variables that the program is entered with, `results` those that it gives back, both as
    they are at the header. `written` are the names of arrays whose memory it may change. `terminals` are
    statements that Python does after the final exit with their number.
    """

    program: ir.LoopProgram
    values: dict[str, Abstract]
    results: dict[str, Abstract]
    written: frozenset[str]
    terminals: dict[int, ast.stmt]
    list_types: ListTypes


NO_FUNCTIONS: Mapping[str, LocalFunction] = {}
#: Returns the variables that a loop is entered with; the value of what a ``for`` loop goes through.
EntryVariables = Callable[[ProgramBuilder, ListTypes], Environment]
SourceOfLoop = Callable[[ProgramBuilder, ListTypes], Abstract]


def lower_loop(
    node: ast.For | ast.While, entry: EntryVariables, source: SourceOfLoop | None, kept: frozenset[str],
    local_names: frozenset[str], resolver: Resolver, name: str,
    local_functions: Mapping[str, LocalFunction] = NO_FUNCTIONS,
) -> LoweredLoop:
    """Lower a loop of a function.

    `entry` returns the variables that it is entered with, held in variables of their names; `source` what a
    ``for`` loop goes through. `kept` are the names whose values are needed at the header or behind the loop.
    """
    types = ListTypes()
    for _ in range(MAX_ROUNDS):
        version = types.version
        try:
            lowered = _lower_once(node, entry, source, kept, local_names, resolver, name, types,
                                  local_functions)
        except LoweringRefused:
            if types.version == version:
                raise
            continue
        if types.version == version:
            return lowered
    raise LoweringRefused("the kinds of items of lists that do not settle")


def _lower_once(
    node: ast.For | ast.While, entry: EntryVariables, source: SourceOfLoop | None, kept: frozenset[str],
    local_names: frozenset[str], resolver: Resolver, name: str, types: ListTypes,
    local_functions: Mapping[str, LocalFunction],
) -> LoweredLoop:
    """Lower a loop with the present types of lists, which may get wider."""
    version = types.version
    low = Lowering(resolver, types)
    low.local_names = low.outer_names = local_names
    low.local_functions = local_functions
    low.fixed_lists = names_of_fixed_lists(node.body) - kept
    b = low.b
    given = entry(b, types)
    low.fields = frozenset(key for key in given if "." in key)
    low.stored_fields = low.fields & kept
    for array, _ in array_variables(Tup(tuple(given.values()))):
        b.enter_with(array.view, array)
    low.global_arrays = {key: value for key, value in given.items() if key not in local_names}
    position = of_kind("int", b.scalar(POSITION, ir.INT64), 0, MAX_EXTENT)
    header = {**given}
    for _ in range(MAX_ROUNDS):
        low.env, low.reachable, low.final_edges = dict(header), True, []
        target = LoopTarget(Meeting.empty(), ir.Break(""), Meeting.empty(), ir.Continue(".main"), LOOP_BROKEN)
        low.targets = [target]
        with b.into([]) as prelude:
            item = None if source is None else low.iteration(source(b, types))[1]
        with b.into([]) as statements:
            if isinstance(node, ast.For):
                assert item is not None
                low.assign(node.target, item(position))
            else:
                test = low.test_of_loop(node.test)
                if scalars.static_truth(test) is not True:
                    low.branch(test, lambda: None, lambda: low.leave_for_good(LOOP_DONE))
            low.block(node.body)
            if low.reachable:
                target.next_iteration.reach(b, low.env)
        following = _main_header(low, given, header, target, kept)
        if all(same_representation(header.get(key), following.get(key)) for key in following):
            break
        header = {key: widened(header[key], value) if key in header else value
                  for key, value in following.items()}
    else:
        raise LoweringRefused("the kinds of variables that do not settle")
    if low.without_items is not None and types.version == version:
        raise low.without_items
    results = {key: header[key] for key in kept if key in header}
    for key, value in results.items():
        if isinstance(value, Conflict):
            raise LoweringRefused(f"{key}: {value.reason}")
        if has_list(value):
            raise LoweringRefused(f"{key} is a list")
    edges = [(edge, env, True) for edge, env in target.next_iteration.edges]
    edges += [(edge, env, False) for _, env, edge in low.final_edges]
    for edge, env, continues in edges:
        with b.into(edge.statements):
            for key, value in results.items():
                if env.get(key) is not value:
                    convert_variable(b, env.get(key), value)
            if continues:
                retain(b, [found for value in results.values() for found in array_variables(value)])
    main = ir.For(".main", POSITION, b.scalar(BEGIN, ir.INT64), b.scalar(LIMIT, ir.INT64), 1,
                  statements)  # type: ignore[arg-type]
    body = hoist_checks(freeze([*prelude, main, ir.Leave(PART_DONE)]))
    return _finished(low, node, name, body, given, header, results)


def _main_header(low: Lowering, given: Environment, header: Environment, target: LoopTarget,
                 kept: frozenset[str]) -> Environment:
    """Return the variables at the header of the outermost loop, those of its final exits included."""
    envs = [given, *(env for _, env in target.next_iteration.edges), *(env for _, env, _ in low.final_edges)]
    merged = meet([restrict(env, kept) for env in envs], "", low.b)
    for key, value in merged.items():
        conflict = conflict_in(value)
        if conflict is not None:
            raise LoweringRefused(f"{key}: {conflict.reason}")
    return {**{key: value for key, value in header.items() if key not in kept}, **merged}


def conflict_in(value: Abstract) -> Conflict | None:
    """Return a value, or an item of a tuple, that no program holds."""
    if isinstance(value, (Tup, Union)):
        parts = value.items if isinstance(value, Tup) else value.options
        return next((found for found in map(conflict_in, parts) if found is not None), None)
    return value if isinstance(value, Conflict) else None


#: An array variable, and whether it has a value; None: for sure.
Held = tuple[Arr, ir.Value | None]


def array_variables(value: Abstract) -> list[Held]:
    """Return the array variables that hold a value, those of its items and options included."""
    match value:
        case Arr():
            return [(value, None if value.tag is None else compare(
                "not_equal", value.tag, ir.constant(0, TAG_DTYPE)))]
        case Tup(items):
            return [held for item in items for held in array_variables(item)]
        case Union(options):
            return [(array, test if has_value is None else both(test, has_value))
                    for k, option in enumerate(options) for test in [value.is_option(k)]
                    for array, has_value in array_variables(option)]
    return []


def retain(b: ProgramBuilder, variables: Sequence[Held]) -> None:
    """Move the memory of arrays that were made in the iteration before, and are still used, to this
    iteration's.

    Two variables that share such memory would not afterwards: Python goes on then.
    """
    made = [(array, test) for array, test in variables
            if any(origin.startswith(arrays.ALLOCATED) for origin in array.origins)]
    for array, test in made:
        bound = Arr(array.view, array.dtype, array.ndim, array.origins)
        expires: ir.Value = ir.Expires(array.view)
        if test is not None:
            expires = both(expires, test)
        with b.into([]) as moved:
            for other, has_value in made:
                if other is not array and other.may_share_memory(array):
                    shares = both(_begins_below(array, other), _begins_below(other, array))
                    b.check(shares if has_value is None else both(shares, has_value),
                            "two variables share an array made in another iteration")
            copy = arrays.materialise(b, arrays.elementwise(b, bound))
            copy_view(b, array.view, copy)
        b.emit(ir.If(expires, moved))  # type: ignore[arg-type]


def _begins_below(a: Arr, c: Arr) -> ir.Value:
    """Return whether the memory of an array begins below the end of that of another."""
    length = times(ir.Extent(c.view, 0), apply("absolute", ir.Stride(c.view, 0)))
    return compare("less_equal", ir.Pointer(a.view), plus(ir.Pointer(c.view), length))


def restrict(env: Environment, names: frozenset[str]) -> Environment:
    """Return the variables with these names."""
    return {name: value for name, value in env.items() if name in names}


def _finished(low: Lowering, node: ast.For | ast.While, name: str, body: tuple[ir.Statement, ...],
              given: Environment, header: Environment, results: Environment) -> LoweredLoop:
    """Return the lowered loop with its program."""
    b = low.b
    values = {key: header[key] for key in header}
    parameters = [BEGIN, LIMIT]
    parameters += [name for name in b.scalars if name.startswith(START)]
    for value in values.values():
        parameters += variables_of(value)
    parameters += [view for view in (*b.views, *b.scalars) if view.startswith(SEQUENCE)]
    parameters += [name for name in (HEAP, HEAP_END) if name in b.scalars]
    names = list(dict.fromkeys(parameters))
    kept = [POSITION, *(variable for value in results.values() for variable in variables_of(value))]
    nodes = ir.program_nodes(body)
    if len(nodes) > MAX_NODES:
        raise LoweringRefused(f"a program of more than {MAX_NODES} nodes, which takes long to compile")
    used = ir.variables_in(nodes)
    program = ir.LoopProgram(
        name, tuple(scalar for scalar in b.scalars.values() if scalar.name in used or scalar.name in names
                    or scalar.name in kept),
        tuple(view for view in b.views.values() if view.name in used or view.name in names
              or view.name in kept),
        tuple(names), tuple(dict.fromkeys(kept)), body, tuple(b.exits),
        tuple(variable for key in sorted(low.written & values.keys())
              for variable in variables_of(values[key])
              if variable in b.views),
        origins=tuple((view, origin) for view, origin in b.origins.items() if view in names),
        raises=may_raise_flags(nodes))
    return LoweredLoop(fuse_loops(program), values, results, frozenset(low.written),
                       {exit_number: terminal for terminal in low.terminals
                        for exit_number in [low.terminal_exits[terminal.lineno, terminal.col_offset]]},
                       low.list_types)


def variables_of(value: Abstract) -> list[str]:
    """Return the names of the variables that hold a value."""
    match value:
        case Num(value=ir.Read(name), tag=tag):
            return [name, *([tag.name] if isinstance(tag, ir.Read) else [])]
        case Arr(view, tag=tag):
            return [view, *([tag.name] if isinstance(tag, ir.Read) else [])]
        case ListOf(handle=ir.Read(name)):
            return [name]
        case Tup(items):
            return [name for item in items for name in variables_of(item)]
        case Union(options, ir.Read(name)):
            return [name, *(name for option in options for name in variables_of(option))]
    return []
