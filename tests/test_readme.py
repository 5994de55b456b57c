"""Every Python example of the README and of the docs runs, page by page, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page: Path) -> list[tuple[int, str]]:
    """The examples of a page, each with the line it starts at."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in FENCE.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if examples(p)], ids=lambda p: p.name)
def test_examples_run(page):
    scope: dict[str, object] = {"__name__": "example"}
    for line, source in examples(page):
        # blank lines keep the page's line numbers in tracebacks and in explain
        exec(compile("\n" * line + source, str(page), "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
