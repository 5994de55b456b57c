"""Left sides of rules over many dtypes, shapes and attributes: what rules make of metas."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from jitla.errors import InternalError
from jitla.hops import Hop, Kind, Meta, const, leaf, lookup, make, show, substitute, topo
from jitla.rewrites import (
    RULES,
    SUBSTITUTIONS,
    AnyConst,
    App,
    AttrVar,
    Num,
    Pattern,
    Rule,
    Var,
    VarArgs,
)
from tests.rewrites.expression import DECLARED, FEWER_VALUES, FOLDER, Line, Reader, fixture_lines
from tests.rewrites.programs import (
    close,
    evaluate_with_flags,
    operands,
    same_bits,
    signs_matter,
    values,
)

DTYPES = ["f8", "f8", "f4", "f2", "i8", "i4", "u1", "i2", "b1", "c16", "c8"]
SHAPES: list[tuple[int, ...]] = [
    (3, 4), (3, 4), (4, 3), (3, 3), (4, 2), (2, 4), (9, 4), (4, 9), (9, 1), (9,), (2,), (3,), (4,),
    (3, 1), (1, 4), (1, 3), (4, 1), (), (), (1,), (1, 1), (0,), (0, 4), (3, 0), (2, 3, 4), (2, 1, 4),
    (2, 3, 1)]
CELLS = ["square", "absolute", "exp", "negative", "floor", "sqrt"]
NUMBERS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 4.0, np.inf, np.nan, 1e30]
TRIES = 40  # drawings for one DAG that there is
REFUSALS = (TypeError, ValueError, IndexError, KeyError, OverflowError, InternalError)


@cache
def fixtures() -> dict[str, list[Line]]:
    """Return the lines of fixtures by the names of rules; those that fire."""
    found: dict[str, list[Line]] = {}
    for line in (*fixture_lines(FOLDER), *fixture_lines(FOLDER / "search")):
        if line.after != "keep":
            found.setdefault(line.name, []).append(line)
    return found


@cache
def seen() -> dict[str, list[dict[str, Any]]]:
    """Return the attributes with which fixtures show every operator."""
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in (FOLDER, FOLDER / "search"):
        for line in fixture_lines(folder):
            for hop in topo(Reader().read(line.before)):
                found.setdefault(hop.op.name, []).append(dict(hop.attrs))
    return found


class Drawing:
    """Chance, and what it gave to the variables of one left side."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.bound: dict[str, Any] = {}
        self.count = 0
        self.dtype = np.dtype(rng.choice(DTYPES))
        self.shape = self._any(SHAPES)
        self.alike = rng.random(2) < (0.6, 0.3)  # one dtype, one shape
        self.pool = SHAPES if rng.random() < 0.4 else [self._any(SHAPES) for _ in range(3)]

    def _any(self, given: list[Any]) -> Any:
        return given[int(self.rng.integers(len(given)))]

    def leaf(self) -> Hop:
        dtype = self.dtype if self.alike[0] else np.dtype(self.rng.choice(DTYPES))
        shape = self.shape if self.alike[1] else self._any(self.pool)
        self.count += 1
        return leaf(self.count - 1, Meta(shape, dtype), "array" if shape else "scalar")

    def operand(self) -> Hop:
        """Return a leaf, or something computed of one."""
        given = self.leaf()
        if self.rng.random() < 0.8:
            return given
        return self.applied(self._any(CELLS), [given], {})

    def applied(self, op: str, inputs: list[Hop], attrs: dict[str, Any]) -> Hop:
        """Return the node if its operands have dtypes that it computes in, as in DAGs of programs."""
        dtypes = tuple(i.meta.dtype for i in inputs)
        if lookup(op).resolve(dtypes, attrs) != dtypes:
            raise TypeError(op)
        return make(op, inputs, **attrs)

    def hop(self, pattern: Pattern, beside: np.dtype | None = None) -> Hop:
        """Return a DAG that `pattern` matches; a number has the dtype of what is beside it."""
        match pattern:
            case Var(name):
                return self.bound.setdefault(name, None) or self._bind(name, self.operand())
            case Num(value):
                return const(value, beside or self.dtype)
            case AnyConst(name):
                number = const(self._any(NUMBERS), beside or self.dtype)
                return self.bound.setdefault(name, None) or self._bind(name, number)
            case App(op, args, attrs):
                inputs = self._operands(args)
                return self.applied(op, inputs, self._attrs(op, dict(attrs), inputs))
        raise AssertionError(pattern)

    def _bind(self, name: str, value: Any) -> Any:
        self.bound[name] = value
        return value

    def _operands(self, args: tuple[Pattern, ...]) -> list[Hop]:
        made: dict[int, Hop] = {}
        for n, arg in enumerate(args):
            if not isinstance(arg, (Num, AnyConst, VarArgs)):
                made[n] = self.hop(arg)
        beside = next(iter(made.values())).meta.dtype if made else None
        found: list[Hop] = []
        for n, arg in enumerate(args):
            if isinstance(arg, VarArgs):
                found += [self.leaf() for _ in range(int(self.rng.integers(0, 3)))]
            else:
                found.append(made.get(n) or self.hop(arg, beside))
        return found

    def _attrs(self, op: str, given: dict[str, Any], inputs: list[Hop]) -> dict[str, Any]:
        """Return all attributes; what the pattern leaves open is drawn."""
        drawn = self._drawn(op, inputs)
        for name, value in given.items():
            if isinstance(value, AttrVar):
                drawn[name] = self.bound.setdefault("attr " + value.name, drawn.get(name))
            else:
                drawn[name] = value
        return drawn

    def _drawn(self, op: str, inputs: list[Hop]) -> dict[str, Any]:
        shown = seen().get(op, [{}])
        found = dict(self._any(shown))
        ndim = inputs[0].meta.ndim if inputs else 0
        for name in found:
            match name:
                case "axes":
                    found[name] = tuple(int(i) for i in self.rng.permutation(ndim))
                case "keepdims":
                    found[name] = bool(self.rng.random() < 0.5)
                case "axis" if isinstance(found[name], tuple):
                    found[name] = tuple(i for i in range(ndim) if self.rng.random() < 0.6)
                case "dtype":
                    found[name] = np.dtype(self.rng.choice(DTYPES))
                case "shape" if self.rng.random() < 0.8:
                    found[name] = self._shape(op, inputs[0].meta if inputs else Meta((), self.dtype))
        return found

    def _shape(self, op: str, meta: Meta) -> tuple[int, ...]:
        if op == "broadcast_to":
            return self._any([meta.shape, (3, *meta.shape), (1, *meta.shape), (3, 4), (4,)])
        return self._any([(meta.size,), (1, meta.size), (meta.size, 1), meta.shape, meta.shape[::-1]])


