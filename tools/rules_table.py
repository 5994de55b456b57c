"""Generates ``docs/rules.md``: every rewrite with its replacement, condition, exactness and reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jitla.rewrites import RULES, AnyConst, App, AttrVar, Num, Pattern, Rule, Var, VarArgs

ROOT = Path(__file__).parents[1]
FIXTURES, PAGE = ROOT / "tests" / "rules", ROOT / "docs" / "rules.md"

HEAD = """# Rewrites

Before fusion, jitla rewrites the recorded operations into equal but cheaper ones. Each rewrite is a rule in
`jitla/rewrites/`: a pattern, a replacement, a condition, how exact it is, and why it helps.
`jitla.explain(f, "rewrites")` shows the rules that fired in a function.

There are {count} rules in {groups} groups. The option `numerics` decides which are on:

| class | rules | on at `numerics=` | changes |
|---|---|---|---|
| exact | {exact} | all levels | no bits except sign and payload of NaN, and no warnings |
| rounding | {rounding} | `"numpy"` (default), `"relaxed"` | rounding, with no worse error bound |
| relaxed | {relaxed} | `"relaxed"` | equal over the reals |

The option `without_rules` (`JITLA_WITHOUT_RULES=name,name`) turns off single rules.

Capital letters stand for any value, the same letter for the same value. `a/b(X)` stands for `a(X)` and for
`b(X)`, in the order of the rules. An expression in ⟨angle brackets⟩ must have no other use. `tests/rules/`
has examples of each rule, where it applies and where not. `python -m tools.rules_table` generates this page.
"""


def families() -> dict[str, tuple[str, list[Rule]]]:
    """Return the rules by the fixture file that tests them, with the first line of the file."""
    by_name = {rule.name: rule for rule in RULES}
    families = {}
    for file in sorted(FIXTURES.glob("*.txt")):
        rows = file.read_text(encoding="utf-8").splitlines()
        names = dict.fromkeys(row.split("|")[0].strip() for row in rows if "|" in row)
        families[file.stem] = (rows[0].lstrip("# ").strip(), [by_name[n] for n in names if n in by_name])
    return families


def pattern_text(pattern: Pattern) -> str:
    """Return a pattern as an expression."""
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
    """Return the first line of a function's docstring; partial functions have that of the inner function."""
    doc = getattr(function, "func", function).__doc__ or ""
    return doc.strip().splitlines()[0].rstrip(".")


def cells(rule: Rule) -> tuple[str, str, str, str, str, str, str]:
    """Return what the table says of a rule: name, pattern, new pattern or else words, when, class, why."""
    pattern, words = "", ""
    if rule.right is not None:
        pattern = pattern_text(rule.right)
    else:
        build = rule.build or rule.whole_dag
        assert build is not None
        words = re.sub(r"^(Build|Return) ", "", sentence(build))
    when = sentence(rule.when) if rule.when else ""
    return f"`{rule.name}`", pattern_text(rule.left), pattern, words, when, rule.exactness, rule.doc


def merged(texts: list[str]) -> str:
    """Return one text with alternatives such as `sum/prod` if `texts` differ in one word, else a list."""
    words = [re.split(r"(\w+)", text) for text in texts]
    if len({len(each) for each in words}) > 1:
        return ", ".join(dict.fromkeys(f"`{text}`" for text in texts))
    columns = list(zip(*words, strict=True))
    varying = {column for column in columns if len(set(column)) > 1}
    if len(varying) > 1 or varying & set(columns[::2]):
        return ", ".join(dict.fromkeys(f"`{text}`" for text in texts))
    return "`" + "".join("/".join(dict.fromkeys(column)) for column in columns) + "`"


def groups(rules: list[Rule]) -> list[list[tuple[str, ...]]]:
    """Return the cells of rules, those together that differ in their names and patterns."""
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for rule in rules:
        row = cells(rule)
        alike.setdefault((str(bool(row[2])), *row[3:]), []).append(row)
    return list(alike.values())


def line(group: list[tuple[str, ...]]) -> str:
    """Return the line of the table for a group of rules."""
    before = merged([row[1] for row in group])
    after = group[0][3] or merged([row[2] for row in group])
    texts = (", ".join(row[0] for row in group), before, after, *group[0][4:])
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def page() -> str:
    """Return the whole page."""
    rules = list(RULES)
    counts = {name: sum(r.exactness == name for r in rules) for name in ("exact", "rounding", "relaxed")}
    tables = {name: (title, groups(members)) for name, (title, members) in families().items()}
    parts = [HEAD.format(count=len(rules), groups=sum(len(lines) for _, lines in tables.values()), **counts)]
    for name, (title, members) in tables.items():
        count = sum(len(group) for group in members)
        parts.append("\n".join([
            f"\n## {name.capitalize()}\n", f"{title}\n", "<details>", f"<summary>{count} rules</summary>\n",
            "| rules | before | after | when | class | why |", "|---|---|---|---|---|---|",
            *map(line, members), "\n</details>\n"]))
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
