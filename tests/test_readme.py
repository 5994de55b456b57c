"""Every Python example of the README and of the docs runs, page by page, top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# What adds to tables that all programs of a process share, and what needs that no other thread runs.
ALONE = {"extending.md", "sparse.md"}
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program(page: Path) -> str:
    """The examples of a page as one program; each line keeps its number."""
    text = page.read_text(encoding="utf-8")
    found, line = "", 0
    for m in FENCE.finditer(text):
        start = text.count("\n", 0, m.start(1))
        found += "\n" * (start - line) + m.group(1)
        line = text.count("\n", 0, m.end(1))
    return found


@pytest.mark.parametrize("page", [p for p in PAGES if program(p)], ids=lambda p: p.name)
def test_examples_run_and_are_compiled(page, tmp_path):
    file = tmp_path / page.with_suffix(".py").name  # jitla reads the source of what it traces
    file.write_text(program(page), encoding="utf-8")
    if page.name in ALONE:
        subprocess.run([sys.executable, str(file)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        return
    scope: dict[str, object] = {"__name__": "example"}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), scope)
    decorated = [f for f in scope.values() if hasattr(f, "stats")]
    assert decorated or "jit(" not in program(page) and "@jitla" not in program(page)
    for function in decorated:
        assert function.stats().kernel_runs > 0, function.__name__


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