def instance(rule: Rule, rng: np.random.Generator) -> Hop | None:
    """Return a DAG of the form of the left side; None if chance gave none that NumPy would compute."""
    for _ in range(TRIES):
        try:
            return Drawing(rng).hop(rule.left)
        except REFUSALS:
            continue
    return None


def varied(line: Line, rng: np.random.Generator) -> list[Hop]:
    """Return the nodes of a fixture's left side with other lengths and dtypes, if NumPy computes such."""
    lengths = rng.permutation(10)
    kept = rng.random() < 0.5

    def other(found: re.Match[str]) -> str:
        size = re.sub(r"\d+", lambda n: str(lengths[int(n[0]) % 10]), found[2]) if rng.random() < 0.9 \
            else str(SHAPES[int(rng.integers(len(SHAPES)))])
        dtype = found[3] if kept or rng.random() < 0.6 else "." + str(rng.choice(DTYPES))
        return f"{found[1]}[{size}]{dtype or ''}"

    try:
        nodes = topo(Reader().read(DECLARED.sub(other, line.before)))
    except REFUSALS:
        return []
    return [h for h in nodes if h.op.kind is not Kind.LEAF] if all(map(_in_its_dtypes, nodes)) else []


def _in_its_dtypes(hop: Hop) -> bool:
    dtypes = tuple(i.meta.dtype for i in hop.inputs)
    return hop.op.kind is Kind.LEAF or hop.op.resolve(dtypes, dict(hop.attrs)) == dtypes


