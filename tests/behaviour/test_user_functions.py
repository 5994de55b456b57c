"""Unchanged functions of users and of installed packages: identical results, types and arguments."""

from __future__ import annotations

import linecache
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import pytest

import jitla
from jitla.dispatch.verify_mode import divergences
from tests.behaviour.nineteen import ARGUMENTS, FUNCTIONS
from tests.fuzz.compare import compare, outcome

# Nineteen unchanged functions: identical results, types, dtypes and arguments afterwards.

FILE = FUNCTIONS["softmax"].__code__.co_filename
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def test_there_are_nineteen():
    assert len(FUNCTIONS) == 19 and FUNCTIONS.keys() == ARGUMENTS.keys()
    assert "jitla" not in "".join(linecache.getlines(FILE)[8:])


@every_function
def test_strictly_identical(name):
    fast = jitla.jit(numerics="strict")(FUNCTIONS[name])
    for _ in range(3):
        plain = outcome(FUNCTIONS[name], ARGUMENTS[name](), tuple, FILE)
        made = outcome(fast, ARGUMENTS[name](), tuple, FILE)
        assert compare(plain, made) == []
    assert fast.stats().failures == 0


@every_function
def test_identical_but_for_the_last_bits(name):
    fast = jitla.jit(FUNCTIONS[name])
    with np.errstate(invalid="ignore"):  # a row of `clipped` is all zeros
        plain = FUNCTIONS[name](*(wanted := ARGUMENTS[name]()))
        result = fast(*(given := ARGUMENTS[name]()))
    assert list(divergences((result, given), (plain, wanted), exact=False)) == []
    assert fast.stats().failures == 0


# Functions of an installed package that decorates some of its own are traced like any other.

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = """
    import jitla
    import numpy as np

    def sigmoid(z):
        return 1.0 / (1.0 + np.exp(-z))

    @jitla.jit
    def score(x):
        return sigmoid(x) + sigmoid(-x)
"""
CHECK = """
    import sysconfig, site, sys
    folder = sys.argv[1]
    site.getsitepackages = lambda: [folder]  # where packages are installed
    sys.path.insert(0, folder)
    import numpy as np
    import installed_here
    x = np.linspace(-3.0, 3.0, 50)
    assert np.allclose(installed_here.score(x), 1.0)
    stats = installed_here.score.stats()
    print(int(stats.kernel_runs), int(stats.materialised), int(stats.fallbacks))
"""


@pytest.mark.process
def test_an_installed_package_is_traced_with_its_helpers(tmp_path):
    assert not str(tmp_path).startswith(sysconfig.get_path("purelib"))
    (tmp_path / "installed_here.py").write_text(textwrap.dedent(PACKAGE), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CHECK), str(tmp_path)], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1", "0"]
