"""Random statements without a body: assignments, writes, calls, windows, loops with invariant values."""

from __future__ import annotations

from textwrap import indent

import numpy as np

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import (
    array_expression,
    number,
    number_expression,
    place,
    reduction,
    view,
)

# Windows and blocks: aggregates over few elements each

SLIDING = "np.lib.stride_tricks.sliding_window_view"
AGGREGATES = ("sum", "sum", "mean", "max", "min", "prod", "std", "any")


def windows(draft: Draft, source: str) -> str | None:
    """Return an aggregate over windows or blocks of `source`, or of one another; None if it is small."""
    value = draft.value(source)
    if type(value) is not np.ndarray or not value.ndim or min(value.shape) < 2:
        return None
    found = draft.pick((_sliding, _sliding, _sliding, _blocks, _steps))(draft, value)
    return f"(lambda t: {found})({source})"


def _sliding(draft: Draft, value: np.ndarray) -> str:
    axes = sorted(draft.rng.sample(range(value.ndim), draft.rng.randint(1, min(value.ndim, 2))))
    sizes = tuple(draft.rng.randint(1, min(value.shape[a], 9 if len(axes) < 2 else 4)) for a in axes)
    axis = tuple(range(-len(axes), 0)) if draft.chance(0.8) else -1
    view = f"{SLIDING}(t{draft.pick(('', '', ' * 2', ' + t'))}, {sizes}, axis={tuple(axes)})"
    if draft.chance(0.2):
        view += "[::2]"
    if draft.chance(0.3):
        view = f"({view} * {draft.pick(('3', f'np.arange(1.0, {sizes[-1]} + 1)'))})"
    return f"{view}.{draft.pick(AGGREGATES)}(axis={axis})"


def _blocks(draft: Draft, value: np.ndarray) -> str:
    m, n = (draft.rng.randint(1, min(length, 4)) for length in (value.shape[0], value.shape[-1]))
    text = f"t[:t.shape[0] // {m} * {m}]" if value.ndim < 2 else \
        f"t[:t.shape[0] // {m} * {m}, ..., :t.shape[-1] // {n} * {n}]"
    if value.ndim == 2:
        made = f"{text}.reshape(t.shape[0] // {m}, {m}, t.shape[1] // {n}, {n})"
        return f"{made}.{draft.pick(AGGREGATES)}(axis={draft.pick(((1, 3), (3,), (1,)))})"
    return f"{text}.reshape(t.shape[0] // {m}, {m}, *t.shape[1:]).{draft.pick(AGGREGATES)}(axis=1)"


