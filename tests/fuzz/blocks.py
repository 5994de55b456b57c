"""Random statements with a body: branches, loops, handlers; and statements that raise."""

from __future__ import annotations

from textwrap import indent

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import array_expression, number, place, reduction
from tests.fuzz.statements import simple
from tests.fuzz.steady import steady


def condition(draft: Draft) -> str:
    """Return a test of a value."""
    source = array_expression(draft, draft.pick((0, 0, 1)))
    test = source and reduction(draft, source, whole=True)
    options = [f"{number(draft)} {draft.pick('<>')} 0.5"]
    if test:
        options += [f"{test} > {number(draft)}"] * 3 + [
            f"({source} > 0).any()",
            f"{source}.shape[0] > 3",
            f"np.all({source} < 2)",
            f"{source}.size",
        ]
    text = draft.pick(options)
    return text if draft.value(text) is not None else "True"


def body(draft: Draft, most: int = 3) -> list[str]:
    """Draw the statements of a body with a copy of the values: nothing has run afterwards."""
    scratch = draft.aside()
    drawn = [simple(scratch) for _ in range(draft.pick(range(1, most + 1)))]
    draft.fresh = scratch.fresh
    return [line for line in drawn if line] or ["pass"]


def _block(head: str, lines: list[str]) -> str:
    return head + "\n" + indent("\n".join(lines), "    ")


def branch(draft: Draft) -> str | None:
    """An `if`, perhaps with `else`."""
    text = _block(f"if {condition(draft)}:", body(draft))
    if draft.chance(0.5):
        text += "\n" + _block("else:", body(draft))
    return text


def count(draft: Draft) -> str | None:
    """A `for` over a range or over rows."""
    name = draft.new_name("i")
    source = place(draft)
    held = source and draft.value(source)
    if held is not None and held.ndim and 0 < held.shape[0] < 20 and draft.chance(0.3):
        row = draft.new_name("r")
        kind = draft.pick((f"{row} *= 2", f"log.append({row} * 2)", f"{name} = {row} + 1"))
        return _block(f"for {row} in {source}:", [kind, *body(draft, 2)])
    lines = body(draft)
    if draft.chance(0.2):
        lines.append(_block(f"if {condition(draft)}:", [draft.pick(("break", "continue"))]))
    if draft.chance(0.15):
        lines = [_block(f"for {name}j in range(2):", lines)]
    return _block(f"for {name} in range({draft.pick((1, 2, 3, 3, 4, 5))}):", lines)


def repeat(draft: Draft) -> str | None:
    """A `while` with a test of a value and a bounded number of turns."""
    name = draft.new_name("n")
    lines = [*body(draft), f"{name} += 1"]
    return _block(f"{name} = 0\nwhile {name} < {draft.pick((2, 3, 4))} and {condition(draft)}:", lines)


def moving(draft: Draft) -> str | None:
    """A loop whose slices move or change their size."""
    source = place(draft)
    held = source and draft.value(source)
    if held is None or held.ndim == 0:
        return None
    a, i = source, draft.new_name("i")
    m, j = draft.pick((1, 2, 3)), draft.pick(("0", f"{i} + 1", f"{i} + 2", f"2 * {i}", f"max({i} - 1, 0)"))
    c = number(draft)
    forms = [
        f"for {i} in range(min(4, max({a}.shape[0] - {m + 4}, 0))):\n"
        f"    {a}[{i}:{i} + {m}] += {a}[{j}:{j} + {m}]",
        f"for {i} in range(1, min(5, {a}.shape[0])):\n    {a}[{i}:] = {a}[{i}:] - {a}[:-{i}]",
        f"t = 0.0\nfor {i} in range(min(5, {a}.shape[0])):\n    t = t + ({a}[:{i}] * {c}).sum()",
        f"for {i} in range(1, min(5, {a}.shape[0])):\n    {a}[{i}] -= {c} * {a}[{i} - 1]",
        f"for {i} in range(min(4, {a}.shape[0])):\n    {a}[{i}] = {a}[{i}:].sum(axis=0)",
    ]
    if held.ndim == 2:
        forms += [
            f"for {i} in range(min(3, *{a}.shape) - 1):\n"
            f"    {a}[{i} + 1:, {i}] /= np.abs({a}[{i}, {i}]) + 5\n"
            f"    {a}[{i} + 1:, {i} + 1:] -= {a}[{i} + 1:, {i}:{i} + 1] * {a}[{i}, {i} + 1:]",
            f"for {i} in range(min(3, *{a}.shape)):\n    {a}[{i}, :{i}] *= {a}[:{i}, {i}].sum()",
            f"for {i} in range(min(4, {a}.shape[1])):\n    {a}[:, {i}] += {a}[:, :{i}].sum(axis=1)",
        ]
    return draft.pick(forms)


def attempt(draft: Draft) -> str | None:
    """Something that raises, caught."""
    lines = [fault(draft)] if draft.chance(0.7) else []
    return (
        _block("try:", [*body(draft, 1), *lines])
        + "\n"
        + _block("except (ValueError, TypeError, IndexError) as e:", ["log.append(str(e))"])
    )


def fault(draft: Draft) -> str:
    """Return a statement that raises for most arrays."""
    a = place(draft) or "np.ones(3)"
    return draft.pick(
        (
            f"{a}[10 ** 6]",
            f"{a}.sum(axis=7)",
            f"({a} * 2).reshape(-1, 7919)",
            f"{a} + np.ones(7919)[:, None, None][:5]",
            f"np.add({a}, np.ones({a}.shape + (0,)), out={a})",
            f"np.ones(3) @ np.ones(5) + {a}",
            f"{a}[:, :, :, :, 0]",
            f"({a} + 1).max(axis=(0, 0))",
            f"{a}.no_such_thing",
            f"[][{a}.ndim]",
            f"np.ones((0, 3)).max() + {a}",
            f"{a}[...] = np.ones(7919)",
            f"({a} > 0) - ({a} > 0)",
        )
    )


COMPOUND = {branch: 3, count: 4, repeat: 2.5, moving: 4, attempt: 1, steady: 2.5}


def compound(draft: Draft) -> str | None:
    """Draw a statement with a body; it has not run."""
    return draft.weighted(COMPOUND)(draft)
