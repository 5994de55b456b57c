"""Writes ``docs/rules.md``: every rewrite with what it becomes, when, how exact, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitla.rewrites import RULES, AnyConst, App, AttrVar, Num, Pattern, Rule, Var, VarArgs

ROOT = Path(__file__).parents[1]
FIXTURES, PAGE = ROOT / "tests" / "rules", ROOT / "docs" / "rules.md"

HEAD = """# Rewrites

Before loops are planned, the recorded operations are rewritten into ones that mean the same and cost less.
Each rewrite is a rule, written down as data in `jitla/rewrites/`: a pattern, what it becomes, a condition,
how exact it is, and why. `jitla.explain(f, "rewrites")` shows which ones fired in a function of yours.

There are {count} rules. Which of them are on depends on `numerics`:

- **exact** ({exact}): every bit stays, NaN's sign and payload aside, and every warning. At all levels.
- **rounding** ({rounding}): equal over the reals, with no worse bound of errors. At `"numpy"`, the default,
  and `"relaxed"`.
- **relaxed** ({relaxed}): equal over the reals. At `"relaxed"` only.

The option `without_rules`, and `JITLA_WITHOUT_RULES=name,name`, leave out single ones.

Capital letters stand for any value, the same letter for the same value. What is in ⟨angle brackets⟩ must have
no other use: then it is not computed at all. `tests/rules/` has examples of each, where it applies and where
not. This page is made from the rules by `python -m tools.rules_table`.
"""


def families() -> dict[str, tuple[str, list[Rule]]]:
    """Return the rules by the fixture file that shows them, with the file's first line."""
    by_name = {rule.name: rule for rule in RULES}
    found = {}
    for file in sorted(FIXTURES.glob("*.txt")):
        rows = file.read_text(encoding="utf-8").splitlines()
        names = dict.fromkeys(row.split("|")[0].strip() for row in rows if "|" in row)
        found[file.stem] = (rows[0].lstrip("# ").strip(), [by_name[n] for n in names if n in by_name])
    return found


def pattern_text(pattern: Pattern) -> str:
    """Write a pattern as an expression."""
    match pattern:
        case Var(name) | AnyConst(name):
            return name
        case VarArgs():
            return "…"
        case Num(value):
            return str(value)
        case App(op, args, attrs):
            words = [pattern_text(a) for a in args]
            words += [f"{k}={v}" for k, v in attrs if not isinstance(v, AttrVar) and v is not False]
            words += ["axis"] * any(k == "axis" and isinstance(v, AttrVar) for k, v in attrs)
            text = f"{op}({', '.join(words)})"
            return f"⟨{text}⟩" if pattern.single_use else text


def sentence(function: Callable[..., Any]) -> str:
    """Return the first line of a docstring, of what a partial function calls, too."""
    doc = getattr(function, "func", function).__doc__ or ""
    return doc.strip().splitlines()[0].rstrip(".")


def row(rule: Rule) -> str:
    """Return the line of the table for one rule."""
    if rule.right is not None:
        after = f"`{pattern_text(rule.right)}`"
    else:
        made = rule.build or rule.whole_dag
        assert made is not None
        after = re.sub(r"^(Build|Return) ", "", sentence(made))
    when = sentence(rule.when) if rule.when else ""
    cells = (f"`{rule.name}`", f"`{pattern_text(rule.left)}`", after, when, rule.exactness, rule.doc)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def page() -> str:
    """Return the whole page."""
    rules = list(RULES)
    counts = {name: sum(r.exactness == name for r in rules) for name in ("exact", "rounding", "relaxed")}
    parts = [HEAD.format(count=len(rules), **counts)]
    for name, (title, members) in families().items():
        lines = [row(rule) for rule in members]
        parts.append("\n".join([
            f"\n## {name.capitalize()}\n", f"{title}\n", "| rule | before | after | when | class | why |",
            "|---|---|---|---|---|---|", *lines, ""]))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