def _steps(draft: Draft, value: np.ndarray) -> str:
    """Return a stencil of what windows give, which is one of windows again."""
    n = draft.rng.randint(1, max(min(value.shape) // 2, 1))
    inner = f"{SLIDING}(t, {n}, axis=0).{draft.pick(('sum', 'mean', 'max'))}(axis=-1)"
    outer = f"{SLIDING}(s, {min(n, 3)}, axis=s.ndim - 1)"
    return f"(lambda s: {outer}.{draft.pick(('sum', 'max'))}(axis=-1) * 0.5)({inner})"


# Simple statements

INPLACE = {"+=": 8, "-=": 7, "*=": 6, "/=": 2, "|=": 0.4, "&=": 0.4, "//=": 0.3, "%=": 0.3, "**= 2 #": 0.3}


def assign(draft: Draft) -> str | None:
    """Give a name to a new array."""
    text = array_expression(draft)
    return text and _named(draft, text)


def _named(draft: Draft, text: str, letter: str = "v") -> str | None:
    old = [n for n in draft.names if n[0] == "v" and n[1:].isdigit()]
    name = draft.pick(old) if old and draft.chance(0.25) else draft.new_name(letter)
    return _done(draft, f"{name} = {text}")


def _done(draft: Draft, text: str | None) -> str | None:
    return text if text and draft.run(text) else None


def assign_number(draft: Draft) -> str | None:
    """Give a name to a number."""
    text = number_expression(draft)
    if text is None:
        return None
    held = draft.scalars()
    held = [n for n in held if n[0] == "s"]
    name = draft.pick(held) if held and draft.chance(0.25) else draft.new_name("s")
    sign = draft.pick(("+=", "=", "=")) if name in held else "="
    return _done(draft, f"{name} {sign} {text}")


def assign_view(draft: Draft) -> str | None:
    """Give a name to a view."""
    source = place(draft)
    text = source and view(draft, source)
    return text and _named(draft, text)


def alias(draft: Draft) -> str | None:
    """Give a second name to something, or exchange two names."""
    names = [n for n in draft.names if n[0] == "v" and n[1:].isdigit()]
    if len(names) > 1 and draft.chance(0.4):
        a, b = draft.rng.sample(names, 2)
        return _done(draft, f"{a}, {b} = {b}, {a}")
    source = place(draft)
    return source and _named(draft, source)


def write_inplace(draft: Draft) -> str | None:
    """Update an array in place: a name, an argument, an attribute, an entry, a view."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None:
        return None
    sign = draft.weighted(INPLACE)
    if sign.endswith("#"):
        return _done(draft, f"{target} **= 2")
    part = _part(draft, target, held) if draft.chance(0.3) else ""
    cells = draft.value(target + part)
    if type(cells) is not np.ndarray:
        return None
    if draft.chance(0.3):
        value: str | None = number(draft)
    else:
        value = array_expression(draft, None, cells)
    return value and _done(draft, f"{target}{part} {sign} {value}")


def _part(draft: Draft, target: str, held: np.ndarray) -> str:
    if held.ndim == 0:
        return "[...]"
    options = ["[1:]", "[:-1]", "[::-1]", "[:]", "[0]", "[::2]", "[-1]", "[...]", "[1:-1]", "[:2]"]
    if held.ndim > 1:
        options += ["[:, 0]", "[:, 1:]", "[..., ::-1]", "[0, :]", "[:, :1]", "[1:, 1:]"]
    if draft.chance(0.12):
        return f"[{target} {draft.pick('<>')} {draft.pick(('0', '1', '0.5'))}]"
    return draft.pick(options)


def store(draft: Draft) -> str | None:
    """Write into a part of an array."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None:
        return None
    part = _part(draft, target, held)
    cells = draft.value(target + part)
    if type(cells) is not np.ndarray or draft.chance(0.2):
        return _done(draft, f"{target}{part} = {number(draft)}")
    value = array_expression(draft, None, cells)
    return value and _done(draft, f"{target}{part} = {value}")


def overlap(draft: Draft) -> str | None:
    """Write into an array from another part of it."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None or held.ndim == 0:
        return None
    a = target
    forms = [
        f"{a}[1:] = {a}[:-1]",
        f"{a}[1:] += {a}[:-1]",
        f"{a}[:-1] += {a}[1:]",
        f"{a}[::-1] += {a}",
        f"{a}[...] = {a}[::-1]",
        f"{a} -= {a}[0]",
        f"{a}[1:-1] = {a}[1:-1] + ({a}[2:] - {a}[:-2])",
        f"{a}[2:] = {a}[1:-1] * 2 - {a}[:-2]",
        f"{a} += {a}[::-1] * 2",
        f"np.add({a}, {a}[::-1], out={a})",
        f"np.copyto({a}[1:], {a}[:-1])",
        f"np.multiply({a}, 2, out={a}[::-1])",
    ]
    if held.ndim > 1:
        forms += [
            f"{a} -= {a}[:, :1]",
            f"{a}[:, 1:] += {a}[:, :-1]",
            f"{a}[0], {a}[-1] = {a}[-1], {a}[0]",
            f"{a} -= {a}.mean(axis=0)",
            f"{a}[:] = {a}[:, ::-1]",
            *shifted(draft, a),
        ]
        if held.shape[0] == held.shape[1]:
            forms += [f"{a} += {a}.T", f"{a}[:] = {a}.T"]
    return _done(draft, draft.pick(forms))


def shifted(draft: Draft, a: str) -> list[str]:
    """Return updates of a part of an array of two axes or more from parts beside it."""
    n, k, sign = number(draft), draft.pick((1, 1, 2, 3)), draft.pick(("=", "+=", "-="))
    forms = [
        f"{a}[1:-1, 1:-1] {sign} 0.25 * ({a}[:-2, 1:-1] + {a}[2:, 1:-1] + {a}[1:-1, :-2] + {a}[1:-1, 2:])",
        f"{a}[{k}:] {sign} {a}[:-{k}] * {n}",
        f"{a}[:-{k}] {sign} {a}[{k}:] - {a}[:-{k}] * {n}",
        f"{a}[1:-1] {sign} ({a}[2:] - {a}[:-2]) * {n}",
        f"{a}[:, {k}:] {sign} {a}[:, :-{k}] * {n}",
        f"{a}[1:, 1:] {sign} {a}[:-1, :-1] + {n}",
        f"{a}[:-1, 1:] {sign} {a}[1:, :-1] * {n}",
        f"{a}[{k}:, ::-1] {sign} {a}[:-{k}] * {n}",
        f"{a}[{k}::-1] {sign} {a}[:{k} + 1] + {n}",
        f"{a}[::-1][{k}:] {sign} {a}[::-1][:-{k}] * {n}",
        f"{a}[1:] {sign} np.where({a}[1:] > {a}[:-1], {a}[:-1], {a}[1:])",
        f"for t in range(3):\n    {a}[1:-1] = ({a}[:-2] + {a}[1:-1] + {a}[2:]) / 3",
        f"np.add({a}[1:], {a}[:-1], out={a}[1:])",
        f"{a}[::2] {sign} {a}[1::2][:1] * {n}",
        f"{a}.T[{k}:] {sign} {a}.T[:-{k}] * {n}",
        f"{a}[..., 1:-1] {sign} {a}[..., :-2] - {a}[..., 2:] * {n}",
    ]
    return draft.rng.sample(forms, 6)


def out_argument(draft: Draft) -> str | None:
    """Write into an array through `out=`."""
    target = place(draft)
    held = target and draft.value(target)
    if held is None:
        return None
    value = array_expression(draft, 1, held)
    other = value and (number(draft) if draft.chance(0.5) else array_expression(draft, 0, held))
    call = draft.pick(("np.add", "np.multiply", "np.subtract", "np.maximum"))
    return other and _done(draft, f"{call}({value}, {other}, out={target})")


def keep(draft: Draft) -> str | None:
    """Store an array where it outlives the statement: list, dict, attribute, global."""
    value = array_expression(draft)
    if value is None:
        return None
    text, kept = draft.pick(
        (
            ("log.append({})", None),
            ("p['new'] = {}", "p['new']"),
            ("self.v = {}", "self.v"),
            ("p['w'] = {}", "p['w']"),
            ("self.w = {}", "self.w"),
            ("G0 = {}", "G0"),
            ("log.append({})", "log[-1]"),
            ("self.v = 0.5 * {}", "self.v"),
        )
    )
    if text == "G0 = {}" and "G0" not in draft.places:
        return None
    done = _done(draft, text.format(value))
    if done and kept:
        draft.places[kept] = ""
    return done


def call(draft: Draft) -> str | None:
    """Call something that writes into its argument, or a function made here."""
    target = place(draft)
    if target is None:
        return None
    forms = [
        f"bump({target})",
        f"last = bump({target})",
        f"{target}.sort()",
        f"{target}.fill({number(draft)})",
    ]
    if draft.chance(0.5):
        name = draft.new_name("f")
        body = draft.pick(
            (f"q * {number(draft)} + {target}", f"np.sqrt(np.abs(q)) - {number(draft)}", "q[::-1] + q")
        )
        made = f"{name} = lambda q: {body}"
        if draft.value(f"(lambda q: {body})({target})") is None or not _done(draft, made):
            return None
        draft.helpers[name] = 1
        return made
    return _done(draft, draft.pick(forms))


def comprehend(draft: Draft) -> str | None:
    """Build a list with a comprehension, or a number from a generator expression."""
    source = place(draft)
    held = source and draft.value(source)
    if held is None or held.ndim == 0 or held.shape[0] > 40:
        return None
    text = draft.pick(
        (
            f"v{draft.fresh + 1} = np.array([float(np.sum(r)) for r in {source}])",
            f"log.extend([r * 2 for r in {source}])",
            f"s{draft.fresh + 1} = sum(float((r * r).sum()) for r in {source})",
            f"v{draft.fresh + 1} = [{source} * k for k in range(3)][-1]",
            f"v{draft.fresh + 1} = sum({source} + k for k in range(2))",
            f"v{draft.fresh + 1} = {{k: {source} * k for k in range(2)}}[1]",
        )
    )
    draft.fresh += 1
    return _done(draft, text)


def neighbours(draft: Draft) -> str | None:
    """Combine slices of a value that nobody else sees."""
    source = array_expression(draft)
    value = source and draft.value(source)
    if type(value) is not np.ndarray or value.ndim == 0:
        return None
    front = "..., " if draft.chance(0.4) else ":, " if value.ndim > 1 and draft.chance(0.4) else ""
    parts = draft.pick((
        ("1:", ":-1"), ("2:", "1:-1", ":-2"), (":-1", "1:", ":-1"), ("3:", ":-3"), ("1:-1", "2:"),
        ("1:, 1:", ":-1, :-1", "1:, :-1", ":-1, 1:"), ("1:-1, 2:", "1:-1, :-2"), ("::2", "1::2")))
    sign = draft.pick(("+", "-", "*", "<", "/"))
    text = f" {sign} ".join(f"t[{front}{part}]" for part in parts)
    return _named(draft, f"(lambda t: {text})({source})")


def stencils(draft: Draft) -> str | None:
    """Combine slices of a value that is made of slices, where computing it several times would cost much."""
    source = array_expression(draft)
    value = source and draft.value(source)
    if type(value) is not np.ndarray or value.ndim < 2:
        return None
    parts = draft.pick((
        (":-2", "1:-1", "2:"), (":, :-2", ":, 1:-1", ":, 2:"), ("1:, 1:", ":-1, :-1", "1:, :-1"),
        ("2:", ":-2"), (":-3, 1:", "3:, :-1", "2:-1, 1:")))
    more = draft.pick((
        (":-2", "1:-1", "2:"), (":, 1:", ":, :-1"), ("1:, 1:", ":-1, :-1"), ("4:", ":-4", "1:-3")))
    sign, other = draft.pick(("+", "-", "*", "/")), draft.pick(("+", "-", "*"))
    first = f" {sign} ".join(f"(t[{p}] * t[{p}])" for p in parts)
    second = f" {other} ".join(f"(s[{p}] - s[{p}] * s[{p}] / 3)" for p in more)
    return _named(draft, f"(lambda s: {second})((lambda t: {first})({source}))")


def sliding(draft: Draft) -> str | None:
    """Aggregate windows or blocks."""
    source = array_expression(draft)
    text = windows(draft, source) if source else None
    return text and _named(draft, text)


def delete(draft: Draft) -> str | None:
    """Delete a name."""
    names = [n for n in draft.names if n[0] == "v" and n[1:].isdigit()]
    return _done(draft, f"del {draft.pick(names)}") if len(names) > 3 else None


SIMPLE = {
    assign: 30,
    assign_number: 7,
    assign_view: 6,
    alias: 2,
    write_inplace: 14,
    store: 8,
    overlap: 4,
    out_argument: 1.5,
    keep: 5,
    call: 3,
    comprehend: 2,
    neighbours: 3,
    stencils: 2,
    sliding: 2.5,
    delete: 1,
}


def simple(draft: Draft) -> str | None:
    """Draw one statement without a body."""
    return draft.weighted(SIMPLE)(draft)


# Loops with values that stay the same, and writes, some of the time, to what they come from


def steady(draft: Draft) -> str | None:
    """A `for` whose expressions mostly do not depend on the turn; some turns write."""
    scratch = draft.aside()
    i = draft.new_name("i")
    scratch.names[i] = 1
    lines = [line for line in (_repeated(scratch, i) for _ in range(draft.pick((1, 2, 3)))) if line]
    if not lines:
        return None
    if draft.chance(0.75):
        writes = [line for line in (simple(scratch) for _ in range(draft.pick((1, 1, 2)))) if line]
        if writes:
            head = draft.pick((f"if {i} == 3:", f"if {i} % 3 == 2:", f"if {i} in (1, 4):"))
            at = draft.pick(range(len(lines) + 1))
            lines.insert(at, f"{head}\n" + indent("\n".join(writes), "    "))
    draft.fresh = scratch.fresh
    return f"for {i} in range({draft.pick((4, 6, 7))}):\n" + indent("\n".join(lines), "    ")


def _repeated(draft: Draft, i: str) -> str | None:
    """Draw what every turn does again."""
    source = array_expression(draft, draft.pick((1, 2, 2, 3)))
    if source is None:
        return None
    v = draft.new_name()
    total = reduction(draft, source) or source
    text = draft.pick((
        f"{v} = {source}\nlog.append({v} + {i})",
        f"{v} = {total}\nlog.append({v} * {number(draft)})",
        f"{v} = ({source}) * {i} + ({total})",
        f"{v} = {source}\nlog.append({v})\nlog.append(({total}) - {i})",
        f"{v} = {total}\nif np.sum({v}) > {i}:\n    log.append({v})",
    ))
    return text if draft.run(text) else None
