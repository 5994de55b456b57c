"""Rewriting of expressions in instrumented functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from types import FunctionType
from typing import TypeVar

from jitla.instrument.hook_nodes import PROXY, constant, hook, identity, name_line, placed
from jitla.instrument.scope import (
    MISSING,
    NOTHING,
    Rests,
    Scope,
    Statics,
    mangle,
    plain_names,
    rests_on,
    tame_names,
)
from jitla.introspection.frames import looks_beyond

__all__ = ["ExpressionRewriter", "OperandRewriter", "ReadsFrame", "is_brief"]


MOST = 9  # turns of a loop that stay together


def is_brief(
    iterables: Sequence[ast.expr], body: Sequence[ast.AST], targets: Sequence[ast.expr] = ()
) -> bool:
    """Tell whether loops over `iterables` have a few turns each, and put together neighbours in their body.

    They roll arrays, or add up what an index that depends on `targets` reads.
    """
    names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return all(0 < _turns(each) <= MOST for each in iterables) and any(
        _rolls(each) or _adds_up(each, names) for part in body for each in ast.walk(part))


def _turns(iterable: ast.expr) -> int:
    """Return how many elements are written there; 0 if that is not said."""
    match iterable:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return len(elements) if all(map(_is_literal, elements)) else 0
        case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if all(map(_is_literal, args)):
            try:
                return len(range(*map(ast.literal_eval, args)))
            except (TypeError, ValueError):
                return 0
    return 0


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(map(_is_literal, elements))
    return False


def _adds_up(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.AugAssign(target=ast.Name(), op=ast.Add() | ast.Sub(), value=value):
            return any(isinstance(each, ast.Subscript) and _is_about(each.slice, names)
                       for each in ast.walk(value))
    return False


def _is_about(index: ast.expr, names: set[str]) -> bool:
    """Tell whether several axes are read at places some of which depend on `names`."""
    return isinstance(index, ast.Tuple) and any(
        isinstance(each, ast.Name) and each.id in names for each in ast.walk(index))


def _rolls(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="roll") | ast.Name(id="roll")):
            return True
    return False


# Attributes of an array that are no array, and those that are one exactly if their owner is.
DESCRIPTIONS = frozenset({
    "shape", "size", "ndim", "dtype", "nbytes", "itemsize", "strides", "flags", "__name__",
    "__class__", "__dict__", "__doc__", "__module__",
})  # fmt: skip
VIEWS = frozenset({"T", "mT", "real", "imag"})
# What a parameter has to be for its operators to run no code, or for its subscripts only.
OPERAND, CONTAINER = "+", "["
HEAP = 1 << 9
DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)


# Builtins that ask their arguments to become something else, and in which way that is a use.
CONVERTING = {"len": "n"} | dict.fromkeys(
    ("abs", "bool", "complex", "divmod", "float", "int", "pow", "range", "round"), "f")


class OperandRewriter(ast.NodeTransformer):
    """Rewrites operands; `here` is the scope being rewritten, `private` the class that mangles names."""

    def __init__(
        self, scopes: dict[ast.AST, Scope], root: Scope, statics: Statics, private: str | None
    ) -> None:
        self.scopes = scopes
        self.here = root
        self.statics = statics
        self.private = private
        self.ways = ""  # how the value of the expression being rewritten is used
        # Of the function being rewritten: its scope, tame names, and how its parameters are used.
        self.body: Scope | None = None
        self.tame: dict[str, frozenset[str]] = {}
        self.uses: dict[str, set[str]] = {}
        self.flags: list[ast.Name] = []

    # -- what is known about a name ------------------------------------------------------------

    def is_plain(self, node: ast.AST) -> bool:
        """Whether `node` certainly holds no array: a constant or a name of Python numbers."""
        if isinstance(node, ast.Name):
            scope = self.here.owner()
            return node.id in plain_names(scope, self.statics) and (
                self.here is scope or node.id not in self.here.bindings
            )
        return isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda))

    def needs_keep(self, name: str) -> bool:
        """Whether what is stored into `name` can be reached after the statement by other code."""
        return self.here.owner().resolve(name) != "local"

    def is_foreign(self, node: ast.expr) -> bool:
        """Whether `node` loads something that may be an array no hook has seen."""
        match node:
            case ast.Name(id=name):
                return self._is_foreign_name(node, name)
            case ast.Attribute(value=base, attr=attr):
                if attr in DESCRIPTIONS:
                    return False
                if self.statics.value(node, self.here) is not MISSING:
                    return self.statics.may_be_array(node, self.here)
                return attr not in VIEWS or self.is_foreign(base)
            case ast.Subscript(value=base, slice=key):
                named = isinstance(key, ast.Constant) and isinstance(key.value, str)
                described = isinstance(base, ast.Attribute) and base.attr in DESCRIPTIONS
                return not described and (named or self.is_foreign(base))
            case ast.NamedExpr(value=value):
                return self.is_foreign(value)
            case ast.Call(func=ast.Name(id="getattr")):
                return True
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_foreign(body) or self.is_foreign(orelse)
        return False

    def _is_foreign_name(self, node: ast.expr, name: str) -> bool:
        kind = self.here.resolve(name)
        if kind == "local":
            return name in self.aliases(self.here.owner()) and not self.is_plain(node)
        if kind == "global":
            return self.statics.may_be_array(node, self.here)
        return kind in ("free", "cell")

    def aliases(self, scope: Scope) -> frozenset[str]:
        """Local names of `scope` that are bound to something foreign as it is: `w = self.w`."""
        if scope.aliases is None:
            scope.aliases = frozenset()  # an alias of an alias is not followed
            found = set[str]()
            here, self.here = self.here, scope
            for name, bindings in scope.bindings.items():
                if any(each is not None and self.is_foreign(each) for each in bindings):
                    found.add(name)
            self.here = here
            scope.aliases = frozenset(found)
        return scope.aliases

    # -- what runs no code ---------------------------------------------------------------------

    def begin(self, node: ast.AST, args: ast.arguments) -> None:
        """Begin the body of the function `node`: its parameters can be asked for what they are."""
        self.body, self.uses, self.tame, self.flags = self.here, {}, {}, []
        if not isinstance(node, ast.Lambda):
            given = [each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
            local = [name for name in given if self.here.resolve(name) == "local"]
            self.tame = tame_names(self.here, local, self.statics)

    def questions(self, at: ast.AST) -> list[ast.stmt]:
        """Statements that ask what the parameters are, for the uses found in the body."""
        operands = [name for name, uses in self.uses.items() if OPERAND in uses]
        for flag in self.flags:
            if flag.id in operands:
                flag.id = operands[0]
            flag.id = f".tame {flag.id}"
        asked = [(name, "still", [_uses(uses, at)]) for name, uses in self.uses.items()
                 if name not in operands]
        made = [self._question(name, question, [_name(name, at), *more], at)
                for name, question, more in asked]
        if operands:
            given = [_name(name, at) for name in operands]
            made.insert(0, self._question(operands[0], "tame", given, at))
        return made

    def _question(self, name: str, question: str, args: list[ast.expr], at: ast.AST) -> ast.stmt:
        flag = placed(ast.Name(f".tame {name}", ast.Store()), at)
        return placed(ast.Assign([flag], hook(question, args, at)), at)

    def rests(self, node: ast.expr) -> Rests:
        """Parameters that `node` rests on to be tame, as far as they were asked; None if it may be wild."""
        if self.here is self.body:
            return rests_on(node, self.tame, self.here, self.statics)
        found = rests_on(node, {}, self.here, self.statics)
        return found if found == NOTHING else None

    def guarded(self, test: ast.Name, use: str, fast: ast.expr, slow: ast.expr) -> ast.expr:
        """`fast` where the type of the variable `test` shows that `use` runs no code, else `slow`."""
        rests = self.rests(test)
        if rests is None:
            if self.here.resolve(test.id) != "local":
                return slow
            kind = placed(ast.Call(constant(type), [_name(test.id, test)], []), test)
            asked: ast.expr = placed(ast.Compare(kind, [ast.Is()], [constant(PROXY)]), test)
        elif not rests:
            return fast
        else:
            bindings = (self.body or self.here).bindings[test.id]
            if rests != {test.id} or bindings != [None]:
                use = OPERAND
            for name in rests:
                self.uses.setdefault(name, set()).add(use)
            # All that operators use are asked about together; the flag is named at the end.
            asked = flag = placed(ast.Name(min(rests), ast.Load()), test)
            self.flags.append(flag)
        return placed(ast.IfExp(asked, fast, slow), fast)

    # -- operands ------------------------------------------------------------------------------

    def operand(self, node: ast.expr, way: str) -> ast.expr:
        """Rewrite `node`, which is used in this way by an operator; a foreign array becomes lazy."""
        ways = way + self.ways
        match node:
            case ast.Name():
                return self._named(node, ways)
            case ast.BinOp() | ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert()):
                return self.used(node, ways)
            case ast.Compare(ops=[_]):
                return self.used(node, ways)
            case ast.Subscript() if not self.is_foreign(node):
                return self.used(node, ways)
            case ast.Attribute():
                return self.attribute(node, ways)
            case ast.Call() if self.statics.is_known_call(node, self.here):
                return self.used(node, ways)
            case ast.Call(func=ast.Name(id=name)) if name in CONVERTING and self.statics.is_safe_builtin(
                node.func, self.here
            ):
                return self.used(node, ways)
        if isinstance(node, DISPLAYS) and way not in "lrc" or self.rests(node) == NOTHING:
            return self.used(node, "")
        return lifted(self.used(node, ""), ways, node)

    def used(self, node: ast.expr, ways: str) -> ast.expr:
        """Rewrite `node`, whose value is used in these ways."""
        outer, self.ways = self.ways, ways
        made: ast.expr = self.visit(node)
        self.ways = outer
        return made

    def _named(self, node: ast.Name, ways: str) -> ast.expr:
        if self.is_plain(node):
            return self.used(node, "")
        name = self.used(node, "")
        if self._is_foreign_name(node, node.id):
            return lifted(name, ways, node)
        use = CONTAINER if ways == "[" or ways[0] == "n" else OPERAND
        if self.here.resolve(node.id) == "global":  # its type is known
            return name
        return self.guarded(node, use, name, lifted(name, ways, node))

    def attribute(self, node: ast.Attribute, ways: str) -> ast.expr:
        """Rewrite the load of an attribute, whose value is used in these ways."""
        base, foreign = node.value, bool(ways) and self.is_foreign(node)
        path = self.statics.path(node, self.here)
        if path and self.statics.value(node, self.here) is not MISSING:
            node.value = self.used(base, "")
            return lifted(node, ways, node) if foreign else node
        name = ast.Constant(mangle(node.attr, self.private))
        at = name_line(node)
        if isinstance(base, ast.Name) and not self._is_foreign_name(base, base.id) \
                and not self._is_class(base):
            plain = self.used(base, "")
            args: list[ast.expr] = [plain, name]
            slow = hook("attribute", args + [ast.Constant(ways)] * bool(ways), at)
            fast = placed(ast.Attribute(plain, node.attr, ast.Load()), node)
            use = OPERAND if ways and not foreign else node.attr
            return self.guarded(
                base, mangle(use, self.private), lifted(fast, ways, node) if foreign else fast, slow)
        rests = self.rests(base)
        if rests == NOTHING and not self._is_class(base):
            node.value = self.used(base, "")
            return node
        if isinstance(base, (ast.BinOp, ast.UnaryOp)):
            outer, self.ways = self.ways, ways
            node.value = self.operand(base, ".")
            self.ways = outer
            return node
        args = [self.used(base, ""), name] + [ast.Constant(ways)] * bool(ways)
        return hook("attribute", args, at)

    def key(self, node: ast.expr) -> ast.expr:
        """Rewrite the key of a subscript, which may be hashed, compared or asked for a number."""
        match node:
            case ast.Tuple(elts=elts):
                node.elts = [self.key(each) for each in elts]
            case ast.Slice(lower=lower, upper=upper, step=step):
                node.lower = lower and self.calm(lower)
                node.upper = upper and self.calm(upper)
                node.step = step and self.calm(step)
            case ast.Starred():
                return self.used(node, "")
            case _:
                return self.calm(node)
        return node

    def _is_class(self, node: ast.expr) -> bool:
        # written in Python, so that its attributes may be computed
        value = self.statics.value(node, self.here)
        return isinstance(value, type) and bool(value.__flags__ & HEAP)

    def calm(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, whose truth Python asks for: that may run code of its class."""
        match node:
            case ast.BoolOp(values=values):
                node.values = [self.calm(each) for each in values]
                return node
            case ast.Compare() | ast.UnaryOp() | ast.BinOp() | ast.Constant() | ast.JoinedStr():
                return self.used(node, "")
            case ast.Name() if not self._is_foreign_name(node, node.id):
                name = self.used(node, "")
                if self.is_plain(node) or self.here.resolve(node.id) == "global":
                    return name
                return self.guarded(node, CONTAINER, name, hook("calm", [name], node))
            case ast.Call() if self.statics.is_safe_builtin(node.func, self.here):
                return self.used(node, "")
        rests = self.rests(node)
        made = self.used(node, "")
        return made if rests == NOTHING or isinstance(node, DISPLAYS) else hook("calm", [made], node)


