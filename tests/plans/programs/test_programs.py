"""The fixtures of this folder: functions as users write them, the structure of their plans, their values.

Unlike those one folder up they are traced and rewritten before they are planned, with the prices of
the reference machine; what was handed to NumPy outside of plans is counted, too.
"""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitla
from jitla.codegen import LlvmBackend
from jitla.engine import ENGINE
from jitla.fusion import format_plan, plan, structure

_RNG = np.random.default_rng(0)
VALUES: dict[str, Any] = {
    **{n: _RNG.normal(size=s) for n, s in {
        "X": (300, 40), "Y": (300, 40), "V": (40, 7), "P": (300, 7), "C": (7, 40), "T": (5, 60, 40),
        "v": (40,), "w": (40,), "u": (7,), "r": (300,), "q": (300,)}.items()},
    "F": _RNG.normal(size=(300, 40)).astype("f4"), "N": _RNG.integers(-9, 9, (300, 40)),
    "L": _RNG.integers(0, 7, 300), "Z": _RNG.normal(size=(300, 40)) + 1j, "s": 0.5,
    "B": _RNG.normal(size=(3000, 40)), "b": _RNG.normal(size=3000),
}
_NUMBER = count()
_SUPPORTS = LlvmBackend().supports


def fixtures() -> Iterator[Any]:
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        title = path.stem
        for block in path.read_text(encoding="utf-8").split("\n\n"):
            lines = block.splitlines()
            title = next((line[2:] for line in lines if line.startswith("# ")), title)
            code = [line for line in lines if line and not line.startswith("#")]
            if code:
                *body, returned, wanted = code
                mark = f"{path.stem}: {title}"
                yield pytest.param(body, returned.removeprefix("return: "), wanted, id=mark)


def function(body: list[str], returned: str) -> tuple[Any, list[Any]]:
    """Return the snippet as a function with source, and its arguments."""
    text = "\n".join(body) + "\n" + returned
    names = [n for n in VALUES if re.search(rf"(?<![\w.]){n}\b", text)]
    source = f"def f({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in body)
    source += f"    return {returned}\n"
    filename = f"<fixture-{next(_NUMBER)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    found: dict[str, Any] = {"np": np}
    exec(compile(source, filename, "exec"), found)
    return found["f"], [VALUES[n].copy() if isinstance(VALUES[n], np.ndarray) else VALUES[n] for n in names]


def planned(jitted: Any) -> tuple[str, str]:
    """Return the structure of all programs of a function, and their plans as text."""
    total: Counter[str] = Counter()
    texts = []
    sites = jitted.__jitla_state__.all_sites()
    for program in dict.fromkeys(p for site in sites for p in site.runs() if hasattr(p, "plan")):
        draft = program.stages[1].draft
        found = plan(draft.roots, draft.layouts, _SUPPORTS)
        total.update(structure(found))
        texts.append(format_plan(found))
    total["NumPy"] = jitted.stats().fallbacks
    wanted = [name for name in ("Cell", "MAgg", "Row", "Outer", "Call", "NumPy") if total[name]]
    return ", ".join(f"{name} {total[name]:g}" for name in wanted), "\n".join(texts)


@pytest.mark.parametrize("body, returned, wanted", list(fixtures()))
def test_program(body, returned, wanted, monkeypatch):
    monkeypatch.setattr(ENGINE, "_compilers", {})  # programs found there were planned for other sizes
    plain, args = function(body, returned)
    jitted = jitla.jit(plain)
    got = jitted(*args)
    assert jitted.stats().failures == 0
    found, text = planned(jitted)
    assert f"structure: {found}".rstrip() == wanted, text
    plain, again = function(body, returned)
    expected = plain(*again)
    if not isinstance(got, tuple):
        got, expected = (got,), (expected,)
    for x, y in zip((*got, *args), (*expected, *again), strict=True):
        assert type(x) is type(y)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
        assert np.asarray(x).dtype == np.asarray(y).dtype
