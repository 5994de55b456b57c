"""Other versions of a function, for where nothing is traced: its tree to change, and the changed code.

Knows: functions, trees, what looks at frames. Must not know: what is changed.
Receives functions and changed trees; returns trees and code objects, or None where none is right.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any

from jitla.source.exprs import FRAME_ATTRIBUTES, FRAME_READERS
from jitla.source.origin import Source, compile_inside, copied, find_source

__all__ = ["changed_code", "tree_of"]


def tree_of(function: FunctionType) -> Source | None:
    """Return a copy of the tree of `function`; None if it is not known, or may look at its frame."""
    source = find_source(function)
    if source is None or isinstance(source.node, ast.Lambda) or any(map(_looks, ast.walk(source.node))):
        return None
    return Source(copied(source.node), source.private, source.imports)


def _looks(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name in FRAME_READERS
        case ast.Attribute(attr=name):
            return name in FRAME_ATTRIBUTES
    return False


def changed_code(source: Source, code: CodeType, objects: Mapping[str, Any]) -> CodeType | None:
    """Compile a changed tree; strings that are keys of `objects` become what stands there."""
    made = compile_inside(source, source.node, code, (), objects)
    return made if made is not None and made.co_freevars == code.co_freevars else None
