"""The function that is compiled for a nest, and the layout of the memory it is called with.

Knows: which number lies where. Must not know: syntax trees, how and when it is called.
Receives what was translated; returns a kernel: its text, and how its numbers are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

from jitla.loops.given import Array, Given, Scalar, Variable
from jitla.loops.kinds import CODES, HELD, Refused
from jitla.loops.nests import Nest
from jitla.loops.translate import ARGUMENTS, Translator
from jitla.loops.values import EXACT

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


def kernel(nest: Nest, given: Mapping[str, Given], resolve: Callable[[str], Any]) -> Kernel:
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
    made: Translator, lines: list[str], arrays: Mapping[str, Array], given: Mapping[str, Given],
    gives: tuple[str, ...], names: tuple[str, ...], only: int, sizes: int,
) -> str:
    """Return the text of the function of the nest, and of the one that is called with memory."""
    head, place = [], sizes
    for name, array in arrays.items():
        for axis in range(array.ndim):
            head += [f"d_{name}_{axis} = I[{place}]", f"s_{name}_{axis} = I[{place + 1}]"]
            place += 2
    for index, name in enumerate(names):
        how, what = made.variables[name].held, given.get(name)
        if isinstance(what, Scalar):
            at = 2 * index if name in gives else only + index - len(gives)
            head += [f"v_{name} = {_READ[how].format(at)}", f"g_{name} = int64({CODES[what.kind]})"]
        else:
            head += [f"v_{name} = {_ZERO[how]}", f"g_{name} = int64(0)"]
    counters = [f"{letter}{k + 1}" for k in range(made.counters) for letter in "ces"]
    head += [f"{each} = int64(0)" for each in (*counters, "seen")]
    back = [part for name in gives for part in (f"v_{name}", f"g_{name}")] + counters
    pointers = "".join(f", p_{name}" for name in arrays)
    everything = ", ".join(back)
    parameters = f"I, F{pointers}"
    functions = {"quick": made.quick, "body": lines} if made.quick else {"body": lines}
    bodies = []
    for title, part in functions.items():
        asked = ["    if rare(raised(seen)): return @-1@"] if title == "quick" else []
        body = "\n".join([*("    " + line for line in head), *part, *asked, "    return @0@"])
        for label in range(-1, len(made.nest.labels) + 1):
            body = body.replace(f"return @{label}@", f"return (int64({label}), {everything})")
        bodies += [f"def {title}({parameters}):", body.replace(ARGUMENTS, parameters)]
    store = []
    for index, each in enumerate(back):
        how = made.variables[each[2:]].held if each.startswith("v_") else "i"
        value = f"r[{index + 1}]"
        store.append(f"    {'F' if how in 'ds' else 'I'}[{index}] = {'int64' if how == 'b' else ''}({value})")
    return "\n".join([*bodies, f"def kernel({parameters}):", f"    r = body({parameters})", *store,
                      "    return r[0]", ""])
