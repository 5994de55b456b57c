"""Where an operand comes from, and the hook it needs: to be lifted, or to run user code in the open.

Knows: names, attributes, parts of containers; which need no hook. Must not know: statements, code objects.
Receives expressions; returns them with a hook around what may be a foreign array or a user's object.

Operators, subscripts and attributes run code of the operand's class without a call in the source. An
operand that may be of such a class goes through `lift`, told its *ways*: one letter for how it is used
and one for each use of what results: ``l`` left or only operand, ``r`` right, ``c`` container of
``in`` (``k``: of a plain item), ``[`` subscripted, ``.`` attribute, ``a`` argument, ``e`` element of
one, ``f`` converted, ``n`` counted. The hook is not called where the type shows at once that no code runs: of
parameters that is asked once, when the function begins.
"""

from __future__ import annotations

import ast

from jitla.source.inserts import PROXY, constant, hook, name_line, placed
from jitla.source.scope import Scope
from jitla.source.static import MISSING, Statics, mangle, plain_names
from jitla.source.tame import NOTHING, Rests, rests_on, tame_names

__all__ = ["OperandRewriter"]

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
