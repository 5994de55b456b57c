"""A block as the Python code that NumPy runs for it: what the user wrote, without the user's control flow.

Knows: which expression an entry of the tape is. Must not know: programs, proxies, warnings.
Receives entries and which of them are wanted; returns a function of leaves and scalars.

A value that is read once stands where it is read, so that NumPy takes its memory for the result, and
lets go of memory, as it does with the user's own expressions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from jitla.hops import OpSpec, lookup, meaning
from jitla.tracing.enacting import METHODS
from jitla.tracing.narrowing import narrowed
from jitla.tracing.signature import LAYOUTS, METAS
from jitla.tracing.tape import LEAF, OPS, SCALAR, Entry, cone, split

DEEP = 12  # expressions in each other

_INFIX = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/", np.floor_divide: "//",
    np.remainder: "%", np.bitwise_and: "&", np.bitwise_or: "|", np.bitwise_xor: "^", np.left_shift: "<<",
    np.right_shift: ">>", np.equal: "==", np.not_equal: "!=", np.less: "<", np.less_equal: "<=",
    np.greater: ">", np.greater_equal: ">=",
}
_PREFIX = {np.negative: "-", np.positive: "+", np.invert: "~"}
Run = Callable[[Sequence[Any]], list[Any]]


def script(entries: tuple[Entry, ...], roots: tuple[int, ...]) -> Run:
    """Return what computes the values of `roots` from leaves and, behind them, scalars."""
    writer = _Writer(entries, roots)
    scope: dict[str, Any] = writer.scope
    exec(_compiled(writer.source()), scope)
    run: Run = scope["run"]
    return run


@lru_cache(512)
def _compiled(source: str) -> CodeType:
    return compile(source, "<jitla meanwhile>", "exec")


class _Writer:
    """The text of one block; `scope` holds what it names."""

    def __init__(self, entries: tuple[Entry, ...], roots: tuple[int, ...]) -> None:
        self.entries, self.roots = entries, roots
        self.scope: dict[str, Any] = {}
        self.wanted = sorted({i for r in roots for i in cone(entries, r)})
        self.reads: Counter[int] = Counter(roots)
        for i in self.wanted:
            if entries[i][0] > SCALAR:
                self.reads.update(r for r in split(entries[i])[0] if r >= 0)
        self.left = Counter(self.reads)
        # Entries that are no scalars, as far as known: operators and ufuncs do not make the same of scalars.
        self.arrays: set[int] = set()
        # Of each entry: how it is read, how deep that is, and which variables it reads, once for each time.
        self.texts: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self.lines: list[str] = []

    def source(self) -> str:
        """Return the text of the function `run`."""
        leaf, scalar = 0, sum(e[0] == LEAF for e in self.entries)
        wanted = set(self.wanted)
        for i, entry in enumerate(self.entries):
            if entry[0] == LEAF:
                self.texts[i] = f"L[{leaf}]", 0, ()
                leaf += 1
                if METAS[LAYOUTS[entry[1]].meta].shape:
                    self.arrays.add(i)
            elif entry[0] == SCALAR:
                self.texts[i] = f"L[{scalar}]", 0, ()
                scalar += 1
            else:
                refs = split(entry)[0]
                if i in wanted:
                    self._operation(i, scalar)
                scalar += sum(r < 0 for r in refs)
        results = ", ".join(self.texts[r][0] for r in self.roots)
        body = "".join(f"    {line}\n" for line in (*self.lines, f"return [{results}]"))
        return f"def run(L):\n{body}"

    def _operation(self, i: int, scalar: int) -> None:
        """Write down entry `i`, whose scalars begin at slot `scalar`."""
        refs, attrs = split(self.entries[i])
        args: list[str] = []
        depth = 0
        used: tuple[int, ...] = ()
        for r in refs:
            if r < 0:
                args.append(f"L[{scalar}]")
                scalar += 1
                continue
            text, deep, uses = self.texts[r]
            args.append(text)
            depth = max(depth, deep)
            used += uses
        text = self._call(i, OPS[self.entries[i][0]], args, dict(attrs))
        if self.reads[i] == 1 and i not in self.roots and depth < DEEP:
            self.texts[i] = f"({text})", depth + 1, used
            return
        self.lines.append(f"v{i} = {text}")
        self.left.subtract(used)
        done = [f"v{u}" for u in dict.fromkeys(used) if not self.left[u]]
        if done:
            self.lines.append(f"del {', '.join(done)}")
        self.texts[i] = f"v{i}", 0, (i,)

    def _call(self, i: int, name: str, args: list[str], attrs: dict[str, Any]) -> str:
        """Return the expression of operator `name`."""
        op = lookup(name)
        found = op.numpy[0] if op.numpy else None
        cells = name == "cast" or isinstance(found, np.ufunc) and found.signature is None
        if cells and any(r in self.arrays for r in split(self.entries[i])[0]):
            self.arrays.add(i)
        if not attrs and i in self.arrays:
            if found in _INFIX and len(args) == 2:
                return f"{args[0]} {_INFIX[found]} {args[1]}"
            if found in _PREFIX and len(args) == 1:
                return f"{_PREFIX[found]}{args[0]}"
        given = ""
        if attrs:
            self.scope[f"k{i}"] = attrs
            given = f", **k{i}"
        if name in METHODS:
            rest = ", ".join(args[1:])
            return f"{args[0]}.{name}({(rest + given).removeprefix(', ')})"
        if "within" in attrs:
            self.scope[f"f{i}"] = narrowed
        elif name == "cast":
            return f"{args[0]}.astype({(', '.join(args[1:]) + given).removeprefix(', ')})"
        elif cells and i not in self.arrays:
            self.scope[f"f{i}"] = _of_scalars(op)
        else:
            self.scope[f"f{i}"] = found if isinstance(found, np.ufunc) or name == "dot" else op.ref
        return f"f{i}({', '.join(args)}{given})"


def _of_scalars(op: OpSpec) -> Callable[..., Any]:
    """Return what computes `op` where all operands may be scalars."""
    return lambda *operands, **attrs: meaning(op, operands)(*operands, **attrs)
