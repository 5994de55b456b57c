"""The notebooks of the gallery are executed, cell by cell, and show what they are about."""

from __future__ import annotations

import jitla
from tools.gallery import GALLERY, cells, page


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
