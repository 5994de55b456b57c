"""Whether a function needs a twin at all, read off its code object.

Knows: bytecode of CPython 3.11 to 3.14. Must not know: syntax trees, hooks.
Receives a code object and its globals; returns yes or no.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np

from jitla.source.static import MISSING, SAFE_BUILTINS, look_up, positional_inputs

__all__ = ["needs_twin"]

KNOWN_VERSIONS = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
# What can change memory unseen, store where it outlives the call, suspend, or call what is unknown.
TELLING = frozenset({
    "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE", "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL",
    "DELETE_GLOBAL", "STORE_NAME", "DELETE_NAME", "STORE_DEREF", "DELETE_DEREF", "YIELD_VALUE",
    "RETURN_GENERATOR", "SEND", "GET_AWAITABLE", "GET_AITER", "GET_ITER", "FOR_ITER",
    "BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL", "MAKE_FUNCTION", "IMPORT_NAME",
    "LOAD_BUILD_CLASS", "CALL_FUNCTION_EX", "CALL_INTRINSIC_2", "LOAD_SUPER_ATTR",
    "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
})  # fmt: skip
FIRST_INPLACE = 13  # operand of BINARY_OP from which it is an in-place operator
LAST_INPLACE = 25


def _nothing_known(function: Any) -> bool:
    return False


def needs_twin(
    code: CodeType,
    namespace: Mapping[str, Any] | None = None,
    known: Callable[[Any], bool] = _nothing_known,
    builtin: Mapping[str, Any] = vars(builtins),
) -> bool:
    """Say whether a function of this code and these globals has to run as its twin."""
    if sys.version_info[:2] not in KNOWN_VERSIONS or not code.co_flags & 0x1:  # CO_OPTIMIZED
        return True
    scan = _Scan(code.co_consts, namespace or {}, known, builtin)
    return any(scan.tells(each) for each in dis.get_instructions(code)) or bool(scan.callees)


class _Scan:
    """Follows the callees a straight line of code loads and calls, innermost last."""

    def __init__(
        self, constants: tuple[Any, ...], namespace: Mapping[str, Any],
        known: Callable[[Any], bool], builtin: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.constants = constants
        self.namespace = namespace
        self.known = known
        self.builtin = builtin
        self.callees: list[Any] = []
        self.path: tuple[str, ...] = ()  # of the object just loaded, if it started at a global
        self.open = False  # attributes loaded next belong to the callee
        self.keywords: tuple[Any, ...] = ()
        self.asserting = False

    def tells(self, each: dis.Instruction) -> bool:
        """Say whether this instruction asks for a twin."""
        name, path, is_open = each.opname, self.path, self.open
        self.path, self.open = (), False
        if name in TELLING or "JUMP_BACKWARD" in name:
            return True
        match name:
            case "BINARY_OP":
                return FIRST_INPLACE <= (each.arg or 0) <= LAST_INPLACE
            case "LOAD_GLOBAL":
                self.path = (each.argval,)
                if (each.arg or 0) & 1:
                    self.callees.append(self.look_up())
                    self.open = True
            case "LOAD_METHOD" | "LOAD_ATTR":
                self.path = (*path, each.argval) if path and not each.is_jump_target else ()
                if _is_method(each):
                    self.callees.append(self.look_up())
                elif is_open:
                    self.callees[-1] = self.look_up()
                    self.open = True
            case "PUSH_NULL":
                # 3.13 pushes it after the callee; before it nothing is known of the callee yet
                if not path or sys.version_info < (3, 13):
                    return True
                self.callees.append(look_up(path, self.namespace, self.builtin))
            case "KW_NAMES" | "LOAD_CONST":
                value = self.constants[each.arg or 0]
                self.keywords = value if isinstance(value, tuple) else ()
            case "LOAD_ASSERTION_ERROR":
                self.asserting = True
            case "CALL" | "CALL_KW":
                return self.calls(each)
        return False

    def look_up(self) -> Any:
        return look_up(self.path, self.namespace, self.builtin) if self.path else MISSING

    def calls(self, each: dis.Instruction) -> bool:
        count, keywords, self.keywords = each.arg or 0, self.keywords, ()
        if not self.callees:
            # the call of AssertionError with its message
            asserts, self.asserting = self.asserting, False
            return not asserts
        if each.opname == "CALL" and sys.version_info >= (3, 13):
            keywords = ()
        return not self.is_pure(self.callees.pop(), count, keywords)

    def is_pure(self, function: Any, count: int, keywords: tuple[Any, ...]) -> bool:
        name = getattr(function, "__name__", None)
        if name in SAFE_BUILTINS and self.builtin.get(name) is function:
            return True
        if not (isinstance(function, np.ufunc) or self.known(function)) or "out" in keywords:
            return False
        return count - len(keywords) <= positional_inputs(function)


def _is_method(instruction: dis.Instruction) -> bool:
    if instruction.opname == "LOAD_METHOD":
        return True
    return sys.version_info >= (3, 12) and bool((instruction.arg or 0) & 1)
