"""A module's text cut into parts that are compiled each on its own.

Knows: how functions are written, which of them run often. Must not know: what they compute.
Receives the text of one module; returns the texts of several that call each other.
"""

from __future__ import annotations

import re

from jitla.codegen.layout import PART

_DEFINED = re.compile(r"define (?:internal )?(\S.*) @([\w.]+)\((.*)\) ?(.*)\{$", re.M)
_CONSTANT = re.compile(r"^(@[\w.]+) = (?:internal|external) constant .*\n", re.M)
_CALLED = re.compile(r"@([\w.]+)")
_NAME = re.compile(r" %[\w.]+")
ENTRIES = ("k", "fin")
_LIBRARY = re.compile(r"jitla_[a-z0-9]+")


def parted(text: str, prefix: str) -> str:
    """Return the module `text` in parts, each of them begun with `prefix`.

    Functions marked cold cost a fifth when they are not optimised. Those for one operation are the
    same in many kernels, and a part of their own.
    """
    functions, around = _functions(text)
    parts: dict[tuple[str, int], list[str]] = {("", 2): []}
    for name, (_, defined) in functions.items():
        level = 0 if "cold" in defined[4].split() else 2
        shared = _LIBRARY.match(name)
        parts.setdefault((shared[0] if shared else "", level), []).append(name)
    heads = {name: _head(name, defined) for name, (_, defined) in functions.items()}
    constants = {m[1]: m[0] for m in _CONSTANT.finditer(around)}
    rest = _CONSTANT.sub("", around)
    out = []
    for (_, level), names in parts.items():
        body = "".join(_opened(name, *functions[name]) for name in names)
        called = dict.fromkeys(_CALLED.findall(body))
        others = "".join(f"declare {heads[c]}\n" for c in called if c in heads and c not in names)
        data = "".join(constants[f"@{c}"] for c in called if f"@{c}" in constants)
        tail = rest if "!0" in body else ""
        out.append((level, f"{prefix}{data}{others}{body}{tail}"))
    return out[0][1] + "".join(PART.format(level) + part for level, part in out[1:])


def _functions(text: str) -> tuple[dict[str, tuple[str, re.Match[str]]], str]:
    """Return what follows the head of each function, with that head, by name; and what is around them."""
    text = f"\n{text}"
    found: dict[str, tuple[str, re.Match[str]]] = {}
    around, done, at = "", 1, text.find("\ndefine ")
    while at >= 0:
        defined = _DEFINED.match(text, at + 1)
        assert defined is not None, text[at:]
        around += text[done : at + 1]
        done = text.index("\n}\n", defined.end()) + 3
        found[defined[2]] = text[defined.end() : done], defined
        at = text.find("\ndefine ", done - 1)
    return found, around + text[done:]


def _head(name: str, defined: re.Match[str]) -> str:
    """Return the declaration of a function."""
    return f"hidden {defined[1]} @{name}({_NAME.sub('', defined[3])})"


def _opened(name: str, body: str, defined: re.Match[str]) -> str:
    """Return a function that other parts can call; none unwinds, so no tables are made for it."""
    scope = "" if name in ENTRIES else "hidden "
    attributes = dict.fromkeys(("nounwind", *defined[4].split()))
    attributes.pop("cold", None)
    head = f"define {scope}{defined[1]} @{name}({defined[3]}) {' '.join(attributes)} {{"
    return head + body
