"""Charts as SVG, of bars and of lines, with axes by powers of ten."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#8d6b94", "#5f6c72", "#b56576", "#2e4057",
           "#90a955", "#c17c74", "#457b9d", "#e07a5f")
FONT = 'font-family="sans-serif" font-size="11"'
STEP, LEFT, WIDE = 14, 190, 560  # height of a bar, room for names, room for bars
HEIGHT, MARGIN = 300, 60


def _frame(width: float, height: float, parts: Sequence[str]) -> str:
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {FONT}>\n'
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>\n')
    return head + "\n".join(parts) + "\n</svg>\n"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "#dddddd") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _powers(low: float, high: float) -> range:
    """Return exponents of the powers of ten around `low` and `high`."""
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


def _legend(names: Sequence[str], width: float) -> tuple[list[str], float]:
    """Return the names of colours, in lines, and how high that is."""
    parts, x, y = [], 10.0, 14.0
    for name, colour in zip(names, COLOURS, strict=False):
        if x + 7 * len(name) + 30 > width:
            x, y = 10.0, y + 16
        parts += [f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>',
                  _text(x + 14, y, name)]
        x += 7 * len(name) + 30
    return parts, y + 12


def bars(groups: Mapping[str, Mapping[str, float]], systems: Sequence[str], unit: str) -> str:
    """Draw a group of bars for each of `groups`, one bar for each system that it has a number for."""
    values = [v for group in groups.values() for v in group.values()]
    ticks = _powers(min(values), max(values))
    scale = WIDE / max(ticks[-1] - ticks[0], 1)

    def place(value: float) -> float:
        return LEFT + (math.log10(value) - ticks[0]) * scale

    parts, top = _legend(systems, LEFT + WIDE)
    body: list[str] = []
    y = top + 8
    for name, group in groups.items():
        body.append(_text(LEFT - 6, y + STEP * len(group) / 2 + 4, name, "end"))
        for at, system in enumerate(systems):
            if system in group:
                body.append(f'<rect x="{LEFT}" y="{y:.1f}" width="{max(place(group[system]) - LEFT, 1):.1f}" '
                            f'height="{STEP - 3}" fill="{COLOURS[at % len(COLOURS)]}"/>')
                y += STEP
        y += 6
    axis = [_line(LEFT + at * scale, top, LEFT + at * scale, y) for at in range(len(ticks))]
    named = [_text(LEFT + at * scale, y + 14, f"{10.0 ** e:g}", "middle") for at, e in enumerate(ticks)]
    named.append(_text(LEFT + WIDE / 2, y + 30, unit, "middle"))
    return _frame(LEFT + WIDE + 40, y + 40, [*parts, *axis, *body, *named])


def _curve(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'


def lines(curves: Mapping[str, Sequence[tuple[float, float]]], across: str, up: str) -> str:
    """Draw a line through the points of each of `curves`; both axes go by powers of ten."""
    xs, ys = ([p[axis] for points in curves.values() for p in points] for axis in (0, 1))
    x_ticks, y_ticks = _powers(min(xs), max(xs)), _powers(min(ys), max(ys))
    parts, top = _legend(list(curves), MARGIN + WIDE)
    top += 20  # for what the upward axis means
    dx, dy = WIDE / max(len(x_ticks) - 1, 1), HEIGHT / max(len(y_ticks) - 1, 1)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return (MARGIN + (math.log10(point[0]) - x_ticks[0]) * dx,
                top + HEIGHT - (math.log10(point[1]) - y_ticks[0]) * dy)

    for at, e in enumerate(x_ticks):
        x = MARGIN + at * dx
        parts += [_line(x, top, x, top + HEIGHT), _text(x, top + HEIGHT + 14, f"{10.0 ** e:g}", "middle")]
    for at, e in enumerate(y_ticks):
        y = top + HEIGHT - at * dy
        parts += [_line(MARGIN, y, MARGIN + WIDE, y), _text(MARGIN - 4, y + 4, f"{10.0 ** e:g}", "end")]
    for at, points in enumerate(curves.values()):
        parts += _curve([place(p) for p in sorted(points)], COLOURS[at % len(COLOURS)])
    parts += [_text(MARGIN + WIDE / 2, top + HEIGHT + 30, across, "middle"), _text(4, top - 12, up)]
    return _frame(MARGIN + WIDE + 40, top + HEIGHT + 40, parts)