def rewritten(rule: Rule, rng: np.random.Generator, each: int) -> Iterator[tuple[Hop, Hop | Exception]]:
    """Yield the drawn DAGs that a rule fires on, with what it makes of them, or what it raises."""
    ways = _locally if rule.whole_dag is None and rule.joint is None else _wholly
    shown = fixtures().get(rule.name, [])
    for n in range(each):
        drawn = [instance(rule, rng)] if n % 2 or not shown else varied(shown[n // 2 % len(shown)], rng)
        for before in [d for d in drawn if d is not None]:
            try:
                yield from list(ways(rule, before))
            except Exception as fault:
                yield before, fault


def _locally(rule: Rule, before: Hop) -> Iterator[tuple[Hop, Hop]]:
    for after in rule.candidates(before, _nobody):
        yield before, after


def _wholly(rule: Rule, before: Hop) -> Iterator[tuple[Hop, Hop]]:
    """Yield the same for a rule that looks at whole DAGs; what it looks at has a user."""
    roots = (before if before.meta.dtype == bool else make("negative", (before,)),)
    if rule.whole_dag is not None:
        yield roots[0], rule.whole_dag(roots, _agree)[0]
    elif rule.joint is not None:
        for joint in rule.joint(roots, frozenset()):
            yield roots[0], substitute(roots, joint)[0]


def _nobody(hop: Hop) -> bool:
    return False


def _agree(rule: Rule, before: Hop, after: Hop) -> bool:
    return True


def differs(rule: Rule, before: Hop, after: Hop | Exception, rng: np.random.Generator) -> str | None:
    """Return both sides if they evaluate to something else than the rule's class allows."""
    if isinstance(after, Exception):
        return f"{type(after).__name__}: {after}\n{show((before,))}"
    exact = rule.exactness == "exact"
    given = [g[()] if isinstance(g, np.ndarray) else g for g in operands((before,), rng, special=exact)]
    try:
        wanted, flags = evaluate_with_flags((before,), given)
    except REFUSALS:  # of values: what is no place in another array
        return None
    try:
        found, others = evaluate_with_flags((after,), given)
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}\n{show((before,))}\n{show((after,))}"
    x, y = wanted[0], found[0]
    same = same_bits(x, y, signs_matter((before,))) if exact else _near(before, given, x, y)
    quiet = not exact or rule.name in FEWER_VALUES or flags & ~others == 0
    if same and quiet:
        return None
    return f"{x!r}\n{y!r}\nflags {flags} {others}, of {given}\n{show((before,))}\n{show((after,))}"


def _near(before: Hop, given: list[Any], x: Any, y: Any) -> bool:
    """Say whether results are close, or not all values on the way to them are numbers."""
    if all(np.all(np.isfinite(v)) for v in values(topo((before,)), given)):
        return close(x, y)
    known = np.isfinite(x) & np.isfinite(y)
    same = x.dtype == y.dtype
    return same and (x.dtype.kind in "biu" or close(np.where(known, x, 0), np.where(known, y, 0)))


def main() -> int:
    """Look at every rule; say which never fired, and what differed."""
    parser = argparse.ArgumentParser(prog="python -m tests.rewrites.metas", description=__doc__)
    parser.add_argument("--each", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    fired: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    rules = [r for r in RULES + SUBSTITUTIONS if not given.names or r.name in given.names]
    for n, rule in enumerate(rules):
        rng = np.random.default_rng((given.seed, n))
        for before, after in rewritten(rule, rng, given.each):
            fired[rule.name] += before is not after
            text = differs(rule, before, after, rng)
            if text is not None and not wrong[rule.name]:
                sys.stdout.write(f"{rule.name}: {text}\n")
            wrong[rule.name] += text is not None
    never = sorted(r.name for r in rules if not fired[r.name])
    counted = f"{len(rules)} rules, {fired.total()} rewritten DAGs"
    sys.stdout.write(f"{counted}; wrong: {dict(+wrong)}; never: {never}\n")
    return bool(+wrong)


if __name__ == "__main__":
    sys.exit(main())
