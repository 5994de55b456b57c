"""Drawings and pages of plans: golden files, well-formed, deterministic, and in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla.errors import ConfigError
from jitla.explanations.explanation import explanation
from jitla.explanations.graph import NODE_HEIGHT, NodeRecord, dot, mermaid, svg
from jitla.explanations.records import (
    CoveredOperator,
    FunctionRecord,
    ProgramRecord,
    SourceLine,
    StepRecord,
)
from tests.test_explanations import RECORD, START

# Drawings and pages of plans: golden files, well-formed, the same for the same records.

GOLDEN = Path(__file__).parent / "golden" / "explain"
NODES = (
    NodeRecord("array", "1000x60 float64"), NodeRecord("array", "60 float64"),
    NodeRecord("matmul", "1000 float64", "C1", (0, 1), "svm.py:14  out = 1 - y * (X @ w)"),
    NodeRecord("array", "1000 float64"), NodeRecord("multiply", "1000 float64", "K1", (3, 2), "svm.py:14"),
    NodeRecord("maximum", "1000 float64", "K1", (4,), "a < b & c"),
    NodeRecord("square", "1000 float64", "K1", (5, 5)), NodeRecord("sum", "scalar float64", "K1", (6,)),
    NodeRecord("divide", "1000 float64", "K9", (4, 7, 0), result=True))
SHOWN = replace(RECORD, programs=(replace(RECORD.programs[0], nodes=NODES), RECORD.programs[1]))


class Nesting(HTMLParser):
    """Follows the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        if tag not in ("meta", "br", "rect", "path", "polygon"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("rect", "path", "polygon"):
            assert self.open.pop() == tag


def boxes(drawing: str) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(drawing)
    found = [r for r in root.iter() if r.tag.endswith("rect")]
    return [(float(r.attrib["x"]), float(r.attrib["y"])) for r in found]


@pytest.mark.parametrize(("name", "make"), [
    ("plan.mmd", lambda e: e.to_mermaid()), ("plan.dot", lambda e: e.to_dot()),
    ("plan.html", lambda e: e.to_html()), ("plan.json", lambda e: e.to_json(indent=1) + "\n")])
def test_the_files_are_as_agreed(name, make):
    text = make(explanation(SHOWN))
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_a_drawing_has_a_box_for_each_value_and_none_on_another():
    places = boxes(svg(NODES))
    assert len(places) == len(NODES) == len(set(places))
    for at, node in enumerate(NODES):
        for read in node.reads:
            assert places[read][1] + NODE_HEIGHT < places[at][1]  # what is read stands above


def test_a_drawing_of_nothing_is_empty():
    assert svg(()) == ""
    assert mermaid(()) == "flowchart TB\n" and dot(()).endswith("}\n")


def test_lines_are_escaped():
    assert "a &lt; b &amp; c" in svg(NODES) and "a < b" not in svg(NODES)


def test_long_lines_bend_where_layers_are_passed():
    deep = (NodeRecord("array", "3"), NodeRecord("exp", "3", "K1", (0,)), NodeRecord("sin", "3", "K1", (1,)),
            NodeRecord("add", "3", "K1", (2, 0)))
    paths = [p.attrib["d"] for p in ElementTree.fromstring(svg(deep)).iter() if p.tag.endswith("path")]
    assert sorted(path.count("C") for path in paths) == [1, 1, 1, 3]


def test_a_page_nests_and_needs_nothing_else():
    page = explanation(SHOWN).to_html()
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == [] and "script" not in nesting.seen and "link" not in nesting.seen
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme: dark" in page


def test_json_holds_the_record():
    found = json.loads(explanation(SHOWN).to_json())
    assert found["name"] == "l2svm" and found["programs"][0]["nodes"][4]["reads"] == [3, 2]
    assert found["programs"][0]["cost"]["peak"] == 8000


def test_a_file_is_of_the_kind_that_its_name_ends_in(tmp_path):
    e = explanation(SHOWN)
    for ending, text in ((".html", e.to_html()), (".json", e.to_json()), (".trace.json", e.to_trace()),
                         (".mmd", e.to_mermaid()),
                         (".dot", e.to_dot()), (".txt", str(e))):
        e.save(tmp_path / f"plan{ending}")
        assert (tmp_path / f"plan{ending}").read_text(encoding="utf-8") == text
    with pytest.raises(ConfigError, match=r"plan\.pdf.*\.html, \.trace\.json, \.json, \.mmd, \.dot, \.txt"):
        e.save(tmp_path / "plan.pdf")


def test_a_notebook_shows_the_level_that_was_asked_for():
    shown = explanation(SHOWN, "runtime")._repr_html_()
    assert "<h3>l2svm: runtime</h3>" in shown and "measured" in shown and "<svg" not in shown
    assert "<svg" in explanation(SHOWN)._repr_html_()


def test_what_never_ran_has_a_page():
    page = explanation(FunctionRecord("f", START, programs=(ProgramRecord("f.py:1"),)))._repr_html_()
    assert "f.py:1" in page and "svg" not in page


def test_the_drawing_of_a_function_that_ran():
    @jitla.jit
    def f(X, w):
        p = 1 / (1 + np.exp(-(X @ w)))
        return X.T @ p, p.sum()

    rng = np.random.default_rng(0)
    f(rng.standard_normal((300, 20)), rng.standard_normal(20))
    (program,) = jitla.explain(f).record.programs
    steps = {name for name, _ in program.named()}
    assert {n.step for n in program.nodes} == steps | {""}
    assert all(read < at for at, n in enumerate(program.nodes) for read in n.reads)
    assert sum(n.result for n in program.nodes) == 2
    exp = next(n for n in program.nodes if n.op == "exp")
    assert exp.place.endswith("p = 1 / (1 + np.exp(-(X @ w)))") and exp.title == "300 float64"


def many(values: int, steps: int) -> tuple[NodeRecord, ...]:
    """Values one after the other, each with the first, in so many steps."""
    return (NodeRecord("array", "3"), *(
        NodeRecord("add", "3", f"K{1 + at * steps // values}", (at, 0)) for at in range(values)))


def test_many_values_are_drawn_as_steps_and_too_many_not_at_all():
    drawing = svg(many(10_000, 5))
    assert len(boxes(drawing)) == 6 and "2000 values" in drawing
    assert svg(many(10_000, 5_000)) == ""
    shown = replace(RECORD, programs=(ProgramRecord("p", nodes=many(10_000, 5_000)),))
    assert "10001 values are too many to draw" in explanation(shown)._repr_html_()


def test_long_explanations_have_the_most_on_a_screen():
    lines = tuple(CoveredOperator("add", SourceLine("f.py", n)) for n in range(10_000))
    steps = [StepRecord("kernel", "Cell 3 float64", lines[:9], seconds=1.0)] * 900
    steps[70] = StepRecord("kernel", "Cell 3 float64", lines, seconds=2.0)
    record = FunctionRecord("f", START, 1, (ProgramRecord("p", steps=tuple(steps), trace=lines),))
    text, page = str(explanation(record)), explanation(record)._repr_html_()
    assert text.count("\n") < 40 * 24 and "   K71  " in text and "and 9992 more\n" in text
    assert "876 steps that took less" in text and "   K900" not in text
    assert "   K900" in str(explanation(record, "all"))
    assert len(page) < 1_000_000 and "and 800 more" in page
    assert "... print(e.at(&#x27;trace&#x27;)) shows" in page


# Pages of explanations in a real browser, light and dark, where there is one.

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZE = 620, 380


def pixels(png: bytes) -> list[bytes]:
    """Return the rows of a picture of 8 bits to a channel, with their channels one after the other."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (width, height) == SIZE and depth == 8 and kind in (2, 6)
    step, at, data = 3 + (kind == 6), 8, b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at:at + 4])
        if png[at + 4:at + 8] == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    data = zlib.decompress(data)
    rows, above = [], bytearray(width * step)
    for row in range(height):
        start = row * (width * step + 1)
        line = bytearray(data[start + 1:start + 1 + width * step])
        _unfilter(data[start], line, above, step)
        rows.append(bytes(line))
        above = line
    return rows


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    for i in range(len(line) if kind else 0):
        left, up = line[i - step] if i >= step else 0, above[i]
        corner = above[i - step] if i >= step else 0
        if kind == 4:
            guess = left + up - corner
            near = min((left, up, corner), key=lambda value: abs(guess - value))
            line[i] = line[i] + near & 255
        else:
            line[i] = line[i] + (left, up, left + up >> 1)[kind - 1] & 255


def drawn(page: Path, shot: Path, scheme: int) -> list[bytes]:
    """Return the rows of a picture of a page, in the browser's light or dark scheme."""
    subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--run-all-compositor-stages-before-draw", "--virtual-time-budget=2000",
         f"--window-size={SIZE[0]},{SIZE[1]}", f"--blink-settings=preferredColorScheme={scheme}",
         f"--user-data-dir={shot.parent / 'profile'}", f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=100)
    return pixels(shot.read_bytes())


@pytest.mark.process
@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
@pytest.mark.parametrize(("mode", "ground", "scheme"), [
    ("light", (255, 255, 255), 1), ("dark", (0x17, 0x17, 0x1B), 0)])
def test_a_page_is_drawn_on_its_ground(tmp_path, mode, ground, scheme):
    page, shot = tmp_path / "plan.html", tmp_path / f"{mode}.png"
    explanation(SHOWN).save(page)
    wanted = {bytes.fromhex("cfe3ff"),  # what the first kernel computes
              bytes.fromhex("888888")}  # lines between values
    for _ in range(3):  # a busy browser hands out pictures it has not finished
        rows = drawn(page, shot, scheme)
        step = len(rows[0]) // SIZE[0]
        colours = {row[at:at + 3] for row in rows for at in range(0, len(row), step)}
        if wanted <= colours:
            break
    assert tuple(rows[2][:3]) == ground
    assert wanted <= colours
