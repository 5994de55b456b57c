"""Blocks end before they become long, or keep much memory, and explanations say where."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.config import TracingThresholds
from jitla.instrument import statements as stretch

MOST = 24
LINES = ("z = x * 0.5 - y", "x = x * 0.9999 - z", "y = y * 0.5 + z")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks are long when they have two dozen operations: plans of hundreds take seconds."""
    monkeypatch.setattr(stretch, "MIN_OPERATIONS", MOST // 4)
    with jitla.options(thresholds=TracingThresholds(max_pending_operations=MOST)):
        yield


def function(folder: Path, name: str, lines: list[str]) -> Any:
    """Define ``f(x, y)`` of these lines in a file."""
    file = folder / f"{name}.py"
    body = "".join(f"    {line}\n" for line in lines)
    file.write_text(f"import numpy as np\n\n\ndef f(x, y):\n{body}    return x.sum(), y\n")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.f


def agrees(plain: Any, decorated: Any) -> None:
    x, y = np.linspace(0.0, 1.0, 64), np.full(64, 1e-3)
    for mine, theirs in zip(decorated(x, y), plain(x, y), strict=True):
        assert type(mine) is type(theirs) and np.array_equal(mine, theirs)


def test_long_functions_have_few_plans(tmp_path: Path) -> None:
    plain = function(tmp_path, "repeating", [*LINES * 40])
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    agrees(plain, decorated)
    record = jitla.explain(decorated).record
    assert max(len(p.trace) for p in record.programs) <= 2 * MOST
    runs = {len(p.trace): p.runs for p in record.programs}
    assert len(runs) <= 3 < max(runs.values())  # all blocks but the first and the last have one plan


def test_lines_that_do_not_repeat_are_cut_too(tmp_path: Path) -> None:
    lines = [f"x = x * {1 + k / 1e4} + y{' * x' * (k % 3)}" for k in range(40)]
    plain = function(tmp_path, "changing", lines)
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    record = jitla.explain(decorated).record
    assert record.cuts and max(len(p.trace) for p in record.programs) <= 2 * MOST


def test_explain_says_where_a_block_was_cut(tmp_path: Path) -> None:
    plain = function(tmp_path, "told", [*LINES * 6])
    decorated = jitla.jit(plain, compile="sync")
    agrees(plain, decorated)
    explanation = jitla.explain(decorated)
    (cut,) = explanation.record.cuts
    assert cut.line.text in LINES and cut.count == 1 and MOST - 8 < cut.operations < 2 * MOST
    text = str(explanation)
    assert f"== cut: 1 place, after at most {cut.operations} operations" in text
    assert f"after {cut.line.place}" in text and cut.line.text in text
    assert cut.line.place in explanation.to_html()


def test_short_functions_are_not_cut(tmp_path: Path) -> None:
    decorated = jitla.jit(function(tmp_path, "short", [*LINES * 3]), compile="sync")
    decorated(np.ones(64), np.ones(64))
    (program,) = jitla.explain(decorated).record.programs
    assert len(program.trace) > 12 and not jitla.explain(decorated).record.cuts


def test_arrays_for_one_block_do_not_pile_up(tmp_path: Path) -> None:
    thresholds = TracingThresholds(
        max_pending_operations=MOST, min_counted_bytes=0, max_entered_bytes=4 * 64 * 8)
    lines = ["x = x * np.sort(y)", "x = x + np.ones(x.shape)"] * 8
    plain = function(tmp_path, "held", lines)
    decorated = jitla.jit(plain, compile="sync")
    with jitla.options(thresholds=thresholds):
        agrees(plain, decorated)
    assert sum(p.runs for p in jitla.explain(decorated).record.programs) >= 3