def lifted(node: ast.expr, ways: str, at: ast.expr) -> ast.expr:
    """`node` lifted, which is used in these ways."""
    return hook("lift", [node, ast.Constant(ways)], at)


def _name(name: str, at: ast.AST) -> ast.expr:
    return placed(ast.Name(name, ast.Load()), at)


def _uses(uses: set[str], at: ast.AST) -> ast.expr:
    return placed(ast.Tuple([ast.Constant(use) for use in sorted(uses)], ast.Load()), at)


Node = TypeVar("Node", bound=ast.expr)

# Names that read the variables of a frame, with the number of arguments from which they do not.
MAXIMUM = sys.maxsize
FRAME_READERS = {"locals": MAXIMUM, "vars": 1, "dir": 1, "eval": 2, "exec": 2}
FRAME_ATTRIBUTES = frozenset({"f_locals"})
# Builtins that ask their arguments for iterators.
ITERATING = frozenset({"enumerate", "reversed", "zip"})
SEQUENCES = (ast.Tuple, ast.List)
ASKING = frozenset({"isinstance", "issubclass"})
# How the names begin by which arrays hand out their memory or take part in others' operations.
PROTOCOL = "__array_"
# Called by name they may answer NotImplemented where the operator would ask the other operand.
OPERATORS = frozenset(
    f"__{kind}{name}__" for kind in ("", "r", "i") for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift",
        "rshift", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge")
)  # fmt: skip
# In what functions that are made in a twin differ from the user's.
PARTS = frozenset({"__code__", "__closure__"})


