"""Uses of variables in loop programs: what statements assign and values need, and where loops are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from jitla.loopir.program import (
    Allocate,
    Apply,
    Assign,
    BindMemory,
    BindView,
    Block,
    Break,
    Checked,
    Continue,
    Dot,
    Element,
    Extent,
    For,
    Foreign,
    If,
    InnerLoop,
    Leave,
    Number,
    Place,
    Pointer,
    Read,
    Repeat,
    Statement,
    Stride,
    Value,
)


def operands_of(value: Value) -> tuple[Value, ...]:
    """Return the values that a value is computed from, indices included."""
    match value:
        case Apply(_, args) | Checked(_, args) | Foreign(_, args):
            return cast(tuple[Value, ...], args)
        case Element(_, index) | Pointer(_, index):
            return index
    return ()


def variables_of_value(value: Value) -> Iterator[str]:
    """Return the names of the scalars and views that a value depends on."""
    match value:
        case Read(name):
            yield name
        case Extent(view) | Stride(view) | Element(view) | Pointer(view):
            yield view
    for operand in operands_of(value):
        yield from variables_of_value(operand)


def is_pure(value: Value) -> bool:
    """Return whether a value depends on variables only, and not on memory."""
    if isinstance(value, (Apply, Checked, Foreign)):
        return all(map(is_pure, operands_of(value)))
    return isinstance(value, (Read, Extent, Stride, Number))


def assigned_in(body: tuple[Statement, ...]) -> frozenset[str]:
    """Return the names of scalars and views that statements assign."""
    found: set[str] = set()
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += node
            continue
        match node:
            case Assign(name) | BindView(name) | BindMemory(name) | Allocate(name):
                found.add(name)
            case For(name=name, body=inner):
                found.add(name)
                stack.append(inner)
            case Repeat(body=inner) | Block(body=inner):
                stack.append(inner)
            case If(then=then, otherwise=otherwise):
                stack += [then, otherwise]
            case InnerLoop(operands=operands):
                found |= {operand.name for operand in operands if isinstance(operand, Place)}
            case Dot(out=Place(name)):
                found.add(name)
    return frozenset(found)


def may_leave(body: tuple[Statement, ...], label: str) -> bool:
    """Return whether statements may end the loop `label` around them before its last iteration."""
    inner: set[str] = {label + "\0continue"}
    stack: list[Any] = [body]
    labels: set[str] = set()
    jumps: set[str] = set()
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += node
            continue
        match node:
            case Leave():
                return True
            case Break(target):
                jumps.add(target)
            case Continue(target):
                jumps.add(f"{target}\0continue")
            case For(label=own, body=nested) | Repeat(label=own, body=nested):
                labels |= {own, f"{own}\0continue"}
                stack.append(nested)
            case Block(label=own, body=nested):
                labels.add(own)
                stack.append(nested)
            case If(then=then, otherwise=otherwise):
                stack += [then, otherwise]
    return bool(jumps - labels - inner)
