"""Calls in loops: functions and methods of the user are inlined, others are operations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from jitla.loopir import program as ir
from jitla.loopjit import calls, library, lists
from jitla.loopjit.expressions import ExpressionLowering
from jitla.loopjit.flow import Meeting
from jitla.loopjit.lowering_state import Inlined
from jitla.loopjit.objects import fields_of_parameter, is_plain_field
from jitla.loopjit.values import (
    Abstract,
    Arr,
    Conflict,
    FieldsWanted,
    Helper,
    Instance,
    ListOf,
    LocalFunction,
    LoweringRefused,
    NeverCompiled,
    StaticValue,
    Tup,
    describe,
)

MAX_INLINE_DEPTH = 4  # calls of functions within each other


class CallLowering(ExpressionLowering):
    """Lowers calls."""

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


def is_of_numpy(function: Any) -> bool:
    """Return whether a function is one of NumPy's, which makes arrays of lists."""
    return isinstance(function, np.ufunc) or str(getattr(function, "__module__", "")).startswith("numpy")


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
