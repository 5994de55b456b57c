"""Where long stretches of statements without a loop have a place at which a block may end.

Knows: syntax. Must not know: hooks, arrays.
Receives the statements of a function one after the other; returns after which of them there is such a place.

Between statements few values are held. A stretch ends with the statement that the one before ended with, if
that comes in time: where statements repeat, as in code written by a program, all stretches are the same.
"""

from __future__ import annotations

import ast

__all__ = ["Stretch"]

LONG = 48  # operations that a stretch has at least
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.AugAssign)


class Stretch:
    """Counts the operations of a function's statements."""

    def __init__(self) -> None:
        self.operations = 0
        self.last = ""

    def ends_with(self, statement: ast.stmt) -> bool:
        """Count `statement`; tell whether a stretch ends after it."""
        self.operations += sum(isinstance(node, _OPERATIONS) for node in ast.walk(statement))
        if self.operations < LONG:
            return False
        text = ast.unparse(statement)
        if self.last and text != self.last and self.operations < 2 * LONG:
            return False
        self.operations, self.last = 0, text
        return True
