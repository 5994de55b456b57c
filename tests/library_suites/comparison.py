"""What of a library's tests differs from the plain run, and what that has in common.

An item differs if its outcome does, or the kind of its exception, or the warnings given while it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.library_suites.copies import NAMES
from tests.numpy_suite.verdict import Events, Finding, Reason, findings, why

EXPECTED = Path(__file__).with_name("expected.toml")
MAX_REASONS = 40
SHOWN_LINES = 12
_NUMBER = re.compile(r"[-+]?\d[\d.e+-]*")
_TOPS = tuple(f"{name}/" for name in NAMES.values())


def shown(item: str) -> str:
    """Return a node id below the library that it is of."""
    for top in _TOPS:
        item = item.removeprefix(top)
    return item


def differences(plain: Events, now: Events, mode: str, reasons: Iterable[Reason]) -> list[Finding]:
    """Return the items that got worse, or end in the same way otherwise, with the reason if there is one."""
    reasons = list(reasons)
    found = findings(plain, now, mode, reasons, shown)
    known = {finding.item for finding in found}
    for item in sorted(plain.keys() & now.keys()):
        name = shown(item)
        text = _change(plain[item], now[item])
        if text and name not in known:
            kind = "warnings" if text[0] in "+-" else "otherwise"
            found.append(Finding(name, kind, text, why(name, mode, reasons)))
    return found


def _change(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Say what differs between two runs with the same outcome; nothing if nothing does."""
    if before["outcome"] != after["outcome"]:
        return ""
    kinds = [event.get("cause", {}).get("kind", "") for event in (before, after)]
    if kinds[0] != kinds[1]:
        return f"{kinds[1]} instead of {kinds[0]}\n{after.get('text', '')}"
    old, new = ({tuple(each) for each in event.get("warnings", ())} for event in (before, after))
    return "\n".join([f"+ {': '.join(each)}" for each in sorted(new - old)]
                     + [f"- {': '.join(each)}" for each in sorted(old - new)])


class Group(NamedTuple):
    """Findings that seem to have one cause."""

    cause: str
    items: tuple[str, ...]
    text: str


def groups(found: Iterable[Finding], now: Events) -> list[Group]:
    """Put findings with the same exception from the same function together, the largest group first."""
    events = {shown(item): event for item, event in now.items()}
    made: dict[str, list[Finding]] = {}
    for finding in found:
        made.setdefault(_cause(finding, events.get(finding.item, {})), []).append(finding)
    return sorted((Group(cause, tuple(f.item for f in each), _first_lines(each[0], events))
                   for cause, each in made.items()), key=lambda group: (-len(group.items), group.cause))


def _cause(finding: Finding, event: dict[str, Any]) -> str:
    if finding.outcome == "warnings":
        return f"warnings: {_NUMBER.sub('#', finding.text)}"
    if finding.outcome == "timeout":
        return f"timeout: {finding.item.partition('::')[0]}"
    cause = event.get("cause")
    if not cause:
        lines = finding.text.splitlines()
        fatal = [line for line in lines if line.startswith("Fatal") or '  File "' in line]
        return f"{finding.outcome}: {' | '.join(fatal[:3] or lines[-1:])}"
    message = " ".join(_NUMBER.sub("#", cause["message"]).split())[:110]
    place = next((frame for frame in reversed(cause["frames"]) if not frame.startswith("numpy/")), "")
    return f"{finding.outcome}: {cause['kind']}: {message} [{place}]"


def _first_lines(finding: Finding, events: Events) -> str:
    cause = events.get(finding.item, {}).get("cause")
    if not cause or finding.outcome == "warnings":
        return "\n".join(finding.text.splitlines()[:SHOWN_LINES])
    message = cause["message"].splitlines()[:SHOWN_LINES]
    return "\n".join([*cause["frames"], f"{cause['kind']}: " + "\n  ".join(message)])
