"""What differs from the plain run, and which of that was expected."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

EXPECTED = Path(__file__).with_name("expected.toml")
BAD = frozenset({"failed", "error", "crash", "hang", "timeout", "xpassed", "missing"})
MAX_REASONS = 15

Events = dict[str, dict[str, Any]]


class Reason(NamedTuple):
    """Why some items may differ; `items` are node ids in which * stands for anything."""

    why: str
    modes: frozenset[str]
    items: tuple[re.Pattern[str], ...]


class Finding(NamedTuple):
    """An item that ended well in the plain run and does not now."""

    item: str
    outcome: str
    text: str
    reason: str | None


def expectations(path: Path = EXPECTED) -> tuple[Reason, ...]:
    """Read the reasons and their patterns."""
    found = tomllib.loads(path.read_text(encoding="utf-8")).get("reason", [])
    return tuple(Reason(each["why"], frozenset(each["modes"]), tuple(map(_pattern, each["items"])))
                 for each in found)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(r"\*", ".*"), re.DOTALL)


def short(item: str) -> str:
    """Return a node id without the folder that all have in common."""
    return item.removeprefix("numpy_tests/")


def why(item: str, mode: str, reasons: Iterable[Reason]) -> str | None:
    """Return the reason that was written down for an item, if any."""
    return next((reason.why for reason in reasons if mode in reason.modes
                 and any(pattern.fullmatch(item) for pattern in reason.items)), None)


def findings(plain: Events, now: Events, mode: str, reasons: Iterable[Reason],
             name: Callable[[str], str] = short) -> list[Finding]:
    """Return the items that got worse, with the reason if one was written down for them."""
    mine = list(reasons)
    worse: list[Finding] = []
    for item in sorted(plain.keys() | now.keys()):
        before = plain.get(item, {"outcome": "missing"})["outcome"]
        after = now.get(item, {"outcome": "missing"})
        if after["outcome"] in (before, "passed") or before in BAD and after["outcome"] != "crash":
            continue
        text = after.get("text", f"{before} in the plain run")
        worse.append(Finding(name(item), after["outcome"], text, why(name(item), mode, mine)))
    return worse


def unused(found: Iterable[Finding], mode: str, reasons: Iterable[Reason]) -> list[str]:
    """Return the patterns for `mode` that no finding matches: they have to go."""
    items = [finding.item for finding in found]
    return [pattern.pattern for reason in reasons if mode in reason.modes for pattern in reason.items
            if not any(pattern.fullmatch(item) for item in items)]


def totals(now: Events, found: Iterable[Finding], name: Callable[[str], str] = short) -> str:
    """Return a table: items of each package by outcome, and what is new among them."""
    rows: dict[str, Counter[str]] = {}
    for item, event in now.items():
        row = rows.setdefault(name(item).partition("/")[0], Counter())
        row[event["outcome"]] += 1
        row["items"] += 1
        row["traced"] += event.get("traced", False)
        row["internal"] += len(event.get("internal", ()))
    for finding in found:
        row = rows.setdefault(finding.item.partition("/")[0], Counter())
        row["expected" if finding.reason else "new"] += 1
    rows["total"] = sum(rows.values(), Counter())
    columns = ("items", "traced", "passed", "skipped", "xfailed", "failed", "error", "crash", "hang",
               "timeout", "expected", "new", "internal")
    lines = [f"{'':12}" + "".join(f"{name:>10}" for name in columns)]
    lines += [f"{name:12}" + "".join(f"{row[column]:10}" for column in columns)
              for name, row in rows.items()]
    return "\n".join(lines)
