"""Exits planted in loop programs: at a chosen iteration a statement leaves the iteration to Python."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from jitla.loopir import program as ir
from jitla.loopjit.rewriting import POSITION


def plant_exits(program: ir.LoopProgram, chooser: random.Random) -> ir.LoopProgram:
    """Return the program with one or two exits in front of random statements of its main loop."""
    number = len(program.exits)
    exits = (*program.exits, ir.ExitPoint(ir.ExitKind.UNDO, 0, "a planted exit"))
    body = program.body
    for _ in range(chooser.choice((1, 1, 2, 3))):
        body = _planted(body, number, chooser)
    return replace(program, body=body, exits=exits)


def _planted(body: tuple[Any, ...], number: int, chooser: random.Random) -> tuple[Any, ...]:
    """Plant an exit in the main loop among these statements."""
    for k, statement in enumerate(body):
        if isinstance(statement, ir.For) and statement.label == ".main":
            places = _count(statement.body)
            test = ir.Apply(
                "equal", (ir.Read(POSITION, ir.INT64), ir.constant(chooser.randint(0, 7))), ir.BOOL
            )
            inner, _ = _at(statement.body, chooser.randrange(places), ir.Check(test, number))
            return (*body[:k], replace(statement, body=inner), *body[k + 1 :])
    return body


def _lists(statement: Any) -> list[str]:
    return [name for name in ("then", "otherwise", "body") if hasattr(statement, name)]


def _count(body: tuple[Any, ...]) -> int:
    """Return the number of places between statements."""
    return (
        len(body)
        + 1
        + sum(_count(getattr(statement, name)) for statement in body for name in _lists(statement))
    )


def _at(body: tuple[Any, ...], place: int, new: Any) -> tuple[tuple[Any, ...], int]:
    """Insert a statement at a place, and return what is left of the number of the place, or -1."""
    if place <= len(body):
        if place == len(body) and body and isinstance(body[-1], (ir.Leave, ir.Break, ir.Continue)):
            place -= 1
        return (*body[:place], new, *body[place:]), -1
    place -= len(body) + 1
    for k, statement in enumerate(body):
        for name in _lists(statement):
            inner, place = _at(getattr(statement, name), place, new)
            if place < 0:
                return (*body[:k], replace(statement, **{name: inner}), *body[k + 1 :]), -1
    return body, place
