"""Tables in Markdown and on a terminal, and the formats of the numbers in them."""

from __future__ import annotations

from collections.abc import Sequence

LEFT, RIGHT = "---", "---:"  # alignments of columns in Markdown


def markdown_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown(
    head: Sequence[str], rows: Sequence[Sequence[str]], alignments: Sequence[str] | None = None,
) -> str:
    """Return a Markdown table; without `alignments`, all columns but the first are aligned right."""
    if alignments is None:
        alignments = [LEFT, *[RIGHT] * (len(head) - 1)]
    return "\n".join(map(markdown_row, (head, alignments, *rows)))


def text_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row for a terminal: cells padded to `widths`, all but the first aligned right."""
    padded = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return cells[0].ljust(widths[0]) + "".join(padded)


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds with three significant digits, from a second on without decimals."""
    return f"{seconds * 1e3:,.3g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def percentages(middle: float, low: float, high: float, digits: int) -> str:
    """Return a median and its quartiles as percentages with `digits` decimals."""
    return f"{middle:.{digits}%} ({low:.{digits}%}–{high:.{digits}%})"
