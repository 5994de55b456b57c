"""Expressions in loops: names, items, attributes, operators, comparisons and conditions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import arrays, calls, lists, reductions, scalars, selections, shapes
from jitla.loopjit.builder import (
    both,
    compare,
    either,
    negated,
)
from jitla.loopjit.comprehensions import as_loop, as_search
from jitla.loopjit.lowering_state import LoweringState
from jitla.loopjit.rewriting import (
    Unassigned,
)
from jitla.loopjit.unions import lower_by_type, names_decided, undecided
from jitla.loopjit.values import (
    KIND_OF_TYPE,
    NONE,
    UNBOUND,
    Abstract,
    Arr,
    Conflict,
    Elementwise,
    FieldsWanted,
    Instance,
    Iterated,
    ListOf,
    LoweringRefused,
    NeverCompiled,
    Num,
    Ranged,
    Sliced,
    StaticValue,
    Tup,
    describe,
    is_constant,
    is_none,
    number,
    of_kind,
)

MAX_CHOICES = 16  # items of a tuple of which one is chosen by a variable


class ExpressionLowering(LoweringState):
    """Lowers expressions."""

    def field(self, base: Instance, name: str) -> str:
        """Return the name of the variable that is an attribute of an object."""
        key = f"{base.owner}.{name}"
        if key not in self.fields:
            raise FieldsWanted([(base.owner, name)], f"the attribute {name} of {describe(base)}")
        return key

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


def is_list(value: Abstract) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, ListOf) or isinstance(value, Tup) and value.is_list


def _is_text(value: Abstract) -> bool:
    """Return whether a value is a known text or None, so that comparisons of it are known."""
    return isinstance(value, StaticValue) and (value.value is None or type(value.value) is str)


def _is_total(value: ir.Value) -> bool:
    """Return whether a value can be evaluated where it is not needed: it cannot leave, nor read out of
    bounds.
    """
    if isinstance(value, (ir.Checked, ir.Element, ir.Foreign)):
        return False
    return not isinstance(value, ir.Apply) or value.op in _CHEAP and all(map(_is_total, value.args))


_CHEAP = frozenset({"less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "bitwise_and",
                    "bitwise_or", "logical_not", "add", "subtract", "cast", "where"})