class ReadsFrame(Exception):
    """The function looks at frames where a twin would show, or has others look at them; says by what."""


class ExpressionRewriter(OperandRewriter):
    """Rewrites expressions in place."""

    # -- operators -----------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node.left = self.operand(node.left, "l")
        node.right = self.operand(node.right, "r")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            node.operand = self.calm(node.operand)
        else:
            node.operand = self.operand(node.operand, "l")
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return identity(self.parts(node))
        if len(node.ops) > 1:
            # in a chain an operand is the right one first and then the left one
            node.left = self.calm(node.left)
            node.comparators = [self.calm(each) for each in node.comparators]
            return node
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            way = "k" if self.rests(node.left) == NOTHING else "c"
            node.left = self.used(node.left, "")
            node.comparators = [self.operand(node.comparators[0], way)]
            return node
        node.left = self.operand(node.left, "l")
        node.comparators = [self.operand(node.comparators[0], "r")]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        flat = isinstance(node.value, ast.Attribute) and node.value.attr == "flat" \
            and isinstance(node.ctx, ast.Load)
        if isinstance(node.ctx, ast.Load):
            node.value = self.operand(node.value, "[")
        else:
            node.value = self.used(node.value, "")
        node.slice = self.key(node.slice)
        if flat and not isinstance(node.slice, (ast.Constant, ast.Slice)):
            # a flat iterator takes nothing but ndarrays for arrays of indices
            node.slice = hook("keep", [node.slice], node.slice)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        tested = [self.calm(each) for each in node.values[:-1]]
        node.values = [*tested, self.visit(node.values[-1])]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.calm(node.test)
        node.body = self.visit(node.body)
        node.orelse = self.visit(node.orelse)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        node.value = self.operand(node.value, "f")
        node.format_spec = node.format_spec and self.visit(node.format_spec)
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            node.value = self.spread(node.value)
        return node

    def spread(self, node: ast.expr, how: str = "spread") -> ast.expr:
        """Rewrite `node`, whose elements are taken by ``*``; `how` names the hook."""
        made: ast.expr = self.visit(node)
        return made if isinstance(node, DISPLAYS) else hook(how, [made], node)

    def positional(self, nodes: list[ast.expr]) -> list[ast.expr]:
        """Rewrite positional arguments; of ``*x`` alone a tuple is made, of others a list first."""
        match nodes:
            case [ast.Starred(value=value) as alone]:
                alone.value = self.spread(value, "alone")
                return nodes
        return [self.visit(each) for each in nodes]

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        for i, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
            node.keys[i] = key and self.calm(key)
            node.values[i] = self.visit(value) if key else self.mapping(value)
        return node

    def visit_Set(self, node: ast.Set) -> ast.expr:
        node.elts = [self.visit(e) if isinstance(e, ast.Starred) else self.calm(e) for e in node.elts]
        return node

    def mapping(self, node: ast.expr) -> ast.expr:
        """Rewrite `node`, whose items are taken by ``**``."""
        made: ast.expr = self.visit(node)
        return made if isinstance(node, DISPLAYS) else hook("mapping", [made], node)

    # -- calls ---------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self.statics.is_known_call(node, self.here):
            node.args = [self.argument(each) for each in node.args]
            for keyword in node.keywords:
                keyword.value = self.argument(keyword.value)
            return node
        if self.statics.is_safe_builtin(node.func, self.here):
            return self.builtin(node)
        self.shown(node.func)
        optimised = isinstance(node.func, ast.Attribute) and not (
            any(isinstance(each, ast.Starred) for each in node.args)
            or any(keyword.arg is None for keyword in node.keywords)
        )
        if optimised and node.func.end_lineno != node.lineno:
            # CPython gives the call of a method the line of the method's name
            node.lineno = node.func.end_lineno or node.lineno
            node.col_offset = max((node.func.end_col_offset or 0) - 1, 0)
        summed = self.sums_turns(node)
        node.func = self.callee(node.func, len(node.args))
        if summed is None:
            node.args = self.positional(node.args)
        else:
            node.args = [self.comprehension(summed, "term")]
        for keyword in node.keywords:
            visit = self.visit if keyword.arg else self.mapping
            keyword.value = visit(keyword.value)
        return node

    def shown(self, function: ast.expr) -> None:
        """Raise `ReadsFrame` where what is called looks further up the stack than at its caller."""
        called = self.statics.value(function, self.here)
        if type(called) is FunctionType and (found := looks_beyond(called)):
            name = called.__qualname__
            raise ReadsFrame(f"{name}, which it calls, looks at frames of the stack, by {found}")

    def sums_turns(self, node: ast.Call) -> ast.ListComp | ast.GeneratorExp | None:
        """Return what the builtin `sum` adds up if those are a few arrays that are best seen together."""
        match node:
            case ast.Call(func=ast.Name(id="sum"), args=[ast.ListComp() | ast.GeneratorExp() as terms],
                          keywords=[]):
                brief = is_brief([part.iter for part in terms.generators], [terms.elt])
                return terms if brief and self.statics.is_builtin("sum", self.here) else None
        return None

    def argument(self, node: ast.expr) -> ast.expr:
        """Rewrite an argument of a known function."""
        if isinstance(node, (ast.List, ast.Tuple)):
            node.elts = [self.element(each) for each in node.elts]
            return node
        return self.operand(node, "a")

    def element(self, node: ast.expr) -> ast.expr:
        """Rewrite an element of a sequence of arrays: it stays what it is."""
        return self.visit(node) if isinstance(node, ast.Starred) else self.operand(node, "e")

    def builtin(self, node: ast.Call) -> ast.expr:
        """Rewrite the call of a builtin that needs no hook, but for code that its arguments run."""
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        for i, each in enumerate(node.args):
            if name in CONVERTING and not isinstance(each, ast.Starred):
                node.args[i] = self.operand(each, CONVERTING[name])
            elif name in ASKING and i == 1:
                node.args[i] = self.asked(each)
            elif name in ITERATING and not isinstance(each, ast.Starred):
                node.args[i] = self.calm(each)
            else:
                node.args[i] = self.visit(each)
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def asked(self, node: ast.expr) -> ast.expr:
        """Rewrite the classes that an object is asked for: those of users may answer themselves."""
        match node:
            case ast.Tuple(elts=elts):
                node.elts = [self.asked(each) for each in elts]
                return node
            case ast.Starred(value=value):
                node.value = self.asked(value)
                return node
            case ast.Name() | ast.Attribute() if self.statics.is_plain_class(node, self.here):
                return self.used(node, "")
        return hook("asked", [self.used(node, "")], node)

    def callee(self, function: ast.expr, arguments: int = 0) -> ast.expr:
        """Rewrite what is called with so many positional arguments."""
        if not (
            # given a namespace or an object these do not look at the frame
            isinstance(function, ast.Name)
            and arguments >= FRAME_READERS.get(function.id, MAXIMUM)
            and self.here.resolve(function.id) == "global"
        ):
            function = self.visit(function)
        return hook("call", [function], function)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        reads = node.id in FRAME_READERS or node.id in FRAME_ATTRIBUTES
        if reads and self.here.resolve(node.id) in ("global", "class"):
            raise ReadsFrame(f"it reads variables of its frame, by {node.id}")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in FRAME_ATTRIBUTES:
            raise ReadsFrame(f"it reads variables of frames, by {node.attr}")
        if isinstance(node.ctx, ast.Load):
            return self.attribute(node, self.ways)
        node.value = self.visit(node.value)
        return node

    def attribute(self, node: ast.Attribute, ways: str) -> ast.expr:
        """Rewrite the load of an attribute."""
        if node.attr.startswith(PROTOCOL) or node.attr in OPERATORS:
            # asked for by name it is that of the array, not that of what stands for it
            node.value = hook("keep", [self.used(node.value, "")], node.value)
            return node
        if node.attr in PARTS:
            return hook("bare", [super().attribute(node, "")], node)
        return super().attribute(node, ways)

    # -- elements of comprehensions ------------------------------------------------------------

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, how: str = "item",
    ) -> ast.expr:
        """Rewrite a comprehension; `how` names the hook for its elements."""
        awaits = self._enter_generators(node, node.generators)
        node.elt = self._element(node.elt, awaits, "hashed" if isinstance(node, ast.SetComp) else how)
        self.here = self.here.parent or self.here
        return node

    visit_ListComp = visit_SetComp = visit_GeneratorExp = comprehension

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        awaits = self._enter_generators(node, node.generators)
        node.key = self._element(node.key, awaits, "hashed")
        node.value = self._element(node.value, awaits, "item")
        self.here = self.here.parent or self.here
        return node

    def _enter_generators(self, node: ast.AST, generators: list[ast.comprehension]) -> bool:
        scope = self.scopes[node]
        for i, generator in enumerate(generators):
            iterable = self.visit(generator.iter)
            if i == 0 and scope.kind == "generator":  # it may be stepped through after the call
                iterable = hook("keep", [iterable], generator.iter)
            name = "awaits" if generator.is_async else "iterate"
            generator.iter = self.opened(hook(name, [iterable], generator.iter), generator.target)
            if i == 0:
                self.here = scope
            generator.target = self.target(generator.target)
            generator.ifs = [self.calm(each) for each in generator.ifs]
        return any(generator.is_async for generator in generators)

    def opened(self, iterable: ast.expr, target: ast.expr) -> ast.expr:
        """The iterable of a loop, which unpacks its elements if the target says so."""
        return hook("opened", [iterable], iterable) if isinstance(target, SEQUENCES) else iterable

    def _element(self, node: ast.expr, awaits: bool, how: str) -> ast.expr:
        plain = self.is_plain(node)
        node = self.visit(node)
        if not plain:
            node = hook(how, [node], node)
        # the next step of an asynchronous iterable lets other tasks run
        return hook("awaits", [node], node) if awaits else node

    def target(self, node: ast.expr) -> ast.expr:
        """Rewrite a target of a store; statements say how."""
        raise NotImplementedError

    # -- control that leaves the frame ---------------------------------------------------------

    def visit_Await(self, node: ast.Await) -> ast.expr:
        node.value = hook("awaits", [self.visit(node.value)], node.value)
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        value = placed(ast.Constant(None), node) if node.value is None else self.visit(node.value)
        node.value = hook("yields", [value], node)
        return node

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        node.value = hook("yields", [self.visit(node.value)], node.value)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        node.value = self.kept(node.value, node.target.id)
        return node

    def kept(self, value: ast.expr, *names: str) -> ast.expr:
        """Rewrite `value`, which is stored into `names`."""
        plain = self.is_plain(value)
        value = self.visit(value)
        if plain or not any(self.needs_keep(name) for name in names):
            return value
        return hook("keep", [value], value)

    def parts(self, node: Node) -> Node:
        """Rewrite the parts of an expression that needs no hook itself."""
        return ast.NodeTransformer.generic_visit(self, node)  # type: ignore[return-value]
