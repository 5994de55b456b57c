"""Lines that compute and check, while a loop is written: what is known already, what is left to check.

Knows: values, and under which label the interpreter would go on. Must not know: syntax trees, arrays.
Receives values; writes lines, and returns values.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from jitla.loops.values import EXACT, Value, held_by

_CAST = {"i": "int64", "d": "float64", "s": "float32", "b": "bool_"}
# Floats are these, or beyond what is finite.
LARGEST = {"d": "1.7976931348623157e308", "s": "float32(3.4028234663852886e38)"}

# Lines that are computed rather than jumped over, and what is too dear for that.
CHEAP = 6
_DEAR = ("lib_", "power", "ratio", "sqrt", "float_div", "float_mod", "floor(", "ceil(")
# Checks that what is computed for nothing hardly ever fails.
_LOST = re.compile(r"beyond\(|past\(|o[0-9]+$")


class Hard(Exception):
    """Something must not be done where a check fails, so that noting it is not enough."""


class Writer:
    """Writes the lines of a loop, and knows under which label the interpreter would go on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.label = 0
        # Whether what is wrong is only noted, since all can be done again.
        self.sticky = False
        # Whether what is written may not be reached: what is done there must not be done for nothing.
        self.unsure = False
        # Whether all of it is undone, and done again with all checks, if anything is wrong.
        self.quick = False
        # What is left to check before the statement does anything; for each, what tells more, if it is rare.
        self.pending: list[tuple[str, str]] = []
        # Names of what was computed already, and checks that were done: they hold as long as their parts do.
        self.known: dict[str, str] = {}
        self._count = 0

    @property
    def watched(self) -> bool:
        """Whether operations set the processor's flags, which are looked at when all is done."""
        return self.quick

    @property
    def leaving(self) -> str:
        """The statement that leaves the loop where something is wrong."""
        return "return @-1@" if self.quick else f"return @{self.label}@"

    def put(self, line: str) -> None:
        """Write a line."""
        self.lines.append("    " * self.depth + line)

    def bail(self, condition: str, hard: bool = False) -> None:
        """Leave the loop to the interpreter where `condition` holds; `hard` if nothing can go on then.

        Others are looked at together, at the end of the statement: all of its elements are read before.
        """
        if self._again(f"? {condition}"):
            return
        if self.sticky:
            if hard:
                raise Hard
            self.pending.append((condition, ""))
        elif hard:
            self.put(f"if rare({condition}): {self.leaving}")
        else:
            self.pending.append((condition, ""))

    def flush(self, since: int = 0) -> None:
        """Write the checks that are left, but the first `since`."""
        found = self.pending[since:]
        del self.pending[since:]
        if self.sticky:
            for condition, _ in found:
                self.put(f"bad = either(bad, {condition})")
            return
        if not found:
            return
        whole = found[0][0]
        for condition, _ in found[1:]:
            whole = f"either({whole}, {condition})"
        if len(found) == 1 and not found[0][1]:
            self.put(f"if rare({whole}): {self.leaving}")
            return
        self.put(f"if rare({whole}):")
        self.depth += 1
        for condition, more in found:
            self.put(f"if {more or condition}: {self.leaving}")
        self.depth -= 1

    def _again(self, text: str) -> bool:
        """Say whether something was done already; remember that it is."""
        done = text in self.known
        self.known[text] = ""
        return done

    def fresh(self, text: str) -> str:
        """Give what `text` computes a name."""
        name = self.known.get(text)
        if name is None:
            name = self.known[text] = self.own(text)
        return name

    def own(self, text: str) -> str:
        """Give what `text` computes a name that nothing else has: it may be assigned once more."""
        self._count += 1
        name = f"t{self._count}"
        self.put(f"{name} = {text}")
        return name

    def forget(self, word: str) -> None:
        """Forget all that was computed of what has another value now."""
        self.known = {text: name for text, name in self.known.items() if word not in text}

    def leave(self, before: dict[str, str]) -> None:
        """Leave what may not have been done: only what was known before it, and still is, is known."""
        self.known = {text: name for text, name in before.items() if self.known.get(text) == name}

    # -- conversions ---------------------------------------------------------------------------

    def held(self, value: Value, how: str) -> str:
        """Return the text of `value` held as `how`; integers that floats cannot hold are left."""
        if value.held == how:
            return value.text
        if how == "b":
            return f"({value.text} != 0)"
        if value.held == "i" and how in "ds" and value.bits > EXACT:
            # only of integers of Python NumPy may think otherwise: they are converted by way of it
            self.bail(f"wide({value.text})")
        if how == "s":
            return self._single(value)
        return f"{_CAST[how]}({value.text})"

    def _single(self, value: Value) -> str:
        """Return a value as float32: Python's numbers are rounded, and must not become infinite."""
        wide = value.text if value.held == "d" else f"float64({value.text})"
        name = self.fresh(f"float32({wide})")
        if value.held == "d":
            self.bail(f"lost({wide}, {name})")
        return name

    def settled(self, value: Value) -> Value:
        """Look at the flags of the steps that made `value`: a warning is the interpreter's."""
        if not value.steps:
            return value
        if self.watched:
            self.see(value)
            return self.calm(value)
        return self.judged(value)

    def see(self, value: Value) -> None:
        """Let what is asked of the flags later need `value`: compilers leave out what nobody needs."""
        if not self._again(f"seen {value.text}"):
            self.put(f"seen = seen | bits_{value.held}({value.text})")

    def judged(self, value: Value) -> Value:
        """Look at what the steps of a value have made."""
        if self.watched:  # of functions of the library the flags are not relied on
            self.bail(f"not (abs({value.text}) <= {LARGEST[value.held]})")
            return self.calm(value)
        detail = " or ".join(f"flagged({a}, {b}, {r})" for a, b, r in value.steps)
        if not self._again(f"? {value.text} {detail}"):
            self.pending.append((f"not (abs({value.text}) <= {LARGEST[value.held]})", detail))
        return self.calm(value)

    def calm(self, value: Value) -> Value:
        """Return a value whose flags are looked at elsewhere."""
        return Value(value.text, value.kinds, value.held, value.tag, value.bits, value.positive)

    def united(self, value: Value, kinds: frozenset[str], how: str) -> tuple[str, str]:
        """Return text and code of `value` as a variable of `kinds` holds it."""
        text = value.text
        if value.held != how:
            if how == "d" and value.held == "i" and value.bits > EXACT:
                self.bail(f"wide({text})")
            text = f"{_CAST[how]}({text})"
        return text, value.code

    def truth(self, value: Value) -> str:
        """Return the text of what `bool` makes of a value."""
        value = self.settled(value)
        return value.text if value.held == "b" else f"({value.text} != 0)"

    def choose(
        self, test: str, first: Callable[[], Value], second: Callable[[], Value]
    ) -> Value:
        """Return what one of two expressions makes; the other is not computed, or for nothing."""
        self._count += 1
        name, tag = f"t{self._count}", f"g{self._count}"
        parts = [self._aside(each) for each in (first, second)]
        kinds = parts[0][0].kinds | parts[1][0].kinds
        if not kinds:
            return parts[0][0]
        how = held_by(kinds)
        bits = max(part[0].bits for part in parts)
        positive = all(part[0].positive for part in parts)
        if len(kinds) == 1 and all(value.kinds and _cheap(lines) for value, lines, _ in parts):
            return Value(self._picked(name, test, parts), kinds, how, "", bits, positive)
        for word, (value, lines, pending) in zip((f"if {test}:", "else:"), parts, strict=True):
            self.put(word)
            self.depth += 1
            self.lines += lines
            since = len(self.pending)
            self.pending += pending
            text, code = self.united(value, kinds, how) if value.kinds else (f"{_CAST[how]}(0)", "1")
            self.flush(since)
            self.put(f"{name} = {text}")
            self.put(f"{tag} = int64({code})")
            self.depth -= 1
        return Value(name, kinds, how, tag if len(kinds) > 1 else "", bits, positive)

    def _picked(self, name: str, test: str, parts: list[Part]) -> str:
        """Compute both of two values that cost little, and take one: without a jump that is guessed."""
        asked = self.own(f"bool_({test})")
        for (_, lines, pending), when in zip(parts, (asked, f"(not {asked})"), strict=True):
            self.lines += [line[4:] for line in lines]
            self.pending += [(condition, more) if self.quick and _LOST.match(condition) else
                             (f"({when} & ({condition}))", more and f"{when} and ({more})")
                             for condition, more in pending]
        self.put(f"{name} = {parts[0][0].text} if {asked} else {parts[1][0].text}")
        return name

    def _aside(self, make: Callable[[], Value]) -> Part:
        """Return what `make` returns, the lines that it writes, one step further in, and its checks."""
        kept, self.lines = self.lines, []
        before, since = dict(self.known), len(self.pending)
        self.depth += 1
        unsure, self.unsure = self.unsure, True
        try:
            value = self.settled(make())
            pending = self.pending[since:]
            del self.pending[since:]
            return value, self.lines, pending
        finally:
            self.unsure = unsure
            self.depth -= 1
            self.lines = kept
            self.leave(before)


# A value, the lines that compute it, and the checks that are left.
Part = tuple[Value, list[str], list[tuple[str, str]]]


def _cheap(lines: list[str]) -> bool:
    """Say whether lines only compute, and little."""
    return len(lines) <= CHEAP and all(
        line.lstrip().startswith(("t", "seen = ")) and not any(word in line for word in _DEAR)
        for line in lines)
