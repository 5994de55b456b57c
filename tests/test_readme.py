"""Every Python example of the README and of the docs runs, page by page, top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FOLDERS = (DOCS, DOCS / "dev", DOCS / "reports")  # not _build, nor the gallery, whose pages are generated
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(p for d in FOLDERS for p in sorted(d.glob("*.md")))]
# Pages that add to tables of the whole process.
ALONE = {"adding-an-operator.md"}
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


def label(page: Path) -> str:
    """Return the path of a page below the repository, as the id of its test."""
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if program(p)], ids=label)
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


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


PAGE_NAME = re.compile(r"\bdocs/[\w/-]+\.md\b")


def test_sources_name_pages_that_exist():
    files = [f for d in ("jitla", "tests", "bench", "tools") for f in (ROOT / d).rglob("*.py")]
    files += [ROOT / "Makefile", *PAGES]
    named = {(name, str(f)) for f in files for name in PAGE_NAME.findall(f.read_text(encoding="utf-8"))}
    assert not [pair for pair in named if not (ROOT / pair[0]).exists()]
