"""Statements in loops: assignments, branches, and statements that leave."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import arrays, calls, lists, scalars, selections, shapes
from jitla.loopjit.builder import (
    compare,
    negated,
)
from jitla.loopjit.inlining import CallLowering
from jitla.loopjit.unions import lower_by_type, names_decided, undecided
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Conflict,
    Elementwise,
    FieldsWanted,
    Instance,
    ListOf,
    LoweringRefused,
    NeverCompiled,
    Num,
    StaticValue,
    Tup,
    describe,
    number,
)

MAX_ROUNDS = 12  # of lowering a loop until the kinds of its variables no longer change
MAX_STATEMENTS = 600  # statements lowered for one loop, inlined functions included


class StatementLowering(CallLowering):
    """Lowers statements."""

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
