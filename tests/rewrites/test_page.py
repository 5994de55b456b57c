"""The page of rules is what the rules say; each family of them has one file of fixtures."""

from __future__ import annotations

from jitla.rewrites import RULES
from tools.rules_table import PAGE, families, page


def test_the_page_is_made_from_the_rules():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.rules_table"


def test_every_rule_is_in_one_family():
    named = [rule.name for _, members in families().values() for rule in members]
    assert sorted(named) == sorted(rule.name for rule in RULES)


def test_there_are_many_of_them():
    assert len(RULES) >= 150
