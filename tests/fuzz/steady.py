"""Random loops with values that stay the same, and writes, some of the time, to what they come from."""

from __future__ import annotations

from textwrap import indent

from tests.fuzz.draft import Draft
from tests.fuzz.expressions import array_expression, number, reduction
from tests.fuzz.statements import simple


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
