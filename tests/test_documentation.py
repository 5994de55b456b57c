"""The examples of the README, the documentation and the gallery run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jitla
from tools.gallery import GALLERY, cells, page

# Every Python example of the README and of the docs runs, page by page, top to bottom.

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


@pytest.mark.process
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


# The notebooks of the gallery are executed, cell by cell, and show what they are about.


def test_logistic_regression_shows_its_graph():
    made = page(GALLERY / "logistic.ipynb")
    assert "of the labels are predicted" in made and made.count("<svg") >= 1
    assert "matmul" in made and "handed to NumPy" in made and "<td>calls</td>" in made


def test_freezing_is_seen_in_the_table():
    made = page(GALLERY / "recompilation.ipynb")
    assert "recompilation is off" in made and "recompilation is on" in made
    tables = made.split("<h3>recompilations</h3>")
    before, after = (table.partition("</pre>")[0] for table in tables[1:])
    assert "  none  " in before and after.count("  now  ") > before.count("  now  ")
    assert jitla.config.recompile


def test_pagerank_shows_what_steps_took():
    made = page(GALLERY / "pagerank.ipynb")
    assert "<h3>pagerank: runtime</h3>" in made and "<svg" in made and "np.float64(1.0)" in made


def test_notebooks_are_kept_without_what_they_showed():
    for notebook in GALLERY.glob("*.ipynb"):
        assert '"outputs": []' in notebook.read_text(encoding="utf-8")
        assert [kind for kind, _ in cells(notebook)][0] == "markdown"
