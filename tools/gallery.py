"""Executes the notebooks of ``docs/gallery`` and writes each as a page with what its cells show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


def cells(notebook: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of every cell."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        yield cell["cell_type"], "".join(cell["source"])


def page(notebook: Path) -> str:
    """Return a notebook as a page, its code executed in a new shell."""
    shell = InteractiveShell.instance()
    shell.reset()
    # what cells show is written below; they do not print it, too
    shell.displayhook.write_output_prompt = lambda: None
    shell.displayhook.write_format_data = lambda *told, **kinds: None
    try:
        return "\n\n".join(text if kind == "markdown" else _executed(shell, text)
                           for kind, text in cells(notebook)) + "\n"
    finally:
        InteractiveShell.clear_instance()


def _executed(shell: Any, code: str) -> str:
    """Return code and what it printed and showed; what goes wrong goes on."""
    with capture_output(display=True) as told:
        done = shell.run_cell(code, store_history=True)
    done.raise_error()
    parts = [f"```python\n{code}\n```"]
    if told.stdout:
        parts.append(f"```text\n{told.stdout.rstrip()}\n```")
    if done.result is not None:
        shown, _ = shell.display_formatter.format(done.result)
        html = shown.get("text/html")
        parts.append(f"```{{raw}} html\n{html}\n```" if html else f"```text\n{shown['text/plain']}\n```")
    return "\n\n".join(parts)


if __name__ == "__main__":
    for found in sorted(GALLERY.glob("*.ipynb")):
        found.with_suffix(".md").write_text(page(found), encoding="utf-8")
