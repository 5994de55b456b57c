"""The function that is compiled for a nest, and the layout of the memory it is called with.

Knows: which number lies where. Must not know: syntax trees, how and when it is called.
Receives what was translated; returns a kernel: its text, and how its numbers are packed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from jitla.classes import dataclass
from jitla.loops.given import Array, Given, Scalar, Variable
from jitla.loops.kinds import CODES, HELD, Refused
from jitla.loops.nests import Nest
from jitla.loops.parts import Written
from jitla.loops.translate import Translator
from jitla.loops.values import EXACT, FROM, STOP, TO

_READ = {"i": "I[{}]", "d": "F[{}]", "s": "float32(F[{}])", "b": "(I[{}] != 0)"}
_ZERO = {"i": "int64(0)", "d": "float64(0)", "s": "float32(0)", "b": "bool_(0)"}
_PACKED = {"i": "q", "d": "d", "s": "d", "b": "q"}
_POINTER = {"b1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8",
            "u2": "uint16", "u4": "uint32", "f4": "float32", "f8": "float64"}


@dataclass(frozen=True)
class Kernel:
    """One nest for one set of kinds."""

    text: str
    # Types of the elements of each array, in the order of `arrays`.
    pointers: tuple[str, ...]
    arrays: tuple[str, ...]
    written: tuple[str, ...]
    # Numbers that it is given, in order, and those it gives back, each with its code.
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    counters: int
    # Truth values of NumPy that it takes, and where.
    truths: tuple[tuple[int, str], ...]
    # Of all memory; of what is given back.
    packing: Struct
    unpacking: Struct
    variables: Mapping[str, Variable]
    # Where each number that it takes lies, in words.
    places: Mapping[str, int]


def kernel(nest: Nest, given: Mapping[str, Given], resolve: Callable[..., Any]) -> Kernel:
    """Translate a nest for what it is given."""
    made = Translator(nest, given, resolve)
    lines = made.run()
    known = {name: what for name, what in given.items() if isinstance(what, Array)}
    arrays = tuple(known)
    gives = tuple(name for name in nest.writes if made.variables[name].kinds)
    takes = tuple(name for name, what in given.items() if isinstance(what, Scalar))
    names = (*gives, *(name for name in takes if name not in gives))
    held = {name: made.variables[name].held for name in names}
    for name in takes:
        what = given[name]
        if isinstance(what, Scalar) and held[name] == "d" and HELD[what.kind] == "i" and what.bits > EXACT:
            raise Refused(f"{name} is an integer at times, and a float", nest.line)
    back = "".join(_PACKED[held[name]] + "q" for name in gives) + "qqq" * made.counters
    only = "".join(_PACKED[held[name]] for name in names[len(gives):])
    sizes = "q" * sum(2 * what.ndim for what in known.values())
    places = {name: 2 * gives.index(name) if name in gives else len(back) + names.index(name) - len(gives)
              for name in takes}
    truths = tuple((places[name], name) for name in takes if given[name] == Scalar("b1"))
    text = _text(made, lines, known, given, gives, names, len(back), len(back) + len(only))
    pointers = tuple(_POINTER[what.kind] for what in known.values())
    return Kernel(
        text, pointers, arrays, tuple(sorted(made.written)), takes, gives, made.counters, truths,
        Struct("=" + back + only + sizes), Struct("=" + back), made.variables, places)


def _text(
    made: Translator, lines: Written, arrays: Mapping[str, Array], given: Mapping[str, Given],
    gives: tuple[str, ...], names: tuple[str, ...], only: int, sizes: int,
) -> str:
    """Return the text of both ways through a nest, and of the function that is called with memory."""
    counters = [f"{letter}{k + 1}" for k in range(made.counters) for letter in "ces"]
    back = [part for name in gives for part in (f"v_{name}", f"g_{name}")] + counters
    parameters = "I, F" + "".join(f", p_{name}" for name in arrays)
    first = lengths(arrays, sizes)
    for index, name in enumerate(names):
        how = made.variables[name].held
        at = 2 * index if name in gives else only + index - len(gives)
        what = given.get(name)
        known = CODES[what.kind] if isinstance(what, Scalar) else 0
        code = f"I[{at + 1}]" if name in gives else f"int64({known})"
        first += [f"v_{name} = {_READ[how].format(at)}", f"g_{name} = {code}"]
    more = f", {FROM}, {TO}, {STOP}, STEP" if lines.opening else ""
    bodies = []
    head = [*first, *(f"{each} = int64(0)" for each in (*counters, "seen"))]
    for title, part in (("careful", lines.careful), ("quick", lines.quick)):
        if part is not None:
            asked = ["    if rare(raised(seen)): return @-1@"] if title == "quick" and lines.watched else []
            body = [*("    " + line for line in head), *part, *asked, "    return @0@"]
            bodies += [f"def {title}({parameters}{more}):", _returning(made, body, back)]
    begun = []
    for index, name in enumerate(gives):
        what, how = given.get(name), made.variables[name].held
        if not isinstance(what, Scalar):
            begun.append(f"F[{2 * index}] = 0.0" if how in "ds" else f"I[{2 * index}] = int64(0)")
        begun.append(f"I[{2 * index + 1}] = int64({CODES[what.kind] if isinstance(what, Scalar) else 0})")
    return "\n".join([*bodies, f"def kernel({parameters}):", *("    " + line for line in [*begun, *first]),
                      *_driven(made, lines, back, parameters), "    return int64(0)", ""])


def lengths(arrays: Mapping[str, Array], place: int) -> list[str]:
    """Return the lines that read lengths of arrays, and steps."""
    made = []
    for name, array in arrays.items():
        for axis in range(array.ndim):
            made += [f"d_{name}_{axis} = I[{place}]", f"s_{name}_{axis} = I[{place + 1}]"]
            place += 2
    return made


def _returning(made: Translator, body: list[str], back: list[str]) -> str:
    """Return lines as text; they return a number, and what is given back."""
    text, everything = "\n".join(body), ", ".join(back)
    nothing = ", ".join(_ZERO[_held(made, each)] for each in back)
    for label in range(len(made.nest.labels) + 1):
        text = text.replace(f"return @{label}@", f"return (int64({label}), {everything})")
    return text.replace("return @-1@", f"return (int64(-1), {nothing})")


def _held(made: Translator, word: str) -> str:
    return made.variables[word[2:]].held if word.startswith("v_") else "i"


def _driven(made: Translator, lines: Written, back: list[str], parameters: str) -> list[str]:
    """Return the lines that do all parts of a nest, and store what each of them gives back."""
    found = []
    for line in lines.driven(parameters):
        if line.strip() != "@r@":
            found.append("    " + re.sub(r"return @(\d+)@", r"return int64(\1)", line))
            continue
        for index, each in enumerate(back):
            how = _held(made, each)
            value = f"{'int64' if how == 'b' else ''}(r[{index + 1}])"
            found.append(f"        {'F' if how in 'ds' else 'I'}[{index}] = {value}")
    return found
