"""A type checker sees decorated functions as what they were, and the options with their types."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from jitla.config import Config

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = '''
from typing import assert_type

import jitla
import numpy as np

Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


@jitla.jit
def axpy(a: float, x: Vector, y: Vector) -> Vector:
    return a * x + y


@jitla.jit(numerics="strict", compile="sync")
def power_sum(x: Vector, *, order: int = 2) -> float:
    return float((x**order).sum())


class Model:
    w: Vector

    @jitla.jit
    def predict(self, x: Vector) -> Vector:
        return self.w * x

    @classmethod
    @jitla.jit
    def width(cls, x: Vector) -> int:
        return len(x)

    @jitla.jit(strict=True)
    @staticmethod
    def twice(x: Vector) -> Vector:
        return x + x


def use(x: Vector, model: Model) -> str:
    assert_type(axpy(2.0, x, x), Vector)
    assert_type(power_sum(x, order=3), float)
    assert_type(model.predict(x), Vector)
    assert_type(Model.width(x), int)
    assert_type(Model.twice(x), Vector)
    axpy("no", x, x)  # type: ignore[arg-type]
    power_sum(x, 3)  # type: ignore[call-arg]
    jitla.jit(numerics=1)  # type: ignore[call-overload]
    with jitla.options(num_threads=1) as config:
        assert_type(config.num_threads, int)
    jitla.config.num_threads = 2
    jitla.config.numerics = 2  # type: ignore[assignment]
    return str(jitla.explain(axpy).at("plan")) + jitla.coverage()
'''


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is missing")
def test_a_typed_program_passes_mypy(tmp_path):
    program = tmp_path / "typed_program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "--config-file",
               str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_option_is_declared_for_checkers():
    text = (ROOT / "jitla" / "config.py").read_text(encoding="utf-8")
    declared = text.partition("\nif TYPE_CHECKING:")[2].partition("\n\n\n")[0]
    rows = [line.strip() for line in declared.splitlines()[1:]]
    assert rows == [f"{f.name}: {f.type}" for f in fields(Config) if f.name != "_epoch"]
