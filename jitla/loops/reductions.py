"""Rows and columns that become one number: their sum, their largest or smallest element.

Knows: in which order NumPy adds, and what it leaves open. Must not know: loops around.
Receives syntax trees of calls; writes lines, and returns values.

Sums are NumPy's own: blocks of 128 elements with eight accumulators each, halves before halves. Products of
matrices and vectors are not done here: libraries add in an order of their own.
"""

from __future__ import annotations

import ast

import numpy as np

from jitla.loops.calls import REDUCTIONS
from jitla.loops.kinds import Refused
from jitla.loops.nests import reduction
from jitla.loops.rows import Row, Rows
from jitla.loops.values import Value
from jitla.loops.writer import LARGEST

# What a sum of negative zeros is: some releases of NumPy begin with one, others with a zero.
_BEGIN = repr(float(np.add.reduce(np.array([-0.0]))))


class Reductions(Rows):
    """Translates what makes a number of a row."""

    def call(self, func: ast.expr, args: list[ast.expr]) -> Value:
        """Call a function of numbers, or of a row."""
        found = reduction(ast.Call(func, args, []))
        if found is None:
            return super().call(func, args)
        how, operand = found
        if args:
            name = ast.unparse(func)
            if name.partition(".")[0] in (*self.variables, *self.given) \
                    or REDUCTIONS.get(self.resolve(name)) != how:
                raise Refused(f"a call of {name}", element=False)
        sides = [operand.left, operand.right] if isinstance(operand, ast.BinOp) else [operand]
        rows = [self.side(each) for each in sides]
        if len(rows) == 2:
            self.bail(f"{rows[0].length} != {rows[1].length}", hard=True)
        places = ", ".join(f"p_{row.name}, {row.start}, {row.step}" for row in (rows[0], rows[-1]))
        return self.reduced("product" if len(rows) == 2 else how, f"{places}, {rows[0].length}")

    def reduced(self, how: str, given: str) -> Value:
        """Return what becomes of a row; where NumPy would complain, or its answer is open, Python goes on."""
        if how in ("sum", "product"):
            text = self.fresh(f"float64({_BEGIN}) + row_{how}({given})")
            self.bail(f"not (abs({text}) <= {LARGEST['d']})")
        else:
            text = self.fresh(f"row_{how}({given})")
            self.bail(f"{text} != {text}")
        return Value(text, frozenset({"f8"}), "d")

    def side(self, node: ast.expr) -> Row:
        """Return a row, or an array of one axis that is one."""
        if isinstance(node, ast.Subscript):
            if not self.over_rows(node):
                raise Refused(f"{ast.unparse(node)} is no row", element=False)
            return self.row(node)
        assert isinstance(node, ast.Name)
        known = self.arrays.get(node.id)
        if known is None or known.ndim != 1 or known.kind != "f8":
            raise Refused(f"{node.id} is no row of f8", element=False)
        return Row(node.id, "int64(0)", f"int64({self.stride(node.id, 0)})", f"d_{node.id}_0")
