"""Nests made: translated, compiled elsewhere, linked, and a door put before them.

Knows: all that makes machine code of a nest. Must not know: which nests are worth it, when they are trusted.
Receives entries and kinds of values; gives the kinds code, or the reason why there is none.

It is loaded when a nest is to be compiled, behind the program: most functions with indices in loops need it
never.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NamedTuple

from jitla.loops.call import Code
from jitla.loops.door import CLOCK, NAME, Found, door
from jitla.loops.entry import MISSING, Entry
from jitla.loops.foreman import Foreman, Unavailable
from jitla.loops.given import Given
from jitla.loops.keeping import Kept, kept
from jitla.loops.kernel import kernel
from jitla.loops.kinds import Refused
from jitla.loops.laned import laned
from jitla.loops.opening import Door
from jitla.loops.seen import LARGE
from jitla.loops.variants import Variant

__all__ = ["Foreman", "Tools", "foresee", "make"]


class Tools(NamedTuple):
    """Who compiles; what links an object, what loads a text; what keeps machine code, by the options.

    `calm` returns what says whether nobody watches: whoever knows is loaded by then.
    """

    foreman: Foreman
    link: Callable[[str, bytes], tuple[Any, int]]
    load: Callable[[str, str], tuple[Any, int]]
    kept_by: Kept
    calm: Callable[[], Callable[[], bool]]


def make(entry: Entry, variant: Variant, tools: Tools) -> None:
    """Have a nest translated and compiled for values of a kind, or leave it to Python."""
    try:
        _translate(entry, variant, tools)
    except Refused as refused:
        variant.refuse(refused.reason, refused.line or entry.nest.line, refused.element)
    except Unavailable as error:
        variant.refuse(str(error))
    except Exception as error:
        variant.refuse(f"{type(error).__name__}: {error}")
    finally:
        entry.look()


def foresee(entries: Iterable[Entry]) -> None:
    """Find out of what Python has run so far whether it can be compiled."""
    for entry in entries:
        for variant in [each for each in entry.variants.values() if each.state == "cold" and each.given]:
            try:
                _read(entry, variant)
            except Refused as refused:
                variant.refuse(refused.reason, refused.line or entry.nest.line, refused.element)


def _read(entry: Entry, variant: Variant) -> tuple[dict[str, Given], Any]:
    """Return what a nest is given, and its translation."""
    given = dict(zip((*entry.names, *entry.outside), variant.given, strict=True))
    given = {name: what for name, what in given.items()
             if name not in entry.outside or not isinstance(what, str)}
    variant.assumed.clear()
    variant.helpers.clear()
    translate = kernel if entry.nest.lanes is None else laned
    made = translate(entry.nest, given, lambda *asked: _resolve(entry, variant, *asked))
    variant.kinds = ", ".join(f"{name} {_shown(what)}" for name, what in given.items())
    return given, made


def _translate(entry: Entry, variant: Variant, tools: Tools) -> None:
    given, made = _read(entry, variant)
    name, data = kept(made.text, made.pointers, tools.foreman.ask, tools.foreman.program, tools.kept_by)
    library, address = tools.link(name, data)
    variant.code = Code(made, entry.nest.writes, library, address)
    _build(entry, variant, variant.code, given, tools)
    variant.state = "tried"


def _build(entry: Entry, variant: Variant, code: Code, given: dict[str, Given], tools: Tools) -> None:
    """Make the door of a nest, where machine code can tell its values from others."""
    examples = {name: int if type(each) in (bool, int) else each
                for name, each in zip((*entry.names, *entry.outside), variant.key, strict=True)}
    large = any(what == LARGE for what in variant.given)
    if large or CLOCK is None or len(given) != len(examples) or sys.implementation.name != "cpython":
        return
    found = [Found(space, name, None if value is MISSING else value)
             for space, name, value in variant.assumed]
    calm = tools.calm()
    undisturbed = (lambda: calm() and variant.unchanged()) if variant.helpers else calm
    text, objects = door(code.kernel, entry.names, entry.outside, given, examples,
                         list({(id(each.space), each.name): each for each in found}.values()),
                         entry.nest.live, undisturbed, entry.space)
    variant.door = Door(code, objects, tools.load(text, NAME),
                        lambda made: entry.left(variant, made))


def _resolve(entry: Entry, variant: Variant, name: str, inside: FunctionType | None = None) -> Any:
    """Return what a name outside of the function is, or of one `inside` it, and remember that it was."""
    first, *rest = name.split(".")
    known: Any = inside  # not every checker knows that functions have builtins
    space = entry.space if inside is None else known.__globals__
    if first not in space:
        variant.assumed.append((space, first, MISSING))
        space = entry.builtin if inside is None else known.__builtins__
    found = space.get(first, MISSING)
    variant.assumed.append((space, first, found))
    for part in rest:
        if not isinstance(found, type(sys)):
            raise Refused(f"{name} is no name in a module", element=False)
        variant.assumed.append((vars(found), part, vars(found).get(part, MISSING)))
        found = vars(found).get(part, MISSING)
    if found is MISSING:
        raise Refused(f"{name} is not defined", element=False)
    if type(found) is not FunctionType or entry.helpers is None:
        return found
    made = entry.helpers.of(found)
    if isinstance(made, str):
        return found
    variant.helpers[found] = made.code
    return made


def _shown(what: Any) -> str:
    kind = getattr(what, "kind", what)
    return f"{kind}[{', '.join(':' * what.ndim)}]" if hasattr(what, "ndim") else str(kind)
