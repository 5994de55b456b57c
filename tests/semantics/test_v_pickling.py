"""Row V9 of the semantics sheet: decorated functions that travel by pickle and cloudpickle."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np

import jitla

ROOT = Path(__file__).parents[2]


@jitla.jit
def doubled(x):
    return x * 2 + 1


class Model:
    def __init__(self, w):
        self.w = w

    @jitla.jit
    def run(self, x):
        return x * self.w


def test_v9_by_reference() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(Model(3.0).run))(np.ones(2)).tolist() == [3.0, 3.0]


def test_v9_by_value_into_another_process() -> None:
    k = 5.0

    @jitla.jit
    def scaled(x):
        return x * k + x.sum()

    scaled(np.ones(3))  # what it has learnt stays here
    text = cloudpickle.dumps((scaled, Model))
    code = (
        "import sys, pickle, numpy as np\n"
        "f, Model = pickle.loads(sys.stdin.buffer.read())\n"
        "print(f(np.ones(3)).tolist(), Model(2.0).run(np.ones(2)).tolist(), f.stats()['calls'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, cwd=ROOT, check=False, timeout=120)
    assert done.stdout.decode().strip() == "[8.0, 8.0, 8.0] [2.0, 2.0] 1", done.stderr.decode()[-500:]
